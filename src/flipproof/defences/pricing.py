"""Finding out what votes cost: which flips of which group are asked about next, and asking about them.

A search goes in rounds. Each looks for the cheapest purchase that would change the majority, given the prices known so far
(:func:`flipproof.certificates.prices.cheapest_purchase`), and has the groups in it whose price is not known searched one flip
deeper. It ends when the purchase consists of known prices, so that the radius is decided, or when depth or budget allow no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.group_votes import GroupVotes, certify_group_votes
from flipproof.certificates.prices import MOST_PRICED, Prices
from flipproof.checks import checked_integer
from flipproof.classifiers import Classifier
from flipproof.defences.defence import Request
from flipproof.errors import InputError
from flipproof.fields import option
from flipproof.graphs import Graph, IntArray
from flipproof.noise import keyed_draws
from flipproof.noise.groups import EdgeGroups

DEFAULT_CALLS = 4096  # model calls per graph where neither depth nor budget is given
CHUNK = 1024  # sets of flips in a piece of work
_WAVE = 16 * CHUNK  # sets of flips after which a search looks again
_MOST = 2**40  # sets of flips of one size beyond which no group is searched
_MOST_CALLS = 2**62
_COUNTS = "voting, counts alone"
_SPARE = 4  # times the budget that the average group may have, for its pairs to be counted at all


@dataclass(frozen=True)
class Level:
    """Sets of ``flips`` flips inside a group, numbers ``start..stop-1``."""

    group: int
    flips: int
    start: int
    stop: int


def pieces_of_work(levels: Sequence[Level]) -> list[tuple[Level, ...]]:
    """The levels cut and joined into pieces of work of at most :data:`CHUNK` sets of flips."""
    pieces, room = list[list[Level]](), 0
    for level in levels:
        for start in range(level.start, level.stop, CHUNK):
            part = Level(level.group, level.flips, start, min(start + CHUNK, level.stop))
            if part.stop - part.start > room:
                pieces.append([])
                room = CHUNK
            pieces[-1].append(part)
            room -= part.stop - part.start
    return [tuple(piece) for piece in pieces]


@dataclass(frozen=True)
class PriceSearch(Request):
    """How far the prices of votes are looked for. Flips of one size in a group are tried only if all of them may be."""

    depth: int | None = option(
        "Largest number of flips that are tried together to learn what a vote costs; 0 counts votes alone. By default as "
        "many as --calls allows.",
        None,
        least=0,
    )
    calls: int | None = option(
        f"Largest number of model calls per graph; by default {DEFAULT_CALLS:,}, or any number if --depth is given.",
        None,
        least=1,
    )

    def __post_init__(self) -> None:
        if self.depth is not None:
            checked_integer(self.depth, "depth", 0, 64, "0 for the counts of votes alone, 1 for the flips one by one")
        if self.calls is not None:
            checked_integer(self.calls, "calls", 1, _MOST_CALLS, f"the default is {DEFAULT_CALLS:,}")
        elif self.depth is None:
            object.__setattr__(self, "calls", DEFAULT_CALLS)

    def next_levels(self, votes: GroupVotes) -> list[Level]:
        """What has to be asked next, given what is known; nothing if the radius is decided or may not be looked into further."""
        graph, total = votes.graph, len(votes)
        if self.depth == 0 or total > MOST_PRICED:
            return []
        left = _MOST_CALLS
        if self.calls is not None:
            if graph.num_slots > _SPARE * total * self.calls:
                return []
            left = self.calls - votes.calls
        bought = votes.purchase()
        if bought is None or bought.exact:
            return []
        known = Prices.none(total) if votes.prices is None else votes.prices
        sizes = votes.room[0] + votes.room[1]
        candidates: list[tuple[int, Level]] = []
        for group in (part.group for part in bought.parts if not part.exact):
            flips, start = int(known.depths[group]) + 1, int(known.tried[group])
            stop = comb(int(sizes[group]), flips)
            if stop <= _MOST and (self.depth is None or flips <= self.depth):
                candidates.append((stop - start, Level(group, flips, start, min(stop, start + _WAVE))))
        chosen, asked = list[Level](), 0
        for whole, level in sorted(candidates, key=lambda pair: (pair[0], pair[1].group)):
            if whole > left or (chosen and asked + level.stop - level.start > _WAVE):
                break
            chosen.append(level)
            asked, left = asked + level.stop - level.start, left - whole
        return chosen

    def read(self, evidence: Any) -> Certificate:
        if not isinstance(evidence, GroupVotes) or self.next_levels(evidence):
            raise InputError("the evidence has fewer prices of votes than were asked for (certify the graph again)")
        return certify_group_votes(evidence, depth=self.depth)

    @property
    def other_readings(self) -> tuple[str, ...]:
        return (_COUNTS,)

    def readings(self, evidence: Any) -> dict[str, Certificate]:
        return {} if evidence.prices is None else {_COUNTS: certify_group_votes(evidence, depth=0)}


def prices_of(votes: GroupVotes, answers: Mapping[Level, IntArray]) -> GroupVotes:
    """The votes with the prices that the answers show; chunks of a level must be there from the first on, without gaps."""
    if not answers:
        return votes
    sizes = votes.room[0] + votes.room[1]
    tried: dict[tuple[int, int], int] = {}
    rows = list[IntArray]()
    for level, found in sorted(answers.items(), key=lambda item: (item[0].flips, item[0].group, item[0].start)):
        at = (level.group, level.flips)
        if tried.get(at, 0) != level.start:
            raise InputError(f"flips of group {level.group} are missing before number {level.start} (certify it again)")
        tried[at] = level.stop
        found = found[found[:, 0] != int(votes.labels[level.group])]
        rows.append(np.concatenate([np.full((len(found), 1), level.group), found], axis=1))
    depths, rest = np.zeros(len(votes), dtype=np.int64), np.zeros(len(votes), dtype=np.int64)
    for (group, flips), count in sorted(tried.items()):
        if flips != depths[group] + 1:
            raise InputError(f"flips of group {group} are missing before sets of {flips} (certify it again)")
        if count == comb(int(sizes[group]), flips):
            depths[group] = flips
        else:
            rest[group] = count
    prices = Prices.of(depths, rest, rows)
    return GroupVotes(votes.labels, votes.graph, votes.groups, votes.num_classes, votes.hash_version, prices)


def flip_answers(
    classifier: Classifier, graph: Graph, groups: EdgeGroups, levels: Sequence[Level], *, size: int
) -> list[IntArray]:
    """What the model says after each set of flips of the levels, one row per class and number of additions.

    For each level: class, additions, removals, whether it is said for sure, and the slots of the first such set of flips,
    ``[K, 4 + flips]``. A class that leads but for rounding counts as said, not for sure: another batch may round otherwise.
    """
    group_of, sets = groups.of_graph(graph), list[IntArray]()
    for level in levels:
        places = np.flatnonzero(group_of == level.group)
        sets.append(places[combinations(len(places), level.flips, level.start, level.stop)])
    counts = [len(each) for each in sets]
    group = np.repeat(np.array([level.group for level in levels]), counts)
    flips = np.full((sum(counts), max(level.flips for level in levels)), -1, dtype=np.int64)
    for each, stop in zip(sets, np.cumsum(counts).tolist(), strict=True):
        flips[stop - len(each) : stop, : each.shape[1]] = each
    # one set of flips is asked about again, alone: a guard against models whose answers depend on the rest of the batch
    again = int(keyed_draws(f"alone {graph.topology}", levels[0].group, levels[0].start, (1,))[0]) % max(1, len(flips))
    said = list[NDArray[np.uint8]]()
    for start in range(0, len(flips), size):
        batch = groups.flipped(graph, group[start : start + size], flips[start : start + size])
        said.append(classifier.said(batch))
        if start <= again < start + size:
            classifier.recheck(batch, (said[-1] == 2).argmax(axis=1), np.array([again - start]))
    parts = np.split(np.concatenate(said), np.cumsum(counts)[:-1])
    return [_first_of_each(graph, level, each, part) for level, each, part in zip(levels, sets, parts, strict=True)]


def _first_of_each(graph: Graph, level: Level, flips: IntArray, said: NDArray[np.uint8]) -> IntArray:
    """The first set of flips for each class that was said and each number of additions; one that is sure, if there is one."""
    row, label = np.nonzero(said)
    sure = (said[row, label] == 2).astype(np.int64)
    adds = (~graph.slot_states[flips]).sum(axis=1)[row]
    order = np.lexsort((row, -sure, adds, label))
    _, first = np.unique(label[order] * (level.flips + 1) + adds[order], return_index=True)
    row, label, adds, sure = (values[order[first]] for values in (row, label, adds, sure))
    head = np.stack([label, adds, level.flips - adds, sure], axis=1)
    return np.concatenate([head, graph.slots[flips[row]]], axis=1).astype(np.int64)


def combinations(items: int, chosen: int, start: int, stop: int) -> IntArray:
    """Sets ``start..stop-1`` of all sets of ``chosen`` of ``items`` things, ``[stop - start, chosen]``, each ascending.

    In colexicographic order: set number ``k`` with members ``c_1 < c_2 < ...`` has ``k = C(c_1, 1) + C(c_2, 2) + ...``

    >>> combinations(4, 2, 0, 6).tolist()
    [[0, 1], [0, 2], [1, 2], [0, 3], [1, 3], [2, 3]]
    """
    rank = np.arange(start, stop, dtype=np.int64)
    sets = np.empty((len(rank), chosen), dtype=np.int64)
    for place in range(chosen, 0, -1):
        table = np.array([min(comb(item, place), _MOST_CALLS) for item in range(items + 1)], dtype=np.int64)
        sets[:, place - 1] = np.searchsorted(table, rank, side="right") - 1
        rank = rank - table[sets[:, place - 1]]
    return sets
