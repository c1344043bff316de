"""``flipproof certify``: certificates are the library's, a run with other settings is refused, and what was typed is recorded."""

import csv
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

import flipproof as fp
from flipproof.runs.run_folder import CertifySettings
from flipproof.runs.table import COLUMNS, NODE_COLUMNS
from support.command_line import OWN_MODEL, write_graphs

BASIC = ["certify", "--model", "own:make", "--keep", 0.8, "--samples", 200, "--data", "graphs"]


def settings_of(run):
    """What stands in run.json."""
    settings: dict[str, Any] = json.loads(Path(run, "run.json").read_text())["settings"]
    return settings


def test_certificates_are_those_of_the_library(shell):
    done = shell.done(*BASIC, "--seed", 4, "--alpha", 0.01, "--out", "run", "--json")
    assert done.err == ""
    summary = json.loads(done.out)
    rows = json.loads(shell("export", "run", "--format", "json").out)
    data = fp.datasets.folder("graphs")
    test = fp.datasets.split(data, test=1 / 3, seed=0).test_indices.tolist()
    assert [row["graph"] for row in rows] == test
    import own

    smooth = fp.SmoothedClassifier(own.make(), fp.EdgeNoise(keep=0.8), num_classes=2)
    certificates = smooth.certify_all([data[index] for index in test], samples=200, alpha=0.01, seed=4)
    for row, certificate in zip(rows, certificates, strict=True):
        plain = certificate.to_dict()
        for key in ("radius", "p_lower", "p_upper", "counts", "order", "method", "adds_radius", "num_slots", "seed"):
            assert row[key] == plain[key], key
        assert row["predicted"] == certificate.label
    labels = [data[index].label for index in test]
    expected = fp.certified_accuracy(certificates, labels, radii=(0, 1, 2))
    assert [summary["certified_accuracy"][r] for r in "012"] == expected.tolist()
    assert summary["average_certified_radius"] == fp.average_certified_radius(certificates, labels)


def test_simultaneous_gives_every_graph_its_share_of_alpha(shell):
    done = shell.done(*BASIC, "--alpha", 0.04, "--simultaneous", "--out", "run")
    assert "alpha 0.04 for all graphs at once (0.01 each)" in done.out
    assert shell(*BASIC, "--alpha", 0.01, "--out", "each").code == 0
    tables = [shell("export", run).out for run in ("run", "each")]
    assert tables[0] == tables[1]
    question = settings_of("run")["question"]
    assert (question["alpha"], question["simultaneous"]) == (0.04, True)
    assert shell("verify", "run").code == 0


def test_the_table_and_the_plain_lines(shell):
    done = shell.done(*BASIC, "--out", "run", "--method", "votes")
    for part in (
        "certified accuracy of 4 test graphs",
        "any flips",
        "method votes, 200 samples",
        "taken by number: 0 is ring, 1 is wheel",
        "written: run",
        "next: flipproof report run",
    ):
        assert part in done.out + done.err
    assert "additions only" not in done.out, "it would say the same"
    assert "asking: 4 of 4 graphs" in done.err
    assert "\x1b" not in done.out + done.err
    quiet = shell(*BASIC, "--out", "run", "--method", "votes", "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")


def test_other_settings_another_model_and_other_data_are_another_run(shell, monkeypatch):
    shell.done(*BASIC, "--out", "run")
    changes: dict[str, list[object]] = {
        "samples": ["--samples", 210],
        "seed": ["--seed", 1],
        "alpha": ["--alpha", 0.01],
        "simultaneous": ["--simultaneous"],
        "method": ["--method", "votes"],
        "add": ["--keep", 0.7],
        "part": ["--part", "all"],
        "split_seed": ["--split-seed", 1],
        "features": ["--features", "degree"],
    }
    for key, changed in changes.items():
        done = shell(*BASIC, "--out", "run", *changed)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert f"flipproof: run holds a run with {key} = " in done.err
    Path("own.py").write_text(OWN_MODEL + "# changed\n")
    monkeypatch.delitem(sys.modules, "own")
    assert "run holds a run with model_sha256" in shell(*BASIC, "--out", "run").err
    Path("graphs/0.edges").write_text("0 1\n1 2\n2 3\n3 4\n4 5\n5 6\n")
    assert "run holds a run with data_sha256" in shell(*BASIC, "--out", "run").err


