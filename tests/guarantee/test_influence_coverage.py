"""Coverage of the influence certificate: classifiers that sit at its own threshold, certified again and again.

A certificate is false if it withstands more than the truth. The classifiers here lose by a hair under one attack and are as
safe as can be otherwise, so that nothing but the test of that one attack stands between them and a false certificate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats

from flipproof import EdgeNoise, certify_votes
from flipproof.certificates.influence.lead_test import Attack, SignTest
from flipproof.certificates.sampled_votes import Votes
from support.cube import Cube, all_states

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
    def flips(self) -> int:
        return len(self.shares) - 1


def cube_of(case: Case) -> Cube:
    """A classifier with these shares, made of the other slots' states.

    The losing attack is the flip of all of the first slots: its lead is pushed just below 0. Of several ways to deal out the
    states, the one is taken that makes all other attacks of this size least harmful.
    """
    dealt = [_dealt(case, np.random.default_rng(seed)) for seed in range(40)]
    return max(dealt, key=lambda cube: min(leads.min() for leads in cube.least_leads(case.flips).values()))


def _dealt(case: Case, rng: np.random.Generator) -> Cube:
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


def last_share(noise: EdgeNoise, *others: float) -> tuple[tuple[float, float], ...]:
    """Two classes, given shares for 0, 1, ... flipped slots, and such a last one that the attack leaves exactly one half."""
    flips = len(others)
    moved = stats.binom.pmf(np.arange(flips + 1), flips, 1 - noise.p_add)
    last = (0.5 - float(moved[:-1] @ np.array(others))) / moved[-1]
    assert 0 <= last <= 1
    return tuple((share, 1 - share) for share in (*others, last))


B9, B8, B7 = EdgeNoise(keep=0.9), EdgeNoise(keep=0.8), EdgeNoise(keep=0.7)
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


def false_certificates(case: Case, alpha: float, trials: int) -> tuple[int, int]:
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


@pytest.mark.parametrize("case", [CASES[0], CASES[3], CASES[7]], ids=lambda case: case.name)
def test_false_certificates_stay_within_alpha(case: Case) -> None:
    alpha, trials = 0.2, 150
    false, full = false_certificates(case, alpha, trials)
    assert false <= stats.binom.isf(1e-6, trials, alpha)
    assert full > 0.5 * trials  # else nothing was at stake


@pytest.mark.guarantee
@pytest.mark.parametrize("alpha", [0.02, 0.3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_false_certificates_stay_within_alpha_in_many_trials(
    case: Case, alpha: float, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = 1500
    false, full = false_certificates(case, alpha, trials)
    with capsys.disabled():
        print(
            f"\n{case.name:36} alpha {alpha:4}: false {false / trials:.4f}, up to the truth {full / trials:.2f}", end=""
        )
    assert false <= stats.binom.isf(1e-6, trials, alpha)
    assert full > 0.2 * trials


def weak_noise_votes(noise: EdgeNoise, shares: tuple[float, float], samples: int, seed: int) -> Votes:
    """A classifier that looks at slot 0 alone and draws lots: shares of class 0 where it is not flipped and where it is."""
    clean = np.zeros(SLOTS, dtype=np.bool_)
    flipped = np.array([0, 1] * 2 ** (SLOTS - 1))
    votes = Cube(noise, clean, flipped, 2).votes(samples, seed)
    right = np.random.default_rng(seed).random(samples) < np.array(shares)[votes.labels]
    return replace(votes, labels=(~right).astype(np.uint8))


def false_sign_tests(keep: float, alpha: float, trials: int) -> int:
    """How many of so many certificates withstand the flip of slot 0, which leaves class 0 one half of the votes exactly."""
    noise, samples = EdgeNoise(keep=keep), 4000
    elsewhere = 0.75 if keep < 0.98 else 0.9  # near one half, but high enough for all other slots to pass
    attack = Attack.of(noise, np.zeros(SLOTS, dtype=np.bool_), adds=1, removes=0)
    assert SignTest.of(attack, samples=samples, level=alpha / 2) is not None
    shares = (elsewhere, (0.5 - noise.p_add * elsewhere) / (1 - noise.p_add))
    found = [
        certify_votes(weak_noise_votes(noise, shares, samples, seed), alpha=alpha, method="influence")
        for seed in range(trials)
    ]
    assert sum(certificate.radius >= 0 for certificate in found) > 0.5 * trials
    return sum(certificate.radius > 0 for certificate in found)


@pytest.mark.parametrize("keep", [0.95, 0.99])
def test_false_sign_tests_stay_within_alpha(keep: float) -> None:
    alpha, trials = 0.3, 200
    false = false_sign_tests(keep, alpha, trials)
    assert 0 < false <= stats.binom.isf(1e-6, trials, alpha)


@pytest.mark.guarantee
@pytest.mark.parametrize("alpha", [0.02, 0.3])
@pytest.mark.parametrize("keep", [0.95, 0.98, 0.99])
def test_false_sign_tests_stay_within_alpha_in_many_trials(
    keep: float, alpha: float, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = 1500
    false = false_sign_tests(keep, alpha, trials)
    with capsys.disabled():
        print(f"\nsign test, keep {keep}, alpha {alpha:4}: false {false / trials:.4f}", end="")
    assert false <= stats.binom.isf(1e-6, trials, alpha)
