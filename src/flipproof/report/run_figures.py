"""Figures of certified runs, one or several compared: accuracy, radii by class, additions and removals, size, methods.

Shades, hatches and markers carry what colour carries, so that every figure can be read in greyscale. Each has its numbers
beside it as CSV.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.report.content import ATTACKERS, CertifiedRun, curve_range
from flipproof.report.figures import (
    Panel,
    curve_shades,
    draw_curve,
    figure_paths,
    finish_panel,
    plain_text,
    saved_figure,
    write_curves,
    write_rows,
)

__all__ = ["add_remove_shares", "write_figures"]

_LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v")
_HATCHES = ("", "//", "..", "xx", "--")
_MOST_CELLS, _MOST_CLASSES, _WRITTEN_CELLS = 17, 16, 9
_WRONG = "wrong"


def write_figures(folder: Path, runs: Sequence[CertifiedRun], floors: Mapping[str, float]) -> list[Path]:
    """Every figure that the runs allow, with its CSV; returns the files.

    Args:
        folder: Where.
        runs: At least one.
        floors: Accuracy of a classifier that sees no edges, by data set.
    """
    seeing = [run for run in runs if not run.edge_blind]
    compared = [run for run in seeing if {"votes", "influence"} <= run.readings.keys()]
    with warnings.catch_warnings():
        # a class name in a script that the font lacks is drawn as boxes; the CSV has it
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        paths = _accuracy(folder / "certified_accuracy", runs, floors)
        if seeing:
            paths += _radii_by_class(folder / "radii_by_class", seeing)
            paths += _add_remove(folder / "add_remove", seeing)
            paths += _radius_by_size(folder / "radius_by_size", seeing)
        if compared:
            paths += _votes_and_influence(folder / "votes_and_influence", compared)
    return paths


# ---- certified accuracy --------------------------------------------------------------------------------------------------


def _accuracy(stem: Path, runs: Sequence[CertifiedRun], floors: Mapping[str, float]) -> list[Path]:
    """One run: a curve for each method. Several: a curve for each run. A panel for each attacker, where they differ."""
    top = curve_range(runs)
    shown = [run for run in runs if not run.edge_blind] or list(runs)
    keys = {run.data_key for run in runs}
    floor = floors.get(next(iter(keys))) if len(keys) == 1 else None
    attackers = list(ATTACKERS) if any(not run.symmetric for run in shown) else ["radius"]
    panels = []
    for attacker in attackers:
        if len(shown) == 1:
            curves = [shown[0].curve(method, attacker, top, method) for method in shown[0].readings]
        else:
            curves = [run.curve(run.method, attacker, top) for run in shown]
        panels.append(Panel(f"attacker: {ATTACKERS[attacker]}", tuple(curves), floor))
    with saved_figure(stem, (4.6 if len(panels) == 1 else 2.9 * len(panels), 3.7)) as figure:
        grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)
        for axes, panel in zip(grid.flat, panels, strict=True):
            shades = curve_shades(len(panel.curves))
            for place, (curve, shade) in enumerate(zip(panel.curves, shades, strict=True)):
                draw_curve(axes, curve, shade, _LINES[place % 5], _MARKERS[place % 5], band=place == 0)
            finish_panel(axes, panel)
            axes.label_outer()
        figure.suptitle(_title(shown), fontsize=10, x=0.01, ha="left")
        figure.legend(
            *grid.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8
        )
    return [*figure_paths(stem), write_curves(stem, panels)]


def _title(runs: Sequence[CertifiedRun]) -> str:
    first = runs[0]
    if len(runs) == 1:
        return plain_text(f"{first.settings['model']} on {first.what}, {first.noise}")
    if len({run.data_key for run in runs}) == 1:
        return plain_text(first.what)
    return f"{len(runs)} runs on different data"


# ---- histogram of radii, by class -----------------------------------------------------------------------------------------


def _radii_by_class(stem: Path, runs: Sequence[CertifiedRun]) -> list[Path]:
    """A panel for each true class: how many of its graphs have which radius; bars side by side for several runs."""
    counts: dict[str, dict[str, Counter[int]]] = {name: {} for run in runs for name in run.class_names}
    for run in runs:
        for row, radius in zip(run.rows, run.right_radii(run.method), strict=True):
            name = "no label" if row["label"] is None else run.class_names[row["label"]]
            counts.setdefault(name, {}).setdefault(run.name, Counter())[radius] += 1
    top = curve_range(runs)
    drawn = [name for name, found in counts.items() if found][:_MOST_CLASSES]
    columns = min(4, len(drawn))
    lines = -(-len(drawn) // columns)
    with saved_figure(stem, (2.3 * columns + 0.4, 1.7 * lines + 0.7)) as figure:
        grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        places = np.arange(-1, top)
        width = 0.8 / len(runs)
        for axes in grid.flat[len(drawn) :]:
            axes.set_axis_off()
        for axes, name in zip(grid.flat, drawn, strict=False):
            for number, (run, shade) in enumerate(zip(runs, curve_shades(len(runs)), strict=True)):
                found = counts[name].get(run.name, Counter())
                bars = axes.bar(
                    places + (number - (len(runs) - 1) / 2) * width,
                    [found[int(place)] for place in places],
                    width,
                    color=shade,
                    edgecolor="white",
                    linewidth=0.3,
                    hatch=_HATCHES[number % 5],
                )
                bars[0].set(facecolor="white", edgecolor="0.3", linewidth=0.8)
            axes.set_title(plain_text(name), fontsize=9, loc="left")
            ticks = range(-1, top, 1 if top <= 9 else 2 if top <= 18 else 8)
            axes.set_xticks(ticks, ["✗" if place < 0 else str(place) for place in ticks], fontsize=8)
            axes.spines[["top", "right"]].set_visible(False)
            axes.yaxis.get_major_locator().set_params(integer=True)
        figure.supxlabel("certified radius (✗: wrong or abstained)", fontsize=9)
        figure.supylabel("graphs", fontsize=9)
        if len(runs) > 1:
            # the last bars, since the first ones stand for wrong answers
            handles = [container[-1] for container in grid.flat[0].containers]
            names = [plain_text(run.name) for run in runs]
            figure.legend(handles, names, loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    rows = [
        [run, name, _WRONG if radius < 0 else radius, number]
        for name, by_run in counts.items()
        for run, found in by_run.items()
        for radius, number in sorted(found.items())
    ]
    return [*figure_paths(stem), write_rows(stem, ("run", "class", "radius", "graphs"), rows)]


# ---- additions and removals ------------------------------------------------------------------------------------------------


def add_remove_shares(run: CertifiedRun) -> NDArray[np.float64]:
    """Share of graphs that are right whatever at most ``a`` additions and ``b`` removals do, ``[a, b]``, as far as not 0."""
    total = np.zeros((_MOST_CELLS, _MOST_CELLS))
    flips = np.add.outer(np.arange(_MOST_CELLS), np.arange(_MOST_CELLS))
    for row, radius in zip(run.rows, run.right_radii(run.method), strict=True):
        cells = flips <= radius
        grid = np.array(row["grid"], dtype=bool)[:_MOST_CELLS, :_MOST_CELLS] if radius >= 0 and row["grid"] else None
        if grid is not None:
            cells[: grid.shape[0], : grid.shape[1]] |= grid
        total += cells
    shape = [max(2, int(np.count_nonzero(total.any(axis=axis)))) for axis in (1, 0)]
    return np.asarray(total[: shape[0], : shape[1]] / len(run.rows))


def _add_remove(stem: Path, runs: Sequence[CertifiedRun]) -> list[Path]:
    shares = [add_remove_shares(run) for run in runs]
    size = tuple(max(share.shape[axis] for share in shares) for axis in (0, 1))
    columns = min(3, len(runs))
    lines = -(-len(runs) // columns)
    with saved_figure(stem, (3.3 * columns + 0.6, 3.0 * lines + 0.4)) as figure:
        grid = figure.subplots(lines, columns, squeeze=False)
        for axes in grid.flat[len(runs) :]:
            axes.set_axis_off()
        image = None
        for axes, run, share in zip(grid.flat, runs, shares, strict=False):
            whole = np.zeros(size)
            whole[: share.shape[0], : share.shape[1]] = share
            image = axes.imshow(whole.T, origin="lower", cmap="Greys", vmin=0, vmax=1, aspect="auto")
            if max(size) <= _WRITTEN_CELLS:
                for (adds, removes), value in np.ndenumerate(whole):
                    if value == 0:
                        continue
                    shade = "white" if value > 0.6 else "black"
                    axes.text(adds, removes, f"{100 * value:.0f}", ha="center", va="center", color=shade, fontsize=8)
            axes.set_xlabel("at most so many additions")
            axes.set_ylabel("at most so many removals")
            axes.set_title(plain_text(f"{run.name}: {run.noise}"), fontsize=9, loc="left")
            for axis, count in ((axes.xaxis, size[0]), (axes.yaxis, size[1])):
                axis.set_ticks(range(0, count, 1 if count <= _WRITTEN_CELLS else 2))
        figure.colorbar(image, ax=list(grid.flat), label="share of graphs certified", shrink=0.8)
    rows = [
        [run.name, adds, removes, f"{value:.6f}"]
        for run, share in zip(runs, shares, strict=True)
        for (adds, removes), value in np.ndenumerate(share)
    ]
    return [*figure_paths(stem), write_rows(stem, ("run", "additions", "removals", "share_of_graphs"), rows)]


# ---- radius against size, votes against influence -----------------------------------------------------------------------------


def _radius_by_size(stem: Path, runs: Sequence[CertifiedRun]) -> list[Path]:
    """Circles with as much ink as there are graphs, and the mean radius of right answers for each of a few sizes."""
    with _row_of_panels(stem, runs) as panels:
        for axes, run in panels:
            radii = np.array(run.right_radii(run.method))
            nodes = np.array([row["nodes"] for row in run.rows])
            right = radii >= 0
            _circles(axes, nodes[right], radii[right], "0.35")
            _circles(axes, nodes[~right], radii[~right], "none")
            if right.any():
                centres, means = _means(nodes[right], radii[right])
                axes.plot(centres, means, color="#0b5394", linewidth=1.6, marker="s", markersize=4)
                axes.set_title(plain_text(f"{run.name} (line: mean of the right ones)"), fontsize=9, loc="left")
            _whole_radii(axes, radii)
            axes.set_xlabel("nodes")
    rows = [
        [run.name, row["graph"], row["nodes"], row["edges"], _WRONG if radius < 0 else radius]
        for run in runs
        for row, radius in zip(run.rows, run.right_radii(run.method), strict=True)
    ]
    return [*figure_paths(stem), write_rows(stem, ("run", "graph", "nodes", "edges", "radius"), rows)]


@contextmanager
def _row_of_panels(stem: Path, runs: Sequence[CertifiedRun]) -> Iterator[Iterator[tuple[Any, CertifiedRun]]]:
    columns = min(3, len(runs))
    lines = -(-len(runs) // columns)
    with saved_figure(stem, (3.2 * columns + 0.4, 3.1 * lines)) as figure:
        grid = figure.subplots(lines, columns, squeeze=False)
        for axes in grid.flat[len(runs) :]:
            axes.set_axis_off()
        for axes, run in zip(grid.flat, runs, strict=False):
            axes.grid(color="0.92", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_title(plain_text(run.name), fontsize=9, loc="left")
        yield zip(grid.flat, runs, strict=False)


def _circles(axes: Any, across: NDArray[np.int64], up: NDArray[np.int64], colour: str) -> None:
    """One circle a place, its area the number of graphs there."""
    counted = Counter(zip(across.tolist(), up.tolist(), strict=True))
    if counted:
        areas = [10 + 8 * min(number, 60) for number in counted.values()]
        axes.scatter(*zip(*counted, strict=True), s=areas, facecolor=colour, edgecolor="0.3", linewidth=0.7, alpha=0.75)


def _whole_radii(axes: Any, radii: NDArray[np.int64]) -> None:
    top = max(int(radii.max()), 1)
    ticks = range(-1, top + 1, 1 if top <= 12 else 4)
    axes.set_yticks(ticks, ["✗" if tick < 0 else str(tick) for tick in ticks])
    axes.set_ylim(-1.6, top + 0.8)
    axes.set_ylabel("certified radius (✗: wrong or abstained)")


def _means(sizes: NDArray[np.int64], radii: NDArray[np.int64]) -> tuple[list[float], list[float]]:
    """Mean size and radius of at most eight groups of about as many graphs, graphs of one size together."""
    edges = np.unique(np.quantile(sizes, np.linspace(0, 1, 9), method="nearest"))
    group = np.searchsorted(edges, sizes, side="right")
    return (
        [float(sizes[group == place].mean()) for place in np.unique(group)],
        [float(radii[group == place].mean()) for place in np.unique(group)],
    )


def _votes_and_influence(stem: Path, runs: Sequence[CertifiedRun]) -> list[Path]:
    """What the influence certificate gets out of the same votes: every graph above the diagonal gained."""
    found = {run.name: _pairs(run) for run in runs}
    with _row_of_panels(stem, runs) as panels:
        for axes, run in panels:
            votes, influence = (np.array(radii) for radii in zip(*found[run.name].elements(), strict=True))
            top = max(int(votes.max()), int(influence.max()), 1)
            axes.plot([-1.5, top + 0.5], [-1.5, top + 0.5], color="0.6", linewidth=0.8, linestyle="--", zorder=0)
            _circles(axes, votes, influence, "0.35")
            ticks = range(-1, top + 1, 1 if top <= 12 else 4)
            names = ["none" if tick < 0 else str(tick) for tick in ticks]
            axes.set_xticks(ticks, names)
            axes.set_yticks(ticks, names)
            axes.set(xlim=(-1.6, top + 0.8), ylim=(-1.6, top + 0.8), aspect="equal")
            axes.set_xlabel("radius by votes alone")
            axes.set_ylabel("radius by influence")
    rows = [[name, *pair, number] for name, pairs in found.items() for pair, number in sorted(pairs.items())]
    return [*figure_paths(stem), write_rows(stem, ("run", "votes_radius", "influence_radius", "graphs"), rows)]


def _pairs(run: CertifiedRun) -> Counter[tuple[int, int]]:
    votes, influence = run.readings["votes"], run.readings["influence"]
    return Counter((votes[index].radius, influence[index].radius) for index in run.graphs)
