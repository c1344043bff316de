"""How often each class was voted when a slot, a pair, three or four slots were flipped.

The flips are made again from the sample's index, block by block, and compared with the checksum that was stored with the
votes: flips that are not those the classifier saw would make every slot look harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import config
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from flipproof.certificates.influence.lead_test import Attack, Kind, LeadTest
from flipproof.certificates.influence.worst_set import Quadruples, SetWeights
from flipproof.compiling import compiled
from flipproof.errors import InputError
from flipproof.graphs import IntArray
from flipproof.noise import BLOCK

if TYPE_CHECKING:
    from flipproof.certificates.sampled_votes import Votes

Labels = NDArray[np.unsignedinteger[Any]]
Words = NDArray[np.uint64]
"""A bit per sample of every slot, ``[N, M / 64]``."""
Flips = tuple[NDArray[np.uint8], Labels]
"""Flips of consecutive samples, eight slots a byte, ``[M, N / 8]``, and the labels that were voted on them, ``[M]``."""

_CHUNK = 16 * BLOCK  # samples counted at once
_CHUNK_CELLS = 1 << 26  # at most this many flips in memory at once
_FEW = 12  # slots among which a set is looked for first
_KEPT_BITS = 1 << 29  # at most this many flips are kept for later counts; more are made again


@dataclass(frozen=True)
class FlipCounts:
    """Votes by class, and by class and flipped slots. Pairs and triples are counted when they are first needed."""

    order: int  # the highest order that is counted
    votes: IntArray  # of every class, ``[C]``
    singles: IntArray  # of every class among the samples in which a slot was flipped, ``[C, N]``
    flips: Callable[[], Iterable[Flips]]  # yields those of all samples, verified
    words: tuple[Words, ...]  # the same, a bit per sample of every slot, where they are kept
    slots: IntArray | None = None  # those that are counted, if not all
    _known: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def table(self, labels: list[int], order: int) -> NDArray[Any]:
        """Votes for any of the classes among the samples in which ``order`` slots were all flipped, symmetric."""
        if order < 2:
            return np.asarray((self.votes, self.singles)[order][labels].sum(axis=0))
        voted = self._voted(labels)
        if (order, voted) not in self._known:
            counted = [key[1] for key in self._known if key[0] == order]
            larger = next((more for more in counted if voted < more and (order, more - voted) in self._known), None)
            if larger is not None:
                table = self._known[order, larger] - self._known[order, larger - voted]
            else:
                table = _count_together(self._words_of(voted), self.singles.shape[1], order)
            self._known[order, voted] = table
        return np.asarray(self._known[order, voted])

    def _words_of(self, labels: frozenset[int]) -> Iterator[Words]:
        """A bit per sample with a vote for one of the classes, of every slot; for few slots those of other samples are 0."""
        if self.slots is None:
            yield from (_by_slot(flips[np.isin(votes, list(labels))]) for flips, votes in self.flips())
        else:
            for words, (_, votes) in zip(self.words, self.flips(), strict=True):
                yield words[self.slots] & _as_words(np.isin(votes, list(labels)))

    def most_harmful(self, attack: Attack, top: int) -> tuple[FlipCounts, Attack]:
        """The counts of a few slots of the attack, where the top class does worst, and the attack on these alone."""
        ranked = np.argsort(self._shares(top)[attack.slots], kind="stable")
        groups = range(len(attack.groups))
        few = [ranked[attack.members[ranked] == group][: _FEW // len(groups)] for group in groups]
        slots = attack.slots[np.concatenate(few)]
        key = ("few", slots.tobytes())
        if key not in self._known:
            self._known[key] = replace(self, singles=self.singles[:, slots], slots=slots)
        fewer = tuple(replace(group, size=len(part)) for group, part in zip(attack.groups, few, strict=True))
        return self._known[key], replace(attack, groups=fewer, slots=np.arange(len(slots)))

    def _voted(self, labels: list[int]) -> frozenset[int]:
        return frozenset(label for label in labels if self.votes[label] > 0)

    def weights(self, test: LeadTest, attack: Attack, top: int, rivals: list[int]) -> SetWeights:
        """The statistic of a test of the lead over the rivals together, as a sum over the subsets of the attacked set."""
        weights: list[NDArray[Any] | None] = [None] * 4
        for order in range(min(test.degree, 3) + 1):
            votes, lost = (_chosen(self.table(labels, order), attack.slots, order) for labels in ([top], rivals))
            gain, price = (_by_group(part, attack, order) for part in (test.top, test.rival))
            if order == 3:
                gain, price = gain.astype(np.float32), price.astype(np.float32)
            weights[order] = gain * votes
            weights[order] -= price * lost
        constant, single, double, triple = weights
        assert constant is not None
        counts = tuple(group.count for group in attack.groups)
        quadruple = self._quadruples(test, attack, top, rivals) if test.degree > 3 else None
        return SetWeights(float(constant), np.asarray(single), double, triple, attack.members, counts, quadruple)

    def _quadruples(self, test: LeadTest, attack: Attack, top: int, rivals: list[int]) -> Quadruples:
        """The statistic's part of all sets of four slots."""
        ranked = np.argsort(self._shares(top), kind="stable")  # for a quick end of the search
        ranks = np.empty_like(ranked)
        ranks[ranked] = np.arange(len(ranked))
        local = np.argsort(ranks[attack.slots])  # of the attack's slots
        places, members = ranks[attack.slots[local]], attack.members[local]
        gain, price = (_kinds(part, len(attack.groups), 4).astype(np.float32) for part in (test.top, test.rival))

        def after(rank: int) -> NDArray[np.float32]:
            place, groups = int(places[rank]), np.ix_(*(members[rank + 1 :],) * 3)
            later = places[rank + 1 :] - place - 1
            votes, lost = (_chosen(self._with_three(ranked, labels, place), later, 3) for labels in ([top], rivals))
            return np.asarray(gain[members[rank]][groups] * votes - price[members[rank]][groups] * lost)

        # four slots are flipped together no more often than three of them
        most = [float(self.table(labels, 3).max(initial=0)) for labels in ([top], rivals)]
        return Quadruples(local, after, float(np.abs(gain).max() * most[0] + np.abs(price).max() * most[1]))

    def _shares(self, top: int) -> NDArray[np.float64]:
        """The top class's share of votes where each slot was flipped, ``[N]``."""
        return np.asarray(self.singles[top] / np.maximum(self.singles.sum(axis=0), 1))

    def _with_three(self, ranked: IntArray, labels: list[int], rank: int) -> NDArray[np.float32]:
        """Votes for several classes together where the slot of a rank and three of higher ranks were flipped."""
        key = ("ranked", ranked.tobytes(), self._voted(labels))
        if key not in self._known:
            rows = (flips[np.isin(votes, list(key[2]))] for flips, votes in self.flips())
            self._known[key] = [np.packbits(np.unpackbits(part, axis=1)[:, ranked], axis=1) for part in rows]
        byte, bit = rank // 8, 128 >> rank % 8
        flipped = (_by_slot(flips[flips[:, byte] & bit > 0])[rank + 1 :] for flips in self._known[key])
        return _count_together(flipped, self.singles.shape[1] - rank - 1, 3)


