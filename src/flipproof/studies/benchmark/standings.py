"""From finished jobs to tables: certified accuracy with intervals over folds, paired tests against the best, and their files."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from flipproof.certificates.metrics import (
    CONFIDENCE,
    Curve,
    mean_radius,
    mean_radius_interval,
    only_class,
    right_radii,
    share_interval,
    shares,
    short_interval,
)
from flipproof.certificates.paired_tests import PairedTest, compare_radii, holm
from flipproof.files import write_json, write_text
from flipproof.graphs import IntArray
from flipproof.studies.benchmark.protocol_file import Protocol, Row
from flipproof.studies.benchmark.row_jobs import ATTACKERS, LIMIT, RADII, Job

__all__ = ["DataStandings", "Measured", "RowStanding", "standings", "write_standings"]


@dataclass(frozen=True)
class Measured:
    """A figure measured on several folds.

    Attributes:
        values: Fold by fold.
        graphs: Of a share on a single fold, the number of its test graphs.
    """

    values: tuple[float, ...]
    graphs: int = 0

    @property
    def mean(self) -> float:
        """Over folds."""
        return float(np.mean(self.values))

    @property
    def interval(self) -> tuple[float, float] | None:
        """Student's 95% interval of the mean over folds; ``None`` for a single fold.

        It says how far another ten folds of such graphs may lead. Folds share training graphs, so it is somewhat too short.
        """
        count = len(self.values)
        if count < 2:
            return None
        half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, count - 1) * np.std(self.values, ddof=1) / np.sqrt(count))
        return self.mean - half, self.mean + half

    @property
    def exact(self) -> tuple[float, float] | None:
        """Of a share on a single fold the exact 95% interval over its test graphs; ``None`` otherwise."""
        if len(self.values) != 1 or not self.graphs:
            return None
        low, high = share_interval([round(self.values[0] * self.graphs)], self.graphs)
        return float(low[0]), float(high[0])

    @property
    def half(self) -> float | None:
        """Half the length of the interval."""
        found = self.interval
        return None if found is None else (found[1] - found[0]) / 2

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        found = self.interval or self.exact
        return {"mean": round(self.mean, 6), "interval": None if found is None else [round(end, 6) for end in found]}

    def __str__(self) -> str:
        if self.exact is not None:
            return f"{self.mean:.3f} ({short_interval(self.exact)})"
        return f"{self.mean:.3f}" + ("" if self.half is None else f" ± {self.half:.3f}")


@dataclass(frozen=True, eq=False)
class RowStanding:
    """A method on one data set, over its finished folds.

    Attributes:
        name: Of the row.
        reads: The row whose evidence it reads, where it is another certificate from the same evidence.
        edge_blind: Whether no attack on edges can change its answers.
        folds: Numbers of the folds.
        radii: By attacker, for each fold the right radii of its test graphs, in their order.
        facts: For each fold what else its job recorded.
    """

    name: str
    reads: str | None
    edge_blind: bool
    folds: tuple[int, ...]
    radii: Mapping[str, tuple[IntArray, ...]]
    facts: tuple[Mapping[str, Any], ...]

    @property
    def collapsed(self) -> bool:
        """Whether it gave all graphs of a fold one class, in every fold: it tells no classes apart."""
        return all(
            only_class(facts["rows"][self.name]["predicted"], facts["labels"]) is not None for facts in self.facts
        )

    def accuracy(self, radius: int, attacker: str = "radius") -> Measured:
        """Certified accuracy: the share of test graphs that are right with at least this radius."""
        found = self.radii[attacker]
        return Measured(tuple(float(shares(one, [radius])[0]) for one in found), len(found[0]))

    def average_radius(self) -> Measured:
        """Average certified radius."""
        return Measured(tuple(mean_radius(found) for found in self.radii["radius"]))

    def under_attack(self) -> Measured | None:
        """Share of the attacked graphs that are right after the strongest attack that was found."""
        found = [facts["attacked"] for facts in self.facts]
        if not all(each["graphs"] for each in found):
            return None
        left = tuple(float(np.mean([size is None for size in each["flips"]])) for each in found)
        return Measured(left, len(found[0]["flips"]))

    def calls(self) -> Measured:
        """Model calls per graph."""
        return Measured(tuple(float(facts["calls"]) for facts in self.facts))

    def seconds(self, *parts: str) -> Measured:
        """Computing time, in all for ``search`` and ``train``, per graph for ``ask`` and ``read``."""
        return Measured(
            tuple(
                sum(facts["seconds"][part] / (len(facts["graphs"]) if part in ("ask", "read") else 1) for part in parts)
                for facts in self.facts
            )
        )

    def chosen(self) -> list[str]:
        """The settings that validation graphs chose, fold by fold."""
        return [" ".join(f"{key} {_short(value)}" for key, value in facts["chosen"].items()) for facts in self.facts]

    def curve(self, top: int) -> Curve:
        """Certified accuracy on the test graphs of all folds together, up to a radius."""
        return Curve.of(self.name, np.concatenate(self.radii["radius"]), top)


@dataclass(frozen=True, eq=False)
class DataStandings:
    """Everything measured on one data set."""

    name: str
    title: str
    graphs: int
    majority: Measured
    rows: tuple[RowStanding, ...]
    limit: tuple[float, ...] | None
    budget: int

    @property
    def collapsed(self) -> str:
        """Which methods tell no classes apart, in a sentence; nothing if none does."""
        names = [row.name for row in self.rows if row.collapsed]
        if not names:
            return ""
        return f"Names one class only, whatever the graph, so that nothing follows for its defence: {', '.join(names)}."

    def best(self, radius: int) -> RowStanding:
        """The row with the highest mean at a radius; of equals the one with the larger average radius."""
        return max(self.rows, key=lambda row: (row.accuracy(radius).mean, row.average_radius().mean))

    @property
    def line(self) -> RowStanding:
        """The edge-blind line."""
        return next(row for row in self.rows if row.edge_blind)

    def tests(self) -> list[PairedTest]:
        """The best row at each radius against every other one that has the same folds.

        Which row is the best is read off the same graphs. The correction therefore covers the tests of every two rows at every
        radius: it holds whichever of them are looked at.
        """
        shown: list[PairedTest] = []
        values: list[float] = []
        for radius in RADII:
            best = self.best(radius)
            rivals = [row for row in self.rows if row is not best and row.folds == best.folds]
            for place, row in enumerate([best, *rivals]):
                pairs = {one.name: np.concatenate(one.radii["radius"]) for one in (row, *rivals[place:])}
                found = compare_radii(pairs, [radius])
                shown += found if row is best else []
                values += [test.p_value for test in found]
        adjusted = dict(zip(values, holm(values).tolist(), strict=True))  # equal values stay equal
        return [replace(test, adjusted=adjusted[test.p_value], comparisons=len(values)) for test in shown]


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def standings(protocols: Sequence[Protocol], finished: Mapping[Job, Mapping[str, Any]]) -> list[DataStandings]:
    """What finished jobs amount to; data sets without any are left out."""
    found = []
    for protocol in protocols:
        own = {job: content for job, content in finished.items() if job.data == protocol.name}
        rows = []
        for row in protocol.rows:
            jobs = sorted((job for job in own if job.row == row.name), key=lambda job: job.fold)
            names = (row.name, *row.readings.values()) if jobs else ()
            rows += [_standing(name, row, jobs, own) for name in names]
        if not any(row.edge_blind for row in rows):
            continue
        limit = next((content for job, content in own.items() if job.row == LIMIT), None)
        line = next(row for row in rows if row.edge_blind)
        found.append(
            DataStandings(
                protocol.name,
                protocol.title,
                sum(len(facts["graphs"]) for facts in line.facts),
                Measured(tuple(float(facts["majority"]) for facts in line.facts), len(line.facts[0]["graphs"])),
                tuple(rows),
                None if limit is None else tuple(most / limit["graphs"] for most in limit["most"]),
                protocol.attack_budget,
            )
        )
    return found


def _standing(name: str, row: Row, jobs: Sequence[Job], contents: Mapping[Job, Mapping[str, Any]]) -> RowStanding:
    facts = tuple(contents[job] for job in jobs)
    radii = {
        attacker: tuple(
            right_radii(content["rows"][name][attacker], content["rows"][name]["predicted"], content["labels"])
            for content in facts
        )
        for attacker in ATTACKERS
    }
    reads = None if name == row.name else row.name
    return RowStanding(name, reads, row.defence.edge_blind, tuple(job.fold for job in jobs), radii, facts)


def write_standings(found: Sequence[DataStandings], folder: Path) -> list[Path]:
    """``results.csv`` (long format), ``results.json`` (means, intervals, tests) and ``times.csv``; returns their paths.

    Times stand in a file of their own, so that the same benchmark gives the same results byte for byte.
    """
    paths = [folder / name for name in ("results.csv", "results.json", "times.csv")]
    rows: list[list[Any]] = [["data", "method", "fold", "graphs", "attacker", "radius", "certified_accuracy"]]
    rows[0] += ["low95", "high95"]
    times: list[list[Any]] = [["data", "method", "fold", "measure", "value"]]
    for data in found:
        for row in data.rows:
            for place, number in enumerate(row.folds):
                facts = row.facts[place]
                head = [data.name, row.name, number]
                for attacker, words in ATTACKERS.items():
                    values = [row.accuracy(r, attacker).values[place] for r in RADII]
                    graphs = len(facts["graphs"])
                    rows += [
                        [*head, graphs, words, r, *_with_ends(v, graphs)] for r, v in zip(RADII, values, strict=True)
                    ]
                average = row.average_radius().values[place]
                ends = mean_radius_interval(row.radii["radius"][place]) or ()
                shown = [*(f"{value:.6f}" for value in (average, *ends)), "", ""][:3]
                rows.append([*head, len(facts["graphs"]), "any flips", "average", *shown])
                left = row.under_attack()
                if left is not None:
                    attacked = len(facts["attacked"]["graphs"])
                    budget = facts["attacked"]["budget"]
                    rows.append(
                        [*head, attacked, "strongest attack found", budget, *_with_ends(left.values[place], attacked)]
                    )
                times.append([*head, "model calls per graph", f"{row.calls().values[place]:.1f}"])
                parts = ("search", "train", "ask", "read")
                times += [[*head, f"{part} seconds", f"{row.seconds(part).values[place]:.4f}"] for part in parts]
    for path, table in ((paths[0], rows), (paths[2], times)):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(table)
        write_text(path, text.getvalue())
    write_json(paths[1], [_summary(data) for data in found])
    return paths


def _with_ends(share: float, graphs: int) -> list[str]:
    """A share of graphs and the ends of its exact 95% interval."""
    low, high = share_interval([round(share * graphs)], graphs)
    return [f"{value:.6f}" for value in (share, float(low[0]), float(high[0]))]


def _summary(data: DataStandings) -> dict[str, Any]:
    """One data set as plain JSON."""
    return {
        "data": data.name,
        "test_graphs": data.graphs,
        "majority_class": data.majority.to_dict(),
        "limit": None if data.limit is None else dict(zip(map(str, RADII), data.limit, strict=True)),
        "methods": [
            {
                "method": row.name,
                "folds": list(row.folds),
                "chosen": row.chosen(),
                "certified_accuracy": {
                    words: {str(r): row.accuracy(r, attacker).to_dict() for r in RADII}
                    for attacker, words in ATTACKERS.items()
                },
                "average_certified_radius": row.average_radius().to_dict(),
                "under_attack": None if (left := row.under_attack()) is None else left.to_dict(),
                "attack_budget": data.budget,
            }
            for row in data.rows
        ],
        "paired_tests": [
            {
                "radius": test.radius,
                "best": test.first,
                "other": test.second,
                "only_best": test.only_first,
                "only_other": test.only_second,
                "p_value": test.p_value,
                "p_holm": test.adjusted,
                "comparisons": test.comparisons,
            }
            for test in data.tests()
        ],
    }
