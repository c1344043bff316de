"""Figures of certified accuracy, for print: SVG, PDF and PNG beside the numbers they show.

Curves differ in line, marker and lightness, so that they stay apart in greyscale. The same numbers give the same files,
byte for byte.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def finish_panel(axes: Any, panel: Panel | NetworksPanel) -> None:
    """The edge-blind line, axes and title of a panel whose curves are drawn."""
    if panel.floor is not None:
        draw_floor(axes, panel.floor)
    dress_axes(axes, panel.curves[0].accuracy.shape[-1])
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
    """A figure with ``count`` axes of this size, at most ``most`` per line, and ``rest`` inches beside and below them."""
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
    rows = [[panel.title, *row] for panel in panels for row in curve_rows(panel.curves, panel.floor)]
    columns = ("panel", "curve", "r", "certified_graphs", "test_graphs", "certified_accuracy", "low95", "high95")
    return write_rows(stem, columns, rows)


def curve_rows(curves: Sequence[Curve], floor: float | None) -> list[list[Any]]:
    """Name, r, graphs that are right, all graphs, their share and its interval; of the edge-blind line at last.

    The line has an interval where all curves are about equally many graphs.
    """
    rows: list[list[Any]] = []
    for curve in curves:
        shares = zip(curve.accuracy, *curve.band, strict=True)
        for r, (right, values) in enumerate(zip(curve.certified, shares, strict=True)):
            rows.append([curve.name, r, right, curve.graphs, *(f"{value:.6f}" for value in values)])
    graphs = {curve.graphs for curve in curves}
    if floor is not None and len(graphs) == 1:
        line = Curve("edge-blind", (round(floor * max(graphs)),), max(graphs))
        values = (floor, *(end[0] for end in line.band))
        rows.append([line.name, "every", line.certified[0], line.graphs, *(f"{value:.6f}" for value in values)])
    elif floor is not None:
        rows.append(["edge-blind", "every", "", "", f"{floor:.6f}", "", ""])
    return rows


def write_rows(stem: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """A figure's numbers as CSV beside it."""
    import pandas

    path = stem.with_name(f"{stem.name}.csv")
    write_text(path, pandas.DataFrame(list(rows), columns=columns).to_csv(index=False, lineterminator="\n"))
    return path


_STUDY_LINES = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 2)), (0, (8, 2)))
_STUDY_MARKERS = ("o", "s", "^", "D", "v", "P")


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


def _draw(axes: Any, panel: Panel) -> None:
    count = len(panel.curves)
    for place, (curve, colour) in enumerate(zip(panel.curves, curve_shades(count), strict=True)):
        draw_curve(
            axes,
            curve,
            colour,
            _STUDY_LINES[place % 6],
            _STUDY_MARKERS[place % 6],
            whiskers=whisker_offset(place, count),
        )
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
        line, marker, mean = _STUDY_LINES[place % 6], _STUDY_MARKERS[place % 6], curve.accuracy.mean(axis=0)
        radii, shown = np.arange(len(mean)), mean > 0  # beyond the largest radius all curves are the same line
        shown[: 1 + int(shown.sum())] = True
        low, high = curve.accuracy.min(axis=0), curve.accuracy.max(axis=0)
        dots = {"color": colour, "marker": marker, "markersize": 3.5, "markerfacecolor": "white"}
        axes.fill_between(radii, low, high, step="mid", color=colour, alpha=0.2, linewidth=0)
        axes.step(radii[shown], mean[shown], where="mid", color=colour, linestyle=line, linewidth=1.3)
        axes.plot(radii[shown], mean[shown], linewidth=0, **dots)
        axes.plot([], [], linestyle=line, label=plain_text(curve.name), **dots)
    finish_panel(axes, panel)


def _write_networks(stem: Path, panels: Sequence[NetworksPanel]) -> Path:
    rows: list[list[Any]] = []
    for panel in panels:
        for curve in panel.curves:
            networks, count = curve.accuracy, len(curve.accuracy)
            for r, values in enumerate(
                zip(networks.mean(axis=0), networks.min(axis=0), networks.max(axis=0), strict=True)
            ):
                rows.append([panel.title, curve.name, r, count, curve.graphs, *(f"{value:.6f}" for value in values)])
        if panel.floor is not None:
            rows.append([panel.title, "edge-blind", "every", 1, panel.curves[0].graphs, *[f"{panel.floor:.6f}"] * 3])
    head = ("panel", "curve", "r", "networks", "test_graphs", "certified_accuracy", "lowest_network", "highest_network")
    return write_rows(stem, head, rows)
