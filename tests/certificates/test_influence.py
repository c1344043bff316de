"""The influence certificate: its counts, its test of the lead, the worst set, and what it refuses."""

import itertools
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flipproof import EdgeNoise, Graph, InputError, certify_votes
from flipproof.certificates.influence import climb, lead_test, statistics
from flipproof.certificates.influence.climb import default_split
from flipproof.certificates.influence.lead_test import Attack, Cells, LeadTest, log_excess
from flipproof.certificates.influence.statistics import count_flips
from flipproof.certificates.influence.worst_set import Quadruples, SetWeights, all_above
from flipproof.noise import BLOCK, SampleStream
from support.certificates import votes_of

KEEP8 = EdgeNoise(keep=0.8)
UNEQUAL = EdgeNoise(add=0.05, remove=0.4)


def linear_votes(noise, *, nodes=8, samples=3000, classes=3, seed=0, lead=2.0, **options: Any):
    """Votes of a linear classifier of the slots on a ring."""
    graph = Graph(nodes, [(i, (i + 1) % nodes) for i in range(nodes)], **options)
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(graph.num_slots, classes)) / 3
    start = np.zeros(classes)
    start[0] = lead
    flips = SampleStream(graph, noise, seed=seed).flips(0, samples)
    return votes_of((flips @ weights + start).argmax(axis=1), graph, noise, classes, seed)


@pytest.mark.parametrize("noise", [KEEP8, UNEQUAL])
def test_counts_are_those_of_a_plain_loop(noise):
    votes = linear_votes(noise, nodes=5, samples=1500)
    counts = count_flips(votes, 3)
    flips = votes.stream().flips(0, 1500)
    for label in range(3):
        chosen = flips[votes.labels == label]
        none, single, double = (counts.table([label], order) for order in range(3))
        assert none == len(chosen)
        for i, j in itertools.combinations(range(10), 2):
            assert single[i] == chosen[:, i].sum()
            assert double[i, j] == double[j, i] == (chosen[:, i] & chosen[:, j]).sum()
        for i, j, k in itertools.permutations((0, 3, 4, 8, 9), 3):
            assert counts.table([label], 3)[i, j, k] == (chosen[:, i] & chosen[:, j] & chosen[:, k]).sum()
    both = counts.table([0, 2], 3)
    assert both[1, 2, 3] == (flips[:, 1] & flips[:, 2] & flips[:, 3] & (votes.labels != 1)).sum()


def test_counts_do_not_depend_on_how_samples_are_cut(monkeypatch):
    votes = linear_votes(KEEP8, nodes=5, samples=3500)
    sets = ([0], [1, 2], [0, 1, 2])
    whole = count_flips(votes, 3)
    tables = [(labels, order, whole.table(labels, order)) for order in range(4) for labels in sets]
    monkeypatch.setattr(statistics, "_CHUNK", BLOCK)
    for bits in (1 << 29, 0):  # flips that are kept, and flips that are made again
        monkeypatch.setattr(statistics, "_KEPT_BITS", bits)
        cut = count_flips(votes, 3)
        for labels, order, table in tables:
            assert np.array_equal(table, cut.table(labels, order))


@pytest.mark.parametrize("order", [3, 4])
@pytest.mark.parametrize("noise", [KEEP8, UNEQUAL])
def test_the_statistic_of_a_set_is_that_of_a_plain_loop(noise, order):
    votes = linear_votes(noise, nodes=5, samples=1500)
    counts, states = count_flips(votes, order), votes.graph.slot_states
    flips = votes.stream().flips(0, 1500)
    rng = np.random.default_rng(0)
    for adds, removes in ((1, 0), (1, 1), (2, 1), (3, 1), (0, 4), (2, 3)):
        attack = Attack.of(noise, states, adds=adds, removes=removes)
        cells = Cells.of(attack.groups, 1.0, min(order if attack.size == 4 else 3, attack.size))
        top, rival = rng.normal(size=(2, len(cells.kinds)))
        test = LeadTest(*(dict(zip(cells.kinds, part, strict=True)) for part in (top, rival)), 0.0, 0.0)
        weights = counts.weights(test, attack, 0, [2, 1])
        chosen = [
            int(rng.choice(np.flatnonzero(attack.members == group), replace=False))
            if count == 1
            else rng.choice(np.flatnonzero(attack.members == group), size=count, replace=False).tolist()
            for group, count in enumerate(weights.counts)
        ]
        places = np.hstack([np.atleast_1d(part) for part in chosen])
        seen = flips[:, attack.slots[places]]
        of_place = attack.members[places]
        by_group = np.stack([seen[:, of_place == group].sum(axis=1) for group in range(len(attack.groups))])
        shape = tuple(group.count + 1 for group in attack.groups)
        cell = np.ravel_multi_index(tuple(by_group), shape)
        plain = np.where(votes.labels == 0, (top @ cells.features)[cell], -(rival @ cells.features)[cell]).sum()
        assert subset_sum(weights, places.tolist()) == pytest.approx(plain, rel=1e-5)


