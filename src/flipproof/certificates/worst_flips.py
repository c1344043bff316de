"""The worst flips that a search finds, where every node votes on its own view: candidate attacks, evaluated exactly.

The matched knapsack bounds what an attack can do without naming one. Here flips are chosen one by one, each lowering the lead as
much as a single flip can by then; what they do together is read from the same scores as the certificate. The first flip is a
worst one, hence an attack wherever one flip suffices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.node_views import Compositions, NodeViews

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
        self.num_moves = 2 * int(views.counts.shape[1])  # partners of each kind can be added and removed
        frozen = views.graph.frozen
        self._free = np.triu(np.ones(views.joined.shape, dtype=np.bool_), 1)
        self._free[frozen[:, 0], frozen[:, 1]] = False
        # what a node loses by a first move, [n, 2K]: the first rows of the compositions are the single moves
        reached = views.reached[:, : self.num_moves]
        first = np.where(reached >= 0, parts[views.base][:, None] - parts[reached], -np.inf)
        self._first: Floats = first[views.class_of_node]

    def drops(self, flips: list[Flip]) -> list[float]:
        """How far the first 0, 1, 2, ... flips lower the lead; ``-inf`` if a node is touched more often than was looked at."""
        attack = _Attack(self)
        return [0.0, *(attack.flip(flip) for flip in flips)]

    def greedy(self, most: int, enough: Callable[[int, float], bool]) -> list[Flip]:
        """Up to ``most`` flips, each the worst one by then, until ``enough(number, drop)``."""
        flips, gains, free, attack = list[Flip](), self._first.copy(), self._free.copy(), _Attack(self)
        while len(flips) < most:
            flip = self._worst(gains, free, attack.change)
            if flip is None:
                break
            flips.append(flip)
            free[flip] = False
            if enough(len(flips), attack.flip(flip)):
                break
            for node in flip:
                gains[node] = attack.next(node)
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
        joined, kinds = self._views.joined, self._views.kinds
        moves = gains.reshape(len(gains), 2, -1)[..., kinds]  # [n, 2, n]: what the first loses by the last
        both = moves + moves.transpose(2, 1, 0)
        fewer, same, more = (self.lost_by_edges(change + step) for step in (-1, 0, 1))
        drops = np.where(joined, both[:, 1] + (fewer - same), both[:, 0] + (more - same))
        u, v = divmod(int(np.where(free, drops, -np.inf).argmax()), len(kinds))
        return (u, v) if free[u, v] and np.isfinite(drops[u, v]) else None

    def lost_by_edges(self, change: int) -> float:
        """What the lead loses by so many edges more alone; ``-inf`` if that was not looked at."""
        return 0.0 if self._by_edges is None else self._by_edges.get(change, -np.inf)

    def lost(self, node: int, moves: NDArray[np.int64]) -> float:
        """What a node loses by moves; ``-inf`` if they were not looked at."""
        place, own = _numbers(self._views.steps).get(moves.tobytes()), self._views.class_of_node[node]
        reached = -1 if place is None else int(self._views.reached[own, place])
        return float(self._parts[self._views.base[own]] - self._parts[reached]) if reached >= 0 else -np.inf

    def moves_of(self, flip: Flip) -> tuple[bool, tuple[int, int]]:
        """Whether a flip removes an edge, and the moves that it makes at its two ends."""
        removes, kinds = bool(self._views.joined[flip]), self._views.kinds
        first = self.num_moves // 2 * removes
        return removes, (first + int(kinds[flip[1]]), first + int(kinds[flip[0]]))


class _Attack:
    """An attack under way: the moves made at every node that it touched, and what these nodes lost."""

    def __init__(self, search: FlipSearch) -> None:
        self._search, self.change = search, 0
        self._moves, self._lost = dict[int, NDArray[np.int64]](), dict[int, float]()

    def flip(self, flip: Flip) -> float:
        """Make a flip; returns the drop by then."""
        removes, moves = self._search.moves_of(flip)
        for node, move in zip(flip, moves, strict=True):
            self._moves.setdefault(node, np.zeros(self._search.num_moves, dtype=np.int64))[move] += 1
            self._lost[node] = self._search.lost(node, self._moves[node])
        self.change += -1 if removes else 1
        return float(sum(self._lost.values())) + self._search.lost_by_edges(self.change)

    def next(self, node: int) -> Floats:
        """What a node that was touched loses by one move more, ``[2K]``."""
        steps = np.eye(self._search.num_moves, dtype=np.int64)
        return np.array([self._search.lost(node, self._moves[node] + step) for step in steps]) - self._lost[node]


@lru_cache(maxsize=16)
def _numbers(steps: Compositions) -> dict[bytes, int]:
    """The place of every composition."""
    return {row.tobytes(): place for place, row in enumerate(steps.moves.astype(np.int64))}
