"""Time of the influence certificate against the sampling time of the paper's GCN, in the same run on one core.

    python benchmarks/influence.py [--keep 0.9 0.8 0.7] [--graphs 40] [--samples 10000]
    python benchmarks/influence.py --keep 0.8 --model results/reproduce/models/gin-radius-0.8 --samples 100000

For every noise the paper's GCN is trained briefly, or a stored network is taken; then votes are cast and read for test graphs,
drawn with every class in proportion. Printed: processor time per graph in milliseconds for sampling, for the votes method and for
the influence method, and the ratio influence / sampling, which is to stay below one half.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

import flipproof as fp
from flipproof.datasets.splits import drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=float, nargs="+", default=[0.9, 0.8, 0.7])
    parser.add_argument("--graphs", type=int, default=40)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--model", help="a folder with a network, in place of a GCN")
    options = parser.parse_args()
    torch.set_num_threads(1)
    split = fp.datasets.split(fp.datasets.topologies(480, seed=0), train=320, seed=0)
    graphs = [split.test[int(place)] for place in drawn(split.test, options.graphs)]
    print("beta   sampling ms   votes ms   influence ms   influence / sampling   slowest graph")
    for keep in options.keep:
        noise = fp.EdgeNoise(keep=keep)
        if options.model is None:
            network = fp.models.GCN(in_features=1, num_classes=8, seed=0)
            fp.train(network, split.train, noise=noise, epochs=options.epochs, batch_size=32, seed=0)
        else:
            network = fp.models.load(options.model)
        smooth = fp.SmoothedClassifier(network, noise, num_classes=8, features="degree")
        times = []
        for graph in graphs:
            started = time.process_time()
            votes = smooth.sample(graph, samples=options.samples, seed=0)
            sampled = time.process_time()
            fp.certify_votes(votes, method="votes")
            read = time.process_time()
            fp.certify_votes(votes, method="influence")
            times.append((sampled - started, read - sampled, time.process_time() - read))
        seconds = np.array(times)
        # tables that depend on the noise alone are made with the first graph
        sampling, share, influence = seconds[1:].mean(axis=0) * 1000
        ratio, slowest = influence / sampling, float(np.max(seconds[1:, 2] / seconds[1:, 0]))
        print(f"{keep:4g} {sampling:13.1f} {share:10.1f} {influence:14.1f} {ratio:22.2f} {slowest:15.2f}", flush=True)


if __name__ == "__main__":
    main()
