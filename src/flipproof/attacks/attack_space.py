"""What an attacker may do to a graph: flips of node pairs, and changes of node features."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from math import comb

import numpy as np
from numpy.typing import NDArray

from flipproof.checks import checked_count
from flipproof.defences.changed_nodes import changeable
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray, slots_of_pairs

_MOST_CANDIDATES = 20_000  # single steps tried at once; of more, a random part
_MOST_AT_NODE = 64  # the same of a node; half of them take edges or bits away
_MOST_SLOTS = 2**25  # of a graph whose nodes are attacked: positions are numbers of node pairs


def _places_at(nodes: IntArray, graph: Graph) -> IntArray:
    """Places among the slots of all pairs at these nodes, ascending."""
    if graph.num_slots > _MOST_SLOTS:
        raise InputError(
            f"attacks on nodes need a graph of at most {_MOST_SLOTS:,} node pairs; got {graph.num_slots:,} (attack in a "
            "smaller graph)"
        )
    pairs = np.stack([np.repeat(nodes, graph.num_nodes), np.tile(np.arange(graph.num_nodes), len(nodes))], axis=1)
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    slots = np.setdiff1d(slots_of_pairs(pairs, graph.num_nodes), graph.frozen_slots)
    return np.searchsorted(graph.slots, slots)


class Space:
    """The flips and changes that an attacker may make on a graph, as positions (see :mod:`flipproof.defences.target`).

    Of a graph with a node that is meant, those at the node or a neighbour of it: others rarely count.

    A set has at most ``budget`` of the ``slots`` and ``changes`` of the ``entries`` of node features, of which the labels of one
    node exclude each other. Frozen pairs of the graph are never touched.
    """

    def __init__(self, graph: Graph, budget: int, *, adds: bool = True, removes: bool = True, changes: int = 0) -> None:
        if not (adds or removes):
            raise InputError("an attacker must be allowed to add or to remove edges; got adds=False, removes=False")
        node, edges = graph.node, graph.edges
        near = None if node is None else np.union1d(edges[(edges == node).any(axis=1)], node)
        places = np.arange(graph.num_slots) if near is None else _places_at(near, graph)
        self.slots: IntArray = places[np.where(graph.slot_states[places], removes, adds)]
        self.budget = min(checked_count(budget, "budget", 0, "for instance 5"), len(self.slots))
        cells = changeable(graph) if checked_count(changes, "changes", 0, "for instance 1") else np.zeros((0, 1))
        self._first, self._width = graph.num_slots, 1 if cells.all() else cells.shape[1]
        if near is not None and changes:
            cells = np.where(np.isin(np.arange(len(cells)), near)[:, None], cells, False)
        self.entries: IntArray = np.flatnonzero(cells) + self._first
        self._graph = graph
        self.columns: IntArray = np.concatenate([self.slots, self.entries])
        self.changes = min(changes, len(np.unique(self._units(self.entries))))
        self.size = self.budget + self.changes

    def _units(self, positions: IntArray) -> IntArray:
        """What each position changes: a pair, a bit, or the label of a node."""
        entries = positions - self._first
        return np.where(entries < 0, positions, self._first + entries // self._width)

    def first_fitting(self, order: IntArray) -> IntArray:
        """The first of these positions that fit into a set, in their order."""
        if self.changes:
            order = order[np.sort(np.unique(self._units(order), return_index=True)[1])]
        entry = order >= self._first
        rank, most = np.where(entry, entry.cumsum(), (~entry).cumsum()), np.where(entry, self.changes, self.budget)
        return order[rank <= most]

    def sets(self, size: int) -> Iterator[tuple[int, ...]]:
        """All sets of this size."""
        for changes in range(max(0, size - self.budget), min(size, self.changes) + 1):
            parts = combinations(self.slots.tolist(), size - changes), combinations(self.entries.tolist(), changes)
            for flips, entries in product(*parts):
                if len(np.unique(self._units(np.array(entries, dtype=np.int64)))) == changes:
                    yield flips + entries

    @property
    def count(self) -> int:
        """The number of sets with at least one member, or more."""
        sizes = product(range(self.budget + 1), range(self.changes + 1))
        return sum(comb(len(self.slots), flips) * comb(len(self.entries), changes) for flips, changes in sizes) - 1

    def extensions(self, flips: IntArray, rng: np.random.Generator, *, limit: int | None = None) -> IntArray:
        """All sets with one member more than this one ``[d]``, ``[K, d + 1]``. Of more than ``limit``, a random part."""
        most = _MOST_CANDIDATES if self._graph.node is None else _MOST_AT_NODE
        most = most if limit is None else min(most, limit)
        changes = int((flips >= self._first).sum())
        rooms = (self.slots, self.budget - len(flips) + changes), (self.entries, self.changes - changes)
        further = np.concatenate([self.slots[:0], *(positions for positions, room in rooms if room > 0)])
        further = further[~np.isin(self._units(further), self._units(flips))]
        taken_away = further[:0]
        if len(further) > most and self._graph.node is not None:
            taken_away = rng.permutation(further[self._there(further)])[: most // 2]
            further = np.setdiff1d(further, taken_away)
        if len(further) + len(taken_away) > most:
            further = np.append(taken_away, rng.choice(further, most - len(taken_away), replace=False))
        return np.column_stack([np.tile(flips, (len(further), 1)), further])

    def _there(self, positions: IntArray) -> NDArray[np.bool_]:
        """Whether positions hold an edge, or a 1."""
        entries, features = positions - self._first, self._graph.node_features
        there = self._graph.slot_states[np.minimum(positions, self._first - 1)]
        return there if features is None else np.where(entries < 0, there, features.ravel()[np.maximum(entries, 0)] > 0)

    def draws(self, count: int, size: int, rng: np.random.Generator) -> IntArray:
        sets = [self.first_fitting(rng.permutation(self.columns))[:size] for _ in range(count)]
        return np.array(sets, dtype=np.int64).reshape(count, size)
