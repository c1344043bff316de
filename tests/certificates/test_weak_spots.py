"""Weak spots: attacks called successful succeed, one flip is found wherever it suffices, and the parts add up to the lead."""

from __future__ import annotations

import numpy as np
import pytest

import flipproof as fp
from flipproof.certificates.certificate import ClassCell, Evidence, WeakSpots
from flipproof.certificates.local_scores import LocalScores, leads_over_rivals, rivals_of
from flipproof.certificates.matched_knapsack import FlipSearch
from flipproof.certificates.node_views import views_of
from flipproof.graphs import slots_of_pairs
from support.local_tables import random_case
from support.tables import Table


def place_of(evidence: LocalScores, flips: tuple[tuple[int, int], ...]) -> int:
    """The number of an attack in the list of all attacks."""
    slots = slots_of_pairs(np.array(flips), evidence.graph.num_nodes)
    bits = np.searchsorted(evidence.graph.slots, slots)
    assert evidence.graph.slots[bits].tolist() == slots.tolist()  # no frozen pair
    return sum(1 << int(bit) for bit in bits)


@pytest.mark.parametrize("counted", [False, True])
def test_local_flips_do_what_is_said_of_them(counted: bool) -> None:
    rng = np.random.default_rng(0)
    sizes = {"succeeds": 0, "smallest": 0, "breakable": 0}
    for _ in range(150):
        classes, nodes, kinds = int(rng.integers(2, 5)), int(rng.integers(2, 6)), int(rng.integers(1, 4))
        evidence, attacked = random_case(rng, nodes=nodes, kinds=kinds, classes=classes, frozen=0.2, counted=counted)
        certificate = evidence.certify()
        if certificate.label is None:
            assert evidence.weak_spots(-1) is None
            continue
        spots = evidence.weak_spots(certificate.radius)
        assert spots is not None
        assert spots.weights is not None
        at = spots.rival - (spots.rival > certificate.label)
        leads = leads_over_rivals(attacked.totals, certificate.label, classes)[:, at]
        assert spots.weights.sum() + spots.rest == pytest.approx(leads[0])
        # the table follows the lead over this rival, flip by flip
        shown = [float(str(row[1])) for row in spots.rows]
        places = [place_of(evidence, spots.flips[:number]) if number else 0 for number in range(len(shown))]
        assert shown == pytest.approx([float(leads[place]) for place in places], rel=0.006, abs=1e-12)
        truth = attacked.radius(certificate.label, evidence.graph.num_slots)
        if spots.succeeds:
            assert attacked.answers[place_of(evidence, spots.flips)] != certificate.label
            assert len(spots.flips) > truth
        elif spots.flips:
            assert len(spots.flips) <= certificate.radius + 1
            assert leads[places[-1]] == pytest.approx(min(leads[place] for place in places))
        if truth == 0 < evidence.graph.num_slots:
            assert len(spots.flips) == 1  # one flip is searched exhaustively
            assert spots.succeeds
        if truth < evidence.graph.num_slots:
            sizes["breakable"] += 1
            sizes["succeeds"] += spots.succeeds
            sizes["smallest"] += spots.succeeds and len(spots.flips) == truth + 1
    assert sizes["breakable"] > 50
    assert sizes["smallest"] > 0.8 * sizes["breakable"]


def test_needless_flips_are_left_out() -> None:
    """Only nodes without neighbours speak for the label: joining node 4 is enough, joining 1 and 3 does nothing."""
    views = views_of(fp.Graph(5, [(0, 1), (1, 2), (2, 3)]), np.zeros(5, dtype=np.int64), 4)
    search = FlipSearch(views, np.where(views.counts.ravel() == 0, 5.0, 1.0))
    flips = [(1, 3), (3, 4)]
    assert search.drops(flips) == [0.0, 0.0, 4.0]
    assert search.drops(flips[1:]) == [0.0, 4.0]
    assert search.pruned(flips, lambda number, drop: drop >= 4) == flips[1:]
    assert search.pruned(flips, lambda number, drop: number == 2) == flips


