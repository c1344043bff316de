"""The attacks against base classifiers: attacks x models."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

import flipproof as fp
from support.attacked import PygNetwork, trained

LATTICE = fp.Graph(9, [(3 * r + c, 3 * r + c + 1) for r in range(3) for c in range(2)] + [(i, i + 3) for i in range(6)])


def has_triangle(graphs: list[fp.Graph]) -> list[int]:
    return [int((g.adjacency() @ g.adjacency() * g.adjacency()).sum() > 0) for g in graphs]


def model_and_options(name: str) -> tuple[object, dict[str, object]]:
    if name == "callable":
        return has_triangle, {"num_classes": 2}
    if name == "dense":
        return fp.models.GCN(1, 3, hidden=8, seed=0).eval(), {"features": "degree"}
    return PygNetwork(name), {"features": "degree"}


@pytest.mark.parametrize("attack", fp.attacks.NAMES)
@pytest.mark.parametrize("name", ["dense", "GCNConv", "GINConv", "callable"])
def test_every_attack_on_every_kind_of_model(attack, name) -> None:
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


def test_gradient_refuses_what_it_cannot_weigh() -> None:
    with pytest.raises(fp.InputError, match="cannot weigh the edges"):
        fp.attacks.gradient(PygNetwork("GATv2Conv"), LATTICE, budget=2, features="degree")


@pytest.mark.parametrize("name", ["dense", "GCNConv", "GINConv", "SAGEConv", "GATConv"])
def test_relaxation_is_the_derivative(name) -> None:
    from flipproof.attacks.relaxation import Relaxation
    from flipproof.attacks.search import target_of

    model, options = model_and_options(name)
    target = target_of(model.double(), LATTICE, options)
    relaxation = Relaxation(target)
    at = np.random.default_rng(0).uniform(0.1, 0.9, LATTICE.num_slots)

    def value(flips: np.ndarray) -> float:
        states = relaxation._clean + torch.from_numpy(flips) * (1 - 2 * relaxation._clean)
        logits = relaxation.logits(states[None])[0].detach()
        others = [c for c in range(3) if c != target.label]
        return float(torch.nn.functional.softsign(logits[target.label] - logits[others].max()))

    slope, step = relaxation.slope(at), 1e-6
    for slot in range(0, LATTICE.num_slots, 5):
        bump = np.zeros(LATTICE.num_slots)
        bump[slot] = step
        assert slope[slot] == pytest.approx((value(at + bump) - value(at - bump)) / (2 * step), abs=1e-6)


def test_gradient_does_not_vanish_far_from_the_decision() -> None:
    from flipproof.attacks.relaxation import Relaxation
    from flipproof.attacks.search import target_of

    model = fp.models.GCN(1, 3, hidden=8, seed=0).eval()
    with torch.no_grad():
        model.head.bias[0] += 1000
    relaxation = Relaxation(target_of(model, LATTICE, {"features": "degree"}))
    assert np.abs(relaxation.slope(np.zeros(LATTICE.num_slots))).max() > 0


def test_one_flip_that_works_is_found_and_nothing_more() -> None:
    result = fp.attacks.greedy(has_triangle, fp.Graph(4, [(0, 1), (1, 2)]), budget=3, num_classes=2)
    assert result.success
    assert result.flips == ((0, 2),)
    assert (result.label, result.confirmed, result.alpha) == (0, True, 0.0)


@pytest.mark.parametrize("attack", ["greedy", "beam", "genetic", "random", "gradient"])
def test_success_is_minimal(attack) -> None:
    model, test = trained("gcn", None)
    found = 0
    for graph in test[:6]:
        result = fp.attacks.by_name(attack)(model, graph, budget=6, features="degree")
        if result.success:
            found += 1
            fewer = [graph.flipped(np.delete(np.array(result.flips), i, axis=0)) for i in range(result.size)]
            classifier = fp.classifiers.as_classifier(model, num_classes=8, features="degree")
            assert all(classifier.label_of(smaller) == result.label for smaller in fewer)
            assert classifier.label_of(result.graph) != result.label
    assert found >= 3


def test_taking_back_removes_what_is_not_needed() -> None:
    from flipproof.attacks.constraints import Constraints, Space
    from flipproof.attacks.minimal import minimal
    from flipproof.attacks.search import target_of

    graph = fp.Graph(5, [(0, 1), (1, 2)])
    target = target_of(has_triangle, graph, {"num_classes": 2})
    flips = np.array([1, 3, 8, 9])  # (0, 2) closes the triangle; (0, 4), (2, 4), (3, 4) are idle
    assert minimal(target, Space(graph, Constraints(4)), flips).tolist() == [1]


def test_taking_back_keeps_the_graph_connected() -> None:
    def lost_edge(graphs: list[fp.Graph]) -> list[int]:
        return [int(not (g.edges == (0, 1)).all(axis=1).any()) for g in graphs]

    result = fp.attacks.beam(lost_edge, fp.Graph(3, [(0, 1), (1, 2)]), budget=2, num_classes=2, keep_connected=True)
    assert result.success
    assert result.flips == ((0, 1), (0, 2))  # the added edge is needed to hold node 0


def test_wrong_answers_need_no_flip() -> None:
    result = fp.attacks.greedy(has_triangle, fp.Graph(4, [(0, 1)]), budget=3, num_classes=2, label=1)
    assert result.success
    assert result.flips == ()


def test_greedy_beats_random_and_searches_beat_greedy_at_the_same_calls() -> None:
    model, test = trained("gcn", None)
    graphs = test[:16]
    sizes = {
        name: [
            result.size if result.success else 9
            for graph in graphs
            for result in [fp.attacks.by_name(name)(model, graph, budget=4, features="degree", max_calls=1500)]
        ]
        for name in ("random", "greedy", "beam", "genetic")
    }
    total = {name: sum(found) for name, found in sizes.items()}
    assert total["greedy"] <= total["random"]
    assert total["beam"] <= total["greedy"]
    assert total["genetic"] <= total["greedy"]
    assert all(small <= large for small, large in zip(sizes["genetic"], sizes["greedy"], strict=True))


def test_max_calls_is_kept() -> None:
    model, test = trained("gcn", None)
    for name in fp.attacks.NAMES:
        for most in (1, 7, 200):
            result = fp.attacks.by_name(name)(
                model, test[1], budget=3, features="degree", max_calls=most, label=test[1].label, removes=False
            )
            assert result.model_calls <= most + 3 * 4 + 5, name  # taking back and confirming come on top


def test_greedy_on_twenty_nodes_takes_well_under_a_second() -> None:
    model = fp.models.GCN(1, 8, seed=0).eval()
    with torch.no_grad():
        model.head.bias[0] += 1000  # never fooled, so that all five steps are taken
    grid = fp.Graph(20, [(i, i + 1) for i in range(19) if i % 5 != 4] + [(i, i + 5) for i in range(15)])
    fp.attacks.greedy(model, grid, budget=1, features="degree")
    started = time.process_time()
    result = fp.attacks.greedy(model, grid, budget=5, features="degree")
    seconds = time.process_time() - started
    assert not result.success
    assert result.model_calls == 2 + sum(190 - step for step in range(5))
    assert seconds < 0.5


def test_strongest_is_the_smallest_and_adds_up_calls() -> None:
    model, test = trained("gcn", None)
    graph = next(graph for graph in test if fp.attacks.greedy(model, graph, budget=5, features="degree").success)
    best = fp.attacks.strongest(model, graph, budget=5, features="degree", attacks=["random", "greedy", "beam"])
    others = [
        fp.attacks.by_name(name)(model, graph, budget=5, features="degree") for name in ("random", "greedy", "beam")
    ]
    assert best.size <= min(other.size for other in others if other.success)
    assert best.model_calls >= others[0].model_calls
    assert best.budget == 5
    with pytest.raises(fp.InputError, match="attacks must be among"):
        fp.attacks.strongest(model, graph, budget=5, features="degree", attacks=["nonsense"])


def test_robust_accuracy_counts_by_hand() -> None:
    graph = fp.Graph(3, [(0, 1)])

    def result(size: int, success: bool, label: int = 0) -> fp.attacks.AttackResult:
        pairs = ((0, 1), (0, 2), (1, 2))[:size]
        return fp.attacks.AttackResult("x", graph, pairs, label, success, success, 0.0, 3, 1.0, -1.0, 1)

    results = [result(1, True), result(3, True), result(3, False), result(0, True), result(2, False, label=1)]
    assert fp.attacks.robust_accuracy(results, [0] * 5, range(4)).tolist() == [0.6, 0.4, 0.4, 0.2]
    with pytest.raises(fp.InputError, match="labels must be one a result"):
        fp.attacks.robust_accuracy(results, [0])


def test_transfer_table() -> None:
    gcn, test = trained("gcn", None)
    gin, _ = trained("gin", 0.9)
    blind = fp.classifiers.as_classifier(
        fp.models.EdgeBlind(fp.models.GIN(1, 8, seed=0)).eval(), num_classes=8, features="constant"
    )
    smooth = fp.SmoothedClassifier(gin, fp.EdgeNoise(keep=0.9), features="degree")
    models = {"gcn": gcn, "gin": gin, "smoothed": smooth, "edge-blind": blind}
    table = fp.attacks.transfer(models, test[:4], budget=2, features="degree", samples=16, confirm_samples=400)
    assert table.fooled.shape == (4, 4)
    assert (table.fooled <= table.clean_accuracy[None]).all()
    assert (table.fooled[:, 3] == 0).all()  # no edge, no attack
    own = [r.success and r.size > 0 for r in table.results["gcn"]]
    assert table.fooled[0, 0] == np.mean(own)
    assert str(table).splitlines()[0] == "| attacked on, shown to | gcn | gin | smoothed | edge-blind |"
