"""What is done against edge flips: smoothing, voting, nothing at all, or seeing no edge. One interface for all."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from flipproof.workers import Report

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.methods import certify_votes
from flipproof.graphs import Graph
from flipproof.noise import BLOCK, EdgeNoise

if TYPE_CHECKING:
    from flipproof.certificates.sampled_votes import Votes
    from flipproof.classifiers.features import NodeFeatures
    from flipproof.defences.smoothing import SmoothedClassifier
    from flipproof.models import GraphNetwork

_NO_COPIES = {"copies": 1, "consistency": 0.0}  # without noise all copies of a graph are the same

__all__ = ["Certified", "Defence", "EdgeBlindLine", "Sampling", "Smoothing", "Undefended", "Voting"]


@dataclass(frozen=True)
class Sampling:
    """How certificates are made: samples a graph, failure probability of each, methods read from the same votes, seed."""

    samples: int = 2_000
    alpha: float = 0.001
    methods: tuple[str, ...] = ("influence",)
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Certified:
    """The certificates of some graphs, for each method, and how long they took.

    Attributes:
        certificates: For each method, one certificate a graph.
        seconds: ``sample`` (asking the model) and ``certify`` (the mathematics), for all graphs and methods together; of
            computing time, so that a busy machine does not change them.
    """

    certificates: dict[str, list[Certificate]]
    seconds: dict[str, float]


class Defence(ABC):
    """A way to train a network and to certify its answers. Frozen, hashable, small."""

    line: bool = False
    """Whether it is something to compare with rather than a defence."""

    sampled: bool = False
    """Whether certificates depend on samples, alpha, methods and seed."""

    @property
    @abstractmethod
    def name(self) -> str:
        """For tables, and for names of files."""

    @property
    @abstractmethod
    def options(self) -> tuple[str, ...]:
        """The options of ``flipproof train`` that ask for it."""

    @abstractmethod
    def training(self) -> dict[str, Any]:
        """Arguments of :func:`flipproof.train` that belong to the defence."""

    @abstractmethod
    def certify(
        self,
        model: GraphNetwork,
        graphs: Sequence[Graph],
        *,
        features: NodeFeatures,
        sampling: Sampling,
        report: Report,
    ) -> Certified:
        """Certificates of all graphs."""


@dataclass(frozen=True)
class Smoothing(Defence):
    """Randomized smoothing with one noise."""

    noise: EdgeNoise

    sampled = True

    @property
    def name(self) -> str:
        if self.noise.symmetric:
            return f"keep {1 - self.noise.p_add:.6g}"
        return f"add {self.noise.p_add:.6g} remove {self.noise.p_remove:.6g}"

    @property
    def options(self) -> tuple[str, ...]:
        words = self.name.split()
        return tuple(f"--{word}" if place % 2 == 0 else word for place, word in enumerate(words))

    def training(self) -> dict[str, Any]:
        return {"noise": self.noise}

    def certify(
        self,
        model: GraphNetwork,
        graphs: Sequence[Graph],
        *,
        features: NodeFeatures,
        sampling: Sampling,
        report: Report,
    ) -> Certified:
        from flipproof.defences.smoothing import SmoothedClassifier

        smooth = SmoothedClassifier(model, self.noise, features=features)
        certificates: dict[str, list[Certificate]] = {method: [] for method in sampling.methods}
        seconds = {"sample": 0.0, "certify": 0.0}
        started = time.process_time()
        smooth.check(list(graphs))
        for place, graph in enumerate(graphs):
            report("certifying", place, len(graphs))
            votes = _votes(smooth, graph, sampling.samples, sampling.seed)
            sampled = time.process_time()
            for method in sampling.methods:
                certificates[method].append(certify_votes(votes, alpha=sampling.alpha, method=method))
            seconds["sample"] += sampled - started
            started = time.process_time()
            seconds["certify"] += started - sampled
        return Certified(certificates, seconds)


class _Certain(Defence):
    """A defence of which nothing is sampled: its certificates hold with certainty."""

    method: str

    def certify(
        self,
        model: GraphNetwork,
        graphs: Sequence[Graph],
        *,
        features: NodeFeatures,
        sampling: Sampling,
        report: Report,
    ) -> Certified:
        report("certifying", 0, len(graphs))
        started = time.process_time()
        certificates = self._certificates(model, graphs, features)
        return Certified({self.method: certificates}, {"sample": time.process_time() - started, "certify": 0.0})

    @abstractmethod
    def _certificates(
        self, model: GraphNetwork, graphs: Sequence[Graph], features: NodeFeatures
    ) -> list[Certificate]: ...


@dataclass(frozen=True)
class Voting(_Certain):
    """The majority over sub-graphs that a hash makes; certain, nothing is sampled. Training sees ever new sub-graphs."""

    groups: int

    method = "voting"

    @property
    def name(self) -> str:
        return f"voting {self.groups}"

    @property
    def options(self) -> tuple[str, ...]:
        return ("--groups", str(self.groups), "--renumber")

    def training(self) -> dict[str, Any]:
        return {"groups": self.groups, "renumber": True}

    def _certificates(self, model: GraphNetwork, graphs: Sequence[Graph], features: NodeFeatures) -> list[Certificate]:
        from flipproof.defences.voting import VotingClassifier

        voting = VotingClassifier(model, groups=self.groups, num_classes=model.num_classes, features=features)
        return list(voting.certify_all(graphs))


@dataclass(frozen=True)
class Undefended(_Certain):
    """The network as it is, trained without noise: how accurate one could be if nobody attacked. Certifies no flip."""

    line = True
    method = "none"

    @property
    def name(self) -> str:
        return "clean"

    @property
    def options(self) -> tuple[str, ...]:
        return ()

    def training(self) -> dict[str, Any]:
        return _NO_COPIES

    def _certificates(self, model: GraphNetwork, graphs: Sequence[Graph], features: NodeFeatures) -> list[Certificate]:
        alone = _noiseless(model, features)
        alone.check(list(graphs))
        labels = [int(_votes(alone, graph, 1, 0).labels[0]) for graph in graphs]
        return [
            Certificate(
                label=label,
                radius=0,
                method=self.method,
                alpha=0.0,
                samples=1,
                counts=tuple(np.eye(model.num_classes, dtype=int)[label].tolist()),
                p_lower=1.0,
                p_upper=0.0,
                noise=None,
                num_slots=graph.max_adds + graph.max_removes,
                grid=np.ones((1, 1), dtype=np.bool_),
            )
            for label, graph in zip(labels, graphs, strict=True)
        ]


@dataclass(frozen=True)
class EdgeBlindLine(_Certain):
    """The same network without any edge: right at every radius where it is right at all. The line to beat."""

    line = True
    method = "edge-blind"

    @property
    def name(self) -> str:
        return "edge-blind"

    @property
    def options(self) -> tuple[str, ...]:
        return ("--model", "edge-blind")

    def training(self) -> dict[str, Any]:
        return _NO_COPIES

    def _certificates(self, model: GraphNetwork, graphs: Sequence[Graph], features: NodeFeatures) -> list[Certificate]:
        return _noiseless(model, features).certify_all(graphs)


def _noiseless(model: GraphNetwork, features: NodeFeatures) -> SmoothedClassifier:
    from flipproof.defences.smoothing import SmoothedClassifier

    return SmoothedClassifier(model, EdgeNoise(add=0, remove=0), features=features)


def _votes(smooth: SmoothedClassifier, graph: Graph, samples: int, seed: int) -> Votes:
    """As :meth:`SmoothedClassifier.sample`, for a graph that was checked with its whole data set: one alone proves nothing."""
    starts = range(0, samples, BLOCK)
    blocks = [smooth.sample_block(graph, start, samples=samples, seed=seed) for start in starts]
    return smooth.votes_of(graph, blocks, seed=seed)
