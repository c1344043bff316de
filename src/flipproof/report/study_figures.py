"""Figures of studies: certified accuracy on one data set, and the trade-off between candidates. Style: ``report/figures.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flipproof.report.drawing import (
    Panel,
    curve_shades,
    draw_curve,
    figure_paths,
    finish_panel,
    plain_text,
    saved_figure,
    whisker_offset,
    write_curves,
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
