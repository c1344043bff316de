"""The figures of runs: which are drawn, and their numbers."""

from __future__ import annotations

import csv
from pathlib import Path

from flipproof.report.reading import read_run, with_attacks, with_lines
from flipproof.report.run_figures import write_figures


def test_figures_of_one_and_of_several(folder: Path, tmp_path: Path) -> None:
    runs = [read_run(folder / name, f"_{name}$") for name in ("even", "uneven", "blind")]
    runs = with_attacks(with_lines(runs, runs[2:]), folder / "attack")
    paths = write_figures(tmp_path, runs)
    stems = ["certified_accuracy", "radii_by_class", "add_remove", "radius_by_size", "methods", "under_attack"]
    assert sorted({path.stem for path in paths}) == sorted(stems)
    assert len(paths) == 4 * len(stems)
    accuracy = (tmp_path / "certified_accuracy.csv").read_text().splitlines()
    assert sum(line.split(",")[2] == "0" for line in accuracy) == 6  # two runs, three attackers
    assert "edge-blind,every,6,12,0.500000,0.210945,0.789055" in accuracy[-1]
    for name in ("radii_by_class", "methods"):
        rows = list(csv.DictReader((tmp_path / f"{name}.csv").read_text().splitlines()))
        assert sum(int(row["graphs"]) for row in rows) == 24
        assert not any(value == "-1" for row in rows for value in row.values())
    attacked = list(csv.DictReader((tmp_path / "under_attack.csv").read_text().splitlines()))
    assert {row["test_graphs"] for row in attacked} == {"4"}  # both bounds are of the graphs attacked
    assert next(row["curve"] for row in attacked if row["r"] == "0") == "certified (lower bound)"
    # an edge-blind model alone: its line, and nothing that a radius could tell
    alone = write_figures(tmp_path / "blind", runs[2:])
    assert {path.stem for path in alone} == {"certified_accuracy"}
