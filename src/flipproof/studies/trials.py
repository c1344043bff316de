"""One experiment: candidates are trained on training graphs, chosen on validation graphs, and reported on test graphs.

``flipproof tune`` searches among candidates, ``protect`` trains and certifies the winner too, ``benchmark`` repeats an
experiment over data sets and folds. The search is by successive halving: short trainings of all candidates, longer ones of the
better half. Cheap candidates come first and are tried in any case; expensive ones as time allows. From the second rung on, a
candidate that is clearly behind is dropped, so that the time goes to those that may win.
"""

from __future__ import annotations

import inspect
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from flipproof import __version__
from flipproof.certificates.metrics import mean_radius, right_radii
from flipproof.datasets import Dataset, Split
from flipproof.datasets.sources import DataSource, fingerprint
from flipproof.datasets.splits import FOLDS, drawn, folds, read_folds
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import STREAM_VERSION
from flipproof.progress import note
from flipproof.runs.run_folder import Run
from flipproof.runs.settings import StudySettings
from flipproof.studies.candidate import Candidate, Learned, Threat, baselines, hint, on_networks, proposed_candidates
from flipproof.studies.job_runner import one_thread, run_jobs

CERTAIN = 1  # effort up to which a candidate is tried, and trained to the full, whatever the time
_BEHIND = 3.0  # standard errors behind the best at which a candidate is dropped
_SHORTER = (8, 3, 1)  # of all epochs: the first trials get an eighth
_TRAINING = {"learning_rate": 0.01, "batch_size": 32, "copies": 1}  # as flipproof train, so that it repeats the result
_SAMPLING = {"samples": "1000"}  # a choice needs fewer than a certificate


@lru_cache(maxsize=4)
def load_graphs(source: DataSource) -> Dataset:
    """The graphs of a data set, read once per process."""
    return source.load()


@lru_cache(maxsize=4)
def _own_split(source: DataSource) -> Split:
    return source.split(load_graphs(source))


@lru_cache(maxsize=4)
def _folds(source: DataSource, published: Path | None) -> list[Split]:
    data = load_graphs(source)
    return folds(data, number=FOLDS, validation=True) if published is None else read_folds(published, data)


