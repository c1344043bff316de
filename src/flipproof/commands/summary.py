"""What a run's certificates say in a few numbers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from flipproof.runs.table import Row

__all__ = ["RADII", "print_summary", "summarise"]

RADII = (0, 1, 2, 3, 5, 10)
_ATTACKERS = {"radius": "any flips", "adds_radius": "additions only", "removes_radius": "removals only"}


def summarise(rows: Sequence[Row], settings: dict[str, Any], *, edge_blind: float | None = None) -> dict[str, Any]:
    """Certified accuracy at a few radii against three attackers, and the average certified radius; plain JSON.

    Args:
        rows: Of the table of certificates.
        settings: Of the run.
        edge_blind: Accuracy of a model without edges on the same graphs, if known.
    """
    right = np.array([bool(row["correct"]) for row in rows])
    certified = {}
    for column in _ATTACKERS:
        # who may only add is no stronger than who may do anything (and on a complete graph can do nothing)
        radii = np.array([row[column] for row in rows])
        certified[column] = {str(r): float(np.mean(right & (radii >= r))) for r in RADII}
    return {
        "data": settings["data"],
        "model": settings["model"],
        "part": settings["part"],
        "graphs": len(rows),
        "p_add": settings["p_add"],
        "p_remove": settings["p_remove"],
        "method": rows[0]["method"],
        "alpha": rows[0]["alpha"],
        "simultaneous": bool(settings.get("simultaneous")),
        "samples": _samples(rows),
        "abstained": sum(row["predicted"] is None for row in rows),
        "average_certified_radius": float(np.mean([row["radius"] * ok for row, ok in zip(rows, right, strict=True)])),
        "certified_accuracy": certified["radius"],
        "certified_accuracy_additions": certified["adds_radius"],
        "certified_accuracy_removals": certified["removes_radius"],
        "edge_blind_accuracy": edge_blind,
    }


def _samples(rows: Sequence[Row]) -> int | dict[str, float]:
    """Their number, or what is to be said of it where sampling ended early."""
    numbers = [int(row["samples"]) for row in rows]
    if not any(row["looks"] for row in rows):
        return numbers[0]
    return {"least": min(numbers), "most": max(numbers), "mean": float(np.mean(numbers))}


def print_summary(summary: dict[str, Any]) -> None:
    """The summary as tables on stdout."""
    from rich.console import Console
    from rich.table import Table

    console = Console(file=sys.stdout)
    title = (
        f"{summary['model']} on {summary['data']}: certified accuracy of {summary['graphs']} {summary['part']} graphs"
    )
    table = Table("attacker", *(f"r = {r}" for r in RADII), title=title)
    keys = ("certified_accuracy", "certified_accuracy_additions", "certified_accuracy_removals")
    for key, attacker in zip(keys, _ATTACKERS.values(), strict=True):
        table.add_row(attacker, *(f"{summary[key][str(r)]:.3f}" for r in RADII))
    blind = summary["edge_blind_accuracy"]
    if blind is not None:
        table.add_section()
        table.add_row("edge-blind", *[f"{blind:.3f}"] * len(RADII))
    console.print(table)
    alpha = f"alpha {summary['alpha']:g}"
    if summary["simultaneous"]:
        alpha = f"alpha {summary['alpha'] * summary['graphs']:g} for all graphs at once ({summary['alpha']:g} each)"
    samples = summary["samples"]
    if isinstance(samples, dict):
        counted = f"auto: {samples['least']:,} to {samples['most']:,} samples, {samples['mean']:,.0f} on average"
    else:
        counted = f"{samples:,} samples"
    if summary["method"] == "voting":
        cast = f"{samples:,} sub-graphs, with certainty"
    else:
        cast = f"{counted}, {alpha}" if samples else "not sampled"
    if summary["p_add"] is not None:
        cast += f", noise adds {summary['p_add']:.4g} and removes {summary['p_remove']:.4g}"
    console.print(
        f"method {summary['method']}, {cast}; "
        f"average certified radius {summary['average_certified_radius']:.2f}, abstained on {summary['abstained']}",
        soft_wrap=True,
        highlight=False,
    )
    console.print(f"written: {summary['run']}", soft_wrap=True, markup=False, highlight=False)
    console.print(
        f"next: flipproof report {shlex.quote(summary['run'])}", soft_wrap=True, markup=False, highlight=False
    )
