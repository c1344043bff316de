"""Beyond edges: what an answer of a local network withstands beside removed, added or changed nodes.

An attack that changes nodes and flips edges is a flip attack on one of the graphs that the changes of nodes alone make
(:func:`changed_graphs`). Each of them is certified, and the smallest radius counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import NODE_CHANGES, Certificate, NodeRadii
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray

_MOST_GRAPHS = 50_000  # that are made of one graph


def check_node_changes(graph: Graph, nodes: int) -> None:
    """Refuse a graph of which changes of nodes cannot be listed, or make too many."""
    if graph.node_features is not None and not are_labels(graph.node_features):
        raise InputError(
            "changes of nodes must be listed, and node features that are not labels (one 1 in each row, and 0) have no list; "
            "got other features (leave nodes out, or use labels as node features)"
        )
    kinds = 1 if graph.node_features is None else graph.node_features.shape[1]
    number = number_of_changes(graph.num_nodes, kinds, nodes)
    if number > _MOST_GRAPHS:
        raise InputError(
            f"nodes = {nodes} makes {number:,} graphs of a graph with {graph.num_nodes} nodes; at most {_MOST_GRAPHS:,} "
            "are looked at (change fewer nodes, or leave large graphs out)"
        )


def node_radii(
    graph: Graph,
    certificate: Certificate,
    nodes: int,
    *,
    answer: Callable[[Graph], int | None],
    certify: Callable[[Graph, int], Certificate],
) -> NodeRadii:
    """What the certified answer withstands beside changes of up to ``nodes`` nodes.

    Graphs with the same views are not taken for the same: their views can be joined in other pairs, so attacks can differ.
    ``certify`` reads a graph's certificate as far as radii up to a number tell.
    """

    def smallest(change: str) -> int:
        """The smallest radius of all that changes of one sort make of the graph; -1 if an answer differs."""
        made, latest = {_identity(graph): graph}, [graph]
        for _ in range(nodes):
            further = {_identity(after): after for before in latest for after in changed_graphs(before, change)}
            latest = [after for identity, after in further.items() if identity not in made]
            if any(answer(after) != certificate.label for after in latest):
                return -1
            made |= further
        radius = certificate.radius
        for after in list(made.values())[1:]:
            if not radius:
                break
            other = certify(after, radius)
            radius = min(radius, other.radius if other.label == certificate.label else -1)
        return radius

    radii = (-1, -1, -1) if certificate.label is None else map(smallest, NODE_CHANGES)
    return NodeRadii(nodes, *radii)


def _identity(graph: Graph) -> tuple[str, bytes]:
    features = graph.node_features
    return graph.topology, b"" if features is None else features.astype(np.float64).tobytes()


def changed_graphs(graph: Graph, change: str) -> Iterator[Graph]:
    """The graphs that one of :data:`NODE_CHANGES` makes of a graph without node features, or with labels.

    A removed node takes its edges with it, frozen ones too; the last node stays. An added node has no edges: joining it to others
    takes flips. Without labels no node can change.

    >>> path = Graph(3, [(0, 1), (1, 2)])
    >>> [after.edges.tolist() for after in changed_graphs(path, "removed")]
    [[[0, 1]], [], [[0, 1]]]
    >>> list(changed_graphs(path, "added")), list(changed_graphs(path, "changed"))
    ([Graph(num_nodes=4, num_edges=2)], [])
    """
    features, number = graph.node_features, graph.num_nodes
    if change == "removed":
        yield from (_without(graph, node) for node in range(number if number > 1 else 0))
    elif features is None:
        yield from [graph.replaced(num_nodes=number + 1)] if change == "added" else []
    elif change == "added":
        for row in np.eye(features.shape[1], dtype=features.dtype):
            yield graph.replaced(num_nodes=number + 1, node_features=np.concatenate([features, row[None]]))
    else:
        yield from (with_changes(graph, entry) for entry in np.flatnonzero(features == 0)[:, None])


def are_labels(features: NDArray[Any]) -> bool:
    """Whether node features are labels: one 1 in each row, and 0."""
    return bool(np.isin(features, (0, 1)).all() and (features.sum(axis=1) == 1).all())


def changeable(graph: Graph) -> NDArray[np.bool_]:
    """The cells of the node features that a change can name, ``[n, d]``: another label of a node, or any bit.

    >>> changeable(Graph(2, [], [[1, 0, 0], [0, 1, 0]])).astype(int).tolist()
    [[0, 1, 1], [1, 0, 1]]
    """
    features = graph.node_features
    if features is None or not np.isin(features, (0, 1)).all():
        raise InputError(
            f"changes need node features that are labels or bits, 0 and 1 alone; got {'none' if features is None else 'others'} "
            "(leave changes out)"
        )
    return features == 0 if are_labels(features) else np.ones(features.shape, dtype=np.bool_)


def with_changes(graph: Graph, entries: IntArray) -> Graph:
    """The graph after changes of these entries of its node features, row by row: new labels of nodes, or bits that flip."""
    if graph.node_features is None or not len(entries):
        return graph
    features = graph.node_features.copy()
    node, column = np.divmod(entries, features.shape[1])
    if are_labels(features):
        features[node] = np.eye(features.shape[1])[column]
    else:
        features[node, column] = 1 - features[node, column]
    return graph.replaced(node_features=features)


def number_of_changes(nodes: int, kinds: int, changes: int) -> int:
    """How many graphs up to this number of changes of a kind make of a graph, for all :data:`NODE_CHANGES`.

    >>> number_of_changes(10, 3, 1)  # 10 removed, 3 added, 20 changed
    33
    """
    return sum(
        math.comb(nodes, number) * (1 + (kinds - 1) ** number) + math.comb(kinds + number - 1, number)
        for number in range(1, changes + 1)
    )


def _without(graph: Graph, node: int) -> Graph:
    def kept(pairs: IntArray) -> IntArray:
        pairs = pairs[(pairs != node).all(axis=1)]
        return np.asarray(pairs - (pairs > node))

    features = None if graph.node_features is None else np.delete(graph.node_features, node, axis=0)
    return graph.replaced(
        num_nodes=graph.num_nodes - 1, edges=kept(graph.edges), node_features=features, frozen=kept(graph.frozen)
    )
