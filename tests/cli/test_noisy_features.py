"""Noise on node features from the command line: train, certify, predict, verify, report, export; and what is refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from flipproof.certificates.certificate import Certificate
from flipproof.report.reading import read_run
from flipproof.runs.saved_run import load_run
from support.command_line import Shell


def write_molecules(folder: Path, *, attribute: str = "atom", count: int = 18) -> None:
    """Rings, whose class says whether most of their atoms are carbon; ``attribute`` is ``atom``, or a number."""
    folder.mkdir()
    lines = []
    for index in range(count):
        atoms = ["C" if node % 6 < (5 if index % 2 else 2) else "N" for node in range(6 + index % 3)]
        value = {"atom": lambda atom: atom, "mass": lambda atom: 12.5 if atom == "C" else 14.5}[attribute]
        nodes = [{"id": node, attribute: value(atom)} for node, atom in enumerate(atoms)]
        links = [{"source": node, "target": (node + 1) % len(atoms)} for node in range(len(atoms))]
        (folder / f"{index}.json").write_text(json.dumps({"nodes": nodes, "edges": links}))
        lines.append(f"{index}.json,{'carbon' if index % 2 else 'other'}\n")
    (folder / "labels.csv").write_text("".join(lines))


TRAIN = ["train", "--data", "molecules", "--epochs", 25, "--keep", 0.95, "-q"]


def test_from_training_to_the_report(shell: Shell) -> None:
    write_molecules(shell.folder / "molecules")
    shell.done(*TRAIN, "--label-keep", 0.9, "--out", "model")
    described = json.loads(Path("model/config.json").read_text())["metadata"]
    assert described["defence"]["label_keep"] == 0.9
    assert described["training"]["feature_noise"] == {"label_keep": 0.9}
    done = shell.done("certify", "--model", "model", "--samples", 800, "--alpha", 0.05, "--out", "run", "--json")
    summary = json.loads(done.out)
    assert summary["defended_by"] == "keep 0.95 label keep 0.9"
    assert summary["certified_accuracy_features"]["0"] >= summary["certified_accuracy_features"]["1"] > 0
    rows = shell.rows("run")
    certificates = load_run("run").certificates
    for row, certificate in zip(rows, certificates, strict=True):
        assert row["feature_radius"] == certificate.feature_radius
        assert json.loads(row["joint_grid"])["axes"] == ["flips", "changed labels"]
    assert sum(certificate.feature_radius or 0 for certificate in certificates) > 0
    assert "verified" in shell.done("verify", "run").out
    shell.done("report", "run", "-q")
    right = [one for one, row in zip(certificates, rows, strict=True) if row["correct"]]
    for (flips, changes), count in np.ndenumerate(
        read_run(Path("run"), "mine").joint_counts()
    ):  # what the heat map shows
        assert count == sum(stands(one, flips, changes) for one in right)
    assert "Changed features" in Path("run/report.html").read_text()
    (answer,) = map(
        json.loads,
        shell.done("predict", "--model", "model", "molecules/0.json", "--samples", 800, "--json").out.splitlines(),
    )
    assert answer["axes"] == ["flips", "changed labels"]
    assert answer["feature_radius"] >= -1
    if answer["feature_radius"] >= 0:
        words = shell.done("predict", "--model", "model", "molecules/0.json", "--samples", 800).out
        assert "changed label" in words


def stands(certificate: Certificate, flips: int, changes: int) -> bool:
    grid = certificate.joint_grid
    return flips < grid.shape[0] and changes < grid.shape[1] and bool(grid[flips, changes])


def test_noise_of_either_kind_is_changed_alone(shell: Shell) -> None:
    write_molecules(shell.folder / "molecules")
    shell.done(*TRAIN, "--label-keep", 0.9, "--epochs", 2, "--out", "model")
    for typed, title in (
        (["--keep", 0.8], "keep 0.8 label keep 0.9"),
        (["--label-keep", 0.8], "keep 0.95 label keep 0.8"),
        (["--bit-add", 0.1, "--bit-remove", 0.2], "keep 0.95 bit add 0.1 bit remove 0.2"),
    ):
        out = f"run{typed[0]}"
        done = shell.done("certify", "--model", "model", *typed, "--samples", 50, "--out", out, "--json")
        assert json.loads(done.out)["defended_by"] == title


REFUSED = [
    ("molecules", ["--label-keep", 0.4], "keep must exceed 1 / 2"),
    ("molecules", ["--label-keep", 2], r"keep must lie in \(0, 1\]"),
    ("molecules", ["--bit-add", 0.1], "needs bit_add and bit_remove"),
    ("molecules", ["--bit-add", 0.1, "--bit-remove", 0.1, "--label-keep", 0.9], "on labels or on bits"),
    ("molecules", ["--label-keep", 0.9, "--features", "degree"], "which the model does not see"),
    ("weighed", ["--label-keep", 0.9], "one-hot node features"),
    ("weighed", ["--bit-add", 0.1, "--bit-remove", 0.1], "binary node features"),
    ("graphs", ["--label-keep", 0.9], "which the model does not see"),
]


@pytest.mark.parametrize(("data", "options", "words"), REFUSED)
def test_what_noise_does_not_suit_is_refused_before_training(
    data: str, options: list[object], words: str, shell: Shell
) -> None:
    write_molecules(shell.folder / "molecules")
    write_molecules(shell.folder / "weighed", attribute="mass")
    outcome = shell("train", "--data", data, "--keep", 0.9, *options, "--out", "model", "-q")
    assert outcome.code == 2
    assert re.search(words, outcome.err)
    assert not Path("model").exists()
