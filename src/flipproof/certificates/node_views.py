"""Views: what each node of a graph sees, and all that it could see after an attack.

The **view** of a node is its own kind and, for each kind, the number of its neighbours of that kind. Kinds are distinct rows
of node features; a graph without features has one kind, and a view is then a degree. A flip of the pair {u, w} changes the
views of ``u`` and ``w`` and no other.

What an attacker does to one node is a **composition**: of each kind, so many neighbours added and so many removed. He can add at
most the non-neighbours of a kind that there are, remove at most the neighbours, and touch no frozen pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray

_FEW_COMPOSITIONS, _MOST_COMPOSITIONS, _DEEP_ENOUGH = 300, 1000, 3
_DEEPEST = 32
_MOST_ENTRIES = 2**27  # numbers in the table of reached views


@dataclass(frozen=True, eq=False)
class Compositions:
    """All that can happen to one node in at most ``depth`` flips, ordered by additions plus removals, then by additions."""

    # how often each move is made, ``[M, 2K]``: neighbours of kind 0, 1, ... added, then removed. The first ``2K`` rows are the
    # single moves, in this order.
    moves: IntArray
    adds: IntArray  # neighbours added, ``[M]``
    removes: IntArray  # neighbours removed, ``[M]``

    @cached_property
    def net(self) -> IntArray:
        """Change of the counts, ``[M, K]``."""
        kinds = self.moves.shape[1] // 2
        return self.moves[:, :kinds] - self.moves[:, kinds:]

    @cached_property
    def groups(self) -> tuple[IntArray, IntArray, IntArray]:
        """Those with as many additions and as many removals stand together: both numbers, where each starts, and the end."""
        starts = np.flatnonzero(np.diff(np.stack([self.adds, self.removes]), prepend=-1).any(axis=0))
        return self.adds[starts], self.removes[starts], np.append(starts, len(self.moves))


@lru_cache(maxsize=256)
def compositions(kinds: int, depth: int, *, swaps: bool = True) -> Compositions:
    """All compositions of 1 to ``depth`` flips at a node, for a number of kinds.

    >>> compositions(1, 2).moves.tolist()
    [[1, 0], [0, 1], [0, 2], [1, 1], [2, 0]]
    """
    single = np.eye(2 * kinds, dtype=np.int64)
    parts = [single[: 2 * kinds * (depth > 0)]]
    for size in range(2, depth + 1):
        chosen = np.array(list(combinations_with_replacement(range(2 * kinds), size)), dtype=np.int64)
        moves = single[chosen.reshape(-1, size)].sum(axis=1)
        if not swaps:
            moves = moves[~((moves[:, :kinds] > 0) & (moves[:, kinds:] > 0)).any(axis=1)]
        parts.append(moves[np.argsort(moves[:, :kinds].sum(axis=1), kind="stable")])
    moves = np.concatenate(parts)
    moves.flags.writeable = False
    return Compositions(moves, moves[:, :kinds].sum(axis=1), moves[:, kinds:].sum(axis=1))


def default_depth(num_kinds: int, num_nodes: int) -> int:
    """Flips per node that are looked at by default: as many as make few compositions, and up to 3 many; at least 1.

    >>> default_depth(1, 50), default_depth(4, 50), default_depth(8, 50), default_depth(50, 50)
    (23, 3, 3, 1)
    """
    depth = 1
    while depth < min(_DEEPEST, num_nodes - 1):
        most = _MOST_COMPOSITIONS if depth < _DEEP_ENOUGH else _FEW_COMPOSITIONS
        if math.comb(2 * num_kinds + depth + 1, depth + 1) > most:
            break
        depth += 1
    return depth


def views_of(graph: Graph, kinds: IntArray, depth: int) -> NodeViews:
    """As :meth:`NodeViews.of`; the last few are kept, since evidence that was just made is mostly read at once."""
    return _kept_views(graph, kinds.tobytes(), depth)


@lru_cache(maxsize=4)
def _kept_views(graph: Graph, kinds: bytes, depth: int) -> NodeViews:
    return NodeViews.of(graph, np.frombuffer(kinds, dtype=np.int64), depth)


def kinds_of(features: NDArray[np.floating]) -> tuple[NDArray[np.floating], IntArray]:
    """The distinct rows of node features ``[K, d]``, in an order of their own, and the kind of every node ``[n]``."""
    keys = [row.tobytes() for row in features + 0.0]  # no negative zeros
    distinct = sorted(set(keys))
    number = {key: place for place, key in enumerate(distinct)}
    return features[[keys.index(key) for key in distinct]], np.array([number[key] for key in keys], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class NodeViews:
    """The views of a graph's nodes, and those that attacks reach; a function of the graph, the kinds and the depth.

    Nodes that see the same and to whom the same can happen form a **class**.
    """

    graph: Graph  # the graph
    kinds: IntArray  # kind of every node, ``[n]``
    own: IntArray  # own kind of every distinct view, ``[R]``. The views of the graph as it is come first.
    counts: IntArray  # its neighbours of each kind, ``[R, K]``
    num_clean: int  # number of distinct views of the graph as it is
    class_of_node: IntArray  # ``[n]``
    base: IntArray  # the view of every class, ``[V]``
    steps: Compositions  # what can happen to a node
    reached: IntArray  # the view of every class after every composition, ``[V, M]``; -1 where it cannot happen

    def __len__(self) -> int:
        return len(self.own)

    @classmethod
    def of(cls, graph: Graph, kinds: IntArray, depth: int, *, swaps: bool = True) -> NodeViews:
        """The views that at most ``depth`` flips per node reach.

        >>> path = Graph(3, [(0, 1), (1, 2)])
        >>> views = NodeViews.of(path, np.zeros(3, dtype=np.int64), depth=1)
        >>> views.counts.ravel().tolist(), views.num_clean  # degrees 1 and 2, and with one flip 0
        ([1, 2, 0], 2)
        """
        present = np.bincount(kinds)
        number = len(present)
        counts, fixed, shut = _counts(graph, kinds, number)
        removable = counts - fixed
        addable = present - np.eye(number, dtype=np.int64)[kinds] - counts - shut
        parts = [kinds[:, None], counts] + ([removable, addable] if len(graph.frozen) else [])
        _, first, class_of_node = unique_rows(np.concatenate(parts, axis=1))
        steps = compositions(number, depth, swaps=swaps)
        if len(first) * len(steps.moves) * number > _MOST_ENTRIES:
            raise InputError(
                f"a graph of {graph.num_nodes} nodes with {number} distinct rows of node features makes too many views to look "
                "at (drop real-valued features, or round them to few values)"
            )
        own, seen = kinds[first], counts[first]
        # kinds first, and rows side by side in memory: numpy is slow at many short rows
        taken = np.ascontiguousarray(steps.moves.T)
        room = np.ascontiguousarray(np.concatenate([addable[first], removable[first]], axis=1).T)
        possible = (taken[:, None] <= room[:, :, None]).all(axis=0)
        of_class, step = np.nonzero(possible)
        views = np.empty((len(first) + len(step), 1 + number), dtype=np.int64)
        views[: len(first), 0], views[: len(first), 1:] = own, seen
        views[len(first) :, 0], views[len(first) :, 1:] = own[of_class], seen[of_class] + steps.net[step]
        distinct, _, place = unique_rows(views)
        clean = np.zeros(len(distinct), dtype=np.bool_)
        clean[place[: len(first)]] = True
        order = np.argsort(~clean, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        reached = np.full(possible.shape, -1, dtype=np.int64)
        reached[of_class, step] = rank[place[len(first) :]]
        rows = distinct[order]
        return cls(
            graph=graph,
            kinds=kinds,
            own=rows[:, 0],
            counts=rows[:, 1:],
            num_clean=int(clean.sum()),
            class_of_node=class_of_node,
            base=rank[place[: len(first)]],
            steps=steps,
            reached=reached,
        )

    @cached_property
    def joined(self) -> NDArray[np.bool_]:
        """Which nodes are neighbours, ``[n, n]``."""
        u, w = self.graph.edges.T
        matrix = np.zeros((self.graph.num_nodes,) * 2, dtype=np.bool_)
        matrix[u, w] = matrix[w, u] = True
        return matrix

    @property
    def clean_nodes(self) -> IntArray:
        """How many nodes of the graph have each of its own views, ``[num_clean]``."""
        return np.bincount(self.base[self.class_of_node], minlength=self.num_clean)


def _counts(graph: Graph, kinds: IntArray, number: int) -> tuple[IntArray, IntArray, IntArray]:
    """Of every node: its neighbours, those behind a frozen pair, and frozen non-neighbours, ``[n, K]`` each."""
    fixed = np.isin(graph.edge_slots, graph.frozen_slots)
    shut = ~np.isin(graph.frozen_slots, graph.edge_slots)
    pairs = (graph.edges, graph.edges[fixed], graph.frozen[shut])
    counts, behind, apart = (count_neighbours(part, kinds, number) for part in pairs)
    return counts, behind, apart


def count_neighbours(pairs: IntArray, kinds: IntArray, number: int) -> IntArray:
    """How many partners of each kind every node has in a list of pairs, ``[n, K]``."""
    u, w = pairs.T
    places = np.concatenate([u * number + kinds[w], w * number + kinds[u]])
    return np.bincount(places, minlength=len(kinds) * number).reshape(len(kinds), number)


def unique_rows(rows: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Distinct rows in lexicographic order, where each first occurs, and which one every row is."""
    ranges = [int(most) + 1 for most in rows.max(axis=0)]
    if math.prod(ranges) < 2**62:  # a row as one number: many times faster
        weights = np.array([math.prod(ranges[place + 1 :]) for place in range(len(ranges))], dtype=np.int64)
        numbers = rows @ weights
        _, first, place = np.unique(numbers, return_index=True, return_inverse=True)
    else:
        _, first, place = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return rows[first], first, place.reshape(-1)
