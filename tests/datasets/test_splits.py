"""Stratified splits, folds, and the count of test graphs that training has seen."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import flipproof as fp
from flipproof.datasets import Dataset, folds, isomorphic_to_any, split, topologies


@pytest.fixture(scope="module")
def data():
    return topologies()


def _uneven():
    """90 graphs of class 0, 9 of class 1, 1 of class 2."""
    return Dataset([fp.Graph(3 + i % 5, [], label=int(i >= 90) + int(i >= 99)) for i in range(100)])


def test_the_paper_has_320_and_160_stratified(data):
    parts = split(data)
    assert np.bincount(parts.train.labels).tolist() == [40] * 8
    assert np.bincount(parts.test.labels).tolist() == [20] * 8
    assert len(parts.validation) == 0


def test_parts_are_disjoint_and_cover_everything(data):
    parts = split(data, train=300, validation=0.125, seed=4)
    together = np.concatenate([parts.train_indices, parts.validation_indices, parts.test_indices])
    assert sorted(together.tolist()) == list(range(480))
    assert (len(parts.train), len(parts.validation), len(parts.test)) == (300, 60, 120)
    assert parts.test[3] == data[int(parts.test_indices[3])]


def test_small_classes_keep_their_proportion():
    parts = split(_uneven(), train=0.5)
    counts = np.bincount(parts.train.labels, minlength=3)
    assert abs(counts[0] - 45) <= 1
    assert abs(counts[1] - 4.5) <= 1


def test_the_seed_makes_the_split(data):
    assert np.array_equal(split(data, seed=1).test_indices, split(data, seed=1).test_indices)
    assert not np.array_equal(split(data, seed=1).test_indices, split(data, seed=2).test_indices)


def test_with_both_sizes_given_the_rest_is_left_out(data):
    parts = split(data, train=80, test=40)
    assert (len(parts.train), len(parts.test)) == (80, 40)
    assert np.bincount(parts.train.labels).tolist() == [10] * 8


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


def test_a_split_needs_labels_and_graphs():
    with pytest.raises(fp.InputError, match="at least two graphs; got 1"):
        split([fp.Graph(2, [], label=0)])
    with pytest.raises(fp.InputError, match="must have a label"):
        split([fp.Graph(2, []), fp.Graph(2, [])])


def test_folds_test_every_graph_once(data):
    parts = folds(data, number=10, seed=2)
    assert sorted(np.concatenate([part.test_indices for part in parts]).tolist()) == list(range(480))
    for part in parts:
        assert not set(part.train_indices) & set(part.test_indices)
        assert np.bincount(part.test.labels).tolist() == [6] * 8


def test_folds_with_validation_hold_a_second_fold_out(data):
    for part in folds(data, number=4, validation=True):
        sets = [set(part.train_indices), set(part.validation_indices), set(part.test_indices)]
        assert [len(s) for s in sets] == [240, 120, 120]
        assert len(set.union(*sets)) == 480


@pytest.mark.parametrize(("number", "validation"), [(1, False), (2, True), (481, False), (2.0, False)])
def test_bad_folds_are_refused(data, number, validation):
    with pytest.raises(fp.InputError, match="number must be an integer from"):
        folds(data, number=number, validation=validation)


# ---- isomorphism ---------------------------------------------------------------------------------------------------


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


def test_nothing_is_isomorphic_to_nothing():
    assert isomorphic_to_any([fp.Graph(2, [])], []).tolist() == [False]
