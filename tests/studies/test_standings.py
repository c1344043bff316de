"""A tiny benchmark, end to end: what it writes, that it can be stopped anywhere, and that its numbers are right."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flipproof.studies.benchmark_jobs import Job, JobWork, finished_jobs, jobs_of
from scipy import stats

import flipproof as fp
from flipproof import certified_accuracy, defences
from flipproof.cli import choosing_commands
from flipproof.report.content import ATTACKERS, RADII
from flipproof.runs.run_folder import StudySettings, open_run, written_run
from flipproof.studies.benchmark_config import Protocol, Row, read_protocols
from flipproof.studies.standings import DataStandings, Measured, RowStanding
from support.command_line import Command

CONFIG = """
folds = [0, 1]
validation_graphs = 8
attacked = 2
attack_budget = 2
attack_calls = 200
limit = true
training = { epochs = 2, copies = 1 }
asked = { samples = 40, alpha = 0.05 }
[[row]]
name = "voting"
defence = "voting"
settings = [{ groups = 3 }, { groups = 5 }]
readings = { "voting, counts alone" = "GNNCert" }
[[row]]
name = "smoothing"
defence = "smoothing"
settings = [{ keep = 0.8 }]
readings = { votes = "votes" }
[[data]]
name = "topologies:48"
"""
ROWS = ["edge-blind", "voting", "GNNCert", "smoothing", "votes"]
WRITTEN = ("results.csv", "results.json", "tables.tex")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "tiny.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flipproof.studies.standings.curves_figure", lambda *drawn: [])
    monkeypatch.setattr("flipproof.studies.standings.inline_svg", lambda stem: "")


@pytest.fixture(scope="module")
def finished(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("benchmark") / "out"
    options = choosing_commands.BenchmarkOptions(config=config, out=out, workers=1, quiet=True)
    choosing_commands.benchmark(options)
    return out


def finished_items(out: Path) -> list[str]:
    with open_run(out, StudySettings) as run:
        return sorted(run.store.finished())


def test_everything_is_written_and_shows_the_line_to_beat(finished: Path) -> None:
    (data,) = json.loads((finished / "results.json").read_text())
    assert [row["method"] for row in data["methods"]] == ROWS
    page = (finished / "page.md").read_text()
    tables = [block for block in page.split("\n\n") if block.startswith("|")]
    assert len(tables) == 4
    assert all("edge-blind" in table for table in tables)
    assert "| limit of the task | 1.000 |" in page
    accuracy, attackers = tables[1], tables[2]  # every share has its interval
    rows = [line for line in (accuracy + "\n" + attackers).splitlines() if re.search(r"\d\.\d{3}", line)]
    assert len(rows) > 2 * len(ROWS)
    for line in rows:
        assert "limit of the task" in line or len(re.findall(r"\d\.\d{3} ± ", line)) >= 6, line
    with (finished / "results.csv").open() as file:
        for row in csv.DictReader(file):
            assert float(row["low95"]) <= float(row["certified_accuracy"]) <= float(row["high95"])
    html = (finished / "page.html").read_text()
    assert "<svg" in html
    assert "<strong>" in html
    assert (finished / "tables.tex").read_text().count(r"\toprule") == 1
    assert (finished / "figures" / "topologies-48.png").stat().st_size > 10_000
    assert (finished / "splits" / "topologies-48.json").is_file()


def test_means_and_intervals_are_those_of_the_folds(finished: Path) -> None:
    (data,) = json.loads((finished / "results.json").read_text())
    with (finished / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    for stated in data["methods"]:
        for r in RADII:
            shares = [
                float(row["certified_accuracy"])
                for row in rows
                if (row["method"], row["attacker"], row["radius"]) == (stated["method"], "any flips", str(r))
            ]
            measured = stated["certified_accuracy"]["any flips"][str(r)]
            assert measured["mean"] == pytest.approx(np.mean(shares), abs=1e-5)
            half = stats.t.ppf(0.975, 1) * np.std(shares, ddof=1) / np.sqrt(2)
            assert measured["interval"] == pytest.approx([np.mean(shares) - half, np.mean(shares) + half], abs=1e-4)
            assert data["limit"][str(r)] >= 0.5
        assert stated["under_attack"]["mean"] <= 1


def test_a_job_is_what_the_library_says(config: Path, finished: Path) -> None:
    """Train, choose and certify by hand what a stored job holds."""
    (protocol,) = read_protocols(config)
    jobs = finished_jobs([protocol], finished, workers=1)
    stored = next(jobs[job] for job in jobs if (job.row, job.fold) == ("voting", 1))
    parts = protocol.experiment(protocol.rows[0], 1).parts
    held = parts.validation.subset(fp.datasets.splits.drawn(parts.validation, 8, seed=1).tolist())
    scores, classifiers = [], []
    for groups in (3, 5):
        model = fp.models.GIN(1, 8, seed=1)
        fp.train_voting(model, parts.train, groups=groups, renumber=True, epochs=2, copies=1, features="degree", seed=1)
        classifiers.append(fp.VotingClassifier(model, groups, features="degree"))
        certificates = classifiers[-1].certify_all(held)
        scores.append(certified_accuracy(certificates, held.labels, RADII).mean())
    assert [one["validation"] for one in stored["tried"]] == pytest.approx(scores, abs=1e-6)
    best = classifiers[int(np.argmax(scores))]
    assert stored["chosen"] == {"groups": best.groups.count}
    assert stored["rows"]["voting"]["radius"] == [one.radius for one in best.certify_all(parts.test)]
    assert stored["rows"]["GNNCert"]["radius"] == [one.radius for one in best.certify_all(parts.test, depth=0)]
    assert stored["graphs"] == parts.test_indices.tolist()


def test_training_choice_and_test_share_no_graph_and_all_graphs_are_tested(config: Path) -> None:
    (protocol,) = read_protocols(config)
    tested: list[int] = []
    for number in range(10):
        parts = protocol.experiment(protocol.rows[0], number).parts
        every = [*parts.train_indices, *parts.validation_indices, *parts.test_indices]
        assert sorted(every) == list(range(48))
        tested += parts.test_indices.tolist()
    assert sorted(tested) == list(range(48))


class Counted:
    """Notes every job that is done, and may stop like Ctrl-C."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[Job] = []
        self.stop_after: int | None = None
        whole = JobWork.__call__

        def counted(work: JobWork, job: Job) -> dict[str, Any]:
            if len(self.done) == self.stop_after:
                raise KeyboardInterrupt
            self.done.append(job)
            return whole(work, job)

        monkeypatch.setattr(JobWork, "__call__", counted)


