"""``flipproof certify`` and ``export`` on a user's own model, in this process."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

import flipproof as fp
from flipproof.runs.run_folder import Store
from flipproof.runs.settings import CertifySettings
from flipproof.runs.table import COLUMNS
from support.command_line import OWN_MODEL, Shell, write_graphs
from support.runs import spoil, stored

BASIC = ["certify", "--model", "own:make", "--keep", 0.8, "--samples", 200, "--data", "graphs"]


def settings_of(run: str) -> dict[str, Any]:
    """What stands in run.json."""
    found: dict[str, Any] = json.loads(Path(run, "run.json").read_text())["settings"]
    return found


def test_certificates_are_those_of_the_library(shell: Shell) -> None:
    done = shell(*BASIC, "--seed", 4, "--alpha", 0.01, "--out", "run", "--json")
    assert done.code == 0, done.err
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
    done = shell(*BASIC, "--alpha", 0.04, "--simultaneous", "--out", "run")
    assert done.code == 0, done.err
    assert "alpha 0.04 for all graphs at once (0.01 each)" in done.out
    assert shell(*BASIC, "--alpha", 0.01, "--out", "each").code == 0
    tables = [shell("export", run).out for run in ("run", "each")]
    assert tables[0] == tables[1]
    question = settings_of("run")["question"]
    assert (question["alpha"], question["simultaneous"]) == (0.04, True)
    assert shell("verify", "run").code == 0


def test_the_table_and_the_plain_lines(shell: Shell) -> None:
    done = shell(*BASIC, "--out", "run", "--method", "votes")
    assert done.code == 0, done.err
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
    done = shell(*BASIC, "--out", "run")
    assert done.code == 0
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
    shell_again = shell(*[*BASIC[:-1], "again"], "--out", "other")
    assert shell_again.code == 0


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
    done = shell(*BASIC, "--out", "run")
    assert done.code == 0
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


def test_ctrl_c_says_how_to_continue(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Store, "finish", stop)
        done = shell(*BASIC, "--out", "run folder", "--quiet")
    assert done.code == 130
    arguments = " ".join(map(str, BASIC))
    assert done.err == (
        f"flipproof: stopped; what is finished is kept. continue with: flipproof {arguments} --out 'run folder' --quiet\n"
    )
    assert shell(*BASIC, "--out", "run folder", "--quiet").code == 0


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
    done = shell(*BASIC, "--features", "hooks:twice", "--graphs", 2, "--classes", 3, "--out", "run", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["graphs"] == 2
    settings = settings_of("run")
    assert settings["features"].startswith("hooks:twice sha256:")
    assert settings["num_classes"] == 3


def test_a_pyg_model_of_ones_own(shell: Shell) -> None:
    Path("network.py").write_text(
        "import torch\nfrom torch_geometric.nn import GCNConv, global_mean_pool\n\n\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.convolution, self.drop, self.head = GCNConv(1, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2)\n\n"
        "    def forward(self, x, edge_index, batch):\n"
        "        hidden = self.drop(self.convolution(x, edge_index).relu())\n"
        "        return self.head(global_mean_pool(hidden, batch))\n\n\n"
        "def make():\n    torch.manual_seed(0)\n    return Net()\n"
    )
    arguments = ["certify", "--model", "network:make", "--data", "graphs", "--keep", 0.8, "--features", "degree"]
    done = shell(*arguments, "--samples", 100, "--method", "votes", "--json", "--out", "run")
    assert done.code == 0, done.err
    assert shell("verify", "run").code == 0


# ---- engines and early stopping --------------------------------------------------------------------------------------------


def test_any_number_of_workers_gives_the_same_bytes(shell: Shell) -> None:
    basic = [*BASIC[:5], "--samples", 1500, *BASIC[7:]]
    tables = []
    for workers in (1, 3):
        done = shell(*basic, "--workers", workers, "--out", f"run-{workers}")
        assert done.code == 0, done.err
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


AUTO = [*BASIC[:5], "--samples", "auto", "--max-samples", 5000, "--target-radius", 1, *BASIC[7:]]


def test_auto_stops_early_continues_and_is_verified(shell: Shell) -> None:
    done = shell(*AUTO, "--out", "run", "--workers", 2)
    assert done.code == 0, done.err
    assert "asking: 4 of 4 graphs" in done.err
    assert "auto: 1,024 to " in done.out
    assert shell(*AUTO, "--out", "alone", "--workers", 1).code == 0
    assert Path("run/certificates.parquet").read_bytes() == Path("alone/certificates.parquet").read_bytes()
    rows = json.loads(shell("export", "run", "--format", "json").out)
    assert {row["samples"] for row in rows} <= {1024, 2048, 3072, 5000}
    for row in rows:
        assert row["looks"] == [1024, 2048, 3072, 5000][: len(row["looks"])]
        assert row["looks"][-1] == row["samples"] == sum(row["counts"])
        assert row["spent_alpha"] == pytest.approx(
            0.001 * (0.5 / 3 * len(row["looks"]) if row["samples"] < 5000 else 1)
        )
        assert row["radius"] >= 1 or len(row["looks"]) > 1 or row["samples"] == 1024
    before = stored("run")
    assert shell(*AUTO, "--out", "run").code == 0
    assert stored("run") == before
    assert shell("verify", "run").code == 0
    other = shell(*AUTO, "--out", "run", "--target-radius", 2)
    assert "run holds a run with target_radius = 1; asked for target_radius = 2" in other.err


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
        done = shell(*command, "--memory", "512MiB")
        assert done.code == 0, done.err
        assert CertifySettings.read(shell.folder / name).paths == ways
    # other batches may round otherwise, and are another run
    other = shell(*command, "--memory", "2MiB")
    assert other.code == 2
    assert "slow holds a run with paths = {'message passing" in other.err
    assert "1024 at a time': 4}; asked for paths = " in other.err


def test_memory_that_is_no_amount_is_refused(shell: Shell) -> None:
    done = shell(*BASIC, "--out", "run", "--memory", "much")
    assert (done.code, done.out) == (2, "")
    assert "--memory must be an amount such as 2GiB or 500MB; got 'much'" in done.err
    assert not (shell.folder / "run").exists()


def test_a_zero_that_is_typed_is_not_taken_for_nothing(shell: Shell) -> None:
    removals = ["certify", "--model", "own:make", "--data", "graphs", "--samples", 50]
    shell.done(*removals, "--add", 0, "--remove", 0.3, "--out", "run", "--quiet")
    assert settings_of("run")["defence"]["add"] == 0
    goal = ["--keep", 0.8, "--samples", "auto", "--max-samples", 2048, "--target-radius", 0]
    shell.done(*removals[:5], *goal, "--out", "goal", "--quiet")
    assert settings_of("goal")["question"]["target_radius"] == 0
