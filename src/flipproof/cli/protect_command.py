"""``flipproof protect``: from graphs and an attack to the best certified classifier, in one command."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from flipproof.cli.options import DataOptions, FeatureChoice, OutputOptions, WorkerOptions, checked_seconds, option
from flipproof.cli.summary import print_lines
from flipproof.progress import note
from flipproof.studies.candidate import Threat
from flipproof.studies.protection import protect
from flipproof.studies.trials import Experiment, ladder_of

__all__ = ["Options", "run"]


@dataclass(frozen=True)
class Options(OutputOptions, WorkerOptions, DataOptions, FeatureChoice):
    """What ``flipproof protect`` is asked for."""

    out: Path = option("Folder for everything that is made; run the same command again to continue.")
    radius: int | None = option("Number of flips of any kind to withstand.", None, least=0)
    adds: int | None = option("Number of additions to withstand, together with --removes.", None, least=0)
    removes: int | None = option("Number of removals to withstand, together with --adds.", None, least=0)
    time: str = option("Time limit for the search and the final training, such as 90s, 10m or 2h.", "10m")
    epochs: int = option("Number of epochs of the longest trainings.", 200, least=1)
    validation: float = option("Share of the graphs on which the choice is made.", 0.2, panel="Data")


def run(options: Options) -> int:
    """Search, train, certify and attack; print what was chosen and what it is worth. The exit code."""
    threat, seconds = Threat(options.radius, options.adds, options.removes), checked_seconds(options.time)
    experiment = Experiment(options.source, threat, ladder=ladder_of(options.epochs), features=options.features)
    try:
        found = protect(
            experiment.prepared(quiet=options.silent),
            options.out,
            seconds=seconds,
            workers=options.workers,
            quiet=options.silent,
            again=options.again,
        )
    except KeyboardInterrupt:
        note(f"stopped; what is finished is kept. continue with: {options.again}", quiet=options.quiet)
        return 130
    if options.as_json:
        print(json.dumps(found.summary, allow_nan=False))
    elif not options.quiet:
        print_lines(found.sentences)
    return 0
