"""Metrics by hand; paired tests with exact p-values by counting coins, and Holm's correction by its definition."""

from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import flipproof as fp
from flipproof import average_certified_radius, certified_accuracy, certified_interval, paired_tests
from flipproof.certificates.metrics import (
    Curve,
    compare_radii,
    holm,
    mean_radius,
    mean_radius_interval,
    right_radii,
    share_interval,
    shares,
    shown_mean,
    shown_share,
    withstands,
)
from support.certificates import ABSTAINED, certificate


def test_certified_accuracy_counts_radii_of_at_least_r():
    certificates = [certificate(0, 2), certificate(1, 0), certificate(1, 3), ABSTAINED]
    labels = [0, 1, 0, 0]  # right with 2, right with 0, wrong with 3, abstained
    accuracy = certified_accuracy(certificates, labels, radii=range(5))
    assert accuracy.tolist() == [0.5, 0.25, 0.25, 0.0, 0.0]
    assert accuracy.dtype == np.float64
    assert certified_accuracy(certificates, labels).shape == (17,)
    assert certified_accuracy(certificates, labels, [2, 0]).tolist() == [0.25, 0.5]
    assert certified_accuracy(certificates, np.array(labels), []).shape == (0,)


def test_abstaining_is_never_right_whatever_the_label_is_called():
    assert certified_accuracy([ABSTAINED], [-1], [-1, 0]).tolist() == [0.0, 0.0]
    assert average_certified_radius([ABSTAINED], [0]) == 0


def test_average_certified_radius_counts_wrong_and_abstained_as_0():
    certificates = [certificate(0, 2), certificate(1, 0), certificate(1, 3), ABSTAINED, certificate(1, 4)]
    assert average_certified_radius(certificates, [0, 1, 0, 0, 1]) == 6 / 5
    assert type(average_certified_radius(certificates, [0, 1, 0, 0, 1])) is float


@pytest.mark.parametrize("labels", [[0], [0, 1, 1], 0, [[0, 1]]])
def test_labels_must_match(labels):
    for measure in (certified_accuracy, average_certified_radius):
        with pytest.raises(fp.InputError, match=r"one per certificate, \[2\].*got shape"):
            measure([certificate(), certificate()], labels)


def test_right_radii_are_minus_one_where_the_answer_is_wrong_missing_or_cannot_be_judged():
    found = right_radii([3, 4, -1, 5, 6], [0, 1, None, 2, None], [0, 0, 0, None, None])
    assert found.tolist() == [3, -1, -1, -1, -1]
    assert shares(found, [-1, 0, 3, 4]).tolist() == [0.2, 0.2, 0.2, 0.0]
    assert mean_radius(found) == 0.6


def test_a_curve_holds_counts_accuracy_and_a_band_around_it():
    curve = Curve.of("smoothed", np.array([2, -1, 0, 2]), 3)
    assert (curve.certified, curve.graphs) == ((3, 2, 2, 0), 4)
    assert curve.accuracy.tolist() == [0.75, 0.5, 0.5, 0.0]
    below, above = curve.band
    assert (below <= curve.accuracy).all()
    assert (curve.accuracy <= above).all()
    assert (below[3], above[3] < 1) == (0.0, True)


def test_intervals_are_exact_and_cover_at_least_as_often_as_they_say():
    below, above = share_interval(np.arange(21), 20)
    for right in range(21):
        exact = stats.binomtest(right, 20).proportion_ci(0.95, method="exact")
        assert (below[right], above[right]) == pytest.approx((exact.low, exact.high), abs=1e-8)
    for truth in np.linspace(0, 1, 41):  # the probability that the interval covers the truth, by adding up
        covered = (below <= truth) & (truth <= above)
        assert stats.binom.pmf(np.arange(21), 20, truth)[covered].sum() >= 0.95
    with pytest.raises(fp.InputError, match=r"confidence must lie in \(0, 1\); got 95"):
        share_interval(1, 2, confidence=95)


def test_the_interval_of_certificates_is_that_of_their_shares():
    certificates, labels = [certificate(0, 2), certificate(1, 0), certificate(1, 3), ABSTAINED], [0, 1, 0, 0]
    below, above = certified_interval(certificates, labels, [0, 1, -1], confidence=0.9)
    assert np.array_equal((below, above), share_interval([2, 1, 2], 4, confidence=0.9))


def test_the_interval_of_the_average_radius_is_students_and_never_below_0():
    radii = np.array([-1, 0, 3, 5, 2, 2, 4])
    counted = np.maximum(radii, 0)
    expected = stats.ttest_1samp(counted, 0).confidence_interval(0.95)
    assert mean_radius_interval(radii) == pytest.approx((expected.low, expected.high))
    assert mean_radius_interval(np.array([0, 0, 1]))[0] == 0
    assert mean_radius_interval(np.array([4])) is None


