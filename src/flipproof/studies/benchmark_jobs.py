"""The jobs of a benchmark: an experiment of one method on one fold each, stored whole."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flipproof import __version__
from flipproof.certificates.metrics import certified_accuracy, majority_share
from flipproof.datasets import Dataset
from flipproof.datasets.sources import fingerprint
from flipproof.datasets.splits import drawn, write_folds
from flipproof.engines import Engine
from flipproof.engines.pool import one_thread
from flipproof.errors import InputError
from flipproof.fields import to_plain
from flipproof.noise import STREAM_VERSION
from flipproof.progress import note
from flipproof.report.content import ATTACKERS, RADII
from flipproof.runs.run_folder import Run, StudySettings, written_run
from flipproof.studies.benchmark_config import Protocol, Row
from flipproof.studies.candidate import Candidate, Learned
from flipproof.studies.experiment import Experiment, check_features, load_graphs, run_jobs

LIMIT = "limit of the task"


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
    """All jobs; refuses data that cannot be used, before any work."""
    jobs = []
    for protocol in protocols:
        data = load_graphs(protocol.source)
        if protocol.limit:
            jobs.append(Job(protocol.name, LIMIT, -1, _digest([fingerprint(data), RADII, __version__])))
        named = [(row.candidates[0], row.features or protocol.features) for row in protocol.rows]
        check_features(data, data.graphs, [candidate.features(name, data) for candidate, name in named])
        for row in protocol.rows:
            published = protocol.experiment(row).published
            if published is not None and not published.is_file():
                raise InputError(
                    f"there is no file of folds {published} (leave splits out, and the benchmark writes its own; or publish one "
                    "with benchmarks/make_splits.py)"
                )
            jobs += [
                Job(protocol.name, row.name, number, _digest(_identity(protocol, row, number)))
                for number in protocol.folds
            ]
    return jobs


def _identity(protocol: Protocol, row: Row, number: int) -> dict[str, Any]:
    """All that a result depends on, as plain JSON."""
    experiment, candidate = protocol.experiment(row, number), row.candidates[0]
    parts = experiment.parts
    return {
        "data": protocol.name,
        "graphs": fingerprint(parts.dataset),
        "fold": number,
        "test": _digest(parts.test_indices.tolist()),
        "validation": _digest(parts.validation_indices.tolist()),
        "row": row.to_dict(),
        "training": {} if row.edge_blind else dict(experiment.training),
        "features": candidate.features(experiment.features, parts.dataset).spec,
        "question": to_plain(candidate.question(experiment.sampling)),
        "validation_graphs": protocol.validation_graphs,
        "attacks": [protocol.attacked, protocol.attack_budget, protocol.attack_calls],
        "versions": [__version__, STREAM_VERSION],
    }


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def finished_jobs(
    protocols: Sequence[Protocol],
    folder: Path,
    *,
    wanted: Callable[[Job], bool] = lambda job: True,
    workers: int | None = None,
    engine: Engine | None = None,
    quiet: bool = True,
) -> dict[Job, dict[str, Any]]:
    """What every finished job amounts to; of the wanted ones, those that the folder does not hold yet are run.

    A second process is refused, and so is a folder of a benchmark with other settings.
    """
    jobs = jobs_of(protocols)
    stated = {protocol.name: protocol.to_dict() for protocol in protocols}
    with written_run(folder, StudySettings("benchmark", stated, {job.name: job.digest for job in jobs})) as run:
        stored = run.store.finished()
        contents = {job: content for job in jobs if job.name in stored and (content := _stored(run, job, quiet))}
        # fold by fold: what is there when it is stopped covers all data sets alike
        missing = sorted((job for job in jobs if job not in contents and wanted(job)), key=lambda job: job.fold)
        done = f", {len(contents)} of them done already" if contents else ""
        note(f"{len(jobs)} jobs{done}; {len(missing)} to do", quiet=quiet)
        for protocol in protocols:
            if protocol.splits is None:
                write_folds(folder / "splits" / protocol.folds_file, load_graphs(protocol.source))
        work = JobWork({protocol.name: protocol for protocol in protocols})
        for job, content in run_jobs(
            "working", missing, work, workers=workers, engine=engine, quiet=quiet, unit="folds of methods"
        ):
            run.store.finish(job.name, json.dumps(content).encode())
            contents[job] = content
    return {job: contents[job] for job in jobs if job in contents}


def _stored(run: Run[StudySettings], job: Job, quiet: bool) -> Any:
    try:
        return json.loads(run.store.load(job.name))
    except InputError as error:
        note(f"{error}; it is done again", quiet=quiet)


@dataclass(frozen=True)
class JobWork:
    """What a worker does: choose, train, certify, attack, and hand back the result as plain JSON."""

    protocols: Mapping[str, Protocol]

    def __call__(self, job: Job) -> dict[str, Any]:
        protocol = self.protocols[job.data]
        try:
            with one_thread():
                if job.fold < 0:
                    return _limit(load_graphs(protocol.source))
                row = next(row for row in protocol.rows if row.name == job.row)
                return _result(protocol, row, job.fold)
        except InputError as error:
            raise InputError(f"{job.name}: {error}") from error


def _limit(data: Dataset) -> dict[str, Any]:
    from flipproof.datasets.task_limit import distances, most_certified

    apart = distances(list(data), data.labels.tolist(), most=2 * max(RADII))
    return {"graphs": len(data), "most": most_certified(apart, len(data), RADII)}


def _result(protocol: Protocol, row: Row, number: int) -> dict[str, Any]:
    experiment = protocol.experiment(row, number)
    parts, test, started = experiment.parts, experiment.parts.test, time.process_time()
    tried = []
    for candidate in row.candidates:
        began = time.process_time()
        learned = experiment.learn(candidate)
        seconds = time.process_time() - began
        tried.append((_score(experiment, candidate, learned), candidate, learned, seconds))
    searched = time.process_time() - started
    _, candidate, learned, seconds = max(tried, key=lambda one: one[0])  # of equals the first
    certified = candidate.certify(learned, test.graphs, experiment.sampling, tuple(row.readings))
    recorded = {
        ({"": row.name} | row.readings)[reading]: {"predicted": [one.label for one in certificates]}
        | {column: [getattr(one, column) for one in certificates] for column in ATTACKERS}
        for reading, certificates in certified.certificates.items()
    }
    return {
        "chosen": dict(candidate.settings),
        "tried": [{"settings": dict(one.settings), "validation": round(score, 6)} for score, one, *_ in tried],
        "train_graphs": len(parts.train),
        "train_accuracy": learned.accuracy,
        "graphs": parts.test_indices.tolist(),
        "labels": test.labels.tolist(),
        "majority": majority_share(parts.train.labels, test.labels),
        "rows": recorded,
        "calls": certified.calls,
        "attacked": _attacked(protocol, candidate, learned, test, number),
        "seconds": {"search": searched, "train": seconds, **certified.seconds},
    }


def _score(experiment: Experiment, candidate: Candidate, learned: Learned) -> float:
    """Certified accuracy on validation graphs, over all radii; of no account where there is nothing to choose."""
    if len(experiment.candidates) == 1:
        return 0.0
    graphs = experiment.validation
    certificates = candidate.certify(learned, graphs.graphs, experiment.sampling).certificates[""]
    return float(certified_accuracy(certificates, graphs.labels, RADII).mean())


def _attacked(protocol: Protocol, candidate: Candidate, learned: Learned, test: Dataset, number: int) -> dict[str, Any]:
    """The smallest attack found on a few test graphs: its flips, or none; 0 flips where the answer is wrong anyway."""
    from flipproof.attacks import strongest

    defence = candidate.defended(learned.model, learned.features, trust_features=True)
    places = drawn(test, protocol.attacked, seed=number).tolist() if protocol.attacked else []
    sizes: list[int | None] = []
    for place in places:
        graph = test[place]
        if candidate.defence.edge_blind:
            sizes.append(None if defence.predict(graph) == graph.label else 0)
            continue
        attack = strongest(
            defence,
            graph,
            budget=protocol.attack_budget,
            attacks=("known", "greedy"),
            label=graph.label,
            samples=64,
            confirm_samples=1000,
            alpha=0.001,
            seed=0,
            max_calls=protocol.attack_calls,
        )
        sizes.append(attack.size if attack.success else None)
    return {"graphs": places, "budget": protocol.attack_budget, "flips": sizes}
