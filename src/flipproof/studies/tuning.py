"""Choosing a network and a defence: what certifies most against the attack to withstand, on validation graphs.

The search is by successive halving: short trainings of all candidates, longer ones of the better half. Cheap candidates come
first and are tried in any case; expensive ones as time allows. From the second rung on, a candidate that is clearly behind is
dropped, so that the time goes to those that may win.

``tune`` says what was best. ``fit`` trains it, too, beside what it is compared with:

FOLDER/run.json, FOLDER/evidence.sqlite                what was asked; every trial, every finished training
FOLDER/model, FOLDER/edge_blind, FOLDER/undefended     the chosen model, and those that it is compared with
"""

from __future__ import annotations

import json
import math
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flipproof.certificates.metrics import shown_mean, shown_share
from flipproof.datasets.sources import DataSource
from flipproof.defences import trained_defence
from flipproof.defences.defence import DefendedClassifier
from flipproof.engines import cores
from flipproof.engines.pool import one_thread
from flipproof.errors import InputError
from flipproof.files import write_json
from flipproof.models.loading import load_features, load_model
from flipproof.progress import note
from flipproof.runs.run_folder import Store, StudySettings, written_run
from flipproof.studies.candidate import Candidate, baselines
from flipproof.studies.experiment import Experiment, Trial, TrialResult, run_jobs

if TYPE_CHECKING:
    import pandas

_CERTAIN = 1  # effort up to which a candidate is tried, and trained to the full, whatever the time
_BEHIND = 3.0  # standard errors behind the best at which a candidate is dropped
MODEL, BLIND, CLEAN = "model", "edge_blind", "undefended"
_CHOICE = "final choice"  # in the store


def try_out(experiment: Experiment, trial: Trial) -> dict[str, Any]:
    """What a worker does: train, certify validation graphs, and hand back the result as plain JSON."""
    try:
        with one_thread():
            return experiment.tried(trial)[1].to_dict()
    except InputError as error:
        raise InputError(f"{trial.name}: {error}") from error


@dataclass(frozen=True, eq=False)
class Search:
    """The search of an experiment until ``ends`` on the clock; trials that the store holds are not done again."""

    experiment: Experiment
    ends: float
    workers: int
    quiet: bool
    store: Store

    def results(self) -> Results:
        """All trials. Survivors of the first rung are also tried with other ways of training, and what is left of a limited time
        goes to longer trainings of the best, as long as they make it better."""
        results: list[TrialResult] = []
        remaining = [*baselines(), *self.experiment.candidates]
        for place, epochs in enumerate(self.experiment.ladder):
            rung = self._rung([Trial(candidate, epochs) for candidate in remaining], results, self.workers)
            results += rung
            if skipped := len(remaining) - len(rung):
                what = f"{skipped} of {len(remaining)} trials of {epochs} epoch{'s' * (epochs != 1)}"
                note(f"{what} left out: they would not end in the time for trying", quiet=self.quiet)
            # the shortest trainings say little about how far behind a candidate is
            remaining = _survivors(rung, behind=math.inf if place == 0 else _BEHIND)
            if place == 0:
                remaining += [variant for candidate in remaining for variant in candidate.variants()]
        while math.isfinite(self.ends):
            best = next(iter(Results(results).ranked), None)
            longest = max((one.trial.epochs or 0 for one in results), default=0)
            if best is None or best.trial.epochs != longest:  # longer did not help, or does not fit
                break
            if not (more := self._rung([Trial(best.trial.candidate, 2 * longest)], results, 1)):
                break
            results += more
        return Results(results)

    def _rung(self, trials: Sequence[Trial], before: Sequence[TrialResult], workers: int) -> list[TrialResult]:
        """The trials of one rung, as many as time allows."""
        stored = self.store.finished()
        contents = {trial.name: json.loads(self.store.load(trial.name)) for trial in trials if trial.name in stored}
        missing = [trial for trial in trials if trial.name not in contents]

        def in_time() -> Iterator[Trial]:
            for trial in missing:
                needed = _needed(trial, before)
                certain = needed is None and trial.candidate.defence.effort <= _CERTAIN
                if certain or self.ends - time.monotonic() > (needed or 0.0):
                    yield trial

        if missing:
            work = partial(try_out, self.experiment)
            for trial, content in run_jobs("trying", missing, work, ready=in_time(), workers=workers, quiet=self.quiet):
                self.store.finish(trial.name, json.dumps(content, allow_nan=False).encode())
                contents[trial.name] = content
        return [TrialResult(trial, **contents[trial.name]) for trial in trials if trial.name in contents]


