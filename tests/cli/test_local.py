"""The local defence on the command line: train, certify, continue, verify, attack."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import flipproof as fp
from support.command_line import Shell

TRAIN = shlex.split("train --defence local --budget 2 --data topologies --epochs 2 --out model --json")


def test_train_certify_verify_attack(shell: Shell) -> None:
    trained = shell.done(*TRAIN)
    assert json.loads(trained.out)["defence"] == {"name": "local", "budget": 2}
    assert fp.models.load_metadata("model").config["in_features"] == 0
    certify = ["certify", "--model", "model", "--out", "run", "--graphs", 5, "--workers", 1, "--json"]
    first = shell.done(*certify)
    summary = json.loads(first.out)
    assert (summary["method"], summary["alpha"]) == ("local", 0.0)
    assert shell(*certify).out == first.out
    shell.done("verify", "run")
    shell.done("attack", "--model", "model", "--out", "attacked", "--graphs", 3, "--budget", 2, "--workers", 1)


def test_changes_of_nodes(shell: Shell) -> None:
    shell.done(*TRAIN)
    certify = ["certify", "--model", "model", "--out", "run", "--graphs", 5, "--workers", 1, "--nodes", 1]
    first = shell.done(*certify, "--json")
    summary = json.loads(first.out)
    assert summary["node_changes"] == 1
    for change in ("removed", "added", "changed"):
        found = summary[f"certified_accuracy_{change}_nodes"]
        assert all(found[r] <= share for r, share in summary["certified_accuracy"].items())
    assert shell(*certify, "--json").out == first.out
    assert "1 node removed" in shell(*certify).out
    other = shell(*certify[:-2])
    assert other.code == 2
    assert "nodes" in other.err
    verified = shell.done("verify", "run")
    assert "not derived again: flips withstood beside changed nodes" in verified.out
    assert "scores" in json.loads(shell("verify", "run", "--json").out)["not_derived"]
    exported = shell("export", "run")
    assert "removed_nodes_radius" in exported.out, exported.err
    shell.done("report", "run", "--out", "page")
    assert "one node removed" in Path("page/report.html").read_text()
    Path("ring.json").write_text(json.dumps({"num_nodes": 6, "edges": [[u, (u + 1) % 6] for u in range(6)]}))
    predict = ["predict", "--model", "model", "ring.json", "--workers", 1, "--nodes", 1]
    answered = shell(*predict)
    assert "with 1 node removed: " in answered.out, answered.err
    assert json.loads(shell(*predict, "--json").out)["node_changes"] == 1


def test_changes_of_nodes_are_refused_before_any_work(shell: Shell, tmp_path: Path) -> None:
    shell.done(*TRAIN)
    refused = shell("certify", "--model", "model", "--out", "run", "--nodes", 9, "--workers", 1)
    assert refused.code == 2
    assert "are looked at" in refused.err
    assert not (tmp_path / "run").exists()
    train = ["train", "--keep", 0.9, "--data", "topologies", "--epochs", 1, "--out", "smooth"]
    shell.done(*train)
    refused = shell("certify", "--model", "smooth", "--out", "run", "--nodes", 1, "--workers", 1)
    assert refused.code == 2
    assert "--nodes belongs to local" in refused.err
    assert not (tmp_path / "run").exists()


def test_counts_only(shell: Shell) -> None:
    trained = shell.done(*(part for part in TRAIN if part != "--json"), "--counts-only")
    assert "without epochs" in trained.err
    assert "by numbers of nodes and edges" in trained.out
    assert "0 to choose" in trained.out  # nothing is chosen, so nothing is kept apart
    assert fp.models.load_metadata("model").config["counts_only"] is True
    shell.done("certify", "--model", "model", "--out", "run", "--graphs", 5, "--workers", 1)
    shell.done("verify", "run")
    refused = shell("train", "--counts-only", "--keep", 0.9, "--data", "topologies", "--out", "other")
    assert refused.code == 2
    assert "--counts-only belongs to local" in refused.err


def test_the_model_alone_says_the_defence_and_another_model_is_refused(shell: Shell) -> None:
    trained = shell.done("train", "--model", "local", "--data", "topologies", "--epochs", 1, "--out", "model", "--json")
    assert json.loads(trained.out)["defence"] == {"name": "local"}
    refused = shell(*TRAIN[:-2], "other", "--model", "gin")
    assert refused.code == 2
    assert "local needs --model local" in refused.err


def test_training_takes_what_suits_local_unless_asked(shell: Shell) -> None:
    shell.done(*TRAIN)
    stored = fp.models.load_metadata("model").metadata["training"]
    names = ("learning_rate", "batch_size", "weight_decay", "average")
    assert tuple(stored[name] for name in names) == (0.006, 64, 0.001, 0.99)
    shell.done(*TRAIN, "--replace", "--learning-rate", 0.02, "--batch-size", 16)
    stored = fp.models.load_metadata("model").metadata["training"]
    assert [stored[name] for name in ("learning_rate", "batch_size", "average")] == [0.02, 16, 0.99]
