"""Classes are matched by name: a model never answers with the number of another class."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import flipproof as fp
from support.command_line import OWN_MODEL, call, write_graphs

TRAINED = ("--features", "degree", "--epochs", 40, "--keep", 0.95, "--test", 0.5, "--validation", 0, "--quiet")


def renamed(folder: Path, to: Path, **names: str) -> Path:
    """A copy of the folder, its classes called otherwise."""
    write_graphs(to)
    labels = (folder / "labels.csv").read_text()
    for old, new in names.items():
        labels = labels.replace(f",{old}\n", f",{new}\n")
    (to / "labels.csv").write_text(labels)
    return to


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """Trained on rings and wheels."""
    write_graphs(tmp_path / "mine")
    done = call(monkeypatch, capsys, "train", "--data", tmp_path / "mine", *TRAINED, "--out", tmp_path / "model")
    assert done.code == 0, done.err
    return tmp_path / "model"


def accuracy(text: str) -> float:
    return float(json.loads(text)["certified_accuracy"]["0"])


def test_names_in_another_order_are_matched(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A class that comes first in the alphabet shifts the numbers of the others."""
    other = renamed(tmp_path / "mine", tmp_path / "other")
    asked = ("--part", "all", "--samples", 200, "--json", "--workers", 1)
    call(monkeypatch, capsys, "certify", "--model", model, *asked, "--out", tmp_path / "own")
    run = json.loads((tmp_path / "own" / "run.json").read_text())["settings"]
    assert run["class_names"] == ["ring", "wheel"]
    swapped = fp.datasets.folder(other).with_classes(["wheel", "ring"])
    assert swapped.labels.tolist() == [1, 0] * 6
    assert swapped.with_classes(["ring", "wheel"]) == fp.datasets.folder(other)
    done = call(monkeypatch, capsys, "certify", "--model", model, "--data", other, *asked, "--out", tmp_path / "again")
    assert done.code == 0, done.err
    assert accuracy(done.out) > 0.8


def test_a_class_that_the_model_does_not_know_is_refused_by_name(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = renamed(tmp_path / "mine", tmp_path / "other", wheel="a_wheel")
    done = call(monkeypatch, capsys, "certify", "--model", model, "--data", other, "--out", tmp_path / "run")
    assert done.code == 2
    assert "the classes must be among ring, wheel; other has a_wheel" in done.err
    assert not (tmp_path / "run").exists()


def test_a_model_without_names_says_which_number_is_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_graphs(tmp_path / "mine")
    (tmp_path / "names_own_model.py").write_text(OWN_MODEL.format(pause=0))
    monkeypatch.chdir(tmp_path)
    asked = ("--data", tmp_path / "mine", "--keep", 0.95, "--samples", 50, "--workers", 1, "--out", tmp_path / "run")
    done = call(monkeypatch, capsys, "certify", "--model", "names_own_model:make", *asked)
    assert done.code == 0, done.err
    assert "taken by number: 0 is ring, 1 is wheel" in done.err
