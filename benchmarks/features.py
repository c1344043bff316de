"""Edge flips and changed node labels at the same time: docs/benchmarks/features.md and features.csv.

    python benchmarks/features.py --root data                     # MUTAG, PTC_MR and NCI1, one after the other
    python benchmarks/features.py --root data --data MUTAG --epochs 20 --samples 500 --docs /tmp/docs

A fifth of each data set chooses the settings of smoothing and voting, by the mean of the columns, and a quarter is tested (of a
large data set a sample with every class in proportion). Smoothing and voting use fp.models.GIN, trained as they certify.
Smoothing has 5,000 samples and alpha 0.01 per graph. Local networks are trained for budgets up to 3 and certified against one
changed node, of which a changed label is a part. Majority class always names the most frequent class. Number of nodes is a random
forest or a perceptron that sees nothing else. Neither of these two can be attacked by flips or labels.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import flipproof as fp
from flipproof.datasets.splits import drawn
from flipproof.files import write_text
from flipproof.report.templates import markdown_table
from flipproof.studies.provenance import stamp

CELLS = ((0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (2, 1))
"""Flips and changed labels."""
KEEPS = ((0.95, 0.9), (0.95, 0.8), (0.9, 0.8), (0.95, 0.6), (0.8, 0.7))
"""Of edges and of labels: noises among which validation graphs choose."""
GROUPS = ((5, 3), (9, 5), (15, 9))
"""Of edges and of features."""
BUDGET = {"learning_rate": 0.005, "batch_size": 64, "average": 0.99}

Shares = list[float]


@dataclass
class Task:
    """A data set in parts, and what is measured on it."""

    parts: Any
    test: list[fp.Graph]
    options: Any
    rows: dict[str, Shares] = field(default_factory=dict)
    counts: list[list[str]] = field(default_factory=list)  # exact counts of votes beside GNNCert's

    @property
    def epochs(self) -> int:
        """Fewer on large data sets: 30,000 graphs are shown at most."""
        return max(1, min(self.options.epochs, 30_000 // len(self.parts.train)))

    @property
    def sizes(self) -> dict[str, int]:
        return {"num_classes": self.parts.dataset.num_classes, "seed": 0}

    def choose(self, title: str, settings: tuple[Any, ...], trained: Callable[[Any], Any]) -> None:
        """The setting that is best on validation graphs, measured on the test graphs."""
        made = [trained(setting) for setting in settings]
        scores = [np.mean(shares(certify(self.parts.validation), self.parts.validation)) for certify in made]
        best = int(np.argmax(scores))
        self.rows[title.format(*settings[best])] = shares(made[best](self.test), self.test)


def shares(certificates: list[fp.Certificate], graphs: Any) -> Shares:
    """The share of graphs that are right and withstand each of the cells."""
    pairs = list(zip(certificates, graphs, strict=True))
    right = [
        [c.label == graph.label and c.radius_beside(changes) >= flips for flips, changes in CELLS] for c, graph in pairs
    ]
    return np.mean(np.array(right, dtype=float), axis=0).tolist()  # type: ignore[no-any-return]


def smoothing(task: Task) -> None:
    """Networks trained and smoothed with noise on edges and on labels."""
    options = task.options

    def trained(keeps: tuple[float, float]) -> Any:
        noises = {"noise": fp.EdgeNoise(keep=keeps[0]), "feature_noise": fp.LabelNoise(keep=keeps[1])}
        model = fp.models.GIN(task.parts.dataset.num_node_features, **task.sizes)
        fp.train(model, task.parts.train, features="own", epochs=task.epochs, seed=0, **noises, **BUDGET)
        smooth = fp.SmoothedClassifier(model, features="own", **noises)
        return lambda graphs: smooth.certify_all(graphs, samples=options.samples, alpha=options.alpha, seed=0)

    task.choose("smoothing, keep {0:g} of edges and {1:g} of labels", KEEPS, trained)


def voting(task: Task) -> None:
    """Networks that vote on sub-graphs of edge groups crossed with feature groups."""

    def trained(groups: tuple[int, int]) -> Any:
        settings = {"groups": groups[0], "feature_groups": groups[1]}
        model = fp.models.GIN(task.parts.dataset.num_node_features, **task.sizes)
        fp.train_voting(model, task.parts.train, renumber=True, epochs=2 * task.epochs, seed=0, **settings, **BUDGET)
        certify = fp.VotingClassifier(model, **settings).certify_all
        task.counts += beside_gnncert(certify(task.test), task.test, *groups)
        return certify

    task.choose("voting, {0} edge groups and {1} feature groups", GROUPS, trained)


def beside_gnncert(
    certificates: list[fp.Certificate], graphs: list[fp.Graph], groups: int, of_features: int
) -> list[list[str]]:
    """The certified shares by the exact count and by GNNCert's 2 (r S + s T), and the cells of all grids where they differ."""
    simple, above, below = np.zeros(len(CELLS)), 0, 0
    for certificate, graph in zip(certificates, graphs, strict=True):
        votes, label = np.array(certificate.counts), certificate.label
        lead = np.delete(votes[label] - votes - (np.arange(len(votes)) < label), label).min()
        flips, nodes = np.ogrid[: graph.num_slots + 1, : graph.num_nodes + 1]
        counted = 2 * (flips * of_features + nodes * groups) <= lead
        exact = np.zeros_like(counted)
        rows, columns = np.minimum(certificate.grid.shape, exact.shape)
        exact[:rows, :columns] = certificate.grid[:rows, :columns]
        above, below = above + int((exact & ~counted).sum()), below + int((counted & ~exact).sum())
        if label == graph.label:
            simple += [2 * (r * of_features + s * groups) <= lead for r, s in CELLS]
    size = f"{groups} x {of_features}"
    return [
        [size, "exact", *shown(shares(certificates, graphs)), str(above)],
        [size, "GNNCert", *shown((simple / len(graphs)).tolist()), str(below)],
    ]


