"""The matched knapsack against all attacks on small graphs, and the weak spots that it names."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import flipproof as fp
from flipproof.certificates.certificate import ClassCell
from flipproof.certificates.local_scores import LocalScores, leads_over_rivals, rivals_of
from flipproof.certificates.matched_knapsack import KINDS, NodeLosses, greedy_bounds, worst_drops
from flipproof.certificates.node_views import NodeViews, views_of
from flipproof.graphs import slots_of_pairs
from support.local_tables import looked_at, random_case
from support.tables import Table

CASES = {
    "unlabelled": {"nodes": 5},
    "labelled": {"nodes": 5, "kinds": 2},
    "every node its own kind": {"nodes": 4, "kinds": 40},
    "several classes": {"nodes": 4, "kinds": 2, "classes": 4},
    "frozen pairs": {"nodes": 5, "kinds": 2, "frozen": 0.3},
    "ties": {"nodes": 4, "kinds": 2, "classes": 3, "integers": True},
}
COUNTED = {
    "edges counted": {"nodes": 5, "counted": True},
    "edges counted, several classes": {"nodes": 4, "classes": 4, "counted": True},
    "edges counted, labelled, frozen pairs": {"nodes": 5, "kinds": 2, "frozen": 0.3, "counted": True},
}


@pytest.mark.parametrize("name", CASES | COUNTED)
@pytest.mark.parametrize("networks", [25, pytest.param(300, marks=pytest.mark.guarantee)])
def test_no_certificate_above_the_truth_and_exact_for_one_flip(name, networks):
    """The radius and every cell of the grid, over all attacks; one flip is decided exactly, and most of the radius certified."""
    case, rng = (CASES | COUNTED)[name], np.random.default_rng(0 if networks == 25 else 7)
    if networks > 25:
        case = case | {"nodes": 5}
    certified = truth = one = 0
    for _ in range(networks):
        evidence, attacked = random_case(rng, **case)
        certificate, graph = evidence.certify(), evidence.graph
        assert certificate.label == attacked.answers[0]
        if certificate.label is None:
            assert certificate.radius == -1
            continue
        true = attacked.radius(certificate.label, graph.num_slots)
        assert certificate.radius <= true
        assert (certificate.radius >= 1) == (true >= 1)
        certified, truth, one = certified + certificate.radius, truth + true, one + (true >= 1)
        for adds, removes in np.argwhere(certificate.grid):
            assert attacked.withstood(certificate.label, adds, removes)
        if graph.max_adds and attacked.withstood(certificate.label, 1, 0):
            assert certificate.grid[1, 0]
        if graph.max_removes and attacked.withstood(certificate.label, 0, 1):
            assert certificate.grid[0, 1]
        for depth in (1, 2, 3) if networks > 25 else ():
            assert looked_at(evidence, depth).certify().radius <= certificate.radius
    assert one >= 3
    least = 0.6 if name in COUNTED or networks == 25 else {"every node its own kind": 0.7, "ties": 0.7}.get(name, 0.75)
    assert certified >= least * truth


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_beyond_the_depth_a_bound_on_votes_takes_the_place_of_a_look(case, depth):
    """Never above the truth, never above the whole look, and radii beyond the depth are certified."""
    rng = np.random.default_rng(6)
    deeper = 0
    for _ in range(25):
        evidence, attacked = random_case(rng, **case)
        whole, certificate = evidence.certify(), looked_at(evidence, depth).certify()
        if certificate.label is None:
            continue
        assert certificate.radius <= min(whole.radius, attacked.radius(certificate.label, evidence.graph.num_slots))
        assert (certificate.radius >= 1) == (whole.radius >= 1)
        for adds, removes in np.argwhere(certificate.grid):
            assert attacked.withstood(certificate.label, adds, removes)
        deeper += certificate.radius > depth
    assert deeper


@pytest.mark.parametrize("case", COUNTED.values(), ids=COUNTED.keys())
def test_with_counted_edges_nothing_beyond_the_depth_is_certified(case):
    rng = np.random.default_rng(6)
    reached = 0
    for _ in range(25):
        evidence, _ = random_case(rng, **case)
        whole, certificate = evidence.certify(), looked_at(evidence, 1).certify()
        assert certificate.radius <= min(whole.radius, 1)
        reached += certificate.radius == 1
    assert reached


def test_a_counted_offset_must_be_the_offset():
    evidence, _ = random_case(np.random.default_rng(0), nodes=4, counted=True)
    with pytest.raises(fp.InputError, match="must hold the offset itself"):
        replace(evidence, offset=evidence.offset + 1)
    with pytest.raises(fp.InputError, match="offsets must be finite"):
        replace(evidence, offsets=evidence.offsets[1:])


@pytest.mark.parametrize("depth", [None, 1])
def test_drops_are_upper_bounds_for_every_rival_and_number_of_flips(depth):
    """Also where the answer would stand, and beyond the depth; where all was looked at, exact for one flip."""
    rng = np.random.default_rng(8)
    for case in ({"nodes": 5, "kinds": 2, "classes": 3}, {"nodes": 5, "kinds": 3, "classes": 3, "frozen": 0.3}):
        for _ in range(20):
            evidence, attacked = random_case(rng, **case)
            seen = evidence if depth is None else looked_at(evidence, depth)
            leads, columns = leads_over_rivals(attacked.totals, 1, 3), rivals_of(1, 3)[0]
            bound = None if depth is None else seen.bound[columns]
            losses = NodeLosses(seen.views, leads_over_rivals(seen.scores, 1, 3), bound)
            sizes = attacked.adds + attacked.removes
            for flips in range(1, min(8 if depth else 4, evidence.graph.num_slots) + 1):
                true, bound = (leads[0] - leads[sizes == flips]).max(axis=0), worst_drops(losses, flips)
                assert (bound >= true - 1e-9).all()
                if flips == 1 and depth is None:
                    np.testing.assert_allclose(bound, true)
            for adds, removes in itertools.product(range(5 if depth else 3), repeat=2):
                inside = (attacked.adds == adds) & (attacked.removes == removes)
                if adds + removes and inside.any():
                    bound = worst_drops(losses, (adds, removes))
                    assert (bound >= (leads[0] - leads[inside]).max(axis=0) - 1e-9).all()


def test_greedy_bounds_lie_above_the_knapsack():
    """For every kind and number of flips; often they meet."""
    rng = np.random.default_rng(5)
    meet = 0
    for depth in (None, 1, 2) * 8:
        evidence, _ = random_case(rng, nodes=6, kinds=2, classes=3, frozen=0.1, attacked=False)
        seen = evidence if depth is None else looked_at(evidence, depth)
        bound = None if seen.bound is None else seen.bound[rivals_of(1, 3)[0]]
        losses = NodeLosses(seen.views, leads_over_rivals(seen.scores, 1, 3), bound)
        greedy = greedy_bounds(losses, 6)
        for place, kind in enumerate(KINDS):
            for flips in range(1, 7):
                budget = {"either": flips, "adds": (flips, 0), "removes": (0, flips)}[kind]
                exact = worst_drops(losses, budget)
                assert (greedy[place, flips] >= exact - 1e-9).all()
                meet += np.isclose(exact, greedy[place, flips]).sum()
    assert meet > 100


@pytest.mark.parametrize("gap", [0.0, 1e-16, 1e-12])
def test_nearly_tied_scores_are_not_certified(gap):
    """A lead within the margin is never certified against a flip; a lead of exactly 0 is no answer."""
    graph, kinds = fp.Graph(4, [(0, 1)]), np.zeros(4, dtype=np.int64)
    views = NodeViews.of(graph, kinds, 3)
    scores = np.ones((len(views), 1))
    evidence = LocalScores(graph, 2, kinds, 3, np.array([-4.0 + gap]), scores, np.array([1e-12]))
    certificate = evidence.certify()
    assert certificate.radius == (-1 if evidence.totals[0] == 0 else 0)
    assert certificate.label == (None if evidence.totals[0] == 0 else 0)
    sure = LocalScores(graph, 2, kinds, 3, np.array([-3.0]), scores, np.array([1e-12]))
    assert sure.certify().radius == graph.num_slots


def test_evidence_round_trip_and_refusals():
    evidence, _ = random_case(np.random.default_rng(6), nodes=4, kinds=2, classes=3)
    again = LocalScores.from_bytes(evidence.to_bytes())
    assert again == evidence
    assert again.digest == evidence.digest
    assert again.certify() == evidence.certify()
    with pytest.raises(fp.InputError, match="shape"):
        LocalScores(evidence.graph, 3, evidence.kinds, 3, evidence.offset, evidence.scores[1:], evidence.rounding)
    with pytest.raises(fp.InputError, match="finite"):
        LocalScores(evidence.graph, 3, evidence.kinds, 3, evidence.offset, evidence.scores * np.inf, evidence.rounding)


def place_of(evidence, flips):
    """The number of an attack in the list of all attacks."""
    slots = slots_of_pairs(np.array(flips), evidence.graph.num_nodes)
    bits = np.searchsorted(evidence.graph.slots, slots)
    assert evidence.graph.slots[bits].tolist() == slots.tolist()  # no frozen pair
    return sum(1 << int(bit) for bit in bits)


@pytest.mark.parametrize("counted", [False, True])
def test_local_flips_do_what_is_said_of_them(counted):
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


def test_a_lead_within_rounding_is_no_success():
    graph, kinds = fp.Graph(3, [(0, 1)]), np.zeros(3, dtype=np.int64)
    degrees = views_of(graph, kinds, 2).counts
    scores = np.where(degrees == 2, -3.0, 1.0)  # 3 before, -1 after another edge
    clear, blurred = (
        LocalScores(graph, 2, kinds, 2, np.zeros(1), scores, np.full(1, rounding)).weak_spots(0)
        for rounding in (1e-15, 1.0)
    )
    assert (clear.succeeds, len(clear.flips)) == (True, 1)
    assert (blurred.succeeds, len(blurred.flips)) == (False, 1)
    assert clear.rows[-1][1] == blurred.rows[-1][1] == "-1"


def priced(edges, groups, depth):
    """A model that says whether there are so many edges, of a star."""
    voting = fp.VotingClassifier(lambda graphs: [int(one.num_edges >= edges) for one in graphs], groups, num_classes=2)
    graph = fp.Graph(8, [(0, node) for node in range(1, 7)])
    return voting, graph, voting.price(graph, depth=depth)


def test_the_cheapest_purchase_and_its_flips():
    voting, graph, votes = priced(4, 1, 3)
    certificate = votes.certify()
    spots = votes.weak_spots(certificate.radius)
    assert spots.succeeds
    assert spots.rival == 0
    assert len(spots.flips) == certificate.radius + 1 == 3
    assert voting.predict(graph.flipped(spots.flips)) == 0
    assert spots.rows == ((0, ClassCell(1), ClassCell(0), "3", "yes"),)
    assert spots.weights is None


def test_unknown_prices_make_no_attack():
    _, _, votes = priced(4, 1, 2)
    spots = votes.weak_spots(votes.certify().radius)
    assert (spots.flips, spots.succeeds) == ((), False)
    assert spots.rows[0][3] == "≥ 3"


def test_what_is_bought_comes_first_and_costs_the_radius_and_one():
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
