"""Counts of slots flipped together are the same with numba, without it, and by hand."""

from __future__ import annotations

from itertools import combinations
from unittest.mock import MagicMock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipproof.certificates.influence import statistics


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 200), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_by_hand(samples: int, slots: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    flips = rng.random((samples, slots)) < rng.random()
    cut = samples // 3
    parts = [statistics._by_slot(np.packbits(part, axis=1)) for part in (flips[:cut], flips[cut:])]
    pairs, triples = (statistics._count_together(parts, slots, order) for order in (2, 3))
    for i, j in combinations(range(slots), 2):
        assert pairs[i, j] == pairs[j, i] == (flips[:, i] & flips[:, j]).sum()
    for i, j, k in combinations(range(slots), 3):
        assert len({*triples[[i, i, j, j, k, k], [j, k, i, k, i, j], [k, j, k, i, j, i]], triples[i, j, k]}) == 1
        assert triples[i, j, k] == (flips[:, i] & flips[:, j] & flips[:, k]).sum()
    assert not pairs.diagonal().any()


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("slots", [7, 40])
def test_without_numba(order: int, slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    flips = np.random.default_rng(0).random((3000, slots)) < 0.3
    parts = [statistics._by_slot(np.packbits(part, axis=1)) for part in (flips[:1100], flips[1100:])]
    compiled = statistics._count_together(parts, slots, order)
    monkeypatch.setattr(statistics, "can_compile", lambda: False)
    plain = statistics._count_together(parts, slots, order)
    assert compiled.dtype == plain.dtype
    distinct = np.ones(compiled.shape, dtype=np.bool_)  # what stands for a slot twice means nothing
    for one, other in combinations(range(compiled.ndim), 2):
        places = np.indices(compiled.shape)
        distinct &= places[one] != places[other]
    np.testing.assert_array_equal(compiled[distinct], plain[distinct])


@pytest.mark.parametrize("compiles", [True, False])
def test_every_bit_finds_its_slot(compiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "can_compile", lambda: compiles)
    flips = np.random.default_rng(1).random((130, 19)) < 0.5
    words = statistics._by_slot(np.packbits(flips, axis=1))
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")[:19, :130]
    np.testing.assert_array_equal(bits, flips.T)


@pytest.mark.parametrize("samples", [1, 63, 130, 3000])
def test_singles_and_parts_without_numba(samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(samples)
    flips, labels = rng.random((samples, 19)) < 0.3, rng.integers(0, 3, samples).astype(np.uint8)
    cut, slots = samples // 3 // 64 * 64, np.array([4, 0, 17, 9])
    parts = [(np.packbits(flips[part], axis=1), labels[part]) for part in (slice(cut), slice(cut, None))]
    monkeypatch.setattr(statistics, "_verified_flips", lambda votes: iter(parts))
    votes = MagicMock(num_classes=3, counts=np.bincount(labels, minlength=3))
    votes.graph.num_slots, votes.__len__.return_value = 19, samples
    singles, pairs, triples = [], [], []
    for compiles in (True, False):
        monkeypatch.setattr(statistics, "can_compile", lambda compiles=compiles: compiles)
        counts = statistics.count_flips(votes, 3)
        singles.append(counts.singles)
        pairs.append(counts.part([0, 2], 2, slots))
        triples.append(counts.part([1], 3, slots))
    np.testing.assert_array_equal(*singles)
    for label in range(3):
        np.testing.assert_array_equal(singles[0][label], flips[labels == label].sum(axis=0))
    for i, j in combinations(range(4), 2):
        assert pairs[0][i, j] == pairs[1][i, j] == pairs[0][j, i]
    for i, j, k in combinations(range(4), 3):
        assert triples[0][i, j, k] == triples[1][i, j, k] == triples[0][k, i, j]
