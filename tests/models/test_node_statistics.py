"""The strong edge-blind line: what it sees, what it learns, that no edge changes it, and how it is stored."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flipproof as fp
from flipproof import models
from flipproof.models import node_statistics as module
from flipproof.models.node_statistics import node_statistics


def graphs_by_kinds(count=60, *, classes=2, seed=0):
    """The class is the commonest kind of node; edges are random."""
    generator = np.random.default_rng(seed)
    graphs = []
    for index in range(count):
        n, label = int(generator.integers(4, 9)), index % classes
        kinds = np.where(generator.random(n) < 0.8, label, generator.integers(0, classes, n))
        edges = np.argwhere(np.triu(generator.random((n, n)) < 0.3, 1))
        graphs.append(fp.Graph(n, edges, np.eye(classes)[kinds], label=label))
    return graphs


def fitted(graphs, classes=2, **options: object):
    model = models.NodeStatistics(classes)
    model.fit(graphs, **options)
    return model


def test_no_edge_changes_an_answer_and_certificates_reach_every_pair():
    graphs = graphs_by_kinds()
    model = fitted(graphs)
    bare = [graph.replaced(edges=()) for graph in graphs]
    np.testing.assert_array_equal(model.scores(graphs), model.scores(bare))
    certificates = fp.EdgeBlindClassifier(model).certify_all(graphs)
    assert [one.radius for one in certificates] == [g.num_nodes * (g.num_nodes - 1) // 2 for g in graphs]
    assert float(fp.certified_accuracy(certificates, [g.label for g in graphs], [3])[0]) > 0.9


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", ["forest", "perceptron"])
def test_the_stored_numbers_answer_as_the_machine_that_was_fitted(kind, classes, tmp_path, monkeypatch):
    """Three classes are declared and the last may have no graph: it never wins."""
    machines = {
        "forest": RandomForestClassifier(20, random_state=0),
        "perceptron": make_pipeline(StandardScaler(), MLPClassifier((8,), max_iter=20, random_state=0)),
    }
    monkeypatch.setattr(module, "_settings", lambda seed: {kind: machines[kind]})
    graphs = graphs_by_kinds(classes=classes)
    model = fitted(graphs, 4)
    inputs = np.array([node_statistics(graph.node_features) for graph in graphs])[:, model._state["columns"]]
    np.testing.assert_array_equal(model(graphs), machines[kind].predict(inputs))
    models.save(model, tmp_path / "m")
    loaded = models.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.scores(graphs), model.scores(graphs))
    np.testing.assert_array_equal(loaded.scores(graphs[7:8]), model.scores(graphs)[7:8])


def test_the_better_setting_is_chosen_and_the_same_seed_gives_the_same_weights():
    """Whether the number of nodes is even: a forest can learn it, a perceptron hardly."""
    graphs = [fp.Graph(n, [], label=n % 2) for n in range(4, 24)] * 4
    model = models.NodeStatistics(2)
    fit = model.fit(graphs, seed=3)
    assert fit.kind.startswith("forest")
    assert fit.validation_accuracy == max(fit.compared.values()) > 0.8
    again = fitted(graphs, seed=3)
    assert all((again.state_dict()[key] == value).all() for key, value in model.state_dict().items())


def test_statistics_of_real_attributes_are_there_and_those_of_counts_are_not_twice():
    generator = np.random.default_rng(0)
    spread = [fp.Graph(6, [], generator.normal(0, 1 + 4 * (i % 2), (6, 1)), label=i % 2) for i in range(80)]
    assert models.NodeStatistics(2).fit(spread).validation_accuracy > 0.8  # means are alike, deviations are not
    assert len(fitted(graphs_by_kinds())._state["columns"]) <= 2 + 3 * 2


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: models.NodeStatistics(2)(graphs_by_kinds(2)), "must be fitted before it is asked"),
        (lambda: models.NodeStatistics(2).fit([]), "graphs must hold at least one graph"),
        (lambda: models.NodeStatistics(2).fit([fp.Graph(2, [], label=5)]), "a class for every label; got 2 classes"),
        (lambda: fitted(graphs_by_kinds())([fp.Graph(3, [])]), "those of the training graphs, 2 columns; got 0"),
        (lambda: fitted(graphs_by_kinds(), features="degree"), "must not depend on edges; got degree"),
    ],
)
def test_bad_arguments_end_in_one_sentence(act, words):
    with pytest.raises(fp.InputError, match=words) as caught:
        act()
    assert "\n" not in str(caught.value)


def test_where_nothing_can_be_learnt_the_line_is_the_most_frequent_class():
    generator = np.random.default_rng(5)
    labels = (generator.random(90) < 0.4).astype(int)
    graphs = [fp.Graph(int(generator.integers(4, 40)), [], label=int(label)) for label in labels]
    model = models.NodeStatistics(2)
    fit = model.fit(graphs)
    assert fit.kind == "most frequent class"
    assert fit.validation_accuracy == pytest.approx(np.mean(labels == 0))
    assert not model(graphs).any()
