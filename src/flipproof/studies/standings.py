"""From finished jobs to tables: certified accuracy with intervals over folds, paired tests, files of numbers, a page, figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from flipproof.certificates.metrics import (
    CONFIDENCE,
    Curve,
    PairedTest,
    compare_radii,
    holm,
    mean_radius,
    mean_radius_interval,
    only_class,
    right_radii,
    share_interval,
    shares,
    short_interval,
)
from flipproof.files import write_json, write_text
from flipproof.graphs import IntArray
from flipproof.report.content import ATTACKERS, RADII
from flipproof.report.drawing import Panel, curves_figure
from flipproof.report.templates import Cell, inline_svg, latex_table, latex_text, markdown_table, rendered
from flipproof.studies.benchmark_config import Protocol, Row
from flipproof.studies.benchmark_jobs import LIMIT, Job

_SIGNIFICANT = 0.05
_MAJORITY = "majority class"
_COLUMNS = ("data", "method", "fold", "graphs", "attacker", "radius", "certified_accuracy", "low95", "high95")


@dataclass(frozen=True)
class Measured:
    """A figure measured on several folds; of a share on a single fold, with the number of its test graphs."""

    values: tuple[float, ...]
    graphs: int = 0

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def half(self) -> float | None:
        """Half of Student's 95% interval over folds, somewhat too short as they share training graphs; ``None`` for one."""
        count = len(self.values)
        if count < 2:
            return None
        return float(stats.t.ppf(0.5 + CONFIDENCE / 2, count - 1) * np.std(self.values, ddof=1) / np.sqrt(count))

    @property
    def exact(self) -> tuple[float, float] | None:
        """Of a share on a single fold the exact 95% interval over its test graphs; ``None`` otherwise."""
        if len(self.values) != 1 or not self.graphs:
            return None
        low, high = share_interval(round(self.values[0] * self.graphs), self.graphs)
        return float(low), float(high)

    def to_dict(self) -> dict[str, Any]:
        ends = self.exact if self.half is None else (self.mean - self.half, self.mean + self.half)
        return {"mean": round(self.mean, 6), "interval": None if ends is None else [round(end, 6) for end in ends]}

    def __str__(self) -> str:
        if self.exact is not None:
            return f"{self.mean:.3f} ({short_interval(self.exact)})"
        return f"{self.mean:.3f}" + ("" if self.half is None else f" ± {self.half:.3f}")


@dataclass(frozen=True, eq=False)
class RowStanding:
    """A method on one data set, a row of the config or another reading of its evidence; ``folds`` are the finished ones.

    ``radii`` holds, by attacker and fold, the right radii of the test graphs.
    """

    name: str
    row: Row
    folds: Mapping[int, Mapping[str, Any]]

    @cached_property
    def radii(self) -> dict[str, list[IntArray]]:
        own = [(facts["rows"][self.name], facts["labels"]) for facts in self.facts]
        return {
            attacker: [right_radii(stated[attacker], stated["predicted"], labels) for stated, labels in own]
            for attacker in ATTACKERS
        }

    @property
    def facts(self) -> list[Mapping[str, Any]]:
        return list(self.folds.values())

    @property
    def collapsed(self) -> bool:
        """Whether it gave all graphs of a fold one class, in every fold: it tells no classes apart."""
        answers = [(facts["rows"][self.name]["predicted"], facts["labels"]) for facts in self.facts]
        return all(only_class(*both) is not None for both in answers)

    def accuracy(self, radius: int, attacker: str = "radius") -> Measured:
        """Certified accuracy: the share of test graphs that are right with at least this radius."""
        radii = self.radii[attacker]
        return Measured(tuple(float(shares(one, [radius])[0]) for one in radii), len(radii[0]))

    @property
    def average_radius(self) -> Measured:
        return Measured(tuple(map(mean_radius, self.radii["radius"])))

    @property
    def under_attack(self) -> Measured | None:
        """Share of the attacked graphs that are right after the strongest attack that was found."""
        attacks = [facts["attacked"]["flips"] for facts in self.facts]
        if not all(attacks):
            return None
        return Measured(tuple(float(np.mean([size is None for size in flips])) for flips in attacks), len(attacks[0]))

    @property
    def chosen(self) -> list[str]:
        """The settings that validation graphs chose, fold by fold."""
        return [
            " ".join(
                f"{key} {f'{value:.4g}' if isinstance(value, float) else value}" for key, value in settings.items()
            )
            for settings in (facts["chosen"] for facts in self.facts)
        ]


