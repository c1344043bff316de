"""The figures: files in three formats, their numbers beside them, the same bytes for the same numbers."""

from __future__ import annotations

import csv
import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from flipproof.certificates.metrics import Curve
from flipproof.report.drawing import Panel, curves_figure, write_figures
from flipproof.report.reading import read_run, with_attacks, with_lines

CURVES = (Curve("0.7", (40, 30, 10, 0), 50), Curve("0.9", (45, 20, 0, 0), 50))
PANEL = Panel("title", CURVES, floor=0.24)


def digests(paths: list[Path]) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]


def test_the_same_numbers_give_the_same_files(tmp_path: Path) -> None:
    paths, again = (curves_figure(tmp_path / folder / "beta", [PANEL]) for folder in "ab")
    assert [path.suffix for path in paths] == [".svg", ".pdf", ".png", ".csv"]
    assert digests(paths) == digests(again)
    other = curves_figure(tmp_path / "c" / "beta", [replace(PANEL, curves=CURVES[:1])])
    assert digests(paths[:3]) != digests(other[:3])
    assert not [path for path in (tmp_path / "a").iterdir() if path.name.endswith(".tmp")]


def test_numbers_beside_the_figure(tmp_path: Path) -> None:
    path = curves_figure(tmp_path / "beta", [PANEL])[-1]
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) == 9
    row = rows[1]
    assert (row["curve"], row["r"], row["certified_graphs"], row["test_graphs"]) == ("0.7", "1", "30", "50")
    assert float(row["low95"]) < float(row["certified_accuracy"]) == 0.6 < float(row["high95"])
    assert (rows[-1]["curve"], rows[-1]["certified_accuracy"]) == ("edge-blind", "0.240000")


def test_band_is_clopper_pearson() -> None:
    from scipy.stats import binomtest

    low, high = CURVES[0].band
    exact = binomtest(30, 50).proportion_ci(0.95)
    assert (low[1], high[1]) == (pytest.approx(exact.low), pytest.approx(exact.high))


def test_figures_of_one_and_of_several(folder: Path, tmp_path: Path) -> None:
    runs = [read_run(folder / name, f"_{name}$") for name in ("even", "uneven", "blind")]
    runs = with_attacks(with_lines(runs), folder / "attack")
    paths = write_figures(tmp_path, runs)
    stems = ["add_remove", "certified_accuracy", "under_attack"]
    assert sorted({path.stem for path in paths}) == stems
    assert len(paths) == 4 * len(stems)
    accuracy = (tmp_path / "certified_accuracy.csv").read_text().splitlines()
    assert sum(line.split(",")[2] == "0" for line in accuracy) == 6  # two runs, three attackers
    assert "edge-blind,every,6,12,0.500000,0.210945,0.789055" in accuracy[-1]
    attacked = list(csv.DictReader((tmp_path / "under_attack.csv").read_text().splitlines()))
    assert {row["test_graphs"] for row in attacked} == {"4"}  # both bounds are of the graphs attacked
    assert next(row["curve"] for row in attacked if row["r"] == "0") == "certified (lower bound)"
    # an edge-blind model alone: its line, and nothing that a radius could tell
    alone = write_figures(tmp_path / "blind", runs[2:])
    assert {path.stem for path in alone} == {"certified_accuracy"}
