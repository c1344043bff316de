"""What is asked about noisy copies of a graph: how many, until when, and how the votes are read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from flipproof.certificates.bounds import checked_alpha
from flipproof.certificates.certificate import Certificate
from flipproof.certificates.sampled_votes import DEFAULT_METHOD, METHODS, Votes, certify_votes
from flipproof.certificates.sequential import Plan, Sequential
from flipproof.checks import checked_seed
from flipproof.defences.question import Question
from flipproof.errors import InputError

__all__ = ["SampledQuestion"]


@dataclass(frozen=True)
class SampledQuestion(Question):
    """How many noisy copies of every graph are asked about, and how the votes are read.

    Attributes:
        samples: Number of noisy copies, or ``"auto"`` for as many as the answer needs.
        max_samples, target_radius, precision: With ``"auto"``; see :class:`flipproof.Sequential`.
        alpha: Failure probability of each certificate, or of all together.
        simultaneous: Whether alpha holds for all graphs at once.
        graphs: Number of graphs that share alpha then.
        method: How the votes are read.
        seed: Seed of the noise.
    """

    samples: int | str = 10_000
    max_samples: int | None = None
    target_radius: int | None = None
    precision: float | None = None
    alpha: float = 0.001
    simultaneous: bool = False
    graphs: int = 1
    method: str = DEFAULT_METHOD
    seed: int = 0

    doing = "sampling"
    unit = "samples"

    @classmethod
    def of(  # type: ignore[override]
        cls,
        *,
        graphs: int = 1,
        samples: int | str | Sequential = 10_000,
        max_samples: int | None = None,
        target_radius: int | None = None,
        precision: float | None = None,
        alpha: float = 0.001,
        simultaneous: bool = False,
        method: str = DEFAULT_METHOD,
        seed: int | None = None,
    ) -> SampledQuestion:
        """See :meth:`SmoothedClassifier.certify`."""
        if isinstance(samples, Sequential):
            goal = asdict(samples)
            samples = "auto"
        elif samples == "auto":
            goal = {"max_samples": max_samples or Sequential.max_samples}
            goal |= {"target_radius": target_radius, "precision": precision}
        else:
            goal = {"max_samples": max_samples, "target_radius": target_radius, "precision": precision}
            for name, value in goal.items():
                if value is not None:
                    raise InputError(f'{name} {value} goes with samples "auto"; got samples {samples} (ask for auto)')
            if isinstance(samples, str) and samples.isdecimal():
                samples = int(samples)
        question = cls(
            samples=samples,
            **goal,
            alpha=alpha,
            simultaneous=simultaneous,
            graphs=graphs,
            method=method,
            seed=checked_seed(seed),
        )
        checked_alpha(alpha)
        assert question.plan  # refuses what cannot be sampled
        return question

    @cached_property
    def plan(self) -> Plan:
        """When sampling ends, and at which level certificates are read."""
        samples: int | str | Sequential = self.samples
        if self.auto:
            assert self.max_samples is not None
            samples = Sequential(self.max_samples, target_radius=self.target_radius, precision=self.precision)
        return Plan.of(samples, alpha=self.level, method=self.method)

    @property
    def auto(self) -> bool:
        """Whether sampling ends when the answer is known."""
        return self.samples == "auto"

    @property
    def level(self) -> float:
        """The failure probability of every single certificate."""
        return self.alpha / self.graphs if self.simultaneous else self.alpha

    @property
    def amount(self) -> int | None:
        """Samples per graph; ``None`` where it is not known in advance."""
        return None if self.auto else self.plan.most

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; the number of graphs is known elsewhere."""
        return {key: value for key, value in asdict(self).items() if key != "graphs"}

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

    @property
    def other_readings(self) -> tuple[str, ...]:
        return tuple(method for method in METHODS if method != self.method)

    def readings(self, evidence: Votes) -> dict[str, Certificate]:
        """What every other method certifies from the same votes, at the same level."""
        return {method: certify_votes(evidence, alpha=self.level, method=method) for method in self.other_readings}
