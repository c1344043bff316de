"""The voting defence on the command line: train, certify, continue, export, verify, attack."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import flipproof as fp
from flipproof.certificates.group_votes import GroupVotes
from flipproof.noise.groups import EdgeGroups
from flipproof.runs.folder import Run
from support.command_line import OWN_MODEL, Outcome, call, write_graphs

VOTING = ["certify", "--model", "own:make", "--defence", "voting", "--groups", 4, "--data", "graphs"]

Shell = Callable[..., Outcome]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """The command line in a folder with graphs and a model that tells sub-graphs with many edges from those with few."""
    write_graphs(tmp_path / "graphs", nodes=lambda index: 8 + index % 3)
    source = OWN_MODEL.format(pause=0).replace(
        "graph.num_edges > graph.num_nodes", "3 * graph.num_edges > graph.num_nodes"
    )
    (tmp_path / "own.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    return lambda *arguments: call(monkeypatch, capsys, *arguments)


def rows_of(shell: Shell, run: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(shell("export", run, "--format", "json").out)
    return rows


def test_certificates_are_those_of_the_library(shell: Shell) -> None:
    done = shell(*VOTING, "--out", "run", "--json")
    assert done.code == 0, done.err
    summary, rows, data = json.loads(done.out), rows_of(shell, "run"), fp.datasets.folder("graphs")
    import own

    voting = fp.VotingClassifier(own.make(), 4, num_classes=2)
    test = fp.datasets.split(data, test=1 / 3, seed=0).test_indices.tolist()
    certificates = voting.certify_all([data[index] for index in test])
    assert [row["graph"] for row in rows] == test
    for row, certificate in zip(rows, certificates, strict=True):
        plain = certificate.to_dict()
        for key in (
            "radius",
            "votes_radius",
            "removes_radius",
            "counts",
            "method",
            "alpha",
            "samples",
            "p_lower",
            "seed",
        ):
            assert row[key] == plain[key], key
        assert (row["predicted"], row["p_add"], row["p_remove"]) == (certificate.label, None, None)
        assert row["grid"] == certificate.grid.tolist()
    labels = [data[index].label for index in test]
    assert summary["certified_accuracy"]["1"] == fp.certified_accuracy(certificates, labels, [1])[0]
    assert (summary["method"], summary["alpha"], summary["samples"], summary["abstained"]) == ("voting", 0.0, 4, 0)
    assert sum(certificate.radius for certificate in certificates) > 0


def test_the_table_says_what_was_done_and_a_second_run_does_nothing(shell: Shell) -> None:
    done = shell(*VOTING, "--out", "run")
    assert "method voting, 4 sub-graphs, with certainty; average certified radius" in done.out
    assert "voting: 4 of 4 graphs" in done.err
    before = {path: path.stat().st_mtime_ns for path in Path("run/votes").iterdir()}
    again = shell(*VOTING, "--out", "run")
    assert (again.code, again.out) == (0, done.out)
    assert "voting:" not in again.err
    assert before == {path: path.stat().st_mtime_ns for path in Path("run/votes").iterdir()}
    assert shell("verify", "run").out == "verified: 4 certificates follow from their votes\n"
    assert shell("report", "run", "--quiet").code == 0
    assert "These proofs hold with certainty: nothing was sampled." in Path("run/report.html").read_text()


def test_stopped_and_continued(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after two graphs, one of them then cut off: continued to the same bytes."""
    assert shell(*VOTING, "--out", "whole", "--quiet").code == 0
    keep, saved = Run.save, []

    def stop_after_two(run: Run, index: int, votes: GroupVotes) -> None:
        if len(saved) == 2:
            raise KeyboardInterrupt
        keep(run, index, votes)
        saved.append(index)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", stop_after_two)
        stopped = shell(*VOTING, "--out", "run", "--quiet")
    assert stopped.code == 130
    assert "continue with: flipproof certify --model own:make --defence voting" in stopped.err
    path = Run.open("run").path(saved[0])
    path.write_bytes(path.read_bytes()[:-30])
    continued = shell(*VOTING, "--out", "run")
    assert continued.code == 0
    assert "set aside as" in continued.err
    assert "continuing run: 1 of 4 graphs are done" in continued.err
    tables = [Path(run, "certificates.parquet").read_bytes() for run in ("whole", "run")]
    assert tables[0] == tables[1]


def alter_row(index: int, column: str, value: object) -> None:
    path = Path("run/certificates.parquet")
    table = parquet.read_table(path)
    rows = table.to_pylist()
    next(row for row in rows if row["graph"] == index)[column] = value
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=table.schema), path)


