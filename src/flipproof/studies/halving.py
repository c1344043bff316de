"""The search for the best defence by successive halving: short trainings of all candidates, longer ones of the better half.

Every trial trains on the training part and certifies validation graphs. Test graphs are not looked at. Cheap candidates come
first and are tried in any case; expensive ones as time allows. From the second rung on, a candidate that is clearly behind is
dropped, so that the time goes to those that may win.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from flipproof import __version__
from flipproof.certificates.certificate import Certificate
from flipproof.certificates.metrics import mean_radius, right_radii, withstands
from flipproof.datasets import Dataset, Split
from flipproof.datasets.sources import DataSource, fingerprint
from flipproof.datasets.splits import drawn
from flipproof.defences.asking import ask_all
from flipproof.defences.defended import DefendedClassifier
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import STREAM_VERSION
from flipproof.progress import note
from flipproof.runs.run_folder import Run
from flipproof.runs.settings import StudySettings
from flipproof.studies.candidate import Candidate, Learned, learned
from flipproof.studies.job_runner import one_thread, run_jobs
from flipproof.studies.reachable import Attack, reachable_candidates
from flipproof.studies.search_space import Space, spaces

__all__ = [
    "CERTAIN",
    "TRIALS",
    "Attack",
    "Clock",
    "Search",
    "Trial",
    "Tried",
    "asked_of",
    "halved",
    "ladder_of",
    "refuse_clean_edges",
    "remarks_on",
    "stood",
    "trained",
    "whole",
]

CERTAIN = 1  # effort up to which a candidate is tried, and trained to the full, whatever the time
TRIALS = {"samples": "1000"}  # a choice needs fewer than a certificate
_BEHIND = 3.0  # standard errors behind the best at which a candidate is dropped
_SHORTER = (8, 3, 1)  # of all epochs: the first trials get an eighth
_TRAINING = {"learning_rate": 0.01, "batch_size": 32, "copies": 1}  # as flipproof train, so that it repeats the result


@dataclass(frozen=True)
class Search:
    """What is searched for.

    Attributes:
        source: The data and their split, with a validation part.
        attack: To be withstood: any so many flips, or (additions, removals).
        ladder: Epochs of the trials, ascending.
        features: Node features that were asked for, as a model folder names them.
        given: The candidates; by default what every registered defence proposes against the attack.
        networks: Networks for the defences that take any; by default their own.
        training: Arguments of :func:`flipproof.train` for all of them.
        asked: What every validation graph is asked, as far as a defence knows it.
        train_graphs: Largest number of graphs to train on.
        most: Largest number of validation graphs.
    """

    source: DataSource
    attack: Attack
    ladder: tuple[int, ...] = (25, 75, 200)
    features: str | None = None
    given: tuple[Candidate, ...] = ()
    networks: tuple[str, ...] = ()
    training: Mapping[str, Any] = field(default_factory=lambda: _TRAINING, hash=False)
    asked: Mapping[str, Any] = field(default_factory=lambda: TRIALS, hash=False)
    train_graphs: int | None = None
    most: int = 200  # enough to tell candidates apart

    def parts(self) -> Split:
        """The data, read once per process."""
        return _parts(self.source)

    def learning(self) -> Dataset:
        """The graphs that trials are trained on."""
        graphs = self.parts().train
        if self.train_graphs is None:
            return graphs
        return graphs.subset(drawn(graphs, self.train_graphs, seed=self.source.split_seed).tolist())

    def validation_indices(self) -> list[int]:
        """Positions in the data set of the graphs on which the choice is made."""
        parts = self.parts()
        chosen = drawn(parts.validation, self.most, seed=self.source.split_seed)
        return [int(index) for index in parts.validation_indices[chosen]]

    def validation(self) -> Dataset:
        """The graphs on which the choice is made."""
        return self.parts().dataset.subset(self.validation_indices())

    def lines(self) -> list[Candidate]:
        """What every candidate is compared with: ignoring edges, and no defence."""
        return [Candidate(kind) for kind in spaces() if kind.baseline]

    def candidates(self) -> list[Candidate]:
        """All that may win, cheap ones first; see :meth:`reachable`."""
        return list(self.reachable()[0])

    def reachable(self) -> tuple[tuple[Candidate, ...], str]:
        """The candidates that could be certified against the attack, and a sentence about the others, if any."""
        graphs = self.parts().train
        found = self.given or tuple(
            Candidate(kind, settings)
            for kind in spaces()
            if not kind.baseline
            for settings in kind.candidates_against(graphs, self.attack)
        )
        kept, sentence = reachable_candidates(found, self.validation(), self.attack, self.asked)
        named = [
            replace(one, network=network) if network else one
            for one in kept
            for network in (self.networks if self.networks and one.defence.network is None else ("",))
        ]
        return tuple(sorted(named, key=lambda candidate: candidate.defence.effort)), sentence

    def hook(self, kind: Space, graphs: Dataset) -> Any:
        """Node features that a defence's network is trained with: those asked for, unless the defence rules them out."""
        from flipproof.models.loading import load_features

        asked = None if self.features is None else load_features(self.features)
        if asked is None or (kind.edge_free_features and asked.reads_edges):
            return load_features(kind.default_features(graphs))
        return asked


