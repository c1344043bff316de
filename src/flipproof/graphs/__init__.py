"""Graphs, the numbering of their node pairs, and conversions."""

from flipproof.graphs.canonical import checked_features
from flipproof.graphs.graph import Graph, as_graph, as_graphs, unchecked_graph
from flipproof.graphs.slots import IntArray, pairs_of_slots, slots_of_pairs

__all__ = [
    "Graph",
    "IntArray",
    "as_graph",
    "as_graphs",
    "checked_features",
    "pairs_of_slots",
    "slots_of_pairs",
    "unchecked_graph",
]
