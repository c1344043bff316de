"""Votes: the base classifier's answer on every noisy sample. Certificates are computed from them alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.evidence import Evidence
from flipproof.checks import checked_count, checked_samples
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import BLOCK, STREAM_VERSION, EdgeNoise, SampleStream

if TYPE_CHECKING:
    from flipproof.certificates.certificate import Certificate

__all__ = ["Block", "Votes", "checked_samples"]

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
        compared: Samples that the classifier was asked about a second time, alone or in other company, with the same answer.
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
        """Number of graphs that the model was asked about."""
        return len(self)

    def __repr__(self) -> str:
        return f"Votes(samples={len(self)}, counts={self.counts.tolist()}, noise={self.noise}, seed={self.seed})"

    @property
    def counts(self) -> NDArray[np.int64]:
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
        return cls(
            arrays["labels"],
            graph,
            EdgeNoise.from_thresholds(description["add_threshold"], description["remove_threshold"]),
            description["num_classes"],
            description["seed"],
            tuple(description["checksums"]),
            description["stream_version"],
            tuple(description["looks"]),
            description["compared"],
        )

    def made_again(self) -> bool:
        """Whether the flips made again are those that the votes were cast on."""
        return tuple(self.stream().checksums(len(self))) == self.checksums

    def certify(self, **reading: Any) -> Certificate:
        """A certificate from these votes; see :func:`flipproof.certify_votes`."""
        from flipproof.certificates.methods import certify_votes

        return certify_votes(self, **reading)