def ladder_of(epochs: int) -> tuple[int, ...]:
    """The epochs of short, middling and full trials.

    >>> ladder_of(200), ladder_of(2)
    ((25, 66, 200), (1, 2))
    """
    return tuple(sorted({max(1, epochs // part) for part in _SHORTER}))


def asked_of(search: Search) -> dict[str, Any]:
    """What identifies a search, as plain JSON. Time and workers may change from call to call."""
    source, data = search.source, search.parts().dataset
    return {
        "data": data.name,
        "data_sha256": fingerprint(data),
        "split": [source.split_seed, source.test, source.validation],
        "attack": search.attack,
        "ladder": list(search.ladder),
        "features": search.features,
        "candidates": [candidate.title for candidate in (*search.lines(), *search.candidates())],
        "training": dict(search.training),
        "asked": dict(search.asked),
        "train_graphs": search.train_graphs,
        "validation_graphs": search.most,
        "versions": [__version__, STREAM_VERSION],
    }


def remarks_on(search: Search) -> list[str]:
    """What a user should know before the search begins."""
    _, left_out = search.reachable()
    return [left_out] if left_out else []


def refuse_clean_edges(search: Search) -> None:
    """Refuse node features that were computed from the edges, before any work."""
    from flipproof.classifiers import clean_edges

    parts = search.parts()
    data = parts.dataset
    for candidate in (*search.lines(), *search.candidates()):
        hook = search.hook(candidate.defence, data)
        hook.of(parts.train[0])  # refuses graphs that lack what it reads
        if hook.reads_own:
            clean_edges.refuse_clean_edges([*parts.train, *parts.validation], data.feature_names)
            return


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
        return (
            f"{self.candidate.title}, {self.epochs} epochs" if self.candidate.defence.trains else self.candidate.title
        )

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
    def error(self) -> float:
        """Standard error of the score."""
        graphs = self.found["validation_graphs"]
        share = min(max(self.score, 1 / graphs), 1 - 1 / graphs) if graphs > 1 else 0.5
        return math.sqrt(share * (1 - share) / graphs)

    @property
    def rank(self) -> tuple[float, ...]:
        """The higher the better; of equals the more accurate, then the cheaper."""
        return (self.score, self.found["accuracy"], -self.trial.candidate.defence.effort, self.found["average_radius"])

    def seconds(self, epochs: int) -> float:
        """What the same trial with another number of epochs would take."""
        times = epochs / self.trial.epochs if self.trial.candidate.defence.trains else 1
        return float(self.found["seconds_train"] * times + self.found["seconds_certify"])

    def summary(self) -> dict[str, Any]:
        """What a reader wants to know of it, as plain JSON."""
        return {key: value for key, value in self.found.items() if key not in ("graphs", "radii")}


class Clock:
    """The time that was given, as far as it is left.

    Args:
        seconds: In all; infinite if there is no limit.
        spent: By processes that were stopped.
        searching: The share of it that the search may take.
    """

    def __init__(self, seconds: float, spent: float = 0.0, *, searching: float = 0.5) -> None:
        self.seconds, self.searching = seconds, searching
        self._ends = time.monotonic() + seconds - spent

    @property
    def left(self) -> float:
        """Seconds; negative when it is over."""
        return self._ends - time.monotonic()

    @property
    def left_to_search(self) -> float:
        """Seconds until the search must end."""
        return self.left - (self.seconds * (1 - self.searching) if math.isfinite(self.seconds) else 0.0)


def halved(run: Run[StudySettings], search: Search, clock: Clock, *, workers: int, quiet: bool) -> list[Tried]:
    """All trials, in the order in which they were asked for; those that the run holds are not done again.

    The lines to compare with are tried once. Survivors of the first rung are also tried with other ways of training. What is
    left of a limited time goes to longer trainings of the best, as long as they make it better.
    """
    tried: list[Tried] = []
    remaining = [*search.lines(), *search.candidates()]
    for place, epochs in enumerate(search.ladder):
        step = [Trial(candidate, epochs) for candidate in remaining]
        found = _step(run, search, step, tried, clock, workers, quiet)
        tried += found
        skipped = len(step) - len(found)
        if skipped:
            note(f"{skipped} of {len(step)} trials of {epochs} epochs left out: the time is up", quiet=quiet)
        # the shortest trainings say little about how far behind a candidate is
        better = _survivors(_defended(found), behind=math.inf if place == 0 else _BEHIND)
        remaining = [one.trial.candidate for one in better]
        if place == 0:
            remaining += [other for one in better for other in one.trial.candidate.variants()]
    while math.isfinite(clock.seconds):
        best = max(_defended(tried), key=lambda one: one.rank, default=None)
        longest = max((one.trial.epochs for one in tried), default=0)
        if best is None or best.trial.epochs < longest:  # longer did not help, or does not fit
            break
        more = _step(run, search, [Trial(best.trial.candidate, 2 * longest)], tried, clock, 1, quiet)
        tried += more
        if not more:
            break
    return tried


def _defended(tried: Sequence[Tried]) -> list[Tried]:
    return [one for one in tried if not one.trial.candidate.defence.baseline]


def _survivors(tried: Sequence[Tried], *, behind: float) -> list[Tried]:
    """The better half, without those that are so many standard errors behind the best."""
    ranked = sorted(tried, key=lambda one: one.rank, reverse=True)
    half = ranked[: math.ceil(len(ranked) / 2)]
    return [one for one in half if one.score >= ranked[0].score - behind * ranked[0].error]


def _step(
    run: Run[StudySettings],
    search: Search,
    trials: Sequence[Trial],
    before: Sequence[Tried],
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
            needed = _needed(trial, before)
            certain = needed is None and trial.candidate.defence.effort <= CERTAIN
            if certain or clock.left_to_search > (needed or 0.0):
                yield trial

    if missing:
        work = TrialWork(search)
        results = run_jobs("trying", missing, work, ready=in_time(), workers=workers, quiet=quiet)
        for trial, content in results:
            run.store.finish(trial.name, json.dumps(content, allow_nan=False).encode())
            found[trial.name] = content
    return [Tried(trial, found[trial.name]) for trial in trials if trial.name in found]


def _needed(trial: Trial, before: Sequence[Tried]) -> float | None:
    """Seconds that a trial will take, as far as shorter ones of the same candidate, or of its plain version, tell."""
    plain = replace(trial.candidate, recipe={})
    for candidate, times in ((trial.candidate, 1), (plain, int(trial.candidate.recipe.get("copies", 1)))):
        own = [one for one in before if one.trial.candidate.title == candidate.title]
        if own:
            return times * own[-1].seconds(trial.epochs)
    return None


@dataclass(frozen=True)
class TrialWork:
    """What a worker does: train, certify validation graphs, and hand back the result as plain JSON."""

    search: Search

    def __call__(self, trial: Trial) -> dict[str, Any]:
        import flipproof.training  # noqa: F401  loading torch is no part of a trial's time

        candidate, search, graphs = trial.candidate, self.search, self.search.validation()
        started = time.perf_counter()
        try:
            with one_thread():
                found = trained(search, candidate, search.learning(), trial.epochs)
                between = time.perf_counter()
                # refuse_clean_edges has judged the features on all graphs that may be seen
                defence = candidate.defence.build(
                    found.model, candidate.settings, features=found.features, trust_features=True
                )
                certificates = _certified(defence, candidate.question(search.asked, graphs=len(graphs)), graphs.graphs)
        except InputError as error:
            raise InputError(f"{trial.name}: {error}") from error
        labels = graphs.labels.tolist()
        predicted = [certificate.label for certificate in certificates]
        radii = right_radii([certificate.radius for certificate in certificates], predicted, labels)
        right = [
            label == answer and stood(certificate, graph, search.attack)
            for certificate, graph, label, answer in zip(certificates, graphs, labels, predicted, strict=True)
        ]
        return {
            "model": candidate.model,
            "defence": candidate.defence.name,
            "settings": {**candidate.settings, **candidate.recipe},
            "epochs": trial.epochs if candidate.defence.trains else None,
            "certificate": certificates[0].method,
            "validation_graphs": len(graphs),
            "accuracy": float(np.mean(radii >= 0)),
            "certified_accuracy": float(np.mean(right)),
            "average_radius": mean_radius(radii),
            "seconds_train": round(between - started, 3),
            "seconds_certify": round(time.perf_counter() - between, 3),
            "graphs": search.validation_indices(),
            "radii": radii.tolist(),
        }


def trained(search: Search, candidate: Candidate, graphs: Dataset, epochs: int, **kept: Any) -> Learned:
    """What a candidate learns from these graphs."""
    hook, seed = search.hook(candidate.defence, graphs), search.source.split_seed
    arguments = {**search.training, "epochs": epochs, **kept}
    return learned(candidate, graphs, features=hook, seed=seed, **arguments)


def stood(certificate: Certificate, graph: Graph, attack: Attack) -> bool:
    """Whether a certificate covers the attack."""
    if isinstance(attack, tuple):
        return withstands(certificate, graph, adds=attack[0], removes=attack[1])
    return certificate.radius >= attack


def _certified(defence: DefendedClassifier, question: Any, graphs: Sequence[Graph]) -> list[Certificate]:
    defence.check(graphs)
    found = {
        index: question.read(evidence)
        for index, evidence, _ in ask_all(defence, question, dict(enumerate(graphs)), read=False)
    }
    return [found[index] for index in range(len(graphs))]


def whole(source: DataSource) -> DataSource:
    """The same test part, with the validation graphs among the training graphs."""
    return replace(source, validation=0.0)
