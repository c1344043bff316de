"""The influence certificate by brute force, and its coverage."""

import itertools
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

from flipproof import EdgeNoise, certify_votes
from flipproof.certificates.influence.climb import _lead_tests
from flipproof.certificates.influence.lead_test import Attack, Cells, SignTest, log_excess
from flipproof.certificates.vote_share import slack, worst_case
from support.cube import KINDS, Cube, all_states, classifier, statistic

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


def cubes(count, seed, sizes, noises=NOISES):
    rng = np.random.default_rng(seed)
    chosen = []
    while len(chosen) < count:
        slots = int(rng.choice(sizes))
        clean = rng.random(slots) < rng.uniform(0.2, 0.8)
        num_classes = int(rng.choice((2, 3, 5)))
        noise = noises[len(chosen) % len(noises)]
        labels = classifier(KINDS[len(chosen) // len(noises) % len(KINDS)], slots, num_classes, clean, rng)
        cube = Cube(noise, clean, labels, num_classes)
        if np.sort(cube.shares)[-1] > np.sort(cube.shares)[-2]:
            chosen.append(cube)
    return chosen


def check(cube, tally, most_flips):
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
                passes = confirmed(cube, places, adds, order, shares, tally)
                best = {rival: best[rival] | passes[rival] for rival in rivals}
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


def confirmed(cube, places, adds, order, shares, tally):
    """For each rival whether the statistic's exact mean, over so many samples, passes the test for this set.

    Where the lead is lost, the mean of the statistic's exponential must not exceed its bound: this is what the level rests on.
    """
    top = int(np.argmax(cube.shares))
    attack = Attack.of(cube.noise, cube.clean, adds=adds, removes=len(places) - adds)
    room = slack(cube.noise, adds, len(places) - adds)
    rivals = [label for label in range(cube.num_classes) if label != top]
    passed = dict.fromkeys(rivals, False)
    if not attack.size:
        return passed
    tests = _lead_tests(attack, room, order, samples=SAMPLES, level=LEVEL)
    for test, rival in itertools.product(tests, rivals):
        tally["tests"] += 1
        if isinstance(test, SignTest):  # what its level rests on has a test of its own
            cases = SAMPLES * parted_votes(cube, places[0], top, rival)
            passed[rival] |= all(test.passes([ahead], [behind]) for ahead, behind in np.floor(cases).astype(int))
            assert not (passed[rival] and shares[top] <= shares[rival])
            tally["sign tests"] += 1
            continue
        assert test.threshold >= np.log(len(tests) / LEVEL)  # one of them may pass by chance: they share the level
        tally["tests of degree four"] += (4,) in test.top or (2, 2) in test.top or (1, 3) in test.top
        mean, exact, _ = statistic(cube, places, attack, (test.top, test.rival), top, rival)
        passes = SAMPLES * mean > test.threshold
        passed[rival] |= passes
        if shares[top] <= shares[rival]:
            tally["lost leads"] += 1
            bound = (test.threshold + np.log(LEVEL / len(tests))) / SAMPLES
            assert exact <= bound, (exact, bound, cube, places, rival)
            assert not passes
            check_excess(cube, places, attack, (test.top, test.rival), (top, rival), tally)
    kinds = Cells.of(attack.groups, attack.overlap, min(order, attack.size)).kinds
    for rival in (rival for rival in rivals if shares[top] <= shares[rival]):  # anything goes, however poor
        rng = np.random.default_rng(tally["bounds"])
        parts = rng.normal(size=(2, len(kinds))) * 10 ** rng.uniform(-3, 0.5)
        poor, other = (dict(zip(kinds, part, strict=True)) for part in parts.tolist())
        check_excess(cube, places, attack, (poor, other), (top, rival), tally)
    return passed


def check_excess(cube, places, attack, weights, labels, tally):
    """Where the lead is lost, no statistic's exponential has a larger mean than its bound, whatever the balance."""
    _, exact, cells = statistic(cube, places, attack, weights, *labels)
    parts = [np.array([part[kind] for kind in cells.kinds]) for part in weights]
    for balance in (0.0, 1e-3, 0.03, 0.1, 1.0):
        assert exact <= log_excess(cells, *parts, balance)
        tally["bounds"] += 1


def parted_votes(cube, slot, top, rival):
    """Exact shares of the votes for either class, ``[2, 2]``: where the slot is not flipped, and where it is."""
    together, flipped = (np.array([cube.influences(label)[k] for label in (top, rival)]) for k in (0, 1))
    return np.maximum(0, [together - flipped[:, slot], flipped[:, slot]])  # a share of 0 rounds either way


@pytest.mark.parametrize(
    ("count", "seed", "sizes", "most_flips", "bounds", "gain"),
    [(24, 1, (3, 5), 4, 500, 1.0), pytest.param(400, 2, (6, 7, 8), 5, 75_000, 1.1, marks=pytest.mark.guarantee)],
)
def test_no_bound_is_above_the_truth(count, seed, sizes, most_flips, bounds, gain):
    tally: Counter[str] = Counter()
    for cube in cubes(count, seed, sizes):
        check(cube, tally, most_flips)
    assert tally["bounds"] > bounds, tally
    votes, influence, truth = (tally[f"robust cases, {name}"] for name in ("votes", "influence", "truth"))
    assert gain * votes < influence <= truth


@pytest.mark.parametrize("count", [150, pytest.param(600, marks=pytest.mark.guarantee)])
def test_the_sign_test_passes_no_lost_lead_beyond_its_level(count):
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
                tally["shown"] += leads_in_both
    assert tally["lost leads"] > count / 2
    assert tally["shown"] > 0.8 * tally["kept leads"]


def pass_probability(votes, share, level):
    """The exact probability that the sign test passes with so many votes for the two classes."""
    return float(stats.binom.sf(fewest(votes, level) - 1, votes, share))


@cache
def fewest(votes, level):
    """Votes for the top class with which the sign test passes; one more than there are if it never does."""
    test = SignTest(level, needed=1.0)
    return next((count for count in range(votes + 1) if test.passes([count], [votes - count])), votes + 1)


@pytest.mark.parametrize("level", [0.3, 0.01, 0.0005])
def test_the_sign_test_is_exact_at_one_half(level):
    for votes in (5, 20, 100, 333):
        count = fewest(votes, level)
        assert stats.binom.sf(count - 1, votes, 0.5) <= level < stats.binom.sf(count - 2, votes, 0.5)


SLOTS = 10


@dataclass(frozen=True)
class Case:
    """Shares of the classes given how many of the first ``flips`` slots differ from the clean graph, ``[flips + 1, C]``."""

    name: str
    noise: EdgeNoise
    shares: tuple[tuple[float, ...], ...]
    samples: int = 1000
    edges: int = 0  # of the attacked slots, those that hold an edge

    @property
    def flips(self):
        return len(self.shares) - 1


def cube_of(case):
    """A classifier with these shares, made of the other slots' states.

    The losing attack is the flip of all of the first slots: its lead is pushed just below 0. Of several ways to deal out the
    states, the one is taken that makes all other attacks of this size least harmful.
    """
    dealt = [_dealt(case, np.random.default_rng(seed)) for seed in range(40)]
    return max(dealt, key=lambda cube: min(leads.min() for leads in cube.least_leads(case.flips).values()))


def _dealt(case, rng):
    clean = np.zeros(SLOTS, dtype=np.bool_)
    clean[: case.edges] = True
    clean[case.flips :: 2] = True
    states = all_states(SLOTS)
    num_classes = len(case.shares[0])
    cube = Cube(case.noise, clean, np.zeros(len(states), dtype=np.int64), num_classes)
    seen = (states ^ clean)[:, : case.flips].sum(axis=1)
    mass = cube.law(clean)
    for count, shares in enumerate(case.shares):
        rows = np.flatnonzero(seen == count)
        # roughly by mass, so that little is left to deal out at the end
        rows = rows[np.argsort(-mass[rows] * rng.exponential(size=len(rows)) ** 3)]
        wanted = np.array(shares) * mass[rows].sum()
        for row in rows:
            label = int(np.argmax(wanted))
            wanted[label] -= mass[row]
            cube.labels[row] = label
    attacked = clean.copy()
    attacked[: case.flips] ^= True
    law = cube.law(attacked)
    for row in np.flatnonzero(law > 0)[np.argsort(law[law > 0])]:
        shares_now = cube.shares_after(attacked)
        if shares_now[0] - shares_now[1] <= 0:
            break
        if cube.labels[row] == 0:
            cube.labels[row] = 1
    return Cube(case.noise, clean, cube.labels, num_classes)


def last_share(noise, *others: float):
    """Two classes, given shares for 0, 1, ... flipped slots, and such a last one that the attack leaves exactly one half."""
    flips = len(others)
    moved = stats.binom.pmf(np.arange(flips + 1), flips, 1 - noise.p_add)
    last = (0.5 - float(moved[:-1] @ np.array(others))) / moved[-1]
    assert 0 <= last <= 1
    return tuple((share, 1 - share) for share in (*others, last))


B8, B7 = EdgeNoise(keep=0.8), EdgeNoise(keep=0.7)
CASES = (
    Case("one slot", B8, last_share(B8, 1.0)),
    Case("one slot, uncertain throughout", B8, last_share(B8, 0.7)),
    Case("one slot, strong noise", B7, last_share(B7, 0.9)),
    Case("two slots", B8, last_share(B8, 1.0, 1.0)),
    Case("two slots, uncertain throughout", B8, last_share(B8, 0.8, 0.6)),
    Case("three slots, beyond the order", B8, last_share(B8, 1.0, 1.0, 0.9), samples=4000),
    Case("three slots, triples counted", B7, last_share(B7, 1.0, 1.0, 0.5)),
    Case("three classes", B8, ((0.9, 0.05, 0.05), (0.3, 0.5125, 0.1875))),
    Case("four classes, below one half", B8, ((0.5, 0.2, 0.2, 0.1), (0.3, 0.375, 0.2, 0.125))),
    Case("unequal noise, one removal", EdgeNoise(add=0.1, remove=0.3), ((1.0, 0.0), (0.4444, 0.5556)), edges=1),
    Case("removals only", EdgeNoise(add=0.0, remove=0.4), ((1.0, 0.0), (0.5, 0.5)), edges=1),
    Case("four slots, beyond the order", B7, last_share(B7, 1.0, 0.9, 0.6, 0.45), samples=8000),
    Case(
        "four slots, quadruples counted",
        EdgeNoise(keep=0.6),
        last_share(EdgeNoise(keep=0.6), 1.0, 1.0, 0.8, 0.0),
        samples=8000,
    ),
    Case("two slots, half of the votes throughout", B7, ((0.98, 0.02), (0.5, 0.5), (0.49, 0.51)), samples=4000),
)


def false_certificates(case, alpha, trials):
    """How many of so many certificates are false, and how many withstand all that is true at least."""
    cube = cube_of(case)
    truth = cube.radius()
    assert truth == case.flips - 1, (case.name, truth)
    top = int(np.argmax(cube.shares))
    lost = [cell for flips in (1, 2, 3) for cell, leads in cube.least_leads(flips).items() if leads.min() <= 0]
    false, full = 0, 0
    for seed in range(trials):
        certificate = certify_votes(cube.votes(case.samples, seed), alpha=alpha)
        assert certificate.order > 0
        wrong = certificate.radius > truth or any(certificate.grid[a : a + 1, d : d + 1].any() for a, d in lost)
        false += certificate.label is not None and (certificate.label != top or wrong)
        full += certificate.radius >= truth
    return false, full


@pytest.mark.parametrize(
    ("case", "alpha", "trials", "at_stake"),
    [(case, 0.2, 150, 0.5) for case in (CASES[0], CASES[3], CASES[7])]
    + [pytest.param(case, alpha, 1500, 0.2, marks=pytest.mark.guarantee) for case in CASES for alpha in (0.02, 0.3)],
    ids=lambda value: value.name if isinstance(value, Case) else None,
)
def test_false_certificates_stay_within_alpha(case, alpha, trials, at_stake):
    false, full = false_certificates(case, alpha, trials)
    assert false <= stats.binom.isf(1e-6, trials, alpha)
    assert full > at_stake * trials  # else nothing was at stake


def weak_noise_votes(noise, shares, samples, seed):
    """A classifier that looks at slot 0 alone and draws lots: shares of class 0 where it is not flipped and where it is."""
    clean = np.zeros(SLOTS, dtype=np.bool_)
    flipped = np.array([0, 1] * 2 ** (SLOTS - 1))
    votes = Cube(noise, clean, flipped, 2).votes(samples, seed)
    right = np.random.default_rng(seed).random(samples) < np.array(shares)[votes.labels]
    return replace(votes, labels=(~right).astype(np.uint8))


def false_sign_tests(keep, alpha, trials):
    """How many of so many certificates withstand the flip of slot 0, which leaves class 0 one half of the votes exactly."""
    noise, samples = EdgeNoise(keep=keep), 4000
    elsewhere = 0.75 if keep < 0.98 else 0.9  # near one half, but high enough for all other slots to pass
    attack = Attack.of(noise, np.zeros(SLOTS, dtype=np.bool_), adds=1, removes=0)
    assert SignTest.of(attack, samples=samples, level=alpha / 2) is not None
    shares = (elsewhere, (0.5 - noise.p_add * elsewhere) / (1 - noise.p_add))
    certificates = [
        certify_votes(weak_noise_votes(noise, shares, samples, seed), alpha=alpha, method="influence")
        for seed in range(trials)
    ]
    assert sum(certificate.radius >= 0 for certificate in certificates) > 0.5 * trials
    return sum(certificate.radius > 0 for certificate in certificates)


@pytest.mark.parametrize(
    ("keep", "alpha", "trials"),
    [(keep, 0.3, 200) for keep in (0.95, 0.99)]
    + [pytest.param(k, a, 1500, marks=pytest.mark.guarantee) for k in (0.95, 0.98, 0.99) for a in (0.02, 0.3)],
)
def test_false_sign_tests_stay_within_alpha(keep, alpha, trials):
    assert 0 < false_sign_tests(keep, alpha, trials) <= stats.binom.isf(1e-6, trials, alpha)
