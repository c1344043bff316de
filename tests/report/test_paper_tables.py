"""Tables for a paper: the numbers are those of the metrics, the text is LaTeX or CSV, the runs are comparable or refused."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from flipproof import InputError
from flipproof.certificates.metrics import share_interval
from flipproof.report.content import TableRun
from flipproof.report.paper_tables import latex, long_csv, paired_csv
from flipproof.report.reading import read_tables
from flipproof.report.templates import latex_text
from support.command_line import Command


@pytest.fixture(scope="module")
def runs(folder: Path) -> list[TableRun]:
    return read_tables([folder / name for name in ("even", "uneven", "blind")])


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_long_format_has_one_row_per_run_attacker_and_radius(runs: list[TableRun]) -> None:
    rows = rows_of(long_csv(runs))
    about = "run data part model defence method alpha attacker radius certified_graphs graphs certified_accuracy low95 high95"
    assert list(rows[0]) == [*about.split(), "edge_blind_accuracy", "edge_blind_low95", "edge_blind_high95"]
    keys = [(row["run"], row["attacker"], int(row["radius"])) for row in rows]
    assert len(set(keys)) == len(keys) == 3 * 3 * 5
    for row in rows:
        run = next(run for run in runs if run.name == row["run"])
        column = {"any flips": "radius", "additions only": "adds_radius", "removals only": "removes_radius"}
        right = int((run.radii[column[row["attacker"]]] >= int(row["radius"])).sum())
        assert (int(row["certified_graphs"]), int(row["graphs"])) == (right, 12)
        assert float(row["certified_accuracy"]) == pytest.approx(right / 12, abs=1e-6)
        ends = [float(end) for end in share_interval(right, 12)]
        assert [float(row["low95"]), float(row["high95"])] == pytest.approx(ends, abs=1e-6)
    assert [int(row["radius"]) for row in rows_of(long_csv(runs[:1], [2, 40]))] == [2, 40] * 3


def test_latex_holds_every_share_with_its_interval_and_escapes_every_name(runs: list[TableRun]) -> None:
    named = [replace(runs[0], name=r"50%_a\b & {c}"), *runs[1:]]
    text = latex(named, [0, 1])
    assert latex_text(named[0].name) == r"50\%\_a\textbackslash{}b \& \{c\}"
    plain = re.sub(r"\\\\$|\\[&%_${}]", "", text, flags=re.MULTILINE)  # without what is escaped
    lines = [line for line in plain.splitlines() if line.startswith("    ") and "&" in line]
    assert {line.count("&") for line in lines} == {5, 6}  # a cell for each column of either table
    assert plain.count("{") == plain.count("}")
    low, high = share_interval(6, 12)
    values, intervals = text.splitlines()[text.splitlines().index(r"    \midrule") + 1 :][:2]
    assert "50.0" in values.split(" & ")
    assert (
        intervals.split(" & ")[values.split(" & ").index("50.0")]
        == rf"{{\scriptsize [{100 * low:.1f}, {100 * high:.1f}]}}"
    )
    assert text.count(r"\begin{tabular}") == 2
    assert "corrected for all 4 comparisons" in text
    for attacker in ("any flips", "additions only", "removals only"):
        assert text.count(attacker) == 3
    alone = latex(runs[:1])
    assert "attacker" not in alone  # the radius says everything
    assert "McNemar" not in alone


def test_paired_tests_compare_the_first_run_graph_by_graph(runs: list[TableRun]) -> None:
    rows = rows_of(paired_csv(runs, [0, 1]))
    assert [(row["first"], row["second"], row["radius"]) for row in rows] == [
        ("even", "uneven", "0"),
        ("even", "uneven", "1"),
        ("even", "blind", "0"),
        ("even", "blind", "1"),
    ]
    even, uneven = (run.radii["radius"] >= 1 for run in runs[:2])
    assert int(rows[1]["only_first"]) == int((even & ~uneven).sum()) == 6
    assert float(rows[1]["p_value"]) == 2 / 2**6
    assert float(rows[1]["p_holm"]) == 4 * 2 / 2**6
    assert {row["comparisons"] for row in rows} == {"4"}


def test_runs_that_cannot_be_compared_are_refused(runs: list[TableRun]) -> None:
    fewer = replace(runs[1], rows=runs[1].rows[1:])
    with pytest.raises(InputError, match="same graphs; uneven and even certify different ones"):
        paired_csv([runs[0], fewer])
    assert "no paired tests: the runs certify different graphs" in latex([runs[0], fewer])
    with pytest.raises(InputError, match="at least two"):
        paired_csv(runs[:1])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--format", "csv", "uneven"], "exports one run; got 2"),
        (["--radii", "1"], "--radii is for --format long, latex, paired"),
        (["--format", "long", "--radii", "0,x"], "--radii must be different whole numbers"),
        (["--format", "long", "--radii", "0,999999999999"], "--radii must be different whole numbers from 0 to 100000"),
        (["--format", "long", "--radii", "1,1"], "--radii must be different whole numbers"),
        (["--format", "long", "even"], "each run must be given once"),
    ],
)
def test_what_cannot_be_exported_ends_in_one_sentence(
    folder: Path, options: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(folder)
    outcome = command("export", "even", *options)
    assert outcome.code == 2
    assert sentence in outcome.err
    assert outcome.out == ""


def test_graphs_without_labels_have_no_accuracy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlabelled = [{**row, "label": None} for row in read_tables([folder / "even"])[0].rows]
    monkeypatch.setattr("flipproof.report.reading.read_table", lambda _: unlabelled)
    with pytest.raises(InputError, match="without labels, so there is no certified accuracy"):
        read_tables([folder / "even"])
