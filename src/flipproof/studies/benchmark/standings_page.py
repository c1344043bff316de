"""What a benchmark writes for its readers: one page as Markdown and HTML, tables in LaTeX, figures with intervals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flipproof.files import write_text
from flipproof.report.drawing import Panel
from flipproof.report.study_figures import standings_figure
from flipproof.report.templates import Cell, inline_svg, latex_table, latex_text, markdown_table, rendered
from flipproof.studies.benchmark.jobs import ATTACKERS, LIMIT, RADII
from flipproof.studies.benchmark.standings import DataStandings, Measured, RowStanding, write_standings

_SIGNIFICANT = 0.05


def write_benchmark(all_data: Sequence[DataStandings], folder: Path, *, command: str) -> list[Path]:
    """Write tables, figures and the page; returns their paths, ``results.json`` second."""
    paths, sections = write_standings(all_data, folder), []
    for data in all_data:
        stem = folder / "figures" / _slug(data.title)
        _draw(stem, data)
        sections.append(_section(data, stem.with_suffix(".svg").relative_to(folder).as_posix()))
    content = {"command": command, "overview": _overview(all_data), "sections": sections}
    svgs = {
        section["figure"]: inline_svg(folder / section["figure"].removesuffix(".svg"))
        for section in sections
        if (folder / section["figure"]).is_file()
    }
    tables = [_latex(data) for data in all_data]
    pages = {
        folder / "page.md": rendered("benchmark.md", **content, markdown_table=markdown_table),
        folder / "page.html": rendered("benchmark.html", **content, svgs=svgs),
        folder / "tables.tex": "\n\n".join(tables) + "\n",
    }
    for path, text in pages.items():
        write_text(path, text)
    return [*paths, *pages, *(folder / section["figure"] for section in sections)]


def _slug(title: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", title).lower()


def _draw(stem: Path, data: DataStandings) -> None:
    curves = tuple(row.curve(max(RADII)) for row in data.rows if not row.edge_blind)
    if curves:
        panel = Panel(data.title, curves, data.line.accuracy(0).mean)
        limit = None if data.limit is None else dict(zip(RADII, data.limit, strict=True))
        standings_figure(stem, panel, limit=limit)


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
