"""``--task nodes``: the commands for graphs take nodes, too; and wrong input."""

import csv
import io
import json
import sqlite3

import numpy as np
import pytest

from flipproof.defences.node_smoothing import NodeSmoothing

CLASSES = np.repeat([0, 1], 50)


@pytest.fixture
def data(tmp_path):
    """A citation network of two classes with 50 nodes each, whose words and links tell them apart."""
    rng = np.random.default_rng(0)
    edges = [(u, v) for u in range(100) for v in range(u) if rng.random() < (0.1 if (u < 50) == (v < 50) else 0.005)]
    words = rng.random((100, 10)) < np.where(np.arange(10) // 5 == CLASSES[:, None], 0.6, 0.1)
    content = {"num_nodes": 100, "edges": np.array(edges), "labels": CLASSES, "class_names": np.array(["a", "b"])}
    starts = np.concatenate([[0], np.cumsum(words.sum(axis=1))])
    attributes = {"attr_indptr": starts, "attr_indices": np.nonzero(words)[1], "num_attributes": 10}
    np.savez(tmp_path / "network.npz", **content, **attributes)
    return tmp_path / "network.npz"


def test_from_training_to_report(command, data, tmp_path):
    model, run = tmp_path / "model", tmp_path / "run"
    noise = ("--add", 0, "--remove", 0, "--bit-add", 0.02, "--bit-remove", 0.6)
    trained = command("train", "--task", "nodes", "--data", data, *noise, "--epochs", 20, "--out", model, "--json")
    assert trained.code == 0, trained.err
    assert json.loads(trained.out)["graphs"] == {"train": 40, "validation": 40, "test": 20}
    asking = ("certify", "--model", model, "--samples", 1100, "--alpha", 0.05, "--out", run, "--json")
    certified = command(*asking)
    assert certified.code == 0, certified.err
    summary = json.loads(certified.out)
    assert summary["graphs"] == 20
    assert summary["certified_accuracy"]["0"] > 0.6
    assert summary["certified_accuracy_features"]["1"] > 0.2
    assert summary["edge_blind_accuracy"] > 0.6, "the words alone tell the classes apart"
    assert command(*asking).out == certified.out, "a finished run is read again"
    with sqlite3.connect(run / "evidence.sqlite") as store:
        items = {item for (item,) in store.execute("SELECT item FROM finished")}
    assert items == {0, "edge-blind line"}, "one piece of evidence for all nodes, and no blocks are left"
    assert command("verify", run).code == 0
    rows = list(csv.DictReader(io.StringIO(command("export", run).out)))
    assert len(rows) == 20
    assert [CLASSES[int(row["graph"])] for row in rows] == [int(row["label"]) for row in rows]
    assert rows[0]["name"] == f"node {rows[0]['graph']}"
    assert command("export", run, "--format", "long").out.count("\n") > 3
    assert command("report", run).code == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "of 20 nodes" in page
    assert "20 test nodes" in page
    attack = ("attack", "--model", model, "--budget", 1, "--changes", 1, "--graphs", 4, "--samples", 16)
    attacked = command(*attack, "--confirm-samples", 200, "--certificates", run, "--out", tmp_path / "attack", "--json")
    assert attacked.code == 0, attacked.err
    found = json.loads(attacked.out)
    assert (found["task"], found["graphs"], found["attacks_within_a_certified_radius"]) == ("nodes", 4, 0)
    assert command("report", run, "--attack", tmp_path / "attack").code == 0
    with sqlite3.connect(run / "evidence.sqlite") as store:
        store.execute("UPDATE finished SET content = substr(content, 1, 100)")
    altered = command("verify", run)
    assert altered.code == 1
    assert altered.err.count("was altered") == 2, "the evidence, and the line to beat; not one finding per node"


def test_a_killed_sampling_goes_on_with_any_workers(command, data, tmp_path, monkeypatch):
    """Blocks of samples are kept as they are done; certificates are those of a run that nobody stopped."""
    model = tmp_path / "model"
    command("train", "--task", "nodes", "--data", data, "--add", 0.01, "--remove", 0.4, "--epochs", 2, "--out", model)
    asking = ("certify", "--model", model, "--samples", 4096, "--alpha", 0.05, "--edge-blind", "none")
    whole = command(*asking, "--workers", 2, "--out", tmp_path / "whole")
    assert whole.code == 0, whole.err
    block, asked = NodeSmoothing.node_block, list[int]()

    def killed(self, classifier, graph, start, request):
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(start)
        return block(self, classifier, graph, start, request)

    stopped = ("--workers", 1, "--out", tmp_path / "stopped")
    monkeypatch.setattr(NodeSmoothing, "node_block", killed)
    assert command(*asking, *stopped).code == 130
    with sqlite3.connect(tmp_path / "stopped" / "evidence.sqlite") as store:
        assert store.execute("SELECT count(*) FROM finished WHERE item LIKE '%piece%'").fetchone() == (2,)
        store.execute("UPDATE finished SET content = x'00' WHERE item LIKE '%piece 1'")  # damaged: it is asked again
    again = list[int]()

    def counted(self, classifier, graph, start, request):
        again.append(start)
        return block(self, classifier, graph, start, request)

    monkeypatch.setattr(NodeSmoothing, "node_block", counted)
    ended = command(*asking, *stopped)
    assert ended.code == 0, ended.err
    assert again == [1024, 2048, 3072]
    assert "1 of 4 pieces" in ended.err
    tables = [command("export", tmp_path / name).out for name in ("whole", "stopped")]
    assert tables[0] == tables[1]


def test_refused_training(command, data, tmp_path):
    for arguments, words in (
        ("--task edges", "--task must be graphs or nodes"),
        ("--task nodes --model gin", "--task nodes trains node-gcn"),
        ("--task nodes --groups 3", "--groups belongs to voting, and the defence here is none"),
        ("--task nodes --corrected", "--corrected is for graphs"),
        ("--task nodes --data nowhere", "nowhere does not exist"),
    ):
        ended = command("train", "--data", data, *arguments.split(), "--out", tmp_path / "model")
        assert ended.code == 2
        assert words in ended.err
        assert not (tmp_path / "model").exists()


def test_refused_certification(command, data, tmp_path):
    model, run = tmp_path / "model", tmp_path / "run"
    command("train", "--task", "nodes", "--data", data, "--epochs", 1, "--out", model)
    for arguments, words in (
        ((), "the model was not trained for a defence"),
        (("--task", "graphs", "--keep", 0.9), "was trained for nodes"),
        (("--add", 0, "--remove", 0.4, "--method", "influence"), "--method belongs to smoothing"),
        (("--add", 0, "--remove", 0.4, "--part", "some"), "--part must be one of"),
        (("--defence", "voting"), "a model for nodes is certified with node-smoothing"),
        (("--add", 0, "--remove", 0, "--label-keep", 0.9), "LabelNoise needs one-hot node features"),
    ):
        ended = command("certify", "--model", model, "--out", run, *arguments)
        assert ended.code == 2, arguments
        assert words in ended.err, (arguments, ended.err)
        assert not run.exists()
    graphs = tmp_path / "graphs"
    command("train", "--data", "topologies:16", "--epochs", 1, "--keep", 0.9, "--out", graphs)
    ended = command("certify", "--task", "nodes", "--model", graphs, "--data", data, "--out", run)
    assert ended.code == 2
    assert "was trained for graphs" in ended.err