def test_a_lead_within_rounding_is_no_success() -> None:
    graph, kinds = fp.Graph(3, [(0, 1)]), np.zeros(3, dtype=np.int64)
    degrees = views_of(graph, kinds, 2).counts
    scores = np.where(degrees == 2, -3.0, 1.0)  # 3 before, -1 after another edge
    clear, blurred = (
        LocalScores(graph, 2, kinds, 2, np.zeros(1), scores, np.full(1, rounding)).weak_spots(0)
        for rounding in (1e-15, 1.0)
    )
    assert clear is not None
    assert blurred is not None
    assert (clear.succeeds, len(clear.flips)) == (True, 1)
    assert (blurred.succeeds, len(blurred.flips)) == (False, 1)
    assert clear.rows[-1][1] == blurred.rows[-1][1] == "-1"


def priced(edges: int, groups: int, depth: int) -> tuple[fp.VotingClassifier, fp.Graph, fp.GroupVotes]:
    """A model that says whether there are so many edges, of a star."""
    voting = fp.VotingClassifier(
        lambda graphs: [int(graph.num_edges >= edges) for graph in graphs], groups, num_classes=2
    )
    graph = fp.Graph(8, [(0, node) for node in range(1, 7)])
    return voting, graph, voting.price(graph, depth=depth)


def test_the_cheapest_purchase_and_its_flips() -> None:
    voting, graph, votes = priced(4, 1, 3)
    certificate = votes.certify()
    spots = votes.weak_spots(certificate.radius)
    assert spots is not None
    assert spots.succeeds
    assert spots.rival == 0
    assert len(spots.flips) == certificate.radius + 1 == 3
    assert voting.predict(graph.flipped(spots.flips)) == 0
    assert spots.rows == ((0, ClassCell(1), ClassCell(0), "3", "yes"),)
    assert spots.weights is None


def test_unknown_prices_make_no_attack() -> None:
    _, _, votes = priced(4, 1, 2)
    spots = votes.weak_spots(votes.certify().radius)
    assert spots is not None
    assert (spots.flips, spots.succeeds) == ((), False)
    assert spots.rows[0][3] == "≥ 3"


def test_what_is_bought_comes_first_and_costs_the_radius_and_one() -> None:
    seen = 0
    for seed in range(60):
        model = Table(3, seed, 0, 0.8)
        voting = fp.VotingClassifier(model, fp.EdgeGroups(4, seed), num_classes=3)
        votes = voting.price(fp.Graph(5, [(0, 1), (1, 2), (2, 3), (3, 4)]), depth=1)
        certificate = votes.certify()
        spots = votes.weak_spots(certificate.radius)
        if spots is None:
            continue
        bought = [row for row in spots.rows if row[4]]
        assert list(spots.rows[: len(bought)]) == bought
        assert sum(int(str(row[3]).removeprefix("≥ ")) for row in bought) == certificate.radius + 1
        if spots.succeeds:
            seen += 1
            assert len(spots.flips) == certificate.radius + 1
            assert voting.predict(votes.graph.flipped(spots.flips)) != certificate.label
    assert seen > 5


def test_evidence_that_does_not_know_says_so() -> None:
    _, _, votes = priced(4, 3, 0)
    assert votes.prices is None
    assert votes.weak_spots(votes.certify().radius) is None
    assert Evidence.weak_spots(votes, 0) is None


def test_rivals_are_numbered_as_classes() -> None:
    """The rival of a label in the middle is a class, not a column."""
    assert [part.tolist() for part in rivals_of(1, 3)] == [[0, 2], [-1, 1]]
    graph = fp.Graph(2, [])
    views = np.zeros((2, 3))
    evidence = LocalScores(
        graph, 3, np.zeros(2, dtype=np.int64), 1, np.array([-5.0, 0.0, 1.0]), views, np.full(3, 1e-15)
    )
    spots = evidence.weak_spots(0)
    assert evidence.label == 1
    assert spots is not None
    assert spots.rival == 2


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"columns": ("one",), "rows": ((1, 2),)}, "must have 1 cells"), ({"succeeds": True}, "without flips")],
)
def test_weak_spots_that_cannot_be(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(fp.InputError, match=words):
        WeakSpots(0, **wrong)  # type: ignore[arg-type]
