"""How often each class was voted when a slot, a pair or a triple of slots was flipped; and confidence bounds on it.

The flips are made again from the sample's index, block by block, and compared with the checksum that was stored with the
votes: flips that are not those the classifier saw would make every slot look harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.bounds import AlphaSplit, FloatArray, lower_bound, upper_bound
from flipproof.certificates.influence.attack import Attack
from flipproof.certificates.sampled_votes import Votes
from flipproof.errors import InputError
from flipproof.noise import BLOCK

__all__ = ["FlipCounts", "MomentBounds", "TripleBounds", "bound_moments", "count_flips", "lower_moments", "tightened"]

IntArray = NDArray[np.int64]

_CHUNK = 16 * BLOCK  # samples counted at once; below 2**24, so that float32 products of zeros and ones are exact
_CHUNK_CELLS = 1 << 26  # at most this many flips in memory at once
_WIDTH = 1 << 9
_PARTIES = 4
_FEW = 1024  # up to here bounds are computed entry by entry
_DOWN, _UP = 1 - 2.0**-50, 1 + 2.0**-50  # more than the rounding of one or two products


@dataclass(frozen=True)
class FlipCounts:
    """Votes by class, and by class and flipped slots.

    Attributes:
        order: The highest order that can be asked for.
        tables: For each order ``k`` up to 2 and ``order``, the votes of every class among the samples in which ``k`` given slots
            were all flipped: ``[C]``, ``[C, N]``, ``[C, N, N]`` (0 for a slot with itself).
        packed: For order 3, the flips of all samples, eight slots a byte: ``[M, N / 8]``.
        labels: The votes, ``[M]``.
    """

    order: int
    tables: tuple[IntArray, ...]
    packed: NDArray[np.uint8]
    labels: NDArray[np.unsignedinteger[Any]]

    @cached_property
    def _trials(self) -> tuple[IntArray, ...]:
        return tuple(np.asarray(table.sum(axis=0)) for table in self.tables)

    def trials_of(self, slots: IntArray, order: int) -> IntArray:
        """Samples in which ``order`` of the given slots were all flipped, whatever the vote."""
        return _taken(self._trials[order], slots, order)

    def selected(self, labels: list[int], slots: IntArray, order: int) -> IntArray:
        """The largest of the given classes' votes among the samples in which the slots were all flipped."""
        table = self.tables[order]
        votes = table[labels[0]] if len(labels) == 1 else table[labels].max(axis=0)
        return _taken(votes, slots, order)

    def rivals(self, top: int) -> list[int]:
        """All other classes, most votes first."""
        ranked = np.argsort(-self.tables[0], kind="stable")
        return [int(label) for label in ranked if label != top]

    def hopeful(self, top: int, samples: int, *, doubt: float) -> FlipCounts:
        """The counts that more samples would have if the top class's shares were at their upper confidence bounds."""
        tables = []
        for table, now in zip(self.tables, self._trials, strict=True):
            trials = now * samples // len(self.labels)
            share = _looked_up(upper_bound, table[top], now, doubt)
            hits = np.minimum(trials, np.ceil(share * trials)).astype(np.int64)
            rest = now - table[top]
            more = table * (trials - hits) // np.maximum(rest, 1)
            more[top] = hits
            # what rounding left over, or where all votes so far were the top class's
            more[top] += trials - more.sum(axis=0)
            tables.append(more)
        return FlipCounts(self.order, tuple(tables), self.packed, self.labels)

    def pairs_within(self, slot: int, columns: IntArray, parties: IntArray) -> IntArray:
        """Votes among the samples in which a slot and each pair of columns were all flipped: ``[parties, n, n]``.

        ``parties[label]`` is the number of the party, 0 to 3, that a class's votes count for.
        """
        flipped = np.flatnonzero(self.packed[:, slot >> 3] >> (7 - (slot & 7)) & 1)
        party = parties[self.labels[flipped]]
        counts = np.zeros((_PARTIES, len(columns), len(columns)), dtype=np.int64)
        for number in range(_PARTIES):
            rows = flipped[party == number]
            for start in range(0, len(rows), _CHUNK):
                flips = np.unpackbits(self.packed[rows[start : start + _CHUNK]], axis=1)[:, columns].astype(np.float32)
                counts[number] += (flips.T @ flips).astype(np.int64)
        return counts


