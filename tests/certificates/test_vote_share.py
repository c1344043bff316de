"""Bounds on shares and on votes against exact arithmetic: never above it, and within 1e-12 below it."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipproof import EdgeNoise, InputError, certified_grid, certify_counts, radius, worst_case
from flipproof.certificates.vote_share import (
    _levels,
    bounded_radius,
    checked_alpha,
    label_pvalue,
    lower_bound,
    upper_bound,
)
from support import exact
from support.exact import binomial_tail

TOLERANCE = Fraction(1, 10**12)

NOISES = {
    "keep .9": EdgeNoise(keep=0.9),
    "keep .6": EdgeNoise(keep=0.6),
    "keep .501": EdgeNoise(keep=0.501),
    "keep 1 - 1e-6": EdgeNoise(keep=1 - 1e-6),
    "add .1, remove .4": EdgeNoise(add=0.1, remove=0.4),
    "add .4, remove .1": EdgeNoise(add=0.4, remove=0.1),
    "add 1e-4, remove .9": EdgeNoise(add=1e-4, remove=0.9),
    "add 2**-32, remove .3": EdgeNoise(add=2**-32, remove=0.3),
    "add 0, remove .4": EdgeNoise(add=0, remove=0.4),
    "add 0, remove .99": EdgeNoise(add=0, remove=0.99),
    "add .3, remove 0": EdgeNoise(add=0.3, remove=0),
    "none": EdgeNoise(add=0, remove=0),
}
noises = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())

SHARES = np.array([0.0, 1e-300, 1e-9, 0.1, 0.3, 0.5, 0.5 + 1e-9, 0.77, 0.9, 0.999, 1 - 1e-6, 1 - 1e-9, 1 - 2**-53, 1.0])


@pytest.mark.parametrize(
    ("samples", "row"), [(1000, (37, 9, 4, 1, 1, 0)), (10_000, (63, 14, 6, 2, 2, 1)), (100_000, (90, 21, 9, 4, 3, 1))]
)
def test_table_of_largest_radii(samples, row):
    share = lower_bound(samples, samples, failure_prob=0.001)
    radii = tuple(radius(share, EdgeNoise(keep=keep)) for keep in (0.6, 0.7, 0.8, 0.9, 0.95, 0.99))
    assert radii == row
    by_paper = [
        certify_counts([samples, 0], EdgeNoise(keep=keep), alpha=0.001, method="paper").radius
        for keep in (0.6, 0.8, 0.95)
    ]
    assert by_paper == [row[0], row[2], row[4]]


@noises
def test_worst_case_against_rational_arithmetic(noise):
    """All attacks of up to 12 additions and 12 removals, shares near 0, 1/2 and 1."""
    for adds in range(13):
        for removes in range(13):
            masses = exact.regions(noise, adds, removes)
            bounds = worst_case(SHARES, noise, adds, removes)
            for share, bound in zip(SHARES.tolist(), bounds.tolist(), strict=True):
                truth = exact.lower_from(masses, Fraction(share))
                assert 0 <= truth - Fraction(bound) <= TOLERANCE, (adds, removes, share)


@noises
def test_worst_case_at_the_corners_of_the_bound(noise):
    """Shares at which a region is just used up: where the wrong region would show."""
    for adds, removes in ((1, 0), (0, 1), (3, 2), (2, 5), (8, 0), (0, 8)):
        masses = exact.regions(noise, adds, removes)
        used = Fraction(0)
        for x, _ in masses:
            used += x
            corner = min(1.0, float(used))
            for share in (np.nextafter(corner, 0), corner, min(1.0, np.nextafter(corner, 2))):
                truth = exact.lower_from(masses, Fraction(float(share)))
                assert 0 <= truth - Fraction(worst_case(float(share), noise, adds, removes)) <= TOLERANCE


@pytest.mark.parametrize(
    ("name", "flips"),
    [
        ("keep .9", 64),
        ("keep .9", 65),
        ("keep .9", 330),
        ("keep .6", 120),
        ("keep .501", 66),
        ("keep 1 - 1e-6", 60),
        ("keep 1 - 1e-6", 120),
        ("add 0, remove .4", 400),
        ("add 0, remove .99", 400),
    ],
)
def test_large_attacks_where_masses_underflow(name, flips):
    """What floating point cannot hold must not turn into a bound: 0.1 ** 330 is 0 there."""
    noise = NOISES[name]
    for adds, removes in ((flips, 0), (0, flips)):
        masses = exact.regions(noise, adds, removes)
        for share in (0.0, 0.3, 0.6, 0.99, 1 - 1e-12):
            truth = exact.lower_from(masses, Fraction(share))
            bound = Fraction(worst_case(share, noise, adds, removes))
            assert 0 <= truth - bound <= Fraction(1, 10**11)


@noises
def test_thresholds_against_rational_arithmetic(noise):
    """The largest ``1 - p`` that certifies: never more than the exact one, and within 1e-12 of it."""
    levels = _levels(noise)
    for flips in range(1, 17):
        slacks = levels.slacks(flips)
        assert slacks.shape == (1 if noise.symmetric else flips + 1,)
        for adds, slack in enumerate(slacks.tolist()):
            truth = 1 - exact.threshold(noise, adds, flips - adds)
            assert 0 <= truth - Fraction(slack) <= TOLERANCE, (adds, flips)


@noises
def test_radius_against_rational_arithmetic(noise):
    shares = [0.2, 0.5, 0.50001, 0.55, 0.7, 0.85, 0.95, 0.99, 0.999, 1 - 1e-5, 1 - 1e-7]
    radii = radius(shares, noise, max_radius=7)
    wanted = [exact.radius(noise, Fraction(share), max_radius=7) for share in shares]
    assert radii.tolist() == wanted


@noises
def test_radius_with_rivals_against_rational_arithmetic(noise):
    rng = np.random.default_rng(7)
    top = np.concatenate([rng.random(40), 1 - 10 ** rng.uniform(-6, -0.5, 40)])
    rival = (1 - top) * rng.choice([0.0, 0.01, 0.3, 0.7, 1.0, 1.4], len(top))
    rival = np.minimum(rival, 1)
    radii = radius(top, noise, rival, max_radius=6)
    for a, b, ours in zip(top.tolist(), rival.tolist(), radii.tolist(), strict=True):
        wanted = exact.radius(noise, Fraction(a), Fraction(b), max_radius=6)
        assert ours <= wanted
        if ours < wanted:  # only where the lead is within rounding distance
            assert ours >= exact.radius(noise, Fraction(a), Fraction(b), max_radius=6, lead=TOLERANCE)


def test_answers_have_the_shape_of_the_shares():
    noise = EdgeNoise(keep=0.8)
    assert (type(worst_case(0.9, noise, 1)), type(radius(0.99, noise))) == (float, int)
    assert type(radius(np.float64(0.99), noise, 0.001)) is int
    for shape in ((0,), (1, 0), (1,), (2, 3, 4)):
        shares = np.full(shape, 0.99)
        bounds, radii = worst_case(shares, noise, 1, 1), radius(shares, noise, shares / 1000)
        assert bounds.shape == radii.shape == shape
        assert np.all(bounds == worst_case(0.99, noise, 2))
        assert radii.dtype == np.int64


@pytest.mark.parametrize("offered", [(0, 9), (9, 0), (1, 9), (9, 2), (2, 1), (0, 0)])
@pytest.mark.parametrize("name", ["keep .6", "add .1, remove .4", "add .4, remove .1", "add 0, remove .4"])
def test_cells_that_a_graph_cannot_offer_count_as_certified(name, offered):
    noise, (max_adds, max_removes) = NOISES[name], offered
    shares = np.array([0.3, 0.6, 0.8, 0.9, 0.96, 0.99, 0.9999])
    limits = {"max_adds": max_adds, "max_removes": max_removes}
    for rivals in (None, (1 - shares) * 0.3):
        radii = bounded_radius(shares, noise, rivals, max_radius=6, **limits)
        for index, share in enumerate(shares.tolist()):
            rival = None if rivals is None else Fraction(float(rivals[index]))
            wanted = exact.radius(noise, Fraction(share), rival, max_radius=min(6, sum(offered)), **limits)
            assert radii[index] == wanted


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.sampled_from(list(NOISES.values())))
def test_a_larger_share_or_a_smaller_rival_never_hurts(one, two, rival, noise):
    low, high = min(one, two), max(one, two)
    assert radius(low, noise, max_radius=20) <= radius(high, noise, max_radius=20)
    assert worst_case(low, noise, 2, 1) <= worst_case(high, noise, 2, 1)
    assert radius(high, noise, rival, max_radius=20) >= radius(high, noise, max_radius=20)
    assert radius(high, noise, rival / 2, max_radius=20) >= radius(high, noise, rival, max_radius=20)


@given(
    st.lists(st.integers(0, 3000), min_size=2, max_size=5),
    st.sampled_from(["votes", "paper"]),
    st.sampled_from([NOISES[name] for name in ("keep .9", "keep .6", "add .1, remove .4", "add 0, remove .99")]),
)
def test_more_votes_never_a_smaller_radius(counts, method, noise):
    """A vote more for the top class, or one that moves to it, does not shrink what is certified."""
    counts[0] = max(counts) + 1
    before = certify_counts(counts, noise, method=method)
    more = [counts[0] + 1, *counts[1:]]
    assert certify_counts(more, noise, method=method).radius >= before.radius
    if counts[1]:
        moved = [counts[0] + 1, counts[1] - 1, *counts[2:]]
        assert certify_counts(moved, noise, method=method).radius >= before.radius
    assert certify_counts([2 * count for count in counts], noise, method=method).radius >= before.radius


@noises
@pytest.mark.parametrize("share", [0.3, 0.51, 0.7, 0.9, 0.97, 0.9999])
@pytest.mark.parametrize("rival", [None, 0.0, 0.05, 0.4])
def test_grid_against_rational_arithmetic(noise, share, rival):
    """A cell is certified iff all cells up to it are; the numbers are those of the exact bound."""
    grid = certified_grid(share, noise, 5, 6, rival)
    assert grid.shape == (6, 7)
    assert grid.dtype == np.bool_
    exact_rival = None if rival is None else Fraction(rival)

    def closed(lead):
        cells = [[exact.certified(noise, a, d, Fraction(share), exact_rival, lead) for d in range(7)] for a in range(6)]
        return np.logical_and.accumulate(np.logical_and.accumulate(np.array(cells), axis=0), axis=1)

    assert not (grid & ~closed(exact.NOTHING)).any()
    assert not (closed(TOLERANCE) & ~grid).any(), "short of the exact grid by rounding only"


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), [0.5, 2.0]])
def test_bad_shares(share):
    noise = EdgeNoise(keep=0.9)
    for use in (
        lambda: worst_case(share, noise, 1),
        lambda: radius(share, noise),
        lambda: certified_grid(share, noise, 1, 1),
    ):
        with pytest.raises(InputError, match=r"p_lower must lie in \[0, 1\]; got"):
            use()
    if isinstance(share, float):
        with pytest.raises(InputError, match=r"p_upper must lie in \[0, 1\]"):
            radius(0.9, noise, share)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda noise: radius([0.9, 0.8], noise, 0.1), r"p_upper must have the shape of p_lower, \(2,\); got \(\)"),
        (lambda noise: certified_grid([0.9, 0.8], noise, 1, 1), "p_lower must be a single number"),
        *(
            case
            for bad in (-1, 1.0, True, "1", None)
            for case in (
                (lambda noise, bad=bad: worst_case(0.9, noise, bad), "adds must be an integer of at least 0"),
                (lambda noise, bad=bad: radius(0.9, noise, max_radius=bad), "max_radius must be an integer"),
                (lambda noise, bad=bad: certified_grid(0.9, noise, 1, bad), "max_removes must be an integer"),
            )
        ),
        (lambda _: radius(0.9, 0.8), r"noise must be an EdgeNoise; got 0\.8"),
        (lambda _: worst_case(0.9, 0.8, 1), r"noise must be an EdgeNoise; got 0\.8"),
        (lambda _: certified_grid(0.9, 0.8, 1, 1), r"noise must be an EdgeNoise; got 0\.8"),
    ],
)
def test_other_bad_arguments(call, words):
    with pytest.raises(InputError, match=words):
        call(EdgeNoise(keep=0.9))


TRIALS = (1, 2, 3, 10, 100, 1000, 10_000, 100_000, pytest.param(1_000_000, marks=pytest.mark.guarantee))
FAILURES = (0.05, 1e-3, 1e-6, 1e-9)


def counts_of(trials):
    """Few, many and most successes."""
    shares = (trials // 100, trials // 10, trials // 3, trials // 2, trials * 9 // 10, trials * 99 // 100)
    ends = (1, 2, 5, 30)
    counts = {*shares, *ends, *(trials - end + 1 for end in ends)}
    return np.array(sorted(count for count in counts if 1 <= count <= trials))


def just_inside(bound, relative=1e-9):
    """Nearer to the centre by a billionth of the distance to the nearer end."""
    exact = mpmath.mpf(bound)
    return exact + min(exact, 1 - exact) * mpmath.mpf(relative)


@pytest.mark.parametrize("failure_prob", FAILURES)
@pytest.mark.parametrize("trials", TRIALS)
def test_bounds_are_never_inside_the_exact_ones_and_tight(trials, failure_prob):
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


def test_shapes():
    assert (lower_bound(0, [0, 10], failure_prob=0.01) == 0).all()
    assert (upper_bound([0, 10], [0, 10], failure_prob=0.01) == 1).all()
    assert lower_bound(3, 10, failure_prob=0.1).shape == ()
    grid = lower_bound(np.arange(4)[:, None], np.array([10, 20, 30]), failure_prob=0.1)
    assert grid.shape == (4, 3)
    assert grid[3, 1] == lower_bound(3, 20, failure_prob=0.1)
    assert lower_bound(np.array([], dtype=int), 10, failure_prob=0.1).shape == (0,)


@given(st.integers(1, 5000), st.data())
def test_more_successes_never_a_smaller_bound(trials, data):
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
def test_bad_counts(bound, arguments, failure_prob, words):
    with pytest.raises(InputError, match=words):
        bound(*arguments, failure_prob=failure_prob)


@pytest.mark.parametrize(("top", "second"), [(1, 0), (10, 0), (60, 40), (501, 499), (1990, 10), (700, 0)])
def test_label_pvalue_is_rounded_up(top, second):
    trials = top + second
    tail = Fraction(sum(math.comb(trials, k) for k in range(top, trials + 1)), 2**trials)
    exact = min(Fraction(1), 2 * tail)
    ours = Fraction(float(label_pvalue(top, second)))
    assert exact <= ours <= max(exact * (1 + Fraction(1, 10**9)), Fraction(3e-308))


def test_label_pvalue_of_arrays_ties_and_huge_counts():
    assert label_pvalue([5, 10, 0], [5, 0, 0]).tolist() == [1.0, pytest.approx(2**-9, rel=1e-9), 1.0]
    assert 0 < label_pvalue(10**6, 0) < 1e-300
    assert label_pvalue(3, 7) == 1, "the wrong way round is no evidence"


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 1.5, float("nan"), True, "0.1", None, [0.1]])
def test_bad_alpha(alpha):
    with pytest.raises(InputError, match=r"alpha must lie in \(0, 1\)"):
        checked_alpha(alpha)


def test_the_samplers_inexactness_is_paid_from_alpha():
    assert checked_alpha(0.01) == 0.01
    assert checked_alpha(np.float32(0.5)) == 0.5
    left = checked_alpha(0.01, samples=1000, discrepancy=1e-6)
    assert 0 < 0.009 - left < 1e-12
    with pytest.raises(InputError, match="used up"):
        checked_alpha(0.01, samples=1000, discrepancy=1e-5)
