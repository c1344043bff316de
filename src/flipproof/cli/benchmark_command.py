"""``flipproof benchmark``: runs what a config file asks for, and writes tables, figures and a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flipproof.cli.options import ClusterOptions, FolderOptions, OutputOptions, Result
from flipproof.cli.summary import narrow_table, stacked
from flipproof.errors import InputError
from flipproof.fields import option
from flipproof.progress import note
from flipproof.report.content import RADII
from flipproof.report.wording import LINE
from flipproof.studies.benchmark_config import Protocol, read_protocols
from flipproof.studies.benchmark_jobs import LIMIT, Job, finished_jobs
from flipproof.studies.standings import DataStandings, standings, write_benchmark


@dataclass(frozen=True, kw_only=True)
class Options(OutputOptions, ClusterOptions, FolderOptions):
    """What ``flipproof benchmark`` takes."""

    config: Path = option("A TOML file of data sets and methods.", argument="CONFIG")
    root: str | None = option("Folder of the TU data sets.", None)
    data: list[str] | None = option("Run this data set now; give it several times.", None, panel="Part")
    method: list[str] | None = option("Run this method now; give it several times.", None, panel="Part")
    fold: list[int] | None = option("Run this fold now; give it several times.", None, panel="Part")


def benchmark(options: Options) -> Result | int:
    """Run what is missing, write results, page and figures of all that is finished."""
    options.check_engine()
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


def _refuse_unknown(options: Options, protocols: Sequence[Protocol]) -> None:
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
    head = ["data", LINE, *(f"r = {r}" for r in RADII)]
    table = narrow_table(head, title="Best certified accuracy, with 95% intervals", texts=1)
    for data in results:
        row = [data.line.accuracy(0), *(data.best(r).accuracy(r) for r in RADII)]
        table.add_row(data.title, *(stacked(str(value)).replace(" ± ", "\n±") for value in row))
    yield table
    yield from (f"{data.title}: {data.collapsed}" for data in results if data.collapsed)
    yield from ("written:", *(f"  {path}" for path in paths))
