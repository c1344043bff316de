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

from flipproof import EdgeNoise, Graph, InputError
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


def test_edge_labels_follow_their_edges() -> None:
    graph = Graph(4, [(2, 1), (0, 1), (3, 0), (1, 2)], edge_labels=[5, 1, 2, 5])
    assert graph.edges.tolist() == [[0, 1], [0, 3], [1, 2]]
    assert graph.edge_labels is not None
    assert graph.edge_labels.tolist() == [1, 2, 5]
    assert repr(graph) == "Graph(num_nodes=4, num_edges=3, edge_labels=3)"
    plain, other = graph.replaced(edge_labels=None), graph.replaced(edge_labels=[1, 2, 4])
    assert len({plain.topology, other.topology, graph.topology}) == 3
    assert graph not in (plain, other)
    assert pickle.loads(pickle.dumps(graph)).edge_labels.tolist() == [1, 2, 5]
    assert graph.replaced(label=1).edge_labels.tolist() == [1, 2, 5]
    assert graph.replaced(edges=[(0, 1)]).edge_labels is None
    with pytest.raises(ValueError, match="read-only"):
        graph.edge_labels[0] = 0


def test_noisy_copies_have_no_edge_labels() -> None:
    """They would tell edges that were there from those that the noise added."""
    graph = Graph(5, [(0, 1), (1, 2), (2, 3)], edge_labels=[0, 1, 0])
    noise = EdgeNoise(add=0.0, remove=0.5)
    assert all(noise.sample(graph, seed=seed).edge_labels is None for seed in range(5))


def test_attacks_on_graphs_with_edge_labels() -> None:
    graph = Graph(4, [(0, 1), (1, 2)], edge_labels=[3, 1])
    assert graph.flipped([(0, 1)]).edge_labels.tolist() == [1]
    assert graph.flipped([(0, 1), (2, 3)]).edge_labels is None
    attacked = graph.flipped(iter([(3, 2), (0, 1), (0, 2)]), edge_labels=[7, 0, 2])
    assert attacked.edges.tolist() == [[0, 2], [1, 2], [2, 3]]
    assert attacked.edge_labels.tolist() == [2, 1, 7]


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ([0], "one number for each of 2 edges"),
        ([0, -1], "0, 1, 2"),
        ([0.5, 1], "0, 1, 2"),
        ([0, 1], r"\(0, 1\) has 1 and another one|\(1, 0\) has 1 and another one"),
    ],
)
def test_wrong_edge_labels_are_refused(labels: list[float], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Graph(3, [(0, 1), (1, 0)], edge_labels=labels)
