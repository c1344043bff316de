"""The worst flips that a search finds, where every node votes on its own view: candidate attacks, evaluated exactly.

The matched knapsack bounds what an attack can do without naming one: the partners that it gives to a node need not exist. Here
flips are chosen one by one, each lowering the lead as much as a single flip can by then. What they do together is read from the
same scores as the certificate, without a model call. The first flip is a worst one, hence an attack wherever one flip suffices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.node_views import Compositions, NodeViews

__all__ = ["Flip", "FlipSearch"]

Floats = NDArray[np.float64]
Flip = tuple[int, int]


class FlipSearch:
    """Attacks on the lead over one rival.

    Args:
        views: The views and what reaches them.
        parts: Part that each view has in the lead, ``[R]``.
        by_edges: What the lead loses besides by a change of the number of edges; by default nothing.
    """

    def __init__(self, views: NodeViews, parts: Floats, by_edges: Mapping[int, float] | None = None) -> None:
        self._views, self._parts, self._by_edges = views, parts, by_edges
        graph = views.graph
        n = graph.num_nodes
        self._joined = views.joined
        self._free = np.triu(np.ones((n, n), dtype=np.bool_), 1)
        if len(graph.frozen):
            self._free[graph.frozen[:, 0], graph.frozen[:, 1]] = False
        # what a node loses by a first move, [n, 2K]: the first rows of the compositions are the single moves
        reached = views.reached[:, : self.num_moves]
        first = np.where(reached >= 0, parts[views.base][:, None] - parts[reached], -np.inf)
        self._first: Floats = first[views.class_of_node]

    def drops(self, flips: list[Flip]) -> list[float]:
        """How far the first 0, 1, 2, ... flips lower the lead; ``-inf`` if a node is touched more often than was looked at."""
        state = _State(self)
        return [0.0, *(state.flip(flip) for flip in flips)]

    def greedy(self, most: int, enough: Callable[[int, float], bool]) -> list[Flip]:
        """Up to ``most`` flips, each the worst one by then, until ``enough(number, drop)``."""
        flips, gains, free, state = list[Flip](), self._first.copy(), self._free.copy(), _State(self)
        while len(flips) < most:
            flip = self._worst(gains, free, state.change)
            if flip is None:
                break
            flips.append(flip)
            free[flip] = False
            drop = state.flip(flip)
            if enough(len(flips), drop):
                break
            for node in flip:
                gains[node] = state.next(node)
        return flips

    def pruned(self, flips: list[Flip], enough: Callable[[int, float], bool]) -> list[Flip]:
        """The flips without those that the others are enough without."""
        kept = list(flips)
        for flip in flips:
            rest = [other for other in kept if other != flip]
            if rest and enough(len(rest), self.drops(rest)[-1]):
                kept = rest
        return kept

    def _worst(self, gains: Floats, free: NDArray[np.bool_], change: int) -> Flip | None:
        kinds = self._views.kinds
        moves = gains.reshape(len(gains), 2, -1)[..., kinds]  # [n, 2, n]: what the first loses by the last
        both = moves + moves.transpose(2, 1, 0)
        drops = np.where(self._joined, both[:, 1], both[:, 0])
        fewer, same, more = (self.lost_by_edges(change + step) for step in (-1, 0, 1))
        drops += np.where(self._joined, fewer - same, more - same)
        at = int(np.where(free, drops, -np.inf).argmax())
        u, v = at // len(kinds), at % len(kinds)
        return (u, v) if free[u, v] and np.isfinite(drops[u, v]) else None

    def place(self, flip: Flip) -> tuple[int, int]:
        """The moves that a flip makes at its two ends."""
        u, v = flip
        first = self.num_moves // 2 * int(self._joined[u, v])
        return first + int(self._views.kinds[v]), first + int(self._views.kinds[u])

    def edges_added(self, flip: Flip) -> int:
        """1 or -1: by how much a flip changes the number of edges."""
        return -1 if self._joined[flip] else 1

    def lost_by_edges(self, change: int) -> float:
        """What the lead loses by so many edges more alone; ``-inf`` if that was not looked at."""
        return 0.0 if self._by_edges is None else self._by_edges.get(change, -np.inf)

    def lost(self, node: int, moves: NDArray[np.int64]) -> float:
        """What a node loses by moves; ``-inf`` if they were not looked at."""
        place = _numbers(self._views.steps).get(moves.tobytes())
        own = self._views.class_of_node[node]
        reached = -1 if place is None else int(self._views.reached[own, place])
        return float(self._parts[self._views.base[own]] - self._parts[reached]) if reached >= 0 else -np.inf

    @property
    def num_moves(self) -> int:
        """Partners of each kind can be added and removed."""
        return 2 * int(self._views.counts.shape[1])


class _State:
    """An attack under way: the moves made at every node that it touched, and what these nodes lost."""

    def __init__(self, search: FlipSearch) -> None:
        self._search = search
        self._moves: dict[int, NDArray[np.int64]] = {}
        self._lost: dict[int, float] = {}
        self.change = 0

    def flip(self, flip: Flip) -> float:
        """Make a flip; returns the drop by then."""
        for node, move in zip(flip, self._search.place(flip), strict=True):
            self._moves.setdefault(node, np.zeros(self._search.num_moves, dtype=np.int64))[move] += 1
            self._lost[node] = self._search.lost(node, self._moves[node])
        self.change += self._search.edges_added(flip)
        return float(sum(self._lost.values())) + self._search.lost_by_edges(self.change)

    def next(self, node: int) -> Floats:
        """What a node that was touched loses by one move more, ``[2K]``."""
        one = np.eye(self._search.num_moves, dtype=np.int64)
        after = [self._search.lost(node, self._moves[node] + step) for step in one]
        return np.array(after) - self._lost[node]


@lru_cache(maxsize=16)
def _numbers(steps: Compositions) -> dict[bytes, int]:
    """The place of every composition."""
    return {row.tobytes(): place for place, row in enumerate(steps.moves.astype(np.int64))}
