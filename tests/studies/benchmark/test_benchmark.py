"""A tiny benchmark, end to end: what it writes, that it can be stopped anywhere, and that its numbers are right."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flipproof import EdgeNoise, SmoothedClassifier, certified_accuracy, defences
from flipproof.certificates.answer import Answer
from flipproof.cli import benchmark_command
from flipproof.defences.defence import Defence, Option
from flipproof.graphs import Graph
from flipproof.runs.run_folder import open_run, written_run
from flipproof.runs.settings import StudySettings
from flipproof.studies.benchmark.jobs import Job, JobWork, data_parts, finished_jobs, prepare
from flipproof.studies.benchmark.outcomes import RADII, collect
from flipproof.studies.benchmark.plan_file import read_config
from support.command_line import call

CONFIG = """
splits = 2
samples = 40
test = 0.25
test_graphs = 5
alpha = 0.05
methods = ["influence", "votes"]
smoothing = [{ keep = 0.8 }, { add = 0.05, remove = 0.3 }]
voting = [3]
budgets = [[1, 0], [0, 1]]
training = { epochs = 2 }
[[data]]
name = "topologies:32"
"""
WRITTEN = ("results.csv", "results.json", "figures/topologies-32.svg")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "tiny.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def finished(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("benchmark") / "out"
    options = benchmark_command.Options(config=config, out=out, workers=1, quiet=True)
    assert benchmark_command.run(options) == 0
    return out


def finished_items(out: Path) -> list[str]:
    with open_run(out, StudySettings) as run:
        return sorted(run.store.finished())


def test_everything_is_written_and_shows_the_line_to_beat(finished: Path) -> None:
    (data,) = json.loads((finished / "results.json").read_text())
    kinds = [(row["defence"], row["certificate"]) for row in data["results"]]
    smoothed = [(name, method) for name in ("keep 0.8", "add 0.05 remove 0.3") for method in ("influence", "votes")]
    assert kinds == [("edge-blind", "edge-blind"), ("clean", "none"), *smoothed, ("voting 3", "voting")]
    with (finished / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len(kinds)
    assert {row["graphs"] for row in rows} == {"5"}
    page = (finished / "page.md").read_text()
    tables = [block for block in page.split("\n\n") if block.startswith("|")]
    assert len(tables) == 5
    assert all("edge-blind" in table for table in tables)
    assert (finished / "figures" / "topologies-32.png").stat().st_size > 10_000


def test_means_and_deviations_are_those_of_the_splits(finished: Path) -> None:
    (data,) = json.loads((finished / "results.json").read_text())
    with (finished / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    for stated in data["results"]:
        members = [r for r in rows if (r["defence"], r["certificate"]) == (stated["defence"], stated["certificate"])]
        for r in RADII:
            shares = [float(row[f"certified_{r}"]) for row in members]
            found = stated["certified_accuracy"]["any flips"][str(r)]
            assert found["mean"] == pytest.approx(np.mean(shares), abs=1e-5)
            assert found["deviation"] == pytest.approx(np.std(shares, ddof=1), abs=1e-5)
        assert list(stated["withstood"]) == ["1 additions, 0 removals", "0 additions, 1 removals"]
        least = stated["certified_accuracy"]["any flips"]["1"]["mean"]
        assert all(share["mean"] >= least for share in stated["withstood"].values())


def test_a_job_is_what_the_library_says(config: Path, finished: Path) -> None:
    """Train and certify by hand what a stored job holds."""
    import flipproof

    (plan,) = read_config(config)
    jobs = finished_jobs([plan], finished, "benchmark", workers=1, quiet=True)
    stored = next(jobs[job] for job in jobs if job.candidate.title == "keep 0.8" and job.split == 1)
    parts = data_parts(plan, 1)
    model = flipproof.models.GIN(1, 8, seed=1)
    flipproof.train(model, parts.train, noise=EdgeNoise(keep=0.8), epochs=2, seed=1)
    smooth = SmoothedClassifier(model, EdgeNoise(keep=0.8), features="degree")
    certificates = smooth.certify_all(parts.certified, samples=40, alpha=0.05, seed=0)
    assert stored["certificates"]["influence"]["radius"] == [c.radius for c in certificates]
    (data,) = collect(jobs)
    series = next(s for s in data.series if (s.candidate.title, s.method) == ("keep 0.8", "influence"))
    expected = certified_accuracy(certificates, parts.certified.labels, RADII)
    assert [series.accuracy(r).values[1] for r in RADII] == expected.tolist()


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
    config: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, counted = tmp_path / "out", Counted(monkeypatch)
    words = ("benchmark", config, "--out", out, "--workers", 1)
    counted.stop_after = 4
    stopped = call(monkeypatch, capsys, *words)
    assert stopped.code == 130
    assert "continue with: flipproof benchmark" in stopped.err
    kept = finished_items(out)
    assert len(kept) == 4
    with sqlite3.connect(out / "evidence.sqlite") as store:  # a result that was altered is made again
        store.execute("UPDATE finished SET content = ? WHERE item = ?", (b"{}", kept[0]))
    counted.done, counted.stop_after = [], None
    continued = call(monkeypatch, capsys, *words)
    assert continued.code == 0
    assert f"{kept[0]} was altered" in continued.err
    assert len(counted.done) == 10 - 3
    for name in WRITTEN:
        assert (out / name).read_bytes() == (finished / name).read_bytes()
    counted.done = []
    assert call(monkeypatch, capsys, *words, "--json").code == 0
    assert counted.done == []


def test_two_workers_give_the_same_bytes(config: Path, finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert benchmark_command.run(benchmark_command.Options(config=config, out=out, workers=2, quiet=True)) == 0
    for name in WRITTEN:
        assert (out / name).read_bytes() == (finished / name).read_bytes()


def test_two_processes_are_refused(
    config: Path, finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with written_run(finished, StudySettings.read(finished)):
        refused = call(monkeypatch, capsys, "benchmark", config, "--out", finished)
    assert refused.code == 2
    assert "is in use by another process" in refused.err


def test_a_folder_of_another_command_is_refused(
    config: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = json.loads((finished / "run.json").read_text())
    for changed, sentence in (
        ({"command": "certify"}, "was not made by flipproof study"),
        ({"settings": {**written["settings"], "study": "tune"}}, "holds a run with study = 'tune'"),
    ):
        (tmp_path / "run.json").write_text(json.dumps({**written, **changed}))
        refused = call(monkeypatch, capsys, "benchmark", config, "--out", tmp_path)
        assert refused.code == 2
        assert sentence in refused.err


def test_a_changed_config_is_refused_and_a_grown_one_adds_its_jobs(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results of one config are never overwritten by those of another."""
    out, path, counted = tmp_path / "out", tmp_path / "b.toml", Counted(monkeypatch)
    words = ("benchmark", path, "--out", out, "--workers", 1)
    small = CONFIG.replace("splits = 2", "splits = 1").replace(", { add = 0.05, remove = 0.3 }", "")
    path.write_text(small)
    assert call(monkeypatch, capsys, *words).code == 0
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    for text, sentence in (
        (small.replace("samples = 40", "samples = 61"), "holds a run with samples = 40; asked for samples = 61"),
        (small.replace("epochs = 2", "epochs = 3"), "holds a run with epochs = 2; asked for epochs = 3"),
        (small.replace("voting = [3]", "voting = [5]"), "holds a run with candidates = ['keep 0.8', 'voting 3']"),
        (small.replace("voting = [3]", ""), "holds a run with candidates = ['keep 0.8', 'voting 3']"),
    ):
        path.write_text(text)
        refused = call(monkeypatch, capsys, *words)
        assert refused.code == 2
        assert sentence in refused.err
        assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before
    counted.done = []
    path.write_text(small.replace("voting = [3]", "voting = [3, 5]"))
    assert call(monkeypatch, capsys, *words).code == 0
    assert [job.candidate.title for job in counted.done] == ["voting 5"]
    path.write_text(small)
    assert call(monkeypatch, capsys, *words).code == 2  # it would leave out what the folder holds


