"""The report as one HTML file: headline in words, interactive curves, a table of all graphs, each graph on a click.

Everything is inside the file, and its content security policy allows no request and no script but its own. What users have
named (runs, data, classes, graphs) reaches the page escaped, as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from flipproof import __version__
from flipproof.attacks.result import AttackResult
from flipproof.graphs import Graph
from flipproof.report.content import ATTACKERS, CertifiedRun, Reading, curve_range
from flipproof.report.figures import Curve
from flipproof.report.run_figures import add_remove_shares

__all__ = ["asset", "embedded_json", "html_table", "policy", "report_page"]

# what bounds the size of the file: larger graphs are not drawn, and after so many edges in all no further graph is
_DRAWN_NODES, _DRAWN_EDGES, _ALL_EDGES = 300, 1500, 150_000
_TARGETS = {
    "smoothed": "the smoothed classifier",
    "base": "its model without smoothing",
    "undefended": "the undefended model",
}


def asset(name: str) -> str:
    """A style sheet, script or template that comes with the package."""
    return files("flipproof.report").joinpath(name).read_text(encoding="utf-8")


def policy(style: str, script: str = "") -> str:
    """The content security policy of a page with this style and script, and nothing from anywhere else."""
    allowed = [f"style-src {_hash(style)}", f"script-src {_hash(script)}" if script else "script-src 'none'"]
    return "; ".join(["default-src 'none'", "img-src data:", *allowed, "base-uri 'none'", "form-action 'none'"])


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def embedded_json(value: Any) -> str:
    """JSON that can stand inside a script element, whatever it holds."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def html_table(rows: Sequence[Sequence[str]], *, classes: Mapping[str, str] | None = None) -> str:
    """A table with a head, its text escaped; ``classes`` names the class of cells with a certain text."""
    known = classes or {}
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in rows[0])
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{known[cell]}">{html.escape(cell)}</td>' if cell in known else f"<td>{html.escape(cell)}</td>"
            for cell in row
        )
        + "</tr>"
        for row in rows[1:]
    )
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def report_page(runs: Sequence[CertifiedRun], floors: Mapping[str, float], *, figures: Sequence[str] = ()) -> str:
    """The page.

    Args:
        runs: At least one.
        floors: Accuracy of a classifier that sees no edges, by data set.
        figures: Names of the figures written beside the page.
    """
    style, script = asset("page.css") + asset("report.css"), asset("report.js")
    title = f"{runs[0].name}: robustness report" if len(runs) == 1 else f"{len(runs)} runs: robustness report"
    parts = {
        "title": html.escape(title),
        "policy": html.escape(policy(style, script)),
        "style": style,
        "script": script,
        "heading": html.escape(_heading(runs)),
        "subtitle": html.escape(_subtitle(runs)),
        "headline": _headline(runs, floors),
        "made": html_table(_made(runs)),
        "files": _files(figures),
        "version": html.escape(__version__),
        "data": embedded_json(_data(runs, floors)),
    }
    return re.sub(r"<!--(\w+)-->", lambda match: parts[match[1]], asset("report.html"))


# ---- the headline, in words ---------------------------------------------------------------------------------------------


def _heading(runs: Sequence[CertifiedRun]) -> str:
    return "How many edge flips do the predictions withstand?" if len(runs) == 1 else f"{len(runs)} runs compared"


def _subtitle(runs: Sequence[CertifiedRun]) -> str:
    if len(runs) > 1:
        return " · ".join(run.name for run in runs)
    run = runs[0]
    return f"{run.settings['model']} on {run.what}, {run.noise}"


def _headline(runs: Sequence[CertifiedRun], floors: Mapping[str, float]) -> str:
    parts = [f"<p>{html.escape(note)}</p>" for note in _notes(runs)]
    if parts:
        parts = [f'<div class="note">{"".join(parts)}</div>']
    if len(runs) == 1:
        parts.append(f'<p class="lead">{_sentences(runs[0])}</p>')
        parts.append(_tiles(runs[0], floors.get(runs[0].data_key)))
        parts.append(_bar(runs[0]))
    else:
        parts.append('<div class="cards">')
        for number, run in enumerate(runs):
            parts.append(
                f'<article class="card"><h3>{_swatch(f"run{number % 6} fill")}{html.escape(run.name)}</h3>'
                f'<p class="soft">{html.escape(_subtitle([run]))}</p><p>{_sentences(run)}</p>{_bar(run)}</article>'
            )
        parts.append("</div>")
        parts.append(html_table(_comparison(runs)))
    return "".join(parts)


