"""A small drawing of a graph: places of the nodes, and an SVG for notebooks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from flipproof.graphs.graph import Graph

MOST_DRAWN = 150
"""Nodes up to which a graph is drawn; larger ones are described in words."""

_ROUNDS = 120
_SIZE, _MARGIN = 220, 14
_EDGE, _MARKED = "#8a94a0", "#c0392b"


def layout(graph: Graph) -> NDArray[np.float64]:
    """Places of the nodes in the unit square, ``[n, 2]``: neighbours attract, all nodes repel each other.

    The method is that of Fruchterman and Reingold (1991), started from a circle: the same graph is drawn in the same way.

    >>> layout(Graph(2, [(0, 1)])).shape
    (2, 2)
    """
    nodes = graph.num_nodes
    angles = 2 * np.pi * np.arange(nodes) / max(1, nodes)
    places = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    joined = graph.adjacency()
    ideal = np.sqrt(4 / max(1, nodes))
    for step in np.linspace(0.3, 0.005, _ROUNDS if nodes > 2 else 0):
        between = places[:, None] - places[None, :]
        distance = np.maximum(np.linalg.norm(between, axis=2), 1e-6)
        push = (ideal**2 / distance - joined * distance**2 / ideal) / distance
        move = (between * push[:, :, None]).sum(axis=1) - 0.3 * places  # towards the middle, or parts would drift apart
        length = np.maximum(np.linalg.norm(move, axis=1, keepdims=True), 1e-9)
        places = places + move / length * np.minimum(length, step)
    low, high = places.min(axis=0, initial=0.0), places.max(axis=0, initial=0.0)
    return np.asarray((places - low) / max(1e-9, float((high - low).max(initial=0.0))))


def svg(graph: Graph, *, marked: Iterable[tuple[int, int]] = ()) -> str:
    """The graph as an SVG text; ``marked`` pairs are drawn in red, dashed where there is no edge.

    >>> svg(Graph(2, [(0, 1)])).count("<circle")
    2
    """
    places = _MARGIN + (_SIZE - 2 * _MARGIN) * layout(graph)
    edges = {(int(u), int(v)) for u, v in graph.edges}
    pairs = [(min(u, v), max(u, v)) for u, v in marked]
    lines = [_line(places, pair, f'stroke="{_EDGE}"') for pair in sorted(edges - set(pairs))]
    for pair in pairs:
        dashes = "" if pair in edges else ' stroke-dasharray="4 3"'
        lines.append(_line(places, pair, f'stroke="{_MARKED}" stroke-width="2"{dashes}'))
    radius = 4 if graph.num_nodes <= 40 else 2.5
    dots = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="#2c5f8a"><title>node {node}</title></circle>'
        for node, (x, y) in enumerate(places)
    ]
    box = f'width="{_SIZE}" height="{_SIZE}" viewBox="0 0 {_SIZE} {_SIZE}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>{"".join([*lines, *dots])}</svg>'


def _line(places: NDArray[np.float64], pair: tuple[int, int], style: str) -> str:
    (x, y), (to_x, to_y) = places[pair[0]], places[pair[1]]
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" {style}/>'
