"""``flipproof tune``: the noise, network and defence that certify most at the user's radius or budget, on validation graphs."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from flipproof.commands.progress import OutputOptions, note
from flipproof.commands.sources import DataSource

from flipproof.certificates.bounds import checked_alpha
from flipproof.certificates.methods import checked_method
from flipproof.datasets import Dataset
from flipproof.errors import InputError
from flipproof.noise import EdgeNoise, checked_seed
from flipproof.report.markdown import markdown_table
from flipproof.runs.folder import write_json, write_text
from flipproof.studies.benchmark.command import run_plans
from flipproof.studies.benchmark.config import Network, Plan, checked_training
from flipproof.studies.benchmark.defences import Defence, Sampling, Smoothing, Voting
from flipproof.studies.benchmark.figures import trade_off_figure
from flipproof.studies.benchmark.jobs import data_parts
from flipproof.studies.benchmark.results import DataResults, Series, Statistic, write_results

__all__ = ["TuneOptions", "candidates", "tune"]

_KEEPS = (0.8, 0.9, 0.95, 0.98)
# edges added for each that is there, and the share removed. Where more than half of the edges are removed, a single added one is
# mostly removed too: few additions then suffice to hide it, and the graph is thinned rather than blurred
_PAIRS = ((0.3, 0.2), (0.05, 0.4), (0.01, 0.6), (0.01, 0.8))
_GROUPS = (3, 10)


@dataclass(frozen=True)
class TuneOptions(OutputOptions):
    """What ``flipproof tune`` was asked for; empty lists of noises and groups ask for the default candidates."""

    source: DataSource
    models: tuple[str, ...]
    out: Path
    radius: int | None
    adds: int | None
    removes: int | None
    keeps: tuple[float, ...]
    pairs: tuple[str, ...]
    groups: tuple[int, ...]
    features: str | None
    training: dict[str, Any]
    train_graphs: int | None
    graphs: int | None
    samples: int
    alpha: float
    method: str
    seed: int
    workers: int | None


def tune(options: TuneOptions) -> int:
    """Try all candidates, print the best with the commands to go on with; the exit code."""
    budget = _budget(options)
    plan = _plan(options, budget)
    try:
        (data,) = run_plans([plan], options.out, "tune", workers=options.workers, silent=options.silent)
    except KeyboardInterrupt:
        note(f"stopped; what is finished is kept. continue with: {options.again}", quiet=options.quiet)
        return 130
    ranked = _ranked(data, options.radius)
    summary = _summary(data, ranked, options, plan)
    table = _table(data, ranked, summary["target"])
    paths = write_results([data], options.out)
    stem = options.out / "figures" / "trade-off"
    trade_off_figure(stem, data, ranked, target=summary["target"])
    write_json(options.out / "choice.json", summary)
    write_text(options.out / "page.md", _page(summary, table))
    paths = [options.out / "choice.json", options.out / "page.md", stem.with_suffix(".png"), *paths]
    if options.as_json:
        print(json.dumps(summary, allow_nan=False))
    elif not options.quiet:
        _print_summary(summary, table, paths)
    return 0


def _budget(options: TuneOptions) -> tuple[int, int] | None:
    """The attack to be withstood as (additions, removals); ``None`` for any flips within a radius."""
    given = options.adds is not None or options.removes is not None
    if given == (options.radius is not None):
        raise InputError(
            "say what is to be withstood: either --radius (any flips), or --adds and --removes (for instance --radius 2)"
        )
    return (options.adds or 0, options.removes or 0) if given else None


def _plan(options: TuneOptions, budget: tuple[int, int] | None) -> Plan:
    from flipproof import models

    checked_alpha(options.alpha)
    checked_method(options.method)
    checked_seed(options.seed)
    checked_training(options.training)
    known = [name for name in models.NAMES if name != "edge-blind"]
    for name in options.models:
        if name not in known:
            raise InputError(f"--model must be one of {', '.join(known)}; got {name!r} (give it once for each)")
    if not options.source.validation:
        raise InputError("--validation must be above 0: the choice is made on validation graphs (for instance 0.2)")
    networks = tuple(Network(name, {}, options.training) for name in dict.fromkeys(options.models))
    plan = Plan(
        name=options.source.data,
        source=options.source,
        networks=networks,
        defences=_asked_defences(options),
        sampling=Sampling(options.samples, options.alpha, (options.method,), options.seed),
        splits=(options.source.split_seed,),
        features=options.features,
        train_graphs=options.train_graphs,
        test_graphs=options.graphs,
        budgets=() if budget is None else (budget,),
        part="validation",
    )
    if plan.defences:
        return plan
    return replace(plan, defences=candidates(data_parts(plan, options.source.split_seed).train))


def _asked_defences(options: TuneOptions) -> tuple[Defence, ...]:
    noises = [EdgeNoise(keep=keep) for keep in options.keeps]
    for pair in options.pairs:
        add, comma, remove = pair.partition(",")
        try:
            noises.append(EdgeNoise(add=float(add), remove=float(remove)))
        except ValueError as error:
            if comma and isinstance(error, InputError):
                raise
            raise InputError(f"--noise must read ADD,REMOVE; got {pair!r} (for instance --noise 0.01,0.3)") from error
    if any(number < 2 for number in options.groups):
        raise InputError(f"--groups must be at least 2; got {min(options.groups)} (for instance 3)")
    found: list[Defence] = [Smoothing(noise) for noise in noises]
    return tuple(dict.fromkeys([*found, *(Voting(number) for number in options.groups)]))


def candidates(graphs: Dataset) -> tuple[Defence, ...]:
    """The default grid: symmetric noises, noises that add edges in proportion to the density, and voting.

    >>> from flipproof.datasets import topologies
    >>> [defence.name for defence in candidates(topologies(16))][3:6]
    ['keep 0.98', 'add 0.083 remove 0.2', 'add 0.014 remove 0.4']
    """
    slots = sum(graph.max_adds + graph.max_removes for graph in graphs)
    density = sum(graph.num_edges for graph in graphs) / max(1, slots)
    pairs = [EdgeNoise(add=float(f"{times * density:.2g}"), remove=remove) for times, remove in _PAIRS]
    noises = [*(EdgeNoise(keep=keep) for keep in _KEEPS), *pairs]
    return (*(Smoothing(noise) for noise in noises), *(Voting(number) for number in _GROUPS))


def _ranked(data: DataResults, radius: int | None) -> list[tuple[Series, Statistic]]:
    """Candidates and their share at the target, best first; of equals the more accurate, then the larger average radius."""
    measured = [
        (series, series.withstood(0) if radius is None else series.accuracy(radius)) for series in data.defended
    ]
    return sorted(
        measured,
        key=lambda pair: (pair[1].mean, pair[0].accuracy(0).mean, pair[0].average_radius().mean),
        reverse=True,
    )


def _summary(
    data: DataResults, ranked: Sequence[tuple[Series, Statistic]], options: TuneOptions, plan: Plan
) -> dict[str, Any]:
    """The choice as plain JSON."""
    best, share = ranked[0]
    graphs = best.splits[0].graphs
    return {
        "data": options.source.data,
        "target": f"{_flips(options.radius, 'flip')} withstood"
        if options.radius is not None
        else f"{_flips(options.adds or 0, 'addition')} and {_flips(options.removes or 0, 'removal')} withstood",
        "validation_graphs": graphs,
        "best": {"model": best.network, "defence": best.defence.name, "certified_accuracy": round(share.mean, 6)},
        # what chance alone leaves open: one standard error of a share of so many graphs
        "standard_error": round(float(np.sqrt(share.mean * (1 - share.mean) / graphs)), 6),
        "edge_blind_accuracy": round(data.edge_blind.accuracy(0).mean, 6),
        "candidates": [
            {
                "model": series.network,
                "defence": series.defence.name,
                "certificate": series.method,
                "accuracy": round(series.accuracy(0).mean, 6),
                "certified_accuracy": round(value.mean, 6),
                "average_certified_radius": round(series.average_radius().mean, 6),
            }
            for series, value in ranked
        ],
        "next": _commands(best, options),
    }


def _flips(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _commands(best: Series, options: TuneOptions) -> list[str]:
    """Training on all but the test graphs with the settings that won, and certifying the test graphs, unseen so far."""
    source = options.source
    words = ["flipproof", "train", "--data", source.data]
    if source.root is not None:
        words += ["--root", source.root]
    words += ["--model", best.network, *best.defence.options]
    if options.features is not None:
        words += ["--features", options.features]
    for key, value in options.training.items():
        if value is not False:
            words += [f"--{key.replace('_', '-')}", *([] if value is True else [f"{value:g}"])]
    words += ["--data-seed", str(source.seed), "--split-seed", str(source.split_seed), "--seed", str(source.split_seed)]
    words += ["--test", f"{source.test:g}", "--validation", "0", "--out", str(options.out / "model")]
    then = ["flipproof", "certify", "--model", str(options.out / "model")]
    if isinstance(best.defence, Smoothing):
        then += ["--samples", str(options.samples), "--alpha", f"{options.alpha:g}", "--method", options.method]
    return [shlex.join(words), shlex.join([*then, "--out", str(options.out / "run")])]


def _table(data: DataResults, ranked: Sequence[tuple[Series, Statistic]], target: str) -> list[list[str]]:
    rows = [["model", "defence", "not attacked", target, "average radius"]]
    rows += [
        [
            series.network,
            series.defence.name,
            f"{series.accuracy(0).mean:.3f}",
            f"{share.mean:.3f}",
            f"{series.average_radius().mean:.2f}",
        ]
        for series, share in ranked
    ]
    floor = f"{data.edge_blind.accuracy(0).mean:.3f}"
    clean = [[series.network, "none (clean)", f"{series.accuracy(0).mean:.3f}", "-", "-"] for series in data.clean]
    return [*rows, ["edge-blind", "-", floor, floor, "all pairs"], *clean]


def _verdict(summary: dict[str, Any]) -> list[str]:
    best, floor = summary["best"], summary["edge_blind_accuracy"]
    lines = [
        f"best: {best['model']} with {best['defence']}, {best['certified_accuracy']:.3f} ± {summary['standard_error']:.3f} of "
        f"{summary['validation_graphs']} validation graphs right with {summary['target']}"
    ]
    if best["certified_accuracy"] <= floor:
        lines.append(
            f"a network that sees no edge is right on {floor:.3f} under any attack: no candidate beats it at this target (train "
            "longer, ask for less, or use flipproof train --model edge-blind)"
        )
    return lines


def _page(summary: dict[str, Any], table: Sequence[Sequence[str]]) -> str:
    lines = [f"# Settings for {Path(summary['data']).name}", "", *(f"- {line}" for line in _verdict(summary)), ""]
    lines += [*markdown_table(table), "", "![Trade-off](figures/trade-off.svg)", "", "Go on with:", ""]
    return "\n".join([*lines, *(f"    {command}" for command in summary["next"]), ""])


def _print_summary(summary: dict[str, Any], table: Sequence[Sequence[str]], paths: Sequence[Path]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(file=sys.stdout)
    shown = Table(*table[0], title=f"{Path(summary['data']).name}: share of validation graphs that are right")
    for row in table[1:]:
        shown.add_row(*row)
    console.print(shown)
    for line in [*_verdict(summary), "written:", *(f"  {path}" for path in paths), "go on with:", *summary["next"]]:
        console.print(line, soft_wrap=True, markup=False, highlight=False)
