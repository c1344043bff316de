"""The voting classifier around models of every kind: what it answers, what it certifies, what it refuses."""

import itertools
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import flipproof as fp
from flipproof.graphs import pairs_of_slots
from flipproof.models import GCN
from support.attacked import PygNetwork

SIX = fp.Graph(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5), (0, 3)])


@cache
def trained(groups: int | None) -> tuple[fp.models.GIN, fp.datasets.Dataset]:
    """A small network of the paper's data, trained for a few seconds on sub-graphs, and its test graphs."""
    parts = fp.datasets.split(fp.datasets.topologies(160, seed=0), train=96, seed=0)
    model = fp.models.GIN(in_features=1, num_classes=8, hidden=24, seed=0)
    options = {"epochs": 30, "batch_size": 32, "validation": parts.test[:16], "seed": 0}
    if groups is None:
        fp.train(model, parts.train, **options)
    else:
        assert fp.train_voting(model, parts.train, groups=groups, **options).settings["groups"] == groups
    return model, parts.test


def hashed_labels(classes: int, seed: int) -> object:
    """A base classifier without any structure: a label by the hash of the sub-graph's edges."""

    def classify(graphs: list[fp.Graph]) -> list[int]:
        return [int.from_bytes(f"{seed} {g.topology}".encode()) % 1_000_003 % classes for g in graphs]

    return classify


def attacked_graphs(graph: fp.Graph, flips: int) -> list[fp.Graph]:
    pairs = pairs_of_slots(graph.slots, graph.num_nodes)
    return [graph.flipped(pairs[list(chosen)]) for chosen in itertools.combinations(range(len(pairs)), flips)]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 63), st.sampled_from([(), [(0, 1)], [(0, 1), (2, 3)]]), st.integers(1, 9), st.integers(0, 10**6))
def test_no_attack_within_the_radius_changes_the_vote(
    edges: int, frozen: list[tuple[int, int]], groups: int, seed: int
) -> None:
    """All attacks on graphs of 4 nodes, against base classifiers without structure."""
    pairs = pairs_of_slots(np.arange(6), 4)
    graph = fp.Graph(4, pairs[[bool(edges >> slot & 1) for slot in range(6)]], frozen=frozen)
    voting = fp.VotingClassifier(hashed_labels(3, seed), groups, num_classes=3)
    certificate = voting.certify(graph)
    assert certificate.label == voting.predict(graph)
    for flips in range(1, certificate.radius + 1):
        for attacked in attacked_graphs(graph, flips):
            assert voting.predict(attacked) == certificate.label


@pytest.mark.guarantee
@pytest.mark.parametrize("groups", [2, 3, 5, 8])
def test_no_attack_within_the_radius_changes_the_vote_of_five_nodes(groups: int) -> None:
    rng = np.random.default_rng(groups)
    pairs = pairs_of_slots(np.arange(10), 5)
    checked = 0
    for seed in range(12):
        graph = fp.Graph(5, pairs[rng.random(10) < 0.5])
        favoured = hashed_labels(2, seed)

        def mostly_one(graphs: list[fp.Graph], inner: object = favoured) -> list[int]:
            return [max(label, int(g.num_edges < 2)) for label, g in zip(inner(graphs), graphs, strict=True)]  # type: ignore[operator]

        voting = fp.VotingClassifier(mostly_one, groups, num_classes=2)
        certificate = voting.certify(graph)
        for adds in range(graph.max_adds + 1):
            for removes in range(graph.max_removes + 1):
                grid = certificate.grid
                if adds >= grid.shape[0] or removes >= grid.shape[1] or not grid[adds, removes]:
                    continue
                empty, full = graph.slots[~graph.slot_states], graph.slots[graph.slot_states]
                for added in itertools.combinations(empty, adds):
                    for removed in itertools.combinations(full, removes):
                        slots = np.array([*added, *removed], dtype=np.int64)
                        attacked = graph.flipped(pairs_of_slots(slots, 5)) if len(slots) else graph
                        assert voting.predict(attacked) == certificate.label
                        checked += 1
    assert checked > 12


@pytest.mark.parametrize("groups", [3, 4, 5, 7])
@pytest.mark.parametrize("winner", [0, 1])
def test_the_radius_is_attained(groups: int, winner: int) -> None:
    """One flip more than the radius does change the vote of the classifier that knows the clean sub-graphs by heart."""
    graph = fp.Graph(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)])
    known = {part.topology for part in fp.EdgeGroups(groups).sub_graphs(graph)}

    def by_heart(graphs: list[fp.Graph]) -> list[int]:
        return [winner if g.topology in known else 1 - winner for g in graphs]

    voting = fp.VotingClassifier(by_heart, groups, num_classes=2)
    certificate = voting.certify(graph)
    assert certificate.label == winner
    assert 1 <= certificate.radius < graph.num_slots
    changed = [voting.predict(attacked) != winner for attacked in attacked_graphs(graph, certificate.radius + 1)]
    assert any(changed)


