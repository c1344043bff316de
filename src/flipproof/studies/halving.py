"""The search for the best defence by successive halving: short trainings of all candidates, longer ones of the better half.

Every trial trains on the training part and certifies validation graphs. Test graphs are not looked at. Cheap candidates come
first and are tried in any case; expensive ones as time allows.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.metrics import mean_radius, right_radii, withstands
from flipproof.datasets import Dataset, Split
from flipproof.datasets.sources import DataSource
from flipproof.datasets.splits import drawn
from flipproof.defences import defence_classes
from flipproof.defences.asking import ask_all
from flipproof.defences.defence import Defence
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.progress import note
from flipproof.runs.run_folder import Run
from flipproof.runs.settings import StudySettings
from flipproof.studies.candidate import Candidate
from flipproof.studies.job_runner import one_thread, run_jobs

__all__ = ["CERTAIN", "Attack", "Clock", "Search", "Trial", "Tried", "halved", "stood", "trained", "whole"]

CERTAIN = 1  # effort up to which a candidate is tried, and trained to the full, whatever the time
_MOST_VALIDATION = 200  # graphs: enough to tell candidates apart
_ASKED = {"samples": "1000"}  # a choice needs fewer than a certificate
_TRAINING = {"learning_rate": 0.01, "batch_size": 32, "copies": 1}  # as flipproof train, so that it repeats the result

Attack = int | tuple[int, int]


@dataclass(frozen=True)
class Search:
    """What is searched for.

    Attributes:
        source: The data and their split, with a validation part.
        attack: To be withstood: any so many flips, or (additions, removals).
        ladder: Epochs of the trials, ascending.
        features: Node features that were asked for, as a model folder names them.
    """

    source: DataSource
    attack: Attack
    ladder: tuple[int, ...] = (25, 75, 200)
    features: str | None = None

    def parts(self) -> Split:
        """The data, read once per process."""
        return _parts(self.source)

    def validation(self) -> Dataset:
        """The graphs on which the choice is made."""
        graphs = self.parts().validation
        return graphs.subset(drawn(graphs, _MOST_VALIDATION, seed=self.source.split_seed).tolist())

    def candidates(self) -> list[Candidate]:
        """What every registered defence finds worth trying, cheap ones first; the lines to compare with are among them."""
        graphs = self.parts().train
        found = [
            Candidate(kind, settings)
            for kind in defence_classes()
            for settings in kind.candidates_against(graphs, self.attack)
        ]
        return sorted(found, key=lambda candidate: candidate.defence.effort)

    def hook(self, kind: type[Defence], graphs: Dataset) -> Any:
        """Node features that a defence's network is trained with: those asked for, unless the defence rules them out."""
        from flipproof.models.loading import load_features

        asked = None if self.features is None else load_features(self.features)
        if asked is None or (kind.edge_free_features and asked.reads_edges):
            return load_features(kind.default_features(graphs))
        return asked


@lru_cache(maxsize=2)
def _parts(source: DataSource) -> Split:
    return source.split(source.load())


@dataclass(frozen=True)
class Trial:
    """A candidate, trained for so many epochs."""

    candidate: Candidate
    epochs: int

    @property
    def name(self) -> str:
        """For messages, and in the store."""
        return f"{self.candidate.title}, {self.epochs} epochs"

    @property
    def weight(self) -> int:
        """Rough cost, for the progress bar."""
        return self.epochs * (1 + self.candidate.defence.effort)


@dataclass(frozen=True, eq=False)
class Tried:
    """What a trial amounts to, on validation graphs."""

    trial: Trial
    found: Mapping[str, Any]

    @property
    def score(self) -> float:
        """Share of validation graphs that are right and withstand the attack."""
        return float(self.found["certified_accuracy"])

    @property
    def rank(self) -> tuple[float, ...]:
        """The higher the better; of equals the more accurate, then the cheaper."""
        return (self.score, self.found["accuracy"], -self.trial.candidate.defence.effort, self.found["average_radius"])

    def seconds(self, epochs: int) -> float:
        """What the same trial with another number of epochs would take."""
        return float(self.found["seconds_train"] * epochs / self.trial.epochs + self.found["seconds_certify"])


class Clock:
    """The time that was given, as far as it is left.

    Args:
        seconds: In all.
        spent: By processes that were stopped.
    """

    def __init__(self, seconds: float, spent: float = 0.0) -> None:
        self.seconds = seconds
        self._ends = time.monotonic() + seconds - spent

    @property
    def left(self) -> float:
        """Seconds; negative when it is over."""
        return self._ends - time.monotonic()