class Stubborn(Defence):
    """A plug-in: answers a fixed class whatever the graph, which no attack can change."""

    name = "stubborn"
    evidence_type = Answer
    settings = (Option("answer_is", int, "The class to answer.", least=0),)

    def __init__(self, model: Any, answer_is: int, **wrapped: Any) -> None:
        super().__init__(model, **wrapped)
        self.answer_is = answer_is

    def ask(self, graph: Graph, question: Any) -> Answer:
        return Answer(self.answer_is, graph, self.num_classes, edge_blind=True)


@pytest.fixture
def stubborn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defences, "_HOMES", {**defences._HOMES})
    defences.register(Stubborn)


@pytest.mark.usefixtures("stubborn")
def test_a_plug_in_defence_needs_only_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In worker processes too, and with settings of its own."""
    path, out = tmp_path / "b.toml", tmp_path / "out"
    entries = "stubborn = [{ answer_is = 0 }, { answer_is = 1 }]"
    path.write_text(f"splits = 1\ntraining = {{ epochs = 1 }}\n{entries}\n[[data]]\nname = 'topologies:32'\n")
    done = call(monkeypatch, capsys, "benchmark", path, "--out", out, "--workers", 2, "--json")
    assert done.code == 0, done.err
    (data,) = json.loads(done.out)["results"]
    assert [row["defence"] for row in data["results"]] == ["edge-blind", "clean", "stubborn 0", "stubborn 1"]
    for row in data["results"][2:]:  # one of eight classes, at every radius
        assert row["certified_accuracy"]["any flips"]["10"]["mean"] == pytest.approx(1 / 8, abs=0.05)
    path.write_text(path.read_text().replace("stubborn", "stuborn"))
    refused = call(monkeypatch, capsys, "benchmark", path, "--out", tmp_path / "other")
    assert "stuborn is not a key of a benchmark (did you mean stubborn?)" in refused.err


def test_other_settings_and_other_data_are_other_jobs(config: Path) -> None:
    (plan,) = read_config(config)

    def digests(text: str) -> set[str]:
        path = config.with_name("other.toml")
        path.write_text(text)
        return {job.digest for job in prepare(read_config(path))}

    first = {job.digest for job in prepare([plan])}
    assert digests(CONFIG) == first
    assert digests(CONFIG + "data_seed = 1\n") & first == set()
    assert digests(CONFIG.replace("epochs = 2", "epochs = 3")) & first == set()
    # voting and the lines do not sample
    assert len(digests(CONFIG.replace("samples = 40", "samples = 61")) & first) == 2 * 3
    assert first < digests(CONFIG.replace("splits = 2", "splits = 3"))


def test_training_never_sees_a_certified_graph(config: Path) -> None:
    (plan,) = read_config(config)
    for seed in plan.splits:
        parts = data_parts(plan, seed)
        assert {id(graph) for graph in parts.train} & {id(graph) for graph in parts.certified} == set()
        assert [plan.source.load()[index] for index in parts.certified_indices] == list(parts.certified)
