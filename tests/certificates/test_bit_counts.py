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