def _count_together(parts: Iterable[Words], slots: int, order: int) -> NDArray[Any]:
    """In how many of the samples two or three slots were all flipped, symmetric."""
    table = np.zeros((slots,) * order, dtype=np.float64 if order == 2 else np.float32)
    for words in parts:
        (add_pairs if order == 2 else add_triples)(words, table)
    return table


def _by_slot(packed: NDArray[np.uint8]) -> Words:
    """For flips of ``M`` samples, eight slots a byte ``[M, N / 8]``, a bit per sample ``[8 ceil(N / 8), M / 64]``."""
    return np.asarray(transposed(np.pad(packed, ((0, -len(packed) % 64), (0, 0))))).view(np.uint64)


def _as_words(samples: NDArray[np.bool_]) -> Words:
    """A bit per sample, ``[M / 64]``, in the order of :func:`_by_slot`."""
    return np.packbits(np.pad(samples, (0, -len(samples) % 64)), bitorder="little").view(np.uint64)


def _chosen(table: NDArray[Any], slots: IntArray, order: int) -> NDArray[Any]:
    if order == 0 or (len(slots) == len(table) and np.array_equal(slots, np.arange(len(table)))):
        return table
    return np.asarray(table[np.ix_(*(slots,) * order)])


def _by_group(values: dict[Kind, float], attack: Attack, order: int) -> NDArray[Any]:
    """The value of each subset's kind: a number where there is one kind, else ``[n]``, ``[n, n]`` or ``[n, n, n]``."""
    table = _kinds(values, len(attack.groups), order)
    return table.reshape(()) if len(attack.groups) == 1 else np.asarray(table[np.ix_(*(attack.members,) * order)])


def _kinds(values: dict[Kind, float], groups: int, order: int) -> NDArray[Any]:
    """The value of every kind of subset, by the groups of its slots, ``[groups] * order``."""
    kinds = [tuple(map(row.count, range(groups))) for row in product(range(groups), repeat=order)]
    # a kind that no attacked set has (two slots of a group of which one is taken) is never read
    return np.array([values.get(kind, 0.0) for kind in kinds]).reshape((groups,) * order)


