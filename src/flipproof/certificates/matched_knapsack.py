r"""The matched knapsack: how far an attack can lower the lead of a class, where every node votes on its own view.

Write ``h(v)`` for the part that node ``v`` has in the lead, ``D_v(W)`` for the drop of ``h(v)`` when its pairs with all nodes of
``W`` are flipped, and ``delta_u(w) = D_u({w})``. For any ``theta`` put

    shift(u, w) = theta (delta_u(w) - delta_w(u)) / 2,        W_v(k) = max over |W| = k of [D_v(W) - sum over w in W of
    shift(v, w)].

**Theorem.** An attack of exactly ``q`` flips lowers the lead by at most

    K_q(theta) = max { sum_v W_v(k_v) :  sum_v k_v = 2q,  k_v <= q }.

*Proof.* Let ``k_v`` be the number of flipped pairs at ``v``. Every flipped pair has two ends and no node has more than ``q`` of
them, so ``k`` is feasible. ``shift(u, w) + shift(w, u) = 0``: taking the shifts of all flipped pairs off both ends changes no
total. What remains at ``v`` is at most ``W_v(k_v)``.

Every ``theta`` gives a bound, hence the smallest does. ``theta = 0`` is the plain knapsack. With ``theta = 1`` both ends of a
pair carry half of its value, so that the bound for a single flip is exact. ``docs/local.md`` has the proof at length, also for
budgets of additions and removals, where ``k_v`` counts both.

Here the partners of a node are taken as the best ones of their kind, over and over if need be: a superset of what an attacker
can do. Everything is float64 and in a fixed order; the caller adds a margin for rounding.

Views are enumerated up to a depth. Where votes are bounded, ``|h(v)| <= c``, a node that is touched more often loses at most
``h(v) + c`` whatever it then sees, and ``W_v(k)`` is at most that plus ``k`` times the largest of the ``-shift(v, w)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from flipproof.certificates.node_views import NodeViews
from flipproof.graphs import IntArray

THETAS = (0.0, 0.5, 1.0)
_THETAS = np.array(THETAS)[:, None, None]
KINDS = ("either", "adds", "removes")  # of flips
_ROOM = {"either": (1, 1), "adds": (1, 0), "removes": (0, 1)}  # for additions, for removals
_AT_ONCE = 2**16  # sums: beyond, a loop over the totals of one side is faster

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
        self._bound = np.full(self.rivals, np.inf) if bound is None else bound
        reached, base = views.reached, leads[views.base]
        drops = base[:, None] - leads[reached]
        drops[reached < 0] = -np.inf
        self._drops = drops  # [V, M, B]
        self._parts = base[views.class_of_node]  # [n, B]
        self._slack = self._slacks(drops[:, : views.steps.moves.shape[1]])
        self._along: dict[str, Floats] = {}
        self._table = np.zeros((views.graph.num_nodes, len(THETAS), self.rivals, 1, 1))

    @cached_property
    def depth(self) -> int:
        """Flips per node that were looked at."""
        return int((self.views.steps.adds + self.views.steps.removes).max())

    def _slacks(self, single: Floats) -> Floats:
        """``(delta_v(w) - delta_w(v)) / 2`` for the best partner ``w`` of every node and move, ``[n, 2K, B]``; 0 if impossible.

        ``delta_v(w)`` depends only on the kind of ``w``, so the best partner is the one that loses most itself.
        """
        views, graph = self.views, self.views.graph
        n, number = graph.num_nodes, single.shape[1] // 2
        free = ~np.eye(n, dtype=np.bool_)
        if len(graph.frozen):
            free[graph.frozen[:, 0], graph.frozen[:, 1]] = free[graph.frozen[:, 1], graph.frozen[:, 0]] = False
        order = np.argsort(views.kinds, kind="stable")
        starts = np.searchsorted(views.kinds[order], np.arange(number))
        slack = np.zeros((n, 2 * number, self.rivals))
        additions, removals = free & ~views.joined, free & views.joined
        self._most = np.stack([additions.sum(axis=1), removals.sum(axis=1)], axis=1)
        for place, pairs in enumerate((additions, removals)):
            part = slice(place * number, (place + 1) * number)
            mine = single[views.class_of_node][:, part]  # [n, K, B]: what v loses by a partner of each kind
            theirs = np.where(pairs[order][:, :, None], mine[order][:, views.kinds], -np.inf)  # [w, v, B]
            best = np.maximum.reduceat(theirs, starts, axis=0).transpose(1, 0, 2)
            possible = np.isfinite(best)
            slack[:, part][possible] = (mine[possible] - best[possible]) / 2
        return slack

    def _shifts(self, moves: IntArray) -> Floats:
        """Sums of the smallest slacks of compositions, ``[n, M, B]``; their moves are ``[M, 2K]``."""
        shifts: Floats = np.matmul(moves.astype(np.float64), self._slack)
        return shifts

    def table(self, flips: int) -> Floats:
        """``W_v`` for each theta, ``[n, thetas, B, additions, removals]``, for at least so many flips, as far as was looked;
        ``-inf`` where impossible. Few flips are looked at first: most graphs need no more."""
        if self._table.shape[-1] <= min(flips, self.depth):
            self._table = self._tabulated(min(self.depth, max(flips, 2 * self._table.shape[-1])))
        return self._table

    def along(self, kind: str, flips: int) -> Floats:
        """``W_v`` for 0, 1, ... flips of one of :data:`KINDS`, ``[n, thetas, B, flips + 1]``."""
        kept = self._along.get(kind)
        if kept is None or kept.shape[-1] <= flips:
            depth = min(flips, self.depth)
            kept = self._looked((kind,), depth)[..., 0, :]
            if flips > depth:
                number = np.broadcast_to(np.arange(depth + 1, flips + 1), (len(kept), 1, 1, flips - depth))
                kept = np.concatenate([kept, self._far_along(kind, number)], axis=-1)
            self._along[kind] = kept
        return kept[..., : flips + 1]

    def _looked(self, kinds: tuple[str, ...], depth: int) -> Floats:
        """``W_v`` for up to so many flips of some kinds, as far as was looked, ``[n, thetas, B, kinds, depth + 1]``."""
        adds, removes, starts = _made_of(kinds, depth)
        found = np.maximum.reduceat(self.table(depth)[..., adds, removes], starts, axis=-1)
        return found.reshape(*found.shape[:-1], len(kinds), depth + 1)

    def at(self, kind: str, touches: IntArray) -> Floats:
        """``W_v`` for flips of one of :data:`KINDS`, each node with its own number per theta and rival, ``[n, thetas, B]``."""
        near = np.minimum(touches, self.depth)
        looked = self.along(kind, self.depth)
        found = looked.reshape(near.size, -1)[np.arange(near.size), near.ravel()].reshape(near.shape)
        far = touches > self.depth
        return np.where(far, self._far_along(kind, touches[..., None])[..., 0], found) if far.any() else found

    def corners(self, flips: int, kinds: Sequence[str]) -> tuple[IntArray, Floats]:
        """Numbers of touches between which ``W_v`` lies below straight lines, and ``W_v`` there, for some of :data:`KINDS`.

        Beyond the depth, what a node loses at most is concave in the number of its touches, and linear but for two bends: where
        all is added that can be, and where all is removed.

        Returns:
            Touches in ascending order, ``[kinds, n, P]``, and values ``[kinds, thetas, B, n, P]``; ``-inf`` where impossible.
        """
        if flips <= self.depth:
            values = np.stack([self.along(kind, flips) for kind in kinds], axis=3)
            touches = np.broadcast_to(np.arange(flips + 1), (len(kinds), len(values), flips + 1))
            return touches, values.transpose(3, 1, 2, 0, 4)
        first, nodes = self.depth + 1, len(self._most)
        room = self._most[:, None] * np.array([_ROOM[kind] for kind in kinds])  # [n, kinds, 2]
        added, removed, last = room[..., :1], room[..., 1:], room.sum(axis=2, keepdims=True)
        touches = np.empty((nodes, len(kinds), first + 4), dtype=np.int64)
        touches[..., :first] = np.arange(first)
        bends = touches[..., first:]
        bends[..., :1], bends[..., 1:3], bends[..., 3:] = first, np.sort(room, axis=2), last
        np.minimum(np.maximum(bends, first, out=bends), np.minimum(np.maximum(last, first), flips), out=bends)
        # linear in the number of additions: as few or as many as there can be
        adds = np.stack([np.maximum(0, bends - removed), np.minimum(bends, added)], axis=1)  # [n, 2, kinds, 4]
        removes = bends[:, None] - adds
        beyond = self._linear(adds.reshape(nodes, 1, 1, -1), removes.reshape(nodes, 1, 1, -1))
        beyond = beyond.reshape(*beyond.shape[:3], *adds.shape[1:]).max(axis=3)
        beyond = np.where((bends <= last)[:, None, None], beyond, -np.inf)
        values = np.concatenate([self._looked(tuple(kinds), self.depth), beyond], axis=-1)
        return touches.swapaxes(0, 1), values.transpose(3, 1, 2, 0, 4)

    def _far_along(self, kind: str, number: IntArray) -> Floats:
        """Bounds on ``W_v`` for more flips of one kind than were looked at, ``[n, thetas, B, F]``; numbers broadcast to it."""
        if kind != "either":
            none = np.zeros_like(number)
            return self._beyond(number, none) if kind == "adds" else self._beyond(none, number)
        # linear in the number of additions: as few or as many as there can be
        added, removed = self._room
        least, largest = np.maximum(0, number - removed), np.minimum(number, added)
        found: Floats = np.maximum(*(self._beyond(adds, number - adds) for adds in (least, largest)))
        return found

    def of_both(self, adds: int, removes: int) -> Floats:
        """``W_v`` for up to so many additions and removals, ``[n, thetas, B, adds + 1, removes + 1]``."""
        looked = self.table(adds + removes)[..., : adds + 1, : removes + 1]
        if adds + removes <= self.depth:
            return looked
        found = np.full((*looked.shape[:-2], adds + 1, removes + 1), -np.inf)
        found[..., : looked.shape[-2], : looked.shape[-1]] = looked
        more, fewer = np.nonzero(np.add.outer(np.arange(adds + 1), np.arange(removes + 1)) > self.depth)
        found[..., more, fewer] = self._beyond(more, fewer)
        return found

    def _beyond(self, adds: IntArray, removes: IntArray) -> Floats:
        """Bounds on ``W_v`` for more flips than were looked at, ``[n, thetas, B, F]``, from numbers that broadcast to it."""
        added, removed = self._room
        return np.where((adds <= added) & (removes <= removed), self._linear(adds, removes), -np.inf)

    def _linear(self, adds: IntArray, removes: IntArray) -> Floats:
        """As :meth:`_beyond`, of what is possible."""
        worst, added, removed = self._extremes
        bounds: Floats = worst + _THETAS * (adds * added + removes * removed)
        return bounds

    @cached_property
    def _room(self) -> tuple[IntArray, IntArray]:
        """Partners that every node can gain, and lose, ``[n, 1, 1, 1]`` each."""
        return self._most[:, 0, None, None, None], self._most[:, 1, None, None, None]

    @cached_property
    def _extremes(self) -> tuple[Floats, Floats, Floats]:
        """What a node can lose at most, and gain by the shift of one addition and of one removal, ``[n, 1, B, 1]`` each."""
        number = self._slack.shape[1] // 2
        gains = (-part.min(axis=1) for part in (self._slack[:, :number], self._slack[:, number:]))
        worst, added, removed = (part[:, None, :, None] for part in (self._parts + self._bound, *gains))
        return worst, added, removed

    def _tabulated(self, flips: int) -> Floats:
        steps = self.views.steps
        adds, removes, starts = steps.groups
        number = int(np.searchsorted(adds + removes, flips, side="right"))  # of groups; they are ordered by flips
        adds, removes, starts = adds[:number], removes[:number], starts[: number + 1]
        drops = self._drops[self.views.class_of_node, : starts[-1]]  # [n, M, B]
        shifts = self._shifts(steps.moves[: starts[-1]])
        found = np.full((len(drops), len(THETAS), self.rivals, flips + 1, flips + 1), -np.inf)
        found[..., 0, 0] = 0.0
        for place, theta in enumerate(THETAS):
            best = np.maximum.reduceat(drops - theta * shifts if theta else drops, starts[:-1], axis=1)
            found[:, place, :, adds, removes] = best.transpose(1, 0, 2)
        return found


@lru_cache(maxsize=256)
def _made_of(kinds: tuple[str, ...], depth: int) -> tuple[IntArray, IntArray, IntArray]:
    """Additions and removals that 0, 1, ..., ``depth`` flips of each kind are made of, and where each number starts."""
    parts = []
    for kind in kinds:
        for flips in range(depth + 1):
            most, least = flips * (kind != "removes"), flips * (kind == "adds")
            parts.append([(adds, flips - adds) for adds in range(least, most + 1)])
    adds, removes = np.array([way for part in parts for way in part]).T
    return adds, removes, np.cumsum([0, *(len(part) for part in parts[:-1])])


def heaviest(values: Floats, total: tuple[int, int]) -> Floats:
    r"""The largest sum with one value per node and exactly the given total, ``max { sum_v values_v[k_v] : sum_v k_v = total }``.

    Args:
        values: ``[n, ..., A, D]``; entry ``[v, ..., a, d]`` is what ``a`` additions and ``d`` removals at ``v`` bring.
        total: Additions and removals to hand out.

    Returns:
        ``[...]``, ``-inf`` where the total cannot be handed out.

    >>> drops = np.array([[0.0, 5.0, 6.0], [0.0, 4.0, 9.0], [0.0, 1.0, 1.0]])
    >>> float(heaviest(drops[:, :, None], (2, 0)))  # 5 + 4 and 9 are the best two
    9.0
    """
    if total[1] == 0 and math.prod(values.shape[1:-2]) <= total[0]:
        return _heaviest_of_one_kind(values[..., 0], total[0])  # few sums of many totals each
    left, right = _halves(values, total)
    if left is None:
        inside = total[0] < right.shape[0] and total[1] < right.shape[1]
        return right[total] if inside else np.full(right.shape[2:], -np.inf)
    # of the last two, one total is wanted: no need for all the others
    mine, theirs = [], []
    for size, other, wanted in zip(left.shape[:2], right.shape[:2], total, strict=True):
        first, last = max(0, wanted - other + 1), min(size - 1, wanted)
        if first > last:
            return np.full(right.shape[2:], -np.inf)
        mine.append(slice(first, last + 1))
        theirs.append(slice(wanted - last, wanted - first + 1))
    best: Floats = (left[tuple(mine)] + right[tuple(theirs)][::-1, ::-1]).max(axis=(0, 1))
    return best


def _heaviest_of_one_kind(values: Floats, total: int) -> Floats:
    """As :func:`heaviest`, of values ``[n, ..., A]`` and one total: totals are the last axis, side by side in memory."""
    values = np.ascontiguousarray(values[..., : total + 1])
    while len(values) > 2:
        even = len(values) // 2 * 2
        merged = _merged_along(values[0:even:2], values[1:even:2], total + 1)
        if even < len(values):
            rest = np.full((1, *merged.shape[1:]), -np.inf)
            rest[..., : values.shape[-1]] = values[even:]
            merged = np.concatenate([merged, rest])
        values = merged
    width = values.shape[-1]
    # of the last two, one total is wanted: no need for all the others
    first, last = max(0, total - width + 1), min(width - 1, total)
    part = values[..., first : last + 1] if len(values) == 2 else values[..., total : total + 1]
    if not part.size:
        return np.full(values.shape[1:-1], -np.inf)
    best: Floats = (part[0] + part[1, ..., ::-1] if len(part) == 2 else part[0]).max(axis=-1)
    return best


def _merged_along(left: Floats, right: Floats, most: int) -> Floats:
    """The best of two nodes together for every total, ``[..., totals]``, of which there are at most so many."""
    size = left.shape[-1]
    width = min(2 * size - 1, most)
    if left.size * width <= 2 * _AT_ONCE:
        # all sums at once: entry [..., a, t] is what a on the left and t - a on the right bring
        room = np.full((*right.shape[:-1], width + size - 1), -np.inf)
        room[..., size - 1 : 2 * size - 1] = right[..., :width]
        shifted = np.ndarray((*left.shape, width), buffer=room, strides=(*room.strides, room.strides[-1]))
        found: Floats = (shifted + left[..., ::-1, None]).max(axis=-2)
        return found
    out = np.full((*left.shape[:-1], width), -np.inf)
    for adds in range(size):
        place = out[..., adds : adds + size]
        np.maximum(place, left[..., adds, None] + right[..., : place.shape[-1]], out=place)
    return out


def _halves(values: Floats, total: tuple[int, int]) -> tuple[Floats | None, Floats]:
    """The best of each half of the nodes for every total, ``[additions, removals, ...]``; of a single node it is itself.

    Totals are the first two axes: what is added up then lies side by side in memory.
    """
    values = np.ascontiguousarray(np.moveaxis(values[..., : total[0] + 1, : total[1] + 1], (-2, -1), (0, 1)))
    while values.shape[2] > 2:
        even = values.shape[2] // 2 * 2
        merged = _merged(values[:, :, 0:even:2], values[:, :, 1:even:2], total)
        if even < values.shape[2]:
            rest = np.full((*merged.shape[:2], 1, *merged.shape[3:]), -np.inf)
            rest[: values.shape[0], : values.shape[1]] = values[:, :, even:]
            merged = np.concatenate([merged, rest], axis=2)
        values = merged
    return (values[:, :, 0] if values.shape[2] == 2 else None), values[:, :, -1]


def _merged(left: Floats, right: Floats, total: tuple[int, int]) -> Floats:
    """The best of two nodes together for every total up to the one wanted, ``[additions, removals, ...]``."""
    shapes = zip(left.shape[:2], right.shape[:2], total, strict=True)
    top = [min(size + other - 2, most) + 1 for size, other, most in shapes]
    left = left[: top[0], : top[1]]
    rows, columns = left.shape[:2]
    if math.prod([*top, *left.shape]) <= _AT_ONCE:
        # all sums at once: entry [i, j, a, d] is what a, d on the left and i - a, j - d on the right bring
        room = np.full((top[0] + rows - 1, top[1] + columns - 1, *left.shape[2:]), -np.inf)
        part = right[: top[0], : top[1]]
        room[rows - 1 : rows - 1 + part.shape[0], columns - 1 : columns - 1 + part.shape[1]] = part
        down, along, *rest = room.strides
        shifted = as_strided(room, (*top, *left.shape), (down, along, down, along, *rest))
        found: Floats = (shifted + left[::-1, ::-1]).max(axis=(2, 3))
        return found
    out = np.full((*top, *left.shape[2:]), -np.inf)
    room = np.empty((*right.shape[:2], *left.shape[2:]))
    for a in range(rows):
        for d in range(columns):
            part = right[: top[0] - a, : top[1] - d]
            place = out[a : a + part.shape[0], d : d + part.shape[1]]
            sums = np.add(left[a, d], part, out=room[: part.shape[0], : part.shape[1]])
            np.maximum(place, sums, out=place)
    return out


def worst_drops(
    losses: NodeLosses, budget: tuple[int, int] | int, thetas: NDArray[np.bool_] | slice = slice(None)
) -> Floats:
    """The largest drop of the lead over each rival in an attack of exactly so many flips, ``[B]``; ``-inf`` if there is none.

    Args:
        losses: Of the nodes, looked at deep enough for the budget, or bounded.
        budget: Flips of either kind, or additions and removals.
        thetas: Those of :data:`THETAS` to take the smallest bound of; by default all.
    """
    adds, removes = (budget, 0) if isinstance(budget, int) else budget
    if adds and removes:
        values, total = losses.of_both(adds, removes), (2 * adds, 2 * removes)
    else:
        kind = "either" if isinstance(budget, int) else "adds" if adds else "removes"
        values, total = losses.along(kind, adds + removes)[..., None], (2 * (adds + removes), 0)
    found: Floats = heaviest(values[:, thetas], total).min(axis=0)
    return found


class GreedyBounds:
    """What touches handed out greedily tell of attacks of 0, 1, ..., ``flips`` flips of some kinds, without a knapsack.

    ``W_v`` is at most a sum of gains, one per touch (:func:`touch_gains`), and an attack of ``q`` flips takes ``2q`` of all
    gains: at most the largest ones. To hand out touches in this order is one of the ways that the knapsack chooses from.

    ``above`` are bounds on :func:`worst_drops` from above for each of the ``kinds``, ``[kinds, flips + 1, B]``; mostly near it.
    """

    def __init__(self, losses: NodeLosses, flips: int, kinds: Sequence[str] = KINDS) -> None:
        self.flips, self.kinds, self._losses = flips, kinds, losses
        touches, values = losses.corners(flips, kinds)
        *self._shape, self._nodes, width = values.shape  # kinds, thetas, rivals
        touches = np.broadcast_to(touches[:, None, None], values.shape).reshape(-1, width)
        gains = touch_gains(values.reshape(-1, width), touches)
        lengths = np.where(gains > -np.inf, np.diff(touches, axis=1), 0)
        gains = np.where(lengths, gains, -np.inf)
        gains, lengths = (part.reshape(-1, self._nodes * (width - 1)) for part in (gains, lengths))
        order = np.argsort(-gains, axis=1, kind="stable")
        self._owner = order // (width - 1)
        self._lengths = np.take_along_axis(lengths, order, axis=1)
        gains = np.where(self._lengths, np.take_along_axis(gains, order, axis=1), 0.0)
        # touches before each stretch of equal gains, and what they bring
        rows, stretches = gains.shape
        self._before = np.zeros((rows, stretches + 1), dtype=np.int64)
        brought = np.zeros((rows, stretches + 1))
        np.cumsum(self._lengths, axis=1, out=self._before[:, 1:])
        np.cumsum(gains * self._lengths, axis=1, out=brought[:, 1:])
        # the stretch in which each total ends; rows one after the other make a single search
        totals, row = 2 * np.arange(flips + 1), np.arange(rows)[:, None]
        apart = (int(self._before[:, -1].max()) + 2 * flips + 1) * row
        place = np.searchsorted((self._before[:, 1:] + apart).ravel(), (totals + apart).ravel()).reshape(rows, -1)
        place = np.minimum(place - stretches * row, stretches - 1)
        found = brought[row, place] + gains[row, place] * (totals - self._before[row, place])
        found[totals > self._before[:, -1:]] = -np.inf
        self.above: Floats = found.reshape(*self._shape, -1).min(axis=1).swapaxes(1, 2)

    def below(self, kind: str, flips: int) -> Floats:
        """Bounds on :func:`worst_drops` of each theta from below, ``[thetas, B]``; ``-inf`` if this order makes no attack."""
        rows, place = len(self._owner) // len(self.kinds), self.kinds.index(kind)
        part = slice(place * rows, (place + 1) * rows)
        handed = np.minimum(np.maximum(2 * flips - self._before[part, :-1], 0), self._lengths[part])
        owner = self._owner[part] * rows + np.arange(rows)[:, None]
        touches = np.bincount(owner.ravel(), handed.ravel(), minlength=rows * self._nodes)
        touches = touches.astype(np.int64).reshape(self._nodes, *self._shape[1:])
        found: Floats = self._losses.at(kind, touches).sum(axis=0)
        found[(touches > flips).any(axis=0) | (touches.sum(axis=0) < 2 * flips)] = -np.inf
        return found


def touch_gains(values: Floats, touches: IntArray | None = None) -> Floats:
    """What every touch of a node brings at most, ``[N, k]``: those of the first ``j`` sum up to at least what ``j`` bring.

    They are the slopes of the smallest concave function above the values, but for rounding.

    Args:
        values: What ``0, 1, ..., k`` touches bring, ``[N, k + 1]``; 0 for none, ``-inf`` where there cannot be so many.
        touches: Other numbers of touches than these, ``[N, k + 1]``, ascending from 0. A gain is then that of each touch between
            one number and the next.

    >>> touch_gains(np.array([[0.0, 1.0, 6.0, 7.0, -np.inf]])).tolist()
    [[3.0, 3.0, 1.0, -inf]]
    """
    values = np.ascontiguousarray(values.T)
    touches = np.arange(len(values))[:, None] if touches is None else np.ascontiguousarray(touches.T)
    gains = np.full((len(values) - 1, values.shape[1]), np.inf)
    # from every value, the steepest line to a later one; of all lines over a touch, the flattest
    with np.errstate(invalid="ignore", divide="ignore"):  # of impossible numbers of touches, and of equal ones
        for start in range(len(gains)):
            slopes = (values[start + 1 :] - values[start]) / (touches[start + 1 :] - touches[start])
            for place in range(len(slopes) - 2, -1, -1):  # row by row: several times faster than fmax.accumulate
                np.fmax(slopes[place], slopes[place + 1], out=slopes[place])
            np.fmin(gains[start:], slopes, out=gains[start:])
    return gains.T
