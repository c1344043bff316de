"""Paired tests: exact p-values by counting coins, Holm's correction by its definition, the same graphs or none."""

from __future__ import annotations

from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipproof import InputError, paired_tests
from flipproof.certificates.metrics import compare_radii, holm
from support.certificates import ABSTAINED, certificate


def two_sided(first: int, second: int) -> float:
    """All outcomes of first + second fair coins whose heads and tails differ at least as much."""
    coins = first + second
    extreme = [heads for heads in range(coins + 1) if abs(2 * heads - coins) >= abs(first - second)]
    return sum(comb(coins, heads) for heads in extreme) / 2**coins


def radii(only_first: int, only_second: int, both: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    first = [2] * only_first + [0] * only_second + [2] * both + [-1] * neither
    second = [0] * only_first + [2] * only_second + [3] * both + [1] * neither
    return np.array(first), np.array(second)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 5), st.integers(0, 5))
def test_the_p_value_counts_coins(only_first: int, only_second: int, both: int, neither: int) -> None:
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
def test_holm_is_the_largest_of_the_closed_tests(values: list[float]) -> None:
    """By closure: a hypothesis falls if every set of hypotheses that holds it falls to Bonferroni."""
    corrected = holm(values)
    for place in range(len(values)):
        sets = [chosen for chosen in product([False, True], repeat=len(values)) if chosen[place]]
        worst = max(min(1.0, sum(chosen) * min(v for v, c in zip(values, chosen, strict=True) if c)) for chosen in sets)
        assert corrected[place] == pytest.approx(worst, abs=1e-12)


def test_certificates_are_judged_by_label_and_radius_and_the_first_method_meets_each_other() -> None:
    labels = [0, 0, 1, 1]
    mine = [certificate(0, 2), certificate(0, 1), certificate(1, 0), certificate(0, 5)]
    theirs = [certificate(0, 0), ABSTAINED, certificate(1, 3), certificate(1, 0)]
    found = paired_tests({"mine": mine, "theirs": theirs, "again": mine}, labels, radii=(0, 1))
    assert [(one.second, one.radius) for one in found] == [("theirs", 0), ("theirs", 1), ("again", 0), ("again", 1)]
    assert {(one.first, one.comparisons) for one in found} == {("mine", 4)}
    assert [(one.only_first, one.only_second) for one in found] == [(1, 1), (2, 1), (0, 0), (0, 0)]
    assert all(one.p_value == one.adjusted == 1.0 for one in found)


def test_one_method_has_nothing_to_be_compared_with_and_other_graphs_are_refused() -> None:
    assert compare_radii({"alone": np.array([1])}, [0]) == []
    with pytest.raises(InputError, match="same graphs; got 1, 2 certificates"):
        compare_radii({"a": np.array([1]), "b": np.array([1, 2])}, [0])
