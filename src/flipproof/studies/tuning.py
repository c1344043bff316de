"""Choosing a network and a defence: what certifies most against the attack to withstand, on validation graphs.

The search is by successive halving: short trainings of all candidates, longer ones of the better half. Cheap candidates come
first and are tried in any case; expensive ones as time allows. From the second rung on, a candidate that is clearly behind is
dropped, so that the time goes to those that may win.
"""

from __future__ import annotations

import json
import math
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flipproof.certificates.metrics import shown_mean, shown_share
from flipproof.engines import cores
from flipproof.engines.pool import one_thread
from flipproof.errors import InputError
from flipproof.files import write_json
from flipproof.progress import note
from flipproof.runs.run_folder import Store, StudySettings, written_run
from flipproof.studies.candidate import Candidate, baselines
from flipproof.studies.experiment import Experiment, Trial, TrialResult, run_jobs

if TYPE_CHECKING:
    import pandas

CERTAIN = 1  # effort up to which a candidate is tried, and trained to the full, whatever the time
_BEHIND = 3.0  # standard errors behind the best at which a candidate is dropped


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
                certain = needed is None and trial.candidate.defence.effort <= CERTAIN
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
    known = {one.name: experiment.asked[one.name] for one in candidate.defence.asking if one.name in experiment.asked}
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