@dataclass(frozen=True, eq=False)
class DataStandings:
    """Everything measured on one data set; ``limit`` is what the task allows, by radius."""

    protocol: Protocol
    rows: Sequence[RowStanding]
    limit: Mapping[int, float] | None = None

    @property
    def title(self) -> str:
        return self.protocol.title

    @property
    def graphs(self) -> int:
        return sum(len(facts["graphs"]) for facts in self.line.facts)

    @property
    def majority(self) -> Measured:
        facts = self.line.facts
        return Measured(tuple(float(one["majority"]) for one in facts), len(facts[0]["graphs"]))

    @property
    def collapsed(self) -> str:
        """Which methods tell no classes apart, in a sentence; nothing if none does."""
        names = ", ".join(row.name for row in self.rows if row.collapsed)
        return names and f"Names one class only, whatever the graph, so that nothing follows for its defence: {names}."

    def best(self, radius: int) -> RowStanding:
        """The row with the highest mean at a radius; of equals the one with the larger average radius."""
        return max(self.rows, key=lambda row: (row.accuracy(radius).mean, row.average_radius.mean))

    @property
    def line(self) -> RowStanding:
        return next(row for row in self.rows if row.row.edge_blind)

    def tests(self) -> list[PairedTest]:
        """The best row at each radius against every other one that has the same folds.

        The best is read off the same graphs, so the correction covers the tests of every two rows at every radius.
        """
        shown: list[PairedTest] = []
        values: list[float] = []
        for radius in RADII:
            best = self.best(radius)
            rivals = [row for row in self.rows if row is not best and row.folds.keys() == best.folds.keys()]
            for place, row in enumerate([best, *rivals]):
                pairs = {one.name: np.concatenate(one.radii["radius"]) for one in (row, *rivals[place:])}
                tests = compare_radii(pairs, [radius])
                shown += tests if row is best else []
                values += [test.p_value for test in tests]
        adjusted = dict(zip(values, holm(values).tolist(), strict=True))  # equal values stay equal
        return [replace(test, adjusted=adjusted[test.p_value], comparisons=len(values)) for test in shown]

    def to_dict(self) -> dict[str, Any]:
        return {
            "data": self.protocol.name,
            "test_graphs": self.graphs,
            "majority_class": self.majority.to_dict(),
            "limit": self.limit and {str(r): share for r, share in self.limit.items()},
            "methods": [
                {
                    "method": row.name,
                    "folds": list(row.folds),
                    "chosen": row.chosen,
                    "certified_accuracy": {
                        words: {str(r): row.accuracy(r, attacker).to_dict() for r in RADII}
                        for attacker, words in ATTACKERS.items()
                    },
                    "average_certified_radius": row.average_radius.to_dict(),
                    "under_attack": row.under_attack and row.under_attack.to_dict(),
                    "attack_budget": self.protocol.attack_budget,
                }
                for row in self.rows
            ],
            "paired_tests": [asdict(test) for test in self.tests()],
        }


