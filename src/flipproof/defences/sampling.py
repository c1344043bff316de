"""What is asked about noisy copies of a graph: how many, until when, and how the votes are read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.bounds import checked_alpha, label_pvalue
from flipproof.certificates.certificate import Certificate
from flipproof.certificates.sampled_votes import (
    DEFAULT_METHOD,
    METHODS,
    Plan,
    Sequential,
    Votes,
    certify_votes,
    unanimous_certificate,
)
from flipproof.checks import checked_seed
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
        samples: Number of noisy copies, or ``"auto"`` for as many as the answer needs; also a :class:`flipproof.Sequential`.
        max_samples, target_radius, precision: With ``"auto"``; see :class:`flipproof.Sequential`.
        alpha: Failure probability of each certificate, or of all together.
        simultaneous: Whether alpha holds for all graphs at once.
        method: How the votes are read.
        seed: Seed of the noise; ``None`` for a fresh one.
        graphs: Number of graphs that share alpha, if it holds for all at once.
    """

    samples: int | str | Sequential = option(
        "Number of noisy copies per graph; auto takes as many as the answer needs.", 10_000, kind=str
    )
    max_samples: int | None = option("With auto: the largest number of samples, by default 100000.", None, least=1)
    target_radius: int | None = option("With auto: stop when this radius is certified or out of reach.", None, least=0)
    precision: float | None = option(
        "With auto: stop when the interval of the share of votes is no wider than this.", None
    )
    alpha: float = option("Failure probability of each certificate.", 0.001)
    simultaneous: bool = option("Let alpha hold for all graphs at once: each graph gets its share of it.", False)
    method: str = option("How the votes are read: influence, votes or paper.", DEFAULT_METHOD)
    seed: Any = option("Seed of the noise.", 0, kind=int)
    graphs: int | None = option(default=None, stored=None)

    def __post_init__(self) -> None:
        samples, goal = self.samples, {}
        if isinstance(samples, Sequential):
            goal = {"samples": "auto", **asdict(samples)}
        elif samples == "auto":
            goal = {"max_samples": self.max_samples or Sequential.max_samples}
        else:
            for name in ("max_samples", "target_radius", "precision"):
                if (value := getattr(self, name)) is not None:
                    raise InputError(f'{name} {value} goes with samples "auto"; got samples {samples} (ask for auto)')
            if isinstance(samples, str) and samples.isdecimal():
                goal = {"samples": int(samples)}
        for name, value in {**goal, "seed": checked_seed(self.seed)}.items():
            object.__setattr__(self, name, value)
        checked_alpha(self.alpha)
        assert self.plan  # refuses what cannot be sampled

    @cached_property
    def plan(self) -> Plan:
        """When sampling ends, and at which level certificates are read."""
        samples: int | str | Sequential = self.samples
        if self.samples == "auto":
            assert self.max_samples is not None
            samples = Sequential(self.max_samples, target_radius=self.target_radius, precision=self.precision)
        return Plan.of(samples, alpha=self.level, method=self.method)

    @property
    def level(self) -> float:
        """The failure probability of every single certificate."""
        return self.alpha / (self.graphs or 1) if self.simultaneous else self.alpha

    def fits(self, evidence: Votes) -> bool:
        cast = evidence.seed, evidence.looks
        return cast == (self.seed, self.plan.schedule) and len(evidence) in self.plan.looks

    def read(self, evidence: Votes) -> Certificate:
        """The certificate of the look at which sampling ends; refuses votes that were cast otherwise."""
        if not self.fits(evidence):
            raise InputError("the votes were cast with other settings than these (sample again)")
        certificate = self.plan.read(evidence)
        if certificate.samples != len(evidence):
            raise InputError(
                f"sampling ends at {certificate.samples:,} votes, and {len(evidence):,} were cast (votes beyond the stop were "
                "added)"
            )
        return certificate

    def unanimous(self, graph: Graph, noise: EdgeNoise, num_classes: int) -> Certificate | None:
        """The certificate of a graph about which every vote is for the same class."""
        return unanimous_certificate(
            graph,
            noise,
            samples=self.plan.most,
            alpha=self.level,
            method=self.method,
            num_classes=num_classes,
            looks=self.plan.schedule,
            seed=self.seed,
        )

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
