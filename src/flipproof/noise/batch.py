"""Noisy versions of one graph, in every form that a classifier may ask for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flipproof.graphs import Graph, IntArray, pairs_of_slots, unchecked_graph


class SlotLists(NamedTuple):
    """Slots of several samples, sorted by sample, then slot."""

    sample: IntArray
    slot: IntArray


@dataclass(frozen=True)
class NoisyBatch:
    """Noisy versions of one graph: all that a classifier may see of it. The clean edges cannot be told from this.

    Exactly one of ``states`` (dense) and ``lists`` (sparse) is given.
    """

    num_nodes: int
    size: int
    node_features: NDArray[Any] | None
    slots: IntArray | None
    frozen_edges: IntArray
    states: NDArray[np.bool_] | None
    lists: SlotLists | None

    def only(self, chosen: IntArray) -> NoisyBatch:
        """The chosen samples, in this order."""
        if self.states is not None:
            return replace(self, size=len(chosen), states=self.states[chosen])
        sample, slot = self.edge_lists()
        starts = np.searchsorted(sample, np.arange(self.size + 1))
        counts = np.diff(starts)[chosen]
        first = np.cumsum(counts) - counts
        place = np.arange(counts.sum()) - np.repeat(first - starts[chosen], counts)
        lists = SlotLists(np.repeat(np.arange(len(chosen)), counts), slot[place])
        return replace(self, size=len(chosen), lists=lists)

    def edge_lists(self) -> SlotLists:
        """Slots of all edges of all samples, sorted by sample, then slot: the canonical order."""
        if self.lists is not None:
            return self.lists
        assert self.states is not None
        assert self.slots is not None
        sample, column = np.nonzero(self.states)
        lists = SlotLists(sample.astype(np.int64), self.slots[column])
        if not len(self.frozen_edges):
            return lists
        frozen = np.repeat(np.arange(self.size, dtype=np.int64), len(self.frozen_edges))
        return merged(lists, SlotLists(frozen, np.tile(self.frozen_edges, self.size)))

    def adjacency(self) -> NDArray[np.float32]:
        """Dense adjacency matrices, float32 ``[size, n, n]``."""
        n = self.num_nodes
        if self.states is not None:
            # column 0 of `padded` is "no edge", column 1 "frozen edge"; `_column_of_entry` tells which column belongs to (u, v)
            padded = np.zeros((self.size, self.states.shape[1] + 2), dtype=np.float32)
            padded[:, 1] = 1
            padded[:, 2:] = self.states
            return padded.take(self._column_of_entry, axis=1).reshape(self.size, n, n)
        sample, slot = self.edge_lists()
        matrix = np.zeros((self.size, n, n), dtype=np.float32)
        u, v = pairs_of_slots(slot, n).T
        matrix[sample, u, v] = 1
        matrix[sample, v, u] = 1
        return matrix

    @cached_property
    def _column_of_entry(self) -> IntArray:
        assert self.slots is not None
        return _column_of_entry(self.num_nodes, self.slots.tobytes(), self.frozen_edges.tobytes())

    def edge_index(self) -> tuple[IntArray, IntArray]:
        """Edges of the disjoint union, both directions, sorted: ``edge_index [2, 2E]`` and ``batch [size * n]``."""
        n = self.num_nodes
        if self.states is not None and not len(self.frozen_edges):
            padded = np.zeros((self.size, self.states.shape[1] + 2), dtype=np.bool_)
            padded[:, 2:] = self.states
            source, target = np.divmod(np.flatnonzero(padded.take(self._column_of_entry, axis=1)), n)
            index = np.stack([source, target + source // n * n])
        else:
            sample, slot = self.edge_lists()
            u, v = (pairs_of_slots(slot, n) + sample[:, None] * n).T
            sources, targets = np.concatenate([u, v]), np.concatenate([v, u])
            order = np.lexsort((targets, sources))
            index = np.stack([sources[order], targets[order]])
        return index, np.repeat(np.arange(self.size, dtype=np.int64), n)

    def degrees(self) -> IntArray:
        """Degree of every node of every sample, ``[size, n]``."""
        sample, slot = self.edge_lists()
        ends = pairs_of_slots(slot, self.num_nodes) + sample[:, None] * self.num_nodes
        return np.bincount(ends.ravel(), minlength=self.size * self.num_nodes).reshape(self.size, self.num_nodes)

    def graphs(self, node_features: NDArray[Any] | None = None) -> list[Graph]:
        """One :class:`Graph` per sample, for black-box classifiers; without label and name.

        Args:
            node_features: Those of all samples one after the other, ``[size * n, d]``, as ``checked_features`` returned
                them. By default every sample has the graph's own.
        """
        sample, slot = self.edge_lists()
        starts = np.searchsorted(sample, np.arange(self.size + 1)).tolist()
        # slots ascend within a sample, so its pairs are in the order of a Graph's edges
        pairs = pairs_of_slots(slot, self.num_nodes)
        n = self.num_nodes
        return [
            unchecked_graph(
                n,
                pairs[start:stop],
                self.node_features if node_features is None else node_features[index * n : (index + 1) * n],
            )
            for index, (start, stop) in enumerate(pairwise(starts))
        ]


@lru_cache(maxsize=64)
def _column_of_entry(num_nodes: int, slots: bytes, frozen_edges: bytes) -> IntArray:
    """For each entry of an ``n x n`` matrix the column that holds its state; see :meth:`NoisyBatch.adjacency`."""
    column = np.zeros((num_nodes, num_nodes), dtype=np.int64)
    free = np.frombuffer(slots, np.int64)
    for numbers, columns in ((np.frombuffer(frozen_edges, np.int64), 1), (free, np.arange(len(free)) + 2)):
        u, v = pairs_of_slots(numbers, num_nodes).T
        column[u, v] = column[v, u] = columns
    return column.ravel()


def merged(first: SlotLists, second: SlotLists) -> SlotLists:
    """Two disjoint sorted lists as one."""
    width = 1 + max((int(lists.slot.max(initial=0)) for lists in (first, second)), default=0)
    keys = first.sample * width + first.slot
    more = second.sample * width + second.slot
    places = np.searchsorted(keys, more)
    return SlotLists(np.insert(first.sample, places, second.sample), np.insert(first.slot, places, second.slot))
