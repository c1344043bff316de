"""The run folder: whole or absent, never half-believed; one writer; settings that cannot change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flipproof as fp
from flipproof.certificates.sampled_votes import Block
from flipproof.certificates.sequential import Plan
from flipproof.defences.asking import BlockTask, Task
from flipproof.noise import BLOCK
from flipproof.runs.folder import Run, locked, write_bytes, write_text

NOISE = fp.EdgeNoise(keep=0.8)
GRAPHS = [fp.Graph(4, [(0, 1), (1, 2)]), fp.Graph(5, [(0, 1)])]
SAMPLES = 2 * BLOCK + 100


def parity(graphs: list[fp.Graph]) -> list[int]:
    return [graph.num_edges % 2 for graph in graphs]


SMOOTH = fp.SmoothedClassifier(parity, NOISE, num_classes=2)
WHAT = {"noise": NOISE, "samples": SAMPLES, "seed": 3}


class Sampler:
    """Samples a graph's blocks into a run; notes what was computed and complained about; can be killed in between."""

    def __init__(
        self,
        run: Run,
        index: int = 0,
        *,
        stop_at: int | None = None,
        seed: int = 3,
        smooth: fp.SmoothedClassifier = SMOOTH,
    ) -> None:
        self.run, self.index, self.stop_at, self.seed, self.smooth = run, index, stop_at, seed, smooth
        self.computed: list[int] = []
        self.complaints: list[str] = []
        self.advanced = 0

    def block(self, task: Task) -> Block:
        assert isinstance(task, BlockTask)
        if task.start == self.stop_at:
            raise KeyboardInterrupt
        self.computed.append(task.start)
        return self.smooth.sample_block(task.graph, task.start, samples=SAMPLES, seed=self.seed)

    def advance(self, amount: int) -> None:
        self.advanced += amount

    def __call__(self) -> fp.Votes:
        graphs = {self.index: GRAPHS[self.index]}
        store = self.run.parts(graphs, **(WHAT | {"seed": self.seed}), complain=self.complaints.append)
        plan = Plan.of(SAMPLES, alpha=0.001, method="votes")
        options: dict[str, Any] = {"work": self.block, "store": store, "advance": self.advance, "certified": False}
        ((_, votes, _),) = self.smooth.sample_all(graphs, plan, seed=self.seed, **options)
        return votes


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run", {"a": 1})


def interrupted(run: Run) -> None:
    with pytest.raises(KeyboardInterrupt):
        Sampler(run, stop_at=2 * BLOCK)()


def test_a_graph_is_continued_after_its_last_finished_block(run: Run) -> None:
    interrupted(run)
    assert len(list((run.folder / "votes" / "00000.part").iterdir())) == 2
    again = Sampler(run)
    votes = again()
    assert (again.computed, again.advanced, again.complaints) == ([2 * BLOCK], 100, [])
    assert votes == SMOOTH.sample(GRAPHS[0], samples=SAMPLES, seed=3)
    run.save(0, votes)
    assert sorted(path.name for path in (run.folder / "votes").iterdir()) == ["00000.npz"]
    assert run.load(0) == votes


def spoil_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def spoil_empty(path: Path) -> None:
    path.write_bytes(b"")


def spoil_vote(path: Path) -> None:
    content = json.loads(path.read_text())
    content["labels"] = content["labels"].replace("A", "E", 1)
    path.write_text(json.dumps(content))


def spoil_swap(path: Path) -> None:
    path.write_bytes(path.with_name("00001.json").read_bytes())


def spoil_kind(path: Path) -> None:
    path.write_text("[1, 2]")


@pytest.mark.parametrize("spoil", [spoil_cut, spoil_empty, spoil_vote, spoil_swap, spoil_kind])
def test_a_spoilt_block_is_set_aside_and_sampled_again(run: Run, spoil: Any) -> None:
    interrupted(run)
    path = run.folder / "votes" / "00000.part" / "00000.json"
    spoil(path)
    again = Sampler(run)
    assert again() == SMOOTH.sample(GRAPHS[0], samples=SAMPLES, seed=3)
    assert again.computed == [0, 2 * BLOCK]
    assert len(again.complaints) == 1
    assert "00000.broken" in again.complaints[0]
    assert path.with_name("00000.broken").exists()


def test_blocks_of_another_seed_are_not_believed(run: Run) -> None:
    interrupted(run)
    again = Sampler(run, seed=4)
    assert again() == SMOOTH.sample(GRAPHS[0], samples=SAMPLES, seed=4)
    assert len(again.complaints) == 2


