"""The first two convolutions of a dense twin, where the only feature is the degree: rows are looked up instead of computed.

What a node knows after the first convolution follows from very few numbers:

- GINConv, SAGEConv and GraphConv see its degree and the sum of its neighbours' degrees. Copies of small graphs have few such
  pairs, so the layer, the activation behind it and the linear maps of the second convolution are computed once per pair.
- GCNConv and GATConv see one number ``s``. With a ReLU behind it, the row that the second convolution adds up is a piecewise
  linear function of ``s``, ``s U[k] + V[k]`` on the ``k``-th piece: two rows of a table replace a product with a matrix.

Both are the model's own function, but for rounding. Which of them is used follows from the model and the number of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx

from flipproof.classifiers.edges import Edges, Ending, PiecewiseLinear, RowMap, state_of
from flipproof.classifiers.layers import Combining, Convolution, DenseLayer
from flipproof.classifiers.neighbour_lists import NeighbourLists, Rows

_MOST_NODES = 64  # beyond, pairs of degrees hardly repeat
_ALL_PAIRS = 32  # nodes up to which rows of all pairs are computed at once

ROW_MODULES = (
    torch.nn.BatchNorm1d,
    torch.nn.Dropout,
    torch.nn.ELU,
    torch.nn.GELU,
    torch.nn.Identity,
    torch.nn.LayerNorm,
    torch.nn.LeakyReLU,
    torch.nn.Linear,
    torch.nn.ReLU,
    torch.nn.SELU,
    torch.nn.Sigmoid,
    torch.nn.SiLU,
    torch.nn.Softplus,
    torch.nn.Tanh,
)
_functional = torch.nn.functional
_FUNCTIONS: tuple[Any, ...] = (
    _functional.dropout,
    _functional.elu,
    _functional.gelu,
    _functional.leaky_relu,
    _functional.relu,
    _functional.selu,
    _functional.sigmoid,
    _functional.silu,
    _functional.tanh,
    torch.relu,
    torch.sigmoid,
    torch.tanh,
)
_METHODS = ("relu", "relu_", "sigmoid", "tanh")
_RELU: tuple[Any, ...] = (_functional.relu, torch.relu, "relu", "relu_")
_STILL: tuple[Any, ...] = (_functional.dropout,)


def row_by_row(node: fx.Node, parts: dict[str, Any]) -> bool:
    """Whether a traced call is known to make each row from the same row of its first argument, and from nothing else traced."""
    if len(node.all_input_nodes) != 1 or not node.args or node.args[0] is not node.all_input_nodes[0]:
        return False
    if node.op == "call_module":
        return type(parts.get(str(node.target))) in ROW_MODULES
    known: Iterable[Any] = {"call_function": _FUNCTIONS, "call_method": _METHODS}.get(node.op, ())
    return node.target in known and (node.target is not _functional.dropout or _is_off(node))


def _is_off(dropout: fx.Node) -> bool:
    """Whether a traced dropout drops nothing: by default it does, whatever the mode of the model."""
    return (dropout.args[2] if len(dropout.args) > 2 else dropout.kwargs.get("training", True)) is False


def is_relu(called: Any) -> bool:
    """Whether a traced call's function, method's name or module is the ReLU."""
    return called in _RELU or type(called) is torch.nn.ReLU


class DegreeRows(torch.nn.Module):
    """Two convolutions and what is between them; with the degree as the only feature, by look-up where that is faster.

    Args:
        first, second: The convolutions.
        between: From the rows of the first to those that the second takes.
        steps: The same, call by call: the function or module that is called.
    """

    def __init__(
        self,
        first: DenseLayer,
        between: Callable[[Tensor], Tensor],
        steps: list[Any],
        second: DenseLayer,
    ) -> None:
        super().__init__()
        assert first.convolution is not None
        assert second.convolution is not None
        self._parts = torch.nn.ModuleList([first, second])
        self._between, self._steps = between, steps
        self._first: Convolution = first.convolution
        self._second: Convolution = second.convolution
        self._weights = [*self.parameters(), *self.buffers()]
        self._kept: tuple[Any, PiecewiseLinear | None] | None = None
        self._pairs: tuple[Any, NDArray[np.int64], list[Tensor]] | None = None

    def forward(self, x: Tensor | None, edges: Edges, relu: bool = False, pool: str = "") -> Tensor:
        """As the calls one after the other; ``x`` is ``None`` where it is the degree."""
        ending = Ending(relu, pool)
        if x is None:
            rows = self._by_pairs(edges) if isinstance(self._first, Combining) else self._by_pieces(edges)
            if rows is not None:
                return self._second.mix(rows, edges, ending)
            x = edges.degrees.flatten(0, 1)
        return self._second(self._between(self._first(x, edges)), edges, ending)

    def forget(self) -> None:
        """Make the tables again when they are needed next."""
        self._kept = self._pairs = None

    def _by_pairs(self, edges: Edges) -> list[Any] | None:
        """The rows that the second convolution adds up, computed once per pair of degree and sum of degrees around."""
        assert isinstance(self._first, Combining)
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
        """The rows for given degrees and sums of degrees around, ``[P]``."""
        assert isinstance(self._first, Combining)
        own, sums = (part.to(maps[0][0].dtype).unsqueeze(1) for part in (degrees, around))
        if self._first.layer.aggr == "mean":
            sums = sums / own.clamp(min=1)
        hidden = self._between(self._first.combine(own, sums))
        return [_functional.linear(hidden, *one) for one in maps]

    def _by_pieces(self, edges: Edges) -> list[Any] | None:
        """The rows that the second convolution adds up, from tables; made again when a weight has changed."""
        state = state_of(self._weights)
        if self._kept is None or self._kept[0] != state:
            self._kept = state, self._made_pieces()
        pieces = self._kept[1]
        return None if pieces is None else edges.looked_up(pieces, self._first.numbers(edges.degrees, edges))

    def _made_pieces(self) -> PiecewiseLinear | None:
        line, maps = self._first.line(), self._second.maps()
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
            elif step not in _STILL and type(step) not in (torch.nn.Dropout, torch.nn.Identity):
                return None
        return PiecewiseLinear(slope, offset, gain, shift, maps) if rectified else None


def _batch_norm(step: torch.nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
    assert step.running_mean is not None
    assert step.running_var is not None
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
