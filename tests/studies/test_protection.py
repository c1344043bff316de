"""``flipproof protect``: what it hands over, that it resumes, and that test graphs are looked at once, at the end."""

import json
import shlex
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from flipproof.datasets import Dataset, folder, topologies
from flipproof.datasets.sources import DataSource
from flipproof.graphs import Graph
from flipproof.models import load_metadata
from flipproof.runs.run_folder import StudySettings, open_run
from flipproof.studies import candidate, tuning
from flipproof.studies.candidate import baselines, named_candidate
from flipproof.studies.estimator import GivenGraphs, RobustGraphClassifier
from flipproof.studies.experiment import Experiment, Trial
from flipproof.studies.search_space import space
from flipproof.studies.threat import Threat
from support.certified_runs import run_command
from support.command_line import write_graphs

KEYS = {"defence", "settings", "accuracy", "certified_accuracy", "interval", "edge_blind", "undefended"}
QUICK = shlex.split("--epochs 24 --time 5m --workers 1 --test 0.25 --validation 0.25")


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    return write_graphs(tmp_path_factory.mktemp("protect") / "graphs", count=32, nodes=lambda index: 7 + index % 3)


@pytest.fixture(scope="module", autouse=True)
def few_defences():
    """Those that need no minute, and no figures."""
    names = ("local", "edge-blind", "none")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidate, "spaces", lambda: [space(name) for name in names])
        patch.setattr("flipproof.report.drawing.write_figures", lambda *drawn: [])
        yield


@pytest.fixture(scope="module")
def whole(graphs, few_defences):
    """What ``protect`` leaves when nothing stops it."""
    out = graphs.parent / "whole"
    run_command(graphs.parent, "protect", "--data", str(graphs), "--radius", "1", *QUICK, "--out", str(out))
    return out


def trials(out):
    with open_run(out, StudySettings) as run:
        return {name: run.store.load(name) for name in run.store.finished()}


def test_what_it_hands_over_is_what_the_commands_make(graphs, whole, tmp_path, command):
    def typed(*words: object):
        done = command(*words)
        assert done.code == 0, done.err
        return done

    out, told = whole, json.loads((whole / "protect.json").read_text())
    assert told.keys() >= KEYS
    assert told["defence"] == "local"
    low, high = told["interval"]
    assert low <= told["certified_accuracy"]["1"] == told["withstood"] <= high
    assert told["withstood"] >= told["edge_blind"]
    assert told["accuracy"] == told["certified_accuracy"]["0"]
    # every trial is kept, the losers of the first round have no second one
    kept = {name for name in trials(out) if not name.startswith("final")}
    assert len(kept) == len(told["trials"])
    assert {"edge-blind", "clean, 3 epochs", "local 3, 3 epochs"} <= kept
    assert sum(name.startswith("local") and name.endswith(" 3 epochs") for name in kept) == 6
    assert sum(name.startswith("local") and name.endswith(" 24 epochs") for name in kept) <= 2
    assert sum(name.startswith("local") and name.endswith(" 48 epochs") for name in kept) <= 1  # while it helps
    # certified were the test graphs, all of them, with a model that knows its data
    certified = json.loads((out / "run" / "run.json").read_text())["settings"]
    split = DataSource(str(graphs), test=0.25).split(folder(graphs))
    assert certified["graphs"] == split.test_indices.tolist()
    summary = json.loads(typed("certify", "--model", out / "model", "--out", tmp_path / "r", "--json").out)
    assert summary["certified_accuracy"]["1"] == told["certified_accuracy"]["1"]
    typed("verify", out / "run")
    assert (out / "run" / "report.html").is_file()
    # in words, and nothing is done again
    before = trials(out)
    said = typed("protect", "--data", graphs, "--radius", 1, *QUICK, "--out", out).out
    assert trials(out) == before
    for words_of_it in ("chosen: local", "95% interval", "a classifier that ignores edges", "Python: flipproof.load"):
        assert words_of_it in said
    namespace: dict[str, Any] = {"graph": folder(graphs)[0]}
    exec("import flipproof; answer = " + told["predict"], namespace)
    assert namespace["answer"].label in (0, 1)