@dataclass(frozen=True, eq=False)
class Results:
    all: Sequence[TrialResult]

    @property
    def ranked(self) -> list[TrialResult]:
        """The best trial of each candidate that is more than something to compare with; the best candidate first."""
        best: dict[str, TrialResult] = {}
        for one in _defended(self.all):
            best.setdefault(one.trial.candidate.title, one)
        return list(best.values())

    @property
    def line(self) -> TrialResult:
        """The best trial of the classifier that no attack can touch."""
        return max((one for one in self.all if one.trial.candidate.defence.edge_blind), key=lambda one: one.rank)

    @property
    def chosen(self) -> TrialResult:
        """The best trial; that of the line to beat, if nothing is better."""
        best = next(iter(self.ranked), self.line)
        return best if best.score > self.line.score else self.line

    def table(self) -> pandas.DataFrame:
        """The trials, the best first."""
        import pandas

        columns = ["model", "defence", "epochs", "accuracy", "certified_accuracy", "average_radius", "seconds_train"]
        ordered = sorted(self.all, key=lambda one: one.rank, reverse=True)
        return pandas.DataFrame([one.summary() for one in ordered])[columns]


def _defended(results: Sequence[TrialResult]) -> list[TrialResult]:
    """Those that are more than something to compare with, the best first."""
    defended = [one for one in results if not one.trial.candidate.defence.baseline]
    return sorted(defended, key=lambda one: one.rank, reverse=True)


def _survivors(rung: Sequence[TrialResult], *, behind: float) -> list[Candidate]:
    """The better half, without those that are that many standard errors behind the best."""
    ranked = _defended(rung)
    half = ranked[: math.ceil(len(ranked) / 2)]
    if half and not math.isinf(behind):
        best, graphs = half[0].score, len(half[0].graphs)
        share = min(max(best, 1 / graphs), 1 - 1 / graphs) if graphs > 1 else 0.5
        half = [one for one in half if one.score >= best - behind * math.sqrt(share * (1 - share) / graphs)]
    return [one.trial.candidate for one in half]


def _needed(trial: Trial, before: Sequence[TrialResult]) -> float | None:
    """Seconds that a trial will take, as far as shorter ones of the same candidate, or of its plain version, tell."""
    plain = replace(trial.candidate, recipe={})
    for candidate, times in ((trial.candidate, 1), (plain, int(trial.candidate.recipe.get("copies", 1)))):
        own = [one for one in before if one.trial.candidate.title == candidate.title]
        if own:
            return times * own[-1].needed(trial.epochs or 1)
    return None


@dataclass(frozen=True, eq=False)
class Fitted:
    """What came of a search: all trials, and what was trained at the end, the chosen one first."""

    results: Results
    finals: list[Trial]


def fit(experiment: Experiment, folder: Path, *, seconds: float, workers: int | None, quiet: bool) -> Fitted:
    """Search among the candidates of a prepared experiment, and train the best. A folder begun before is continued.

    Half of the ``seconds`` are for the search; what is under way is not cut short.
    """
    count = workers or cores()
    with written_run(folder, StudySettings("protect", experiment.to_dict())) as run:
        stored = {name: json.loads(run.store.load(name)) for name in run.store.finished()}
        # once chosen, it stays, since test graphs may have been looked at
        made: dict[str, int] | None = stored.pop(_CHOICE, None)
        spent = sum(sum(one["seconds"].values()) for one in stored.values() if "seconds" in one) / count
        ends = time.monotonic() + seconds - spent
        search_ends = ends - seconds / 2 if made is None else time.monotonic()
        results = Search(experiment, search_ends, count, quiet or made is not None, run.store).results()
        chosen = {MODEL: results.chosen.trial.candidate}
        for line in baselines():
            if line != chosen[MODEL]:
                chosen[BLIND if line.defence.edge_blind else CLEAN] = line
        epochs = made or {role: _epochs(one, results, experiment, ends) for role, one in chosen.items()}
        run.store.finish(_CHOICE, json.dumps(epochs).encode())
        finals = [Trial(one, epochs[role], role) for role, one in chosen.items()]
        title = chosen[MODEL].title
        note(f"time for trying is over: training the best one now, {title}, on all but the test graphs", quiet=quiet)
        done, work = run.store.finished(), partial(_train, experiment, folder)
        missing = [one for one in finals if one.name not in done or not (folder / one.role).is_dir()]
        if missing:
            for final, content in run_jobs("training", missing, work, workers=count, quiet=quiet):
                run.store.finish(final.name, json.dumps(content).encode())
    return Fitted(results, finals)


def classifiers_in(folder: Path, factory: Callable[..., Any] | None = None) -> dict[str, DefendedClassifier]:
    """The classifiers that were trained at the end, by role, the chosen one first."""
    classifiers = {}
    for role in (MODEL, BLIND, CLEAN):
        if (folder / role).is_dir():
            own = load_model(str(folder / role), factory)
            settings = {"num_classes": own.metadata["num_classes"], "features": load_features(own.features(None))}
            classifiers[role] = DefendedClassifier(own.model, trained_defence(own.metadata), **settings)
    return classifiers


def _epochs(candidate: Candidate, results: Results, experiment: Experiment, ends: float) -> int:
    """Those of the candidate's best trial; more, if time ended the search before longer ones and they are cheap or fit now."""
    own = [one for one in results.all if one.trial.candidate == candidate]
    longest = max(own, key=lambda one: one.trial.epochs or 0)
    epochs = max(own, key=lambda one: one.rank).trial.epochs or 0
    cheap = candidate.defence.effort <= _CERTAIN and not candidate.defence.baseline
    for more in experiment.ladder:
        # training and validation graphs together are more, and other work goes on beside
        fits = 2 * longest.needed(more) < ends - time.monotonic()
        if more > (longest.trial.epochs or 0) and (cheap or fits):
            epochs = more
    return epochs


