"""Local networks and the edge-blind line when a node is removed, added or changed, with edge flips in addition.

    python benchmarks/node_changes.py --hidden 128                                       # the paper's graphs
    python benchmarks/node_changes.py --data MUTAG --root data --budget 3 --epochs 100   # every graph is a test graph once

Nothing is chosen: a network is trained for all budgets up to --budget and asked for each of 1, 2 and 3. The edge-blind line is
fp.models.NodeStatistics, chosen on a quarter of the training graphs. Flips do not concern it; it is asked about every graph that
a change of a node makes. Printed is Markdown: shares of all test graphs that are answered correctly under any such attack, and
the 95% interval of the paired difference to the line.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import flipproof as fp
from flipproof.certificates.certificate import NODE_CHANGES
from flipproof.defences.changed_nodes import changed_graphs

RADII = (0, 1, 2, 3)
BUDGETS = (1, 2, 3)


def local_radii(train: Sequence[fp.Graph], test: Sequence[fp.Graph], classes: int, options: Any) -> dict[str, Any]:
    """For each budget and attacker the flips that every test graph withstands, -1 where the answer is wrong."""
    features = train[0].node_features
    model = fp.models.Local(0 if features is None else features.shape[1], classes, hidden=options.hidden, seed=0)
    fp.train(model, train, budget=options.budget, epochs=options.epochs, seed=0)
    found = {}
    for budget in BUDGETS:
        certificates = fp.LocalClassifier(model, budget=budget).certify_all(test, nodes=1)
        right = [certificate.label == graph.label for certificate, graph in zip(certificates, test, strict=True)]
        radii = [
            [one.radius, *(getattr(one.node_radii, change) for change in NODE_CHANGES)] if good else [-1] * 4
            for one, good in zip(certificates, right, strict=True)
        ]
        found[f"local, asked for {budget}"] = np.array(radii)
    return found


def edge_blind(train: Sequence[fp.Graph], test: Sequence[fp.Graph], classes: int) -> Any:
    """The same of the edge-blind line, which withstands any number of flips or not even the change of a node."""
    inner = fp.datasets.split(train, test=0.25, seed=0)
    model = fp.models.NodeStatistics(classes)
    model.fit(inner.train, validation=inner.test, seed=0)
    radii = []
    for graph in test:
        features = graph.node_features
        kinds = None if features is None else np.eye(features.shape[1])
        attacked = [[graph], *(list(changed_graphs(graph, change, kinds)) for change in NODE_CHANGES)]
        right = [bool((np.asarray(model([graph, *some])) == graph.label).all()) for some in attacked]
        radii.append([max(RADII) if good else -1 for good in right])
    return np.array(radii)


def gain(ours: NDArray[np.bool_], theirs: NDArray[np.bool_]) -> str:
    """95% interval of the difference, graph by graph."""
    differences = ours.astype(float) - theirs
    half = 1.96 * differences.std(ddof=1) / math.sqrt(len(differences))
    return f"{differences.mean() - half:.3f} to {differences.mean() + half:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="topologies")
    parser.add_argument("--root", default="data")
    parser.add_argument("--budget", type=int, default=10, help="largest budget that networks are trained for")
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--hidden", type=int, default=64, help="width of the layers")
    parser.add_argument("--folds", type=int, default=10, help="folds of other graphs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.data == "topologies":
        data = fp.datasets.topologies(480, seed=0)
        divided = [fp.datasets.split(data, seed=0, train=320)]
    else:
        data = fp.datasets.tu(options.data, root=options.root)
        divided = list(fp.datasets.folds(data, number=options.folds, seed=0))
    parts: dict[str, list[Any]] = {}
    seconds = 0.0
    for part in divided:
        train, test = list(part.train), list(part.test)
        started = time.process_time()
        found = local_radii(train, test, data.num_classes, options)
        seconds += time.process_time() - started
        for name, radii in {**found, "edge-blind": edge_blind(train, test, data.num_classes)}.items():
            parts.setdefault(name, []).append(radii)
    rows = {name: np.concatenate(radii) for name, radii in parts.items()}
    print(f"{options.data}, {len(rows['edge-blind'])} test graphs; {seconds:.0f} s of processor time\n")
    print("| attacker | classifier | " + " | ".join(f"r = {r}" for r in RADII) + " |")
    print("|---" * (len(RADII) + 2) + "|")
    for column, attacker in enumerate(("flips alone", *(f"one node {change}" for change in NODE_CHANGES))):
        for name, radii in rows.items():
            shares = [f"{(radii[:, column] >= r).mean():.3f}" for r in RADII]
            print(f"| {attacker} | {name} | " + " | ".join(shares) + " |")
        for name, radii in rows.items():
            if name != "edge-blind":
                ends = [gain(radii[:, column] >= r, rows["edge-blind"][:, column] >= r) for r in RADII]
                print(f"| {attacker} | gain over edge-blind, {name} | " + " | ".join(ends) + " |")


if __name__ == "__main__":
    main()
