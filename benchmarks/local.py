"""Certified accuracy of local networks, the budget of their training chosen on validation graphs for each radius.

    python benchmarks/local.py                                  # the paper's graphs, one split, three networks
    python benchmarks/local.py --data IMDB-BINARY --root data   # three splits, one network each
    python benchmarks/local.py --data NCI1 --root data --budgets 1 2 --epochs 60

Nothing is chosen on test graphs. For every budget a network is trained on three quarters of the training graphs and certified on
the last quarter; the budget with the highest certified accuracy at r is the one that is shown at r, trained anew on all training
graphs. Beside it stands the edge-blind line: the best of a perceptron and a random forest on number of nodes and node features,
chosen on the same validation graphs. Printed is Markdown; finished networks are kept in --kept and not trained again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flipproof as fp
from flipproof.progress import note

RADII = (0, 1, 2, 3, 5, 10)


def trained(graphs: Sequence[fp.Graph], classes: int, budget: int, options: argparse.Namespace, seed: int) -> Any:
    """A local network as a certified classifier, and the processor seconds that its training took."""
    features = graphs[0].node_features
    network = fp.models.Local(0 if features is None else features.shape[1], classes, seed=seed)
    started = time.process_time()
    fp.train(
        network,
        graphs,
        budget=budget,
        epochs=options.epochs,
        learning_rate=options.learning_rate,
        weight_decay=options.weight_decay,
        average=0.99,
        seed=seed,
    )
    return fp.LocalClassifier(network), time.process_time() - started


def measure(
    train: Sequence[fp.Graph],
    test: Sequence[fp.Graph],
    classes: int,
    budget: int,
    options: argparse.Namespace,
    seed: int,
) -> dict[str, Any]:
    """Certified accuracy at the radii, and what it cost."""
    local, seconds = trained(train, classes, budget, options, seed)
    started = time.process_time()
    certificates = local.certify_all(test)
    each = (time.process_time() - started) / len(test)
    accuracy = fp.certified_accuracy(certificates, [graph.label for graph in test], RADII)
    return {"accuracy": accuracy.tolist(), "seconds": seconds, "milliseconds": 1000 * each}


def node_sets(graphs: Sequence[fp.Graph]) -> NDArray[np.float64]:
    """What can be known without edges: number of nodes, sums and means of node features."""
    rows = []
    for graph in graphs:
        x = np.zeros((graph.num_nodes, 0)) if graph.node_features is None else graph.node_features
        sums = x.sum(axis=0)
        rows.append(
            [graph.num_nodes, np.log(graph.num_nodes), *sums, *np.sign(sums) * np.log1p(abs(sums)), *x.mean(axis=0)]
        )
    return np.array(rows, dtype=np.float64)


def edge_blind(train: Any, validation: Any, test: Any, seed: int) -> float:
    """Accuracy of the better of two models that see no edges, chosen on validation graphs."""
    labels = [[graph.label for graph in part] for part in (train, validation, test)]
    inputs = [node_sets(part) for part in (train, validation, test)]
    candidates = [RandomForestClassifier(300, min_samples_leaf=leaf, random_state=seed) for leaf in (1, 4, 16)] + [
        make_pipeline(StandardScaler(), MLPClassifier((64, 64), alpha=decay, max_iter=300, random_state=seed))
        for decay in (1e-2, 1.0)
    ]
    best = max(candidates, key=lambda model: model.fit(inputs[0], labels[0]).score(inputs[1], labels[1]))
    best.fit(np.concatenate(inputs[:2]), labels[0] + labels[1])
    return float(best.score(inputs[2], labels[2]))


def row(name: str, values: Sequence[float]) -> str:
    return f"| {name} | " + " | ".join(f"{value:.3f}" for value in values) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="topologies")
    parser.add_argument("--root", default="data")
    parser.add_argument("--data-seed", type=int, default=0, help="seed that makes the paper's graphs and splits them")
    parser.add_argument("--budgets", type=int, nargs="+", default=[1, 3, 5, 10])
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=0.006)
    parser.add_argument("--weight-decay", type=float, default=0.001)
    parser.add_argument("--kept", type=Path, default=Path("results/local"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    paper = options.data == "topologies"
    data = (
        fp.datasets.topologies(480, seed=options.data_seed)
        if paper
        else fp.datasets.tu(options.data, root=options.root)
    )
    chosen, everything, lines, speed = [], [], [], []
    for repeat in range(options.repeats):
        split_seed = options.data_seed if paper else repeat
        parts = fp.datasets.split(data, seed=split_seed, **({"train": 320} if paper else {"test": 0.2}))
        train, test = list(parts.train), list(parts.test)
        inner = fp.datasets.split(parts.train, test=0.25, seed=split_seed)

        def once(kind: str, first: Any, second: Any, budget: int, seed: int) -> dict[str, Any]:
            settings = [options.epochs, options.learning_rate, options.weight_decay]
            name = "-".join(map(str, [options.data, options.data_seed, kind, budget, seed, *settings]))
            path = options.kept / f"{name}.json"
            if not path.exists():
                found = measure(first, second, data.num_classes, budget, options, seed)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(found))
                note(f"{name}: {np.round(found['accuracy'], 3).tolist()}")
            return dict(json.loads(path.read_text()))

        seen = [
            once("validation", list(inner.train), list(inner.test), b, split_seed)["accuracy"] for b in options.budgets
        ]
        pick = np.argmax(seen, axis=0)
        runs = [once("test", train, test, budget, repeat) for budget in options.budgets]
        found = np.array([run["accuracy"] for run in runs])
        everything.append(found)
        chosen.append(found[pick, np.arange(len(RADII))])
        speed += [(run["seconds"], run["milliseconds"]) for run in runs]
        lines.append(edge_blind(list(inner.train), list(inner.test), test, repeat))
    what = f"{options.repeats} network(s) on one split" if paper else f"{options.repeats} split(s)"
    print(f"{options.data}, {len(test)} test graphs, mean of {what}, {options.epochs} epochs\n")
    print("| certified accuracy at r = | " + " | ".join(map(str, RADII)) + " |")
    print("|---" * (len(RADII) + 1) + "|")
    print(row("**budget chosen on validation graphs**", np.mean(chosen, axis=0)))
    if len(chosen) > 1:  # one network has no spread
        print(row("standard deviation of the above", np.std(chosen, axis=0, ddof=1)))
    for index, budget in enumerate(options.budgets):
        print(row(f"budget {budget}", np.mean(everything, axis=0)[index]))
    print(row("edge-blind", [float(np.mean(lines))] * len(RADII)))
    seconds, milliseconds = np.mean(speed, axis=0)
    print(f"\nTraining took {seconds:.0f} s of processor time on average, a certificate {milliseconds:.1f} ms.")


if __name__ == "__main__":
    main()
