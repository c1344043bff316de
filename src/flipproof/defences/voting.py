"""Voting over hashed sub-graphs: the deterministic rival of smoothing.

    groups = every node pair, by a fixed hash of its two node numbers, in one of T groups     (flipproof.noise.groups)
    votes = the model's label on each of the T sub-graphs                                     (vote)
    prices = what it says after flips inside a group: how many flips another vote costs       (ask)
    certificate = majority and radius that follow from votes and prices                       (certify)

An edge flip changes one sub-graph, hence at most one of T votes. Nothing is random: alpha is 0, and no certificate abstains. With
a single group, the search for prices is exhaustive verification of the model as it is. The search goes in rounds: each looks for
the cheapest purchase that would change the majority (:func:`flipproof.certificates.prices.cheapest_purchase`), and searches the
groups in it whose price is not known one flip deeper, until the radius is decided, or depth or budget allow no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.group_votes import GroupVotes
from flipproof.certificates.prices import MOST_PRICED, Prices
from flipproof.checks import checked_integer
from flipproof.classifiers import DEFAULT_MEMORY, Classifier
from flipproof.defences.defence import Defence, DefendedClassifier, Progress, Request, Run, label_dtype
from flipproof.defences.target import CopiesTarget, Effort
from flipproof.engines import Engine
from flipproof.errors import InputError
from flipproof.fields import option
from flipproof.graphs import Graph, IntArray, slots_of_pairs
from flipproof.noise import EdgeGroups, EdgeNoise, keyed_draws
from flipproof.noise.groups import GROUPS

DEFAULT_CALLS = 4096  # model calls per graph where neither depth nor budget is given
CHUNK = 1024  # sets of flips in a piece of work
_WAVE = 16 * CHUNK  # sets of flips after which a search looks again
_MOST = 2**40  # sets of flips of one size beyond which no group is searched
_MOST_CALLS = 2**62
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
        candidates: list[tuple[int, Level]] = []
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
        return isinstance(evidence, GroupVotes) and not self.next_levels(evidence)

    @property
    def reading(self) -> dict[str, Any]:
        return {"depth": self.depth}

    @property
    def other_readings(self) -> dict[str, dict[str, Any]]:
        return {"voting, counts alone": {"depth": 0}}

    def readings(self, evidence: Any) -> dict[str, Certificate]:
        return {} if self.depth == 0 or evidence.feature_groups > 1 else super().readings(evidence)


def prices_of(votes: GroupVotes, answers: Mapping[Level, IntArray]) -> GroupVotes:
    """The votes with the prices that the answers show; chunks of a level must be there from the first on, without gaps."""
    if not answers:
        return votes
    sizes = votes.room[0] + votes.room[1]
    tried: dict[tuple[int, int], int] = {}
    rows = list[IntArray]()
    for level, other_answers in sorted(answers.items(), key=lambda item: (item[0].flips, item[0].group, item[0].start)):
        at = (level.group, level.flips)
        if tried.get(at, 0) != level.start:
            raise InputError(f"flips of group {level.group} are missing before number {level.start} (certify it again)")
        tried[at] = level.stop
        other_answers = other_answers[other_answers[:, 0] != int(votes.labels[level.group])]
        rows.append(np.concatenate([np.full((len(other_answers), 1), level.group), other_answers], axis=1))
    depths, rest = np.zeros(len(votes), dtype=np.int64), np.zeros(len(votes), dtype=np.int64)
    for (group, flips), count in sorted(tried.items()):
        if flips != depths[group] + 1:
            raise InputError(f"flips of group {group} are missing before sets of {flips} (certify it again)")
        if count == comb(int(sizes[group]), flips):
            depths[group] = flips
        else:
            rest[group] = count
    return replace(votes, prices=Prices.of(depths, rest, rows))


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


@dataclass(frozen=True)
class Voting(Defence):
    """Ask about hashed sub-graphs, and let them vote."""

    name = "voting"
    evidence = GroupVotes
    request = PriceSearch

    groups: EdgeGroups = option(parts=GROUPS)
    feature_groups: int = option(
        "Number of groups of nodes, for voting; each sub-graph shows the node features of one. 1 shows all.",
        1,
        least=1,
        stored=False,
    )

    def __post_init__(self) -> None:
        most = 2**16 // self.groups.count  # sub-graphs
        checked_integer(self.feature_groups, "feature_groups", 1, most, "for instance 3; 1 shows all node features")

    @property
    def trial_noise(self) -> EdgeNoise:
        return EdgeNoise(add=0, remove=1 - 1 / self.groups.count)

    def check(self, classifier: DefendedClassifier, graphs: Sequence[Graph], request: Any = None) -> None:
        if self.feature_groups > 1:
            if request is not None and request.depth:
                raise InputError(
                    f"feature_groups = {self.feature_groups} counts votes and knows no prices; got depth {request.depth} (leave "
                    "depth out, or feature_groups)"
                )
            if not classifier.classifier.reads_own_features or any(graph.node_features is None for graph in graphs):
                raise InputError(
                    "feature_groups needs a model that reads the graphs' own node features; got none (give graphs "
                    "node_features, or leave feature_groups out)"
                )
        super().check(classifier, graphs, request)

    def ask(self, classifier: DefendedClassifier, graph: Graph, request: PriceSearch, run: Run = map) -> GroupVotes:
        votes, answers = self.votes(classifier, graph), dict[Level, IntArray]()
        priced, work = votes, partial(self.flips, classifier, graph)
        while pieces := pieces_of_work(request.next_levels(priced)):
            for piece, rows in zip(pieces, run(work, pieces), strict=True):
                answers |= zip(piece, rows, strict=True)
            priced = prices_of(votes, answers)
        return priced

    def votes(self, classifier: DefendedClassifier, graph: Graph) -> GroupVotes:
        (base, size), count = classifier.suited(graph), self.groups.count
        base.prepare()
        total = count * self.feature_groups
        # one sub-graph is asked about again, alone: a guard against models whose answers depend on the batch
        again = int(keyed_draws(f"alone {graph.topology}", self.groups.key % 2**63, total, (1,))[0]) % total
        labels, differing = [], 0
        for number, shown in enumerate(self.groups.shown(graph, self.feature_groups)):
            for start in range(0, count, size):
                batch, place = self.groups.batch(shown, start, min(start + size, count)), again - number * count - start
                labels.append(base.labels(batch))
                if 0 <= place < batch.size:
                    compared = batch, labels[-1], np.array([place])
                    base.recheck(*compared)
                    differing = base.differing(*compared)
        kept = np.concatenate(labels).astype(label_dtype(classifier.num_classes))
        return self._evidence(kept, graph, classifier.num_classes, differing=differing)

    def _evidence(self, labels: Any, graph: Graph, num_classes: int, **rest: Any) -> GroupVotes:
        return GroupVotes(labels, graph, self.groups, num_classes, feature_groups=self.feature_groups, **rest)

    def flips(self, classifier: DefendedClassifier, graph: Graph, levels: tuple[Level, ...]) -> list[IntArray]:
        base, size = classifier.suited(graph)
        base.prepare()
        return flip_answers(base, graph, self.groups, levels, size=size)

    def answer(self, classifier: DefendedClassifier, graph: Graph) -> int:
        classifier.check([graph])
        return int(self.votes(classifier, graph).counts.argmax())

    def made(self, evidence: Any, num_classes: int) -> bool:
        same = super().made(evidence, num_classes) and evidence.groups == self.groups
        return same and evidence.feature_groups == self.feature_groups

    def best(self, graph: Graph, request: PriceSearch, num_classes: int) -> Certificate | None:
        if request.depth is None and self.feature_groups == 1:
            return None
        count, depth = self.groups.count * self.feature_groups, request.depth or 0
        prices = None if self.feature_groups > 1 else Prices.none(count)
        if prices is not None and count <= MOST_PRICED:  # every set of so many flips was tried, and none changed a vote
            prices = Prices(prices.depths + depth, prices.tried, prices.ways)
        labels = np.zeros(count, dtype=label_dtype(num_classes))
        return self._evidence(labels, graph, num_classes, prices=prices).certify(depth=request.depth)

    def target(self, classifier: DefendedClassifier, graph: Graph, effort: Effort) -> VotingTarget:
        return VotingTarget(self, classifier, graph, effort)


class VotingClassifier(DefendedClassifier):
    """A graph classifier made robust by a majority vote over hashed sub-graphs; wraps any model.

    The hash reads node numbers, which must be given before an attacker has a say, and should say nothing about the class.

    Args:
        model: As for :class:`flipproof.SmoothedClassifier`; best trained on sub-graphs, :func:`flipproof.train_voting`.
        groups: Number of groups ``T``, or the :class:`flipproof.EdgeGroups` themselves; one is the model itself.
        feature_groups: Number of groups ``S`` of nodes. Each of ``S T`` sub-graphs shows the node features of one group and zeros
            at all other nodes, so that the certificate covers changed node features too: ``feature_radius`` and ``grid``.
        num_classes, features, convention, trust_features, memory, edge_features: See
            :class:`flipproof.defences.defence.DefendedClassifier`; features are computed on every *sub-graph*.

    >>> def has_edge(graphs):
    ...     return [int(graph.num_edges > 0) for graph in graphs]
    >>> voting = VotingClassifier(has_edge, groups=5, num_classes=2)
    >>> complete = Graph(6, [(u, v) for u in range(6) for v in range(u)])
    >>> voting.vote(complete).labels.tolist()
    [1, 1, 1, 1, 1]
    >>> voting.certify(complete, depth=0).radius  # three votes of five, for one flip each
    2
    >>> voting.certify(complete).radius  # but a vote changes only when all edges of its group are gone
    6
    """

    defence_name = "voting"
    defence: Voting

    def __init__(
        self,
        model: Any,
        groups: int | EdgeGroups,
        *,
        feature_groups: int = 1,
        num_classes: int | None = None,
        features: Any = None,
        convention: str | None = None,
        trust_features: bool = False,
        memory: int = DEFAULT_MEMORY,
        edge_features: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        defence = Voting(groups if isinstance(groups, EdgeGroups) else EdgeGroups(groups), feature_groups)
        options = (num_classes, features, convention, trust_features, memory, edge_features)
        super().__init__(model, defence, *options)

    @property
    def groups(self) -> EdgeGroups:
        return self.defence.groups

    def certify(self, graph: Any, *, depth: int | None = None, calls: int | None = None) -> Certificate:
        """The majority on a graph, and the number of edge flips that it withstands, with certainty.

        Args:
            graph: A :class:`Graph`, PyG ``Data``, networkx graph or adjacency matrix.
            depth: Largest number of flips that are tried together inside a group; 0 counts votes alone (GNNCert). By default as
                many as ``calls`` allows.
            calls: Largest number of model calls per graph, 4,096 by default, or any number if ``depth`` is given. Sets of flips
                of one size in a group are tried only if all of them fit.
        """
        return self._certificate(self.graph_of(graph), PriceSearch(depth, calls))

    def certify_all(
        self,
        graphs: Iterable[Any],
        *,
        depth: int | None = None,
        calls: int | None = None,
        progress: Progress = False,
        workers: int | None = None,
        engine: Engine | None = None,
    ) -> list[Certificate]:
        """As :meth:`certify`, for each graph in order; see also :meth:`DefendedClassifier.certify_all`."""
        where: dict[str, Any] = {"progress": progress, "workers": workers, "engine": engine}
        return self._certificates(self.graphs_of(graphs), PriceSearch(depth, calls), **where)

    def vote(self, graph: Any) -> GroupVotes:
        """The model's label on every sub-graph."""
        return self.price(graph, depth=0)

    def price(self, graph: Any, *, depth: int | None = None, calls: int | None = None) -> GroupVotes:
        """The votes and what they cost, with the arguments of :meth:`certify`; :func:`flipproof.certify_group_votes` reads them.

        ``purchase()`` of the result says what an attacker would buy, and ``attack()`` which pairs that attacker would flip.
        """
        votes: GroupVotes = self._evidence(self.graph_of(graph), PriceSearch(depth, calls))
        return votes


