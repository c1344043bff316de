"""Slots are numbered without gaps."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flipproof import Graph
from flipproof.graphs import pairs_of_slots, slots_of_pairs
from support.graphs import graphs


@given(st.integers(1, 60))
def test_slots_number_the_upper_triangle_row_by_row(n: int) -> None:
    pairs = np.array(list(itertools.combinations(range(n), 2)), dtype=np.int64).reshape(-1, 2)
    slots = slots_of_pairs(pairs, n)
    assert slots.tolist() == list(range(n * (n - 1) // 2))
    assert np.array_equal(pairs_of_slots(slots, n), pairs)


@given(st.integers(2, 100_000), st.data())
def test_slots_of_large_graphs_round_trip(n: int, data: st.DataObject) -> None:
    slots = np.array(data.draw(st.lists(st.integers(0, n * (n - 1) // 2 - 1), min_size=1)), dtype=np.int64)
    pairs = pairs_of_slots(slots, n)
    assert (pairs[:, 0] < pairs[:, 1]).all()
    assert (pairs >= 0).all()
    assert (pairs < n).all()
    assert np.array_equal(slots_of_pairs(pairs, n), slots)


def test_slots_do_not_overflow() -> None:
    n = 3_000_000
    last = np.array([[n - 2, n - 1]])
    assert slots_of_pairs(last, n).tolist() == [n * (n - 1) // 2 - 1]


@given(graphs(frozen=True))
def test_slot_properties_agree_with_sets(graph: Graph) -> None:
    everything = set(range(graph.num_nodes * (graph.num_nodes - 1) // 2))
    edges, frozen = set(graph.edge_slots.tolist()), set(graph.frozen_slots.tolist())
    assert graph.slots.tolist() == sorted(everything - frozen)
    assert graph.num_slots == len(everything - frozen)
    assert graph.flippable_edge_slots.tolist() == sorted(edges - frozen)
    assert graph.max_removes == len(edges - frozen)
    assert graph.max_adds == len(everything - frozen - edges)
    assert graph.slot_states.tolist() == [slot in edges for slot in graph.slots.tolist()]
    assert graph.degrees.tolist() == [int((graph.edges == node).sum()) for node in range(graph.num_nodes)]


@given(graphs(frozen=True))
def test_frozen_edge_slots_are_the_edges_that_cannot_flip(graph: Graph) -> None:
    frozen = {tuple(pair) for pair in graph.frozen.tolist()}
    both = [pair for pair in map(tuple, graph.edges.tolist()) if pair in frozen]
    assert [tuple(pair) for pair in pairs_of_slots(graph.frozen_edge_slots, graph.num_nodes).tolist()] == both
    together = np.concatenate([graph.frozen_edge_slots, graph.flippable_edge_slots])
    assert np.array_equal(np.sort(together), graph.edge_slots)
    assert (graph.frozen_edge_slots.dtype, graph.frozen_edge_slots.flags.writeable) == (np.int64, False)
    assert graph.frozen_edge_slots is graph.frozen_edge_slots, "it is computed once"
