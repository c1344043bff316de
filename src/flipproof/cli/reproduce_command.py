"""``flipproof reproduce``: the paper, end to end, and which of its claims hold."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from flipproof.checks import checked_seed
from flipproof.cli.options import OutputOptions, WorkerOptions, option
from flipproof.cli.summary import narrow_table, print_lines, stacked
from flipproof.progress import note
from flipproof.studies.reproduce.experiment import Settings, data_split, run_experiment
from flipproof.studies.reproduce.paper_page import Reproduced, write_paper

__all__ = ["Options", "run", "run_settings"]


@dataclass(frozen=True)
class Options(OutputOptions, WorkerOptions):
    """What ``flipproof reproduce`` is asked for."""

    out: Path = option("Folder for everything that is made; run the same command again to continue.")
    quick: bool = option("Run a small version in under a minute; its figures mean little.", False)
    seed: int = option("Seed of data, split, weights and noise.", 0)


def run(options: Options) -> int:
    """Reproduce the paper. The exit code."""
    checked_seed(options.seed)
    return run_settings(options, Settings.quick(seed=options.seed) if options.quick else Settings(seed=options.seed))


def run_settings(options: Options, settings: Settings) -> int:
    """Run what is missing, write figures and page, print paths and claims. The exit code."""
    started = time.perf_counter()
    try:
        run_experiment(settings, options.out, workers=options.workers, quiet=options.silent)
        found = write_paper(settings, options.out)
    except KeyboardInterrupt:
        note(f"stopped; what is finished is kept. continue with: {options.again}")
        return 130
    if options.as_json:
        claims = [asdict(claim) for claim in found.claims]
        summary = {"run": str(options.out), "edge_blind_accuracy": found.edge_blind_accuracy, "claims": claims}
        print(json.dumps(summary, allow_nan=False))
    elif not options.quiet:
        _print_results(found, settings)
        print_lines([f"done in {time.perf_counter() - started:.0f} s"])
    return 0


def _print_results(found: Reproduced, settings: Settings) -> None:
    from rich.console import Console
    from rich.table import Table

    claims = Table("claim of the paper", "measured", "holds", title="Claims", show_lines=True)
    for claim in found.claims:
        claims.add_row(claim.claim, claim.measured, "yes" if claim.holds else "[bold]no[/bold]")
    head, *rows = found.gains
    title = (
        f"Certificates compared (alpha {settings.alpha:g}, {settings.gain_samples:,} samples; mean ± half the range over "
        "networks, 95% interval)"
    )
    gains = narrow_table(head, title=title, texts=1)
    for row in rows:
        gains.add_row(*map(stacked, row))
        if row[2] == rows[-1][2]:
            gains.add_row()
    console = Console(file=sys.stdout)
    console.print(claims)
    console.print(gains)
    print_lines([data_split(settings).describe(), "written:", *(f"  {path}" for path in found.paths)])
