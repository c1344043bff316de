"""What the influence certificate gains on the paper's data: the same votes, read by three methods.

    python benchmarks/influence_gain.py [--model gin] [--keep 0.9 0.8 0.7] [--out results/influence_gain]

Trains a model under each noise on 320 of the paper's 480 graphs, casts 10,000 votes on each of the other 160, and prints
certified accuracy at r = 0..4 and the average certified radius. Models and votes are kept in the folder and used again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

import flipproof as fp
from flipproof.votes import Votes

METHODS = ("paper", "votes", "influence")
EPOCHS = {"gcn": 200, "gin": 300}
COPIES = {"gcn": 1, "gin": 4}


def trained(name: str, noise: fp.EdgeNoise, split: fp.datasets.Split, folder: Path, epochs: int) -> torch.nn.Module:
    """The model trained under this noise, from the folder if it is there."""
    if folder.exists():
        return fp.models.load(folder)
    network = (fp.models.GIN if name == "gin" else fp.models.GCN)(in_features=1, num_classes=8, seed=0)
    fp.train(network, split.train, noise=noise, epochs=epochs, batch_size=32, copies=COPIES[name], seed=0)
    fp.models.save(network, folder, noise=noise, features="degree", data="topologies")
    return network


def cast(
    network: torch.nn.Module, noise: fp.EdgeNoise, graphs: list[fp.Graph], folder: Path, samples: int
) -> list[Votes]:
    """The votes on every graph, from the folder as far as they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    smooth = fp.SmoothedClassifier(network, noise, num_classes=8, features="degree")
    votes = []
    for index, graph in enumerate(graphs):
        path = folder / f"{index:04}.npz"
        if not path.exists():
            smooth.sample(graph, samples=samples, seed=0).save(path)
        votes.append(Votes.load(path))
    return votes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=("gcn", "gin"), default="gin")
    parser.add_argument("--keep", type=float, nargs="+", default=[0.9, 0.8, 0.7])
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--alpha", type=float, default=0.001)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--out", type=Path, default=Path("results/influence_gain"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    split = fp.datasets.split(fp.datasets.topologies(480, seed=0), train=320, seed=0)
    graphs = list(split.test)
    labels = [graph.label for graph in graphs]
    print(f"{options.model}, {len(graphs)} graphs, {options.samples:,} samples, alpha {options.alpha:g}")
    print("| beta | method | " + " | ".join(f"CA({r})" for r in range(5)) + " | ACR | ms a graph |")
    print("|" + "---|" * 9)
    for keep in options.keep:
        noise = fp.EdgeNoise(keep=keep)
        name = f"{options.model}-{keep:g}"
        network = trained(
            options.model, noise, split, options.out / "models" / name, options.epochs or EPOCHS[options.model]
        )
        votes = cast(network, noise, graphs, options.out / f"votes-{options.samples}" / name, options.samples)
        for method in METHODS:
            started = time.perf_counter()
            certificates = [fp.certify_votes(cast, alpha=options.alpha, method=method) for cast in votes]
            milliseconds = (time.perf_counter() - started) / len(votes) * 1000
            accuracy = fp.certified_accuracy(certificates, labels, radii=range(5))
            radius = fp.average_certified_radius(certificates, labels)
            shown = " | ".join(f"{value:.3f}" for value in accuracy)
            print(f"| {keep:g} | {method} | {shown} | {radius:.3f} | {milliseconds:.1f} |", flush=True)
        orders = np.bincount([certificate.order for certificate in certificates], minlength=4)
        print(f"  orders of influences used: {orders.tolist()} graphs of order 0, 1, 2, 3", flush=True)


if __name__ == "__main__":
    main()
