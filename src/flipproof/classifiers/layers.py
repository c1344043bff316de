"""PyG's common layers and readouts on lists of neighbours: the same weights, compiled loops instead of messages.

Nodes stay in PyG's own layout, one row per node, ``[B * n, d]``: all graphs of a batch have ``n`` nodes, a view as ``[B, n, d]``
costs nothing, and whatever a model does between its convolutions needs no translation.

A convolution has two parts, in the order that costs less: linear maps of every row by itself (*maps*), and sums over neighbours
(*mix*). Rows that all copies share, such as a graph's own features, are mapped once: ``[n, d]`` instead of ``[B * n, d]``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn.functional import linear

from flipproof.classifiers.edges import (
    NO_ENDING,
    Ending,
    Matrix,
    NeighbourLists,
    PiecewiseLinear,
    RowMap,
    Rows,
)

_RELU: tuple[Any, ...] = (torch.nn.functional.relu, torch.relu, "relu", "relu_")


class Convolution(torch.nn.Module, ABC):
    """A convolution on lists of neighbours, around PyG's layer: weights are shared, not copied."""

    aggregations: tuple[str, ...] = ("add", "sum")

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer: Any = layer

    @abstractmethod
    def maps(self) -> list[RowMap] | None:
        """The linear maps of rows that go before the sums; ``None`` if what goes before is not known to be linear."""

    @abstractmethod
    def mix(self, rows: list[Any], lists: NeighbourLists, ending: Ending = NO_ENDING) -> Tensor:
        """The rest, from the rows of every map, ``[B * n, k]`` or ``[n, k]`` or looked up; then the ending."""

    def forward(self, x: Tensor, lists: NeighbourLists, relu: bool = False, pool: str = "") -> Tensor:
        """From rows ``[B * n, d]``, or ``[n, d]`` where all graphs share them, to ``[B * n, k]``, or ``[B, k]`` where pooled."""
        maps = self.maps()
        rows = [x] if maps is None else [linear(x, *one) for one in maps]
        return self.mix(rows, lists, Ending(relu, pool))


class Weighing(Convolution):
    """A convolution that adds up its neighbours' rows with weights: with one input, a row is ``s * slope + offset``."""

    def maps(self) -> list[RowMap] | None:
        return [(self.layer.lin.weight, None)]

    def line(self) -> tuple[Tensor, Tensor] | None:
        """Slope and offset ``[k]``; ``None`` if the layer has more than one input, or several heads."""
        weight, bias = self.layer.lin.weight, self.layer.bias
        if weight.shape[1] != 1 or getattr(self.layer, "heads", 1) != 1:
            return None
        return weight[:, 0], torch.zeros_like(weight[:, 0]) if bias is None else bias

    @abstractmethod
    def matrix(self, x: Tensor, lists: NeighbourLists) -> Matrix:
        """The weights, for inputs ``[B * n, 1]``."""

    def numbers(self, x: Tensor, lists: NeighbourLists) -> Tensor:
        """The number ``s`` of every node, ``[B * n]``, for inputs ``[B * n, 1]``."""
        return lists.sums(self.matrix(x, lists), x.squeeze(1))


class _GCN(Weighing):
    def matrix(self, x: Tensor | None, lists: NeighbourLists) -> Matrix:
        if not self.layer.normalize:
            return lists.gathering("sum")
        # without edge weights PyG's loops weigh 1, improved or not
        return lists.normalised(1.0 if self.layer.add_self_loops else 0.0)

    def mix(
        self, rows: list[Any], lists: NeighbourLists, ending: Ending = NO_ENDING, layer: RowMap | None = None
    ) -> Tensor:
        return lists.product(self.matrix(None, lists), rows[0], self.layer.bias, ending, layer=layer)


