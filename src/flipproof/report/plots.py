"""Plots in one call, ``flipproof.plot``: each draws on the axes given, or on new ones, and returns them.

The curves are drawn by the same functions as those of the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.metrics import Curve, judged_radii
from flipproof.errors import InputError
from flipproof.graphs import Graph, as_graph
from flipproof.graphs.picture import MOST_DRAWN, layout
from flipproof.report.content import reach_worth_drawing
from flipproof.report.drawing import Panel, draw_panel

__all__ = ["certified_accuracy", "compare", "graph"]

_LEAST_RADII = 4


def certified_accuracy(
    certificates: Sequence[Certificate],
    labels: ArrayLike | Sequence[Graph],
    *,
    name: str = "certified accuracy",
    line: float | None = None,
    ax: Any = None,
) -> Any:
    """Certified accuracy against the number of edge flips, with 95% intervals.

    Args:
        certificates: One per graph.
        labels: Class numbers, or the labelled graphs themselves.
        name: What the legend calls the curve.
        line: Accuracy of a classifier that ignores edges, drawn as the line to beat.
        ax: matplotlib's ``Axes`` to draw on; by default new ones.

    Returns:
        The ``Axes``. The curve ends where fewer than 2% of the graphs are left.
    """
    return compare({name: certificates}, labels, line=line, ax=ax)


def compare(
    results: Mapping[str, Sequence[Certificate]],
    labels: ArrayLike | Sequence[Graph],
    *,
    line: float | None = None,
    ax: Any = None,
) -> Any:
    """Certified accuracy of several classifiers on the same graphs: ``results`` holds the certificates of each, by name.

    The other arguments are those of :func:`certified_accuracy`.
    """
    if not isinstance(results, Mapping) or not results:
        raise InputError(
            f"results must map names to lists of certificates; got {type(results).__name__} (for instance "
            '{"mine": certificates})'
        )
    known = list(labels) if isinstance(labels, Sequence) else labels
    radii = {name: judged_radii(certificates, known) for name, certificates in results.items()}
    top = max(_LEAST_RADII, *map(reach_worth_drawing, radii.values()))
    axes = _axes(ax)
    curves = tuple(Curve.of(name, own, top) for name, own in radii.items())
    draw_panel(axes, Panel("", curves, line))
    if len(curves) > 1 or line is not None:
        axes.legend(frameon=False, fontsize=8)
    return axes


def graph(graph: Any, certificate: Certificate | None = None, *, ax: Any = None) -> Any:
    """The graph, with the pairs marked whose flips would hurt the answer most: dashed where an edge would be added.

    Args:
        graph: A :class:`Graph`, PyG ``Data``, networkx graph or adjacency matrix, of at most 150 nodes.
        certificate: What :func:`flipproof.explain` returned; any other certificate gives the title only.
        ax: matplotlib's ``Axes`` to draw on; by default new ones.
    """
    shown = as_graph(graph)
    if shown.num_nodes > MOST_DRAWN:
        raise InputError(f"a graph of up to {MOST_DRAWN} nodes can be drawn; got {shown.num_nodes} (draw a part of it)")
    axes, places = _axes(ax), layout(shown)
    edges = {(int(u), int(v)) for u, v in shown.edges}
    spots = None if certificate is None else certificate.weakest
    marked = set() if spots is None else set(spots.flips)
    for u, v in sorted(edges | marked):
        style = {"color": "#c0392b", "linewidth": 2.0} if (u, v) in marked else {"color": "0.6", "linewidth": 1.0}
        axes.plot(*places[[u, v]].T, linestyle="-" if (u, v) in edges else (0, (4, 3)), zorder=1, **style)
    axes.scatter(*places.T, s=30, color="#2c5f8a", zorder=2)
    axes.set_aspect("equal")
    axes.set_axis_off()
    if certificate is not None:
        axes.set_title(certificate.headline, fontsize=9)
    return axes


def _axes(given: Any) -> Any:
    if given is not None:
        return given
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(4.8, 3.2), layout="constrained")[1]