def test_a_benchmark_that_was_stopped_ends_in_the_same_bytes(
    config: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command, undrawn: None
) -> None:
    out, counted = tmp_path / "out", Counted(monkeypatch)
    words = ("benchmark", config, "--out", out, "--workers", 1)
    counted.stop_after = 4
    stopped = command(*words)
    assert stopped.code == 130
    assert "continue with: flipproof benchmark" in stopped.err
    kept = finished_items(out)
    assert len(kept) == 4
    with sqlite3.connect(out / "evidence.sqlite") as store:  # a result that was altered is made again
        store.execute("UPDATE finished SET content = ? WHERE item = ?", (b"{}", kept[0]))
    counted.done, counted.stop_after = [], None
    continued = command(*words)
    assert continued.code == 0
    assert f"{kept[0]} was altered" in continued.err
    assert len(counted.done) == 7 - 3
    for name in WRITTEN:
        assert (out / name).read_bytes() == (finished / name).read_bytes()
    counted.done = []
    assert command(*words, "--json").code == 0
    assert counted.done == []


@pytest.mark.guarantee
def test_two_workers_give_the_same_bytes(config: Path, finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    choosing_commands.benchmark(choosing_commands.BenchmarkOptions(config=config, out=out, workers=2, quiet=True))
    for name in WRITTEN:
        assert (out / name).read_bytes() == (finished / name).read_bytes()


def test_two_processes_are_refused(config: Path, finished: Path, command: Command) -> None:
    with written_run(finished, StudySettings.read(finished)):
        refused = command("benchmark", config, "--out", finished)
    assert refused.code == 2
    assert "is in use by another process" in refused.err


def test_parts_can_be_run_and_another_config_never_overwrites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command, undrawn: None
) -> None:
    out, path, counted = tmp_path / "out", tmp_path / "b.toml", Counted(monkeypatch)
    words = ("benchmark", path, "--out", out, "--workers", 1)
    path.write_text(CONFIG.replace("limit = true\n", "").replace("attacked = 2", "attacked = 0"))
    small = path.read_text()
    part = ("--method", "edge-blind", "--method", "smoothing", "--fold", 0)
    assert command(*words, *part).code == 0
    assert [(job.row, job.fold) for job in counted.done] == [("edge-blind", 0), ("smoothing", 0)]
    (data,) = json.loads((out / "results.json").read_text())
    assert [row["method"] for row in data["methods"]] == ["edge-blind", "smoothing", "votes"]
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    for text, sentence in (
        (
            small.replace("samples = 40", "samples = 61"),
            "holds a run with samples = 40; asked for samples = 61",
        ),
        (small.replace("epochs = 2", "epochs = 3"), "holds a run with epochs = 2; asked for epochs = 3"),
        (
            small.replace("{ groups = 5 }", "{ groups = 7 }"),
            "holds a run with settings = [{'groups': 3}, {'groups': 5}]",
        ),
    ):
        path.write_text(text)
        refused = command(*words)
        assert refused.code == 2
        assert sentence in refused.err
        assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before
    path.write_text(small.replace("folds = [0, 1]", "folds = [0, 1, 2]"))
    counted.done = []
    assert command(*words, "--method", "edge-blind").code == 0
    assert [(job.row, job.fold) for job in counted.done] == [("edge-blind", 1), ("edge-blind", 2)]
    unknown = command(*words, "--fold", 7)
    assert (unknown.code, "--fold must be in the config, which has 0, 1, 2; got 7" in unknown.err) == (2, True)


