"""Graphs, and the numbering of their node pairs ("slots").

A graph here is undirected and without self-loops, so ``n`` nodes have ``n (n - 1) / 2`` slots, numbered along the
upper triangle: (0, 1), (0, 2), ..., (0, n-1), (1, 2), ... This numbering lives in this module and nowhere else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipproof.errors import InputError

if TYPE_CHECKING:
    import networkx
    from torch_geometric.data import Data

__all__ = ["Graph", "as_graph", "as_graphs", "checked_features", "pairs_of_slots", "slots_of_pairs", "unchecked_graph"]

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


class Graph:
    """An undirected graph without self-loops.

    Args:
        num_nodes: At least 1. A graph of a single node has no slots: nothing can be attacked, its radius is 0.
        edges: Integer pairs ``[E, 2]``. The order of the two ends and of the pairs has no meaning, and a pair listed
            twice (in either direction) is one edge. May be empty.
        node_features: ``[n, d]``, finite; floating or integer. Must not depend on the edges (see the features hook
            of :class:`flipproof.SmoothedClassifier` for features that do).
        label: The class, 0, 1, 2, ..., if known.
        frozen: Node pairs that neither noise nor attacker can touch. They are left out of the slots.
        name: Free text, for reports.

    Attributes are read-only. ``edges`` holds each edge once, ``u < v``, sorted.

    >>> graph = Graph(4, [(1, 0), (2, 3), (0, 1)])
    >>> graph
    Graph(num_nodes=4, num_edges=2)
    >>> graph.edges.tolist()
    [[0, 1], [2, 3]]
    >>> graph.num_slots
    6
    """

    num_nodes: int
    edges: IntArray
    node_features: NDArray[Any] | None
    label: int | None
    frozen: IntArray
    name: str | None

    def __init__(
        self,
        num_nodes: int,
        edges: ArrayLike | Iterable[tuple[int, int]],
        node_features: ArrayLike | None = None,
        label: int | None = None,
        *,
        frozen: ArrayLike | Iterable[tuple[int, int]] | None = None,
        name: str | None = None,
    ) -> None:
        fields = {
            "num_nodes": _checked_num_nodes(num_nodes),
            "edges": _canonical_pairs(edges, int(num_nodes), "edges"),
            "node_features": checked_features(node_features, int(num_nodes)),
            "label": _checked_label(label),
            "frozen": _canonical_pairs(() if frozen is None else frozen, int(num_nodes), "frozen"),
            "name": None if name is None else str(name),
        }
        self.__dict__.update(fields)

    def __setattr__(self, attribute: str, value: object) -> None:
        raise AttributeError(f"a Graph is read-only; make a new one to change {attribute}")

    def __delattr__(self, attribute: str) -> None:
        raise AttributeError(f"a Graph is read-only; make a new one without {attribute}")

    def __reduce__(self) -> tuple[Any, ...]:
        positional = (self.num_nodes, self.edges, self.node_features, self.label)
        return _rebuild, (positional, {"frozen": self.frozen, "name": self.name})

    def __repr__(self) -> str:
        parts = [f"num_nodes={self.num_nodes}", f"num_edges={self.num_edges}"]
        if self.node_features is not None:
            parts.append(f"features={self.node_features.shape[1]}")
        if len(self.frozen):
            parts.append(f"frozen={len(self.frozen)}")
        parts += [f"{key}={value!r}" for key in ("label", "name") if (value := getattr(self, key)) is not None]
        return f"Graph({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        same_features = (
            other.node_features is None
            if self.node_features is None
            else other.node_features is not None and np.array_equal(self.node_features, other.node_features)
        )
        return self.topology == other.topology and self.label == other.label and same_features

    def __hash__(self) -> int:
        return hash(self.topology)

    @property
    def num_edges(self) -> int:
        """Number of edges, frozen ones included."""
        return len(self.edges)

    @property
    def num_slots(self) -> int:
        """``N``: node pairs that noise and attacker can flip."""
        return self.num_nodes * (self.num_nodes - 1) // 2 - len(self.frozen)

    @cached_property
    def edge_slots(self) -> IntArray:
        """Slot numbers of all edges, ascending."""
        return _read_only(slots_of_pairs(self.edges, self.num_nodes))

    @cached_property
    def frozen_slots(self) -> IntArray:
        """Slot numbers of the frozen pairs, ascending."""
        return _read_only(slots_of_pairs(self.frozen, self.num_nodes))

    @cached_property
    def flippable_edge_slots(self) -> IntArray:
        """Slot numbers of the edges that are not frozen, ascending."""
        if not len(self.frozen):
            return self.edge_slots
        return _read_only(np.setdiff1d(self.edge_slots, self.frozen_slots, assume_unique=True))

    @property
    def max_removes(self) -> int:
        """Edges that an attacker could remove."""
        return len(self.flippable_edge_slots)

    @property
    def max_adds(self) -> int:
        """Edges that an attacker could add."""
        return self.num_slots - self.max_removes

    @cached_property
    def slots(self) -> IntArray:
        """The ``N`` slot numbers that are not frozen, ascending. Grows with the number of node pairs."""
        everything = np.arange(self.num_nodes * (self.num_nodes - 1) // 2, dtype=np.int64)
        return _read_only(np.delete(everything, self.frozen_slots) if len(self.frozen) else everything)

    @cached_property
    def slot_states(self) -> NDArray[np.bool_]:
        """For each of :attr:`slots`, whether it holds an edge, ``[N]``."""
        states = np.isin(self.slots, self.edge_slots, assume_unique=True)
        states.flags.writeable = False
        return states

    @cached_property
    def topology(self) -> str:
        """Hash of nodes, edges and frozen pairs; independent of the machine."""
        digest = hashlib.blake2b(b"flipproof topology 1", digest_size=16)
        for number in (self.num_nodes, len(self.edges), len(self.frozen)):
            digest.update(int(number).to_bytes(8, "little"))
        for pairs in (self.edges, self.frozen):
            digest.update(pairs.astype("<i8").tobytes())
        return digest.hexdigest()

    @cached_property
    def degrees(self) -> IntArray:
        """Degree of every node, ``[n]``."""
        return _read_only(np.bincount(self.edges.ravel(), minlength=self.num_nodes).astype(np.int64))

    def flipped(self, pairs: ArrayLike | Iterable[tuple[int, int]]) -> Graph:
        """The graph after an attack: each of the given node pairs is flipped (an edge vanishes, a gap is joined).

        A pair listed twice is flipped once. Frozen pairs are out of an attacker's reach and refused.

        >>> Graph(3, [(0, 1)]).flipped([(0, 1), (1, 2)]).edges.tolist()
        [[1, 2]]
        """
        flips = slots_of_pairs(_canonical_pairs(pairs, self.num_nodes, "pairs"), self.num_nodes)
        frozen = np.intersect1d(flips, self.frozen_slots, assume_unique=True)
        if len(frozen):
            u, v = pairs_of_slots(frozen[:1], self.num_nodes)[0]
            raise InputError(f"pairs must not be frozen; got ({u}, {v}) (use replaced(edges=...) to change them)")
        edges = pairs_of_slots(np.setxor1d(self.edge_slots, flips, assume_unique=True), self.num_nodes)
        return self.replaced(edges=edges)

    def replaced(self, **changes: Any) -> Graph:
        """A copy with some of the constructor's arguments changed."""
        current = {
            key: getattr(self, key) for key in ("num_nodes", "edges", "node_features", "label", "frozen", "name")
        }
        return Graph(**(current | changes))

    # ---- conversions -----------------------------------------------------------------------------------------------

    @classmethod
    def from_adjacency(
        cls, matrix: Any, node_features: ArrayLike | None = None, label: int | None = None, **options: Any
    ) -> Graph:
        """From a symmetric 0/1 matrix with an empty diagonal: numpy, nested lists, a torch tensor or scipy sparse.

        >>> Graph.from_adjacency([[0, 1], [1, 0]])
        Graph(num_nodes=2, num_edges=1)
        """
        matrix = _to_numpy(matrix)
        if hasattr(matrix, "tocoo") and len(matrix.shape) == 2:
            coo = matrix.tocoo(copy=True)
            coo.sum_duplicates()
            rows, columns, values, shape = coo.row, coo.col, coo.data, coo.shape
            stored = values != 0
            rows, columns, values = rows[stored], columns[stored], values[stored]
        else:
            matrix = _as_array(matrix, "adjacency", "a square matrix of numbers")
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
        return cls(int(shape[0]), _undirected_pairs(rows, columns, int(shape[0])), node_features, label, **options)

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
    ) -> Graph:
        """From a ``networkx.Graph``; nodes are numbered in the order of ``graph.nodes``.

        Args:
            graph: Undirected, no multigraph, no self-loops. Edge attributes are dropped.
            node_features: A matrix, or the name of a node attribute; by default the attribute ``x`` if every node has it.
            label: By default the graph attribute ``label`` or ``y``, if there is one.
        """
        if graph.is_directed():
            raise InputError(
                f"expected an undirected graph; got {type(graph).__name__} (graph.to_undirected() keeps an edge where "
                "either direction exists; a certificate then speaks of undirected flips)"
            )
        if graph.is_multigraph():
            raise InputError(
                f"expected a simple graph; got {type(graph).__name__} (networkx.Graph(graph) keeps one of the edges "
                "between two nodes)"
            )
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
            rows = [np.ravel(_to_numpy(graph.nodes[node][node_features])) for node in nodes]
            node_features = _as_array(rows, "node_features", "as many numbers at every node")
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
    def from_pyg(cls, data: Data, **options: Any) -> Graph:
        """From a PyG ``Data``: ``edge_index`` with both directions of every edge, ``x``, ``y``, ``num_nodes``.

        Edge attributes and weights are dropped: an edge that the noise adds has none, so a certified model must not
        read them. A ``y`` that is not one whole number (a regression target, labels of nodes) gives no label.
        """
        if getattr(data, "edge_index", None) is None:
            raise InputError(
                "expected a PyG Data with edge_index; got none (set edge_index of shape [2, 0] for no edges)"
            )
        if getattr(data, "batch", None) is not None:
            raise InputError(
                "expected one graph; got a PyG Batch of several (pass batch.to_data_list() to certify_all)"
            )
        if data.num_nodes is None:
            raise InputError("expected a PyG Data that knows its number of nodes; got none (set data.num_nodes)")
        edge_index = np.asarray(_to_numpy(data.edge_index))
        if edge_index.ndim != 2 or len(edge_index) != 2 or (edge_index.size and edge_index.dtype.kind not in "iu"):
            raise InputError(
                f"edge_index must be integers of shape [2, E]; got {edge_index.dtype} of shape {edge_index.shape} "
                "(transpose it, or convert it with .long())"
            )
        rows, columns = edge_index
        num_nodes = int(data.num_nodes)
        _check_range(rows, columns, num_nodes, "edge_index")
        label = getattr(data, "y", None)
        if label is not None:
            values = np.asarray(_to_numpy(label)).ravel()
            whole = values.size == 1 and np.isfinite(values[0]) and values[0] == int(values[0])
            label = int(values[0]) if whole else None
        features = None if getattr(data, "x", None) is None else _to_numpy(data.x)
        return cls(num_nodes, _undirected_pairs(rows, columns, num_nodes), features, label, **options)

    def to_pyg(self) -> Data:
        """A PyG ``Data``: ``edge_index`` with both directions, sorted; ``x`` and ``y`` where known."""
        import torch
        from torch_geometric.data import Data

        both = np.concatenate([self.edges, self.edges[:, ::-1]])
        both = both[np.lexsort((both[:, 1], both[:, 0]))]
        data = Data(edge_index=torch.from_numpy(np.ascontiguousarray(both.T)), num_nodes=self.num_nodes)
        if self.node_features is not None:
            data.x = torch.from_numpy(self.node_features.copy())
        if self.label is not None:
            data.y = torch.tensor([self.label])
        return data


