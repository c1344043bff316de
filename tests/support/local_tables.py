"""Local classifiers given by a table of random votes, and what every attack on them does."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from flipproof import Graph
from flipproof.certificates.local_scores import LocalScores, answer_of, edge_changes
from flipproof.certificates.node_views import NodeViews
from flipproof.graphs import pairs_of_slots


@dataclass(frozen=True)
class Attacked:
    """All attacks on a graph: flips added and removed, and the answer after each."""

    adds: np.ndarray
    removes: np.ndarray
    answers: list[int | None]
    totals: np.ndarray

    def radius(self, label: int | None, num_slots: int) -> int:
        """The true one."""
        sizes = (self.adds + self.removes)[[answer != label for answer in self.answers]]
        return num_slots if not len(sizes) else min(num_slots, int(sizes.min()) - 1)

    def withstood(self, label: int | None, adds: int, removes: int) -> bool:
        """Whether no attack of at most so many additions and removals changes the answer."""
        inside = (self.adds <= adds) & (self.removes <= removes)
        return all(answer == label for answer, counts in zip(self.answers, inside, strict=True) if counts)


def random_case(
    rng: np.random.Generator,
    *,
    nodes: int,
    kinds: int = 1,
    classes: int = 2,
    frozen: float = 0.0,
    integers: bool = False,
    counted: bool = False,
    attacked: bool = True,
) -> tuple[LocalScores, Attacked | None]:
    """A random graph with random votes on all views, and the outcome of every attack.

    ``counted``: edges count in the offset. Without ``attacked``, attacks are not enumerated.
    """
    number = nodes * (nodes - 1) // 2
    pairs = pairs_of_slots(np.arange(number), nodes)
    edges = pairs[rng.random(number) < rng.uniform(0.1, 0.9)]
    kept = pairs[rng.random(number) < frozen]
    graph = Graph(nodes, edges, frozen=kept)
    kind = np.unique(rng.integers(kinds, size=nodes), return_inverse=True)[1].astype(np.int64)
    views = NodeViews.of(graph, kind, nodes - 1)
    columns = classes * (classes - 1) // 2
    scores = rng.normal(size=(len(views), columns))
    strengths, (first, second) = rng.normal(size=classes) * rng.choice([1.0, 3.0, 9.0]), np.triu_indices(classes, 1)
    offset = strengths[first] - strengths[second]
    if integers:
        scores, offset = np.rint(2 * scores), np.rint(offset)
    changes = edge_changes(graph, nodes - 1)
    offsets = np.tile(offset, (len(changes), 1))
    if counted:
        offsets += np.cumsum(rng.normal(size=offsets.shape), axis=0)
    offset, small = offsets[changes == 0][0], np.full(columns, 1e-15)
    evidence = LocalScores(
        graph,
        classes,
        kind,
        nodes - 1,
        offset,
        scores,
        small,
        offsets=offsets if counted else None,
    )
    if not attacked:
        return evidence, None
    table = {
        (own, *counts): row for row, (own, counts) in enumerate(zip(views.own, views.counts.tolist(), strict=True))
    }
    before = graph.slot_states
    # attack i flips slot s if the s-th binary digit of i is 1: no attack comes first
    flipped = np.arange(2**graph.num_slots)[:, None] >> np.arange(graph.num_slots) & 1 == 1
    after = before ^ flipped
    u, v = pairs_of_slots(graph.slots, nodes).T
    matrices = np.tile(graph.adjacency().astype(np.int64), (len(after), 1, 1))
    matrices[:, u, v] = matrices[:, v, u] = after
    counts = matrices @ np.eye(int(kind.max()) + 1, dtype=np.int64)[kind]
    rows = [[table[(own, *seen)] for own, seen in zip(kind, some, strict=True)] for some in counts.tolist()]
    adds, removes = (flipped & ~before).sum(axis=1), (flipped & before).sum(axis=1)
    totals = offsets[adds - removes - changes[0]] + scores[np.array(rows)].sum(axis=1)
    return evidence, Attacked(adds, removes, [answer_of(total, classes) for total in totals], totals)


def looked_at(evidence: LocalScores, depth: int) -> LocalScores:
    """The same votes, of which only those few flips away were looked at; of the others only a bound is known."""
    whole = evidence.views
    table = {
        (own, *counts): row for row, (own, counts) in enumerate(zip(whole.own, whole.counts.tolist(), strict=True))
    }
    near = NodeViews.of(evidence.graph, evidence.kinds, depth)
    rows = [table[(own, *counts)] for own, counts in zip(near.own, near.counts.tolist(), strict=True)]
    bound, offsets = np.abs(evidence.scores).max(axis=0), evidence.offsets
    if offsets is not None:
        offsets = offsets[np.isin(*(edge_changes(evidence.graph, deep) for deep in (evidence.depth, depth)))]
    return replace(evidence, depth=depth, scores=evidence.scores[rows], bound=bound, offsets=offsets)


def all_attacks(graph: Graph) -> list[tuple[np.ndarray, Graph]]:
    """Every set of flipped pairs, and the graph after it."""
    found = []
    for subset in range(2**graph.num_slots):
        pairs = pairs_of_slots(graph.slots[(subset >> np.arange(graph.num_slots)) & 1 == 1], graph.num_nodes)
        found.append((pairs, graph.flipped(pairs)))
    return found


def fill_table(model, rng):
    """Classes for a network without votes: for every number of nodes and budget, four parts of the numbers of edges."""
    sizes, budgets, cells = model.table.classes.shape
    parts = torch.from_numpy(rng.integers(0, model.num_classes, (sizes, budgets, 4)))
    model.table.sizes.copy_(torch.arange(1, sizes + 1))
    model.table.classes.copy_(parts.repeat_interleave(cells // 4, dim=2))


def fill_odds(model, rng):
    """Log-odds of a network that reads node features by chance: a tree of three leaves, a perceptron, and a shift."""
    classes, width = model.num_classes, 2 + 6 * model.in_features
    shares = rng.random((5, classes))
    state = {
        "roots": [0],
        "left": [1, 1, 3, 3, 4],
        "right": [2, 1, 4, 3, 4],
        "feature": [2, 0, width - 1, 0, 0],
        "threshold": [1.5, 0.0, 0.5, 0.0, 0.0],
        "value": shares / shares.sum(axis=1, keepdims=True),
        "columns": np.arange(width),
        "mean": np.zeros((1, width)),
        "scale": np.full((1, width), 3.0),
        "weights_0": rng.normal(size=(1, width, 4)),
        "bias_0": rng.normal(size=(1, 4)),
        "weights_1": rng.normal(size=(1, 4, 4)),
        "bias_1": rng.normal(size=(1, 4)),
        "weights_2": 4 * rng.normal(size=(1, 4, classes)),
        "bias_2": rng.normal(size=(1, classes)),
        "sharpness": np.full(1, 0.05),
        "shift": 0.05 * rng.normal(size=classes),
    }
    model.odds.take({name: np.asarray(value) for name, value in state.items()})
