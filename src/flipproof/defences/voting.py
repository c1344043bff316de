"""Voting over hashed sub-graphs: the deterministic rival of smoothing.

    groups = every node pair, by a fixed hash of its two node numbers, in one of T groups     (flipproof.noise.groups)
    votes = the model's label on each of the T sub-graphs                                     (vote)
    prices = what it says after flips inside a group: how many flips another vote costs       (flipproof.defences.pricing)
    certificate = majority and radius that follow from votes and prices                       (certify)

An edge flip changes one sub-graph, hence at most one of T votes. Nothing is random: alpha is 0, and no certificate abstains. With
a single group, the sub-graph is the graph, and the search for prices is exhaustive verification of the model as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import count as count_from
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.group_majority import certify_group_votes
from flipproof.certificates.group_votes import GroupVotes
from flipproof.certificates.prices import MOST_PRICED, Prices
from flipproof.defences.asking import ask_all
from flipproof.defences.defence import Defence, Option, Request, label_dtype
from flipproof.defences.pricing import DEFAULT_CALLS, Level, PricedQuestion, flip_answers, pieces_of_work, prices_of
from flipproof.defences.target import Confirmation, CopiesTarget, Target, checked_copies
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray, as_graph, slots_of_pairs
from flipproof.noise import EdgeNoise, keyed_draws
from flipproof.noise.groups import EdgeGroups

if TYPE_CHECKING:
    from flipproof.datasets import Dataset

__all__ = ["VotingClassifier"]

_CANDIDATES = (3, 10)


class VotingClassifier(Defence):
    """A graph classifier made robust by a majority vote over hashed sub-graphs; wraps any model.

    The hash reads node numbers. Renaming the nodes of a graph makes another partition and may make another answer, so
    numbers must be given before an attacker has a say, and should say nothing about the class.

    Args:
        model: As for :class:`flipproof.SmoothedClassifier`; best trained on sub-graphs, :func:`flipproof.train_voting`.
        groups: Number of groups ``T``, or the :class:`flipproof.EdgeGroups` themselves. More groups make larger radii possible
            and each sub-graph sparser. One group is the model itself, verified exhaustively.
        **wrapped: ``num_classes``, ``features`` (computed on every *sub-graph*), ``convention``, ``trust_features`` and
            ``memory``; see :class:`flipproof.defences.Defence`.

    >>> def has_edge(graphs):
    ...     return [int(graph.num_edges > 0) for graph in graphs]
    >>> voting = VotingClassifier(has_edge, groups=5, num_classes=2)
    >>> complete = Graph(6, [(u, v) for u in range(6) for v in range(u)])
    >>> voting.vote(complete)
    GroupVotes(groups=5, counts=[0, 5])
    >>> voting.certify(complete, depth=0).radius  # three votes of five, for one flip each
    2
    >>> voting.certify(complete).radius  # but a vote changes only when all edges of its group are gone
    6
    """

    name = "voting"
    tried_where_asked = True
    evidence_type = GroupVotes
    question_type = PricedQuestion
    trait = "voting"
    references = ("xia2024gnncert", "hammoudeh2023reducing")
    settings = (Option("groups", int, "Number of sub-graphs per graph, for voting.", least=1),)
    trial_options = (Option("groups", int, "Number of sub-graphs to try; give it several times.", least=1),)
    training_options = (
        Option("renumber", bool, "Hash the nodes under new random numbers in every training step.", False),
        Option(
            "flips", int, "Number of flips inside a sub-graph to train against; raises the price of votes.", 0, least=0
        ),
        Option("worst_of", int, "Number of variants with flips, of which training takes the worst.", 4, least=2),
    )

    asking = (
        Option(
            "depth",
            int,
            "Largest number of flips that are tried together to learn what a vote costs; 0 counts votes alone. By default as "
            "many as --calls allows.",
            least=0,
        ),
        Option(
            "calls",
            int,
            f"Largest number of model calls per graph; by default {DEFAULT_CALLS:,}, or any number if --depth is given.",
            least=1,
        ),
    )

    def __init__(self, model: Any, groups: int | EdgeGroups, **wrapped: Any) -> None:
        self.groups = groups if isinstance(groups, EdgeGroups) else EdgeGroups(groups)
        super().__init__(model, **wrapped)

    @cached_property
    def noise(self) -> EdgeNoise:
        """Random sub-graphs of the same density: what the model is tried on, and what a batch of sub-graphs costs."""
        return EdgeNoise(add=0, remove=1 - 1 / self.groups.count)

    @classmethod
    def checked(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        if given.get("groups") is None:
            raise InputError("voting needs a number of groups; got none (for instance groups 5)")
        groups = EdgeGroups(given["groups"], given.get("key", 0))
        # flips are no part of the classifier: they say how its model was trained
        flips = given.get("flips")
        return {
            "groups": groups.count,
            **({"key": groups.key} if groups.key else {}),
            **({"flips": int(flips)} if flips else {}),
        }

    @classmethod
    def build(cls, model: Any, settings: Mapping[str, Any], **wrapped: Any) -> VotingClassifier:
        return cls(model, EdgeGroups(settings["groups"], settings.get("key", 0)), **wrapped)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, **self.checked({"groups": self.groups.count, "key": self.groups.key})}

    @classmethod
    def title(cls, settings: Mapping[str, Any]) -> str:
        return f"voting {settings['groups']}" + (f" flips {settings['flips']}" if settings.get("flips") else "")

    @classmethod
    def words(cls, settings: Mapping[str, Any]) -> str:
        groups, flips = settings["groups"], settings.get("flips")
        against = f", against {flips} flip{'s' * (flips > 1)}" if flips else ""
        return f"{groups} group{'s' * (groups > 1)}{against}"

    @classmethod
    def training(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        flips = {"flips": settings["flips"]} if settings.get("flips") else {}
        groups = EdgeGroups(settings["groups"], settings.get("key", 0))
        return {"groups": groups, "renumber": groups.count > 1, **flips}

    @classmethod
    def trained_for(cls, metadata: Mapping[str, Any]) -> dict[str, Any] | None:
        if metadata.get("groups") is not None:
            return cls.checked({"groups": metadata["groups"]})
        return super().trained_for(metadata)

    @classmethod
    def entry(cls, value: Any) -> dict[str, Any]:
        """A number of groups, or a table that may also say how many flips to train against."""
        given = value if isinstance(value, Mapping) else {"groups": value}
        if given.keys() - {"groups", "flips"}:
            raise InputError(f"voting takes a number of groups, or tables with groups and flips; got {value!r}")
        return cls.checked(given)

    @classmethod
    def effect(cls, settings: Mapping[str, Any], graphs: Dataset) -> str:
        groups = settings["groups"]
        most = (groups - 1) // 2
        vote = f"the vote of {groups} sub-graphs alone withstands at most {most} flip{'s' * (most != 1)}; "
        return f"{vote if groups > 1 else ''}prices (--depth) decide how many"

    @classmethod
    def candidates(cls, graphs: Dataset) -> list[dict[str, Any]]:
        plain = [{"groups": number} for number in _CANDIDATES]
        return [*plain, *({"groups": number, "flips": 1} for number in (1, _CANDIDATES[0]))]

    @classmethod
    def candidates_against(cls, graphs: Dataset, attack: int | tuple[int, int]) -> list[dict[str, Any]]:
        """Twice as many groups as flips, and more, plain; few groups where prices must carry it."""
        flips = sum(attack) if isinstance(attack, tuple) else attack
        plain = [{"groups": number} for number in (2 * flips + 1, 4 * flips + 1) if number > 1]
        return [*plain, *({"groups": number, "flips": 1} for number in (1, _CANDIDATES[0]))]

    def predict(self, graph: Any) -> int:
        """The class with the most votes; ties go to the smaller label."""
        graph = as_graph(graph)
        self.check([graph])
        return int(self.ask(graph, None).counts.argmax())

    def certify(self, graph: Any, **asked: Any) -> Certificate:
        """The majority on a graph, and the number of edge flips that it withstands, with certainty.

        No attack of at most ``radius`` flips changes the answer. The radius follows from the votes and from what each of them
        costs: the model is asked about sub-graphs with flips inside their group, those first that decide the radius.

        Args:
            graph: A :class:`Graph`, PyG ``Data``, networkx graph or adjacency matrix.
            **asked: ``depth``: largest number of flips that are tried together inside a group; 0 counts votes alone (GNNCert).
                By default as many as ``calls`` allows. ``calls``: largest number of model calls per graph, 4,096 by default, or
                any number if ``depth`` is given. Sets of flips of one size in a group are tried only if all of them fit.
        """
        return super().certify(graph, **asked)

    def vote(self, graph: Any) -> GroupVotes:
        """The model's label on every sub-graph. Keep it: :func:`flipproof.certify_group_votes` reads the certificate off it."""
        return self.price(graph, depth=0)

    def price(self, graph: Any, *, depth: int | None = None, calls: int | None = None) -> GroupVotes:
        """The votes, with what is found out about the price of each; the arguments are those of :meth:`certify`.

        Keep it: :func:`flipproof.certify_group_votes` reads the certificate off it, at this depth or any smaller one; its
        ``purchase()`` says what an attacker would buy, and its ``attack()`` which pairs that attacker would flip.
        """
        graph, question = as_graph(graph), self.question(depth=depth, calls=calls)
        self.check([graph])
        ((_, votes, _),) = ask_all(self, question, {0: graph}, read=False)
        assert isinstance(votes, GroupVotes)
        return votes

    # ---- asking, round by round ----

    def tasks(self, graph: Graph, question: PricedQuestion, pieces: Mapping[str, bytes]) -> list[Request]:
        """The votes, then round by round the flips that decide the radius."""
        if _VOTES not in pieces:
            return [Request(_VOTES)]
        there = Counter(_round_of(key) for key in pieces if key != _VOTES)
        complete = {number for (number, size), count in there.items() if count == size}
        number = next(each for each in count_from(1) if each not in complete)
        # of a round that a kill or a damaged file left incomplete, some pieces are there; those of later rounds stay valid
        before = {key: piece for key, piece in pieces.items() if key == _VOTES or _round_of(key)[0] < number}
        return [request for request in self._round(graph, question, before, number) if request.key not in pieces]

    def _round(self, graph: Graph, question: PricedQuestion, pieces: Mapping[str, bytes], number: int) -> list[Request]:
        """What a round asks, given all pieces of the rounds before it."""
        work = pieces_of_work(question.next_levels(self.evidence(graph, question, pieces)))
        return [Request(_key(number, len(work), levels)) for levels in work]

    def work(self, graph: Graph, question: PricedQuestion, request: Request) -> bytes:
        if request.key == _VOTES:
            return self.ask(graph, question).labels.astype("<u4").tobytes()
        classifier = self.classifier.suited(graph, self.noise)
        classifier.prepare()
        size = classifier.batch_size(graph, self.noise)
        found = flip_answers(classifier, graph, self.groups, _levels_of(request.key), size=size)
        return b"".join(np.append(len(rows), rows.ravel()).astype("<i8").tobytes() for rows in found)

    def evidence(self, graph: Graph, question: PricedQuestion, pieces: Mapping[str, bytes]) -> GroupVotes:
        labels = np.frombuffer(pieces[_VOTES], dtype="<u4").astype(label_dtype(self.num_classes))
        votes = GroupVotes(labels, graph, self.groups, self.num_classes)
        answers: dict[Level, IntArray] = {}
        for key, piece in pieces.items():
            if key == _VOTES:
                continue
            numbers, start = np.frombuffer(piece, dtype="<i8").astype(np.int64), 0
            for level in _levels_of(key):
                stop = start + 1 + int(numbers[start]) * (4 + level.flips)
                answers[level] = numbers[start + 1 : stop].reshape(-1, 4 + level.flips)
                start = stop
        return prices_of(votes, answers)

    def ask(self, graph: Graph, question: Any) -> GroupVotes:
        """The votes on a graph that :meth:`check` has passed, without prices."""
        classifier = self.classifier.suited(graph, self.noise)
        classifier.prepare()
        size, total = classifier.batch_size(graph, self.noise), self.groups.count
        # one sub-graph is asked about again, alone: a guard against models that mind their company
        again = int(keyed_draws(f"alone {graph.topology}", self.groups.key % 2**63, total, (1,))[0]) % total
        labels = []
        for start in range(0, total, size):
            batch = self.groups.batch(graph, start, min(start + size, total))
            labels.append(classifier.labels(batch))
            if start <= again < start + size:
                classifier.asked_alone(batch, labels[-1], np.array([again - start]))
        return GroupVotes(
            np.concatenate(labels).astype(label_dtype(self.num_classes)), graph, self.groups, self.num_classes
        )

    @classmethod
    def best(
        cls, graph: Graph, question: PricedQuestion, settings: Mapping[str, Any], num_classes: int
    ) -> Certificate | None:
        if question.depth is None:
            return None
        groups = EdgeGroups(settings["groups"], settings.get("key", 0))
        labels = np.zeros(groups.count, dtype=label_dtype(num_classes))
        prices = Prices.none(groups.count)
        if groups.count <= MOST_PRICED:  # every set of so many flips was tried, and none changed a vote
            prices = Prices(prices.depths + question.depth, prices.tried, prices.found)
        return certify_group_votes(GroupVotes(labels, graph, groups, num_classes, prices=prices), depth=question.depth)

    @classmethod
    def answered(cls, evidence: Any, settings: Mapping[str, Any], num_classes: int) -> bool:
        groups = EdgeGroups(settings["groups"], settings.get("key", 0))
        return super().answered(evidence, settings, num_classes) and evidence.groups == groups

    def target(self, graph: Graph, **search: Any) -> Target:
        return VotingTarget(self, graph, search.get("max_calls"))


