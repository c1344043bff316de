r"""The matched knapsack: how far an attack can lower the lead of a class, where every node votes on its own view.

Write ``h(v)`` for the part that node ``v`` has in the lead, ``D_v(W)`` for the drop of ``h(v)`` when its pairs with all nodes of
``W`` are flipped, and ``delta_u(w) = D_u({w})``. For any ``theta``, an attack of exactly ``q`` flips lowers the lead by at most

    K_q(theta) = max { sum_v W_v(k_v) :  sum_v k_v = 2q,  k_v <= q },
    W_v(k) = max over |W| = k of [D_v(W) - sum over w in W of shift(v, w)],   shift(u, w) = theta (delta_u(w) - delta_w(u)) / 2.

The smallest of several thetas is taken; with ``theta = 1`` the bound for a single flip is exact. ``docs/local.md`` has the proof,
also for budgets of additions and removals, where ``k_v`` counts both.

Here the partners of a node are taken as the best ones of their kind, over and over if need be: a superset of what an attacker
can do. Everything is float64 and in a fixed order; the caller adds a margin for rounding.

Views are enumerated up to a depth. Where votes are bounded, ``|h(v)| <= c``, a node that is touched more often loses at most
``h(v) + c`` whatever it then sees, and ``W_v(k)`` is at most that plus ``k`` times the largest of the ``-shift(v, w)``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.node_views import Compositions, NodeViews
from flipproof.graphs import IntArray

THETAS = (0.0, 0.5, 1.0)
_THETAS = np.array(THETAS)[:, None, None]
KINDS = ("either", "adds", "removes")  # of flips
_ROOM = {"either": (1, 1), "adds": (1, 0), "removes": (0, 1)}  # for additions, for removals

Floats = NDArray[np.float64]


class NodeLosses:
    """What attacks on a single node take from the lead over each rival.

    Args:
        views: The views and what reaches them.
        leads: Part that each view has in the lead over each of ``B`` rivals, ``[R, B]``.
        bound: Largest absolute value of any part, of views that were not looked at as well, ``[B]``; infinite if there is none.
    """

    def __init__(self, views: NodeViews, leads: Floats, bound: Floats | None = None) -> None:
        self.views, self.rivals = views, leads.shape[1]
        self.depth = int((views.steps.adds + views.steps.removes).max())  # flips per node that were looked at
        base = leads[views.base]
        self._drops = base[:, None] - leads[views.reached]  # [V, M, B]
        self._drops[views.reached < 0] = -np.inf
        parts = base[views.class_of_node] + (np.inf if bound is None else bound)
        self._slack = self._slacks(self._drops[:, : views.steps.moves.shape[1]])
        # what a node can lose at most, and gain by the shift of one addition and of one removal, [n, 1, B, 1] each
        gains = (-part.min(axis=1) for part in np.split(self._slack, 2, axis=1))
        self._worst, self._by_adding, self._by_removing = (part[:, None, :, None] for part in (parts, *gains))

    def _slacks(self, single: Floats) -> Floats:
        """``(delta_v(w) - delta_w(v)) / 2`` for the best partner ``w`` of every node and move, ``[n, 2K, B]``, or 0."""
        views, graph = self.views, self.views.graph
        n, number = graph.num_nodes, single.shape[1] // 2
        free = ~np.eye(n, dtype=np.bool_)
        if len(graph.frozen):
            free[graph.frozen[:, 0], graph.frozen[:, 1]] = free[graph.frozen[:, 1], graph.frozen[:, 0]] = False
        order = np.argsort(views.kinds, kind="stable")
        starts = np.searchsorted(views.kinds[order], np.arange(number))
        slack = np.zeros((n, 2 * number, self.rivals))
        additions, removals = free & ~views.joined, free & views.joined
        self._most = np.stack([additions.sum(axis=1), removals.sum(axis=1)], axis=1)  # partners to gain, and to lose
        for place, pairs in enumerate((additions, removals)):
            part = slice(place * number, (place + 1) * number)
            mine = single[views.class_of_node][:, part]  # [n, K, B]: what v loses by a partner of each kind
            theirs = np.where(pairs[order][:, :, None], mine[order][:, views.kinds], -np.inf)  # [w, v, B]
            best = np.maximum.reduceat(theirs, starts, axis=0).transpose(1, 0, 2)
            possible = np.isfinite(best)
            slack[:, part][possible] = (mine[possible] - best[possible]) / 2
        return slack

    @cached_property
    def table(self) -> Floats:
        """``W_v`` for each theta, ``[n, thetas, B, additions, removals]``, as far as was looked; ``-inf`` where impossible."""
        adds, removes, starts = self.views.steps.groups
        drops = self._drops[self.views.class_of_node]  # [n, M, B]
        shifts = np.matmul(self.views.steps.moves.astype(np.float64), self._slack)
        table = np.full((len(drops), len(THETAS), self.rivals, self.depth + 1, self.depth + 1), -np.inf)
        table[..., 0, 0] = 0.0
        for place, theta in enumerate(THETAS):
            best = np.maximum.reduceat(drops - theta * shifts if theta else drops, starts[:-1], axis=1)
            table[:, place, :, adds, removes] = best.transpose(1, 0, 2)
        return table

    def along(self, kind: str, flips: int) -> Floats:
        """``W_v`` for 0, 1, ... flips of one of :data:`KINDS`, ``[n, thetas, B, flips + 1]``."""
        depth = min(flips, self.depth)
        adds, removes, starts = _made_of(kind, depth)
        values: Floats = np.maximum.reduceat(self.table[..., adds, removes], starts, axis=-1)
        if flips == depth:
            return values
        number = np.arange(depth + 1, flips + 1)
        # linear in the number of additions: as few or as many as there can be
        added, removed = (self._most * _ROOM[kind]).T[..., None, None, None]
        ends = (np.maximum(0, number - removed), np.minimum(number, added))
        beyond = np.maximum(*(self._beyond(adds, number - adds, kind) for adds in ends))
        return np.concatenate([values, beyond], axis=-1)

    def of_both(self, adds: int, removes: int) -> Floats:
        """``W_v`` for up to so many additions and removals, ``[n, thetas, B, adds + 1, removes + 1]``."""
        looked = self.table[..., : adds + 1, : removes + 1]
        if adds + removes <= self.depth:
            return looked
        values = np.full((*looked.shape[:-2], adds + 1, removes + 1), -np.inf)
        values[..., : looked.shape[-2], : looked.shape[-1]] = looked
        more, fewer = np.nonzero(np.add.outer(np.arange(adds + 1), np.arange(removes + 1)) > self.depth)
        values[..., more, fewer] = self._beyond(more, fewer)
        return values

    def _beyond(self, adds: IntArray, removes: IntArray, kind: str = "either") -> Floats:
        """Bounds on ``W_v`` for more flips than were looked at, ``[n, thetas, B, F]``, from numbers that broadcast to it."""
        added, removed = (self._most * _ROOM[kind]).T[..., None, None, None]
        bounds = self._worst + _THETAS * (adds * self._by_adding + removes * self._by_removing)
        return np.where((adds <= added) & (removes <= removed), bounds, -np.inf)


@lru_cache(maxsize=256)
def _made_of(kind: str, depth: int) -> tuple[IntArray, IntArray, IntArray]:
    """Additions and removals that 0, 1, ..., ``depth`` flips of a kind are made of, and where each number starts."""
    ways = [
        [(adds, flips - adds) for adds in range(flips * (kind == "adds"), flips * (kind != "removes") + 1)]
        for flips in range(depth + 1)
    ]
    adds, removes = np.array([way for part in ways for way in part]).T
    return adds, removes, np.cumsum([0, *(len(part) for part in ways[:-1])])


def heaviest(values: Floats, total: tuple[int, int]) -> Floats:
    """The largest sum with one value per node and exactly the given total, ``max { sum_v values_v[k_v] : sum_v k_v = total }``.

    Args:
        values: ``[n, ..., A, D]``; entry ``[v, ..., a, d]`` is what ``a`` additions and ``d`` removals at ``v`` bring.
        total: Additions and removals to hand out.

    Returns:
        ``[...]``, ``-inf`` where the total cannot be handed out.

    >>> drops = np.array([[0.0, 5.0, 6.0], [0.0, 4.0, 9.0], [0.0, 1.0, 1.0]])
    >>> float(heaviest(drops[:, :, None], (2, 0)))  # 5 + 4 and 9 are the best two
    9.0
    """
    # totals are the first two axes, nodes the third: what is added up then lies side by side in memory
    values = np.ascontiguousarray(np.moveaxis(values[..., : total[0] + 1, : total[1] + 1], (-2, -1), (0, 1)))
    while values.shape[2] > 1:
        even = values.shape[2] // 2 * 2
        merged = _merged(values[:, :, 0:even:2], values[:, :, 1:even:2], total)
        if even < values.shape[2]:
            rest = np.full((*merged.shape[:2], 1, *merged.shape[3:]), -np.inf)
            rest[: values.shape[0], : values.shape[1]] = values[:, :, even:]
            merged = np.concatenate([merged, rest], axis=2)
        values = merged
    inside = total[0] < values.shape[0] and total[1] < values.shape[1]
    return np.asarray(values[total][0]) if inside else np.full(values.shape[3:], -np.inf)


def _merged(left: Floats, right: Floats, total: tuple[int, int]) -> Floats:
    """The best of two nodes together for every total up to the one wanted, ``[additions, removals, ...]``."""
    top = [min(2 * size - 2, most) + 1 for size, most in zip(left.shape[:2], total, strict=True)]
    out = np.full((*top, *left.shape[2:]), -np.inf)
    room = np.empty(right.shape)
    for a, d in np.ndindex(min(left.shape[0], top[0]), min(left.shape[1], top[1])):
        part = right[: top[0] - a, : top[1] - d]
        place = out[a : a + part.shape[0], d : d + part.shape[1]]
        sums = np.add(left[a, d], part, out=room[: part.shape[0], : part.shape[1]])
        np.maximum(place, sums, out=place)
    return out


def worst_drops(losses: NodeLosses, budget: tuple[int, int] | int) -> Floats:
    """The largest drop of the lead over each rival in an attack of exactly so many flips, ``[B]``; ``-inf`` if there is none."""
    adds, removes = (budget, 0) if isinstance(budget, int) else budget
    if adds and removes:
        values, total = losses.of_both(adds, removes), (2 * adds, 2 * removes)
    else:
        kind = "either" if isinstance(budget, int) else "adds" if adds else "removes"
        values, total = losses.along(kind, adds + removes)[..., None], (2 * (adds + removes), 0)
    drops: Floats = heaviest(values, total).min(axis=0)
    return drops


def greedy_bounds(losses: NodeLosses, flips: int, kinds: Sequence[str] = KINDS) -> Floats:
    """Bounds on :func:`worst_drops` from above, mostly near it, for 0, 1, ..., ``flips`` flips, ``[kinds, flips + 1, B]``."""
    values = np.stack([losses.along(kind, flips) for kind in kinds])  # [kinds, n, thetas, B, flips + 1]
    gains = np.moveaxis(touch_gains(values), 1, 3)
    # the best touches of all nodes, two for each flip
    ranked = -np.sort(-gains.reshape(*gains.shape[:3], -1), axis=-1)[..., : 2 * flips]
    bounds = np.full((*ranked.shape[:3], 2 * flips + 1), -np.inf)
    bounds[..., 0] = 0.0
    np.cumsum(ranked, axis=-1, out=bounds[..., 1 : ranked.shape[-1] + 1])
    above: Floats = bounds[..., ::2].min(axis=1).swapaxes(1, 2)
    return above


def touch_gains(values: Floats) -> Floats:
    """What every touch of a node brings at most, ``[..., k]``: those of the first ``j`` sum up to at least what ``j`` bring.

    They are the slopes of the smallest concave function above the values, but for rounding.

    Args:
        values: What ``0, 1, ..., k`` touches bring, ``[..., k + 1]``; 0 for none, ``-inf`` where there cannot be as many.

    >>> touch_gains(np.array([[0.0, 1.0, 6.0, 7.0, -np.inf]])).tolist()
    [[3.0, 3.0, 1.0, -inf]]
    """
    values = np.ascontiguousarray(np.moveaxis(values, -1, 0))
    touches = np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1))
    gains = np.full((len(values) - 1, *values.shape[1:]), np.inf)
    # from every value, the steepest line to a later one; of all lines over a touch, the flattest
    with np.errstate(invalid="ignore"):  # of impossible numbers of touches
        for start in range(len(gains)):
            slopes = (values[start + 1 :] - values[start]) / (touches[start + 1 :] - touches[start])
            for place in range(len(slopes) - 2, -1, -1):  # row by row: several times faster than fmax.accumulate
                np.fmax(slopes[place], slopes[place + 1], out=slopes[place])
            np.fmin(gains[start:], slopes, out=gains[start:])
    return np.moveaxis(gains, 0, -1)


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
        self._num_moves = 2 * int(views.counts.shape[1])  # partners of each kind can be added and removed
        frozen = views.graph.frozen
        self._free = np.triu(np.ones(views.joined.shape, dtype=np.bool_), 1)
        self._free[frozen[:, 0], frozen[:, 1]] = False
        # what a node loses by a first move, [n, 2K]: the first rows of the compositions are the single moves
        reached = views.reached[:, : self._num_moves]
        first = np.where(reached >= 0, parts[views.base][:, None] - parts[reached], -np.inf)
        self._first: Floats = first[views.class_of_node]

    def drop(self, flips: list[Flip]) -> float:
        """How far flips lower the lead; ``-inf`` if a node is touched more often than was looked at."""
        lost = [self._lost(node, moves) for node, moves in self._moves(flips).items()]
        return float(sum(lost)) + self._lost_by_edges(self._change(flips))

    def greedy(self, most: int, enough: Callable[[int, float], bool]) -> list[Flip]:
        """Up to ``most`` flips, each the worst one by then, until ``enough(number, drop)``."""
        flips, gains, free = list[Flip](), self._first.copy(), self._free.copy()
        single = np.eye(self._num_moves, dtype=np.int64)
        while len(flips) < most:
            flip = self._worst(gains, free, self._change(flips))
            if flip is None:
                break
            flips.append(flip)
            free[flip] = False
            if enough(len(flips), self.drop(flips)):
                break
            moves = self._moves(flips)
            for node in flip:
                more = np.array([self._lost(node, moves[node] + move) for move in single])
                gains[node] = more - self._lost(node, moves[node])
        return flips

    def pruned(self, flips: list[Flip], enough: Callable[[int, float], bool]) -> list[Flip]:
        """The flips without those that the others are enough without."""
        kept = list(flips)
        for flip in flips:
            rest = [other for other in kept if other != flip]
            if rest and enough(len(rest), self.drop(rest)):
                kept = rest
        return kept

    def _worst(self, gains: Floats, free: NDArray[np.bool_], change: int) -> Flip | None:
        joined, kinds = self._views.joined, self._views.kinds
        moves = gains.reshape(len(gains), 2, -1)[..., kinds]  # [n, 2, n]: what the first loses by the last
        both = moves + moves.transpose(2, 1, 0)
        fewer, same, more = (self._lost_by_edges(change + step) for step in (-1, 0, 1))
        drops = np.where(joined, both[:, 1] + (fewer - same), both[:, 0] + (more - same))
        u, v = divmod(int(np.where(free, drops, -np.inf).argmax()), len(kinds))
        return (u, v) if free[u, v] and np.isfinite(drops[u, v]) else None

    def _change(self, flips: list[Flip]) -> int:
        """Edges that flips add, less those that they remove."""
        return sum(-1 if self._views.joined[flip] else 1 for flip in flips)

    def _lost_by_edges(self, change: int) -> float:
        """What the lead loses by a change of the number of edges alone; ``-inf`` if that was not looked at."""
        return 0.0 if self._by_edges is None else self._by_edges.get(change, -np.inf)

    def _moves(self, flips: list[Flip]) -> dict[int, IntArray]:
        moves = defaultdict[int, IntArray](lambda: np.zeros(self._num_moves, dtype=np.int64))
        for flip in flips:
            first = self._num_moves // 2 * bool(self._views.joined[flip])
            for node, partner in (flip, flip[::-1]):
                moves[node][first + self._views.kinds[partner]] += 1
        return moves

    def _lost(self, node: int, moves: IntArray) -> float:
        """What a node loses by moves; ``-inf`` if they were not looked at."""
        place, own = _numbers(self._views.steps).get(moves.tobytes()), self._views.class_of_node[node]
        reached = -1 if place is None else int(self._views.reached[own, place])
        return float(self._parts[self._views.base[own]] - self._parts[reached]) if reached >= 0 else -np.inf


@lru_cache(maxsize=16)
def _numbers(steps: Compositions) -> dict[bytes, int]:
    return {row.tobytes(): place for place, row in enumerate(steps.moves.astype(np.int64))}
