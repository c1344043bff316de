"""Figures of studies: certified accuracy on one data set, the trade-off between candidates, means over several networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.report.drawing import (
    Panel,
    curve_shades,
    draw_curve,
    draw_floor,
    dress_axes,
    figure_paths,
    finish_panel,
    plain_text,
    saved_figure,
    whisker_offset,
    write_curves,
    write_rows,
)

_LINES = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 2)), (0, (8, 2)))
_MARKERS = ("o", "s", "^", "D", "v", "P")


def standings_figure(stem: Path, panel: Panel, *, limit: Mapping[int, float] | None = None) -> list[Path]:
    """Certified accuracy of all methods on one data set, the edge-blind line, and the limit of the task. Returns the files."""
    with saved_figure(stem, (7.2, 3.6)) as figure:
        axes = figure.add_subplot()
        _draw(axes, panel)
        if limit is not None:
            axes.plot(
                list(limit),
                list(limit.values()),
                color="0.3",
                linewidth=1,
                linestyle=":",
                marker="_",
                label="limit of the task",
            )
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    return [*figure_paths(stem), write_curves(stem, [panel])]


def trade_off_figure(stem: Path, best: Panel, trials: Sequence[tuple[str, float, float]], *, target: str) -> list[Path]:
    """Left, the curves of the best candidates; right, every candidate before and under the attack. Returns the files."""
    with saved_figure(stem, (9.0, max(3.4, 1.2 + 0.28 * len(trials)))) as figure:
        left, right = figure.subplots(1, 2)
        _draw(left, best)
        left.legend(frameon=False, fontsize=8)
        rows = np.arange(len(trials))[::-1]
        names, before, after = zip(*trials, strict=True)
        right.hlines(rows, after, before, color="0.75", linewidth=1.5, zorder=1)
        right.scatter(
            before, rows, marker="o", facecolor="white", edgecolor="0.2", s=28, label="not attacked", zorder=2
        )
        right.scatter(after, rows, marker="D", color="#31688e", s=28, label=target, zorder=3)
        if best.floor is not None:
            right.axvline(
                best.floor, color="#b03a2e", linewidth=1, linestyle=(0, (1, 2)), label="edge-blind, any attack"
            )
        right.set_yticks(rows, list(map(plain_text, names)), fontsize=8)
        right.set_xlabel("certified accuracy on validation graphs")
        right.set_xlim(-0.02, 1.02)
        right.grid(color="0.9", linewidth=0.6, axis="x")
        right.set_axisbelow(True)
        right.spines[["top", "right"]].set_visible(False)
        right.legend(frameon=False, fontsize=8, loc="best")
        right.set_title("all candidates", fontsize=10, loc="left")
    return figure_paths(stem)


def _draw(axes: Any, panel: Panel) -> None:
    count = len(panel.curves)
    for place, (curve, colour) in enumerate(zip(panel.curves, curve_shades(count), strict=True)):
        draw_curve(axes, curve, colour, _LINES[place % 6], _MARKERS[place % 6], whiskers=whisker_offset(place, count))
    finish_panel(axes, panel)


@dataclass(frozen=True, eq=False)
class NetworksCurve:
    """Certified accuracy of several networks on the same graphs, ``accuracy[network, r]``."""

    name: str
    accuracy: NDArray[np.float64]
    graphs: int


@dataclass(frozen=True, eq=False)
class NetworksPanel:
    """One of several plots; ``floor`` is the accuracy of a network that ignores edges, at every radius."""

    title: str
    curves: tuple[NetworksCurve, ...]
    floor: float | None = None


def networks_figure(stem: Path, panel: NetworksPanel, *, legend: str) -> list[Path]:
    """Means over networks, each with a band from the lowest to the highest network. Returns the files, CSV last."""
    with saved_figure(stem, (5.2, 3.6)) as figure:
        axes = figure.add_subplot()
        _draw_networks(axes, panel)
        axes.legend(title=legend, frameon=False, fontsize=8, title_fontsize=8)
    return [*figure_paths(stem), _write_networks(stem, [panel])]


def networks_grid(stem: Path, rows: Sequence[Sequence[NetworksPanel]], *, title: str) -> list[Path]:
    """Panels in rows, with one legend below. Returns the files, CSV last."""
    columns, panels = len(rows[0]), [panel for row in rows for panel in row]
    with saved_figure(stem, (2.7 * columns + 0.4, 2.4 * len(rows) + 0.8)) as figure:
        grid = figure.subplots(len(rows), columns, sharex=True, sharey=True, squeeze=False)
        for axes, panel in zip(grid.flat, panels, strict=True):
            _draw_networks(axes, panel)
            axes.label_outer()
        handles, labels = grid.flat[0].get_legend_handles_labels()
        figure.suptitle(title, fontsize=11, x=0.01, ha="left")
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    return [*figure_paths(stem), _write_networks(stem, panels)]


def _draw_networks(axes: Any, panel: NetworksPanel) -> None:
    for place, (curve, colour) in enumerate(zip(panel.curves, curve_shades(len(panel.curves)), strict=True)):
        line, marker, mean = _LINES[place % 6], _MARKERS[place % 6], curve.accuracy.mean(axis=0)
        radii, shown = np.arange(len(mean)), mean > 0  # beyond the largest radius all curves are the same line
        shown[: 1 + int(shown.sum())] = True
        axes.fill_between(
            radii,
            curve.accuracy.min(axis=0),
            curve.accuracy.max(axis=0),
            step="mid",
            color=colour,
            alpha=0.2,
            linewidth=0,
        )
        axes.step(radii[shown], mean[shown], where="mid", color=colour, linestyle=line, linewidth=1.3)
        axes.plot(
            radii[shown], mean[shown], color=colour, marker=marker, markersize=3.5, markerfacecolor="white", linewidth=0
        )
        axes.plot(
            [],
            [],
            color=colour,
            linestyle=line,
            marker=marker,
            markersize=3.5,
            markerfacecolor="white",
            label=plain_text(curve.name),
        )
    if panel.floor is not None:
        draw_floor(axes, panel.floor)
    dress_axes(axes, panel.curves[0].accuracy.shape[1])
    axes.set_title(panel.title, fontsize=9, loc="left")


def _write_networks(stem: Path, panels: Sequence[NetworksPanel]) -> Path:
    rows: list[list[Any]] = []
    for panel in panels:
        for curve in panel.curves:
            columns = (curve.accuracy.mean(axis=0), curve.accuracy.min(axis=0), curve.accuracy.max(axis=0))
            for r, values in enumerate(zip(*columns, strict=True)):
                rows.append(
                    [
                        panel.title,
                        curve.name,
                        r,
                        len(curve.accuracy),
                        curve.graphs,
                        *(f"{value:.6f}" for value in values),
                    ]
                )
        if panel.floor is not None:
            rows.append([panel.title, "edge-blind", "every", 1, panel.curves[0].graphs, *[f"{panel.floor:.6f}"] * 3])
    head = ("panel", "curve", "r", "networks", "test_graphs", "certified_accuracy", "lowest_network", "highest_network")
    return write_rows(stem, head, rows)
