"""One experiment: candidates are trained on training graphs, chosen on validation graphs, and reported on test graphs.

``flipproof tune`` searches among candidates, ``protect`` trains and certifies the winner too, ``benchmark`` repeats an
experiment over data sets and folds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from flipproof import __version__
from flipproof.certificates.metrics import mean_radius, right_radii, share_interval, shares
from flipproof.datasets import Dataset, Split
from flipproof.datasets.sources import DataSource, fingerprint
from flipproof.datasets.splits import FOLDS, drawn, folds, read_folds
from flipproof.defences.asking import ask_all
from flipproof.engines import Processes, ThisProcess, cores
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray
from flipproof.noise import STREAM_VERSION
from flipproof.progress import note, progress
from flipproof.report.content import ATTACKERS, RADII
from flipproof.studies.candidate import Candidate, Learned, baselines, compared_defences
from flipproof.studies.search_space import hint
from flipproof.studies.threat import Threat

Piece = TypeVar("Piece", bound=Any)
"""A piece of a study with a name, small enough to be sent to a process."""

_SHORTER = (8, 3, 1)  # of all epochs: the first trials get an eighth
_TRAINING = {"learning_rate": 0.01, "batch_size": 32, "copies": 1}  # as flipproof train, so that it repeats the result
_SAMPLING = {"samples": 1000}  # a choice needs fewer than a certificate


def run_jobs(
    what: str,
    jobs: Sequence[Piece],
    work: Callable[[Piece], Any],
    *,
    ready: Iterable[Piece] | None = None,
    workers: int | None,
    quiet: bool,
    unit: str = "trainings",
) -> Iterator[tuple[Piece, Any]]:
    """Every job with its result, as they are finished by ``workers`` processes, by default one per core.

    ``ready`` yields those that are to be done, asked for as workers become free; by default all.
    """
    count = max(1, min(workers or cores(), len(jobs)))
    engine: Any = ThisProcess() if count == 1 else Processes(count, start="spawn")
    with (
        progress(what, len(jobs), unit=unit, quiet=quiet) as advance,
        closing(engine.run(work, jobs if ready is None else ready)) as results,
    ):
        for done, (job, result) in enumerate(results, start=1):
            yield job, result
            note(f"{job.name}: done ({done} of {len(jobs)})", quiet=quiet)
            advance(1)


@dataclass(frozen=True)
class Trial:
    """A candidate, trained for a number of epochs; ``role`` is the folder of a model that is kept."""

    candidate: Candidate
    epochs: int | None = None  # by default those of the experiment's training
    role: str = ""

    @property
    def name(self) -> str:
        epochs = f", {self.epochs} epoch{'s' * (self.epochs != 1)}" if self.candidate.defence.trains else ""
        return (f"final {self.role}: " if self.role else "") + self.candidate.title + epochs

    @property
    def training(self) -> dict[str, int]:
        return {} if self.epochs is None or not self.candidate.defence.trains else {"epochs": self.epochs}


@dataclass(frozen=True, eq=False)
class TrialResult:
    """What a trained candidate certifies of some graphs of its data set; all but the trial is plain JSON.

    Attributes:
        score: What the best trial has most of: graphs that withstand the attack, or, where all radii count, certified accuracy.
        certified: Answers and radii by attacker; under ``""`` those of the request, else of another reading of the same evidence.
        seconds: Of training, of asking about all graphs, and of reading their certificates.
    """

    trial: Trial
    graphs: list[int]
    labels: list[int]
    method: str
    score: float
    certified: dict[str, dict[str, list[Any]]]
    seconds: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "trial"}

    def radii(self, reading: str = "", attacker: str = "radius") -> IntArray:
        own = self.certified[reading]
        return right_radii(own[attacker], own["label"], self.labels)

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.radii() >= 0))

    @property
    def rank(self) -> tuple[float, ...]:
        """The higher the better; of equals the more accurate, then the cheaper."""
        return (self.score, self.accuracy, -self.trial.candidate.defence.effort, mean_radius(self.radii()))

    def needed(self, epochs: int) -> float:
        """Seconds that the same trial with another number of epochs would take."""
        times = epochs / (self.trial.epochs or epochs) if self.trial.candidate.defence.trains else 1
        return self.seconds["train"] * times + self.seconds["ask"] + self.seconds["read"]

    def summary(self) -> dict[str, Any]:
        candidate, count = self.trial.candidate, len(self.graphs)
        ends = share_interval(round(self.score * count), count)
        return {
            "model": candidate.model,
            "defence": replace(candidate, network=None).title,
            "settings": {**candidate.settings, **candidate.recipe},
            "epochs": self.trial.training.get("epochs"),
            "certificate": self.method,
            "validation_graphs": count,
            "accuracy": self.accuracy,
            "certified_accuracy": self.score,
            "interval": [round(float(end), 6) for end in ends],
            "average_radius": mean_radius(self.radii()),
            "seconds_train": self.seconds["train"],
            "seconds_certify": round(self.seconds["ask"] + self.seconds["read"], 3),
        }


@lru_cache(maxsize=4)
def load_graphs(source: DataSource) -> Dataset:
    """The graphs of a data set, read once per process."""
    return source.load()


@lru_cache(maxsize=4)
def _splits(source: DataSource, folded: bool, published: Path | None) -> list[Split]:
    data = load_graphs(source)
    if not folded:
        return [source.split(data)]
    return folds(data, number=FOLDS, validation=True) if published is None else read_folds(published, data)


@dataclass(frozen=True)
class Experiment:
    """What is trained, on which graphs, how it is certified, and how the best is chosen."""

    source: DataSource
    threat: Threat | None = None  # the attack to withstand; None where all radii count
    candidates: tuple[Candidate, ...] = ()  # those that may win
    ladder: tuple[int, ...] = (25, 75, 200)  # epochs of the trials of a search, ascending
    features: str | None = None  # by default what each defence takes
    # arguments of flipproof.train, and what certification takes, as far as a defence knows it
    training: Mapping[str, Any] = field(default_factory=lambda: _TRAINING, hash=False)
    sampling: Mapping[str, Any] = field(default_factory=lambda: _SAMPLING, hash=False)
    network: Mapping[str, Any] = field(default_factory=dict, hash=False)  # name and arguments; by default the defence's
    factory: Callable[..., Any] | None = field(default=None, hash=False)  # of a network in place of a built-in one
    validation_graphs: int | None = 200  # enough to tell candidates apart; every class in proportion
    fold: int | None = None  # one of ten, in place of the source's own split
    published: Path | None = None  # which graph is tested in which fold; by default the folds are drawn

    @property
    def parts(self) -> Split:
        return _splits(self.source, self.fold is not None, self.published)[self.fold or 0]

    @property
    def seed(self) -> int:
        return self.source.split_seed if self.fold is None else self.fold

    @property
    def validation_indices(self) -> list[int]:
        """Positions in the data set of the graphs on which the choice is made."""
        graphs, indices = self.parts.validation, self.parts.validation_indices
        if self.validation_graphs is not None:
            indices = indices[drawn(graphs, self.validation_graphs, seed=self.seed)]
        return [int(index) for index in indices]

    @property
    def validation(self) -> Dataset:
        return self.parts.dataset.subset(self.validation_indices)

    @property
    def certification(self) -> dict[str, Any]:
        return {**self.sampling, **({} if self.threat is None else self.threat.request)}

    def prepared(self, networks: Sequence[str] = (), *, quiet: bool = True) -> Experiment:
        """The experiment with those candidates, its own or all that defences propose, that could withstand the threat.

        Those that take any network are there with each of ``networks``; cheap ones come first.
        """
        from flipproof import models

        assert self.threat is not None
        for name in networks:
            if name not in models.NAMES:
                raise InputError(
                    f"--model must be one of {', '.join(models.NAMES)}; got {name!r} (give it once per network)"
                )
        check_training({**self.training, "epochs": self.ladder[-1]})
        if not self.source.validation:
            raise InputError("--validation must be above 0: the choice is made on validation graphs (for instance 0.2)")
        if not self.validation_indices:
            raise InputError("--validation holds no graph (ask for a larger share)")
        graphs, threat = self.validation, self.threat
        data, train = self.parts.dataset, self.parts.train
        threat.check(data, graphs.graphs)
        offered: Sequence[Candidate] = self.candidates or [
            Candidate(kind, one) for kind in compared_defences() for one in kind.candidates(train, threat)
        ]
        hooks = [self._features(candidate) for candidate in (*baselines(), *offered)]
        check_features(data, [*train, *self.parts.validation], hooks)
        reachable = [candidate for candidate in offered if candidate.may_withstand(threat, graphs, self.certification)]
        if offered and not reachable:
            raise InputError(
                f"no candidate can be certified against {threat} with these settings, even if the model never changes its "
                "answer (raise --samples or --alpha, take more noise or more groups, or ask for less)"
            )
        if left_out := ", ".join(candidate.title for candidate in offered if candidate not in reachable):
            note(f"{threat} out of reach with these settings, hence left out: {left_out}", quiet=quiet)
        named = [
            replace(one, network=network)
            for one in reachable
            for network in (networks if networks and one.defence.network is None else (one.network,))
        ]
        return replace(self, candidates=tuple(sorted(named, key=lambda candidate: candidate.defence.effort)))

    def _features(self, candidate: Candidate) -> Any:
        return candidate.features(self.features, self.parts.dataset, self.threat)

    def learn(self, trial: Trial, graphs: Dataset, **training: Any) -> Learned:
        """What a trial learns from graphs; ``training`` takes precedence over the experiment's."""
        return trial.candidate.learn(
            graphs,
            features=self._features(trial.candidate),
            seed=self.seed,
            network=self.network,
            factory=self.factory,
            **{**self.training, **trial.training, **training},
        )

    def tried(self, trial: Trial) -> tuple[Learned, TrialResult]:
        """A trial on the training graphs, judged on the validation graphs."""
        import flipproof.training  # noqa: F401  loading torch is no part of a trial's time

        started = time.perf_counter()
        learned = self.learn(trial, self.parts.train)
        seconds = time.perf_counter() - started
        return learned, self.judged(trial, learned, self.validation_indices, seconds=seconds)

    def judged(
        self,
        trial: Trial,
        learned: Learned,
        indices: Sequence[int],
        readings: Sequence[str] = (),
        *,
        seconds: float = 0.0,
    ) -> TrialResult:
        """What a candidate certifies of graphs, after ``seconds`` of training. Node features must have been judged before."""
        graphs = {index: self.parts.dataset[index] for index in indices}
        classifier = trial.candidate.defended(
            learned.model, learned.features, num_classes=learned.num_classes, trust_features=True
        )
        question = trial.candidate.question(self.certification, graphs=len(graphs))
        started = time.perf_counter()
        classifier.check(list(graphs.values()), question)
        evidence = {index: answer for index, answer, _ in ask_all(classifier, question, graphs, read=False)}
        answered = time.perf_counter()
        own = [question.read(evidence[index]) for index in graphs]
        others = [question.readings(evidence[index]) if readings else {} for index in graphs]
        spent = {"train": seconds, "ask": answered - started, "read": time.perf_counter() - answered}
        by_reading = {"": own} | {
            name: [other.get(name, one) for one, other in zip(own, others, strict=True)] for name in readings
        }
        certified = {
            name: {column: [getattr(one, column) for one in read] for column in ("label", *ATTACKERS)}
            for name, read in by_reading.items()
        }
        labels = self.parts.dataset.labels[indices].tolist()
        if self.threat is None:
            score = shares(right_radii(certified[""]["radius"], certified[""]["label"], labels), RADII).mean()
        else:
            pairs = zip(own, graphs.values(), strict=True)
            score = np.mean([self.threat.right(classifier, one, graph) for one, graph in pairs])
        spent = {name: round(value, 3) for name, value in spent.items()}
        return TrialResult(trial, list(graphs), labels, own[0].method, float(score), certified, spent)

    def to_dict(self) -> dict[str, Any]:
        """What identifies a search, as plain JSON. Time and workers may change from call to call."""
        assert self.threat is not None
        source, data = self.source, self.parts.dataset
        return {
            "data": data.name,
            "data_sha256": fingerprint(data),
            "split": [source.split_seed, source.test, source.validation],
            "attack": self.threat.flips,
            "changes": self.threat.changes,
            "ladder": list(self.ladder),
            "features": self.features,
            "candidates": [candidate.title for candidate in (*baselines(), *self.candidates)],
            "training": dict(self.training),
            "certify": dict(self.sampling),
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


def check_training(training: dict[str, Any]) -> dict[str, Any]:
    """The arguments of :func:`flipproof.train`, unless it would refuse them."""
    from flipproof.training.loop import Hyperparameters

    known = [entry.name for entry in fields(Hyperparameters) if entry.name != "seed"]
    for key in training:
        if key not in known:
            raise InputError(f"{key} is not a training setting ({hint(key, known)})")
    Hyperparameters.of(training)
    return training


def ladder_of(epochs: int) -> tuple[int, ...]:
    """The epochs of short, middling and full trials.

    >>> ladder_of(200), ladder_of(2)
    ((25, 66, 200), (1, 2))
    """
    return tuple(sorted({max(1, epochs // part) for part in _SHORTER}))
