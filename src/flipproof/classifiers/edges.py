"""The edges of a batch of graphs with the same nodes as lists of neighbours, for compiled loops in place of a model's layers."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flipproof.noise import NoisyBatch

_ROWS = 256  # of nodes that are worked on at a time: they stay in the nearest caches

RowMap = tuple[Tensor, Tensor | None]
"""Weight ``[k, d]`` and bias ``[k]`` of a linear map of rows."""


class PiecewiseLinear:
    """``maps(relu(s * slope + offset))``, for units with slope and offset ``[k]``, as tables of its linear pieces in ``s``."""

    def __init__(self, slope: Tensor, offset: Tensor, maps: list[RowMap]) -> None:
        kind = slope.dtype
        slope, offset = slope.double(), offset.double()
        knots = torch.where(slope == 0, torch.zeros_like(slope), -offset / slope)
        knots = torch.where(torch.isfinite(knots), knots, torch.zeros_like(knots)).sort().values
        # a point inside every piece; units are on or off on the whole of it
        inner = torch.cat([knots[:1] - 1, (knots[1:] + knots[:-1]) / 2, knots[-1:] + 1])
        on = (inner.unsqueeze(1) * slope + offset > 0).double()
        self.knots = knots.to(kind)
        self.tables: list[tuple[Tensor, Tensor]] = []
        for weight, bias in maps:
            rise, level = ((on * part) @ weight.double().mT for part in (slope, offset))
            self.tables.append((rise.to(kind), (level if bias is None else level + bias).to(kind)))


class Ending(NamedTuple):
    """What follows a convolution at once: a ReLU, and a sum (``add``) or mean over the nodes of every graph."""

    relu: bool = False
    pool: str = ""


NO_ENDING = Ending()


class Rows(NamedTuple):
    """Rows of nodes by look-up: ``table[places] + factor * rise[places]``, or ``table[places]`` alone without a rise.

    Without places, all have the only row of the table.
    """

    table: Tensor
    places: NDArray[np.int64]
    rise: Tensor | None = None
    factor: Tensor | None = None


class Matrix(NamedTuple):
    """``target[i] entry source[j]`` for a neighbour ``j`` of ``i``, and ``own[i]`` on the diagonal; no source or entry: 1.

    Where it is ``by_degree``, the degrees of ``i`` and ``j`` stand for these.
    """

    target: NDArray[Any]
    source: NDArray[Any]
    own: NDArray[Any]
    entries: NDArray[Any]
    by_degree: bool


class NeighbourLists:
    """Stands where a model expects ``edge_index``; not for gradients. What layers share is computed once.

    Rows of nodes are ``[B * n, d]``, or ``[n, d]`` where all graphs share them, or looked up.

    Args:
        batch: The graphs.
        dtype: Number type of the model.
    """

    def __init__(self, batch: NoisyBatch, dtype: torch.dtype) -> None:
        from flipproof.classifiers import kernels  # compiling takes a while

        self._kernels: Any = kernels
        self.copies, self.num_nodes, self.dtype = batch.size, batch.num_nodes, dtype
        self._normalised: dict[float, Matrix] = {}
        self._lists = (*batch.neighbours, batch.num_nodes)
        self._degrees = np.diff(batch.neighbours.starts)

    def nodes(self, x: Tensor) -> Tensor:
        """``[B * n, d]`` as ``[B, n, d]``."""
        return x.view(self.copies, self.num_nodes, x.shape[1])

    @cached_property
    def degrees(self) -> Tensor:
        """As rows, ``[B * n, 1]``."""
        return torch.from_numpy(self._degrees).to(self.dtype).unsqueeze(1)

    def pairs_of_degrees(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """For every node the place of its pair: degree, and sum of the neighbours' degrees; and these numbers of every pair."""
        around = self._kernels.sums(*self._lists, self._degrees)
        places, pairs = self._kernels.distinct(self._degrees, around)
        return places, *pairs.T

    def gathering(self, how: str, *, itself: Any = 0.0) -> Matrix:
        """The matrix whose product with rows is their mean or sum over the neighbours; plus ``itself`` times every row."""
        ones = torch.ones(self.num_nodes, dtype=self.dtype)
        shares = 1 / self._every_degree.clamp(min=1) if how == "mean" else ones
        return self._by_degree(shares, None, ones * itself)

    def normalised(self, loop: float) -> Matrix:
        """``D^-1/2 (A + loop I) D^-1/2``; ``D`` holds the row sums of ``A + loop I``."""
        if loop not in self._normalised:
            scale = (self._every_degree + loop).rsqrt()
            if loop == 0:
                scale = scale.masked_fill(scale == torch.inf, 0)
            self._normalised[loop] = self._by_degree(scale, scale, scale.square() * loop)
        return self._normalised[loop]

    def attention(self, source: Tensor, target: Tensor, *, slope: float, loops: bool) -> Matrix:
        """How every node shares its attention between its neighbours, and itself with ``loops``."""
        source, target = (part.expand(self.copies, -1).reshape(-1) for part in (source, target))
        number = _array(torch.tensor(slope, dtype=self.dtype))[()]
        entries, own = self._kernels.scores(*self._lists, _array(source), _array(target), number, loops)
        np.exp(entries, out=entries)
        np.exp(own, out=own)
        self._kernels.attend(entries, own, self._lists[0])
        return Matrix(np.ones_like(own), own[:0], own, entries, False)

    @property
    def _every_degree(self) -> Tensor:
        return torch.arange(self.num_nodes, dtype=self.dtype)

    def _by_degree(self, target: Tensor, source: Tensor | None, own: Tensor) -> Matrix:
        """A matrix whose factors follow from degrees."""
        at_target = _array(target)
        at_source = at_target[:0] if source is None else _array(source)
        return Matrix(at_target, at_source, _array(own), at_target[:0], True)

    def product(
        self, matrix: Matrix, rows: Any, added: Any = None, ending: Ending = NO_ENDING, *, layer: RowMap | None = None
    ) -> Tensor:
        """``matrix @ rows + added`` for every graph, and what follows: ``[B * n, d]``, or ``[B, d]`` where nodes are pooled.

        With a ``layer``, a ReLU and this linear map go before the ending.
        """
        rows = self._as_rows(rows)
        width = rows.table.shape[1]
        if added is None or (isinstance(added, Tensor) and added.ndim == 1):
            one = torch.zeros(1, width, dtype=self.dtype) if added is None else added.unsqueeze(0)
            plus = Rows(one, rows.places[:0])
        else:
            plus = self._as_rows(added)
        if plus.rise is not None:
            plus = self._as_rows(self.plain(plus))
        if plus.table.shape[1] != width:
            raise ValueError(f"rows have {width} columns, and what is added to them {plus.table.shape[1]}")
        table = self._wide(rows.table)
        if rows.rise is None or rows.factor is None:
            rise, factor = table[:0], table[0, :0]
        else:
            rise, factor = self._wide(rows.rise), _array(rows.factor)
        linear = table[:0], table[:0]
        if layer is not None:
            weight, bias = layer
            if width != weight.shape[1]:
                raise ValueError(f"rows have {width} columns, and the linear layer takes {weight.shape[1]}")
            width = len(weight)
            bias = torch.zeros(width, dtype=self.dtype) if bias is None else bias
            linear = self._wide(weight.mT), self._wide(bias.unsqueeze(0))
        goals = self.copies if ending.pool else self.copies * self.num_nodes
        out = torch.empty(goals, width + -width % self._kernels.LANES, dtype=self.dtype).numpy()
        by_node = (table, rise, rows.places, factor), (self._wide(plus.table), plus.places)
        room = torch.empty(
            2 * self.num_nodes * max(1, _ROWS // self.num_nodes), table.shape[1], dtype=self.dtype
        ).numpy()
        self._kernels.mix(self._lists, tuple(matrix), *by_node, linear, ending.relu, bool(ending.pool), room, out)
        result = torch.from_numpy(out)[:, :width].contiguous()
        return result.div_(self.num_nodes) if ending.pool == "mean" else result

    def _wide(self, rows: Tensor) -> NDArray[Any]:
        """Rows with as many columns as kernels add at once, or a multiple."""
        if rows.dtype != self.dtype:
            raise TypeError(f"rows must be {self.dtype}; got {rows.dtype}")
        missing = -rows.shape[1] % self._kernels.LANES
        return _array(torch.nn.functional.pad(rows, (0, missing)) if missing else rows)

    def sums(self, matrix: Matrix, values: Tensor) -> Tensor:
        """``matrix @ values`` for one number per node, ``[B * n]``."""
        self._check(values)
        return torch.from_numpy(self._kernels.weighted_sums(self._lists, tuple(matrix), _array(values)))

    def ended(self, rows: Tensor, ending: Ending) -> Tensor:
        """What follows a convolution; may write into its rows."""
        self._check(rows)
        rows = rows.relu_() if ending.relu else rows
        if not ending.pool:
            return rows
        pooled = self.nodes(rows).sum(dim=1)
        return pooled.div_(self.num_nodes) if ending.pool == "mean" else pooled

    def looked_up(self, pieces: PiecewiseLinear, values: Tensor) -> list[Rows]:
        """The rows of a piecewise linear layer for one number per node, ``[B * n]``."""
        index = self._kernels.pieces_of(_array(values), _array(pieces.knots))
        return [Rows(level, index, rise, values) for rise, level in pieces.tables]

    def plain(self, rows: Any) -> Tensor:
        """Rows that were looked up as a tensor."""
        if isinstance(rows, Tensor):
            return rows
        index = torch.from_numpy(rows.places)
        values: Tensor = rows.table.index_select(0, index)
        if rows.rise is not None:
            values.addcmul_(rows.rise.index_select(0, index), rows.factor.unsqueeze(1))
        return values

    def _as_rows(self, rows: Any) -> Rows:
        """Any rows as rows by look-up: for the nodes ``[n, d]``, or for all ``[B * n, d]``."""
        if isinstance(rows, Rows):
            return rows
        if len(rows) != self.num_nodes:
            self._check(rows)
        return Rows(rows, np.tile(np.arange(len(rows)), self.copies * self.num_nodes // len(rows)))

    def _check(self, rows: Tensor) -> None:
        """Compiled loops do not look whether there is a row for every node."""
        if len(rows) != self.copies * self.num_nodes:
            raise ValueError(f"there must be {self.copies * self.num_nodes} rows of nodes; got {len(rows)}")


def _array(values: Tensor) -> NDArray[Any]:
    """The numbers of a tensor as kernels take them."""
    array: NDArray[Any] = values.detach().contiguous().numpy()
    return array