def standings(protocols: Sequence[Protocol], finished: Mapping[Job, Mapping[str, Any]]) -> list[DataStandings]:
    """What finished jobs amount to; data sets without an edge-blind line are left out."""
    all_data = []
    for protocol in protocols:
        by_row: dict[str, dict[int, Mapping[str, Any]]] = {}
        for job in sorted((job for job in finished if job.data == protocol.name), key=lambda job: job.fold):
            by_row.setdefault(job.row, {})[job.fold] = finished[job]
        rows = [
            RowStanding(name, row, by_row[row.name])
            for row in protocol.rows
            if row.name in by_row
            for name in row.names
        ]
        if any(row.row.edge_blind for row in rows):
            limit = next(iter(by_row.get(LIMIT, {}).values()), None)
            left = (
                None
                if limit is None
                else {r: most / limit["graphs"] for r, most in zip(RADII, limit["most"], strict=True)}
            )
            all_data.append(DataStandings(protocol, rows, left))
    return all_data


def _results(data: DataStandings) -> Iterator[dict[str, Any]]:
    """The lines of ``results.csv``: a data set's methods, folds, attackers and radii."""
    for row, (place, number) in [(one, fold) for one in data.rows for fold in enumerate(one.folds)]:
        facts, radii = row.facts[place], row.radii["radius"][place]
        measured = [
            (len(radii), words, r, row.accuracy(r, column)) for column, words in ATTACKERS.items() for r in RADII
        ]
        if row.under_attack is not None:
            attacked = len(facts["attacked"]["graphs"])
            measured.append((attacked, "strongest attack found", data.protocol.attack_budget, row.under_attack))
        lines: list[tuple[Any, ...]] = [
            (graphs, words, r, one.values[place], *share_interval(round(one.values[place] * graphs), graphs))
            for graphs, words, r, one in measured
        ]
        lines.append(
            (len(radii), "any flips", "average", mean_radius(radii), *(mean_radius_interval(radii) or (None, None)))
        )
        for line in lines:
            yield dict(zip(_COLUMNS, (data.protocol.name, row.name, number, *line), strict=True))


def write_benchmark(all_data: Sequence[DataStandings], folder: Path, *, command: str) -> list[Path]:
    """Write tables, figures and the page; returns their paths, ``results.json`` second."""
    import pandas

    table = pandas.DataFrame([line for data in all_data for line in _results(data)])
    write_text(folder / "results.csv", table.to_csv(index=False, lineterminator="\n", float_format="%.6f"))
    write_json(folder / "results.json", [data.to_dict() for data in all_data])
    stems = [folder / "figures" / _slug(data.title) for data in all_data]
    svgs = {f"figures/{stem.name}.svg": _draw(stem, data) for stem, data in zip(stems, all_data, strict=True)}
    sections = [_section(data, figure) for data, figure in zip(all_data, svgs, strict=True)]
    content = {"command": command, "overview": _overview(all_data), "sections": sections}
    pages = {
        "page.md": rendered("benchmark.md", **content, markdown_table=markdown_table),
        "page.html": rendered("benchmark.html", **content, svgs=svgs),
        "tables.tex": "\n\n".join(map(_latex, all_data)) + "\n",
    }
    for name, text in pages.items():
        write_text(folder / name, text)
    return [folder / name for name in ("results.csv", "results.json", *pages, *svgs)]


