"""Votes: the base classifier's answer on every noisy sample. Certificates are computed from them alone."""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from flipproof.checks import checked_count, checked_samples
from flipproof.errors import InputError
from flipproof.files import write_bytes
from flipproof.graphs import Graph
from flipproof.noise import BLOCK, STREAM_VERSION, EdgeNoise, SampleStream

__all__ = ["Block", "Votes", "checked_samples", "read_votes", "write_votes"]

Block = tuple[NDArray[Any], str]
"""Labels of a block of samples, and the checksum of its flips."""

_FORMAT = 1
_KIND = "sampled votes"
_Kept = TypeVar("_Kept")


@dataclass(frozen=True, eq=False)
class Votes:
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
    """

    labels: NDArray[np.unsignedinteger[Any]]
    graph: Graph
    noise: EdgeNoise
    num_classes: int
    seed: int
    checksums: tuple[str, ...]
    stream_version: int = STREAM_VERSION
    looks: tuple[int, ...] = ()

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

    def __repr__(self) -> str:
        return f"Votes(samples={len(self)}, counts={self.counts.tolist()}, noise={self.noise}, seed={self.seed})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Votes):
            return NotImplemented
        same = _described(self.graph) == _described(other.graph) and self._description() == other._description()
        return same and np.array_equal(self.labels, other.labels)

    __hash__ = None  # type: ignore[assignment]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Votes for each class, ``[C]``."""
        return np.bincount(self.labels, minlength=self.num_classes).astype(np.int64)

    def first(self, samples: int) -> Votes:
        """The first ``samples`` votes, as if no more had been cast."""
        samples = checked_samples(samples)
        if samples > len(self):
            raise InputError(f"samples must be at most the {len(self)} stored votes; got {samples} (sample more first)")
        blocks = -(-samples // BLOCK)
        return Votes(
            self.labels[:samples],
            self.graph,
            self.noise,
            self.num_classes,
            self.seed,
            self.checksums[:blocks],
            self.stream_version,
            self.looks if samples in self.looks else (),
        )

    def stream(self) -> SampleStream:
        """The noisy samples again; refuses if they come from another version of the generator."""
        if self.stream_version != STREAM_VERSION:
            raise InputError(
                f"votes were cast with version {self.stream_version} of the noise; this flipproof has version "
                f"{STREAM_VERSION} (sample again, or use the version that made them)"
            )
        return SampleStream(self.graph, self.noise, seed=self.seed)

    def _description(self) -> dict[str, Any]:
        return {
            "add_threshold": self.noise.add_threshold,
            "remove_threshold": self.noise.remove_threshold,
            "num_classes": self.num_classes,
            "seed": self.seed,
            "checksums": list(self.checksums),
            "stream_version": self.stream_version,
            "looks": list(self.looks),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to ``path`` (npz, no pickle), whole or not at all. Node features are not stored: no certificate reads them."""
        write_votes(path, self.labels, self.graph, self._description())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Votes:
        """Read what :meth:`save` wrote; refuses files that are cut off, altered in shape or of another kind."""
        return read_votes(path, _KIND, cls._from_parts)

    @classmethod
    def _from_parts(cls, labels: NDArray[Any], graph: Graph, description: dict[str, Any]) -> Votes:
        return cls(
            labels,
            graph,
            EdgeNoise.from_thresholds(description["add_threshold"], description["remove_threshold"]),
            description["num_classes"],
            description["seed"],
            tuple(description["checksums"]),
            description["stream_version"],
            tuple(description.get("looks", ())),
        )


# ---- the file of one graph's votes of any kind --------------------------------------------------------------------


def write_votes(
    path: str | os.PathLike[str], labels: NDArray[Any], graph: Graph, description: Mapping[str, Any]
) -> None:
    """Write labels, graph and a plain JSON description to ``path`` (npz, no pickle), whole or not at all."""
    described = {"format": _FORMAT, **_described(graph), **description}
    content = io.BytesIO()
    np.savez_compressed(
        content,
        labels=labels,
        edges=graph.edges,
        frozen=graph.frozen,
        description=np.frombuffer(json.dumps(described).encode(), dtype=np.uint8),
    )
    write_bytes(Path(path), content.getvalue())


def read_votes(
    path: str | os.PathLike[str],
    kind: str,
    from_parts: Callable[[NDArray[Any], Graph, dict[str, Any]], _Kept],
) -> _Kept:
    """What ``from_parts`` makes of the labels, graph and description that :func:`write_votes` wrote."""
    content = Path(path).read_bytes()  # a missing or unreadable file is the caller's to handle
    try:
        return from_parts(*_parts(content, kind))
    except _UNREADABLE as error:
        reason = str(error) or type(error).__name__
        raise InputError(f"{path} is not a whole file of votes: {reason} (delete it and sample again)") from error


def _parts(content: bytes, kind: str) -> tuple[NDArray[Any], Graph, dict[str, Any]]:
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in ("labels", "edges", "frozen", "description")}
    description = json.loads(arrays["description"].tobytes())
    if description["format"] != _FORMAT:
        raise InputError(f"it has format {description['format']}, this flipproof reads format {_FORMAT}")
    if description.get("kind", _KIND) != kind:
        raise InputError(f"it holds {description.get('kind', _KIND)}, not {kind}")
    graph = Graph(
        description["num_nodes"],
        arrays["edges"],
        label=description["label"],
        frozen=arrays["frozen"],
        name=description["name"],
    )
    if graph.topology != description["topology"]:
        raise InputError("it was altered, its edges are not those that were hashed")
    return arrays["labels"], graph, description


def _described(graph: Graph) -> dict[str, Any]:
    return {"num_nodes": graph.num_nodes, "label": graph.label, "name": graph.name, "topology": graph.topology}


# what numpy, zipfile, zlib, json and our own checks raise over bytes that are not ours
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    EOFError,
    OSError,
    RuntimeError,
)
