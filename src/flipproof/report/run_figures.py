"""Figures of runs. Certified ones: accuracy, radii by class, additions and removals, size, methods. Attacks: accuracy, graphs.

Shades, hatches and markers carry what colour carries, so that every figure can be read in greyscale. Each has its numbers
beside it as CSV.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from flipproof.attacks.search import AttackResult
from flipproof.certificates.metrics import Curve
from flipproof.graphs import Graph, IntArray
from flipproof.report.content import ATTACKERS, CertifiedRun, curve_range, percent
from flipproof.report.drawing import (
    Panel,
    curve_rows,
    curve_shades,
    draw_curves,
    draw_floor,
    dress_axes,
    figure_paths,
    finish_panel,
    panels_figure,
    plain_text,
    saved_figure,
    write_curves,
    write_rows,
)
from flipproof.runs.attacking import Attacked

_HATCHES = ("", "//", "..", "xx", "--")
_MOST_CLASSES, _WRITTEN_CELLS = 16, 9
_DRAWN = 8  # attacked graphs
_ADDED, _REMOVED = "#c0392b", "#2471a3"
_WRONG, _ABSTAINED = "wrong", "abstained"


def write_figures(folder: Path, runs: Sequence[CertifiedRun]) -> list[Path]:
    """Every figure that the runs allow, with its CSV; returns the files."""
    seeing = [run for run in runs if not run.edge_blind]
    compared = [run for run in seeing if len(run.readings) > 1]
    with warnings.catch_warnings():
        # a class name in a script that the font lacks is drawn as boxes; the CSV has it
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        paths = _accuracy(folder / "certified_accuracy", seeing or runs)
        if seeing:
            paths += _radii_by_class(folder / "radii_by_class", seeing)
            paths += _add_remove(folder / "add_remove", seeing)
            paths += _radius_by_size(folder / "radius_by_size", seeing)
        if compared:
            paths += _methods(folder / "methods", compared)
        if attacked := [run for run in runs if run.under_attack]:
            paths += _under_attack(folder / "under_attack", attacked)
    return paths


def _accuracy(stem: Path, runs: Sequence[CertifiedRun]) -> list[Path]:
    """One run: a curve for each method. Several: a curve for each run. A panel for each attacker, where they differ."""
    top, first = curve_range(runs), runs[0]
    lines = {None if run.line is None else run.line / len(run.rows) for run in runs}
    floor = lines.pop() if len(lines) == 1 else None
    panels = []
    for attacker in ["radius"] if all(run.symmetric or run.edge_blind for run in runs) else ATTACKERS:
        if len(runs) == 1:
            curves = [first.curve(method, attacker, top=top, name=method) for method in first.readings]
        else:
            curves = [run.curve(attacker=attacker, top=top) for run in runs]
        panels.append(Panel(f"attacker: {ATTACKERS[attacker]}", tuple(curves), floor))
    width = 4.6 if len(panels) == 1 else 2.9
    with panels_figure(stem, len(panels), (width, 3.7), sharey=True) as (figure, drawn):
        for axes, panel in zip(drawn, panels, strict=True):
            draw_curves(axes, panel.curves)
            finish_panel(axes, panel)
            axes.label_outer()
        figure.suptitle(_title(runs), fontsize=10, x=0.01, ha="left")
        named = drawn[0].get_legend_handles_labels()
        figure.legend(*named, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return [*figure_paths(stem), write_curves(stem, panels)]


def _title(runs: Sequence[CertifiedRun]) -> str:
    first = runs[0]
    if len(runs) == 1:
        return plain_text(f"{first.settings.model} on {first.what}, {first.defence}")
    if len({run.data_key for run in runs}) == 1:
        return plain_text(first.what)
    return f"{len(runs)} runs on different data"


def _radii_by_class(stem: Path, runs: Sequence[CertifiedRun]) -> list[Path]:
    """A panel for each true class: how many of its graphs have which radius; bars side by side for several runs."""
    counts = [run.radii_by_class() for run in runs]
    named = dict.fromkeys(name for run in runs for name in (*run.class_names, "no label"))
    classes = [name for name in named if any(name in found for found in counts)]
    drawn, top = classes[:_MOST_CLASSES], curve_range(runs)
    places, width = np.arange(-1, top), 0.8 / len(runs)
    layout: dict[str, Any] = {"most": 4, "rest": (0.4, 0.7), "sharex": True, "sharey": True}
    with panels_figure(stem, len(drawn), (2.3, 1.7), **layout) as (figure, panels):
        for axes, name in zip(panels, drawn, strict=True):
            for number, (by_class, shade) in enumerate(zip(counts, curve_shades(len(runs)), strict=True)):
                found = by_class.get(name, Counter())
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
            handles = [container[-1] for container in panels[0].containers]
            names = [plain_text(run.name) for run in runs]
            figure.legend(handles, names, loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    rows = [
        [run.name, name, _WRONG if radius < 0 else radius, number]
        for name in classes
        for run, by_class in zip(runs, counts, strict=True)
        for radius, number in sorted(by_class.get(name, Counter()).items())
    ]
    return [*figure_paths(stem), write_rows(stem, ("run", "class", "radius", "graphs"), rows)]


def _under_attack(stem: Path, runs: Sequence[CertifiedRun]) -> list[Path]:
    """The graphs that were attacked: accuracy after the attacks found beside certified accuracy, an upper and a lower bound."""
    panels = []
    for run in runs:
        found = run.under_attack
        top = len(next(iter(found.values())).certified) - 1
        certified = run.certified_of_attacked or run.curve(top=top)
        curves = [replace(certified, name="certified (lower bound)")]
        curves += [replace(curve, name=f"after attacks on {run.targets[role]}") for role, curve in found.items()]
        panels.append(Panel(f"{plain_text(run.name)}: {certified.graphs} graphs attacked", tuple(curves)))
    with panels_figure(stem, len(panels), (4.2, 3.2), rest=(0, 0.8)) as (figure, drawn):
        for axes, panel in zip(drawn, panels, strict=True):
            draw_curves(axes, panel.curves, bands=0)
            finish_panel(axes, panel)
            axes.set(ylabel="accuracy", xticks=range(len(panel.curves[0].certified)))
        named = {name: line for axes in drawn for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
        figure.legend(
            named.values(),
            named,
            loc="outside lower center",
            ncols=1 if len(panels) == 1 else 2,
            frameon=False,
            fontsize=8,
        )
    return [*figure_paths(stem), write_curves(stem, panels)]


def _add_remove(stem: Path, runs: Sequence[CertifiedRun]) -> list[Path]:
    counts = [run.add_remove_counts() for run in runs]
    size = tuple(max(count.shape[axis] for count in counts) for axis in (0, 1))
    with panels_figure(stem, len(runs), (3.3, 3.0), rest=(0.6, 0.4)) as (figure, panels):
        image = None
        for axes, run, count in zip(panels, runs, counts, strict=True):
            shares = np.zeros(size)
            shares[: count.shape[0], : count.shape[1]] = count / len(run.rows)
            image = axes.imshow(shares.T, origin="lower", cmap="Greys", vmin=0, vmax=1, aspect="auto")
            for (adds, removes), number in np.ndenumerate(count):
                if number and max(size) <= _WRITTEN_CELLS:
                    shade = "white" if shares[adds, removes] > 0.6 else "black"
                    text = percent(int(number), len(run.rows)).removesuffix(" %")
                    axes.text(adds, removes, text, ha="center", va="center", color=shade, fontsize=8)
            axes.set_xlabel("additions, at most")
            axes.set_ylabel("removals, at most")
            axes.set_title(plain_text(f"{run.name}: {run.defence}"), fontsize=9, loc="left")
            for axis, length in ((axes.xaxis, size[0]), (axes.yaxis, size[1])):
                axis.set_ticks(range(0, length, 1 if length <= _WRITTEN_CELLS else 2))
        figure.colorbar(image, ax=panels, label="share of graphs certified", shrink=0.8)
    rows = [
        [run.name, adds, removes, f"{number / len(run.rows):.6f}"]
        for run, count in zip(runs, counts, strict=True)
        for (adds, removes), number in np.ndenumerate(count)
    ]
    return [*figure_paths(stem), write_rows(stem, ("run", "additions", "removals", "share_of_graphs"), rows)]


def _radius_by_size(stem: Path, runs: Sequence[CertifiedRun]) -> list[Path]:
    """Circles with as much ink as there are graphs, and the mean radius of right answers for each of a few sizes."""
    with _scatter_panels(stem, runs) as panels:
        for axes, run in panels:
            radii = run.right_radii()
            nodes = np.array([row["nodes"] for row in run.rows])
            right = radii >= 0
            _circles(axes, nodes[right], radii[right], "0.35")
            _circles(axes, nodes[~right], radii[~right], "none")
            if means := run.radii_by_size():
                axes.plot(*zip(*means, strict=True), color="#0b5394", linewidth=1.6, marker="s", markersize=4)
                axes.set_title(plain_text(f"{run.name} (line: mean of the right ones)"), fontsize=9, loc="left")
            top = max(int(radii.max()), 1)
            axes.set_yticks(*_radius_ticks(top, "✗"))
            axes.set_ylim(-1.6, top + 0.8)
            axes.set_ylabel("certified radius (✗: wrong or abstained)")
            axes.set_xlabel("nodes")
    rows = [
        [run.name, row["graph"], row["nodes"], row["edges"], _WRONG if radius < 0 else radius]
        for run in runs
        for row, radius in zip(run.rows, run.right_radii().tolist(), strict=True)
    ]
    return [*figure_paths(stem), write_rows(stem, ("run", "graph", "nodes", "edges", "radius"), rows)]


@contextmanager
def _scatter_panels(stem: Path, runs: Sequence[CertifiedRun]) -> Iterator[Iterator[tuple[Any, CertifiedRun]]]:
    with panels_figure(stem, len(runs), (3.2, 3.1), rest=(0.4, 0)) as (_, panels):
        for axes, run in zip(panels, runs, strict=True):
            axes.grid(color="0.92", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_title(plain_text(run.name), fontsize=9, loc="left")
        yield zip(panels, runs, strict=True)


def _circles(axes: Any, across: IntArray, up: IntArray, colour: str) -> None:
    """One circle per place, its area the number of graphs there."""
    counted = Counter(zip(across.tolist(), up.tolist(), strict=True))
    if counted:
        areas = [10 + 8 * min(number, 60) for number in counted.values()]
        axes.scatter(*zip(*counted, strict=True), s=areas, facecolor=colour, edgecolor="0.3", linewidth=0.7, alpha=0.75)


def _radius_ticks(top: int, none: str) -> tuple[range, list[str]]:
    ticks = range(-1, top + 1, 1 if top <= 12 else 4)
    return ticks, [none if tick < 0 else str(tick) for tick in ticks]


def _methods(stem: Path, runs: Sequence[CertifiedRun]) -> list[Path]:
    """What a run's own method reads from the same evidence as the next one: each graph above the diagonal gained."""
    rows: list[list[Any]] = []
    with _scatter_panels(stem, runs) as panels:
        for axes, run in panels:
            own, other = list(run.readings)[:2]
            pairs = run.radius_pairs()
            up, across = np.array(list(pairs.elements())).T
            top = max(int(up.max()), int(across.max()), 1)
            axes.plot([-1.5, top + 0.5], [-1.5, top + 0.5], color="0.6", linewidth=0.8, linestyle="--", zorder=0)
            _circles(axes, across, up, "0.35")
            axes.set_xticks(*_radius_ticks(top, "none"))
            axes.set_yticks(*_radius_ticks(top, "none"))
            axes.set(xlim=(-1.6, top + 0.8), ylim=(-1.6, top + 0.8), aspect="equal")
            axes.set_xlabel(f"radius by {other}")
            axes.set_ylabel(f"radius by {own}")
            for pair, number in sorted(pairs.items()):
                shown = [_ABSTAINED if radius < 0 else radius for radius in pair]
                rows.append([run.name, own, shown[0], other, shown[1], number])
    columns = ("run", "own_method", "own_radius", "other_method", "other_radius", "graphs")
    return [*figure_paths(stem), write_rows(stem, columns, rows)]


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
        hits = [(index, graphs[index], result) for index, result in found.items() if result.success and result.size]
        drawn = [
            (graph, result, f"{graph.name or f'graph {index}'}: {result.size} flip{'s' * (result.size != 1)}")
            for index, graph, result in hits[:_DRAWN]
        ]
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
    rows = curve_rows(curves, floor)
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