def test_what_is_typed_stands_in_run_json(shell):
    Path("hooks.py").write_text("import numpy as np\n\n\ndef twice(graph):\n    return 2 * graph.degrees[:, None]\n")
    few = ["--part", "all", "--graphs", 4, "--graphs-seed", 3]
    done = shell.done(*BASIC, *few, "--features", "hooks:twice", "--classes", 3, "--out", "run")
    assert "4 of 12 graphs, drawn with every class in proportion (seed 3)" in done.err
    settings = settings_of("run")
    assert settings["features"].startswith("hooks:twice sha256:")
    assert (settings["num_classes"], settings["graphs_seed"]) == (3, 3)
    assert sorted(index % 2 for index in settings["graphs"]) == [0, 0, 1, 1]
    assert settings["graphs"] != [0, 1, 2, 3], "not the first ones"
    removals = ["certify", "--model", "own:make", "--data", "graphs", "--samples", 50]
    shell.done(*removals, "--add", 0, "--remove", 0.3, "--out", "removals", "--quiet")
    assert settings_of("removals")["defence"]["add"] == 0, "a zero that is typed is not taken for nothing"
    assert settings_of("removals")["graphs_seed"] is None


def test_rows_stand_in_order_in_every_format(shell):
    assert shell(*BASIC, "--part", "all", "--out", "run").code == 0
    text = shell("export", "run").out
    assert "/" not in text.splitlines()[1]
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [int(row["graph"]) for row in rows] == list(range(12))
    assert list(rows[0]) == [column for column in COLUMNS if column not in NODE_COLUMNS], "nobody asked about nodes"
    as_json = json.loads(shell("export", "run", "--format", "json").out)
    assert shell("export", "run", "--format", "parquet", "--out", "table.parquet").code == 0
    exact = parquet.read_table(pyarrow.BufferReader(Path("table.parquet").read_bytes())).to_pylist()
    for row, shown in zip(exact, as_json, strict=True):
        assert [row.pop(name) for name in ("p_add", "p_remove")] == pytest.approx([shown["p_add"], shown["p_remove"]])
        assert {**row, "p_add": 0.2, "p_remove": 0.2} == {**dict.fromkeys(NODE_COLUMNS), **shown}
    for row, same in zip(rows, as_json, strict=True):
        assert row["name"] == same["name"] == f"{row['graph']}.edges"
        assert float(row["p_lower"]) == same["p_lower"]
        assert [int(count) for count in row["counts"].split(";")] == same["counts"]
        assert [[cell == "1" for cell in line] for line in row["grid"].split(";") if line] == same["grid"]
        assert (row["correct"] == "1") is same["correct"]
    assert shell("export", "run", "--out", "table.csv").out == ""
    assert Path("table.csv").read_text() == text


def test_a_model_that_fails_in_a_worker_is_one_sentence(shell):
    failing = "import os\nparent = os.getpid()\n" + OWN_MODEL.replace(
        "        time.sleep", "        assert os.getpid() == parent, 'not here'\n        time.sleep"
    )
    Path("failing.py").write_text(failing)
    basic = ["certify", "--model", "failing:make", "--keep", 0.8, "--samples", 2500, "--data", "graphs", "--out", "run"]
    done = shell(*basic, "--workers", 2)
    assert done.code == 2
    assert re.search(
        r"\nflipproof: the model failed on graph \d+ with AssertionError: not here \(correct it, and run again\)\n$",
        done.err,
    )


def test_the_run_says_which_way_the_model_was_asked_and_with_how_much_memory(shell):
    shell.write(nodes=100)
    shell.done(*BASIC, "--method", "votes", "--memory", "512MiB", "--out", "run")
    assert CertifySettings.read(Path("run")).paths == {"callable, 256 at a time": 4}
    other = shell(*BASIC, "--method", "votes", "--memory", "1MiB", "--out", "run")  # other batches may round otherwise
    assert other.code == 2
    assert "run holds a run with paths = {'callable, " in other.err


TRAIN = shlex.split("train --defence local --budget 2 --data topologies:96 --epochs 10 --out model --json")