def as_graph(value: Any) -> Graph:
    """A :class:`Graph` from anything the library accepts: Graph, PyG ``Data``, networkx graph, adjacency matrix."""
    if isinstance(value, Graph):
        return value
    if hasattr(value, "edge_index"):
        return Graph.from_pyg(value)
    if hasattr(value, "is_multigraph") and hasattr(value, "nodes"):
        return Graph.from_networkx(value)
    if hasattr(value, "tocoo") or (hasattr(value, "ndim") and hasattr(value, "shape")):
        return Graph.from_adjacency(value)
    raise InputError(
        "expected a graph (flipproof.Graph, PyG Data, networkx graph or adjacency matrix); "
        f"got {type(value).__name__} (build flipproof.Graph(num_nodes, edges))"
    )


def as_graphs(values: Any) -> list[Graph]:
    """A list of :class:`Graph` from a sequence of anything that :func:`as_graph` takes."""
    is_dataset = hasattr(values, "get") and hasattr(values, "len")  # PyG's own; it passes edge_index on
    is_single = isinstance(values, Graph) or hasattr(values, "edge_index") or hasattr(values, "is_multigraph")
    if is_single and not is_dataset:
        raise InputError("expected a list of graphs; got a single one (wrap it in a list)")
    if not isinstance(values, Iterable) and not is_dataset:
        raise InputError(f"expected a list of graphs; got {type(values).__name__} (pass a list)")
    return [as_graph(value) for value in values]


