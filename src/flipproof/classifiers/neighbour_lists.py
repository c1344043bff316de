"""The edges of a batch as lists of neighbours, for compiled loops: faster than matrices and than messages.

Used where numba is installed, by models on the CPU in single or double precision, for graphs of up to ``MOST_NODES`` nodes.
"""

from __future__ import annotations

from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flipproof.classifiers.edges import NO_ENDING, Edges, Ending, PiecewiseLinear
from flipproof.errors import MissingExtraError
from flipproof.graphs import pairs_of_slots
from flipproof.noise import NoisyBatch

MOST_NODES = 500
"""Up to here lists were measured to be faster than matrices and messages."""


@cache
def kernels() -> Any:
    """The compiled loops; refuses to go another way where a model was to be asked with them."""
    try:
        from flipproof.classifiers import kernels as found
    except ImportError as error:
        raise MissingExtraError(
            "the model is asked with compiled loops, which need numba, and numba is not installed here (pip install numba, on "
            "every machine)"
        ) from error
    return found


class Rows(NamedTuple):
    """Rows of nodes by look-up: ``table[places] + factor * rise[places]``, or ``table[places]`` alone without a rise."""

    table: Tensor
    places: NDArray[np.int64]
    rise: Tensor | None = None
    factor: Tensor | None = None


class _Matrix(NamedTuple):
    """``target[i] entry source[j]`` for a neighbour ``j`` of ``i``, and ``own[i]`` on the diagonal; no entries if all are 1."""

    target: NDArray[Any]
    source: NDArray[Any]
    own: NDArray[Any]
    entries: NDArray[Any]


class _Terms(NamedTuple):
    """What a product is made of, as kernels take it, and its columns."""

    width: int
    arrays: tuple[Any, ...]


