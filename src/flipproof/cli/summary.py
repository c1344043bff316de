"""What a run's certificates say in a few numbers, on the terminal."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flipproof.certificates.certificate import NODE_CHANGES
from flipproof.certificates.metrics import mean_radius, only_class, right_radii, share_interval, shares, short_interval
from flipproof.graphs import IntArray
from flipproof.report.wording import title
from flipproof.runs.edge_blind_line import Line
from flipproof.runs.settings import CertifySettings
from flipproof.runs.table import Row, columns_of

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["RADII", "narrow_table", "print_lines", "print_summary", "stacked", "summarise"]

RADII = (0, 1, 2, 3, 5, 10)
_ATTACKERS = {
    "radius": ("certified_accuracy", "any flips"),
    "adds_radius": ("certified_accuracy_additions", "additions only"),
    "removes_radius": ("certified_accuracy_removals", "removals only"),
}
"""Columns of the table of certificates; their keys in the summary, and the attacker in words."""

_COLLAPSED = (
    "the defended model tells no classes apart, and its certificates say nothing (train it longer, or with less noise)"
)


def summarise(rows: Sequence[Row], settings: CertifySettings, line: Line | None = None) -> dict[str, Any]:
    """Certified accuracy at a few radii against three attackers, with its intervals, and the average radius; plain JSON.

    Args:
        rows: The table of certificates.
        settings: What the run was asked for.
        line: What to compare with: answers of a network that ignores edges, and the class that is most frequent in training.
    """
    line = line or Line()
    blind, majority = line.right(rows), line.majority_right(rows)
    nodes = settings.question.get("nodes")
    attackers = _attackers(nodes)
    found = columns_of(rows, "predicted", "label", "method", "alpha", "samples", "looks", *attackers)
    predicted = found["predicted"]
    radii = {column: right_radii(found[column], predicted, found["label"]) for column in attackers}
    certified = {
        attackers[column][0]: dict(zip(map(str, RADII), shares(values, RADII).tolist(), strict=True))
        for column, values in radii.items()
    }
    only = only_class(predicted, found["label"])
    names = settings.class_names
    return {
        "data": settings.data,
        "model": settings.model,
        "part": settings.part,
        "graphs": len(rows),
        "defence": settings.defence,
        "defended_by": title(settings.defence),
        "method": found["method"][0],
        "alpha": found["alpha"][0],
        "simultaneous": bool(settings.question.get("simultaneous")),
        "samples": _samples(found["samples"], found["looks"]),
        "only_class": None if only is None else names[only] if only < len(names) else f"class {only}",
        "abstained": sum(answer is None for answer in predicted),
        "average_certified_radius": mean_radius(radii["radius"]),
        **({} if nodes is None else {"node_changes": nodes}),
        **certified,
        "intervals": {key: _intervals(radii[column]) for column, (key, _) in attackers.items()},
        "edge_blind": settings.defence_class.edge_blind,
        "edge_blind_accuracy": None if blind is None else blind / len(rows),
        "edge_blind_interval": None if blind is None else _ends(blind, len(rows)),
        "edge_blind_missing": line.missing or None,
        "majority_accuracy": None if majority is None else majority / len(rows),
        "majority_interval": None if majority is None else _ends(majority, len(rows)),
    }


def _attackers(nodes: int | None) -> dict[str, tuple[str, str]]:
    """As :data:`_ATTACKERS`, with those who change so many nodes, too."""
    if nodes is None:
        return _ATTACKERS
    number = f"{nodes} node{'s' * (nodes != 1)}"
    return _ATTACKERS | {
        f"{change}_nodes_radius": (f"certified_accuracy_{change}_nodes", f"{number} {change}")
        for change in NODE_CHANGES
    }


def _ends(right: int, graphs: int) -> list[float]:
    low, high = share_interval([right], graphs)
    return [round(float(low[0]), 6), round(float(high[0]), 6)]


def _intervals(radii: IntArray) -> dict[str, list[float]]:
    """Of the certified accuracy at each radius the ends of its exact 95% interval."""
    low, high = share_interval(np.array([int((radii >= r).sum()) for r in RADII]), len(radii))
    return {str(r): [round(float(end), 6) for end in ends] for r, *ends in zip(RADII, low, high, strict=True)}


def _samples(numbers: Sequence[int], looks: Sequence[Sequence[int]]) -> int | dict[str, float]:
    """Their number, or what is to be said about it where sampling ended early."""
    if not any(looks):
        return numbers[0]
    return {"least": min(numbers), "most": max(numbers), "mean": float(np.mean(numbers))}


def print_summary(summary: dict[str, Any]) -> None:
    """The summary as tables on stdout."""
    from rich.console import Console
    from rich.table import Table

    part = "" if summary["part"] == "all" else f"{summary['part']} "
    title = f"{summary['model']} on {summary['data']}: certified accuracy of {summary['graphs']} {part}graphs"
    table = Table("attacker", *(f"r = {r}" for r in RADII), title=title)
    for key, attacker in _attackers(summary.get("node_changes")).values():
        ends = [short_interval(summary["intervals"][key][str(r)]) for r in RADII]
        table.add_row(attacker, *(f"{summary[key][str(r)]:.3f}" for r in RADII))
        table.add_row("  95% interval", *ends, style="dim")
    blind = summary["edge_blind_accuracy"]
    if blind is not None:
        table.add_section()
        table.add_row("edge-blind", *[f"{blind:.3f}"] * len(RADII))
        table.add_row("  95% interval", *[short_interval(summary["edge_blind_interval"])] * len(RADII), style="dim")
    only = summary["only_class"]
    print_lines([_comparison(summary), *([] if only is None else [f"every answer is {only}: {_COLLAPSED}"])])
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
    """How the result compares with a network that ignores edges; the first thing to know about it."""
    blind, majority, certified = (
        summary["edge_blind_accuracy"],
        summary["majority_accuracy"],
        summary["certified_accuracy"],
    )
    frequent = "always naming the most frequent class"
    if blind is not None:
        return f"a network that ignores edges is right on {blind:.3f} under any attack; {_reach(certified, blind)}"
    if majority is None:
        return "no label is known, so nothing can be said about accuracy"
    if summary["edge_blind"]:
        own = f"this network ignores edges and is right on {certified['0']:.3f} under any attack"
        return f"{own}; {frequent} is right on {majority:.3f}"
    missing = f"not compared with a network that ignores edges: {summary['edge_blind_missing']}; "
    return f"{missing}{frequent} is right on {majority:.3f} under any attack; {_reach(certified, majority)}"


def _reach(certified: dict[str, float], line: float) -> str:
    above = [r for r in RADII if certified[str(r)] > line]
    return (
        f"certified accuracy is above it up to r = {max(above)}" if above else "certified accuracy is nowhere above it"
    )


def narrow_table(head: Sequence[str], *, title: str, texts: int) -> Table:
    """A table that fits a narrow terminal: only the first ``texts`` columns are wrapped."""
    from rich.table import Table

    table = Table(title=title, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for place, name in enumerate(head):
        table.add_column(name, no_wrap=place >= texts)
    return table


def stacked(cell: str) -> str:
    """A share with its interval below it, so that a table stays narrow.

    >>> stacked("0.900 (.78-.97)")
    '0.900\\n.78-.97'
    """
    return re.sub(r" \(([-.\d]+)\)$", r"\n\1", cell)


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
