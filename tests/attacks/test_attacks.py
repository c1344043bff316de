"""The attacks against base classifiers: attacks x models."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import flipproof as fp
from flipproof.attacks.relaxation import Relaxation
from flipproof.attacks.search import minimal
from flipproof.defences.target import Effort, target_of
from support.attacked import PygNetwork, trained
from support.graphs import graphs, parity
from support.tables import Table

LATTICE = fp.Graph(9, [(3 * r + c, 3 * r + c + 1) for r in range(3) for c in range(2)] + [(i, i + 3) for i in range(6)])


def has_triangle(graphs):
    return [int((g.adjacency() @ g.adjacency() * g.adjacency()).sum() > 0) for g in graphs]


def model_and_options(name):
    if name == "callable":
        return has_triangle, {"num_classes": 2}
    if name == "dense":
        return fp.models.GCN(1, 3, hidden=8, seed=0).eval(), {"features": "degree"}
    return PygNetwork(name), {"features": "degree"}


@pytest.mark.parametrize("attack", fp.attacks.NAMES)
@pytest.mark.parametrize("name", ["dense", "GCNConv", "GINConv", "callable"])
def test_every_attack_on_every_kind_of_model(attack, name):
    model, options = model_and_options(name)
    if attack == "gradient" and name == "callable":
        with pytest.raises(fp.InputError, match="needs a torch module"):
            fp.attacks.gradient(model, LATTICE, budget=3, **options)
        return
    result = fp.attacks.by_name(attack)(model, LATTICE, budget=3, **options)
    assert (result.attack, result.budget, result.size) == (attack, 3, len(result.flips))
    assert result.graph == LATTICE.flipped(result.flips)
    assert result.margin_after <= result.margin_before
    assert result.model_calls > 0
    assert fp.attacks.by_name(attack)(model, LATTICE, budget=3, **options) == result  # repeatable


def test_gradient_refuses_what_it_cannot_weigh():
    with pytest.raises(fp.InputError, match="cannot weigh the edges"):
        fp.attacks.gradient(PygNetwork("TransformerConv"), LATTICE, budget=2, features="degree")


@pytest.mark.parametrize("name", ["dense", "GCNConv", "GINConv", "SAGEConv", "GATConv"])
def test_relaxation_is_the_derivative(name):
    model, options = model_and_options(name)
    target = target_of(model.double(), LATTICE, Effort(), **options)
    relaxation = Relaxation(target)
    at = np.random.default_rng(0).uniform(0.1, 0.9, LATTICE.num_slots)

    def value(flips):
        states = relaxation._clean + torch.from_numpy(flips) * (1 - 2 * relaxation._clean)
        logits = relaxation.logits(states[None])[0].detach()
        others = [c for c in range(3) if c != target.label]
        return float(torch.nn.functional.softsign(logits[target.label] - logits[others].max()))

    slope, step = relaxation.slope(at), 1e-6
    for slot in range(0, LATTICE.num_slots, 5):
        bump = np.zeros(LATTICE.num_slots)
        bump[slot] = step
        assert slope[slot] == pytest.approx((value(at + bump) - value(at - bump)) / (2 * step), abs=1e-6)


def test_one_flip_that_works_is_found_and_nothing_more():
    result = fp.attacks.greedy(has_triangle, fp.Graph(4, [(0, 1), (1, 2)]), budget=3, num_classes=2)
    assert (result.success, result.flips) == (True, ((0, 2),))
    assert (result.label, result.confirmed, result.alpha) == (0, True, 0.0)
    wrong_already = fp.attacks.greedy(has_triangle, fp.Graph(4, [(0, 1)]), budget=3, num_classes=2, label=1)
    assert (wrong_already.success, wrong_already.flips) == (True, ())


@pytest.mark.parametrize("attack", ["greedy", "random", "gradient"])
def test_success_is_minimal(attack):
    model, test = trained("gcn", None)
    successes = 0
    for graph in test[:6]:
        result = fp.attacks.by_name(attack)(model, graph, budget=6, features="degree")
        if result.success:
            successes += 1
            fewer = [graph.flipped(np.delete(np.array(result.flips), i, axis=0)) for i in range(result.size)]
            classifier = fp.classifiers.as_classifier(model, num_classes=8, features="degree")
            assert all(classifier.label_of(smaller) == result.label for smaller in fewer)
            assert classifier.label_of(result.graph) != result.label
    assert successes >= 3


def test_taking_back_removes_what_is_not_needed():
    target = target_of(has_triangle, fp.Graph(5, [(0, 1), (1, 2)]), Effort(), num_classes=2)
    flips = np.array([1, 3, 8, 9])  # (0, 2) closes the triangle; (0, 4), (2, 4), (3, 4) are idle
    assert minimal(target, flips).tolist() == [1]


def sizes(name, **options: object):
    model, test = trained("gcn", None)
    results = [fp.attacks.by_name(name)(model, graph, features="degree", **options) for graph in test[:16]]
    return [result.size if result.success else 9 for result in results]


def test_greedy_beats_random_at_the_same_calls_and_exhaustive_search_beats_both():
    assert sum(sizes("greedy", budget=4, max_calls=1500)) <= sum(sizes("random", budget=4, max_calls=1500))
    least = sizes("exhaustive", budget=2)
    for name in ("random", "greedy"):
        assert all(small <= large for small, large in zip(least, sizes(name, budget=2), strict=True))


def test_the_exhaustive_search_finds_what_greedy_misses_and_refuses_too_many_sets():
    def moved(graphs):
        """Class 1 if exactly one edge was exchanged for another: single flips look all alike."""
        return [int(g.num_edges == 3 and [4, 5] not in g.edges.tolist()) for g in graphs]

    graph = fp.Graph(6, [(0, 1), (2, 3), (4, 5)])
    assert not fp.attacks.greedy(moved, graph, budget=2, num_classes=2).success
    result = fp.attacks.exhaustive(moved, graph, budget=3, num_classes=2)
    assert (result.size, result.success) == (2, True)
    assert (4, 5) in result.flips
    assert fp.attacks.exhaustive(moved, graph, budget=3, num_classes=2, max_calls=16).success is False
    with pytest.raises(fp.InputError, match="at most 1,048,576 sets of flips; here there are 1,143,325"):
        fp.attacks.exhaustive(moved, fp.Graph(20, []), budget=3, num_classes=2, label=0)


def test_max_calls_is_kept():
    model, test = trained("gcn", None)
    options = {"budget": 3, "features": "degree", "label": test[1].label, "removes": False}
    for name in fp.attacks.NAMES:
        for most in (1, 7, 200):
            result = fp.attacks.by_name(name)(model, test[1], max_calls=most, **options)
            assert result.model_calls <= most + 3 * 4 + 5, name  # taking back and confirming come on top


def test_far_from_the_decision_greedy_tries_every_pair_and_slopes_do_not_vanish():
    model = fp.models.GCN(1, 3, hidden=8, seed=0).eval()
    with torch.no_grad():
        model.head.bias[0] += 1000
    result = fp.attacks.greedy(model, LATTICE, budget=5, features="degree")
    assert not result.success
    assert result.model_calls == 2 + sum(36 - step for step in range(5))
    relaxation = Relaxation(target_of(model, LATTICE, Effort(), features="degree"))
    assert np.abs(relaxation.slope(np.zeros(LATTICE.num_slots))).max() > 0


def test_strongest_is_the_smallest_and_adds_up_calls():
    model, test = trained("gcn", None)
    options, names = {"budget": 5, "features": "degree"}, ["random", "greedy", "gradient"]
    graph = next(graph for graph in test if fp.attacks.greedy(model, graph, **options).success)
    best = fp.attacks.strongest(model, graph, attacks=names, **options)
    others = [fp.attacks.by_name(name)(model, graph, **options) for name in names]
    assert best.size <= min(other.size for other in others if other.success)
    assert best.model_calls >= others[0].model_calls
    assert best.budget == 5
    with pytest.raises(fp.InputError, match="attacks must be among"):
        fp.attacks.strongest(model, graph, attacks=["nonsense"], **options)


def test_robust_accuracy_counts_by_hand():
    graph = fp.Graph(3, [(0, 1)])

    def result(size, success, label=0):
        pairs = ((0, 1), (0, 2), (1, 2))[:size]
        return fp.attacks.AttackResult("x", graph, pairs, label, success, success, 0.0, 3, 1.0, -1.0, 1)

    results = [result(1, True), result(3, True), result(3, False), result(0, True), result(2, False, label=1)]
    assert fp.attacks.robust_accuracy(results, [0] * 5, range(4)).tolist() == [0.6, 0.4, 0.4, 0.2]
    with pytest.raises(fp.InputError, match="labels must be one per result"):
        fp.attacks.robust_accuracy(results, [0])


GRAPH = fp.Graph(7, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 6)], frozen=[(0, 6), (1, 5)])


@pytest.mark.parametrize("groups", [1, 2, 3, 5])
@pytest.mark.parametrize("salt", range(4))
def test_the_cheapest_purchase_succeeds_one_flip_beyond_the_radius(groups, salt):
    voting = fp.VotingClassifier(Table(3, salt, 1, 0.9), groups, num_classes=3)
    votes = voting.price(GRAPH)
    certificate = fp.certify_group_votes(votes)
    result = fp.attacks.known(voting, GRAPH, budget=10)
    assert result.success is (votes.attack() is not None)
    if result.success:
        assert result.size == certificate.radius + 1
        assert voting.predict(result.graph) != certificate.label
        assert not fp.attacks.known(voting, GRAPH, budget=certificate.radius).success
    assert result.model_calls >= votes.calls


def test_the_known_attack_keeps_to_its_limits():
    voting = fp.VotingClassifier(lambda graphs: [int(graph.num_edges > 4) for graph in graphs], 1, num_classes=2)
    assert fp.attacks.known(voting, GRAPH, budget=5).success
    assert not fp.attacks.known(voting, GRAPH, budget=5, removes=False).success


def test_of_other_defences_nothing_is_known():
    assert not fp.attacks.known(parity, GRAPH, budget=3, num_classes=2).success
    assert fp.attacks.strongest(parity, GRAPH, budget=3, num_classes=2, attacks=["known", "greedy"]).size == 1


def fragile(graphs):
    """Labels that change often, so that attacks of all sizes succeed."""
    return [int((3 * g.num_edges + int(np.square(g.degrees).sum())) % 5 > 2) for g in graphs]


@pytest.mark.parametrize("name", ["random", "greedy", "exhaustive", "gradient"])
@given(
    graph=graphs(max_nodes=7, frozen=True),
    budget=st.integers(0, 4),
    kind=st.sampled_from([(True, True), (True, False), (False, True)]),
    seed=st.integers(0, 3),
)
@settings(max_examples=30)
def test_attacks_respect_their_limits(name, graph, budget, kind, seed):
    model, options = fragile, {"num_classes": 2}
    if name == "gradient":
        model, options = fp.models.GCN(1, 2, hidden=4, seed=1).eval(), {"features": "degree"}
    attack = fp.attacks.by_name(name)
    result = attack(model, graph, budget=budget, adds=kind[0], removes=kind[1], seed=seed, max_calls=300, **options)
    before, after = ({tuple(pair) for pair in member.edges.tolist()} for member in (graph, result.graph))
    added, removed = after - before, before - after
    assert len(added) + len(removed) == result.size <= budget
    assert not (added | removed) & {tuple(pair) for pair in graph.frozen.tolist()}
    assert kind[0] or not added
    assert kind[1] or not removed
    assert result.graph.edges.tolist() == graph.flipped(result.flips).edges.tolist()
    if name != "gradient":
        assert result.success == (fragile([result.graph]) != fragile([graph]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": -1}, "budget must be an integer of at least 0"),
        ({"budget": 2, "adds": False, "removes": False}, "allowed to add or to remove"),
        ({"budget": 2, "label": 7}, "label must be an integer from 0 to 1; got 7"),
        ({"budget": 2, "max_calls": 0}, "max_calls must allow"),
    ],
)
def test_wrong_input_is_refused_in_one_sentence(options, message):
    with pytest.raises(fp.InputError, match=message):
        fp.attacks.greedy(fragile, fp.Graph(3, [(0, 1)]), num_classes=2, **options)
