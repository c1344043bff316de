"""Voting over hashed sub-graphs: the deterministic rival of smoothing.

    groups = every node pair, by a fixed hash of its two node numbers, in one of T groups     (flipproof.noise.groups)
    votes = the model's label on each of the T sub-graphs                                     (vote)
    prices = what it says after flips inside a group: how many flips another vote costs       (ask)
    certificate = majority and radius that follow from votes and prices                       (certify)

An edge flip changes one sub-graph, hence at most one of T votes. Nothing is random: alpha is 0, and no certificate abstains. With
a single group, the search for prices (:mod:`flipproof.defences.pricing`) is exhaustive verification of the model as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.group_votes import GroupVotes
from flipproof.certificates.prices import MOST_PRICED, Prices
from flipproof.checks import checked_integer
from flipproof.classifiers import DEFAULT_MEMORY
from flipproof.defences.defence import Defence, DefendedClassifier, Run
from flipproof.defences.pricing import DEFAULT_CALLS, PriceSearch, flip_answers, pieces_of_work, priced
from flipproof.defences.target import CopiesTarget, Effort
from flipproof.engines import Engine
from flipproof.errors import InputError
from flipproof.fields import option
from flipproof.graphs import Graph, IntArray, slots_of_pairs
from flipproof.noise import EdgeGroups, EdgeNoise, keyed_draws
from flipproof.noise.groups import GROUPS
from flipproof.progress import Progress


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
        votes, work = self.votes(classifier, graph), partial(flip_answers, classifier, graph, self.groups)
        while pieces := pieces_of_work(request.next_levels(votes)):
            answers = run(work, pieces)
            pairs = (pair for piece in zip(pieces, answers, strict=True) for pair in zip(*piece, strict=True))
            votes = priced(votes, pairs)
        return votes

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
                    differing = base.recheck(batch, labels[-1], np.array([place]))
        kept = np.concatenate(labels).astype(np.min_scalar_type(classifier.num_classes - 1))
        cast = kept, graph, self.groups, classifier.num_classes
        return GroupVotes(*cast, feature_groups=self.feature_groups, differing=differing)

    def answer(self, classifier: DefendedClassifier, graph: Graph) -> int:
        classifier.check([graph])
        return int(self.votes(classifier, graph).counts.argmax())

    def best(self, graph: Graph, request: PriceSearch, num_classes: int) -> Certificate | None:
        if request.depth is None and self.feature_groups == 1:
            return None
        count, depth = self.groups.count * self.feature_groups, request.depth or 0
        prices = None if self.feature_groups > 1 else Prices.none(count)
        if prices is not None and count <= MOST_PRICED:  # every set of so many flips was tried, and none changed a vote
            prices = Prices(prices.depths + depth, prices.tried, prices.ways)
        cast = np.zeros(count, dtype=np.min_scalar_type(num_classes - 1)), graph, self.groups, num_classes
        return GroupVotes(*cast, prices, feature_groups=self.feature_groups).certify(depth=request.depth)

    def target(self, classifier: DefendedClassifier, graph: Graph, effort: Effort) -> VotingTarget:
        return VotingTarget(classifier, graph, effort)


class VotingClassifier(DefendedClassifier):
    """A graph classifier made robust by a majority vote over hashed sub-graphs; wraps any model.

    The hash reads node numbers, which must be fixed before an attacker can act, and should not depend on the class.

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
        return self._certificates(self.graphs_of(graphs), PriceSearch(depth, calls), progress, workers, engine)

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

    copies_are, remedy = "groups", "attack smaller graphs"

    def __init__(self, defended: DefendedClassifier, graph: Graph, effort: Effort) -> None:
        self.voting = cast(Voting, defended.defence)
        self.cost = self.voting.groups.count * self.voting.feature_groups
        super().__init__(defended, graph, effort)

    def _copies(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        graph, groups = self.graph, self.voting.groups
        kept = groups.of_slots(graph.slots, graph.num_nodes) == np.arange(self.cost)[:, None] % groups.count
        return np.zeros_like(kept), kept

    def features_of(self, graph: Graph) -> Any:
        groups, number = self.voting.groups, self.voting.feature_groups
        if number == 1:
            return None
        shown = [np.array(part.node_features) for part in groups.shown(graph, number)]
        return np.stack(shown).repeat(groups.count, axis=0)

    def _fooled(self, counts: NDArray[np.float64], margins: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.asarray(counts.argmax(axis=1) != self.label)

    def known(self) -> IntArray:
        left, attack = DEFAULT_CALLS if self.max_calls is None else self.max_calls - self.calls, None
        if left >= self.cost:
            votes = self.voting.ask(self.defended, self.graph, PriceSearch(calls=left))
            self.calls += votes.calls
            attack = votes.attack()
        if attack is None:
            return super().known()
        return np.searchsorted(self.graph.slots, slots_of_pairs(attack, self.graph.num_nodes))[None]
