"""Figures of certified accuracy, for print: SVG, PDF and PNG beside the numbers they show.

Curves differ in line, marker and lightness, so that they stay apart in greyscale. The same numbers give the same files,
byte for byte.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.metrics import Curve
from flipproof.files import write_bytes, write_text
from flipproof.graphs import IntArray
from flipproof.report.content import ATTACKERS, CertifiedRun, curve_range, percent

_LINES = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 2)), (0, (8, 2)))
_MARKERS = ("o", "s", "^", "D", "v", "P")
_FORMATS = ("svg", "pdf", "png")


@dataclass(frozen=True, eq=False)
class NetworksCurve:
    """Certified accuracy of several networks on the same graphs, ``networks[network, r]``: their mean and their range."""

    name: str
    networks: NDArray[np.float64]
    graphs: int

    @property
    def accuracy(self) -> NDArray[np.float64]:
        return np.asarray(self.networks.mean(axis=0))

    @property
    def band(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return self.networks.min(axis=0), self.networks.max(axis=0)


@dataclass(frozen=True)
class Panel:
    """A plot of curves.

    Attributes:
        floor: Accuracy of a classifier that ignores edges, certified at every radius: the line to beat.
        limit: The highest accuracy that the task allows, by radius.
    """

    title: str
    curves: tuple[Curve | NetworksCurve, ...]
    floor: float | None = None
    limit: Mapping[int, float] | None = None


def curves_figure(
    stem: Path,
    panels: Sequence[Panel],
    *,
    most: int = 3,
    title: str = "",
    legend: str = "",
    share: str = "certified accuracy",
) -> list[Path]:
    """Panels of ``share``, by default certified accuracy, against the number of flips, at most ``most`` per line.

    ``title`` stands above them, and ``legend`` above their common legend. Returns the files, CSV last.
    """
    columns = min(most, len(panels))
    lines, width = -(-len(panels) // columns), max(4.8, 2.8 * columns + 0.4)
    with saved_figure(stem, (width, 2.4 * lines)) as figure:
        grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        for axes, panel in zip(grid.flat, panels, strict=False):
            draw_panel(axes, panel, share)
            axes.label_outer()
        figure.suptitle(title, fontsize=10, x=0.01, ha="left")
        named = {name: line for axes in grid.flat for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
        width = max(width, 6.4) if len(named) > 6 else width
        ncols = min(len(named), max(1, int(width / (0.6 + 0.075 * max(map(len, named))))))  # entries side by side
        figure.set_size_inches(width, 2.4 * lines + 0.6 + 0.18 * (-(-len(named) // ncols) + bool(legend)))
        style: dict[str, Any] = {"ncols": ncols, "frameon": False, "fontsize": 8, "title_fontsize": 8}
        figure.legend(named.values(), named, title=legend, loc="outside lower center", **style)
    return [*figure_paths(stem), write_rows(stem, [row for panel in panels for row in _panel_rows(panel)])]


def draw_panel(axes: Any, panel: Panel, share: str = "certified accuracy") -> None:
    """Curves with 95% intervals as whiskers, or the range of their networks as a band; the lines to compare with; axes."""
    import matplotlib

    count = len(panel.curves)
    shades = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.8, count))  # dark to light: shades of grey in print
    for place, (curve, colour) in enumerate(zip(panel.curves, shades, strict=True)):
        middle, (low, high) = curve.accuracy, curve.band
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


def _panel_rows(panel: Panel) -> Iterator[dict[str, Any]]:
    """The numbers of curves and, at last, of the edge-blind line, if all curves are about equally many graphs."""
    graphs = {curve.graphs for curve in panel.curves}
    line = [] if panel.floor is None else [Curve("edge-blind", (round(panel.floor * max(graphs)),), max(graphs))]
    for curve in (*panel.curves, *(line if len(graphs) == 1 else ())):
        for r, values in enumerate(zip(curve.accuracy, *curve.band, strict=True)):
            row = {"panel": panel.title, "curve": curve.name, "r": "every" if curve in line else r}
            if isinstance(curve, NetworksCurve):
                row |= {"networks": len(curve.networks), "test_graphs": curve.graphs}
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


CERTIFIED = "certified (lower bound)"
_WRITTEN_CELLS = 9


def write_figures(folder: Path, runs: Sequence[CertifiedRun]) -> list[Path]:
    """Every figure that the runs allow, with its CSV; returns the files."""
    seeing = [run for run in runs if not run.edge_blind]
    attacked = [run for run in runs if run.under_attack]
    with warnings.catch_warnings():
        # a name in a script that the font lacks is drawn as boxes; the CSV has it
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        paths = _accuracy(folder / "certified_accuracy", seeing or runs)
        if seeing:
            counts = [run.add_remove_counts() for run in seeing]
            paths += _heat_maps(folder / "add_remove", seeing, counts, ("additions", "removals"))
        noisy = [run for run in runs if run.feature_kind is not None]
        if noisy:
            names = "flips", f"changed {' or '.join(dict.fromkeys(str(run.feature_kind) for run in noisy))}"
            paths += _heat_maps(folder / "features", noisy, [run.joint_counts() for run in noisy], names)
        if attacked:
            paths += curves_figure(folder / "under_attack", list(map(_attacked_panel, attacked)), share="accuracy")
    return paths


def _accuracy(stem: Path, runs: Sequence[CertifiedRun]) -> list[Path]:
    """One run: a curve for each method. Several: a curve for each run. A panel for each attacker, where they differ."""
    top, first = curve_range(runs), runs[0]
    lines = {None if run.line is None else run.line / len(run.rows) for run in runs}
    floor = lines.pop() if len(lines) == 1 else None
    panels = []
    for attacker in ["radius"] if all(run.symmetric or run.edge_blind for run in runs) else ATTACKERS:
        curves = [run.curve(attacker=attacker, top=top) for run in runs]
        if len(runs) == 1:
            curves = [first.curve(method, attacker, top=top, name=method) for method in first.readings]
        panels.append(Panel(f"attacker: {ATTACKERS[attacker]}", tuple(curves), floor))
    title = f"{len(runs)} runs on different data"
    if len({run.data_key for run in runs}) == 1:
        title = first.what if len(runs) > 1 else f"{first.settings.model} on {first.what}, {first.defence}"
    return curves_figure(stem, panels, title=plain_text(title))


def _attacked_panel(run: CertifiedRun) -> Panel:
    """The graphs that were attacked: accuracy after the attacks found beside certified accuracy, an upper and a lower bound."""
    under_attack = run.under_attack
    certified = run.certified_of_attacked or run.curve(top=len(next(iter(under_attack.values())).certified) - 1)
    after = [replace(curve, name=f"after attacks on {run.targets[role]}") for role, curve in under_attack.items()]
    return Panel(f"{run.name}: {certified.graphs} {run.noun}s attacked", (replace(certified, name=CERTIFIED), *after))


def _heat_maps(
    stem: Path, runs: Sequence[CertifiedRun], counts: Sequence[IntArray], names: tuple[str, str]
) -> list[Path]:
    """The share of graphs that withstand so many changes of one kind and of another together: additions and removals, say."""
    size = tuple(max(count.shape[axis] for count in counts) for axis in (0, 1))
    with saved_figure(stem, (3.3 * len(runs) + 0.6, 3.4)) as figure:
        panels = figure.subplots(1, len(runs), squeeze=False)[0]
        for axes, run, count in zip(panels, runs, counts, strict=True):
            shares = np.zeros(size)
            shares[: count.shape[0], : count.shape[1]] = count / len(run.rows)
            image = axes.imshow(shares.T, origin="lower", cmap="Greys", vmin=0, vmax=1, aspect="auto")
            for (one, other), number in np.ndenumerate(count):
                if number and max(size) <= _WRITTEN_CELLS:
                    shade = "white" if shares[one, other] > 0.6 else "black"
                    text = percent(int(number), len(run.rows))
                    axes.text(one, other, text, ha="center", va="center", color=shade, fontsize=8)
            axes.set(xlabel=f"{names[0]}, at most", ylabel=f"{names[1]}, at most")
            axes.set_title(plain_text(f"{run.name}: {run.defence}"), fontsize=9, loc="left")
            axes.locator_params(integer=True)
        figure.colorbar(image, ax=panels, label=f"share of {runs[0].noun}s certified", shrink=0.8)
    rows = [
        {"run": run.name, names[0]: one, names[1]: other, "share_of_graphs": f"{number / len(run.rows):.6f}"}
        for run, count in zip(runs, counts, strict=True)
        for (one, other), number in np.ndenumerate(count)
    ]
    return [*figure_paths(stem), write_rows(stem, rows)]
