"""``flipproof protect`` and ``tune``: the network and defence that certify most against the attack to be withstood;
``flipproof benchmark``: many of them compared, as a config file says."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flipproof.checks import checked_seconds
from flipproof.cli.options import (
    DataOptions,
    Defended,
    FeatureChoice,
    FolderOptions,
    OutputOptions,
    Result,
    TrainingOptions,
    WorkerOptions,
    data_option,
    narrow_table,
)
from flipproof.errors import InputError
from flipproof.fields import option
from flipproof.report.content import RADII
from flipproof.report.wording import LINE
from flipproof.studies import estimator, tuning
from flipproof.studies.benchmark import finished_jobs
from flipproof.studies.benchmark_config import read_protocols
from flipproof.studies.candidate import compared_defences, named_candidate
from flipproof.studies.estimator import RobustGraphClassifier
from flipproof.studies.experiment import Experiment, ladder_of
from flipproof.studies.standings import results_table, standings, write_benchmark
from flipproof.studies.threat import Threat


@dataclass(frozen=True, kw_only=True)
class _ThreatOptions(OutputOptions, WorkerOptions, DataOptions, FeatureChoice, FolderOptions):
    radius: int | None = option("Number of flips of any kind to withstand.", None, least=0)
    adds: int | None = option("Number of additions to withstand, together with --removes.", None, least=0)
    removes: int | None = option("Number of removals to withstand, together with --adds.", None, least=0)
    changes: int = option("Number of changed node labels, or bits, to withstand beside --radius.", 0, least=0)
    validation: float = data_option("Share of the graphs on which the choice is made.", 0.2)

    @property
    def threat(self) -> Threat:
        pair = self.adds is not None or self.removes is not None
        if pair == (self.radius is not None):
            raise InputError(
                "say which attack is to be withstood: either --radius (any flips), or --adds and --removes (for instance "
                "--radius 2)"
            )
        return Threat((self.adds or 0, self.removes or 0) if self.radius is None else self.radius, self.changes)


@dataclass(frozen=True, kw_only=True)
class ProtectOptions(_ThreatOptions):
    time: str = option("Time limit for the search and the final training, such as 90s, 10m or 2h.", "10m")
    epochs: int = option("Number of epochs of the longest trainings.", 200, least=1)


def protect(options: ProtectOptions) -> Result:
    checked_seconds(options.time, "--time")
    robust = RobustGraphClassifier(
        radius=options.threat.flips,
        changes=options.changes,
        time=options.time,
        features=options.features,
        epochs=options.epochs,
        workers=options.workers or 0,
        progress=not options.silent,
    )
    protected = estimator.protect(robust, options.source, options.out)
    told = protected.summary
    title = f"Share of {told['test_graphs']} test graphs that are right, with 95% intervals"
    table = narrow_table(protected.table, title=title, texts=1)
    further = f"predict with: {told['predict_command']}, or in Python: {told['predict']}"
    return Result(told, [*protected.sentences, table, f"report: {told['report']}", further])


@dataclass(frozen=True, kw_only=True)
class TuneOptions(_ThreatOptions, TrainingOptions, Defended):
    JOINED = ("asking",)
    DEFAULTS = {"samples": 2000}  # noqa: RUF012 - a choice needs fewer than a certificate

    time: str | None = option("Time limit for the search, such as 10m or 2h; by default none.", None)
    model: list[str] | None = option("Network to try, by default gin; give it several times.", None, panel="Candidates")
    candidate: list[str] | None = option(
        'Defence to try, with its settings, such as "smoothing keep=0.9"; repeatable.', None, panel="Candidates"
    )


def tune(options: TuneOptions) -> Result:
    values, training, networks = options.defence_values, dict(options.training), options.model or []
    known = {entry.name for defence in compared_defences() for entry in defence.asking}
    experiment = Experiment(
        options.source,
        options.threat,
        tuple(dict.fromkeys(map(named_candidate, options.candidate or []))),
        ladder_of(training.pop("epochs")),
        options.features,
        training,
        {**options.DEFAULTS, **{key: value for key, value in values.items() if key in known}},
    ).prepared(list(dict.fromkeys(networks)), quiet=options.quiet)
    seconds = math.inf if options.time is None else checked_seconds(options.time, "--time")
    choice = tuning.tune(experiment, options.out, seconds=seconds, workers=options.workers, quiet=options.silent)
    title = f"{Path(options.data).name}: share of validation graphs that are right, with 95% intervals"
    table = narrow_table(choice.table, title=title, texts=3)
    return Result(choice.summary, [table, *choice.sentences, "go on with:", *choice.summary["next"]])


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions(OutputOptions, WorkerOptions, FolderOptions):
    config: Path = option("A TOML file of data sets and methods.", argument="CONFIG")
    root: str | None = option("Folder of the TU data sets.", None)
    page: Path | None = option(
        "Page of results to write, with CSV, LaTeX and figures beside it; by default results.md in --out.", None
    )


def benchmark(options: BenchmarkOptions) -> Result:
    protocols = read_protocols(options.config, root=options.root)
    finished = finished_jobs(protocols, options.out, workers=options.workers, quiet=options.silent)
    results = standings(protocols, finished)
    command = f"flipproof benchmark {options.config.as_posix()}{' --root DATA' * bool(options.root)} --out DIR"
    paths = write_benchmark(results, options.out, options.page or options.out / "results.md", command=command)
    records = json.loads(results_table(results).to_json(orient="records"))
    rows: list[list[Any]] = [["data", LINE, *(f"r = {r}" for r in RADII)]]
    for data in results:
        best = (max((data.accuracy(name, r) for name in data.radii), key=lambda one: one.mean) for r in RADII)
        rows.append([data.title, data.accuracy(data.line, 0), *best])
    table = narrow_table(rows, title="Best certified accuracy, with 95% intervals", texts=1)
    summary = {"run": str(options.out), "results": records}
    return Result(summary, [table, "written:", *(f"  {path}" for path in paths)])
