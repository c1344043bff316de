"""The worst attacked set: whether a sum of weights over the subsets of S is above a goal for *every* S of a kind.

Weights of slots and pairs are spread over the triples (or pairs) that hold them, so that the sum over S is a third of the sum of
its rows, where the row of a slot is the sum over the triples with that slot. A row is at least the sum of the smallest entries
that it could consist of. Slots that this excludes are dropped and the bound is taken again; where it does not decide, the sets
are divided by their most harmful slot (branch and bound). A search that takes too long ends with "no".

Sets of four slots may have a weight of their own. These are never all in memory: the sets with one slot are sets of three of
the other slots, and their weight joins that of the triple.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.vote_share import FloatArray
from flipproof.graphs import IntArray

_STEP = 10_000  # what a step of the search costs beside the entries it looks at
_SLAB = 16  # slots whose triples are looked at together: as many as the second-level cache holds


@dataclass(frozen=True)
class Quadruples:
    """A weight for every set of four slots, made slot by slot."""

    ranked: IntArray  # all slots, the most harmful ones first, ``[n]``
    # for a rank ``k`` the weights of the slot of that rank with three slots of higher ranks, symmetric, in the order of ranks:
    # ``[n - k - 1] * 3``
    after: Callable[[int], NDArray[np.float32]]
    largest: float  # no weight is larger in absolute value


@dataclass(frozen=True)
class SetWeights:
    """A weight for every subset of at most four slots."""

    constant: float  # of the empty set
    single: FloatArray  # of each slot, ``[n]``
    # of each pair, symmetric ``[n, n]``; its diagonal is not read. ``None``: all 0, and so are triples.
    double: FloatArray | None
    # of each triple, symmetric ``[n, n, n]``; entries with a slot twice are not read. ``None``: all 0.
    triple: NDArray[np.float32] | None
    members: IntArray  # number of the group of each slot, ``[n]``
    counts: tuple[int, ...]  # how many slots of each group a set has
    quadruple: Quadruples | None = None  # of each set of four slots, where sets have four. ``None``: all 0.

    @property
    def size(self) -> int:
        """Slots of a set."""
        return sum(self.counts)


def all_above(weights: SetWeights, goal: float, *, effort: int) -> bool:
    """Whether the sum of the weights of all subsets of S is above the goal for every S; ``False`` where it is not known."""
    size = weights.size
    if size == 0:
        return weights.constant > goal
    largest = float(np.abs(weights.single).max(initial=0)) * size
    if weights.double is None or size == 1:
        least = weights.constant + float(_least(weights.single, weights.members, weights.counts))
        return least > goal + 2.0**-40 * (abs(weights.constant) + abs(goal) + largest)
    largest += float(np.abs(weights.double).max(initial=0)) * math.comb(size, 2)
    if size > 2 and weights.triple is not None:
        largest += float(np.abs(weights.triple).max(initial=0)) * math.comb(size, 3)
    if weights.quadruple is not None:
        largest += weights.quadruple.largest
    # sums of single-precision entries: fewer than 2**6 roundings of 2**-24 of what is summed
    goal += 2.0**-17 * largest + 2.0**-40 * (abs(weights.constant) + abs(goal))
    if weights.quadruple is None:
        return _Search(weights, goal, effort).decided()
    assert size == 4  # a larger set holds four slots without the one that comes first
    for rank in range(len(weights.single)):
        rest = _with_slot(weights, weights.quadruple, rank)
        if rest is None:
            continue
        search = _Search(rest, goal, effort)
        if not search.decided():
            return False
        effort = search.effort
    return True


def _with_slot(weights: SetWeights, quadruple: Quadruples, rank: int) -> SetWeights | None:
    """The sets of the slot of a rank and otherwise slots of higher ranks, without that slot; ``None`` if there is none."""
    assert weights.double is not None
    assert weights.triple is not None
    slot, later = int(quadruple.ranked[rank]), quadruple.ranked[rank + 1 :]
    counts = _less(weights.counts, int(weights.members[slot]))
    left = np.bincount(weights.members[later], minlength=len(counts))
    if not all(0 <= count <= there for count, there in zip(counts, left, strict=True)):
        return None
    return SetWeights(
        weights.constant + float(weights.single[slot]),
        weights.single[later] + weights.double[slot, later],
        weights.double[np.ix_(later, later)] + weights.triple[slot][np.ix_(later, later)],
        weights.triple[np.ix_(later, later, later)] + quadruple.after(rank),
        weights.members[later],
        counts,
    )


@dataclass
class _Search:
    weights: SetWeights
    goal: float
    effort: int

    def decided(self) -> bool:
        """Whether every set is above the goal; ``False`` where that is not known."""
        weights = self.weights
        assert weights.double is not None
        places = np.arange(len(weights.single))
        return self.above(weights.constant, weights.single, weights.double, places, weights.counts)

    def above(
        self, constant: float, single: FloatArray, double: FloatArray, places: IntArray, counts: tuple[int, ...]
    ) -> bool:
        """Whether every completion of a partial set by ``counts`` of the places is above the goal."""
        members = self.weights.members[places]
        wanted = np.array(counts)[members] > 0
        if not wanted.all():
            places, members, single, double = places[wanted], members[wanted], single[wanted], double[wanted][:, wanted]
        if _too_few(members, counts):
            return True  # there is no such set
        size = sum(counts)
        if size == 1:
            return constant + float(single.min()) > self.goal
        while True:
            self.effort -= _STEP + len(places) ** (2 if size == 2 or self.weights.triple is None else 3)
            if self.effort < 0:
                return False
            parts, rows = self._rows(single, double, places, members, counts)
            if constant + _least(rows, members, counts) / parts > self.goal:
                return True
            if size == parts:
                return False  # rows are exact: the least is attained
            others = np.array([_least(rows, members, _less(counts, group)) for group in range(len(counts))])
            open_ = constant + (rows + others[members]) / parts <= self.goal
            if open_.all():
                break
            places, members, single = places[open_], members[open_], single[open_]
            double = double[open_][:, open_]
            if _too_few(members, counts):
                return True
        ranked = np.argsort(rows, kind="stable")  # the sets by their first slot, the most harmful slots first
        for rank, slot in enumerate(ranked):
            left = ranked[rank:]
            if constant + _least(rows[left], members[left], counts) / parts > self.goal:
                return True
            later = ranked[rank + 1 :]
            more = double[np.ix_(later, later)]
            if self.weights.triple is not None:
                more = more + self.weights.triple[places[slot]][np.ix_(places[later], places[later])]
            if not self.above(
                constant + float(single[slot]),
                single[later] + double[slot, later],
                more,
                places[later],
                _less(counts, int(members[slot])),
            ):
                return False
        return True

    def _rows(
        self, single: FloatArray, double: FloatArray, places: IntArray, members: IntArray, counts: tuple[int, ...]
    ) -> tuple[int, FloatArray]:
        """How many rows meet each pair (2) or triple (3), and a number not above the row of each slot in any set."""
        size = sum(counts)
        if size == 2 or self.weights.triple is None:
            table = double + (single[:, None] + single) / (size - 1)
            np.fill_diagonal(table, np.inf)
            return 2, _row_sums(table, members, counts)
        pairs = double / (size - 2) + (single[:, None] + single) / (2 * math.comb(size - 1, 2))
        np.fill_diagonal(pairs, np.inf)  # a slot twice is no triple
        narrow, triple = pairs.astype(np.float32), self.weights.triple
        rows = np.empty(len(places))
        for group in range(len(counts)):
            own, rest = np.flatnonzero(members == group), _less(counts, group)
            for start in range(0, len(own), _SLAB):
                part = own[start : start + _SLAB]
                cube = triple[places[part]]
                cube = cube if len(places) == len(triple) else cube[:, places[:, None], places]
                cube += narrow[part][:, :, None]
                cube += narrow[part][:, None, :]
                cube += narrow
                rows[part] = _least(_row_sums(cube, members, rest), members, rest) / 2
        return 3, rows


def _less(counts: tuple[int, ...], group: int) -> tuple[int, ...]:
    """The counts after one slot of a group is taken."""
    return tuple(count - (place == group) for place, count in enumerate(counts))


def _too_few(members: IntArray, counts: tuple[int, ...]) -> bool:
    return any(int((members == group).sum()) < count for group, count in enumerate(counts))


def _row_sums(table: NDArray[np.floating], members: IntArray, counts: tuple[int, ...]) -> FloatArray:
    """For each row of the last two axes, the least sum of entries that complete a set with the row's slot in it."""
    if len(counts) == 1:
        return _smallest(table, counts[0] - 1)
    sums = np.full(table.shape[:-1], np.inf)
    for group, count in enumerate(counts):
        own = members == group
        if count > 0 and own.any():
            sums[..., own] = _least(table[..., own, :], members, _less(counts, group))
    return sums


def _least(values: NDArray[np.floating], members: IntArray, counts: tuple[int, ...]) -> FloatArray:
    """The sum of each group's smallest entries along the last axis, as many as wanted."""
    if len(counts) == 1:
        return _smallest(values, counts[0])
    parts = [_smallest(values[..., members == group], count) for group, count in enumerate(counts)]
    return np.asarray(sum(parts))


def _smallest(values: NDArray[np.floating], count: int) -> FloatArray:
    """The sum of the smallest entries along the last axis; infinite if there are too few."""
    if count <= 0:
        return np.zeros(values.shape[:-1])
    if count > values.shape[-1]:
        return np.full(values.shape[:-1], np.inf)
    if count == 1:
        return np.asarray(values.min(axis=-1), dtype=np.float64)
    taken = values if count == values.shape[-1] else np.partition(values, count - 1, axis=-1)[..., :count]
    return np.asarray(taken.sum(axis=-1, dtype=np.float64))
