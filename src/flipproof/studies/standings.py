"""From finished jobs to tables with intervals over folds: CSV, LaTeX, and a page with a figure per data set."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from flipproof.certificates.metrics import (
    CONFIDENCE,
    Curve,
    mean_radius,
    only_class,
    share_interval,
    shares,
    short_interval,
)
from flipproof.files import write_text
from flipproof.report.content import ATTACKERS, RADII
from flipproof.report.drawing import Panel, curves_figure
from flipproof.report.templates import latex_table, latex_text, markdown_table, rendered
from flipproof.studies.benchmark import LIMIT, Job
from flipproof.studies.benchmark_config import Protocol, Row
from flipproof.studies.provenance import marked, stamp
from flipproof.studies.trial import Trial, TrialResult

if TYPE_CHECKING:
    import pandas

_MAJORITY, _ATTACKED, _AVERAGE = "majority class", "strongest attack found", "average"
_ANY = ATTACKERS["radius"]
_COLUMNS = ("data", "method", "fold", "graphs", "attacker", "radius", "value", "low95", "high95")


@dataclass(frozen=True)
class Measured:
    """A figure measured on several folds; of a share on a single fold, with the number of its test graphs."""

    values: tuple[float, ...]
    graphs: int = 0

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def ends(self) -> tuple[float, float]:
        """Student's 95% interval over folds, somewhat too short as they share training graphs; of a single fold the exact one."""
        count = len(self.values)
        if count < 2:
            low, high = share_interval(round(self.mean * self.graphs), max(1, self.graphs))
            return float(low), float(high)
        half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, count - 1) * np.std(self.values, ddof=1) / np.sqrt(count))
        return self.mean - half, self.mean + half

    def __str__(self) -> str:
        low, high = self.ends
        spread = f"± {(high - low) / 2:.3f}" if len(self.values) > 1 else f"({short_interval((low, high))})"
        return f"{self.mean:.3f} {spread}"

    def above(self, other: Measured) -> bool:
        """Whether it is larger on the same folds by more than the interval of the difference."""
        differences = tuple(np.subtract(self.values, other.values)) if len(self.values) == len(other.values) else ()
        return len(differences) > 1 and Measured(differences).ends[0] > 0


@dataclass(frozen=True, eq=False)
class Method:
    """A row of the config, or another reading of its evidence, on the finished folds of a data set."""

    name: str
    row: Row
    folds: Mapping[int, Mapping[str, Any]]

    @cached_property
    def results(self) -> list[TrialResult]:
        return [TrialResult(Trial(self.row.candidates[0]), **facts["result"]) for facts in self.folds.values()]

    @property
    def reading(self) -> str:
        return next((key for key, name in self.row.readings.items() if name == self.name), "")

    def accuracy(self, radius: int, attacker: str = "radius") -> Measured:
        """Certified accuracy: the share of test graphs that are right with at least this radius."""
        radii = [one.radii(self.reading, attacker) for one in self.results]
        return Measured(tuple(float(shares(own, [radius])[0]) for own in radii), len(radii[0]))

    @property
    def average(self) -> Measured:
        return Measured(tuple(mean_radius(one.radii(self.reading)) for one in self.results))

    @property
    def under_attack(self) -> Measured | None:
        """Share of the attacked graphs that are right after the strongest attack that was found."""
        attacked = [facts["attacked"] for facts in self.folds.values()]
        own = not self.reading and all(attacked)
        return Measured(tuple(map(float, map(np.mean, attacked))), len(attacked[0])) if own else None

    @property
    def collapsed(self) -> bool:
        """Whether it gave all graphs of a fold one class, in every fold: it tells no classes apart."""
        return all(only_class(one.certified[self.reading]["label"], one.labels) is not None for one in self.results)

    @property
    def chosen(self) -> str:
        """The settings that validation graphs chose, each with its number of folds."""
        texts = [
            " ".join(
                f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in one.items()
            )
            for one in (facts["chosen"] for facts in self.folds.values())
        ]
        return "; ".join(f"{text} ({texts.count(text)})" for text in dict.fromkeys(texts) if text)