class VotingTarget(CopiesTarget):
    """The majority over hashed sub-graphs: copy ``t`` keeps the edges of group ``t``. Exact; ties go to the smaller label."""

    def __init__(self, voting: Voting, defended: DefendedClassifier, graph: Graph, effort: Effort) -> None:
        self.voting, count = voting, voting.groups.count * voting.feature_groups
        super().__init__(defended, graph, effort, copies=count, what="groups", remedy="attack smaller graphs")

    def _copies(self, graph: Graph) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        groups = self.voting.groups
        kept = groups.of_slots(graph.slots, graph.num_nodes) == np.arange(self.cost)[:, None] % groups.count
        return np.zeros_like(kept), kept

    def features_of(self, graph: Graph) -> NDArray[Any] | None:
        groups, number = self.voting.groups, self.voting.feature_groups
        if number == 1:
            return None
        shown = [np.array(part.node_features) for part in groups.shown(graph, number)]
        return np.stack(shown).repeat(groups.count, axis=0)

    def _fooled(self, counts: NDArray[np.float64], margins: NDArray[np.float64]) -> NDArray[np.bool_]:
        fooled: NDArray[np.bool_] = counts.argmax(axis=1) != self.label
        return fooled

    def known(self) -> IntArray:
        left = DEFAULT_CALLS if self.max_calls is None else self.max_calls - self.calls
        if left < self.cost:
            return super().known()
        votes = self.voting.ask(self.defended, self.graph, PriceSearch(calls=left))
        self.calls += votes.calls
        attack = votes.attack()
        if attack is None:
            return super().known()
        return np.searchsorted(self.graph.slots, slots_of_pairs(attack, self.graph.num_nodes))[None]
