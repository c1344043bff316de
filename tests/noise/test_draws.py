"""Keyed draws are uniform and reproducible, and turn into noise with exactly the stated probabilities."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from flipproof import EdgeNoise
from flipproof.noise import keyed_draws, noisy_states
from flipproof.noise.law import halves
from support.streams import FALSE_ALARM

LARGEST = 2**32 - 1
GOLDEN = {0: [3763014433, 2983414617, 4218436830], 7: [1342622875, 3172906958, 867343197]}


@st.composite
def noises(draw: st.DrawFn) -> EdgeNoise:
    """Any noise, the limits among them."""
    limits = st.sampled_from([0, 1, 2**31, LARGEST - 1, LARGEST])
    add = draw(limits | st.integers(0, LARGEST))
    remove = draw(st.sampled_from([0, LARGEST - add]) | st.integers(0, LARGEST - add))
    return EdgeNoise.from_thresholds(add, remove)


@given(noises(), st.lists(st.tuples(st.booleans(), st.integers(0, LARGEST)), max_size=20))
def test_a_slot_flips_exactly_for_the_draws_below_its_threshold(
    noise: EdgeNoise, slots: list[tuple[bool, int]]
) -> None:
    around = [max(0, min(LARGEST, t + d)) for t in (noise.add_threshold, noise.remove_threshold) for d in (-1, 0, 1)]
    slots = [*slots, *itertools.product((False, True), (*around, 0, LARGEST))]
    states = np.array([state for state, _ in slots])
    draws = np.array([number for _, number in slots], dtype=np.uint32)
    found = noisy_states(states, draws, noise)
    assert found.dtype == np.bool_
    wanted = [n >= noise.remove_threshold if state else n < noise.add_threshold for state, n in slots]
    assert found.tolist() == wanted


def test_draws_are_a_pure_function_of_purpose_seed_and_index() -> None:
    arguments = [*itertools.product(("training", "attack"), (0, 1, 2**63 - 1), (0, 1, 2, 10**9))]
    found = {key: keyed_draws(*key, (7, 5)) for key in arguments}
    assert len({draws.tobytes() for draws in found.values()}) == len(arguments)
    for key in reversed(arguments):
        assert np.array_equal(keyed_draws(*key, (7, 5)), found[key])
        assert np.array_equal(keyed_draws(*key, (9, 5))[:7], found[key]), "a larger array starts the same"
    assert all(draws.dtype == np.uint32 for draws in found.values())


def test_the_golden_draws() -> None:
    """If this fails, models trained and attacks made with a given seed are no longer the same."""
    assert keyed_draws("golden", 2020, 0, (3,)).tolist() == GOLDEN[0]
    assert keyed_draws("golden", 2020, 7, (3,)).tolist() == GOLDEN[7]
    by_numpy = np.random.Generator(np.random.Philox(key=0xF6CCB2E1)).integers(0, 2**32, 5, dtype=np.uint32)
    words = np.random.Philox(key=0xF6CCB2E1).random_raw(3)
    assert halves(words)[:5].tolist() == by_numpy.tolist(), "the same order of halves as numpy's"


def test_draws_are_uniform_and_batches_independent() -> None:
    first, second = (keyed_draws("uniform", 1, index, (200_000,)) for index in (0, 1))
    for shift in (0, 8, 16, 24):  # each byte
        counts = np.bincount((first >> shift) & 255, minlength=256)
        assert stats.chisquare(counts).pvalue > FALSE_ALARM
    together = np.bincount((first >> 28) * 16 + (second >> 28), minlength=256)
    assert stats.chisquare(together).pvalue > FALSE_ALARM
    neighbours = np.bincount((first[:-1:2] >> 28) * 16 + (first[1::2] >> 28), minlength=256)
    assert stats.chisquare(neighbours).pvalue > FALSE_ALARM