def test_the_local_defence_and_changes_of_nodes(shell):
    trained = json.loads(shell.done(*TRAIN).out)
    assert trained["defence"] == {"name": "local", "budget": 2}
    saved = fp.models.load_metadata("model")
    assert saved.config["in_features"] == 0
    names = ("learning_rate", "batch_size", "weight_decay", "average")
    assert tuple(saved.metadata["training"][name] for name in names) == (0.006, 64, 0.001, 0.99)
    certify = ["certify", "--model", "model", "--graphs", 5, "--workers", 1, "--out", "run", "--nodes", 1]
    refused = shell(*certify[:-1], 9)
    assert (refused.code, "are looked at" in refused.err, Path("run").exists()) == (2, True, False)
    summary = json.loads(shell.done(*certify, "--json").out)
    assert summary["node_changes"] == 1
    for change in ("removed", "added", "changed"):
        shares = summary[f"certified_accuracy_{change}_nodes"]
        assert all(shares[r] <= share for r, share in summary["certified_accuracy"].items())
    assert "not derived again: flips withstood beside changed nodes" in shell.done("verify", "run").out
    shell.done("report", "run", "--out", "page")
    assert "one node removed" in Path("page/report.html").read_text()


def test_how_the_local_defence_is_trained(shell):
    trained = shell.done(*TRAIN[:-1], "--counts-only")
    assert "without epochs" in trained.err
    assert "by numbers of nodes and edges" in trained.out
    assert "0 to choose" in trained.out  # nothing is chosen, so nothing is kept apart
    assert fp.models.load_metadata("model").config["counts_only"] is True
    shell.done(*TRAIN, "--replace", "--learning-rate", 0.02, "--batch-size", 16)
    stored = fp.models.load_metadata("model").metadata["training"]
    assert [stored[name] for name in ("learning_rate", "batch_size", "average")] == [0.02, 16, 0.99]
    alone = shell.done("train", "--model", "local", "--data", "topologies:48", "--epochs", 1, "--out", "m", "--json")
    assert json.loads(alone.out)["defence"] == {"name": "local"}, "the model alone says the defence"


def test_classes_are_matched_by_name_and_other_graphs_than_the_models_are_warned_of(shell):
    options = ("--features", "degree", "--epochs", 40, "--keep", 0.95, "--test", 0.5, "--validation", 0, "--quiet")
    shell.done("train", "--data", "graphs", *options, "--out", "model")
    labels = write_graphs(Path("other"), count=14) / "labels.csv"
    certify = ("certify", "--model", "model", "--samples", 50, "--method", "votes", "--json", "--workers", 1)
    own = shell.done(*certify, "--out", "own")
    assert "warning" not in own.err
    assert settings_of("own")["class_names"] == ["ring", "wheel"]
    assert "graphs of split seed 3 were training graphs" in shell.done(*certify, "--split-seed", 3, "--out", "b").err
    swapped = fp.datasets.folder("other").with_classes(["wheel", "ring"])
    assert swapped.labels.tolist() == [1, 0] * 7
    lines = labels.read_text().splitlines()
    labels.write_text("\n".join(reversed(lines)))  # names decide, not the order in which they come
    there = shell.done(*certify, "--data", "other", "--out", "again")
    assert "a test graph may have been a training graph" in there.err
    assert json.loads(there.out)["certified_accuracy"]["0"] > 0.8
    labels.write_text("\n".join(lines).replace(",wheel", ",a_wheel"))
    unknown = shell(*certify, "--data", "other", "--out", "run")
    assert (unknown.code, Path("run").exists()) == (2, False)
    assert "the classes must be among ring, wheel; other has a_wheel" in unknown.err


WORK = """
import time
from flipproof.progress import note, progress
time.sleep(0.5)
with progress("working", 3, unit="steps") as advance:
    for step in range(3):
        note(f"step {step}")
        advance(1)
open("result", "w").write("done")
"""


def test_nobody_reads_the_output(tmp_path):
    """The reader of the pipe has gone: the exit code stays what it was, and work goes on."""
    radius = ["-m", "flipproof", "radius", "--keep", "0.9", "--p-lower", "0.99"]
    for words, code in ((radius, 0), (["-m", "flipproof", "verify", "nothing"], 2), (["-c", WORK], 0)):
        script = f"set -o pipefail; {shlex.join([sys.executable, *words])} 2>&1 | true"
        assert subprocess.run(["bash", "-c", script], check=False, cwd=tmp_path).returncode == code
    assert (tmp_path / "result").read_text() == "done"
