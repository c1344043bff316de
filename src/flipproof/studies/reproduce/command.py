"""``flipproof reproduce``: runs the experiment with progress bars and prints what came out."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

from flipproof.workers import run_jobs_with_progress
from rich.console import Console
from rich.table import Table as RichTable

from flipproof.studies.reproduce.experiment import Settings, checked_folder, data_split, run_job
from flipproof.studies.reproduce.page import write_results

__all__ = ["reproduce"]


def reproduce(folder: Path, settings: Settings, *, workers: int | None, console: Console, again: str) -> int:
    """Run what is missing, write figures and page, print paths and claims; the exit code."""
    started = time.perf_counter()
    checked_folder(folder, settings)
    console.print(data_split(settings).describe(), soft_wrap=True)
    count = workers or os.cpu_count() or 1
    try:
        work = partial(run_job, settings=settings, folder=folder)
        run_jobs_with_progress(settings.jobs(), work, workers=count, console=console)
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