def subset_sum(weights, chosen):
    """The sum over the subsets of a set, one by one."""
    value = weights.constant + sum(weights.single[i] for i in chosen)
    if weights.double is not None:
        value += sum(weights.double[i, j] for i, j in itertools.combinations(chosen, 2))
    if weights.triple is not None:
        value += sum(float(weights.triple[t]) for t in itertools.combinations(chosen, 3))
    if weights.quadruple is not None:
        ranks = sorted(int(np.flatnonzero(weights.quadruple.ranked == slot)[0]) for slot in chosen)
        for first, *rest in itertools.combinations(ranks, 4):
            value += float(weights.quadruple.after(first)[tuple(rank - first - 1 for rank in rest)])
    return float(value)


@pytest.mark.parametrize("num_classes", [2, 8])
@pytest.mark.parametrize("noise", [KEEP8, EdgeNoise(keep=0.99), UNEQUAL, EdgeNoise(add=0.0, remove=0.4)])
def test_every_default_split_adds_up_to_at_most_one(noise, num_classes):
    states = np.arange(40) % 3 == 0
    paid = 0
    for order, adds, removes in ((3, 1, 0), (3, 0, 2), (2, 2, 2), (3, 4, 1), (0, 1, 1)):
        split = default_split(
            noise, states, adds, removes, samples=10_000, alpha=0.001, order=order, num_classes=num_classes
        )
        assert 0.1 + sum(split) + (0 if noise.symmetric else 0.01) <= 1 + 1e-15
        assert split.lead > 0 or split.top + split.rivals >= 0.9 - 0.011
        assert split.top + split.rivals >= 0.4 - 1e-12  # the grid's level
        assert (split.rivals > 0) == (num_classes > 2)
        paid += split.lead > 0
    assert paid > 0 or noise.p_add == 0.01


def test_the_bound_is_attained():
    # one slot, two classes: class 0 has half of the votes whatever is seen, so the lead is just lost
    attack = Attack.of(KEEP8, np.zeros(5, dtype=np.bool_), adds=1, removes=0)
    cells = Cells.of(attack.groups, 1.0, 1)
    size = 0.02
    ratio = cells.y / cells.x
    gain, price = np.log1p(size * ratio), -np.log1p(-size * ratio)
    top, rival = (np.array([value[0], value[1] - value[0]]) for value in (gain, price))
    assert abs(log_excess(cells, top, rival, size)) < 1e-11
    mean = (cells.x * (np.exp(gain) + np.exp(-price)) / 2).sum()
    assert mean == pytest.approx(1, abs=1e-12)


