"""PyG's common layers and readouts on dense batches: the same weights, matrix products instead of messages.

Nodes stay in PyG's own layout, one row a node, ``[B * n, d]``: all graphs of a batch have ``n`` nodes, so a view as ``[B, n, d]``
costs nothing, and whatever a model does between its convolutions needs no translation.

A convolution has two parts, in the order that costs less: linear maps of every row by itself (*maps*), and sums over neighbours
(*mix*). Rows that all copies share, such as a graph's own features, are mapped once: ``[n, d]`` instead of ``[B * n, d]``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch_geometric.nn as pyg
from numpy.typing import NDArray
from torch import Tensor

from flipproof.classifiers.edges import (
    NO_ENDING,
    Edges,
    Ending,
    NeighbourLists,
    PiecewiseLinear,
    RowMap,
    Rows,
    state_of,
)

_MOST_NODES = 64  # beyond, pairs of degrees hardly repeat
_ALL_PAIRS = 32  # nodes up to which rows of all pairs are computed at once
_RELU: tuple[Any, ...] = (torch.nn.functional.relu, torch.relu, "relu", "relu_")


class Convolution(ABC):
    """A convolution on dense batches, with the weights of PyG's layer."""

    aggregations: tuple[str, ...] = ("add", "sum")

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    @abstractmethod
    def maps(self) -> list[RowMap] | None:
        """The linear maps of rows that may go before the sums; ``None`` if the layer has been given others than PyG's."""

    @abstractmethod
    def mix(self, rows: list[Any], edges: Edges, ending: Ending = NO_ENDING) -> Tensor:
        """The rest, given the rows of every map, ``[B * n, k]`` or ``[n, k]`` or looked up; then the ending."""

    @abstractmethod
    def gather_first(self, x: Tensor, edges: Edges) -> Tensor:
        """The whole layer, sums over the neighbours first: cheaper where the layer widens."""

    def __call__(self, x: Tensor, edges: Edges, ending: Ending = NO_ENDING) -> Tensor:
        """From rows ``[B * n, d]``, or ``[n, d]`` where all graphs share them, to ``[B * n, k]``, or ``[B, k]`` where pooled."""
        maps, shared = self.maps(), len(x) == edges.num_nodes
        if maps is None or (not shared and maps[0][0].shape[1] < maps[0][0].shape[0]):
            return edges.ended(self.gather_first(x if not shared else x.repeat(edges.copies, 1), edges), ending)
        return self.mix([torch.nn.functional.linear(x, *one) for one in maps], edges, ending)


class Weighing(Convolution):
    """A convolution that adds up its neighbours' rows with weights: with one input, a row is ``s * slope + offset``."""

    @abstractmethod
    def line(self) -> tuple[Tensor, Tensor] | None:
        """Slope and offset ``[k]``; ``None`` if the layer has another form, or more than one input."""

    @abstractmethod
    def numbers(self, x: Tensor, edges: Edges) -> Tensor:
        """The number ``s`` of every node, ``[B, n]``, for inputs ``[B, n, 1]``."""


class _GCN(Weighing):
    def matrix(self, edges: Edges) -> Any:
        if not self.layer.normalize:
            return edges.gathering("sum")
        # without edge weights PyG's loops weigh 1, improved or not
        return edges.normalised(1.0 if self.layer.add_self_loops else 0.0)

    def maps(self) -> list[RowMap] | None:
        return [(self.layer.lin.weight, None)] if _plain(self.layer.lin) else None

    def line(self) -> tuple[Tensor, Tensor] | None:
        return _line(self.layer.lin, self.layer.bias)

    def numbers(self, x: Tensor, edges: Edges) -> Tensor:
        return edges.sums(self.matrix(edges), x)

    def mix(self, rows: list[Any], edges: Edges, ending: Ending = NO_ENDING) -> Tensor:
        return edges.product(self.matrix(edges), rows[0], self.layer.bias, ending)

    def gather_first(self, x: Tensor, edges: Edges) -> Tensor:
        result: Tensor = self.layer.lin(edges.product(self.matrix(edges), x))
        return result if self.layer.bias is None else result.add_(self.layer.bias)