def final_source(experiment: Experiment) -> DataSource:
    """The same test part, with the validation graphs among the training graphs."""
    return replace(experiment.source, validation=0.0)


def _train(experiment: Experiment, folder: Path, final: Trial) -> dict[str, Any]:
    """Train on training and validation graphs, and write the model folder, whole or not at all."""
    from flipproof import models

    source, data, candidate = final_source(experiment), experiment.parts.dataset, final.candidate
    out = folder / final.role
    part = out.with_name(f"{out.name}.part")
    with one_thread():
        learned = experiment.learn(final, source.split(data).train, checkpoint=part)
    factory = experiment.factory if candidate.defence.trains else None
    defence = {"name": candidate.defence.name, **candidate.settings}
    sizes = {"in_features": learned.in_features, "num_classes": data.num_classes}
    metadata = {**sizes, **source.metadata(data), "training": learned.settings}
    models.save(learned.model, out, factory=factory, defence=defence, features=learned.features, metadata=metadata)
    part.unlink(missing_ok=True)
    return {"weights_sha256": models.load_metadata(out).weights_hash}


@dataclass(frozen=True, eq=False)
class Choice:
    """What came of a search: as plain JSON, as a table, and in sentences."""

    summary: dict[str, Any]
    table: list[list[str]]
    sentences: list[str]


def tune(
    experiment: Experiment, folder: Path, *, seconds: float = math.inf, workers: int | None = None, quiet: bool = True
) -> Choice:
    """Search among the candidates of a prepared experiment, rank what was tried, and write ``choice.json``.

    A folder in which this was begun is continued. When the ``seconds`` are over, trainings under way are finished.
    """
    with written_run(folder, StudySettings("tune", experiment.to_dict())) as run:
        results = Search(experiment, time.monotonic() + seconds, workers or cores(), quiet, run.store).results()
    if not results.ranked:
        raise InputError("no candidate was tried in the time given (give more of it with --time)")
    assert experiment.threat is not None
    best, floor, threat = results.ranked[0], results.line.score, experiment.threat
    candidate, graphs = best.trial.candidate, len(best.graphs)
    training = {key: value for key, value in experiment.training.items() if key not in candidate.training}
    network = {"model": candidate.model, "features": experiment.features, **training, "epochs": best.trial.epochs}
    known = {
        one.name: experiment.certification[one.name]
        for one in candidate.defence.asking
        if one.name in experiment.certification
    }
    summary: dict[str, Any] = {
        "data": experiment.source.data,
        "target": threat.words,
        "validation_graphs": graphs,
        "best": best.summary(),
        "edge_blind_accuracy": round(floor, 6),
        "candidates": [one.summary() for one in results.ranked],
        "trials": [one.summary() for one in results.all],
        "next": [
            training_command(experiment, candidate, network, folder / "model"),
            typed_command("certify", {"model": folder / "model", **known, "out": folder / "run"}),
        ],
    }
    write_json(folder / "choice.json", summary)
    lines = [one for one in results.all if one.trial.candidate.defence.baseline]
    head = ["model", "defence", "epochs", "not attacked", summary["target"], "average radius"]
    sentences = [
        f"best: {candidate.model} with {summary['best']['defence']}, {shown_share(best.score * graphs, graphs)} of {graphs} "
        f"validation graphs right with {threat.words}"
    ]
    if best.score <= floor:
        sentences.append(
            f"{threat.line} is right on {shown_share(floor * graphs, graphs)} under any attack: no candidate beats it at this "
            "target (train longer, ask for less, or use flipproof train --model edge-blind)"
        )
    return Choice(summary, [head, *map(_table_row, (*results.ranked, *lines))], sentences)


def _table_row(one: TrialResult) -> list[str]:
    kind, told, graphs = one.trial.candidate.defence, one.summary(), len(one.graphs)
    return [
        told["model"],
        "-" if kind.edge_blind else told["defence"],
        str(told["epochs"] or "-"),
        shown_share(one.accuracy * graphs, graphs),
        shown_share(one.score * graphs, graphs) if not kind.baseline or kind.edge_blind else "-",
        "all pairs" if kind.edge_blind else shown_mean(one.radii()),
    ]


def training_command(experiment: Experiment, candidate: Candidate, options: Mapping[str, Any], out: Any) -> str:
    """Training a candidate on all but the test graphs, as it is typed."""
    source = experiment.source
    data = {"data": source.data, "root": source.root, "symmetrise": source.symmetrise, **options}
    seeds = {"data_seed": source.data_seed, "split_seed": source.split_seed, "seed": source.split_seed}
    defence = {} if candidate.defence.edge_blind else candidate.arguments
    return typed_command("train", {**data, **seeds, "test": source.test, "validation": 0, **defence, "out": out})


def typed_command(name: str, options: Mapping[str, Any]) -> str:
    words = ["flipproof", name]
    for key, value in options.items():
        if value is not None and value is not False:
            words += [f"--{key.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(words)
