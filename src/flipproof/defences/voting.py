"""Voting over hashed sub-graphs: the deterministic rival of smoothing.

    groups = every node pair, by a fixed hash of its two node numbers, in one of T groups     (flipproof.noise.groups)
    votes = the model's label on each of the T sub-graphs                                     (vote)
    prices = what it says after flips inside a group: how many flips another vote costs       (flipproof.defences.pricing)
    certificate = majority and radius that follow from votes and prices                       (certify)

An edge flip changes one sub-graph, hence at most one of T votes. Nothing is random: alpha is 0, and no certificate abstains. With
a single group, the search for prices is exhaustive verification of the model as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.group_votes import GroupVotes, certify_group_votes
from flipproof.certificates.prices import MOST_PRICED, Prices
from flipproof.classifiers import DEFAULT_MEMORY
from flipproof.defences.defence import Defence, DefendedClassifier, Progress, Run, label_dtype
from flipproof.defences.pricing import DEFAULT_CALLS, Level, PriceSearch, flip_answers, pieces_of_work, prices_of
from flipproof.defences.target import CopiesTarget, Effort
from flipproof.engines import Engine
from flipproof.errors import InputError
from flipproof.fields import Option, Parts, option
from flipproof.graphs import Graph, IntArray, as_graph, as_graphs, slots_of_pairs
from flipproof.noise import EdgeNoise, keyed_draws
from flipproof.noise.groups import EdgeGroups


def _groups(values: Mapping[str, Any]) -> EdgeGroups:
    if "groups" not in values:
        raise InputError("voting needs a number of groups; got none (for instance groups 5)")
    return EdgeGroups(values["groups"], values.get("key", 0))


_GROUPS = Parts(
    (Option("groups", int, "Number of sub-graphs per graph, for voting.", least=1),),
    plain=lambda groups: {"groups": groups.count} | ({"key": groups.key} if groups.key else {}),
    made=_groups,
    stored=("groups", "key"),
)


@dataclass(frozen=True)
class Voting(Defence):
    """Ask about hashed sub-graphs, and let them vote."""

    name = "voting"
    evidence = GroupVotes
    request = PriceSearch

    groups: EdgeGroups = option(parts=_GROUPS)

    @property
    def trial_noise(self) -> EdgeNoise:
        """Random sub-graphs of the same density."""
        return EdgeNoise(add=0, remove=1 - 1 / self.groups.count)

    def ask(self, classifier: DefendedClassifier, graph: Graph, request: PriceSearch, run: Run = map) -> GroupVotes:
        """The votes, then round by round the flips that decide the radius."""
        votes, answers = self.votes(classifier, graph), dict[Level, IntArray]()
        priced, work = votes, partial(self.flips, classifier, graph)
        while pieces := pieces_of_work(request.next_levels(priced)):
            for piece, rows in zip(pieces, run(work, pieces), strict=True):
                answers |= zip(piece, rows, strict=True)
            priced = prices_of(votes, answers)
        return priced

    def votes(self, classifier: DefendedClassifier, graph: Graph) -> GroupVotes:
        """The votes on a graph that was checked, without prices."""
        base, total = classifier.classifier.suited(graph, self.trial_noise), self.groups.count
        base.prepare()
        size = base.batch_size(graph, self.trial_noise)
        # one sub-graph is asked about again, alone: a guard against models whose answers depend on the batch
        again = int(keyed_draws(f"alone {graph.topology}", self.groups.key % 2**63, total, (1,))[0]) % total
        labels = []
        for start in range(0, total, size):
            batch = self.groups.batch(graph, start, min(start + size, total))
            labels.append(base.labels(batch))
            if start <= again < start + size:
                base.recheck(batch, labels[-1], np.array([again - start]))
        kept = np.concatenate(labels).astype(label_dtype(classifier.num_classes))
        return GroupVotes(kept, graph, self.groups, classifier.num_classes)

    def flips(self, classifier: DefendedClassifier, graph: Graph, levels: tuple[Level, ...]) -> list[IntArray]:
        """What the model says after sets of flips inside groups."""
        base = classifier.classifier.suited(graph, self.trial_noise)
        base.prepare()
        return flip_answers(base, graph, self.groups, levels, size=base.batch_size(graph, self.trial_noise))

    def answer(self, classifier: DefendedClassifier, graph: Graph) -> int:
        classifier.check([graph])
        return int(self.votes(classifier, graph).counts.argmax())

    def made(self, evidence: Any, num_classes: int) -> bool:
        return super().made(evidence, num_classes) and evidence.groups == self.groups

    def best(self, graph: Graph, request: PriceSearch, num_classes: int) -> Certificate | None:
        if request.depth is None:
            return None
        count = self.groups.count
        prices = Prices.none(count)
        if count <= MOST_PRICED:  # every set of so many flips was tried, and none changed a vote
            prices = Prices(prices.depths + request.depth, prices.tried, prices.found)
        labels = np.zeros(count, dtype=label_dtype(num_classes))
        return certify_group_votes(
            GroupVotes(labels, graph, self.groups, num_classes, prices=prices), depth=request.depth
        )

    def target(self, classifier: DefendedClassifier, graph: Graph, effort: Effort) -> VotingTarget:
        return VotingTarget(self, classifier, graph, effort)


class VotingClassifier(DefendedClassifier):
    """A graph classifier made robust by a majority vote over hashed sub-graphs; wraps any model.

    The hash reads node numbers, which must be given before an attacker has a say, and should say nothing about the class.

    Args:
        model: As for :class:`flipproof.SmoothedClassifier`; best trained on sub-graphs, :func:`flipproof.train_voting`.
        groups: Number of groups ``T``, or the :class:`flipproof.EdgeGroups` themselves. More groups make larger radii possible
            and each sub-graph sparser. One group is the model itself, verified exhaustively.
        num_classes, features, convention, trust_features, memory, edge_features: See
            :class:`flipproof.defences.defence.DefendedClassifier`; features are computed on every *sub-graph*.

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

    defence_name = "voting"
    defence: Voting

    def __init__(
        self,
        model: Any,
        groups: int | EdgeGroups,
        *,
        num_classes: int | None = None,
        features: Any = None,
        convention: str | None = None,
        trust_features: bool = False,
        memory: int = DEFAULT_MEMORY,
        edge_features: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        defence = Voting(groups if isinstance(groups, EdgeGroups) else EdgeGroups(groups))
        options = (num_classes, features, convention, trust_features, memory, edge_features)
        super().__init__(model, defence, *options)

    @property
    def groups(self) -> EdgeGroups:
        """The assignment of node pairs."""
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
        return self._certificate(as_graph(graph), PriceSearch(depth, calls))

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
        return self._certificates(as_graphs(graphs), PriceSearch(depth, calls), **where)

    def vote(self, graph: Any) -> GroupVotes:
        """The model's label on every sub-graph."""
        return self.price(graph, depth=0)

    def price(self, graph: Any, *, depth: int | None = None, calls: int | None = None) -> GroupVotes:
        """The votes and what they cost, with the arguments of :meth:`certify`; :func:`flipproof.certify_group_votes` reads them.

        ``purchase()`` of the result says what an attacker would buy, and ``attack()`` which pairs that attacker would flip.
        """
        votes: GroupVotes = self._evidence(as_graph(graph), PriceSearch(depth, calls))
        return votes


class VotingTarget(CopiesTarget):
    """The majority over hashed sub-graphs: copy ``t`` keeps the edges of group ``t``. Exact; ties go to the smaller label."""

    def __init__(self, voting: Voting, defended: DefendedClassifier, graph: Graph, effort: Effort) -> None:
        self.voting, count = voting, voting.groups.count
        super().__init__(defended, graph, effort, copies=count, what="groups", remedy="attack smaller graphs")

    def _copies(self, graph: Graph) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        kept = self.voting.groups.of_slots(graph.slots, graph.num_nodes) == np.arange(self.cost)[:, None]
        return np.zeros_like(kept), kept

    def _fooled(self, counts: NDArray[np.float64], margins: NDArray[np.float64]) -> NDArray[np.bool_]:
        fooled: NDArray[np.bool_] = counts.argmax(axis=1) != self.label
        return fooled

    def known(self) -> IntArray:
        """The cheapest purchase of votes, where all its prices are exact."""
        left = DEFAULT_CALLS if self.max_calls is None else self.max_calls - self.calls
        if left < self.cost:
            return super().known()
        votes = self.voting.ask(self.defended, self.graph, PriceSearch(calls=left))
        self.calls += votes.calls
        attack = votes.attack()
        if attack is None:
            return super().known()
        return np.searchsorted(self.graph.slots, slots_of_pairs(attack, self.graph.num_nodes))[None]
