"""The numbering of node pairs ("slots").

A graph is undirected and has no self-loops, so ``n`` nodes have ``n (n - 1) / 2`` slots, numbered along the upper
triangle: (0, 1), (0, 2), ..., (0, n-1), (1, 2), ... This numbering lives in this module and nowhere else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["IntArray", "pairs_of_slots", "slots_of_pairs"]

IntArray = NDArray[np.int64]


def slots_of_pairs(pairs: IntArray, num_nodes: int) -> IntArray:
    """Slot numbers of node pairs ``[K, 2]`` with ``u < v``.

    >>> slots_of_pairs(np.array([[0, 1], [0, 3], [1, 2]]), 4).tolist()
    [0, 2, 3]
    """
    first, second = pairs[:, 0], pairs[:, 1]
    return first * (2 * num_nodes - first - 1) // 2 + second - first - 1


def pairs_of_slots(slots: IntArray, num_nodes: int) -> IntArray:
    """Node pairs ``[K, 2]``, ``u < v``, of slot numbers: the inverse of :func:`slots_of_pairs`.

    >>> pairs_of_slots(np.array([0, 2, 3]), 4).tolist()
    [[0, 1], [0, 3], [1, 2]]
    """
    nodes = np.arange(num_nodes, dtype=np.int64)
    row_starts = nodes * (2 * num_nodes - nodes - 1) // 2
    # the last node's row is empty and starts at the number of slots, so no slot is found there
    first = np.searchsorted(row_starts, slots, side="right") - 1
    return np.stack([first, slots - row_starts[first] + first + 1], axis=1)
