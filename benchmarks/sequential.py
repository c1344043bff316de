"""What stopping early saves: samples used and certified accuracy, for target radii 1, 2 and 3.

    python benchmarks/sequential.py [--model FOLDER] [--max-samples 10000] [--graphs 160] [--methods votes,influence]

The paper's test graphs and a GIN trained under noise that keeps 0.9 (here, briefly; or a folder that ``flipproof train`` wrote).
The votes of ``max_samples`` are cast once; a fixed number of samples reads them all, "auto" as far as it would have sampled.
Prints Markdown.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np

import flipproof as fp
from flipproof.defences.defence import ask_all
from flipproof.engines import Processes, cores

NOISE = fp.EdgeNoise(keep=0.9)
ALPHA = 0.001
TARGETS = (1, 2, 3)


def certificate(votes: fp.Votes, method: str, goal: fp.Sequential | None) -> fp.Certificate:
    """From all votes, or from as many as the goal needs."""
    if goal is None:
        return fp.certify_votes(votes, alpha=ALPHA, method=method)
    return goal.certify(votes, alpha=ALPHA, method=method)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--model", help="a folder that flipproof train wrote, with degree features")
    arguments.add_argument("--epochs", type=int, default=60)
    arguments.add_argument("--max-samples", type=int, default=10_000)
    arguments.add_argument("--graphs", type=int, default=160)
    arguments.add_argument("--methods", default="votes,influence")
    asked = arguments.parse_args()
    parts = fp.datasets.split(fp.datasets.topologies(480, seed=0), train=320, seed=0)
    if asked.model:
        network = fp.models.load(asked.model)
    else:
        network = fp.models.GIN(in_features=1, num_classes=8, seed=0)
        fp.train(network, parts.train, noise=NOISE, features="degree", seed=0, epochs=asked.epochs, batch_size=64)
    smooth = fp.SmoothedClassifier(network.eval(), NOISE, features="degree")
    test = dict(enumerate(list(parts.test)[: asked.graphs]))
    labels = [graph.label for graph in test.values()]
    engine = Processes(cores())
    question = smooth.question(samples=asked.max_samples, alpha=ALPHA, method="votes", seed=0)
    votes = {index: cast for index, cast, _ in ask_all(smooth, question, test, engine=engine, read=False)}
    print(f"{len(test)} graphs, at most {asked.max_samples:,} samples, alpha {ALPHA:g}, keep 0.9\n")
    print("| method | target radius r | CA(r), all samples | CA(r), auto | share of the samples used |")
    print("|---|---|---|---|---|")
    for method in asked.methods.split(","):
        read = partial(certificates, votes, method, engine)
        fixed = fp.certified_accuracy(read(None), labels, radii=TARGETS)
        for target, accuracy in zip(TARGETS, fixed, strict=True):
            found = read(fp.Sequential(max_samples=asked.max_samples, target_radius=target))
            (stopped,) = fp.certified_accuracy(found, labels, radii=[target])
            used = np.mean([one.samples for one in found]) / asked.max_samples
            print(f"| {method} | {target} | {accuracy:.3f} | {stopped:.3f} | {used:.2f} |", flush=True)


def certificates(
    votes: dict[int, fp.Votes], method: str, engine: Processes, goal: fp.Sequential | None
) -> list[fp.Certificate]:
    """Of all graphs, in order."""
    found = dict(engine.run(lambda index: certificate(votes[index], method, goal), votes))
    return [found[index] for index in sorted(found)]


if __name__ == "__main__":
    main()