_VOTES = "votes"


def _key(number: int, size: int, levels: Sequence[Level]) -> str:
    """Names a piece of work: the round, its number of pieces, and the sets of flips."""
    parts = ", ".join(f"{each.group} {each.flips} {each.start} {each.stop}" for each in levels)
    return f"{number}/{size}: {parts}"


def _round_of(key: str) -> tuple[int, int]:
    number, _, size = key.partition(":")[0].partition("/")
    return int(number), int(size)


def _levels_of(key: str) -> list[Level]:
    return [Level(*map(int, each.split())) for each in key.partition(":")[2].split(",")]


class VotingTarget(CopiesTarget):
    """The majority over hashed sub-graphs: copy ``t`` keeps the edges of group ``t``. Exact; ties go to the smaller label."""

    def __init__(self, voting: VotingClassifier, graph: Graph, max_calls: int | None) -> None:
        self.voting = voting
        checked_copies(voting.groups.count, graph, "groups", "attack smaller graphs")
        voting.check([graph])
        group = voting.groups.of_slots(graph.slots, graph.num_nodes)
        self.if_edge = group == np.arange(voting.groups.count)[:, None]
        self.if_empty = np.zeros_like(self.if_edge)
        super().__init__(voting.classifier, graph, voting.noise, max_calls)

    def _fooled(self, counts: NDArray[np.float64], margins: NDArray[np.float64]) -> NDArray[np.bool_]:
        fooled: NDArray[np.bool_] = counts.argmax(axis=1) != self.label
        return fooled

    def known(self) -> IntArray:
        """The cheapest purchase of votes, where all its prices are exact."""
        left = DEFAULT_CALLS if self.max_calls is None else self.max_calls - self.calls
        if left < self.cost:
            return super().known()
        votes = self.voting.price(self.graph, calls=left)
        self.calls += votes.calls
        attack = votes.attack()
        if attack is None:
            return super().known()
        return np.searchsorted(self.graph.slots, slots_of_pairs(attack, self.graph.num_nodes))[None]

    def prediction(self) -> int:
        self.calls += self.cost
        return self.voting.predict(self.graph)

    def confirm(self, graph: Graph) -> Confirmation:
        self.calls += self.cost
        counts = self.voting.ask(graph, None).counts
        fooled = bool(counts.argmax() != self.label)
        return Confirmation(fooled, float(self._margins(counts[None] / self.cost)[0]), 0.0 if fooled else 1.0)
