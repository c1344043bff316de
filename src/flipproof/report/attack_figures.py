"""Figures of attacks: accuracy against the number of flips, and graphs with the flipped edges marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flipproof.attacks.attack_result import AttackResult
from flipproof.certificates.metrics import Curve
from flipproof.graphs import Graph
from flipproof.report.drawing import (
    draw_curves,
    draw_floor,
    dress_axes,
    figure_paths,
    floor_row,
    panels_figure,
    saved_figure,
    write_rows,
)
from flipproof.runs.attacking import Attacked

__all__ = ["accuracy_figure", "draw_attacks", "graphs_figure"]

_DRAWN = 8
_ADDED, _REMOVED = "#c0392b", "#2471a3"


def draw_attacks(folder: Path, attacked: Attacked, words: Mapping[str, str]) -> None:
    """The figures of a run of attacks; ``words`` say who was attacked, by role."""
    summary, graphs = attacked.summary, attacked.graphs
    shares = {words[role]: accuracy for role, accuracy in summary["accuracy_under_attack"].items()}
    counts = dict.fromkeys(shares, len(graphs))
    if "certified_accuracy" in summary:
        shares["certified (lower bound)"] = summary["certified_accuracy"]
        counts["certified (lower bound)"] = summary["certified_graphs"]
    curves = [
        Curve(name, tuple(round(share * counts[name]) for share in values), counts[name])
        for name, values in shares.items()
    ]
    title = f"{len(graphs)} graphs, attacks of up to {summary['budget']} flips"
    accuracy_figure(folder / "accuracy_under_attack", curves, title=title, floor=summary.get("edge_blind_accuracy"))
    for role, found in attacked.results.items():
        drawn = [
            (
                graphs[index],
                result,
                f"{graphs[index].name or f'graph {index}'}: {result.size} flip{'s' * (result.size != 1)}",
            )
            for index, result in found.items()
            if result.success and result.size
        ][:_DRAWN]
        if drawn:
            graphs_figure(folder / f"attacked_graphs_{role}", drawn)


def accuracy_figure(stem: Path, curves: Sequence[Curve], *, title: str, floor: float | None = None) -> list[Path]:
    """Accuracy under attack (upper bounds) beside certified accuracy (lower bound); returns the files, CSV last.

    ``floor`` is the accuracy of a network that ignores edges, the same at every r.
    """
    count = len(curves[0].certified)
    with saved_figure(stem, (5.6, 3.8)) as figure:
        axes = figure.add_subplot()
        draw_curves(axes, curves, bands=0, faint_first=True)
        if floor is not None:
            draw_floor(axes, floor)
        dress_axes(axes, count, "accuracy")
        axes.set_xticks(range(count))
        axes.set_title(title, fontsize=10, loc="left")
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    rows: list[Sequence[Any]] = []
    for curve in curves:
        low, high = curve.band
        for r, right in enumerate(curve.certified):
            shares = [f"{value:.6f}" for value in (right / curve.graphs, low[r], high[r])]
            rows.append([curve.name, r, right, curve.graphs, *shares])
    if floor is not None:
        rows.append(["edge-blind", "every", *floor_row(floor, curves)])
    path = write_rows(stem, ("curve", "r", "right_graphs", "graphs", "accuracy", "low95", "high95"), rows)
    return [*figure_paths(stem), path]


def graphs_figure(stem: Path, attacked: Sequence[tuple[Graph, AttackResult, str]]) -> list[Path]:
    """Clean graphs with the attack's flips marked: added edges red, removed ones blue and dashed. Returns the files."""
    with panels_figure(stem, len(attacked), (2.2, 2.3), most=4, rest=(0, 0.3)) as (figure, panels):
        for axes, (graph, result, title) in zip(panels, attacked, strict=True):
            axes.set_axis_off()
            _draw_graph(axes, graph, result)
            axes.set_title(title, fontsize=8)
        for colour, line, label in ((_ADDED, "-", "added"), (_REMOVED, "--", "removed")):
            panels[0].plot([], [], color=colour, linestyle=line, linewidth=2, label=label)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure_paths(stem)


def _draw_graph(axes: Any, graph: Graph, result: AttackResult) -> None:
    import networkx

    places = networkx.spring_layout(graph.to_networkx(), seed=0, iterations=100)
    centre = np.mean(list(places.values()), axis=0)
    flips = set(result.flips)
    for u, v in map(tuple, graph.edges.tolist()):
        if (u, v) not in flips:
            axes.plot(*zip(places[u], places[v], strict=True), color="0.6", linewidth=0.8, zorder=1)
    edges = {tuple(pair) for pair in graph.edges.tolist()}
    for u, v in result.flips:
        gone = (u, v) in edges
        edges.discard((u, v))  # one whose label changes is removed, then added
        # an added edge is bent a little, so that it cannot hide others that it runs along
        axes.plot(
            *_bow(places[u], places[v], 0.0 if gone else 0.1, centre),
            color=_REMOVED if gone else _ADDED,
            linestyle="--" if gone else "-",
            linewidth=2,
            zorder=2,
        )
    x, y = zip(*(places[node] for node in range(graph.num_nodes)), strict=True)
    axes.scatter(x, y, s=14, color="0.2", zorder=3)
    axes.set_aspect("equal")


def _bow(start: Any, end: Any, bend: float, centre: Any) -> tuple[Any, Any]:
    """Points of a curve between two places, ``bend`` times its length off the straight line towards the centre."""
    along = np.linspace(0, 1, 25)
    across, up = np.subtract(end, start)
    aside = np.array([-up, across]) * bend
    if np.dot(aside, np.subtract(centre, start)) < 0:
        aside = -aside
    off = 4 * along * (1 - along)
    return start[0] + along * across + off * aside[0], start[1] + along * up + off * aside[1]
