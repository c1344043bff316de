"""The paper's topologies, and splits of data sets."""

import pickle

import networkx as nx
import numpy as np
import pytest
from scipy.stats import chisquare

import flipproof as fp
from flipproof.datasets import Dataset, folds, isomorphic_to_any, split, topologies
from flipproof.datasets.splits import isomorphism_groups

NAMES = ("cycle", "star", "wheel", "lollipop", "hypercube", "grid", "complete", "circular ladder")


@pytest.fixture(scope="module")
def data():
    return topologies()


def test_sixty_of_each_of_eight_classes(data):
    lines = data.describe().splitlines()
    assert lines[0] == "topologies: 480 graphs, 8 classes"
    assert [line.split()[-3] for line in lines[2:]] == ["60"] * 8
    assert lines[-1].split() == ["circular", "ladder", "60", "10-20", "15-30"]
    assert data.class_names == NAMES
    assert topologies(23) == data[:23], "a smaller set is the beginning of a larger one"
    assert topologies(40, seed=1) != topologies(40, seed=2)
    assert {graph.num_nodes for graph in topologies(80, min_nodes=12, max_nodes=12) if graph.label != 4} == {12}


def test_sizes_are_drawn_uniformly(data):
    """A test of fit on 300 sizes with 11 values; false-alarm rate 1e-6 if the seed were drawn."""
    sizes = [graph.num_nodes for graph in data if graph.label in (0, 1, 2, 3, 6)]  # classes that exist at every size
    assert (min(sizes), max(sizes)) == (10, 20)
    assert chisquare(np.bincount(sizes)[10:]).pvalue > 1e-6


def _expected(name, graph):
    """Every graph that a class may hold at the given number of nodes."""
    n = graph.num_nodes
    if name == "lollipop":
        return [nx.lollipop_graph(m, n - m) for m in range(3, n)]
    if name == "grid":
        rows = {10: 2, 12: 3, 14: 2, 15: 3, 16: 4, 18: 3, 20: 4}[n]  # as square as the size allows
        return [nx.grid_2d_graph(rows, n // rows)]
    return [
        {
            "cycle": nx.cycle_graph,
            "star": lambda n: nx.star_graph(n - 1),
            "wheel": nx.wheel_graph,
            "hypercube": lambda n: nx.hypercube_graph(n.bit_length() - 1),
            "complete": nx.complete_graph,
            "circular ladder": lambda n: nx.circular_ladder_graph(n // 2),
        }[name](n)
    ]


def test_every_graph_is_what_its_class_says():
    for graph in topologies(240, seed=3):
        mine, name = graph.to_networkx(), NAMES[graph.label]
        candidates = [other for other in _expected(name, graph) if other.size() == graph.num_edges]
        assert any(nx.vf2pp_is_isomorphic(mine, other) for other in candidates), graph


def test_no_graph_belongs_to_two_classes(data):
    groups = isomorphism_groups(data)
    assert (data.labels == data.labels[groups]).all()
    assert len(set(groups.tolist())) < len(data), "the search finds something"


def test_node_order_is_shuffled_unless_told_otherwise():
    first = topologies(80, shuffle_nodes=False)
    stars = [graph for graph in first if graph.label == 1]
    assert all(graph.degrees[0] == graph.num_nodes - 1 for graph in stars)
    hubs = [int(graph.degrees.argmax()) for graph in topologies(80) if graph.label == 1]
    assert len(set(hubs)) > 3
    assert fp.datasets.isomorphic_to_any(topologies(80), first).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"count": 0}, "count must be an integer from 1 to 10000000; got 0"),
        ({"count": 10**14}, "count must be an integer from 1 to 10000000"),
        ({"min_nodes": 8}, "min_nodes must be an integer of at least 10; got 8"),
        ({"min_nodes": 15, "max_nodes": 14}, "max_nodes must be an integer of at least 15; got 14"),
    ],
)
def test_bad_arguments_end_in_one_sentence(arguments, words):
    with pytest.raises(fp.InputError, match=words) as caught:
        topologies(**arguments)
    assert "\n" not in str(caught.value)


def test_a_dataset_is_a_read_only_sequence_that_pickles(data):
    part = data[8:24]
    assert isinstance(part, Dataset)
    assert part.class_names == NAMES
    assert part[0] == data[8]
    assert pickle.loads(pickle.dumps(part)) == part
    with pytest.raises(AttributeError, match="cannot assign"):
        part.name = "other"
    with pytest.raises(ValueError, match="read-only"):
        part.labels[0] = 3
    assert data.subset([5, 1])[1] == data[1]