class Nonsense:
    """A solver that answers with anything."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def minimize(self, cost, start, **_: Any):
        values = self.rng.normal(size=len(start)) * 10.0 ** self.rng.uniform(-3, 12)
        kind = self.rng.integers(0, 4)
        if kind < 2:
            values[self.rng.integers(0, len(start))] = (np.nan, np.inf)[kind]
        return type("Answer", (), {"x": np.abs(values) if kind == 2 else values})


def forget_tests():
    lead_test._designed.cache_clear()
    LeadTest._of.cache_clear()


def test_a_solver_that_returns_nonsense_only_makes_radii_smaller(monkeypatch):
    cases = [linear_votes(noise, seed=seed) for noise in (KEEP8, EdgeNoise(add=0.2, remove=0.3)) for seed in range(3)]
    before = [certify_votes(votes).radius for votes in cases]
    monkeypatch.setattr(lead_test.optimize, "minimize", Nonsense(2).minimize)
    forget_tests()
    after = [certify_votes(votes).radius for votes in cases]
    forget_tests()
    assert all(low <= high for low, high in zip(after, before, strict=True))
    assert min(after) >= 0
    assert sum(after) < sum(before)


def random_weights(rng, counts, order):
    slots = int(rng.integers(sum(counts) + 1, 9))
    members = np.sort(rng.integers(0, len(counts), slots))
    for group, count in enumerate(counts):  # enough of each
        members[sum(counts[:group]) : sum(counts[:group]) + count] = group
    members = np.sort(members)
    double = rng.normal(size=(slots, slots))
    ranked = rng.permutation(slots)
    four = [random_cube(rng, slots - rank - 1) for rank in range(slots)]
    return SetWeights(
        float(rng.normal()),
        rng.normal(size=slots),
        double + double.T if order > 1 else None,
        random_cube(rng, slots) if order > 2 else None,
        members,
        counts,
        Quadruples(ranked, four.__getitem__, max(float(np.abs(cube).max(initial=0)) for cube in four))
        if order > 3
        else None,
    )


def random_cube(rng, slots):
    cube = rng.normal(size=(slots,) * 3)
    return sum(np.transpose(cube, axes) for axes in itertools.permutations(range(3))).astype(np.float32)


@pytest.mark.parametrize(
    ("counts", "order"),
    [
        *itertools.product(((1,), (2,), (3,), (4,), (6,), (1, 1), (2, 1), (1, 3), (2, 3), (3, 0)), (1, 2, 3)),
        *itertools.product(((4,), (1, 3), (2, 2), (3, 1), (4, 0)), (4,)),
    ],
)
def test_the_worst_set_is_found(counts, order):
    rng = np.random.default_rng(sum(counts) + 10 * order)
    for _ in range(15):
        weights = random_weights(rng, counts, order)
        groups = [np.flatnonzero(weights.members == group) for group in range(len(counts))]
        if any(len(places) < count for places, count in zip(groups, counts, strict=True)):
            continue
        sets = itertools.product(*map(itertools.combinations, groups, counts))
        least = min(subset_sum(weights, [int(i) for part in chosen for i in part]) for chosen in sets)
        assert all_above(weights, least - 0.01, effort=10**7)
        assert not all_above(weights, least + 1e-6, effort=10**7)
        if order > 1 and sum(counts) > 1:
            assert not all_above(weights, least - 0.01, effort=3)  # no proof, no certificate


def test_a_certificate_tells_order_and_what_the_share_alone_gives():
    votes = linear_votes(KEEP8, samples=10_000)
    certificate = certify_votes(votes)
    alone = certify_votes(votes, method="votes")
    assert certificate.method == "influence"
    assert certificate.order == 3
    assert certificate.votes_radius == alone.radius == alone.votes_radius
    assert certificate.radius > alone.radius
    assert certificate.label == 0
    assert certificate.counts == alone.counts
    assert certificate.alpha == 0.001
    assert certificate.p_lower < votes.counts[0] / len(votes)
    assert certificate.p_upper > votes.counts[1:].max() / len(votes)
    adds, removes = np.ogrid[: certificate.grid.shape[0], : certificate.grid.shape[1]]
    assert np.array_equal(certificate.grid, adds + removes <= certificate.radius)


def test_unequal_noise_gives_a_grid_closed_downward_that_holds_the_radius():
    certificate = certify_votes(linear_votes(UNEQUAL, samples=10_000))
    grid, radius = certificate.grid, certificate.radius
    assert radius >= certificate.votes_radius
    adds, removes = np.ogrid[: grid.shape[0], : grid.shape[1]]
    assert grid[adds + removes <= radius].all()
    for axis in (0, 1):
        assert np.array_equal(grid, np.logical_and.accumulate(grid, axis=axis))


def test_a_classifier_that_ignores_edges_is_certified_further_than_its_share():
    # nine of ten samples are class 0 whatever is flipped: no attack changes that, and the counts show it
    votes = linear_votes(KEEP8, samples=10_000)
    labels = np.random.default_rng(0).choice(2, p=[0.85, 0.15], size=10_000).astype(np.uint8)
    certificate = certify_votes(replace(votes, labels=labels))
    assert certificate.votes_radius == 0
    assert certificate.radius >= 3


def test_four_slots_counted_together_certify_four_flips_that_three_do_not(monkeypatch):
    noise, samples = EdgeNoise(keep=0.7), 40_000
    votes = linear_votes(noise, nodes=6, samples=samples)
    labels = np.random.default_rng(0).choice(2, p=[0.57, 0.43], size=samples).astype(np.uint8)
    votes = replace(votes, labels=labels, num_classes=2)
    with_four = certify_votes(votes)
    monkeypatch.setattr(climb, "_FOURTH_WORK", 0)
    without = certify_votes(votes)
    assert (with_four.order, without.order) == (4, 3)
    assert with_four.radius >= 4
    assert without.radius == 3


@pytest.mark.parametrize("noise", [EdgeNoise(add=0.005, remove=0.6), EdgeNoise(keep=0.9)])
def test_nearly_unanimous_votes_are_certified_as_far_as_by_their_share(noise):
    votes = linear_votes(noise, nodes=10, samples=1000)
    for lost in (0, 1, 3, 10):
        labels = np.zeros(1000, dtype=np.uint8)
        labels[:lost] = 1
        certificate = certify_votes(replace(votes, labels=labels))
        assert certificate.radius >= certificate.votes_radius


def test_beyond_the_limit_influence_is_votes_with_all_of_alpha(monkeypatch):
    votes = linear_votes(KEEP8)
    monkeypatch.setattr(climb, "_FIRST_SLOTS", 10)
    certificate, alone = certify_votes(votes), certify_votes(votes, method="votes")
    assert certificate.order == 0
    assert replace(certificate, method="votes") == alone


def test_a_large_sparse_graph_gets_first_order_and_pays_for_the_sampler():
    noise = EdgeNoise(add=0.0005, remove=0.3)
    graph = Graph(100, [(i, i + 1) for i in range(99)])
    stream = SampleStream(graph, noise, seed=0)
    assert stream.sparse
    votes = votes_of(stream.flips(0, 2048)[:, :5].sum(axis=1) >= 3, graph, noise)
    certificate = certify_votes(votes)
    assert certificate.order >= 1
    assert certificate.removes_radius >= 1


def test_flips_that_come_in_another_order_of_slots_are_refused(monkeypatch):
    votes = linear_votes(KEEP8)
    plain = SampleStream._dense_flips
    monkeypatch.setattr(SampleStream, "_dense_flips", lambda self, start, stop: plain(self, start, stop)[:, ::-1])
    with pytest.raises(InputError, match="expected checksum"):
        certify_votes(votes)


@pytest.mark.parametrize("change", [{"seed": 1}, {"noise": EdgeNoise(keep=0.81)}, {"graph": Graph(8, [(0, 7)])}])
def test_votes_with_another_seed_noise_or_graph_are_refused(change):
    with pytest.raises(InputError, match=r"not those that the votes were cast on.*sample again"):
        certify_votes(replace(linear_votes(KEEP8), **change))


def test_a_wrong_last_block_is_refused_even_if_few_of_its_samples_are_used():
    votes = linear_votes(KEEP8, samples=1100)
    wrong = replace(votes, checksums=(votes.checksums[0], votes.checksums[0]))
    with pytest.raises(InputError, match="samples 1024 to 2047"):
        certify_votes(wrong)
    assert certify_votes(wrong, samples=1024).radius >= 0


def test_without_compilation_the_certificate_is_the_same(tmp_path):
    votes = linear_votes(EdgeNoise(keep=0.6), nodes=4, samples=600)
    votes.save(tmp_path / "votes")
    read = "import flipproof; print(flipproof.certify_votes(flipproof.Votes.load('votes'), alpha=0.05).to_dict())"
    plain = subprocess.run(
        [sys.executable, "-c", read],
        cwd=tmp_path,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    certificate = certify_votes(votes, alpha=0.05)
    assert certificate.order == 3
    assert plain.stdout.strip() == str(certificate.to_dict())