def test_the_method_that_the_documentation_adds_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command, undrawn: None
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()
    module, config = (re.findall(rf"^```{kind}\n(.*?)^```$", page, flags=re.S | re.M) for kind in ("python", "toml"))
    assert len(module[0].splitlines()) <= 20
    monkeypatch.setattr(defences, "_HOMES", {**defences._HOMES})
    monkeypatch.chdir(tmp_path)
    Path("my_method.py").write_text(module[0])
    Path("mine.toml").write_text(config[0])
    done = command("benchmark", "mine.toml", "--out", "out", "--workers", 1, "--json")
    assert done.code == 0, done.err
    (data,) = json.loads(done.out)["results"]
    assert [row["method"] for row in data["methods"]] == ["edge-blind", "voting", "keyed voting"]
    chosen = [row["chosen"] for row in data["methods"]][1:]
    assert chosen == [["groups 5"], ["groups 5 key 7"]]
    Path("mine.toml").write_text(config[0].replace("my_method", "no_such_method"))
    refused = command("benchmark", "mine.toml", "--out", "other")
    assert "plugins: importing no_such_method failed with ModuleNotFoundError" in refused.err


def test_other_settings_and_other_data_are_other_jobs(config: Path) -> None:
    def digests(text: str) -> set[str]:
        path = config.with_name("other.toml")
        path.write_text(text)
        return {job.digest for job in jobs_of(read_protocols(path))}

    first = digests(CONFIG)
    assert len(first) == 7
    assert digests(CONFIG + "data_seed = 1\n") & first == set()
    # the edge-blind line and the limit know no epochs, and only smoothing samples
    assert len(digests(CONFIG.replace("epochs = 2", "epochs = 3")) & first) == 3
    assert len(digests(CONFIG.replace("samples = 40", "samples = 61")) & first) == 5
    assert first < digests(CONFIG.replace("folds = [0, 1]", "folds = [0, 1, 2]"))


def standing(name: str, *folds: dict[str, list[int]]) -> RowStanding:
    """A method with these answers and radii in each fold; "line" ignores edges."""
    row = Row(defence="edge-blind" if name == "line" else "none", name=name)
    facts = [
        {"graphs": fold["labels"], "labels": fold["labels"], "majority": 0.5}
        | {"rows": {name: {"predicted": fold["answers"], **dict.fromkeys(ATTACKERS, fold["radii"])}}}
        for fold in folds
    ]
    return RowStanding(name, row, dict(enumerate(facts)))


def test_a_single_fold_has_the_interval_of_its_graphs_and_a_collapsed_method_is_named() -> None:
    def row(name: str, answers: list[int]) -> RowStanding:
        return standing(name, {"labels": [0, 0, 1, 1], "answers": answers, "radii": [2] * 4})

    rows = (row("line", [0, 0, 1, 0]), row("collapsed", [1, 1, 1, 1]))
    data = DataStandings(Protocol(name="d"), rows)
    assert str(rows[0].accuracy(1)) == "0.750 (.19-.99)"
    assert rows[0].accuracy(1).to_dict()["interval"] == pytest.approx([0.194120, 0.993691], abs=1e-5)
    assert (rows[0].collapsed, rows[1].collapsed) == (False, True)
    assert data.collapsed.endswith("nothing follows for its defence: collapsed.")
    assert not replace(data, rows=rows[:1]).collapsed


def test_paired_tests_compare_the_best_with_each_other_and_count_themselves() -> None:
    def row(name: str, *folds: list[int]) -> RowStanding:
        return standing(name, *({"labels": [0] * 12, "answers": [0] * 12, "radii": radii} for radii in folds))

    strong, weak = row("strong", [3] * 12, [3] * 12), row("line", [-1] * 12, [3] * 12)
    data = DataStandings(Protocol(name="d"), (weak, strong))
    tests = data.tests()
    assert [(test.first, test.second, test.radius) for test in tests][:4] == [
        ("strong", "line", r) for r in (0, 1, 2, 3)
    ]
    assert tests[0].p_value == pytest.approx(2 * 0.5**12)
    assert tests[0].comparisons == len(RADII)
    assert tests[0].adjusted == pytest.approx(6 * 2 * 0.5**12)
    # which row is the best is read off the same graphs: every two rows are counted
    middling = row("middling", [3] * 11 + [-1], [3] * 12)
    three = replace(data, rows=(*data.rows, middling)).tests()
    assert [(test.first, test.second) for test in three][:2] == [("strong", "line"), ("strong", "middling")]
    assert {test.comparisons for test in three} == {3 * len(RADII)}
    assert three[0].adjusted == pytest.approx(18 * 2 * 0.5**12)
    assert three[1].adjusted == 1
    assert data.best(2).name == "strong"
    assert data.best(2).accuracy(2).half == 0
    assert Measured((0.2, 0.4)).half == pytest.approx(12.706 * 0.1414 / np.sqrt(2), rel=1e-3)
