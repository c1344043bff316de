"""Votes of edge groups crossed with feature groups: which flips and changed nodes together the majority withstands.

Cell ``(j, t)`` of ``S x T`` is the vote of the sub-graph with the edges of group ``t`` and the features of the nodes of group
``j``. A flip can change the cells of one column, a changed node those of one row. Against a rival ``B`` of the winner ``A``, a
cell that changes gains at most ``[it votes A] + [it does not vote B]``, and ``B`` overtakes if the gains exceed
``N_A - N_B - [B < A]``. So an attack of ``r`` flips and ``s`` changed nodes gains at most the largest sum over the union of ``r``
columns and ``s`` rows.

*The largest sum is exact.* Fix the rows. What a column adds to them is the sum of its cells outside these rows, whatever other
columns are taken: the best columns are those that add most. The maximum over all sets of rows is therefore the maximum over all
sets of rows and columns. Sets are tried of whichever side is smaller. Gains are not negative, so more flips never gain less. ∎

GNNCert (Xia et al., ICLR 2024) counts ``2 (r S + s T)``, which no union exceeds: ``r`` columns have ``r S`` cells, ``s`` rows
``s T``, those that cross are in both, and no cell gains more than 2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.prices import contest
from flipproof.graphs import IntArray

_MOST_ENTRIES = 2**22  # sums of columns, over all sets of rows; beyond, what crosses is counted twice


def largest_gains(gains: IntArray, rows: NDArray[np.bool_], columns: NDArray[np.bool_]) -> IntArray:
    """The largest sum of the union of ``s`` rows and ``r`` columns that may be chosen, ``[columns + 1, rows + 1]``.

    Where there are too many sets to try, an upper bound: the sum of the best rows and of the best columns.

    >>> largest_gains(np.array([[2, 1], [0, 3]]), np.array([True, True]), np.array([True, True])).tolist()
    [[0, 3, 6], [4, 6, 6], [6, 6, 6]]
    """
    if columns.sum() < rows.sum():
        return np.asarray(largest_gains(gains.T, columns, rows).T)
    few, many = gains[rows], int(columns.sum())
    count = len(few)
    if count > 30 or 2**count * (many + 1) > _MOST_ENTRIES:
        best = [np.append(0, np.cumsum(np.sort(sums)[::-1])) for sums in (few.sum(axis=1), gains.sum(axis=0)[columns])]
        return np.asarray(np.minimum(best[0] + best[1][:, None], gains.sum()))
    chosen = np.arange(2**count)[:, None] >> np.arange(count) & 1
    rest = (gains.sum(axis=0) - chosen @ few)[:, columns]  # what each column adds to the rows
    added = np.cumsum(-np.sort(-rest, axis=1), axis=1)
    total = np.pad(added, ((0, 0), (1, 0))) + (chosen @ few.sum(axis=1))[:, None]
    sizes = chosen.sum(axis=1)
    return np.stack([total[sizes == size].max(axis=0) for size in range(count + 1)], axis=1)


def withstood(
    labels: NDArray[np.unsignedinteger], num_classes: int, rows: NDArray[np.bool_], columns: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Which attacks of ``[flips, changed nodes]`` the majority of votes ``[S, T]`` withstands, ``[columns + 1, rows + 1]``.

    Args:
        labels: The votes.
        num_classes: Declared classes.
        rows: Feature groups that have a node, ``[S]``; no attack changes the features of the others.
        columns: Edge groups that have a pair to flip, ``[T]``.

    Returns:
        Booleans; an attack of more flips or nodes than there are groups gains no more than one that reaches all of them.
    """
    label, rivals, needed = contest(np.bincount(labels.ravel(), minlength=num_classes))
    gains = ((labels == label).astype(np.int64) + (labels != rival) for rival in rivals)
    tests = [largest_gains(gain, rows, columns) < lead for gain, lead in zip(gains, needed, strict=True)]
    return np.asarray(np.all(tests, axis=0))
