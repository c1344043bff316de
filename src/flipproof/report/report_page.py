"""The report as one HTML file: headline in words, interactive curves, a table of all graphs, each graph on a click.

Everything is inside the file, and its content security policy allows no request and no script but its own. What users have
named (runs, data, classes, graphs) reaches the page escaped, as text. The words are in ``templates/headline.html``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from flipproof import __version__
from flipproof.certificates.certificate import NODE_CHANGES, WeakSpots
from flipproof.certificates.metrics import (
    Curve,
    PairedTest,
    mean_radius,
    mean_radius_interval,
    median_radius,
    right_radii,
)
from flipproof.files import write_text
from flipproof.report.content import ATTACKERS, CertifiedRun, Reading, curve_range, paired, percent, share_text
from flipproof.report.templates import asset, policy, rendered
from flipproof.report.wording import wording
from flipproof.runs.table import columns_of

_SETTINGS = ("data", "data_sha256", "part", "model", "model_sha256", "features")


def write_report(folder: Path, runs: Sequence[CertifiedRun]) -> tuple[Path, list[Path]]:
    """Write the page of these runs, and every figure that they allow; returns their files."""
    from flipproof.report.drawing import write_figures

    figures, page = write_figures(folder / "figures", runs), folder / "report.html"
    write_text(page, report_page(runs, figures=[f"figures/{path.stem}" for path in figures if path.suffix == ".csv"]))
    return page, figures


def report_page(runs: Sequence[CertifiedRun], *, figures: Sequence[str] = ()) -> str:
    """The page of at least one run; ``figures`` are the names of the figures written beside it."""
    top, seeing = curve_range(runs), [run for run in runs if not run.edge_blind]
    style, script = asset("page.css") + asset("report.css"), asset("report.js")
    tests, data_names = paired(runs, range(4)), dict.fromkeys(run.settings.data for run in runs)
    return rendered(
        "report.html",
        runs=runs,
        facts=[_facts(run) for run in runs],
        several_data=data_names if len({run.data_key for run in runs}) > 1 else (),
        several_parts=len({run.graphs_key for run in runs}) > 1,
        comparison=_comparison(runs),
        tests=tests,
        tests_table=_tests(tests),
        top=top,
        beyond=[(run, count) for run in seeing if (count := int((run.right_radii() > top).sum()))],
        made=_made(runs),
        figures=figures,
        data=script_data(runs),
        policy=policy(style, script),
        style=Markup(style),
        script=Markup(script),
        version=__version__,
        percent=percent,
        flips=_flips,
        noun=runs[0].noun,
    )


def _flips(count: int) -> str:
    return "any single flip" if count == 1 else f"any {count} flips"


def _facts(run: CertifiedRun) -> dict[str, Any]:
    total = len(run.rows)
    counts = run.curve(top=max(curve_range([run]), 3)).certified
    against_all = max(r for r, count in enumerate(counts) if r == 0 or 2 * count >= total)
    alone = []
    for attacker, what in (("adds_radius", "add"), ("removes_radius", "remove")):
        kept = run.curve(attacker=attacker, top=64).certified
        reach = max([r for r, count in enumerate(kept) if r and 2 * count >= total], default=0)
        if reach > against_all and not run.symmetric:
            alone.append((what, kept[reach], reach))
    right = run.majority if run.line is None else run.line
    return {
        "total": total,
        "trait": wording(run.settings.defence["name"]).trait,
        "counts": counts,
        # the most flips that half of the graphs withstand, at least two
        "further": max([r for r, count in enumerate(counts) if r >= 2 and 2 * count >= total] or [2]),
        "alone": alone,
        "compared_with": right,
        "lead": None if right is None else run.lead_over(right),
        "unlabelled": sum(row["label"] is None for row in run.rows),
        "tiles": _tiles(run),
        "beside": _beside(run),
    }


def _tiles(run: CertifiedRun) -> list[tuple[str, str]]:
    curve = run.curve(top=3)
    tiles = [(share_text(curve, 0), "answered right")]
    if not run.edge_blind:
        tiles += [(share_text(curve, r), f"right under {_flips(r)}") for r in (1, 2, 3)]
        median = f"{_median(run)} in the median (wrong answers count 0)"
        tiles.append((_average(run), f"flips withstood on average, {median}"))
        if run.line is not None:
            line = share_text(Curve("edge-blind", (run.line,), len(run.rows)), 0)
            tiles.append((line, "right for a classifier that ignores edges, under any flips"))
    return tiles


def _beside(run: CertifiedRun) -> dict[str, Any] | None:
    nodes = run.settings.question.get("nodes")
    if nodes is None:
        return None
    number = "one node" if nodes == 1 else f"up to {nodes} nodes"
    rows = [["right although", "no flip", *(_flips(r) for r in (1, 2, 3))]]
    for change in NODE_CHANGES:
        columns = columns_of(run.rows, f"{change}_nodes_radius", "predicted", "label")
        curve = Curve.of(change, right_radii(*columns.values()), 3)
        rows.append([f"{number} {change}", *(share_text(curve, r) for r in range(4))])
    return {"number": number, "rows": rows}


def _comparison(runs: Sequence[CertifiedRun]) -> list[list[str]]:
    radii = (0, 1, 2, 3, 5)
    head = ["run", f"{runs[0].noun}s", "method", "right", *(_flips(r) for r in radii[1:])]
    rows = [[*head, "average radius", "median", "abstained"]]
    for run in runs:
        shares = [share_text(run.curve(top=max(radii)), r) for r in radii]
        middle = ["unlimited"] * 2 if run.edge_blind else [_average(run), _median(run)]
        rows.append([run.name, str(len(run.rows)), run.method, *shares, *middle, str(run.abstained)])
    return rows


def _tests(tests: Sequence[PairedTest]) -> list[list[str]]:
    rows = [["compared with", "flips", "difference", "only the first", "only the other", "p", "p (Holm)"]]
    for test in tests:
        difference = f"{100 * test.difference:+.0f} points" if test.difference else "none"
        chances = [f"{value:.3f}" if value >= 0.001 else "<0.001" for value in (test.p_value, test.adjusted)]
        rows.append([test.second, str(test.radius), difference, str(test.only_first), str(test.only_second), *chances])
    return rows


def _average(run: CertifiedRun) -> str:
    interval = mean_radius_interval(run.right_radii())
    ends = "" if interval is None else f" ({interval[0]:.2f}–{interval[1]:.2f})"
    return f"{mean_radius(run.right_radii()):.2f}{ends}"


def _median(run: CertifiedRun) -> str:
    return f"{median_radius(run.right_radii()):g}"


def _made(runs: Sequence[CertifiedRun]) -> list[list[str]]:
    """How each run was made: its settings, and everything that its question says."""
    sampling = dict.fromkeys(key for run in runs for key in run.settings.question if key not in ("alpha", "method"))
    return [
        ["", *(run.name for run in runs)],
        *([key.replace("_", " "), *(_said(getattr(run.settings, key)) for run in runs)] for key in _SETTINGS),
        ["defence", *(run.defence for run in runs)],
        ["method", *(run.method for run in runs)],
        ["alpha of each certificate", *(f"{run.alpha:g}" for run in runs)],
        *([key.replace("_", " "), *(_said(run.settings.question.get(key)) for run in runs)] for key in sampling),
    ]


def _said(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "yes" if value else "–" if value is None else "no"
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return text if len(text) <= 40 else f"{text[:12]}…"


# what bounds the size of the file: larger graphs are not drawn, and after so many edges in all no further graph is
_DRAWN_NODES, _DRAWN_EDGES, _ALL_EDGES = 300, 1500, 150_000
_NAMED = 6  # graphs of a spot in a chart


def script_data(runs: Sequence[CertifiedRun]) -> dict[str, Any]:
    """Curves of every run, and every graph with its certificates, votes and attacks."""
    top = curve_range(runs)
    keys = list(dict.fromkeys(run.data_key for run in runs))
    graphs: dict[tuple[int, int], dict[str, Any]] = {}
    ink = 0
    for number, run in enumerate(runs):
        for row in run.rows:
            if row["graph"] not in run.graphs:
                continue
            place = (keys.index(run.data_key), row["graph"])
            if place not in graphs:
                graph = run.graphs[row["graph"]]
                drawn = graph.num_nodes <= _DRAWN_NODES and graph.num_edges <= min(_DRAWN_EDGES, _ALL_EDGES - ink)
                ink += graph.num_edges * drawn
                about = {"name": graph.name, "label": graph.label, "nodes": graph.num_nodes, "count": graph.num_edges}
                edges = graph.edges.tolist() if drawn else None
                graphs[place] = {"data": place[0], "index": place[1], **about, "edges": edges, "runs": {}}
            graphs[place]["runs"][number] = _cell(run, row, graphs[place]["edges"] is not None)
    return {
        "top": top,
        "noun": runs[0].noun,
        "attackers": ATTACKERS,
        "limits": {"nodes": _DRAWN_NODES, "edges": _DRAWN_EDGES, "all": _ALL_EDGES},
        "data": [
            {"name": same[0].settings.data, "classes": max((run.class_names for run in same), key=len)}
            for same in ([run for run in runs if run.data_key == key] for key in keys)
        ],
        "runs": [_run_data(run, keys.index(run.data_key), top) for run in runs],
        "graphs": [graphs[place] for place in sorted(graphs)],
    }


def _run_data(run: CertifiedRun, data: int, top: int) -> dict[str, Any]:
    part = run.certified_of_attacked
    return {
        "name": run.name,
        "data": data,
        "graphs": len(run.rows),
        "line": run.line,
        "method": run.method,
        "methods": list(run.readings),
        "symmetric": run.symmetric,
        "edgeBlind": run.edge_blind,
        "curves": {
            attacker: {method: _curve_data(run.curve(method, attacker, top=top)) for method in run.readings}
            for attacker in ATTACKERS
        },
        "counted": _counted(run, top),
        "cells": [] if run.edge_blind else run.add_remove_counts().tolist(),
        "features": None if run.feature_kind is None else [run.feature_kind, run.joint_counts().tolist()],
        "targets": run.targets,
        "underAttack": {
            role: _curve_data(curve) | {"graphs": curve.graphs} for role, curve in run.under_attack.items()
        },
        "certifiedOfAttacked": None if part is None else _curve_data(part) | {"graphs": part.graphs},
    }


def _counted(run: CertifiedRun, top: int) -> dict[str, Any]:
    """All graphs, also those that the page does not list, by class, size and method; with some listed graphs of each spot."""
    classes = [[0] * (top + 1) for _ in run.class_names]
    spots: dict[str, dict[tuple[int, int], list[int]]] = {"sizes": {}, "pairs": {}}
    for row, radius in zip(run.rows, run.right_radii().tolist(), strict=True):
        if row["label"] is not None:
            classes[row["label"]][min(top, radius + 1)] += 1
        spots["sizes"].setdefault((row["nodes"], radius), []).append(row["graph"])
        if len(run.readings) > 1:
            own, other = (by_graph[row["graph"]].radius for by_graph in list(run.readings.values())[:2])
            spots["pairs"].setdefault((other, own), []).append(row["graph"])
    return {"classes": classes} | {
        key: [
            [*spot, len(at), [index for index in at if index in run.graphs][:_NAMED]]
            for spot, at in sorted(by_spot.items())
        ]
        for key, by_spot in spots.items()
    }


def _curve_data(curve: Curve) -> dict[str, Any]:
    low, high = curve.band
    return {"n": list(curve.certified), "low": np.round(low, 4).tolist(), "high": np.round(high, 4).tolist()}


def _cell(run: CertifiedRun, row: Mapping[str, Any], drawn: bool) -> dict[str, Any]:
    index = row["graph"]
    attacks = {role: result.to_dict() for role, result in run.attacks.get(index, {}).items()}
    if index in run.broken:
        attacks["defended"]["broken"] = True
    return {
        "answer": row["predicted"],
        "radius": row["radius"],
        "adds": row["adds_radius"],
        "removes": row["removes_radius"],
        "counts": list(row["counts"]),
        "slots": row["num_slots"],
        "grid": [] if run.symmetric else [sum(line) for line in row["grid"]],
        "by": {method: _reading(by_graph[index]) for method, by_graph in run.readings.items()},
        "attacks": attacks,
        "weak": _weak(run.weak_spots[index], drawn) if index in run.weak_spots else None,
    }


def _reading(reading: Reading) -> list[Any]:
    # a lower bound is cut off, not rounded: the page must not show more than was proven
    share = None if reading.p_lower is None else math.floor(reading.p_lower * 10_000) / 10_000
    return [reading.label, reading.radius, reading.adds_radius, reading.removes_radius, share]


def _weak(spots: WeakSpots, drawn: bool) -> dict[str, Any]:
    weights = spots.weights if drawn else None
    return asdict(replace(spots, weights=None)) | {
        "weights": None if weights is None else [float(f"{weight:.3g}") for weight in weights.tolist()],
        "rest": float(f"{spots.rest:.3g}"),
    }