def _taken(table: IntArray, slots: IntArray, order: int) -> IntArray:
    """The table's entries for the given slots."""
    if order == 0 or (len(slots) == len(table) and np.array_equal(slots, np.arange(len(table)))):
        return table
    return np.asarray(table[np.ix_(*(slots,) * order)])


@dataclass(frozen=True)
class MomentBounds:
    """Bounds on Pr(vote, slots of U all flipped) for all U up to some order, restricted to the slots of an attack.

    Attributes:
        lower: Lower bounds for the top class: a number, ``[n]``, ``[n, n]``.
        upper: Upper bounds for the rival, likewise.
    """

    lower: tuple[FloatArray, ...]
    upper: tuple[FloatArray, ...]


def count_flips(votes: Votes, order: int) -> FlipCounts:
    """Count votes and flipped slots; refuses if the flips are not those that the classifier saw."""
    classes, slots = votes.num_classes, votes.graph.num_slots
    shapes = ((classes, slots), (classes, slots, slots))
    tables = [votes.counts, *(np.zeros(shape, dtype=np.int64) for shape in shapes[:order])]
    packed = []
    for flips, labels in _verified_flips(votes):
        if order == 3:
            packed.append(np.packbits(flips, axis=1))
        by_class = np.argsort(labels, kind="stable")
        bounds = np.searchsorted(labels[by_class], np.arange(classes + 1))
        ordered = flips[by_class]
        if order == 1:
            for label, (start, stop) in enumerate(pairwise(bounds)):
                tables[1][label] += ordered[start:stop].sum(axis=0, dtype=np.int64)
            continue
        numbers = ordered.astype(np.float32)
        for label, (start, stop) in enumerate(pairwise(bounds)):
            if start == stop:
                continue
            part = numbers[start:stop]
            pairs = (part.T @ part).astype(np.int64)
            tables[1][label] += np.diagonal(pairs)
            np.fill_diagonal(pairs, 0)
            tables[2][label] += pairs
    everything = np.concatenate(packed) if packed else np.empty((0, 0), dtype=np.uint8)
    return FlipCounts(order, tuple(tables), everything, votes.labels)


