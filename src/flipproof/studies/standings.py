"""From finished jobs to tables with intervals over folds: CSV, LaTeX, and a page with a figure per data set."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
from flipproof.graphs import IntArray
from flipproof.report.content import ATTACKERS, RADII
from flipproof.report.drawing import Panel, curves_figure
from flipproof.report.templates import latex_table, latex_text, markdown_table, rendered
from flipproof.studies.benchmark import LIMIT, Job
from flipproof.studies.benchmark_config import Protocol
from flipproof.studies.experiment import Trial, TrialResult
from flipproof.studies.provenance import marked, stamp

if TYPE_CHECKING:
    import pandas

_MAJORITY, _ATTACKED, _AVERAGE, _COST = "majority class", "under attack", "average radius", "seconds per graph"
_ANY = ATTACKERS["radius"]
_SHOWN = (*((_ANY, str(r)) for r in RADII), (_ANY, _AVERAGE), (_ATTACKED, _ATTACKED), (_COST, _COST))


@dataclass(frozen=True)
class Measured:
    """A figure measured on several folds; a share on a single one has the number of its test graphs, any other figure 0."""

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
            low, high = share_interval(round(self.mean * self.graphs), self.graphs)
            return float(low), float(high)
        half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, count - 1) * np.std(self.values, ddof=1) / np.sqrt(count))
        return self.mean - half, self.mean + half

    def __str__(self) -> str:
        if len(self.values) > 1:
            return f"{self.mean:.3f} ± {self.ends[1] - self.mean:.3f}"
        return f"{self.mean:.3f}" + (f" ({short_interval(self.ends)})" if self.graphs else "")

    def above(self, other: Measured) -> bool:
        """Whether it is larger on the same folds by more than the interval of the difference."""
        differences = tuple(np.subtract(self.values, other.values)) if len(self.values) == len(other.values) else ()
        return len(differences) > 1 and Measured(differences).ends[0] > 0


@dataclass(frozen=True, eq=False)
class Standing:
    """Everything measured on one data set.

    Attributes:
        records: A line per method, fold, attacker and radius, and for other figures.
        radii: By method, the right radii of the test graphs of all folds.
        line: The method that ignores edges.
        made: By which code, and where.
        limit: What the task allows, by radius.
    """

    protocol: Protocol
    records: pandas.DataFrame
    radii: Mapping[str, IntArray]
    line: str
    remarks: Sequence[str] = ()
    seconds: float = 0.0
    made: Sequence[Mapping[str, str]] = ()
    limit: Mapping[int, float] | None = None

    @property
    def title(self) -> str:
        return self.protocol.title

    @property
    def slug(self) -> str:
        return re.sub(r"[^A-Za-z0-9]+", "-", self.title).lower()

    @cached_property
    def measured(self) -> dict[tuple[str, str, str], Measured]:
        groups = self.records.groupby(["method", "attacker", "radius"], sort=False)
        counts = {key: 0 if key[2] in (_AVERAGE, _COST) else int(own["graphs"].iloc[0]) for key, own in groups}
        return {key: Measured(tuple(own["value"]), counts[key]) for key, own in groups}

    def accuracy(self, method: str, radius: int) -> Measured:
        return self.measured[method, _ANY, str(radius)]

    def better(self, method: str, radius: str) -> bool:
        """Whether a method is above the edge-blind line, which holds at every radius, by more than the interval."""
        return method != self.line and self.measured[method, _ANY, radius].above(self.accuracy(self.line, 0))

    def table(self, mark: str) -> list[list[str]]:
        """Majority class, methods and limit; what is above the line is put where ``mark`` has braces."""
        rows = [["method", *(f"r = {r}" for r in RADII), _AVERAGE, _ATTACKED, _COST]]
        for name in (_MAJORITY, *self.radii):
            row = [name]
            for kind in _SHOWN:
                text = str(self.measured.get((name, *kind), ""))
                text = "all pairs" if name == self.line and kind[1] == _AVERAGE else text
                above = text and kind[1].isdecimal() and name in self.radii and self.better(name, kind[1])
                row.append(mark.format(text) if above else text)
            rows.append(row)
        left = [] if self.limit is None else [[LIMIT, *(f"{share:.3f}" for share in self.limit.values()), "", "", ""]]
        return rows + left


def standings(protocols: Sequence[Protocol], finished: Mapping[Job, Mapping[str, Any]]) -> list[Standing]:
    """What finished jobs amount to, by data set."""
    return [_standing(protocol, finished) for protocol in protocols]


def _standing(protocol: Protocol, jobs: Mapping[Job, Mapping[str, Any]]) -> Standing:
    import pandas

    finished = {job: content for job, content in jobs.items() if job.data == protocol.name}
    most = next((content for job, content in finished.items() if job.row == LIMIT), None)
    limit = None if most is None else dict(zip(RADII, np.divide(most["most"], most["graphs"]).tolist(), strict=True))
    radii: dict[str, IntArray] = {}
    lines, remarks, line = list[tuple[Any, ...]](), [], ""
    for row in protocol.rows:
        own = {job.fold: content for job, content in finished.items() if job.row == row.name}
        results = {fold: TrialResult(Trial(row.candidates[0]), **own[fold]["result"]) for fold in sorted(own)}
        line = row.name if row.edge_blind else line
        for reading, name in {"": row.name, **row.readings}.items():
            radii[name] = np.concatenate([one.radii(reading) for one in results.values()])
            for fold, one in results.items():
                lines += [(name, fold, *figure) for figure in _figures(one, reading, own[fold])]
        if row.edge_blind:
            for fold, one in results.items():
                lines += [(_MAJORITY, fold, len(one.graphs), _ANY, str(r), own[fold]["majority"]) for r in RADII]
        chosen = Counter(_words(own[fold]["chosen"]) for fold in results if len(row.candidates) > 1)
        told = ", ".join(f"{text} ({folds} fold{'s' * (folds != 1)})" for text, folds in chosen.items())
        remarks += [f"{row.name}: validation graphs chose {told}."] * bool(told)
        if all(only_class(one.certified[""]["label"], one.labels) is not None for one in results.values()):
            remarks.append(f"{row.name} names one class only, whatever the graph: nothing follows for its defence.")
    records = pandas.DataFrame(lines, columns=["method", "fold", "graphs", "attacker", "radius", "value"])
    seconds = sum(content["all_seconds"] for content in finished.values())
    made = tuple({str(content["made"]): content["made"] for content in finished.values()}.values())
    return Standing(protocol, records, radii, line, remarks, seconds, made, limit)


def _figures(one: TrialResult, reading: str, content: Mapping[str, Any]) -> Iterator[tuple[int, str, str, float]]:
    count = len(one.graphs)
    for column, words in ATTACKERS.items():
        values = shares(one.radii(reading, column), RADII).tolist()
        yield from ((count, words, str(r), value) for r, value in zip(RADII, values, strict=True))
    yield count, _ANY, _AVERAGE, mean_radius(one.radii(reading))
    if not reading:
        yield count, _COST, _COST, (one.seconds["ask"] + one.seconds["read"]) / count
        if content["attacked"]:
            yield len(content["attacked"]), _ATTACKED, _ATTACKED, float(np.mean(content["attacked"]))


def _words(settings: Mapping[str, Any]) -> str:
    return " ".join(f"{key} {f'{value:.4g}' if isinstance(value, float) else value}" for key, value in settings.items())


def results_table(all_data: Sequence[Standing]) -> pandas.DataFrame:
    """The records of all data sets, shares with their exact 95% interval on the graphs of the fold."""
    import pandas

    table = pandas.concat({data.protocol.name: data.records for data in all_data}, names=["data", None])
    table = table.reset_index("data").reset_index(drop=True)
    is_share = ~table["radius"].isin((_AVERAGE, _COST))
    of_shares = table[is_share]
    ends = share_interval((of_shares["value"] * of_shares["graphs"]).round().astype(int), of_shares["graphs"])
    table.loc[is_share, ["low95", "high95"]] = np.stack(ends, axis=1)
    return table


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
    made = [one for data in all_data for one in data.made]
    stamps = "\n".join(dict.fromkeys(stamp(one["commit"], one["code"]) for one in made))
    content: dict[str, Any] = {"stamps": stamps, "machines": "; ".join(dict.fromkeys(one["machine"] for one in made))}
    content |= {"command": command, "figures": page.stem, "budget": all_data[0].protocol.attack_budget}
    text = rendered("benchmark.md", **content, all_data=all_data, markdown_table=markdown_table)
    for path, written in zip(files, (marked(text), table, "\n\n".join(map(_latex, all_data)) + "\n"), strict=False):
        write_text(path, written)
    return files


def _draw(stem: Path, data: Standing) -> None:
    curves = tuple(Curve.of(name, own, max(RADII)) for name, own in data.radii.items() if name != data.line)
    curves_figure(stem, [Panel(data.title, curves, data.accuracy(data.line, 0).mean, data.limit)])


def _latex(data: Standing) -> str:
    rows = [row[: 1 + len(RADII)] for row in data.table(r"\textbf{{{}}}")]
    body = [[latex_text(row[0]), *(cell.replace("±", r"$\pm$") for cell in row[1:])] for row in rows[1:]]
    return latex_table(
        ["method", *(f"$r={r}$" for r in RADII)],
        [body],
        caption=f"Certified accuracy on {latex_text(data.title)}: mean over folds and half its 95\\,\\% interval.",
        label=f"tab:{data.slug}",
    )
