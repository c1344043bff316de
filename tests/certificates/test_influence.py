"""The influence certificate: its statistics, its programmes, and what it refuses."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from flipproof import AlphaSplit, EdgeNoise, Graph, InputError, Votes, certify_votes
from flipproof.certificates.bounds import lower_bound, upper_bound
from flipproof.certificates.influence import choose_order, programme, statistics
from flipproof.certificates.influence.attack import Attack
from flipproof.certificates.influence.climb import default_split
from flipproof.certificates.influence.programme import (
    Cells,
    basic_multipliers,
    lead_by_identity,
    lead_by_programme,
    lead_by_triples,
)
from flipproof.certificates.influence.statistics import (
    MomentBounds,
    TripleBounds,
    bound_moments,
    count_flips,
    lower_moments,
    tightened,
)
from flipproof.certificates.vote_share import worst_case
from flipproof.noise import BLOCK, SampleStream
from support.cube import Cube, all_states, classifier

KEEP8 = EdgeNoise(keep=0.8)
UNEQUAL = EdgeNoise(add=0.05, remove=0.4)


def linear_votes(
    noise: EdgeNoise,
    *,
    nodes: int = 8,
    samples: int = 3000,
    classes: int = 3,
    seed: int = 0,
    lead: float = 2.0,
    **options: Any,
) -> Votes:
    """Votes of a linear classifier of the slots on a ring."""
    graph = Graph(nodes, [(i, (i + 1) % nodes) for i in range(nodes)], **options)
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(graph.num_slots, classes)) / 3
    start = np.zeros(classes)
    start[0] = lead
    stream = SampleStream(graph, noise, seed=seed)
    labels, checksums = [], []
    for begin in range(0, samples, BLOCK):
        checksum = stream.new_checksum()
        checksum.update(stream.batch(begin, begin + BLOCK)[1])
        checksums.append(checksum.hexdigest())
        labels.append((stream.flips(begin, begin + BLOCK) @ weights + start).argmax(axis=1))
    return Votes(np.concatenate(labels)[:samples].astype(np.uint8), graph, noise, classes, seed, tuple(checksums))


def cubes(count: int = 12) -> list[Cube]:
    rng = np.random.default_rng(3)
    noises = (KEEP8, EdgeNoise(keep=0.9), UNEQUAL, EdgeNoise(add=0.3, remove=0.2))
    clean = np.array([True, False, True, False, True, False])
    kinds = ("random", "threshold", "junta")
    return [
        Cube(noises[i % 4], clean, classifier(kinds[i % 3], 6, 2 + i % 2, clean, rng), 2 + i % 2) for i in range(count)
    ]


# ---- statistics ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [KEEP8, UNEQUAL])
def test_counts_are_those_of_a_plain_loop(noise: EdgeNoise) -> None:
    votes = linear_votes(noise, nodes=5, samples=1500)
    counts = count_flips(votes, 3)
    flips = votes.stream().flips(0, 1500)
    for label in range(3):
        chosen = flips[votes.labels == label]
        assert counts.tables[0][label] == len(chosen)
        for i, j in itertools.combinations(range(10), 2):
            assert counts.tables[1][label, i] == chosen[:, i].sum()
            assert counts.tables[2][label, i, j] == counts.tables[2][label, j, i] == (chosen[:, i] & chosen[:, j]).sum()
    columns = np.array([1, 4, 7])
    within = counts.pairs_within(3, columns, np.array([0, 1, 1]))
    for a, b in itertools.product(range(3), range(3)):
        both = flips[:, 3] & flips[:, columns[a]] & flips[:, columns[b]]
        assert within[0, a, b] == (both & (votes.labels == 0)).sum()
        assert within[1:, a, b].tolist() == [(both & (votes.labels != 0)).sum(), 0, 0]


def test_counts_do_not_depend_on_how_samples_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    votes = linear_votes(KEEP8, nodes=5, samples=3500)
    whole = count_flips(votes, 2)
    monkeypatch.setattr(statistics, "_CHUNK", BLOCK)
    cut = count_flips(votes, 2)
    for first, second in zip(whole.tables, cut.tables, strict=True):
        assert np.array_equal(first, second)


def test_fewer_samples_read_the_same_as_if_no_more_had_been_cast() -> None:
    long, short = linear_votes(KEEP8, samples=3000), linear_votes(KEEP8, samples=1500)
    assert certify_votes(long, samples=1500) == certify_votes(short)


@pytest.mark.parametrize("noise", [KEEP8, UNEQUAL, EdgeNoise(add=0.0, remove=0.3)])
def test_failure_probabilities_of_one_attacked_set_add_up_to_its_share(noise: EdgeNoise) -> None:
    states = np.array([True, False, True, False, True, False, False])
    for adds, removes in ((1, 0), (0, 1), (1, 1), (3, 0), (2, 3), (1, 2)):
        attack = Attack.of(noise, states, adds=adds, removes=removes)
        chosen = [
            part.start + k for part, group in zip(attack.parts, attack.groups, strict=True) for k in range(group.count)
        ]
        for order in (1, 2):
            if order > attack.size:
                continue
            levels = attack.levels(order)
            total = sum(levels[subset] for subset in itertools.combinations(chosen, order))
            assert total <= 1
            assert total == pytest.approx(1)


@pytest.mark.parametrize("num_classes", [2, 8])
@pytest.mark.parametrize("noise", [KEEP8, EdgeNoise(keep=0.99), UNEQUAL, EdgeNoise(add=0.0, remove=0.4)])
def test_every_default_split_adds_up_to_at_most_one(noise: EdgeNoise, num_classes: int) -> None:
    states = np.arange(40) % 3 == 0
    for order, adds, removes in itertools.product((0, 1, 2, 3), range(5), range(5)):
        split = default_split(Attack.of(noise, states, adds=adds, removes=removes), 10_000, order, num_classes)
        assert split.label + split.top + split.rivals + split.first + split.second + split.third <= 1
        assert split.top > 0
        assert (split.rivals > 0) == (num_classes > 2)


def test_looked_up_bounds_are_never_better_than_clopper_pearson_and_near_it() -> None:
    rng = np.random.default_rng(0)
    trials = rng.binomial(10_000, 0.04, size=(60, 60))
    successes = rng.binomial(trials, 0.9)
    found = statistics._looked_up(lower_bound, successes, trials, 1e-4)
    exact = lower_bound(successes, trials, failure_prob=1e-4)
    assert np.all(found <= exact)
    assert np.max(exact - found) < 1e-6
    found = statistics._looked_up(upper_bound, trials - successes, trials, 1e-4)
    assert np.all(found >= upper_bound(trials - successes, trials, failure_prob=1e-4))
    many = trials * 50
    found = statistics._looked_up(lower_bound, successes * 50, many, 1e-4)
    exact = lower_bound(successes * 50, many, failure_prob=1e-4)
    assert np.all(found <= exact)
    assert np.max(exact - found) < 0.004
    for few in (trials - successes, np.zeros_like(trials), trials):
        assert np.all(statistics._upper_table(1e-4, 10)(few, trials) >= upper_bound(few, trials, failure_prob=1e-4))


def test_moment_bounds_enclose_the_exact_influences_as_often_as_they_should() -> None:
    cube = cubes(1)[0]
    attack = Attack.of(cube.noise, cube.clean, adds=0, removes=2)
    split = AlphaSplit(label=0.1, top=0.2, rivals=0.0, first=0.3, second=0.4, balance=1.0)
    exact = cube.influences(0, 2)
    misses = 0
    for seed in range(60):
        counts = count_flips(cube.votes(1000, seed), 2)
        lower = lower_moments(counts, attack, split, alpha=0.2, top=0)
        pair = (0, 3)
        misses += bool(
            lower[0] > exact[0] or any(lower[1][i] > exact[1][i] for i in pair) or lower[2][pair] > exact[2][pair]
        )
    assert misses <= 25  # 60 trials at 0.18


# ---- programmes ----------------------------------------------------------------------------------------------------


def exact_bounds(cube: Cube, attack: Attack, order: int, rival: int = 1) -> MomentBounds:
    take = [np.ix_(*(attack.slots,) * k) if k else () for k in range(order + 1)]
    lower, upper = cube.influences(0, order), cube.influences(rival, order)
    return MomentBounds(
        tuple(np.asarray(lower[k][take[k]]) for k in range(order + 1)),
        tuple(np.asarray(upper[k][take[k]]) for k in range(order + 1)),
    )


def test_the_identity_is_exact() -> None:
    for cube in cubes():
        for flips in (1, 2, 3):
            for adds, removes, states in cube.attacks(flips):
                attack = Attack.of(cube.noise, cube.clean, adds=adds, removes=removes)
                if cube.noise.symmetric:
                    states = np.concatenate([more for *_, more in cube.attacks(flips)])
                shares = cube.shares_after(states)
                truth = (shares[:, 0] - shares[:, 1]).min()
                bounds = exact_bounds(cube, attack, flips)
                if flips < 3:
                    found = lead_by_identity(bounds, attack)
                else:
                    third = bounds.lower[3], bounds.upper[3]
                    found = lead_by_triples(
                        MomentBounds(bounds.lower[:3], bounds.upper[:3]),
                        attack,
                        lambda i, j, k, third=third: (third[0][i, j, k], third[1][i, j, k]),
                        enough=np.inf,
                        hopeless=-np.inf,
                    )
                assert found == pytest.approx(truth, abs=1e-9)


def test_the_programme_is_never_below_the_bound_from_the_share_alone() -> None:
    for cube in cubes():
        if cube.num_classes > 2:
            continue
        for adds, removes in ((3, 0), (0, 3), (2, 1), (2, 2)):
            attack = Attack.of(cube.noise, cube.clean, adds=adds, removes=removes)
            for order in (1, 2):
                bound = lead_by_programme(exact_bounds(cube, attack, order), attack, coupled=False, goal=np.inf)
                share = worst_case(min(1.0, float(cube.shares[0])), cube.noise, adds, removes)
                assert bound >= 2 * share - 1 - 1e-6  # the solver's accuracy where two groups meet


@pytest.mark.parametrize("flips", [2, 3, 5, 8])
@pytest.mark.parametrize("order", [1, 2])
def test_tabled_multipliers_reach_the_optimum_of_the_programme(flips: int, order: int) -> None:
    rng = np.random.default_rng(flips)
    attack = Attack.of(KEEP8, np.zeros(12, dtype=np.bool_), adds=flips, removes=0)
    cells = Cells.of(attack.groups, 1.0, order)
    table = basic_multipliers(attack.groups, 1.0, order)
    for _ in range(10):
        moments = cells.features @ (cells.x * rng.random(flips + 1) ** 0.3)
        solved = optimize.linprog(cells.y, A_ub=-cells.x * cells.features, b_ub=-moments, bounds=(0, 1), method="highs")
        tabled = float(np.max(table.rows @ moments + table.constants))
        assert tabled == pytest.approx(solved.fun, abs=1e-6)


def test_what_lower_orders_imply_is_true_and_never_a_loss() -> None:
    for cube in cubes():
        attack = Attack.of(cube.noise, cube.clean, adds=1, removes=1)
        exact = exact_bounds(cube, attack, 2)
        vague = MomentBounds(
            (exact.lower[0], exact.lower[1], np.zeros_like(exact.lower[2])),
            (exact.upper[0], exact.upper[1], attack.flip_probability(2)),
        )
        better = tightened(vague, attack)
        off = ~np.eye(len(attack.slots), dtype=np.bool_)
        assert np.all(better.lower[2][off] <= exact.lower[2][off] + 1e-12)
        assert np.all(better.upper[2][off] >= exact.upper[2][off] - 1e-12)
        assert np.all(better.lower[2] >= vague.lower[2])
        assert np.all(better.upper[2] <= vague.upper[2] * (1 + 1e-12))


class Nonsense:
    """A solver, and tables, that answer with anything."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def numbers(self, count: int) -> np.ndarray:
        kind = self.rng.integers(0, 5)
        scale = 10.0 ** self.rng.uniform(-3, 12)
        values = self.rng.normal(size=count) * scale
        if kind == 0:
            values[self.rng.integers(0, count)] = np.nan
        if kind == 1:
            values[self.rng.integers(0, count)] = np.inf
        if kind == 2:
            values = np.abs(values)
        return values if kind < 4 else values[: count // 2]

    def linprog(self, cost: np.ndarray, A_ub: np.ndarray, **_: Any) -> Any:
        if self.rng.random() < 0.1:
            raise ValueError("no answer")
        answer = self.numbers(len(A_ub))
        return type("Answer", (), {"ineqlin": type("Marginals", (), {"marginals": answer})})

    def best(self, table: Any, moments: np.ndarray) -> np.ndarray:
        return self.numbers(len(moments))


def test_a_solver_that_returns_nonsense_never_makes_a_false_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    nonsense = Nonsense(1)
    monkeypatch.setattr(programme.optimize, "linprog", nonsense.linprog)
    monkeypatch.setattr(programme._Multipliers, "best", lambda table, moments: nonsense.best(table, moments))
    checked = 0
    for cube in cubes(24):
        if np.argmax(cube.shares) != 0:
            continue
        for flips in (2, 3, 4):
            kinds = cube.least_leads(flips)
            if cube.noise.symmetric:
                kinds = {(flips, 0): np.min(list(kinds.values()), axis=0)}
            for (adds, removes), leads in kinds.items():
                attack = Attack.of(cube.noise, cube.clean, adds=adds, removes=removes)
                for order in (1, 2):
                    bounds = tightened(exact_bounds(cube, attack, order), attack)
                    for _ in range(3):
                        assert lead_by_programme(bounds, attack, coupled=cube.num_classes > 2, goal=np.inf) <= leads[1]
                        checked += 1
    assert checked > 500


def test_a_solver_that_returns_nonsense_only_makes_radii_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [linear_votes(noise, seed=seed) for noise in (KEEP8, EdgeNoise(add=0.2, remove=0.3)) for seed in range(3)]
    before = [certify_votes(votes).radius for votes in cases]
    nonsense = Nonsense(2)
    monkeypatch.setattr(programme.optimize, "linprog", nonsense.linprog)
    monkeypatch.setattr(programme._Multipliers, "best", lambda table, moments: nonsense.best(table, moments))
    programme.basic_multipliers.cache_clear()
    after = [certify_votes(votes, split=AlphaSplit(0.05, 0.3, 0.1, 0.2, 0.3, 0.05)).radius for votes in cases]
    assert all(low <= high + 1 for low, high in zip(after, before, strict=True))
    assert min(after) >= 0


# ---- certificates --------------------------------------------------------------------------------------------------


def test_a_certificate_tells_order_and_what_the_share_alone_gives() -> None:
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


def test_unequal_noise_gives_a_grid_closed_downward_that_holds_the_radius() -> None:
    certificate = certify_votes(linear_votes(UNEQUAL, samples=10_000))
    grid, radius = certificate.grid, certificate.radius
    assert radius >= certificate.votes_radius
    adds, removes = np.ogrid[: grid.shape[0], : grid.shape[1]]
    assert grid[adds + removes <= radius].all()
    for axis in (0, 1):
        assert np.array_equal(grid, np.logical_and.accumulate(grid, axis=axis))


@pytest.mark.parametrize("noise", [EdgeNoise(add=0.0, remove=0.4), EdgeNoise(add=0.3, remove=0.0)])
def test_a_probability_of_zero_is_handled(noise: EdgeNoise) -> None:
    votes = linear_votes(noise, samples=5000, lead=2.5)
    certificate = certify_votes(votes)
    assert certificate.radius == 0  # one flip that the noise cannot undo often enough
    possible = certificate.removes_radius if noise.p_remove else certificate.adds_radius
    alone = certify_votes(votes, method="votes")
    assert possible >= (alone.removes_radius if noise.p_remove else alone.adds_radius)
    assert possible >= 1


def test_no_noise_gives_radius_zero() -> None:
    certificate = certify_votes(linear_votes(EdgeNoise(add=0, remove=0), samples=500))
    assert (certificate.radius, certificate.order) == (0, 0)


def test_frozen_slots_are_no_part_of_any_attack() -> None:
    pairs = [(0, v) for v in range(1, 8)]
    votes = linear_votes(KEEP8, frozen=pairs)
    certificate = certify_votes(votes)
    assert certificate.num_slots == 21
    assert certificate.radius >= 0


def test_a_graph_without_slots_has_radius_zero() -> None:
    graph = Graph(1, [])
    stream = SampleStream(graph, KEEP8, seed=0)
    votes = Votes(np.zeros(1000, dtype=np.uint8), graph, KEEP8, 2, 0, tuple(stream.checksums(1000)))
    assert certify_votes(votes).radius == 0


def test_cells_that_the_graph_cannot_offer_count_as_certified() -> None:
    graph = Graph(3, [(0, 1)])
    stream = SampleStream(graph, KEEP8, seed=0)
    votes = Votes(np.zeros(10_000, dtype=np.uint8), graph, KEEP8, 2, 0, tuple(stream.checksums(10_000)))
    assert certify_votes(votes).radius == 3


def test_an_even_vote_abstains() -> None:
    votes = linear_votes(KEEP8)
    even = replace(votes, labels=(np.arange(len(votes)) % 2).astype(np.uint8))
    certificate = certify_votes(even)
    assert certificate.abstains
    assert (certificate.radius, certificate.grid.size) == (-1, 0)


def test_a_classifier_that_looks_at_one_slot_gets_no_more_than_the_truth() -> None:
    clean = np.zeros(6, dtype=np.bool_)
    labels = (np.arange(64) & 1).astype(np.int64)  # flips with slot 0
    for seed in range(5):
        assert certify_votes(Cube(KEEP8, clean, labels, 2).votes(5000, seed)).radius == 0


def test_a_classifier_that_ignores_edges_is_certified_further_than_its_share() -> None:
    # nine of ten samples are class 0 whatever is flipped: no attack changes that, and the counts show it
    votes = linear_votes(KEEP8, samples=10_000)
    labels = np.random.default_rng(0).choice(2, p=[0.85, 0.15], size=10_000).astype(np.uint8)
    certificate = certify_votes(replace(votes, labels=labels))
    assert certificate.votes_radius == 0
    assert certificate.radius >= 3


def test_few_votes_beside_many_classes_below_one_half() -> None:
    votes = linear_votes(KEEP8, samples=10_000)
    labels = np.random.default_rng(0).choice(5, p=[0.48, 0.13, 0.13, 0.13, 0.13], size=10_000).astype(np.uint8)
    certificate = certify_votes(replace(votes, labels=labels, num_classes=5))
    assert certificate.p_lower < 0.5
    assert certificate.radius >= 1


def test_own_split_is_used() -> None:
    votes = linear_votes(KEEP8, samples=10_000)
    first = certify_votes(votes, split=AlphaSplit(label=0.1, top=0.4, rivals=0.1, first=0.4))
    assert first.order == 1
    assert certify_votes(votes, split=AlphaSplit(label=0.1, top=0.8, rivals=0.1)).order == 0
    assert first.radius <= certify_votes(votes).radius
    with pytest.raises(InputError, match="split must be an AlphaSplit"):
        certify_votes(votes, split="half")  # type: ignore[arg-type]


def test_beyond_the_limit_influence_is_votes_with_all_of_alpha(monkeypatch: pytest.MonkeyPatch) -> None:
    from flipproof.certificates.influence import climb

    votes = linear_votes(KEEP8)
    monkeypatch.setattr(climb, "_FIRST_SLOTS", 10)
    certificate, alone = certify_votes(votes), certify_votes(votes, method="votes")
    assert certificate.order == 0
    assert replace(certificate, method="votes") == alone


def test_order_depends_on_sizes_alone() -> None:
    assert choose_order(45, 10_000, EdgeNoise(keep=0.8), 8) == 3
    assert choose_order(45, 10_000, EdgeNoise(keep=0.9), 8) == 2  # a triple is flipped in ten samples
    assert choose_order(45, 1_000, EdgeNoise(keep=0.99), 8) == 0
    assert choose_order(2000, 10_000, EdgeNoise(keep=0.8), 8) == 1
    assert choose_order(1, 10_000, EdgeNoise(keep=0.8), 8) == 1
    assert choose_order(0, 10_000, EdgeNoise(keep=0.8), 8) == 0


def test_a_large_sparse_graph_gets_first_order_and_pays_for_the_sampler() -> None:
    noise = EdgeNoise(add=0.0005, remove=0.3)
    graph = Graph(100, [(i, i + 1) for i in range(99)])
    stream = SampleStream(graph, noise, seed=0)
    assert stream.sparse
    labels = np.concatenate(
        [(stream.flips(start, start + BLOCK)[:, :5].sum(axis=1) >= 3) for start in range(0, 2048, BLOCK)]
    ).astype(np.uint8)
    votes = Votes(labels, graph, noise, 2, 0, tuple(stream.checksums(2048)))
    certificate = certify_votes(votes)
    assert certificate.order >= 1
    assert certificate.removes_radius >= 1


# ---- refusals ------------------------------------------------------------------------------------------------------


def test_votes_cast_on_another_order_of_slots_are_refused() -> None:
    votes = linear_votes(KEEP8)
    nodes = votes.graph.num_nodes
    order = np.random.default_rng(0).permutation(nodes)
    shuffled = Graph(nodes, order[votes.graph.edges])
    with pytest.raises(InputError, match="not those that the votes were cast on"):
        certify_votes(replace(votes, graph=shuffled))


def test_flips_that_come_in_another_order_of_slots_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    votes = linear_votes(KEEP8)
    plain, clean = SampleStream._dense_states, votes.graph.slot_states
    backwards = lambda self, start, stop: (plain(self, start, stop) ^ clean)[:, ::-1] ^ clean  # noqa: E731
    monkeypatch.setattr(SampleStream, "_dense_states", backwards)
    with pytest.raises(InputError, match="expected checksum"):
        certify_votes(votes)


@pytest.mark.parametrize("change", [{"seed": 1}, {"noise": EdgeNoise(keep=0.81)}])
def test_votes_with_another_seed_or_noise_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="sample again"):
        certify_votes(replace(linear_votes(KEEP8), **change))