def test_stopped_anywhere_it_ends_the_same(graphs, whole, tmp_path, monkeypatch, command):
    words = ("protect", "--data", graphs, "--radius", 1, *QUICK, "--quiet")
    out, work, left = tmp_path / "stopped", tuning.try_out, iter(range(4))

    def stopped(experiment, trial):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return work(experiment, trial)

    with monkeypatch.context() as patched:
        patched.setattr(tuning, "try_out", stopped)
        assert command(*words, "--out", out).code == 130
    before = trials(out)
    assert len(before) == 4
    assert command(*words, "--out", out).code == 0
    after = trials(out)
    assert before.items() <= after.items()
    assert after.keys() == trials(whole).keys()
    for name in ("model", "edge_blind", "undefended"):
        weights = [(run / name / "weights.safetensors").read_bytes() for run in (whole, out)]
        assert weights[0] == weights[1]
    tables = [(run / "run" / "certificates.parquet").read_bytes() for run in (whole, out)]
    assert tables[0] == tables[1]
    # another attack is another search
    refused = command(*words[:4], 2, *words[5:], "--out", out)
    assert refused.code == 2
    assert "attack = 1; asked for attack = 2" in refused.err


def test_test_graphs_have_no_part_in_the_choice(graphs, tmp_path):
    """With other edges in all test graphs, every trial says the same."""
    source = DataSource(str(graphs), test=0.25, validation=0.25)
    other = write_graphs(tmp_path / "graphs", count=32, nodes=lambda index: 7 + index % 3)
    data = folder(graphs)
    for index in source.split(data).test_indices:
        path = [f"{node} {node + 1}\n" for node in range(data[index].num_nodes - 1)]
        (other / f"{data[index].name}").write_text("".join(path))
    changed = folder(other)
    assert any(changed[index].topology != data[index].topology for index in range(len(data)))
    said = []
    for path in (graphs, other):
        source = DataSource(str(path), test=0.25, validation=0.25)
        experiment = Experiment(source, Threat(1), ladder=(2,)).prepared()
        trials_of = [tuning.try_out(experiment, Trial(one, 2)) for one in (*baselines(), *experiment.candidates)]
        said.append([{key: value for key, value in one.items() if "seconds" not in key} for one in trials_of])
    assert said[0] == said[1]


def test_where_edges_cannot_help_the_edge_blind_network_is_handed_over(tmp_path, command):
    """Rings of two sizes: the number of nodes says it all."""
    own = tmp_path / "sizes"
    own.mkdir()
    for index in range(32):
        size = 5 if index % 2 else 12
        (own / f"{index}.edges").write_text("".join(f"{node} {(node + 1) % size}\n" for node in range(size)))
    table = "".join(f"{index}.edges,{'small' if index % 2 else 'large'}\n" for index in range(32))
    (own / "labels.csv").write_text(table)
    out = tmp_path / "p"
    words = ("protect", "--data", own, "--adds", 3, "--removes", 2, *QUICK, "--epochs", 30, "--out", out)
    done = command(*words)
    assert done.code == 0, done.err
    assert "nothing beats ignoring edges" in done.out
    assert "handed over" in done.out
    told = json.loads((out / "protect.json").read_text())
    assert told["defence"] == "edge-blind"
    assert told["withstood"] == told["edge_blind"] == 1
    assert load_metadata(out / "model").metadata["defence"] == {"name": "edge-blind"}
    assert not (out / "edge_blind").exists()  # it is the model


def test_every_defence_proposes_settings_for_the_attack():
    graphs = topologies(16)
    proposed = {
        name: [space(name).title(one) for one in space(name).candidates(graphs, Threat(3))]
        for name in ("local", "voting")
    }
    assert proposed["local"][:3] == ["local 3", "local 4", "local 7"]
    assert proposed["voting"][:2] == ["voting 7", "voting 13"]
    assert space("local").candidates(graphs, Threat((2, 1)))[:2] == [{"budget": [2, 1]}, {"budget": [4, 2]}]


