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

With several edge labels, flips are removals and additions with a label, each with its own shift. An edge that is removed can be
added with another label. That addition is no flip of the clean graph; its shift is taken as 0, which cancels as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from flipproof.certificates.node_views import NodeViews
from flipproof.graphs import IntArray

__all__ = ["KINDS", "THETAS", "GreedyBounds", "NodeLosses", "heaviest", "touch_gains", "worst_drops"]

THETAS = (0.0, 0.5, 1.0)
KINDS = ("either", "adds", "removes")  # of flips
_LEVEL = 1e-12  # relative difference of slopes that only rounding makes
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
        order, width = np.argsort(views.kinds, kind="stable"), number // views.labels
        starts = np.searchsorted(views.kinds[order], np.arange(width))
        slack = np.zeros((n, 2 * number, self.rivals))
        apart = free & (views.label_matrix < 0)
        self._most = np.stack([apart.sum(axis=1), (free & ~apart).sum(axis=1)], axis=1)
        for place in range(2 * views.labels):  # additions with each label, then removals
            label = place - views.labels
            pairs = apart if label < 0 else free & (views.label_matrix == label)
            part = slice(place * width, (place + 1) * width)
            mine = single[views.class_of_node][:, part]  # [n, K, B]: what v loses by a partner of each kind
            theirs = np.where(pairs[order][:, :, None], mine[order][:, views.kinds], -np.inf)  # [w, v, B]
            best = np.maximum.reduceat(theirs, starts, axis=0).transpose(1, 0, 2)
            possible = np.isfinite(best)
            slack[:, part][possible] = (mine[possible] - best[possible]) / 2
        return slack

    def _shifts(self, moves: IntArray) -> Floats:
        """Sums of the smallest slacks of compositions, ``[n, M, B]``; their moves are ``[M, 2 L K]``."""
        number, labels = moves.shape[1] // 2, self.views.labels
        if labels == 1:
            plain: Floats = np.matmul(moves.astype(np.float64), self._slack)
            return plain
        # of a kind that neighbours are removed from, additions may go to them: slack 0
        removed = moves[:, number:].reshape(len(moves), labels, -1).sum(axis=1) > 0
        loose = np.tile(removed, labels) * moves[:, :number]
        strict = moves.astype(np.float64)
        strict[:, :number] -= loose
        least = np.minimum(self._slack[:, :number], 0)
        found: Floats = np.matmul(strict, self._slack) + np.matmul(loose.astype(np.float64), least)
        return found

    def table(self, flips: int) -> Floats:
        """``W_v`` for each theta, ``[n, thetas, B, additions, removals]``, for at least so many flips, as far as was looked;
        ``-inf`` where impossible.

        Few flips are looked at first: most graphs need no more.
        """
        if self._table.shape[-1] <= min(flips, self.depth):
            self._table = self._tabulated(min(self.depth, max(flips, 2 * self._table.shape[-1])))
        return self._table

    def along(self, kind: str, flips: int) -> Floats:
        """``W_v`` for 0, 1, ... flips of one of :data:`KINDS`, ``[n, thetas, B, flips + 1]``."""
        kept = self._along.get(kind)
        if kept is None or kept.shape[-1] <= flips:
            if kind == "either":
                kept = self._of_either(flips)
            else:
                kept = self.of_both(flips, 0)[..., 0] if kind == "adds" else self.of_both(0, flips)[..., 0, :]
            self._along[kind] = kept
        return kept[..., : flips + 1]

    def _of_either(self, flips: int) -> Floats:
        looked, depth = self.table(flips), min(flips, self.depth)
        found = np.full((*looked.shape[:-2], flips + 1), -np.inf)
        for adds in range(depth + 1):
            for removes in range(depth + 1 - adds):
                part = found[..., adds + removes]
                np.maximum(part, looked[..., adds, removes], out=part)
        if flips > depth:
            number = np.arange(depth + 1, flips + 1)
            most = self._most[:, :, None]
            # linear in the number of additions: as few or as many as there can be
            least, largest = np.maximum(0, number - most[:, 1]), np.minimum(number, most[:, 0])
            if self.views.labels > 1:
                largest = np.minimum(number, (most[:, 0] + number) // 2)  # one more for every removal
            ends = [self._beyond(adds, number - adds) for adds in (least, largest)]
            found[..., depth + 1 :] = np.maximum(*ends)
        return found

    def of_both(self, adds: int, removes: int) -> Floats:
        """``W_v`` for up to so many additions and removals, ``[n, thetas, B, adds + 1, removes + 1]``."""
        looked = self.table(adds + removes)[..., : adds + 1, : removes + 1]
        if adds + removes <= self.depth:
            return looked
        found = np.full((*looked.shape[:-2], adds + 1, removes + 1), -np.inf)
        found[..., : looked.shape[-2], : looked.shape[-1]] = looked
        more, fewer = np.nonzero(np.add.outer(np.arange(adds + 1), np.arange(removes + 1)) > self.depth)
        nodes = len(found)
        found[..., more, fewer] = self._beyond(np.tile(more, (nodes, 1)), np.tile(fewer, (nodes, 1)))
        return found

    def _beyond(self, adds: IntArray, removes: IntArray) -> Floats:
        """Bounds on ``W_v`` for more flips than were looked at, ``[n, thetas, B, F]``, from numbers of them, ``[n, F]`` each."""
        added, removed = self._gains
        shifts = (adds[:, None] * added + removes[:, None] * removed)[:, None]  # [n, 1, B, F]
        again = removes if self.views.labels > 1 else 0
        possible = (adds <= self._most[:, :1] + again) & (removes <= self._most[:, 1:])
        worst = (self._parts + self._bound)[:, None, :, None]
        found: Floats = np.where(possible[:, None, None], worst + np.array(THETAS)[:, None, None] * shifts, -np.inf)
        return found

    @cached_property
    def _gains(self) -> tuple[Floats, Floats]:
        """What a node can gain by the shift of one addition, and of one removal, ``[n, B, 1]`` each."""
        number = self._slack.shape[1] // 2
        added, removed = (-part.min(axis=1)[:, :, None] for part in (self._slack[:, :number], self._slack[:, number:]))
        return (np.maximum(added, 0) if self.views.labels > 1 else added), removed

    def _tabulated(self, flips: int) -> Floats:
        steps = self.views.steps
        wanted = np.flatnonzero(steps.adds + steps.removes <= flips)
        drops = self._drops[self.views.class_of_node[:, None], wanted]  # [n, M, B]
        shifts = self._shifts(steps.moves[wanted])
        found = np.full((len(drops), len(THETAS), self.rivals, flips + 1, flips + 1), -np.inf)
        found[..., 0, 0] = 0.0
        # compositions with as many additions and as many removals stand together
        adds, removes = steps.adds[wanted], steps.removes[wanted]
        starts = np.flatnonzero(np.diff(np.stack([adds, removes]), prepend=-1).any(axis=0))
        for place, theta in enumerate(THETAS):
            best = np.maximum.reduceat(drops - theta * shifts if theta else drops, starts, axis=1)
            found[:, place, :, adds[starts], removes[starts]] = best.transpose(1, 0, 2)
        return found


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
    left, right = _halves(values, total)
    if left is None:
        return _at(right, *total)
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


def _at(values: Floats, adds: int, removes: int) -> Floats:
    inside = adds < values.shape[0] and removes < values.shape[1]
    return values[adds, removes] if inside else np.full(values.shape[2:], -np.inf)


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

    Args:
        losses: As for :func:`worst_drops`.
        flips: The largest number.
        kinds: Some of :data:`KINDS`.

    Attributes:
        above: For each kind, bounds on :func:`worst_drops` from above, ``[kinds, flips + 1, B]``; mostly near it.
    """

    def __init__(self, losses: NodeLosses, flips: int, kinds: Sequence[str] = KINDS) -> None:
        values = np.stack([losses.along(kind, flips) for kind in kinds])  # [kinds, n, thetas, B, flips + 1]
        self.flips, self.kinds, self._nodes, self._shape = flips, kinds, values.shape[1], values.shape[2:4]
        self._values = np.moveaxis(values, 1, 3).reshape(-1, self._nodes, flips + 1)
        gains = touch_gains(self._values.reshape(-1, flips + 1)).reshape(len(self._values), -1)
        self._order = np.argsort(-gains, axis=1, kind="stable")[:, : 2 * flips]
        totals = np.full((len(gains), 2 * flips + 1), -np.inf)
        totals[:, 0] = 0.0
        totals[:, 1 : 1 + self._order.shape[1]] = np.cumsum(np.take_along_axis(gains, self._order, axis=1), axis=1)
        self.above: Floats = totals[:, ::2].reshape(len(kinds), *self._shape, -1).min(axis=1).swapaxes(1, 2)

    def below(self, kind: str, flips: int) -> Floats:
        """Bounds on :func:`worst_drops` of each theta from below, ``[thetas, B]``; ``-inf`` if this order makes no attack."""
        rows, place = len(self._order) // len(self.kinds), self.kinds.index(kind)
        part = slice(place * rows, (place + 1) * rows)
        owner = self._order[part, : 2 * flips] // self.flips + self._nodes * np.arange(rows)[:, None]
        touches = np.bincount(owner.ravel(), minlength=rows * self._nodes).reshape(rows, self._nodes)
        found = np.take_along_axis(self._values[part], touches[:, :, None], axis=2).sum(axis=(1, 2))
        found[(touches > flips).any(axis=1) | (touches.sum(axis=1) < 2 * flips)] = -np.inf
        each: Floats = found.reshape(self._shape)
        return each


def touch_gains(values: Floats) -> Floats:
    """What every touch of a node brings at most, ``[N, k]``: those of the first ``j`` sum up to at least what ``j`` bring.

    They are the slopes of the smallest concave function above the values, but for rounding.

    Args:
        values: What ``0, 1, ..., k`` touches bring, ``[N, k + 1]``; 0 for none, ``-inf`` where there cannot be so many.

    >>> touch_gains(np.array([[0.0, 1.0, 6.0, 7.0, -np.inf]])).tolist()
    [[3.0, 3.0, 1.0, -inf]]
    """
    width = values.shape[1] - 1
    gains = np.full((len(values), width), -np.inf)
    touches = np.arange(1, width + 1)
    ends = np.where(values > -np.inf, np.arange(width + 1), 0).max(axis=1)
    rows = np.flatnonzero(ends)
    ends, last, base, values = ends[rows], np.zeros((len(rows), 1), dtype=np.int64), values[rows, :1], values[rows, 1:]
    while len(rows):
        # from the last corner, the steepest line to a later value, up to the last value on it
        further = touches - last
        slopes = np.full(values.shape, -np.inf)
        np.divide(values - base, further, out=slopes, where=further > 0)
        best = slopes.max(axis=1, keepdims=True)
        on = slopes >= best - _LEVEL * np.abs(best)
        corner = width - on[:, ::-1].argmax(axis=1)[:, None]
        gains[rows] = np.where((touches > last) & (touches <= corner), best, gains[rows])
        more = corner[:, 0] < ends
        rows, ends, values, last = rows[more], ends[more], values[more], corner[more]
        base = np.take_along_axis(values, last - 1, axis=1)
    return gains
