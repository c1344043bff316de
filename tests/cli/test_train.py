"""``flipproof train``: what stands in the model folder, and that certify takes it from there."""

import json
from pathlib import Path

import pytest

from flipproof import models


def train(command, *arguments: object):
    done = command("train", "--epochs", 2, "--json", *arguments)
    assert done.code == 0, done.err
    assert done.err == ""
    summary: dict[str, object] = json.loads(done.out)
    return summary


def test_everything_certify_needs_is_stored(shell):
    noise = ["--add", 0.1, "--remove", 0.3]
    summary = train(shell, "--data", "graphs", *noise, "--split-seed", 5, "--out", "models/m", "--model", "gcn")
    assert summary["graphs"] == {"train": 7, "validation": 1, "test": 4}
    assert (summary["features"], summary["network"], summary["epochs"]) == ("degree", "gcn", 2)
    saved = models.load_metadata("models/m")
    stored = saved.metadata
    assert stored["defence"] == {"name": "smoothing", "add": pytest.approx(0.1), "remove": pytest.approx(0.3)}
    assert stored["data"] == str(Path("graphs").resolve())
    assert (stored["split_seed"], stored["data_seed"], stored["features"]) == (5, 0, "degree")
    assert stored["class_names"] == ["ring", "wheel"]
    certify = ["certify", "--model", "models/m", "--samples", 50, "--method", "votes", "--json", "--out", "run"]
    assert json.loads(shell.done(*certify).out)["graphs"] == 4
    settings = json.loads(Path("run/run.json").read_text())["settings"]
    assert (settings["split_seed"], settings["data"], settings["features"]) == (5, "graphs", "degree")
    assert settings["model_sha256"] == saved.weights_hash


def stopped_after(epochs, monkeypatch):
    """Ctrl-C in the middle of the epoch after so many."""
    from flipproof.training.loop import _State

    step = _State.run_step

    def stop(state, *arguments: object):
        if len(state.history) == epochs:
            raise KeyboardInterrupt
        return step(state, *arguments)

    monkeypatch.setattr(_State, "run_step", stop)


def test_ctrl_c_and_the_same_command_again(tmp_path, monkeypatch, command):
    arguments = ["train", "--data", "topologies:24", "--keep", 0.9, "--epochs", 4, "--copies", 2]
    with monkeypatch.context() as patched:
        stopped_after(0, patched)
        done = command(*arguments, "--out", tmp_path / "none")
        assert (done.code, list(tmp_path.iterdir())) == (130, [])
        assert "stopped; no epoch was finished" in done.err
    assert command(*arguments, "--out", tmp_path / "whole").code == 0
    with monkeypatch.context() as patched:
        patched.setattr("flipproof.training.loop._CHECKPOINT_SECONDS", 0)
        stopped_after(2, patched)
        done = command(*arguments, "--out", tmp_path / "m")
        assert done.code == 130
        last = done.err.splitlines()[-1]
        assert last.startswith("flipproof: stopped; what is finished is kept. continue with: flipproof train --data")
        assert [path.name for path in tmp_path.iterdir() if path.name != "whole"] == ["m.part"]
    other = command(*arguments, "--seed", 1, "--out", tmp_path / "m")
    assert (other.code, other.err.count("\n")) == (2, 1)
    assert "m.part holds a training with seed = 0; asked for seed = 1" in other.err
    continued = command(*arguments, "--out", tmp_path / "m")
    assert continued.code == 0, continued.err
    assert "m.part: 2 of 4 epochs were done" in continued.err
    for file in ("weights.safetensors", "config.json"):
        assert (tmp_path / "m" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert not (tmp_path / "m.part").exists()