@dataclass(frozen=True, eq=False)
class Standing:
    """Everything measured on one data set; ``limit`` is what the task allows, by radius."""

    protocol: Protocol
    methods: Sequence[Method]
    seconds: float
    made: tuple[Mapping[str, str], ...]  # by which code, and where
    limit: Mapping[int, float] | None = None

    @property
    def title(self) -> str:
        return self.protocol.title

    @property
    def slug(self) -> str:
        return re.sub(r"[^A-Za-z0-9]+", "-", self.title).lower()

    @property
    def line(self) -> Method:
        return next(one for one in self.methods if one.row.edge_blind)

    @property
    def graphs(self) -> int:
        return sum(len(one.graphs) for one in self.line.results)

    @property
    def remarks(self) -> list[str]:
        chosen = [f"{one.name}: {one.chosen}" for one in self.methods if one.chosen and not one.reading]
        collapsed = ", ".join(one.name for one in self.methods if one.collapsed)
        said = f"Names one class only, whatever the graph, so that nothing follows for its defence: {collapsed}."
        return [f"Chosen, with the number of folds: {', '.join(chosen)}."] * bool(chosen) + [said] * bool(collapsed)

    def better(self, method: Method, radius: int) -> bool:
        """Whether a method is above the edge-blind line, which holds at every radius, by more than the interval."""
        return method is not self.line and method.accuracy(radius).above(self.line.accuracy(0))

    def table(self) -> list[list[Any]]:
        """Head, majority class, methods and limit: certified accuracy by radius, average radius, accuracy under attack, cost."""
        facts = list(self.line.folds.values())
        majority = Measured(tuple(float(one["majority"]) for one in facts), len(self.line.results[0].graphs))
        rows: list[list[Any]] = [["method", *RADII, "average radius", "under attack", "seconds per graph"]]
        rows.append([_MAJORITY, *[majority] * len(RADII), "all pairs", "", ""])
        for one in self.methods:
            spent = [(own.seconds["ask"] + own.seconds["read"]) / len(own.graphs) for own in one.results]
            average = "all pairs" if one is self.line else one.average
            seconds = "" if one.reading else f"{np.mean(spent):.3f}"
            rows.append([one.name, *map(one.accuracy, RADII), average, one.under_attack or "", seconds])
        return rows if self.limit is None else [*rows, [LIMIT, *self.limit.values(), "", "", ""]]

    def shown(self, mark: str) -> list[list[str]]:
        """The table as text; what is above the line is put where ``mark`` has braces."""
        head, *rows = self.table()
        names = {one.name: one for one in self.methods}
        shown = [[f"r = {cell}" if isinstance(cell, int) else str(cell) for cell in head]]
        for name, *cells in rows:
            texts = [f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in cells]
            for place, radius in enumerate(RADII):
                if name in names and self.better(names[name], radius):
                    texts[place] = mark.format(texts[place])
            shown.append([name, *texts])
        return shown

    def records(self) -> list[tuple[Any, ...]]:
        """A line per method, fold, attacker and radius."""
        lines = list[tuple[Any, ...]]()
        for one in self.methods:
            values = {(words, r): one.accuracy(r, column) for column, words in ATTACKERS.items() for r in RADII}
            if one.under_attack is not None:
                values[_ATTACKED, self.protocol.attack_budget] = one.under_attack
            for place, number in enumerate(one.folds):
                for (words, r), share in values.items():
                    value, graphs = share.values[place], share.graphs
                    ends = map(float, share_interval(round(value * graphs), graphs))
                    lines.append((self.protocol.name, one.name, number, graphs, words, r, value, *ends))
                average = one.average.values[place]
                lines.append((self.protocol.name, one.name, number, graphs, _ANY, _AVERAGE, average, None, None))
        return lines


def standings(protocols: Sequence[Protocol], finished: Mapping[Job, Mapping[str, Any]]) -> list[Standing]:
    """What finished jobs amount to, by data set."""
    all_data = []
    for protocol in protocols:
        own = {job: content for job, content in finished.items() if job.data == protocol.name}
        limit = next((content for job, content in own.items() if job.row == LIMIT), None)
        left = (
            None if limit is None else {r: most / limit["graphs"] for r, most in zip(RADII, limit["most"], strict=True)}
        )
        methods = []
        for row in protocol.rows:
            folds = {
                job.fold: content
                for job, content in sorted(own.items(), key=lambda one: one[0].fold)
                if job.row == row.name
            }
            methods += [Method(name, row, folds) for name in row.names]
        made = tuple({str(content["made"]): content["made"] for content in own.values()}.values())
        seconds = sum(content["all_seconds"] for content in own.values())
        all_data.append(Standing(protocol, methods, seconds, made, left))
    return all_data


def results_table(all_data: Sequence[Standing]) -> pandas.DataFrame:
    import pandas

    return pandas.DataFrame([line for data in all_data for line in data.records()], columns=list(_COLUMNS))


def write_benchmark(all_data: Sequence[Standing], folder: Path, page: Path, *, command: str) -> list[Path]:
    """Write figures into the folder, and the page with its figures, CSV and LaTeX beside it; returns the files of the page."""
    files = [page, page.with_suffix(".csv"), page.with_suffix(".tex")]
    for data in all_data:
        picture = page.with_suffix("") / f"{data.slug}.svg"
        _draw(folder / "figures" / data.slug, data)
        picture.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / "figures" / picture.name, picture)
        files.append(picture)
    table = results_table(all_data).to_csv(index=False, lineterminator="\n", float_format="%.6f")
    made = list({str(one): one for data in all_data for one in data.made}.values())
    stamps = "\n".join(dict.fromkeys(stamp(one["commit"], one["code"]) for one in made))
    machines = "; ".join(dict.fromkeys(one["machine"] for one in made))
    budget = max(data.protocol.attack_budget for data in all_data)
    content = {"command": command, "stamps": stamps, "machines": machines, "figures": files[0].stem, "budget": budget}
    text = rendered("benchmark.md", **content, all_data=all_data, markdown_table=markdown_table)
    latex = "\n\n".join(map(_latex, all_data)) + "\n"
    for path, written in zip(files[:3], (marked(text), table, latex), strict=True):
        write_text(path, written)
    return files


def _draw(stem: Path, data: Standing) -> None:
    """Certified accuracy on the test graphs of all folds together."""
    pooled = {
        one.name: np.concatenate([own.radii(one.reading) for own in one.results])
        for one in data.methods
        if not one.row.edge_blind
    }
    curves = tuple(Curve.of(name, radii, max(RADII)) for name, radii in pooled.items())
    curves_figure(stem, [Panel(data.title, curves, data.line.accuracy(0).mean, data.limit)])


def _latex(data: Standing) -> str:
    head, *rows = data.shown(r"\textbf{{{}}}")
    body = [[latex_text(row[0]), *(cell.replace("±", r"$\pm$") for cell in row[1 : 1 + len(RADII)])] for row in rows]
    return latex_table(
        ["method", *(f"${name.replace(' ', '')}$" for name in head[1 : 1 + len(RADII)])],
        [body],
        caption=f"Certified accuracy on {latex_text(data.title)}: mean over folds and half its 95\\,\\% interval.",
        label=f"tab:{data.slug}",
    )
