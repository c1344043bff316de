"""What an attacker may do: how many flips, of which kind, and what must be left of the graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flipproof.checks import checked_count
from flipproof.defences.target import attacked_states
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray, pairs_of_slots

_MOST_CANDIDATES = 20_000  # single steps tried at once; of more, a random part
_MOST_ENTRIES = 2**24  # states held at once


@dataclass(frozen=True)
class Constraints:
    """The attacker's limits. One undirected flip costs 1; frozen pairs of a graph are never touched.

    Attributes:
        budget: Largest number of flips.
        adds: Whether edges may be added.
        removes: Whether edges may be removed.
        keep_connected: The attacked graph has no more connected components than the clean one.
        allow_isolated: Whether a node may lose its last edge.
        per_node: Largest number of flips at any one node; ``None`` for no limit.
    """

    budget: int
    adds: bool = True
    removes: bool = True
    keep_connected: bool = False
    allow_isolated: bool = True
    per_node: int | None = None

    def __post_init__(self) -> None:
        checked_count(self.budget, "budget", 0, "for instance 5")
        if self.per_node is not None:
            checked_count(self.per_node, "per_node", 0, "or None for no limit")
        if not (self.adds or self.removes):
            raise InputError("an attacker must be allowed to add or to remove edges; got adds=False, removes=False")


class Space:
    """The sets of flips that an attacker may make on a graph: rows of positions, -1 fills up.

    See :mod:`flipproof.defences.target` for positions.
    """

    def __init__(self, graph: Graph, constraints: Constraints) -> None:
        self.graph, self.constraints = graph, constraints
        self._states = graph.slot_states
        allowed = (self._states & constraints.removes) | (~self._states & constraints.adds)
        self.columns: IntArray = np.flatnonzero(allowed).astype(np.int64)
        """Positions that may be flipped at all."""
        self._pairs = pairs_of_slots(graph.slots, graph.num_nodes)

    @property
    def budget(self) -> int:
        """Largest number of flips that is possible."""
        return min(self.constraints.budget, len(self.columns))

    def holds(self, flips: IntArray) -> NDArray[np.bool_]:
        """Which of these sets of flips keep all constraints, ``[K]``."""
        limits, used = self.constraints, flips >= 0
        good = used.sum(axis=1) <= limits.budget
        edges = self._states[flips] & used
        if not limits.adds:
            good &= (edges == used).all(axis=1)
        if not limits.removes:
            good &= ~edges.any(axis=1)
        if limits.per_node is not None:
            good &= self._at_nodes(flips, used).max(axis=1, initial=0) <= limits.per_node
        if not limits.allow_isolated:
            change = self._at_nodes(flips, used & ~edges) - self._at_nodes(flips, edges)
            degrees = self.graph.degrees
            good &= ~((degrees + change == 0) & (degrees > 0)).any(axis=1)
        if limits.keep_connected:
            risky = np.flatnonzero(good & edges.any(axis=1))
            size = max(1, _MOST_ENTRIES // max(1, self.graph.num_slots))
            for start in range(0, len(risky), size):
                rows = risky[start : start + size]
                good[rows] = self._components(flips[rows]) <= self._clean_components
        return np.asarray(good)

    def extensions(self, flips: IntArray, rng: np.random.Generator, *, limit: int | None = None) -> IntArray:
        """All allowed sets with one flip more than this one ``[d]``, ``[K, d + 1]``. Of more than ``limit``, a random part."""
        most = min(_MOST_CANDIDATES, _MOST_CANDIDATES if limit is None else limit)
        further = self.columns[~np.isin(self.columns, flips)]
        if len(further) > 2 * most:  # not all of them need be checked
            further = further[rng.choice(len(further), 2 * most, replace=False)]
        grown = np.column_stack([np.tile(flips, (len(further), 1)), further])
        grown = grown[self.holds(grown)]
        return grown[rng.choice(len(grown), most, replace=False)] if len(grown) > most else grown

    def repaired(self, wishes: IntArray, size: int) -> IntArray:
        """From each row of wishes, in their order, the first ``size`` flips that can be had together, ``[K, size]``."""
        chosen = np.full((len(wishes), size), -1, dtype=np.int64)
        counts = np.zeros(len(wishes), dtype=np.int64)
        for wish in wishes.T:
            rows = np.flatnonzero((wish >= 0) & (counts < size) & ~(chosen == wish[:, None]).any(axis=1))
            tried = chosen[rows]
            tried[np.arange(len(rows)), counts[rows]] = wish[rows]
            kept = self.holds(tried)
            chosen[rows[kept]] = tried[kept]
            counts[rows[kept]] += 1
        return chosen

    def draws(self, count: int, size: int, rng: np.random.Generator) -> IntArray:
        """Random sets of ``size`` allowed flips (fewer where the constraints leave no more), ``[count, size]``."""
        wishes = self.columns[rng.integers(0, len(self.columns), (count, 2 * size + 8))]
        return self.repaired(wishes, size)

    def _at_nodes(self, flips: IntArray, counted: NDArray[np.bool_]) -> IntArray:
        """How many of the counted flips touch each node, ``[K, n]``."""
        row, place = np.nonzero(counted)
        ends = self._pairs[flips[row, place]] + row[:, None] * self.graph.num_nodes
        size = len(flips) * self.graph.num_nodes
        return np.bincount(ends.ravel(), minlength=size).reshape(len(flips), self.graph.num_nodes).astype(np.int64)

    def _components(self, flips: IntArray) -> IntArray:
        """Connected components of each attacked graph, ``[K]``."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        n, count = self.graph.num_nodes, len(flips)
        row, column = np.nonzero(attacked_states(self.graph, flips))
        ends = self._pairs[column] + row[:, None] * n
        fixed = pairs_of_slots(self.graph.frozen_edge_slots, n)
        ends = np.concatenate([ends, (fixed[None] + np.arange(count)[:, None, None] * n).reshape(-1, 2)])
        union = coo_array((np.ones(len(ends), dtype=np.int8), ends.T), shape=(count * n, count * n))
        _, component = connected_components(union, directed=False)
        owner = np.repeat(np.arange(count), n)
        first = np.unique(component, return_index=True)[1]
        return np.bincount(owner[first], minlength=count).astype(np.int64)

    @property
    def _clean_components(self) -> int:
        return int(self._components(np.empty((1, 0), dtype=np.int64))[0])