def unchecked_graph(num_nodes: int, edges: IntArray, node_features: NDArray[Any] | None) -> Graph:
    """A graph whose parts are known to be as :class:`Graph` would make them: thousands of noisy ones cost little.

    Args:
        num_nodes: At least 1.
        edges: int64 pairs ``u < v`` of nodes that exist, sorted, each once; becomes read-only.
        node_features: What :func:`checked_features` returned.
    """
    graph = Graph.__new__(Graph)
    graph.__dict__.update(
        num_nodes=num_nodes,
        edges=_read_only(edges),
        node_features=node_features,
        label=None,
        frozen=_NO_PAIRS,
        name=None,
    )
    return graph


# ---- checks --------------------------------------------------------------------------------------------------------


def _rebuild(positional: Sequence[Any], options: dict[str, Any]) -> Graph:
    return Graph(*positional, **options)


def _read_only(array: IntArray) -> IntArray:
    array.flags.writeable = False
    return array


_NO_PAIRS = _read_only(np.empty((0, 2), dtype=np.int64))


def _to_numpy(value: Any) -> Any:
    """A torch tensor as numpy, without importing torch; anything else unchanged."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        value = value.detach().cpu()
        return (value if str(value.layout) == "torch.strided" else value.to_dense()).numpy()
    return value


def _as_array(value: Any, argument: str, expected: str) -> NDArray[Any]:
    """A new array, from nested lists, a tensor or an array."""
    try:
        return np.array(_to_numpy(value))
    except (TypeError, ValueError) as error:
        raise InputError(f"{argument} must be {expected}; got {type(value).__name__}: {error}") from error


def _checked_num_nodes(num_nodes: int) -> int:
    if isinstance(num_nodes, bool) or not isinstance(num_nodes, (int, np.integer)):
        raise InputError(f"num_nodes must be an integer; got {num_nodes!r} (pass the number of nodes)")
    if num_nodes < 1:
        raise InputError(f"num_nodes must be at least 1; got {num_nodes} (leave graphs without nodes out of the data)")
    return int(num_nodes)


def _checked_label(label: Any) -> int | None:
    if label is None:
        return None
    value = np.asarray(_to_numpy(label))
    if value.size != 1 or value.dtype.kind not in "iu" or value.item() < 0:
        raise InputError(f"label must be a class number 0, 1, 2, ...; got {label!r} (map class names to numbers)")
    return int(value.item())


def checked_features(features: Any, num_nodes: int) -> NDArray[Any] | None:
    """Node features ``[n, d]`` as a read-only array of finite numbers."""
    if features is None:
        return None
    array = _as_array(features, "node_features", "a matrix of numbers")
    if array.ndim != 2 or len(array) != num_nodes:
        raise InputError(
            f"node_features must have shape [num_nodes, d] with num_nodes = {num_nodes}; got {array.shape} "
            "(one row a node; reshape a single column to [n, 1])"
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


def _canonical_pairs(pairs: Any, num_nodes: int, argument: str) -> IntArray:
    """Pairs once each, ``u < v``, sorted; refuses self-loops and nodes out of range."""
    if not hasattr(pairs, "__array__") and isinstance(pairs, Iterable):
        pairs = list(pairs)  # a set or a generator
    pairs = _as_array(pairs, argument, "pairs of nodes, shape [E, 2]")
    if pairs.size == 0:
        return _NO_PAIRS
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise InputError(
            f"{argument} must be pairs of nodes, shape [E, 2]; got shape {pairs.shape} "
            "(transpose a PyG edge_index, or use Graph.from_pyg)"
        )
    if pairs.dtype.kind not in "iu":
        raise InputError(f"{argument} must hold node numbers; got dtype {pairs.dtype} (number the nodes 0..n-1)")
    pairs = pairs.astype(np.int64)
    _check_range(pairs[:, 0], pairs[:, 1], num_nodes, argument)
    loops = pairs[:, 0] == pairs[:, 1]
    if loops.any():
        raise InputError(
            f"{argument} must not hold self-loops; got ({pairs[loops][0, 0]}, {pairs[loops][0, 0]}) "
            "(remove them: noise and attacker flip pairs of distinct nodes, and a model that wants self-loops adds its own)"
        )
    slots = np.unique(slots_of_pairs(np.sort(pairs, axis=1), num_nodes))
    return _read_only(pairs_of_slots(slots, num_nodes))


def _check_range(rows: NDArray[Any], columns: NDArray[Any], num_nodes: int, argument: str) -> None:
    for ends in (rows, columns):
        outside = (ends < 0) | (ends >= num_nodes)
        if outside.any():
            raise InputError(
                f"{argument} must name nodes 0..{num_nodes - 1}; got {ends[outside][0]} "
                "(number the nodes from 0, and count isolated nodes in num_nodes)"
            )


def _undirected_pairs(rows: NDArray[Any], columns: NDArray[Any], num_nodes: int) -> IntArray:
    """Pairs from directed arcs that must come in both directions."""
    rows, columns = rows.astype(np.int64), columns.astype(np.int64)
    forth, back = rows * num_nodes + columns, columns * num_nodes + rows
    one_way = np.setdiff1d(forth, back)
    if len(one_way):
        u, v = divmod(int(one_way[0]), num_nodes)
        raise InputError(
            f"expected an undirected graph, every edge in both directions; got {u} -> {v} without {v} -> {u} "
            "(symmetrise it, for instance with torch_geometric.utils.to_undirected or matrix | matrix.T; a certificate "
            "then speaks of undirected flips)"
        )
    return np.stack([rows, columns], axis=1)
