"""The search for the prices of votes: which flips inside which groups a model is asked about next, and what it said.

Each round looks for the cheapest purchase that would change the majority, and searches the groups in it one flip deeper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.group_votes import GroupVotes
from flipproof.certificates.prices import MOST_PRICED, Prices
from flipproof.checks import checked_integer
from flipproof.defences.defence import DefendedClassifier, Request
from flipproof.fields import option
from flipproof.graphs import Graph, IntArray
from flipproof.noise import EdgeGroups, keyed_draws

DEFAULT_CALLS = 4096  # model calls per graph where neither depth nor budget is given
_CHUNK = 1024  # sets of flips in a piece of work
_WAVE = 16 * _CHUNK  # sets of flips after which a search looks again
_MOST = 2**40  # sets of flips of one size beyond which no group is searched
_MOST_CALLS = 2**62
_SPARE = 4  # times the budget that the average group may have, for its pairs to be counted at all


class Level(NamedTuple):
    """Sets of ``flips`` flips inside a group, numbers ``start..stop-1``."""

    group: int
    flips: int
    start: int
    stop: int


def pieces_of_work(levels: Sequence[Level]) -> list[list[Level]]:
    """The levels cut and joined into pieces of work of at most :data:`_CHUNK` sets of flips."""
    pieces, room = list[list[Level]](), 0
    for level in levels:
        for start in range(level.start, level.stop, _CHUNK):
            part = level._replace(start=start, stop=min(start + _CHUNK, level.stop))
            if part.stop - part.start > room:
                pieces.append([])
                room = _CHUNK
            pieces[-1].append(part)
            room -= part.stop - part.start
    return pieces


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
        """The sets of flips to try next; nothing if the radius is decided or may not be looked into further."""
        graph, total = votes.graph, len(votes)
        if self.depth == 0 or total > MOST_PRICED or votes.feature_groups > 1:
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
        candidates = list[tuple[int, Level]]()
        for group in (part.group for part in bought.parts if not part.exact):
            flips, start = int(known.depths[group]) + 1, int(known.tried[group])
            stop = comb(int(sizes[group]), flips)
            if stop <= _MOST and (self.depth is None or flips <= self.depth):
                candidates.append((stop - start, Level(group, flips, start, min(stop, start + _WAVE))))
        chosen, sets = list[Level](), 0
        for whole, level in sorted(candidates, key=lambda pair: (pair[0], pair[1].group)):
            if whole > left or (chosen and sets + level.stop - level.start > _WAVE):
                break
            chosen.append(level)
            sets, left = sets + level.stop - level.start, left - whole
        return chosen

    def fits(self, evidence: Any) -> bool:
        return not self.next_levels(evidence)

    @property
    def reading(self) -> dict[str, Any]:
        return {"depth": self.depth}

    @property
    def other_readings(self) -> dict[str, dict[str, Any]]:
        return {"voting, counts alone": {"depth": 0}}

    def readings(self, evidence: Any) -> dict[str, Certificate]:
        return {} if self.depth == 0 or evidence.feature_groups > 1 else super().readings(evidence)


def priced(votes: GroupVotes, answers: Iterable[tuple[Level, IntArray]]) -> GroupVotes:
    """The votes with what the answers say of their prices, in the order in which the sets of flips were tried."""
    known, sizes = Prices.none(len(votes)) if votes.prices is None else votes.prices, votes.room[0] + votes.room[1]
    depths, tried, rows = known.depths.copy(), known.tried.copy(), [known.ways]
    for (group, flips, _, stop), ways in answers:
        whole = stop == comb(int(sizes[group]), flips)
        depths[group], tried[group] = (flips, 0) if whole else (depths[group], stop)
        ways = ways[ways[:, 0] != int(votes.labels[group])]
        rows.append(np.concatenate([np.full((len(ways), 1), group), ways], axis=1))
    return replace(votes, prices=Prices.of(depths, tried, rows))


def flip_answers(
    defended: DefendedClassifier, graph: Graph, groups: EdgeGroups, levels: Sequence[Level]
) -> list[IntArray]:
    """What the model says after each set of flips of the levels, one row per class and number of additions.

    For each level: class, additions, removals, whether it is said for sure, and the slots of the first such set of flips,
    ``[K, 4 + flips]``. A class that leads but for rounding counts as said, not for sure: another batch may round otherwise.
    """
    (classifier, size), group_of, sets = defended.suited(graph), groups.of_graph(graph), list[IntArray]()
    classifier.prepare()
    for level in levels:
        places = np.flatnonzero(group_of == level.group)
        sets.append(places[combinations(len(places), level.flips, level.start, level.stop)])
    group = np.repeat([level.group for level in levels], [len(rows) for rows in sets])
    width = max(level.flips for level in levels)
    flips = np.concatenate([np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=-1) for rows in sets])
    # one set of flips is asked about again, alone: a guard against models whose answers depend on the rest of the batch
    again = int(keyed_draws(f"alone {graph.topology}", levels[0].group, levels[0].start, (1,))[0]) % max(1, len(flips))
    said = list[NDArray[np.uint8]]()
    for start in range(0, len(flips), size):
        batch = groups.flipped(graph, group[start : start + size], flips[start : start + size])
        said.append(classifier.said(batch))
        if start <= again < start + size:
            classifier.recheck(batch, (said[-1] == 2).argmax(axis=1), np.array([again - start]))
    parts = np.split(np.concatenate(said), np.cumsum([len(rows) for rows in sets])[:-1])
    return [_first_ways(graph, *level) for level in zip(sets, parts, strict=True)]


def _first_ways(graph: Graph, flips: IntArray, said: NDArray[np.uint8]) -> IntArray:
    """The first set of flips for each class that was said and each number of additions; one that is sure, if there is one."""
    row, label = np.nonzero(said)
    sure = (said[row, label] == 2).astype(np.int64)
    adds, size = (~graph.slot_states[flips]).sum(axis=1)[row], flips.shape[1]
    order = np.lexsort((row, -sure, adds, label))
    _, first = np.unique(label[order] * (size + 1) + adds[order], return_index=True)
    row, label, adds, sure = (values[order[first]] for values in (row, label, adds, sure))
    return np.column_stack([label, adds, size - adds, sure, graph.slots[flips[row]]]).astype(np.int64)


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
