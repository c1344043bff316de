"""The first thing that ``certify`` says: how the result compares with a classifier that ignores edges."""

import csv
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import flipproof as fp
from flipproof.cli import defending
from flipproof.models import NodeStatistics
from support.command_line import write_degrees, write_graphs
from support.runs import spoil

BASIC = ["certify", "--model", "own:make", "--keep", 0.8, "--samples", 100, "--data", "graphs", "--workers", 1]
FIRST = re.compile(r"a classifier that ignores edges is right on ([01]\.\d{3}) under any attack; certified accuracy")


@pytest.fixture(autouse=True)
def learned(monkeypatch):
    """The graphs of each fit; nothing is known of earlier ones."""
    fits: list[list[fp.Graph]] = []
    fit = NodeStatistics.fit

    def watched(model, graphs, **options: Any):
        fits.append(list(graphs))
        return fit(model, graphs, **options)

    monkeypatch.setattr(NodeStatistics, "fit", watched)
    return fits


def trained(shell, *more: object):
    words = shlex.split("train --data graphs --model gcn --keep 0.8 --epochs 1 -q --out model")
    shell.done(*words, *more)


def first(shell, *arguments: object):
    return shell.done(*arguments).out.splitlines()[0]


def test_by_default_the_first_sentence_compares_with_ignoring_edges(shell, learned):
    done = shell.done(*BASIC, "--out", "run")
    sentence = FIRST.match(done.out)
    data = fp.datasets.folder("graphs")
    parts = fp.datasets.split(data, test=1 / 3, seed=0)
    assert [[one.name for one in fit] for fit in learned] == [[one.name for one in parts.train]]  # no test graph
    model = NodeStatistics(2)
    model.fit(parts.train)
    blind = fp.EdgeBlindClassifier(model)
    right = sum(blind.predict(graph) == graph.label for graph in parts.test)
    assert float(sentence[1]) == round(right / 4, 3)
    rows = done.out.splitlines()
    (place,) = [number for number, line in enumerate(rows) if "edge-blind" in line]
    assert (rows[place].count(sentence[1]), "95% interval" in rows[place + 1]) == (6, True)
    shell.done("report", "run")
    lead = Path("run/report.html").read_text().split('<p class="lead">')[1]
    assert "a classifier that ignores edges" in lead.split(".")[0]
    assert f"right on {right} of 4 graphs" in lead
    (line,) = {
        row["edge_blind_accuracy"]
        for row in csv.DictReader(io.StringIO(shell.done("export", "run", "--format", "long").out))
    }
    assert float(line) == right / 4
    assert (
        f"A classifier that ignores edges is right on {25 * right}.0"
        in shell.done("export", "run", "--format", "latex").out
    )
    shell.done("verify", "run")


def test_a_continued_run_keeps_its_line_and_a_damaged_one_is_learned_again(shell, learned, monkeypatch):
    before = first(shell, *BASIC, "--out", "run")
    assert first(shell, *BASIC, "--out", "run") == before
    assert len(learned) == 1
    spoil("run", "edge-blind line")
    refused = shell("verify", "run")
    assert (refused.code, "edge-blind line" in refused.out + refused.err) == (1, True)
    assert first(shell, *BASIC, "--workers", 2, "--out", "run") == before
    assert len(learned) == 2
    shell.done("verify", "run")


def test_none_is_the_way_out_and_the_report_says_so(shell, learned):
    shell.done(*BASIC, "--out", "run")
    said = first(shell, *BASIC, "--edge-blind", "none", "--out", "run")
    assert said.startswith("not compared with a classifier that ignores edges: --edge-blind none was given (leave it")
    assert "always naming the most frequent class is right on 0.500 under any attack" in said
    shell.done("report", "run")
    lead = Path("run/report.html").read_text().split('<p class="lead">')[1]
    assert lead.startswith("<strong>This was not compared with a classifier that ignores edges</strong>: --edge-blind")
    assert "always naming the most frequent class" in lead
    shown = json.loads(shell.done(*BASIC, "--edge-blind", "none", "--out", "run", "--json").out)
    assert (shown["edge_blind_accuracy"], shown["majority_accuracy"]) == (None, 0.5)
    assert shown["majority_interval"] == pytest.approx([0.067586, 0.932414], abs=1e-6)


