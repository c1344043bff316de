"""``flipproof certify``: certificates are the library's, interrupted runs continue, and bad requests are refused."""

import csv
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import flipproof as fp
from flipproof.datasets.sources import part_indices
from flipproof.runs.run_folder import CertifySettings, Store
from flipproof.runs.table import COLUMNS
from support.command_line import OWN_MODEL, Shell, write_graphs
from support.runs import spoil, stored
from support.shared_data import data_root

BASIC = ["certify", "--model", "own:make", "--keep", 0.8, "--samples", 200, "--data", "graphs"]


def settings_of(run: str) -> dict[str, Any]:
    """What stands in run.json."""
    found: dict[str, Any] = json.loads(Path(run, "run.json").read_text())["settings"]
    return found


def test_certificates_are_those_of_the_library(shell: Shell) -> None:
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


def test_simultaneous_gives_every_graph_its_share_of_alpha(shell: Shell) -> None:
    done = shell.done(*BASIC, "--alpha", 0.04, "--simultaneous", "--out", "run")
    assert "alpha 0.04 for all graphs at once (0.01 each)" in done.out
    assert shell(*BASIC, "--alpha", 0.01, "--out", "each").code == 0
    tables = [shell("export", run).out for run in ("run", "each")]
    assert tables[0] == tables[1]
    question = settings_of("run")["question"]
    assert (question["alpha"], question["simultaneous"]) == (0.04, True)
    assert shell("verify", "run").code == 0


def test_the_table_and_the_plain_lines(shell: Shell) -> None:
    done = shell.done(*BASIC, "--out", "run", "--method", "votes")
    for part in (
        "certified accuracy of 4 test graphs",
        "additions only",
        "method votes, 200 samples",
        "written: run",
        "next: flipproof report run",
    ):
        assert part in done.out
    assert "asking: 4 of 4 graphs" in done.err
    assert "\x1b" not in done.out + done.err
    quiet = shell(*BASIC, "--out", "run", "--method", "votes", "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")


def test_a_second_run_samples_nothing_again(shell: Shell) -> None:
    assert shell(*BASIC, "--out", "run").code == 0
    before, table = stored("run"), Path("run/certificates.parquet").read_bytes()
    Path("run/certificates.parquet").unlink()
    done = shell.done(*BASIC, "--out", "run")
    assert "asking" not in done.err
    assert stored("run") == before
    assert Path("run/certificates.parquet").read_bytes() == table


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        (["--samples", 210], "samples"),
        (["--seed", 1], "seed"),
        (["--alpha", 0.01], "alpha"),
        (["--simultaneous"], "simultaneous"),
        (["--method", "votes"], "method"),
        (["--keep", 0.7], "add"),
        (["--part", "all"], "part"),
        (["--split-seed", 1], "split_seed"),
        (["--features", "degree"], "features"),
    ],
)
def test_other_settings_are_refused(shell: Shell, changed: list[object], key: str) -> None:
    assert shell(*BASIC, "--out", "run").code == 0
    done = shell(*BASIC, "--out", "run", *changed)
    assert done.code == 2
    assert f"flipproof: run holds a run with {key} = " in done.err
    assert done.err.count("\n") == 1


