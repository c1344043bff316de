"""``flipproof tune``: the right choice where it is known, on validation graphs alone, and commands that work."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from flipproof.datasets import folder
from flipproof.datasets.sources import DataSource
from flipproof.runs.run_folder import open_run
from flipproof.runs.settings import StudySettings
from flipproof.studies.benchmark.jobs import data_parts
from flipproof.studies.candidate import default_candidates
from flipproof.studies.tuning import Target, tuning_plan
from support.command_line import call, write_graphs

QUICK = shlex.split("--epochs 15 --samples 200 --test 0.25 --validation 0.25 --workers 1 --copies 4 --method votes")


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_graphs(tmp_path_factory.mktemp("tune") / "graphs", count=32, nodes=lambda index: 12 + index % 3)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        # under noise this light no vote of 200 samples is certified against a flip, whatever the network
        (("--radius", 1, "--keep", 0.99, "--keep", 0.9), "keep 0.9"),
        # noise that never adds hides no addition, and noise that never removes no removal
        (("--adds", 1, "--noise", "0,0.3", "--noise", "0.3,0"), "add 0.3 remove 0"),
        (("--removes", 1, "--noise", "0,0.3", "--noise", "0.3,0"), "add 0 remove 0.3"),
        (("--removes", 1, "--candidate", "smoothing add=0 remove=0.3", "--noise", "0.3,0"), "add 0 remove 0.3"),
    ],
)
def test_the_right_candidate_is_chosen(
    target: tuple[object, ...],
    expected: str,
    graphs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = call(monkeypatch, capsys, "tune", "--data", graphs, *target, *QUICK, "--out", tmp_path / "t", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["best"]["defence"] == expected
    assert found["best"]["certified_accuracy"] > 0
    assert found["candidates"][-1]["certified_accuracy"] == 0
    assert found["validation_graphs"] == 8


@pytest.mark.parametrize(("asked", "name"), [(("--keep", 0.8), "keep 0.8"), (("--groups", 3), "voting 3")])
def test_the_commands_it_prints_certify_the_graphs_it_never_saw(
    asked: tuple[object, ...],
    name: str,
    graphs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "t"
    words = ("tune", "--data", graphs, "--radius", 1, *asked, *QUICK, "--out", out)
    done = call(monkeypatch, capsys, *words)
    assert done.code == 0, done.err
    assert f"best: gin with {name}" in done.out
    assert (out / "figures" / "trade-off.png").stat().st_size > 10_000
    choice = json.loads((out / "choice.json").read_text())
    for line in choice["next"]:
        assert line in done.out
        step = call(monkeypatch, capsys, *shlex.split(line)[1:])
        assert step.code == 0, step.err
    certified = json.loads((out / "run" / "run.json").read_text())["settings"]["graphs"]
    with open_run(out, StudySettings) as run:
        seen = {index for job in run.store.finished() for index in json.loads(run.store.load(job))["graphs"]}
    assert len(certified) == len(seen) == 8
    assert seen.isdisjoint(certified)
    # what was done is not done again, and says the same
    again = call(monkeypatch, capsys, *words)
    assert again.out == done.out


def test_test_graphs_are_not_looked_at(graphs: Path) -> None:
    """With other graphs in the test part, everything that tune sees is the same."""
    source = DataSource(str(graphs), test=0.25, validation=0.25)
    plan = tuning_plan(source, Target(radius=1), networks=["gin"], training={}, candidates=[], asked={"samples": 100})
    parts = data_parts(plan, 0)
    data = folder(graphs)
    hidden = plan.source.split(data).test_indices
    assert set(parts.certified_indices).isdisjoint(hidden.tolist())
    seen = {graph.topology for graph in (*parts.train, *parts.certified)}
    assert len(parts.train) + len(parts.certified) == len(data) - len(hidden)
    # the density that the candidates are scaled to is that of the training graphs
    assert plan.candidates == default_candidates(parts.train)
    assert seen <= {data[index].topology for index in range(len(data)) if index not in hidden}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "say which attack is to be withstood"),
        ("--radius 1 --adds 2", "say which attack is to be withstood"),
        ("--radius 1 --model gan", "--model must be one of"),
        ("--radius 1 --keep 0.3", "keep must lie in (0.5, 1)"),
        ("--radius 1 --noise 0.3", "--noise must read ADD,REMOVE; got '0.3'"),
        ("--radius 1 --noise 0.8,0.9", "add + remove must be below 1"),
        ("--radius 1 --groups 1", "groups must be at least 2"),
        ("--radius 1 --candidate smoothing=0.9", "defence must be one of smoothing, voting"),
        ("--radius 1 --candidate edge-blind", "edge-blind is something to compare with"),
        ("--radius 1 --validation 0", "--validation must be above 0"),
        ("--radius 1 --alpha 2", "alpha must lie in (0, 1)"),
        ("--radius 1 --method magic", "method must be one of"),
        ("--radius 1 --features smell", "features must be one of"),
    ],
)
def test_what_cannot_be_used_is_refused(
    words: str,
    sentence: str,
    graphs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "t"
    done = call(monkeypatch, capsys, "tune", "--data", graphs, *words.split(), "--out", out)
    assert done.code == 2, done.err
    assert sentence in done.err
    assert done.err.count("\n") == 1
    assert not out.exists()
