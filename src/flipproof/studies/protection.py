"""From graphs and an attack to a certified classifier: search on validation graphs, then one look at the test graphs.

DIR/run.json, DIR/evidence.sqlite             what was asked; every trial, every finished training
DIR/model, DIR/edge_blind, DIR/undefended     trained on training and validation graphs
DIR/run                                       run folder: certificates of the test graphs, and the report
DIR/protect.json                              what came out
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from flipproof.certificates.metrics import right_radii, share_interval, shares, shown_share
from flipproof.datasets import Dataset
from flipproof.datasets.sources import DataSource, part_indices
from flipproof.defences import trained_defence
from flipproof.defences.defence import DefendedClassifier
from flipproof.engines import cores
from flipproof.engines.pool import one_thread
from flipproof.fields import from_plain
from flipproof.files import write_json, write_text
from flipproof.models.loading import LoadedModel, load_features, load_model
from flipproof.progress import note
from flipproof.report.content import RADII
from flipproof.report.templates import rendered
from flipproof.runs.certifying import Line, certify_into, features_shown, keep_line, keep_to_path, read_evidence
from flipproof.runs.run_folder import Run, StudySettings, written_run
from flipproof.studies.candidate import Candidate, Threat, baselines
from flipproof.studies.experiment import Experiment, certify_settings, run_jobs
from flipproof.studies.tuning import (
    CERTAIN,
    Clock,
    Search,
    Trial,
    TrialResult,
    defended,
    edge_blind,
    training_command,
    typed_command,
)

_TINY = 4  # pieces of work that are not worth more than this process
MODEL, _BLIND, _CLEAN = "model", "edge_blind", "undefended"
SUMMARY = "protect.json"
_REPORT = Path("run") / "report.html"
_CHOICE = "final choice"  # in the store

Classifiers = dict[str, DefendedClassifier]
"""By role."""


@dataclass(frozen=True, eq=False)
class Protection:
    """What came out: as plain JSON, in a sentence, and as a table of shares of test graphs."""

    summary: dict[str, Any]
    sentence: str
    table: list[list[str]]


@dataclass(frozen=True)
class Final(Trial):
    """A candidate to be trained on training and validation graphs, and the folder of its model."""

    role: str

    @property
    def name(self) -> str:
        return f"final {self.role}: {self.candidate.title}, {self.epochs} epochs"

    @property
    def epochs_option(self) -> dict[str, int]:
        return {"epochs": self.epochs} if self.candidate.defence.trains else {}


@dataclass(frozen=True, eq=False)
class Fitted:
    """What came of a search: all trials, what was trained at the end, and the best trial."""

    results: list[TrialResult]
    finals: list[Final]
    best: TrialResult


def classifiers_in(folder: Path, factory: Callable[..., Any] | None = None) -> tuple[LoadedModel, Classifiers]:
    """The chosen model as it was saved, and the classifiers that were trained at the end, by role, the chosen one first."""
    classifiers: Classifiers = {}
    for role in (MODEL, _BLIND, _CLEAN):
        if (folder / role).is_dir():
            own = load_model(str(folder / role), factory)
            settings = {"num_classes": own.metadata["num_classes"], "features": load_features(own.features(None))}
            classifiers[role] = DefendedClassifier(own.model, trained_defence(own.metadata), **settings)
    return load_model(str(folder / MODEL), factory), classifiers


def fit(
    experiment: Experiment, folder: Path, *, seconds: float, workers: int | None = None, quiet: bool = True
) -> Fitted:
    """Search among the candidates of a prepared experiment, and train the best. A folder begun before is continued.

    Half of the ``seconds`` are for the search; what is under way is not cut short.
    """
    count = workers or cores()
    with written_run(folder, StudySettings("protect", experiment.to_dict())) as run:
        results, finals, best = _choice(run, experiment, seconds, count, quiet)
        note(
            f"time for trying is over: training the best one now, {best.candidate.title}, on all but the test graphs",
            quiet=quiet,
        )
        _train(run, experiment, finals, count, quiet)
    return Fitted(results, finals, best)


def protect(
    experiment: Experiment,
    folder: Path,
    *,
    seconds: float,
    workers: int | None = None,
    quiet: bool = True,
) -> Protection:
    """As :func:`fit`; then certify the test graphs, and report."""
    sizes = map(len, (experiment.parts.train, experiment.parts.validation, experiment.parts.test))
    note("{} graphs to train on, {} to choose with, {} kept for the end".format(*sizes), quiet=quiet)
    fitted = fit(experiment, folder, seconds=seconds, workers=workers, quiet=quiet)
    source, data = _final_source(experiment), experiment.parts.dataset
    tested = part_indices(source.split(data), "test", None)
    measured = measure(
        folder,
        folder / "run",
        experiment.threat,
        data,
        tested,
        split_seed=source.split_seed,
        workers=workers,
        quiet=quiet,
    )
    results, finals, best = fitted.results, fitted.finals, fitted.best
    chosen, model = finals[0].candidate, folder / MODEL
    summary: dict[str, Any] = {
        "defence": chosen.defence.name,
        "settings": {**chosen.settings, **chosen.recipe, **finals[0].epochs_option},
        **measured,
        "validation": {"graphs": best.graphs, "chosen": best.score, "edge_blind": edge_blind(results).score},
        "trials": [result.summary() for result in results],
        "model": str(model),
        "run": str(folder / "run"),
        "report": str(folder / _REPORT),
        "next": next_commands(experiment, finals[0], load_model(str(model), experiment.factory).features(None)),
        "predict": f'flipproof.load("{model}").certify(graph)',
        "predict_command": f"{typed_command('predict', {'model': model})} FILE...",
    }
    write_json(folder / SUMMARY, summary)
    sentence = " ".join(
        rendered("protection.txt", **summary, title=chosen.title, blind=chosen.defence.edge_blind).split()
    )
    return Protection(summary, sentence, _table(chosen, summary))


def _table(chosen: Candidate, summary: Mapping[str, Any]) -> list[list[str]]:
    """The chosen defence beside what it is compared with."""
    total = summary["test_graphs"]
    share = {
        key: shown_share(summary[key] * total, total) for key in ("accuracy", "withstood", "edge_blind", "undefended")
    }
    own = [chosen.title, share["accuracy"], share["withstood"]]
    return [
        ["classifier", "not attacked", summary["target"]],
        *([] if chosen.defence.edge_blind else [own]),
        ["a classifier that ignores edges", share["edge_blind"], share["edge_blind"]],
        ["without a defence", share["undefended"], "not known"],
    ]


def _choice(
    run: Run[StudySettings], experiment: Experiment, seconds: float, workers: int, quiet: bool
) -> tuple[list[TrialResult], list[Final], TrialResult]:
    """All trials; what is trained at the end (once chosen, it stays: test graphs may have been looked at); the best trial."""
    stored = {name: json.loads(run.store.load(name)) for name in run.store.finished()}
    made: dict[str, int] | None = stored.pop(_CHOICE, None)
    spent = sum(one.get("seconds_train", 0) + one.get("seconds_certify", 0) for one in stored.values()) / workers
    clock = Clock(seconds, spent, reserved=seconds / 2) if made is None else Clock(0.0)
    results = Search(experiment, clock, workers, quiet or made is not None, run.store).results()
    blind = edge_blind(results)
    better = [one for one in defended(results) if one.score > blind.score]
    best = max(better, key=lambda one: one.rank, default=blind)
    chosen = {MODEL: best.candidate}
    for line in baselines():
        if line != best.candidate:
            chosen[_BLIND if line.defence.edge_blind else _CLEAN] = line
    epochs = made or {role: _epochs(one, results, experiment, clock) for role, one in chosen.items()}
    run.store.finish(_CHOICE, json.dumps(epochs).encode())
    return results, [Final(one, epochs[role], role) for role, one in chosen.items()], best


def _epochs(candidate: Candidate, results: Sequence[TrialResult], experiment: Experiment, clock: Clock) -> int:
    """Those of the candidate's best trial; more, if time ended the search before longer ones and they are cheap or fit now."""
    own = [one for one in results if one.candidate == candidate]
    epochs = max(own, key=lambda one: one.rank).trial.epochs
    longest = max(own, key=lambda one: one.trial.epochs)
    cheap = candidate.defence.effort <= CERTAIN and not candidate.defence.baseline
    for more in experiment.ladder:
        # training and validation graphs together are more, and other work goes on beside
        if more > longest.trial.epochs and (cheap or 2 * longest.seconds(more) < clock.left):
            epochs = more
    return epochs


