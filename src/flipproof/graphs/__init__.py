"""Graphs, the numbering of their node pairs, and conversions."""

from flipproof.graphs.canonical import IntArray, checked_features, pairs_of_slots, slots_of_pairs
from flipproof.graphs.graph import Graph, as_graph, as_graphs, unchecked_graph
from flipproof.graphs.node_changes import NODE_CHANGES, changed_graphs, number_of_changes

__all__ = [
    "NODE_CHANGES",
    "Graph",
    "IntArray",
    "as_graph",
    "as_graphs",
    "changed_graphs",
    "checked_features",
    "number_of_changes",
    "pairs_of_slots",
    "slots_of_pairs",
    "unchecked_graph",
]
