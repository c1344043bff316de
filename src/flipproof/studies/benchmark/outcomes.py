"""From finished jobs to certified accuracy with mean and standard deviation over splits."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flipproof.certificates.metrics import Curve, mean_radius, right_radii, shares
from flipproof.files import write_json, write_text
from flipproof.graphs import IntArray
from flipproof.studies.benchmark.jobs import Job
from flipproof.studies.candidate import Candidate

__all__ = [
    "ATTACKERS",
    "RADII",
    "DataOutcome",
    "Series",
    "SplitOutcome",
    "Statistic",
    "collect",
    "shown_radius",
    "write_outcomes",
]

RADII = (0, 1, 2, 3, 5, 10)
ATTACKERS = {"radius": "any flips", "adds_radius": "additions only", "removes_radius": "removals only"}
MAX_RADIUS = 64
_FEWEST_RADII, _MOST_RADII = 4, 16  # that a figure shows beside 0


@dataclass(frozen=True)
class Statistic:
    """A figure measured on several splits."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over splits."""
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float | None:
        """Standard deviation over splits; ``None`` for a single one."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    def to_dict(self) -> dict[str, float | None]:
        """Plain JSON."""
        deviation = self.deviation
        return {"mean": round(self.mean, 6), "deviation": None if deviation is None else round(deviation, 6)}

    def __str__(self) -> str:
        return f"{self.mean:.3f}" + ("" if self.deviation is None else f" ± {self.deviation:.3f}")


@dataclass(frozen=True, eq=False)
class SplitOutcome:
    """One model's certificates on one split.

    Attributes:
        split: Seed of the split.
        radii: For each attacker, the radius of every certified graph; -1 where the answer is wrong or withheld.
        withstood: For each (additions, removals) budget, 0 for every graph whose right answer stands, otherwise -1.
        abstained: Graphs without an answer.
        collapsed: Whether every answer is the same class.
        seconds: Computing time of ``train``, and of ``sample`` and ``certify`` for all graphs.
    """

    split: int
    radii: dict[str, IntArray]
    withstood: list[IntArray]
    abstained: int
    collapsed: bool
    seconds: dict[str, float]

    @property
    def graphs(self) -> int:
        """Certified graphs."""
        return len(self.radii["radius"])


@dataclass(frozen=True, eq=False)
class Series:
    """A network with a defence, read by one certificate, over all splits; ``first`` if it is the certificate asked for."""

    network: str
    candidate: Candidate
    method: str
    first: bool
    splits: tuple[SplitOutcome, ...]

    @property
    def name(self) -> str:
        """For legends."""
        return f"{self.network} {self.candidate.title}"

    @property
    def collapsed(self) -> bool:
        """Whether on every split the model names one class only."""
        return all(part.collapsed for part in self.splits)

    def accuracy(self, radius: int, attacker: str = "radius") -> Statistic:
        """Certified accuracy: the share of graphs that are right with at least this radius."""
        return Statistic(tuple(float(shares(part.radii[attacker], [radius])[0]) for part in self.splits))

    def withstood(self, budget: int) -> Statistic:
        """Share of graphs that are right and withstand the budget of this number."""
        return Statistic(tuple(float(shares(part.withstood[budget], [0])[0]) for part in self.splits))

    def average_radius(self) -> Statistic:
        """Average certified radius."""
        return Statistic(tuple(mean_radius(part.radii["radius"]) for part in self.splits))

    def abstained(self) -> Statistic:
        """Share of graphs without an answer."""
        return Statistic(tuple(part.abstained / part.graphs for part in self.splits))

    def seconds(self, what: str, *, each: bool) -> Statistic:
        """Time taken, in all or per graph."""
        return Statistic(tuple(part.seconds[what] / (part.graphs if each else 1) for part in self.splits))

    def curve(self, name: str, top: int) -> Curve:
        """Certified accuracy on the graphs of all splits together, up to a radius."""
        return Curve.of(name, np.concatenate([part.radii["radius"] for part in self.splits]), top)


@dataclass(frozen=True, eq=False)
class DataOutcome:
    """Everything measured on one data set."""

    name: str
    train_graphs: int
    budgets: tuple[tuple[int, int], ...]
    majority: Statistic
    series: tuple[Series, ...]

    @property
    def title(self) -> str:
        """For headings and figures."""
        return Path(self.name).name

    @property
    def edge_blind(self) -> Series:
        """The line to beat."""
        return next(series for series in self.series if series.candidate.defence.edge_blind)

    @property
    def clean(self) -> list[Series]:
        """The networks without a defence."""
        return [series for series in self.series if _is_line(series) and not series.candidate.defence.edge_blind]

    @property
    def readings(self) -> list[Series]:
        """The networks with a defence, read by every certificate."""
        return [series for series in self.series if not _is_line(series)]

    @property
    def defended(self) -> list[Series]:
        """The networks with a defence; of several certificates from the same evidence only the one asked for."""
        return [series for series in self.readings if series.first]

    @property
    def methods(self) -> str:
        """The certificates that tables and figures show."""
        return ", ".join(dict.fromkeys(series.method for series in self.defended))

    def best(self, radius: int) -> Series:
        """The defence with the highest certified accuracy at a radius; a tie goes to the larger average radius."""
        return max(self.defended, key=lambda series: (series.accuracy(radius).mean, series.average_radius().mean))

    def crossing(self) -> int:
        """Smallest radius at which the best defence is not above the edge-blind line."""
        floor = self.edge_blind.accuracy(0).mean
        return next(r for r in range(MAX_RADIUS + 1) if r == MAX_RADIUS or self.best(r).accuracy(r).mean <= floor)


def _is_line(series: Series) -> bool:
    return series.candidate.defence.baseline


def shown_radius(series: Sequence[Series]) -> int:
    """The largest radius worth showing: one beyond the last that is certified."""
    largest = max(int(part.radii["radius"].max()) for member in series for part in member.splits)
    return min(max(largest + 1, _FEWEST_RADII), _MOST_RADII)


def collect(finished: Mapping[Job, Mapping[str, Any]]) -> list[DataOutcome]:
    """What finished jobs amount to, data sets in their order."""
    found: dict[str, dict[tuple[str, Candidate, str, bool], list[SplitOutcome]]] = {}
    facts: dict[str, tuple[int, tuple[tuple[int, int], ...]]] = {}
    majorities: dict[str, dict[int, float]] = {}
    for job, content in finished.items():
        budgets = tuple((int(adds), int(removes)) for adds, removes in content["asked"]["budgets"])
        facts.setdefault(job.data, (int(content["train_graphs"]), budgets))
        majorities.setdefault(job.data, {})[job.split] = float(content["majority"])
        for place, (method, columns) in enumerate(content["certificates"].items()):
            key = (job.network, job.candidate, method, place == 0)
            part = _split_outcome(job.split, content, columns)
            found.setdefault(job.data, {}).setdefault(key, []).append(part)
    return [
        DataOutcome(
            name,
            *facts[name],
            Statistic(tuple(majorities[name].values())),
            tuple(Series(*key, tuple(parts)) for key, parts in groups.items()),
        )
        for name, groups in found.items()
    ]


def _split_outcome(seed: int, content: Mapping[str, Any], columns: Mapping[str, Any]) -> SplitOutcome:
    predicted, labels = columns["predicted"], content["labels"]
    radii = {attacker: right_radii(columns[attacker], predicted, labels) for attacker in ATTACKERS}
    withstood = [
        right_radii(np.where(column, 0, -1), predicted, labels) for column in zip(*columns["withstands"], strict=True)
    ]
    given = [answer for answer in predicted if answer is not None]
    collapsed = len(set(given)) <= 1 < len(set(labels))
    return SplitOutcome(seed, radii, withstood, len(predicted) - len(given), collapsed, content["seconds"])


def write_outcomes(outcomes: Sequence[DataOutcome], folder: Path) -> list[Path]:
    """``results.csv`` (a row per split), ``results.json`` (means and deviations) and ``times.csv``; returns their paths.

    Times stand in a file of their own, so that the same benchmark gives the same results byte for byte.
    """
    paths = [folder / name for name in ("results.csv", "results.json", "times.csv")]
    columns = [f"{key}_{r}" for key in ("certified", "certified_additions", "certified_removals") for r in RADII]
    head = ["data", "model", "defence", "certificate", "split"]
    rows: list[list[Any]] = [[*head, "graphs", "abstained", "average_certified_radius", *columns]]
    times: list[list[Any]] = [[*head, "train_seconds", "sample_seconds_a_graph", "certify_seconds_a_graph"]]
    for name, series in [(data.name, series) for data in outcomes for series in data.series]:
        for place, part in enumerate(series.splits):
            described = [name, series.network, series.candidate.title, series.method, part.split]
            certified = [series.accuracy(r, attacker).values[place] for attacker in ATTACKERS for r in RADII]
            average = series.average_radius().values[place]
            rows.append([*described, part.graphs, part.abstained, *(f"{value:.6f}" for value in (average, *certified))])
            cost = [part.seconds["train"], part.seconds["sample"] / part.graphs, part.seconds["certify"] / part.graphs]
            times.append([*described, *(f"{value:.4f}" for value in cost)])
    for path, table in ((paths[0], rows), (paths[2], times)):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(table)
        write_text(path, text.getvalue())
    write_json(paths[1], [_summary(data) for data in outcomes])
    return paths


def _summary(data: DataOutcome) -> dict[str, Any]:
    """One data set as plain JSON."""
    return {
        "data": data.name,
        "train_graphs": data.train_graphs,
        "majority_class_accuracy": data.majority.to_dict(),
        "edge_blind_accuracy": data.edge_blind.accuracy(0).to_dict(),
        "not_above_edge_blind_from_radius": data.crossing(),
        "results": [
            {
                "model": series.network,
                "defence": series.candidate.title,
                "certificate": series.method,
                "splits": [part.split for part in series.splits],
                "graphs": [part.graphs for part in series.splits],
                "average_certified_radius": series.average_radius().to_dict(),
                "abstained": series.abstained().to_dict(),
                "certified_accuracy": {
                    words: {str(r): series.accuracy(r, attacker).to_dict() for r in RADII}
                    for attacker, words in ATTACKERS.items()
                },
                "withstood": {
                    f"{adds} additions, {removes} removals": series.withstood(place).to_dict()
                    for place, (adds, removes) in enumerate(data.budgets)
                },
            }
            for series in data.series
        ],
    }
