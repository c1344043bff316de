"""Classes by numbers of nodes and edges: intervals that certify most, and a table that says the same on every machine."""

from itertools import product

import numpy as np
import pytest
import torch

import flipproof as fp
from flipproof.models import count_table
from flipproof.models.count_table import CountTable


def certified(labels, adds, removes):
    """Which numbers of edges keep their class under so many additions and removals."""
    last = len(labels) - 1
    reached = [labels[max(0, m - removes) : min(last, m + adds) + 1] for m in range(last + 1)]
    return np.array([len(set(part.tolist())) == 1 for part in reached])


@pytest.mark.parametrize(("classes", "nodes"), [(2, 5), (3, 4)])
@pytest.mark.parametrize(("adds", "removes"), [(0, 0), (1, 1), (0, 2), (1, 0), (3, 1)])
def test_no_other_classes_certify_more(classes, nodes, adds, removes):
    """Against all ways to give every number of edges a class, where classes are common at densities of their own."""
    rng, rows = np.random.default_rng(10 * adds + removes), np.full(3, nodes)
    numbers = np.arange(nodes * (nodes - 1) // 2 + 1)
    places = numbers * count_table._CELLS // len(numbers)
    ways = [np.array(labels) for labels in product(range(classes), repeat=len(numbers))]
    kept = [certified(labels, adds, removes) for labels in ways]
    for _ in range(5):
        peaks = (np.arange(classes) + rng.random((3, classes))) / classes
        away = np.linspace(0, 1, count_table._DENSITIES) - peaks[:, :, None]
        common = rng.random((3, classes, count_table._DENSITIES)) * np.exp(-0.5 * (away / 0.1) ** 2)
        intervals = count_table._best_intervals(common, rows, adds, removes)
        ends = np.tile(np.arange(len(numbers) + 1), (3, 1))
        for share, cells in zip(np.diff(count_table._below(common, rows, ends), axis=2), intervals, strict=True):
            best = max(share[labels, numbers][those].sum() for labels, those in zip(ways, kept, strict=True))
            labels = cells[places]
            assert share[labels, numbers][certified(labels, adds, removes)].sum() == pytest.approx(best)


def test_what_is_learnt_and_looked_up():
    sizes, edges = np.repeat([6, 30], 20), np.concatenate([np.tile([3, 12], 10), np.tile([60, 300], 10)])
    labels = np.tile([0, 1], 20)
    table = CountTable()
    assert table(*(torch.tensor([value]) for value in (6, 3, 1))).tolist() == [0]
    table.learn(sizes, edges, labels, np.ones(2), 4, (4, 4))
    for nodes, number, label in ((6, 3, 0), (6, 12, 1), (30, 60, 0), (30, 300, 1), (29, 62, 0), (500, 9, 0), (1, 0, 0)):
        assert table(*(torch.tensor([value]) for value in (nodes, number, 3))).tolist() == [label], (nodes, number)
    line = table(torch.full((16,), 6), torch.arange(16), torch.full((16,), 4))
    assert (line.diff() != 0).sum() == 1
    assert certified(line.numpy(), 4, 4)[[3, 12]].all()


def test_one_kind_of_flips_only():
    """Who can only remove edges is kept from one side alone."""
    few, many = [(0, 1), (1, 2)], [(0, 1), (1, 3), (2, 4), (3, 5)]
    graphs = [fp.Graph(6, few, label=0), fp.Graph(6, many, label=1)]
    one_sided, both = (fp.models.Local(0, 2, counts_only=True) for _ in range(2))
    result = fp.train(one_sided, graphs * 5, budget=(0, 1))
    assert (result.settings["budget"], int(one_sided.budget)) == ([0, 1], 1)
    fp.train(both, graphs * 5, budget=1)
    numbers = torch.full((16,), 6), torch.arange(16), torch.ones(16).long()
    lines = [model.table(*numbers).numpy() for model in (one_sided, both)]
    assert certified(lines[0], 0, 1)[[2, 4]].all()
    assert lines[0][[2, 4]].tolist() == [0, 1]
    assert not certified(lines[0], 1, 1)[[2, 4]].all()  # with three edges either graph could have been meant
    assert certified(lines[1], 1, 1)[[2, 4]].any()


def test_classes_of_few_graphs_can_be_given_the_same_weight():
    few, many = fp.Graph(5, [(0, 1), (1, 2)], label=0), fp.Graph(5, [(0, 1), (1, 2)], label=1)
    graphs = [few] * 3 + [many] * 4 + [fp.Graph(5, [], label=1)] * 9
    for even in (False, True):
        model = fp.models.Local(0, 2, counts_only=True)
        fp.train(model, graphs, budget=1, class_weights=even)
        assert fp.LocalClassifier(model).predict(few) == (0 if even else 1)
