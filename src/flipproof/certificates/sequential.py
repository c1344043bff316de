"""Sampling that stops early ("auto"): looks at fixed numbers of samples, each with its own part of alpha.

Sampling may end at any look, for whatever reason. The certificate of look ``k``, read at level ``alpha_k``, is false with
probability at most ``alpha_k``. If the levels add up to alpha, then *all* looks' certificates are true together with probability
``1 - alpha``: whichever is handed out, also one that the votes themselves chose. ``docs/theory.md``, section "Stopping early".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates import influence, paper
from flipproof.certificates import vote_share as by_votes
from flipproof.certificates.bounds import checked_alpha, lower_bound, spending, upper_bound
from flipproof.certificates.certificate import Certificate
from flipproof.certificates.sampled_votes import DEFAULT_METHOD, Votes, certify_votes, checked_method
from flipproof.checks import checked_count, checked_samples
from flipproof.errors import InputError
from flipproof.noise import BLOCK

_GAP = 0.8  # a look that is nearer to the last one is left out
_DOUBT = 1e-4  # a share of votes is taken to be no larger than its upper bound at this level
_HOPE = (
    0.1  # likewise for each count of influences, times the part of all samples that are cast: early, more is hoped for
)


@dataclass(frozen=True)
class Sequential:
    """How long to sample with ``samples="auto"``: until more samples cannot change the answer that matters.

    Attributes:
        max_samples: Largest number of samples.
        target_radius: Only whether this radius is certified matters: stop when it is, or when it is out of reach. By default the
            radius itself matters: stop when no larger one is in reach.
        precision: Only the share of votes matters: stop when the confidence interval is not wider than this.

    >>> Sequential(max_samples=10_000).looks
    (1024, 2048, 3072, 4096, 6144, 10000)
    """

    max_samples: int = 100_000
    target_radius: int | None = None
    precision: float | None = None

    def __post_init__(self) -> None:
        checked_samples(self.max_samples, "max_samples")
        target, precision = self.target_radius, self.precision
        if target is not None and precision is not None:
            raise InputError(
                f"give target_radius or precision, not both; got {target!r} and {precision!r} (they stop at different times)"
            )
        if target is not None:
            checked_count(target, "target_radius", 0, "for instance 2")
        if precision is not None and not (isinstance(precision, (int, float)) and 0 < precision < 1):
            raise InputError(f"precision must lie in (0, 1); got {precision!r} (for instance 0.01)")

    @property
    def looks(self) -> tuple[int, ...]:
        """The sample counts at which we check: 1, 2, 3, 4, 6, 8, 12, ... blocks, and finally ``max_samples``."""
        growing = {BLOCK * part << k for k in range(self.max_samples.bit_length()) for part in (2, 3)} | {BLOCK}
        return (*sorted(look for look in growing if look <= _GAP * self.max_samples), int(self.max_samples))

    def certify(self, votes: Votes, *, alpha: float = 0.001, method: str = DEFAULT_METHOD) -> Certificate:
        """The certificate from stored votes, read as far as sampling would have gone."""
        return Plan.of(self, alpha=alpha, method=method).read(votes)


@dataclass(frozen=True)
class Plan:
    """The sample counts at which we check, and the rule that ends sampling.

    Attributes:
        looks: Numbers of samples, ascending; a plan for a fixed number of samples has one.
        alpha: Failure probability of whichever certificate is handed out.
        method: Method of the certificates.
        goal: When to stop; ``None`` for a fixed number of samples.
    """

    looks: tuple[int, ...]
    alpha: float
    method: str
    goal: Sequential | None = None

    @classmethod
    def of(cls, samples: int | str | Sequential, *, alpha: float, method: str) -> Plan:
        """The plan for a number of samples, for ``"auto"``, or for a :class:`Sequential`."""
        alpha = checked_alpha(alpha)
        checked_method(method)
        if isinstance(samples, str):
            if samples != "auto":
                raise InputError(
                    f'samples must be an integer of at least 1, or "auto"; got {samples!r} (for instance 10000)'
                )
            samples = Sequential()
        if not isinstance(samples, Sequential):
            return cls((checked_samples(samples),), alpha, method)
        return cls(samples.looks, alpha, method, samples)

    @property
    def most(self) -> int:
        """The largest number of samples."""
        return self.looks[-1]

    @property
    def schedule(self) -> tuple[int, ...]:
        """What the votes remember: the looks, or nothing for a fixed number of samples."""
        return () if self.goal is None else self.looks

    def after(self, samples: int) -> int:
        """The next look."""
        return self.looks[self.looks.index(samples) + 1]

    def look(self, votes: Votes) -> Certificate | None:
        """The certificate, if sampling ends at this look; ``None`` to go on. A function of the votes alone."""
        assert votes.looks == self.schedule
        certificate = certify_votes(votes, alpha=self.alpha, method=self.method)
        return certificate if self._ends(votes, certificate) else None

    def read(self, votes: Votes) -> Certificate:
        """The certificate of the look at which sampling ends, from votes that reach at least that far.

        Votes that were sampled with other looks are refused: they told when to stop, at levels that are not this plan's.
        """
        if votes.looks and votes.looks != self.schedule:
            raise InputError(
                f"the votes were sampled with looks at {list(votes.looks)} and told when to stop; they cannot be read with looks "
                f"at {list(self.looks)} (read them with the Sequential that they were sampled with)"
            )
        for samples in self.looks:
            if samples > len(votes):
                raise InputError(
                    f"{len(votes):,} votes are too few: sampling does not end before {samples:,} (sample on to there)"
                )
            certificate = self.look(replace(votes.first(samples), looks=self.schedule))
            if certificate is not None:
                return certificate
        raise AssertionError("the last look always ends")

    def _ends(self, votes: Votes, certificate: Certificate) -> bool:
        if len(votes) == self.most or self.goal is None:
            return True
        if self.goal.precision is not None:
            top, level = int(votes.counts.max()), self.alpha * spending(len(self.looks))[0] / 2
            low = lower_bound(top, len(votes), failure_prob=level)
            return float(upper_bound(top, len(votes), failure_prob=level) - low) <= self.goal.precision
        target = self.goal.target_radius
        if target is not None and certificate.radius >= target:
            return True
        wanted = certificate.radius + 1 if target is None else target
        return not self._reachable(votes, wanted)

    def _reachable(self, votes: Votes, wanted: int) -> bool:
        """Whether the last look may still certify the radius; ``False`` is wrong with a small probability at most.

        What is wrong here costs samples or a radius, never the guarantee.
        """
        if wanted > votes.graph.num_slots:
            return False
        last = self.alpha * spending(len(self.looks))[-1]
        offered = {"max_adds": votes.graph.max_adds, "max_removes": votes.graph.max_removes}
        from_counts = paper.from_counts if self.method == "paper" else by_votes.from_counts
        for label in range(votes.num_classes):
            hopeful = _hopeful_counts(votes.counts, label, self.most)
            if hopeful.argmax() != label:
                continue
            hoped = from_counts(hopeful, votes.noise, alpha=last, **offered)
            if hoped.label == label and hoped.radius >= wanted:
                return True
        return self.method == "influence" and influence.could_reach(
            votes, wanted, samples=self.most, alpha=last, doubt=_HOPE * len(votes) / self.most
        )

    def to_dict(self) -> dict[str, Any]:
        """The goal as plain values, for a run's settings."""
        if self.goal is None:
            return {}
        return {
            "looks": list(self.looks),
            "target_radius": self.goal.target_radius,
            "precision": self.goal.precision,
        }


def _hopeful_counts(counts: NDArray[np.int64], label: int, samples: int) -> NDArray[np.int64]:
    """Counts at the last look if all goes well for a class: its share is at its upper bound, the rest evenly spread."""
    now = int(counts.sum())
    rest = samples - now
    share = float(upper_bound(int(counts[label]), now, failure_prob=_DOUBT))
    hits = min(rest, math.ceil(rest * share + 4 * math.sqrt(rest * share * (1 - share))))
    others = now + rest - int(counts[label]) - hits
    rivals = np.delete(np.arange(len(counts)), label)
    # votes that were cast stay cast; the first of the rivals stands for the strongest
    first = max(int(counts[rivals].max()), -(-others // len(rivals)))
    hopeful = np.zeros_like(counts)
    hopeful[label], hopeful[rivals[0]] = counts[label] + hits, first
    if len(rivals) > 1:
        hopeful[rivals[1:]] = (others - first) // (len(rivals) - 1)
        hopeful[rivals[1 : 1 + (others - first) % (len(rivals) - 1)]] += 1
    return hopeful
