"""The test of the lead, from exact means, against every attack on graphs of up to eight slots: no lost lead passes."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import cache

import numpy as np
import pytest
from scipy import stats

from flipproof import EdgeNoise, radius
from flipproof.certificates.influence.climb import _lead_tests
from flipproof.certificates.influence.lead_test import Attack, Cells, SignTest, log_excess
from flipproof.certificates.vote_share import certified_grid, slack, worst_case
from support.cube import KINDS, Cube, classifier
from support.leads import log_mean_statistic, mean_statistic

SAMPLES, LEVEL = 10_000, 0.001

NOISES = (
    EdgeNoise(keep=0.9),
    EdgeNoise(keep=0.8),
    EdgeNoise(keep=0.7),
    EdgeNoise(keep=0.55),
    EdgeNoise(add=0.05, remove=0.4),
    EdgeNoise(add=0.3, remove=0.1),
    EdgeNoise(add=0.0, remove=0.4),
    EdgeNoise(add=0.2, remove=0.0),
)


WEAK_NOISES = (EdgeNoise(keep=0.99), EdgeNoise(keep=0.95), EdgeNoise(add=0.01, remove=0.03))


def cubes(count: int, seed: int, sizes: tuple[int, ...], noises: tuple[EdgeNoise, ...] = NOISES) -> list[Cube]:
    rng = np.random.default_rng(seed)
    found = []
    while len(found) < count:
        slots = int(rng.choice(sizes))
        clean = rng.random(slots) < rng.uniform(0.2, 0.8)
        num_classes = int(rng.choice((2, 3, 5)))
        noise = noises[len(found) % len(noises)]
        labels = classifier(KINDS[len(found) // len(noises) % len(KINDS)], slots, num_classes, clean, rng)
        cube = Cube(noise, clean, labels, num_classes)
        if np.sort(cube.shares)[-1] > np.sort(cube.shares)[-2]:
            found.append(cube)
    return found


def check(cube: Cube, tally: Counter[str], most_flips: int) -> None:
    """The test of the lead for every attacked set, order and rival, from exact means; then the radii that follow."""
    top = int(np.argmax(cube.shares))
    rivals = [label for label in range(cube.num_classes) if label != top]
    withstood = dict.fromkeys(("truth", "votes", "influence"), 0)
    going = dict.fromkeys(withstood, True)
    for flips in range(1, min(most_flips, cube.slots) + 1):
        passed = dict.fromkeys(withstood, True)
        for chosen in itertools.combinations(range(cube.slots), flips):
            places = list(chosen)
            removes = int(cube.clean[places].sum())
            adds = flips - removes
            attacked = cube.clean.copy()
            attacked[places] ^= True
            shares = cube.shares_after(attacked)
            best = dict.fromkeys(rivals, False)
            for order in (1, 2, 3, 4):
                best = {r: best[r] | found for r, found in confirmed(cube, places, adds, order, shares, tally).items()}
            share = worst_case(min(1.0, float(cube.shares[top]) * (1 - 1e-12)), cube.noise, adds, removes)
            passed["truth"] &= bool(shares[top] > shares[rivals].max())
            passed["votes"] &= bool(share > 0.5)
            passed["influence"] &= bool(share > 0.5) or all(best.values())
        for method, good in passed.items():
            going[method] &= good
            withstood[method] += going[method]
    assert withstood["votes"] <= withstood["influence"] <= withstood["truth"]
    for method, size in withstood.items():
        tally[f"robust cases, {method}"] += size


def confirmed(
    cube: Cube, places: list[int], adds: int, order: int, shares: np.ndarray, tally: Counter[str]
) -> dict[int, bool]:
    """For each rival whether the statistic's exact mean, over so many samples, passes the test for this set.

    Where the lead is lost, the mean of the statistic's exponential must not exceed its bound: this is what the level rests on.
    """
    top = int(np.argmax(cube.shares))
    attack = Attack.of(cube.noise, cube.clean, adds=adds, removes=len(places) - adds)
    room = slack(cube.noise, adds, len(places) - adds)
    tests = _lead_tests(attack, room, order, samples=SAMPLES, level=LEVEL) if attack.size else []
    rivals = [label for label in range(cube.num_classes) if label != top]
    found = dict.fromkeys(rivals, False)
    for test, rival in itertools.product(tests, rivals):
        tally["tests"] += 1
        if isinstance(test, SignTest):  # what its level rests on has a test of its own
            cases = SAMPLES * parted_votes(cube, places[0], top, rival)
            found[rival] |= all(test.passes([ahead], [behind]) for ahead, behind in np.floor(cases).astype(int))
            assert not (found[rival] and shares[top] <= shares[rival])
            tally["sign tests"] += 1
            continue
        tally["tests of degree four"] += (4,) in test.top or (2, 2) in test.top or (1, 3) in test.top
        mean = SAMPLES * mean_statistic(cube, places, attack, test.top, test.rival, top, rival)
        passes = mean > test.threshold
        found[rival] |= passes
        if shares[top] <= shares[rival]:
            tally["lost leads"] += 1
            bound = (test.threshold + np.log(LEVEL / len(tests))) / SAMPLES
            exact, cells = log_mean_statistic(cube, places, attack, test.top, test.rival, top, rival)
            assert exact <= bound, (exact, bound, cube, places, rival)
            assert not passes
            tally["bounds"] += 1
            parts = [np.array([part[kind] for kind in cells.kinds]) for part in (test.top, test.rival)]
            for balance in (0.0, 1e-3, 0.03):
                assert exact <= log_excess(cells, *parts, balance)
                tally["bounds"] += 1
    return found


def parted_votes(cube: Cube, slot: int, top: int, rival: int) -> np.ndarray:
    """Exact shares of the votes for either class, ``[2, 2]``: where the slot is not flipped, and where it is."""
    together, flipped = (np.array([cube.influences(label, 1)[k] for label in (top, rival)]) for k in (0, 1))
    return np.maximum(0, [together - flipped[:, slot], flipped[:, slot]])  # a share of 0 rounds either way


def test_cells_have_the_laws_of_the_flips() -> None:
    attack = Attack.of(EdgeNoise(add=0.1, remove=0.3), np.array([True, False, False, True]), adds=1, removes=2)
    cells = Cells.of(attack.groups, attack.overlap, 2)
    assert cells.x.sum() == pytest.approx(1)
    assert cells.y.sum() == pytest.approx(1)
    assert cells.kinds == ((0, 0), (0, 1), (1, 0), (0, 2), (1, 1))


def run(count: int, seed: int, sizes: tuple[int, ...], most_flips: int) -> Counter[str]:
    tally: Counter[str] = Counter()
    for cube in cubes(count, seed, sizes):
        check(cube, tally, most_flips)
    return tally


def test_no_bound_is_above_the_truth_on_small_graphs() -> None:
    tally = run(count=24, seed=1, sizes=(3, 5), most_flips=3)
    assert tally["bounds"] > 500
    assert tally["robust cases, votes"] < tally["robust cases, influence"] <= tally["robust cases, truth"]


@pytest.mark.guarantee
def test_no_bound_is_above_the_truth_on_a_hundred_thousand_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    tally = run(count=400, seed=2, sizes=(6, 7, 8), most_flips=5)
    with capsys.disabled():
        print()
        for name, count in sorted(tally.items()):
            print(f"{name:24} {count:8,}")
    assert tally["bounds"] >= 100_000
    assert tally["robust cases, influence"] > 1.1 * tally["robust cases, votes"]


def test_exact_references_agree_with_the_share_bound_for_a_junta_of_the_attacked_slots() -> None:
    # class 0 exactly where slot 0 is as in the clean graph: one flip of it is the worst that its share allows
    clean = np.zeros(3, dtype=np.bool_)
    labels = (np.arange(8) & 1).astype(np.int64)
    cube = Cube(EdgeNoise(keep=0.9), clean, labels, 2)
    assert cube.shares[0] == pytest.approx(0.9)
    assert cube.radius() == 0
    assert radius(cube.shares[0] * (1 - 1e-9), cube.noise) == 0
    assert certified_grid(0.9, cube.noise, 1, 1).sum() == 1


@pytest.mark.parametrize("count", [150, pytest.param(600, marks=pytest.mark.guarantee)])
def test_the_sign_test_passes_no_lost_lead_beyond_its_level(count: int) -> None:
    """For every slot and rival: what the exact shares say, and how often the test then passes, exactly."""
    tally: Counter[str] = Counter()
    for cube in cubes(count=count, seed=3, sizes=(3, 5, 7), noises=(*NOISES[:6], *WEAK_NOISES)):
        top = int(np.argmax(cube.shares))
        for slot, rival in itertools.product(range(cube.slots), range(cube.num_classes)):
            if rival == top:
                continue
            cases = parted_votes(cube, slot, top, rival)
            attacked = cube.clean.copy()
            attacked[slot] ^= True
            after = cube.shares_after(attacked)
            leads_in_both = bool((cases[:, 0] > cases[:, 1]).all())
            if after[top] <= after[rival] - 1e-12:
                tally["lost leads"] += 1
                assert not leads_in_both
                weaker = cases[np.argmin(cases[:, 0] - cases[:, 1])]
                share = weaker[0] / weaker.sum() if weaker.sum() > 0 else 0.0
                assert all(pass_probability(votes, share, LEVEL) <= LEVEL for votes in (1, 9, 60, 500))
            else:
                tally["kept leads"] += 1
                tally["found"] += leads_in_both
    assert tally["lost leads"] > count / 2
    assert tally["found"] > 0.8 * tally["kept leads"]


def pass_probability(votes: int, share: float, level: float) -> float:
    """The exact probability that the sign test passes with so many votes for the two classes."""
    return float(stats.binom.sf(fewest(votes, level) - 1, votes, share))


@cache
def fewest(votes: int, level: float) -> int:
    """Votes for the top class with which the sign test passes; one more than there are if it never does."""
    test = SignTest(level, needed=1.0)
    return next((count for count in range(votes + 1) if test.passes([count], [votes - count])), votes + 1)


@pytest.mark.parametrize("level", [0.3, 0.01, 0.0005])
def test_the_sign_test_is_exact_at_one_half(level: float) -> None:
    for votes in (5, 20, 100, 333):
        count = fewest(votes, level)
        assert stats.binom.sf(count - 1, votes, 0.5) <= level < stats.binom.sf(count - 2, votes, 0.5)
