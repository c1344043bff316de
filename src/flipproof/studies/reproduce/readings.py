"""Certificates read off the stored votes: the paper's method for every alpha and number of samples, and our own."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flipproof.certificates.metrics import right_radii, shares
from flipproof.certificates.sampled_votes import Votes, certify_votes
from flipproof.engines import Engine
from flipproof.files import write_text
from flipproof.graphs import IntArray
from flipproof.progress import progress
from flipproof.report.study_figures import NetworksCurve
from flipproof.runs.certifying import read_evidence
from flipproof.runs.run_folder import Run
from flipproof.runs.settings import CertifySettings

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
    """The radii of the test graphs under each network of a kind, ``[networks, graphs]``; -1 where it abstains or is wrong."""

    radii: dict[Reading, IntArray]

    def curve(self, name: str, reading: Reading, top: int) -> NetworksCurve:
        """Certified accuracy for r = 0..top."""
        radii = self.radii[reading]
        return NetworksCurve(name, np.stack([shares(row, range(top + 1)) for row in radii]), radii.shape[1])


def read_certificates(paths: Sequence[Path]) -> Table:
    """What :func:`write_certificates` wrote for the networks of a kind."""
    radii: dict[Reading, list[IntArray]] = {}
    for path in paths:
        rows: dict[Reading, list[dict[str, str]]] = {}
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                reading = Reading(row["method"], float(row["alpha"]), int(row["samples"]))
                rows.setdefault(reading, []).append(row)
        for reading, graphs in rows.items():
            answers = [int(row["predicted"]) if row["predicted"] else None for row in graphs]
            labels = [int(row["label"]) for row in graphs]
            right = right_radii([int(row["radius"]) for row in graphs], answers, labels)
            radii.setdefault(reading, []).append(right)
    return Table({reading: np.stack(networks) for reading, networks in radii.items()})
