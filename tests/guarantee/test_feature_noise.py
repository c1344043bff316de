"""The whole path under noise on edges and features: sampled votes of known shares, and all joint attacks inside the grid."""

import numpy as np
import pytest
from scipy import stats

import flipproof as fp
from flipproof.certificates.sampled_votes import METHODS
from support.joint_worlds import World

ALPHA = 0.1
PAIRS = [(0, 1), (0, 2), (1, 2)]

WORLDS = [
    World(fp.EdgeNoise(keep=0.8), fp.LabelNoise(keep=0.8), 3, 3, 2),
    World(fp.EdgeNoise(add=0.1, remove=0.4), fp.LabelNoise(keep=0.7), 3, 3, 3),
    World(fp.EdgeNoise(add=0, remove=0), fp.LabelNoise(keep=0.6), 3, 3, 3),
    World(fp.EdgeNoise(keep=0.9), fp.BitNoise(add=0.05, remove=0.4), 3, 6),
    World(fp.EdgeNoise(add=0, remove=0.5), fp.BitNoise(keep=0.8), 3, 6),
]
"""Three nodes with a label or two bits each."""


def graph_of(world, state):
    edges = [pair for pair, there in zip(PAIRS, state[:3].tolist(), strict=True) if there]
    if isinstance(world.feature_noise, fp.BitNoise):
        return fp.Graph(3, edges, state[3:].reshape(3, 2).astype(np.float32))
    return fp.Graph(3, edges, np.eye(world.categories, dtype=np.float32)[state[3:]])


class Table:
    """A classifier by its class of every graph of a world; a black box."""

    def __init__(self, world, labels):
        self.labels, self.bits = labels, isinstance(world.feature_noise, fp.BitNoise)
        base = [2] * 3 + [2 if self.bits else world.categories] * (6 if self.bits else 3)
        self.weights = np.cumprod([1, *base[:0:-1]])[::-1]

    def number(self, graph):
        edges = set(map(tuple, graph.edges.tolist()))
        features = graph.node_features.ravel() if self.bits else graph.node_features.argmax(axis=1)
        return int(np.concatenate([[pair in edges for pair in PAIRS], features]).astype(int) @ self.weights)

    def __call__(self, graphs):
        return self.labels[[self.number(graph) for graph in graphs]]


def classifier(world, rng, clean):
    """Class 0 near a graph, some other classes elsewhere: certificates are then tried at their limits."""
    distance = world.changes[clean].sum(axis=1) + rng.normal(scale=0.3, size=len(world.states))
    return np.where(distance <= rng.choice([1.5, 2, 2.5, 3, 4]), 0, rng.integers(1, 3, size=len(distance)))


def false_certificates(world, seed, cases, samples):
    """Certificates of sampled classifiers against the truth, by enumeration: false ones, all, and attacks that they certify."""
    rng, false, number, beyond = np.random.default_rng(seed), 0, 0, 0
    for case in range(cases):
        clean = int(rng.integers(len(world.states)))
        labels = classifier(world, rng, clean)
        shares = world.law @ np.eye(3)[labels]
        model = Table(world, labels)
        graph = graph_of(world, world.states[clean])
        assert model.number(graph) == clean
        # on three nodes, labels are often those of the degrees by chance
        options = {"num_classes": 3, "trust_features": True}
        smooth = fp.SmoothedClassifier(model, world.noise, feature_noise=world.feature_noise, **options)
        votes = smooth.sample(graph, samples=samples, seed=1000 * seed + case)
        assert stats.chisquare(votes.counts + 1e-9, shares[clean] * samples + 1e-9, sum_check=False).pvalue > 1e-6
        methods = METHODS if world.noise.symmetric else METHODS[:2]
        certificate = fp.certify_votes(votes, alpha=ALPHA, method=methods[case % len(methods)])
        wrong, number = False, number + 1
        for attack, attacked in world.kinds_of_attacks(clean):
            if (
                all(count < size for count, size in zip(attack, certificate.grid.shape, strict=True))
                and certificate.grid[attack]
            ):
                rivals = np.delete(shares[attacked], certificate.label, axis=1).max(axis=1)
                wrong |= bool((shares[attacked, certificate.label] <= rivals).any())
                beyond += any(attack)
        only_features = world.changes[clean][:, certificate.grid.ndim - feature_axes(world) :].sum(axis=1)
        only_edges = world.changes[clean].sum(axis=1) - only_features
        inside = (only_edges == 0) & (only_features <= (certificate.feature_radius or 0))
        inside |= (only_features == 0) & (only_edges <= certificate.radius)
        if certificate.label is not None:
            wrong |= bool((shares[inside].argmax(axis=1) != certificate.label).any())
        false += wrong
    return false, number, beyond


def feature_axes(world):
    return len(world.feature_noise.changes(world.categories))


def test_no_joint_attack_inside_the_grid_changes_the_answer():
    totals = np.sum([false_certificates(world, seed, cases=3, samples=500) for seed, world in enumerate(WORLDS)], 0)
    false, number, beyond = totals.tolist()
    assert beyond > 20
    assert stats.binom.sf(false - 1, number, ALPHA) > 1e-6


@pytest.mark.guarantee
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: f"{world.noise}-{world.feature_noise}")
def test_no_joint_attack_inside_the_grid_changes_the_answer_often(world):
    """False alarm: 1e-6 for each world, at failure probability alpha; every certificate has votes of its own."""
    false, number, beyond = false_certificates(world, 17, cases=100, samples=1000)
    assert beyond > 60
    assert stats.binom.sf(false - 1, number, ALPHA) > 1e-6


def test_leaking_clean_features_are_caught(monkeypatch):
    """The planted fault: the model is shown the clean features."""
    from flipproof.noise.feature_stream import LabelStream

    honest = LabelStream.shown

    def leaking(self, start, stop):
        rows, content = honest(self, start, stop)
        return np.broadcast_to(self.features, rows.shape), content

    monkeypatch.setattr(LabelStream, "shown", leaking)
    with pytest.raises(AssertionError):
        false_certificates(WORLDS[2], 0, cases=5, samples=500)
