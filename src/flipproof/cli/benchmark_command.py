"""``flipproof benchmark``: runs what a config file asks for, and writes tables, figures and a page."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flipproof.cli.options import PrintOptions, WorkerOptions, option
from flipproof.cli.summary import print_lines
from flipproof.progress import note
from flipproof.studies.benchmark.benchmark_page import write_benchmark
from flipproof.studies.benchmark.jobs import finished_jobs
from flipproof.studies.benchmark.outcomes import RADII, DataOutcome, collect
from flipproof.studies.benchmark.plan_file import read_config

__all__ = ["Options", "run"]


@dataclass(frozen=True)
class Options(PrintOptions, WorkerOptions):
    """What ``flipproof benchmark`` is asked for."""

    config: Path = option("A TOML file of data sets, models and defences.", argument="CONFIG")
    out: Path = option("Folder for everything that is made; run the same command again to continue.")
    root: str | None = option("Folder of the TU data sets.", None)


def run(options: Options) -> int:
    """Run what is missing, write results, page and figures, print the overview. The exit code."""
    plans = read_config(options.config, root=options.root)
    try:
        jobs = finished_jobs(plans, options.out, "benchmark", workers=options.workers, quiet=options.silent)
    except KeyboardInterrupt:
        note(f"stopped; what is finished is kept. continue with: {options.again}", quiet=options.quiet)
        return 130
    outcomes = collect(jobs)
    command = f"flipproof benchmark {options.config.as_posix()}{' --root DATA' * bool(options.root)} --out DIR"
    paths = write_benchmark(outcomes, plans, options.out, command=command)
    if options.as_json:
        print(json.dumps({"run": str(options.out), "results": json.loads(paths[1].read_text())}, allow_nan=False))
    elif not options.quiet:
        _print_overview(outcomes, paths)
    return 0


def _print_overview(outcomes: Sequence[DataOutcome], paths: Sequence[Path]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("data", "clean", "edge-blind", *(f"r = {r}" for r in RADII), title="Best certified accuracy")
    for data in outcomes:
        row = [max(series.accuracy(0).mean for series in data.clean), data.edge_blind.accuracy(0).mean]
        row += [data.best(r).accuracy(r).mean for r in RADII]
        table.add_row(data.title, *(f"{value:.3f}" for value in row))
    Console(file=sys.stdout).print(table)
    print_lines(["written:", *(f"  {path}" for path in paths)])
