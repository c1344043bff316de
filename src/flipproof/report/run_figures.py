"""Figures of runs: certified accuracy, additions with removals, accuracy under attack. Each has its numbers beside it as CSV."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from flipproof.certificates.metrics import Curve
from flipproof.report.content import ATTACKERS, CertifiedRun, curve_range, percent
from flipproof.report.drawing import Panel, curves_figure, figure_paths, plain_text, saved_figure, write_rows
from flipproof.runs.attacking import Attacked

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
            paths += _add_remove(folder / "add_remove", seeing)
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
    found = [replace(curve, name=f"after attacks on {run.targets[role]}") for role, curve in under_attack.items()]
    return Panel(f"{run.name}: {certified.graphs} graphs attacked", (replace(certified, name=CERTIFIED), *found))


def _add_remove(stem: Path, runs: Sequence[CertifiedRun]) -> list[Path]:
    """The share of graphs that withstand so many additions and removals together."""
    counts = [run.add_remove_counts() for run in runs]
    size = tuple(max(count.shape[axis] for count in counts) for axis in (0, 1))
    with saved_figure(stem, (3.3 * len(runs) + 0.6, 3.4)) as figure:
        panels = figure.subplots(1, len(runs), squeeze=False)[0]
        for axes, run, count in zip(panels, runs, counts, strict=True):
            shares = np.zeros(size)
            shares[: count.shape[0], : count.shape[1]] = count / len(run.rows)
            image = axes.imshow(shares.T, origin="lower", cmap="Greys", vmin=0, vmax=1, aspect="auto")
            for (adds, removes), number in np.ndenumerate(count):
                if number and max(size) <= _WRITTEN_CELLS:
                    shade = "white" if shares[adds, removes] > 0.6 else "black"
                    text = percent(int(number), len(run.rows))
                    axes.text(adds, removes, text, ha="center", va="center", color=shade, fontsize=8)
            axes.set(xlabel="additions, at most", ylabel="removals, at most")
            axes.set_title(plain_text(f"{run.name}: {run.defence}"), fontsize=9, loc="left")
            axes.locator_params(integer=True)
        figure.colorbar(image, ax=panels, label="share of graphs certified", shrink=0.8)
    rows = [
        {"run": run.name, "additions": adds, "removals": removes, "share_of_graphs": f"{number / len(run.rows):.6f}"}
        for run, count in zip(runs, counts, strict=True)
        for (adds, removes), number in np.ndenumerate(count)
    ]
    return [*figure_paths(stem), write_rows(stem, rows)]


def draw_attacks(folder: Path, attacked: Attacked, words: Mapping[str, str]) -> None:
    """The figure of a run of attacks; ``words`` say who was attacked, by role."""
    summary, graphs = attacked.summary, len(attacked.graphs)
    found = [
        (f"after attacks on {words[role]}", shares, graphs) for role, shares in summary["accuracy_under_attack"].items()
    ]
    if "certified_accuracy" in summary:
        found.append((CERTIFIED, summary["certified_accuracy"], summary["certified_graphs"]))
    curves = tuple(Curve(name, tuple(round(share * count) for share in shares), count) for name, shares, count in found)
    title = f"{graphs} graphs, attacks of up to {summary['budget']} flips"
    curves_figure(folder / "accuracy_under_attack", [Panel(title, curves)], share="accuracy")
