"""Exact thresholds; bad parameters are refused in words."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipproof import EdgeNoise, InputError
from support.streams import SPARSE_NOISE


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ["keep", "add and remove"]),
        ({"add": 0.1}, ["add=0.1", "remove=None", "pass 0"]),
        ({"remove": 0.1}, ["add=None", "pass 0"]),
        ({"keep": 0.9, "add": 0.1}, ["either keep or add", "both"]),
        ({"keep": 0.9, "remove": 0.0}, ["either keep or add", "both"]),
        ({"keep": 0.3}, ["keep", "(0.5, 1)", "0.3", "did you mean 0.7?"]),
        ({"keep": 0.5}, ["keep", "(0.5, 1)"]),
        ({"keep": 1}, ["keep", "(0.5, 1)", "for instance"]),
        ({"keep": 1.5}, ["keep", "1.5"]),
        ({"keep": 0}, ["keep", "for instance 0.9"]),
        ({"keep": -0.9}, ["keep", "-0.9"]),
        ({"keep": float("nan")}, ["keep", "nan", "finite"]),
        ({"keep": float("inf")}, ["keep", "inf", "finite"]),
        ({"keep": "0.9"}, ["keep", "'0.9'"]),
        ({"keep": True}, ["keep", "True"]),
        ({"keep": [0.9]}, ["keep", "[0.9]"]),
        ({"keep": 0.5 + 2**-34}, ["keep", "2**-32"]),
        ({"keep": 1 - 2**-34}, ["1 - keep", "too small"]),
        ({"add": -0.1, "remove": 0.1}, ["add", "[0, 1)", "-0.1"]),
        ({"add": 0.1, "remove": 1}, ["remove", "[0, 1)", "got 1"]),
        ({"add": 1e-12, "remove": 0.1}, ["add", "too small", "or pass 0"]),
        ({"add": 0.5, "remove": 0.5}, ["add + remove", "below 1"]),
        ({"add": 0.7, "remove": 0.4}, ["add + remove", "below 1", "0.7 + 0.4"]),
        ({"add": 0.6, "remove": 0.4 - 2**-40}, ["add + remove", "below 1"]),
    ],
)
def test_bad_parameters(options: dict, words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        EdgeNoise(**options)
    for word in words:
        assert word in str(error.value)


@given(st.integers(1, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_probabilities_are_the_thresholds(add: int, remove: int) -> None:
    if add + remove >= 2**32:
        add, remove = add // 2, remove // 2
    noise = EdgeNoise.from_thresholds(add, remove)
    assert (noise.add_threshold, noise.remove_threshold) == (add, remove)
    assert Fraction(noise.p_add) == Fraction(add, 2**32)
    assert Fraction(noise.p_remove) == Fraction(remove, 2**32)
    assert noise.symmetric == (add == remove)
    assert pickle.loads(pickle.dumps(noise)) == copy.deepcopy(noise) == noise
    assert hash(pickle.loads(pickle.dumps(noise))) == hash(noise)


@given(st.floats(0.5, 1, exclude_min=True, exclude_max=True))
def test_keep_is_the_nearest_exact_probability(keep: float) -> None:
    try:
        noise = EdgeNoise(keep=keep)
    except InputError:
        assert min(1 - keep, keep - 0.5) < 2**-32
        return
    assert noise.symmetric
    assert 0 < noise.p_add < 0.5
    assert abs(noise.p_add - (1 - keep)) <= 2**-33


def test_extremes_and_zeros() -> None:
    assert EdgeNoise(add=2**-32, remove=0).add_threshold == 1
    assert EdgeNoise(add=0, remove=0).symmetric
    assert EdgeNoise(add=0.0, remove=0.4) != EdgeNoise(add=0.4, remove=0.0)
    assert EdgeNoise(add=0.1, remove=0.1) == EdgeNoise(keep=0.9)
    assert EdgeNoise(keep=0.9) != "noise"


def test_noise_is_read_only_and_prints() -> None:
    noise = EdgeNoise(keep=0.9)
    with pytest.raises(AttributeError, match="cannot assign"):
        noise.add_threshold = 5
    assert repr(noise) == "EdgeNoise(keep=0.9)"
    assert repr(EdgeNoise(add=0, remove=0)) == "EdgeNoise(add=0, remove=0)"
    assert eval(repr(SPARSE_NOISE)) == SPARSE_NOISE
