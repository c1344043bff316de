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

import torch
import torch_geometric.nn as pyg
from torch import Tensor

from flipproof.classifiers.edges import NO_ENDING, Edges, Ending, RowMap

# ---- convolutions ------------------------------------------------------------------------------------------------------


class Convolution(ABC):
    """A convolution on dense batches.

    Args:
        layer: PyG's, whose weights are used.
    """

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

    def line(self) -> tuple[Tensor, Tensor] | None:
        """Slope and offset ``[k]``, where a row of a layer with one input is ``s * slope + offset`` for a number ``s``."""
        return None

    def numbers(self, x: Tensor, edges: Edges) -> Tensor:
        """The number ``s`` of every node, ``[B, n]``, for inputs ``[B, n, 1]``; where :meth:`line` has one."""
        raise NotImplementedError

    def __call__(self, x: Tensor, edges: Edges, ending: Ending = NO_ENDING) -> Tensor:
        """From rows ``[B * n, d]``, or ``[n, d]`` where all graphs share them, to ``[B * n, k]``, or ``[B, k]`` where pooled."""
        maps, shared = self.maps(), len(x) == edges.num_nodes
        if maps is None or (not shared and maps[0][0].shape[1] < maps[0][0].shape[0]):
            return edges.ended(self.gather_first(x if not shared else x.repeat(edges.copies, 1), edges), ending)
        return self.mix([torch.nn.functional.linear(x, *one) for one in maps], edges, ending)


class _GCN(Convolution):
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
    def _first(self) -> Any:
        """The perceptron's first layer, if that is linear and may go before the sums."""
        inner = self.layer.nn
        return inner[0] if type(inner) is torch.nn.Sequential and len(inner) and _plain(inner[0]) else None

    def maps(self) -> list[RowMap] | None:
        first = self._first()
        return None if first is None else [(first.weight, None)]

    def mix(self, rows: list[Any], edges: Edges, ending: Ending = NO_ENDING) -> Tensor:
        matrix = edges.gathering(self.layer.aggr, itself=1 + self.layer.eps)
        _, *rest = self.layer.nn
        relu = bool(rest) and type(rest[0]) is torch.nn.ReLU
        if relu and len(rest) == 2 and _plain(rest[1]):
            return edges.perceptron(matrix, rows[0], self._first().bias, rest[1], ending)
        values = edges.product(matrix, rows[0], self._first().bias, Ending(relu=relu))
        for part in rest[relu:]:
            values = part(values)
        return edges.ended(values, ending)

    def combine(self, x: Tensor, gathered: Tensor) -> Tensor:
        result: Tensor = self.layer.nn(torch.add(gathered, x * (1 + self.layer.eps)))
        return result


class _SAGE(Combining):
    def maps(self) -> list[RowMap] | None:
        layer = self.layer
        if layer.project or not _plain(layer.lin_l) or (layer.root_weight and not _plain(layer.lin_r)):
            return None
        own = [(layer.lin_r.weight, layer.lin_l.bias)] if layer.root_weight else []
        return [(layer.lin_l.weight, None), *own]

    def mix(self, rows: list[Any], edges: Edges, ending: Ending = NO_ENDING) -> Tensor:
        matrix = edges.gathering(self.layer.aggr)
        added = rows[1] if self.layer.root_weight else self.layer.lin_l.bias
        if not self.layer.normalize:
            return edges.product(matrix, rows[0], added, ending)
        return edges.ended(self._normalised(edges.product(matrix, rows[0], added)), ending)

    def gather_first(self, x: Tensor, edges: Edges) -> Tensor:
        projected = self.layer.lin(x).relu() if self.layer.project else x
        return self.combine(x, edges.product(edges.gathering(self.layer.aggr), projected))

    def combine(self, x: Tensor, gathered: Tensor) -> Tensor:
        result: Tensor = self.layer.lin_l(gathered)
        return self._normalised(result + self.layer.lin_r(x) if self.layer.root_weight else result)

    def _normalised(self, values: Tensor) -> Tensor:
        return torch.nn.functional.normalize(values, p=2.0, dim=-1) if self.layer.normalize else values


class _GraphConv(Combining):
    def maps(self) -> list[RowMap] | None:
        layer = self.layer
        if not (_plain(layer.lin_rel) and _plain(layer.lin_root)):
            return None
        return [(layer.lin_rel.weight, None), (layer.lin_root.weight, layer.lin_rel.bias)]

    def mix(self, rows: list[Any], edges: Edges, ending: Ending = NO_ENDING) -> Tensor:
        return edges.product(edges.gathering(self.layer.aggr), rows[0], rows[1], ending)

    def combine(self, x: Tensor, gathered: Tensor) -> Tensor:
        result: Tensor = self.layer.lin_rel(gathered) + self.layer.lin_root(x)
        return result


class _GAT(Convolution):
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
        """How every node shares its attention.

        Args:
            scores: What a node adds to its share at its neighbours, then what it adds to their shares at itself,
                ``[B * n, 2H]`` or ``[n, 2H]``.
            edges: The edges.
            head: Number of the head.
        """
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
        rest = []
        if layer.res is not None:
            rest = [layer.res(x) if layer.bias is None else layer.res(x) + layer.bias]
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


# ---- what works on whole graphs ----------------------------------------------------------------------------------------


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
    if any(
        "forward" in name and "hooks" in name and held for part in layer.modules() for name, held in vars(part).items()
    ):
        return f"{kind} has hooks"
    return None


def convolution(layer: Any) -> Convolution:
    """The dense form of a convolution that :func:`refusal` does not refuse."""
    return CONVOLUTIONS[type(layer)](layer)


class DenseLayer(torch.nn.Module):
    """A layer's dense form around the layer itself: weights are shared, not copied."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.convolution = None if type(layer) in BY_GRAPH else convolution(layer)

    def forward(self, x: Tensor, edges: Edges, relu: bool = False, pool: str = "") -> Tensor:
        if self.convolution is None:
            return BY_GRAPH[type(self.layer)](self.layer, x, edges)
        return self.convolution(x, edges, Ending(relu, pool))
