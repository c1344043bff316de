"""Certificates read off the stored votes: the paper's method for every alpha and number of samples, and our own."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from flipproof.certificates.metrics import Curve, mean_radius, right_radii
from flipproof.certificates.sampled_votes import Votes, certify_votes
from flipproof.engines import Engine
from flipproof.files import write_text
from flipproof.graphs import IntArray
from flipproof.progress import progress
from flipproof.runs.certifying import read_evidence
from flipproof.runs.run_folder import Run
from flipproof.runs.settings import CertifySettings

__all__ = ["CERTIFICATES", "Reading", "Table", "read_certificates", "write_certificates"]

CERTIFICATES = "certificates.csv"
_GRAPH, _READING = ("graph", "name", "nodes", "edges", "label"), ("method", "alpha", "samples")
_COLUMNS = (*_GRAPH, *_READING, "predicted", "radius", "order", "p_lower")


class Reading(NamedTuple):
    """How votes are read."""

    method: str
    alpha: float
    samples: int


@dataclass(frozen=True)
class _RowsWork:
    """All rows of a graph, from its votes."""

    readings: Sequence[Reading]

    def __call__(self, task: tuple[int, Any]) -> list[list[Any]]:
        index, votes = task
        assert isinstance(votes, Votes)
        graph, rows = votes.graph, []
        for method, alpha, count in self.readings:
            found = certify_votes(votes, alpha=alpha, method=method, samples=count)
            described = (index, graph.name, graph.num_nodes, graph.num_edges, graph.label, method, alpha, count)
            answer = ["" if found.label is None else found.label, found.radius, found.order, repr(found.p_lower)]
            rows.append([*described, *answer])
        return rows


def write_certificates(run: Run[CertifySettings], readings: Sequence[Reading], *, engine: Engine, quiet: bool) -> bool:
    """Write ``certificates.csv`` of a run; ``False`` if it is there already."""
    path = run.folder / CERTIFICATES
    if path.exists():
        return False
    found: dict[int, list[list[Any]]] = {}
    with progress("certifying", len(run.settings.graphs), unit="graphs", quiet=quiet) as advance:
        for (index, _), rows in engine.run(_RowsWork(readings), read_evidence(run)):
            found[index] = rows
            advance(1)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(row for index in sorted(found) for row in found[index])
    write_text(path, text.getvalue())
    return True


@dataclass(frozen=True, eq=False)
class Table:
    """The radii of one run's test graphs for each reading; -1 where it abstains or is wrong."""

    radii: dict[tuple[str, float, int], IntArray]

    def curve(self, name: str, method: str, alpha: float, samples: int, max_radius: int) -> Curve:
        """Certified accuracy for r = 0..max_radius."""
        return Curve.of(name, self.radii[method, alpha, samples], max_radius)

    def average_radius(self, method: str, alpha: float, samples: int) -> float:
        """Average certified radius."""
        return mean_radius(self.radii[method, alpha, samples])

    def largest_radius(self, method: str, alpha: float, samples: int) -> int:
        """Largest radius of a graph that is predicted correctly."""
        return int(self.radii[method, alpha, samples].max())


def read_certificates(path: Path) -> Table:
    """What :func:`write_certificates` wrote."""
    rows: dict[tuple[str, float, int], list[dict[str, str]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            rows.setdefault((row["method"], float(row["alpha"]), int(row["samples"])), []).append(row)
    return Table(
        {
            key: right_radii(
                [int(row["radius"]) for row in found],
                [int(row["predicted"]) if row["predicted"] else None for row in found],
                [int(row["label"]) for row in found],
            )
            for key, found in rows.items()
        }
    )
