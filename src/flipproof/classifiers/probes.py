"""Graphs on which a model is tried before it is asked: as different from each other as graphs on the same nodes can be."""

from __future__ import annotations

import numpy as np

from flipproof.graphs import Graph, IntArray
from flipproof.noise import EdgeNoise, NoisyBatch, SampleStream, SlotLists

__all__ = ["nodes_batch", "probe_batch"]

_DENSE_SLOTS = 4096  # up to here a complete graph is among them
_EDGES_PER_NODE = 8  # beyond, the fullest has so many
_OWN = 3


def nodes_batch(graph: Graph) -> NoisyBatch:
    """The empty graph, the complete one, a half full and a sparse one: a function of the nodes and their features alone."""
    full = min(
        graph.num_slots, graph.num_slots if graph.num_slots <= _DENSE_SLOTS else _EDGES_PER_NODE * graph.num_nodes
    )
    rng = np.random.default_rng(graph.num_nodes)
    chosen = [
        np.sort(rng.choice(graph.num_slots, count, replace=False)) if graph.num_slots else np.empty(0, dtype=np.int64)
        for count in (0, full, full // 2, min(full, graph.num_nodes))
    ]
    return _batch(graph, chosen)


def probe_batch(graph: Graph, noise: EdgeNoise) -> NoisyBatch:
    """As :func:`nodes_batch`, and some noisy copies of the graph itself."""
    stream = SampleStream(graph, noise, seed=0)
    own = stream.batch(0, _OWN)[0].edge_lists()
    kept = np.isin(own.slot, graph.frozen_edge_slots, invert=True)
    sample, place = own.sample[kept], _places(graph, own.slot[kept])
    others = nodes_batch(graph)
    rows = [_row(others, index, graph) for index in range(others.size)]
    return _batch(graph, [*rows, *(place[sample == index] for index in range(_OWN))])


def _places(graph: Graph, slots: IntArray) -> IntArray:
    """Places of slot numbers among those that are not frozen."""
    return slots - np.searchsorted(graph.frozen_slots, slots)


def _row(batch: NoisyBatch, index: int, graph: Graph) -> IntArray:
    lists = batch.edge_lists()
    slots = lists.slot[lists.sample == index]
    return _places(graph, slots[np.isin(slots, graph.frozen_edge_slots, invert=True)])


def _batch(graph: Graph, rows: list[IntArray]) -> NoisyBatch:
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
