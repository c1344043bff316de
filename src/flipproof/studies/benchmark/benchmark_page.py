"""What a benchmark writes for its readers: for each data set every defence beside the lines that it must be held against."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from flipproof.files import write_text
from flipproof.report.drawing import Panel
from flipproof.report.markdown import markdown_table
from flipproof.report.study_figures import benchmark_figure
from flipproof.studies.benchmark.outcomes import (
    ATTACKERS,
    MAX_RADIUS,
    RADII,
    DataOutcome,
    Series,
    Statistic,
    shown_radius,
    write_outcomes,
)
from flipproof.studies.benchmark.plan_file import Plan

__all__ = ["write_benchmark"]


def write_benchmark(
    outcomes: Sequence[DataOutcome], plans: Sequence[Plan], folder: Path, *, command: str
) -> list[Path]:
    """Write tables, figures and the page; returns their paths, ``results.json`` second."""
    paths, figures = write_outcomes(outcomes, folder), {}
    for data in outcomes:
        stem = folder / "figures" / re.sub(r"[^A-Za-z0-9]+", "-", data.title).lower()
        _draw(stem, data)
        figures[data.name] = stem.with_suffix(".svg").relative_to(folder)
    page = folder / "page.md"
    write_text(page, _page(outcomes, {plan.name: plan for plan in plans}, figures, command=command))
    return [*paths, page, *(folder / figure for figure in figures.values())]


def _draw(stem: Path, data: DataOutcome) -> None:
    top, floor = shown_radius(data.defended), data.edge_blind.accuracy(0).mean
    panels = [
        Panel(
            f"{data.title}, {clean.network.upper()}",
            tuple(s.curve(s.candidate.title, top) for s in data.defended if s.network == clean.network),
            floor,
        )
        for clean in data.clean
    ]
    benchmark_figure(stem, panels, [clean.accuracy(0).mean for clean in data.clean])


def _page(
    outcomes: Sequence[DataOutcome], plans: Mapping[str, Plan], figures: Mapping[str, Path], *, command: str
) -> str:
    """The whole page; ``figures`` are paths relative to it."""
    lines = [
        "# Benchmark",
        "",
        f"Made by `{command}`.",
        "",
        "Certified accuracy: the share of test graphs whose prediction is right and provably stays the same under any attack of "
        "at most r edge flips; mean ± standard deviation over splits. The **edge-blind** line is the same network without any "
        "edge: it is certified at every radius, and a defence is worth having only above it. **Clean** is the network without "
        "a defence, for which nothing is certified; **majority class** always names the most frequent one. "
        "The best of each column is bold: it is read off the test graphs, so it "
        "flatters the choice a little (`flipproof tune` chooses on validation graphs).",
        "",
        "## All data sets",
        "",
        *markdown_table(_overview(outcomes)),
        "",
        "Best: the highest mean of all models and defences (upper envelope). Last column: the smallest radius at which it is no "
        "longer above the edge-blind line.",
        "",
    ]
    for data in outcomes:
        plan = plans[data.name]
        lines += _data_section(data, plan, figures.get(data.name))
    return "\n".join(lines)


def _overview(outcomes: Sequence[DataOutcome]) -> list[list[str]]:
    rows = [["data", "clean", "edge-blind", *(f"best at r = {r}" for r in RADII), "not above edge-blind from"]]
    for data in outcomes:
        clean = max((series.accuracy(0) for series in data.clean), key=lambda value: value.mean)
        best = [f"{data.best(r).accuracy(r).mean:.3f}" for r in RADII]
        floor = data.edge_blind.accuracy(0)
        rows.append([data.title, str(clean), str(floor), *best, _crossing(data)])
    return rows


def _crossing(data: DataOutcome) -> str:
    found = data.crossing()
    return f"r = {found}" if found < MAX_RADIUS else f"none up to {MAX_RADIUS}"


def _data_section(data: DataOutcome, plan: Plan, figure: Path | None) -> list[str]:
    certified = [part.graphs for part in data.series[0].splits]
    seeds = len(certified)
    asked = {key: value for candidate in plan.candidates for key, value in candidate.known(plan.asked).items()}
    facts = [
        f"{data.train_graphs} graphs to train on, {certified[0]} certified on each of {seeds} split{'s' * (seeds != 1)}; "
        f"certificates {data.methods}",
        *(f"{key} {value}" for key, value in asked.items() if key != "method"),
        f"features {plan.features or 'by default'}.",
    ]
    lines = [f"## {data.title}", "", ", ".join(facts), ""]
    if figure is not None:
        lines += [f"![Certified accuracy on {data.title}]({figure.as_posix()})", ""]
    lines += [*markdown_table(_accuracy_table(data)), "", *_collapsed(data), _verdict(data), ""]
    lines += ["Against attackers that only add, or only remove:", "", *markdown_table(_attacker_table(data)), ""]
    if len(data.readings) > len(data.defended):
        lines += ["Other certificates from the same evidence:", "", *markdown_table(_method_table(data)), ""]
    lines += ["Computing time in seconds, one core:", "", *markdown_table(_time_table(data)), ""]
    return lines


def _named(series: Series) -> list[str]:
    return [series.network, series.candidate.title]


def _marked(column: Sequence[Statistic]) -> list[str]:
    """The highest mean in bold."""
    best = max(value.mean for value in column)
    return [f"**{value}**" if value.mean == best and best > 0 else str(value) for value in column]


def _accuracy_table(data: DataOutcome) -> list[list[str]]:
    defended = data.defended
    columns = [_marked([series.accuracy(r) for series in defended]) for r in RADII]
    columns.append(_marked([series.average_radius() for series in defended]))
    rows = [["model", "defence", *(f"r = {r}" for r in RADII), "average radius"]]
    floor = str(data.edge_blind.accuracy(0))
    rows += [[*_named(series), str(series.accuracy(0)), *["-"] * len(RADII)] for series in data.clean]
    rows += [["majority class", "-", *[str(data.majority)] * len(RADII), "all pairs"]]
    rows += [["edge-blind", "-", *[floor] * len(RADII), "all pairs"]]
    rows += [[*_named(series), *(column[place] for column in columns)] for place, series in enumerate(defended)]
    envelope = [f"{max(series.accuracy(r).mean for series in defended):.3f}" for r in RADII]
    return [*rows, ["upper envelope", "", *envelope, ""]]


def _collapsed(data: DataOutcome) -> list[str]:
    """A sentence that names the models that answer one class only."""
    names = [series.name for series in data.series if series.first and series.collapsed]
    if not names:
        return []
    return [f"These name one class for every graph and have learnt nothing: {', '.join(names)} (train longer).", ""]


def _verdict(data: DataOutcome) -> str:
    best, floor, found = data.best(0), data.edge_blind.accuracy(0).mean, data.crossing()
    lost = 100 * (max(series.accuracy(0).mean for series in data.clean) - best.accuracy(0).mean)
    side = "below" if lost > 0 else "above"
    first = f"Without an attack the best defence ({best.name}) is {abs(lost):.1f} points {side} the best clean model."
    if all(series.collapsed for series in data.defended):
        return f"{first} Every defended model names one class only, so nothing can be said about the edges."
    if found == 0:
        return (
            f"{first} No defence is above the edge-blind line ({floor:.3f}): on these graphs the edges help too little."
        )
    reach = f"up to r = {found - 1}" if found < MAX_RADIUS else f"at every radius up to {MAX_RADIUS}"
    return f"{first} The edge-blind line ({floor:.3f}) is beaten {'at r = 0 only' if found == 1 else reach}."


def _attacker_table(data: DataOutcome) -> list[list[str]]:
    shown = [(attacker, r) for attacker in ("adds_radius", "removes_radius") for r in RADII[1:]]
    means = [[Statistic((series.accuracy(r, attacker).mean,)) for series in data.defended] for attacker, r in shown]
    columns = [_marked(column) for column in means]
    head = ["model", "defence", *(f"{ATTACKERS[attacker]}, r = {r}" for attacker, r in shown)]
    rows = [[*_named(series), *(column[place] for column in columns)] for place, series in enumerate(data.defended)]
    return [head, ["edge-blind", "-", *[_floor(data)] * len(shown)], *rows]


def _method_table(data: DataOutcome) -> list[list[str]]:
    rows = [["model", "defence", "certificate", *(f"r = {r}" for r in RADII), "average radius"]]
    several = {(series.network, series.candidate) for series in data.readings if not series.first}
    for series in data.readings:
        if (series.network, series.candidate) in several:
            shares = [f"{series.accuracy(r).mean:.3f}" for r in RADII]
            rows.append([*_named(series), series.method, *shares, f"{series.average_radius().mean:.3f}"])
    return [*rows, ["edge-blind", "-", "-", *[_floor(data)] * len(RADII), "all pairs"]]


def _floor(data: DataOutcome) -> str:
    return f"{data.edge_blind.accuracy(0).mean:.3f}"


def _time_table(data: DataOutcome) -> list[list[str]]:
    rows = [["model", "defence", "training", "asking per graph", "certifying per graph"]]
    for series in (*data.clean, data.edge_blind, *data.defended):
        each = [f"{series.seconds(what, each=True).mean:.3f}" for what in ("sample", "certify")]
        rows.append([*_named(series), f"{series.seconds('train', each=False).mean:.1f}", *each])
    return rows