def test_a_changed_model_or_changed_data_is_another_run(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shell(*BASIC, "--out", "run").code == 0
    Path("graphs/0.edges").write_text("0 1\n1 2\n2 3\n3 4\n4 5\n5 6\n")
    assert "run holds a run with data_sha256" in shell(*BASIC, "--out", "run").err
    write_graphs(Path("again"))
    Path("own.py").write_text(OWN_MODEL.format(pause=0) + "# changed\n")
    monkeypatch.delitem(__import__("sys").modules, "own")
    assert "run holds a run with data" in shell(*BASIC, "--out", "run").err
    shell.done(*[*BASIC[:-1], "again"], "--out", "other")


def test_rows_stand_in_order_in_every_format(shell: Shell) -> None:
    assert shell(*BASIC, "--part", "all", "--out", "run").code == 0
    text = shell("export", "run").out
    assert "/" not in text.splitlines()[1]
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [int(row["graph"]) for row in rows] == list(range(12))
    assert list(rows[0]) == list(COLUMNS)
    as_json = json.loads(shell("export", "run", "--format", "json").out)
    assert shell("export", "run", "--format", "parquet", "--out", "table.parquet").code == 0
    assert parquet.read_table(pyarrow.BufferReader(Path("table.parquet").read_bytes())).to_pylist() == as_json
    for row, same in zip(rows, as_json, strict=True):
        assert row["name"] == same["name"] == f"{row['graph']}.edges"
        assert float(row["p_lower"]) == same["p_lower"]
        assert [int(count) for count in row["counts"].split(";")] == same["counts"]
        assert [[cell == "1" for cell in line] for line in row["grid"].split(";") if line] == same["grid"]
        assert (row["correct"] == "1") is same["correct"]
    assert shell("export", "run", "--out", "table.csv").out == ""
    assert Path("table.csv").read_text() == text


def test_spoilt_evidence_is_asked_again(shell: Shell) -> None:
    assert shell(*BASIC, "--out", "run").code == 0
    before, index = Path("run/certificates.parquet").read_bytes(), settings_of("run")["graphs"][0]
    spoil("run", index)
    done = shell.done(*BASIC, "--out", "run")
    assert f"was altered: its hash is not the stored one; asking again about graph {index}" in done.err
    assert "continuing run: 3 of 4 graphs are done" in done.err
    assert Path("run/certificates.parquet").read_bytes() == before


def test_a_full_disk_is_one_sentence_and_loses_nothing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    basic = [*BASIC, "--part", "all", "--quiet"]
    assert shell(*basic, "--out", "whole").code == 0
    plain = Store.finish

    def limited(store: Store, item: int, content: bytes) -> None:
        if len(store.finished()) == 2:  # sqlite itself then says that the disk is full
            pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
            store._connection.execute(f"PRAGMA max_page_count = {pages}")
        plain(store, item, content)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "finish", limited)
        done = shell(*basic, "--out", "run")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "flipproof: no space left on the disk for run/evidence.sqlite; what is finished is kept (free some space, and run the "
        "same command again)\n"
    )
    kept = stored("run")
    assert 2 <= len(kept) < 12
    assert not Path("run/certificates.parquet").exists()
    assert shell(*basic, "--out", "run").code == 0
    assert Path("run/certificates.parquet").read_bytes() == Path("whole/certificates.parquet").read_bytes()
    assert [row for row in stored("run") if row in kept] == kept


def test_a_split_seed_that_mixes_training_and_test_graphs_is_warned_of(shell: Shell) -> None:
    assert shell("train", "--data", "graphs", "--keep", 0.9, "--epochs", 1, "--out", "m", "--quiet").code == 0
    certify = ["certify", "--model", "m", "--samples", 20, "--method", "votes", "--json"]
    assert "warning" not in shell(*certify, "--out", "a").err
    assert (
        "many of the test graphs of split seed 3 were training graphs"
        in shell(*certify, "--split-seed", 3, "--out", "b").err
    )


def test_features_of_ones_own_and_a_limit(shell: Shell) -> None:
    Path("hooks.py").write_text("import numpy as np\n\n\ndef twice(graph):\n    return 2 * graph.degrees[:, None]\n")
    done = shell.done(*BASIC, "--features", "hooks:twice", "--graphs", 2, "--classes", 3, "--out", "run", "--json")
    assert json.loads(done.out)["graphs"] == 2
    settings = settings_of("run")
    assert settings["features"].startswith("hooks:twice sha256:")
    assert settings["num_classes"] == 3


# ---- engines ---------------------------------------------------------------------------------------------------------------


def test_any_number_of_workers_gives_the_same_bytes(shell: Shell) -> None:
    basic = [*BASIC[:5], "--samples", 1500, *BASIC[7:]]
    tables = []
    for workers in (1, 3):
        shell.done(*basic, "--workers", workers, "--out", f"run-{workers}")
        tables.append(Path(f"run-{workers}/certificates.parquet").read_bytes())
    assert tables[0] == tables[1]


