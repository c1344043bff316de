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
from pathlib import Path
from typing import Any

import numpy as np

from flipproof.certificates.metrics import judged_radii, mean_radius, share_interval, shown_mean, shown_share
from flipproof.engines import cores
from flipproof.engines.pool import one_thread
from flipproof.errors import InputError
from flipproof.files import write_json
from flipproof.progress import note
from flipproof.runs.run_folder import Store, StudySettings, written_run
from flipproof.studies.candidate import Candidate, baselines
from flipproof.studies.experiment import Experiment, run_jobs

CERTAIN = 1  # effort up to which a candidate is tried, and trained to the full, whatever the time
_BEHIND = 3.0  # standard errors behind the best at which a candidate is dropped


@dataclass(frozen=True)
class Trial:
    """A candidate, trained for a number of epochs."""

    candidate: Candidate
    epochs: int

    @property
    def name(self) -> str:
        return self.candidate.title + (f", {self.epochs} epochs" if self.candidate.defence.trains else "")


@dataclass(frozen=True, eq=False)
class TrialResult:
    """What a trial amounts to, on validation graphs; ``content`` is plain JSON, made by :class:`TrialWork`."""

    trial: Trial
    content: Mapping[str, Any]

    @property
    def candidate(self) -> Candidate:
        return self.trial.candidate

    @property
    def graphs(self) -> int:
        return int(self.content["validation_graphs"])

    @property
    def score(self) -> float:
        """Share of validation graphs that are right and withstand the attack."""
        return float(self.content["certified_accuracy"])

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
        ends = share_interval(round(self.score * self.graphs), self.graphs)
        told = {key: value for key, value in self.content.items() if key not in ("graphs", "radii")}
        return {**told, "interval": [round(float(end), 6) for end in ends]}


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
        radii = judged_radii(certificates, graphs.labels)
        withstood = [
            certificate.label == graph.label and threat.withstood(certificate, graph)
            for certificate, graph in zip(certificates, graphs, strict=True)
        ]
        return {
            "model": candidate.model,
            "defence": replace(candidate, network=None).title,
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
    """The ``seconds`` that are left after ``spent`` ones, ``reserved`` of them for what comes after the search."""

    def __init__(self, seconds: float, spent: float = 0.0, *, reserved: float = 0.0) -> None:
        self.seconds, self.reserved = seconds, reserved
        self._ends = time.monotonic() + seconds - spent

    @property
    def left(self) -> float:
        """Seconds; negative when it is over."""
        return self._ends - time.monotonic()


@dataclass(frozen=True, eq=False)
class Search:
    """The search of an experiment by successive halving; trials that the store holds are not done again."""

    experiment: Experiment
    clock: Clock
    workers: int
    quiet: bool
    store: Store

    def results(self) -> list[TrialResult]:
        """All trials. Survivors of the first rung are also tried with other ways of training, and what is left of a limited time
        goes to longer trainings of the best, as long as they make it better."""
        results: list[TrialResult] = []
        remaining = [*baselines(), *self.experiment.candidates]
        for place, epochs in enumerate(self.experiment.ladder):
            rung = self._rung([Trial(candidate, epochs) for candidate in remaining], results, self.workers)
            results += rung
            if skipped := len(remaining) - len(rung):
                what = f"{skipped} of {len(remaining)} trials of {epochs} epochs"
                note(f"{what} left out: they would not end in the time for trying", quiet=self.quiet)
            # the shortest trainings say little about how far behind a candidate is
            remaining = [one.candidate for one in _survivors(rung, behind=math.inf if place == 0 else _BEHIND)]
            if place == 0:
                remaining += [variant for candidate in remaining for variant in candidate.variants()]
        while math.isfinite(self.clock.seconds):
            best = max(defended(results), key=lambda one: one.rank, default=None)
            longest = max((one.trial.epochs for one in results), default=0)
            if best is None or best.trial.epochs < longest:  # longer did not help, or does not fit
                break
            if not (more := self._rung([Trial(best.candidate, 2 * longest)], results, 1)):
                break
            results += more
        return results

    def _rung(self, trials: Sequence[Trial], before: Sequence[TrialResult], workers: int) -> list[TrialResult]:
        """The trials of one rung, as many as time allows."""
        stored = self.store.finished()
        contents = {trial.name: json.loads(self.store.load(trial.name)) for trial in trials if trial.name in stored}
        missing = [trial for trial in trials if trial.name not in contents]

        def in_time() -> Iterator[Trial]:
            for trial in missing:
                needed = _needed(trial, before)
                certain = needed is None and trial.candidate.defence.effort <= CERTAIN
                if certain or self.clock.left - self.clock.reserved > (needed or 0.0):
                    yield trial

        if missing:
            work = TrialWork(self.experiment)
            for trial, content in run_jobs("trying", missing, work, ready=in_time(), workers=workers, quiet=self.quiet):
                self.store.finish(trial.name, json.dumps(content, allow_nan=False).encode())
                contents[trial.name] = content
        return [TrialResult(trial, contents[trial.name]) for trial in trials if trial.name in contents]


def defended(results: Sequence[TrialResult]) -> list[TrialResult]:
    """The trials of candidates that are more than something to compare with."""
    return [one for one in results if not one.candidate.defence.baseline]


def edge_blind(results: Sequence[TrialResult]) -> TrialResult:
    """The best trial of the classifier that ignores edges."""
    return max((one for one in results if one.candidate.defence.edge_blind), key=lambda one: one.rank)


def _survivors(rung: Sequence[TrialResult], *, behind: float) -> list[TrialResult]:
    """The better half, without those that are that many standard errors behind the best."""
    ranked = sorted(defended(rung), key=lambda one: one.rank, reverse=True)
    half = ranked[: math.ceil(len(ranked) / 2)]
    if math.isinf(behind) or not half:
        return half
    best, graphs = half[0].score, half[0].graphs
    share = min(max(best, 1 / graphs), 1 - 1 / graphs) if graphs > 1 else 0.5
    return [one for one in half if one.score >= best - behind * math.sqrt(share * (1 - share) / graphs)]


def _needed(trial: Trial, before: Sequence[TrialResult]) -> float | None:
    """Seconds that a trial will take, as far as shorter ones of the same candidate, or of its plain version, tell."""
    plain = replace(trial.candidate, recipe={})
    for candidate, times in ((trial.candidate, 1), (plain, int(trial.candidate.recipe.get("copies", 1)))):
        own = [one for one in before if one.candidate.title == candidate.title]
        if own:
            return times * own[-1].seconds(trial.epochs)
    return None


@dataclass(frozen=True, eq=False)
class Choice:
    """The best candidate as plain JSON and as a table; in sentences, what was chosen, and whether it is worth having."""

    summary: dict[str, Any]
    table: list[list[str]]

    @property
    def verdict(self) -> list[str]:
        best, floor, graphs = (self.summary[key] for key in ("best", "edge_blind_accuracy", "validation_graphs"))
        score = best["certified_accuracy"]
        lines = [
            f"best: {best['model']} with {best['defence']}, {shown_share(score * graphs, graphs)} of {graphs} validation "
            f"graphs right with {self.summary['target']}"
        ]
        if score <= floor:
            lines.append(
                f"a classifier that ignores edges is right on {shown_share(floor * graphs, graphs)} under any attack: no "
                "candidate beats it at this target (train longer, ask for less, or use flipproof train --model edge-blind)"
            )
        return lines


def tune(
    experiment: Experiment, folder: Path, *, seconds: float = math.inf, workers: int | None = None, quiet: bool = True
) -> Choice:
    """Search among the candidates of a prepared experiment, rank what was tried, and write ``choice.json``.

    A folder in which this was begun is continued. When the ``seconds`` are over, trainings under way are finished.
    """
    with written_run(folder, StudySettings("tune", experiment.to_dict())) as run:
        results = Search(experiment, Clock(seconds), workers or cores(), quiet, run.store).results()
    ranked: dict[str, TrialResult] = {}
    for one in sorted(defended(results), key=lambda one: one.rank, reverse=True):
        ranked.setdefault(one.candidate.title, one)
    if not ranked:
        raise InputError("no candidate was tried in the time given (give more of it with --time)")
    assert experiment.threat is not None
    best = next(iter(ranked.values()))
    training = {key: value for key, value in experiment.training.items() if key not in best.candidate.training}
    network = {"model": best.candidate.model, "features": experiment.features, **training, "epochs": best.trial.epochs}
    sampling = best.candidate.known(experiment.sampling)
    summary: dict[str, Any] = {
        "data": experiment.source.data,
        "target": experiment.threat.words,
        "validation_graphs": best.graphs,
        "best": best.summary(),
        "edge_blind_accuracy": round(edge_blind(results).score, 6),
        "candidates": [one.summary() for one in ranked.values()],
        "trials": [one.summary() for one in results],
        "next": [
            training_command(experiment, best.candidate, network, folder / "model"),
            typed_command("certify", {"model": folder / "model", **sampling, "out": folder / "run"}),
        ],
    }
    write_json(folder / "choice.json", summary)
    lines = [one for one in results if one.candidate.defence.baseline]
    head = ["model", "defence", "epochs", "not attacked", summary["target"], "average radius"]
    return Choice(summary, [head, *map(_table_row, (*ranked.values(), *lines))])


def _table_row(one: TrialResult) -> list[str]:
    kind = one.candidate.defence
    return [
        one.candidate.model,
        "-" if kind.edge_blind else one.content["defence"],
        str(one.trial.epochs) if kind.trains else "-",
        shown_share(one.content["accuracy"] * one.graphs, one.graphs),
        shown_share(one.score * one.graphs, one.graphs) if not kind.baseline or kind.edge_blind else "-",
        "all pairs" if kind.edge_blind else shown_mean(np.array(one.content["radii"])),
    ]


def training_command(experiment: Experiment, candidate: Candidate, options: Mapping[str, Any], out: Any) -> str:
    """Training a candidate on all but the test graphs, as it is typed."""
    source = experiment.source
    data = {"data": source.data, "root": source.root, "symmetrise": source.symmetrise, **options}
    seeds = {"data_seed": source.seed, "split_seed": source.split_seed, "seed": source.split_seed}
    defence = {} if candidate.defence.edge_blind else candidate.arguments
    return typed_command("train", {**data, **seeds, "test": source.test, "validation": 0, **defence, "out": out})


def typed_command(name: str, options: Mapping[str, Any]) -> str:
    """A command as it is typed; flags that are off, and what was not given, are left out."""
    words = ["flipproof", name]
    for key, value in options.items():
        if value is not None and value is not False:
            words += [f"--{key.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(words)
