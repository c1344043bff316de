"""Group votes: what the base classifier said about every hashed sub-graph. The evidence of voting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.evidence import Evidence
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray
from flipproof.noise.groups import HASH_VERSION, EdgeGroups

if TYPE_CHECKING:
    from flipproof.certificates.certificate import Certificate

__all__ = ["GroupVotes"]


@dataclass(frozen=True, eq=False)
class GroupVotes(Evidence):
    """The base classifier's label on each of the ``T`` sub-graphs of one graph.

    Attributes:
        labels: Label of sub-graph 0, 1, ...; small unsigned integers ``[T]``.
        graph: The whole graph.
        groups: The assignment of node pairs.
        num_classes: Declared classes ``C``, also those without a vote.
        hash_version: Version of the assignment that made the sub-graphs.
    """

    kind = "group votes"

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

    @property
    def counts(self) -> IntArray:
        """Votes for each class, ``[C]``."""
        return np.bincount(self.labels, minlength=self.num_classes).astype(np.int64)

    def description(self) -> dict[str, Any]:
        """The hash that made the sub-graphs."""
        return {
            "groups": self.groups.count,
            "key": self.groups.key,
            "num_classes": self.num_classes,
            "hash_version": self.hash_version,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The labels."""
        return {"labels": self.labels}

    @classmethod
    def from_parts(cls, graph: Graph, description: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> GroupVotes:
        """See :class:`Evidence`."""
        groups = EdgeGroups(description["groups"], description["key"])
        return cls(arrays["labels"], graph, groups, description["num_classes"], description["hash_version"])

    def certify(self, **reading: Any) -> Certificate:
        """The certificate of the majority; see :func:`flipproof.certify_group_votes`."""
        from flipproof.certificates.group_majority import certify_group_votes

        return certify_group_votes(self, **reading)
