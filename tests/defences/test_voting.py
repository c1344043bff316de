"""The voting classifier around models of every kind: what it answers, what it certifies, what it refuses."""

from functools import cache

import numpy as np
import pytest
import torch

import flipproof as fp
from flipproof.models import GCN
from support.attacked import PygNetwork

SIX = fp.Graph(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5), (0, 3)])


@cache
def trained(groups):
    """A small network of the paper's data, trained for a few seconds on sub-graphs, and its test graphs."""
    parts = fp.datasets.split(fp.datasets.topologies(160, seed=0), train=96, seed=0)
    model = fp.models.GIN(in_features=1, num_classes=8, hidden=24, seed=0)
    options = {"epochs": 30, "batch_size": 32, "validation": parts.test[:16], "seed": 0}
    if groups is None:
        fp.train(model, parts.train, **options)
    else:
        assert fp.train_voting(model, parts.train, groups=groups, **options).settings["groups"] == groups
    return model, parts.test


def test_the_answers_of_every_kind_of_model_are_those_on_the_sub_graphs():
    """Dense, message passing and callable, in batches and one by one; features are the sub-graph's own degrees."""
    torch.manual_seed(0)
    models = {"dense": GCN(in_features=1, num_classes=3, seed=1).eval(), "message passing": PygNetwork("GCNConv")}
    groups = fp.EdgeGroups(40)
    for path, model in models.items():
        voting = fp.VotingClassifier(model, groups, features="degree", num_classes=3)
        assert voting.classifier.path == path
        alone = [voting.classifier.label_of(part) for part in groups.sub_graphs(SIX)]
        assert voting.vote(SIX).labels.tolist() == alone
    counted = fp.VotingClassifier(lambda graphs: [min(g.num_edges, 2) for g in graphs], groups, num_classes=3)
    sizes = np.bincount(groups.of_pairs(SIX.edges), minlength=40)
    assert counted.vote(SIX).labels.tolist() == np.minimum(sizes, 2).tolist()


def test_many_sub_graphs_are_cut_into_batches():
    largest = 0

    def classify(graphs):
        nonlocal largest
        largest = max(largest, len(graphs))
        return [min(g.num_edges, 1) for g in graphs]

    votes = fp.VotingClassifier(classify, 1000, num_classes=2).vote(SIX)
    assert votes.counts.tolist() == [993, 7]
    assert 8 < largest <= 256


def test_what_would_make_certificates_false_is_refused():
    degrees = [SIX.replaced(node_features=SIX.degrees[:, None].astype(float)), SIX]
    model = GCN(in_features=1, num_classes=2, seed=0).eval()
    with pytest.raises(fp.InputError, match="degree"):
        fp.VotingClassifier(model, 3).certify(degrees[0])
    trusted = fp.VotingClassifier(model, 3, trust_features=True)
    answers = [trusted.classifier.label_of(part) for part in fp.EdgeGroups(3).sub_graphs(degrees[0])]
    assert trusted.certify(degrees[0]).counts == tuple(np.bincount(answers, minlength=2).tolist())
    draw = np.random.default_rng(0)
    with pytest.raises(fp.InputError, match="it gave different answers"):
        fp.VotingClassifier(lambda graphs: draw.integers(0, 2, len(graphs)), 3, num_classes=2).predict(SIX)
    with pytest.raises(fp.InputError, match="evaluation mode"):
        fp.VotingClassifier(GCN(in_features=1, num_classes=2).train(), 3, features="degree")
    with pytest.raises(fp.InputError, match="groups must be an integer"):
        fp.VotingClassifier(model, 0)
    with pytest.raises(fp.InputError, match="num_classes is needed, as function does not tell it"):
        fp.VotingClassifier(lambda graphs: [0] * len(graphs), 3)


@pytest.mark.parametrize("name", ["random", "greedy", "gradient"])
def test_attacks_succeed_beyond_the_radius_and_never_within(name):
    network, test = trained(3)
    voting = fp.VotingClassifier(network, 3, features="degree")
    attack, certificates = fp.attacks.by_name(name), voting.certify_all(test[:6])
    successes = 0
    for graph, certificate in zip(test[:6], certificates, strict=True):
        result = attack(voting, graph, budget=4, max_calls=1500)
        assert result.label == certificate.label
        assert result.alpha == 0
        if result.success:
            successes += 1
            assert voting.predict(result.graph) != certificate.label
            assert len(result.flips) > certificate.radius
    assert successes >= 1


def test_training_on_sub_graphs_helps_the_vote():
    right = {}
    for groups in (None, 3):
        model, test = trained(groups)
        voting = fp.VotingClassifier(model, 3, features="degree")
        right[groups] = np.mean([voting.predict(graph) == graph.label for graph in test])
    assert right[3] > right[None] + 0.1
