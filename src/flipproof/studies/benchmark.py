"""The jobs of a benchmark: an experiment of one method on one fold each, stored whole."""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from flipproof import __version__
from flipproof.certificates.metrics import majority_share
from flipproof.datasets import Dataset
from flipproof.datasets.sources import fingerprint
from flipproof.datasets.splits import drawn, write_folds
from flipproof.engines import cores
from flipproof.engines.pool import one_thread
from flipproof.errors import InputError
from flipproof.noise import STREAM_VERSION
from flipproof.progress import note
from flipproof.report.content import RADII
from flipproof.runs.run_folder import Run, StudySettings, written_run
from flipproof.studies.benchmark_config import Protocol, Row
from flipproof.studies.candidate import Candidate, Learned
from flipproof.studies.experiment import Trial, check_features, load_graphs, run_jobs
from flipproof.studies.provenance import code_hash, commit

LIMIT = "limit of the task"
_ATTACK: Any = {"attacks": ("known", "greedy"), "samples": 64, "confirm_samples": 1000, "alpha": 0.001, "seed": 0}


@dataclass(frozen=True)
class Job:
    """A row on a fold of a data set, or (``fold`` -1) the limit of the task.

    ``digest`` tells it from the same piece of a benchmark with other settings or data.
    """

    data: str
    row: str
    fold: int
    digest: str

    @property
    def name(self) -> str:
        return f"{self.data}, {self.row}" + (f", fold {self.fold}" if self.fold >= 0 else "")


def jobs_of(protocols: Sequence[Protocol]) -> list[Job]:
    """All jobs, fold by fold: what is there when it is stopped covers all data sets alike. Refuses data that cannot be used."""
    jobs = []
    for protocol in protocols:
        data = load_graphs(protocol.source)
        if protocol.limit:
            jobs.append(Job(protocol.name, LIMIT, -1, _digest([fingerprint(data), RADII, __version__])))
        named = [(row.candidates[0], row.features or protocol.features) for row in protocol.rows]
        check_features(data, data.graphs, [candidate.features(name, data) for candidate, name in named])
        published = protocol.experiment(protocol.rows[0]).published
        if published is not None and not published.is_file():
            raise InputError(
                f"there is no file of folds {published} (leave splits out, and the benchmark writes its own; or publish one "
                "with benchmarks/make_splits.py)"
            )
        for row in protocol.rows:
            stated = [protocol.stated_for(row), fingerprint(data), __version__, STREAM_VERSION]
            for number in sorted(set(protocol.folds)):
                tested = protocol.experiment(row, number).parts.test_indices.tolist()
                jobs.append(Job(protocol.name, row.name, number, _digest([*stated, number, tested])))
    return sorted(jobs, key=lambda job: job.fold)


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def finished_jobs(
    protocols: Sequence[Protocol], folder: Path, *, workers: int | None = None, quiet: bool = True
) -> dict[Job, dict[str, Any]]:
    """What every job amounts to; those that the folder does not hold yet are run.

    A second process is refused, and so is a folder of a benchmark with other settings.
    """
    jobs = jobs_of(protocols)
    stated = {protocol.name: {row.name: protocol.stated_for(row) for row in protocol.rows} for protocol in protocols}
    with written_run(folder, StudySettings("benchmark", stated, {job.name: job.digest for job in jobs})) as run:
        stored = run.store.finished()
        contents = {job: content for job in jobs if job.name in stored and (content := _stored(run, job, quiet))}
        missing = [job for job in jobs if job not in contents]
        done = f", {len(contents)} of them done already" if contents else ""
        note(f"{len(jobs)} jobs{done}; {len(missing)} to do", quiet=quiet)
        for protocol in protocols:
            if protocol.splits is None:
                write_folds(folder / "splits" / protocol.folds_file, load_graphs(protocol.source))
        work = partial(job_result, {protocol.name: protocol for protocol in protocols})
        for job, content in run_jobs("working", missing, work, workers=workers, quiet=quiet, unit="folds of methods"):
            run.store.finish(job.name, json.dumps(content).encode())
            contents[job] = content
    return contents


def _stored(run: Run[StudySettings], job: Job, quiet: bool) -> Any:
    try:
        return json.loads(run.store.load(job.name))
    except InputError as error:
        note(f"{error}; it is done again", quiet=quiet)


def job_result(protocols: Mapping[str, Protocol], job: Job) -> dict[str, Any]:
    """What a worker does: choose, train, certify, attack, and hand back the result as plain JSON."""
    from flipproof.datasets.task_limit import distances, most_certified

    protocol, started = protocols[job.data], time.perf_counter()
    try:
        with one_thread():
            if job.fold < 0:
                data = load_graphs(protocol.source)
                apart = distances(list(data), data.labels.tolist(), most=2 * max(RADII))
                content = {"graphs": len(data), "most": most_certified(apart, len(data), RADII)}
            else:
                row = next(row for row in protocol.rows if row.name == job.row)
                content = _chosen(protocol, row, job.fold)
    except InputError as error:
        raise InputError(f"{job.name}: {error}") from error
    made = {"code": code_hash(), "commit": commit(), "machine": f"{cores()} cores, {platform.machine()}"}
    return {**content, "all_seconds": time.perf_counter() - started, "made": made}


def _chosen(protocol: Protocol, row: Row, number: int) -> dict[str, Any]:
    """The candidate of a row that certifies most validation graphs, and what it certifies of the test graphs."""
    experiment = protocol.experiment(row, number)
    parts, tried = experiment.parts, [experiment.tried(Trial(candidate)) for candidate in row.candidates]
    learned, best = max(tried, key=lambda one: one[1].score)  # of equals the first
    tested = parts.test_indices.tolist()
    result = experiment.judged(best.trial, learned, tested, tuple(row.readings), seconds=best.seconds["train"])
    return {
        "chosen": dict(best.trial.candidate.settings),
        "tried": [{"settings": dict(one.trial.candidate.settings), "score": round(one.score, 6)} for _, one in tried],
        "majority": majority_share(parts.train.labels, parts.test.labels),
        "result": result.to_dict(),
        "attacked": _attacked(protocol, best.trial.candidate, learned, parts.test, number),
    }


def _attacked(protocol: Protocol, candidate: Candidate, learned: Learned, test: Dataset, number: int) -> list[bool]:
    """Whether a few test graphs are right after the strongest attack that is found."""
    from flipproof.attacks import strongest

    defence = candidate.defended(learned.model, learned.features, trust_features=True)
    right = list[bool]()
    for place in drawn(test, protocol.attacked, seed=number).tolist() if protocol.attacked else ():
        graph = test[place]
        if candidate.defence.edge_blind:
            right.append(defence.predict(graph) == graph.label)
            continue
        effort = {**_ATTACK, "budget": protocol.attack_budget, "max_calls": protocol.attack_calls}
        right.append(not strongest(defence, graph, label=graph.label, **effort).success)
    return right