def _train_final(experiment: Experiment, folder: Path, final: Final) -> dict[str, Any]:
    """Train on training and validation graphs, and write the model folder, whole or not at all."""
    from flipproof import models

    source, data, candidate = _final_source(experiment), experiment.parts.dataset, final.candidate
    out = folder / final.role
    part = out.with_name(f"{out.name}.part")
    with one_thread():
        learned = experiment.learn(candidate, source.split(data).train, epochs=final.epochs, checkpoint=part)
    models.save(
        learned.model,
        out,
        factory=experiment.factory if candidate.defence.trains else None,
        defence={"name": candidate.defence.name, **candidate.settings},
        features=learned.features,
        metadata={
            "in_features": learned.in_features,
            "num_classes": data.num_classes,
            **source.metadata(data),
            "training": learned.settings,
        },
    )
    part.unlink(missing_ok=True)
    return {"weights_sha256": models.load_metadata(out).weights_hash}


def _final_source(experiment: Experiment) -> DataSource:
    """The same test part, with the validation graphs among the training graphs."""
    return replace(experiment.source, validation=0.0)


def _train(run: Run[StudySettings], experiment: Experiment, finals: Sequence[Final], workers: int, quiet: bool) -> None:
    """Train what is missing; a model folder that is not the one that was trained is made again."""
    from flipproof import models

    def trained(final: Final) -> bool:
        if final.name not in run.store.finished() or not (run.folder / final.role).is_dir():
            return False
        stored = json.loads(run.store.load(final.name))["weights_sha256"]
        return bool(models.load_metadata(run.folder / final.role).weights_hash == stored)

    if missing := [final for final in finals if not trained(final)]:
        work = partial(_train_final, experiment, run.folder)
        for final, content in run_jobs("training", missing, work, workers=workers, quiet=quiet):
            run.store.finish(final.name, json.dumps(content).encode())


