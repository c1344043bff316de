"""Coverage: with known class probabilities, false certificates stay within alpha, also at the worst point.

A certificate is false if it names another class than the most likely one, or a radius at which the worst base
classifier with these probabilities changes its answer (there is one: the bound is attained). The worst points are
ties, where any name is false, and shares exactly at the threshold of a radius.

Simulations use fixed seeds. Had the seed been random, a sound method would fail a test with probability below
``FALSE_ALARM``.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from flipproof import EdgeNoise, Graph, certify_counts
from flipproof.certificates import paper
from flipproof.certificates import vote_share as by_votes
from support import exact

FALSE_ALARM = 1e-6
RUNS = 20_000
ALPHA = 0.05
UNBOUNDED = 1000

GRAPH = Graph(8, [(0, 1), (1, 2)])
SYMMETRIC, UNEQUAL = EdgeNoise(keep=0.8), EdgeNoise(add=0.1, remove=0.4)


# ---- points at which a method is at its worst --------------------------------------------------------------


def boundary(noise: EdgeNoise, flips: int, others: float) -> float:
    """The largest share of A for which radius ``flips`` is false while B has all but A's share and ``others``."""

    def withstood(share: float) -> bool:
        top, rest = Fraction(share), 1 - Fraction(share) - Fraction(others)
        return all(exact.certified(noise, *split, top, rest) for split in exact.splits(flips))

    low, high = 0.5 * (1 - others), 1 - others
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (low, middle) if withstood(middle) else (middle, high)
    return low


def at_threshold(noise: EdgeNoise, flips: int, num_classes: int, *others: float) -> np.ndarray:
    """Class probabilities at the boundary of a radius: A, B, the given others, and classes without any."""
    share = boundary(noise, flips, sum(others))
    rival = 1 - share - sum(others)
    rival = float(np.nextafter(rival, 1)) if others else rival  # rounding must not move it to the safe side
    return np.array([share, rival, *others, *[0.0] * (num_classes - 2 - len(others))])


def equal_rivals(noise: EdgeNoise, flips: int, num_classes: int) -> np.ndarray:
    """Class probabilities at the boundary of a radius where all rivals are alike: each may be the one that wins."""

    def withstood(rival: float) -> bool:
        top = 1 - (num_classes - 1) * Fraction(rival)
        return all(exact.certified(noise, *split, top, Fraction(rival)) for split in exact.splits(flips))

    low, high = 0.0, 1 / num_classes
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if withstood(middle) else (low, middle)
    return np.array([float(1 - (num_classes - 1) * Fraction(high)), *[high] * (num_classes - 1)])


def true_radius(probabilities: np.ndarray, noise: EdgeNoise, most: int = 8) -> int:
    """Of the smoothed prediction, for the worst base classifier with these probabilities; -1 for a tie."""
    second, top = map(Fraction, sorted(probabilities.tolist())[-2:])
    return -1 if top <= second else exact.radius(noise, top, second, max_radius=most)


CASES = {
    "2 classes, radius 1": (SYMMETRIC, at_threshold(SYMMETRIC, 1, 2), 1000),
    "2 classes, radius 2": (SYMMETRIC, at_threshold(SYMMETRIC, 2, 2), 1000),
    "2 classes, radius 1, few samples": (EdgeNoise(keep=0.55), at_threshold(EdgeNoise(keep=0.55), 1, 2), 30),
    "2 classes, radius 2, unequal noise": (UNEQUAL, at_threshold(UNEQUAL, 2, 2), 500),
    "2 classes, tied": (SYMMETRIC, np.array([0.5, 0.5]), 1000),
    "3 classes, radius 1, one without votes": (SYMMETRIC, at_threshold(SYMMETRIC, 1, 3), 1000),
    "3 classes, radius 1": (SYMMETRIC, at_threshold(SYMMETRIC, 1, 3, 0.03), 300),
    "3 classes, two tied": (SYMMETRIC, np.array([0.48, 0.48, 0.04]), 300),
    "3 classes, all tied": (SYMMETRIC, np.full(3, 1 / 3), 100),
    "8 classes, radius 2, six without votes": (SYMMETRIC, at_threshold(SYMMETRIC, 2, 8), 1000),
    "8 classes, radius 1, top below half": (
        EdgeNoise(keep=0.6),
        at_threshold(EdgeNoise(keep=0.6), 1, 8, 0.15, 0.15),
        40,
    ),
    # one rival at the threshold, and many more classes of which any may look like it
    "40 classes, radius 1, top below half": (
        EdgeNoise(keep=0.6),
        at_threshold(EdgeNoise(keep=0.6), 1, 40, *[2**-7] * 38),
        200,
    ),
    "40 classes, radius 1, equal rivals": (EdgeNoise(keep=0.6), equal_rivals(EdgeNoise(keep=0.6), 1, 40), 200),
    "8 classes, two tied": (SYMMETRIC, np.array([0.49, 0.49, 0.02, *[0.0] * 5]), 200),
}


