"""Local classifiers whose answers change easily, and the truth about attacks on nodes and edges of small graphs."""

from dataclasses import dataclass, replace

import numpy as np
import torch

import flipproof as fp
from flipproof.certificates.certificate import NODE_CHANGES
from flipproof.certificates.local_scores import LocalScores, answer_of, edge_changes
from flipproof.certificates.node_views import NodeViews
from flipproof.defences.local_votes import answer_to
from flipproof.graphs import pairs_of_slots
from flipproof.models import Local


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
    graph = fp.Graph(nodes, edges, frozen=kept)
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
    changed = offsets if counted else None
    evidence = LocalScores(graph, classes, kind, nodes - 1, offset, scores, small, offsets=changed)
    if not attacked:
        return evidence, None
    table, before = rows_of(views), graph.slot_states
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


def rows_of(views: NodeViews) -> dict[tuple[int, ...], int]:
    """The row of every view: the kind of its node, and the number of neighbours of each kind."""
    return {(own, *seen): row for row, (own, seen) in enumerate(zip(views.own, views.counts.tolist(), strict=True))}


def looked_at(evidence: LocalScores, depth: int) -> LocalScores:
    """The same votes, of which only those few flips away were looked at; of the others only a bound is known."""
    known = rows_of(evidence.views)
    rows = [known[view] for view in rows_of(NodeViews.of(evidence.graph, evidence.kinds, depth))]
    bound, offsets = np.abs(evidence.scores).max(axis=0), evidence.offsets
    if offsets is not None:
        offsets = offsets[np.isin(*(edge_changes(evidence.graph, deep) for deep in (evidence.depth, depth)))]
    return replace(evidence, depth=depth, scores=evidence.scores[rows], bound=bound, offsets=offsets)


def all_attacks(graph: fp.Graph) -> list[tuple[np.ndarray, fp.Graph]]:
    """Every set of flipped pairs, and the graph after it."""
    attacks = []
    for subset in range(2**graph.num_slots):
        pairs = pairs_of_slots(graph.slots[(subset >> np.arange(graph.num_slots)) & 1 == 1], graph.num_nodes)
        attacks.append((pairs, graph.flipped(pairs)))
    return attacks


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


CASES = {
    "unlabelled": {},
    "sizes known": {"sizes": True},
    "labelled": {"labels": 3},
    "several classes": {"labels": 2, "classes": 3},
    "frozen pairs": {"frozen": 0.3},
    "labelled, frozen pairs": {"labels": 2, "frozen": 0.3},
    "counts only": {"counts_only": True},
}


def wild(in_features=0, num_classes=2, *, strength=1.0, **given):
    """A network whose votes and offset differ much from graph to graph."""
    model = Local(in_features, num_classes, hidden=8, **given).eval()
    if model.counts_only:
        fill_table(model, np.random.default_rng(given.get("seed")))
    with torch.no_grad():
        if not model.counts_only:
            model.voters.outer.weight.mul_(30 * strength)
            model.voters.view.weight.mul_(3)
            model.voters.offset[-1].weight.mul_(10)
    if model.in_features:
        fill_odds(model, np.random.default_rng(given.get("seed")))
    return model


def random_graph(rng, nodes, *, labels=0, frozen=0.0):
    pairs = np.array([(u, v) for u in range(nodes) for v in range(u + 1, nodes)])
    edges = pairs[rng.random(len(pairs)) < 0.5]
    return fp.Graph(
        nodes,
        edges,
        np.eye(labels)[rng.integers(labels, size=nodes)] if labels else None,
        frozen=pairs[rng.random(len(pairs)) < frozen],
    )


def removed_by_hand(graph, node):
    """Written without the code under test: an adjacency matrix loses a row and a column."""
    stay = [other for other in range(graph.num_nodes) if other != node]
    number = {old: new for new, old in enumerate(stay)}
    edges, frozen = (
        [(number[u], number[v]) for u, v in pairs.tolist() if node not in (u, v)]
        for pairs in (graph.edges, graph.frozen)
    )
    x = graph.node_features
    return fp.Graph(len(stay), edges, None if x is None else x[stay], frozen=frozen)


def one_change(graph, change, labels):
    """Every graph that one change of a node makes."""
    x, n = graph.node_features, graph.num_nodes
    if change == "removed":
        return [removed_by_hand(graph, node) for node in range(n)] if n > 1 else []
    if x is None:
        return [graph.replaced(num_nodes=n + 1)] if change == "added" else []
    if change == "added":
        return [graph.replaced(num_nodes=n + 1, node_features=[*x, row]) for row in np.eye(labels)]
    return [graph.replaced(node_features=[*x[:v], row, *x[v + 1 :]]) for v in range(n) for row in np.eye(labels)]


def true_radius(local, graph, change, *, nodes=1, labels=0):
    """The flips that the answer withstands beside up to so many changes, by trying every attack."""
    answer = answer_to(local, graph)
    reached = [[graph]]
    for _ in range(nodes):
        reached.append([after for before in reached[-1] for after in one_change(before, change, labels)])
    changed_graphs = [one for level in reached for one in level]
    smallest = min(changed.num_slots for changed in changed_graphs)  # by convention: more flips do not exist
    for changed in changed_graphs:
        fooled = [len(pairs) for pairs, attacked in all_attacks(changed) if answer_to(local, attacked) != answer]
        smallest = min([smallest, *(size - 1 for size in fooled)])
    return smallest


def compared(*, networks, nodes, labels=0, classes=2, frozen=0.0, sizes=False, counts_only=False):
    """For random networks and graphs: what is certified beside one change of a node, and the truth, -1 if it is not withstood.

    Abstentions are left out.
    """
    rng = np.random.default_rng(3)
    for seed in range(networks):
        strength = 0.1 * (1 + seed % 3)
        model = wild(labels, classes, strength=strength, counts_only=counts_only, seed=seed)
        model.learn_sizes(sizes)
        local = fp.LocalClassifier(model, trust_features=True)
        graph = random_graph(rng, nodes, labels=labels, frozen=frozen)
        certificate = local.certify(graph, nodes=1)
        assert answer_to(local, graph) == local.predict(graph) == certificate.label
        for change in () if certificate.abstains else NODE_CHANGES:
            certified = getattr(certificate.node_radii, change)
            assert certified <= certificate.radius
            yield certified, true_radius(local, graph, change, labels=labels)
