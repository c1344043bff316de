"""Graphs, the numbering of their node pairs, and conversions."""

from flipproof.graphs.canonical import checked_features
from flipproof.graphs.graph import Graph, as_graph, as_graphs, unchecked_graph
from flipproof.graphs.node_changes import NODE_CHANGES, changed_graphs, number_of_changes
from flipproof.graphs.slots import IntArray, pairs_of_slots, slots_of_pairs

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