class _GAT(Weighing):
    def maps(self) -> list[RowMap] | None:
        layer = self.layer
        by_head = layer.lin.weight.view(layer.heads, layer.out_channels, -1)
        scores = [(attention[0].unsqueeze(2) * by_head).sum(dim=1) for attention in (layer.att_src, layer.att_dst)]
        return [(layer.lin.weight, None), (torch.cat(scores), None)]

    def mix(self, rows: list[Any], lists: NeighbourLists, ending: Ending = NO_ENDING) -> Tensor:
        values, scores = rows[0], lists.plain(rows[1])
        shares = [self._shares(scores, lists, head) for head in range(self.layer.heads)]
        if len(shares) == 1:
            return lists.product(shares[0], values, self.layer.bias, ending)
        parts = lists.plain(values).chunk(len(shares), dim=1)
        heads = [lists.product(share, part.contiguous()) for share, part in zip(shares, parts, strict=True)]
        result = torch.cat(heads, dim=1) if self.layer.concat else torch.stack(heads).mean(dim=0)
        return lists.ended(result if self.layer.bias is None else result + self.layer.bias, ending)

    def _shares(self, scores: Tensor, lists: NeighbourLists, head: int = 0) -> Matrix:
        """How every node shares its attention, for scores as source, then as target, ``[B * n, 2H]`` or ``[n, 2H]``."""
        layer = self.layer
        source, target = (scores[:, column].reshape(-1, lists.num_nodes) for column in (head, layer.heads + head))
        return lists.attention(source, target, slope=layer.negative_slope, loops=layer.add_self_loops)

    def matrix(self, x: Tensor, lists: NeighbourLists) -> Matrix:
        layer = self.layer
        scores = [(attention * layer.lin.weight.mT).sum() for attention in (layer.att_src, layer.att_dst)]
        return self._shares(x * torch.stack(scores), lists)


class Combining(Convolution):
    """A convolution that is a function of every row and of the sum or mean of its neighbours' rows."""

    aggregations = ("add", "sum", "mean")

    @abstractmethod
    def combine(self, x: Tensor, gathered: Tensor) -> Tensor:
        """The new rows."""


class _GIN(Combining):
    def maps(self) -> list[RowMap] | None:
        inner = self.layer.nn  # its first layer may go before the sums if it is linear
        known = type(inner) is torch.nn.Sequential and len(inner) and _plain(inner[0])
        return [(inner[0].weight, None)] if known else None

    def mix(self, rows: list[Any], lists: NeighbourLists, ending: Ending = NO_ENDING) -> Tensor:
        matrix = lists.gathering(self.layer.aggr, itself=1 + self.layer.eps)
        if self.maps() is None:
            return lists.ended(self.layer.nn(lists.product(matrix, rows[0])), ending)
        first, *rest = self.layer.nn
        relu = bool(rest) and type(rest[0]) is torch.nn.ReLU
        if relu and len(rest) == 2 and _plain(rest[1]):
            return lists.product(matrix, rows[0], first.bias, ending, layer=(rest[1].weight, rest[1].bias))
        values = lists.product(matrix, rows[0], first.bias, Ending(relu=relu))
        for part in rest[relu:]:
            values = part(values)
        return lists.ended(values, ending)

    def combine(self, x: Tensor, gathered: Tensor) -> Tensor:
        result: Tensor = self.layer.nn(torch.add(gathered, x * (1 + self.layer.eps)))
        return result


class _GraphConv(Combining):
    def linears(self) -> tuple[Any, Any]:
        """The linear layer of the gathered rows, and that of a node's own row, if there is one."""
        return self.layer.lin_rel, self.layer.lin_root

    def maps(self) -> list[RowMap] | None:
        gathered, own = self.linears()
        return [(gathered.weight, None), *([] if own is None else [(own.weight, gathered.bias)])]

    def mix(
        self, rows: list[Any], lists: NeighbourLists, ending: Ending = NO_ENDING, layer: RowMap | None = None
    ) -> Tensor:
        added = rows[1] if len(rows) > 1 else self.linears()[0].bias
        return lists.product(lists.gathering(self.layer.aggr), rows[0], added, ending, layer=layer)

    def combine(self, x: Tensor, gathered: Tensor) -> Tensor:
        first, own = self.linears()
        result: Tensor = first(gathered)
        return result if own is None else result + own(x)


class _SAGE(_GraphConv):
    def linears(self) -> tuple[Any, Any]:
        return self.layer.lin_l, self.layer.lin_r if self.layer.root_weight else None


def _plain(part: Any) -> bool:
    """Whether it is a linear layer as PyG and torch make them."""
    return type(part) in (torch.nn.Linear, pyg.Linear)


def pooled(x: Tensor, lists: NeighbourLists, how: str) -> Tensor:
    """The readout: one row per graph."""
    return lists.nodes(x).amax(dim=1) if how == "max" else lists.ended(x, Ending(pool=how))


POOLS: dict[Any, str] = {
    "add": "add",
    "sum": "add",
    "mean": "mean",
    "max": "max",
    pyg.SumAggregation: "add",
    pyg.MeanAggregation: "mean",
    pyg.MaxAggregation: "max",
}
"""Readouts by how PyG scatters, or by its layer; those that are missing here work as well, only slower."""

CONVOLUTIONS: dict[type, type[Convolution]] = {
    pyg.GCNConv: _GCN,
    pyg.GINConv: _GIN,
    pyg.SAGEConv: _SAGE,
    pyg.GraphConv: _GraphConv,
    pyg.GATConv: _GAT,
}

