"""Where the influence certificate is below the vote share's, over the noises and data sets of the benchmarks.

    python benchmarks/below_votes.py --root DATA [--data PROTEINS ...] [--graphs 30] [--samples 1000 10000]

For every data set and noise a GIN is trained briefly under the noise, on at most 500 graphs; then both methods read the same
votes of test graphs of at most 60 nodes. Both samples are drawn at random with every class in proportion. Printed, as rows of a
table: mean radius of each method, and how many graphs have a smaller radius with influence, and how many a larger one.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import flipproof as fp
from flipproof.datasets import Dataset, split, topologies, tu
from flipproof.datasets.splits import drawn

MOLECULES = ("MUTAG", "PTC_MR", "NCI1", "PROTEINS", "ENZYMES", "AIDS")
NOISES = {
    **dict.fromkeys(
        MOLECULES, ({"keep": 0.98}, {"keep": 0.95}, {"add": 0.01, "remove": 0.4}, {"add": 0.001, "remove": 0.7})
    ),
    **dict.fromkeys(
        ("IMDB-BINARY", "IMDB-MULTI", "topologies"), tuple({"keep": keep} for keep in (0.95, 0.9, 0.8, 0.7))
    ),
}
NOISES["PROTEINS"] += ({"add": 0.005, "remove": 0.6}, {"add": 0.01, "remove": 0.3})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", required=True)
    parser.add_argument("--data", nargs="+", default=list(NOISES), choices=list(NOISES))
    parser.add_argument("--graphs", type=int, default=30)
    parser.add_argument("--nodes", type=int, default=60, help="larger test graphs are left out")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--samples", type=int, nargs="+", default=[1_000, 10_000])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| data | noise | samples | graphs | radius, votes | radius, influence | below | above |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in options.data:
        data = topologies(480, seed=0) if name == "topologies" else tu(name, root=options.root)
        parts = split(data, test=1 / 3, seed=0)
        graphs = _some([graph for graph in parts.test if graph.num_nodes <= options.nodes], options.graphs)
        own = graphs[0].node_features is not None
        for settings in NOISES[name]:
            noise = fp.EdgeNoise(**settings)
            width = graphs[0].node_features.shape[1] if own else 1
            network = fp.models.GIN(in_features=width, num_classes=data.num_classes, seed=0)
            features = None if own else "degree"
            fp.train(
                network, _some(list(parts.train), 500), noise=noise, epochs=options.epochs, features=features, seed=0
            )
            smooth = fp.SmoothedClassifier(network, noise, num_classes=data.num_classes, features=features)
            votes = [smooth.sample(graph, samples=max(options.samples), seed=0) for graph in graphs]
            for samples in options.samples:
                by_share, by_influence = (
                    np.array([fp.certify_votes(cast, method=method, samples=samples).radius for cast in votes])
                    for method in ("votes", "influence")
                )
                words = ", ".join(f"{key} {value:g}" for key, value in settings.items())
                below, above = int((by_influence < by_share).sum()), int((by_influence > by_share).sum())
                print(
                    f"| {name} | {words} | {samples:,} | {len(graphs)} | {by_share.clip(0).mean():.2f} | "
                    f"{by_influence.clip(0).mean():.2f} | {below} | {above} |",
                    flush=True,
                )


def _some(graphs: list[fp.Graph], count: int) -> list[fp.Graph]:
    """So many of the graphs, every class in proportion."""
    return [graphs[place] for place in drawn(Dataset(graphs), count)]


if __name__ == "__main__":
    main()
