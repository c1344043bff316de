"""Odd input has a defined outcome."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flipproof import Graph, InputError
from flipproof.graphs import as_graph
from support.graphs import graphs


@given(graphs(), st.randoms())
def test_order_direction_and_repetition_of_edges_have_no_meaning(graph: Graph, random: object) -> None:
    messy = [tuple(pair) for pair in graph.edges.tolist()] + [(v, u) for u, v in graph.edges.tolist()]
    random.shuffle(messy)  # type: ignore[attr-defined]
    again = Graph(graph.num_nodes, messy)
    assert again == graph
    assert again.edges.tolist() == sorted(again.edges.tolist())
    assert again.topology == graph.topology


@pytest.mark.parametrize(
    "edges",
    [
        [(0, 1), (1, 2)],
        ((0, 1), (1, 2)),
        {(0, 1), (1, 2)},
        (pair for pair in [(0, 1), (1, 2)]),
        np.array([[0, 1], [1, 2]]),
        np.array([[0, 1], [1, 2]], dtype=np.uint8),
        torch.tensor([[0, 1], [1, 2]]),
    ],
)
def test_edges_come_in_many_forms(edges: object) -> None:
    assert Graph(3, edges).edges.tolist() == [[0, 1], [1, 2]]  # type: ignore[arg-type]


@pytest.mark.parametrize("nothing", [[], (), np.empty((0, 2)), np.empty((2, 0), dtype=int), set(), iter(())])
def test_no_edges(nothing: object) -> None:
    graph = Graph(3, nothing)  # type: ignore[arg-type]
    assert graph.edges.shape == (0, 2)
    assert graph.edges.dtype == np.int64
    assert (graph.num_edges, graph.num_slots, graph.max_adds, graph.max_removes) == (0, 3, 3, 0)


def test_single_node_has_no_slots() -> None:
    graph = Graph(1, [])
    assert (graph.num_slots, graph.max_adds, graph.max_removes) == (0, 0, 0)
    assert graph.slots.shape == graph.slot_states.shape == (0,)
    assert graph.adjacency().tolist() == [[0.0]]
    assert as_graph(graph.to_pyg()) == as_graph(graph.to_networkx()) == graph


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((0, []), {}, ["num_nodes", "at least 1", "0"]),
        ((-3, []), {}, ["num_nodes", "-3"]),
        ((2.0, []), {}, ["num_nodes", "integer", "2.0"]),
        ((True, []), {}, ["num_nodes", "True"]),
        (("3", []), {}, ["num_nodes", "'3'"]),
        ((3, [(1, 1)]), {}, ["edges", "self-loops", "(1, 1)", "remove"]),
        ((3, [(0, 3)]), {}, ["edges", "0..2", "3"]),
        ((3, [(-1, 0)]), {}, ["edges", "0..2", "-1"]),
        ((1, [(0, 1)]), {}, ["edges", "0..0", "1"]),
        ((3, [(0, 1, 2)]), {}, ["edges", "[E, 2]", "(1, 3)"]),
        ((3, [0, 1]), {}, ["edges", "[E, 2]", "(2,)"]),
        ((5, [[0, 1, 2], [1, 2, 3]]), {}, ["edges", "transpose", "from_pyg"]),
        ((3, [(0, 1), (1,)]), {}, ["edges", "[E, 2]"]),
        ((3, 7), {}, ["edges", "[E, 2]"]),
        ((3, None), {}, ["edges", "[E, 2]"]),
        ((3, [(0.0, 1.0)]), {}, ["edges", "node numbers", "float64"]),
        ((3, [(True, False)]), {}, ["edges", "node numbers", "bool"]),
        ((3, [("a", "b")]), {}, ["edges", "node numbers"]),
        ((3, np.array([[0, 2**64 - 1]], dtype=np.uint64)), {}, ["edges", "0..2"]),
        ((2, [], [[1.0], [np.nan]]), {}, ["node_features", "finite", "nan", "node 1"]),
        ((2, [], [[1.0], [-np.inf]]), {}, ["node_features", "finite", "-inf"]),
        ((2, [], [1.0, 2.0]), {}, ["node_features", "[num_nodes, d]", "(2,)", "reshape"]),
        ((2, [], [[1.0]]), {}, ["node_features", "num_nodes = 2", "(1, 1)"]),
        ((2, [], [[1.0], [1.0, 2.0]]), {}, ["node_features", "matrix"]),
        ((2, [], [["C"], ["N"]]), {}, ["node_features", "numbers", "one-hot"]),
        ((2, [], [[1j], [2j]]), {}, ["node_features", "numbers", "complex"]),
        ((2, [], None, -1), {}, ["label", "-1"]),
        ((2, [], None, 1.0), {}, ["label", "1.0"]),
        ((2, [], None, True), {}, ["label", "True"]),
        ((2, [], None, "cat"), {}, ["label", "'cat'"]),
        ((2, [], None, [0, 1]), {}, ["label", "[0, 1]"]),
        ((3, []), {"frozen": [(0, 0)]}, ["frozen", "self-loops"]),
        ((3, []), {"frozen": [(0, 5)]}, ["frozen", "0..2", "5"]),
    ],
)
def test_bad_input_is_refused_in_words(arguments: tuple, options: dict, words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        Graph(*arguments, **options)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (np.int32, np.int64),
        (np.uint8, np.int64),
        (np.bool_, np.float32),
        (np.float16, np.float32),
        (np.float32, np.float32),
        (np.float64, np.float64),
    ],
)
def test_feature_types(given: type, kept: type) -> None:
    features = Graph(2, [], np.ones((2, 3), dtype=given)).node_features
    assert features is not None
    assert features.dtype == kept
    assert features.tolist() == [[1, 1, 1]] * 2


@pytest.mark.parametrize("label", [3, np.int64(3), np.array(3), np.array([3]), torch.tensor(3), torch.tensor([3])])
def test_label_types(label: object) -> None:
    kept = Graph(2, [], None, label).label  # type: ignore[arg-type]
    assert kept == 3
    assert type(kept) is int