_PLAIN_OPTIONS = {"decomposed_layers": 1, "edge_dim": None, "project": False, "normalize": False, "residual": False}


def refusal(layer: Any) -> str | None:
    """Why a convolution cannot be translated, or ``None`` if it can."""
    kind = type(layer).__name__
    if type(layer) not in CONVOLUTIONS:
        return f"{kind} has no compiled form here"
    if layer.aggr not in CONVOLUTIONS[type(layer)].aggregations:
        return f"{kind} with aggregation {layer.aggr!r} has no compiled form here"
    options = {name: usual for name, usual in _PLAIN_OPTIONS.items() if (name, kind) != ("normalize", "GCNConv")}
    unusual = [name for name, usual in options.items() if getattr(layer, name, usual) != usual]
    if unusual:
        return f"{kind} with {unusual[0]} has no compiled form here"
    if getattr(layer, "lin", layer) is None:
        return f"{kind} for two kinds of nodes has no compiled form here"
    parts = [part for part in layer.children() if not isinstance(part, pyg.aggr.Aggregation)]
    if not isinstance(layer, pyg.GINConv) and not all(map(_plain, parts)):
        return f"{kind} has parts that are not PyG's own"
    return f"{kind} has hooks" if any(map(altered, layer.modules())) else None


def altered(part: torch.nn.Module) -> bool:
    """Whether a part has a forward of its own, or a hook."""
    return any(
        "forward" in name and held and (name == "forward" or "hooks" in name) for name, held in vars(part).items()
    )


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
        self, first: Convolution, between: Callable[[Tensor], Tensor], steps: list[Any], second: Convolution
    ) -> None:
        super().__init__()
        self._first, self._second, self._between = first, second, between
        off = (torch.nn.functional.dropout, torch.nn.Dropout, torch.nn.Identity)
        steps = [step for step in steps if step not in off and type(step) not in off]
        self._only_relu = len(steps) == 1 and is_relu(steps[0])
        self._pieces: tuple[list[Any], PiecewiseLinear] | None = None

    def forward(self, x: Tensor | None, lists: NeighbourLists, relu: bool = False, pool: str = "") -> Any:
        """As the calls one after the other; ``x`` is ``None`` where it is the degree."""
        rows = self._rows(x, lists)
        if rows is not None:
            return self._second.mix(rows, lists, Ending(relu, pool))
        return self._second(self._between(self._first(lists.degrees if x is None else x, lists)), lists, relu, pool)

    def _rows(self, x: Tensor | None, lists: NeighbourLists) -> list[Any] | None:
        """The rows that the second convolution adds up, where they need not be made call by call."""
        first, own, maps = self._first, self._first.maps(), self._second.maps()
        if own is None or maps is None:
            return None
        if x is None and isinstance(first, Combining):
            return self._by_pairs(first, maps, lists)
        if x is None and self._only_relu and isinstance(first, Weighing) and (line := first.line()) is not None:
            return lists.looked_up(self._piecewise(*line, maps), first.numbers(lists.degrees, lists))
        if not (self._only_relu and isinstance(first, _GCN | _GraphConv)):
            return None
        # the first one's loop makes the ReLU and the second one's maps with its sums
        weights = [weight for weight, _ in maps]
        biases = [weight.new_zeros(len(weight)) if bias is None else bias for weight, bias in maps]
        rows = [linear(lists.degrees if x is None else x, *one) for one in own]
        mapped = first.mix(rows, lists, layer=(torch.cat(weights), torch.cat(biases)))
        return list(torch.split(mapped, [len(weight) for weight in weights], dim=1))

    def _piecewise(self, slope: Tensor, offset: Tensor, maps: list[RowMap]) -> PiecewiseLinear:
        """Made again where weights have changed: they may do so without a sign."""
        parts = [slope, offset, *chain.from_iterable(maps)]
        weights = [None if part is None else (part.dtype, part.detach().numpy().tobytes()) for part in parts]
        if self._pieces is None or self._pieces[0] != weights:
            self._pieces = weights, PiecewiseLinear(slope, offset, maps)
        return self._pieces[1]

    def _by_pairs(self, first: Combining, maps: list[RowMap], lists: NeighbourLists) -> list[Any]:
        """Computed once per pair of degree and sum of degrees around."""
        places, degrees, around = lists.pairs_of_degrees()
        own, sums = (torch.from_numpy(part).to(maps[0][0].dtype).unsqueeze(1) for part in (degrees, around))
        if first.layer.aggr == "mean":
            sums = sums / own.clamp(min=1)
        hidden = self._between(first.combine(own, sums))
        return [Rows(linear(hidden, *one), places) for one in maps]