def test_a_model_that_fails_in_a_worker_is_one_sentence(shell: Shell) -> None:
    failing = "import os\nparent = os.getpid()\n" + OWN_MODEL.format(pause=0).replace(
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


PYG_MODEL = """
import torch
from torch_geometric.nn import GCNConv, TransformerConv, global_mean_pool


class Net(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head = layer(1, 8), torch.nn.Linear(8, 2)

    def forward(self, x, edge_index, batch):
        return self.head(global_mean_pool(self.conv(x, edge_index).relu(), batch))


def fast():
    return Net(GCNConv).eval()


def slow():
    return Net(TransformerConv).eval()
"""


def test_the_run_says_which_way_the_model_was_asked_and_with_how_much_memory(shell: Shell) -> None:
    (shell.folder / "pyg_models.py").write_text(PYG_MODEL)
    reasons = {
        "fast": {"compiled twin, 1024 at a time": 4},
        "slow": {"message passing (no twin: layer conv: TransformerConv has no compiled form here), 1024 at a time": 4},
    }
    for name, ways in reasons.items():
        command = [*BASIC, "--features", "degree", "--out", name]
        command[2] = f"pyg_models:{name}"
        shell.done(*command, "--memory", "512MiB")
        assert CertifySettings.read(shell.folder / name).paths == ways
    # other batches may round otherwise, and are another run
    other = shell(*command, "--memory", "2MiB")
    assert other.code == 2
    assert "slow holds a run with paths = {'message passing" in other.err
    assert "1024 at a time': 4}; asked for paths = " in other.err


def test_a_zero_that_is_typed_is_not_taken_for_nothing(shell: Shell) -> None:
    removals = ["certify", "--model", "own:make", "--data", "graphs", "--samples", 50]
    shell.done(*removals, "--add", 0, "--remove", 0.3, "--out", "run", "--quiet")
    assert settings_of("run")["defence"]["add"] == 0


TRAIN = shlex.split("train --defence local --budget 2 --data topologies --epochs 2 --out model --json")


def test_train_certify_verify_attack(shell: Shell) -> None:
    trained = shell.done(*TRAIN)
    assert json.loads(trained.out)["defence"] == {"name": "local", "budget": 2}
    assert fp.models.load_metadata("model").config["in_features"] == 0
    certify = ["certify", "--model", "model", "--out", "run", "--graphs", 5, "--workers", 1, "--json"]
    first = shell.done(*certify)
    summary = json.loads(first.out)
    assert (summary["method"], summary["alpha"]) == ("local", 0.0)
    assert shell(*certify).out == first.out
    shell.done("verify", "run")
    shell.done("attack", "--model", "model", "--out", "attacked", "--graphs", 3, "--budget", 2, "--workers", 1)


def test_changes_of_nodes(shell: Shell) -> None:
    shell.done(*TRAIN)
    certify = ["certify", "--model", "model", "--out", "run", "--graphs", 5, "--workers", 1, "--nodes", 1]
    first = shell.done(*certify, "--json")
    summary = json.loads(first.out)
    assert summary["node_changes"] == 1
    for change in ("removed", "added", "changed"):
        found = summary[f"certified_accuracy_{change}_nodes"]
        assert all(found[r] <= share for r, share in summary["certified_accuracy"].items())
    assert shell(*certify, "--json").out == first.out
    assert "1 node removed" in shell(*certify).out
    other = shell(*certify[:-2])
    assert other.code == 2
    assert "nodes" in other.err
    verified = shell.done("verify", "run")
    assert "not derived again: flips withstood beside changed nodes" in verified.out
    assert "scores" in json.loads(shell("verify", "run", "--json").out)["not_derived"]
    exported = shell("export", "run")
    assert "removed_nodes_radius" in exported.out, exported.err
    shell.done("report", "run", "--out", "page")
    assert "one node removed" in Path("page/report.html").read_text()
    Path("ring.json").write_text(json.dumps({"num_nodes": 6, "edges": [[u, (u + 1) % 6] for u in range(6)]}))
    predict = ["predict", "--model", "model", "ring.json", "--workers", 1, "--nodes", 1]
    answered = shell(*predict)
    assert "with 1 node removed: " in answered.out, answered.err
    assert json.loads(shell(*predict, "--json").out)["node_changes"] == 1


def test_changes_of_nodes_are_refused_before_any_work(shell: Shell, tmp_path: Path) -> None:
    shell.done(*TRAIN)
    refused = shell("certify", "--model", "model", "--out", "run", "--nodes", 9, "--workers", 1)
    assert refused.code == 2
    assert "are looked at" in refused.err
    assert not (tmp_path / "run").exists()
    train = ["train", "--keep", 0.9, "--data", "topologies", "--epochs", 1, "--out", "smooth"]
    shell.done(*train)
    refused = shell("certify", "--model", "smooth", "--out", "run", "--nodes", 1, "--workers", 1)
    assert refused.code == 2
    assert "--nodes belongs to local" in refused.err
    assert not (tmp_path / "run").exists()


def test_counts_only(shell: Shell) -> None:
    trained = shell.done(*(part for part in TRAIN if part != "--json"), "--counts-only")
    assert "without epochs" in trained.err
    assert "by numbers of nodes and edges" in trained.out
    assert "0 to choose" in trained.out  # nothing is chosen, so nothing is kept apart
    assert fp.models.load_metadata("model").config["counts_only"] is True
    shell.done("certify", "--model", "model", "--out", "run", "--graphs", 5, "--workers", 1)
    shell.done("verify", "run")
    refused = shell("train", "--counts-only", "--keep", 0.9, "--data", "topologies", "--out", "other")
    assert refused.code == 2
    assert "--counts-only belongs to local" in refused.err


def test_the_model_alone_says_the_defence_and_another_model_is_refused(shell: Shell) -> None:
    trained = shell.done("train", "--model", "local", "--data", "topologies", "--epochs", 1, "--out", "model", "--json")
    assert json.loads(trained.out)["defence"] == {"name": "local"}
    refused = shell(*TRAIN[:-2], "other", "--model", "gin")
    assert refused.code == 2
    assert "local needs --model local" in refused.err


def test_training_takes_what_suits_local_unless_asked(shell: Shell) -> None:
    shell.done(*TRAIN)
    stored = fp.models.load_metadata("model").metadata["training"]
    names = ("learning_rate", "batch_size", "weight_decay", "average")
    assert tuple(stored[name] for name in names) == (0.006, 64, 0.001, 0.99)
    shell.done(*TRAIN, "--replace", "--learning-rate", 0.02, "--batch-size", 16)
    stored = fp.models.load_metadata("model").metadata["training"]
    assert [stored[name] for name in ("learning_rate", "batch_size", "average")] == [0.02, 16, 0.99]


OWN = ("certify", "--model", "own:make", "--data", "graphs", "--keep", 0.95, "--samples", 50, "--workers", 1)


def settings(run: str) -> dict[str, object]:
    content: dict[str, object] = json.loads(Path(run, "run.json").read_text())["settings"]
    return content


def trained(shell: Shell) -> None:
    """A model of rings and wheels."""
    options = ("--features", "degree", "--epochs", 40, "--keep", 0.95, "--test", 0.5, "--validation", 0, "--quiet")
    shell.done("train", "--data", "graphs", *options, "--out", "model")


def test_names_in_another_order_are_matched(shell: Shell) -> None:
    trained(shell)
    other = write_graphs(Path("other"))
    certify = ("certify", "--model", "model", "--part", "all", "--samples", 200, "--json", "--workers", 1)
    shell.done(*certify, "--out", "own")
    assert settings("own")["class_names"] == ["ring", "wheel"]
    swapped = fp.datasets.folder(other).with_classes(["wheel", "ring"])
    assert swapped.labels.tolist() == [1, 0] * 6
    assert swapped.with_classes(["ring", "wheel"]) == fp.datasets.folder(other)
    again = json.loads(shell.done(*certify, "--data", "other", "--out", "again").out)
    assert again["certified_accuracy"]["0"] > 0.8


def test_a_class_that_the_model_does_not_know_is_refused_by_name(shell: Shell) -> None:
    trained(shell)
    labels = write_graphs(Path("other")) / "labels.csv"
    labels.write_text(labels.read_text().replace(",wheel\n", ",a_wheel\n"))
    done = shell("certify", "--model", "model", "--data", "other", "--out", "run")
    assert done.code == 2
    assert "the classes must be among ring, wheel; other has a_wheel" in done.err
    assert not Path("run").exists()


def test_a_model_without_names_says_which_number_is_which(shell: Shell) -> None:
    assert "taken by number: 0 is ring, 1 is wheel" in shell.done(*OWN, "--out", "run").err


def test_a_file_sorted_by_class_gives_every_class_in_proportion() -> None:
    data = fp.datasets.tu("PROTEINS", data_root())
    parts = fp.datasets.split(data, test=0.3, seed=0)
    chosen = part_indices(parts, "test", 40)
    assert len(chosen) == 40
    assert set(chosen) <= set(parts.test_indices.tolist())
    assert chosen == sorted(chosen)
    share, wanted = np.mean(data.labels[chosen] == 0), np.mean(data.labels == 0)
    assert abs(share - wanted) <= 1 / 40
    assert part_indices(parts, "test", 40) == chosen != part_indices(parts, "test", 40, seed=1)


def test_the_note_and_run_json_say_that_graphs_were_drawn(shell: Shell) -> None:
    done = shell.done(*OWN, "--part", "all", "--graphs", 4, "--graphs-seed", 3, "--out", "some")
    assert "4 of 12 graphs, drawn with every class in proportion (seed 3)" in done.err
    assert settings("some")["graphs_seed"] == 3
    assert sorted(index % 2 for index in settings("some")["graphs"]) == [0, 0, 1, 1]  # type: ignore[attr-defined]
    assert "drawn" not in shell.done(*OWN, "--part", "all", "--out", "whole").err
    assert settings("whole")["graphs_seed"] is None


WORK = """
import sys, time
from flipproof.progress import note, progress
time.sleep(0.5)
with progress("working", 3, unit="steps") as advance:
    for step in range(3):
        note(f"step {step}")
        advance(1)
open(sys.argv[1], "w").write("done")
"""


def unread(*words: object) -> int:
    """The exit code of a Python command whose output nobody reads."""
    command = shlex.join([sys.executable, *map(str, words)])
    script = f"set -o pipefail; {command} 2>&1 | true"
    return subprocess.run(["bash", "-c", script], check=False, capture_output=True).returncode


@pytest.mark.parametrize("words", ["certify --help", "radius --keep 0.9 --p-lower 0.99", "verify nothing"])
def test_nobody_reads_the_output(words: str) -> None:
    assert unread("-m", "flipproof", *words.split()) == (2 if "verify" in words else 0)


def test_the_work_goes_on(tmp_path: Path) -> None:
    assert unread("-c", WORK, tmp_path / "result") == 0
    assert (tmp_path / "result").read_text() == "done"
