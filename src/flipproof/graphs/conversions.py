"""The numbering of node pairs ("slots"), checks of a graph's parts, and what is read of networkx's and PyG's.

A graph is undirected and has no self-loops, so ``n`` nodes have ``n (n - 1) / 2`` slots, numbered along the upper
triangle: (0, 1), (0, 2), ..., (0, n-1), (1, 2), ... This numbering lives in this module and nowhere else.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from copy import copy
from itertools import takewhile
from traceback import walk_stack
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from flipproof.errors import InputError

if TYPE_CHECKING:
    import networkx
    from torch_geometric.data import Data

IntArray = NDArray[np.int64]
_Entry = TypeVar("_Entry", bound=np.generic)


def slots_of_pairs(pairs: IntArray, num_nodes: int) -> IntArray:
    """Slot numbers of node pairs ``[K, 2]`` with ``u < v``."""
    first, second = pairs[:, 0], pairs[:, 1]
    return first * (2 * num_nodes - first - 1) // 2 + second - first - 1


def pairs_of_slots(slots: IntArray, num_nodes: int) -> IntArray:
    """Node pairs ``[K, 2]``, ``u < v``, of slot numbers: the inverse of :func:`slots_of_pairs`."""
    nodes = np.arange(num_nodes, dtype=np.int64)
    row_starts = nodes * (2 * num_nodes - nodes - 1) // 2
    # the last node's row is empty and starts at the number of slots, so no slot is found there
    first = np.searchsorted(row_starts, slots, side="right") - 1
    return np.stack([first, slots - row_starts[first] + first + 1], axis=1)


def read_only(array: NDArray[_Entry]) -> NDArray[_Entry]:
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
    return read_only(array)


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
    check_range(pairs, num_nodes, argument)
    loops = pairs[pairs[:, 0] == pairs[:, 1], 0]
    if len(loops):
        raise InputError(
            f"{argument} must not contain self-loops; got ({loops[0]}, {loops[0]}) "
            "(remove them: flips concern pairs of distinct nodes, and a model that wants self-loops adds its own)"
        )
    slots = np.unique(slots_of_pairs(np.sort(pairs, axis=1), num_nodes))
    return read_only(pairs_of_slots(slots, num_nodes))


def check_range(nodes: NDArray[Any], num_nodes: int, argument: str) -> None:
    """Refuse node numbers that do not exist."""
    outside = nodes[(nodes < 0) | (nodes >= num_nodes)]
    if len(outside):
        raise InputError(
            f"{argument} must name nodes 0..{num_nodes - 1}; got {outside[0]} "
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


class UnusedEdgeFields(UserWarning):
    """What stands at the edges of a graph is left out."""


def warn_of_edge_fields(where: str, fields: list[str], remedy: str) -> None:
    """Say that what stands at edges is left out; the warning points to the user's line."""
    if fields:
        package = f"{__package__.partition('.')[0]}."
        frames = takewhile(lambda one: one[0].f_globals.get("__name__", "").startswith(package), walk_stack(None))
        warnings.warn(
            f"{', '.join(fields)} of {where} {'is' if len(fields) == 1 else 'are'} not used: an edge that the noise adds has "
            "none, and a certified model must not tell it apart (make edge features from the two end nodes with "
            f"edge_features=function, or {remedy})",
            UnusedEdgeFields,
            stacklevel=1 + len(list(frames)),
        )


def networkx_pairs(graph: networkx.Graph) -> tuple[int, list[tuple[int, int]]]:
    """The number of nodes of a networkx graph, and its node pairs, numbered in its order; refuses all but simple graphs."""
    if graph.is_directed():
        raise InputError(
            f"expected an undirected graph; got {type(graph).__name__} (graph.to_undirected() keeps an edge where either "
            "direction exists; certificates then count undirected flips)"
        )
    if graph.is_multigraph():
        raise InputError(
            f"expected a simple graph; got {type(graph).__name__} (networkx.Graph(graph) keeps one edge between two nodes)"
        )
    named = {str(key) for *_, values in graph.edges(data=True) for key in values}
    warn_of_edge_fields("the networkx graph", sorted(named), "drop them")
    index = {node: position for position, node in enumerate(graph)}
    return len(index), [(index[u], index[v]) for u, v in graph.edges]


def networkx_features(graph: networkx.Graph, attribute: str) -> NDArray[Any]:
    """An attribute of all nodes of a networkx graph, a row per node."""
    for node in graph:
        if attribute not in graph.nodes[node]:
            raise InputError(
                f"node_features names the node attribute {attribute!r}; node {node!r} has none (set it on every node)"
            )
    rows = [np.ravel(to_numpy(graph.nodes[node][attribute])) for node in graph]
    return as_array(rows, "node_features", "the same number of values at every node")


def pyg_pairs(data: Data) -> tuple[int, IntArray]:
    """The number of nodes of a PyG ``Data``, and its node pairs; refuses directed graphs and batches."""
    if getattr(data, "edge_index", None) is None:
        raise InputError("expected a PyG Data with edge_index; got none (set edge_index of shape [2, 0] for no edges)")
    if getattr(data, "batch", None) is not None:
        raise InputError("expected one graph; got a PyG Batch of several (pass batch.to_data_list() to certify_all)")
    if data.num_nodes is None:
        raise InputError("expected a PyG Data that knows its number of nodes; got none (set data.num_nodes)")
    edge_index = np.asarray(to_numpy(data.edge_index))
    if edge_index.ndim != 2 or len(edge_index) != 2 or (edge_index.size and edge_index.dtype.kind not in "iu"):
        raise InputError(
            f"edge_index must be integers of shape [2, E]; got {edge_index.dtype} of shape {edge_index.shape} "
            "(transpose it, or convert it with .long())"
        )
    rows, columns = edge_index
    check_range(edge_index, int(data.num_nodes), "edge_index")
    return int(data.num_nodes), undirected_pairs(rows, columns, int(data.num_nodes))


def pyg_edge_fields(data: Data) -> list[str]:
    """Names of the fields of a PyG ``Data`` that hold something per edge, ``edge_index`` itself aside."""
    fields = (key for key, value in data if key != "edge_index" and value is not None)
    return [key for key in fields if key in ("adj", "adj_t") or "edge" in key or data.is_edge_attr(key)]


def pyg_with_edges(data: Data, edge_index: IntArray) -> Data:
    """A shallow copy of a PyG ``Data`` with these edges ``[2, E]``; all else stays."""
    import torch

    changed = copy(data)
    changed.num_nodes = int(data.num_nodes)  # where only the edges told it, a lost edge would lose nodes
    changed.edge_index = torch.from_numpy(edge_index).to(data.edge_index)
    return changed