class Combining(Convolution):
    """A convolution that is a function of every row and of the sum or mean of its neighbours' rows."""

    aggregations = ("add", "sum", "mean")

    @abstractmethod
    def combine(self, x: Tensor, gathered: Tensor) -> Tensor:
        """The new rows."""

    def gather_first(self, x: Tensor, edges: Edges) -> Tensor:
        return self.combine(x, edges.product(edges.gathering(self.layer.aggr), x))


class _GIN(Combining):
    def maps(self) -> list[RowMap] | None:
        inner = self.layer.nn  # its first layer may go before the sums if it is linear
        known = type(inner) is torch.nn.Sequential and len(inner) and _plain(inner[0])
        return [(inner[0].weight, None)] if known else None

    def mix(self, rows: list[Any], edges: Edges, ending: Ending = NO_ENDING) -> Tensor:
        matrix = edges.gathering(self.layer.aggr, itself=1 + self.layer.eps)
        first, *rest = self.layer.nn
        relu = bool(rest) and type(rest[0]) is torch.nn.ReLU
        if relu and len(rest) == 2 and _plain(rest[1]):
            return edges.perceptron(matrix, rows[0], first.bias, rest[1], ending)
        values = edges.product(matrix, rows[0], first.bias, Ending(relu=relu))
        for part in rest[relu:]:
            values = part(values)
        return edges.ended(values, ending)

    def combine(self, x: Tensor, gathered: Tensor) -> Tensor:
        result: Tensor = self.layer.nn(torch.add(gathered, x * (1 + self.layer.eps)))
        return result


class _GraphConv(Combining):
    def linears(self) -> tuple[Any, Any]:
        """The linear layer of the gathered rows, and that of a node's own row, if there is one."""
        return self.layer.lin_rel, self.layer.lin_root

    def maps(self) -> list[RowMap] | None:
        linear, own = self.linears()
        if not _plain(linear) or (own is not None and not _plain(own)):
            return None
        return [(linear.weight, None), *([] if own is None else [(own.weight, linear.bias)])]

    def mix(self, rows: list[Any], edges: Edges, ending: Ending = NO_ENDING) -> Tensor:
        added = rows[1] if len(rows) > 1 else self.linears()[0].bias
        return edges.product(edges.gathering(self.layer.aggr), rows[0], added, ending)

    def combine(self, x: Tensor, gathered: Tensor) -> Tensor:
        linear, own = self.linears()
        result: Tensor = linear(gathered)
        return result if own is None else result + own(x)


class _SAGE(_GraphConv):
    def linears(self) -> tuple[Any, Any]:
        return self.layer.lin_l, self.layer.lin_r if self.layer.root_weight else None

    def maps(self) -> list[RowMap] | None:
        return None if self.layer.project else super().maps()

    def mix(self, rows: list[Any], edges: Edges, ending: Ending = NO_ENDING) -> Tensor:
        if not self.layer.normalize:
            return super().mix(rows, edges, ending)
        return edges.ended(self._normalised(super().mix(rows, edges)), ending)

    def gather_first(self, x: Tensor, edges: Edges) -> Tensor:
        projected = self.layer.lin(x).relu() if self.layer.project else x
        return self.combine(x, edges.product(edges.gathering(self.layer.aggr), projected))

    def combine(self, x: Tensor, gathered: Tensor) -> Tensor:
        return self._normalised(super().combine(x, gathered))

    def _normalised(self, values: Tensor) -> Tensor:
        return torch.nn.functional.normalize(values, p=2.0, dim=-1) if self.layer.normalize else values


