"""The votes cast on the sub-graphs of hashed groups; see :mod:`flipproof.noise.groups`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray
from flipproof.noise.groups import HASH_VERSION, EdgeGroups
from flipproof.votes import read_votes, write_votes

__all__ = ["HASH_VERSION", "EdgeGroups", "GroupVotes"]

_KIND = "group votes"


@dataclass(frozen=True, eq=False)
class GroupVotes:
    """The base classifier's label on each of the ``T`` sub-graphs of one graph.

    Attributes:
        labels: Label of sub-graph 0, 1, ...; small unsigned integers ``[T]``.
        graph: The whole graph.
        groups: The assignment of node pairs.
        num_classes: Number of declared classes ``C``, including those without a vote.
        hash_version: Version of the assignment that made the sub-graphs.
    """

    labels: NDArray[np.unsignedinteger[Any]]
    graph: Graph
    groups: EdgeGroups
    num_classes: int
    hash_version: int = HASH_VERSION

    def __post_init__(self) -> None:
        if self.labels.shape != (self.groups.count,) or self.labels.dtype.kind not in "iu":
            raise InputError(
                f"votes must be one integer per group, [{self.groups.count}]; got {self.labels.dtype} of shape "
                f"{list(self.labels.shape)}"
            )
        outside = self.labels[(self.labels < 0) | (self.labels >= self.num_classes)]
        if len(outside):
            raise InputError(f"votes must lie in 0..{self.num_classes - 1}; got {outside[0]} (check num_classes)")
        if self.hash_version != HASH_VERSION:
            raise InputError(
                f"votes were cast with version {self.hash_version} of the hash; this flipproof has version {HASH_VERSION} "
                "(vote again, or use the version that made them)"
            )
        self.labels.flags.writeable = False

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"GroupVotes(groups={len(self)}, counts={self.counts.tolist()})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GroupVotes):
            return NotImplemented
        same = self.graph == other.graph and self.description() == other.description()
        return same and np.array_equal(self.labels, other.labels)

    __hash__ = None  # type: ignore[assignment]

    @property
    def counts(self) -> IntArray:
        """Votes for each class, ``[C]``."""
        return np.bincount(self.labels, minlength=self.num_classes).astype(np.int64)

    def description(self) -> dict[str, Any]:
        """Everything besides the graph and the labels that gives the votes their meaning, as plain JSON."""
        return {
            "kind": _KIND,
            "groups": self.groups.count,
            "key": self.groups.key,
            "num_classes": self.num_classes,
            "hash_version": self.hash_version,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to ``path`` (npz, no pickle), whole or not at all. Node features are not stored: no certificate reads them."""
        write_votes(path, self.labels, self.graph, self.description())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> GroupVotes:
        """Read what :meth:`save` wrote; refuses files that are cut off, altered in shape or of another kind."""
        return read_votes(path, _KIND, cls._from_parts)

    @classmethod
    def _from_parts(cls, labels: NDArray[Any], graph: Graph, description: dict[str, Any]) -> GroupVotes:
        groups = EdgeGroups(description["groups"], description["key"])
        return cls(labels, graph, groups, description["num_classes"], description["hash_version"])
