"""No attack inside a priced radius changes the majority of a trained network; the known attack succeeds just outside."""

from __future__ import annotations

import pytest

import flipproof as fp

pytestmark = pytest.mark.guarantee


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