class _GAT(Weighing):
    def maps(self) -> list[RowMap] | None:
        layer = self.layer
        if not _plain(layer.lin) or (layer.res is not None and not _plain(layer.res)):
            return None
        by_head = layer.lin.weight.view(layer.heads, layer.out_channels, -1)
        scores = [(attention[0].unsqueeze(2) * by_head).sum(dim=1) for attention in (layer.att_src, layer.att_dst)]
        rest: list[RowMap] = [] if layer.res is None else [(layer.res.weight, layer.bias)]
        return [(layer.lin.weight, None), (torch.cat(scores), None), *rest]

    def mix(self, rows: list[Any], edges: Edges, ending: Ending = NO_ENDING) -> Tensor:
        values, scores = rows[0], edges.plain(rows[1])
        added = rows[2] if len(rows) > 2 else self.layer.bias
        shares = [self._shares(scores, edges, head) for head in range(self.layer.heads)]
        if len(shares) == 1:
            return edges.product(shares[0], values, added, ending)
        parts = edges.plain(values).chunk(len(shares), dim=1)
        heads = [edges.product(share, part.contiguous()) for share, part in zip(shares, parts, strict=True)]
        result = torch.cat(heads, dim=1) if self.layer.concat else torch.stack(heads).mean(dim=0)
        if added is not None:
            added = edges.plain(added)
            own = added.ndim == 2 and len(added) == len(result)
            result = result + added if own else (edges.nodes(result) + added).flatten(0, 1)
        return edges.ended(result, ending)

    def _shares(self, scores: Tensor, edges: Edges, head: int = 0) -> Any:
        """How every node shares its attention, for scores as source, then as target, ``[B * n, 2H]`` or ``[n, 2H]``."""
        layer = self.layer
        source, target = (scores[:, column].reshape(-1, edges.num_nodes) for column in (head, layer.heads + head))
        return edges.attention(source, target, slope=layer.negative_slope, loops=layer.add_self_loops)

    def line(self) -> tuple[Tensor, Tensor] | None:
        plain = self.layer.heads == 1 and self.layer.res is None
        return _line(self.layer.lin, self.layer.bias) if plain else None

    def numbers(self, x: Tensor, edges: Edges) -> Tensor:
        layer = self.layer
        scores = [(attention * layer.lin.weight.mT).sum() for attention in (layer.att_src, layer.att_dst)]
        return edges.sums(self._shares(x.flatten(0, 1) * torch.stack(scores), edges), x)

    def gather_first(self, x: Tensor, edges: Edges) -> Tensor:
        layer = self.layer
        values = layer.lin(x)
        by_head = values.view(len(x), layer.heads, layer.out_channels)
        scores = [(by_head * attention).sum(dim=2) for attention in (layer.att_src, layer.att_dst)]
        rest = [] if layer.res is None else [layer.res(x) if layer.bias is None else layer.res(x) + layer.bias]
        return self.mix([values, torch.cat(scores, dim=1), *rest], edges)


def _line(linear: Any, bias: Tensor | None) -> tuple[Tensor, Tensor] | None:
    """Slope and offset of a linear layer with one input."""
    if not _plain(linear) or linear.weight.shape[1] != 1:
        return None
    slope = linear.weight[:, 0]
    return slope, torch.zeros_like(slope) if bias is None else bias


def _plain(linear: Any) -> bool:
    """Whether it is a linear layer as PyG and torch make them."""
    return type(linear) in (torch.nn.Linear, pyg.Linear)


def _graph_norm(layer: Any, x: Tensor, edges: Edges) -> Tensor:
    nodes = edges.nodes(x)
    centred = nodes - nodes.mean(dim=1, keepdim=True) * layer.mean_scale
    deviation = (centred.pow(2).mean(dim=1, keepdim=True) + layer.eps).sqrt()
    result: Tensor = (layer.weight * centred / deviation + layer.bias).flatten(0, 1)
    return result


def _add_pool(x: Tensor, edges: Edges) -> Tensor:
    return edges.nodes(x).sum(dim=1)


def _mean_pool(x: Tensor, edges: Edges) -> Tensor:
    return _add_pool(x, edges).div_(edges.num_nodes)


def _max_pool(x: Tensor, edges: Edges) -> Tensor:
    return edges.nodes(x).amax(dim=1)


POOLS: dict[Any, Callable[[Tensor, Edges], Tensor]] = {
    pyg.global_add_pool: _add_pool,
    pyg.global_mean_pool: _mean_pool,
    pyg.global_max_pool: _max_pool,
}
"""Readouts by PyG's function; each takes node rows and edges."""

POOL_ENDINGS: dict[Any, str] = {_add_pool: "add", _mean_pool: "mean"}
"""Those that a convolution can do along with its sums, by their name in :class:`Ending`."""

CONVOLUTIONS: dict[type, type[Convolution]] = {
    pyg.GCNConv: _GCN,
    pyg.GINConv: _GIN,
    pyg.SAGEConv: _SAGE,
    pyg.GraphConv: _GraphConv,
    pyg.GATConv: _GAT,
}
"""Dense forms by PyG's layer."""

