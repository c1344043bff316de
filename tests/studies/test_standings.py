"""A tiny benchmark, end to end: what it writes, that it can be stopped anywhere, and that its numbers are right."""

import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest
from scipy import stats

import flipproof as fp
from flipproof import certified_accuracy
from flipproof.cli import choosing_commands
from flipproof.report.content import ATTACKERS, RADII
from flipproof.runs.run_folder import StudySettings, open_run
from flipproof.studies import benchmark, provenance
from flipproof.studies.benchmark import Job, finished_jobs, job_result
from flipproof.studies.benchmark_config import Protocol, Row, read_protocols
from flipproof.studies.standings import Measured, standings

CONFIG = """
folds = [0, 1]
validation_graphs = 8
attacked = 2
attack_budget = 2
attack_calls = 200
limit = true
training = { epochs = 2, copies = 1 }
certify = { samples = 40, alpha = 0.05 }
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
CSV = "results.csv"
PAGES = Path(__file__).parents[2] / "docs" / "benchmarks"


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "tiny.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def undrawn(monkeypatch):
    def draw(stem, data):
        stem.parent.mkdir(parents=True, exist_ok=True)
        stem.with_suffix(".svg").write_text("<svg/>")

    monkeypatch.setattr("flipproof.studies.standings._draw", draw)


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    out = tmp_path_factory.mktemp("benchmark") / "out"
    options = choosing_commands.BenchmarkOptions(config=config, out=out, workers=1, quiet=True)
    choosing_commands.benchmark(options)
    return out


def finished_items(out):
    with open_run(out, StudySettings) as run:
        return sorted(run.store.finished())


def test_everything_is_written_and_shows_the_line_to_beat(finished):
    page = (finished / "results.md").read_text()
    assert re.search(r"^voting: validation graphs chose groups \d \(\d folds?\)", page, re.MULTILINE)
    (table,) = (block for block in page.split("\n\n") if block.startswith("|"))
    names = ["method", "majority class", *ROWS, "limit of the task"]
    assert re.findall(r"^\|([\w -]+)\|[^-]", table, re.MULTILINE) == names
    assert "|limit of the task|1.000|" in table
    for line in table.splitlines()[3:-1]:  # every share has its interval
        assert len(re.findall(r"\d\.\d{3}±", line)) >= 6, line
    assert provenance.stamp() in page
    assert provenance.marked(page) == page
    assert (finished / "results" / "topologies-48.svg").stat().st_size > 10_000
    assert (finished / "results.tex").read_text().count(r"\toprule") == 1
    assert (finished / "splits" / "topologies-48.json").is_file()


def test_means_and_intervals_are_those_of_the_folds(finished):
    rows = pandas.read_csv(finished / CSV)
    shares = rows[rows["low95"].notna()]
    assert (shares["low95"] <= shares["value"]).all()
    assert (shares["value"] <= shares["high95"]).all()
    page = (finished / "results.md").read_text().replace("**", "")
    for method in ROWS:
        own = shares[(shares["method"] == method) & (shares["attacker"] == "any flips")]
        folds = own.set_index(["radius", "fold"])["value"].unstack()
        half = stats.t.ppf(0.975, 1) * folds.std(axis=1, ddof=1) / np.sqrt(2)
        cells = [f"{folds.mean(axis=1)[str(r)]:.3f}±{half[str(r)]:.3f}" for r in RADII]
        assert f"|{method}|{'|'.join(cells)}|" in page


def test_a_job_is_what_the_library_says(config, finished):
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
    assert [one["score"] for one in stored["tried"]] == pytest.approx(scores, abs=1e-6)
    best = classifiers[int(np.argmax(scores))]
    assert stored["chosen"] == {"groups": best.groups.count}
    certified = stored["result"]["certified"]
    assert certified[""]["radius"] == [one.radius for one in best.certify_all(parts.test)]
    assert certified["voting, counts alone"]["radius"] == [one.radius for one in best.certify_all(parts.test, depth=0)]
    assert stored["result"]["graphs"] == parts.test_indices.tolist()


def same_but_for_seconds(out, other):
    one, two = (re.sub(r".*seconds per graph.*", "", (folder / CSV).read_text()) for folder in (out, other))
    return one == two


class Counted:
    """Notes every job that is done, and may stop like Ctrl-C."""

    def __init__(self, monkeypatch):
        self.done: list[Job] = []
        self.stop_after: int | None = None

        def counted(protocols, job):
            if len(self.done) == self.stop_after:
                raise KeyboardInterrupt
            self.done.append(job)
            return job_result(protocols, job)

        monkeypatch.setattr(benchmark, "job_result", counted)


def test_a_benchmark_that_was_stopped_ends_the_same(config, finished, tmp_path, monkeypatch, command, undrawn):
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
    assert same_but_for_seconds(out, finished)
    counted.done = []
    assert command(*words, "--json").code == 0
    assert counted.done == []


@pytest.mark.guarantee
def test_two_workers_give_the_same_bytes(config, finished, tmp_path):
    out = tmp_path / "out"
    choosing_commands.benchmark(choosing_commands.BenchmarkOptions(config=config, out=out, workers=2, quiet=True))
    assert same_but_for_seconds(out, finished)


def test_a_config_can_grow_and_another_one_never_overwrites(tmp_path, monkeypatch, command, undrawn):
    out, path, counted = tmp_path / "out", tmp_path / "b.toml", Counted(monkeypatch)
    words = ("benchmark", path, "--out", out, "--workers", 1)
    small = CONFIG.replace("limit = true\n", "").replace("attacked = 2", "attacked = 0").replace("[0, 1]", "[0]")
    path.write_text(small)
    assert command(*words).code == 0
    assert [(job.row, job.fold) for job in counted.done] == [(row, 0) for row in ("edge-blind", "voting", "smoothing")]
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    for old, new, sentence in (
        ("samples = 40", "samples = 61", "holds a run with samples = 40; asked for samples = 61"),
        ("epochs = 2", "epochs = 3", "holds a run with epochs = 2; asked for epochs = 3"),
        ("{ groups = 5 }", "{ groups = 7 }", "holds a run with settings = [{'groups': 3}, {'groups': 5}]"),
    ):
        path.write_text(small.replace(old, new))
        refused = command(*words)
        assert refused.code == 2
        assert sentence in refused.err
        assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before
    path.write_text(small.replace("[0]", "[0, 1]"))
    counted.done = []
    assert command(*words).code == 0
    assert {job.fold for job in counted.done} == {1}


def test_the_method_that_the_documentation_adds_is_a_row(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()
    module, config = (re.findall(rf"^```{kind}\n(.*?)^```$", page, flags=re.S | re.M) for kind in ("python", "toml"))
    assert len(module[0].splitlines()) <= 26
    (tmp_path / "my_method.py").write_text(module[0])
    (tmp_path / "mine.toml").write_text(config[0])
    words = [sys.executable, "my_method.py", "benchmark", "mine.toml", "--out", "out", "--json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    rows = pandas.DataFrame(json.loads(done.stdout)["results"])
    assert rows["method"].unique().tolist() == ["edge-blind", "majority class", "voting", "keyed voting"]
    assert "|keyed voting|" in (tmp_path / "out" / "results.md").read_text()


def standing(**right: tuple[int, ...]):
    """Of each method the numbers of graphs that are right with radius 3, among the twelve of each fold."""
    facts = {"label": [0] * 12, "method": "", "score": 0.0, "seconds": {"ask": 1.0, "read": 1.0}}
    finished, rows = {}, []
    for name, numbers in right.items():
        rows.append(Row(defence="edge-blind" if name == "line" else "none", name=name))
        for fold, number in enumerate(numbers):
            radii = {"label": [0] * 12, **dict.fromkeys(ATTACKERS, [3] * number + [-1] * (12 - number))}
            labels = [0] * number + [1] * (12 - number)
            result = {**facts, "graphs": list(range(12)), "labels": labels, "certified": {"": radii}}
            del result["label"]
            content = {"result": result, "attacked": [], "chosen": {}, "majority": 0.5, "all_seconds": 1.0, "made": {}}
            finished[Job("d", name, fold, "")] = content
    (made,) = standings([Protocol(name="d", rows=tuple(rows))], finished)
    return made


def test_a_single_fold_has_the_interval_of_its_graphs_and_a_collapsed_method_is_named():
    data = standing(line=(9,), same=(12,))
    assert str(data.accuracy("line", 1)) == "0.750 (.43-.95)"
    assert data.accuracy("line", 1).ends == pytest.approx([0.428142, 0.945139], abs=1e-5)
    assert data.remarks == ["line names one class only, whatever the graph: nothing follows for its defence."]


def test_above_the_line_is_what_beats_it_by_more_than_the_interval_of_the_difference():
    data = standing(line=(4, 8, 6), strong=(6, 9, 8), unsteady=(12, 7, 6))
    # single shares overlap, the differences of the same folds do not
    assert data.accuracy("strong", 1).ends[0] < data.accuracy("line", 1).ends[1]
    assert [data.better(name, "3") for name in data.radii] == [False, True, False]
    assert not data.better("strong", "5")
    assert Measured((0.2, 0.4)).ends[1] - 0.3 == pytest.approx(12.706 * 0.1414 / np.sqrt(2), rel=1e-3)


def test_a_page_of_earlier_code_says_so(monkeypatch, tmp_path):
    page = f"# Numbers\n\n{provenance.stamp()}\n\n| 1 |\n"
    assert provenance.marked(page) == page
    earlier = page.replace(provenance.code_hash(), "0" * 16)
    assert "from earlier code" in provenance.marked(earlier)
    assert provenance.marked(provenance.marked(earlier)) == provenance.marked(earlier)
    monkeypatch.setattr(provenance, "_PACKAGE", tmp_path)
    (tmp_path / "noise").mkdir()
    hashes = []
    for text in ('"""Words."""\n\nA = 1  # a comment\n', "A = 1\n", "A = 2\n"):
        (tmp_path / "noise" / "a.py").write_text(text)
        provenance.code_hash.cache_clear()
        hashes.append(provenance.code_hash())
    provenance.code_hash.cache_clear()
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md")), ids=lambda path: path.name)
def test_every_page_of_tables_is_of_this_code_or_says_that_it_is_not(path):
    page = path.read_text()
    assert "<!-- made from commit " in page, (
        "its numbers are of unknown code (the command that makes it writes a stamp)"
    )
    assert provenance.marked(page) == page, "the code has changed (make the tables again, or run benchmarks/stamp.py)"
