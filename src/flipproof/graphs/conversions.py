"""The numbering of node pairs ("slots"), checks of a graph's parts, and conversions: adjacency matrices, networkx and PyG.

A graph is undirected and has no self-loops, so ``n`` nodes have ``n (n - 1) / 2`` slots, numbered along the upper
triangle: (0, 1), (0, 2), ..., (0, n-1), (1, 2), ... This numbering lives in this module and nowhere else.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from copy import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipproof.errors import InputError

if TYPE_CHECKING:
    import networkx
    from torch_geometric.data import Data

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


_EDGE_FIELDS = ("adj", "adj_t")


class Conversions:
    """The conversions of :class:`flipproof.Graph`, its only subclass."""

    num_nodes: int
    edges: IntArray
    node_features: NDArray[Any] | None
    label: int | None

    if TYPE_CHECKING:

        def __init__(
            self, num_nodes: int, edges: Any, node_features: Any = None, label: Any = None, **options: Any
        ) -> None: ...

    @classmethod
    def from_adjacency(
        cls, matrix: Any, node_features: ArrayLike | None = None, label: int | None = None, **options: Any
    ) -> Self:
        """From a symmetric 0/1 matrix with an empty diagonal: numpy, nested lists, a torch tensor or scipy sparse.

        >>> from flipproof import Graph
        >>> Graph.from_adjacency([[0, 1], [1, 0]])
        Graph(num_nodes=2, num_edges=1)
        """
        matrix = to_numpy(matrix)
        if hasattr(matrix, "tocoo") and len(matrix.shape) == 2:
            coo = matrix.tocoo(copy=True)
            coo.sum_duplicates()
            rows, columns, values, shape = coo.row, coo.col, coo.data, coo.shape
            stored = values != 0
            rows, columns, values = rows[stored], columns[stored], values[stored]
        else:
            matrix = as_array(matrix, "adjacency", "a square matrix of numbers")
            if matrix.ndim != 2:
                raise InputError(
                    f"adjacency must be a square matrix; got {matrix.ndim} dimensions (pass one graph at a time)"
                )
            rows, columns = np.nonzero(matrix)
            values, shape = matrix[rows, columns], matrix.shape
        if shape[0] != shape[1]:
            raise InputError(f"adjacency must be square; got shape {tuple(shape)} (pass [n, n])")
        if not np.all(values == 1):
            raise InputError(
                f"adjacency must hold 0 and 1 only; got {values[values != 1][0]!r} "
                "(edge weights are not supported: pass matrix != 0)"
            )
        return cls(int(shape[0]), undirected_pairs(rows, columns, int(shape[0])), node_features, label, **options)

    def adjacency(self) -> NDArray[np.float32]:
        """The dense adjacency matrix, float32 ``[n, n]``."""
        matrix = np.zeros((self.num_nodes, self.num_nodes), dtype=np.float32)
        matrix[self.edges[:, 0], self.edges[:, 1]] = 1
        matrix[self.edges[:, 1], self.edges[:, 0]] = 1
        return matrix

    def sparse_adjacency(self) -> Any:
        """The adjacency matrix as a scipy CSR array, float32 ``[n, n]``."""
        from scipy.sparse import csr_array

        rows, columns = np.concatenate([self.edges, self.edges[:, ::-1]]).T
        ones = np.ones(len(rows), dtype=np.float32)
        return csr_array((ones, (rows, columns)), shape=(self.num_nodes, self.num_nodes))

    @classmethod
    def from_networkx(
        cls,
        graph: networkx.Graph,
        node_features: ArrayLike | str | None = None,
        label: int | None = None,
        **options: Any,
    ) -> Self:
        """From a ``networkx.Graph``; nodes are numbered in the order of ``graph.nodes``.

        Args:
            graph: Undirected, not a multigraph, without self-loops. Edge attributes are left out with a warning.
            node_features: A matrix, or the name of a node attribute. The default is the attribute ``x`` if every node has it.
            label: The default is the graph attribute ``label`` or ``y``, if there is one.
        """
        if graph.is_directed():
            raise InputError(
                f"expected an undirected graph; got {type(graph).__name__} (graph.to_undirected() keeps an edge where "
                "either direction exists; certificates then count undirected flips)"
            )
        if graph.is_multigraph():
            raise InputError(
                f"expected a simple graph; got {type(graph).__name__} (networkx.Graph(graph) keeps one of the edges "
                "between two nodes)"
            )
        attributes = {key for *_, values in graph.edges(data=True) for key in values}
        _warn_of_edge_fields("the networkx graph", sorted(map(str, attributes)), "drop them")
        nodes = list(graph.nodes)
        index = {node: position for position, node in enumerate(nodes)}
        edges = [(index[u], index[v]) for u, v in graph.edges]
        if node_features is None and nodes and all("x" in graph.nodes[node] for node in nodes):
            node_features = "x"
        if isinstance(node_features, str) and nodes:
            missing = [node for node in nodes if node_features not in graph.nodes[node]]
            if missing:
                raise InputError(
                    f"node_features names the node attribute {node_features!r}; node {missing[0]!r} has none "
                    "(set it on every node)"
                )
            rows = [np.ravel(to_numpy(graph.nodes[node][node_features])) for node in nodes]
            node_features = as_array(rows, "node_features", "the same number of values at every node")
        if label is None:
            label = graph.graph.get("label", graph.graph.get("y"))
        return cls(len(nodes), edges, node_features, label, **options)

    def to_networkx(self) -> networkx.Graph:
        """A ``networkx.Graph`` with node attribute ``x`` and graph attribute ``label`` where known."""
        import networkx

        graph = networkx.Graph()
        graph.add_nodes_from(range(self.num_nodes))
        graph.add_edges_from(map(tuple, self.edges.tolist()))
        if self.node_features is not None:
            networkx.set_node_attributes(graph, dict(enumerate(self.node_features.tolist())), "x")
        if self.label is not None:
            graph.graph["label"] = self.label
        return graph

    @classmethod
    def from_pyg(cls, data: Data, **options: Any) -> Self:
        """From a PyG ``Data``: ``edge_index`` with both directions of every edge, ``x``, ``y``, ``num_nodes``.

        Edge attributes and weights are left out with a warning: an edge that the noise adds has none, so a certified model must
        not read them. A ``y`` that is not a single whole number (a regression target, node labels) gives no label.
        """
        num_nodes, pairs = pyg_pairs(data)
        _warn_of_edge_fields("the PyG Data", pyg_edge_fields(data), "set data.edge_attr = None")
        label = getattr(data, "y", None)
        if label is not None:
            values = np.asarray(to_numpy(label)).ravel()
            whole = values.size == 1 and np.isfinite(values[0]) and values[0] == int(values[0])
            label = int(values[0]) if whole else None
        features = None if getattr(data, "x", None) is None else to_numpy(data.x)
        return cls(num_nodes, pairs, features, label, **options)

    def to_pyg(self) -> Data:
        """A PyG ``Data``: ``edge_index`` with both directions, sorted; ``x`` and ``y`` where known."""
        import torch
        from torch_geometric.data import Data

        data = Data(edge_index=torch.from_numpy(_both_directions(self.edges)), num_nodes=self.num_nodes)
        if self.node_features is not None:
            data.x = torch.from_numpy(self.node_features.copy())
        if self.label is not None:
            data.y = torch.tensor([self.label])
        return data


def _warn_of_edge_fields(where: str, fields: list[str], remedy: str) -> None:
    if fields:
        warnings.warn(
            f"{', '.join(fields)} of {where} {'is' if len(fields) == 1 else 'are'} not used: an edge that the noise adds has "
            "none, and a certified model must not tell it apart (make edge features from the two end nodes with "
            f"edge_features=function, or {remedy})",
            stacklevel=4,
        )


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
    num_nodes = int(data.num_nodes)
    check_range(rows, columns, num_nodes, "edge_index")
    return num_nodes, undirected_pairs(rows, columns, num_nodes)


def pyg_edge_fields(data: Data) -> list[str]:
    """Names of the fields of a PyG ``Data`` that hold something per edge, ``edge_index`` itself aside."""
    return [
        key
        for key, value in data
        if key != "edge_index"
        and value is not None
        and (key in _EDGE_FIELDS or "edge" in key or data.is_edge_attr(key))
    ]


def pyg_with_edges(data: Data, edge_index: IntArray) -> Data:
    """A shallow copy of a PyG ``Data`` with these edges ``[2, E]``; all else stays."""
    import torch

    changed = copy(data)
    changed.num_nodes = int(data.num_nodes)  # where only the edges told it, a lost edge would lose nodes
    changed.edge_index = torch.from_numpy(edge_index).to(data.edge_index)
    return changed


def _both_directions(edges: IntArray) -> IntArray:
    both = np.concatenate([edges, edges[:, ::-1]])
    return np.ascontiguousarray(both[np.lexsort((both[:, 1], both[:, 0]))].T)
