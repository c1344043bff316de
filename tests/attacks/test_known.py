"""The attack that a certificate knows: where prices are exact it succeeds with one flip more than certified, never with fewer."""

from __future__ import annotations

import pytest

import flipproof as fp
from support.tables import Table

GRAPH = fp.Graph(7, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 6)], frozen=[(0, 6), (1, 5)])


@pytest.mark.parametrize("groups", [1, 2, 3, 5])
@pytest.mark.parametrize("salt", range(4))
def test_the_cheapest_purchase_succeeds_one_flip_beyond_the_radius(groups: int, salt: int) -> None:
    voting = fp.VotingClassifier(Table(3, salt, 1, 0.9), groups, num_classes=3)
    votes = voting.price(GRAPH)
    certificate = fp.certify_group_votes(votes)
    found = fp.attacks.known(voting, GRAPH, budget=10)
    assert found.success is (votes.attack() is not None)
    if found.success:
        assert found.size == certificate.radius + 1
        assert voting.predict(found.graph) != certificate.label
        assert not fp.attacks.known(voting, GRAPH, budget=certificate.radius).success
    assert found.model_calls >= votes.calls


def test_constraints_hold() -> None:
    voting = fp.VotingClassifier(lambda graphs: [int(graph.num_edges > 4) for graph in graphs], 1, num_classes=2)
    assert fp.attacks.known(voting, GRAPH, budget=5).success
    assert not fp.attacks.known(voting, GRAPH, budget=5, removes=False).success


def test_of_other_defences_nothing_is_known() -> None:
    def parity(graphs: list[fp.Graph]) -> list[int]:
        return [graph.num_edges % 2 for graph in graphs]

    assert not fp.attacks.known(parity, GRAPH, budget=3, num_classes=2).success
    assert fp.attacks.strongest(parity, GRAPH, budget=3, num_classes=2, attacks=["known", "greedy"]).size == 1
