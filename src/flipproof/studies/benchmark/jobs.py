"""One network trained for one candidate on one split, and certified: stored whole, never made twice."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from flipproof import __version__
from flipproof.certificates.certificate import Certificate
from flipproof.certificates.metrics import majority_share, withstands
from flipproof.datasets import Dataset, split
from flipproof.datasets.sources import DataSource, fingerprint
from flipproof.defences.asking import ask_all
from flipproof.defences.defence import Defence
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import STREAM_VERSION
from flipproof.progress import note
from flipproof.runs.run_folder import Run, written_run
from flipproof.runs.settings import StudySettings
from flipproof.studies.benchmark.plan_file import Network, Plan
from flipproof.studies.candidate import Candidate, baselines
from flipproof.studies.job_runner import one_thread, run_jobs

__all__ = ["Job", "JobWork", "Parts", "data_parts", "finished_jobs", "prepare"]

_RADII = ("radius", "adds_radius", "removes_radius")
_BLINDED = "gin"  # the network of the edge-blind line: our strongest, so that the line is a fair one


@dataclass(frozen=True)
class Job:
    """A piece of a benchmark. ``digest`` tells it from the same piece of a benchmark with other settings or data."""

    data: str
    network: str
    candidate: Candidate
    split: int
    digest: str

    @property
    def name(self) -> str:
        """For messages, and in the store."""
        return f"{self.data} {self.network} {self.candidate.title} split {self.split}"

    @property
    def weight(self) -> int:
        """Rough cost, for the progress bar."""
        return 1 if self.candidate.defence.baseline else 5


@dataclass(frozen=True, eq=False)
class Parts:
    """What a job may see: graphs to train on, to choose the epoch with (or none), and to certify.

    ``certified_indices`` are positions in the data set.
    """

    train: Dataset
    validation: Dataset | None
    certified: Dataset
    certified_indices: tuple[int, ...]

    @cached_property
    def fingerprints(self) -> list[str | None]:
        """What tells these graphs from others."""
        parts = (self.train, self.validation, self.certified)
        return [None if graphs is None else fingerprint(graphs) for graphs in parts]


@lru_cache(maxsize=2)
def _graphs(source: DataSource) -> Dataset:
    return source.load()


def _spread(data: Dataset, most: int | None, seed: int) -> list[int]:
    """Positions of at most so many graphs, with every class in proportion."""
    if most is None or most >= len(data):
        return list(range(len(data)))
    return [int(index) for index in split(data, train=most, seed=seed).train_indices]


def data_parts(plan: Plan, seed: int) -> Parts:
    """The graphs of a split. To choose settings (``part="validation"``), test graphs are not even looked at."""
    data = _graphs(plan.source)
    parts = split(data, test=plan.source.test, validation=plan.source.validation, seed=seed)
    indices = parts.test_indices if plan.part == "test" else parts.validation_indices
    if not len(indices):
        raise InputError(f"{plan.name}: the {plan.part} part holds no graph (ask for a larger share)")
    indices = indices[_spread(data.subset(indices), plan.test_graphs, seed)]
    return Parts(
        parts.train.subset(_spread(parts.train, plan.train_graphs, seed)),
        parts.validation if plan.choose_epoch else None,
        data.subset(indices),
        tuple(int(index) for index in indices),
    )


def finished_jobs(
    plans: Sequence[Plan], folder: Path, study: str, *, workers: int | None, quiet: bool
) -> dict[Job, dict[str, Any]]:
    """What every job amounts to; those that the folder does not hold yet are run. A second process is refused."""
    jobs = prepare(plans)
    asked = {plan.name: plan.to_dict() for plan in plans}
    with written_run(folder, StudySettings(study, asked, {job.name: job.digest for job in jobs})) as run:
        stored = run.store.finished()
        found = {job: content for job in jobs if job.name in stored and (content := _stored(run, job, quiet))}
        # jobs of one data set stay together, so that it is read once
        places = {name: place for place, name in enumerate(asked)}
        missing = sorted((job for job in jobs if job not in found), key=lambda job: (places[job.data], job.split))
        done = f", {len(found)} of them done already" if found else ""
        note(f"{len(jobs)} jobs{done}", quiet=quiet)
        work = JobWork({plan.name: plan for plan in plans})
        for job, content in run_jobs("working", missing, work, workers=workers, quiet=quiet):
            run.store.finish(job.name, json.dumps(content).encode())
            found[job] = content
    return {job: found[job] for job in jobs}


def _stored(run: Run[StudySettings], job: Job, quiet: bool) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(run.store.load(job.name))
    except InputError as error:
        note(f"{error}; it is done again", quiet=quiet)
        return None
    return content


def prepare(plans: Sequence[Plan]) -> list[Job]:
    """All jobs, the lines to compare with first; refuses data that cannot be used, before any work."""
    from flipproof.classifiers.clean_edges import refuse_clean_edges

    jobs = []
    for plan in plans:
        for candidate in plan.candidates:
            candidate.question(plan.asked)  # refuses what cannot be asked
        for seed in plan.splits:
            parts = data_parts(plan, seed)
            for network, candidate in _pieces(plan):
                hook = _features(plan, parts, candidate)
                if seed == plan.splits[0]:
                    _build(network, candidate, hook, parts, seed)
                    if hook.reads_own:
                        refuse_clean_edges(list(parts.train), parts.train.feature_names)
                digest = _digest(_asked(plan, parts, network, candidate, seed))
                jobs.append(Job(plan.name, network.name, candidate, seed, digest))
    return jobs


def _pieces(plan: Plan) -> list[tuple[Network, Candidate]]:
    """What is trained for what. What needs a network of its own, or sees no edges, is there once; the rest once per network."""
    lines = baselines()
    blind = [(_blind(plan), line) for line in lines if line.defence.edge_blind]
    sighted = [line for line in lines if not line.defence.edge_blind]
    free = [found for found in plan.candidates if found.defence.network is None]
    bound = [
        (_own(plan, found.defence.network), found) for found in plan.candidates if found.defence.network is not None
    ]
    return blind + [(network, found) for network in plan.networks for found in (*sighted, *free)] + bound


def _blind(plan: Plan) -> Network:
    """The network of the edge-blind line."""
    return _own(plan, _BLINDED)


def _own(plan: Plan, name: str) -> Network:
    """A network with the arguments and training that the plan has for it, else the first one's training."""
    given = {network.name: network for network in plan.networks}
    return given.get(name) or Network(name, {}, plan.networks[0].training)


