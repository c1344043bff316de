"""Draws local.svg: a graph whose nodes vote on their views, and the two votes that a flip changes.

python docs/figures/local.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import flipproof as fp

PLACES = {0: (0, 0), 1: (1, 0.75), 2: (1, -0.75), 3: (2.1, 0), 4: (3.2, 0.75), 5: (3.2, -0.75), 6: (4.3, 0)}
EDGES = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (3, 5), (4, 6), (5, 6)]


def worst_flip(votes: dict[int, float]) -> tuple[int, int]:
    """The pair whose two ends lose most, where a vote is a function of the degree."""
    graph = fp.Graph(7, EDGES)
    pairs = [(u, w) for u in range(7) for w in range(u + 1, 7)]
    return min(pairs, key=lambda pair: sum(votes[degree] for degree in graph.flipped([pair]).degrees.tolist()))


def draw(axis: plt.Axes, graph: fp.Graph, votes: dict[int, float], flip: tuple[int, int] | None) -> None:
    """Nodes coloured and labelled by their votes; the flipped pair and its ends stand out."""
    shown = nx.Graph()
    shown.add_nodes_from(range(graph.num_nodes))
    shown.add_edges_from(graph.edges.tolist())
    values = np.array([votes[degree] for degree in graph.degrees.tolist()])
    ends = ["C3" if flip is not None and node in flip else "0.3" for node in range(graph.num_nodes)]
    colours = plt.colormaps["PuOr"](0.5 - values / 6)
    nx.draw_networkx_edges(shown, PLACES, ax=axis, edge_color="0.5")
    if flip is not None:
        nx.draw_networkx_edges(shown, PLACES, [flip], ax=axis, edge_color="C3", width=2.5)
    nx.draw_networkx_nodes(shown, PLACES, ax=axis, node_color=colours, edgecolors=ends, linewidths=1.8, node_size=520)
    nx.draw_networkx_labels(
        shown, PLACES, {node: f"{value:+.1f}" for node, value in enumerate(values)}, ax=axis, font_size=8
    )
    axis.set_axis_off()
    axis.margins(0.12)


def main() -> None:
    plt.rcParams.update({"svg.hashsalt": "flipproof", "font.size": 9, "svg.fonttype": "none"})
    votes = {0: -1.0, 1: -0.6, 2: 1.2, 3: -0.4, 4: 0.9, 5: 0.1, 6: 0.0}
    graph, flip = fp.Graph(7, EDGES), worst_flip(votes)
    after = graph.flipped([flip])
    figure, axes = plt.subplots(1, 2, figsize=(9, 2.7), layout="constrained")
    for axis, shown, pair, what in (
        (axes[0], graph, None, "every node votes"),
        (axes[1], after, flip, "the worst flip"),
    ):
        draw(axis, shown, votes, pair)
        lead = sum(votes[degree] for degree in shown.degrees.tolist())
        axis.set_title(f"{what}: lead {lead:+.1f}")
    figure.savefig(Path(__file__).with_name("local.svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
