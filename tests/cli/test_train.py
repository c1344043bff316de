"""``flipproof train``: what stands in the model folder, and that certify takes it from there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flipproof import models
from support.command_line import call, write_graphs
from support.shared_data import data_root


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
    stored = saved.metadata
    assert stored["defence"] == {"name": "smoothing", "add": pytest.approx(0.1), "remove": pytest.approx(0.3)}
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


def stopped_after(epochs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of the epoch after so many."""
    from flipproof.training.loop import _State

    step = _State.run_step

    def stop(state: _State, *arguments: object) -> object:
        if state.epoch == epochs:
            raise KeyboardInterrupt
        return step(state, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(_State, "run_step", stop)


def test_ctrl_c_and_the_same_command_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", "--data", "topologies:24", "--keep", 0.9, "--epochs", 4, "--copies", 2, "--consistency", 1]
    assert call(monkeypatch, capsys, *arguments, "--out", tmp_path / "whole").code == 0
    with monkeypatch.context() as patched:
        patched.setattr("flipproof.training.loop._CHECKPOINT_SECONDS", 0)
        stopped_after(2, patched)
        done = call(monkeypatch, capsys, *arguments, "--out", tmp_path / "m")
        assert done.code == 130
        last = done.err.splitlines()[-1]
        assert last.startswith("flipproof: stopped; what is finished is kept. continue with: flipproof train --data")
        assert [path.name for path in tmp_path.iterdir() if path.name != "whole"] == ["m.part"]
    other = call(monkeypatch, capsys, *arguments, "--seed", 1, "--out", tmp_path / "m")
    assert (other.code, other.err.count("\n")) == (2, 1)
    assert "m.part holds a training with seed = 0; asked for seed = 1" in other.err
    continued = call(monkeypatch, capsys, *arguments, "--out", tmp_path / "m")
    assert continued.code == 0, continued.err
    assert "m.part: 2 of 4 epochs were done" in continued.err
    for file in ("weights.safetensors", "config.json"):
        assert (tmp_path / "m" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert not (tmp_path / "m.part").exists()


def test_ctrl_c_before_the_first_epoch_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped_after(0, monkeypatch)
    done = call(monkeypatch, capsys, "train", "--data", "topologies:24", "--out", tmp_path / "m")
    assert (done.code, list(tmp_path.iterdir())) == (130, [])
    assert "stopped; no epoch was finished" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "resnet"], "--model must be one of gcn, gin, graphsage, sage, gat, local, edge-blind"),
        (["--model", "edge-blind:edge-blind"], "--model must be one of"),
        (["--corrected"], "--corrected is for gin under noise; got --model gin and no noise"),
        (["--objective", "votes"], "objective must be one of samples, majority, attacked, attacked-votes; got 'votes'"),
        (["--objective", "majority", "--keep", 0.9], "the majority objective needs several noisy copies; got copies=1"),
        (["--model", "edge-blind", "--hidden", 8], "--hidden, --consistency and --objective belong to networks"),
        (["--defence", "magic"], "got 'magic' (smoothing is the usual one)"),
        (["--keep", 0.9, "--groups", 3], "--groups belongs to voting; got it for smoothing (leave one of them out)"),
        (["--model", "gat", "--hidden", 30], "hidden must be a multiple of the 4 heads of gat; got 30"),
    ],
)
def test_models_that_do_not_exist_are_refused(
    arguments: list[object],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = call(monkeypatch, capsys, "train", "--data", "topologies:24", *arguments, "--out", tmp_path / "m")
    assert (done.code, done.err.count("\n"), list(tmp_path.iterdir())) == (2, 1, [])
    assert words in done.err


@pytest.mark.parametrize("network", ["sage", "gat", "edge-blind:gcn"])
def test_every_network_by_name(
    network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data", "topologies:24", "--keep", 0.9, "--model", network]
    assert train(monkeypatch, capsys, *data, "--out", tmp_path / "m")["network"] == network
    found = models.load(tmp_path / "m").config
    assert found["name"] == network.partition(":")[0]
    assert found.get("network", found)["name"] == network.rpartition(":")[2]


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
