"""``flipproof train``: what stands in the model folder, and that certify takes it from there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import call, write_graphs
from flipproof import models
from shared_data import data_root


def train(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, object]:
    done = call(monkeypatch, capsys, "train", "--epochs", 2, "--json", *arguments)
    assert done.code == 0, done.err
    assert done.err == ""
    found: dict[str, object] = json.loads(done.out)
    return found


def test_everything_certify_needs_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_graphs(tmp_path / "graphs")
    out = tmp_path / "models" / "m"
    monkeypatch.chdir(tmp_path)
    summary = train(
        monkeypatch,
        capsys,
        "--data",
        "graphs",
        "--add",
        0.1,
        "--remove",
        0.3,
        "--split-seed",
        5,
        "--out",
        out,
        "--model",
        "gcn",
    )
    assert summary["graphs"] == {"train": 7, "validation": 1, "test": 4}
    assert (summary["features"], summary["network"], summary["epochs"]) == ("degree", "gcn", 2)
    saved = models.load_metadata(out)
    assert saved.noise is not None
    assert (round(saved.noise.p_add, 6), round(saved.noise.p_remove, 6)) == (0.1, 0.3)
    stored = saved.metadata
    assert stored["data"] == str(data.resolve())
    assert (stored["split_seed"], stored["data_seed"], stored["features"]) == (5, 0, "degree")
    assert stored["class_names"] == ["ring", "wheel"]
    certified = call(
        monkeypatch,
        capsys,
        "certify",
        "--model",
        out,
        "--samples",
        50,
        "--method",
        "votes",
        "--json",
        "--out",
        tmp_path / "run",
    )
    assert certified.code == 0, certified.err
    assert json.loads(certified.out)["graphs"] == 4
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert (settings["split_seed"], settings["data"], settings["features"]) == (5, "graphs", "degree")
    assert settings["model_sha256"] == saved.weights_hash


def test_the_edge_blind_baseline_is_certified_at_every_radius(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_graphs(tmp_path / "graphs")
    data = ["--data", tmp_path / "graphs"]
    summary = train(monkeypatch, capsys, *data, "--model", "edge-blind", "--out", tmp_path / "m")
    assert summary["features"] == "constant"
    run = tmp_path / "run"
    done = call(monkeypatch, capsys, "certify", "--model", tmp_path / "m", "--json", "--out", run)
    assert done.code == 0, done.err
    shown = json.loads(done.out)
    assert shown["method"] == "edge-blind"
    rows = json.loads(call(monkeypatch, capsys, "export", run, "--format", "json").out)
    assert all(row["radius"] == row["num_slots"] == row["nodes"] * (row["nodes"] - 1) // 2 for row in rows)
    assert call(monkeypatch, capsys, "verify", run).code == 0


def test_the_same_seed_gives_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--data", "topologies:24", "--keep", 0.9, "--validation", 0, "--hidden", 8, "--layers", 1]
    for name in ("a", "b"):
        train(monkeypatch, capsys, *arguments, "--out", tmp_path / name)
    train(monkeypatch, capsys, *arguments, "--seed", 1, "--out", tmp_path / "c")
    hashes = [models.load_metadata(tmp_path / name).weights_hash for name in "abc"]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_real_data_set_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = ["--add", 0.01, "--remove", 0.3]
    train(monkeypatch, capsys, "--data", "MUTAG", "--root", data_root(), *noise, "--out", tmp_path / "m")
    certify = [
        "certify",
        "--model",
        tmp_path / "m",
        "--samples",
        50,
        "--graphs",
        3,
        "--json",
        "--out",
        tmp_path / "run",
    ]
    done = call(monkeypatch, capsys, *certify)
    assert done.code == 0, done.err
    assert json.loads(done.out)["data"] == "MUTAG"
    other = call(monkeypatch, capsys, *certify[:-1], tmp_path / "other", "--data", "PTC_MR", "--root", data_root())
    assert other.code == 2
    assert "expected it to take features" in other.err or "the model failed" in other.err


def test_other_data_than_the_models_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_graphs(tmp_path / "graphs")
    write_graphs(tmp_path / "others", count=14)
    train(monkeypatch, capsys, "--data", tmp_path / "graphs", "--keep", 0.9, "--out", tmp_path / "m")
    certify = ["certify", "--model", tmp_path / "m", "--samples", 20, "--method", "votes", "--json"]
    done = call(monkeypatch, capsys, *certify, "--data", tmp_path / "others", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert "a test graph may have been a training graph" in done.err


def test_ctrl_c_in_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("flipproof.training.train", stop)
    done = call(monkeypatch, capsys, "train", "--data", "topologies:24", "--out", tmp_path / "m")
    assert (done.code, done.err.count("\n"), (tmp_path / "m").exists()) == (130, 1, False)
    assert "stopped; no model is written" in done.err


def test_tables_without_json_and_nothing_when_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", "--data", "topologies:24", "--epochs", 1, "--out", tmp_path / "m"]
    shown = call(monkeypatch, capsys, *arguments)
    assert shown.code == 0, shown.err
    assert "accuracy on validation" in shown.out
    assert f"next: flipproof certify --model {tmp_path / 'm'}" in shown.out
    assert "training: 1 of 1 epochs" in shown.err
    assert "\x1b" not in shown.out + shown.err
    quiet = call(monkeypatch, capsys, *arguments, "--replace", "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
