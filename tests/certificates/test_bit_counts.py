"""Counts of slots flipped together are the same with numba, without it, and by hand."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipproof.certificates.influence import bit_counts, statistics


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 200), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_by_hand(samples: int, slots: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    flips = rng.random((samples, slots)) < rng.random()
    cut = samples // 3
    parts = [np.packbits(part, axis=1) for part in (flips[:cut], flips[cut:])]
    pairs, triples = statistics._count_pairs(parts, slots), statistics._count_triples(parts, slots)
    for i, j in combinations(range(slots), 2):
        assert pairs[i, j] == pairs[j, i] == (flips[:, i] & flips[:, j]).sum()
    for i, j, k in combinations(range(slots), 3):
        assert len({*triples[[i, i, j, j, k, k], [j, k, i, k, i, j], [k, j, k, i, j, i]], triples[i, j, k]}) == 1
        assert triples[i, j, k] == (flips[:, i] & flips[:, j] & flips[:, k]).sum()
    assert not pairs.diagonal().any()


@pytest.mark.parametrize(
    "count",
    [
        statistics._count_pairs,
        statistics._count_triples,
        lambda parts, slots: statistics._count_triples(parts, slots, first=5),
    ],
)
@pytest.mark.parametrize("slots", [7, 40])
def test_without_numba(count: Callable[..., Any], slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    flips = np.random.default_rng(0).random((3000, slots)) < 0.3
    parts = [np.packbits(part, axis=1) for part in (flips[:1100], flips[1100:])]
    found = count(parts, slots)
    monkeypatch.setattr(statistics, "can_compile", lambda: False)
    wanted = count(parts, slots)
    assert found.dtype == wanted.dtype
    distinct = np.ones(found.shape, dtype=np.bool_)  # what stands for a slot twice means nothing
    for one, other in combinations(range(found.ndim), 2):
        places = np.indices(found.shape)
        distinct &= places[one] != places[other]
    np.testing.assert_array_equal(found[distinct], wanted[distinct])


def test_every_bit_finds_its_slot() -> None:
    flips = np.random.default_rng(1).random((130, 19)) < 0.5
    words = bit_counts.by_slot(np.packbits(flips, axis=1))
    found = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")[:19, :130]
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(flips.T, axis=1))
    np.testing.assert_array_equal(found, flips.T)


@pytest.mark.parametrize("samples", [1, 63, 130, 3000])
def test_singles_and_parts_without_numba(samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(samples)
    flips, labels = rng.random((samples, 19)) < 0.3, rng.integers(0, 3, samples).astype(np.uint8)
    cut, slots = samples // 3 // 64 * 64, np.array([4, 0, 17, 9])
    parts = [(np.packbits(flips[part], axis=1), labels[part]) for part in (slice(cut), slice(cut, None))]
    found = []
    for compiles in (True, False):
        monkeypatch.setattr(statistics, "can_compile", lambda compiles=compiles: compiles)
        words = [bit_counts.by_slot(packed) for packed, _ in parts]
        by_class = (
            [statistics._singles_of_words(*given, 3) for given in zip(words, (each for _, each in parts), strict=True)]
            if compiles
            else [statistics._count_singles(*part, 3) for part in parts]
        )
        singles = sum(by_class)[:, :19]
        counts = statistics.FlipCounts(3, np.bincount(labels, minlength=3), singles, parts, words if compiles else [])
        found.append((singles, counts.part([0, 2], 2, slots), counts.part([1], 3, slots)))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    for label in range(3):
        np.testing.assert_array_equal(found[0][0][label], flips[labels == label].sum(axis=0))
    for i, j in combinations(range(4), 2):
        assert found[0][1][i, j] == found[1][1][i, j] == found[0][1][j, i]
    for i, j, k in combinations(range(4), 3):
        assert found[0][2][i, j, k] == found[1][2][i, j, k] == found[0][2][k, i, j]
