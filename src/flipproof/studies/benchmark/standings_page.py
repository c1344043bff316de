"""What a benchmark writes for its readers: one page as Markdown and HTML, tables in LaTeX, figures with intervals."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flipproof.files import write_text
from flipproof.report.drawing import Panel
from flipproof.report.html import asset, html_table, inline_svg
from flipproof.report.latex import Cell, latex_table, latex_text
from flipproof.report.markdown import markdown_table
from flipproof.report.study_figures import standings_figure
from flipproof.studies.benchmark.row_jobs import ATTACKERS, RADII
from flipproof.studies.benchmark.standings import DataStandings, Measured, RowStanding, write_standings

__all__ = ["write_benchmark"]

_SHOWN = RADII[1:]
_SIGNIFICANT = 0.05
_WORDS = (
    "Every number is the share of all test graphs whose prediction is right and provably stays the same under any attack of at "
    "most r edge flips, as a mean over folds ± half its 95% interval over folds (Student's t). Settings were chosen on "
    "validation graphs, once per fold and method. Every network of a data set was trained with the same budget. A star marks a "
    "method that certifies significantly fewer graphs than the best one at that radius (exact McNemar test on the test graphs of "
    "all folds, Holm's correction for the number of tests named under the table)."
)


@dataclass(frozen=True)
class _Block:
    """A piece of the page: a heading, a paragraph, a table or a figure."""

    kind: str
    text: str = ""
    rows: Sequence[Sequence[str]] = ()
    figure: Path | None = None


def write_benchmark(found: Sequence[DataStandings], folder: Path, *, command: str) -> list[Path]:
    """Write tables, figures and the page; returns their paths, ``results.json`` second."""
    paths, figures = write_standings(found, folder), {}
    for data in found:
        stem = folder / "figures" / re.sub(r"[^A-Za-z0-9]+", "-", data.title).lower()
        _draw(stem, data)
        figures[data.name] = stem.with_suffix(".svg").relative_to(folder)
    blocks = _blocks(found, figures, command)
    pages = [folder / "page.md", folder / "page.html", folder / "tables.tex"]
    write_text(pages[0], _markdown(blocks))
    write_text(pages[1], _html(blocks, folder))
    write_text(pages[2], _latex(found))
    return [*paths, *pages, *(folder / figure for figure in figures.values())]


def _draw(stem: Path, data: DataStandings) -> None:
    curves = tuple(row.curve(max(RADII)) for row in data.rows if not row.edge_blind)
    if curves:
        panel = Panel(data.title, curves, data.line.accuracy(0).mean)
        limit = None if data.limit is None else dict(zip(RADII, data.limit, strict=True))
        standings_figure(stem, panel, limit=limit)


def _blocks(found: Sequence[DataStandings], figures: dict[str, Path], command: str) -> list[_Block]:
    blocks = [
        _Block("title", "Benchmark"),
        _Block("text", f"Made by `{command}`."),
        _Block("text", _WORDS),
        _Block("heading", "All data sets"),
        _Block("table", rows=_overview(found)),
        _Block(
            "text",
            "Best: the highest mean of all methods, with its name, read off the test graphs. Compare it with the edge-blind "
            "line: a certificate below it is of no use.",
        ),
    ]
    for data in found:
        folds = max(len(row.folds) for row in data.rows)
        blocks += [
            _Block("heading", data.title),
            _Block("text", f"{data.graphs} test graphs in {folds} fold{'s' * (folds != 1)}."),
            _Block("figure", f"Certified accuracy on {data.title}", figure=figures[data.name]),
            _Block("table", rows=_accuracy(data)),
            *([_Block("text", data.collapsed)] if data.collapsed else []),
            _Block("text", _tests(data)),
            _Block("text", "Against attackers that only add edges, or only remove them:"),
            _Block("table", rows=_attackers(data)),
            _Block("text", _attack_words(data)),
            _Block("table", rows=_costs(data)),
        ]
    return blocks


def _overview(found: Sequence[DataStandings]) -> list[list[str]]:
    rows = [["data", "test graphs", "majority class", "edge-blind", *(f"best at r = {r}" for r in RADII)]]
    for data in found:
        best = [f"{data.best(r).accuracy(r)} {data.best(r).name}" for r in RADII]
        rows.append([data.title, str(data.graphs), str(data.majority), str(data.line.accuracy(0)), *best])
    return rows


def _accuracy(data: DataStandings) -> list[list[str]]:
    worse = {(test.second, test.radius) for test in data.tests() if test.adjusted <= _SIGNIFICANT}
    rows = [["method", *(f"r = {r}" for r in RADII), "average radius"]]
    rows.append(["majority class", *[str(data.majority)] * len(RADII), "all pairs"])
    for row in data.rows:
        cells = [_marked(row.accuracy(r), best=data.best(r) is row, worse=(row.name, r) in worse) for r in RADII]
        rows.append([row.name, *cells, "all pairs" if row.edge_blind else str(row.average_radius())])
    if data.limit is not None:
        rows.append(["limit of the task", *(f"{share:.3f}" for share in data.limit), ""])
    return rows


def _marked(value: Measured, *, best: bool, worse: bool) -> str:
    return f"**{value}**" if best else f"{value}{'*' * worse}"


def _tests(data: DataStandings) -> str:
    tests = data.tests()
    if not tests:
        return "One method alone: nothing to compare."
    limit = (
        ""
        if data.limit is None
        else " The limit of the task holds for every classifier that does not depend on the numbering of nodes: graphs of "
        "different classes at most 2 r flips apart cannot both be certified at r. It is computed over all graphs of the data set."
    )
    return (
        "Bold: the best at r. It is read off the same graphs, so the correction is for the paired tests of every two methods at "
        f"each radius, {tests[0].comparisons} in all.{limit}"
    )


def _attackers(data: DataStandings) -> list[list[str]]:
    kinds = [(attacker, r) for attacker in list(ATTACKERS)[1:] for r in _SHOWN]
    rows = [["method", *(f"{ATTACKERS[attacker]}, r = {r}" for attacker, r in kinds)]]
    rows += [[row.name, *(str(row.accuracy(r, attacker)) for attacker, r in kinds)] for row in data.rows]
    return rows


def _attack_words(data: DataStandings) -> str:
    few = [len(facts["attacked"]["graphs"]) for facts in data.line.facts]
    if not sum(few):
        return "Settings that validation graphs chose, and what the method costs on one core:"
    return (
        f"What the strongest attack of at most {data.budget} flips leaves ({sum(few)} test graphs, every class in proportion), "
        "the settings that validation graphs chose, and what the method costs on one core:"
    )


def _costs(data: DataStandings) -> list[list[str]]:
    head = ["method", "under attack", "chosen", "model calls per graph", "seconds per graph", "seconds to train"]
    return [head, *(_cost(row) for row in data.rows)]


def _cost(row: RowStanding) -> list[str]:
    left, chosen = row.under_attack(), dict.fromkeys(row.chosen())
    if row.reads is not None:
        return [row.name, "-", f"as {row.reads}", "-", "-", "-"]
    return [
        row.name,
        "-" if left is None else str(left),
        "; ".join(chosen) or "-",
        f"{row.calls().mean:,.0f}",
        f"{row.seconds('ask', 'read').mean:.3f}",
        f"{row.seconds('train').mean:.1f}",
    ]


def _markdown(blocks: Sequence[_Block]) -> str:
    write: dict[str, Callable[[_Block], list[str]]] = {
        "title": lambda block: [f"# {block.text}"],
        "heading": lambda block: [f"## {block.text}"],
        "text": lambda block: [block.text],
        "table": lambda block: markdown_table(block.rows),
        "figure": lambda block: [f"![{block.text}]({'' if block.figure is None else block.figure.as_posix()})"],
    }
    return "\n\n".join("\n".join(write[block.kind](block)) for block in blocks) + "\n"


def _html(blocks: Sequence[_Block], folder: Path) -> str:
    """The same page for a browser, standing alone."""

    def figure(block: _Block) -> str:
        assert block.figure is not None
        drawn = inline_svg((folder / block.figure).with_suffix("")) if (folder / block.figure).is_file() else ""
        caption = html.escape(block.text)
        return (
            f'<figure><div class="plate" tabindex="0" role="img" aria-label="{caption}">{drawn}</div>'
            f"<figcaption>{caption}; 95% intervals of the test graphs of all folds.</figcaption></figure>"
        )

    write: dict[str, Callable[[_Block], str]] = {
        "title": lambda block: "",
        "heading": lambda block: f"<h2>{html.escape(block.text)}</h2>",
        "text": lambda block: "<p>" + re.sub("`([^`]*)`", r"<code>\1</code>", html.escape(block.text)) + "</p>",
        "table": lambda block: re.sub(r"\*\*([^*]*)\*\*", r"<strong>\1</strong>", html_table(block.rows)),
        "figure": figure,
    }
    title = html.escape(next(block.text for block in blocks if block.kind == "title"))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{title}</title><style>{asset('page.css')}</style></head><body>"
        f'<header class="masthead"><p class="brand">flipproof</p><h1>{title}</h1></header><main>'
        + "".join(write[block.kind](block) for block in blocks)
        + "</main></body></html>\n"
    )


def _latex(found: Sequence[DataStandings]) -> str:
    """One table per data set, and one of the best methods on all."""
    tables = [
        latex_table(
            ["method", *(f"$r={r}$" for r in RADII)],
            [_latex_rows(data)],
            caption=f"Certified accuracy on {latex_text(data.title)} in per cent: mean over folds, half its 95\\,\\% interval.",
            label=f"tab:{re.sub(r'[^a-z0-9]+', '-', data.title.lower())}",
        )
        for data in found
    ]
    return "\n\n".join(tables) + "\n"


def _latex_rows(data: DataStandings) -> list[list[Cell]]:
    rows: list[list[Cell]] = [["majority class", *[_percent(data.majority, best=False)] * len(RADII)]]
    for row in data.rows:
        cells = [_percent(row.accuracy(r), best=data.best(r) is row) for r in RADII]
        rows.append([latex_text(row.name), *cells])
    if data.limit is not None:
        rows.append(["limit of the task", *(f"{100 * share:.1f}" for share in data.limit)])
    return rows


def _percent(value: Measured, *, best: bool) -> Cell:
    shown = rf"\textbf{{{100 * value.mean:.1f}}}" if best else f"{100 * value.mean:.1f}"
    if value.exact is not None:
        return shown, f"[{100 * value.exact[0]:.1f}, {100 * value.exact[1]:.1f}]"
    return shown if value.half is None else (shown, rf"$\pm$ {100 * value.half:.1f}")
