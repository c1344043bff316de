"""Certified accuracy of voting over hashed sub-graphs on the paper's data, and what node numbers give away.

    python benchmarks/voting.py [--groups 3 5 10 30] [--epochs 400]
    python benchmarks/voting.py --features MUTAG PTC_MR --root data

For every number of groups T a GIN is trained on the sub-graphs of 320 graphs, with the budget that `flipproof reproduce` gives
the same network under noise, and certified on the other 160. Printed: certified accuracy at a few radii, and the processor
time of the training in seconds and of one certificate in milliseconds. Nodes are numbered at random, in the data and again in
every step of the training. The last row keeps the generators' own order of nodes, which hands the class to the hash.

With ``--features``: T edge groups crossed with S feature groups. Printed: the share of all test graphs certified against r flips
and s changed nodes, counted exactly and by GNNCert's 2 (r S + s T) on the same votes, and by how many cells of all test graphs'
grids the two differ.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

import flipproof as fp
from flipproof.studies.provenance import stamp

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


ATTACKS = ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2), (2, 1), (1, 2), (3, 3))


def compare_with_gnncert(name: str, root: str, groups: int, feature_groups: int, *, epochs: int, seed: int) -> None:
    """Certified accuracy at the attacks, by both counts, and the cells of all grids where one is above the other."""
    data = fp.datasets.tu(name, root=root)
    split = fp.datasets.split(data, train=2 * len(data) // 3, seed=seed)
    network = fp.models.GIN(in_features=data[0].node_features.shape[1], num_classes=2, seed=seed)
    settings = {"groups": groups, "feature_groups": feature_groups}
    fp.train_voting(network, split.train, renumber=True, epochs=epochs, seed=seed, **settings, **BUDGET)
    certificates = fp.VotingClassifier(network, **settings).certify_all(split.test)
    exact, gnncert, above, below = np.zeros(len(ATTACKS)), np.zeros(len(ATTACKS)), 0, 0
    for certificate, graph in zip(certificates, split.test, strict=True):
        counts = np.array(certificate.counts)
        label = certificate.label
        leads = np.delete(counts[label] - counts - (np.arange(len(counts)) < label), label)
        flips, nodes = np.ogrid[: graph.num_slots + 1, : graph.num_nodes + 1]
        simple = 2 * (flips * feature_groups + nodes * groups) <= leads.min()
        whole = np.zeros_like(simple)
        rows, columns = (min(sizes) for sizes in zip(certificate.grid.shape, whole.shape, strict=True))
        whole[:rows, :columns] = certificate.grid[:rows, :columns]
        above, below = above + int((whole & ~simple).sum()), below + int((simple & ~whole).sum())
        if label == graph.label:
            reached = [(min(flips, graph.num_slots), min(changes, graph.num_nodes)) for flips, changes in ATTACKS]
            exact += [whole[attack] for attack in reached]
            gnncert += [simple[attack] for attack in reached]
    for method, values in (("exact", exact), ("GNNCert", gnncert)):
        shares = "".join(f"{share:8.3f}" for share in values / len(split.test))
        print(f"{name:7} {groups:3} x {feature_groups:2}  {method:8}{shares}", flush=True)
    print(f"{len(split.test)} test graphs: {above} cells above GNNCert's, {below} below", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, nargs="+", default=[3, 5, 10, 30])
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--features", nargs="+", default=[], help="TU data sets with node labels")
    parser.add_argument("--root", default="data")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(stamp())
    if options.features:
        print("data      T x  S  count   " + "".join(f"{f'{r}, {s}':>8}" for r, s in ATTACKS))
        for name in options.features:
            for groups, feature_groups in ((5, 3), (9, 5), (15, 9)):
                arguments = {"epochs": options.epochs, "seed": options.seed}
                compare_with_gnncert(name, options.root, groups, feature_groups, **arguments)
        return
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