@dataclass(frozen=True)
class Experiment:
    """What is trained, on which graphs, how it is certified, and how the best is chosen.

    Attributes:
        source: The data and their split.
        threat: The attack to withstand; ``None`` where all radii count.
        candidates: Those that may win.
        ladder: Epochs of the trials of a search, ascending.
        features: Name of the node features; ``None`` for what each defence takes by default.
        training: Arguments of :func:`flipproof.train`, the same for all candidates.
        sampling: What every graph is certified with, as far as a defence knows it.
        network: Name and arguments of the network; by default what the defence needs.
        train_graphs, validation_graphs: Largest numbers of graphs to train on and to choose with, every class in proportion.
        fold: One of ten folds, in place of the source's own split.
        published: The file that says which graph is tested in which fold; by default the folds are drawn.
    """

    source: DataSource
    threat: Threat | None = None
    candidates: tuple[Candidate, ...] = ()
    ladder: tuple[int, ...] = (25, 75, 200)
    features: str | None = None
    training: Mapping[str, Any] = field(default_factory=lambda: _TRAINING, hash=False)
    sampling: Mapping[str, Any] = field(default_factory=lambda: _SAMPLING, hash=False)
    network: Mapping[str, Any] = field(default_factory=dict, hash=False)
    train_graphs: int | None = None
    validation_graphs: int | None = 200  # enough to tell candidates apart
    fold: int | None = None
    published: Path | None = None

    @property
    def parts(self) -> Split:
        """The data in parts, read once per process."""
        return _own_split(self.source) if self.fold is None else _folds(self.source, self.published)[self.fold]

    @property
    def seed(self) -> int:
        """Of everything random."""
        return self.source.split_seed if self.fold is None else self.fold

    @property
    def learning(self) -> Dataset:
        """The graphs that candidates are trained on."""
        graphs = self.parts.train
        if self.train_graphs is None:
            return graphs
        return graphs.subset(drawn(graphs, self.train_graphs, seed=self.seed).tolist())

    @property
    def validation_indices(self) -> list[int]:
        """Positions in the data set of the graphs on which the choice is made."""
        graphs, indices = self.parts.validation, self.parts.validation_indices
        if self.validation_graphs is not None:
            indices = indices[drawn(graphs, self.validation_graphs, seed=self.seed)]
        return [int(index) for index in indices]

    @property
    def validation(self) -> Dataset:
        """The graphs on which the choice is made."""
        return self.parts.dataset.subset(self.validation_indices)

    def prepared(self, networks: Sequence[str] = (), *, quiet: bool = True) -> Experiment:
        """The experiment with the candidates that could be certified against the threat; refuses what cannot be used.

        Without candidates, those that every registered defence proposes. Those that are left out are named unless ``quiet``.
        """
        assert self.threat is not None
        check_training({**self.training, "epochs": self.ladder[-1]})
        if not self.source.validation:
            raise InputError("--validation must be above 0: the choice is made on validation graphs (for instance 0.2)")
        if not self.validation_indices:
            raise InputError("--validation holds no graph (ask for a larger share)")
        graphs, threat = self.validation, self.threat
        most = max((graph.num_slots for graph in graphs), default=0)
        if threat.radius is not None and threat.radius > most:
            pairs = f"{most} node pair{'s' * (most != 1)}"
            raise InputError(f"no graph has room for {threat}: the largest one has {pairs} (ask for less)")
        offered = self.candidates or proposed_candidates(self.parts.train, threat)
        data = self.parts.dataset
        hooks = [candidate.features(self.features, data) for candidate in (*baselines(), *offered)]
        check_features(data, [*self.parts.train, *self.parts.validation], hooks)
        reachable = [candidate for candidate in offered if candidate.may_withstand(threat, graphs, self.sampling)]
        if offered and not reachable:
            raise InputError(
                f"no candidate can be certified against {threat} with these settings, even if the model never changes its "
                "answer (raise --samples or --alpha, take more noise or more groups, or ask for less)"
            )
        left_out = ", ".join(candidate.title for candidate in offered if candidate not in reachable)
        if left_out:
            note(f"{threat} out of reach with these settings, hence left out: {left_out}", quiet=quiet)
        return replace(self, candidates=tuple(on_networks(reachable, networks)))

    def learn(self, candidate: Candidate, graphs: Dataset | None = None, **training: Any) -> Learned:
        """What a candidate learns, by default from the training graphs; ``training`` takes precedence over the experiment's."""
        return candidate.learn(
            self.learning if graphs is None else graphs,
            features=candidate.features(self.features, self.parts.dataset),
            seed=self.seed,
            network=self.network,
            **{**self.training, **training},
        )

    def to_dict(self) -> dict[str, Any]:
        """What identifies a search, as plain JSON. Time and workers may change from call to call."""
        assert self.threat is not None
        source, data = self.source, self.parts.dataset
        return {
            "data": data.name,
            "data_sha256": fingerprint(data),
            "split": [source.split_seed, source.test, source.validation],
            "attack": self.threat.flips,
            "ladder": list(self.ladder),
            "features": self.features,
            "candidates": [candidate.title for candidate in (*baselines(), *self.candidates)],
            "training": dict(self.training),
            "asked": dict(self.sampling),
            "train_graphs": self.train_graphs,
            "validation_graphs": self.validation_graphs,
            "versions": [__version__, STREAM_VERSION],
        }


def check_features(data: Dataset, graphs: Sequence[Graph], hooks: Sequence[Any]) -> None:
    """Refuse, before any work, node features that are not there or were computed from the edges of these graphs."""
    from flipproof.classifiers.clean_edges import refuse_clean_edges

    for hook in hooks:
        hook.of(graphs[0])  # refuses graphs that lack what it reads
    if any(hook.reads_own for hook in hooks):
        refuse_clean_edges(list(graphs), data.feature_names)


