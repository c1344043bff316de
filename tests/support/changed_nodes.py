"""Local networks whose answers change easily, and the truth about attacks on nodes and edges of small graphs."""

from __future__ import annotations

import numpy as np
import torch

import flipproof as fp
from flipproof import Graph
from flipproof.certificates.certificate import NODE_CHANGES
from flipproof.certificates.local_scores import answer_of
from flipproof.defences.local import _totals
from flipproof.models import Local
from support.local_tables import all_attacks, fill_odds, fill_table

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
    return Graph(
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
    return Graph(len(stay), edges, None if x is None else x[stay], frozen=frozen)


def one_change(graph, change, labels):
    """Every graph that one change of a node makes."""
    x, n = graph.node_features, graph.num_nodes
    if change == "removed":
        return [removed_by_hand(graph, node) for node in range(n)] if n > 1 else []
    if x is None:
        return [graph.replaced(num_nodes=n + 1)] if change == "added" else []
    if change == "added":
        return [graph.replaced(num_nodes=n + 1, node_features=[*x, row]) for row in np.eye(labels)]
    return [
        graph.replaced(node_features=[*x[:node], row, *x[node + 1 :]]) for node in range(n) for row in np.eye(labels)
    ]


def deployed(local, graph):
    """As ``local.predict``, without its checks, which take most of the time."""
    return answer_of(_totals(local, graph), local.num_classes)


def true_radius(local, graph, change, *, nodes=1, labels=0):
    """The flips that the answer withstands beside up to so many changes, by trying every attack."""
    answer = deployed(local, graph)
    reached = [[graph]]
    for _ in range(nodes):
        reached.append([after for before in reached[-1] for after in one_change(before, change, labels)])
    changed_graphs = [one for level in reached for one in level]
    smallest = min(changed.num_slots for changed in changed_graphs)  # by convention: more flips do not exist
    for changed in changed_graphs:
        fooled = [len(pairs) for pairs, attacked in all_attacks(changed) if deployed(local, attacked) != answer]
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
        assert deployed(local, graph) == local.predict(graph) == certificate.label
        for change in () if certificate.abstains else NODE_CHANGES:
            found = getattr(certificate.node_radii, change)
            assert found <= certificate.radius
            yield found, true_radius(local, graph, change, labels=labels)
