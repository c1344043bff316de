"""A graph is read-only, has an identity, and can be attacked."""

from __future__ import annotations

import copy
import itertools
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipproof import Graph, InputError
from support.graphs import graphs


def test_read_only(full: Graph) -> None:
    for name in ("num_nodes", "edges", "label", "slots", "anything"):
        with pytest.raises(AttributeError, match=name):
            setattr(full, name, 1)
    with pytest.raises(AttributeError, match="label"):
        del full.label
    names = ("edges", "frozen", "node_features", "edge_slots", "frozen_slots", "slots", "slot_states", "degrees")
    for name in (*names, "flippable_edge_slots"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(full, name)[0] = 0


def test_the_callers_arrays_are_neither_kept_nor_locked() -> None:
    edges, features = np.array([[0, 1]]), np.ones((2, 1))
    graph = Graph(2, edges, features)
    edges[0, 1], features[0] = 0, np.nan
    assert graph.edges.tolist() == [[0, 1]]
    assert graph.node_features is not None
    assert graph.node_features.tolist() == [[1.0], [1.0]]


def test_equality_and_hash(full: Graph) -> None:
    assert full.replaced(name="other") == full
    assert hash(full.replaced(label=None)) == hash(full)
    others = [
        full.replaced(label=1),
        full.replaced(node_features=None),
        full.replaced(node_features=np.zeros((5, 2))),
        full.replaced(edges=[(0, 1)]),
        full.replaced(frozen=[]),
        Graph(6, full.edges),
        "a graph",
    ]
    assert all(other != full for other in others)
    assert full.replaced(node_features=None) != full


@pytest.mark.parametrize("copied", [lambda g: pickle.loads(pickle.dumps(g)), copy.copy, copy.deepcopy])
def test_copies(full: Graph, copied: object) -> None:
    again = copied(full)  # type: ignore[operator]
    assert again == full
    assert again.name == "five"
    assert again.frozen.tolist() == full.frozen.tolist()
    with pytest.raises(AttributeError):
        again.label = 0


def test_topology_hash_is_the_same_in_another_process_and_covers_everything(full: Graph) -> None:
    code = "import flipproof as fp;print(fp.Graph(5, [(0, 1), (3, 1), (2, 4)], frozen=[(4, 3), (0, 1)]).topology)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == full.topology
    same_bytes = [
        Graph(4, [(0, 1)], frozen=[(0, 2)]),
        Graph(4, [(0, 1), (0, 2)]),
        Graph(4, [], frozen=[(0, 1), (0, 2)]),
        Graph(5, [(0, 1)], frozen=[(0, 2)]),
        Graph(4, [(0, 2)], frozen=[(0, 1)]),
    ]
    assert len({graph.topology for graph in same_bytes}) == len(same_bytes)


def test_repr(full: Graph) -> None:
    assert repr(full) == "Graph(num_nodes=5, num_edges=3, features=2, frozen=2, label=2, name='five')"


@given(graphs(max_nodes=6), st.data())
def test_flipped_toggles_exactly_the_given_pairs_and_undoes_itself(graph: Graph, data: st.DataObject) -> None:
    pairs = list(itertools.combinations(range(graph.num_nodes), 2))
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    attacked = graph.flipped(chosen)
    edges = {tuple(pair) for pair in graph.edges.tolist()}
    assert {tuple(pair) for pair in attacked.edges.tolist()} == edges ^ set(chosen)
    assert attacked.flipped(chosen) == graph


def test_flipped_keeps_the_rest(full: Graph) -> None:
    attacked = full.flipped([(1, 2), (2, 1)])
    assert attacked.edges.tolist() == [[0, 1], [1, 2], [1, 3], [2, 4]]
    assert (attacked.label, attacked.name, attacked.frozen.tolist()) == (2, "five", full.frozen.tolist())
    assert np.array_equal(attacked.node_features, full.node_features)


def test_frozen_pairs_cannot_be_attacked(full: Graph) -> None:
    with pytest.raises(InputError, match=r"frozen.*\(0, 1\)"):
        full.flipped([(1, 2), (1, 0)])
    with pytest.raises(InputError, match="pairs must not contain self-loops"):
        full.flipped([(2, 2)])
