"""The command line in this process: quick, and through the same ``main()`` as the real one."""

import csv
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flipproof.cli import main

RULE = "graph.num_edges > graph.num_nodes"
# a black box that needs no torch, the same however slow it is: whether the graph has more edges than nodes
OWN_MODEL = """
import os
import time


def make():
    def more_edges_than_nodes(graphs):
        time.sleep(float(os.environ.get("PAUSE", "0")) * len(graphs))
        return [int(graph.num_edges > graph.num_nodes) for graph in graphs]

    return more_edges_than_nodes
"""


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> Outcome:
    """Run ``flipproof`` with these arguments."""
    monkeypatch.setattr(sys, "argv", ["flipproof", *map(str, arguments)])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    return Outcome(int(ended.value.code or 0), captured.out, captured.err)


def write_graphs(
    folder: Path,
    *,
    count: int = 12,
    nodes: Callable[[int], int] = lambda index: 6 + index % 3,
    name: str = "{}.edges",
    classes: tuple[str, str] = ("ring", "wheel"),
) -> Path:
    """A folder of graphs in two classes: rings, and rings with all chords from node 0."""
    folder.mkdir(parents=True)
    with (folder / "labels.csv").open("w", newline="") as labels:
        for index in range(count):
            size = nodes(index)
            edges = [(node, (node + 1) % size) for node in range(size)]
            edges += [(0, node) for node in range(2, size - 1)] if index % 2 else []
            (folder / name.format(index)).write_text("".join(f"{u} {v}\n" for u, v in edges))
            csv.writer(labels).writerow((name.format(index), classes[index % 2]))
    return folder


def write_degrees(folder: Path, *, count: int = 6) -> None:
    """Stars with some chords whose nodes have their degree as an attribute, in two classes that have nothing to do with it."""
    folder.mkdir()
    lines = []
    for index in range(count):
        size = 5 + index % 4
        edges = [(0, node) for node in range(1, size)] + [(1, node) for node in range(2, 2 + index % 3)]
        nodes = [{"id": node, "degree": sum(node in edge for edge in edges)} for node in range(size)]
        links = [{"source": u, "target": v} for u, v in edges]
        (folder / f"{index}.json").write_text(json.dumps({"nodes": nodes, "edges": links}))
        lines.append(f"{index}.json,{index % 2}\n")
    (folder / "labels.csv").write_text("".join(lines))


def write_molecules(folder: Path, *, attribute: str = "atom", count: int = 18) -> None:
    """Rings, whose class says whether most of their atoms are carbon; ``attribute`` is ``atom``, or a number."""
    folder.mkdir()
    lines = []
    for index in range(count):
        atoms = ["C" if node % 6 < (5 if index % 2 else 2) else "N" for node in range(6 + index % 3)]
        nodes = [
            {"id": node, attribute: atom if attribute == "atom" else 12.5 + 2 * (atom == "N")}
            for node, atom in enumerate(atoms)
        ]
        links = [{"source": node, "target": (node + 1) % len(atoms)} for node in range(len(atoms))]
        (folder / f"{index}.json").write_text(json.dumps({"nodes": nodes, "edges": links}))
        lines.append(f"{index}.json,{'carbon' if index % 2 else 'other'}\n")
    (folder / "labels.csv").write_text("".join(lines))


class Shell:
    """The command line in a folder that holds ``own.py`` and ``graphs/``; paths in commands are relative to it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._monkeypatch, self._capsys = folder, monkeypatch, capsys
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(folder)
        self.write()

    def write(self, *, rule: str = RULE, nodes: int = 6) -> None:
        """Other graphs, of so many nodes and a few more, and a model with another rule."""
        shutil.rmtree(self.folder / "graphs", ignore_errors=True)
        write_graphs(self.folder / "graphs", nodes=lambda index: nodes + index % 3)
        (self.folder / "own.py").write_text(OWN_MODEL.replace(RULE, rule))
        self._monkeypatch.delitem(sys.modules, "own", raising=False)

    def __call__(self, *arguments: object) -> Outcome:
        return call(self._monkeypatch, self._capsys, *arguments)

    def done(self, *arguments: object) -> Outcome:
        """A command that must succeed."""
        outcome = self(*arguments)
        assert outcome.code == 0, outcome.err
        return outcome

    def rows(self, run: str) -> list[dict[str, Any]]:
        """The table of a run, as ``export`` writes it."""
        rows: list[dict[str, Any]] = json.loads(self.done("export", run, "--format", "json").out)
        return rows