def _slug(title: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", title).lower()


def _draw(stem: Path, data: DataStandings) -> str:
    """Certified accuracy on the test graphs of all folds together; the figure's SVG, nothing where there is no curve."""
    rows = [row for row in data.rows if not row.row.edge_blind]
    if not rows:
        return ""
    curves = tuple(Curve.of(row.name, np.concatenate(row.radii["radius"]), max(RADII)) for row in rows)
    curves_figure(stem, [Panel(data.title, curves, data.line.accuracy(0).mean, data.limit)])
    return inline_svg(stem)


def _section(data: DataStandings, figure: str) -> dict[str, Any]:
    tests = data.tests()
    worse = {(test.second, test.radius) for test in tests if test.adjusted <= _SIGNIFICANT}

    def shown(value: Measured, row: RowStanding | None, radius: int) -> str:
        if row is not None and data.best(radius) is row:
            return f"**{value}**"
        return f"{value}{'*' * (row is not None and (row.name, radius) in worse)}"

    average = {row.name: "all pairs" if row.row.edge_blind else str(row.average_radius) for row in data.rows}
    average |= {_MAJORITY: "all pairs", LIMIT: ""}
    kinds = [(attacker, r) for attacker in list(ATTACKERS)[1:] for r in RADII[1:]]
    return {
        "data": data,
        "figure": figure,
        "folds": max(len(row.folds) for row in data.rows),
        "comparisons": tests[0].comparisons if tests else 0,
        "attacked": sum(len(facts["attacked"]["graphs"]) for facts in data.line.facts),
        "accuracy": [
            ["method", *(f"r = {r}" for r in RADII), "average radius"],
            *([name, *cells, average[name]] for name, *cells in _accuracy(data, shown, "{:.3f}")),
        ],
        "attackers": [
            ["method", *(f"{ATTACKERS[attacker]}, r = {r}" for attacker, r in kinds)],
            *([row.name, *(str(row.accuracy(r, attacker)) for attacker, r in kinds)] for row in data.rows),
        ],
        "costs": [
            ["method", "under attack", "chosen", "model calls per graph", "seconds per graph", "seconds to train"],
            *map(_cost, data.rows),
        ],
    }


def _overview(all_data: Sequence[DataStandings]) -> list[list[str]]:
    rows = [["data", "test graphs", "majority class", "edge-blind", *(f"best at r = {r}" for r in RADII)]]
    for data in all_data:
        best = [f"{data.best(r).accuracy(r)} {data.best(r).name}" for r in RADII]
        rows.append([data.title, str(data.graphs), str(data.majority), str(data.line.accuracy(0)), *best])
    return rows


_Shown = Callable[[Measured, RowStanding | None, int], Cell]


def _accuracy(data: DataStandings, shown: _Shown, limit: str, times: int = 1) -> list[list[Any]]:
    """Majority class, methods and limit, each with a cell per radius as ``shown``."""
    return [
        [_MAJORITY, *(shown(data.majority, None, r) for r in RADII)],
        *([row.name, *(shown(row.accuracy(r), row, r) for r in RADII)] for row in data.rows),
        *([] if data.limit is None else [[LIMIT, *(limit.format(times * share) for share in data.limit.values())]]),
    ]


def _cost(row: RowStanding) -> list[str]:
    if row.name != row.row.name:
        return [row.name, "-", f"as {row.row.name}", "-", "-", "-"]
    seconds = [(facts["seconds"]["ask"] + facts["seconds"]["read"]) / len(facts["graphs"]) for facts in row.facts]
    return [
        row.name,
        "-" if row.under_attack is None else str(row.under_attack),
        "; ".join(dict.fromkeys(row.chosen)) or "-",
        f"{np.mean([facts['calls'] for facts in row.facts]):,.0f}",
        f"{np.mean(seconds):.3f}",
        f"{np.mean([facts['seconds']['train'] for facts in row.facts]):.1f}",
    ]


def _latex(data: DataStandings) -> str:
    def percent(value: Measured, row: RowStanding | None, radius: int) -> Cell:
        best = row is not None and data.best(radius) is row
        shown = rf"\textbf{{{100 * value.mean:.1f}}}" if best else f"{100 * value.mean:.1f}"
        if value.exact is not None:
            return shown, f"[{100 * value.exact[0]:.1f}, {100 * value.exact[1]:.1f}]"
        return shown if value.half is None else (shown, rf"$\pm$ {100 * value.half:.1f}")

    return latex_table(
        ["method", *(f"$r={r}$" for r in RADII)],
        [[[latex_text(name), *cells] for name, *cells in _accuracy(data, percent, "{:.1f}", times=100)]],
        caption=f"Certified accuracy on {latex_text(data.title)} in per cent: mean over folds, half its 95\\,\\% interval.",
        label=f"tab:{_slug(data.title)}",
    )
