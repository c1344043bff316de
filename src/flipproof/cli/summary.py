"""What a run's certificates say in a few numbers, on the terminal."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from flipproof.certificates.metrics import mean_radius, right_radii, shares
from flipproof.runs.settings import CertifySettings
from flipproof.runs.table import Row

__all__ = ["RADII", "print_lines", "print_summary", "summarise"]

RADII = (0, 1, 2, 3, 5, 10)
_ATTACKERS = {"radius": "any flips", "adds_radius": "additions only", "removes_radius": "removals only"}


def summarise(
    rows: Sequence[Row], settings: CertifySettings, *, edge_blind: float | None = None, majority: float | None = None
) -> dict[str, Any]:
    """Certified accuracy at a few radii against three attackers, and the average certified radius; plain JSON.

    Args:
        rows: The table of certificates.
        settings: What the run was asked for.
        edge_blind: Accuracy of a model without edges on the same graphs, if known.
        majority: Accuracy of always naming the class that is most frequent in training, if known.
    """
    predicted, labels = [row["predicted"] for row in rows], [row["label"] for row in rows]
    radii = {column: right_radii([row[column] for row in rows], predicted, labels) for column in _ATTACKERS}
    certified = {
        column: dict(zip(map(str, RADII), shares(values, RADII).tolist(), strict=True))
        for column, values in radii.items()
    }
    defence = settings.defence_class
    return {
        "data": settings.data,
        "model": settings.model,
        "part": settings.part,
        "graphs": len(rows),
        "defence": settings.defence,
        "defended_by": defence.title(settings.defence_settings),
        "method": rows[0]["method"],
        "alpha": rows[0]["alpha"],
        "simultaneous": bool(settings.question.get("simultaneous")),
        "samples": _samples(rows),
        "abstained": sum(answer is None for answer in predicted),
        "average_certified_radius": mean_radius(radii["radius"]),
        "certified_accuracy": certified["radius"],
        "certified_accuracy_additions": certified["adds_radius"],
        "certified_accuracy_removals": certified["removes_radius"],
        "edge_blind_accuracy": edge_blind,
        "majority_accuracy": majority,
    }


def _samples(rows: Sequence[Row]) -> int | dict[str, float]:
    """Their number, or what is to be said about it where sampling ended early."""
    numbers = [int(row["samples"]) for row in rows]
    if not any(row["looks"] for row in rows):
        return numbers[0]
    return {"least": min(numbers), "most": max(numbers), "mean": float(np.mean(numbers))}


def print_summary(summary: dict[str, Any]) -> None:
    """The summary as tables on stdout."""
    from rich.console import Console
    from rich.table import Table

    part = "" if summary["part"] == "all" else f"{summary['part']} "
    title = f"{summary['model']} on {summary['data']}: certified accuracy of {summary['graphs']} {part}graphs"
    table = Table("attacker", *(f"r = {r}" for r in RADII), title=title)
    keys = ("certified_accuracy", "certified_accuracy_additions", "certified_accuracy_removals")
    for key, attacker in zip(keys, _ATTACKERS.values(), strict=True):
        table.add_row(attacker, *(f"{summary[key][str(r)]:.3f}" for r in RADII))
    blind = summary["edge_blind_accuracy"]
    if blind is not None:
        table.add_section()
        table.add_row("edge-blind", *[f"{blind:.3f}"] * len(RADII))
    print_lines([_comparison(summary)])
    Console(file=sys.stdout).print(table)
    print_lines(
        [
            f"defence {summary['defended_by']}, method {summary['method']}, {_certainty(summary)}; "
            f"average certified radius {summary['average_certified_radius']:.2f}, abstained on {summary['abstained']}",
            f"written: {summary['run']}",
            f"next: flipproof report {shlex.quote(summary['run'])}",
        ]
    )


def _comparison(summary: dict[str, Any]) -> str:
    """How the result compares with ignoring edges; the first thing to know about it."""
    line, certified = summary["edge_blind_accuracy"], summary["certified_accuracy"]
    what = "a network that ignores edges"
    if line is None:
        line, what = summary["majority_accuracy"], "always naming the most frequent class"
    if line is None:
        return "no label is known, so nothing can be said about accuracy"
    above = [r for r in RADII if certified[str(r)] > line]
    reach = (
        f"certified accuracy is above it up to r = {max(above)}" if above else "certified accuracy is nowhere above it"
    )
    hint = (
        "" if summary["edge_blind_accuracy"] is not None else " (the line to beat is that of train --model edge-blind)"
    )
    return f"{what} is right on {line:.3f} under any attack; {reach}{hint}"


def print_lines(lines: Sequence[str]) -> None:
    """Plain lines on stdout, never wrapped."""
    for line in lines:
        print(line)


def _certainty(summary: dict[str, Any]) -> str:
    """How sure the certificates are, in words."""
    if not summary["alpha"]:
        return "with certainty"
    alpha, samples = f"alpha {summary['alpha']:g}", summary["samples"]
    if summary["simultaneous"]:
        alpha = f"alpha {summary['alpha'] * summary['graphs']:g} for all graphs at once ({summary['alpha']:g} each)"
    if isinstance(samples, dict):
        counted = f"auto: {samples['least']:,} to {samples['most']:,} samples, {samples['mean']:,.0f} on average"
    else:
        counted = f"{samples:,} samples"
    return f"{counted}, {alpha}"
