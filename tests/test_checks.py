"""Shared checks of arguments: what is taken, what is refused, and in which words."""

from __future__ import annotations

import numpy as np
import pytest

from flipproof import InputError
from flipproof.checks import checked_count, checked_integer, checked_samples, checked_seed


@pytest.mark.parametrize("value", [2, 3, 2**70, np.int32(2), np.uint8(7)])
def test_counts_come_back_as_python_integers(value: object) -> None:
    found = checked_count(value, "width", 2, "for instance 8")
    assert found == value
    assert type(found) is int


@pytest.mark.parametrize("value", [1, -2, 2.0, "2", True, None, [2], np.float64(2), np.bool_(True), np.array([2])])
def test_bad_counts_are_refused_in_one_sentence(value: object) -> None:
    with pytest.raises(InputError) as error:
        checked_count(value, "width", 2, "for instance 8")
    assert str(error.value) == f"width must be an integer of at least 2; got {value!r} (for instance 8)"


@pytest.mark.parametrize("value", [0, 11, 1.0, True, "1", None])
def test_bad_integers_of_a_range(value: object) -> None:
    assert [checked_integer(good, "groups", 1, 10, "say 5") for good in (1, np.int64(10))] == [1, 10]
    with pytest.raises(InputError) as error:
        checked_integer(value, "groups", 1, 10, "say 5")
    assert str(error.value) == f"groups must be an integer from 1 to 10; got {value!r} (say 5)"


def test_samples() -> None:
    assert checked_samples(np.int64(5)) == 5
    with pytest.raises(InputError, match=r"^samples must be an integer of at least 1; got 0 \(for instance 10000\)$"):
        checked_samples(0)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.0, "0", True])
def test_bad_seeds(seed: object) -> None:
    with pytest.raises(
        InputError, match=r"seed must be an integer from 0 to 2\*\*63 - 1; got .* \(or None for a fresh"
    ):
        checked_seed(seed)  # type: ignore[arg-type]


def test_fresh_seeds_differ() -> None:
    seeds = {checked_seed(None) for _ in range(20)}
    assert len(seeds) == 20
    assert all(checked_seed(seed) == seed for seed in seeds)
