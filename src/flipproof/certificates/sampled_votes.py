"""Votes: the base classifier's answer on every noisy sample, and the certificates that follow from them, without a model call.

Sampling that stops early ("auto") looks at the votes at fixed numbers of samples, each look with its own level. If the levels add
up to alpha, then *all* looks' certificates are true together with probability ``1 - alpha``: whichever is handed out, also one
that the votes themselves chose. ``docs/theory.md``, section "Stopping early".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipproof.certificates import influence, paper
from flipproof.certificates import vote_share as by_votes
from flipproof.certificates.bounds import AlphaSplit, checked_alpha, lower_bound, spending, upper_bound
from flipproof.certificates.certificate import Certificate
from flipproof.certificates.evidence import Evidence
from flipproof.checks import checked_count, checked_samples
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray, as_graph
from flipproof.noise import BLOCK, STREAM_VERSION, EdgeNoise, SampleStream

METHODS = ("influence", "votes", "paper")
DEFAULT_METHOD = "influence"
_UNBOUNDED = 1000  # where the graph is unknown, radii are looked for up to here
_MOST_DRAWS = 2**27  # slots of all samples up to which the flips themselves are made

Block = tuple[NDArray[Any], str]
"""Labels of a block of samples, and the checksum of its flips."""


@dataclass(frozen=True, eq=False)
class Votes(Evidence):
    """The label of every noisy sample of one graph, with all that is needed to make the flips again.

    Attributes:
        labels: Label of sample 0, 1, 2, ...; small unsigned integers ``[M]``.
        graph: The clean graph.
        noise: The noise in use.
        num_classes: Number of declared classes ``C``, including those without a vote.
        seed: Seed of the noise.
        checksums: One per block of 1,024 samples: the hash of the flips that the classifier saw. Certificates that read
            flips make them again and refuse if the hash differs.
        stream_version: Version of the generator that made the flips.
        looks: If sampling could end early, all numbers of samples at which it could; empty for a fixed number. A certificate
            then uses the part of alpha that belongs to its look, and holds although the votes decided when to stop.
        compared: Samples that the classifier was asked about a second time, alone or in another batch, with the same answer.
    """

    kind = "sampled votes"

    labels: NDArray[np.unsignedinteger[Any]]
    graph: Graph
    noise: EdgeNoise
    num_classes: int
    seed: int
    checksums: tuple[str, ...]
    stream_version: int = STREAM_VERSION
    looks: tuple[int, ...] = ()
    compared: int = 0

    def __post_init__(self) -> None:
        classes = checked_count(self.num_classes, "num_classes", 2, "count the declared classes")
        object.__setattr__(self, "num_classes", classes)
        if self.labels.ndim != 1 or self.labels.dtype.kind not in "iu":
            raise InputError(
                f"labels must be integers, one per sample; got {self.labels.dtype} of shape {self.labels.shape}"
            )
        if len(self.checksums) != -(-len(self.labels) // BLOCK):
            raise InputError(
                f"votes need one checksum per block of {BLOCK} samples; got {len(self.checksums)} for {len(self.labels)} votes"
            )
        outside = self.labels[(self.labels < 0) | (self.labels >= self.num_classes)]
        if len(outside):
            raise InputError(f"votes must lie in 0..{self.num_classes - 1}; got {outside[0]} (check num_classes)")
        if self.looks and len(self.labels) not in self.looks:
            raise InputError(f"sampling ends at one of the looks {list(self.looks)}; got {len(self.labels)} votes")
        self.labels.flags.writeable = False

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def calls(self) -> int:
        """See :class:`Evidence`."""
        return len(self)

    def __repr__(self) -> str:
        return f"Votes(samples={len(self)}, counts={self.counts.tolist()}, noise={self.noise}, seed={self.seed})"

    @property
    def counts(self) -> IntArray:
        """Votes for each class, ``[C]``."""
        return np.bincount(self.labels, minlength=self.num_classes).astype(np.int64)

    def first(self, samples: int) -> Votes:
        """The first of the votes, as if no more had been cast.

        Votes that were sampled until there were enough can only be cut at one of their looks: the votes themselves told when to
        stop, and only the looks have a part of alpha.
        """
        samples = checked_samples(samples)
        if samples > len(self):
            raise InputError(f"samples must be at most the {len(self)} stored votes; got {samples} (sample more first)")
        if self.looks and samples not in self.looks:
            raise InputError(
                f'votes that were sampled with samples="auto" can be read at one of their looks, {list(self.looks)}; got '
                f"samples={samples} (the votes told when to stop: another number would not be covered by alpha)"
            )
        blocks = -(-samples // BLOCK)
        compared = min(self.compared, blocks)
        return replace(self, labels=self.labels[:samples], checksums=self.checksums[:blocks], compared=compared)

    def stream(self) -> SampleStream:
        """The noisy samples again; refuses if they come from another version of the generator."""
        if self.stream_version != STREAM_VERSION:
            raise InputError(
                f"votes were cast with version {self.stream_version} of the noise; this flipproof has version "
                f"{STREAM_VERSION} (sample again, or use the version that made them)"
            )
        return SampleStream(self.graph, self.noise, seed=self.seed)

    def description(self) -> dict[str, Any]:
        """Noise, seed and the rest that makes the flips again."""
        return {
            "add_threshold": self.noise.add_threshold,
            "remove_threshold": self.noise.remove_threshold,
            "num_classes": self.num_classes,
            "seed": self.seed,
            "checksums": list(self.checksums),
            "stream_version": self.stream_version,
            "looks": list(self.looks),
            "compared": self.compared,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The labels."""
        return {"labels": self.labels}

    @classmethod
    def from_parts(cls, graph: Graph, description: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Votes:
        """See :class:`Evidence`."""
        noise = EdgeNoise.from_thresholds(description["add_threshold"], description["remove_threshold"])
        lists: dict[str, Any] = {key: tuple(description[key]) for key in ("checksums", "looks")}
        numbers = {key: description[key] for key in ("num_classes", "seed", "stream_version", "compared")}
        return cls(labels=arrays["labels"], graph=graph, noise=noise, **lists, **numbers)

    def made_again(self) -> bool:
        """Whether the flips made again are those that the votes were cast on."""
        return tuple(self.stream().checksums(len(self))) == self.checksums

    def certify(self, **reading: Any) -> Certificate:
        """A certificate from these votes; see :func:`flipproof.certify_votes`."""
        return certify_votes(self, **reading)


def checked_method(method: str) -> str:
    """The method's name, if there is one of this name."""
    if method not in METHODS:
        raise InputError(
            f"method must be one of {', '.join(METHODS)}; got {method!r} (the default is {DEFAULT_METHOD})"
        )
    return method


def certify_votes(
    votes: Votes,
    *,
    alpha: float = 0.001,
    method: str = DEFAULT_METHOD,
    samples: int | None = None,
    split: AlphaSplit | None = None,
) -> Certificate:
    """A certificate from stored votes: for another alpha, another method, or the first ``samples`` of them.

    Each single certificate holds with probability ``1 - alpha``. Reading several from the same votes and keeping the best
    is not covered: the better of two, at alpha each, costs two alpha. Votes that were sampled until there were enough
    (``samples="auto"``) are read at the part of alpha that belongs to the look at which sampling ended.

    Args:
        votes: What the classifier said of every sample.
        alpha: Failure probability.
        method: ``"influence"``, ``"votes"`` or ``"paper"``.
        samples: Use only the first votes, this many.
        split: How alpha is shared among the bounds; by default what the method finds best. ``paper`` has none.
    """
    if not isinstance(votes, Votes):
        raise InputError(f"expected Votes; got {type(votes).__name__} (certify_counts takes class counts)")
    checked_method(method)
    if samples is not None:
        votes = votes.first(samples)
    parts = spending(len(votes.looks)) if votes.looks else (1.0,)
    taken = votes.looks[: votes.looks.index(len(votes)) + 1] if votes.looks else ()
    level = checked_alpha(alpha) * parts[max(0, len(taken) - 1)]
    remaining = checked_alpha(level, samples=len(votes), discrepancy=votes.stream().discrepancy)
    if split is not None and not isinstance(split, AlphaSplit):
        raise InputError(f"split must be an AlphaSplit; got {split!r} (or None for the default)")
    if method == "paper" and split is not None:
        raise InputError(f"method paper does not split alpha; got {split} (leave split out)")
    if method == "influence":
        certificate = influence.from_votes(votes, alpha=remaining, split=split)
    else:
        certificate = _from_counts(votes.counts, votes.noise, votes.graph, remaining, method, split)
    spent = float(alpha) * math.fsum(parts[: len(taken)]) if taken else None
    return replace(certificate, alpha=float(alpha), seed=votes.seed, looks=taken, spent_alpha=spent)


def certify_counts(
    counts: ArrayLike,
    noise: EdgeNoise,
    *,
    alpha: float = 0.001,
    method: str = "votes",
    graph: Graph | None = None,
) -> Certificate:
    """A certificate from class counts that come from elsewhere.

    The counts must be the votes of independent samples under exactly this noise, one entry per declared class, including classes
    without a vote.

    >>> certify_counts([9990, 10], EdgeNoise(keep=0.8)).radius
    5
    """
    values = np.asarray(counts)
    if values.ndim != 1 or len(values) < 2:
        raise InputError(
            f"counts must be one number per class, at least two; got shape {values.shape} (classes without a vote count as 0)"
        )
    if values.dtype.kind not in "iu" or np.any(values < 0) or values.sum() < 1:
        raise InputError(f"counts must be numbers of votes, at least one in all; got {values.tolist()} (pass integers)")
    if method == "influence":
        raise InputError(
            "method influence reads the flips of every sample; counts do not hold them (use votes, or certify_votes)"
        )
    known = None if graph is None else as_graph(graph)
    return _from_counts(values.astype(np.int64), noise, known, checked_alpha(alpha), checked_method(method), None)


def _from_counts(
    counts: IntArray, noise: EdgeNoise, graph: Graph | None, alpha: float, method: str, split: AlphaSplit | None
) -> Certificate:
    offered = (_UNBOUNDED, _UNBOUNDED) if graph is None else (graph.max_adds, graph.max_removes)
    options: dict[str, Any] = {"alpha": alpha, "max_adds": offered[0], "max_removes": offered[1]}
    if method == "paper":
        return paper.from_counts(counts, noise, **options)
    return by_votes.from_counts(counts, noise, split=split, **options)


def unanimous_certificate(
    graph: Graph,
    noise: EdgeNoise,
    *,
    samples: int,
    alpha: float,
    method: str,
    num_classes: int,
    looks: tuple[int, ...] = (),
    seed: int = 0,
) -> Certificate:
    """The certificate if every noisy copy of the graph got the same vote: none with these settings reaches farther.

    The influence certificate reads the flips; where making them would take long, the share of votes stands for it.

    >>> settings = {"samples": 500, "alpha": 0.001, "method": "votes"}
    >>> unanimous_certificate(Graph(12, [(0, 1)]), EdgeNoise(keep=0.9), num_classes=2, **settings).radius
    1
    """
    if method == "influence" and samples * graph.num_slots > _MOST_DRAWS:
        method = "votes"
    checksums = ("",) * -(-samples // BLOCK)
    if method == "influence":
        checksums = tuple(SampleStream(graph, noise, seed=seed).checksums(samples))
    votes = Votes(np.zeros(samples, dtype=np.uint8), graph, noise, num_classes, seed, checksums, looks=looks)
    return certify_votes(votes, alpha=alpha, method=method)


_GAP = 0.8  # a look that is nearer to the last one is left out
_DOUBT = 1e-4  # a share of votes is taken to be no larger than its upper bound at this level
_HOPE = 0.1  # likewise for each count of influences, times the part of all samples that are cast


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
