"""A small drawing of a graph: places of the nodes, and an SVG for notebooks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flipproof.graphs.graph import Graph

MOST_DRAWN = 150
"""Nodes up to which a graph is drawn; larger ones are described in words."""

_SIZE, _MARGIN = 220, 14


def layout(graph: Graph) -> NDArray[np.float64]:
    """Places of the nodes in the unit square, ``[n, 2]``: distances on paper near to those in the graph (Kamada and Kawai).

    >>> layout(Graph(2, [(0, 1)])).shape
    (2, 2)
    """
    import networkx

    drawn = graph.replaced(node_features=None).to_networkx()
    lengths = dict(networkx.all_pairs_shortest_path_length(drawn))
    apart = 1 + max(max(row.values()) for row in lengths.values())  # of nodes that no path joins
    distances = {u: {v: lengths[u].get(v, apart) for v in drawn} for u in drawn}
    places = np.array(list(networkx.kamada_kawai_layout(drawn, dist=distances).values()), dtype=np.float64)
    low, high = places.min(axis=0), places.max(axis=0)
    return np.asarray((places - low) / max(1e-9, float((high - low).max())))


def svg(graph: Graph) -> str:
    """The graph as an SVG text.

    >>> svg(Graph(2, [(0, 1)])).count("<circle")
    2
    """
    places = _MARGIN + (_SIZE - 2 * _MARGIN) * layout(graph)
    radius = 4 if graph.num_nodes <= 40 else 2.5
    lines = [
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{u:.1f}" y2="{v:.1f}" stroke="#8a94a0"/>'
        for (x, y), (u, v) in places[graph.edges]
    ]
    dots = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="#2c5f8a"><title>node {node}</title></circle>'
        for node, (x, y) in enumerate(places)
    ]
    box = f'width="{_SIZE}" height="{_SIZE}" viewBox="0 0 {_SIZE} {_SIZE}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>{"".join([*lines, *dots])}</svg>'
