"""``RobustGraphClassifier``: scikit-learn's protocol on lists of graphs, the answers, wrong calls, and what is saved."""

from typing import Any

import networkx
import numpy as np
import pandas
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

import flipproof as fp
from flipproof.studies import estimator, experiment, tuning
from flipproof.studies.search_space import space
from support.learnable import OneLayer

SEARCH = {"radius": 1, "time": "2m", "epochs": 12, "validation": 0.25, "samples": 200}


@pytest.fixture(autouse=True)
def few_defences(monkeypatch):
    """Those that need no minute."""
    for module in (estimator, experiment):
        monkeypatch.setattr(module, "compared_defences", lambda: [space("smoothing"), space("local")])
    monkeypatch.setattr(tuning, "_BEHIND", 0.0)


def rings_and_stars(count=24):
    made = [networkx.cycle_graph(6 + k % 5) if k % 2 else networkx.star_graph(5 + k % 5) for k in range(count)]
    return made, ["ring" if k % 2 else "star" for k in range(count)]


@pytest.fixture(scope="module")
def fitted():
    return fp.RobustGraphClassifier(**SEARCH, defence="local budget=1").fit(*rings_and_stars())


def test_from_graphs_to_a_proven_answer(fitted, tmp_path):
    graphs, labels = rings_and_stars()
    assert fitted.classes_.tolist() == ["ring", "star"]
    assert fitted.defence_.startswith("local")
    assert {"defence", "certified_accuracy"} <= set(fitted.trials_.columns)
    certificates = fitted.certify(graphs)
    answers = [fitted.classes_[certificate.label] for certificate in certificates]
    assert fitted.predict(graphs).tolist() == answers
    right = [c.radius >= 1 and answer == label for c, answer, label in zip(certificates, answers, labels, strict=True)]
    assert fitted.score(graphs, labels) == np.mean(right) > 0
    assert fitted.certified_accuracy(graphs, labels, [1]).tolist() == [np.mean(right)]
    page = fitted.report(tmp_path / "run", graphs, labels)
    assert "certified" in page.read_text()
    assert fp.load_run(tmp_path / "run").certificates[0] == certificates[0]
    fitted.save(tmp_path / "saved")
    again = fp.load(tmp_path / "saved")
    explained = fp.explain(fitted, graphs[0], seed=0)
    assert (explained.label, explained.weakest is not None) == (certificates[0].label, True)
    assert again.get_params() == fitted.get_params()
    assert again.certify(graphs[:2]) == certificates[:2]
    pandas.testing.assert_frame_equal(again.trials_, fitted.trials_, check_dtype=False)


def test_a_network_of_ones_own_is_the_only_one_tried_and_comes_back(tmp_path):
    graphs, labels = rings_and_stars()
    own = fp.RobustGraphClassifier(**SEARCH, model=OneLayer, defence="smoothing keep=0.9")
    own.fit(graphs, labels)
    assert isinstance(own.classifier_.model, OneLayer)
    assert {one.split(" 0.9")[0] for one in own.trials_["defence"]} == {"keep", "edge-blind", "clean"}
    own.save(tmp_path / "own")
    again = fp.RobustGraphClassifier.load(tmp_path / "own", model=OneLayer)
    one, other = own.classifier_.model.state_dict(), again.classifier_.model.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_every_fit_learns_from_its_own_graphs(monkeypatch):
    """Regression: of two fits in one process the second one was given the graphs of the first."""
    seen = []
    for size in (5, 9):
        graphs = [fp.Graph(size, [(0, 1)], label=k % 2) for k in range(8)]
        plain = fp.RobustGraphClassifier(**SEARCH, defence="local budget=1")
        monkeypatch.setattr(estimator.tuning, "fit", lambda made, *_, **more: seen.append(made.parts.train) or 1 / 0)
        with pytest.raises(ZeroDivisionError):
            plain.fit(graphs)
    assert [{graph.num_nodes for graph in train} for train in seen] == [{5}, {9}]


def test_any_folder_is_loaded_and_another_defence_is_named(tmp_path):
    voting = fp.VotingClassifier(fp.models.GIN(1, 2, hidden=4, seed=0).eval(), 3, features="degree")
    voting.save(tmp_path / "voting")
    again = fp.load(tmp_path / "voting")
    assert type(again) is fp.VotingClassifier
    assert again.certify(fp.Graph(4, [(0, 1)]), depth=0) == voting.certify(fp.Graph(4, [(0, 1)]), depth=0)
    with pytest.raises(fp.InputError, match=r"holds a model for voting, not for smoothing \(use flipproof.load\)"):
        fp.SmoothedClassifier.load(tmp_path / "voting")
    fp.models.save(voting.model, tmp_path / "bare")
    with pytest.raises(fp.InputError, match="does not say for which defence"):
        fp.load(tmp_path / "bare")
    with pytest.raises(fp.InputError, match="is not a model folder: there is no such folder"):
        fp.load(tmp_path / "nowhere")


def test_scikit_learn_takes_it():
    graphs, labels = rings_and_stars()
    plain = fp.RobustGraphClassifier(**SEARCH, defence="local budget=1")
    assert clone(plain).get_params() == plain.get_params()
    parts = [(np.arange(16), np.arange(16, 24))]
    assert cross_val_score(plain, graphs, labels, cv=parts, error_score="raise").shape == (1,)
    searched = GridSearchCV(plain, {"radius": [1]}, cv=parts, error_score="raise").fit(graphs, labels)
    assert searched.predict(graphs[:2]).shape == (2,)


def test_wrong_calls_are_one_sentence():
    graphs, labels = rings_and_stars(6)
    wrong: list[tuple[dict[str, Any], tuple[Any, ...], str]] = [
        ({}, (graphs, labels[:-1]), "labels must be one per graph, 6 in all; got shape"),
        ({}, (graphs,), "every graph needs a label; graph 0 has none"),
        ({}, (graphs, ["ring"] * 6), "at least two classes are needed; got"),
        ({"defence": "smooth"}, (graphs, labels), "defence must be one of smoothing, local; got 'smooth'"),
        ({"radius": -1}, (graphs, labels), "radius must be an integer of at least 0; got -1"),
        ({"time": "soon"}, (graphs, labels), "time must be a time such as 90s, 10m or 2h; got 'soon'"),
        ({"model": "gin"}, (graphs, labels), "model must be a function that returns a PyG module; got 'gin'"),
        ({"model": OneLayer, "defence": "local"}, (graphs, labels), "defence local brings its own network"),
    ]
    for settings, arguments, sentence in wrong:
        with pytest.raises(fp.InputError, match=sentence.replace("(", r"\(")):
            fp.RobustGraphClassifier(**settings).fit(*arguments)
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        fp.RobustGraphClassifier().predict(graphs)


def test_labels_that_fit_never_saw_are_refused(fitted):
    with pytest.raises(fp.InputError, match="labels must be among those of fit"):
        fitted.score(rings_and_stars(2)[0], ["ring", "grid"])
