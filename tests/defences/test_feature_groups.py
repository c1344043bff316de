"""Voting against changed node features: what sub-graphs show, and no attack within the certified region."""

import numpy as np
import pytest
import torch

import flipproof as fp
from flipproof.training.batches import LabelledGraphs, SubGraphs
from support.attacked import attacked_graphs, hashed

PATH = fp.Graph(4, [(0, 1), (1, 2), (2, 3)], np.eye(3)[[0, 1, 2, 0]])


@pytest.mark.parametrize("seed", range(6))
def test_no_attack_within_the_certified_region_changes_the_vote(seed):
    voting = fp.VotingClassifier(hashed(seed, 7), fp.EdgeGroups(3, key=seed), feature_groups=3, num_classes=2)
    certificate = voting.certify(PATH)
    assert certificate.axes == ("flips", "changed nodes")
    assert certificate.label == voting.predict(PATH)
    assert certificate.grid[certificate.radius, 0]
    assert certificate.grid[0, certificate.feature_radius]
    assert certificate.adds_radius == certificate.removes_radius == certificate.radius
    labels = {}
    for flips, changes in np.argwhere(certificate.grid[:3, :2]).tolist():
        for graph in attacked_graphs(PATH, flips, changes):
            key = graph.topology, graph.node_features.tobytes()
            labels[key] = voting.defence.votes(voting, graph).counts.argmax() if key not in labels else labels[key]
            assert labels[key] == certificate.label


def test_the_region_ends_where_an_attack_succeeds():
    """A classifier that knows the clean sub-graphs by heart and says something else of all others."""
    known = set()
    full = (fp.EdgeGroups(3, key=key) for key in range(100))
    groups = next(
        division
        for division in full
        if (np.bincount(division.of_graph(PATH), minlength=3) > 0).all()
        and (np.bincount(division.of_nodes(4, 3), minlength=3) > 0).all()
    )

    def by_heart(graphs):
        return [int((graph.topology, graph.node_features.tobytes()) not in known) for graph in graphs]

    for shown in groups.shown(PATH, 3):
        known |= {(graph.topology, graph.node_features.tobytes()) for graph in groups.sub_graphs(shown)}
    voting = fp.VotingClassifier(by_heart, groups, feature_groups=3, num_classes=2)
    certificate = voting.certify(PATH)
    assert certificate.counts == (9, 0)
    assert (certificate.radius, certificate.feature_radius) == (1, 1)  # two rows or columns are 6 of 9 votes
    ends = {(certificate.radius + 1, 0), (0, certificate.feature_radius + 1), (1, 1)}
    for flips, changes in ends:
        answers = [voting.defence.votes(voting, g).counts.argmax() for g in attacked_graphs(PATH, flips, changes)]
        assert 1 in answers


def test_a_sub_graph_shows_the_features_of_its_own_group():
    groups = fp.EdgeGroups(2, key=3)
    members = groups.of_nodes(4, 3)
    assert members.tolist() == groups.of_nodes(9, 3)[:4].tolist()
    for number, shown in enumerate(groups.shown(PATH, 3)):
        assert (shown.node_features[members == number] == PATH.node_features[members == number]).all()
        assert not shown.node_features[members != number].any()
    seen = []

    def look(graphs):
        seen.extend(graphs)
        return [0] * len(graphs)

    votes = fp.VotingClassifier(look, groups, feature_groups=3, num_classes=2).vote(PATH)
    assert len(votes) == 6
    wanted = [graph for shown in groups.shown(PATH, 3) for graph in groups.sub_graphs(shown)]
    tail = seen[-7:]  # the six, one of them again, alone
    assert all(
        any(np.array_equal(a.edges, b.edges) and np.array_equal(a.node_features, b.node_features) for b in tail)
        for a in wanted
    )


def test_evidence_keeps_what_it_needs():
    voting = fp.VotingClassifier(hashed(0, 4), 3, feature_groups=2, num_classes=2)
    votes = voting.vote(PATH)
    again = type(votes).from_bytes(votes.to_bytes())
    assert again == votes
    assert again.certify() == voting.certify(PATH)
    assert voting.defence.made(again, 2)
    assert not fp.VotingClassifier(hashed(0, 4), 3, num_classes=2).defence.made(again, 2)


def test_one_group_is_voting_as_it_was():
    plain = fp.VotingClassifier(hashed(1, 5), 3, num_classes=2)
    single = fp.VotingClassifier(hashed(1, 5), 3, feature_groups=1, num_classes=2)
    assert plain.certify(PATH, depth=1).to_dict() == single.certify(PATH, depth=1).to_dict()
    assert plain.price(PATH).digest == single.price(PATH).digest
    assert plain.certify(PATH).feature_radius is None


def test_how_the_model_is_run_depends_on_no_feature_value():
    voting = fp.VotingClassifier(hashed(0, 4), 3, feature_groups=2, num_classes=2)
    changed = PATH.replaced(node_features=np.eye(3)[[2, 2, 1, 0]])
    shown = [voting.shown(graph).node_features.tobytes() for graph in (PATH, changed)]
    assert shown[0] == shown[1]


def test_wrong_input_is_one_sentence():
    voting = fp.VotingClassifier(hashed(0, 4), 3, feature_groups=2, num_classes=2)
    with pytest.raises(fp.InputError, match="knows no prices; got depth 1"):
        voting.certify(PATH, depth=1)
    with pytest.raises(fp.InputError, match="needs a model that reads the graphs' own node features"):
        voting.certify(fp.Graph(3, [(0, 1)]))
    with pytest.raises(fp.InputError, match="feature_groups must be an integer from 1"):
        fp.VotingClassifier(hashed(0, 4), 3, feature_groups=0, num_classes=2)
    model = fp.models.GIN(in_features=1, num_classes=2).eval()
    with pytest.raises(fp.InputError, match="reads the graphs' own"):
        fp.VotingClassifier(model, 3, feature_groups=2, features="degree").certify(PATH)


@pytest.mark.parametrize("renumber", [False, True])
def test_training_shows_one_feature_group_and_validation_all(renumber):
    groups = fp.EdgeGroups(2)
    view = SubGraphs(groups, renumber=renumber, feature_groups=3)
    parts = LabelledGraphs([PATH.replaced(label=0), PATH.replaced(label=1)], "graphs")
    batch = parts.padded(torch.arange(2))

    def draws(purpose, shape):
        return np.random.default_rng(len(purpose)).integers(0, 2**32, shape, dtype=np.uint32)

    shown = view.show(batch, 5, draws).own.numpy()
    assert shown.shape == (10, 4, 3)
    assert 0 < shown.sum() < 40
    assert view.validation_copies(1) == 6
    adjacency, own, _ = view.show(batch, 6, draws, validation=True)
    every = own.view(3, 2, 2, 4, 3).numpy()
    for number, graph in enumerate(groups.shown(PATH, 3)):
        assert (every[number] == graph.node_features).all()
    edges = adjacency.view(3, 2, 2, 4, 4).numpy()
    for number, graph in enumerate(groups.sub_graphs(PATH)):
        assert (edges[:, number] == graph.adjacency()).all()
