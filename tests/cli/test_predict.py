"""Graphs without labels are answered: files and folders at once, and line by line in a pipe; by every defence."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import flipproof as fp
from flipproof.certificates.metrics import share_interval
from flipproof.cli.certify_command import shown_summary, summarise
from flipproof.cli.options import OutputOptions, Result, run_command
from support.command_line import OWN_MODEL
from support.runs import settings_of

SPARSE = {"name": "sparse", "num_nodes": 6, "edges": [[0, 1]]}
DENSE = {"name": "dense", "num_nodes": 6, "edges": [[u, v] for v in range(6) for u in range(v)]}


def answers(outcome, code=0):
    assert outcome.code == code, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


OWN = ["predict", "--model", "own:make", "--classes", 2, "--keep", 0.9, "--samples", 400]


def test_a_folder_in_words_and_what_was_not_read(shell):
    Path("graphs/notes.md").write_text("mine")
    outcome = shell(*OWN, "graphs")
    lines = outcome.out.splitlines()
    assert len(lines) == 12
    assert any(", certified against any 1 edge flip" in line or "no edge flip" in line for line in lines), lines
    assert "of no known kind, and not read: notes.md" in outcome.err


def test_the_seed_is_fresh_and_recorded_and_repeats_the_answer(shell):
    once, again = (answers(shell(*OWN, "graphs/0.edges", "graphs/1.edges", "--json")) for _ in range(2))
    assert once[0]["seed"] != again[0]["seed"]
    repeated = answers(shell(*OWN, "graphs/0.edges", "graphs/1.edges", "--json", "--seed", once[0]["seed"]))
    assert repeated == once


def test_lines_of_a_stream_are_answered_and_bad_ones_do_not_end_it(shell, monkeypatch):
    lines = ["{oops", "", json.dumps(SPARSE), "[]", '{"num_nodes": 2, "edges": [[0, 5]]}', json.dumps(DENSE)]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))
    replies = answers(shell(*OWN, "-"), code=2)
    assert [answer.get("line") for answer in replies] == [1, None, 4, 5, None]
    assert [answer.get("class") for answer in replies] == [None, 0, None, None, 1]
    assert "line 1: not JSON" in replies[0]["error"]
    seeds = {answer["seed"] for answer in replies if "seed" in answer}
    assert len(seeds) == 2, "a fresh seed for every graph: the first was told to whoever reads the answers"


HOSTILE = {
    b"\xff\xfe": "not UTF-8",
    b"[" * 100_000: "recursion depth",
    b'{"num_nodes": ' + b"9" * 5000 + b', "edges": []}': "has 5000 digits",
    b'{"num_nodes": 999999999999, "edges": []}': "num_nodes must be at most 4,194,304; got 999,999,999,999",
    b'{"num_nodes": 2, "edges": [[0, 1]], "x": [[1' + b"0" * 400 + b"], [1]]}": "must be finite",
}


@pytest.mark.parametrize(("line", "complaint"), HOSTILE.items(), ids=list(HOSTILE.values()))
def test_no_line_ends_the_stream(shell, monkeypatch, line, complaint):
    last = json.dumps(DENSE | {"name": "dense\ud800"})  # a name that cannot be written is shown
    content = io.BytesIO(b"\n".join([line, last.encode()]))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(content, encoding="utf-8"))
    first, second = answers(shell(*OWN, "-"), code=2)
    assert complaint in first["error"]
    assert (second["class"], second["name"]) == (1, "dense\\ud800")


def test_a_pipe_gets_each_answer_before_the_next_question(tmp_path):
    (tmp_path / "own.py").write_text(OWN_MODEL)
    command = [sys.executable, "-m", "flipproof", *map(str, OWN), "-"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=-1, stdout=-1, text=True) as process:
        for graph, expected in ((DENSE, 1), (SPARSE, 0)):
            process.stdin.write(json.dumps(graph) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            assert (answer["name"], answer["class"]) == (graph["name"], expected)
        process.stdin.close()
        assert process.wait() == 0


def test_features_get_the_columns_of_the_model(shell):
    Path("atoms").mkdir()
    for index in range(12):
        nodes = [{"id": v, "element": "CN"[(v + index) % 2], "mass": 12.0 + (v * index) % 5} for v in range(5)]
        edges = [{"source": v, "target": v + 1} for v in range(4 if index % 2 else 3)]
        Path(f"atoms/{index}.json").write_text(json.dumps({"nodes": nodes, "edges": edges}))
    Path("atoms/labels.csv").write_text("".join(f"{index}.json,{'ab'[index % 2]}\n" for index in range(12)))
    assert shell("train", "--data", "atoms", "--keep", 0.9, "--epochs", 2, "--out", "model", "-q").code == 0
    predict = ["predict", "--model", "model", "--samples", 100, "--json", "--seed", 0]
    expected = answers(shell(*predict, "atoms/0.json"))[0]
    content = json.loads(Path("atoms/0.json").read_text())
    rows = [[float(n["element"] == "C"), float(n["element"] == "N"), n["mass"]] for n in content["nodes"]]
    short = {"num_nodes": 5, "edges": [[e["source"], e["target"]] for e in content["edges"]], "x": rows}
    Path("short.json").write_text(json.dumps(short))
    assert answers(shell(*predict, "short.json"))[0]["counts"] == expected["counts"], "all columns at once, as x"
    more = {**content, "nodes": [{**node, "colour": "red"} for node in content["nodes"]]}
    Path("more.json").write_text(json.dumps(more))
    said = shell(*[word for word in predict if word != "--json"], "more.json")
    assert "attributes that the model does not read: colour" in said.err


SMOOTH = fp.SmoothedClassifier(lambda graphs: [0] * len(graphs), fp.EdgeNoise(add=0.1, remove=0.2), num_classes=2)


def row(**changes: Any):
    base = {"label": 0, "predicted": 0, "radius": 1, "adds_radius": 1, "removes_radius": 3}
    return {**base, "method": "votes", "alpha": 0.01, "samples": 10, **changes}


def test_the_summary_counts_right_and_certified_graphs(capsys):
    rows = [
        row(),
        row(predicted=1, radius=5),
        row(predicted=None, radius=-1, adds_radius=-1, removes_radius=-1),
        row(radius=2, adds_radius=2),
    ]
    summary = summarise(rows, settings_of(SMOOTH, {0: fp.Graph(2, [])}))
    assert [summary["certified_accuracy"][r] for r in "0123"] == [0.5, 0.5, 0.25, 0]
    assert [summary["certified_accuracy_additions"][r] for r in "0123"] == [0.5, 0.5, 0.25, 0]
    assert [summary["certified_accuracy_removals"][r] for r in "0123"] == [0.5, 0.5, 0.5, 0.5]
    low, high = share_interval([2, 2, 1, 0], 4)
    for r, ends in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        assert summary["intervals"]["certified_accuracy"][str(r)] == pytest.approx(ends, abs=1e-6)
    assert (summary["abstained"], summary["average_certified_radius"]) == (1, 0.75)
    run_command(lambda options: Result({}, shown_summary({"run": "folder", **summary})), OutputOptions())
    shown = capsys.readouterr().out
    assert shown.count(".07-.93") == 6  # 2 of 4, at each of those radii
    assert max(len(line) for line in shown.splitlines() if "│" in line) <= 80
    assert "own on made by hand: certified accuracy of 4 graphs" in shown
    assert "defence add 0.1 remove 0.2, method votes, 10 samples, alpha 0.01; average certified radius 0.75" in shown
    assert "abstained on 1" in shown
