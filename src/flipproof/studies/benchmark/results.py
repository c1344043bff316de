"""From stored jobs to certified accuracy with mean and standard deviation over splits."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.runs.folder import write_json, write_text
from flipproof.studies.benchmark.defences import Defence
from flipproof.studies.benchmark.jobs import Job, read_job

__all__ = ["ATTACKERS", "RADII", "DataResults", "Series", "SplitResult", "Statistic", "collect", "write_results"]

RADII = (0, 1, 2, 3, 5, 10)
ATTACKERS = {"radius": "any flips", "adds_radius": "additions only", "removes_radius": "removals only"}
MAX_RADIUS = 64


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

    def __str__(self) -> str:
        return f"{self.mean:.3f}" + ("" if self.deviation is None else f" ± {self.deviation:.3f}")


@dataclass(frozen=True, eq=False)
class SplitResult:
    """One model's certificates on one split.

    Attributes:
        split: Its seed.
        radii: For each attacker, the radius of every certified graph; -1 where the answer is wrong or withheld.
        withstood: For each graph and each (additions, removals) budget, whether the right answer stands.
        abstained: Graphs without an answer.
        seconds: Computing time of ``train``, and of ``sample`` and ``certify`` for all graphs.
    """

    split: int
    radii: dict[str, NDArray[np.int64]]
    withstood: NDArray[np.bool_]
    abstained: int
    seconds: dict[str, float]

    @property
    def graphs(self) -> int:
        """Certified graphs."""
        return len(self.radii["radius"])


@dataclass(frozen=True, eq=False)
class Series:
    """A network with a defence, read by one certificate, over all splits."""

    network: str
    defence: Defence
    method: str
    splits: tuple[SplitResult, ...]

    @property
    def name(self) -> str:
        """For legends."""
        return f"{self.network} {self.defence.name}"

    def accuracy(self, radius: int, attacker: str = "radius") -> Statistic:
        """Certified accuracy: graphs that are right, with at least this radius."""
        return Statistic(tuple(float(np.mean(part.radii[attacker] >= radius)) for part in self.splits))

    def withstood(self, budget: int) -> Statistic:
        """Share of graphs that are right and withstand the budget of this number."""
        return Statistic(tuple(float(np.mean(part.withstood[:, budget])) for part in self.splits))

    def average_radius(self) -> Statistic:
        """Mean certified radius; wrong or abstained counts 0."""
        return Statistic(tuple(float(np.maximum(part.radii["radius"], 0).mean()) for part in self.splits))

    def abstained(self) -> Statistic:
        """Share of graphs without an answer."""
        return Statistic(tuple(part.abstained / part.graphs for part in self.splits))

    def seconds(self, what: str, *, each: bool) -> Statistic:
        """Time taken, in all or a graph."""
        return Statistic(tuple(part.seconds[what] / (part.graphs if each else 1) for part in self.splits))


@dataclass(frozen=True, eq=False)
class DataResults:
    """Everything measured on one data set."""

    name: str
    train_graphs: int
    budgets: tuple[tuple[int, int], ...]
    series: tuple[Series, ...]

    @property
    def edge_blind(self) -> Series:
        """The line to beat."""
        return next(series for series in self.series if series.method == "edge-blind")

    @property
    def clean(self) -> list[Series]:
        """The networks without a defence."""
        return [series for series in self.series if series.method == "none"]

    @property
    def method(self) -> str:
        """The certificate that tables and figures show: the first that was asked for."""
        return next((series.method for series in self.readings if series.defence.sampled), "voting")

    @property
    def readings(self) -> list[Series]:
        """The networks with a defence, read by every certificate."""
        return [series for series in self.series if not series.defence.line]

    @property
    def defended(self) -> list[Series]:
        """The networks with a defence; of several certificates from the same votes only the first."""
        return [series for series in self.readings if series.method in (self.method, "voting")]

    def best(self, radius: int) -> Series:
        """The defence with the highest certified accuracy at a radius; of equals the one with the larger average radius."""
        return max(self.defended, key=lambda series: (series.accuracy(radius).mean, series.average_radius().mean))

    def crossing(self) -> int:
        """Smallest radius at which the best defence is not above the edge-blind line."""
        floor = self.edge_blind.accuracy(0).mean
        return next(r for r in range(MAX_RADIUS + 1) if r == MAX_RADIUS or self.best(r).accuracy(r).mean <= floor)


def collect(jobs: Sequence[Job], folder: Path) -> list[DataResults]:
    """The results of finished jobs, data sets in their order."""
    found: dict[str, dict[tuple[str, Defence, str], list[SplitResult]]] = {}
    facts: dict[str, tuple[int, tuple[tuple[int, int], ...]]] = {}
    for job in jobs:
        content = read_job(job, folder)
        assert content is not None
        budgets = tuple((int(adds), int(removes)) for adds, removes in content["asked"]["budgets"])
        facts.setdefault(job.data, (int(content["train_graphs"]), budgets))
        for method, columns in content["certificates"].items():
            part = _split_result(job.split, content, columns)
            found.setdefault(job.data, {}).setdefault((job.network, job.defence, method), []).append(part)
    return [
        DataResults(name, *facts[name], tuple(Series(*key, tuple(parts)) for key, parts in groups.items()))
        for name, groups in found.items()
    ]


def _split_result(seed: int, content: dict[str, Any], columns: dict[str, Any]) -> SplitResult:
    labels = content["labels"]
    right = np.array([given == label for given, label in zip(columns["predicted"], labels, strict=True)])
    return SplitResult(
        seed,
        {attacker: np.where(right, np.array(columns[attacker]), -1) for attacker in ATTACKERS},
        np.array(columns["withstands"], dtype=np.bool_).reshape(len(labels), -1) & right[:, None],
        sum(given is None for given in columns["predicted"]),
        content["seconds"],
    )


def write_results(results: Sequence[DataResults], folder: Path) -> list[Path]:
    """``results.csv`` (a row a split), ``results.json`` (means and deviations) and ``times.csv``; returns their paths.

    Times stand in a file of their own, so that the same benchmark gives the same results byte for byte.
    """
    paths = [folder / name for name in ("results.csv", "results.json", "times.csv")]
    columns = [f"{key}_{r}" for key in ("certified", "certified_additions", "certified_removals") for r in RADII]
    head = ["data", "model", "defence", "certificate", "split"]
    rows: list[list[Any]] = [[*head, "graphs", "abstained", "average_certified_radius", *columns]]
    times: list[list[Any]] = [[*head, "train_seconds", "sample_seconds_a_graph", "certify_seconds_a_graph"]]
    for name, series in [(data.name, series) for data in results for series in data.series]:
        for place, part in enumerate(series.splits):
            described = [name, series.network, series.defence.name, series.method, part.split]
            shares = [series.accuracy(r, attacker).values[place] for attacker in ATTACKERS for r in RADII]
            average = series.average_radius().values[place]
            rows.append([*described, part.graphs, part.abstained, *(f"{value:.6f}" for value in (average, *shares))])
            cost = [part.seconds["train"], part.seconds["sample"] / part.graphs, part.seconds["certify"] / part.graphs]
            times.append([*described, *(f"{value:.4f}" for value in cost)])
    for path, table in ((paths[0], rows), (paths[2], times)):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(table)
        write_text(path, text.getvalue())
    write_json(paths[1], [_summary(data) for data in results])
    return paths


def _summary(data: DataResults) -> dict[str, Any]:
    """One data set as plain JSON."""
    return {
        "data": data.name,
        "train_graphs": data.train_graphs,
        "edge_blind_accuracy": _numbers(data.edge_blind.accuracy(0)),
        "not_above_edge_blind_from_radius": data.crossing(),
        "results": [
            {
                "model": series.network,
                "defence": series.defence.name,
                "certificate": series.method,
                "splits": [part.split for part in series.splits],
                "graphs": [part.graphs for part in series.splits],
                "average_certified_radius": _numbers(series.average_radius()),
                "abstained": _numbers(series.abstained()),
                "certified_accuracy": {
                    words: {str(r): _numbers(series.accuracy(r, attacker)) for r in RADII}
                    for attacker, words in ATTACKERS.items()
                },
                "withstood": {
                    f"{adds} additions, {removes} removals": _numbers(series.withstood(place))
                    for place, (adds, removes) in enumerate(data.budgets)
                },
            }
            for series in data.series
        ],
    }


def _numbers(statistic: Statistic) -> dict[str, float | None]:
    deviation = statistic.deviation
    return {"mean": round(statistic.mean, 6), "deviation": None if deviation is None else round(deviation, 6)}