def local(task: Task) -> None:
    """Networks whose nodes vote; more than one changed node makes too many graphs to certify each."""
    model = fp.models.Local(task.parts.dataset.num_node_features, **task.sizes)
    fp.train(model, list(task.parts.train), budget=3, epochs=task.epochs, seed=0)
    certify = fp.LocalClassifier(model, budget=3).certify_all
    row = shares(certify(task.test, nodes=1), task.test)
    unknown = [changes > 1 for _, changes in CELLS]
    task.rows["local networks, budget 3"] = np.where(unknown, np.nan, row).tolist()


def unattackable(task: Task) -> None:
    """What sees neither edges nor labels."""
    frequent = int(np.bincount(task.parts.train.labels).argmax())
    bare = [graph.replaced(node_features=None) for graph in task.parts.train]
    model = fp.models.NodeStatistics(task.parts.dataset.num_classes)
    model.fit(bare, seed=0)
    answers = np.asarray(model([graph.replaced(node_features=None) for graph in task.test]))
    labels = np.array([graph.label for graph in task.test])
    for title, right in (("majority class", labels == frequent), ("number of nodes", answers == labels)):
        task.rows[title] = [float(right.mean())] * len(CELLS)


def shown(row: Shares) -> list[str]:
    return ["-" if np.isnan(share) else f"{share:.3f}" for share in row]


def sections(name: str, task: Task, seconds: float) -> Iterator[str]:
    """What the page says of a data set."""
    attacks = [f"{flips}, {changes}" for flips, changes in CELLS]
    yield f"## {name}"
    yield f"{len(task.test)} test graphs; {task.epochs} epochs, twice as many for voting; {seconds:.0f} s of processor time."
    yield "\n".join(
        markdown_table(
            [["flips, changed labels", *attacks], *([title, *shown(row)] for title, row in task.rows.items())]
        )
    )
    yield "Votes counted exactly, and by GNNCert's $2 (r S + s T)$:"
    yield "\n".join(markdown_table([["T x S", "count", *attacks, "cells above the other"], *task.counts]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["MUTAG", "PTC_MR", "NCI1"])
    parser.add_argument("--root", default="data")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--alpha", type=float, default=0.01)
    parser.add_argument("--graphs", type=int, default=150, help="most test graphs")
    parser.add_argument("--docs", type=Path, default=Path(__file__).parent.parent / "docs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = [["data", "classifier", "flips", "changed labels", "certified accuracy"]]
    texts = ["# Node labels and edges under attack", stamp(), " ".join((__doc__ or "").split("\n\n")[2].split())]
    texts += [
        "A column names a number of edge flips and a number of changed node labels; a cell is the share of test graphs that are "
        "right and stay right under every such attack. Made by `python benchmarks/features.py`."
    ]
    for name in options.data:
        started = time.process_time()
        parts = fp.datasets.split(fp.datasets.tu(name, root=options.root), validation=0.2, test=0.25, seed=0)
        task = Task(parts, [parts.test[index] for index in drawn(parts.test, options.graphs)], options)
        for measure in (unattackable, local, voting, smoothing):
            measure(task)
            print(f"{name}: {measure.__name__} after {time.process_time() - started:.0f} s", flush=True)
        texts += sections(name, task, time.process_time() - started)
        for title, row in task.rows.items():
            lines += [[name, title, *map(str, cell), f"{share:.4f}"] for cell, share in zip(CELLS, row, strict=True)]
    folder = options.docs / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "features.md", "\n\n".join(texts) + "\n")
    with (folder / "features.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)


if __name__ == "__main__":
    main()
