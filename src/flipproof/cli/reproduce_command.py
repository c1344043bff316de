"""``flipproof reproduce``: the paper, end to end, and which of its claims hold."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from flipproof.checks import checked_seed
from flipproof.cli.options import FolderOptions, OutputOptions, Result, WorkerOptions, narrow_table
from flipproof.fields import option
from flipproof.studies.paper_experiment import Settings, data_split, run_experiment
from flipproof.studies.paper_page import Reproduced, write_paper


@dataclass(frozen=True, kw_only=True)
class Options(OutputOptions, WorkerOptions, FolderOptions):
    quick: bool = option("Run a small version in under a minute; its figures mean little.", False)
    seed: int = option("Seed of data, split, weights and noise.", 0)


def reproduce(options: Options) -> Result:
    seed = checked_seed(options.seed)
    settings = Settings.quick(seed=seed) if options.quick else Settings(seed=seed)
    started = time.perf_counter()
    run_experiment(settings, options.out, workers=options.workers, quiet=options.silent)
    paper = write_paper(settings, options.out)
    claims = [asdict(claim) for claim in paper.claims]
    summary = {"run": str(options.out), "edge_blind_accuracy": paper.edge_blind_accuracy, "claims": claims}
    return Result(summary, _shown(paper, settings, started))


def _shown(paper: Reproduced, settings: Settings, started: float) -> Iterator[Any]:
    from rich.table import Table

    claims = Table("claim of the paper", "measured", "holds", title="Claims", show_lines=True)
    for claim in paper.claims:
        claims.add_row(claim.claim, claim.measured, "yes" if claim.holds else "[bold]no[/bold]")
    yield claims
    head, *rows = paper.gains
    samples = f"{settings.samples():,} samples for the GCN, {settings.gin_samples:,} for the GINs"
    title = f"alpha {settings.alpha:g}, {samples}; mean ± half the range over networks, 95% interval"
    for network, group in groupby(rows, key=lambda row: row[0]):
        yield narrow_table([row[1:] for row in (head, *group)], title=f"{network}: {title}", texts=3)
    yield from (data_split(settings).describe(), "written:", *(f"  {path}" for path in paper.paths))
    yield f"done in {time.perf_counter() - started:.0f} s"
