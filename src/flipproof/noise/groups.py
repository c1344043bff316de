"""Node pairs hashed into groups, and the sub-graph of each group.

The group of a node pair depends on its two node numbers, the number of groups ``T`` and a key, and on nothing else: not on
the graph, its edges or its size. With ``u < v``, all arithmetic on unsigned 64-bit integers that wrap around,

    x = key + (2**32 u + v + 1) * 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    x = x ^ (x >> 31)                                  (SplitMix64)
    group = ((x >> 32) * T) >> 32

so every group gets a share ``1 / T`` of the pairs, to within 2**-32, on every machine. Nodes are divided into feature groups by
the same hash, with ``u = v``, which no pair has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.checks import checked_integer
from flipproof.errors import InputError
from flipproof.fields import Option, Parts
from flipproof.graphs import Graph, IntArray, pairs_of_slots
from flipproof.graphs.conversions import read_only
from flipproof.noise.law import Neighbours, NoisyBatch, SlotLists

HASH_VERSION = 1
"""Changes whenever the group of a (pair, number of groups, key) would; stored with the votes."""

_MOST_GROUPS = 2**16
_CHUNK = 2**16  # slots hashed at a time
_DENSE_SLOTS = 4096  # up to here flipped sub-graphs are states of slots, beyond lists of edges


@dataclass(frozen=True)
class EdgeGroups:
    """A fixed assignment of node pairs to ``count`` groups.

    Args:
        count: Number of groups ``T``.
        key: Each key gives another assignment. Choose it before looking at the graphs to certify.
    """

    count: int
    key: int = 0

    def __post_init__(self) -> None:
        count = checked_integer(self.count, "groups", 1, _MOST_GROUPS, "for instance 5")
        self.__dict__.update(count=count, key=checked_integer(self.key, "key", 0, 2**64 - 1, "0 is the default"))

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
        """The same as :meth:`of_pairs`, for slot numbers of a graph with ``num_nodes`` nodes."""
        return self.of_pairs(pairs_of_slots(slots, num_nodes))

    def of_nodes(self, num_nodes: int, count: int) -> IntArray:
        """The feature group ``0..count-1`` of each of ``num_nodes`` nodes: the group of its pair with itself."""
        return replace(self, count=count).of_pairs(np.arange(num_nodes).repeat(2).reshape(-1, 2))

    def shown(self, graph: Graph, count: int) -> list[Graph]:
        """The graph with the node features of each of ``count`` feature groups, and zeros at all other nodes."""
        if count == 1 or graph.node_features is None:
            return [graph] * count
        inside = self.of_nodes(graph.num_nodes, count) == np.arange(count)[:, None]
        return [graph.replaced(node_features=graph.node_features * nodes[:, None]) for nodes in inside]

    def batch(self, graph: Graph, start: int, stop: int) -> NoisyBatch:
        """The sub-graphs of groups ``start..stop-1``: all nodes, the group's edges, and every frozen edge."""
        slots = graph.flippable_edge_slots
        group = self.of_slots(slots, graph.num_nodes)
        inside = (group >= start) & (group < stop)
        return _listed_batch(graph, stop - start, SlotLists(group[inside] - start, slots[inside]))

    def sub_graphs(self, graph: Graph) -> list[Graph]:
        """The sub-graph of every group as a :class:`Graph`, to look at."""
        return self.batch(graph, 0, self.count).graphs()

    def of_graph(self, graph: Graph) -> IntArray:
        """The group of each of ``graph.slots``, ``[N]``."""
        if graph.num_slots > _DENSE_SLOTS:
            return self.of_slots(graph.slots, graph.num_nodes)
        return _groups_of_pairs(self, graph.num_nodes)[graph.slots]

    def room(self, graph: Graph) -> tuple[IntArray, IntArray]:
        """For each group, how many empty pairs and how many edges an attacker can flip, ``[T]`` each."""
        edges = self._sizes(graph.flippable_edge_slots, graph.num_nodes)
        frozen = self._sizes(graph.frozen_slots, graph.num_nodes)
        return _pairs_in_groups(self, graph.num_nodes) - frozen - edges, edges

    def flipped(self, graph: Graph, group: IntArray, flips: IntArray) -> NoisyBatch:
        """The sub-graphs of these groups ``[K]`` after flips inside them: places in ``graph.slots``, -1 for none, ``[K, d]``."""
        size, group_of = len(group), self.of_graph(graph)
        row, column = np.nonzero(flips >= 0)
        place = flips[row, column]
        if graph.num_slots <= _DENSE_SLOTS:
            states = graph.slot_states & (group_of == group[:, None])
            states[row, place] ^= True
            frozen = graph.frozen_edge_slots
            return NoisyBatch(graph.num_nodes, size, graph.node_features, graph.slots, frozen, states, None)
        edges = np.flatnonzero(graph.slot_states)
        kept = group_of[edges] == group[:, None]
        removed = graph.slot_states[place]
        kept[row[removed], np.searchsorted(edges, place[removed])] = False
        owner, position = np.nonzero(kept)
        left = SlotLists(owner, graph.slots[edges[position]])
        return _listed_batch(graph, size, left, SlotLists(row[~removed], graph.slots[place[~removed]]))

    def _sizes(self, slots: IntArray, num_nodes: int) -> IntArray:
        """How many of the slots each group has, ``[T]``."""
        return np.bincount(self.of_slots(slots, num_nodes), minlength=self.count).astype(np.int64)

    def removable(self, graph: Graph) -> NDArray[np.bool_]:
        """For each group, whether an attacker finds an edge in it, ``[T]``."""
        return self._sizes(graph.flippable_edge_slots, graph.num_nodes) > 0

    def addable(self, graph: Graph) -> NDArray[np.bool_]:
        """For each group, whether an attacker finds an empty pair in it, ``[T]``."""
        has_room = np.zeros(self.count, dtype=np.bool_)
        occupied = np.union1d(graph.edge_slots, graph.frozen_slots)
        for slots in _all_slots(graph.num_nodes):
            has_room[self.of_slots(np.setdiff1d(slots, occupied, assume_unique=True), graph.num_nodes)] = True
            if has_room.all():
                break
        return has_room


