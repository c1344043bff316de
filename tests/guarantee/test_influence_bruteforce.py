"""Influence bounds from exact influences against every attack on graphs of up to ten slots: no bound is above the truth."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from flipproof import EdgeNoise, radius
from flipproof.certificates.influence.attack import Attack
from flipproof.certificates.influence.programme import lead_by_identity, lead_by_programme, lead_by_triples
from flipproof.certificates.influence.statistics import MomentBounds, tightened
from flipproof.certificates.vote_share import certified_grid, worst_case
from support.cube import KINDS, Cube, classifier

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


def cubes(count: int, seed: int, sizes: tuple[int, ...]) -> list[Cube]:
    rng = np.random.default_rng(seed)
    found = []
    while len(found) < count:
        slots = int(rng.choice(sizes))
        clean = rng.random(slots) < rng.uniform(0.2, 0.8)
        num_classes = int(rng.choice((2, 3, 5)))
        noise = NOISES[len(found) % len(NOISES)]
        labels = classifier(KINDS[len(found) // len(NOISES) % len(KINDS)], slots, num_classes, clean, rng)
        cube = Cube(noise, clean, labels, num_classes)
        if np.sort(cube.shares)[-1] > np.sort(cube.shares)[-2]:
            found.append(cube)
    return found


def check(cube: Cube, tally: Counter[str], most_flips: int) -> None:
    """Every bound for every kind of attack, order and rival; then the radii that follow."""
    top = int(np.argmax(cube.shares))
    rivals = [label for label in range(cube.num_classes) if label != top]
    order = min(3, cube.slots)
    lower = cube.influences(top, order)
    by_rival = {label: cube.influences(label, order) for label in rivals}
    by_rival[-1] = tuple(
        np.max([by_rival[label][k] for label in rivals], axis=0) for k in range(order + 1)
    )  # all at once
    withstood = dict.fromkeys(("truth", "votes", "influence"), 0)
    going = dict.fromkeys(withstood, True)
    for flips in range(1, min(most_flips, cube.slots) + 1):
        passed = dict.fromkeys(withstood, True)
        kinds = cube.least_leads(flips)
        if cube.noise.symmetric:  # additions and removals are alike
            kinds = {(flips, 0): np.min(list(kinds.values()), axis=0)}
        for (adds, removes), leads in kinds.items():
            attack = Attack.of(cube.noise, cube.clean, adds=adds, removes=removes)
            best = np.full(cube.num_classes, -np.inf)
            for label, upper in by_rival.items():
                truth = leads.min() if label < 0 else leads[label]
                for used in range(1, attack.order(order) + 1):
                    bounds = restricted(lower, upper, attack, used)
                    for name, bound in bounds_of(bounds, attack, coupled=cube.num_classes > 2).items():
                        tally["bounds"] += 1
                        tally[name] += 1
                        assert bound <= truth, (name, bound, truth, cube, adds, removes, label, used)
                        if label >= 0:
                            best[label] = max(best[label], bound)
            best[top] = np.inf
            share = worst_case(min(1.0, float(lower[0])), cube.noise, adds, removes)
            assert share * 2 - 1 <= leads.min() + 1e-9
            passed["truth"] &= bool(leads.min() > 0)
            passed["votes"] &= bool(share > 0.5)
            passed["influence"] &= bool(share > 0.5 or best.min() > 0)
        for method, good in passed.items():
            going[method] &= good
            withstood[method] += going[method]
    assert withstood["votes"] <= withstood["influence"] <= withstood["truth"]
    for method, size in withstood.items():
        tally[f"robust cases, {method}"] += size


def restricted(
    lower: tuple[np.ndarray, ...], upper: tuple[np.ndarray, ...], attack: Attack, order: int
) -> MomentBounds:
    """The tables for the slots of an attack, as statistics would give them."""
    take = [np.ix_(*(attack.slots,) * k) if k else () for k in range(order + 1)]
    return MomentBounds(
        tuple(np.asarray(lower[k][take[k]]) for k in range(order + 1)),
        tuple(np.asarray(upper[k][take[k]]) for k in range(order + 1)),
    )


def bounds_of(exact: MomentBounds, attack: Attack, *, coupled: bool) -> dict[str, float]:
    """All bounds on the lead, with and without what lower orders imply for higher ones."""
    found = {}
    # the listed sums have rounding errors of their own; move them outward, as statistics' bounds are
    exact = MomentBounds(
        tuple(table * (1 - 2.0**-46) for table in exact.lower), tuple(table * (1 + 2.0**-46) for table in exact.upper)
    )
    if len(exact.lower) == 4:
        pairs = MomentBounds(exact.lower[:3], exact.upper[:3])
        third = (exact.lower[3], exact.upper[3])

        def refine(i: int, j: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return third[0][i, j, k], third[1][i, j, k]

        found["triples"] = lead_by_triples(pairs, attack, refine, enough=np.inf, hopeless=-np.inf)
        found["triples as needed"] = lead_by_triples(tightened(pairs, attack), attack, refine)
        return found
    for suffix, bounds in (("", exact), (", tightened", tightened(exact, attack))):
        if attack.size < len(bounds.lower):
            found["identity" + suffix] = lead_by_identity(bounds, attack)
        if attack.size > 1:
            found["programme" + suffix] = lead_by_programme(bounds, attack, coupled=coupled, goal=np.inf)
    return found


def run(count: int, seed: int, sizes: tuple[int, ...], most_flips: int) -> Counter[str]:
    tally: Counter[str] = Counter()
    for cube in cubes(count, seed, sizes):
        check(cube, tally, most_flips)
    return tally


def test_no_bound_is_above_the_truth_on_small_graphs() -> None:
    tally = run(count=40, seed=1, sizes=(3, 5, 6), most_flips=4)
    assert tally["bounds"] > 2_000
    assert tally["robust cases, votes"] < tally["robust cases, influence"] <= tally["robust cases, truth"]


@pytest.mark.guarantee
def test_no_bound_is_above_the_truth_on_a_hundred_thousand_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    tally = run(count=800, seed=2, sizes=(6, 7, 8, 10), most_flips=5)
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
