"""How often each class was voted when a slot, a pair, three or four slots were flipped.

The flips are made again from the sample's index, block by block, and compared with the checksum that was stored with the
votes: flips that are not those the classifier saw would make every slot look harmless.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.bounds import FloatArray
from flipproof.certificates.influence.attack import Attack
from flipproof.certificates.influence.lead_test import Kind, LeadTest
from flipproof.certificates.influence.worst_set import Quadruples, SetWeights
from flipproof.certificates.sampled_votes import Votes
from flipproof.errors import InputError
from flipproof.noise import BLOCK, SampleStream

__all__ = ["FlipCounts", "count_flips"]

IntArray = NDArray[np.int64]

_CHUNK = 16 * BLOCK  # samples counted at once; below 2**24, so that float32 products of zeros and ones are exact
_CHUNK_CELLS = 1 << 26  # at most this many flips in memory at once


@dataclass(frozen=True)
class FlipCounts:
    """Votes by class, and by class and flipped slots.

    Attributes:
        order: The highest order that can be asked for.
        tables: For each order ``k`` up to 2 and ``order``, the votes of every class among the samples in which ``k`` given slots
            were all flipped: ``[C]``, ``[C, N]``, ``[C, N, N]`` (0 for a slot with itself).
        packed: From order 3 on, the flips of all samples, eight slots a byte: ``[M, N / 8]``.
        labels: The votes, ``[M]``.
    """

    order: int
    tables: tuple[IntArray, ...]
    packed: NDArray[np.uint8]
    labels: NDArray[np.unsignedinteger[Any]]

    def __post_init__(self) -> None:
        self.__dict__["_known"] = {}

    def rivals(self, top: int) -> list[int]:
        """All other classes, most votes first."""
        ranked = np.argsort(-self.tables[0], kind="stable")
        return [int(label) for label in ranked if label != top]

    def table(self, labels: list[int], order: int) -> NDArray[Any]:
        """Votes for any of the classes among the samples in which ``order`` given slots were all flipped."""
        if order < 3:
            return np.asarray(self.tables[order][labels].sum(axis=0))
        return self._triples(frozenset(label for label in labels if self.tables[0][label] > 0))

    def _triples(self, labels: frozenset[int]) -> NDArray[np.float32]:
        """Votes for some classes together by three flipped slots, symmetric ``[N, N, N]``; counted when first asked for."""
        known: dict[Any, NDArray[np.float32]] = self.__dict__["_known"]
        if labels not in known:
            counted = [more for more in known if isinstance(more, frozenset)]
            larger = next((more for more in counted if labels < more and more - labels in known), None)
            known[labels] = (
                _count_triples(self.packed[np.isin(self.labels, list(labels))], self.tables[1].shape[1])
                if larger is None
                else known[larger] - known[larger - labels]
            )
        return known[labels]

    def weights(self, test: LeadTest, attack: Attack, top: int, rivals: list[int]) -> SetWeights:
        """The statistic of a test of the lead over some rivals together, as a sum over the subsets of the attacked set."""
        degree = max(sum(kind) for kind in test.top)
        found: list[NDArray[Any] | None] = []
        for order in range(4):
            if order > degree:
                found.append(None)
                continue
            votes, lost = (_taken(self.table(labels, order), attack.slots, order) for labels in ([top], rivals))
            gain, price = (_by_group(part, attack, order) for part in (test.top, test.rival))
            if order == 3:
                gain, price = gain.astype(np.float32), price.astype(np.float32)
            found.append(gain * votes - price * lost)
        constant, single, double, triple = found
        assert constant is not None
        counts = tuple(group.count for group in attack.groups)
        four = self._quadruples(test, attack, top, rivals) if degree > 3 else None
        return SetWeights(float(constant), np.asarray(single), double, triple, attack.members, counts, four)

    def _quadruples(self, test: LeadTest, attack: Attack, top: int, rivals: list[int]) -> Quadruples:
        """The statistic's part of all sets of four slots."""
        ranked = self._ranked(top)
        ranks = np.empty_like(ranked)
        ranks[ranked] = np.arange(len(ranked))
        local = np.argsort(ranks[attack.slots])  # of the attack's slots
        places, members = ranks[attack.slots[local]], attack.members[local]
        gain, price = (_kinds(part, len(attack.groups), 4).astype(np.float32) for part in (test.top, test.rival))

        def after(rank: int) -> NDArray[np.float32]:
            later = places[rank + 1 :] - places[rank] - 1
            groups = np.ix_(*(members[rank + 1 :],) * 3)
            votes, lost = (
                _taken(self._with_three(top, labels, int(places[rank])), later, 3) for labels in ([top], rivals)
            )
            return np.asarray(gain[members[rank]][groups] * votes - price[members[rank]][groups] * lost)

        # four slots are flipped together no more often than three of them
        most = [float(self.table(labels, 3).max(initial=0)) for labels in ([top], rivals)]
        return Quadruples(local, after, float(np.abs(gain).max() * most[0] + np.abs(price).max() * most[1]))

    def _ranked(self, top: int) -> IntArray:
        """The slots by the top class's share of votes where they are flipped, lowest first; for a quick end of the search."""
        share = self.tables[1][top] / np.maximum(self.tables[1].sum(axis=0), 1)
        return np.argsort(share, kind="stable").astype(np.int64)

    def _with_three(self, top: int, labels: list[int], rank: int) -> NDArray[np.float32]:
        """Votes for some classes together where the slot of a rank and three of higher ranks were flipped."""
        known: dict[Any, NDArray[Any]] = self.__dict__["_known"]
        voted = frozenset(label for label in labels if self.tables[0][label] > 0)
        if (top, voted) not in known:
            rows, ranked = self.packed[np.isin(self.labels, list(voted))], self._ranked(top)
            pieces = [
                np.packbits(np.unpackbits(rows[start : start + _CHUNK], axis=1)[:, ranked], axis=1)
                for start in range(0, len(rows), _CHUNK)
            ]
            known[top, voted] = np.concatenate(pieces) if pieces else rows
        ranked_flips = known[top, voted]
        flipped = ranked_flips[:, rank // 8] & (128 >> rank % 8) > 0
        return _count_triples(ranked_flips[flipped], self.tables[1].shape[1], first=rank + 1)

    def hopeful(self, top: int, samples: int, *, doubt: float) -> FlipCounts:
        """The counts that more samples would have if the top class's shares were well above what was seen.

        Args:
            top: The class.
            samples: How many there would be.
            doubt: Standard deviations by which its shares are raised.
        """
        tables = []
        for table in self.tables:
            now = table.sum(axis=0)
            trials = now * samples // len(self.labels)
            share = (table[top] + 1) / (now + 2)
            share = np.minimum(1.0, share + doubt * np.sqrt(share * (1 - share) / np.maximum(now, 1)))
            hits = np.minimum(trials, np.ceil(share * trials)).astype(np.int64)
            rest = now - table[top]
            more = table * (trials - hits) // np.maximum(rest, 1)
            more[top] = hits
            # what rounding left over, or where all votes so far were the top class's
            more[top] += trials - more.sum(axis=0)
            tables.append(more)
        return FlipCounts(min(self.order, 2), tuple(tables), self.packed, self.labels)


def _count_triples(packed: NDArray[np.uint8], slots: int, *, first: int = 0) -> NDArray[np.float32]:
    """In how many of the samples three slots, from some first one on, were all flipped, symmetric ``[N, N, N]``."""
    begin, slots = first, slots - first
    table = np.zeros((slots,) * 3, dtype=np.float32)
    for start in range(0, len(packed), _CHUNK):
        numbers = _unpacked(packed[start : start + _CHUNK])[:, begin:]
        for first in range(slots - 2):
            rest = slice(first + 1, None)
            both = numbers[numbers[:, first] > 0, first + 1 : slots]
            table[first, rest, rest] += both.T @ both
    for first in range(slots - 2):
        rest = slice(first + 1, None)
        table[rest, first, rest] = table[rest, rest, first] = table[first, rest, rest]
    return table


def _taken(table: NDArray[Any], slots: IntArray, order: int) -> NDArray[Any]:
    """The table's entries for the given slots."""
    if order == 0 or (len(slots) == len(table) and np.array_equal(slots, np.arange(len(table)))):
        return table
    return np.asarray(table[np.ix_(*(slots,) * order)])


def _by_group(values: dict[Kind, float], attack: Attack, order: int) -> FloatArray:
    """The value of each subset's kind: a number where there is one kind, else ``[n]``, ``[n, n]`` or ``[n, n, n]``."""
    groups = len(attack.groups)
    table = _kinds(values, groups, order)
    return table.reshape(()) if groups == 1 else np.asarray(table[np.ix_(*(attack.members,) * order)])


def _kinds(values: dict[Kind, float], groups: int, order: int) -> FloatArray:
    """The value of every kind of subset, by the groups of its slots, ``[groups] * order``."""
    kinds = [tuple(map(row.count, range(groups))) for row in product(range(groups), repeat=order)]
    # a kind that no attacked set has (two slots of a group of which one is taken) is never read
    return np.array([values.get(kind, 0.0) for kind in kinds]).reshape((groups,) * order)


def count_flips(votes: Votes, order: int) -> FlipCounts:
    """Count votes and flipped slots; refuses if the flips are not those that the classifier saw."""
    classes, slots = votes.num_classes, votes.graph.num_slots
    shapes = ((classes, slots), (classes, slots, slots))
    tables = [votes.counts, *(np.zeros(shape, dtype=np.int64) for shape in shapes[:order])]
    packed = []
    for flips, labels in _verified_flips(votes):
        if order >= 3:
            packed.append(flips)
        by_class = np.argsort(labels, kind="stable")
        bounds = np.searchsorted(labels[by_class], np.arange(classes + 1))
        numbers = _unpacked(flips[by_class])
        for label, (start, stop) in enumerate(pairwise(bounds)):
            if start == stop:
                continue
            part = numbers[start:stop]
            if order == 1:
                tables[1][label] += (np.ones(len(part), dtype=np.float32) @ part)[:slots].astype(np.int64)
                continue
            pairs = (part.T @ part)[:slots, :slots].astype(np.int64)
            tables[1][label] += np.diagonal(pairs)
            np.fill_diagonal(pairs, 0)
            tables[2][label] += pairs
    everything = np.concatenate(packed) if packed else np.empty((0, 0), dtype=np.uint8)
    return FlipCounts(order, tuple(tables), everything, votes.labels)


_EIGHT = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32)
"""The bits of every byte."""


