"""Graphs, the numbering of their node pairs, and conversions."""

from flipproof.graphs.conversions import IntArray, checked_features, pairs_of_slots, slots_of_pairs
from flipproof.graphs.graph import Graph, as_graph, as_graphs, labelled_graphs, unchecked_graph, whole_graphs

__all__ = [
    "Graph",
    "IntArray",
    "as_graph",
    "as_graphs",
    "checked_features",
    "labelled_graphs",
    "pairs_of_slots",
    "slots_of_pairs",
    "unchecked_graph",
    "whole_graphs",
]
