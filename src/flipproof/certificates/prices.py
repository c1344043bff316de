"""What a vote costs: prices of votes over hashed sub-graphs, and the cheapest purchase that changes the majority.

The price of class ``c`` in group ``t`` is the least number of flips inside the group after which the model says ``c`` of its
sub-graph. Against a rival ``B`` of the winner ``A`` an attacker has to gain ``N_A - N_B + [A < B]``, where turning a vote for
``A`` into one for ``B`` gains 2, into one for a third class 1, and turning a third class's vote into one for ``B`` gains 1; each
at its price, one purchase per group. The cheapest sufficient purchase, less one, is certified. A price that is not known exceeds
the depth to which flips were tried. ``docs/voting.md`` has the proof.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import GRID_LIMIT, cut_grid
from flipproof.errors import InputError
from flipproof.graphs import IntArray

if TYPE_CHECKING:
    from flipproof.certificates.group_votes import GroupVotes

MOST_PRICED = 1024
"""Groups up to which votes are priced: the knapsack costs the square of their number."""

_NEVER = 2**40  # the price of what cannot be bought
_UNIT = 2**20  # a flip in the keys that the knapsack adds up; below it, the number of prices that are not known exactly
_HEAD = 5  # columns of a row before its flips


@dataclass(frozen=True, eq=False)
class Prices:
    """What is known about the price of every vote of one graph.

    A class without a row in a group costs more than the group's depth there. A class with a row of at most one flip more than
    the depth has exactly the price of its cheapest row.
    """

    depths: IntArray  # of each group, the number of flips up to which every set of flips inside it was tried, ``[T]``
    tried: IntArray  # of each group, how many sets of one flip more were tried, ``[T]``
    # one row for each way to another vote that no other way undercuts: group, class, additions, removals, whether it is sure
    # (1) or only within rounding (0), and the slots that are flipped, -1 where there are fewer, ``[K, 5 + D]``
    ways: IntArray

    def __post_init__(self) -> None:
        if self.depths.ndim != 1 or self.tried.shape != self.depths.shape:
            raise InputError(f"prices must have a depth per group; got shapes {self.depths.shape}, {self.tried.shape}")
        if self.ways.ndim != 2 or self.ways.shape[1] < _HEAD:
            raise InputError(f"prices must be rows of group, class, additions, removals, flips; got {self.ways.shape}")
        if (self.depths < 0).any() or (self.tried < 0).any() or (self.ways[:, :_HEAD] < 0).any():
            raise InputError("prices must not be negative (make the evidence again)")
        for array in (self.depths, self.tried, self.ways):
            array.flags.writeable = False

    @classmethod
    def none(cls, groups: int) -> Prices:
        """Nothing was tried."""
        zeros = np.zeros(groups, dtype=np.int64)
        return cls(zeros, zeros.copy(), np.zeros((0, _HEAD), dtype=np.int64))

    @classmethod
    def of(cls, depths: IntArray, tried: IntArray, rows: Sequence[IntArray]) -> Prices:
        """From rows of all known ways, those of earlier tries first; of equals, and of what is undercut, the first stays."""
        width = max([_HEAD, *(part.shape[1] for part in rows)])
        padded = [np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=-1) for part in rows]
        return cls(depths, tried, _undercut_none(np.concatenate([np.empty((0, width), dtype=np.int64), *padded])))

    @property
    def totals(self) -> IntArray:
        """The number of flips of each row of :attr:`ways`."""
        return np.asarray(self.ways[:, 2] + self.ways[:, 3])

    def at_depth(self, depth: int) -> Prices:
        """What is known if no more than ``depth`` flips in a group are taken into account."""
        kept = self.ways[self.totals <= depth]
        tried = np.where(self.depths < depth, self.tried, 0)
        return Prices(np.minimum(self.depths, depth), tried, kept[:, : _HEAD + depth])

    def flips(self, group: int, label: int) -> IntArray | None:
        """The slots of a cheapest way to turn the group's vote into this class; ``None`` if that depends on rounding."""
        rows = np.flatnonzero((self.ways[:, 0] == group) & (self.ways[:, 1] == label))
        best = self.ways[rows[np.lexsort((-self.ways[rows, 4], self.totals[rows]))[0]]]
        slots: IntArray = best[_HEAD:][best[_HEAD:] >= 0]
        return slots if best[4] else None