def test_noises_worth_trying_differ_and_know_what_is_out_of_reach():
    def titles(graph):
        graphs = Dataset([graph, graph.replaced(label=1)])
        return [space("smoothing").title(settings) for settings in space("smoothing").candidates(graphs)]

    path = Graph(3, [(0, 1), (1, 2)], label=0)
    assert len(set(titles(path))) == len(titles(path))  # 0.3 times the density is 0.2: a symmetric noise once more
    frozen = [(node, node + 1) for node in range(8)]
    star = Graph(9, frozen, frozen=[(u, v) for v in range(9) for u in range(v) if (u, v) != (0, 8)], label=0)
    assert "add 0 remove 0.4" in titles(star)  # the only pair within reach holds no edge


@pytest.fixture(scope="module")
def labelled():
    """Graphs whose node labels say the class, and whose edges do, too."""
    graphs = []
    for index in range(32):
        size, label = 6 + index // 2 % 4, index % 2
        pairs = [(node, (node + 1) % size) for node in range(size)] if label else [(0, node) for node in range(1, size)]
        graphs.append(Graph(size, pairs, np.eye(2)[[label] * size], label=label))
    return Dataset(graphs)


@pytest.mark.parametrize(
    "text", ["local budget=1", "smoothing keep=0.7 label_keep=0.6", "voting groups=5 feature_groups=5"]
)
def test_what_counts_as_right_withstands_flips_together_with_changes(text, labelled):
    """The score is that of certificates made by hand; and no single change beside a flip breaks an answer that counts."""
    source = GivenGraphs("g", validation=0.25, graphs=labelled, sha256=text)
    experiment = Experiment(
        source, Threat(1, changes=1), (named_candidate(text),), sampling={"samples": 300}
    ).prepared()
    learned, result = experiment.tried(Trial(experiment.candidates[0], 12))
    classifier = experiment.candidates[0].defended(learned.model, learned.features, num_classes=2)
    request = experiment.candidates[0].question(experiment.certification)
    counted = []
    for graph in experiment.validation:
        classifier.check([graph], request)
        certificate = request.read(classifier.defence.ask(classifier, graph, request))
        counted.append(certificate.label == graph.label and min(map(certificate.radius_beside, (0, 1))) >= 1)
        if counted[-1] and certificate.alpha == 0 and counted.count(True) == 1:  # the first: all attacks take a while
            assert {classifier.predict(attacked) for attacked in attacks_of(graph)} == {certificate.label}
    assert result.score == np.mean(counted) > 0


def attacks_of(graph):
    """Every flip together with every changed label."""
    for flipped in map(graph.flipped, ([pair] for pair in combinations(range(graph.num_nodes), 2))):
        for node in range(graph.num_nodes):
            features = np.array(graph.node_features)
            features[node] = 1 - features[node]
            yield flipped.replaced(node_features=features)


def test_the_line_against_changed_features_sees_neither_edges_nor_features(labelled):
    source = GivenGraphs("g", validation=0.25, graphs=labelled)
    (line, _) = baselines()
    scores = {}
    for changes in (0, 1):
        experiment = Experiment(
            source, Threat(1, changes=changes), (named_candidate("voting groups=5 feature_groups=5"),)
        )
        scores[changes] = experiment.prepared().tried(Trial(line))[1].score
    assert scores[0] == 1  # the labels say it all
    assert scores[1] < 1


def test_protect_withstands_changed_labels(labelled, few_defences, tmp_path):
    robust = RobustGraphClassifier(radius=1, changes=1, defence="local budget=1", epochs=16, time="5m", validation=0.25)
    robust.fit(labelled.graphs)
    assert robust.defence_ == "local 1"
    assert robust.edge_blind_ < robust.trials_["certified_accuracy"].max()
    certificates = robust.certify(labelled.graphs)
    right = [
        one.label == graph.label and one.radius_beside(1) >= 1
        for one, graph in zip(certificates, labelled, strict=True)
    ]
    assert robust.score(labelled.graphs) == np.mean(right) > 0
    robust.save(tmp_path / "saved")
    assert RobustGraphClassifier.load(tmp_path / "saved").certify(labelled.graphs[:1]) == certificates[:1]
