"""Confidence bounds against many digits: never inside the exact bound, and as good as equal to it."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from flipproof import InputError
from flipproof.certificates.vote_share import checked_alpha, label_pvalue, lower_bound, upper_bound
from support.exact import binomial_tail

TRIALS = (1, 2, 3, 10, 100, 1000, 10_000, 100_000, 1_000_000)
FAILURES = (0.05, 1e-3, 1e-6, 1e-9)


def counts_of(trials: int) -> np.ndarray:
    """Few, many and most successes."""
    shares = (trials // 100, trials // 10, trials // 3, trials // 2, trials * 9 // 10, trials * 99 // 100)
    ends = (1, 2, 5, 30)
    found = {*shares, *ends, *(trials - end + 1 for end in ends)}
    return np.array(sorted(count for count in found if 1 <= count <= trials))


def just_inside(bound: float, relative: float = 1e-9) -> mpmath.mpf:
    """Nearer to the centre by a billionth of the distance to the nearer end."""
    exact = mpmath.mpf(bound)
    return exact + min(exact, 1 - exact) * mpmath.mpf(relative)


# ---- Clopper-Pearson ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure_prob", FAILURES)
@pytest.mark.parametrize("trials", TRIALS)
def test_bounds_are_never_inside_the_exact_ones_and_tight(trials: int, failure_prob: float) -> None:
    """At a bound the tail beyond the count has at most the failure probability, just inside it more."""
    counts = counts_of(trials)
    lower = lower_bound(counts, trials, failure_prob=failure_prob)
    upper = upper_bound(trials - counts, trials, failure_prob=failure_prob)
    with mpmath.workdps(50):
        for count, low, high in zip(counts.tolist(), lower.tolist(), upper.tolist(), strict=True):
            assert binomial_tail(trials, low, count) <= failure_prob
            assert binomial_tail(trials, just_inside(low), count) > failure_prob
            missing = 1 - mpmath.mpf(high)
            assert binomial_tail(trials, missing, count) <= failure_prob
            # near 1 floating point resolves no more than 2**-53
            inside = missing + max(min(missing, 1 - missing) * mpmath.mpf(1e-9), mpmath.mpf(2) ** -51)
            assert binomial_tail(trials, inside, count) > failure_prob


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 10_000), st.floats(0, 1), st.floats(1e-12, 0.999))
def test_lower_bound_anywhere(trials: int, share: float, failure_prob: float) -> None:
    count = max(1, round(share * trials))
    bound = float(lower_bound(count, trials, failure_prob=failure_prob))
    with mpmath.workdps(50):
        assert binomial_tail(trials, bound, count) <= failure_prob
        assert binomial_tail(trials, just_inside(bound, 1e-8), count) > failure_prob


def test_exactly_in_rational_arithmetic() -> None:
    """Small numbers of trials without any digits lost: the reference itself is checked here, too."""
    for trials in (1, 2, 5, 9):
        for count in range(1, trials + 1):
            bound = Fraction(float(lower_bound(count, trials, failure_prob=0.01)))
            tail = sum(math.comb(trials, k) * bound**k * (1 - bound) ** (trials - k) for k in range(count, trials + 1))
            assert tail <= Fraction(0.01)
            assert tail > Fraction(0.01) * (1 - Fraction(1, 10**9))
            with mpmath.workdps(50):
                reference = binomial_tail(trials, float(bound), count)
                assert abs(reference - mpmath.mpf(tail.numerator) / tail.denominator) < mpmath.mpf(10) ** -40


def test_edges() -> None:
    assert lower_bound(0, 10, failure_prob=0.01) == 0
    assert upper_bound(10, 10, failure_prob=0.01) == 1
    assert lower_bound(0, 0, failure_prob=0.01) == 0
    assert upper_bound(0, 0, failure_prob=0.01) == 1
    assert 0 < lower_bound(1, 10**6, failure_prob=1e-9) < 1e-14
    assert 1 - 1e-4 < lower_bound(10**6, 10**6, failure_prob=1e-9) < 1
    assert 0 < upper_bound(0, 10**6, failure_prob=1e-9) < 1e-4


def test_shapes() -> None:
    assert lower_bound(3, 10, failure_prob=0.1).shape == ()
    grid = lower_bound(np.arange(4)[:, None], np.array([10, 20, 30]), failure_prob=0.1)
    assert grid.shape == (4, 3)
    assert grid[3, 1] == lower_bound(3, 20, failure_prob=0.1)
    assert lower_bound(np.array([], dtype=int), 10, failure_prob=0.1).shape == (0,)


@given(st.integers(1, 5000), st.data())
def test_more_successes_never_a_smaller_bound(trials: int, data: st.DataObject) -> None:
    fewer = data.draw(st.integers(0, trials - 1))
    for bound in (lower_bound, upper_bound):
        assert bound(fewer, trials, failure_prob=0.01) <= bound(fewer + 1, trials, failure_prob=0.01)
    assert lower_bound(fewer, trials, failure_prob=0.001) <= lower_bound(fewer, trials, failure_prob=0.01)
    assert lower_bound(fewer, trials, failure_prob=0.01) <= fewer / trials
    assert upper_bound(fewer, trials, failure_prob=0.01) >= fewer / trials


@pytest.mark.parametrize("bound", [lower_bound, upper_bound])
@pytest.mark.parametrize(
    ("arguments", "failure_prob", "words"),
    [
        ((11, 10), 0.01, "successes must lie between 0 and trials"),
        ((-1, 10), 0.01, "successes must lie between 0 and trials"),
        ((np.array([1, 11]), 10), 0.01, "successes must lie between"),
        ((1.0, 10), 0.01, "counts must be integers; got float64"),
        ((True, 10), 0.01, "counts must be integers; got bool"),
        ((1, "10"), 0.01, "counts must be integers"),
        ((1, 10), 0, "failure_prob must lie in"),
        ((1, 10), 1, "failure_prob must lie in"),
        ((1, 10), -0.1, "failure_prob must lie in"),
        ((1, 10), float("nan"), "failure_prob must lie in .*nan"),
    ],
)
def test_bad_counts(bound: object, arguments: tuple, failure_prob: float, words: str) -> None:
    with pytest.raises(InputError, match=words):
        bound(*arguments, failure_prob=failure_prob)  # type: ignore[operator]


# ---- the label ---------------------------------------------------------------------------------------------


@given(st.integers(0, 3000), st.integers(0, 3000))
def test_label_pvalue_is_the_binomial_test(one: int, two: int) -> None:
    top, second = max(one, two), min(one, two)
    ours = float(label_pvalue(top, second))
    if top == 0:
        assert ours == 1
        return
    theirs = stats.binomtest(top, top + second, 0.5).pvalue
    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(
    ("top", "second"), [(1, 0), (10, 0), (60, 40), (501, 499), (560, 440), (1990, 10), (700, 0), (990, 10)]
)
def test_label_pvalue_is_rounded_up(top: int, second: int) -> None:
    trials = top + second
    tail = Fraction(sum(math.comb(trials, k) for k in range(top, trials + 1)), 2**trials)
    exact = min(Fraction(1), 2 * tail)
    ours = Fraction(float(label_pvalue(top, second)))
    assert exact <= ours <= max(exact * (1 + Fraction(1, 10**9)), Fraction(3e-308))


def test_label_pvalue_of_arrays_ties_and_huge_counts() -> None:
    assert label_pvalue([5, 10, 0], [5, 0, 0]).tolist() == [1.0, pytest.approx(2**-9, rel=1e-9), 1.0]
    assert 0 < label_pvalue(10**6, 0) < 1e-300
    assert label_pvalue(3, 7) == 1, "the wrong way round is no evidence"


# ---- alpha -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 1.5, float("nan"), True, "0.1", None, [0.1]])
def test_bad_alpha(alpha: object) -> None:
    with pytest.raises(InputError, match=r"alpha must lie in \(0, 1\)"):
        checked_alpha(alpha)  # type: ignore[arg-type]


def test_the_samplers_inexactness_is_paid_from_alpha() -> None:
    assert checked_alpha(0.01) == 0.01
    assert checked_alpha(np.float32(0.5)) == 0.5
    left = checked_alpha(0.01, samples=1000, discrepancy=1e-6)
    assert 0 < 0.009 - left < 1e-12
    with pytest.raises(InputError, match="used up"):
        checked_alpha(0.01, samples=1000, discrepancy=1e-5)
