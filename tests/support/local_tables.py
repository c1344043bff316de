"""Local classifiers given by a table of random votes, and what every attack on them does."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import torch

from flipproof import Graph
from flipproof.certificates.local_scores import LocalScores, answer_of, edge_changes
from flipproof.certificates.node_views import NodeViews, most_touches
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
    edge_labels: int = 0,
    counted: bool = False,
    attacked: bool = True,
) -> tuple[LocalScores, Attacked | None]:
    """A random graph with random votes on all views, and the outcome of every attack.

    With edge labels, an attack gives every pair that is not frozen any label or no edge; another label is a removal and an
    addition. ``counted``: edges count in the offset. Without ``attacked``, attacks are not enumerated.
    """
    number, labels = nodes * (nodes - 1) // 2, max(1, edge_labels)
    pairs = pairs_of_slots(np.arange(number), nodes)
    edges = pairs[rng.random(number) < rng.uniform(0.1, 0.9)]
    kept = pairs[rng.random(number) < frozen]
    graph = Graph(nodes, edges, frozen=kept, edge_labels=rng.integers(labels, size=len(edges)) if edge_labels else None)
    kind = np.unique(rng.integers(kinds, size=nodes), return_inverse=True)[1].astype(np.int64)
    depth = most_touches(graph, edge_labels)
    views = NodeViews.of(graph, kind, depth, edge_labels=edge_labels)
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
        depth,
        offset,
        scores,
        small,
        edge_labels=edge_labels,
        offsets=offsets if counted else None,
    )
    if not attacked:
        return evidence, None
    table = {
        (own, *counts): row for row, (own, counts) in enumerate(zip(views.own, views.counts.tolist(), strict=True))
    }
    before = views.label_matrix[*pairs_of_slots(graph.slots, nodes).T]
    # attack i changes slot s by the s-th digit of i: no attack comes first
    base = labels + 1
    digits = np.arange(base**graph.num_slots)[:, None] // base ** np.arange(graph.num_slots) % base
    after = (before + 1 + digits) % base - 1
    u, v = pairs_of_slots(graph.slots, nodes).T
    matrices = np.tile(views.label_matrix, (len(after), 1, 1))
    matrices[:, u, v] = matrices[:, v, u] = after
    own = np.eye(int(kind.max()) + 1, dtype=np.int64)[kind]
    counts = np.concatenate([(matrices == label).astype(np.int64) @ own for label in range(labels)], axis=2)
    rows = [[table[(own, *seen)] for own, seen in zip(kind, some, strict=True)] for some in counts.tolist()]
    changed = after != before
    adds, removes = (changed & (after >= 0)).sum(axis=1), (changed & (before >= 0)).sum(axis=1)
    totals = offsets[adds - removes - changes[0]] + scores[np.array(rows)].sum(axis=1)
    return evidence, Attacked(adds, removes, [answer_of(total, classes) for total in totals], totals)


def looked_at(evidence: LocalScores, depth: int) -> LocalScores:
    """The same votes, of which only those few flips away were looked at; of the others only a bound is known."""
    whole = evidence.views
    table = {
        (own, *counts): row for row, (own, counts) in enumerate(zip(whole.own, whole.counts.tolist(), strict=True))
    }
    near = NodeViews.of(evidence.graph, evidence.kinds, depth, edge_labels=evidence.edge_labels)
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


def all_labelled_attacks(graph: Graph, labels: int) -> list[tuple[int, int, Graph]]:
    """Every graph that differs in edges or edge labels, frozen pairs aside, with the additions and removals that lead to it."""
    pairs = pairs_of_slots(graph.slots, graph.num_nodes)
    known = dict(zip(map(tuple, graph.edges.tolist()), graph.edge_labels.tolist(), strict=True))
    kept = {pair: label for pair, label in known.items() if pair not in set(map(tuple, pairs.tolist()))}
    before = [known.get(pair, -1) for pair in map(tuple, pairs.tolist())]
    found = []
    for after in itertools.product(range(-1, labels), repeat=len(pairs)):
        changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
        edges = kept | {tuple(pair): new for pair, new in zip(pairs.tolist(), after, strict=True) if new >= 0}
        attacked = graph.replaced(edges=list(edges) or np.zeros((0, 2), dtype=int), edge_labels=list(edges.values()))
        found.append((sum(new >= 0 for _, new in changed), sum(old >= 0 for old, _ in changed), attacked))
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
    kinds = {name: value.dtype for name, value in model.odds.named_buffers()}
    model.odds.load_state_dict({name: torch.tensor(np.array(value)).to(kinds[name]) for name, value in state.items()})
