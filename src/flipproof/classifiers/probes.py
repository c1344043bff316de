"""Graphs on which a model is tried before it is asked: as different from each other as graphs on the same nodes can be."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from flipproof.graphs import Graph, IntArray, pairs_of_slots
from flipproof.noise import EdgeNoise, NoisyBatch, SampleStream, SlotLists

_DENSE_SLOTS = 4096  # up to here a nearly complete graph is among them
_FULL = 0.9  # of the slots: in a complete graph all nodes look alike
_MOST_EDGES, _EDGES_PER_NODE = 4096, 1  # beyond, the fullest has so many edges, or so many per node
_OWN = 3


def nodes_batch(graph: Graph, noise: EdgeNoise) -> NoisyBatch:
    """Graphs as different as can be, and noisy copies of a random one: a function of nodes, their features and noise alone."""
    nodes = graph.num_nodes
    sparse = _rows(nodes, nodes * (nodes - 1) // 2, 0)[-1]
    return probe_batch(Graph(nodes, pairs_of_slots(sparse, nodes), graph.node_features), noise)


def probe_batch(graph: Graph, noise: EdgeNoise, more: int = 0) -> NoisyBatch:
    """The empty graph, a nearly complete one, fuller and sparser ones, and some noisy copies of the graph itself.

    ``more`` random graphs of all densities are added.
    """
    copies = _OWN if graph.num_slots <= _DENSE_SLOTS else 1
    own = SampleStream(graph, noise, seed=0).batch(0, copies)[0].edge_lists()
    kept = np.isin(own.slot, graph.frozen_edge_slots, invert=True)
    sample, slot = own.sample[kept], own.slot[kept]
    place = slot - np.searchsorted(graph.frozen_slots, slot)
    rows = _rows(graph.num_nodes, graph.num_slots, more)
    return _batch(graph, [*rows, *(place[sample == index] for index in range(copies))])


def delicate(batch: NoisyBatch) -> NDArray[np.bool_]:
    """Which graphs of a batch have nodes of one degree only, ``[B]``, if not all have.

    All nodes then look alike, and layers that normalise divide what rounding left of their differences by itself.
    """
    ends = batch.edge_index()[0][0]
    degrees = np.bincount(ends, minlength=batch.size * batch.num_nodes).reshape(batch.size, -1)
    found: NDArray[np.bool_] = degrees.min(axis=1) == degrees.max(axis=1)
    return found & (not found.all())


@lru_cache(maxsize=64)
def _rows(nodes: int, slots: int, more: int) -> tuple[IntArray, ...]:
    """Places of the edges among the slots, for each graph."""
    full = (
        int(np.ceil(_FULL * slots)) if slots <= _DENSE_SLOTS else min(slots, max(_MOST_EDGES, _EDGES_PER_NODE * nodes))
    )
    rng = np.random.default_rng(nodes)
    sparse = min(full, nodes)
    counts = [0, full, sparse // 2] if slots > _DENSE_SLOTS else [0, full, full // 2, sparse, sparse // 2]
    counts += [*(full * rng.random(more)).astype(int).tolist()]
    return tuple(
        np.sort(rng.choice(slots, count, replace=False)) if count else np.empty(0, dtype=np.int64) for count in counts
    )


def _batch(graph: Graph, rows: Sequence[IntArray]) -> NoisyBatch:
    """Graphs on the same nodes with edges at these places of the slots, and all frozen edges."""
    frozen = graph.frozen_edge_slots
    if graph.num_slots <= _DENSE_SLOTS:
        states = np.zeros((len(rows), graph.num_slots), dtype=np.bool_)
        for index, places in enumerate(rows):
            states[index, places] = True
        return NoisyBatch(graph.num_nodes, len(rows), graph.node_features, graph.slots, frozen, states, None)
    everything = [np.sort(np.concatenate([graph.slots[places], frozen])) for places in rows]
    sample = np.repeat(np.arange(len(rows)), [len(slots) for slots in everything])
    lists = SlotLists(sample, np.concatenate(everything))
    return NoisyBatch(graph.num_nodes, len(rows), graph.node_features, None, frozen, None, lists)
