"""What is asked about noisy copies of a graph: how many, and how the votes are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.sampled_votes import (
    DEFAULT_METHOD,
    METHODS,
    Votes,
    certify_votes,
    checked_method,
    unanimous_certificate,
)
from flipproof.certificates.vote_share import checked_alpha, label_pvalue
from flipproof.checks import checked_samples, checked_seed
from flipproof.classifiers import Classifier
from flipproof.defences.defence import Request
from flipproof.errors import InputError
from flipproof.fields import Option, Parts, option
from flipproof.graphs import Graph
from flipproof.noise import BLOCK, EdgeNoise, keyed_draws

NOISE_PARTS = Parts(
    (
        Option("keep", float, "Probability that a node pair keeps its state (the paper's beta)."),
        Option("add", float, "Probability that an empty node pair gains an edge."),
        Option("remove", float, "Probability that an edge is lost."),
    ),
    plain=lambda noise: {"add": noise.p_add, "remove": noise.p_remove},
    made=lambda values: EdgeNoise(**values),
    stored=("keep", "add", "remove"),
)


@dataclass(frozen=True)
class Sampling(Request):
    """How many noisy copies of every graph are asked about, and how the votes are read.

    Attributes:
        samples: Number of noisy copies.
        alpha: Failure probability of each certificate, or of all together.
        simultaneous: Whether alpha holds for all graphs at once.
        method: How the votes are read.
        seed: Seed of the noise; ``None`` for a fresh one.
        graphs: Number of graphs that share alpha, if it holds for all at once.
    """

    samples: int = option("Number of noisy copies per graph.", 10_000, least=1)
    alpha: float = option("Failure probability of each certificate.", 0.001)
    simultaneous: bool = option("Let alpha hold for all graphs at once: each graph gets its share of it.", False)
    method: str = option("How the votes are read: influence, votes or paper.", DEFAULT_METHOD)
    seed: Any = option("Seed of the noise.", 0, kind=int)
    graphs: int | None = option(default=None, stored=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", checked_samples(self.samples))
        object.__setattr__(self, "seed", checked_seed(self.seed))
        checked_alpha(self.alpha)
        checked_method(self.method)

    @property
    def level(self) -> float:
        """The failure probability of every single certificate."""
        return self.alpha / (self.graphs or 1) if self.simultaneous else self.alpha

    def fits(self, evidence: Votes) -> bool:
        return (evidence.seed, len(evidence)) == (self.seed, self.samples)

    def read(self, evidence: Votes) -> Certificate:
        """The certificate; refuses votes that were cast otherwise."""
        if not self.fits(evidence):
            raise InputError("the votes were cast with other settings than these (sample again)")
        return certify_votes(evidence, alpha=self.level, method=self.method)

    def unanimous(self, graph: Graph, noise: EdgeNoise, num_classes: int) -> Certificate | None:
        """The certificate of a graph about which every vote is for the same class."""
        settings: dict[str, Any] = {"samples": self.samples, "alpha": self.level, "method": self.method}
        return unanimous_certificate(graph, noise, **settings, num_classes=num_classes, seed=self.seed)

    @property
    def other_readings(self) -> tuple[str, ...]:
        return tuple(method for method in METHODS if method != self.method)

    def readings(self, evidence: Votes) -> dict[str, Certificate]:
        """What every other method certifies from the same votes, at the same level."""
        return {method: certify_votes(evidence, alpha=self.level, method=method) for method in self.other_readings}


def asked_again(graph: Graph, base: Classifier, start: int, *, samples: int, seed: int) -> NDArray[np.int64]:
    """Samples of a block that the model is asked about a second time: a guard against answers that depend on the batch."""
    block = min(BLOCK, samples - start)
    count = min(block, base.recheck_count(graph, start))
    first = int(keyed_draws(f"alone {graph.topology}", seed, start, (1,))[0]) % block
    return start + (first + np.arange(count) * (block // max(1, count))) % block


def leader(votes: Votes, alpha: float) -> int | None:
    """The class with most votes, if its lead is no accident: except with probability ``alpha`` the smoothed answer."""
    top, second = (int(index) for index in np.argsort(-votes.counts, kind="stable")[:2])
    level = checked_alpha(alpha, samples=len(votes), discrepancy=votes.stream().discrepancy)
    return top if label_pvalue(votes.counts[top], votes.counts[second]) <= level else None
