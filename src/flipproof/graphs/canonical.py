"""The numbering of node pairs ("slots"), checks of a graph's parts, and their canonical forms.

A graph is undirected and has no self-loops, so ``n`` nodes have ``n (n - 1) / 2`` slots, numbered along the upper
triangle: (0, 1), (0, 2), ..., (0, n-1), (1, 2), ... This numbering lives in this module and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.errors import InputError

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


def read_only(array: IntArray) -> IntArray:
    """The same array, locked against writing."""
    array.flags.writeable = False
    return array


NO_PAIRS = read_only(np.empty((0, 2), dtype=np.int64))


def to_numpy(value: Any) -> Any:
    """A torch tensor as numpy, without importing torch; anything else unchanged."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        value = value.detach().cpu()
        return (value if str(value.layout) == "torch.strided" else value.to_dense()).numpy()
    return value


def as_array(value: Any, argument: str, expected: str) -> NDArray[Any]:
    """A new array, from nested lists, a tensor or an array."""
    try:
        return np.array(to_numpy(value))
    except (TypeError, ValueError) as error:
        raise InputError(f"{argument} must be {expected}; got {type(value).__name__}: {error}") from error


def checked_label(label: Any) -> int | None:
    """A class number, or ``None``."""
    if label is None:
        return None
    value = np.asarray(to_numpy(label))
    if value.size != 1 or value.dtype.kind not in "iu" or value.item() < 0:
        raise InputError(f"label must be a class number 0, 1, 2, ...; got {label!r} (map class names to numbers)")
    return int(value.item())


def checked_features(features: Any, num_nodes: int) -> NDArray[Any] | None:
    """Node features ``[n, d]`` as a read-only array of finite numbers."""
    if features is None:
        return None
    array = as_array(features, "node_features", "a matrix of numbers")
    if array.ndim != 2 or len(array) != num_nodes:
        raise InputError(
            f"node_features must have shape [num_nodes, d] with num_nodes = {num_nodes}; got {array.shape} "
            "(one row per node; reshape a single column to [n, 1])"
        )
    if array.dtype.kind in "iu":
        array = array.astype(np.int64)
    elif array.dtype.kind == "b" or array.dtype == np.float16:
        array = array.astype(np.float32)
    elif array.dtype not in (np.float32, np.float64):
        raise InputError(f"node_features must be numbers; got dtype {array.dtype} (encode categories one-hot)")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        node, column = np.argwhere(~np.isfinite(array))[0]
        raise InputError(
            f"node_features must be finite; got {array[node, column]} at node {node}, column {column} "
            "(impute or drop it first)"
        )
    array.flags.writeable = False
    return array


def canonical_pairs(pairs: Any, num_nodes: int, argument: str) -> IntArray:
    """Each pair once, ``u < v``, sorted; refuses self-loops and nodes out of range."""
    if not hasattr(pairs, "__array__") and isinstance(pairs, Iterable):
        pairs = list(pairs)  # a set or a generator
    pairs = as_array(pairs, argument, "pairs of nodes, shape [E, 2]")
    if pairs.size == 0:
        return NO_PAIRS
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise InputError(
            f"{argument} must be pairs of nodes, shape [E, 2]; got shape {pairs.shape} "
            "(transpose a PyG edge_index, or use Graph.from_pyg)"
        )
    if pairs.dtype.kind not in "iu":
        raise InputError(f"{argument} must hold node numbers; got dtype {pairs.dtype} (number the nodes 0..n-1)")
    pairs = pairs.astype(np.int64)
    check_range(pairs[:, 0], pairs[:, 1], num_nodes, argument)
    loops = pairs[:, 0] == pairs[:, 1]
    if loops.any():
        raise InputError(
            f"{argument} must not contain self-loops; got ({pairs[loops][0, 0]}, {pairs[loops][0, 0]}) "
            "(remove them: flips concern pairs of distinct nodes, and a model that wants self-loops adds its own)"
        )
    slots = np.unique(slots_of_pairs(np.sort(pairs, axis=1), num_nodes))
    return read_only(pairs_of_slots(slots, num_nodes))


def check_range(rows: NDArray[Any], columns: NDArray[Any], num_nodes: int, argument: str) -> None:
    """Refuse node numbers that do not exist."""
    for ends in (rows, columns):
        outside = (ends < 0) | (ends >= num_nodes)
        if outside.any():
            raise InputError(
                f"{argument} must name nodes 0..{num_nodes - 1}; got {ends[outside][0]} "
                "(number the nodes from 0, and count isolated nodes in num_nodes)"
            )


def undirected_pairs(rows: NDArray[Any], columns: NDArray[Any], num_nodes: int) -> IntArray:
    """Node pairs from arcs, each of which must be present in both directions."""
    rows, columns = rows.astype(np.int64), columns.astype(np.int64)
    forth, back = rows * num_nodes + columns, columns * num_nodes + rows
    one_way = np.setdiff1d(forth, back)
    if len(one_way):
        u, v = divmod(int(one_way[0]), num_nodes)
        raise InputError(
            f"expected an undirected graph, every edge in both directions; got {u} -> {v} without {v} -> {u} "
            "(symmetrise it, for instance with torch_geometric.utils.to_undirected or matrix | matrix.T; certificates "
            "then count undirected flips)"
        )
    return np.stack([rows, columns], axis=1)
