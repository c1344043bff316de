"""What the page's script draws from, as plain JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flipproof.attacks.search import AttackResult
from flipproof.certificates.evidence import ClassCell, WeakSpots
from flipproof.certificates.metrics import Curve
from flipproof.graphs import Graph
from flipproof.report.content import ATTACKERS, CertifiedRun, Reading, curve_range

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
        for row in run.listed_rows:
            place = (keys.index(run.data_key), row["graph"])
            if place not in graphs:
                graph = run.graphs[row["graph"]]
                drawn = graph.num_nodes <= _DRAWN_NODES and graph.num_edges <= min(_DRAWN_EDGES, _ALL_EDGES - ink)
                ink += graph.num_edges * drawn
                graphs[place] = _graph(graph, *place, drawn)
            graphs[place]["runs"][number] = _cell(run, row)
            if row["graph"] in run.weak_spots:
                drawn = graphs[place]["edges"] is not None
                graphs[place]["runs"][number]["weak"] = _weak(run.weak_spots[row["graph"]], drawn)
    return {
        "top": top,
        "attackers": ATTACKERS,
        "limits": {"nodes": _DRAWN_NODES, "edges": _DRAWN_EDGES, "all": _ALL_EDGES},
        "data": [_data_set([run for run in runs if run.data_key == key]) for key in keys],
        "runs": [_run(run, keys.index(run.data_key), top) for run in runs],
        "graphs": [graphs[place] for place in sorted(graphs)],
    }


def _data_set(runs: Sequence[CertifiedRun]) -> dict[str, Any]:
    return {"name": runs[0].settings.data, "classes": max((run.class_names for run in runs), key=len)}


def _run(run: CertifiedRun, data: int, top: int) -> dict[str, Any]:
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
            attacker: {method: _curve(run.curve(method, attacker, top=top)) for method in run.readings}
            for attacker in ATTACKERS
        },
        "counted": None if run.listed is None else _counted(run, top),
        "cells": [] if run.edge_blind else run.add_remove_counts().tolist(),
        "targets": run.targets,
        "underAttack": {role: _curve(curve) | {"graphs": curve.graphs} for role, curve in run.under_attack.items()},
        "certifiedOfAttacked": None if part is None else _curve(part) | {"graphs": part.graphs},
    }


def _counted(run: CertifiedRun, top: int) -> dict[str, Any]:
    """What the page would count if it listed all graphs: by class and by size, with some listed graph of each spot."""
    classes = [[0] * (top + 1) for _ in run.class_names]
    for row, radius in zip(run.rows, run.right_radii().tolist(), strict=True):
        if row["label"] is not None:
            classes[row["label"]][min(top, radius + 1)] += 1
    pairs: dict[tuple[int, int], list[int]] = {}
    if len(run.readings) > 1:
        own, other = list(run.readings.values())[:2]
        for index in run.graphs:
            pairs.setdefault((other[index].radius, own[index].radius), []).append(index)
    return {
        "classes": classes,
        **{
            key: [
                [*spot, len(members), [index for index in members if run.lists(index)][:_NAMED]]
                for spot, members in sorted(found.items())
            ]
            for key, found in (("sizes", run.radius_by_nodes()), ("pairs", pairs))
        },
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
        "grid": [] if run.symmetric else [sum(line) for line in row["grid"]],
        "by": {method: _reading(found[index]) for method, found in run.readings.items()},
        "attacks": {role: _attack(result) for role, result in run.attacks.get(index, {}).items()},
    }


def _reading(reading: Reading) -> list[Any]:
    # a lower bound is cut off, not rounded: the page must not show more than was proven
    share = None if reading.p_lower is None else math.floor(reading.p_lower * 10_000) / 10_000
    return [reading.label, reading.radius, reading.adds_radius, reading.removes_radius, share]


def _weak(spots: WeakSpots, drawn: bool) -> dict[str, Any]:
    weights = spots.weights if drawn else None
    return {
        "rival": spots.rival,
        "flips": [node for pair in spots.flips for node in pair],
        "success": spots.succeeds,
        "weights": None if weights is None else [float(f"{weight:.3g}") for weight in weights.tolist()],
        "rest": float(f"{spots.rest:.3g}"),
        "caption": spots.caption,
        "columns": list(spots.columns),
        "rows": [
            [{"label": cell.label} if isinstance(cell, ClassCell) else cell for cell in row] for row in spots.rows
        ],
    }


def _attack(result: AttackResult) -> dict[str, Any]:
    return {
        "name": result.attack,
        "flips": [node for pair in result.flips for node in pair],
        "success": result.success,
        "confirmed": result.confirmed,
        "budget": result.budget,
        "label": result.label,
    }