def test_a_folder_is_compared_with_and_anything_else_is_refused_before_any_work(shell):
    shell.done("train", "--data", "graphs", "--model", "edge-blind", "-q", "--out", "blind")
    trained(shell)
    shown = json.loads(shell.done(*BASIC, "--edge-blind", "blind", "--out", "run", "--json").out)
    certified = shell.done("certify", "--model", "blind", "--out", "blind-run")
    own = certified.out.splitlines()[0]
    alone = re.match(r"this classifier ignores edges and is right on ([01]\.\d{3}) under any attack", own)
    assert shown["edge_blind_accuracy"] == max(float(alone[1]), shown["majority_accuracy"])
    refused = shell(*BASIC, "--edge-blind", "model", "--out", "other")
    assert refused.code == 2
    assert "--edge-blind must be a folder of train --model edge-blind; it holds gcn" in refused.err
    assert not Path("other").exists()


@pytest.mark.parametrize(("part", "compared"), [("validation", True), ("train", False), ("all", False)])
def test_other_parts(shell, learned, part, compared):
    trained(shell, "--validation", 0.25)
    said = first(shell, "certify", "--model", "model", "--samples", 100, "--part", part, "--out", "run")
    assert bool(FIRST.match(said)) == compared
    if compared:
        certified = {row["name"] for row in shell.rows("run")}
        assert not certified & {graph.name for graph in learned[0]}
    else:
        assert "the graphs asked about are among those that it would learn from (leave --part out" in said


def test_other_data_are_compared_with_what_the_models_own_graphs_teach(shell, learned):
    trained(shell)
    write_graphs(Path("others"), count=6, nodes=lambda index: 9)
    certify = ["certify", "--model", "model", "--samples", 100, "--data", "others", "--part", "all"]
    assert FIRST.match(first(shell, *certify, "--out", "run"))
    parts = fp.datasets.split(fp.datasets.folder("graphs"), test=1 / 3, seed=0)
    assert [graph.name for graph in learned[0]] == [graph.name for graph in parts.train]
    # moved: found by its content where --data names it, and not guessed elsewhere
    Path("graphs").rename("moved")
    there = ["certify", "--model", "model", "--samples", 100, "--data", "moved"]
    assert FIRST.match(first(shell, *there, "--out", "moved-run"))
    said = first(shell, *certify, "--out", "unknown")
    assert "the graphs that the model was trained on cannot be read: " in said
    assert "(give --edge-blind with a folder of train --model edge-blind)" in said
    assert "always naming the most frequent class is right on" in said


def test_of_very_many_training_graphs_a_part_is_learned_from(shell, learned, monkeypatch):
    monkeypatch.setattr(defending, "MOST_GRAPHS", 6)
    done = shell.done(*BASIC, "--out", "run")
    assert "the line to beat learns from 6 of 8 training graphs, drawn with every class in proportion" in done.err
    assert FIRST.match(done.out)
    assert sorted(graph.label or 0 for graph in learned[0]) == [0, 0, 0, 1, 1, 1]


def test_a_model_that_names_one_class_only_is_named(shell):
    shell.write(rule="True")
    told = shell.done(*BASIC, "--out", "run").out.splitlines()
    assert told[1].startswith("every answer is wheel: the defended model tells no classes apart")
    shell.done("report", "run")
    assert "run: every answer is wheel. The model tells no classes apart" in Path("run/report.html").read_text()
    shell.write()
    little = [0.995 if word == 0.8 else word for word in BASIC]  # with more noise every copy looks like a wheel
    assert "tells no classes apart" not in shell.done(*little, "--out", "other").out


def test_features_that_know_the_clean_edges_make_no_line(shell):
    """A model that only reads degrees is certified; a line that reads a copy of the clean degrees would withstand nothing."""
    write_degrees(Path("kept"), count=30)
    own = "import flipproof as fp\n\ndef make():\n    return fp.models.GCN(num_classes=2, in_features=1).eval()\n"
    Path("degrees.py").write_text(own)
    options = ["--features", "degree", "--keep", 0.8, "--samples", 100, "--data", "kept"]
    said = first(shell, "certify", "--model", "degrees:make", *options, "--out", "run")
    assert said.startswith("not compared with a classifier that ignores edges: ")
    assert "degree" in said