def _notes(runs: Sequence[CertifiedRun]) -> list[str]:
    notes = []
    if len({run.data_key for run in runs}) > 1:
        names = ", ".join(dict.fromkeys(str(run.settings["data"]) for run in runs))
        notes.append(
            f"These runs certify different graphs ({names}): read each curve for itself. In the table a graph has entries for "
            "the runs on its own data only."
        )
    elif len({tuple(run.graphs) for run in runs}) > 1:
        notes.append("These runs certify different parts of the same data; every share is of the run's own graphs.")
    for run in runs:
        unlabelled = sum(row["label"] is None for row in run.rows)
        if unlabelled:
            notes.append(f"{run.name}: {unlabelled} graphs have no label and count as not right.")
        broken = _contradictions(run)
        if broken:
            notes.append(
                f"{run.name}: {broken} attacks succeeded within a certified radius. A certificate or an attack is wrong, each "
                "with its probability alpha."
            )
    return notes


def _contradictions(run: CertifiedRun) -> int:
    by_graph = {row["graph"]: row for row in run.rows}
    return sum(
        found["smoothed"].success
        and by_graph[index]["predicted"] == found["smoothed"].label
        and found["smoothed"].size <= by_graph[index]["radius"]
        for index, found in run.attacks.items()
        if "smoothed" in found
    )


def _percent(count: float, total: int) -> str:
    share = 100 * count / total
    return f"{share:.0f} %" if share in (0, 100) or 1 <= share <= 99 else f"{share:.1f} %"


def _sentences(run: CertifiedRun) -> str:
    """What the run shows, for a reader who knows no smoothing; HTML."""
    total = len(run.rows)
    counts = run.curve(run.method, "radius", max(curve_range([run]), 3)).certified
    strong = f"<strong>{counts[0]} of {total} graphs ({_percent(counts[0], total)})</strong>"
    if run.edge_blind:
        return (
            f"This model does not look at edges. It is right on {strong}, and no attack on edges can change any of its answers: "
            "the line that a model which does look at edges has to beat."
        )
    alpha = run.rows[0]["alpha"]
    sentences = [f"The {'smoothed ' if alpha else ''}classifier answers {strong} right."]
    if counts[1]:
        sentences.append(
            f"For <strong>{counts[1]} ({_percent(counts[1], total)})</strong> the answer is right and proven to stay so "
            "whatever single edge an attacker adds or removes"
        )
        further = max([r for r, count in enumerate(counts) if r >= 2 and 2 * count >= total] or [2])
        if counts[further]:
            sentences[-1] += (
                f"; for {counts[further]} ({_percent(counts[further], total)}), whatever any {further} flips"
            )
        sentences[-1] += "."
    else:
        sentences.append("No right answer is proven to withstand an arbitrary single flip.")
    if not run.symmetric:
        against_all = max(r for r, count in enumerate(counts) if r == 0 or 2 * count >= total)
        for attacker, what in (("adds_radius", "add"), ("removes_radius", "remove")):
            alone = run.curve(run.method, attacker, 64).certified
            reach = max([r for r, count in enumerate(alone) if r and 2 * count >= total], default=0)
            if reach > against_all:
                sentences.append(
                    f"Against an attacker who can only {what} edges, {alone[reach]} ({_percent(alone[reach], total)}) are proven "
                    f"to withstand {reach}."
                )
    abstained = sum(row["predicted"] is None for row in run.rows)
    if abstained:
        sentences.append(
            f"On {abstained} {'graph' if abstained == 1 else 'graphs'} the votes were too close, and it abstains."
        )
    if alpha:
        sentences.append(f"Each proof is wrong with a probability of at most {alpha:g} ({_odds(alpha)}).")
    else:
        sentences.append("These proofs hold with certainty: nothing was sampled.")
    return " ".join(sentences)


def _odds(alpha: float) -> str:
    return f"1 in {round(1 / alpha):,}" if alpha <= 0.5 else "more often than not"


def _average_radius(run: CertifiedRun) -> float:
    return float(np.mean(np.maximum(run.right_radii(run.method), 0)))