def _unpacked(packed: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Rows of bits as float32 zeros and ones, a whole number of bytes each: ``[M, 8 ceil(N / 8)]``."""
    return _EIGHT.take(packed, axis=0).reshape(len(packed), -1)


def _verified_flips(votes: Votes) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.unsignedinteger[Any]]]]:
    """Flips, eight slots a byte, and labels of consecutive samples, each whole block compared with its checksum."""
    stream = votes.stream()
    slots = max(1, votes.graph.num_slots)
    blocks_at_once = max(1, min(_CHUNK, _CHUNK_CELLS // slots) // BLOCK)
    waiting: list[NDArray[np.uint8]] = []
    begin = 0
    for number, expected in enumerate(votes.checksums):
        start = number * BLOCK
        flips, found = _sparse_block(stream, start) if stream.sparse else stream.packed_flips(start)
        if found != expected:
            raise InputError(
                f"the flips of samples {start} to {start + BLOCK - 1} are not those that the votes were cast on: expected "
                f"checksum {expected}, got {found} (the influence certificate would be false; sample again)"
            )
        waiting.append(flips)
        last = number == len(votes.checksums) - 1
        if start + BLOCK - begin == blocks_at_once * BLOCK or last:
            labels = votes.labels[begin : start + BLOCK]
            yield np.concatenate(waiting)[: len(labels)], labels
            waiting, begin = [], start + BLOCK


def _sparse_block(stream: SampleStream, start: int) -> tuple[NDArray[np.uint8], str]:
    """As :meth:`SampleStream.packed_flips`, for the sampler of large graphs."""
    checksum, made, flips = stream.new_checksum(), start, []
    for batch, content in stream.pieces(start, start + BLOCK):
        checksum.update(content)
        flips.append(np.packbits(stream.flips(made, made + batch.size), axis=1))
        made += batch.size
    return np.concatenate(flips), checksum.hexdigest()
