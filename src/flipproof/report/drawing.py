"""Figures of certified accuracy, for print: SVG, PDF and PNG beside the numbers they show.

Curves differ in line, marker and lightness, so that they stay apart in greyscale. The same numbers give the same files,
byte for byte.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flipproof.certificates.metrics import Curve
from flipproof.files import write_bytes, write_text

_LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
_RISING_LINES = (":", "--", "-", "-.")
_MARKERS = ("o", "s", "^", "D", "v")
_FORMATS = ("svg", "pdf", "png")
_AXIS = "number of edge flips r"
_SHARE = "certified accuracy"


@dataclass(frozen=True)
class Panel:
    """One of several plots side by side."""

    title: str
    curves: tuple[Curve, ...]
    floor: float | None = None
    """Accuracy of a network that ignores edges, certified at every radius."""


def finish_panel(axes: Any, panel: Panel) -> None:
    """The edge-blind line, axes and title of a panel whose curves are drawn."""
    if panel.floor is not None:
        draw_floor(axes, panel.floor)
    dress_axes(axes, len(panel.curves[0].certified))
    axes.set_title(panel.title, fontsize=9, loc="left")


def draw_floor(axes: Any, accuracy: float) -> None:
    """The line to beat: where a network that ignores edges is right, it is right at every radius."""
    axes.axhline(accuracy, color="#b03a2e", linewidth=1, linestyle=(0, (1, 2)), label="edge-blind")


def draw_curves(axes: Any, curves: Sequence[Curve], *, bands: int = 1, faint_first: bool = False) -> None:
    """Curves that differ in line, marker and shade; the first ``bands`` show their intervals as bands, the others as whiskers."""
    shades = curve_shades(len(curves))
    lines = _RISING_LINES if faint_first else _LINES
    for place, (curve, shade) in enumerate(zip(curves, shades[::-1] if faint_first else shades, strict=True)):
        offset = None if place < bands else whisker_offset(place, len(curves))
        draw_curve(axes, curve, shade, lines[place % len(lines)], _MARKERS[place % 5], whiskers=offset)


def whisker_offset(place: int, count: int) -> float:
    """Where a curve's whiskers stand beside the integers, so that those of several curves can be told apart."""
    return 0.07 * (place - (count - 1) / 2)


def draw_curve(axes: Any, curve: Curve, colour: Any, line: Any, marker: str, *, whiskers: float | None = None) -> None:
    """One curve: steps, markers at the integers, and 95% intervals as a band, or as whiskers so far beside the integers."""
    radii = np.arange(len(curve.certified))
    dots = {"color": colour, "linestyle": line, "marker": marker, "markersize": 4, "markerfacecolor": "white"}
    axes.step(radii, curve.accuracy, where="mid", color=colour, linestyle=line, linewidth=1.4)
    axes.plot(radii, curve.accuracy, linewidth=0, **dots)
    axes.plot([], [], linewidth=1.4, label=plain_text(curve.name), **dots)
    low, high = curve.band
    if whiskers is None:
        axes.fill_between(radii, low, high, step="mid", color=colour, alpha=0.10, linewidth=0)
    else:
        axes.vlines(radii + whiskers, low, high, color=colour, alpha=0.45, linewidth=0.8, zorder=1.5)


def dress_axes(axes: Any, count: int, share: str = _SHARE) -> None:
    """Axes of a share of graphs against r = 0, ..., count - 1."""
    axes.set_xlabel(_AXIS)
    axes.set_ylabel(share)
    axes.set_xlim(-0.4, count - 0.6)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xticks(range(0, count, 2 if count <= 20 else 4 if count <= 40 else 8))
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def plain_text(text: str) -> str:
    """A user's text, shown as it is: a dollar sign would start a formula, a leading underscore would hide a legend entry."""
    return (" " * text.startswith("_") + text).replace("$", r"\$")


def curve_shades(count: int) -> list[Any]:
    """Colours from dark to light that print as shades of grey."""
    import matplotlib

    return list(matplotlib.colormaps["viridis"](np.linspace(0.0, 0.8, max(count, 2))[:count]))


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


@contextmanager
def panels_figure(stem: Path, count: int, size: tuple[float, float], **layout: Any) -> Iterator[tuple[Any, list[Any]]]:
    """A figure with so many axes of this size, at most ``most`` per line, and ``rest`` inches beside and below them."""
    most, rest = layout.pop("most", 3), layout.pop("rest", (0, 0))
    columns = min(most, count)
    lines = -(-count // columns)
    with saved_figure(stem, (size[0] * columns + rest[0], size[1] * lines + rest[1])) as figure:
        grid = figure.subplots(lines, columns, squeeze=False, **layout)
        for axes in grid.flat[count:]:
            axes.set_axis_off()
        yield figure, list(grid.flat[:count])


def figure_paths(stem: Path) -> list[Path]:
    """The files of a figure."""
    return [stem.with_name(f"{stem.name}.{kind}") for kind in _FORMATS]


def write_curves(stem: Path, panels: Sequence[Panel]) -> Path:
    """The numbers of curves, as CSV beside the figure."""
    rows: list[Sequence[Any]] = []
    for panel in panels:
        for curve in panel.curves:
            low, high = curve.band
            for r, certified in enumerate(curve.certified):
                share = [f"{value:.6f}" for value in (curve.accuracy[r], low[r], high[r])]
                rows.append([panel.title, curve.name, r, certified, curve.graphs, *share])
        if panel.floor is not None:
            rows.append([panel.title, "edge-blind", "every", *floor_row(panel.floor, panel.curves)])
    columns = ("panel", "curve", "r", "certified_graphs", "test_graphs", "certified_accuracy", "low95", "high95")
    return write_rows(stem, columns, rows)


def floor_row(floor: float, curves: Sequence[Curve]) -> list[Any]:
    """The edge-blind line with its interval, where all curves are about equally many graphs."""
    graphs = {curve.graphs for curve in curves}
    if len(graphs) != 1:
        return ["", "", f"{floor:.6f}", "", ""]
    line = Curve("edge-blind", (round(floor * max(graphs)),), max(graphs))
    return [line.certified[0], line.graphs, *(f"{value:.6f}" for value in (floor, *(end[0] for end in line.band)))]


def write_rows(stem: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """A figure's numbers as CSV beside it."""
    import pandas

    path = stem.with_name(f"{stem.name}.csv")
    write_text(path, pandas.DataFrame(list(rows), columns=columns).to_csv(index=False, lineterminator="\n"))
    return path
