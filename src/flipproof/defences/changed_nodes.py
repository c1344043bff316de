"""Beyond edges: what an answer of a local network withstands beside removed, added or changed nodes.

An attack that changes nodes and flips edges is a flip attack on one of the graphs that the changes of nodes alone make
(:func:`changed_graphs`). Each of them is certified, and the smallest radius counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import NODE_CHANGES, Certificate, NodeRadii
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray

if TYPE_CHECKING:
    from flipproof.defences.defence import DefendedClassifier
    from flipproof.defences.local import LocalRequest

_MOST_GRAPHS = 50_000  # that are made of one graph


def checked_kinds(kinds: Any) -> list[list[float]]:
    """Rows of node features that a node can get, as plain JSON, each once."""
    try:
        found = np.asarray(kinds, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.zeros(0)
    if found.ndim != 2 or not found.size or not np.isfinite(found).all():
        raise InputError(
            f"kinds must be rows of node features, finite numbers of shape [K, d]; got {kinds!r} (for instance numpy.eye(3))"
        )
    rows: list[list[float]] = np.unique(found, axis=0).tolist()
    return rows


def check_node_changes(local: DefendedClassifier, request: LocalRequest, graphs: Sequence[Graph]) -> None:
    """Refuse graphs whose changes of nodes cannot be listed, or are too many."""
    for graph in graphs:
        kinds = _kinds(local, request, graph)
        number = number_of_changes(graph.num_nodes, 1 if kinds is None else len(kinds), request.nodes or 0)
        if number > _MOST_GRAPHS:
            raise InputError(
                f"nodes = {request.nodes} makes {number:,} graphs of a graph with {graph.num_nodes} nodes; at most "
                f"{_MOST_GRAPHS:,} are looked at (change fewer nodes, or leave large graphs out)"
            )


def node_radii(local: DefendedClassifier, graph: Graph, certificate: Certificate, request: LocalRequest) -> NodeRadii:
    """What the certified answer withstands beside changes of up to ``request.nodes`` nodes."""
    nodes, kinds = request.nodes or 0, _kinds(local, request, graph)
    if certificate.label is None:
        return NodeRadii(nodes, -1, -1, -1)
    graph = graph if kinds is not None else graph.replaced(node_features=None)
    return NodeRadii(nodes, *(_smallest(local, graph, certificate, request, change, kinds) for change in NODE_CHANGES))


def _smallest(
    local: DefendedClassifier,
    graph: Graph,
    certificate: Certificate,
    request: LocalRequest,
    change: str,
    kinds: NDArray[np.float64] | None,
) -> int:
    """The smallest radius of the graph and of all that changes of one sort make of it; -1 if an answer differs.

    Graphs with the same views are not taken for the same: their views can be joined in other pairs, so attacks can differ.
    """
    from flipproof.defences.local import answer_to, look

    found, latest = {_identity(graph): graph}, [graph]
    for _ in range(request.nodes or 0):
        made = {_identity(after): after for before in latest for after in changed_graphs(before, change, kinds)}
        latest = [after for identity, after in made.items() if identity not in found]
        if any(answer_to(local, after) != certificate.label for after in latest):
            return -1
        found |= made
    radius = certificate.radius
    for after in list(found.values())[1:]:
        if not radius:
            break
        other = look(local, after, request.per_node, most=radius).certify()
        radius = min(radius, other.radius if other.label == certificate.label else -1)
    return radius


def _identity(graph: Graph) -> tuple[str, bytes]:
    """The same for equal graphs."""
    features = graph.node_features
    return graph.topology, b"" if features is None else features.astype(np.float64).tobytes()


def _kinds(local: DefendedClassifier, request: LocalRequest, graph: Graph) -> NDArray[np.float64] | None:
    """Rows of node features that a node can get, ``[K, d]``; ``None`` if the network reads none."""
    from flipproof.defences.local import hook_of

    given, features = request.kinds, graph.node_features
    if hook_of(local).spec is None:  # it may depend on how nodes are numbered, and the attacker can number them
        raise InputError(
            f"changes of nodes need the graph's own node features, or none; got {type(hook_of(local)).__name__} (leave "
            "features out)"
        )
    if features is None or not hook_of(local).reads_own:
        if given is not None:
            raise InputError("kinds are for networks that read node features; this one reads none (leave kinds out)")
        return None
    width = features.shape[1]
    if given is not None:
        if len(given[0]) != width:
            raise InputError(
                f"kinds must have as many columns as the node features, {width}; got {len(given[0])} (one row per kind)"
            )
        return np.array(given)
    if not ((features == 1).sum(axis=1) == 1).all() or not np.isin(features, (0, 1)).all():
        raise InputError(
            "changes of nodes must be listed, and node features that are not labels (one 1 in each row, and 0) have no list; "
            "got other features (in Python, give kinds, the rows of features that an attacker can choose from)"
        )
    return np.eye(width)


def changed_graphs(graph: Graph, change: str, kinds: NDArray[np.floating] | None) -> Iterator[Graph]:
    """The graphs that one of :data:`NODE_CHANGES` makes of a graph.

    Args:
        graph: A removed node takes its edges with it, frozen ones too. The last node stays.
        change: An added node has no edges: joining it to others takes flips.
        kinds: Rows of node features that a node can get, ``[K, d]``; ``None`` if the graph has no node features, and then nodes
            cannot change.

    >>> path = Graph(3, [(0, 1), (1, 2)])
    >>> [found.edges.tolist() for found in changed_graphs(path, "removed", None)]
    [[[0, 1]], [], [[0, 1]]]
    >>> list(changed_graphs(path, "added", None)), list(changed_graphs(path, "changed", None))
    ([Graph(num_nodes=4, num_edges=2)], [])
    """
    features, number = graph.node_features, graph.num_nodes
    if change == "removed":
        yield from (_without(graph, node) for node in range(number if number > 1 else 0))
    elif features is None or kinds is None:
        yield from [graph.replaced(num_nodes=number + 1)] if change == "added" else []
    elif change == "added":
        for row in kinds:
            yield graph.replaced(num_nodes=number + 1, node_features=np.concatenate([features, row[None]]))
    else:
        for node in range(number):
            for row in kinds[(kinds != features[node]).any(axis=1)]:
                after = features.astype(np.result_type(features, row))
                after[node] = row
                yield graph.replaced(node_features=after)


def number_of_changes(nodes: int, kinds: int, changes: int) -> int:
    """How many graphs up to so many changes of a kind make of a graph, for all :data:`NODE_CHANGES`.

    >>> number_of_changes(10, 3, 1)  # 10 removed, 3 added, 20 changed
    33
    """
    return sum(
        math.comb(nodes, number) * (1 + (kinds - 1) ** number) + math.comb(kinds + number - 1, number)
        for number in range(1, changes + 1)
    )


def _without(graph: Graph, node: int) -> Graph:
    """The graph without a node; those behind it move up."""
    kept = (graph.edges != node).all(axis=1)
    features = graph.node_features
    return graph.replaced(
        num_nodes=graph.num_nodes - 1,
        edges=_moved_up(graph.edges[kept], node),
        node_features=None if features is None else np.delete(features, node, axis=0),
        frozen=_moved_up(graph.frozen[(graph.frozen != node).all(axis=1)], node),
    )


def _moved_up(pairs: IntArray, node: int) -> IntArray:
    found: IntArray = pairs - (pairs > node)
    return found
