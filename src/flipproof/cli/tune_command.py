"""``flipproof tune``: the network and defence that certify most against the attack to be withstood, on validation graphs."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from flipproof.cli.options import (
    DataOptions,
    Defended,
    FeatureChoice,
    OutputOptions,
    TrainingOptions,
    WorkerOptions,
    option,
)
from flipproof.cli.summary import print_lines
from flipproof.progress import note
from flipproof.studies.candidate import compared_defences, given_candidates
from flipproof.studies.tuning import Choice, Target, tune, tuning_plan

__all__ = ["DEFAULTS", "JOINED", "REPEATED", "Options", "run"]

JOINED = ("asking",)
REPEATED = ("trial_options",)
DEFAULTS = {"samples": "2000"}  # a choice needs fewer than a certificate


@dataclass(frozen=True)
class Options(OutputOptions, WorkerOptions, TrainingOptions, DataOptions, FeatureChoice, Defended):
    """What ``flipproof tune`` is asked for."""

    out: Path = option("Folder for everything that is made; run the same command again to continue.")
    radius: int | None = option("Number of flips of any kind to withstand.", None, least=0)
    adds: int | None = option("Number of additions to withstand, together with --removes.", None, least=0)
    removes: int | None = option("Number of removals to withstand, together with --adds.", None, least=0)
    model: list[str] | None = option("Network to try, by default gin; give it several times.", None, panel="Candidates")
    candidate: list[str] | None = option(
        'Defence to try, with its settings, such as "smoothing keep=0.9"; give it several times.',
        None,
        panel="Candidates",
    )
    validation: float = option("Share of the graphs on which the choice is made.", 0.2, panel="Data")
    train_graphs: int | None = option("Train on only so many graphs.", None, panel="Data", least=1)
    graphs: int | None = option("Certify only so many validation graphs.", None, panel="Data", least=1)


def run(options: Options) -> int:
    """Try all candidates, print the best and the commands that go on with it. The exit code."""
    target = Target(options.radius, options.adds, options.removes)
    given = options.defence_values
    known = {entry.name for defence in compared_defences() for entry in defence.asking}
    plan = tuning_plan(
        options.source,
        target,
        networks=options.model or ["gin"],
        training=options.training,
        candidates=given_candidates(given, options.candidate or []),
        asked={**DEFAULTS, **{key: value for key, value in given.items() if key in known}},
        features=options.features,
        train_graphs=options.train_graphs,
        graphs=options.graphs,
    )
    try:
        choice = tune(plan, target, options.out, workers=options.workers, quiet=options.silent)
    except KeyboardInterrupt:
        note(f"stopped; what is finished is kept. continue with: {options.again}", quiet=options.quiet)
        return 130
    if options.as_json:
        print(json.dumps(choice.summary, allow_nan=False))
    elif not options.quiet:
        _print_choice(choice)
    return 0


def _print_choice(choice: Choice) -> None:
    from rich.console import Console
    from rich.table import Table

    name = Path(choice.summary["data"]).name
    shown = Table(*choice.table[0], title=f"{name}: share of validation graphs that are right")
    for row in choice.table[1:]:
        shown.add_row(*row)
    Console(file=sys.stdout).print(shown)
    written = [f"  {path}" for path in choice.paths]
    print_lines([*choice.verdict, "written:", *written, "go on with:", *choice.summary["next"]])