def _tiles(run: CertifiedRun, floor: float | None) -> str:
    total = len(run.rows)
    counts = run.curve(run.method, "radius", 3).certified
    tiles = [(_percent(counts[0], total), "answered right")]
    if not run.edge_blind:
        tiles += [(_percent(counts[r], total), f"right against any {r} flip{'s' * (r > 1)}") for r in (1, 2, 3)]
        tiles.append((f"{_average_radius(run):.2f}", "flips withstood on average (wrong answers count 0)"))
    if floor is not None and not run.edge_blind:
        tiles.append((f"{100 * floor:.0f} %", "right without looking at edges, at any number of flips"))
    cells = "".join(f"<li><b>{html.escape(value)}</b> <span>{html.escape(what)}</span></li>" for value, what in tiles)
    return f'<ul class="tiles">{cells}</ul>'


def _bar(run: CertifiedRun) -> str:
    """All graphs as one bar, by how many flips they withstand."""
    total = len(run.rows)
    radii = run.right_radii(run.method)
    abstained = sum(row["predicted"] is None for row in run.rows)
    groups = [("wrong", sum(radius < 0 for radius in radii) - abstained, "no"), ("abstained", abstained, "none")]
    if run.edge_blind:
        groups.insert(0, ("right, whatever the flips", total - groups[0][1], "r3"))
    else:
        names = ["right, 0 flips", "1 flip", "2 flips"]
        some = [(name, sum(radius == r for radius in radii), f"r{r}") for r, name in enumerate(names)]
        groups = [("3 or more flips", sum(radius >= 3 for radius in radii), "r3"), *some[::-1], *groups]
    x, rects, key = 0.0, [], []
    for name, count, kind in groups:
        if count:
            width = 100 * count / total
            rects.append(f'<rect class="{kind}" x="{x:.3f}" width="{width:.3f}" height="6"/>')
            key.append(f"<li>{_swatch(kind)}{name}: {count}</li>")
            x += width
    return (
        f'<figure class="bar"><svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">{"".join(rects)}</svg>'
        f'<figcaption><ul class="key"><li>Withstand:</li>{"".join(key)}</ul></figcaption></figure>'
    )


def _swatch(classes: str) -> str:
    square = f'<rect class="{classes}" width="14" height="14" rx="3"/>'
    return f'<svg class="swatch" aria-hidden="true" viewBox="0 0 14 14">{square}</svg>'


def _comparison(runs: Sequence[CertifiedRun]) -> list[list[str]]:
    rows = [
        ["run", "graphs", "method", "right", "any 1 flip", "any 2", "any 3", "any 5", "average radius", "abstained"]
    ]
    for run in runs:
        total = len(run.rows)
        counts = run.curve(run.method, "radius", 5).certified
        rows.append(
            [
                run.name,
                str(total),
                run.method,
                *(_percent(counts[r], total) for r in (0, 1, 2, 3, 5)),
                "unlimited where right" if run.edge_blind else f"{_average_radius(run):.2f}",
                str(sum(row["predicted"] is None for row in run.rows)),
            ]
        )
    return rows


def _made(runs: Sequence[CertifiedRun]) -> list[list[str]]:
    rows = [["", *(run.name for run in runs)]]
    rows += [
        [what, *(_said(run.settings.get(key)) for run in runs)]
        for key, what in (
            ("data", "data"),
            ("data_sha256", "hash of the data"),
            ("part", "part"),
            ("model", "model"),
            ("model_sha256", "hash of the model"),
            ("features", "node features"),
            ("samples", "samples a graph"),
            ("seed", "seed of the noise"),
        )
    ]
    rows.append(["noise", *(run.noise for run in runs)])
    rows.append(["method", *(run.method for run in runs)])
    rows.append(["alpha", *(f"{run.rows[0]['alpha']:g}" for run in runs)])
    return rows


def _said(value: Any) -> str:
    text = "none" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
    return text if len(text) <= 40 else f"{text[:12]}…"


def _files(figures: Sequence[str]) -> str:
    if not figures:
        return ""
    names = ", ".join(html.escape(name) for name in figures)
    return f"<p>For print, beside this file as SVG, PDF and PNG with their numbers as CSV: {names}.</p>"


# ---- what the script draws from --------------------------------------------------------------------------------------------


