"""Voting over hashed sub-graphs: the deterministic rival of smoothing.

    groups = every node pair, by a fixed hash of its two node numbers, in one of T groups     (flipproof.grouping)
    votes = the model's label on each of the T sub-graphs                                     (vote)
    certificate = majority and radius that follow from the votes                              (certify)

An edge flip changes one sub-graph, hence at most one of T votes. Nothing is random: alpha is 0, and no certificate abstains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.voting import certify_group_votes
from flipproof.classifiers import Classifier
from flipproof.graphs import Graph, as_graph, as_graphs
from flipproof.grouping import EdgeGroups, GroupVotes
from flipproof.noise import EdgeNoise
from flipproof.progress import watched
from flipproof.smoothing import SmoothedClassifier

__all__ = ["VotingClassifier"]


class VotingClassifier:
    """A graph classifier made robust by a majority vote over hashed sub-graphs; wraps any model.

    The hash reads node numbers. Renaming the nodes of a graph makes another partition and may make another answer, so
    numbers must be given before an attacker has a say, and should say nothing about the class.

    Args:
        model: As for :class:`flipproof.SmoothedClassifier`; best trained on sub-graphs, ``flipproof.train(..., groups=T)``.
        groups: Number of groups ``T``, or the :class:`flipproof.EdgeGroups` themselves. More groups make larger radii possible
            and each sub-graph sparser.
        num_classes: Number of classes, also those that never get a vote; by default ``model.num_classes``.
        features: Node features, computed on every *sub-graph*; as for :class:`flipproof.SmoothedClassifier`.
        convention: ``"pyg"``, ``"data"`` or ``"dense"``, where the module's ``forward`` does not tell.
        trust_features: Accept node features that look like the whole graph's degrees.

    >>> def has_edge(graphs):
    ...     return [int(graph.num_edges > 0) for graph in graphs]
    >>> voting = VotingClassifier(has_edge, groups=5, num_classes=2)
    >>> complete = Graph(6, [(u, v) for u in range(6) for v in range(u)])
    >>> voting.vote(complete)
    GroupVotes(groups=5, counts=[0, 5])
    >>> voting.certify(complete).radius
    2
    """

    def __init__(
        self,
        model: Any,
        groups: int | EdgeGroups,
        *,
        num_classes: int | None = None,
        features: Any = None,
        convention: str | None = None,
        trust_features: bool = False,
    ) -> None:
        self.model = model
        self.groups = groups if isinstance(groups, EdgeGroups) else EdgeGroups(groups)
        # random sub-graphs of the same density: what the model is tried on, and what a batch of sub-graphs costs
        self.density = EdgeNoise(add=0, remove=1 - 1 / self.groups.count)
        self._tried = SmoothedClassifier(
            model,
            self.density,
            num_classes=num_classes,
            features=features,
            convention=convention,
            trust_features=trust_features,
        )

    def __repr__(self) -> str:
        name = type(self.model).__name__
        return f"VotingClassifier({name}, groups={self.groups.count}, num_classes={self.num_classes})"

    @property
    def num_classes(self) -> int:
        """Declared classes ``C``."""
        return self._tried.num_classes

    @property
    def classifier(self) -> Classifier:
        """The base classifier."""
        return self._tried.classifier

    def predict(self, graph: Any) -> int:
        """The class with the most votes; of equals the smaller."""
        return int(self.vote(graph).counts.argmax())

    def certify(self, graph: Any) -> Certificate:
        """The majority's answer for a graph, and the number of edge flips it withstands, with certainty.

        The label is :meth:`predict`'s answer for this graph and for every graph at most ``radius`` edge flips away.
        """
        return self.certify_all([graph])[0]

    def certify_all(
        self, graphs: Iterable[Any], *, progress: bool | Callable[[int, int], None] = False
    ) -> list[Certificate]:
        """A certificate for each graph, in their order.

        ``progress=True`` shows a bar on stderr; a function is called with the number of graphs done and their total.
        """
        given = as_graphs(graphs)
        self.check(given)
        certificates = []
        with watched(progress, "certifying", len(given), unit="graphs") as advance:
            for graph in given:
                votes = self.vote_checked(graph)
                certificates.append(certify_group_votes(votes, edge_blind=self.classifier.edge_blind))
                advance(1)
        return certificates

    def vote(self, graph: Any) -> GroupVotes:
        """The model's label on every sub-graph. Keep it: :func:`flipproof.certify_group_votes` reads the certificate off it."""
        graph = as_graph(graph)
        self.check([graph])
        return self.vote_checked(graph)

    def vote_checked(self, graph: Graph) -> GroupVotes:
        """As :meth:`vote`, for a graph that :meth:`check` has passed."""
        classifier = self.classifier.suited(graph, self.density)
        classifier.prepare()
        size, total = classifier.batch_size(graph, self.density), self.groups.count
        labels = [
            classifier.labels(self.groups.batch(graph, start, min(start + size, total)))
            for start in range(0, total, size)
        ]
        kind = np.uint8 if self.num_classes <= 256 else np.uint32
        return GroupVotes(np.concatenate(labels).astype(kind), graph, self.groups, self.num_classes)

    def check(self, graphs: list[Graph]) -> None:
        """Refuse, before any long work, graphs or a model for which certificates would be false or voting fail."""
        self._tried.check(graphs)