# ---- simulation --------------------------------------------------------------------------------------------


def false_certificates(
    noise: EdgeNoise, probabilities: np.ndarray, samples: int, *, method: str, alpha: float, runs: int = RUNS
) -> int:
    """How many of so many simulated certifications are false; one stands for all with the same two largest counts."""
    rng = np.random.default_rng(20_20)
    best, truth = int(np.argmax(probabilities)), true_radius(probabilities, noise)
    drawn = rng.multinomial(samples, probabilities, runs)
    leading = np.stack([drawn[:, best], np.delete(drawn, best, axis=1).max(axis=1)], axis=1)
    _, first, times = np.unique(leading, axis=0, return_index=True, return_counts=True)
    false = 0
    for counts, number in zip(drawn[first], times.tolist(), strict=True):
        found = certify_counts(counts, noise, alpha=alpha, method=method)
        if found.label is not None and (found.label != best or found.radius > truth):
            false += number
    return false


def fits(false: int, alpha: float, runs: int = RUNS) -> bool:
    """Whether so many false certificates are plausible for a failure probability of at most alpha."""
    return float(stats.binom.sf(false - 1, runs, alpha)) > FALSE_ALARM


@pytest.mark.parametrize("method", ["votes", "paper"])
@pytest.mark.parametrize(("noise", "probabilities", "samples"), CASES.values(), ids=CASES.keys())
def test_false_certificates_stay_within_alpha(
    noise: EdgeNoise, probabilities: np.ndarray, samples: int, method: str
) -> None:
    false = false_certificates(noise, probabilities, samples, method=method, alpha=ALPHA)
    assert fits(false, ALPHA), f"{false} of {RUNS}"


@pytest.mark.guarantee
@pytest.mark.parametrize("method", ["votes", "paper"])
@pytest.mark.parametrize(("noise", "probabilities", "samples"), CASES.values(), ids=CASES.keys())
def test_false_certificates_stay_within_alpha_in_many_runs(
    noise: EdgeNoise, probabilities: np.ndarray, samples: int, method: str
) -> None:
    for alpha, runs in ((0.3, 50_000), (0.01, 200_000), (0.001, 500_000)):
        false = false_certificates(noise, probabilities, samples, method=method, alpha=alpha, runs=runs)
        assert fits(false, alpha, runs), f"{false} of {runs} at {alpha}"


def test_the_points_are_the_worst_ones() -> None:
    """At a threshold the radius is false, and a hair above it it is true; a tie has no radius."""
    for flips in (1, 2):
        for others in (0.0, 0.1):
            share = boundary(SYMMETRIC, flips, others)
            for step, withstood in ((0.0, False), (1e-12, True)):
                top = Fraction(share + step)
                rest = 1 - top - Fraction(others)
                assert exact.certified(SYMMETRIC, flips, 0, top, rest) == withstood
    for name, (noise, probabilities, _) in CASES.items():
        words = name.split()
        wanted = -1 if "tied" in words else int(words[words.index("radius") + 1].rstrip(",")) - 1
        assert true_radius(probabilities, noise) == wanted, name
        assert len(probabilities) == int(words[0])
        assert probabilities.sum() == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("method", ["votes", "paper"])
