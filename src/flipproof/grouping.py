"""Node pairs hashed into groups, the sub-graph of each group, and the votes cast on them; for :mod:`flipproof.voting`.

The group of a node pair depends on its two node numbers, the number of groups ``T`` and a key, and on nothing else: not on
the graph, its edges or its size. With ``u < v``, all arithmetic on unsigned 64-bit integers that wrap around,

    x = key + (2**32 u + v + 1) * 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    x = x ^ (x >> 31)                                  (SplitMix64)
    group = ((x >> 32) * T) >> 32

so every group gets a share ``1 / T`` of the pairs, to within 2**-32, on every machine.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray, pairs_of_slots
from flipproof.noise import NoisyBatch, SlotLists
from flipproof.votes import read_votes, write_votes

__all__ = ["HASH_VERSION", "EdgeGroups", "GroupVotes"]

HASH_VERSION = 1
"""Changes whenever the group of a given (pair, number of groups, key) would; stored with the votes."""

_KIND = "group votes"
_MOST_GROUPS = 2**16
_CHUNK = 2**16  # slots hashed at a time


@dataclass(frozen=True)
class EdgeGroups:
    """A fixed assignment of node pairs to ``count`` groups.

    Args:
        count: Number of groups ``T``.
        key: Another key is another assignment. Choose it before looking at the graphs to certify.

    >>> EdgeGroups(3).of_pairs(np.array([[0, 1], [0, 2], [1, 2], [2, 3]])).tolist()
    [1, 0, 1, 1]
    """

    count: int
    key: int = 0

    def __post_init__(self) -> None:
        for name, value, low, high, remedy in (
            ("groups", self.count, 1, _MOST_GROUPS, "for instance 5"),
            ("key", self.key, 0, 2**64 - 1, "0 is the default"),
        ):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
                raise InputError(f"{name} must be an integer from {low} to {high}; got {value!r} ({remedy})")
            object.__setattr__(self, "count" if name == "groups" else name, int(value))

    def of_pairs(self, pairs: IntArray) -> IntArray:
        """The group ``0..T-1`` of node pairs ``[K, 2]``; the order of the two nodes has no meaning."""
        low, high = pairs.min(axis=1).astype(np.uint64), pairs.max(axis=1).astype(np.uint64)
        x = np.uint64(self.key) + ((low << np.uint64(32)) + high + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
        groups: IntArray = (((x >> np.uint64(32)) * np.uint64(self.count)) >> np.uint64(32)).astype(np.int64)
        return groups

    def of_slots(self, slots: IntArray, num_nodes: int) -> IntArray:
        """As :meth:`of_pairs`, for slot numbers."""
        return self.of_pairs(pairs_of_slots(slots, num_nodes))

    def batch(self, graph: Graph, start: int, stop: int) -> NoisyBatch:
        """The sub-graphs of groups ``start..stop-1``: all nodes, the group's edges, and every frozen edge.

        Its cost grows with the edges, never with the number of node pairs.
        """
        frozen = graph.frozen_edge_slots
        group = self.of_slots(graph.flippable_edge_slots, graph.num_nodes)
        inside = (group >= start) & (group < stop)
        sample = np.concatenate([group[inside] - start, np.repeat(np.arange(stop - start), len(frozen))])
        slot = np.concatenate([graph.flippable_edge_slots[inside], np.tile(frozen, stop - start)])
        order = np.lexsort((slot, sample))
        return NoisyBatch(
            num_nodes=graph.num_nodes,
            size=stop - start,
            node_features=graph.node_features,
            slots=None,
            frozen_edges=frozen,
            states=None,
            lists=SlotLists(sample[order], slot[order]),
        )

    def sub_graphs(self, graph: Graph) -> list[Graph]:
        """The sub-graph of every group as a :class:`Graph`, to look at."""
        return self.batch(graph, 0, self.count).graphs()

    def removable(self, graph: Graph) -> NDArray[np.bool_]:
        """For each group, whether an attacker finds an edge in it, ``[T]``."""
        found = np.zeros(self.count, dtype=np.bool_)
        found[self.of_slots(graph.flippable_edge_slots, graph.num_nodes)] = True
        return found

    def addable(self, graph: Graph) -> NDArray[np.bool_]:
        """For each group, whether an attacker finds an empty pair in it, ``[T]``."""
        found = np.zeros(self.count, dtype=np.bool_)
        occupied = np.union1d(graph.edge_slots, graph.frozen_slots)
        pairs = graph.num_nodes * (graph.num_nodes - 1) // 2
        for start in range(0, pairs, _CHUNK):
            slots = np.arange(start, min(start + _CHUNK, pairs), dtype=np.int64)
            found[self.of_slots(np.setdiff1d(slots, occupied, assume_unique=True), graph.num_nodes)] = True
            if found.all():
                break
        return found


@dataclass(frozen=True, eq=False)
class GroupVotes:
    """The base classifier's label on each of the ``T`` sub-graphs of one graph.

    Attributes:
        labels: Label of sub-graph 0, 1, ...; small unsigned integers ``[T]``.
        graph: The whole graph.
        groups: The assignment of node pairs.
        num_classes: Declared classes ``C``, also those without a vote.
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
                f"votes must be one integer a group, [{self.groups.count}]; got {self.labels.dtype} of shape "
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
        """Everything beside graph and labels that gives the votes their meaning; plain JSON."""
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
