"""``--task nodes``: train, certify, verify and export; and wrong input."""

import csv
import io
import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from support.command_line import Command

CLASSES = np.repeat([0, 1], 50)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A citation network of two classes with 50 nodes each, whose words and links tell them apart."""
    rng = np.random.default_rng(0)
    edges = [
        (u, v) for u in range(100) for v in range(u) if rng.random() < (0.1 if CLASSES[u] == CLASSES[v] else 0.005)
    ]
    words = rng.random((100, 10)) < np.where(np.arange(10) // 5 == CLASSES[:, None], 0.6, 0.1)
    content = {"num_nodes": 100, "edges": np.array(edges), "labels": CLASSES, "class_names": np.array(["a", "b"])}
    starts = np.concatenate([[0], np.cumsum(words.sum(axis=1))])
    attributes = {"attr_indptr": starts, "attr_indices": np.nonzero(words)[1], "num_attributes": 10}
    np.savez(tmp_path / "network.npz", **content, **attributes)
    return tmp_path / "network.npz"


def test_from_training_to_verification(command: Command, data: Path, tmp_path: Path) -> None:
    model, run = tmp_path / "model", tmp_path / "run"
    noise = ("--bit-add", 0.02, "--bit-remove", 0.6)
    trained = command("train", "--task", "nodes", "--data", data, *noise, "--epochs", 20, "--out", model, "--json")
    assert trained.code == 0, trained.err
    assert json.loads(trained.out)["nodes"] == {"train": 40, "validation": 40, "test": 20}
    asking = ("certify", "--model", model, "--samples", 300, "--alpha", 0.05, "--out", run, "--json")
    certified = command(*asking)
    assert certified.code == 0, certified.err
    summary = json.loads(certified.out)
    assert summary["nodes"] == 20
    assert summary["certified_accuracy"]["radius"]["0"] > 0.6
    assert summary["certified_accuracy"]["feature_radius"]["1"] > 0.2
    assert command(*asking).out == certified.out, "a finished run is read again"
    assert command("verify", run).code == 0
    rows = list(csv.DictReader(io.StringIO(command("export", run).out)))
    assert len(rows) == 20
    assert {row["graph"] for row in rows} == {"0"}
    assert [CLASSES[int(row["node"])] for row in rows] == [int(row["label"]) for row in rows]
    with sqlite3.connect(run / "evidence.sqlite") as store:
        store.execute("UPDATE finished SET content = substr(content, 1, 100)")
    assert command("verify", run).code == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "--task", "edges"], "--task must be graphs or nodes"),
        (["train", "--task", "nodes", "--model", "gin"], "--task nodes trains node-gcn"),
        (["train", "--task", "nodes", "--groups", "3"], "--groups has no part in certificates of nodes"),
        (["train", "--task", "nodes", "--data", "nowhere"], "nowhere does not exist"),
    ],
)
def test_refused_training(command: Command, data: Path, tmp_path: Path, arguments: list[str], words: str) -> None:
    given = arguments if "--data" in arguments else [*arguments, "--data", str(data)]
    ended = command(*given, "--out", tmp_path / "model")
    assert ended.code == 2
    assert words in ended.err
    assert not (tmp_path / "model").exists()


def test_refused_certification(command: Command, data: Path, tmp_path: Path) -> None:
    model, run = tmp_path / "model", tmp_path / "run"
    command("train", "--task", "nodes", "--data", data, "--epochs", 1, "--out", model)
    for arguments, words in (
        ((), "nothing says the noise"),
        (("--task", "graphs", "--keep", 0.9), "was trained for nodes"),
        (("--add", 0, "--remove", 0.4, "--method", "influence"), "--method must be votes"),
        (("--add", 0, "--remove", 0.4, "--part", "some"), "--part must be one of"),
        (("--label-keep", 0.9), "LabelNoise needs one-hot node features"),
    ):
        ended = command("certify", "--model", model, "--out", run, *arguments)
        assert ended.code == 2, arguments
        assert words in ended.err
        assert not run.exists()
    attacked = command("attack", "--model", model, "--budget", 1, "--out", run)
    assert (attacked.code, "this command is for graphs" in attacked.err) == (2, True)
    graphs = tmp_path / "graphs"
    command("train", "--data", "topologies:16", "--epochs", 1, "--keep", 0.9, "--out", graphs)
    ended = command("certify", "--task", "nodes", "--model", graphs, "--data", data, "--out", run)
    assert ended.code == 2
    assert "was trained for graphs" in ended.err
