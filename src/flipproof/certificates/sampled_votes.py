"""Votes: the base classifier's answer on every noisy sample, and the certificates that follow from them, without a model call."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipproof.certificates import influence, paper, vote_share
from flipproof.certificates.certificate import Certificate, WeakSpots
from flipproof.certificates.evidence import Evidence
from flipproof.certificates.joint_bound import with_features
from flipproof.certificates.vote_share import checked_alpha, label_pvalue
from flipproof.checks import checked_count, checked_samples
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray, as_graph, pairs_of_slots
from flipproof.graphs.conversions import read_only
from flipproof.noise import BLOCK, STREAM_VERSION, EdgeNoise, FeatureNoise, SampleStream
from flipproof.noise.feature_law import FEATURE_NOISE
from flipproof.noise.feature_stream import FEATURE_STREAM_VERSION, FeatureStream
from flipproof.noise.law import EDGE_NOISE

METHODS = ("influence", "votes", "paper")
DEFAULT_METHOD = "influence"
_UNBOUNDED = 1000  # where the graph is unknown, radii are looked for up to here
_LEAST_FLIPPED = 30  # copies with a pair flipped, below which they say nothing about it
_MOST_DRAWS = 2**27  # slots of all samples up to which the flips themselves are made


class SampledEvidence(Evidence):
    """Answers about noisy copies of a graph, with all that is needed to make the noise again."""

    versions: ClassVar = {"noise": STREAM_VERSION, "noise on features": FEATURE_STREAM_VERSION}
    parts: ClassVar = {"noise": EDGE_NOISE, "feature_noise": FEATURE_NOISE}
    noise: EdgeNoise
    seed: int
    checksums: tuple[str, ...]
    feature_noise: FeatureNoise | None
    feature_checksums: tuple[str, ...]

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples."""

    def __post_init__(self) -> None:
        blocks = -(-len(self) // BLOCK)
        if len(self.checksums) != blocks:
            raise InputError(
                f"votes need one checksum per block of {BLOCK} samples; got {len(self.checksums)} for {len(self)} votes"
            )
        if self.feature_noise is not None:
            self.feature_noise.check(self.graph.node_features)
            if len(self.feature_checksums) != blocks:
                raise InputError(
                    f"votes need one checksum of features per block; got {len(self.feature_checksums)} for {blocks}"
                )

    @property
    def calls(self) -> int:
        return len(self)

    @property
    def noisy_features(self) -> bool:
        return self.feature_noise is not None

    def stream(self) -> SampleStream:
        """The noisy samples again."""
        return SampleStream(self.graph, self.noise, seed=self.seed)

    def feature_stream(self) -> FeatureStream | None:
        """The noisy features again, if features were under noise."""
        return None if self.feature_noise is None else self.feature_noise.stream(self.graph, seed=self.seed)

    def remaining(self, alpha: float) -> float:
        """``alpha``, less what the inexactness of the samplers of edges and features costs."""
        of_features = self.feature_stream()
        discrepancy = self.stream().discrepancy + (0.0 if of_features is None else of_features.discrepancy)
        return checked_alpha(alpha, samples=len(self), discrepancy=discrepancy)

    def made_again(self) -> bool:
        """Whether flips and features made again are those that the votes were cast on."""
        of_features = self.feature_stream()
        if of_features is not None and tuple(of_features.checksums(len(self))) != self.feature_checksums:
            return False
        return tuple(self.stream().checksums(len(self))) == self.checksums


@dataclass(frozen=True, eq=False)
class Votes(SampledEvidence):
    """The label of every noisy sample of one graph, with everything that is needed to make the flips again.

    Attributes:
        labels: Label of sample 0, 1, 2, ...; small unsigned integers ``[M]``.
        graph: The clean graph.
        noise: The noise in use.
        num_classes: Number of declared classes ``C``, including those without a vote.
        seed: Seed of the noise.
        checksums: One per block of 1,024 samples: the hash of the flips that the classifier saw. Certificates that read
            flips make them again and refuse if the hash differs.
        compared: Samples that the classifier answered a second time, alone or in another batch.
        differing: How many of these the model itself answers otherwise than the shortcut to it that cast the votes.
        feature_noise: The noise on the graph's node features, if there is one; they are then stored with the graph.
        feature_checksums: The same as ``checksums``, for what it did to them.
    """

    kind = "sampled votes"
    in_blocks = True

    labels: NDArray[np.unsignedinteger[Any]]
    graph: Graph
    noise: EdgeNoise
    num_classes: int
    seed: int
    checksums: tuple[str, ...]
    compared: int = 0
    differing: int = 0
    feature_noise: FeatureNoise | None = None
    feature_checksums: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        classes = checked_count(self.num_classes, "num_classes", 2, "count the declared classes")
        object.__setattr__(self, "num_classes", classes)
        if self.labels.ndim != 1 or self.labels.dtype.kind not in "iu":
            raise InputError(
                f"labels must be integers, one per sample; got {self.labels.dtype} of shape {self.labels.shape}"
            )
        super().__post_init__()
        outside = self.labels[(self.labels < 0) | (self.labels >= self.num_classes)]
        if len(outside):
            raise InputError(f"votes must lie in 0..{self.num_classes - 1}; got {outside[0]} (check num_classes)")
        self.labels.flags.writeable = False

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Votes(samples={len(self)}, counts={self.counts.tolist()}, noise={self.noise}, seed={self.seed})"

    @cached_property
    def counts(self) -> IntArray:
        """Votes for each class, ``[C]``."""
        return read_only(np.bincount(self.labels, minlength=self.num_classes).astype(np.int64))

    def leader(self, alpha: float) -> int | None:
        """The class with most votes if it leads significantly; except with probability ``alpha`` it is the smoothed answer."""
        top, second = (int(index) for index in np.argsort(-self.counts, kind="stable")[:2])
        return top if label_pvalue(self.counts[top], self.counts[second]) <= self.remaining(alpha) else None

    def first(self, samples: int) -> Votes:
        """The first votes alone."""
        samples = checked_samples(samples)
        if samples > len(self):
            raise InputError(f"samples must be at most the {len(self)} stored votes; got {samples} (sample more first)")
        blocks = -(-samples // BLOCK)
        compared = min(self.compared, blocks)
        fewer: dict[str, Any] = {"compared": compared, "differing": min(self.differing, compared)}
        fewer |= {name: getattr(self, name)[:blocks] for name in ("checksums", "feature_checksums")}
        return replace(self, labels=self.labels[:samples], **fewer)

    def weak_spots(self, radius: int) -> WeakSpots | None:
        """The ``radius + 1`` pairs whose flips go with the smallest lead over the runner-up, among the noisy copies."""
        silent = not self.noise.add_threshold + self.noise.remove_threshold
        if radius < 0 or silent or len(self) * self.graph.num_slots > _MOST_DRAWS:
            return None
        label, rival = (int(place) for place in np.argsort(-self.counts, kind="stable")[:2])
        lead = (self.labels == label).astype(np.float32) - (self.labels == rival)
        stream, flipped, total = self.stream(), np.zeros(self.graph.num_slots), np.zeros(self.graph.num_slots)
        for start in range(0, len(self), BLOCK):
            flips = stream.flips(start, min(start + BLOCK, len(self))).astype(np.float32)
            flipped, total = flipped + flips.sum(axis=0), total + lead[start : start + BLOCK] @ flips
        known = flipped >= _LEAST_FLIPPED
        left = np.where(known, total / np.maximum(flipped, 1), np.inf)
        worst = [int(place) for place in np.argsort(left, kind="stable")[: radius + 1] if known[place]]
        pairs = [(int(u), int(v)) for u, v in pairs_of_slots(self.graph.slots[worst], self.graph.num_nodes)]
        steps = [
            f"{'remove' if self.graph.slot_states[place] else 'add'} {u}–{v}"
            for place, (u, v) in zip(worst, pairs, strict=True)
        ]
        leads = [f"{value:.3g}" for value in (lead.mean(), *left[worst])]
        return WeakSpots(
            rival=rival,
            flips=tuple(pairs),
            caption="Lead in the shares of votes, among the copies with this pair flipped",
            columns=("Flip", "Lead"),
            rows=tuple(zip(["all copies", *steps], leads, strict=True)),
        )

    def certify(self, *, alpha: float = 0.001, method: str = DEFAULT_METHOD, samples: int | None = None) -> Certificate:
        """A certificate from these votes; see :func:`flipproof.certify_votes`."""
        return certify_votes(self, alpha=alpha, method=method, samples=samples)


def checked_method(method: str) -> str:
    """The method's name, if there is one of this name."""
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}; got {method!r} (default: {DEFAULT_METHOD})")
    return method


def certify_votes(
    votes: Votes, *, alpha: float = 0.001, method: str = DEFAULT_METHOD, samples: int | None = None
) -> Certificate:
    """A certificate from stored votes: for another alpha, another method, or the first ``samples`` of them.

    Each single certificate holds with probability ``1 - alpha``. Reading several from the same votes and keeping the best
    is not covered: the better of two, at alpha each, costs two alpha.

    Args:
        votes: What the classifier said of every sample.
        alpha: Failure probability.
        method: ``"influence"``, ``"votes"`` or ``"paper"``.
        samples: Use only the first votes, this many.
    """
    if not isinstance(votes, Votes):
        raise InputError(f"expected Votes; got {type(votes).__name__} (certify_counts takes class counts)")
    checked_method(method)
    if samples is not None:
        votes = votes.first(samples)
    noise, counts, graph, level = votes.noise, votes.counts, votes.graph, votes.remaining(alpha)
    if votes.feature_noise is not None and method != "votes":
        level /= 2  # the joint bound reads the votes in another way: each of the two gets half
    if method == "influence":
        certificate = influence.from_votes(votes, alpha=level)
    else:
        certificate = _from_counts(counts, noise, graph, level, method)
    if votes.feature_noise is not None:
        shares = certificate if method == "votes" else _from_counts(counts, noise, graph, level, "votes")
        certificate = with_features(certificate, shares, graph, votes.feature_noise)
    return replace(certificate, alpha=float(alpha), seed=votes.seed)


def certify_counts(
    counts: ArrayLike, noise: EdgeNoise, *, alpha: float = 0.001, method: str = "votes", graph: Graph | None = None
) -> Certificate:
    """A certificate from class counts that come from elsewhere.

    The counts must be the votes of independent samples under exactly this noise, one entry per declared class, including classes
    without a vote. With the graph, the grid ends where it has no more pairs; alpha and method are those of :func:`certify_votes`.

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
    return _from_counts(values.astype(np.int64), noise, known, checked_alpha(alpha), checked_method(method))


def _from_counts(counts: IntArray, noise: EdgeNoise, graph: Graph | None, alpha: float, method: str) -> Certificate:
    limits = (_UNBOUNDED, _UNBOUNDED) if graph is None else (graph.max_adds, graph.max_removes)
    from_counts = paper.from_counts if method == "paper" else vote_share.from_counts
    return from_counts(counts, noise, alpha=alpha, limits=limits)


def unanimous_certificate(
    graph: Graph,
    noise: EdgeNoise,
    *,
    samples: int,
    alpha: float,
    method: str,
    num_classes: int,
    seed: int = 0,
    feature_noise: FeatureNoise | None = None,
) -> Certificate:
    """The certificate if every noisy copy of the graph got the same vote: none with these settings reaches farther.

    >>> settings = {"samples": 500, "alpha": 0.001, "method": "votes"}
    >>> unanimous_certificate(Graph(12, [(0, 1)]), EdgeNoise(keep=0.9), num_classes=2, **settings).radius
    1
    """
    if method == "influence" and samples * graph.num_slots > _MOST_DRAWS:
        method = "votes"
    checksums = ("",) * -(-samples // BLOCK)
    if method == "influence":
        checksums = tuple(SampleStream(graph, noise, seed=seed).checksums(samples))
    votes = Votes(np.zeros(samples, dtype=np.uint8), graph, noise, num_classes, seed, checksums)
    if feature_noise is not None:
        votes = replace(votes, feature_noise=feature_noise, feature_checksums=("",) * len(checksums))
    return certify_votes(votes, alpha=alpha, method=method)