ALTERATIONS = [
    "vote",
    "swapped votes",
    "nodes",
    "key",
    "groups",
    "radius",
    "grid",
    "predicted",
    "votes gone",
    "votes cut",
]


@pytest.mark.parametrize("alteration", ALTERATIONS)
def test_verify_names_the_altered_graph(shell: Shell, alteration: str) -> None:
    assert shell(*VOTING, "--out", "run").code == 0
    run = Run.open("run")
    index = next(
        index for index in run.settings["graphs"] if len(set(run.load_group_votes(index).labels.tolist())) == 2
    )
    votes, path = run.load_group_votes(index), run.path(index)
    labels, graph, groups = votes.labels.copy(), votes.graph, votes.groups
    if alteration == "vote":
        labels[0] = 1 - labels[0]
    elif alteration == "swapped votes":  # the counts stay
        labels = np.roll(labels, 1)
    elif alteration == "nodes":
        renamed = np.roll(np.arange(graph.num_nodes), 1)
        graph = graph.replaced(edges=renamed[graph.edges])
    elif alteration == "key":
        groups = EdgeGroups(4, 1)
    elif alteration == "groups":
        labels, groups = np.append(labels, labels[:1]), EdgeGroups(5)
    elif alteration == "radius":
        alter_row(index, "radius", 9)
    elif alteration == "grid":
        alter_row(index, "grid", [[True] * 9])
    elif alteration == "predicted":
        alter_row(index, "predicted", 1 - int(votes.counts.argmax()))
    if alteration == "votes gone":
        path.unlink()
    elif alteration == "votes cut":
        path.write_bytes(path.read_bytes()[:-20])
    else:
        GroupVotes(labels, graph, groups, 2).save(path)
    done = shell("verify", "run")
    assert done.code == 1
    assert f"flipproof: graph {index}: " in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("changed", "key"),
    [(["--groups", 5], "groups"), (["--part", "all"], "part"), (["--features", "degree"], "features")],
)
def test_other_settings_are_refused(shell: Shell, changed: list[object], key: str) -> None:
    assert shell(*VOTING, "--out", "run").code == 0
    done = shell(*VOTING, "--out", "run", *changed)
    assert done.code == 2
    assert f"run holds a run with {key} = " in done.err
    smoothed = shell("certify", "--model", "own:make", "--keep", 0.8, "--data", "graphs", "--out", "run")
    assert "run holds a run with defence = 'voting'; asked for defence = 'smoothing'" in smoothed.err


def test_a_model_remembers_its_groups(shell: Shell) -> None:
    """Train on sub-graphs, certify and attack without another word about groups."""
    trained = shell("train", "--data", "graphs", "--groups", 3, "--epochs", 2, "--out", "model")
    assert trained.code == 0, trained.err
    assert "sub-graphs of 3 groups" in trained.out
    assert fp.models.load_metadata("model").metadata["groups"] == 3
    assert shell("certify", "--model", "model", "--out", "run", "--quiet").code == 0
    settings = Run.open("run").settings
    assert (settings["defence"], settings["groups"], settings["method"]) == ("voting", 3, "voting")
    attacked = shell("attack", "--model", "model", "--budget", 2, "--certificates", "run", "--out", "attacks", "--json")
    assert attacked.code == 0, attacked.err
    summary = json.loads(attacked.out)
    assert set(summary["accuracy_under_attack"]) == {"base", "voting"}
    assert summary["attacks_within_a_certified_radius"] == 0
    assert summary["certified_accuracy"] <= summary["accuracy_under_attack"]["voting"]
    assert shell("certify", "--model", "model", "--groups", 5, "--out", "five", "--quiet").code == 0
    other = shell("attack", "--model", "model", "--certificates", "five", "--out", "others")
    assert "--certificates five has another groups than the attack" in other.err
    # smoothing a model that was trained on sub-graphs is possible, and must be asked for
    smoothed = shell("certify", "--model", "model", "--keep", 0.9, "--samples", 20, "--out", "smoothed", "--quiet")
    assert smoothed.code == 0
    assert Run.open("smoothed").settings["defence"] == "smoothing"


def test_an_edge_blind_model_needs_no_vote(shell: Shell) -> None:
    arguments = ["train", "--data", "graphs", "--model", "edge-blind", "--groups", 3, "--epochs", 1, "--out", "blind"]
    assert shell(*arguments, "--quiet").code == 0
    assert shell("certify", "--model", "blind", "--out", "run", "--quiet").code == 0
    for row in rows_of(shell, "run"):
        assert (row["method"], row["radius"], row["alpha"]) == ("edge-blind", row["num_slots"], 0.0)
    assert shell("verify", "run").code == 0
