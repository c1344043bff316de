"""Log-odds from nodes alone: what was not seen judges what was learnt, and the same numbers come back from a folder."""

import numpy as np
import pytest
import torch

from flipproof import Graph, models
from flipproof.models.node_odds import NodeOdds
from flipproof.models.node_statistics import node_statistics

EVEN = np.ones(2)


def rows_of(rng, count, classes=2, noise=0.0):
    """Node sets in which one kind is the commoner the higher the class, and their classes; some classes are drawn at random."""
    truth = np.arange(count) % classes
    shown = np.where(rng.random(count) < noise, rng.integers(classes, size=count), truth)
    features = [np.eye(2)[(rng.random(int(rng.integers(8, 15))) < (c + 0.5) / classes).astype(int)] for c in shown]
    return np.array([node_statistics(x) for x in features]), truth


def test_it_learns_and_is_the_same_for_one_graph_and_for_many():
    rng = np.random.default_rng(0)
    (rows, truth), (others, unseen) = rows_of(rng, 120), rows_of(rng, 60)
    odds = NodeOdds(2, 2)
    assert not odds.of(rows).any()
    known = odds.fit(rows, truth, EVEN, 0)
    assert known.shape == (120, 2)
    answers = odds.of(others)
    assert np.mean(answers.argmax(axis=1) == unseen) > 0.8
    np.testing.assert_allclose(odds.of(others[7:8])[0], answers[7], rtol=1e-12)


def test_graphs_of_training_are_judged_by_machines_that_have_not_seen_them():
    """Classes by chance: what is learnt by heart is of no use for graphs that are left out, and so not claimed for them."""
    rng = np.random.default_rng(1)
    rows, truth = rows_of(rng, 150, noise=1.0)
    odds = NodeOdds(2, 2)
    known = odds.fit(rows, truth, EVEN, 0)
    assert np.mean(known.argmax(axis=1) == truth) < 0.65
    assert np.mean(odds.of(rows).argmax(axis=1) == truth) > 0.7  # seen by four machines of five
    # nor are they surer than they are right: a share of 1 / 2 is the best that can be said
    shares = np.exp(known) / np.exp(known).sum(axis=1, keepdims=True)
    assert shares.max() < 0.8


def test_the_likeliest_sharpness_is_taken_and_rare_classes_count_by_their_weight():
    rng = np.random.default_rng(2)
    rows, truth = rows_of(rng, 100, noise=0.3)
    plain, weighted = NodeOdds(2, 2), NodeOdds(2, 2)
    known = plain.fit(rows, truth, EVEN, 0)

    def surprise(factor):
        scaled = factor * known
        return np.mean(np.log(np.exp(scaled).sum(axis=1)) - scaled[np.arange(len(truth)), truth])

    assert surprise(1.0) <= min(surprise(0.8), surprise(1.25))
    weighted.fit(rows, truth, np.array([1.0, 5.0]), 0)
    np.testing.assert_allclose(weighted.of(rows) - plain.of(rows), np.log([[1.0, 5.0]]).repeat(100, axis=0))


@pytest.mark.parametrize("classes", [2, 4])
def test_a_class_without_graphs_and_few_graphs(classes):
    """A class may be missing altogether, or from some of the parts; a single graph teaches nothing."""
    rng = np.random.default_rng(4)
    rows, truth = rows_of(rng, 9, classes=classes - 1 or 1)
    odds = NodeOdds(2, classes)
    odds.fit(rows, truth, np.ones(classes), 0)
    answers = odds.of(rows)
    assert np.isfinite(answers).all()
    assert (answers.argmax(axis=1) < classes - 1).all()
    assert not odds.fit(rows[:1], truth[:1], np.ones(classes), 0).any()
    assert not odds.of(rows).any()  # nothing is left of the earlier fit


def test_a_network_keeps_them_in_its_folder(tmp_path):
    rng = np.random.default_rng(5)
    rows, truth = rows_of(rng, 40)
    model = models.Local(2, 2, hidden=4, seed=0).eval()
    model.odds.fit(rows, truth, EVEN, 0)
    model.hear([0.5, 0.5, 0.0])
    models.save(model, tmp_path / "model")
    again = models.load(tmp_path / "model")
    assert np.array_equal(again.odds.of(rows), model.odds.of(rows))
    assert torch.equal(again.loudness, model.loudness)
    # the whole network on matrices, too: of equal node sets each once
    graph = Graph(3, [(0, 1)], np.eye(2)[[0, 1, 1]])
    x = torch.tensor(np.stack([graph.node_features] * 2), dtype=torch.float32)
    adj, mask = torch.zeros(2, 3, 3), torch.ones(2, 3, dtype=torch.bool)
    dense = again(x, adj, mask)
    no_edges, batch = torch.zeros(2, 0, dtype=torch.int64), torch.tensor([0, 0, 0, 1, 1, 1])
    sparse = again.forward_sparse(x.flatten(0, 1), no_edges, batch)
    torch.testing.assert_close(dense, sparse)
    assert torch.equal(dense[0], dense[1])
    lead = again.odds.of(node_statistics(graph.node_features)[None])[0]
    again.hear([0.0])
    assert again(x, adj, mask)[0, 0].item() == pytest.approx(lead[0] - lead[1], rel=1e-5)


def test_tables_of_other_features_or_classes_are_refused():
    model = models.Local(2, 2, hidden=4, seed=0)
    model.odds.fit(*rows_of(np.random.default_rng(6), 20), EVEN, 0)
    models.Local(2, 2, hidden=4, seed=1).load_state_dict(model.state_dict())
    for name, broken, words in (
        ("value", lambda value: value[:, :1], "log-odds of nodes"),
        ("columns", lambda value: value + 100, "log-odds of nodes"),
        ("left", lambda value: value * 0, "do not end in leaves"),  # back to the root: without end
        ("right", lambda value: value + 10**6, "do not end in leaves"),
        ("roots", lambda value: value - 1, "do not end in leaves"),
        ("feature", lambda value: value + 100, "do not end in leaves"),
    ):
        other = models.Local(2, 2, hidden=4, seed=1)
        other.odds.take(model.odds.tables | {name: broken(model.odds.tables[name])})
        with pytest.raises(RuntimeError, match=words):
            model.load_state_dict(other.state_dict())


def test_they_do_not_depend_on_how_nodes_are_numbered():
    x = np.array([[1e9, 0.1], [1e-8, 0.2], [-1e9, 0.7]])
    rows = [node_statistics(x[list(order)]) for order in ((0, 1, 2), (0, 2, 1), (2, 1, 0))]
    assert np.array_equal(rows[0], rows[1])
    assert np.array_equal(rows[0], rows[2])