@pytest.mark.parametrize("content", ["cut", "rubbish", "other graph", "other seed", "folder"])
def test_a_spoilt_file_of_votes_is_set_aside(run: Run, content: str) -> None:
    for index in range(2):
        run.save(index, Sampler(run, index)())
    path = run.path(0)
    if content == "cut":
        path.write_bytes(path.read_bytes()[:-30])
    elif content == "rubbish":
        path.write_bytes(b"not votes")
    elif content == "other graph":
        path.write_bytes(run.path(1).read_bytes())
    elif content == "other seed":
        SMOOTH.sample(GRAPHS[0], samples=SAMPLES, seed=4).save(path)
    else:
        path.unlink()
        path.mkdir()
    missing, complaints = run.pending(GRAPHS, **WHAT)
    assert missing == [0]
    assert len(complaints) == 1
    assert "set aside as 00000.broken" in complaints[0]
    assert (run.folder / "votes" / "00000.broken").exists()
    assert run.pending(GRAPHS, **WHAT) == ([0], [])


def test_pending_takes_graphs_by_number(run: Run) -> None:
    run.save(7, Sampler(run)())
    assert run.pending({7: GRAPHS[0], 9: GRAPHS[1]}, **WHAT) == ([9], [])


def test_parts_of_a_finished_graph_are_removed(run: Run) -> None:
    """A process can be killed after it wrote the graph's file and before it removed the blocks."""
    run.save(0, SMOOTH.sample(GRAPHS[0], samples=SAMPLES, seed=3))
    part = run.path(0).with_suffix(".part")
    part.mkdir()
    (part / "00000.json").write_text("{}")
    assert run.pending(GRAPHS, **WHAT) == ([1], [])
    assert not part.exists()


def test_leftovers_are_removed_and_strangers_named(run: Run) -> None:
    run.save(0, Sampler(run)())
    votes = run.folder / "votes"
    for name in ("00001.npz.77.tmp", "notes.txt", "00002.broken"):
        (votes / name).write_text("x")
    (run.folder / ".run.json.77.tmp").write_text("x")
    assert run.tidy() == [f"{votes / 'notes.txt'} is not a file of this run; left alone"]
    assert sorted(path.name for path in votes.iterdir()) == ["00000.npz", "00002.broken", "notes.txt"]
    assert not (run.folder / ".run.json.77.tmp").exists()


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    Run(tmp_path, {"samples": 10, "graphs": list(range(100))})
    Run(tmp_path, {"samples": 10, "graphs": list(range(100))})
    with pytest.raises(fp.InputError, match="holds a run with samples = 10; asked for samples = 11"):
        Run(tmp_path, {"samples": 11, "graphs": list(range(100))})
    with pytest.raises(fp.InputError, match="seed = None; asked for seed = 1"):
        Run(tmp_path, {"samples": 10, "graphs": list(range(100)), "seed": 1})
    with pytest.raises(fp.InputError, match=r"graphs = \[0, 1, .*\.\.\.; asked"):
        Run(tmp_path, {"samples": 10, "graphs": list(range(99))})
    assert Run.open(tmp_path).settings["samples"] == 10


def test_a_process_killed_before_run_json_leaves_a_usable_folder(tmp_path: Path) -> None:
    (tmp_path / ".run.json.12.tmp").write_text("{")
    with locked(tmp_path):
        Run(tmp_path, {"a": 1})


def test_somebody_elses_folder_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(fp.InputError, match=r"holds files but no run\.json"), locked(tmp_path):
        pass
    with pytest.raises(fp.InputError, match=r"holds files but no run\.json"):
        Run(tmp_path, {})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_run_json_that_is_none(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"settings": 3}'):
        (tmp_path / "run.json").write_text(text)
        with pytest.raises(fp.InputError, match=r"run\.json"):
            Run.open(tmp_path)
    with pytest.raises(fp.InputError, match="is not a run folder: there is no such folder"):
        Run.open(tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    with pytest.raises(fp.InputError, match=r"is not a run folder: it has no run\.json"):
        Run.open(tmp_path / "empty")


HOLD = """
import sys, time
from flipproof.runs.folder import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_one_process_at_a_time_and_a_dead_one_lets_go(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        try:
            with pytest.raises(fp.InputError, match=f"in use by another process, number {other.pid}"), locked(tmp_path):
                pass
        finally:
            other.kill()
    with locked(tmp_path):
        assert (tmp_path / ".lock").read_text() == str(os.getpid())


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "file"
    write_text(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(path, b"new")
    assert path.read_text() == "old"
    assert os.listdir(path.parent) == ["file"]


def test_votes_of_many_classes_keep_their_type(run: Run) -> None:
    wide = fp.SmoothedClassifier(lambda graphs: [299] * len(graphs), NOISE, num_classes=300)
    for _ in range(2):
        again = Sampler(run, smooth=wide)
        votes = again()
        assert again.complaints == []
        assert votes.labels.dtype == np.uint32
        assert votes.counts[299] == SAMPLES
