"""``flipproof reproduce``: runs the experiment with progress bars and prints what came out."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table as RichTable

from flipproof.reproduce.experiment import Job, Settings, checked_folder, data_split
from flipproof.reproduce.page import write_results
from flipproof.reproduce.workers import run_jobs

__all__ = ["reproduce"]


def reproduce(folder: Path, settings: Settings, *, workers: int | None, console: Console, again: str) -> int:
    """Run what is missing, write figures and page, print paths and claims; the exit code."""
    started = time.perf_counter()
    checked_folder(folder, settings)
    console.print(data_split(settings).describe(), soft_wrap=True)
    count = workers or os.cpu_count() or 1
    try:
        _run_with_progress(settings, folder, count, console)
    except KeyboardInterrupt:
        console.print(f"\nstopped; what is finished is kept. continue with: {again}", soft_wrap=True)
        return 130
    with console.status("drawing the figures"):
        paths, claims, gains = write_results(settings, folder)
    table = RichTable("claim of the paper", "measured", "holds", title="Claims", show_lines=True)
    for claim in claims:
        table.add_row(claim.claim, claim.measured, "yes" if claim.holds else "[bold]no[/bold]")
    console.print(table)
    table = RichTable(
        *gains[0], title=f"Certificates compared (alpha {settings.alpha:g}, {settings.samples:,} samples)"
    )
    for row in gains[1:]:
        table.add_row(*row, end_section=row[2] == gains[-1][2])
    console.print(table)
    console.print("written:")
    for path in paths:
        console.print(f"  {path}", soft_wrap=True)
    console.print(f"done in {time.perf_counter() - started:.0f} s")
    return 0


def _run_with_progress(settings: Settings, folder: Path, workers: int, console: Console) -> None:
    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    jobs = settings.jobs()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        overall = bars.add_task("everything", total=sum(_weight(job) for job in jobs))
        tasks: dict[Job, tuple[str, TaskID]] = {}
        ended: list[Job] = []

        def listen(job: Job, what: str, done: int, total: int) -> None:
            if total == 0:
                console.print(f"{job.name}: {what}")
                return
            if what == "done":
                if job in tasks:
                    bars.remove_task(tasks.pop(job)[1])
                ended.append(job)
                bars.update(overall, completed=sum(map(_weight, ended)))
                if not console.is_terminal:
                    console.print(f"{job.name}: done ({len(ended)} of {len(jobs)})")
                return
            if job not in tasks or tasks[job][0] != what:
                if job in tasks:
                    bars.remove_task(tasks[job][1])
                tasks[job] = (what, bars.add_task(f"{job.name}: {what}", total=total))
            bars.update(tasks[job][1], completed=done)

        run_jobs(settings, folder, workers=workers, listener=listen)


def _weight(job: Job) -> float:
    """Rough cost of a job, for the bar over everything."""
    if job.keep is None:
        return 1
    return 10 if job.network == "gin" else 5
