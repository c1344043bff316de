"""Certificates read off the stored votes: the paper's method for every alpha and number of samples, and our own."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.methods import METHODS, certify_votes
from flipproof.graphs import Graph
from flipproof.report.figures import Curve
from flipproof.runs.folder import Run, write_text

if TYPE_CHECKING:
    from flipproof.studies.reproduce.experiment import Settings

__all__ = ["Table", "read_certificates", "write_certificates"]

_COLUMNS = (
    "graph",
    "name",
    "nodes",
    "edges",
    "label",
    "method",
    "alpha",
    "samples",
    "predicted",
    "radius",
    "order",
    "p_lower",
)


def write_certificates(
    run: Run, test: Sequence[Graph], settings: Settings, report: Callable[[str, int, int], None]
) -> None:
    """Write ``certificates.csv`` of a run, unless it is there."""
    path = run.folder / "certificates.csv"
    if path.exists():
        return
    readings = [("paper", alpha, count) for alpha in settings.alphas for count in settings.sample_counts]
    readings += [(method, settings.alpha, settings.samples) for method in METHODS if method != "paper"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for index, graph in enumerate(test):
        report("certifying", index, len(test))
        votes = run.load(index)
        for method, alpha, count in readings:
            certificate = certify_votes(votes, alpha=alpha, method=method, samples=count)
            predicted = "" if certificate.label is None else certificate.label
            described = (index, graph.name, graph.num_nodes, graph.num_edges, graph.label, method, alpha, count)
            writer.writerow([*described, predicted, certificate.radius, certificate.order, repr(certificate.p_lower)])
    write_text(path, text.getvalue())


@dataclass(frozen=True, eq=False)
class Table:
    """The radii of one run's test graphs for each (method, alpha, samples); -1 where it abstains or is wrong."""

    radii: dict[tuple[str, float, int], NDArray[np.int64]]
    abstained: dict[tuple[str, float, int], int]

    def curve(self, name: str, method: str, alpha: float, samples: int, max_radius: int) -> Curve:
        """Certified accuracy for r = 0..max_radius."""
        radii = self.radii[method, alpha, samples]
        return Curve(name, tuple(int((radii >= r).sum()) for r in range(max_radius + 1)), len(radii))

    def average_radius(self, method: str, alpha: float, samples: int) -> float:
        """Mean certified radius; wrong or abstained counts 0."""
        return float(np.maximum(self.radii[method, alpha, samples], 0).mean())

    def largest_radius(self, method: str, alpha: float, samples: int) -> int:
        """Largest radius of a graph that is predicted right."""
        return int(self.radii[method, alpha, samples].max())


def read_certificates(path: Path) -> Table:
    """What :func:`write_certificates` wrote."""
    radii: dict[tuple[str, float, int], list[int]] = {}
    abstained: dict[tuple[str, float, int], int] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            key = (row["method"], float(row["alpha"]), int(row["samples"]))
            right = row["predicted"] == row["label"]
            radii.setdefault(key, []).append(int(row["radius"]) if right else -1)
            abstained[key] = abstained.get(key, 0) + (row["predicted"] == "")
    return Table({key: np.array(values) for key, values in radii.items()}, abstained)