def _verified_flips(votes: Votes) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.unsignedinteger[Any]]]]:
    """Flips and labels of consecutive samples, each whole block compared with its checksum."""
    stream = votes.stream()
    slots = max(1, votes.graph.num_slots)
    blocks_at_once = max(1, min(_CHUNK, _CHUNK_CELLS // slots) // BLOCK)
    waiting: list[NDArray[np.bool_]] = []
    begin = 0
    for number, expected in enumerate(votes.checksums):
        start = number * BLOCK
        checksum, made = stream.new_checksum(), start
        for batch, content in stream.pieces(start, start + BLOCK):
            checksum.update(content)
            # by symmetric difference with the clean graph where the batch holds states, else made again
            states = batch.states
            again = stream.flips(made, made + batch.size) if states is None else states ^ votes.graph.slot_states
            waiting.append(again)
            made += batch.size
        if checksum.hexdigest() != expected:
            raise InputError(
                f"the flips of samples {start} to {start + BLOCK - 1} are not those that the votes were cast on: expected "
                f"checksum {expected}, got {checksum.hexdigest()} (the influence certificate would be false; sample again)"
            )
        last = number == len(votes.checksums) - 1
        if start + BLOCK - begin == blocks_at_once * BLOCK or last:
            labels = votes.labels[begin : start + BLOCK]
            yield np.concatenate(waiting)[: len(labels)], labels
            waiting, begin = [], start + BLOCK


def lower_moments(
    counts: FlipCounts, attack: Attack, split: AlphaSplit, *, alpha: float, top: int
) -> tuple[FloatArray, ...]:
    """Lower bounds on Pr(top class, U flipped) for the slots, pairs, ... of an attack.

    Given the flips, the votes among the ``n`` samples in which the slots of U were all flipped are ``n`` independent coins
    that show a class with probability Pr(class | U flipped); so Clopper-Pearson bounds it, and Pr(U flipped) is known.
    Every slot, pair or triple *of one attacked set* gets its own failure probability (see :meth:`Attack.levels`), all of them
    together the share of the split; other sets need none (``docs/influence.md``, "Why no union over sets").
    """
    found = []
    for order in range(min(attack.order(counts.order), 2) + 1):
        votes, trials = counts.selected([top], attack.slots, order), counts.trials_of(attack.slots, order)
        flipped = attack.flip_probability(order)
        low = _by_type(lower_bound, votes, trials, attack, order, alpha * split.top_share(order))
        found.append(np.clip(flipped * low * _DOWN, 0.0, flipped))
    return tuple(found)


def bound_moments(
    lower: tuple[FloatArray, ...],
    counts: FlipCounts,
    attack: Attack,
    split: AlphaSplit,
    *,
    alpha: float,
    rivals: list[int],
) -> MomentBounds:
    """The top class's lower bounds with upper bounds for the rivals, all of one attacked set true together.

    The upper bounds are the largest of the ``rivals``'; without any, what the top class leaves over. With
    :func:`lower_moments` they fail with probability at most ``alpha`` less the label test's share, for any one set and rival.
    """
    upper = []
    for order, low in enumerate(lower):
        flipped = attack.flip_probability(order)
        high = flipped * _UP - low
        if rivals and split.rival_share(order) > 0:
            votes, trials = counts.selected(rivals, attack.slots, order), counts.trials_of(attack.slots, order)
            bound = _by_type(upper_bound, votes, trials, attack, order, alpha * split.rival_share(order))
            high = np.minimum(flipped * bound * _UP, high)
        upper.append(high)
    return tightened(MomentBounds(lower, tuple(upper)), attack)


class TripleBounds:
    """Bounds on Pr(class, three slots flipped) for attacks on exactly three slots, counted when asked for.

    With several ``rivals`` the upper bound is that of the larger of: the strongest rival's votes, all other rivals' votes
    together. An attacked set has one triple, so it gets the whole share of the split.
    """

    def __init__(
        self, counts: FlipCounts, attack: Attack, split: AlphaSplit, *, alpha: float, top: int, rivals: list[int]
    ) -> None:
        self.counts, self.attack, self.several = counts, attack, len(rivals) > 1
        self.levels = (alpha * split.top_share(3) * (1 - 2.0**-40), alpha * split.rival_share(3) * (1 - 2.0**-40))
        self.parties = np.full(len(counts.tables[0]), 3)
        self.parties[top] = 0
        self.parties[rivals[1:]] = 2
        self.parties[rivals[:1]] = 1
        self.own = bool(rivals) and self.levels[1] > 0
        self.bits = int(counts.trials_of(attack.slots, 2).max()).bit_length()

    def __call__(self, slot: int, second: IntArray, third: IntArray) -> tuple[FloatArray, FloatArray]:
        """Lower bounds for the top class, upper bounds for the rival, of places ``slot, second[i], third[i]``."""
        slots = self.attack.slots
        needed = np.zeros(len(slots), dtype=np.bool_)
        needed[second] = needed[third] = True
        columns, places = np.flatnonzero(needed), np.cumsum(needed) - 1
        j, k = places[second], places[third]
        counted = self.counts.pairs_within(int(slots[slot]), slots[columns], self.parties)[:, j, k]
        trials = counted.sum(axis=0)
        q = self.attack.flips
        flipped = q[slot] * q[second] * q[third]
        low = np.zeros(len(j))
        if self.levels[0] > 0:
            misses = _upper_table(self.levels[0], self.bits)(trials - counted[0], trials)
            low = np.clip(flipped * (1 - misses) * _DOWN, 0.0, flipped)
        high = flipped * _UP - low
        if self.own:
            most = np.maximum(counted[1], counted[2]) if self.several else counted[1]
            high = np.minimum(high, flipped * _upper_table(self.levels[1], self.bits)(most, trials) * _UP)
        return low, high


def tightened(bounds: MomentBounds, attack: Attack) -> MomentBounds:
    """The bounds with what each order implies for the next.

    Pr(A, U and i flipped) is at least Pr(A, U flipped) - Pr(U flipped) (1 - q_i), and at most Pr(A, U flipped).
    """
    q = attack.flips
    lower, upper = list(bounds.lower[:1]), list(bounds.upper[:1])
    for order in range(1, len(bounds.lower)):
        low, high = bounds.lower[order], bounds.upper[order]
        for less_low, less_high, flipped, one_more in _one_less(lower, upper, q, order):
            # the constant outweighs the rounding of three operations on numbers up to 1
            low = np.maximum(low, less_low - flipped * (1 - one_more) - 2.0**-50)
            high = np.minimum(high, less_high)
        lower.append(low)
        upper.append(np.minimum(high, attack.flip_probability(order) * _UP - low))
    return MomentBounds(tuple(lower), tuple(upper))


def _one_less(
    lower: list[FloatArray], upper: list[FloatArray], q: FloatArray, order: int
) -> Iterator[tuple[FloatArray, FloatArray, FloatArray, FloatArray]]:
    """For each way to leave out one slot: bounds and flip probability without it, and its own flip probability."""
    if order == 1:
        yield lower[0], upper[0], np.ones(()), q
    else:
        yield lower[1][:, None], upper[1][:, None], q[:, None], q
        yield lower[1], upper[1], q, q[:, None]


def _by_type(
    bound: Callable[..., FloatArray], successes: IntArray, trials: IntArray, attack: Attack, order: int, share: float
) -> FloatArray:
    """Clopper-Pearson bounds, each at the level of its slots' types."""
    if len(attack.groups) <= 1:
        level = float(attack.levels(order).flat[0]) * share
        if level <= 0:
            return np.full(successes.shape, 0.0 if bound is lower_bound else 1.0)
        return _looked_up(bound, successes, trials, level)
    levels = np.broadcast_to(attack.levels(order) * share, successes.shape)
    found = np.empty(successes.shape)
    for level in np.unique(levels):
        here = levels == level
        if level <= 0:
            found[here] = 0.0 if bound is lower_bound else 1.0
        else:
            found[here] = _looked_up(bound, successes[here], trials[here], float(level))
    return found


def _looked_up(bound: Callable[..., FloatArray], successes: IntArray, trials: IntArray, level: float) -> FloatArray:
    """The bound of every entry, or one a little weaker; few pairs of counts occur, and again and again."""
    if successes.size < _FEW:
        return bound(successes, trials, failure_prob=level)
    table = _upper_table(level, int(trials.max()).bit_length())
    if bound is upper_bound:
        return table(successes, trials)
    # a lower bound on a share is one minus an upper bound on the share of the rest
    return 1 - table(trials - successes, trials)


class _UpperTable:
    """Upper bounds on a share at one level, kept for the counts that have occurred.

    Counts above 512 are rounded so that there are few: trials down (leaving out failures), successes up. Neither makes a bound
    smaller, nor does the rounding to single precision, which is upward.
    """

    def __init__(self, level: float, bits: int) -> None:
        self.level, self.step = level, max(1, 2**bits // _WIDTH)
        self.width = 2**bits // self.step + 1
        self.values = np.full(self.width**2, np.nan, dtype=np.float32)

    def __call__(self, successes: IntArray, trials: IntArray) -> FloatArray:
        """At least the Clopper-Pearson upper bound of every entry."""
        few, many = (successes, trials) if self.step == 1 else (-(-successes // self.step), trials // self.step)
        keys = np.minimum(few, many) * self.width + many
        found = self.values[keys]
        missing = np.isnan(found)
        if missing.any():
            new = np.unique(keys[missing])
            k, n = np.divmod(new, self.width)
            bounds = upper_bound(k * self.step, n * self.step, failure_prob=self.level)
            self.values[new] = np.minimum(np.nextafter(bounds.astype(np.float32), np.float32(2)), np.float32(1))
            found = self.values[keys]
        return np.asarray(found, dtype=np.float64)


@lru_cache(maxsize=64)
def _upper_table(level: float, bits: int) -> _UpperTable:
    """The table for a level and for up to ``2**bits`` trials. Levels depend on sizes alone, so graphs share tables."""
    return _UpperTable(level, bits)
