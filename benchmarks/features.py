"""Certified accuracy when edges are flipped and node labels are changed at the same time: smoothing and local networks.

    python benchmarks/features.py --root data                     # MUTAG, PTC_MR and NCI1, one after the other
    python benchmarks/features.py --root data --data MUTAG --epochs 20 --samples 500

Of every data set, a third is for testing (at most --graphs graphs, every class in proportion). The default noises and
number of samples were set after a look at 20 test graphs of MUTAG.
Smoothing: fp.models.GIN, trained under the noise that certifies it, for each pair of --keeps. Local: fp.models.Local, trained for
all budgets up to 3 and asked with changed nodes. To compare with: always naming the class that is most frequent in training, and
fp.models.NodeStatistics without node features, which sees the number of nodes alone; neither edges nor labels concern them.
Printed is Markdown: the share of test graphs that are right under any so many flips together with any so many changed labels.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

import flipproof as fp
from flipproof.datasets.splits import drawn

CELLS = ((0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (2, 1))
"""Flips and changed labels."""

Shares = list[float]


def shares(withstood: Sequence[Sequence[float]]) -> Shares:
    """Of rows per graph, the share of graphs that withstand each of the cells."""
    return np.mean(np.array(withstood, dtype=float), axis=0).tolist()  # type: ignore[no-any-return]


def smoothed(parts: Any, test: list[fp.Graph], keeps: tuple[float, float], options: Any) -> Shares:
    """A network trained and smoothed with this noise on edges and on labels."""
    noise, feature_noise = fp.EdgeNoise(keep=keeps[0]), fp.LabelNoise(keep=keeps[1])
    model = fp.models.GIN(parts.dataset.num_node_features, parts.dataset.num_classes, seed=0)
    validation = parts.validation if len(parts.validation) else None
    settings = {"noise": noise, "feature_noise": feature_noise, "features": "own", "validation": validation}
    fp.train(model, parts.train, epochs=options.epochs, seed=0, **settings)
    smooth = fp.SmoothedClassifier(model, noise, feature_noise=feature_noise, features="own")
    certificates = smooth.certify_all(test, samples=options.samples, alpha=options.alpha, seed=0)
    rows = []
    for certificate, graph in zip(certificates, test, strict=True):
        grid, right = certificate.joint_grid, certificate.label == graph.label
        inside = [flips < grid.shape[0] and changes < grid.shape[1] for flips, changes in CELLS]
        rows.append([right and there and bool(grid[cell]) for cell, there in zip(CELLS, inside, strict=True)])
    return shares(rows)


def local(parts: Any, test: list[fp.Graph], options: Any) -> Shares:
    """A network whose nodes vote, asked with one changed node: a changed label is a part of that. Not asked with more: nan."""
    graphs = list(parts.train)
    model = fp.models.Local(parts.dataset.num_node_features, parts.dataset.num_classes, seed=0)
    fp.train(model, graphs, budget=3, epochs=options.epochs, seed=0)
    asked = fp.LocalClassifier(model, budget=3)
    withstood = []
    for certificate, graph in zip(asked.certify_all(test, nodes=1), test, strict=True):
        assert certificate.node_radii is not None
        radii = {0: certificate.radius, 1: certificate.node_radii.changed}
        right = certificate.label == graph.label
        withstood.append([right and radii[changes] >= flips if changes < 2 else math.nan for flips, changes in CELLS])
    return shares(withstood)


def unattackable(parts: Any, test: list[fp.Graph]) -> Iterator[tuple[str, Shares]]:
    """What sees neither edges nor labels."""
    frequent = int(np.bincount(parts.train.labels).argmax())
    yield "most frequent class", [float(np.mean([graph.label == frequent for graph in test]))] * len(CELLS)
    bare = [graph.replaced(node_features=None) for graph in parts.train]
    model = fp.models.NodeStatistics(parts.dataset.num_classes)
    model.fit(bare, seed=0)
    answers = np.asarray(model([graph.replaced(node_features=None) for graph in test]))
    right = float(np.mean(answers == [graph.label for graph in test]))
    yield "number of nodes alone", [right] * len(CELLS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["MUTAG", "PTC_MR", "NCI1"])
    parser.add_argument("--root", default="data")
    parser.add_argument("--keeps", nargs="+", default=["0.9,0.8", "0.8,0.7", "0.95,0.6"], help="of edges, of labels")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--alpha", type=float, default=0.01)
    parser.add_argument("--graphs", type=int, default=100, help="most test graphs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.data:
        started = time.process_time()
        parts = fp.datasets.split(fp.datasets.tu(name, root=options.root), seed=0)
        test = [parts.test[index] for index in drawn(parts.test, options.graphs)]
        rows = dict(unattackable(parts, test))
        rows["local, budget 3"] = local(parts, test, options)
        for text in options.keeps:
            edges, labels = map(float, text.split(","))
            rows[f"smoothing, keep {edges:g} and {labels:g}"] = smoothed(parts, test, (edges, labels), options)
        seconds = time.process_time() - started
        print(f"{name}, {len(test)} test graphs; {seconds:.0f} s of processor time\n")
        print("| classifier | " + " | ".join(f"{flips}, {changes}" for flips, changes in CELLS) + " |")
        print("|---" * (len(CELLS) + 1) + "|")
        for title, row in rows.items():
            print(f"| {title} | " + " | ".join("-" if math.isnan(share) else f"{share:.3f}" for share in row) + " |")
        print(flush=True)


if __name__ == "__main__":
    main()
