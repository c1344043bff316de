"""What the reproduction's figures owe to the seed of training: mean and standard deviation over several seeds.

    python benchmarks/seeds.py [--networks gcn gin gin-radius] [--keeps 0.7 0.8 0.9] [--seeds 0 1 2] [--every 1] [--kept FOLDER]
    python benchmarks/seeds.py --data-seed 101 --networks gin-radius --seeds 0 [--flips 1] [--sized-keep 0]

Data and split are those of ``flipproof reproduce``, or of another seed, on which settings were chosen; only the initial weights
change. Certified accuracy at some radii and the average certified radius (ACR) of
every certificate are printed for each network and noise. Finally, for each network: the best noise for each radius, by the
mean over the seeds. ``--every 2`` takes every second test graph. ``--kept`` keeps the figures of every network in a folder: a
run that was stopped continues, and runs for single seeds can be put together. Empty the folder when the code has changed.
"""

from __future__ import annotations

import argparse
import json
from functools import cache
from pathlib import Path

import numpy as np
import torch

import flipproof as fp
from flipproof.files import write_json
from flipproof.studies.paper_experiment import Job, Model, Settings, data_split, train_networks

RADII = (0, 1, 2, 3, 5, 10)
METHODS = ("paper", "votes", "influence")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=["gcn", "gin", "gin-radius"])
    parser.add_argument("--keeps", type=float, nargs="+", default=[0.7, 0.8, 0.9])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--kept", type=Path)
    parser.add_argument("--data-seed", type=int, default=Settings.seed)
    parser.add_argument("--flips", type=int, default=Settings.radius_flips, help="of the network for the radius")
    parser.add_argument("--sized-keep", type=float, default=Settings.sized_keep, help="of the network for the radius")
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings = Settings(
        networks=max(options.seeds) + 1,
        seed=options.data_seed,
        radius_flips=options.flips,
        sized_keep=options.sized_keep,
    )
    parts = data_split(settings)
    # by class, so that every second graph leaves the classes in proportion
    graphs = sorted(parts.test, key=lambda graph: graph.label)[:: options.every]
    print(f"{len(graphs)} test graphs, {options.samples:,} samples, alpha {settings.alpha:g}, seeds {options.seeds}")
    print("network     beta  certificate  " + "  ".join(f"CA({r})".ljust(12) for r in RADII) + "ACR")
    for network in options.networks:
        means = {}
        for keep in options.keeps:
            found = np.array(
                [_kept_figures(options, settings, Model(network, keep, seed), graphs) for seed in options.seeds]
            )
            mean, spread = found.mean(axis=0), found.std(axis=0, ddof=min(1, len(options.seeds) - 1))
            for place, method in enumerate(METHODS):
                cells = "  ".join(f"{m:.3f} ±{s:.3f}" for m, s in zip(mean[place], spread[place], strict=True))
                print(f"{network:11} {keep:4g}  {method:11}  {cells}", flush=True)
            means[keep] = mean[-1]
        best = [max(means, key=lambda keep: means[keep][place]) for place in range(len(RADII))]
        words = ", ".join(
            f"r = {r}: {means[keep][place]:.3f} ({keep:g})"
            for place, (r, keep) in enumerate(zip(RADII, best, strict=True))
        )
        print(f"{network}, influence, best beta for each r: {words}", flush=True)


def _kept_figures(
    options: argparse.Namespace, settings: Settings, model: Model, graphs: list[fp.Graph]
) -> list[list[float]]:
    """The figures of one network, read from the folder if they are there."""
    if options.kept is None:
        return _figures(settings, model, graphs, options.samples)
    setting = f"data{settings.seed}-flips{settings.radius_flips}-sized{settings.sized_keep:g}"
    path = options.kept / f"{model.name}-{options.samples}-{len(graphs)}-{setting}.json"
    if not path.exists():
        options.kept.mkdir(parents=True, exist_ok=True)
        write_json(path, _figures(settings, model, graphs, options.samples))
    figures: list[list[float]] = json.loads(path.read_text())
    return figures


_trained = cache(lambda settings, job: train_networks(job, settings))  # all networks of a job are trained together


def _figures(settings: Settings, model: Model, graphs: list[fp.Graph], samples: int) -> list[list[float]]:
    """For each method, certified accuracy at every radius, and the average certified radius."""
    network = _trained(settings, Job("train", "gcn" if model.network == "gcn" else "gin", model.keep))[model][0]
    smooth = fp.SmoothedClassifier(network, fp.EdgeNoise(keep=model.keep), num_classes=8, features="degree")
    radii: dict[str, list[int]] = {method: [] for method in METHODS}
    for graph in graphs:
        votes = smooth.sample(graph, samples=samples, seed=Settings.seed)
        for method, found in radii.items():
            certificate = fp.certify_votes(votes, alpha=settings.alpha, method=method)
            found.append(certificate.radius if certificate.label == graph.label else -1)
    return [
        [*(float(np.mean(np.array(found) >= r)) for r in RADII), float(np.clip(found, 0, None).mean())]
        for found in radii.values()
    ]


if __name__ == "__main__":
    main()
