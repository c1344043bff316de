"""Figures of certified accuracy, for print: SVG, PDF and PNG beside the numbers they show.

Curves differ in line, marker and lightness, so that they stay apart in greyscale. The same numbers give the same files,
byte for byte.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.metrics import Curve
from flipproof.files import write_bytes, write_text

_LINES = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 2)), (0, (8, 2)))
_MARKERS = ("o", "s", "^", "D", "v", "P")
_FORMATS = ("svg", "pdf", "png")


@dataclass(frozen=True, eq=False)
class NetworksCurve:
    """Certified accuracy of several networks on the same graphs, ``accuracy[network, r]``."""

    name: str
    accuracy: NDArray[np.float64]
    graphs: int


@dataclass(frozen=True)
class Panel:
    """A plot of curves.

    Attributes:
        floor: Accuracy of a network that ignores edges, certified at every radius: the line to beat.
        limit: The highest accuracy that the task allows, by radius.
    """

    title: str
    curves: tuple[Curve | NetworksCurve, ...]
    floor: float | None = None
    limit: Mapping[int, float] | None = None


def curves_figure(
    stem: Path, panels: Sequence[Panel], *, most: int = 3, title: str = "", legend: str = "", share: str = ""
) -> list[Path]:
    """Panels of ``share``, by default certified accuracy, against the number of flips, at most ``most`` per line.

    ``title`` stands above them, and ``legend`` above their common legend. Returns the files, CSV last.
    """
    columns = min(most, len(panels))
    lines, width = -(-len(panels) // columns), max(4.8, 2.8 * columns + 0.4)
    with saved_figure(stem, (width, 2.4 * lines + 1.2)) as figure:
        grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_panel(axes, panel, share or "certified accuracy")
            axes.label_outer()
        figure.suptitle(title, fontsize=10, x=0.01, ha="left")
        named = {name: line for axes in grid.flat for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
        fitting = int(width / (0.6 + 0.075 * max(map(len, named))))  # entries side by side
        ncols = min(len(named), max(1, fitting))
        style: dict[str, Any] = {"ncols": ncols, "frameon": False, "fontsize": 8, "title_fontsize": 8}
        figure.legend(named.values(), named, title=legend, loc="outside lower center", **style)
    return [*figure_paths(stem), write_rows(stem, [row for panel in panels for row in _panel_rows(panel)])]


def _draw_panel(axes: Any, panel: Panel, share: str) -> None:
    """Curves with 95% intervals as whiskers, or the range of their networks as a band; the lines to compare with; axes."""
    import matplotlib

    count = len(panel.curves)
    shades = matplotlib.colormaps["viridis"](
        np.linspace(0.0, 0.8, count)
    )  # dark to light: they print as shades of grey
    for place, (curve, colour) in enumerate(zip(panel.curves, shades, strict=True)):
        middle, low, high = _ends(curve)
        radii, shown = np.arange(len(middle)), middle > 0  # beyond the largest radius all curves are the same line
        shown[: 1 + int(shown.sum())] = True
        style = {"color": colour, "linestyle": _LINES[place % 6]}
        dots = {"marker": _MARKERS[place % 6], "markersize": 4, "markerfacecolor": "white"}
        axes.step(radii[shown], middle[shown], where="mid", linewidth=1.4, **style)
        axes.plot(radii[shown], middle[shown], linewidth=0, color=colour, **dots)
        axes.plot([], [], linewidth=1.4, label=plain_text(curve.name), **style, **dots)
        if isinstance(curve, NetworksCurve):
            axes.fill_between(radii, low, high, step="mid", color=colour, alpha=0.2, linewidth=0)
        else:  # a little beside the integers, so that whiskers of several curves can be told apart
            beside = radii + 0.07 * (place - (count - 1) / 2)
            axes.vlines(beside, low, high, color=colour, alpha=0.45, linewidth=0.8, zorder=1.5)
    if panel.floor is not None:
        axes.axhline(panel.floor, label="edge-blind", color="#b03a2e", linewidth=1, linestyle=(0, (1, 2)))
    if panel.limit is not None:
        limit = {"color": "0.3", "linewidth": 1, "linestyle": ":", "marker": "_", "label": "limit of the task"}
        axes.plot(list(panel.limit), list(panel.limit.values()), **limit)
    axes.set(xlabel="number of edge flips r", ylabel=share, ylim=(-0.02, 1.02))
    axes.locator_params("x", integer=True)
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(plain_text(panel.title), fontsize=9, loc="left")


def _ends(curve: Curve | NetworksCurve) -> tuple[NDArray[np.float64], ...]:
    """A curve, and the ends of its interval or range."""
    if isinstance(curve, NetworksCurve):
        return curve.accuracy.mean(axis=0), curve.accuracy.min(axis=0), curve.accuracy.max(axis=0)
    return curve.accuracy, *curve.band


def _panel_rows(panel: Panel) -> Iterator[dict[str, Any]]:
    """The numbers of curves and, at last, of the edge-blind line, if all curves are about equally many graphs."""
    graphs = {curve.graphs for curve in panel.curves}
    line = [] if panel.floor is None else [Curve("edge-blind", (round(panel.floor * max(graphs)),), max(graphs))]
    for curve in (*panel.curves, *(line if len(graphs) == 1 else ())):
        for r, values in enumerate(np.transpose(_ends(curve))):
            row = {"panel": panel.title, "curve": curve.name, "r": "every" if curve in line else r}
            if isinstance(curve, NetworksCurve):
                row |= {"networks": len(curve.accuracy), "test_graphs": curve.graphs}
                names = ("certified_accuracy", "lowest_network", "highest_network")
            else:
                row |= {"certified_graphs": curve.certified[r], "test_graphs": curve.graphs}
                names = ("certified_accuracy", "low95", "high95")
            yield row | {name: f"{value:.6f}" for name, value in zip(names, values, strict=True)}


def plain_text(text: str) -> str:
    """A user's text, shown as it is: a dollar sign would start a formula, a leading underscore would hide a legend entry."""
    return (" " * text.startswith("_") + text).replace("$", r"\$")


@contextmanager
def saved_figure(stem: Path, size: tuple[float, float]) -> Iterator[Any]:
    """A figure to draw on, its size in inches; afterwards it is saved to :func:`figure_paths`."""
    import matplotlib
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = {"svg.hashsalt": "flipproof", "svg.fonttype": "path", "font.size": 9, "pdf.fonttype": 42}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # it is laid out; not again for each format
        for path, kind in zip(figure_paths(stem), _FORMATS, strict=True):
            undated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
            content = io.BytesIO()
            figure.savefig(content, format=kind, dpi=200, metadata=undated)
            write_bytes(path, content.getvalue(), durable=False)


def figure_paths(stem: Path) -> list[Path]:
    """The files of a figure."""
    return [stem.with_name(f"{stem.name}.{kind}") for kind in _FORMATS]


def write_rows(stem: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """A figure's numbers as CSV beside it."""
    import pandas

    path = stem.with_name(f"{stem.name}.csv")
    write_text(path, pandas.DataFrame(rows).to_csv(index=False, lineterminator="\n"))
    return path
