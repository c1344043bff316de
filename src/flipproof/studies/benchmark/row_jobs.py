"""One method on one fold: settings chosen on validation graphs, all test graphs certified, a few attacked; stored whole."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from flipproof import __version__
from flipproof.certificates.certificate import Certificate
from flipproof.certificates.metrics import majority_share, right_radii, shares
from flipproof.datasets import Dataset, Split
from flipproof.datasets.sources import DataSource, fingerprint
from flipproof.datasets.splits import FOLDS, drawn, folds, read_folds, write_folds
from flipproof.defences.asking import ask_all
from flipproof.defences.defended import DefendedClassifier
from flipproof.engines import Engine
from flipproof.errors import InputError
from flipproof.fields import to_plain
from flipproof.graphs import Graph
from flipproof.noise import STREAM_VERSION
from flipproof.progress import note
from flipproof.runs.run_folder import Run, written_run
from flipproof.runs.settings import StudySettings
from flipproof.studies.benchmark.protocol_file import Protocol, Row
from flipproof.studies.candidate import Candidate, Learned, learned
from flipproof.studies.job_runner import one_thread, run_jobs

__all__ = ["ATTACKERS", "LIMIT", "RADII", "Job", "JobWork", "finished_jobs", "fold", "jobs_of"]

RADII = (0, 1, 2, 3, 5, 10)
ATTACKERS = {"radius": "any flips", "adds_radius": "additions only", "removes_radius": "removals only"}
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
    effort: int = 1

    @property
    def name(self) -> str:
        """For messages, and in the store."""
        return f"{self.data}, {self.row}" + (f", fold {self.fold}" if self.fold >= 0 else "")

    @property
    def weight(self) -> int:
        """Rough cost, for the progress bar."""
        return self.effort


@lru_cache(maxsize=4)
def _graphs(source: DataSource) -> Dataset:
    return source.load()


@lru_cache(maxsize=2)
def _folds(source: DataSource, path: Path | None) -> list[Split]:
    data = _graphs(source)
    return folds(data, number=FOLDS, validation=True) if path is None else read_folds(path, data)


def fold(protocol: Protocol, number: int) -> Split:
    """The graphs of a fold: those of the published file, or of the folds that ``make_splits`` would publish."""
    path = None if protocol.splits is None else protocol.splits / f"{_file_name(protocol)}"
    if path is not None and not path.is_file():
        raise InputError(
            f"there is no file of folds {path} (leave splits out, and the benchmark writes its own; or publish one with "
            "benchmarks/make_splits.py)"
        )
    return _folds(protocol.source, path)[number]


def _file_name(protocol: Protocol) -> str:
    return f"{protocol.title.replace(':', '-')}.json"


def jobs_of(protocols: Sequence[Protocol]) -> list[Job]:
    """All jobs; refuses data that cannot be used, before any work."""
    from flipproof.classifiers.clean_edges import refuse_clean_edges

    jobs = []
    for protocol in protocols:
        data = _graphs(protocol.source)
        if protocol.limit:
            jobs.append(Job(protocol.name, LIMIT, -1, _digest([fingerprint(data), RADII, __version__])))
        hooks = [_features(protocol, row, data) for row in protocol.rows]
        for hook in hooks:
            hook.of(data[0])  # refuses graphs that lack what it reads
        if any(hook.reads_own for hook in hooks):
            refuse_clean_edges(list(data), data.feature_names)
        for row in protocol.rows:
            effort = (1 + row.defence.effort) * len(row.candidates)
            for number in protocol.folds:
                digest = _digest(_asked(protocol, row, number))
                jobs.append(Job(protocol.name, row.name, number, digest, effort))
    return jobs


def _features(protocol: Protocol, row: Row, graphs: Dataset) -> Any:
    from flipproof.models.loading import load_features

    name = row.features or protocol.features
    asked = None if name is None else load_features(name)
    if asked is None or (row.defence.edge_free_features and asked.reads_edges):
        return load_features(row.defence.default_features(graphs))
    return asked


def _asked(protocol: Protocol, row: Row, number: int) -> dict[str, Any]:
    """All that a result depends on, as plain JSON."""
    parts = fold(protocol, number)
    return {
        "data": protocol.name,
        "graphs": fingerprint(parts.dataset),
        "fold": number,
        "test": _digest(parts.test_indices.tolist()),
        "validation": _digest(parts.validation_indices.tolist()),
        "row": row.to_dict(),
        "training": {} if row.defence.edge_blind else {**protocol.training, **row.training},
        "features": _features(protocol, row, parts.dataset).spec,
        "question": to_plain(row.candidates[0].question({**protocol.asked, **row.asked})),
        "validation_graphs": protocol.validation_graphs,
        "attacks": [protocol.attacked, protocol.attack_budget, protocol.attack_calls],
        "versions": [__version__, STREAM_VERSION],
    }


def _digest(asked: Any) -> str:
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def finished_jobs(
    protocols: Sequence[Protocol],
    folder: Path,
    *,
    wanted: Any = lambda job: True,
    workers: int | None = None,
    engine: Engine | None = None,
    quiet: bool = True,
) -> dict[Job, dict[str, Any]]:
    """What every finished job amounts to; of the wanted ones, those that the folder does not hold yet are run.

    A second process is refused, and so is a folder of a benchmark with other settings.
    """
    jobs = jobs_of(protocols)
    asked = {protocol.name: protocol.to_dict() for protocol in protocols}
    with written_run(folder, StudySettings("benchmark", asked, {job.name: job.digest for job in jobs})) as run:
        stored = run.store.finished()
        found = {job: content for job in jobs if job.name in stored and (content := _stored(run, job, quiet))}
        # fold by fold: what is there when it is stopped covers all data sets alike
        missing = sorted((job for job in jobs if job not in found and wanted(job)), key=lambda job: job.fold)
        done = f", {len(found)} of them done already" if found else ""
        note(f"{len(jobs)} jobs{done}; {len(missing)} to do", quiet=quiet)
        for protocol in protocols:
            if protocol.splits is None:
                write_folds(folder / "splits" / _file_name(protocol), _graphs(protocol.source))
        work = JobWork({protocol.name: protocol for protocol in protocols})
        for job, content in run_jobs("working", missing, work, workers=workers, engine=engine, quiet=quiet):
            run.store.finish(job.name, json.dumps(content).encode())
            found[job] = content
    return {job: found[job] for job in jobs if job in found}


def _stored(run: Run[StudySettings], job: Job, quiet: bool) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(run.store.load(job.name))
    except InputError as error:
        note(f"{error}; it is done again", quiet=quiet)
        return None
    return content


@dataclass(frozen=True)
class JobWork:
    """What a worker does: choose, train, certify, attack, and hand back the result as plain JSON."""

    protocols: Mapping[str, Protocol]

    def __call__(self, job: Job) -> dict[str, Any]:
        protocol = self.protocols[job.data]
        try:
            with one_thread():
                if job.fold < 0:
                    return _limit(_graphs(protocol.source))
                row = next(row for row in protocol.rows if row.name == job.row)
                return _result(protocol, row, job.fold)
        except InputError as error:
            raise InputError(f"{job.name}: {error}") from error


def _limit(data: Dataset) -> dict[str, Any]:
    from flipproof.datasets.task_limit import distances, most_certified

    apart = distances(list(data), data.labels.tolist(), most=2 * max(RADII))
    return {"graphs": len(data), "most": most_certified(apart, len(data), RADII)}


@dataclass(frozen=True, eq=False)
class _Tried:
    """A candidate after training, and what validation graphs say of it."""

    candidate: Candidate
    model: Learned
    score: float
    seconds: float


def _result(protocol: Protocol, row: Row, number: int) -> dict[str, Any]:
    hook = _features(protocol, row, fold(protocol, number).dataset)
    started = time.process_time()
    tried = [_tried(protocol, row, candidate, hook, number) for candidate in row.candidates]
    chosen = max(tried, key=lambda one: one.score)  # of equals the first
    searched = time.process_time() - started
    parts = fold(protocol, number)
    defence = _built(chosen.candidate, chosen.model, hook)
    graphs = parts.test.graphs
    question = chosen.candidate.question({**protocol.asked, **row.asked}, graphs=len(graphs))
    certified, calls, seconds = _certified(defence, question, graphs, {row.name: "", **_swapped(row.readings)})
    labels = parts.test.labels.tolist()
    return {
        "asked": _asked(protocol, row, number),
        "chosen": dict(chosen.candidate.settings),
        "tried": [{"settings": dict(one.candidate.settings), "validation": round(one.score, 6)} for one in tried],
        "train_graphs": len(parts.train),
        "train_accuracy": chosen.model.accuracy,
        "graphs": parts.test_indices.tolist(),
        "labels": labels,
        "majority": majority_share(parts.train.labels, parts.test.labels),
        "rows": {name: _recorded(found) for name, found in certified.items()},
        "calls": calls,
        "attacked": _attacked(protocol, defence, parts.test, number),
        "seconds": {"search": searched, "train": chosen.seconds, **seconds},
    }


def _swapped(readings: Mapping[str, str]) -> dict[str, str]:
    return {name: method for method, name in readings.items()}


def _tried(protocol: Protocol, row: Row, candidate: Candidate, hook: Any, number: int) -> _Tried:
    parts = fold(protocol, number)
    validation = parts.validation
    if protocol.validation_graphs is not None:
        validation = validation.subset(drawn(validation, protocol.validation_graphs, seed=number).tolist())
    started = time.process_time()
    model = learned(
        candidate,
        parts.train,
        features=hook,
        seed=number,
        network=row.network,
        **{**protocol.training, **row.training},
    )
    seconds = time.process_time() - started
    if len(row.candidates) == 1:
        return _Tried(candidate, model, 0.0, seconds)
    defence = _built(candidate, model, hook)
    question = candidate.question({**protocol.asked, **row.asked}, graphs=len(validation))
    ((_, certificates),) = _certified(defence, question, validation.graphs, {row.name: ""})[0].items()
    predicted = [found.label for found in certificates]
    radii = right_radii([found.radius for found in certificates], predicted, validation.labels.tolist())
    return _Tried(candidate, model, float(shares(radii, RADII).mean()), seconds)


def _built(candidate: Candidate, model: Learned, hook: Any) -> DefendedClassifier:
    """The defence; whether node features know the clean edges was judged on the whole data set, where it can be told best."""
    return candidate.defence.build(model.model, candidate.settings, features=hook, trust_features=True)


def _certified(
    defence: DefendedClassifier, question: Any, graphs: Sequence[Graph], rows: Mapping[str, str]
) -> tuple[dict[str, list[Certificate]], float, dict[str, float]]:
    """Certificates by row, model calls per graph, and seconds of asking and of reading.

    ``rows`` gives the reading of every row, "" for the certificate asked for. Seconds are computing time, for all graphs
    together: a busy machine does not change it.
    """
    found: dict[str, dict[int, Certificate]] = {name: {} for name in rows}
    seconds, calls = {"ask": 0.0, "read": 0.0}, []
    started = time.process_time()
    defence.check(graphs)
    for index, evidence, _ in ask_all(defence, question, dict(enumerate(graphs)), read=False):
        asked = time.process_time()
        own = question.read(evidence)
        others = question.readings(evidence) if len(rows) > 1 else {}
        for name, method in rows.items():
            found[name][index] = others.get(method, own) if method else own
        calls.append(evidence.calls)
        seconds["ask"] += asked - started
        started = time.process_time()
        seconds["read"] += started - asked
    ordered = {name: [given[index] for index in range(len(graphs))] for name, given in found.items()}
    return ordered, float(np.mean(calls)), seconds


def _recorded(certificates: Sequence[Certificate]) -> dict[str, Any]:
    columns = {column: [getattr(found, column) for found in certificates] for column in ATTACKERS}
    return {"predicted": [found.label for found in certificates], **columns}


def _attacked(protocol: Protocol, defence: DefendedClassifier, test: Dataset, number: int) -> dict[str, Any]:
    """The smallest attack found on a few test graphs: its flips, or none; 0 flips where the answer is wrong anyway."""
    from flipproof.attacks import strongest

    places = drawn(test, protocol.attacked, seed=number).tolist() if protocol.attacked else []
    sizes: list[int | None] = []
    for place in places:
        graph = test[place]
        if defence.defence.edge_blind:
            sizes.append(None if defence.predict(graph) == graph.label else 0)
            continue
        found = strongest(
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
        sizes.append(found.size if found.success else None)
    return {"graphs": places, "budget": protocol.attack_budget, "flips": sizes}