class NeighbourLists(Edges):
    """As :class:`Edges`, with lists of neighbours in place of matrices; not for gradients.

    Args:
        batch: The graphs.
        dtype: Number type of the model.
    """

    def __init__(self, batch: NoisyBatch, dtype: torch.dtype) -> None:
        self._kernels, self._batch = kernels(), batch
        self.copies, self.num_nodes, self.dtype, self.device = batch.size, batch.num_nodes, dtype, torch.device("cpu")
        self._normalised: dict[float, Any] = {}
        states, first, second = _states(batch)
        found = self._kernels.listed(states, first, second, self.num_nodes)
        self._ends, self._degrees, self._starts, self._neighbours = found

    @cached_property
    def adjacency(self) -> Tensor:  # type: ignore[override]
        """For layers that need the matrices all the same."""
        return torch.from_numpy(self._batch.adjacency()).to(self.dtype)

    @cached_property
    def degrees(self) -> Tensor:
        return torch.from_numpy(self._degrees).to(self.dtype).view(self.copies, self.num_nodes, 1)

    def pair_index(self, first: NDArray[np.int64]) -> NDArray[np.int64]:
        """``first[degree]`` plus the sum of the neighbours' degrees, for every node."""
        found: NDArray[np.int64] = self._kernels.sums(self._ends, self._degrees)
        found += first[self._degrees]
        return found

    # ---- matrices ----

    def gathering(self, how: str, *, itself: Any = 0.0) -> Any:
        ones = torch.ones(self.num_nodes, dtype=self.dtype)
        shares = 1 / self._every_degree.clamp(min=1) if how == "mean" else ones
        return self._by_degree(shares, ones, ones * itself)

    def normalised(self, loop: float) -> Any:
        if loop not in self._normalised:
            scale = (self._every_degree + loop).rsqrt()
            if loop == 0:
                scale = scale.masked_fill(scale == torch.inf, 0)
            self._normalised[loop] = self._by_degree(scale, scale, scale.square() * loop)
        return self._normalised[loop]

    def attention(self, source: Tensor, target: Tensor, *, slope: float, loops: bool) -> Any:
        source, target = (part.expand(self.copies, -1).reshape(-1) for part in (source, target))
        given = _array(source), _array(target), _array(torch.tensor(slope, dtype=self.dtype))[()], loops
        entries, own = self._kernels.scores(self._starts, self._neighbours, self.num_nodes, *given)
        np.exp(entries, out=entries)
        np.exp(own, out=own)
        self._kernels.attend(entries, own, self._starts)
        ones = np.ones_like(own)
        return _Matrix(ones, ones, own, entries)

    @property
    def _every_degree(self) -> Tensor:
        return torch.arange(self.num_nodes, dtype=self.dtype)

    def _by_degree(self, *tables: Tensor) -> _Matrix:
        """A matrix whose factors follow from degrees."""
        target, source, own = (_array(table).take(self._degrees) for table in tables)
        return _Matrix(target, source, own, target[:0])

    # ---- products ----

    def product(self, matrix: Any, rows: Any, added: Any = None, ending: Ending = NO_ENDING) -> Tensor:
        given = self._terms(matrix, rows, added)
        found = self._empty(ending, given.width)
        self._kernels.mix(*given.arrays, ending.relu, bool(ending.pool), found)
        return self._ended(found, given.width, ending)

    def perceptron(self, matrix: Any, rows: Any, added: Any, linear: Any, ending: Ending) -> Tensor:
        given, (width, before) = self._terms(matrix, rows, added), linear.weight.shape
        if before != given.width:
            raise ValueError(f"rows have {given.width} columns, and the linear layer takes {before}")
        weights = self._wide(linear.weight.mT)
        bias = torch.zeros(width, dtype=self.dtype) if linear.bias is None else linear.bias
        found = self._empty(ending, width)
        ends = weights, self._wide(bias.unsqueeze(0)), ending.relu, bool(ending.pool), found
        self._kernels.perceptron(*given.arrays, *ends)
        return self._ended(found, width, ending)

    def _terms(self, matrix: Any, rows: Any, added: Any) -> _Terms:
        rows = self._as_rows(rows)
        width = rows.table.shape[1]
        plus = self._as_rows(torch.zeros(width, dtype=self.dtype) if added is None else added)
        if plus.rise is not None:
            plus = self._as_rows(self.plain(plus))
        if plus.table.shape[1] != width:
            raise ValueError(f"rows have {width} columns, and what is added to them {plus.table.shape[1]}")
        table = self._wide(rows.table)
        rise, factor = (
            (table[:0], table[0, :0])
            if rows.rise is None or rows.factor is None
            else (self._wide(rows.rise), _array(rows.factor))
        )
        lists = self._starts, self._neighbours, self.num_nodes
        arrays = (*lists, *matrix, table, rise, rows.places, factor, self._wide(plus.table), plus.places)
        return _Terms(width, arrays)

    def _empty(self, ending: Ending, width: int) -> NDArray[Any]:
        """Where rows go, or their sums."""
        rows = self.copies if ending.pool else self.copies * self.num_nodes
        return torch.empty(rows, width + -width % self._kernels.LANES, dtype=self.dtype).numpy()

    def _wide(self, rows: Tensor) -> NDArray[Any]:
        """Rows with as many columns as kernels add at once, or a multiple."""
        if rows.dtype != self.dtype:
            raise TypeError(f"rows must be {self.dtype}; got {rows.dtype}")
        missing = -rows.shape[1] % self._kernels.LANES
        return _array(torch.nn.functional.pad(rows, (0, missing)) if missing else rows)

    def _ended(self, found: NDArray[Any], width: int, ending: Ending) -> Tensor:
        result = torch.from_numpy(found)[:, :width].contiguous()
        return result.div_(self.num_nodes) if ending.pool == "mean" else result

    def sums(self, matrix: Any, values: Tensor) -> Tensor:
        values = values.flatten()
        self._check(values)
        given = _array(values)
        if len(matrix.entries):
            found = self._kernels.weighted_sums(self._starts, self._neighbours, self.num_nodes, matrix.entries, given)
        else:
            found = self._kernels.sums(self._ends, matrix.source * given)
        found *= matrix.target
        found += matrix.own * given
        return torch.from_numpy(found).view(self.copies, self.num_nodes)

    def ended(self, rows: Tensor, ending: Ending) -> Tensor:
        if not ending.pool:
            return rows.relu_() if ending.relu else rows
        self._check(rows)
        found = self._empty(ending, rows.shape[1])
        self._kernels.pool(self._wide(rows), self.num_nodes, ending.relu, found)
        return self._ended(found, rows.shape[1], ending)

    # ---- rows that follow from degrees ----

    def looked_up(self, pieces: PiecewiseLinear, values: Tensor) -> list[Any]:
        factor = values.flatten()
        index = self._kernels.pieces_of(_array(factor), _array(pieces.knots))
        return [Rows(level, index, rise, factor) for rise, level in pieces.tables]

    def plain(self, rows: Any) -> Tensor:
        if isinstance(rows, Tensor):
            return rows
        index = torch.from_numpy(rows.places)
        found: Tensor = rows.table.index_select(0, index)
        return (
            found if rows.rise is None else found.addcmul_(rows.rise.index_select(0, index), rows.factor.unsqueeze(1))
        )

    def _as_rows(self, rows: Any) -> Rows:
        """Any rows as rows by look-up: one for all nodes ``[d]``, for the nodes ``[n, d]``, or for all ``[B * n, d]``."""
        if isinstance(rows, Rows):
            return rows
        table: Tensor = rows.unsqueeze(0) if rows.ndim == 1 else rows
        if rows.ndim == 2 and len(rows) != self.num_nodes:
            self._check(rows)
        return Rows(table, np.tile(np.arange(len(table)), self.copies * self.num_nodes // len(table)))

    def _check(self, rows: Tensor) -> None:
        """Compiled loops do not look whether there is a row for every node."""
        if len(rows) != self.copies * self.num_nodes:
            raise ValueError(f"there must be {self.copies * self.num_nodes} rows of nodes; got {len(rows)}")


def _states(batch: NoisyBatch) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
    """States of slots ``[B, N]``, frozen edges last, and the two nodes of every slot."""
    nodes = batch.num_nodes
    if batch.states is None:
        states = np.zeros((batch.size, nodes * (nodes - 1) // 2), dtype=np.bool_)
        lists = batch.edge_lists()
        states[lists.sample, lists.slot] = True
        return states, *_ends(nodes, np.arange(states.shape[1]).tobytes())
    assert batch.slots is not None
    states, frozen = np.ascontiguousarray(batch.states), batch.frozen_edges
    if len(frozen):
        states = np.concatenate([states, np.ones((batch.size, len(frozen)), dtype=np.bool_)], axis=1)
    return states, *_ends(nodes, batch.slots.tobytes() + frozen.tobytes())


@lru_cache(maxsize=64)
def _ends(nodes: int, slots: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The two nodes of every slot."""
    first, second = np.ascontiguousarray(pairs_of_slots(np.frombuffer(slots, np.int64), nodes).T)
    return first, second


def _array(values: Tensor) -> NDArray[Any]:
    """The numbers of a tensor as kernels take them."""
    found: NDArray[Any] = values.detach().contiguous().numpy()
    return found
