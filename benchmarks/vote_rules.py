"""Two other rules of voting, both known from data poisoning: overlapping groups and run-off voting. Prints Markdown.

    python benchmarks/vote_rules.py overlap --data IMDB-BINARY topologies --root data
    python benchmarks/vote_rules.py run-off --data IMDB-MULTI topologies --root data

One network is trained on sub-graphs that hold a share 1 / T of the node pairs, and every rule asks it about such sub-graphs of
the validation graphs: what the network knows is the same everywhere. `docs/voting.md` has the two certificates and their proofs.

Overlapping groups (Wang, Levine and Feizi, ICML 2022): pairs are hashed into T s buckets, and each of T s groups holds s of
them, so that every pair is in s groups. Run-off voting (Rezaei, Banihashem, Chegini and Feizi, ICML 2023): the two classes with
the most votes are the finalists; of these, every sub-graph votes for the one with the higher logit.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import flipproof as fp
from flipproof.certificates.metrics import right_radii, shares

RADII = (0, 1, 2, 3, 4, 5, 7, 10)
NEVER = 10**6
_BATCH = 512

Array = NDArray[Any]
Model = Callable[[Array], Array]
"""From states of slots, bool [K, N], to logits, [K, C]."""


@dataclass(frozen=True, eq=False)
class Answers:
    """What a model says about the sub-graphs of one graph.

    Attributes:
        member: Which slots are in which group, bool ``[T, N]``.
        before: Logits of every sub-graph, ``[T, C]``.
        after: For each group and each of its slots, in order, the logits after that flip, ``[sum of group sizes, C]``; ``None``
            at depth 0.
    """

    member: Array
    before: Array
    after: Array | None

    @property
    def labels(self) -> Array:
        return self.before.argmax(axis=1)

    @property
    def counts(self) -> Array:
        return np.bincount(self.labels, minlength=self.before.shape[1])

    @property
    def owner(self) -> Array:
        """The group of each row of ``after``."""
        return np.nonzero(self.member)[0]

    def prices(self, bought: Callable[[Array], Array]) -> Array:
        """The least price of what ``bought`` finds in logits ``[K, C] -> [K, X]``, for every group, ``[T, X]``."""
        there = bought(self.before)
        sizes = self.member.sum(axis=1)[:, None]
        if self.after is None:
            return np.where(there, 0, np.where(sizes > 0, 1, NEVER))
        found = np.zeros(there.shape, dtype=bool)
        np.logical_or.at(found, self.owner, bought(self.after))
        return np.where(there, 0, np.where(found, 1, np.where(sizes > 1, 2, NEVER)))

    def at_depth(self, depth: int) -> Answers:
        return self if depth else Answers(self.member, self.before, None)


def asked(model: Model, states: Array, member: Array) -> Answers:
    """The answers on all sub-graphs, and after every flip inside every one."""
    group, slot = np.nonzero(member)
    before, after = states & member, []
    for start in range(0, len(group), _BATCH):
        part = slice(start, start + _BATCH)
        flipped = before[group[part]]
        flipped[np.arange(len(flipped)), slot[part]] ^= True
        after.append(model(flipped))
    logits = model(before)
    return Answers(member, logits, np.concatenate(after) if after else np.zeros((0, logits.shape[1])))


def votes_of(logits: Array) -> Array:
    """One-hot answers."""
    found: Array = logits.argmax(axis=1)[:, None] == np.arange(logits.shape[1])
    return found


# ---- plain voting and overlapping groups ----


def overtaking(labels: Array, prices: Array, leader: int, rivals: Sequence[int]) -> int:
    """The least total price at which every rival is ahead of the leader (a draw is enough for a smaller label)."""
    counts = np.bincount(labels, minlength=prices.shape[1])
    need = tuple(max(0, int(counts[leader] - counts[rival] + (leader < rival))) for rival in rivals)
    cheapest = np.full([most + 1 for most in need], NEVER)
    cheapest[(0,) * len(need)] = 0
    for vote, row in zip(labels.tolist(), prices.tolist(), strict=True):
        before, cheapest = cheapest, cheapest.copy()
        for label, price in enumerate(row):
            if label == vote or price >= NEVER:
                continue
            # what sets a rival back is left out, in the attacker's favour
            gains = [
                max(0, (label == rival) - (vote == rival) + (vote == leader) - (label == leader)) for rival in rivals
            ]
            for done in np.argwhere(before < NEVER).tolist():
                now = tuple(min(most, have + gain) for have, gain, most in zip(done, gains, need, strict=True))
                cheapest[now] = min(cheapest[now], before[tuple(done)] + price)
    return int(cheapest[need])


def voting_radius(answers: Answers, spread: int, most: int) -> tuple[int, int]:
    """Answer and radius of the majority, where every slot is in ``spread`` groups.

    The larger of two lower bounds. The first buys votes, and a flip pays for one in each of its groups. The second adds up the
    most that each flip can gain: what it is seen to gain alone in a group, or half of what the group's vote is worth.
    """
    labels, counts, prices = answers.labels, answers.counts, answers.prices(votes_of)
    leader = int(counts.argmax())
    if not most:
        return leader, 0
    smallest = NEVER
    for rival in np.delete(np.arange(len(counts)), leader).tolist():
        bought = (overtaking(labels, prices, leader, [rival]) - 1) // spread
        worth = np.where(labels == leader, 2, np.where(labels == rival, 0, 1))
        if answers.after is None:
            alone = np.repeat(worth, answers.member.sum(axis=1)).astype(float)
            several = alone
        else:
            said, vote = answers.after.argmax(axis=1), labels[answers.owner]
            alone = ((said == rival) * 1.0 - (vote == rival)) + ((vote == leader) * 1.0 - (said == leader))
            several = np.maximum(alone, worth[answers.owner] / 2)
        needed = counts[leader] - counts[rival] + (leader < rival)
        at_most, exact = (_summed(answers, values) for values in (several, alone))
        reached = np.cumsum(_largest_first(answers, at_most, worth))
        added = int(np.searchsorted(reached, needed - 1e-9))
        if added == 0 and answers.after is not None and exact.max(initial=0) < needed:
            added = 1
        smallest = min(smallest, max(bought, added if added < len(reached) else most))
    return leader, min(smallest, most)


def _summed(answers: Answers, values: Array) -> Array:
    """Values of (group, slot) added up for each slot, ``[N]``."""
    total = np.zeros(answers.member.shape[1])
    np.add.at(total, np.nonzero(answers.member)[1], values)
    return total


def _largest_first(answers: Answers, gains: Array, worth: Array) -> Array:
    """What each further flip can gain at most: those that share their groups gain no more than these are worth."""
    buckets, bucket = np.unique(answers.member, axis=1, return_inverse=True)
    parts = []
    for place, caps in enumerate(worth @ buckets):
        reached = np.minimum(np.cumsum(np.sort(gains[bucket.ravel() == place])[::-1]), caps)
        parts.append(np.diff(reached, prepend=0))
    return np.sort(np.concatenate(parts))[::-1]


# ---- run-off voting ----


def run_off(before: Array) -> tuple[int, int]:
    """The winner and the other finalist; ties go to the smaller label."""
    counts = np.bincount(before.argmax(axis=1), minlength=before.shape[1])
    first, second = np.sort(np.argsort(-counts, kind="stable")[:2]).tolist()
    ahead = (before[:, first] >= before[:, second]).sum()
    return (first, second) if 2 * ahead >= len(before) else (second, first)


def run_off_radius(answers: Answers, most: int) -> tuple[int, int]:
    """Answer and radius of run-off voting with disjoint groups."""
    labels, classes = answers.labels, answers.before.shape[1]
    prices = answers.prices(votes_of)
    winner, other = run_off(answers.before)
    rivals = np.delete(np.arange(classes), winner).tolist()
    cheapest = NEVER
    for rival in rivals:

        def preferred(logits: Array, rival: int = rival) -> Array:
            ours, theirs = logits[:, [winner]], logits[:, [rival]]
            found: Array = theirs > ours if winner < rival else theirs >= ours
            return found

        price = answers.prices(preferred)[:, 0]
        behind = int((price > 0).sum() - (price == 0).sum() + (winner < rival))
        final = int(np.sort(price[price > 0])[: max(0, -(-behind // 2))].sum()) if behind > 0 else 0
        if behind > 0 and (price > 0).sum() < -(-behind // 2):
            final = NEVER
        entry = 0
        if rival != other:
            entry = min(overtaking(labels, prices, leader, [rival]) for leader in (winner, other))
        cheapest = min(cheapest, max(final, entry))
    for pair in combinations(rivals, 2):
        cheapest = min(cheapest, overtaking(labels, prices, winner, pair))
    return winner, min(cheapest - 1, most)


# ---- measuring ----


def groups_of(buckets: Array, groups: int, spread: int) -> Array:
    """Which slots are in which group, ``[T s, N]``: group ``g`` holds the buckets ``g``, ``g + 1``, ``g + 3``, ``g + 7``, ..."""
    held = (np.arange(groups * spread)[:, None] + [2**place - 1 for place in range(spread)]) % (groups * spread)
    found: Array = (buckets == held[:, :, None]).any(axis=1)
    return found


def model_of(network: Any, features: Any, groups: int, graph: fp.Graph) -> Model:
    """The network as a function of states of slots."""
    from flipproof.noise.law import NoisyBatch

    voting = fp.VotingClassifier(network, groups, features=features)
    classifier = voting.classifier.suited(graph, voting.noise)
    classifier.prepare()

    def logits(states: Array) -> Array:
        parts = (graph.num_nodes, len(states), graph.node_features, graph.slots, graph.frozen_edge_slots, states, None)
        return classifier.scores(NoisyBatch(*parts))

    return logits


def main() -> None:
    import sys

    sys.path.insert(0, str(Path(__file__).parent))
    from prices import EPOCHS, line, load, some, trained

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rule", choices=["overlap", "run-off"])
    parser.add_argument("--data", nargs="+", default=["IMDB-MULTI", "topologies"])
    parser.add_argument("--root", default="data")
    parser.add_argument("--groups", type=int, nargs="+", default=[5])
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.data:
        split, features, width, classes = load(name, options.root, options.seed)
        graphs = some(split.validation, options.graphs, options.seed)
        graphs = [graph for graph in graphs if graph.num_slots <= 4096]
        truth = [graph.label for graph in graphs]
        print(f"\n### {name}, {len(graphs)} validation graphs\n")
        print(line(["share", "rule", "depth", *(f"r = {r}" for r in RADII), "calls"]) + "\n" + line(["---"] * 12))
        for groups in options.groups:
            network, _ = trained(
                split, features, width, classes, groups=groups, epochs=options.epochs or EPOCHS[name], seed=options.seed
            )
            rules = [("disjoint", 1)]
            rules += (
                [("2 groups per pair", 2), ("3 groups per pair", 3)] if options.rule == "overlap" else [("run-off", 0)]
            )
            for rule, spread in rules:
                found: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
                calls = []
                for graph in graphs:
                    wide = max(1, spread)
                    buckets = fp.EdgeGroups(groups * wide).of_graph(graph)
                    states = np.asarray(graph.slot_states)
                    answers = asked(
                        model_of(network, features, groups, graph), states, groups_of(buckets, groups, wide)
                    )
                    calls.append(len(answers.before) + len(answers.owner))
                    for depth, radii in found.items():
                        known, most = answers.at_depth(depth), graph.num_slots
                        radii.append(voting_radius(known, spread, most) if spread else run_off_radius(known, most))
                for depth, radii in found.items():
                    right = right_radii([radius for _, radius in radii], [label for label, _ in radii], truth)
                    row = shares(right, RADII).tolist()
                    cost = f"{np.mean(calls):.0f}" if depth else groups * max(1, spread)
                    print(line([f"1 / {groups}", rule, depth, *row, cost]), flush=True)


if __name__ == "__main__":
    main()
