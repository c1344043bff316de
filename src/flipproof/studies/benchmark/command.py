"""``flipproof benchmark``: runs what a config file asks for, with progress, and writes tables and figures."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flipproof.commands.progress import OutputOptions, note
from flipproof.workers import run_jobs_with_progress

from flipproof.errors import InputError
from flipproof.runs.folder import Run, locked, write_text
from flipproof.studies.benchmark.config import Plan, read_config
from flipproof.studies.benchmark.figures import data_figure
from flipproof.studies.benchmark.jobs import Job, prepare, read_job, run_job
from flipproof.studies.benchmark.page import page
from flipproof.studies.benchmark.results import RADII, DataResults, collect, write_results

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["BenchmarkOptions", "benchmark", "run_plans"]


@dataclass(frozen=True)
class BenchmarkOptions(OutputOptions):
    """What ``flipproof benchmark`` was asked for."""

    config: Path
    out: Path
    root: str | None
    workers: int | None


def benchmark(options: BenchmarkOptions) -> int:
    """Run what is missing, write results, page and figures, print the overview; the exit code."""
    plans = read_config(options.config, root=options.root)
    try:
        results = run_plans(plans, options.out, "benchmark", workers=options.workers, silent=options.silent)
    except KeyboardInterrupt:
        note(f"stopped; what is finished is kept. continue with: {options.again}", quiet=options.quiet)
        return 130
    paths = _write(results, {plan.name: plan for plan in plans}, options)
    if options.as_json:
        print(json.dumps({"run": str(options.out), "results": json.loads(paths[1].read_text())}, allow_nan=False))
    elif not options.quiet:
        _print_overview(results, paths)
    return 0


def run_plans(
    plans: Sequence[Plan], folder: Path, command: str, *, workers: int | None, silent: bool
) -> list[DataResults]:
    """Run the jobs that are not stored in the folder yet, and collect all. A second process is refused."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out must be a folder; {folder} is a file (choose another name)")
    jobs = prepare(plans)
    with locked(folder):
        Run(folder, {"command": command})
        missing = [job for job in jobs if read_job(job, folder) is None]
        done = len(jobs) - len(missing)
        note(f"{len(jobs)} jobs, {done} of them done already" if done else f"{len(jobs)} jobs", quiet=silent)
        work = partial(run_job, plans={plan.name: plan for plan in plans}, folder=folder)
        count = min(workers or os.cpu_count() or 1, max(1, len(missing)))
        run_jobs_with_progress(_together(missing), work, workers=count, console=_console(silent))
    return collect(jobs, folder)


def _together(jobs: Sequence[Job]) -> list[Job]:
    """Jobs of the same data set stay together, so that it is read once; the order of data sets is the file's."""
    places = {name: place for place, name in enumerate(dict.fromkeys(job.data for job in jobs))}
    return sorted(jobs, key=lambda job: (places[job.data], job.split))


def _console(silent: bool) -> Console:
    from rich.console import Console

    return Console(stderr=True, quiet=silent)


def _write(results: Sequence[DataResults], plans: Mapping[str, Plan], options: BenchmarkOptions) -> list[Path]:
    paths = write_results(results, options.out)
    figures = {}
    for data in results:
        stem = options.out / "figures" / re.sub(r"[^A-Za-z0-9]+", "-", Path(data.name).name).lower()
        data_figure(stem, data)
        figures[data.name] = stem.with_suffix(".svg").relative_to(options.out)
    command = f"flipproof benchmark {options.config.as_posix()}{' --root DATA' * bool(options.root)} --out DIR"
    write_text(options.out / "page.md", page(results, plans, figures, command=command))
    return [*paths, options.out / "page.md", *(options.out / figure for figure in figures.values())]


def _print_overview(results: Sequence[DataResults], paths: Sequence[Path]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table("data", "clean", "edge-blind", *(f"r = {r}" for r in RADII), title="Best certified accuracy")
    for data in results:
        row: list[Any] = [max(series.accuracy(0).mean for series in data.clean), data.edge_blind.accuracy(0).mean]
        row += [data.best(r).accuracy(r).mean for r in RADII]
        table.add_row(Path(data.name).name, *(f"{value:.3f}" for value in row))
    console.print(table)
    console.print("written:")
    for path in paths:
        console.print(f"  {path}", soft_wrap=True, markup=False, highlight=False)