def check_training(training: Mapping[str, Any]) -> None:
    """Refuse what :func:`flipproof.train` would refuse, before any graph is read."""
    from flipproof.training import train
    from flipproof.training.hyperparameters import Hyperparameters

    defaults = inspect.signature(train).parameters
    known = {entry.name: defaults[entry.name].default for entry in fields(Hyperparameters) if entry.name != "seed"}
    for key in training:
        if key not in known:
            raise InputError(f"{key} is not a training setting ({hint(key, known)})")
    if not isinstance(training.get("class_weights", False), bool):
        raise InputError(f"class_weights must be true or false; got {training['class_weights']!r}")
    Hyperparameters.of(**{**known, **training, "seed": 0})


def ladder_of(epochs: int) -> tuple[int, ...]:
    """The epochs of short, middling and full trials.

    >>> ladder_of(200), ladder_of(2)
    ((25, 66, 200), (1, 2))
    """
    return tuple(sorted({max(1, epochs // part) for part in _SHORTER}))


@dataclass(frozen=True)
class Trial:
    """A candidate, trained for a number of epochs."""

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
class TrialResult:
    """What a trial amounts to, on validation graphs; ``content`` is plain JSON, made by :class:`TrialWork`."""

    trial: Trial
    content: Mapping[str, Any]

    @property
    def candidate(self) -> Candidate:
        """What was tried."""
        return self.trial.candidate

    @property
    def graphs(self) -> int:
        """Number of validation graphs."""
        return int(self.content["validation_graphs"])

    @property
    def score(self) -> float:
        """Share of validation graphs that are right and withstand the attack."""
        return float(self.content["certified_accuracy"])

    @property
    def error(self) -> float:
        """Standard error of the score."""
        share = min(max(self.score, 1 / self.graphs), 1 - 1 / self.graphs) if self.graphs > 1 else 0.5
        return math.sqrt(share * (1 - share) / self.graphs)

    @property
    def rank(self) -> tuple[float, ...]:
        """The higher the better; of equals the more accurate, then the cheaper."""
        return (self.score, self.content["accuracy"], -self.candidate.defence.effort, self.content["average_radius"])

    def seconds(self, epochs: int) -> float:
        """What the same trial with another number of epochs would take."""
        times = epochs / self.trial.epochs if self.candidate.defence.trains else 1
        return float(self.content["seconds_train"] * times + self.content["seconds_certify"])

    def summary(self) -> dict[str, Any]:
        """What a reader wants to know of it, as plain JSON."""
        return {key: value for key, value in self.content.items() if key not in ("graphs", "radii")}


@dataclass(frozen=True)
class TrialWork:
    """What a worker does: train, certify validation graphs, and hand back the result as plain JSON."""

    experiment: Experiment

    def __call__(self, trial: Trial) -> dict[str, Any]:
        import flipproof.training  # noqa: F401  loading torch is no part of a trial's time

        candidate, experiment, threat = trial.candidate, self.experiment, self.experiment.threat
        graphs = experiment.validation
        assert threat is not None
        started = time.perf_counter()
        try:
            with one_thread():
                learned = experiment.learn(candidate, epochs=trial.epochs)
                between = time.perf_counter()
                certificates = candidate.certify(learned, graphs.graphs, experiment.sampling).certificates[""]
        except InputError as error:
            raise InputError(f"{trial.name}: {error}") from error
        labels = graphs.labels.tolist()
        radii = right_radii([one.radius for one in certificates], [one.label for one in certificates], labels)
        withstood = [
            certificate.label == label and threat.withstood(certificate, graph)
            for certificate, graph, label in zip(certificates, graphs, labels, strict=True)
        ]
        return {
            "model": candidate.model,
            "defence": candidate.defence.name,
            "settings": {**candidate.settings, **candidate.recipe},
            "epochs": trial.epochs if candidate.defence.trains else None,
            "certificate": certificates[0].method,
            "validation_graphs": len(graphs),
            "accuracy": float(np.mean(radii >= 0)),
            "certified_accuracy": float(np.mean(withstood)),
            "average_radius": mean_radius(radii),
            "seconds_train": round(between - started, 3),
            "seconds_certify": round(time.perf_counter() - between, 3),
            "graphs": experiment.validation_indices,
            "radii": radii.tolist(),
        }


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


@dataclass(frozen=True, eq=False)
class Search:
    """The search of an experiment by successive halving; trials that the run holds are not done again."""

    run: Run[StudySettings]
    experiment: Experiment
    clock: Clock
    workers: int
    quiet: bool

    def results(self) -> list[TrialResult]:
        """All trials, in the order in which they were asked for.

        The lines to compare with are tried once. Survivors of the first rung are also tried with other ways of training. What
        is left of a limited time goes to longer trainings of the best, as long as they make it better.
        """
        results: list[TrialResult] = []
        remaining = [*baselines(), *self.experiment.candidates]
        for place, epochs in enumerate(self.experiment.ladder):
            rung = self._rung([Trial(candidate, epochs) for candidate in remaining], results, self.workers)
            results += rung
            if skipped := len(remaining) - len(rung):
                note(
                    f"{skipped} of {len(remaining)} trials of {epochs} epochs left out: the time is up",
                    quiet=self.quiet,
                )
            # the shortest trainings say little about how far behind a candidate is
            remaining = [one.candidate for one in _survivors(rung, behind=math.inf if place == 0 else _BEHIND)]
            if place == 0:
                remaining += [variant for candidate in remaining for variant in candidate.variants()]
        while math.isfinite(self.clock.seconds):
            best = max(defended(results), key=lambda one: one.rank, default=None)
            longest = max((one.trial.epochs for one in results), default=0)
            if best is None or best.trial.epochs < longest:  # longer did not help, or does not fit
                break
            more = self._rung([Trial(best.candidate, 2 * longest)], results, 1)
            results += more
            if not more:
                break
        return results

    def _rung(self, trials: Sequence[Trial], before: Sequence[TrialResult], workers: int) -> list[TrialResult]:
        """The trials of one rung, as many as time allows."""
        store = self.run.store
        stored = store.finished()
        contents = {trial.name: json.loads(store.load(trial.name)) for trial in trials if trial.name in stored}
        missing = [trial for trial in trials if trial.name not in contents]

        def in_time() -> Iterator[Trial]:
            for trial in missing:
                needed = _needed(trial, before)
                certain = needed is None and trial.candidate.defence.effort <= CERTAIN
                if certain or self.clock.left_to_search > (needed or 0.0):
                    yield trial

        if missing:
            work = TrialWork(self.experiment)
            for trial, content in run_jobs("trying", missing, work, ready=in_time(), workers=workers, quiet=self.quiet):
                store.finish(trial.name, json.dumps(content, allow_nan=False).encode())
                contents[trial.name] = content
        return [TrialResult(trial, contents[trial.name]) for trial in trials if trial.name in contents]


def defended(results: Sequence[TrialResult]) -> list[TrialResult]:
    """The trials of candidates that are more than something to compare with."""
    return [one for one in results if not one.candidate.defence.baseline]


def _survivors(rung: Sequence[TrialResult], *, behind: float) -> list[TrialResult]:
    """The better half, without those that are that many standard errors behind the best."""
    ranked = sorted(defended(rung), key=lambda one: one.rank, reverse=True)
    half = ranked[: math.ceil(len(ranked) / 2)]
    return [one for one in half if one.score >= ranked[0].score - behind * ranked[0].error]


def _needed(trial: Trial, before: Sequence[TrialResult]) -> float | None:
    """Seconds that a trial will take, as far as shorter ones of the same candidate, or of its plain version, tell."""
    plain = replace(trial.candidate, recipe={})
    for candidate, times in ((trial.candidate, 1), (plain, int(trial.candidate.recipe.get("copies", 1)))):
        own = [one for one in before if one.candidate.title == candidate.title]
        if own:
            return times * own[-1].seconds(trial.epochs)
    return None