def test_a_wrong_last_block_is_refused_even_if_few_of_its_samples_are_used() -> None:
    votes = linear_votes(KEEP8, samples=1100)
    wrong = replace(votes, checksums=(votes.checksums[0], votes.checksums[0]))
    with pytest.raises(InputError, match="samples 1024 to 2047"):
        certify_votes(wrong)
    assert certify_votes(wrong, samples=1024).radius >= 0


def test_triples_are_bounded_from_counts_of_the_right_samples() -> None:
    votes = linear_votes(KEEP8, samples=10_000)
    counts = count_flips(votes, 3)
    attack = Attack.of(KEEP8, votes.graph.slot_states, adds=0, removes=3)
    split = default_split(attack, 10_000, 3, 3)
    flips = votes.stream().flips(0, 10_000)
    triple = TripleBounds(counts, attack, split, alpha=0.01, top=0, rivals=[1])
    low, high = triple(4, np.array([7, 2]), np.array([9, 20]))
    for place, (j, k) in enumerate(((7, 9), (2, 20))):
        seen = votes.labels[flips[:, 4] & flips[:, j] & flips[:, k]]
        q = KEEP8.p_add**3
        assert low[place] == pytest.approx(
            q * lower_bound((seen == 0).sum(), len(seen), failure_prob=0.01 * split.top_share(3))
        )
        assert (
            high[place]
            <= q * upper_bound((seen == 1).sum(), len(seen), failure_prob=0.01 * split.rival_share(3)) + 1e-7
        )


def test_bounds_for_all_rivals_at_once_are_above_those_for_each() -> None:
    votes = linear_votes(KEEP8, classes=4, samples=5000)
    counts = count_flips(votes, 2)
    attack = Attack.of(KEEP8, votes.graph.slot_states, adds=0, removes=2)
    split = default_split(attack, 5000, 2, 4)
    lower = lower_moments(counts, attack, split, alpha=0.01, top=0)
    every = bound_moments(lower, counts, attack, split, alpha=0.01, rivals=[1, 2, 3])
    for label in (1, 2, 3):
        single = bound_moments(lower, counts, attack, split, alpha=0.01, rivals=[label])
        assert all(np.all(a <= b * (1 + 1e-12)) for a, b in zip(single.upper[:2], every.upper[:2], strict=True))


def test_all_states_are_binary_digits() -> None:
    assert all_states(3)[5].tolist() == [True, False, True]
