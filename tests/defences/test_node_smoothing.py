"""Certificates of single nodes: votes against a plain loop over noisy copies, storage, and what is refused."""

import re

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, global_mean_pool

from flipproof import BitNoise, EdgeNoise, Graph, InputError, LabelNoise, NodeVotes, SmoothedClassifier
from flipproof.models import GCN, NodeGCN
from flipproof.noise import SampleStream

NODES, WIDTH, CLASSES = 30, 6, 3
RNG = np.random.default_rng(0)
EDGES = [(u, v) for u in range(NODES) for v in range(u + 1, NODES) if RNG.random() < 0.1]
BITS = Graph(NODES, EDGES, (RNG.random((NODES, WIDTH)) < 0.3).astype(np.float32))
LABELS = Graph(NODES, EDGES, np.eye(WIDTH, dtype=np.float32)[RNG.integers(WIDTH, size=NODES)])
STILL = EdgeNoise(add=0, remove=0)


class UserGCN(nn.Module):
    """As users write it; with ``batch`` if wanted, pooled if wanted."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.first, self.second = GCNConv(WIDTH, 8), GCNConv(8, CLASSES)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


class WithBatch(UserGCN):
    def forward(self, x, edge_index, batch):
        return super().forward(x, edge_index)


class Pooling(UserGCN):
    def forward(self, x, edge_index, batch):
        return global_mean_pool(super().forward(x, edge_index), batch)


class Random(UserGCN):
    def forward(self, x, edge_index):
        return super().forward(x, edge_index) + torch.randn(len(x), CLASSES)


def own():
    return NodeGCN(WIDTH, CLASSES, hidden=8, seed=3).eval()


def smoothed(model, noise, feature_noise=None):
    return SmoothedClassifier(model, noise, num_classes=CLASSES, feature_noise=feature_noise, trust_features=True)


@pytest.mark.parametrize("make", [own, lambda: UserGCN().eval(), lambda: WithBatch().eval()])
@pytest.mark.parametrize(
    ("graph", "noise", "feature_noise"),
    [
        (BITS, EdgeNoise(add=0, remove=0.6), None),
        (BITS, EdgeNoise(add=0.02, remove=0.4), None),
        (BITS, STILL, BitNoise(add=0.05, remove=0.6)),
        (LABELS, EdgeNoise(keep=0.9), LabelNoise(keep=0.7)),
    ],
)
def test_votes_are_those_of_a_plain_loop(make, graph, noise, feature_noise):
    model, samples = make(), 50
    votes = smoothed(model, noise, feature_noise).sample_nodes(graph, samples=samples, seed=4)
    batch, _ = SampleStream(graph, noise, seed=4).batch(0, samples)
    shown = [graph.node_features] * samples
    if feature_noise is not None:
        shown = list(feature_noise.stream(graph, seed=4).shown(0, samples)[0])
    counts = np.zeros((NODES, CLASSES), dtype=int)
    for copy, features in zip(batch.graphs(), shown, strict=True):
        edge_index = copy.to_pyg().edge_index
        more = (torch.zeros(NODES, dtype=torch.int64),) if isinstance(model, WithBatch) else ()
        with torch.no_grad():
            answers = model(torch.from_numpy(features.copy()), edge_index, *more).argmax(dim=1)
        counts[np.arange(NODES), answers.numpy()] += 1
    assert np.array_equal(votes.counts, counts)


def test_degrees_are_those_of_the_noisy_copy():
    class ByDegree(nn.Module):
        def forward(self, x, edge_index):
            return torch.cat([x < 1, x >= 1], dim=1).float()

    bare, noise = Graph(NODES, EDGES), EdgeNoise(add=0, remove=0.5)
    smooth = SmoothedClassifier(ByDegree().eval(), noise, num_classes=2, features="degree")
    votes = smooth.sample_nodes(bare, samples=200, seed=0)
    batch, _ = SampleStream(bare, noise, seed=0).batch(0, 200)
    assert votes.counts[:, 0].tolist() == sum((copy.degrees == 0).astype(int) for copy in batch.graphs()).tolist()


@pytest.mark.parametrize("feature_noise", [None, BitNoise(add=0.05, remove=0.6)])
def test_stored_votes_come_back(feature_noise, tmp_path):
    votes = smoothed(own(), EdgeNoise(add=0, remove=0.6), feature_noise).sample_nodes(BITS, samples=100, seed=0)
    votes.save(tmp_path / "votes.npz")
    again = NodeVotes.load(tmp_path / "votes.npz")
    assert again == votes
    assert again.made_again()
    assert again.certificates(alpha=0.01) == votes.certificates(alpha=0.01)
    altered = NodeVotes(votes.counts, BITS, votes.noise, 1, votes.checksums)
    assert not altered.made_again()


def test_certificates_of_chosen_nodes():
    smooth = smoothed(own(), EdgeNoise(add=0, remove=0.6))
    votes = smooth.sample_nodes(BITS, samples=300, seed=0)
    everywhere, few = votes.certificates(alpha=0.01), [7, 3, 3]
    assert smooth.certify_nodes(BITS, samples=300, alpha=0.01, seed=0) == everywhere
    assert votes.certificates(few, alpha=0.01) == [everywhere[node] for node in few]
    mask = np.isin(np.arange(NODES), few)
    assert votes.certificates(mask, alpha=0.01) == [everywhere[3], everywhere[7]]
    together = votes.certificates(few, alpha=0.03, simultaneous=True)
    assert [one.p_lower for one in together] == [everywhere[node].p_lower for node in few]
    assert any(one.label is not None for one in everywhere)
    for node, one in enumerate(everywhere):
        assert one.label in (None, int(votes.counts[node].argmax()))
        assert one.counts == tuple(votes.counts[node].tolist())


NOISE = EdgeNoise(add=0, remove=0.6)
REFUSED = {
    "a node that is not there": (
        own,
        lambda smooth: smooth.certify_nodes(BITS, [0, NODES]),
        r"nodes must lie in 0\.\.29",
    ),
    "a negative node": (own, lambda smooth: smooth.certify_nodes(BITS, [-1]), "got -1"),
    "half a node": (own, lambda smooth: smooth.certify_nodes(BITS, [0.5]), "nodes must be numbers of nodes"),
    "a model of graphs": (lambda: Pooling().eval(), lambda smooth: smooth.certify_nodes(BITS), "model for graphs"),
    "a dense model of graphs": (
        lambda: GCN(WIDTH, CLASSES).eval(),
        lambda smooth: smooth.certify_nodes(BITS),
        r"forward\(x, edge_index\)",
    ),
    "a graph for a model of nodes": (own, lambda smooth: smooth.certify(BITS, samples=10), "certify_nodes"),
    "a random model": (
        lambda: Random().eval(),
        lambda smooth: smooth.certify_nodes(BITS),
        "function of the noisy graph",
    ),
    "training mode": (UserGCN, lambda smooth: smooth.certify_nodes(BITS), "evaluation mode"),
    "too many classes": (own, lambda smooth: smooth.certify_nodes(BITS, alpha=2), "alpha must lie"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    make, use, words = REFUSED[case]
    with pytest.raises(InputError, match=words) as error:
        use(smoothed(make(), NOISE))
    assert "\n" not in str(error.value)


def test_features_that_do_not_suit_their_noise():
    numbers = BITS.replaced(node_features=RNG.normal(size=(NODES, WIDTH)))
    with pytest.raises(InputError, match=re.escape("BitNoise needs binary node features")):
        smoothed(own(), STILL, BitNoise(keep=0.9)).certify_nodes(numbers)