def count_flips(votes: Votes, order: int) -> FlipCounts:
    """Count votes and flipped slots; refuses if the flips are not those that the classifier saw."""
    classes, slots = votes.num_classes, votes.graph.num_slots
    singles, kept, kept_words = np.zeros((classes, slots), dtype=np.int64), list[Flips](), list[Words]()
    few = len(votes) * slots <= _KEPT_BITS
    for flips, labels in _verified_flips(votes):
        voted, words = np.array([_as_words(labels == label) for label in range(classes)]), _by_slot(flips)
        singles += count_singles(words, voted)[:, :slots]
        if few:
            kept.append((flips, labels))
            kept_words.append(words)
    again = (lambda: kept) if few else partial(_verified_flips, votes)
    return FlipCounts(order, votes.counts, singles, again, tuple(kept_words))


def _verified_flips(votes: Votes) -> Iterator[Flips]:
    """Flips, eight slots a byte, and labels of consecutive samples, each whole block compared with its checksum."""
    stream, blocks = votes.stream(), list[NDArray[np.uint8]]()
    at_once, begin = max(1, min(_CHUNK, _CHUNK_CELLS // max(1, votes.graph.num_slots)) // BLOCK), 0
    for number, expected in enumerate(votes.checksums):
        start = number * BLOCK
        flips, checksum = stream.packed_flips(start)
        if checksum != expected:
            raise InputError(
                f"the flips of samples {start} to {start + BLOCK - 1} are not those that the votes were cast on: expected "
                f"checksum {expected}, got {checksum} (the influence certificate would be false; sample again)"
            )
        blocks.append(flips)
        if len(blocks) == at_once or number == len(votes.checksums) - 1:
            labels = votes.labels[begin : start + BLOCK]
            yield np.concatenate(blocks)[: len(labels)], labels
            blocks, begin = [], start + BLOCK


# ---- counts of slots that were flipped together, 64 samples at a time ------------------------------------------------------


@compiled
def transposed(rows: Any) -> Any:
    """A byte per eight samples, for every slot: blocks of eight by eight bits, transposed by exchanges of ever larger parts."""
    samples, width = rows.shape
    columns = np.empty((8 * width, samples // 8), np.uint8)
    for eight in range(samples // 8):
        for byte in range(width):
            block = np.uint64(0)
            for row in range(8):
                block |= np.uint64(rows[8 * eight + row, byte]) << np.uint64(8 * row)
            for shift, mask in ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0)):
                part = (block ^ (block >> np.uint64(shift))) & np.uint64(mask)
                block ^= part ^ (part << np.uint64(shift))
            for bit in range(8):  # the first slot of a byte is its highest bit
                columns[8 * byte + 7 - bit, eight] = (block >> np.uint64(8 * bit)) & np.uint64(255)
    return columns


@intrinsic
def _compiled_ones(typing: Any, word: Any) -> Any:
    """The number of ones among the bits of a word."""

    def make(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.ctpop(values[0])

    return types.uint64(types.uint64), make


# where nothing is compiled, the loops are plain Python
_ones: Any = (lambda word: int(word).bit_count()) if config.DISABLE_JIT else _compiled_ones


@compiled
def count_singles(words: Any, voted: Any) -> Any:
    """In how many samples of several sets ``[C, M / 64]`` each slot was flipped, ``[C, N]``."""
    counts = np.zeros((len(voted), len(words)), np.int64)
    for label in range(len(voted)):
        for slot in range(len(words)):
            count = np.uint64(0)
            for place in range(words.shape[1]):
                count += _ones(words[slot, place] & voted[label, place])
            counts[label, slot] = count
    return counts


@compiled
def add_pairs(words: Any, table: Any) -> None:
    """Add to ``table [N, N]`` in how many samples two slots were both flipped."""
    for i in range(len(table)):
        first = words[i]
        for j in range(i + 1, len(table)):
            second, count = words[j], np.uint64(0)
            for place in range(len(first)):
                count += _ones(first[place] & second[place])
            table[i, j] += count
            table[j, i] += count


@compiled
def add_triples(words: Any, table: Any) -> None:
    """Add to a symmetric ``table [N, N, N]`` in how many samples three slots were all flipped."""
    both = np.empty(words.shape[1], np.uint64)
    for i in range(len(table)):
        first = words[i]
        for j in range(i + 1, len(table)):
            second = words[j]
            for place in range(len(both)):
                both[place] = first[place] & second[place]
            for k in range(j + 1, len(table)):
                third, count = words[k], np.uint64(0)
                for place in range(len(both)):
                    count += _ones(both[place] & third[place])
                table[i, j, k] += count
                for a, b, c in ((i, k, j), (j, i, k), (j, k, i), (k, i, j), (k, j, i)):
                    table[a, b, c] = table[i, j, k]
