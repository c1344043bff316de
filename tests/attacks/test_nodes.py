"""Attacks on single nodes, of a model and of its smoothed version."""

import numpy as np
import pytest
import torch
from torch import nn

from flipproof import BitNoise, EdgeNoise, Graph, InputError, attacks
from flipproof.defences.baselines import NoDefence
from flipproof.defences.defence import DefendedClassifier
from flipproof.defences.node_smoothing import NodeSampling, NodeSmoothing
from flipproof.defences.target import Effort

STILL = EdgeNoise(add=0, remove=0)
EDGES = [(0, 1), (0, 2), (0, 3), (0, 4), (4, 5), (5, 6), (6, 7)]
BITS = np.eye(9)[:, :3].astype(np.float32)
GRAPH = Graph(9, EDGES, BITS, node=0)


class Sums(nn.Module):
    """Class 1 where a node and its neighbours have many ones, or many neighbours."""

    def forward(self, x, edge_index):
        total = x.sum(dim=1).index_add(0, edge_index[1], 1 + x.sum(dim=1)[edge_index[0]])
        return torch.stack([torch.full_like(total, 2.5), total], dim=1)


def defended(defence):
    return DefendedClassifier(
        Sums().eval(), defence, num_classes=2, features="own", convention="nodes", trust_features=True
    )


BASE = defended(NoDefence())


@pytest.mark.parametrize("name", ["greedy", "random", "exhaustive"])
def test_the_smallest_attack_on_a_model_is_found(name):
    """Node 0 scores 1 + 3 + 1 + 1 + 1 = 7; every neighbour that goes takes 1, or 2 if it has a one."""
    assert BASE.predict(GRAPH) == 1
    result = attacks.by_name(name)(BASE, GRAPH, budget=4)
    assert result.success
    assert result.size == (3 if name != "random" else result.size)
    assert BASE.predict(result.graph) == 0
    assert result.graph.node == 0
    assert all(0 in pair or {1, 2, 3, 4} & set(pair) for pair in result.flips), "at the node or a neighbour"
    assert not attacks.by_name(name)(BASE, GRAPH, budget=2).success


def test_bits_and_edges_are_changed_together():
    result = attacks.greedy(BASE, GRAPH, budget=2, changes=2)
    assert result.success
    assert result.changes
    assert BASE.predict(result.graph) == 0


@pytest.mark.parametrize(
    ("noise", "feature_noise"),
    [(EdgeNoise(add=0.05, remove=0.3), None), (STILL, BitNoise(add=0.1, remove=0.2)), (EdgeNoise(keep=0.9), None)],
)
def test_an_attack_on_a_smoothed_model_is_seen_on_fresh_noise(noise, feature_noise):
    """What is confirmed is the smoothed answer; no success within what is certified."""
    smooth = defended(NodeSmoothing(noise, feature_noise))
    votes = smooth.defence.ask(smooth, GRAPH, NodeSampling(2_000, seed=3))
    certificate = votes.of(0).certify(alpha=0.01)
    assert certificate.label == 1
    result = attacks.greedy(smooth, GRAPH, budget=4, changes=2 * (feature_noise is not None), samples=64, seed=1)
    assert result.success
    assert smooth.predict(result.graph) == 0
    assert result.size > certificate.radius_beside(len(result.changes))


def test_the_search_sees_the_law_of_the_noise():
    """Over many copies, the share of votes after a flip is that of the attacked graph."""
    smooth, copies = defended(NodeSmoothing(EdgeNoise(add=0.1, remove=0.3))), 4_000
    target = smooth.defence.target(smooth, GRAPH, Effort(samples=copies))
    target.label = 1
    flips = np.flatnonzero(np.isin(GRAPH.slots, GRAPH.edge_slots))[None, :3]
    outcome = target.evaluate(np.concatenate([flips, np.full((1, 3), -1)]))
    for row, graph in enumerate((GRAPH.flipped(GRAPH.edges[:3]), GRAPH)):
        counts = smooth.defence.ask(smooth, graph, NodeSampling(copies, seed=5)).counts[0]
        assert abs(outcome.margins[row] - (int(counts[1]) - int(counts[0])) / copies) < 0.1, "five standard errors"


def test_what_is_refused():
    with pytest.raises(InputError, match="gradient attack is for graphs"):
        attacks.gradient(BASE, GRAPH, budget=1)
    with pytest.raises(InputError, match="about a node; got a graph without one"):
        attacks.greedy(defended(NodeSmoothing(EdgeNoise(keep=0.9))), GRAPH.replaced(node=None), budget=1)
    with pytest.raises(InputError, match="node pairs"):
        attacks.greedy(BASE, Graph(100_000, [(0, 1)], node=0), budget=1)
