"""``flipproof protect`` and ``tune``: the network and defence that certify most against the attack to be withstood;
``flipproof benchmark``: many of them compared, as a config file says."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flipproof.checks import checked_seconds
from flipproof.cli.options import (
    ClusterOptions,
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
from flipproof.progress import note
from flipproof.report.content import RADII
from flipproof.report.wording import LINE
from flipproof.studies import protection, tuning
from flipproof.studies.benchmark_config import Protocol, read_protocols
from flipproof.studies.benchmark_jobs import LIMIT, Job, finished_jobs
from flipproof.studies.candidate import Threat, check_networks, compared_defences, named_candidates
from flipproof.studies.experiment import Experiment, ladder_of
from flipproof.studies.standings import DataStandings, standings, write_benchmark


@dataclass(frozen=True, kw_only=True)
class _ThreatOptions(OutputOptions, WorkerOptions, DataOptions, FeatureChoice, FolderOptions):
    """Data, and the attack to withstand."""

    radius: int | None = option("Number of flips of any kind to withstand.", None, least=0)
    adds: int | None = option("Number of additions to withstand, together with --removes.", None, least=0)
    removes: int | None = option("Number of removals to withstand, together with --adds.", None, least=0)
    validation: float = data_option("Share of the graphs on which the choice is made.", 0.2)

    @property
    def threat(self) -> Threat:
        """The attack to withstand."""
        return Threat(self.radius, self.adds, self.removes)


@dataclass(frozen=True, kw_only=True)
class ProtectOptions(_ThreatOptions):
    time: str = option("Time limit for the search and the final training, such as 90s, 10m or 2h.", "10m")
    epochs: int = option("Number of epochs of the longest trainings.", 200, least=1)


def protect(options: ProtectOptions) -> Result:
    """Search, train and certify; what was chosen and what it is worth."""
    seconds, ladder = checked_seconds(options.time, "--time"), ladder_of(options.epochs)
    experiment = Experiment(options.source, options.threat, ladder=ladder, features=options.features)
    protected = protection.protect(
        experiment.prepared(quiet=options.silent),
        options.out,
        seconds=seconds,
        workers=options.workers,
        quiet=options.silent,
    )
    return Result(protected.summary, _protected(protected))


def _protected(protected: protection.Protection) -> Iterator[Any]:
    told = protected.summary
    yield protected.sentence
    title = f"Share of {told['test_graphs']} test graphs that are right, with 95% intervals"
    yield narrow_table(protected.table, title=title, texts=1)
    yield f"report: {told['report']}"
    yield f"predict with: {told['predict_command']}, or in Python: {told['predict']}"


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
    """Try all candidates; the best, and the commands that go on with it."""
    values, training, networks = options.defence_values, dict(options.training), options.model or []
    known = {entry.name for defence in compared_defences() for entry in defence.asking}
    check_networks(networks)
    experiment = Experiment(
        options.source,
        options.threat,
        named_candidates(options.candidate or []),
        ladder_of(training.pop("epochs")),
        options.features,
        training,
        {**options.DEFAULTS, **{key: value for key, value in values.items() if key in known}},
    ).prepared(list(dict.fromkeys(networks)), quiet=options.quiet)
    seconds = math.inf if options.time is None else checked_seconds(options.time, "--time")
    choice = tuning.tune(experiment, options.out, seconds=seconds, workers=options.workers, quiet=options.silent)
    return Result(choice.summary, _shown(choice))


def _shown(choice: tuning.Choice) -> Iterator[Any]:
    name = Path(choice.summary["data"]).name
    title = f"{name}: share of validation graphs that are right, with 95% intervals"
    yield narrow_table(choice.table, title=title, texts=3)
    yield from (*choice.verdict, "go on with:", *choice.summary["next"])


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions(ClusterOptions, FolderOptions):
    config: Path = option("A TOML file of data sets and methods.", argument="CONFIG")
    root: str | None = option("Folder of the TU data sets.", None)
    data: list[str] | None = option("Run this data set now; give it several times.", None, panel="Part")
    method: list[str] | None = option("Run this method now; give it several times.", None, panel="Part")
    fold: list[int] | None = option("Run this fold now; give it several times.", None, panel="Part")


def benchmark(options: BenchmarkOptions) -> Result | int:
    """Run what is missing, write results, page and figures of all that is finished."""
    protocols = read_protocols(options.config, root=options.root)
    _refuse_unknown(options, protocols)

    def wanted(job: Job) -> bool:
        return (
            (not options.data or job.data in options.data)
            and (not options.method or job.row in options.method)
            and (options.fold is None or job.fold in options.fold or job.row == LIMIT)
        )

    with options.cluster() as engine:
        finished = finished_jobs(
            protocols, options.out, wanted=wanted, workers=options.workers, engine=engine, quiet=options.silent
        )
    results = standings(protocols, finished)
    if not results:
        note("no edge-blind line is finished yet, so there is nothing to compare with", quiet=options.quiet)
        return 0
    command = f"flipproof benchmark {options.config.as_posix()}{' --root DATA' * bool(options.root)} --out DIR"
    paths = write_benchmark(results, options.out, command=command)
    summary = {"run": str(options.out), "results": json.loads(paths[1].read_text())}
    return Result(summary, _overview(results, paths))


def _refuse_unknown(options: BenchmarkOptions, protocols: Sequence[Protocol]) -> None:
    known: dict[str, list[Any]] = {
        "data": [protocol.name for protocol in protocols],
        "method": list(dict.fromkeys(row.name for protocol in protocols for row in protocol.rows)),
        "fold": sorted({number for protocol in protocols for number in protocol.folds}),
    }
    for name, values in known.items():
        for value in getattr(options, name) or ():
            if value not in values:
                shown = ", ".join(map(str, values))
                raise InputError(f"--{name} must be in the config, which has {shown}; got {value} (or leave it out)")


def _overview(results: Sequence[DataStandings], paths: Sequence[Path]) -> Iterator[Any]:
    rows: list[list[Any]] = [["data", LINE, *(f"r = {r}" for r in RADII)]]
    rows += [[data.title, data.line.accuracy(0), *(data.best(r).accuracy(r) for r in RADII)] for data in results]
    yield narrow_table(rows, title="Best certified accuracy, with 95% intervals", texts=1)
    yield from (f"{data.title}: {data.collapsed}" for data in results if data.collapsed)
    yield from ("written:", *(f"  {path}" for path in paths))
