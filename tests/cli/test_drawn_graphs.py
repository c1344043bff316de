"""``--graphs N`` draws every class in proportion, by a seed that run.json records."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import flipproof as fp
from flipproof.datasets.sources import part_indices
from support.command_line import OWN_MODEL, call, write_graphs
from support.shared_data import data_root


def test_a_file_sorted_by_class_gives_every_class_in_proportion() -> None:
    data = fp.datasets.tu("PROTEINS", data_root())
    parts = fp.datasets.split(data, test=0.3, seed=0)
    chosen = part_indices(parts, "test", 40)
    assert len(chosen) == 40
    assert set(chosen) <= set(parts.test_indices.tolist())
    assert chosen == sorted(chosen)
    share, wanted = np.mean(data.labels[chosen] == 0), np.mean(data.labels == 0)
    assert abs(share - wanted) <= 1 / 40
    assert part_indices(parts, "test", 40) == chosen != part_indices(parts, "test", 40, seed=1)


def test_the_note_and_run_json_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_graphs(tmp_path / "mine")
    (tmp_path / "drawn_own_model.py").write_text(OWN_MODEL.format(pause=0))
    monkeypatch.chdir(tmp_path)
    asked = ("--model", "drawn_own_model:make", "--data", "mine", "--keep", 0.95, "--samples", 50, "--workers", 1)
    part = ("--part", "all", "--graphs", 4, "--graphs-seed", 3)
    done = call(monkeypatch, capsys, "certify", *asked, *part, "--out", "some")
    assert done.code == 0, done.err
    assert "4 of 12 graphs, drawn with every class in proportion (seed 3)" in done.err
    settings = json.loads(Path("some/run.json").read_text())["settings"]
    assert settings["graphs_seed"] == 3
    assert sorted(index % 2 for index in settings["graphs"]) == [0, 0, 1, 1]
    done = call(monkeypatch, capsys, "certify", *asked, "--part", "all", "--out", "whole")
    assert "drawn" not in done.err
    assert json.loads(Path("whole/run.json").read_text())["settings"]["graphs_seed"] is None
