"""Local networks and prices of votes against all attacks on small graphs, and against attacks on real ones."""

import os

import pytest

import flipproof as fp
from flipproof.models import Local

pytestmark = pytest.mark.guarantee


@pytest.mark.parametrize("name", ["topologies", "MUTAG", "IMDB-BINARY"])
def test_attacks_up_to_12_flips_on_real_graphs(name):
    """Greedy and random attacks never succeed inside a radius, and they do succeed outside."""
    if name == "topologies":
        graphs = fp.datasets.topologies(60, seed=5)
    else:
        root = os.environ.get("FLIPPROOF_DATA")
        if root is None:
            pytest.skip("no TU data sets (set FLIPPROOF_DATA to the folder that holds them)")
        graphs = fp.datasets.tu(name, root=root)
    parts = fp.datasets.split(graphs, test=0.2, seed=0)
    first = parts.train[0].node_features
    model = Local(0 if first is None else first.shape[1], graphs.num_classes, seed=0)
    # not through its certificate: radii are small, and attacks have something to do
    fp.train(model, parts.train, features=None if model.in_features else "constant", epochs=40)
    local = fp.LocalClassifier(model)
    succeeded = 0
    for graph in list(parts.test)[:12]:
        certificate = local.certify(graph)
        if certificate.abstains or graph.num_nodes > 40:
            continue
        for search in (fp.attacks.greedy, fp.attacks.random):
            result = search(local, graph, budget=12, label=certificate.label, seed=0)
            succeeded += result.success
            assert not result.success or result.size > certificate.radius
    assert succeeded


@pytest.mark.parametrize("groups", [1, 3])
def test_attacks_on_a_trained_network(groups):
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
            strongest = fp.attacks.strongest(voting, graph, budget=budget, attacks=["greedy", "random"])
            assert not strongest.success
        attack = votes.attack()
        if attack is not None:
            known += 1
            assert len(attack) == certificate.radius + 1
            assert voting.predict(graph.flipped(attack)) != certificate.label
    assert certified > 2
    assert known > 2
