"""From finished jobs to tables: certified accuracy with intervals over folds, paired tests, files of numbers, a page, figures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from operator import attrgetter
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
_TEST_COLUMNS = ("radius", "best", "other", "only_best", "only_other", "p_value", "p_holm", "comparisons")
_TEST_FIELDS = ("radius", "first", "second", "only_first", "only_second", "p_value", "adjusted", "comparisons")


@dataclass(frozen=True)
class Measured:
    """A figure measured on several folds; of a share on a single fold, with the number of its test graphs."""

    values: tuple[float, ...]
    graphs: int = 0

    @property
    def mean(self) -> float:
        """Over folds."""
        return float(np.mean(self.values))

    @property
    def half(self) -> float | None:
        """Half the length of Student's 95% interval of the mean over folds; ``None`` for a single fold.

        It says how far another ten folds of such graphs may lead. Folds share training graphs, so it is somewhat too short.
        """
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
        """Plain JSON."""
        ends = self.exact if self.half is None else (self.mean - self.half, self.mean + self.half)
        return {"mean": round(self.mean, 6), "interval": None if ends is None else [round(end, 6) for end in ends]}

    def __str__(self) -> str:
        if self.exact is not None:
            return f"{self.mean:.3f} ({short_interval(self.exact)})"
        return f"{self.mean:.3f}" + ("" if self.half is None else f" ± {self.half:.3f}")


@dataclass(frozen=True, eq=False)
class RowStanding:
    """A method on one data set, over its finished folds; ``reads`` is the row whose evidence it reads, if not its own.

    ``radii`` holds, by attacker and fold, the right radii of the test graphs; ``facts`` what else the jobs recorded.
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
        radii = self.radii[attacker]
        return Measured(tuple(float(shares(one, [radius])[0]) for one in radii), len(radii[0]))

    @property
    def average_radius(self) -> Measured:
        """Average certified radius."""
        return Measured(tuple(map(mean_radius, self.radii["radius"])))

    @property
    def under_attack(self) -> Measured | None:
        """Share of the attacked graphs that are right after the strongest attack that was found."""
        attacks = [facts["attacked"]["flips"] for facts in self.facts]
        if not all(attacks):
            return None
        return Measured(tuple(float(np.mean([size is None for size in flips])) for flips in attacks), len(attacks[0]))

    @property
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

    @property
    def chosen(self) -> list[str]:
        """The settings that validation graphs chose, fold by fold."""
        return [
            " ".join(
                f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
                for key, value in facts["chosen"].items()
            )
            for facts in self.facts
        ]

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
        names = ", ".join(row.name for row in self.rows if row.collapsed)
        return names and f"Names one class only, whatever the graph, so that nothing follows for its defence: {names}."

    def best(self, radius: int) -> RowStanding:
        """The row with the highest mean at a radius; of equals the one with the larger average radius."""
        return max(self.rows, key=lambda row: (row.accuracy(radius).mean, row.average_radius.mean))

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
                tests = compare_radii(pairs, [radius])
                shown += tests if row is best else []
                values += [test.p_value for test in tests]
        adjusted = dict(zip(values, holm(values).tolist(), strict=True))  # equal values stay equal
        return [replace(test, adjusted=adjusted[test.p_value], comparisons=len(values)) for test in shown]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "data": self.name,
            "test_graphs": self.graphs,
            "majority_class": self.majority.to_dict(),
            "limit": None if self.limit is None else dict(zip(map(str, RADII), self.limit, strict=True)),
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
                    "under_attack": None if row.under_attack is None else row.under_attack.to_dict(),
                    "attack_budget": self.budget,
                }
                for row in self.rows
            ],
            "paired_tests": [
                dict(zip(_TEST_COLUMNS, attrgetter(*_TEST_FIELDS)(test), strict=True)) for test in self.tests()
            ],
        }


