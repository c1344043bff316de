"""The attacks beside each other on the paper's data: the table of docs/benchmarks/attacks.md.

    python benchmarks/attacks.py [--graphs 64] [--smoothed 24] [--budget 5] [--calls 3000] [--out results/attacks]

Trains a GCN without noise and a GIN under keep 0.9 on 320 of the paper's 480 graphs, attacks test graphs with every attack
at the same limit of model calls, and prints accuracy under attack, the time per graph, and the greedy
attack on a 20-node graph. Models are kept in the folder and used again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

import flipproof as fp

NOISE = fp.EdgeNoise(keep=0.9)
NAMES = ("random", "greedy", "gradient")


def trained(name: str, noise: fp.EdgeNoise | None, split: fp.datasets.Split, folder: Path) -> torch.nn.Module:
    """The network, from the folder if it is there."""
    if folder.exists():
        return fp.models.load(folder)
    network = fp.models.build({"name": name, "in_features": 1, "num_classes": 8}, seed=0)
    fp.train(network, split.train, noise=noise, epochs=200 if name == "gcn" else 150, batch_size=32, seed=0)
    fp.models.save(network, folder, noise=noise, features="degree", data="topologies")
    return network


def table(model: object, graphs: list[fp.Graph], budget: int, names: tuple[str, ...], **options: object) -> None:
    """One line an attack: accuracy under attack for r = 0..budget, calls and time."""
    labels = [graph.label for graph in graphs]
    print(
        "| attack | "
        + " | ".join(f"r = {r}" for r in range(budget + 1))
        + " | flips, mean | model calls | ms per graph |"
    )
    print("|" + "---|" * (budget + 5))
    spent: list[int] | None = None
    for name in names:
        found = row(name, model, graphs, labels, budget, [options] * len(graphs))
        spent = [result.model_calls for result in found] if name == "greedy" else spent
    if spent is not None:
        matched = [{**options, "max_calls": calls} for calls in spent]
        row("random, greedy's calls", model, graphs, labels, budget, matched)


def row(
    name: str, model: object, graphs: list[fp.Graph], labels: list[int], budget: int, options: list[dict[str, object]]
) -> list[fp.attacks.AttackResult]:
    """Attack all graphs, each with its own options, and print the line."""
    attack = fp.attacks.by_name(name.partition(",")[0])
    started = time.process_time()
    results = [
        attack(model, graph, budget=budget, label=graph.label, **given)
        for graph, given in zip(graphs, options, strict=True)
    ]
    milliseconds = (time.process_time() - started) / len(graphs) * 1000
    shown = " | ".join(f"{share:.3f}" for share in fp.attacks.robust_accuracy(results, labels, range(budget + 1)))
    # an attack that failed counts as one flip more than the budget
    flips = np.mean([result.size if result.success else budget + 1 for result in results])
    calls = np.mean([result.model_calls for result in results])
    print(f"| {name} | {shown} | {flips:.2f} | {calls:,.0f} | {milliseconds:,.0f} |", flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=64)
    parser.add_argument("--smoothed", type=int, default=24, help="graphs on which the smoothed classifier is attacked")
    parser.add_argument("--budget", type=int, default=5)
    parser.add_argument("--calls", type=int, nargs="+", default=[3000], help="candidates that an attack may try")
    parser.add_argument("--smoothed-calls", type=int, default=600, help="the same against the smoothed classifier")
    parser.add_argument("--out", type=Path, default=Path("results/attacks"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    split = fp.datasets.split(fp.datasets.topologies(480, seed=0), train=320, seed=0)
    graphs = list(split.test)
    gcn = trained("gcn", None, split, options.out / "gcn")
    gin = trained("gin", NOISE, split, options.out / "gin-0.9")
    smooth = fp.SmoothedClassifier(gin, NOISE, features="degree")

    grid = fp.Graph(20, [(i, i + 1) for i in range(19) if i % 5 != 4] + [(i, i + 5) for i in range(15)])
    started = time.process_time()
    found = fp.attacks.greedy(gcn, grid, budget=5, features="degree")
    print(f"greedy, budget 5, a grid of 20 nodes: {(time.process_time() - started) * 1000:.0f} ms, {found}\n")

    some = graphs[: options.graphs]
    for calls in options.calls:
        print(f"GCN without defence, {options.graphs} graphs, at most {calls:,} candidates\n")
        table(gcn, some, options.budget, NAMES, features="degree", max_calls=calls)
        print(f"\nGIN trained under keep 0.9, not smoothed, {options.graphs} graphs, at most {calls:,} candidates\n")
        table(gin, some, options.budget, NAMES, features="degree", max_calls=calls)
        print()
    print(
        f"\nthe same GIN smoothed, keep 0.9, {options.smoothed} graphs, at most "
        f"{options.smoothed_calls:,} candidates of 64 noisy copies\n"
    )
    few = graphs[: options.smoothed]
    table(smooth, few, 3, NAMES, samples=64, confirm_samples=4000, max_calls=64 * options.smoothed_calls)


if __name__ == "__main__":
    main()
