"""A defence is one module and its proof: a toy one goes through every command, and no other file knows of it."""

import itertools
import json
import random
import sys
from pathlib import Path

import pytest

import flipproof as fp
from flipproof import defences
from flipproof.defences.defence import DefendedClassifier, described
from flipproof.engines import Processes
from flipproof.graphs import pairs_of_slots
from flipproof.runs.run_folder import CertifySettings
from support.command_line import OWN_MODEL, RULE, write_graphs
from support.forked import Server
from support.runs import alter_row


@pytest.fixture
def thirds(monkeypatch):
    """The toy, registered for one test."""
    monkeypatch.setattr(defences, "_HOMES", dict(defences._HOMES))
    monkeypatch.delitem(sys.modules, "support.thirds", raising=False)
    from support.thirds import Thirds

    yield Thirds
    sys.modules.pop("support.thirds", None)


def test_the_toy_is_small_and_its_proof_holds(thirds):
    """All graphs of 4 nodes and all single flips, against a model without structure."""
    assert defences.defence_class("thirds") is thirds
    pairs, certified = pairs_of_slots(range(6), 4), 0
    model = lambda graphs: [sum(map(ord, graph.topology)) % 2 for graph in graphs]  # noqa: E731
    toy = DefendedClassifier(model, thirds(shift=1), num_classes=2)
    graphs = [fp.Graph(4, pairs[list(states)]) for states in itertools.product([False, True], repeat=6)]
    certificates = toy.certify_all(graphs)
    assert toy.certify_all(graphs, workers=2) == certificates
    for graph, certificate in zip(graphs, certificates, strict=True):
        if certificate.radius == 1:
            certified += 1
            assert all(toy.predict(graph.flipped([pair])) == certificate.label for pair in pairs)
    assert certified > 8
    source = Path(sys.modules["support.thirds"].__file__ or "").read_text()
    code = [line for line in source[source.index("@dataclass") :].splitlines() if line.strip()]
    assert len(code) <= 30


@pytest.mark.usefixtures("thirds")
def test_the_toy_goes_through_train_certify_verify_export_attack_and_report(shell):
    assert "--shift" in shell.done("train", "--help").out
    shell.done("train", "--data", "graphs", "--shift", 2, "--epochs", 2, "--out", "model", "-q")
    assert fp.models.load_metadata("model").metadata["defence"] == {"name": "thirds", "shift": 2}
    certify = ["certify", "--model", "model", "--part", "all", "--workers", 2]
    assert "defence thirds 2, method thirds, with certainty" in shell.done(*certify, "--out", "run").out
    assert CertifySettings.read(Path("run")).defence == {"name": "thirds", "shift": 2}
    refused = shell(*certify, "--shift", 1, "--out", "run")
    assert (refused.code, refused.err) == (
        2,
        "flipproof: run holds a run with shift = 2; asked for shift = 1 (choose another folder, or ask for the same)\n",
    )
    assert "verified: 12 certificates follow from their evidence" in shell.done("verify", "run").out
    assert {(row["method"], row["alpha"]) for row in shell.rows("run")} == {("thirds", 0.0)}

    attack = ["attack", "--model", "model", "--part", "all", "--graphs", 3, "--budget", 2, "--certificates", "run"]
    attacked = shell.done(*attack, "--out", "attacks").out
    assert "after attacks on" in attacked
    assert json.loads(Path("attacks/summary.json").read_text())["attacks_within_a_certified_radius"] == 0
    shell.done("report", "run", "--attack", "attacks", "-q")
    page = Path("run/report.html").read_text()
    assert "thirds" in page
    assert "defended" in page

    alter_row("run", 5, "radius", 7)
    audited = shell("verify", "run")
    assert audited.code == 1
    assert "graph 5: radius is 7 in the table and" in audited.err


def test_the_toy_is_tuned_and_compared(shell, thirds):
    tried = ["tune", "--data", "graphs", "--radius", 1, "--candidate", "thirds shift=1", "--epochs", 1]
    assert "thirds 1" in shell.done(*tried, "--workers", 1, "--out", "tuned").out
    row = "[[row]]\ndefence = 'thirds'\nsettings = [{ shift = 0 }, { shift = 1 }]\n"
    Path("bench.toml").write_text(f"folds = [0]\ntraining = {{ epochs = 1 }}\n{row}[[data]]\nname = 'graphs'\n")
    told = json.loads(shell.done("benchmark", "bench.toml", "--out", "b", "--workers", 1, "--json").out)
    assert {row["method"] for row in told["results"]} == {"majority class", "edge-blind", "thirds"}
    spawned = Processes(1, start="spawn").run(described, [thirds(shift=2)])  # as trainings are sent to workers
    assert [description for _, description in spawned] == [{"name": "thirds", "shift": 2}]


def test_the_toy_killed_and_resumed_on_two_workers_ends_with_the_same_bytes(tmp_path):
    write_graphs(tmp_path / "graphs")
    (tmp_path / "own.py").write_text(OWN_MODEL.replace(RULE, "3 * graph.num_edges > graph.num_nodes"))
    certify = ["certify", "--model", "own:make", "--data", "graphs", "--part", "all", "--shift", 1, "--workers", 2]
    generator, hits = random.Random(0), 0
    server = Server(tmp_path, "support.thirds")
    for out in ("warm", "whole"):  # the first run loads and compiles
        whole = server(*certify, "--out", out, PAUSE=0.001)
        assert whole.code == 0, whole.err
    for _ in range(4):
        moment = whole.seconds * generator.uniform(0.2, 0.9)
        hits += server(*certify, "--out", "killed", killed_after=moment, PAUSE=0.001).killed
    resumed = server(*certify, "--out", "killed")
    assert resumed.code == 0, resumed.err
    assert server("verify", "killed").code == 0
    assert hits >= 1
    tables = [(tmp_path / run / "certificates.parquet").read_bytes() for run in ("whole", "killed")]
    assert tables[0] == tables[1]
