"""A tiny benchmark, end to end: what it writes, that it can be stopped anywhere, and that its numbers are right."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from command_line import call
from flipproof import EdgeNoise, Graph, SmoothedClassifier, certified_accuracy
from flipproof.studies.benchmark import command
from flipproof.studies.benchmark.config import read_config
from flipproof.studies.benchmark.jobs import data_parts, prepare, read_job, run_job, withstands
from flipproof.studies.benchmark.results import RADII, collect
from flipproof.certificates.methods import certify_counts
from flipproof.runs.folder import locked

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
    options = command.BenchmarkOptions(config, out, None, 1, quiet=True, again="again")
    assert command.benchmark(options) == 0
    return out


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


def test_a_job_is_what_the_library_says(config: Path, finished: Path, tmp_path: Path) -> None:
    """Train and certify by hand what a stored job holds."""
    import flipproof

    (plan,) = read_config(config)
    job = next(job for job in prepare([plan]) if job.defence.name == "keep 0.8" and job.split == 1)
    stored = read_job(job, finished)
    assert stored is not None
    parts = data_parts(plan, 1)
    model = flipproof.models.GIN(1, 8, seed=1)
    flipproof.train(model, parts.train, noise=EdgeNoise(keep=0.8), epochs=2, seed=1)
    smooth = SmoothedClassifier(model, EdgeNoise(keep=0.8), features="degree")
    certificates = smooth.certify_all(parts.certified, samples=40, alpha=0.05, seed=0)
    assert stored["certificates"]["influence"]["radius"] == [c.radius for c in certificates]
    (data,) = collect(prepare([plan]), finished)
    series = next(s for s in data.series if (s.defence.name, s.method) == ("keep 0.8", "influence"))
    expected = certified_accuracy(certificates, parts.certified.labels, RADII)
    assert [series.accuracy(r).values[1] for r in RADII] == expected.tolist()


def test_a_benchmark_that_was_stopped_ends_in_the_same_bytes(
    config: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, done = tmp_path / "out", []

    def stops_after_four(job: object, **arguments: object) -> None:
        if len(done) == 4:
            raise KeyboardInterrupt
        done.append(job)
        run_job(job, **arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(command, "run_job", stops_after_four)
    words = ("benchmark", config, "--out", out, "--workers", 1)
    stopped = call(monkeypatch, capsys, *words)
    assert stopped.code == 130
    assert "continue with: flipproof benchmark" in stopped.err
    kept = sorted((out / "jobs").iterdir())
    assert len(kept) == 4
    kept[0].write_text(kept[0].read_text()[:100])  # a file that is cut off is made again
    again: list[object] = []

    def counted(job: object, **arguments: object) -> None:
        again.append(job)
        run_job(job, **arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(command, "run_job", counted)
    assert call(monkeypatch, capsys, *words).code == 0
    assert len(again) == 10 - 3
    for name in WRITTEN:
        assert (out / name).read_bytes() == (finished / name).read_bytes()
    again.clear()
    assert call(monkeypatch, capsys, *words, "--json").code == 0
    assert again == []


def test_two_processes_are_refused(
    config: Path, finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with locked(finished):
        refused = call(monkeypatch, capsys, "benchmark", config, "--out", finished)
    assert refused.code == 2
    assert "is in use by another process" in refused.err


def test_a_folder_of_another_command_is_refused(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"settings": {"command": "certify"}}))
    refused = call(monkeypatch, capsys, "benchmark", config, "--out", tmp_path)
    assert refused.code == 2
    assert "holds a run with command = 'certify'" in refused.err


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


def test_a_budget_is_withstood_as_the_grid_says() -> None:
    graph = Graph(6, [(0, 1), (1, 2), (2, 3)])
    one_sided = certify_counts([0, 995, 5], EdgeNoise(add=0.0, remove=0.4), graph=graph)
    assert one_sided.radius == 0
    assert withstands(one_sided, graph, adds=0, removes=2)
    assert not withstands(one_sided, graph, adds=1, removes=0)
    # three edges are all that can be removed
    assert withstands(one_sided, graph, adds=0, removes=3) == withstands(one_sided, graph, adds=0, removes=30)
    symmetric = certify_counts([0, 9990, 10], EdgeNoise(keep=0.8), graph=graph)
    assert withstands(symmetric, graph, adds=symmetric.radius, removes=0)
    assert not withstands(certify_counts([5, 5], EdgeNoise(keep=0.8), graph=graph), graph, adds=0, removes=0)
