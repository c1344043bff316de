"""Voting over hashed sub-graphs: the deterministic rival of smoothing.

    groups = every node pair, by a fixed hash of its two node numbers, in one of T groups     (flipproof.noise.groups)
    votes = the model's label on each of the T sub-graphs                                     (vote)
    certificate = majority and radius that follow from the votes                              (certify)

An edge flip changes one sub-graph, hence at most one of T votes. Nothing is random: alpha is 0, and no certificate abstains.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.group_votes import GroupVotes
from flipproof.defences.defence import Defence, Option, label_dtype
from flipproof.defences.target import Confirmation, CopiesTarget, Target, checked_copies
from flipproof.errors import InputError
from flipproof.graphs import Graph, as_graph
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
        model: As for :class:`flipproof.SmoothedClassifier`; best trained on sub-graphs, ``flipproof.train(..., groups=T)``.
        groups: Number of groups ``T``, or the :class:`flipproof.EdgeGroups` themselves. More groups make larger radii possible
            and each sub-graph sparser.
        **wrapped: ``num_classes``, ``features`` (computed on every *sub-graph*), ``convention``, ``trust_features`` and
            ``memory``; see :class:`flipproof.defences.Defence`.

    >>> def has_edge(graphs):
    ...     return [int(graph.num_edges > 0) for graph in graphs]
    >>> voting = VotingClassifier(has_edge, groups=5, num_classes=2)
    >>> complete = Graph(6, [(u, v) for u in range(6) for v in range(u)])
    >>> voting.vote(complete)
    GroupVotes(groups=5, counts=[0, 5])
    >>> voting.certify(complete).radius
    2
    """

    name = "voting"
    evidence_type = GroupVotes
    trait = "voting"
    settings = (Option("groups", int, "Number of sub-graphs per graph, for voting.", least=1),)
    trial_options = (Option("groups", int, "Number of sub-graphs to try; give it several times.", least=1),)
    training_options = (
        Option("renumber", bool, "Hash the nodes under new random numbers in every training step.", False),
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
        return {"groups": groups.count, **({"key": groups.key} if groups.key else {})}

    @classmethod
    def build(cls, model: Any, settings: Mapping[str, Any], **wrapped: Any) -> VotingClassifier:
        return cls(model, EdgeGroups(settings["groups"], settings.get("key", 0)), **wrapped)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, **self.checked({"groups": self.groups.count, "key": self.groups.key})}

    @classmethod
    def title(cls, settings: Mapping[str, Any]) -> str:
        return f"voting {settings['groups']}"

    @classmethod
    def words(cls, settings: Mapping[str, Any]) -> str:
        return f"{settings['groups']} groups"

    @classmethod
    def training(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {"groups": EdgeGroups(settings["groups"], settings.get("key", 0)), "renumber": True}

    @classmethod
    def trained_for(cls, metadata: Mapping[str, Any]) -> dict[str, Any] | None:
        if metadata.get("groups") is not None:
            return cls.checked({"groups": metadata["groups"]})
        return super().trained_for(metadata)

    @classmethod
    def entry(cls, value: Any) -> dict[str, Any]:
        """A number of groups, or a table of settings. A single group certifies nothing that could be compared."""
        settings = super().entry(value if isinstance(value, Mapping) else {"groups": value})
        if settings["groups"] < 2:
            raise InputError(f"groups must be at least 2 in a comparison; got {settings['groups']} (for instance 3)")
        return settings

    @classmethod
    def candidates(cls, graphs: Dataset) -> list[dict[str, Any]]:
        return [{"groups": number} for number in _CANDIDATES]

    def predict(self, graph: Any) -> int:
        """The class with the most votes; ties go to the smaller label."""
        return int(self.vote(graph).counts.argmax())

    def vote(self, graph: Any) -> GroupVotes:
        """The model's label on every sub-graph. Keep it: :func:`flipproof.certify_group_votes` reads the certificate off it."""
        graph = as_graph(graph)
        self.check([graph])
        return self.ask(graph, None)

    def ask(self, graph: Graph, question: Any) -> GroupVotes:
        """The votes on a graph that :meth:`check` has passed."""
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
    def answered(cls, evidence: Any, settings: Mapping[str, Any], num_classes: int) -> bool:
        groups = EdgeGroups(settings["groups"], settings.get("key", 0))
        return super().answered(evidence, settings, num_classes) and evidence.groups == groups

    def target(self, graph: Graph, **search: Any) -> Target:
        return VotingTarget(self, graph, search.get("max_calls"))


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

    def prediction(self) -> int:
        self.calls += self.cost
        return self.voting.predict(self.graph)

    def confirm(self, graph: Graph) -> Confirmation:
        self.calls += self.cost
        counts = self.voting.ask(graph, None).counts
        fooled = bool(counts.argmax() != self.label)
        return Confirmation(fooled, float(self._margins(counts[None] / self.cost)[0]), 0.0 if fooled else 1.0)
