"""Prices on the command line: train against flips, certify to a depth, verify, attack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command_line import OWN_MODEL, call, write_graphs


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_graphs(tmp_path / "graphs")


def certified(monkeypatch, capsys, tmp_path, name, *options):
    arguments = [
        "certify",
        "--model",
        "own_priced:make",
        "--classes",
        2,
        "--data",
        tmp_path / "graphs",
        "--part",
        "all",
    ]
    outcome = call(
        monkeypatch, capsys, *arguments, "--groups", 3, "--out", tmp_path / name, "--json", "--workers", 1, *options
    )
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def test_depth_and_budget_are_options_and_part_of_the_run(monkeypatch, capsys, tmp_path, data):
    (tmp_path / "own_priced.py").write_text(OWN_MODEL.format(pause=0))
    monkeypatch.syspath_prepend(str(tmp_path))
    radii = {}
    for name, options in {
        "counts": ["--depth", 0],
        "one": ["--depth", 1],
        "budget": ["--calls", 50],
        "auto": [],
    }.items():
        radii[name] = certified(monkeypatch, capsys, tmp_path, name, *options)["average_certified_radius"]
        assert call(monkeypatch, capsys, "verify", tmp_path / name).code == 0
    asked = {name: json.loads((tmp_path / name / "run.json").read_text())["settings"]["question"] for name in radii}
    assert asked == {
        "counts": {"depth": 0, "calls": None},
        "one": {"depth": 1, "calls": None},
        "budget": {"depth": None, "calls": 50},
        "auto": {"depth": None, "calls": 4096},
    }
    assert radii["counts"] <= radii["budget"] <= radii["auto"]
    assert radii["counts"] < radii["one"] <= radii["auto"]
    refused = call(
        monkeypatch, capsys, "certify", "--model", "own_priced:make", "--classes", 2, "--data", data, "--part", "all",
        "--groups", 3, "--out", tmp_path / "one", "--depth", 2,
    )  # fmt: skip
    assert refused.code == 2
    assert "depth = 1" in refused.err


def test_a_model_is_trained_against_flips(monkeypatch, capsys, tmp_path, data):
    pytest.importorskip("torch")
    arguments = ["--data", data, "--groups", 2, "--flips", 1, "--worst-of", 3, "--epochs", 2, "--hidden", 8]
    trained = call(monkeypatch, capsys, "train", *arguments, "--out", tmp_path / "model", "--json")
    assert trained.code == 0, trained.err
    stored = json.loads((tmp_path / "model" / "config.json").read_text())
    assert "'flips': 1" in str(stored)
    attacked = call(
        monkeypatch, capsys, "attack", "--model", tmp_path / "model", "--out", tmp_path / "attacked", "--budget", 3,
        "--attacks", "known", "--json", "--workers", 1,
    )  # fmt: skip
    assert attacked.code == 0, attacked.err
