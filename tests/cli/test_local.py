"""The local defence on the command line: train, certify, continue, verify, attack."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import flipproof as fp
from support.command_line import Outcome, call

Shell = Callable[..., Outcome]
TRAIN = [
    "train",
    "--defence",
    "local",
    "--budget",
    2,
    "--data",
    "topologies",
    "--epochs",
    2,
    "--out",
    "model",
    "--json",
]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: call(monkeypatch, capsys, *arguments)


def test_train_certify_verify_attack(shell: Shell) -> None:
    trained = shell(*TRAIN)
    assert trained.code == 0, trained.err
    assert json.loads(trained.out)["defence"] == {"name": "local", "budget": 2}
    assert fp.models.load_metadata("model").config["in_features"] == 0
    certify = ["certify", "--model", "model", "--out", "run", "--graphs", 5, "--workers", 1, "--json"]
    first = shell(*certify)
    assert first.code == 0, first.err
    summary = json.loads(first.out)
    assert (summary["method"], summary["alpha"]) == ("local", 0.0)
    assert shell(*certify).out == first.out
    assert shell("verify", "run").code == 0
    attacked = shell("attack", "--model", "model", "--out", "attacked", "--graphs", 3, "--budget", 2, "--workers", 1)
    assert attacked.code == 0, attacked.err


def test_the_model_alone_says_the_defence_and_another_model_is_refused(shell: Shell) -> None:
    trained = shell("train", "--model", "local", "--data", "topologies", "--epochs", 1, "--out", "model", "--json")
    assert trained.code == 0, trained.err
    assert json.loads(trained.out)["defence"] == {"name": "local"}
    refused = shell(*TRAIN[:-2], "other", "--model", "gin")
    assert refused.code == 2
    assert "local needs --model local" in refused.err


def test_training_takes_what_suits_local_unless_asked(shell: Shell) -> None:
    assert shell(*TRAIN).code == 0
    stored = fp.models.load_metadata("model").metadata["training"]
    assert [stored[name] for name in ("learning_rate", "batch_size", "weight_decay", "average")] == [
        0.006,
        64,
        0.001,
        0.99,
    ]
    assert shell(*TRAIN, "--replace", "--learning-rate", 0.02, "--batch-size", 16).code == 0
    stored = fp.models.load_metadata("model").metadata["training"]
    assert [stored[name] for name in ("learning_rate", "batch_size", "average")] == [0.02, 16, 0.99]
