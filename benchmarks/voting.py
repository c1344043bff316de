"""Certified accuracy of voting over hashed sub-graphs on the paper's data, and what node numbers give away.

    python benchmarks/voting.py [--groups 3 5 10 30] [--epochs 400]

For every number of groups T a GIN is trained on the sub-graphs of 320 graphs, with the budget that `flipproof reproduce` gives
the same network under noise, and certified on the other 160. Printed: certified accuracy at a few radii, and the processor
time of the training in seconds and of one certificate in milliseconds. Nodes are numbered at random, in the data and again in
every step of the training. The last row keeps the generators' own order of nodes, which hands the class to the hash.
"""

from __future__ import annotations

import argparse
import time

import torch

import flipproof as fp

RADII = (0, 1, 2, 3, 5, 10)
BUDGET = {"learning_rate": 0.005, "batch_size": 64, "average": 0.99, "copies": 4}  # as in flipproof reproduce


def measure(groups: int, *, shuffle_nodes: bool, epochs: int, seed: int) -> tuple[list[float], float, float]:
    """Certified accuracy at the radii, processor seconds of training, milliseconds a certificate."""
    data = fp.datasets.topologies(480, seed=seed, shuffle_nodes=shuffle_nodes)
    split = fp.datasets.split(data, train=320, seed=seed)
    network = fp.models.GIN(in_features=1, num_classes=8, seed=seed)
    started = time.process_time()
    fp.train_voting(network, split.train, groups=groups, renumber=shuffle_nodes, epochs=epochs, seed=seed, **BUDGET)
    trained = time.process_time()
    certificates = fp.VotingClassifier(network, groups, features="degree").certify_all(split.test)
    each = 1000 * (time.process_time() - trained) / len(split.test)
    accuracy = fp.certified_accuracy(certificates, split.test.labels, RADII)
    return accuracy.tolist(), trained - started, each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, nargs="+", default=[3, 5, 10, 30])
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'T':>3}  nodes     {''.join(f'  r = {r:<2}' for r in RADII)}   training s   certificate ms")
    rows = [(groups, True) for groups in options.groups] + [(options.groups[0], False)]
    for groups, shuffled in rows:
        accuracy, seconds, each = measure(groups, shuffle_nodes=shuffled, epochs=options.epochs, seed=options.seed)
        shares = "".join(f"{share:8.3f}" for share in accuracy)
        print(
            f"{groups:3}  {'shuffled' if shuffled else 'in order'}  {shares} {seconds:12.1f} {each:16.2f}", flush=True
        )


if __name__ == "__main__":
    main()