def halved(run: Run[StudySettings], search: Search, clock: Clock, *, workers: int, quiet: bool) -> list[Tried]:
    """All trials, in the order in which they were asked for; those that the run holds are not done again.

    Half of the time is for the search, the rest for training and certifying what it finds.
    """
    tried: list[Tried] = []
    remaining = search.candidates()
    for epochs in search.ladder:
        step = [Trial(candidate, epochs) for candidate in remaining]
        found = _step(run, search, step, {one.trial.candidate.title: one for one in tried}, clock, workers, quiet)
        tried += found
        skipped = len(step) - len(found)
        if skipped:
            note(f"{skipped} of {len(step)} trials of {epochs} epochs left out: the time is up", quiet=quiet)
        lines = [one for one in found if one.trial.candidate.defence.baseline]
        ranked = sorted((one for one in found if one not in lines), key=lambda one: one.rank, reverse=True)
        better = ranked[: math.ceil(len(ranked) / 2)]
        remaining = [one.trial.candidate for one in found if one in lines or one in better]
    return tried


def _step(
    run: Run[StudySettings],
    search: Search,
    trials: Sequence[Trial],
    before: Mapping[str, Tried],
    clock: Clock,
    workers: int,
    quiet: bool,
) -> list[Tried]:
    """The trials of one rung, as many as time allows."""
    stored = run.store.finished()
    found = {trial.name: json.loads(run.store.load(trial.name)) for trial in trials if trial.name in stored}
    missing = [trial for trial in trials if trial.name not in found]

    def in_time() -> Iterator[Trial]:
        for trial in missing:
            known = before.get(trial.candidate.title)
            needed = 0.0 if known is None else known.seconds(trial.epochs)
            certain = known is None and trial.candidate.defence.effort <= CERTAIN
            if certain or clock.left - needed > clock.seconds / 2:
                yield trial

    if missing:
        work = TrialWork(search)
        results = run_jobs("trying", missing, work, ready=in_time(), workers=workers, quiet=quiet)
        for trial, content in results:
            run.store.finish(trial.name, json.dumps(content, allow_nan=False).encode())
            found[trial.name] = content
    return [Tried(trial, found[trial.name]) for trial in trials if trial.name in found]


@dataclass(frozen=True)
class TrialWork:
    """What a worker does: train, certify validation graphs, and hand back the result as plain JSON."""

    search: Search

    def __call__(self, trial: Trial) -> dict[str, Any]:
        import flipproof.training  # noqa: F401  loading torch is no part of a trial's time

        candidate, graphs = trial.candidate, self.search.validation()
        started = time.perf_counter()
        try:
            with one_thread():
                model, hook, _ = trained(self.search, candidate, self.search.parts().train, trial.epochs)
                between = time.perf_counter()
                defence = candidate.defence.build(model, candidate.settings, features=hook)
                certificates = _certified(defence, candidate.question(_ASKED, graphs=len(graphs)), graphs.graphs)
        except InputError as error:
            raise InputError(f"{trial.name}: {error}") from error
        labels = graphs.labels.tolist()
        predicted = [found.label for found in certificates]
        radii = right_radii([found.radius for found in certificates], predicted, labels)
        right = [
            label == answer and stood(found, graph, self.search.attack)
            for found, graph, label, answer in zip(certificates, graphs, labels, predicted, strict=True)
        ]
        return {
            "defence": candidate.defence.name,
            "settings": dict(candidate.settings),
            "epochs": trial.epochs,
            "validation_graphs": len(graphs),
            "accuracy": float(np.mean(radii >= 0)),
            "certified_accuracy": float(np.mean(right)),
            "average_radius": mean_radius(radii),
            "seconds_train": round(between - started, 3),
            "seconds_certify": round(time.perf_counter() - between, 3),
        }


def trained(search: Search, candidate: Candidate, graphs: Dataset, epochs: int, **kept: Any) -> tuple[Any, Any, Any]:
    """A network trained for a candidate, its node features, and what the training says."""
    from flipproof import models
    from flipproof.training import train

    kind, seed = candidate.defence, search.source.split_seed
    hook = search.hook(kind, graphs)
    width = int(hook.of(graphs[0]).shape[1])
    model = models.build(kind.network_config(hook.spec, width, graphs.num_classes), seed=seed)
    arguments = {**_TRAINING, **candidate.training, "epochs": epochs, "features": hook, "seed": seed, **kept}
    return model, hook, train(model, graphs, **arguments)


def stood(certificate: Certificate, graph: Graph, attack: Attack) -> bool:
    """Whether a certificate covers the attack."""
    if isinstance(attack, tuple):
        return withstands(certificate, graph, adds=attack[0], removes=attack[1])
    return certificate.radius >= attack


def _certified(defence: Defence, question: Any, graphs: Sequence[Graph]) -> list[Certificate]:
    defence.check(graphs)
    found = {
        index: question.read(evidence)
        for index, evidence, _ in ask_all(defence, question, dict(enumerate(graphs)), read=False)
    }
    return [found[index] for index in range(len(graphs))]


def whole(source: DataSource) -> DataSource:
    """The same test part, with the validation graphs among the training graphs."""
    return replace(source, validation=0.0)
