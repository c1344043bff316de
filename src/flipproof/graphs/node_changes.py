"""Graphs with a node removed, added or changed: what an attack on nodes leaves, before it flips edges."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from flipproof.graphs.canonical import IntArray
from flipproof.graphs.graph import Graph

__all__ = ["NODE_CHANGES", "changed_graphs", "number_of_changes"]

NODE_CHANGES = ("removed", "added", "changed")
"""What can happen to a node."""


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
