"""The graph: undirected, without self-loops, read-only."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipproof.checks import checked_count, checked_integer
from flipproof.errors import InputError
from flipproof.graphs.conversions import (
    NO_PAIRS,
    IntArray,
    as_array,
    canonical_pairs,
    checked_features,
    checked_label,
    networkx_features,
    networkx_pairs,
    pairs_of_slots,
    pyg_edge_fields,
    pyg_pairs,
    read_only,
    slots_of_pairs,
    to_numpy,
    undirected_pairs,
    warn_of_edge_fields,
)

if TYPE_CHECKING:
    import networkx
    from torch_geometric.data import Data

_KEPT: Any = object()  # stands for what a graph already has


_CHECKS: Mapping[str, Callable[[Any, int], Any]] = {
    "edges": lambda edges, num_nodes: canonical_pairs(edges, num_nodes, "edges"),
    "node_features": checked_features,
    "label": lambda label, num_nodes: checked_label(label),
    "frozen": lambda pairs, num_nodes: canonical_pairs(() if pairs is None else pairs, num_nodes, "frozen"),
    "name": lambda name, num_nodes: None if name is None else str(name),
    "node": lambda node, n: None if node is None else checked_integer(node, "node", 0, n - 1, "a node of the graph"),
}


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Graph:
    """An undirected graph without self-loops.

    Args:
        num_nodes: At least 1. A graph with a single node has no slots, and its radius is 0.
        edges: Integer pairs ``[E, 2]`` in any order; a pair listed twice (in either direction) is one edge. May be empty.
        node_features: ``[n, d]``, finite; floating or integer. Must not depend on the edges (see the features hook
            of :class:`flipproof.SmoothedClassifier` for features that do).
        label: The class, 0, 1, 2, ..., if known.
        frozen: Node pairs that neither the noise nor an attacker can touch. They are left out of the slots.
        name: Free text, for reports.
        node: The node that is meant, where a model classifies single nodes; ``label`` is then its class.

    Attributes are read-only. ``edges`` holds each edge once, ``u < v``, sorted.

    >>> graph = Graph(4, [(1, 0), (2, 3), (0, 1)])
    >>> graph, graph.edges.tolist(), graph.num_slots
    (Graph(num_nodes=4, num_edges=2), [[0, 1], [2, 3]], 6)
    """

    num_nodes: int
    edges: IntArray
    node_features: NDArray[Any] | None
    label: int | None
    frozen: IntArray
    name: str | None
    node: int | None

    def __init__(
        self,
        num_nodes: int,
        edges: ArrayLike | Iterable[tuple[int, int]],
        node_features: ArrayLike | None = None,
        label: int | None = None,
        *,
        frozen: ArrayLike | Iterable[tuple[int, int]] | None = None,
        name: str | None = None,
        node: int | None = None,
    ) -> None:
        num_nodes = checked_count(num_nodes, "num_nodes", 1, "leave graphs without nodes out of the data")
        content = {"edges": edges, "node_features": node_features, "label": label, "frozen": frozen, "name": name}
        self._set(num_nodes, content | {"node": node})

    def _set(self, num_nodes: int, content: dict[str, Any]) -> None:
        self.__dict__["num_nodes"] = num_nodes
        self.__dict__.update((key, _CHECKS[key](value, num_nodes)) for key, value in content.items())

    def __reduce__(self) -> tuple[Any, ...]:
        positional = (self.num_nodes, self.edges, self.node_features, self.label)
        return partial(Graph, frozen=self.frozen, name=self.name, node=self.node), positional

    def __repr__(self) -> str:
        features = None if self.node_features is None else self.node_features.shape[1]
        more = {"features": features, "frozen": len(self.frozen) or None}
        more |= {key: getattr(self, key) for key in ("node", "label", "name")}
        parts = {"num_nodes": self.num_nodes, "num_edges": self.num_edges, **more}
        return f"Graph({', '.join(f'{key}={value!r}' for key, value in parts.items() if value is not None)})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the graph in words and, up to 150 nodes, as a drawing."""
        from flipproof.graphs.picture import MOST_DRAWN, svg

        drawing = svg(self) if self.num_nodes <= MOST_DRAWN else ""
        return f"<div>{drawing}<br>{escape(repr(self))}</div>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        same = (self.topology, self.label, self.node) == (other.topology, other.label, other.node)
        return same and np.array_equal(self.node_features, other.node_features)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return hash(self.topology)

    @property
    def num_edges(self) -> int:
        """Number of edges, frozen ones included."""
        return len(self.edges)

    @property
    def num_slots(self) -> int:
        """``N``: the number of node pairs that the noise and an attacker can flip."""
        return self.num_nodes * (self.num_nodes - 1) // 2 - len(self.frozen)

    @cached_property
    def edge_slots(self) -> IntArray:
        """Slot numbers of all edges, ascending."""
        return read_only(slots_of_pairs(self.edges, self.num_nodes))

    @cached_property
    def frozen_slots(self) -> IntArray:
        """Slot numbers of the frozen pairs, ascending."""
        return read_only(slots_of_pairs(self.frozen, self.num_nodes))

    @cached_property
    def flippable_edge_slots(self) -> IntArray:
        """Slot numbers of the edges that are not frozen, ascending."""
        return read_only(np.setdiff1d(self.edge_slots, self.frozen_slots, assume_unique=True))

    @cached_property
    def frozen_edge_slots(self) -> IntArray:
        """Slot numbers of the frozen edges, ascending."""
        return read_only(np.intersect1d(self.edge_slots, self.frozen_slots, assume_unique=True))

    @property
    def max_removes(self) -> int:
        """Number of edges that an attacker could remove."""
        return len(self.flippable_edge_slots)

    @property
    def max_adds(self) -> int:
        """Number of edges that an attacker could add."""
        return self.num_slots - self.max_removes

    @cached_property
    def slots(self) -> IntArray:
        """The ``N`` slot numbers that are not frozen, ascending. Its size grows with the number of node pairs."""
        return read_only(np.delete(np.arange(self.num_nodes * (self.num_nodes - 1) // 2), self.frozen_slots))

    @cached_property
    def slot_states(self) -> NDArray[np.bool_]:
        """For each of :attr:`slots`, whether it holds an edge, ``[N]``."""
        return read_only(np.isin(self.slots, self.edge_slots, assume_unique=True))

    @cached_property
    def topology(self) -> str:
        """Hash of the nodes, edges and frozen pairs; the same on every machine."""
        digest = hashlib.blake2b(b"flipproof topology 1", digest_size=16)
        for number in (self.num_nodes, len(self.edges), len(self.frozen)):
            digest.update(int(number).to_bytes(8, "little"))
        for pairs in (self.edges, self.frozen):
            digest.update(pairs.astype("<i8").tobytes())
        return digest.hexdigest()

    @cached_property
    def degrees(self) -> IntArray:
        """Degree of every node, ``[n]``."""
        return read_only(np.bincount(self.edges.ravel(), minlength=self.num_nodes).astype(np.int64))

    def flipped(self, pairs: ArrayLike | Iterable[tuple[int, int]]) -> Graph:
        """The graph after an attack: each of the node pairs is flipped (an edge vanishes, a gap is joined).

        A pair that is listed twice is flipped once. Frozen pairs are refused: an attacker cannot reach them.
        """
        flips = slots_of_pairs(canonical_pairs(pairs, self.num_nodes, "pairs"), self.num_nodes)
        frozen = np.intersect1d(flips, self.frozen_slots, assume_unique=True)
        if len(frozen):
            u, v = pairs_of_slots(frozen[:1], self.num_nodes)[0]
            raise InputError(f"pairs must not be frozen; got ({u}, {v}) (use replaced(edges=...) to change them)")
        slots = np.setxor1d(self.edge_slots, flips, assume_unique=True)
        return self.replaced(edges=pairs_of_slots(slots, self.num_nodes))

    def replaced(
        self,
        *,
        num_nodes: int = _KEPT,
        edges: ArrayLike | Iterable[tuple[int, int]] = _KEPT,
        node_features: ArrayLike | None = _KEPT,
        label: int | None = _KEPT,
        frozen: ArrayLike | Iterable[tuple[int, int]] | None = _KEPT,
        name: str | None = _KEPT,
        node: int | None = _KEPT,
    ) -> Graph:
        """A copy with some of the constructor's arguments changed; see :class:`Graph`."""
        changed = {key: value for key, value in locals().items() if key != "self" and value is not _KEPT}
        if "num_nodes" in changed:
            return replace(self, **changed)
        made = object.__new__(Graph)  # what stays is shared, and was checked
        kept = [entry.name for entry in fields(self)] + ["topology"] * (not changed.keys() & {"edges", "frozen"})
        made.__dict__.update((key, self.__dict__[key]) for key in kept if key in self.__dict__)
        made._set(self.num_nodes, changed)
        return made

    # ---- conversions ----

    @classmethod
    def from_adjacency(
        cls,
        matrix: Any,
        node_features: ArrayLike | None = None,
        label: int | None = None,
        *,
        frozen: ArrayLike | Iterable[tuple[int, int]] | None = None,
        name: str | None = None,
    ) -> Graph:
        """From a symmetric 0/1 matrix with an empty diagonal: numpy, nested lists, a torch tensor or scipy sparse.

        ``node_features``, ``label``, ``frozen`` and ``name`` are those of :class:`Graph`.

        >>> Graph.from_adjacency([[0, 1], [1, 0]])
        Graph(num_nodes=2, num_edges=1)
        """
        from scipy.sparse import coo_array

        matrix = to_numpy(matrix)
        if not hasattr(matrix, "tocoo"):
            matrix = as_array(matrix, "adjacency", "a square matrix of numbers")
        if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
            raise InputError(
                f"adjacency must be a square matrix; got shape {tuple(matrix.shape)} (pass [n, n], one graph at a time)"
            )
        if matrix.dtype.kind not in "biuf":
            raise InputError(f"adjacency must hold 0 and 1 only; got dtype {matrix.dtype} (pass numbers)")
        entries = coo_array(matrix, copy=True)
        entries.sum_duplicates()
        entries.eliminate_zeros()
        if not np.all(entries.data == 1):
            raise InputError(
                f"adjacency must hold 0 and 1 only; got {entries.data[entries.data != 1][0]!r} "
                "(edge weights are not supported: pass matrix != 0)"
            )
        count = int(matrix.shape[0])
        pairs = undirected_pairs(entries.row, entries.col, count)
        return cls(count, pairs, node_features, label, frozen=frozen, name=name)

    def adjacency(self) -> NDArray[np.float32]:
        """The dense adjacency matrix, float32 ``[n, n]``."""
        matrix = np.zeros((self.num_nodes, self.num_nodes), dtype=np.float32)
        u, v = self.edges.T
        matrix[u, v] = matrix[v, u] = 1
        return matrix

    @classmethod
    def from_networkx(
        cls,
        graph: networkx.Graph,
        node_features: ArrayLike | str | None = None,
        label: int | None = None,
        *,
        frozen: ArrayLike | Iterable[tuple[int, int]] | None = None,
        name: str | None = None,
    ) -> Graph:
        """From a ``networkx.Graph``; nodes are numbered in the order of ``graph.nodes``.

        Args:
            graph: Undirected, not a multigraph, without self-loops. Edge attributes are left out with a warning.
            node_features: A matrix, or the name of a node attribute. The default is the attribute ``x`` if every node has it.
            label: The default is the graph attribute ``label`` or ``y``, if there is one.
            frozen, name: As for :class:`Graph`; pairs are of the new numbers.
        """
        num_nodes, pairs = networkx_pairs(graph)
        if node_features is None and num_nodes and all("x" in graph.nodes[node] for node in graph):
            node_features = "x"
        if isinstance(node_features, str) and num_nodes:
            node_features = networkx_features(graph, node_features)
        if label is None:
            label = graph.graph.get("label", graph.graph.get("y"))
        return cls(num_nodes, pairs, node_features, label, frozen=frozen, name=name)

    def to_networkx(self) -> networkx.Graph:
        """A ``networkx.Graph`` with node attribute ``x`` and graph attribute ``label`` where known."""
        import networkx

        graph = networkx.Graph() if self.label is None else networkx.Graph(label=self.label)
        graph.add_nodes_from(range(self.num_nodes))
        graph.add_edges_from(map(tuple, self.edges.tolist()))
        if self.node_features is not None:
            networkx.set_node_attributes(graph, dict(enumerate(self.node_features.tolist())), "x")
        return graph

    @classmethod
    def from_pyg(
        cls, data: Data, *, frozen: ArrayLike | Iterable[tuple[int, int]] | None = None, name: str | None = None
    ) -> Graph:
        """From PyG's ``data``: ``edge_index`` with both directions of every edge, ``x``, ``y``, ``num_nodes``.

        ``frozen`` and ``name`` are those of :class:`Graph`.

        Edge attributes and weights are left out with a warning: an edge that the noise adds has none, so a certified model must
        not read them. A ``y`` that is not a single whole number (a regression target, node labels) gives no label.
        """
        num_nodes, pairs = pyg_pairs(data)
        warn_of_edge_fields("the PyG Data", pyg_edge_fields(data), "set data.edge_attr = None")
        label = getattr(data, "y", None)
        if label is not None:
            values = np.asarray(to_numpy(label)).ravel()
            whole = values.size == 1 and np.isfinite(values[0]) and values[0] == int(values[0])
            label = int(values[0]) if whole else None
        return cls(num_nodes, pairs, getattr(data, "x", None), label, frozen=frozen, name=name)

    def to_pyg(self) -> Data:
        """A PyG ``Data``: ``edge_index`` with both directions, sorted; ``x`` and ``y`` where known."""
        import torch
        from torch_geometric.data import Data

        both = np.concatenate([self.edges, self.edges[:, ::-1]])
        index = np.ascontiguousarray(both[np.lexsort((both[:, 1], both[:, 0]))].T)
        data = Data(edge_index=torch.from_numpy(index), num_nodes=self.num_nodes)
        if self.node_features is not None:
            data.x = torch.from_numpy(self.node_features.copy())
        if self.label is not None:
            data.y = torch.tensor([self.label])
        return data


def as_graph(value: Any) -> Graph:
    """A :class:`Graph` from anything the library accepts: Graph, PyG ``Data``, networkx graph, adjacency matrix."""
    if isinstance(value, Graph):
        return value
    if _is_pyg_dataset(value):
        raise InputError(
            f"expected one graph; got a PyG data set of {len(value)} (pass it to certify_all, or one graph after the other)"
        )
    if hasattr(value, "edge_index"):
        return Graph.from_pyg(value)
    if hasattr(value, "is_multigraph") and hasattr(value, "nodes"):
        return Graph.from_networkx(value)
    if hasattr(value, "tocoo") or (hasattr(value, "ndim") and hasattr(value, "shape")):
        return Graph.from_adjacency(value)
    if isinstance(value, Sequence) and _holds_graphs(value):
        raise InputError(
            f"expected one graph; got {len(value)} in a {type(value).__name__} (pass them to certify_all, or one after the other)"
        )
    expected = "expected a graph (flipproof.Graph, PyG Data, networkx graph or adjacency matrix)"
    raise InputError(f"{expected}; got {type(value).__name__} (build flipproof.Graph(num_nodes, edges))")


def as_graphs(values: Any) -> list[Graph]:
    """Graphs from a list of what :func:`as_graph` takes, a PyG data set, or a ``DataLoader``, whose batches are taken apart."""
    is_dataset = _is_pyg_dataset(values)
    is_single = isinstance(values, Graph) or hasattr(values, "edge_index") or hasattr(values, "is_multigraph")
    if is_single and not is_dataset and not hasattr(values, "to_data_list"):
        raise InputError("expected a list of graphs; got a single one (wrap it in a list)")
    if not isinstance(values, Iterable) and not is_dataset:
        raise InputError(f"expected a list of graphs; got {type(values).__name__} (pass a list)")
    _refuse_noise(values)
    graphs: list[Graph] = []
    for part in values.to_data_list() if hasattr(values, "to_data_list") else values:
        several = isinstance(part, (list, tuple)) and _holds_graphs(part)
        graphs += map(as_graph, part.to_data_list() if hasattr(part, "to_data_list") else part if several else [part])
    return graphs


def labelled_graphs(values: Any, argument: str) -> list[Graph]:
    """At least one graph, each with a label; ``argument`` names them in messages."""
    graphs = as_graphs(values)
    if not graphs:
        raise InputError(f"{argument} must hold at least one graph; got none (pass the training part of a split)")
    labels = [graph.label for graph in graphs]
    if None in labels:
        place = labels.index(None)
        raise InputError(f"{argument} must be labelled; graph {place} has no label (build it with label=0, 1, 2, ...)")
    return graphs


def _holds_graphs(values: Sequence[Any]) -> bool:
    return any(isinstance(part, Graph) or hasattr(part, "edge_index") for part in values[:1])


def _refuse_noise(values: Any) -> None:
    """Refuse a data set, or a loader of one, whose transform draws noise: the graphs themselves are wanted."""
    transform = getattr(getattr(values, "dataset", values), "transform", None)
    if any(getattr(part, "draws_noise", False) for part in (transform, *getattr(transform, "transforms", ()))):
        raise InputError(
            "the graphs come from a data set whose transform adds noise, and flipproof adds its own; got EdgeFlip among its "
            "transforms (give the data set without it)"
        )


def _is_pyg_dataset(value: Any) -> bool:
    """Whether it is a PyG data set, which passes ``edge_index`` and the like on from its graphs."""
    return hasattr(value, "get") and hasattr(value, "len")


def unchecked_graph(
    num_nodes: int,
    edges: IntArray,
    node_features: NDArray[Any] | None,
    *,
    label: int | None = None,
    name: str | None = None,
) -> Graph:
    """A graph from parts in canonical form: int64 pairs ``u < v``, sorted, each once, and checked features. Much faster."""
    graph = Graph.__new__(Graph)
    content = {"num_nodes": num_nodes, "edges": read_only(edges), "node_features": node_features, "label": label}
    graph.__dict__.update(content, frozen=NO_PAIRS, name=name, node=None)
    return graph


def whole_graphs(graphs: Iterable[Graph]) -> list[Graph]:
    """The graphs, without those that differ from an earlier one in the node that is meant alone."""
    members = {id(one) if one.node is None else (one.topology, id(one.node_features)): one for one in graphs}
    return list(members.values())
