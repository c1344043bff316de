"""Attacks on networks that read edge labels: an edge is added with any label, and another label costs two flips."""

from __future__ import annotations

import json
from collections import Counter

import networkx
import numpy as np
import pytest

import flipproof as fp
from flipproof.attacks.attack_result import attacked_graph
from flipproof.attacks.constraints import Constraints, Space
from flipproof.attacks.search import target_of
from flipproof.defences.local import answer_to
from support.changed_nodes import random_graph, wild
from support.local_tables import all_labelled_attacks

LABELS = 3
SEARCHES = ("random", "greedy", "beam", "genetic")


def local_of(seed: int, labels: int = LABELS, strength: float = 1.0) -> fp.LocalClassifier:
    model = wild(3, 2 + seed % 2, edge_labels=labels, seed=seed, strength=strength)
    return fp.LocalClassifier(model, trust_features=True)


def labels_of(graph: fp.Graph) -> dict[tuple[int, int], int]:
    assert graph.edge_labels is not None
    return {(u, v): label for (u, v), label in zip(graph.edges.tolist(), graph.edge_labels.tolist(), strict=True)}


def flips_between(clean: fp.Graph, attacked: fp.Graph) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Additions and removals that lead from one graph to the other, written independently of the search."""
    before, after = labels_of(clean), labels_of(attacked)
    added = [pair for pair, label in after.items() if before.get(pair) != label]
    return added, [pair for pair, label in before.items() if after.get(pair) != label]


def test_many_attacked_graphs_at_once_have_the_answers_that_they_have_one_by_one() -> None:
    rng = np.random.default_rng(0)
    seen = Counter[bool]()
    changed = 0
    for seed in range(6):
        local, graph = local_of(seed), random_graph(rng, 6, labels=3, frozen=0.1, edge_labels=LABELS)
        target = target_of(local, graph, {})
        flips = Space(graph, Constraints(4), LABELS).draws(60, 4, rng)
        outcome = target.evaluate(flips)
        for row, fooled, margin in zip(flips, outcome.fooled, outcome.margins, strict=True):
            label, slot = np.divmod(row[row >= 0], graph.num_slots)
            pairs = fp.graphs.pairs_of_slots(graph.slots[slot], graph.num_nodes)
            attacked = attacked_graph(graph, pairs, label)
            added, removed = flips_between(graph, attacked)
            assert len(added) + len(removed) == len(slot)
            assert fooled == (local.predict(attacked) != target.label)
            found = target.confirm(attacked)
            assert found.confirmed == fooled
            np.testing.assert_allclose(found.margin, margin)
            seen[bool(fooled)] += 1
            changed += bool(set(added) & set(removed))
    assert min(seen[True], seen[False]) > 20
    assert changed > 10


def test_positions_are_pairs_with_labels_and_a_pair_has_one_label() -> None:
    graph = fp.Graph(3, [(0, 1), (1, 2)], frozen=[(1, 2)], edge_labels=[1, 0])  # slots: 0-1 and 0-2
    space = Space(graph, Constraints(2), 2)
    assert space.columns.tolist() == [0, 1, 2, 3]  # label 0 in either slot, then label 1
    sets = np.array([[0, -1], [1, -1], [2, -1], [0, 2], [1, 3], [2, 1], [0, 1]])
    # 0-1 cannot have label 0 beside 1; it can instead of it; 0-2 cannot have both
    assert space.holds(sets).tolist() == [False, True, True, True, False, True, False]
    assert Space(graph, Constraints(2, removes=False), 2).columns.tolist() == [0, 1, 3]
    assert Space(graph, Constraints(2, adds=False), 2).columns.tolist() == [2]


def test_searches_find_what_brute_force_finds() -> None:
    """On four nodes: never less than the truth, the truth itself wherever one flip suffices, and mostly beyond."""
    rng = np.random.default_rng(4)
    sizes, found, labels = Counter[int](), Counter[str](), 2
    for seed in range(14):
        local, graph = local_of(seed, labels), random_graph(rng, 4, labels=3, edge_labels=labels)
        answer = local.predict(graph)
        fooling = [
            adds + removes
            for adds, removes, attacked in all_labelled_attacks(graph, labels)
            if answer_to(local, attacked) != answer
        ]
        if answer is None or not fooling:
            continue
        truth = min(fooling)
        sizes[truth] += 1
        for name in SEARCHES:
            result = fp.attacks.by_name(name)(local, graph, budget=truth)
            assert not result.success or result.size == truth
            assert result.success or truth > 1
            found[name] += result.success
            if result.success:
                assert local.predict(result.graph) != answer
                assert sum(map(len, flips_between(graph, result.graph))) == truth
    assert sum(size > 1 for size in sizes.elements()) >= 4
    assert found["genetic"] >= found["greedy"] >= 0.7 * sizes.total(), found
    assert min(found["beam"], found["genetic"]) >= 0.9 * sizes.total(), found


@pytest.mark.parametrize("name", SEARCHES)
def test_constraints_hold_with_labels(name: str) -> None:
    rng = np.random.default_rng(2)
    count = networkx.number_connected_components
    touched = 0
    for seed in range(8):
        local, graph = local_of(seed), random_graph(rng, 5, labels=3, frozen=0.2, edge_labels=LABELS)
        for options in ({"removes": False}, {"adds": False}, {"per_node": 1}, {"keep_connected": True}):
            result = fp.attacks.by_name(name)(local, graph, budget=3, max_calls=400, seed=seed, **options)
            added, removed = flips_between(graph, result.graph)
            assert len(added) + len(removed) == result.size <= 3
            assert not {*added, *removed} & {tuple(pair) for pair in graph.frozen.tolist()}
            assert options.get("removes", True) or not removed
            assert options.get("adds", True) or not added
            nodes = Counter(node for pair in (*added, *removed) for node in pair)
            assert max(nodes.values(), default=0) <= options.get("per_node", 3)
            if options.get("keep_connected"):
                assert count(result.graph.to_networkx()) <= count(graph.to_networkx())
            touched += result.size > 0
    assert touched > 8


def test_another_label_alone_can_be_the_attack_and_is_read_back() -> None:
    """All pairs but one are frozen: where its edge may be missing but not have another label, that is what is found."""
    changed = 0
    graph = fp.Graph(3, [(0, 1), (1, 2)], np.eye(3), frozen=[(0, 2), (1, 2)], edge_labels=[0, 1])
    for seed in range(90):
        local = local_of(seed)
        result = fp.attacks.beam(local, graph, budget=2)
        if not result.success or result.size < 2:
            continue
        assert local.predict(graph.flipped([(0, 1)])) == result.label
        assert result.flips == ((0, 1), (0, 1))
        assert result.edge_labels is not None
        assert result.edge_labels[0] == 0 != result.edge_labels[1]
        assert labels_of(result.graph) == {(0, 1): result.edge_labels[1], (1, 2): 1}
        again = fp.attacks.AttackResult.from_dict(graph, json.loads(json.dumps(result.to_dict())))
        assert again == result
        assert labels_of(again.graph) == labels_of(result.graph)
        changed += 1
    assert changed >= 3


def test_an_attack_with_labels_is_not_read_back_on_a_graph_without() -> None:
    graph = fp.Graph(3, [(0, 1)], np.eye(3), edge_labels=[0])
    stored = fp.attacks.greedy(local_of(0), graph, budget=1).to_dict()
    with pytest.raises(fp.InputError, match="the graph has none"):
        fp.attacks.AttackResult.from_dict(graph.replaced(edge_labels=None), stored)


def test_attacks_on_models_that_read_no_labels_say_nothing_of_them() -> None:
    graph = fp.Graph(4, [(0, 1), (1, 2)], np.eye(4)[:, :3], edge_labels=[0, 1])
    result = fp.attacks.greedy(fp.LocalClassifier(wild(3, 2), trust_features=True), graph, budget=1)
    assert result.edge_labels is None
    assert "edge_labels" not in result.to_dict()