BY_GRAPH: dict[type, Callable[[Any, Tensor, Edges], Tensor]] = {
    pyg.GraphNorm: _graph_norm,
    pyg.SumAggregation: lambda layer, x, edges: _add_pool(x, edges),
    pyg.MeanAggregation: lambda layer, x, edges: _mean_pool(x, edges),
    pyg.MaxAggregation: lambda layer, x, edges: _max_pool(x, edges),
}
"""Layers that take ``(x, batch)``; where one is missing here, PyG's own works as well, only slower."""


def refusal(layer: Any) -> str | None:
    """Why a convolution cannot be translated, or ``None`` if it can."""
    kind = type(layer).__name__
    if type(layer) not in CONVOLUTIONS:
        return f"{kind} has no dense form here"
    if layer.aggr not in CONVOLUTIONS[type(layer)].aggregations:
        return f"{kind} with aggregation {layer.aggr!r} has no dense form here"
    if layer.decomposed_layers != 1 or getattr(layer, "edge_dim", None) is not None:
        return f"{kind} with decomposed layers or edge attributes has no dense form here"
    if isinstance(layer, pyg.GATConv) and layer.lin is None:
        return "GATConv for two kinds of nodes has no dense form here"
    attributes = (item for part in layer.modules() for item in vars(part).items())
    hooked = any("forward" in name and "hooks" in name and held for name, held in attributes)
    return f"{kind} has hooks" if hooked else None


