"""The graph: undirected, without self-loops, read-only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipproof.checks import checked_count
from flipproof.errors import InputError
from flipproof.graphs.conversions import (
    NO_PAIRS,
    Conversions,
    IntArray,
    canonical_pairs,
    checked_features,
    checked_label,
    pairs_of_slots,
    read_only,
    slots_of_pairs,
)


class Graph(Conversions):
    """An undirected graph without self-loops.

    Args:
        num_nodes: At least 1. A graph with a single node has no slots: nothing can be attacked, and its radius is 0.
        edges: Integer pairs ``[E, 2]``. The order of the two ends and of the pairs has no meaning, and a pair listed
            twice (in either direction) is one edge. May be empty.
        node_features: ``[n, d]``, finite; floating or integer. Must not depend on the edges (see the features hook
            of :class:`flipproof.SmoothedClassifier` for features that do).
        label: The class, 0, 1, 2, ..., if known.
        frozen: Node pairs that neither the noise nor an attacker can touch. They are left out of the slots.
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
        num_nodes = checked_count(num_nodes, "num_nodes", 1, "leave graphs without nodes out of the data")
        self.__dict__.update(
            num_nodes=num_nodes,
            edges=canonical_pairs(edges, num_nodes, "edges"),
            node_features=checked_features(node_features, num_nodes),
            label=checked_label(label),
            frozen=canonical_pairs(() if frozen is None else frozen, num_nodes, "frozen"),
            name=None if name is None else str(name),
        )

    def __setattr__(self, attribute: str, value: object) -> None:
        raise AttributeError(f"a Graph is read-only; make a new one to change {attribute}")

    def __delattr__(self, attribute: str) -> None:
        raise AttributeError(f"a Graph is read-only; make a new one without {attribute}")

    def __reduce__(self) -> tuple[Any, ...]:
        positional = (self.num_nodes, self.edges, self.node_features, self.label)
        return partial(Graph, frozen=self.frozen, name=self.name), positional

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
        if not len(self.frozen):
            return self.edge_slots
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
        everything = np.arange(self.num_nodes * (self.num_nodes - 1) // 2, dtype=np.int64)
        return read_only(np.delete(everything, self.frozen_slots) if len(self.frozen) else everything)

    @cached_property
    def slot_states(self) -> NDArray[np.bool_]:
        """For each of :attr:`slots`, whether it holds an edge, ``[N]``."""
        states = np.isin(self.slots, self.edge_slots, assume_unique=True)
        states.flags.writeable = False
        return states

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
        """The graph after an attack: each of the given node pairs is flipped (an edge vanishes, a gap is joined).

        A pair that is listed twice is flipped once. Frozen pairs are refused: an attacker cannot reach them.

        >>> Graph(3, [(0, 1)]).flipped([(0, 1), (1, 2)]).edges.tolist()
        [[1, 2]]
        """
        flips = slots_of_pairs(canonical_pairs(pairs, self.num_nodes, "pairs"), self.num_nodes)
        frozen = np.intersect1d(flips, self.frozen_slots, assume_unique=True)
        if len(frozen):
            u, v = pairs_of_slots(frozen[:1], self.num_nodes)[0]
            raise InputError(f"pairs must not be frozen; got ({u}, {v}) (use replaced(edges=...) to change them)")
        slots = np.setxor1d(self.edge_slots, flips, assume_unique=True)
        return self.replaced(edges=pairs_of_slots(slots, self.num_nodes))

    def replaced(self, **changes: Any) -> Graph:
        """A copy with some of the constructor's arguments changed."""
        kept = ("num_nodes", "edges", "node_features", "label", "frozen", "name")
        return Graph(**({key: getattr(self, key) for key in kept} | changes))


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
    raise InputError(
        "expected a graph (flipproof.Graph, PyG Data, networkx graph or adjacency matrix); "
        f"got {type(value).__name__} (build flipproof.Graph(num_nodes, edges))"
    )


def as_graphs(values: Any) -> list[Graph]:
    """A list of :class:`Graph` from anything that yields what :func:`as_graph` takes, or several of them at a time.

    That is a list, a PyG data set, or a ``DataLoader``, whose batches are taken apart.
    """
    is_dataset = _is_pyg_dataset(values)
    is_single = isinstance(values, Graph) or hasattr(values, "edge_index") or hasattr(values, "is_multigraph")
    if is_single and not is_dataset and not hasattr(values, "to_data_list"):
        raise InputError("expected a list of graphs; got a single one (wrap it in a list)")
    if not isinstance(values, Iterable) and not is_dataset:
        raise InputError(f"expected a list of graphs; got {type(values).__name__} (pass a list)")
    _refuse_noise(values)
    parts = values.to_data_list() if hasattr(values, "to_data_list") else values
    return [graph for part in parts for graph in _graphs_of(part)]


def _graphs_of(value: Any) -> list[Graph]:
    """One graph, or those of a batch."""
    if hasattr(value, "to_data_list"):
        value = value.to_data_list()
    elif not (isinstance(value, (list, tuple)) and _holds_graphs(value)):
        value = [value]
    return [as_graph(part) for part in value]


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
    """A graph from parts that are known to be in canonical form. Skipping the checks makes thousands of graphs cheap.

    Args:
        num_nodes: At least 1.
        edges: int64 pairs ``u < v`` of existing nodes, sorted, each listed once; the array becomes read-only.
        node_features: An array that :func:`checked_features` returned.
        label, name: As for :class:`Graph`.
    """
    graph = Graph.__new__(Graph)
    graph.__dict__.update(
        num_nodes=num_nodes,
        edges=read_only(edges),
        node_features=node_features,
        label=label,
        frozen=NO_PAIRS,
        name=name,
    )
    return graph
