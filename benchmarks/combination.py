"""Smoothing and voting combined into one classifier, against each of them alone, on the paper's data.

    python benchmarks/combination.py [--keep 0.8] [--groups 30] [--epochs 200] [--samples 2000]

Two GINs are trained on the same 320 graphs, one under noise and one on sub-graphs, and 160 graphs are certified by each. Then
two combinations (docs/voting.md has the proofs):

- decisive vote: voting's answer where its winner is a trusted class and leads every rival by at least `threshold` votes, else
  smoothing's answer; read from the two sets of certificates. Trusted are all classes, or those that decisive votes on the
  training graphs get right 95 times of 100.
- smoothed sub-graphs (--smoothed-groups 3): a third GIN, trained on noisy sub-graphs; every sub-graph's label is smoothed, and a
  vote costs an attacker one flip more than its radius.

Printed: certified accuracy at a few radii, and the average certified radius.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import torch

import flipproof as fp
from flipproof.graphs import pairs_of_slots

RADII = (0, 1, 2, 3, 5, 10)
BUDGET = {"learning_rate": 0.005, "batch_size": 64, "average": 0.99, "copies": 4}
NEVER = 10**9


def lead(votes: fp.Certificate) -> int:
    """By how many votes the winner leads every other class."""
    first, second = sorted(votes.counts)[:-3:-1]
    return first - second


def trusted_classes(votes: Sequence[fp.Certificate], graphs: Sequence[fp.Graph], threshold: int) -> set[int]:
    """Classes that decisive votes get right on these graphs, 95 times of 100."""
    decisive = [
        (found.label, graph.label) for found, graph in zip(votes, graphs, strict=True) if lead(found) >= threshold
    ]
    shares = {
        label: np.mean([truth == label for voted, truth in decisive if voted == label]) for label in dict(decisive)
    }
    return {label for label, share in shares.items() if label is not None and share >= 0.95}


def decisive_vote(
    smooth: fp.Certificate, votes: fp.Certificate, threshold: int, trusted: set[int]
) -> tuple[int | None, int]:
    """Label and radius of "voting where it is decisive for a trusted class, else smoothing"."""
    if lead(votes) >= threshold and votes.label in trusted:
        label, stays_decisive = votes.label, (lead(votes) - threshold) // 2
    else:
        label, stays_decisive = smooth.label, -1
    if label is None:
        return None, -1
    most, counts = smooth.num_slots or 0, votes.counts
    no_rival_decisive = min(
        ((counts[label] - counts[rival] + threshold - 1) // 2 for rival in trusted - {label}), default=most
    )
    by_smoothing = min(smooth.radius, no_rival_decisive) if smooth.label == label else -1
    return label, min(max(stays_decisive, by_smoothing), most)


def smoothed_votes(votes: Sequence[tuple[int | None, int]], num_classes: int, num_slots: int) -> tuple[int | None, int]:
    """Label and radius of a majority over smoothed sub-graphs, from their labels and the flips that change each (at least)."""
    for label in range(num_classes):
        radius = num_slots
        for rival in (other for other in range(num_classes) if other != label):
            # an abstaining vote may be anyone's: it counts for the rival
            ahead = sum(vote == label for vote, _ in votes) - sum(vote in (rival, None) for vote, _ in votes)
            need = ahead - (rival < label) + 1
            own = np.cumsum([0, *sorted(cost for vote, cost in votes if vote == label)])
            others = np.cumsum([0, *sorted(cost for vote, cost in votes if vote not in (label, rival, None))])
            prices = [
                own[taken] + others[max(0, need - 2 * taken)]
                for taken in range(len(own))
                if max(0, need - 2 * taken) < len(others)
            ]
            radius = min(radius, int(min(prices, default=NEVER)) - 1 if need > 0 else -1)
        if radius >= 0:
            return label, radius
    return None, -1


def sub_graphs(graph: fp.Graph, groups: fp.EdgeGroups) -> list[fp.Graph]:
    """The sub-graphs of a graph without frozen pairs, each with those of other groups frozen: noise stays in its own."""
    group = groups.of_slots(graph.slots, graph.num_nodes)
    parts = []
    for number in range(groups.count):
        edges, outside = graph.slots[(group == number) & graph.slot_states], graph.slots[group != number]
        parts.append(
            fp.Graph(
                graph.num_nodes,
                pairs_of_slots(edges, graph.num_nodes),
                frozen=pairs_of_slots(outside, graph.num_nodes),
            )
        )
    return parts


def show(name: str, answers: Sequence[tuple[int | None, int]], graphs: Sequence[fp.Graph]) -> None:
    radii = np.array(
        [radius if label == graph.label else -1 for (label, radius), graph in zip(answers, graphs, strict=True)]
    )
    shares = "".join(f"{np.mean(radii >= r):8.3f}" for r in RADII)
    print(f"{name:42} {shares}   {np.mean(np.maximum(radii, 0)):7.3f}", flush=True)


def trained(graphs: fp.datasets.Dataset, epochs: int, seed: int, **seen: object) -> fp.models.GIN:
    network = fp.models.GIN(in_features=1, num_classes=8, seed=seed)
    training = fp.train_voting if "groups" in seen else fp.train
    training(network, graphs, epochs=epochs, seed=seed, **BUDGET, **seen)
    return network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=float, default=0.8)
    parser.add_argument("--groups", type=int, default=30)
    parser.add_argument("--smoothed-groups", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    split = fp.datasets.split(fp.datasets.topologies(480, seed=options.seed), train=320, seed=options.seed)
    graphs, noise = list(split.test), fp.EdgeNoise(keep=options.keep)
    print(f"{'':42} {''.join(f'  r = {r:<2}' for r in RADII)}   average")

    network = trained(split.train, options.epochs, options.seed, noise=noise)
    smooth = fp.SmoothedClassifier(network, noise, features="degree")
    smoothed = smooth.certify_all(graphs, samples=options.samples, seed=options.seed)
    show(f"smoothing, keep {options.keep:g}", [(found.label, found.radius) for found in smoothed], graphs)

    network = trained(split.train, options.epochs, options.seed, groups=options.groups, renumber=True)
    voting = fp.VotingClassifier(network, options.groups, features="degree")
    voted, voted_in_training = voting.certify_all(graphs), voting.certify_all(split.train)
    show(f"voting, {options.groups} groups", [(found.label, found.radius) for found in voted], graphs)

    for threshold in sorted({options.groups // 6, options.groups // 3, options.groups // 2}):
        trusted = trusted_classes(voted_in_training, split.train, threshold)
        for name, classes in (("any class", set(range(8))), (f"classes {sorted(trusted)}", trusted)):
            answers = [decisive_vote(*pair, threshold, classes) for pair in zip(smoothed, voted, strict=True)]
            show(f"decisive vote, lead of {threshold}, {name}", answers, graphs)

    count = options.smoothed_groups
    if count:
        # an edge is seen if it is in the group and kept, an empty pair if it is in the group and added
        seen = fp.EdgeNoise(add=noise.p_add / count, remove=1 - (1 - noise.p_remove) / count)
        network = trained(split.train, options.epochs, options.seed, noise=seen)
        smooth, answers = fp.SmoothedClassifier(network, noise, features="degree"), []
        for graph in graphs:
            parts = sub_graphs(graph, fp.EdgeGroups(count))
            found = smooth.certify_all(parts, samples=options.samples, alpha=0.001 / count, seed=options.seed)
            # who has changed every pair of a group without effect has nothing left to change there
            costs = [one.radius + 1 if one.radius < (one.num_slots or 0) else NEVER for one in found]
            votes = [(one.label, cost) for one, cost in zip(found, costs, strict=True)]
            answers.append(smoothed_votes(votes, 8, graph.num_slots))
        show(f"smoothed sub-graphs, {count} groups, keep {options.keep:g}", answers, graphs)


if __name__ == "__main__":
    main()