def _features(plan: Plan, parts: Parts, candidate: Candidate) -> Any:
    from flipproof.classifiers.features import as_features

    default = as_features(candidate.defence.default_features(parts.train))
    if plan.features is None or candidate.defence.edge_blind:
        return default
    asked = as_features(plan.features)
    return default if candidate.defence.edge_free_features and asked.reads_edges else asked


def _asked(plan: Plan, parts: Parts, network: Network, candidate: Candidate, seed: int) -> dict[str, Any]:
    """All that a result depends on, as plain JSON."""
    question = candidate.question(plan.asked, graphs=len(parts.certified))
    return {
        "data": plan.name,
        "part": plan.part,
        "graphs": parts.fingerprints,
        "network": {"name": network.name, **network.arguments},
        "training": dict(network.training),
        "features": _features(plan, parts, candidate).spec,
        "defence": {"name": candidate.defence.name, **candidate.settings},
        "split": seed,
        "question": question.to_dict(),
        "methods": list(plan.methods) if hasattr(question, "method") else [],
        "budgets": [list(budget) for budget in plan.budgets],
        "versions": [__version__, STREAM_VERSION],
    }


def _digest(asked: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class JobWork:
    """What a worker does: train, certify, and hand back the result as plain JSON."""

    plans: Mapping[str, Plan]

    def __call__(self, job: Job) -> dict[str, Any]:
        try:
            with one_thread():
                return _result(job, self.plans[job.data])
        except InputError as error:
            raise InputError(f"{job.name}: {error}") from error


def _result(job: Job, plan: Plan) -> dict[str, Any]:
    from flipproof.training import train

    parts = data_parts(plan, job.split)
    network, candidate = next(
        (network, found) for network, found in _pieces(plan) if (network.name, found) == (job.network, job.candidate)
    )
    hook = _features(plan, parts, candidate)
    model = _build(network, candidate, hook, parts, job.split)
    started = time.process_time()
    trained = train(
        model,
        parts.train,
        features=hook,
        validation=parts.validation,
        seed=job.split,
        **{**network.training, **candidate.training},
    )
    seconds = time.process_time() - started
    defence = candidate.defence.build(model, candidate.settings, features=hook)
    question = candidate.question(plan.asked, graphs=len(parts.certified))
    certified = _certified(defence, question, parts.certified.graphs, plan)
    certified["seconds"]["train"] = seconds
    return {
        "asked": _asked(plan, parts, network, candidate, job.split),
        "train_graphs": len(parts.train),
        "train_accuracy": trained.final.accuracy,
        "graphs": list(parts.certified_indices),
        "labels": parts.certified.labels.tolist(),
        "majority": majority_share(parts.train.labels, parts.certified.labels),
        **certified,
    }


def _build(network: Network, candidate: Candidate, hook: Any, parts: Parts, seed: int) -> Any:
    from flipproof import models

    width = int(hook.of(parts.train[0]).shape[1])
    config = candidate.defence.network_config(hook.spec, width, parts.train.num_classes)
    changed = {"name": network.name, **network.arguments}
    if candidate.defence.edge_blind:
        return models.build({**config, "network": {**config["network"], **changed}}, seed=seed)
    return models.build({**config, **changed}, seed=seed)


def _certified(defence: Defence, question: Any, graphs: Sequence[Graph], plan: Plan) -> dict[str, Any]:
    """The certificates of every method, the one asked for first, and the seconds of asking and of reading.

    Computing time, for all graphs and methods together: a busy machine does not change it.
    """
    own: dict[int, Certificate] = {}
    others: dict[int, Mapping[str, Certificate]] = {}
    seconds = {"sample": 0.0, "certify": 0.0}
    started = time.process_time()
    defence.check(graphs)
    for index, evidence, _ in ask_all(defence, question, dict(enumerate(graphs)), read=False):
        asked = time.process_time()
        own[index] = question.read(evidence)
        others[index] = question.readings(evidence) if plan.methods else {}
        seconds["sample"] += asked - started
        started = time.process_time()
        seconds["certify"] += started - asked
    order = range(len(graphs))
    certificates = {own[0].method: [own[index] for index in order]}
    certificates |= {
        method: [others[index][method] for index in order] for method in plan.methods if method in others[0]
    }
    recorded = {method: _recorded(found, graphs, plan.budgets) for method, found in certificates.items()}
    return {"certificates": recorded, "seconds": seconds}


def _recorded(
    certificates: Sequence[Certificate], graphs: Sequence[Graph], budgets: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    return {
        "predicted": [found.label for found in certificates],
        **{column: [getattr(found, column) for found in certificates] for column in _RADII},
        "withstands": [
            [withstands(found, graph, adds=adds, removes=removes) for adds, removes in budgets]
            for found, graph in zip(certificates, graphs, strict=True)
        ],
    }
