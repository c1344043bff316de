"""Votes of edge groups crossed with feature groups: the union is counted exactly, and never looser than GNNCert."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flipproof.certificates import crossed_votes
from flipproof.certificates.crossed_votes import withstood
from flipproof.certificates.prices import contest

votes = st.tuples(st.integers(1, 4), st.integers(1, 5)).flatmap(
    lambda shape: st.tuples(
        arrays(np.uint8, shape, elements=st.integers(0, 2)), arrays(np.bool_, shape[0]), arrays(np.bool_, shape[1])
    )
)


def unions(labels, rows, columns):
    """Every set of rows and columns that an attacker can reach, with the cells in it."""
    for flags in itertools.product([False, True], repeat=int(rows.sum() + columns.sum())):
        row, column = rows.copy(), columns.copy()
        row[rows], column[columns] = flags[: rows.sum()], flags[rows.sum() :]
        yield int(column.sum()), int(row.sum()), row[:, None] | column


@settings(max_examples=60)
@given(votes)
def test_it_is_the_exact_answer_over_all_attacks(drawn):
    """Every attack, with the worst that a base classifier could say of every sub-graph that it changes."""
    labels, rows, columns = drawn
    answer = np.bincount(labels.ravel(), minlength=3).argmax()
    broken = np.zeros((columns.sum() + 1, rows.sum() + 1), dtype=np.bool_)
    for flips, changes, cells in unions(labels, rows, columns):
        for rival in range(3):
            after = np.where(cells, rival, labels)
            broken[flips:, changes:] |= np.bincount(after.ravel(), minlength=3).argmax() != answer
    assert withstood(labels, 3, rows, columns).tolist() == (~broken).tolist()


def gnncert(labels, flips, changes):
    *_, needed = contest(np.bincount(labels.ravel(), minlength=3))
    return bool(2 * (flips * labels.shape[0] + changes * labels.shape[1]) < needed.min())


@settings(max_examples=60)
@given(votes)
def test_it_is_never_below_gnncert_not_even_where_sets_are_too_many(drawn):
    labels, _, _ = drawn
    free = [np.ones(size, dtype=np.bool_) for size in labels.shape]
    exact = withstood(labels, 3, *free)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crossed_votes, "_MOST_ENTRIES", 0)
        loose = withstood(labels, 3, *free)
    assert not (loose & ~exact).any()
    for flips, changes in np.ndindex(exact.shape):
        assert loose[flips, changes] or not gnncert(labels, flips, changes)


def test_it_is_above_gnncert_where_cells_cross():
    """15 votes of 15: a rival needs a gain of 16. A flip and a changed node reach 3 + 5 votes, of which one is the same."""
    labels = np.zeros((3, 5), dtype=np.uint8)
    grid = withstood(labels, 2, np.ones(3, dtype=np.bool_), np.ones(5, dtype=np.bool_))
    assert grid[1, 1]
    assert not gnncert(labels, 1, 1)
    assert grid.sum() == 5
    assert grid[2, 0]
    assert not grid[1, 2]
