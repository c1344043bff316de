"""Figures of a benchmark and of a choice of settings; the style is that of ``report/figures.py``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flipproof.report.figures import Curve, curve_shades, draw_curve, dress_axes, figure_paths, saved_figure
from flipproof.studies.benchmark.results import DataResults, Series, Statistic

__all__ = ["data_figure", "trade_off_figure"]

_FEWEST_RADII = 5
_MOST_RADII = 17
_LINES = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 2)), (0, (8, 2)))
_MARKERS = ("o", "s", "^", "D", "v", "P")
_FLOOR = "#b03a2e"
_CLEAN = "0.45"


def data_figure(stem: Path, data: DataResults) -> list[Path]:
    """Certified accuracy against r, a panel a network; the edge-blind line in each. Returns the files."""
    networks = list(dict.fromkeys(series.network for series in data.defended))
    with saved_figure(stem, (3.6 * len(networks) + 1.4, 3.3)) as figure:
        panels = figure.subplots(1, len(networks), sharey=True, squeeze=False)[0]
        count = _shown_radii(data.defended)
        for axes, network in zip(panels, networks, strict=True):
            members = [series for series in data.defended if series.network == network]
            clean = next(series for series in data.clean if series.network == network)
            _draw(axes, members, count, whole_names=False)
            _draw_lines(axes, data, clean)
            axes.set_title(f"{Path(data.name).name}, {network.upper()}", fontsize=10, loc="left")
            axes.label_outer()
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
    return figure_paths(stem)


def _shown_radii(series: Sequence[Series]) -> int:
    """Radii 0, 1, ... that are worth showing: one beyond the last that is certified."""
    largest = max(int(part.radii["radius"].max()) for member in series for part in member.splits)
    return min(max(largest + 2, _FEWEST_RADII), _MOST_RADII)


def _draw(axes: Any, members: Sequence[Series], count: int, *, whole_names: bool) -> None:
    for place, (series, colour) in enumerate(zip(members, curve_shades(len(members)), strict=True)):
        radii = np.concatenate([part.radii["radius"] for part in series.splits])
        curve = Curve(
            series.name if whole_names else series.defence.name,
            tuple(int((radii >= r).sum()) for r in range(count)),
            len(radii),
        )
        draw_curve(axes, curve, colour, _LINES[place % 6], _MARKERS[place % 6], band=False)
    dress_axes(axes, count)


def _draw_lines(axes: Any, data: DataResults, clean: Series) -> None:
    axes.axhline(data.edge_blind.accuracy(0).mean, color=_FLOOR, linewidth=1, linestyle=(0, (1, 2)), label="edge-blind")
    axes.plot([0], [clean.accuracy(0).mean], color=_CLEAN, marker="*", markersize=9, linewidth=0, label="clean model")


def trade_off_figure(
    stem: Path, data: DataResults, ranked: Sequence[tuple[Series, Statistic]], *, target: str
) -> list[Path]:
    """Left, the best candidates' curves; right, every candidate's accuracy without and under the attack to be withstood."""
    with saved_figure(stem, (9.0, max(3.4, 1.2 + 0.28 * len(ranked)))) as figure:
        left, right = figure.subplots(1, 2)
        best = [series for series, _ in ranked[:6]]
        _draw(left, best, _shown_radii(best), whole_names=True)
        left.axhline(data.edge_blind.accuracy(0).mean, color=_FLOOR, linewidth=1, linestyle=(0, (1, 2)))
        left.legend(frameon=False, fontsize=8)
        left.set_title(f"{Path(data.name).name}: the best candidates ({data.method})", fontsize=10, loc="left")
        rows = np.arange(len(ranked))[::-1]
        before = [series.accuracy(0).mean for series, _ in ranked]
        after = [share.mean for _, share in ranked]
        right.hlines(rows, after, before, color="0.75", linewidth=1.5, zorder=1)
        right.scatter(
            before, rows, marker="o", facecolor="white", edgecolor="0.2", s=28, label="not attacked", zorder=2
        )
        right.scatter(after, rows, marker="D", color="#31688e", s=28, label=target, zorder=3)
        floor = data.edge_blind.accuracy(0).mean
        right.axvline(floor, color=_FLOOR, linewidth=1, linestyle=(0, (1, 2)), label="edge-blind, any attack")
        right.set_yticks(rows, [series.name for series, _ in ranked], fontsize=8)
        right.set_xlabel("certified accuracy on validation graphs")
        right.set_xlim(-0.02, 1.02)
        right.grid(color="0.9", linewidth=0.6, axis="x")
        right.set_axisbelow(True)
        right.spines[["top", "right"]].set_visible(False)
        right.legend(frameon=False, fontsize=8, loc="best")
        right.set_title("all candidates", fontsize=10, loc="left")
    return figure_paths(stem)