def _data(runs: Sequence[CertifiedRun], floors: Mapping[str, float]) -> dict[str, Any]:
    top = curve_range(runs)
    keys = list(dict.fromkeys(run.data_key for run in runs))
    graphs: dict[tuple[str, int], dict[str, Any]] = {}
    ink = 0
    for number, run in enumerate(runs):
        for row in run.rows:
            graph = run.graphs[row["graph"]]
            place = (run.data_key, row["graph"])
            if place not in graphs:
                drawn = graph.num_nodes <= _DRAWN_NODES and graph.num_edges <= _DRAWN_EDGES
                drawn = drawn and ink + graph.num_edges <= _ALL_EDGES
                ink += graph.num_edges * drawn
                graphs[place] = _graph(graph, keys.index(run.data_key), row["graph"], drawn)
            graphs[place]["runs"][number] = _cell(run, row)
    return {
        "top": top,
        "attackers": ATTACKERS,
        "targets": _TARGETS,
        "limits": {"nodes": _DRAWN_NODES, "edges": _DRAWN_EDGES, "all": _ALL_EDGES},
        "data": [_data_set(key, runs, floors.get(key)) for key in keys],
        "runs": [_run(run, keys.index(run.data_key), top) for run in runs],
        "graphs": [graphs[place] for place in sorted(graphs, key=lambda place: (keys.index(place[0]), place[1]))],
    }


def _data_set(key: str, runs: Sequence[CertifiedRun], floor: float | None) -> dict[str, Any]:
    own = [run for run in runs if run.data_key == key]
    return {
        "name": str(own[0].settings["data"]),
        "classes": max((run.class_names for run in own), key=len),
        "edgeBlind": floor,
    }


def _run(run: CertifiedRun, data: int, top: int) -> dict[str, Any]:
    return {
        "name": run.name,
        "data": data,
        "graphs": len(run.rows),
        "method": run.method,
        "methods": list(run.readings),
        "alpha": run.rows[0]["alpha"],
        "samples": run.rows[0]["samples"],
        "noise": run.noise,
        "symmetric": run.symmetric,
        "edgeBlind": run.edge_blind,
        "curves": {
            attacker: {method: _curve(run.curve(method, attacker, top)) for method in run.readings}
            for attacker in ATTACKERS
        },
        "cells": []
        if run.edge_blind
        else [[round(cell, 4) for cell in line] for line in add_remove_shares(run).tolist()],
        "attacked": len(run.attacks),
        "underAttack": run.under_attack if run.attacks else {},
    }


def _curve(curve: Curve) -> dict[str, Any]:
    low, high = curve.band
    return {"n": list(curve.certified), "low": np.round(low, 4).tolist(), "high": np.round(high, 4).tolist()}


def _graph(graph: Graph, data: int, index: int, drawn: bool) -> dict[str, Any]:
    return {
        "data": data,
        "index": index,
        "name": graph.name,
        "label": graph.label,
        "nodes": graph.num_nodes,
        "count": graph.num_edges,
        "edges": graph.edges.ravel().tolist() if drawn else None,
        "runs": {},
    }


def _cell(run: CertifiedRun, row: Mapping[str, Any]) -> dict[str, Any]:
    index = row["graph"]
    return {
        "answer": row["predicted"],
        "radius": row["radius"],
        "adds": row["adds_radius"],
        "removes": row["removes_radius"],
        "counts": list(row["counts"]),
        "slots": row["num_slots"],
        "grid": [sum(line) for line in row["grid"]] if not run.symmetric else [],
        "by": {method: _reading(found[index]) for method, found in run.readings.items()},
        "attacks": {who: _attack(result) for who, result in run.attacks.get(index, {}).items()},
    }


def _reading(reading: Reading) -> list[Any]:
    # a lower bound is cut off, not rounded: the page must not show more than was proven
    share = None if reading.p_lower is None else math.floor(reading.p_lower * 10_000) / 10_000
    return [reading.label, reading.radius, reading.adds_radius, reading.removes_radius, share]


def _attack(result: AttackResult) -> dict[str, Any]:
    return {
        "name": result.attack,
        "flips": [node for pair in result.flips for node in pair],
        "success": result.success,
        "confirmed": result.confirmed,
        "budget": result.budget,
        "label": result.label,
    }