@pytest.mark.parametrize(
    "name", ["2 classes, radius 1", "2 classes, radius 2", "3 classes, radius 1, one without votes"]
)
def test_five_times_alpha_is_caught(name: str, method: str) -> None:
    """The planted fault: bounds at ``5 alpha`` on a certificate that says alpha."""
    noise, probabilities, samples = CASES[name]
    false = false_certificates(noise, probabilities, samples, method=method, alpha=5 * ALPHA)
    assert not fits(false, ALPHA)


@pytest.mark.parametrize("method", ["votes", "paper"])
def test_a_label_without_a_test_is_caught(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: a tied class is named whenever its share's bound allows it."""
    home = {"votes": "vote_share"}.get(method, method)
    monkeypatch.setattr(f"flipproof.certificates.{home}.label_pvalue", lambda top, second: 0.0)
    noise, probabilities, samples = CASES["2 classes, tied"]
    false = false_certificates(noise, probabilities, samples, method=method, alpha=ALPHA)
    assert not fits(false, ALPHA)


def test_most_of_alpha_is_used() -> None:
    """Within alpha, but not by wasting it: the bounds are not far wider than they need to be."""
    for method, least in (("votes", 0.7), ("paper", 0.8)):
        false = false_certificates(*CASES["2 classes, radius 1"], method=method, alpha=ALPHA)
        assert false > least * ALPHA * RUNS


# ---- without simulation ------------------------------------------------------------------------------------


def exact_failure(noise: EdgeNoise, samples: int, alpha: float, method: str, most: int = 3) -> float:
    """The largest failure probability over shares of two classes at the thresholds of radii, relative to alpha."""
    from_counts = paper.from_counts if method == "paper" else by_votes.from_counts
    radii = np.empty(samples + 1, dtype=int)  # of a class with so many votes, if it is named
    for count in range(samples + 1):
        found = from_counts(np.array([count, samples - count]), noise, alpha=alpha, limits=(UNBOUNDED, UNBOUNDED))
        radii[count] = found.radius if found.label == 0 else -1
    worst = 0.0
    for flips in range(most + 1):
        share = 0.5 if flips == 0 else boundary(noise, flips, 0.0)
        chances = stats.binom.pmf(np.arange(samples + 1), samples, share)
        too_far, behind = chances[radii >= flips].sum(), chances[::-1][radii >= 0].sum()
        worst = max(worst, too_far + behind)
    return worst / alpha


EXACT = [
    (noise, samples, alpha)
    for noise in (EdgeNoise(keep=0.51), EdgeNoise(keep=0.55), EdgeNoise(keep=0.6), SYMMETRIC, UNEQUAL)
    for samples, alpha in ((6, 0.05), (8, 0.1), (8, 0.3), (29, 0.01), (44, 0.01), (100, 0.05))
]


@pytest.mark.parametrize("method", ["votes", "paper"])
def test_failure_probability_is_at_most_alpha_exactly(method: str) -> None:
    """Few samples and large alpha, where naming a class that is behind is likeliest."""
    for noise, samples, alpha in EXACT:
        assert exact_failure(noise, samples, alpha, method) <= 1 + 1e-9, (noise, samples, alpha)


def test_the_papers_own_level_is_too_large_for_few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """At level alpha, as printed, the failure probability exceeds alpha: so the level is lowered there."""
    noise = EdgeNoise(keep=0.55)
    assert exact_failure(noise, 8, 0.1, "paper") <= 1
    monkeypatch.setattr(paper, "share_level", lambda samples, noise, alpha: alpha)
    assert exact_failure(noise, 8, 0.1, "paper") > 1.05


def test_the_papers_level_is_kept_where_it_is_sound() -> None:
    for keep in (0.55, 0.6, 0.7, 0.8, 0.9):
        for samples in (2000, 10_000, 100_000):
            level = paper.share_level(samples, EdgeNoise(keep=keep), 0.001)
            assert level == pytest.approx(0.001, rel=1e-9)
    assert paper.share_level(20, EdgeNoise(keep=0.55), 0.001) == 0.0005
    assert paper.share_level(1, EdgeNoise(add=0, remove=0), 0.001) == 0.001