class DenseLayer(torch.nn.Module):
    """A layer's dense form around the layer itself: weights are shared, not copied."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.convolution = None if type(layer) in BY_GRAPH else CONVOLUTIONS[type(layer)](layer)

    def forward(self, x: Tensor, edges: Edges, relu: bool = False, pool: str = "") -> Tensor:
        if self.convolution is None:
            return BY_GRAPH[type(self.layer)](self.layer, x, edges)
        return self.convolution(x, edges, Ending(relu, pool))


def is_relu(called: Any) -> bool:
    """Whether a traced call's function, method's name or module is the ReLU."""
    return called in _RELU or type(called) is torch.nn.ReLU


class DegreeRows(torch.nn.Module):
    """Two convolutions and what is between them; with the degree as the only feature, rows are looked up where that is faster.

    What a node knows after the first convolution follows from very few numbers. GINConv, SAGEConv and GraphConv see its degree
    and the sum of its neighbours' degrees: everything up to the linear maps of the second is computed once per pair. GCNConv and
    GATConv see one number ``s``: with a ReLU behind it, the row that the second adds up is piecewise linear in ``s``.
    Both are the model's own function, but for rounding; which one is used follows from the model and the number of nodes.

    Args:
        first, second: The convolutions.
        between: From the rows of the first to those that the second takes.
        steps: The same, call by call: the function or module that is called.
    """

    def __init__(
        self, first: DenseLayer, between: Callable[[Tensor], Tensor], steps: list[Any], second: DenseLayer
    ) -> None:
        super().__init__()
        self._parts = torch.nn.ModuleList([first, second])
        self._between, self._steps = between, steps
        self._first: Any = first.convolution
        self._second: Any = second.convolution
        self._weights = [*self.parameters(), *self.buffers()]
        self._kept: tuple[Any, PiecewiseLinear | None] | None = None
        self._pairs: tuple[Any, NDArray[np.int64], list[Tensor]] | None = None

    def forward(self, x: Tensor | None, edges: Edges, relu: bool = False, pool: str = "") -> Any:
        """As the calls one after the other; ``x`` is ``None`` where it is the degree."""
        ending = Ending(relu, pool)
        if x is None:
            rows = self._by_pieces(one, edges) if isinstance(one := self._first, Weighing) else self._by_pairs(edges)
            if rows is not None:
                return self._second.mix(rows, edges, ending)
            x = edges.degrees.flatten(0, 1)
        return self._second(self._between(self._first(x, edges)), edges, ending)

    def forget(self) -> None:
        """Make the tables again when they are needed next."""
        self._kept = self._pairs = None

    def _by_pairs(self, edges: Edges) -> list[Any] | None:
        """The rows that the second convolution adds up, computed once per pair of degree and sum of degrees around."""
        nodes, maps = edges.num_nodes, self._second.maps()
        if nodes > _MOST_NODES or maps is None or self._first.maps() is None:
            return None
        if isinstance(edges, NeighbourLists):
            if nodes <= _ALL_PAIRS:
                first, tables = self._all_pairs(nodes, maps)
                index = edges.pair_index(first)
                return [Rows(table, index) for table in tables]
            keys = torch.from_numpy(edges.pair_index(np.arange(nodes) * nodes**2))
        else:
            around = (edges.adjacency * edges.degrees.mT).sum(dim=2)
            keys = around.add_(edges.degrees.squeeze(2), alpha=nodes * nodes).flatten().long()
        pairs, place = _distinct(keys, nodes**3)
        tables = self._of_pairs(pairs // nodes**2, pairs % nodes**2, maps)
        if isinstance(edges, NeighbourLists):
            return [Rows(table, place.numpy()) for table in tables]
        return [table.index_select(0, place) for table in tables]

    def _all_pairs(self, nodes: int, maps: list[RowMap]) -> tuple[NDArray[np.int64], list[Tensor]]:
        """Tables of all pairs on so many nodes, and the first place of every degree in them."""
        state = nodes, state_of(self._weights)
        if self._pairs is None or self._pairs[0] != state:
            most = np.arange(nodes) * (nodes - 1)  # of the degrees around a node of every degree
            first = np.cumsum(most + 1) - most - 1
            degrees = np.repeat(np.arange(nodes), most + 1)
            around = np.arange(len(degrees)) - first[degrees]
            self._pairs = state, first, self._of_pairs(torch.from_numpy(degrees), torch.from_numpy(around), maps)
        return self._pairs[1:]

    def _of_pairs(self, degrees: Tensor, around: Tensor, maps: list[RowMap]) -> list[Tensor]:
        """The rows for pairs of degrees and sums of degrees around, ``[P]``."""
        own, sums = (part.to(maps[0][0].dtype).unsqueeze(1) for part in (degrees, around))
        if self._first.layer.aggr == "mean":
            sums = sums / own.clamp(min=1)
        hidden = self._between(self._first.combine(own, sums))
        return [torch.nn.functional.linear(hidden, *one) for one in maps]

    def _by_pieces(self, first: Weighing, edges: Edges) -> list[Any] | None:
        """The rows that the second convolution adds up, from tables; made again when a weight has changed."""
        state = state_of(self._weights)
        if self._kept is None or self._kept[0] != state:
            self._kept = state, self._made_pieces(first)
        pieces = self._kept[1]
        return None if pieces is None else edges.looked_up(pieces, first.numbers(edges.degrees, edges))

    def _made_pieces(self, first: Weighing) -> PiecewiseLinear | None:
        line, maps = first.line(), self._second.maps()
        if line is None or maps is None:
            return None
        slope, offset = line
        gain, shift, rectified = torch.ones_like(slope), torch.zeros_like(slope), False
        for step in self._steps:
            if is_relu(step):
                if rectified:
                    return None
                rectified = True
            elif type(step) is torch.nn.BatchNorm1d:
                times, plus = _batch_norm(step)
                if rectified:
                    gain, shift = gain * times, shift * times + plus
                else:
                    slope, offset = slope * times, offset * times + plus
            elif step is not torch.nn.functional.dropout and type(step) not in (torch.nn.Dropout, torch.nn.Identity):
                return None
        return PiecewiseLinear(slope, offset, gain, shift, maps) if rectified else None


def _batch_norm(step: Any) -> tuple[Tensor, Tensor]:
    gain = (step.running_var + step.eps).rsqrt()
    if step.affine:
        gain = gain * step.weight
    shift = -step.running_mean * gain
    return gain, shift + step.bias if step.affine else shift


def _distinct(keys: Tensor, bound: int) -> tuple[Tensor, Tensor]:
    """The distinct keys, ascending, and the place of every key among them; keys are below ``bound``."""
    there = torch.zeros(bound, dtype=torch.bool, device=keys.device)
    there[keys] = True
    distinct = there.nonzero().squeeze(1)
    place = torch.empty(bound, dtype=torch.int64, device=keys.device)
    place[distinct] = torch.arange(len(distinct), device=keys.device)
    return distinct, place[keys]