def test_the_answers_of_every_kind_of_model_are_those_on_the_sub_graphs() -> None:
    """Dense, message passing and callable, in batches and one by one; features are the sub-graph's own degrees."""
    torch.manual_seed(0)
    models = {
        "dense": GCN(in_features=1, num_classes=3, seed=1).eval(),
        "message passing": PygNetwork("GCNConv"),
    }
    groups = fp.EdgeGroups(40)
    for path, model in models.items():
        voting = fp.VotingClassifier(model, groups, features="degree", num_classes=3)
        assert voting.classifier.path == path
        alone = [voting.classifier.label_of(part) for part in groups.sub_graphs(SIX)]
        assert voting.vote(SIX).labels.tolist() == alone
    counted = fp.VotingClassifier(lambda graphs: [min(g.num_edges, 2) for g in graphs], groups, num_classes=3)
    sizes = np.bincount(groups.of_pairs(SIX.edges), minlength=40)
    assert counted.vote(SIX).labels.tolist() == np.minimum(sizes, 2).tolist()


def test_many_sub_graphs_are_cut_into_batches() -> None:
    largest = 0

    def classify(graphs: list[fp.Graph]) -> list[int]:
        nonlocal largest
        largest = max(largest, len(graphs))
        return [min(g.num_edges, 1) for g in graphs]

    votes = fp.VotingClassifier(classify, 1000, num_classes=2).vote(SIX)
    assert votes.counts.tolist() == [993, 7]
    assert 8 < largest <= 256


def test_frozen_edges_are_in_every_sub_graph() -> None:
    graph = SIX.replaced(frozen=[(0, 1), (1, 2), (1, 3)])
    voting = fp.VotingClassifier(lambda graphs: [g.num_edges >= 2 for g in graphs], 5, num_classes=2)
    certificate = voting.certify(graph)
    assert certificate.counts == (0, 5)
    assert certificate.num_slots == 12


def test_many_graphs_in_any_form_and_in_order() -> None:
    voting = fp.VotingClassifier(lambda graphs: [min(g.num_edges, 1) for g in graphs], 3, num_classes=2)
    forms = [SIX, SIX.to_networkx(), SIX.to_pyg(), SIX.adjacency(), torch.from_numpy(SIX.adjacency()), fp.Graph(4, [])]
    certificates = voting.certify_all(forms)
    assert certificates[:5] == [voting.certify(form) for form in forms[:5]] == [certificates[0]] * 5
    assert certificates[5].label == 0
    assert voting.certify_all([]) == []


def test_what_would_make_certificates_false_is_refused() -> None:
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


# ---- attacks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["random", "greedy", "gradient"])
def test_attacks_succeed_beyond_the_radius_and_never_within(name: str) -> None:
    network, test = trained(3)
    voting = fp.VotingClassifier(network, 3, features="degree")
    attack, certificates = fp.attacks.by_name(name), voting.certify_all(test[:6])
    found = 0
    for graph, certificate in zip(test[:6], certificates, strict=True):
        result = attack(voting, graph, budget=4, max_calls=1500)
        assert result.label == certificate.label
        assert result.alpha == 0
        if result.success:
            found += 1
            assert voting.predict(result.graph) != certificate.label
            assert len(result.flips) > certificate.radius
    assert found >= 1


def test_a_voting_classifier_knows_its_own_classes() -> None:
    voting = fp.VotingClassifier(lambda graphs: [0] * len(graphs), 3, num_classes=2)
    with pytest.raises(fp.InputError, match="a VotingClassifier has its own num_classes"):
        fp.attacks.greedy(voting, SIX, budget=1, num_classes=2)


# ---- training ---------------------------------------------------------------------------------------------------------


def test_training_on_sub_graphs_helps_the_vote() -> None:
    right = {}
    for groups in (None, 3):
        model, test = trained(groups)
        voting = fp.VotingClassifier(model, 3, features="degree")
        right[groups] = np.mean([voting.predict(graph) == graph.label for graph in test])
    assert right[3] > right[None] + 0.1


def test_validation_sees_every_sub_graph_once() -> None:
    """The reported loss and accuracy are those over all sub-graphs, computed here graph by graph."""
    parts = fp.datasets.split(fp.datasets.topologies(48, seed=1), train=24, seed=0)
    model = GCN(in_features=1, num_classes=8, seed=0)
    frozen = [graph.replaced(frozen=graph.edges[:2]) for graph in parts.test]
    result = fp.train_voting(model, parts.train, groups=4, epochs=1, validation=frozen, seed=0)
    votes = [fp.VotingClassifier(model, 4, features="degree").vote(graph) for graph in frozen]
    shares = [np.mean(cast.labels == graph.label) for cast, graph in zip(votes, frozen, strict=True)]
    assert result.final.validation_accuracy == pytest.approx(np.mean(shares))


def test_training_is_repeatable() -> None:
    graphs = fp.datasets.topologies(16, seed=0)
    weights = []
    for _ in range(2):
        model = GCN(in_features=1, num_classes=8, seed=0)
        fp.train_voting(model, graphs, groups=fp.EdgeGroups(3, key=5), epochs=2, copies=2, seed=0)
        weights.append(torch.cat([value.flatten() for value in model.state_dict().values()]))
    assert torch.equal(*weights)