def measure(
    folder: Path,
    out: Path,
    threat: Threat | None,
    data: Dataset,
    indices: Sequence[int],
    *,
    factory: Callable[..., Any] | None = None,
    question: Mapping[str, Any] = MappingProxyType({}),
    split_seed: int = 0,
    workers: int | None = None,
    quiet: bool = True,
) -> dict[str, Any]:
    """Certify graphs with what :func:`fit` left in a folder, into a run folder with a report; what they say, as plain JSON.

    ``question`` is what certification takes, as far as the defence knows it; by default the command line's defaults.
    """
    assert threat is not None
    count = workers or cores()
    graphs = {index: data[index] for index in indices}
    loaded, classifiers = classifiers_in(folder, factory)
    model = classifiers.pop(MODEL)
    keep_to_path(model, out)
    model.check(data.subset(indices))
    answers = {
        role: {index: line.predict(graph) for index, graph in graphs.items()} for role, line in classifiers.items()
    }
    right = {role: sum(graphs[i].label == answer for i, answer in own.items()) for role, own in answers.items()}
    settings = certify_settings(
        model,
        data,
        graphs,
        from_plain(model.defence.request, {**question, "graphs": len(indices)}),
        split_seed=split_seed,
        model=loaded.name,
        model_sha256=loaded.identity,
        features=features_shown(model, graphs.values(), loaded.features(None)),
    )
    with written_run(out, settings) as held:
        rows = certify_into(
            held,
            model,
            graphs,
            engine=lambda pieces: model.engine(1 if pieces < _TINY else count, quiet=quiet),
            quiet=quiet,
        )
        request = settings.request()
        withstood = sum(
            (certificate := request.read(evidence)).label == graphs[index].label
            and threat.withstood(certificate, graphs[index])
            for index, evidence in read_evidence(held)
        )
        radii = right_radii(*rows.columns("radius", "predicted", "label").values())
        blind = right.get(_BLIND, int((radii >= 0).sum()))  # handed over itself where there is no other
        if _BLIND in answers:
            keep_line(held, Line({index: answer for index, answer in answers[_BLIND].items() if answer is not None}))
    shown = sorted({*RADII, *([] if threat.radius is None else [threat.radius])})
    certified = dict(zip(map(str, shown), shares(radii, shown).tolist(), strict=True))
    _write_report(out, folder.resolve().name)
    return {
        "accuracy": certified["0"],
        "certified_accuracy": certified,
        "target": threat.words,
        "withstood": withstood / len(rows),
        "interval": [float(end) for end in share_interval(withstood, len(rows))],
        "edge_blind": blind / len(rows),
        "undefended": right[_CLEAN] / len(rows),
        "test_graphs": len(rows),
    }


def _write_report(run: Path, name: str) -> None:
    from flipproof.report.drawing import write_figures
    from flipproof.report.reading import read_run
    from flipproof.report.report_page import report_page

    runs = [read_run(run, name)]
    figures = write_figures(run / "figures", runs)
    page = report_page(runs, figures=[f"figures/{path.stem}" for path in figures if path.suffix == ".csv"])
    write_text(run / "report.html", page)


def next_commands(experiment: Experiment, chosen: Final, features: str | None) -> list[str]:
    """The commands that make the same model and certificates without the search; none where options cannot say it."""
    candidate = chosen.candidate
    if any(isinstance(value, (list, tuple)) for value in candidate.arguments.values()):
        return []
    network = {"features": features} | ({"model": candidate.defence.name} if candidate.defence.edge_blind else {})
    return [
        training_command(experiment, candidate, {**network, **chosen.epochs_option}, "MODEL"),
        typed_command("certify", {"model": "MODEL", "out": "RUN"}),
    ]