@pytest.mark.parametrize(
    ("adds", "removes", "stands"),
    [(0, 0, True), (1, 0, True), (0, 2, True), (1, 1, False), (2, 0, False), (0, 3, True), (0, 99, True)],
)
def test_what_a_certificate_withstands_is_every_smaller_attack_that_the_graph_has_room_for(adds, removes, stands):
    graph = fp.Graph(4, [(0, 1), (1, 2)])
    found = certificate(0, 1, grid=np.array([[True, True, True], [True, False, False]]))
    assert withstands(found, graph, adds=adds, removes=removes) is stands
    assert not withstands(ABSTAINED, graph, adds=0, removes=0)


def test_shares_and_means_are_shown_with_their_intervals():
    low, high = share_interval([45], 50)
    assert shown_share(45, 50) == f"0.900 ({low[0]:.2f}-{high[0]:.2f})".replace("0.7", ".7").replace("-0.", "-.")
    assert shown_share(0, 20) == "0.000 (.00-.17)"
    assert shown_share(20, 20) == "1.000 (.83-1)"
    ends = mean_radius_interval(np.array([3, -1, 5, 12]))
    assert shown_mean(np.array([3, -1, 5, 12])) == f"5.00 ({ends[0]:.2f}-{ends[1]:.2f})"
    assert shown_mean(np.array([4])) == "4.00"


@pytest.mark.parametrize(
    ("certificates", "labels", "radii", "message"),
    [
        ([], [], [0], "at least one"),
        (certificate(), 0, [0], "certificates must be a list of certificates; got Certificate"),
        ([certificate()], [0], 3, "radii must be a list of whole numbers; got 3"),
        ([certificate()], [0.5], [0], "labels must be class numbers, or labelled graphs; got 0.5"),
        ([certificate()], [float("nan")], [0], "labels must be class numbers, or labelled graphs; got nan"),
    ],
)
def test_what_is_no_list_of_certificates_labels_or_radii_is_refused(certificates, labels, radii, message):
    with pytest.raises(fp.InputError, match=message):
        fp.certified_accuracy(certificates, labels, radii=radii)


def two_sided(first, second):
    """All outcomes of first + second fair coins whose heads and tails differ at least as much."""
    coins = first + second
    extreme = [heads for heads in range(coins + 1) if abs(2 * heads - coins) >= abs(first - second)]
    return sum(comb(coins, heads) for heads in extreme) / 2**coins


def radii(only_first, only_second, both, neither):
    first = [2] * only_first + [0] * only_second + [2] * both + [-1] * neither
    second = [0] * only_first + [2] * only_second + [3] * both + [1] * neither
    return np.array(first), np.array(second)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 5), st.integers(0, 5))
def test_the_p_value_counts_coins(only_first, only_second, both, neither):
    if only_first + only_second + both + neither == 0:
        return
    first, second = radii(only_first, only_second, both, neither)
    (test,) = compare_radii({"a": first, "b": second}, [2])
    assert (test.first, test.second, test.radius, test.comparisons) == ("a", "b", 2, 1)
    assert (test.both, test.only_first, test.only_second, test.neither) == (both, only_first, only_second, neither)
    assert test.p_value == pytest.approx(two_sided(only_first, only_second), rel=1e-9)
    assert test.adjusted == test.p_value
    assert test.difference == pytest.approx((only_first - only_second) / test.graphs)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_largest_of_the_closed_tests(values):
    """By closure: a hypothesis falls if every set of hypotheses that holds it falls to Bonferroni."""
    corrected = holm(values)
    for place in range(len(values)):
        sets = [chosen for chosen in product([False, True], repeat=len(values)) if chosen[place]]
        worst = max(min(1.0, sum(chosen) * min(v for v, c in zip(values, chosen, strict=True) if c)) for chosen in sets)
        assert corrected[place] == pytest.approx(worst, abs=1e-12)


def test_certificates_are_judged_by_label_and_radius_and_the_first_method_meets_each_other():
    labels = [0, 0, 1, 1]
    mine = [certificate(0, 2), certificate(0, 1), certificate(1, 0), certificate(0, 5)]
    theirs = [certificate(0, 0), ABSTAINED, certificate(1, 3), certificate(1, 0)]
    found = paired_tests({"mine": mine, "theirs": theirs, "again": mine}, labels, radii=(0, 1))
    assert [(one.second, one.radius) for one in found] == [("theirs", 0), ("theirs", 1), ("again", 0), ("again", 1)]
    assert {(one.first, one.comparisons) for one in found} == {("mine", 4)}
    assert [(one.only_first, one.only_second) for one in found] == [(1, 1), (2, 1), (0, 0), (0, 0)]
    assert all(one.p_value == one.adjusted == 1.0 for one in found)


def test_one_method_has_nothing_to_be_compared_with_and_other_graphs_are_refused():
    assert compare_radii({"alone": np.array([1])}, [0]) == []
    with pytest.raises(fp.InputError, match="same graphs; got 1, 2 certificates"):
        compare_radii({"a": np.array([1]), "b": np.array([1, 2])}, [0])