def standings(protocols: Sequence[Protocol], finished: Mapping[Job, Mapping[str, Any]]) -> list[DataStandings]:
    """What finished jobs amount to; data sets without an edge-blind line are left out."""
    all_data = []
    for protocol in protocols:
        own = {job: content for job, content in finished.items() if job.data == protocol.name}
        rows = [standing for row in protocol.rows for standing in _standings_of(row, own)]
        line = next((row for row in rows if row.edge_blind), None)
        if line is None:
            continue
        limit = next((content for job, content in own.items() if job.row == LIMIT), None)
        all_data.append(
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
    return all_data


def _standings_of(row: Row, contents: Mapping[Job, Mapping[str, Any]]) -> list[RowStanding]:
    """A row and its other readings over the finished folds; nothing if there are none."""
    jobs = sorted((job for job in contents if job.row == row.name), key=lambda job: job.fold)
    facts, numbers = tuple(contents[job] for job in jobs), tuple(job.fold for job in jobs)
    return [
        RowStanding(
            name,
            None if name == row.name else row.name,
            row.edge_blind,
            numbers,
            {
                attacker: tuple(
                    right_radii(content["rows"][name][attacker], content["rows"][name]["predicted"], content["labels"])
                    for content in facts
                )
                for attacker in ATTACKERS
            },
            facts,
        )
        for name in (row.names if jobs else ())
    ]


def write_standings(all_data: Sequence[DataStandings], folder: Path) -> list[Path]:
    """``results.csv`` (long format) and ``results.json`` (means, intervals, tests); returns their paths."""
    import pandas

    paths = [folder / name for name in ("results.csv", "results.json")]
    results = [
        {"data": data.name, "method": row.name, "fold": number, **line}
        for data in all_data
        for row in data.rows
        for place, number in enumerate(row.folds)
        for line in _results(row, place)
    ]
    write_text(paths[0], pandas.DataFrame(results).to_csv(index=False, lineterminator="\n"))
    write_json(paths[1], [data.to_dict() for data in all_data])
    return paths


def _results(row: RowStanding, place: int) -> list[dict[str, Any]]:
    """The lines of a method's fold in ``results.csv``."""
    facts, columns = row.facts[place], ("certified_accuracy", "low95", "high95")
    graphs = len(facts["graphs"])
    shown = [
        (graphs, words, r, row.accuracy(r, attacker).values[place])
        for attacker, words in ATTACKERS.items()
        for r in RADII
    ]
    if row.under_attack is not None:
        attack = facts["attacked"]
        budget, share = attack["budget"], row.under_attack.values[place]
        shown.append((len(attack["graphs"]), "strongest attack found", budget, share))
    lines: list[tuple[Any, ...]] = [(*line, *share_interval(round(line[3] * line[0]), line[0])) for line in shown]
    ends = mean_radius_interval(row.radii["radius"][place]) or ()
    lines.append((graphs, "any flips", "average", row.average_radius.values[place], *ends))
    return [
        {"graphs": count, "attacker": words, "radius": r}
        | dict(zip_longest(columns, (f"{number:.6f}" for number in numbers), fillvalue=""))
        for count, words, r, *numbers in lines
    ]


def write_benchmark(all_data: Sequence[DataStandings], folder: Path, *, command: str) -> list[Path]:
    """Write tables, figures and the page; returns their paths, ``results.json`` second."""
    paths, sections = write_standings(all_data, folder), []
    for data in all_data:
        stem = folder / "figures" / _slug(data.title)
        _draw(stem, data)
        sections.append(_section(data, stem.with_suffix(".svg").relative_to(folder).as_posix()))
    content = {"command": command, "overview": _overview(all_data), "sections": sections}
    drawn = [section["figure"] for section in sections if (folder / section["figure"]).is_file()]
    svgs = {figure: inline_svg(folder / figure.removesuffix(".svg")) for figure in drawn}
    pages = {
        folder / "page.md": rendered("benchmark.md", **content, markdown_table=markdown_table),
        folder / "page.html": rendered("benchmark.html", **content, svgs=svgs),
        folder / "tables.tex": "\n\n".join(map(_latex, all_data)) + "\n",
    }
    for path, text in pages.items():
        write_text(path, text)
    return [*paths, *pages, *(folder / section["figure"] for section in sections)]


def _slug(title: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", title).lower()


def _draw(stem: Path, data: DataStandings) -> None:
    curves = tuple(row.curve(max(RADII)) for row in data.rows if not row.edge_blind)
    if curves:
        limit = None if data.limit is None else dict(zip(RADII, data.limit, strict=True))
        curves_figure(stem, [Panel(data.title, curves, data.line.accuracy(0).mean, limit)])


def _section(data: DataStandings, figure: str) -> dict[str, Any]:
    """What the page says of a data set."""
    tests = data.tests()
    kinds = [(attacker, r) for attacker in list(ATTACKERS)[1:] for r in RADII[1:]]
    return {
        "data": data,
        "figure": figure,
        "folds": max(len(row.folds) for row in data.rows),
        "comparisons": tests[0].comparisons if tests else 0,
        "attacked": sum(len(facts["attacked"]["graphs"]) for facts in data.line.facts),
        "accuracy": _accuracy(data, {(test.second, test.radius) for test in tests if test.adjusted <= _SIGNIFICANT}),
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


def _accuracy(data: DataStandings, worse: set[tuple[str, int]]) -> list[list[str]]:
    rows = [["method", *(f"r = {r}" for r in RADII), "average radius"]]
    rows.append(["majority class", *[str(data.majority)] * len(RADII), "all pairs"])
    for row in data.rows:
        cells = [
            f"**{row.accuracy(r)}**" if data.best(r) is row else f"{row.accuracy(r)}{'*' * ((row.name, r) in worse)}"
            for r in RADII
        ]
        rows.append([row.name, *cells, "all pairs" if row.edge_blind else str(row.average_radius)])
    if data.limit is not None:
        rows.append([LIMIT, *(f"{share:.3f}" for share in data.limit), ""])
    return rows


def _cost(row: RowStanding) -> list[str]:
    if row.reads is not None:
        return [row.name, "-", f"as {row.reads}", "-", "-", "-"]
    return [
        row.name,
        "-" if row.under_attack is None else str(row.under_attack),
        "; ".join(dict.fromkeys(row.chosen)) or "-",
        f"{row.calls.mean:,.0f}",
        f"{row.seconds('ask', 'read').mean:.3f}",
        f"{row.seconds('train').mean:.1f}",
    ]


def _latex(data: DataStandings) -> str:
    rows: list[list[Cell]] = [["majority class", *[_percent(data.majority)] * len(RADII)]]
    rows += [
        [latex_text(row.name), *(_percent(row.accuracy(r), best=data.best(r) is row) for r in RADII)]
        for row in data.rows
    ]
    if data.limit is not None:
        rows.append([LIMIT, *(f"{100 * share:.1f}" for share in data.limit)])
    return latex_table(
        ["method", *(f"$r={r}$" for r in RADII)],
        [rows],
        caption=f"Certified accuracy on {latex_text(data.title)} in per cent: mean over folds, half its 95\\,\\% interval.",
        label=f"tab:{_slug(data.title)}",
    )


def _percent(value: Measured, *, best: bool = False) -> Cell:
    shown = rf"\textbf{{{100 * value.mean:.1f}}}" if best else f"{100 * value.mean:.1f}"
    if value.exact is not None:
        return shown, f"[{100 * value.exact[0]:.1f}, {100 * value.exact[1]:.1f}]"
    return shown if value.half is None else (shown, rf"$\pm$ {100 * value.half:.1f}")
