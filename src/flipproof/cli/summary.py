"""What a run's certificates say in a few numbers, on the terminal."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flipproof.certificates.certificate import NODE_CHANGES
from flipproof.certificates.metrics import mean_radius, only_class, right_radii, share_interval, shares, short_interval
from flipproof.graphs import IntArray
from flipproof.report.wording import LINE, title
from flipproof.runs.certifying import Line
from flipproof.runs.run_folder import CertifySettings
from flipproof.runs.table import Row, columns_of

if TYPE_CHECKING:
    from rich.table import Table

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
        settings: Those of the run.
        line: What to compare with: answers of a network that ignores edges, and the class that is most frequent in training.
    """
    line = line or Line()
    nodes = settings.question.get("nodes")
    attackers = _attackers(nodes)
    columns = columns_of(rows, "predicted", "label", "method", "alpha", "samples", *attackers)
    predicted, labels, samples = columns["predicted"], columns["label"], columns["samples"]
    radii = {attackers[column][0]: right_radii(columns[column], predicted, labels) for column in attackers}
    only, names = only_class(predicted, labels), settings.class_names
    summary = {
        "data": settings.data,
        "model": settings.model,
        "part": settings.part,
        "graphs": len(rows),
        "defence": settings.defence,
        "defended_by": title(settings.defence),
        "method": columns["method"][0],
        "alpha": columns["alpha"][0],
        "simultaneous": bool(settings.question.get("simultaneous")),
        "samples": samples[0],
        "only_class": None if only is None else names[only] if only < len(names) else f"class {only}",
        "abstained": sum(label is None for label in predicted),
        "average_certified_radius": mean_radius(radii["certified_accuracy"]),
        **({} if nodes is None else {"node_changes": nodes}),
        **{key: dict(zip(map(str, RADII), shares(radii[key], RADII).tolist(), strict=True)) for key in radii},
        "intervals": {key: _intervals(radii[key]) for key in radii},
        "edge_blind": settings.defence_class.edge_blind,
        "edge_blind_missing": line.missing or None,
    }
    for key, right in (("edge_blind", line.right(rows)), ("majority", line.majority_right(rows))):
        summary[f"{key}_accuracy"] = None if right is None else right / len(rows)
        summary[f"{key}_interval"] = None if right is None else _ends([right], len(rows))[0]
    return summary


def _attackers(nodes: int | None) -> dict[str, tuple[str, str]]:
    """As :data:`_ATTACKERS`, with those who also change this number of nodes."""
    if nodes is None:
        return _ATTACKERS
    number = f"{nodes} node{'s' * (nodes != 1)}"
    return _ATTACKERS | {
        f"{change}_nodes_radius": (f"certified_accuracy_{change}_nodes", f"{number} {change}")
        for change in NODE_CHANGES
    }


def _ends(right: Sequence[int], graphs: int) -> list[list[float]]:
    """The ends of the exact 95% intervals of shares."""
    return np.round(np.transpose(share_interval(right, graphs)), 6).tolist()  # type: ignore[no-any-return]


def _intervals(radii: IntArray) -> dict[str, list[float]]:
    """Of the certified accuracy at each radius the ends of its interval."""
    ends = _ends([int((radii >= r).sum()) for r in RADII], len(radii))
    return dict(zip(map(str, RADII), ends, strict=True))


def shown_summary(summary: dict[str, Any]) -> Iterator[Any]:
    """The summary as sentences and a table."""
    from rich.table import Table

    yield _comparison(summary)
    if summary["only_class"] is not None:
        yield f"every answer is {summary['only_class']}: {_COLLAPSED}"
    part = "" if summary["part"] == "all" else f"{summary['part']} "
    title = f"{summary['model']} on {summary['data']}: certified accuracy of {summary['graphs']} {part}graphs"
    table = Table("attacker", *(f"r = {r}" for r in RADII), title=title)
    for key, attacker in _attackers(summary.get("node_changes")).values():
        add_shares(table, attacker, summary[key].values(), summary["intervals"][key].values())
    if summary["edge_blind_accuracy"] is not None:
        table.add_section()
        line = ([summary[f"edge_blind_{key}"]] * len(RADII) for key in ("accuracy", "interval"))
        add_shares(table, LINE, *line)
    yield table
    yield (
        f"defence {summary['defended_by']}, method {summary['method']}, {_certainty(summary)}; "
        f"average certified radius {summary['average_certified_radius']:.2f}, abstained on {summary['abstained']}"
    )
    yield f"written: {summary['run']}"
    yield f"next: flipproof report {shlex.quote(summary['run'])}"


def _comparison(summary: dict[str, Any]) -> str:
    """How the result compares with a network that ignores edges; the first thing to know about it."""
    blind, majority = summary["edge_blind_accuracy"], summary["majority_accuracy"]
    certified = summary["certified_accuracy"]
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
    return f"certified accuracy is {f'above it up to r = {max(above)}' if above else 'nowhere above it'}"


def _certainty(summary: dict[str, Any]) -> str:
    """How sure the certificates are, in words."""
    if not summary["alpha"]:
        return "with certainty"
    alpha = f"alpha {summary['alpha']:g}"
    if summary["simultaneous"]:
        alpha = f"alpha {summary['alpha'] * summary['graphs']:g} for all graphs at once ({summary['alpha']:g} each)"
    return f"{summary['samples']:,} samples, {alpha}"


# ---- tables ------------------------------------------------------------------------------------------------------------


def add_shares(table: Table, name: str, values: Any, intervals: Any) -> None:
    """A row of shares, and their 95% intervals below."""
    table.add_row(name, *(f"{value:.3f}" for value in values))
    table.add_row("  95% interval", *map(short_interval, intervals), style="dim")


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