def test_a_dataset_knows_missing_labels_and_names():
    with pytest.raises(fp.InputError, match=r"class_names must name every class, 0\.\.2; got 1"):
        Dataset([fp.Graph(2, [], label=2)], class_names=["only"])
    with pytest.raises(fp.InputError, match="graph 1 has none"):
        _ = Dataset([fp.Graph(2, [], label=0), fp.Graph(2, [])]).labels
    with pytest.raises(fp.InputError, match="equally many node features"):
        _ = Dataset([fp.Graph(2, [], [[1], [2]]), fp.Graph(2, [])]).num_node_features


def _uneven():
    """90 graphs of class 0, 9 of class 1, 1 of class 2."""
    return Dataset([fp.Graph(3 + i % 5, [], label=int(i >= 90) + int(i >= 99)) for i in range(100)])


def test_parts_are_disjoint_and_cover_everything(data):
    parts = split(data, train=300, validation=0.125, seed=4)
    together = np.concatenate([parts.train_indices, parts.validation_indices, parts.test_indices])
    assert sorted(together.tolist()) == list(range(480))
    assert (len(parts.train), len(parts.validation), len(parts.test)) == (300, 60, 120)
    assert parts.test[3] == data[int(parts.test_indices[3])]
    paper = split(data)
    assert np.bincount(paper.train.labels).tolist() == [40] * 8
    assert np.bincount(paper.test.labels).tolist() == [20] * 8
    assert len(paper.validation) == 0
    assert np.array_equal(split(data, seed=1).test_indices, split(data, seed=1).test_indices)
    assert not np.array_equal(split(data, seed=1).test_indices, split(data, seed=2).test_indices)
    few = split(data, train=80, test=40)  # the rest is left out
    assert (np.bincount(few.train.labels).tolist(), len(few.test)) == ([10] * 8, 40)


def test_small_classes_keep_their_proportion():
    parts = split(_uneven(), train=0.5)
    counts = np.bincount(parts.train.labels, minlength=3)
    assert abs(counts[0] - 45) <= 1
    assert abs(counts[1] - 4.5) <= 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"train": 480}, "at least one training and one test graph; got 480"),
        ({"train": 400, "test": 100}, "fit into 480 graphs"),
        ({"train": 1.5}, "train must be a number of graphs or a share"),
        ({"test": -3}, "test must be a number of graphs or a share"),
        ({"validation": "many"}, "validation must be"),
        ({"seed": "x"}, "seed must be"),
    ],
)
def test_bad_splits_end_in_one_sentence(data, arguments, words):
    with pytest.raises(fp.InputError, match=words) as caught:
        split(data, **arguments)
    assert "\n" not in str(caught.value)
    with pytest.raises(fp.InputError, match="at least two graphs; got 1"):
        split([fp.Graph(2, [], label=0)])
    with pytest.raises(fp.InputError, match="must have a label"):
        split([fp.Graph(2, []), fp.Graph(2, [])])


def test_folds_with_validation_hold_a_second_fold_out(data):
    for part in folds(data, number=4, validation=True):
        sets = [set(part.train_indices), set(part.validation_indices), set(part.test_indices)]
        assert [len(s) for s in sets] == [240, 120, 120]
        assert len(set.union(*sets)) == 480
    parts = folds(data, number=10, seed=2)
    assert sorted(np.concatenate([part.test_indices for part in parts]).tolist()) == list(range(480))
    assert all(np.bincount(part.test.labels).tolist() == [6] * 8 for part in parts)


@pytest.mark.parametrize(("number", "validation"), [(1, False), (2, True), (481, False), (2.0, False)])
def test_bad_folds_are_refused(data, number, validation):
    with pytest.raises(fp.InputError, match="number must be an integer from"):
        folds(data, number=number, validation=validation)


def test_the_split_counts_isomorphic_test_graphs_as_networkx_does():
    parts = split(topologies(96, seed=5), train=64)
    train = [graph.to_networkx() for graph in parts.train]
    brute = [any(nx.is_isomorphic(graph.to_networkx(), other) for other in train) for graph in parts.test]
    assert isomorphic_to_any(parts.test, parts.train).tolist() == brute
    assert 0 < sum(brute) < len(brute)
    assert f"{sum(brute)} of 32 test graphs are isomorphic to a training graph" in parts.describe()


def test_colours_alone_do_not_decide():
    """Six nodes in a ring and two triangles look alike to Weisfeiler-Lehman."""
    ring = fp.Graph(6, [(i, (i + 1) % 6) for i in range(6)])
    triangles = fp.Graph(6, [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)])
    assert isomorphic_to_any([ring, triangles], [triangles]).tolist() == [False, True]


def test_node_features_must_agree():
    plain = fp.Graph(3, [(0, 1)], [[1.0], [0.0], [0.0]])
    moved = fp.Graph(3, [(1, 2)], [[0.0], [0.0], [1.0]])
    other = fp.Graph(3, [(0, 1)], [[0.0], [0.0], [1.0]])
    assert isomorphic_to_any([moved, other], [plain]).tolist() == [True, False]
    assert isomorphic_to_any([plain], []).tolist() == [False]
