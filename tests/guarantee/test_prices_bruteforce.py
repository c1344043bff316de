"""Prices of votes against all attacks on small graphs, and against attacks in the real world."""

from __future__ import annotations

import numpy as np
import pytest

import flipproof as fp
from flipproof.graphs import pairs_of_slots
from support.tables import Table, truth_of

pytestmark = pytest.mark.guarantee


@pytest.mark.parametrize("seed", range(12))
def test_all_attacks(seed: int) -> None:
    """Random tables of 2 to 5 classes, 1 to 7 groups, frozen pairs; many answers alike, so that prices above 1 are common."""
    generator = np.random.default_rng(seed)
    robust = found = exact = 0
    for _ in range(60):
        size, classes = int(generator.integers(3, 6)), int(generator.integers(2, 6))
        slots = size * (size - 1) // 2
        state = generator.choice(4, slots, p=[0.4, 0.4, 0.1, 0.1])
        pairs = pairs_of_slots(np.arange(slots), size)
        graph = fp.Graph(size, pairs[state % 2 == 1], frozen=pairs[state >= 2])
        loyalty = float(generator.choice([0.0, 0.6, 0.9, 0.97]))
        model = Table(classes, int(generator.integers(2**30)), int(generator.integers(classes)), loyalty)
        groups = fp.EdgeGroups(int(generator.integers(1, 8)), int(generator.integers(100)))
        voting = fp.VotingClassifier(model, groups, num_classes=classes)
        truth = truth_of(voting, model, graph)
        for arguments in ({"depth": 0}, {"depth": 1}, {"depth": 2}, {"calls": 30}, {"depth": 64}):
            votes = voting.price(graph, **arguments)
            certificate = fp.certify_group_votes(votes)
            assert certificate.radius <= truth.radius
            for adds, removes in np.argwhere(certificate.grid).tolist():
                assert truth.withstood(adds, removes)
            attack = votes.attack()
            if attack is not None:
                assert len(attack) == truth.radius + 1 == certificate.radius + 1
                assert voting.predict(graph.flipped(attack)) != certificate.label
            if arguments == {"depth": 1}:
                robust += truth.radius > 0
                found += certificate.radius > 0
                exact += certificate.radius == truth.radius
        assert certificate.radius == truth.radius
    # at depth 1 every truly robust case has a positive radius where votes alone do not tell
    assert found >= 0.8 * robust
    assert exact > 0


@pytest.mark.parametrize("groups", [1, 3])
def test_attacks_on_a_trained_network(groups: int) -> None:
    split = fp.datasets.split(fp.datasets.topologies(64, seed=1), train=48, seed=1)
    model = fp.models.GIN(in_features=1, num_classes=8, seed=0)
    fp.train_voting(model, split.train, groups=groups, renumber=True, epochs=30, flips=1, learning_rate=0.005)
    voting = fp.VotingClassifier(model, groups, features="degree")
    certified = known = 0
    for graph in split.test:
        votes = voting.price(graph, depth=2, calls=3_000)
        certificate = fp.certify_group_votes(votes)
        assert certificate.label == voting.predict(graph)
        if certificate.radius:
            certified += 1
            budget = min(certificate.radius, 3)
            found = fp.attacks.strongest(
                voting, graph, budget=budget, attacks=["greedy", "random"], label=certificate.label
            )
            assert not found.success
        attack = votes.attack()
        if attack is not None:
            known += 1
            assert len(attack) == certificate.radius + 1
            assert voting.predict(graph.flipped(attack)) != certificate.label
    assert certified > 2
    assert known > 2