@dataclass(frozen=True)
class Part:
    """A vote that an attacker buys: the group, what it is turned into, at which price, and whether the price is exact."""

    group: int
    label: int
    price: int
    exact: bool


@dataclass(frozen=True)
class Purchase:
    """A cheapest set of votes whose purchase lets ``rival`` overtake. No attack of fewer flips changes the majority."""

    rival: int  # the class that then leads the former winner; a third one may lead both
    cost: int  # sum of the prices
    parts: tuple[Part, ...]  # what is bought

    @property
    def exact(self) -> bool:
        """Whether all prices are. Unless the answer hangs on rounding, ``cost`` flips do change the majority then."""
        return all(part.exact for part in self.parts)


def cheapest_purchase(votes: GroupVotes, *, depth: int | None = None) -> Purchase | None:
    """The cheapest purchase that changes the majority, of those the one with the fewest unknown prices.

    >>> from flipproof import EdgeGroups, Graph, GroupVotes
    >>> votes = GroupVotes(np.array([0, 0, 0], dtype=np.uint8), Graph(9, [(0, 1)]), EdgeGroups(3), 2)
    >>> cheapest_purchase(votes).cost  # nothing is known: every vote for one flip
    2
    """
    label, rivals, needed = contest(votes.counts)
    prices, exact = price_table(votes, depth=depth)
    keys = np.where(prices >= _NEVER, _NEVER * _UNIT, prices * _UNIT + ~exact)
    one, two, third = _offers(votes.labels, keys, label, rivals)
    cheapest, choices = _knapsack(one, two, int(needed.max()))
    ends = cheapest[np.arange(len(rivals)), needed]
    at = int(ends.argmin())
    if ends[at] >= _NEVER * _UNIT:
        return None
    parts, gain = list[Part](), int(needed[at])
    for group in reversed(range(len(votes))):
        chosen = int(choices[group, at, gain])
        if chosen:
            mine = votes.labels[group] == label
            bought = int(third[at, group]) if chosen == 1 and mine else int(rivals[at])
            parts.append(Part(group, bought, int(prices[group, bought]), bool(exact[group, bought])))
            gain = max(0, gain - chosen)
    return Purchase(int(rivals[at]), int(ends[at] // _UNIT), tuple(reversed(parts)))


def price_table(votes: GroupVotes, *, depth: int | None = None) -> tuple[IntArray, NDArray[np.bool_]]:
    """Of every group and class the least price that is possible, ``[T, C]``, and whether it is known to be the price."""
    known = _known(votes, depth)
    empty, edges = votes.room
    unknown = np.where(known.depths >= empty + edges, _NEVER, known.depths + 1)
    prices = np.repeat(unknown[:, None], votes.num_classes, axis=1)
    exact = prices >= _NEVER
    group, label = known.ways[:, 0], known.ways[:, 1]
    best = np.full(prices.shape, _NEVER, dtype=np.int64)
    np.minimum.at(best, (group, label), known.totals)
    exact |= best <= prices
    prices = np.minimum(prices, best)
    own = (np.arange(len(votes)), votes.labels.astype(np.int64))
    prices[own], exact[own] = 0, True
    return prices, exact


def priced_grid(votes: GroupVotes, *, depth: int | None = None) -> NDArray[np.bool_]:
    """Which attacks of at most ``[additions, removals]`` gain no rival enough."""
    label, rivals, needed = contest(votes.counts)
    known, graph = _known(votes, depth), votes.graph
    shape = tuple(min(limit, GRID_LIMIT - 1) + 1 for limit in (graph.max_adds, graph.max_removes))
    certified = np.ones(shape, dtype=np.bool_)
    bought = defaultdict(set)
    for group, other, adds, removes in known.ways[:, :4].tolist():
        bought[group, other].add((adds, removes))
    room = votes.room if known.depths.any() else votes.reachable.astype(int)
    unknown = [
        frozenset((adds, depth + 1 - adds) for adds in range(max(0, depth + 1 - edges), min(depth + 1, empty) + 1))
        for depth, empty, edges in zip(known.depths.tolist(), *(counts.tolist() for counts in room), strict=True)
    ]

    def offers(group: int, rival: int) -> frozenset[tuple[int, int, int]]:
        """Additions, removals and gain of all that may be bought of a group against the label."""
        vote = int(votes.labels[group])
        if vote == rival:
            return frozenset()
        mine = vote == label
        direct = unknown[group] | bought[group, rival]
        by_third = [unknown[group] | bought[group, other] for other in rivals.tolist() if mine and other != rival]
        return frozenset((*pair, 1 + mine) for pair in direct) | {(*pair, 1) for pairs in by_third for pair in pairs}

    for rival, enough in zip(rivals.tolist(), needed.tolist(), strict=True):
        gains = np.zeros(shape, dtype=np.int64)
        alike = Counter(offers(group, rival) for group in range(len(votes)))
        for parts, number in alike.items():
            for _ in range(min(number, sum(shape) - 2) if parts else 0):  # an attack reaches no more groups
                before, gains = gains, gains.copy()
                for adds, removes, gain in parts:
                    if adds < shape[0] and removes < shape[1]:
                        reached = before[: shape[0] - adds, : shape[1] - removes] + gain
                        np.maximum(gains[adds:, removes:], reached, out=gains[adds:, removes:])
        certified &= gains < enough
    return cut_grid(certified)


def _known(votes: GroupVotes, depth: int | None) -> Prices:
    known = Prices.none(len(votes)) if votes.prices is None else votes.prices
    return known if depth is None else known.at_depth(depth)


def contest(counts: IntArray) -> tuple[int, IntArray, IntArray]:
    """The winner, its rivals, and what each of them has to gain."""
    label = int(counts.argmax())  # the first of equals: the smaller label
    rivals = np.delete(np.arange(len(counts)), label)
    return label, rivals, counts[label] - counts[rivals] + (label < rivals)


def _offers(labels: NDArray[Any], keys: IntArray, label: int, rivals: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Keys of gaining one and two in every group, and the third class that gains one, all ``[R, T]``."""
    never = np.int64(_NEVER * _UNIT)
    direct = keys[:, rivals].T
    mine, own = labels == label, labels == rivals[:, None]
    by_third, third = np.full(direct.shape, never), np.zeros(direct.shape, dtype=np.int64)
    for at in range(len(rivals)):
        others = np.delete(rivals, at)
        if len(others):
            best = keys[:, others].argmin(axis=1)
            third[at], by_third[at] = others[best], keys[np.arange(len(labels)), others[best]]
    one = np.where(own, never, np.where(mine, by_third, direct))
    return one, np.where(mine, direct, never), third


def _knapsack(one: IntArray, two: IntArray, most: int) -> tuple[IntArray, NDArray[np.uint8]]:
    """The least key of every gain up to ``most``, ``[R, most + 1]``, and each group's part in it, ``[T, R, most + 1]``."""
    rivals, groups = one.shape
    never = np.int64(_NEVER * _UNIT)
    cheapest = np.full((rivals, most + 1), never)
    cheapest[:, 0] = 0
    choices = np.zeros((groups, rivals, most + 1), dtype=np.uint8)
    gains = np.arange(most + 1)
    less_one, less_two = np.maximum(gains - 1, 0), np.maximum(gains - 2, 0)
    for group in range(groups):
        bought = (cheapest[:, less_one] + one[:, group, None], cheapest[:, less_two] + two[:, group, None])
        options = np.stack([cheapest, *bought])
        options[:, :, 0] = 0  # nothing is to be gained any more
        choices[group] = options.argmin(axis=0)
        choices[group, :, 0] = 0
        cheapest = np.minimum(options.min(axis=0), never)
    return cheapest, choices


def _undercut_none(ways: IntArray) -> IntArray:
    """The rows without those that another row of the same group and class undercuts, sorted by group, class and additions."""
    # least removals first within equal additions; of equals one that is sure, and the earlier one
    order = np.lexsort((np.arange(len(ways)), -ways[:, 4], ways[:, 3], ways[:, 2], ways[:, 1], ways[:, 0]))
    kept, last = list[int](), (-1, -1)
    fewest = 0
    for row in order.tolist():
        owner, removes = (int(ways[row, 0]), int(ways[row, 1])), int(ways[row, 3])
        if owner != last or removes < fewest:
            kept.append(row)
            last, fewest = owner, removes
    return ways[kept]
