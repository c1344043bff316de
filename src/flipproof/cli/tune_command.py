"""``flipproof tune``: the network and defence that certify most against the attack to be withstood, on validation graphs."""

from __future__ import annotations

import json
import math
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
    checked_seconds,
    option,
)
from flipproof.cli.summary import narrow_table, print_lines, stacked
from flipproof.progress import note
from flipproof.studies.candidate import Threat, check_networks, compared_defences, given_candidates
from flipproof.studies.trials import Experiment, ladder_of
from flipproof.studies.tuning import Choice, tune

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
    time: str | None = option("Time limit for the search, such as 10m or 2h; by default none.", None)
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
    threat = Threat(options.radius, options.adds, options.removes)
    given, training, networks = options.defence_values, dict(options.training), options.model or []
    known = {entry.name for defence in compared_defences() for entry in defence.asking}
    check_networks(networks)
    experiment = Experiment(
        options.source,
        threat,
        given_candidates(given, options.candidate or []),
        ladder_of(training.pop("epochs")),
        options.features,
        training,
        {**DEFAULTS, **{key: value for key, value in given.items() if key in known}},
        train_graphs=options.train_graphs,
        validation_graphs=options.graphs or Experiment.validation_graphs,
    ).prepared(list(dict.fromkeys(networks)), quiet=options.quiet)
    seconds = math.inf if options.time is None else checked_seconds(options.time)
    try:
        choice = tune(experiment, options.out, seconds=seconds, workers=options.workers, quiet=options.silent)
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

    name = Path(choice.summary["data"]).name
    title = f"{name}: share of validation graphs that are right, with 95% intervals"
    shown = narrow_table(choice.table[0], title=title, texts=3)
    for row in choice.table[1:]:
        shown.add_row(*map(stacked, row))
    Console(file=sys.stdout).print(shown)
    written = [f"  {path}" for path in choice.paths]
    print_lines([*choice.verdict, "written:", *written, "go on with:", *choice.summary["next"]])