def _listed_batch(graph: Graph, size: int, *parts: SlotLists) -> NoisyBatch:
    """Sub-graphs with these edges and every frozen one."""
    frozen = graph.frozen_edge_slots
    everywhere = SlotLists(np.repeat(np.arange(size), len(frozen)), np.tile(frozen, size))
    sample, slot = (np.concatenate(values) for values in zip(*parts, everywhere, strict=True))
    listed = Neighbours.of(SlotLists(sample, slot), size, graph.num_nodes)
    return NoisyBatch(graph.num_nodes, size, graph.node_features, None, frozen, None, listed)


@lru_cache(maxsize=256)
def _groups_of_pairs(groups: EdgeGroups, num_nodes: int) -> IntArray:
    """The group of every node pair; for small graphs, of which there are many with the same number of nodes."""
    return read_only(groups.of_slots(np.arange(num_nodes * (num_nodes - 1) // 2), num_nodes))


@lru_cache(maxsize=256)
def _pairs_in_groups(groups: EdgeGroups, num_nodes: int) -> IntArray:
    """The number of node pairs in each group, ``[T]``."""
    empty = np.zeros(groups.count, dtype=np.int64)
    return read_only(sum((groups._sizes(slots, num_nodes) for slots in _all_slots(num_nodes)), empty))


def _all_slots(num_nodes: int) -> Iterator[IntArray]:
    pairs = num_nodes * (num_nodes - 1) // 2
    return (np.arange(start, min(start + _CHUNK, pairs), dtype=np.int64) for start in range(0, pairs, _CHUNK))


def _groups(values: Mapping[str, Any]) -> EdgeGroups:
    if "groups" not in values:
        raise InputError("voting needs a number of groups; got none (for instance groups 5)")
    return EdgeGroups(values["groups"], values.get("key", 0))


GROUPS = Parts(
    (Option("groups", int, "Number of sub-graphs per graph, for voting.", least=1),),
    plain=lambda groups: {"groups": groups.count} | ({"key": groups.key} if groups.key else {}),
    made=_groups,
    stored=("groups", "key"),
)
