"""The graphs that a command works on: classes are matched by name, and a part is drawn with every class in proportion."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import flipproof as fp
from flipproof.datasets.sources import part_indices
from support.command_line import Shell, write_graphs
from support.shared_data import data_root

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
