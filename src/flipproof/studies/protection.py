"""From graphs and an attack to a certified classifier: search on validation graphs, then one look at the test graphs.

DIR/run.json, DIR/evidence.sqlite             what was asked; every trial, every finished training
DIR/model, DIR/edge_blind, DIR/undefended     trained on training and validation graphs
DIR/run, DIR/attack                           run folders: certificates of the test graphs, attacks on a few of them
DIR/protect.json                              what came out
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flipproof.certificates.metrics import Curve, right_radii, shares
from flipproof.datasets import Dataset
from flipproof.datasets.sources import DataSource, fingerprint, part_indices
from flipproof.datasets.splits import drawn
from flipproof.defences.defence import described
from flipproof.defences.defended import DefendedClassifier
from flipproof.engines import cores
from flipproof.errors import InputError
from flipproof.fields import to_plain
from flipproof.files import write_json, write_text
from flipproof.graphs import Graph
from flipproof.models.loading import LoadedModel, load_features, load_model
from flipproof.progress import note
from flipproof.runs.attacking import AttackWork, attack_into, certified_radii
from flipproof.runs.certifying import certify_into, features_shown, keep_to_path, model_paths, read_evidence
from flipproof.runs.edge_blind_line import Line, keep_line
from flipproof.runs.run_folder import Run, written_run
from flipproof.runs.settings import AttackSettings, CertifySettings, StudySettings
from flipproof.studies.candidate import Candidate
from flipproof.studies.halving import (
    CERTAIN,
    Clock,
    Search,
    Trial,
    Tried,
    asked_of,
    halved,
    refuse_clean_edges,
    remarks_on,
    stood,
    trained,
    whole,
)
from flipproof.studies.job_runner import one_thread, run_jobs
from flipproof.studies.search_space import Space
from flipproof.studies.tuning import Target, typed_command
from flipproof.studies.verdict import sentences

__all__ = ["Protection", "protect"]

_RADII = (0, 1, 2, 3, 5, 10)
_ATTACKED = 8  # test graphs
_CALLS = 20_000  # model calls of the search on one graph
_TINY = 4  # pieces of work that are not worth more than this process
_MODEL, _BLIND, _CLEAN = "model", "edge_blind", "undefended"
_CHOICE = "final choice"  # in the store


@dataclass(frozen=True, eq=False)
class Protection:
    """What came out: as plain JSON, and in sentences."""

    summary: dict[str, Any]
    sentences: list[str]


@dataclass(frozen=True)
class _Final:
    """A candidate to be trained on training and validation graphs."""

    role: str
    candidate: Candidate
    epochs: int

    @property
    def name(self) -> str:
        return f"final {self.role}: {self.candidate.title}, {self.epochs} epochs"

    @property
    def weight(self) -> int:
        return self.epochs


def protect(
    source: DataSource,
    target: Target,
    folder: Path,
    *,
    seconds: float,
    ladder: tuple[int, ...] = (25, 75, 200),
    features: str | None = None,
    workers: int | None = None,
    quiet: bool = True,
    again: str = "",
) -> Protection:
    """Search, train, certify, attack, report. A folder in which this was begun is continued.

    Args:
        source: The data and their split; its validation part chooses.
        target: The attack to be withstood.
        folder: For everything that is made.
        seconds: Time for all of it; half of it is for the search. What is under way is not cut short.
        ladder: Epochs of the trials, ascending.
        features: Node features, as for ``flipproof train``.
        workers: Processes; by default one per core.
        quiet: Show no progress.
        again: The command that was typed.
    """
    if not source.validation:
        raise InputError("--validation must be above 0: the choice is made on validation graphs (for instance 0.2)")
    search, count = Search(source, target.attack, ladder, features), workers or cores()
    parts = search.parts()
    if not len(parts.validation_indices):
        raise InputError("--validation holds no graph (ask for a larger share)")
    data = parts.dataset
    refuse_clean_edges(search)
    note(_described(data), quiet=quiet)
    note(
        f"{len(parts.train_indices)} graphs to train on, {len(parts.validation_indices)} to choose with, "
        f"{len(parts.test_indices)} kept for the end",
        quiet=quiet,
    )
    for sentence in remarks_on(search):
        note(sentence, quiet=quiet)
    with written_run(folder, StudySettings("protect", asked_of(search))) as run:
        clock = Clock(seconds, _spent(run, count))
        if _CHOICE in run.store.finished():
            # test graphs may have been looked at since: more time must not change the choice
            tried, finals, best = _stored_choice(run, search)
        else:
            tried = halved(run, search, clock, workers=count, quiet=quiet)
            finals, best = _finals(tried, search, clock)
            _store_choice(run, tried, finals, best)
        note(f"training {best.trial.candidate.title} on training and validation graphs", quiet=quiet)
        _train(run, search, finals, count, quiet)
        outcome = _measure(folder, search, finals, count, quiet)
    summary = _summary(search, target, folder, tried, finals, best, outcome)
    write_json(folder / "protect.json", summary)
    return Protection(summary, sentences(summary, target, again, blind=best.trial.candidate.defence.edge_blind))


def _described(data: Dataset) -> str:
    nodes = np.mean([graph.num_nodes for graph in data])
    edges = np.mean([graph.num_edges for graph in data])
    own = f"{data.num_node_features} node features" if data.num_node_features else "no node features"
    sizes = f"{nodes:.1f} nodes and {edges:.1f} edges on average"
    return f"{data.name}: {len(data)} graphs in {data.num_classes} classes, {sizes}, {own}"


def _spent(run: Run[StudySettings], workers: int) -> float:
    """Seconds that earlier calls have worked."""
    stored = [json.loads(run.store.load(name)) for name in run.store.finished()]
    return sum(float(found.get("seconds_train", 0) + found.get("seconds_certify", 0)) for found in stored) / workers


def _finals(tried: Sequence[Tried], search: Search, clock: Clock) -> tuple[list[_Final], Tried]:
    """What is trained at the end: the best candidate, and the lines to compare with; and the best trial.

    Where no trial is strictly better than the edge-blind network, that network is the best.
    """
    blind = max((one for one in tried if one.trial.candidate.defence.edge_blind), key=lambda one: one.rank)
    defended = [one for one in tried if not one.trial.candidate.defence.baseline]
    best = max(defended, key=lambda one: one.rank, default=blind)
    if best.score <= blind.score:
        best = blind
    wanted = {_MODEL: best.trial.candidate}
    for line in search.lines():
        if line != best.trial.candidate:
            wanted[_BLIND if line.defence.edge_blind else _CLEAN] = line
    return [_Final(role, line, _epochs(line, tried, search, clock)) for role, line in wanted.items()], best


def _epochs(candidate: Candidate, tried: Sequence[Tried], search: Search, clock: Clock) -> int:
    """Those of the candidate's best trial; more, if time ended the search before longer ones and they are cheap or fit now."""
    own = [one for one in tried if one.trial.candidate == candidate]
    best = max(own, key=lambda one: one.rank)
    longest = max(own, key=lambda one: one.trial.epochs)
    epochs, cheap = best.trial.epochs, candidate.defence.effort <= CERTAIN and not candidate.defence.baseline
    for more in search.ladder:
        # training and validation graphs together are more, and other work goes on beside
        fits = cheap or 2 * longest.seconds(more) < clock.left
        if more > longest.trial.epochs and fits:
            epochs = more
    return epochs


def _store_choice(run: Run[StudySettings], tried: Sequence[Tried], finals: Sequence[_Final], best: Tried) -> None:
    content = {
        "best": best.trial.name,
        "tried": [[one.trial.candidate.title, one.trial.epochs] for one in tried],
        "finals": [[final.role, final.candidate.title, final.epochs] for final in finals],
    }
    run.store.finish(_CHOICE, json.dumps(content).encode())


def _stored_choice(run: Run[StudySettings], search: Search) -> tuple[list[Tried], list[_Final], Tried]:
    offered = [*search.lines(), *search.candidates()]
    known = {one.title: one for candidate in offered for one in (candidate, *candidate.variants())}
    stored = json.loads(run.store.load(_CHOICE))
    trials = [Trial(known[title], epochs) for title, epochs in stored["tried"]]
    tried = [Tried(trial, json.loads(run.store.load(trial.name))) for trial in trials]
    finals = [_Final(role, known[title], epochs) for role, title, epochs in stored["finals"]]
    return tried, finals, next(one for one in tried if one.trial.name == stored["best"])


@dataclass(frozen=True)
class _FinalWork:
    """What a worker does at the end: train, and write the model folder, whole or not at all."""

    search: Search
    folder: Path

    def __call__(self, final: _Final) -> dict[str, Any]:
        from flipproof import models

        source = whole(self.search.source)
        data = self.search.parts().dataset
        out = self.folder / final.role
        part = out.with_name(f"{out.name}.part")
        kind, settings = final.candidate.defence, dict(final.candidate.settings)
        with one_thread():
            found = trained(self.search, final.candidate, source.split(data).train, final.epochs, checkpoint=part)
        models.save(
            found.model,
            out,
            defence={"name": kind.name, **settings},
            features=found.features.spec,
            **source.metadata(data),
            training=found.settings,
        )
        part.unlink(missing_ok=True)
        return {"weights_sha256": models.load_metadata(out).weights_hash, "train_accuracy": found.accuracy}


def _train(run: Run[StudySettings], search: Search, finals: Sequence[_Final], workers: int, quiet: bool) -> None:
    """Train what is missing; a model folder that is not the one that was trained is made again."""
    missing = [final for final in finals if not _is_trained(run, final)]
    if missing:
        work = _FinalWork(search, run.folder)
        for final, content in run_jobs("training", missing, work, workers=workers, quiet=quiet):
            run.store.finish(final.name, json.dumps(content).encode())


def _is_trained(run: Run[StudySettings], final: _Final) -> bool:
    from flipproof import models

    if final.name not in run.store.finished() or not (run.folder / final.role).is_dir():
        return False
    stored = json.loads(run.store.load(final.name))
    return bool(models.load_metadata(run.folder / final.role).weights_hash == stored["weights_sha256"])


@dataclass(frozen=True, eq=False)
class _Outcome:
    """What the test graphs say."""

    graphs: int
    certified: dict[str, float]
    withstood: int
    edge_blind: float
    undefended: float
    attacked: Mapping[str, Any]
    report: Path


def _measure(folder: Path, search: Search, finals: Sequence[_Final], workers: int, quiet: bool) -> _Outcome:
    """Certify the test graphs, attack a few, write the report."""
    best = finals[0].candidate
    source, data = whole(search.source), search.parts().dataset
    indices = part_indices(source.split(data), "test", None)
    graphs = {index: data[index] for index in indices}
    loaded = {final.role: load_model(str(folder / final.role)) for final in finals}
    defended = {final.role: _defended(loaded[final.role], final.candidate) for final in finals}
    model = defended[_MODEL]
    keep_to_path(model, folder / "run")
    model.check_ahead(data.subset(indices))
    answers = {
        role: {index: line.predict(graph) for index, graph in graphs.items()}
        for role, line in defended.items()
        if role != _MODEL
    }
    right = {
        role: sum(graphs[index].label == answer for index, answer in found.items()) for role, found in answers.items()
    }
    settings = CertifySettings(
        data=data.name,
        data_sha256=fingerprint(data),
        class_names=list(data.class_names),
        part="test",
        split_seed=source.split_seed,
        graphs=indices,
        model=loaded[_MODEL].name,
        model_sha256=loaded[_MODEL].identity,
        features=features_shown(model, graphs.values(), loaded[_MODEL].features(None)),
        num_classes=model.num_classes,
        defence=described(model.defence),
        question=to_plain(best.question({}, graphs=len(indices))),
        paths=model_paths(model, graphs),
    )
    with written_run(folder / "run", settings) as held:
        rows = certify_into(
            held,
            model,
            graphs,
            engine=lambda pieces: model.engine(1 if pieces < _TINY else workers, quiet=quiet),
            quiet=quiet,
        )
        question = settings.request()
        withstood = sum(
            (found := question.read(evidence)).label == graphs[index].label
            and stood(found, graphs[index], search.attack)
            for index, evidence in read_evidence(held)
        )
        radii = right_radii(*rows.columns("radius", "predicted", "label").values())
        blind = right.get(_BLIND, int((radii >= 0).sum()))  # handed over itself where there is no other
        if _BLIND in answers:
            keep_line(held, Line({index: answer for index, answer in answers[_BLIND].items() if answer is not None}))
    attacked = _attack(folder, search, settings, loaded, defended, graphs, workers, quiet)
    wanted = sorted({*_RADII, *([search.attack] if isinstance(search.attack, int) else [])})
    return _Outcome(
        len(rows),
        dict(zip(map(str, wanted), shares(radii, wanted).tolist(), strict=True)),
        withstood,
        blind / len(rows),
        right[_CLEAN] / len(rows),
        attacked,
        _report(folder),
    )


def _defended(loaded: LoadedModel, candidate: Candidate) -> DefendedClassifier:
    hook = load_features(loaded.features(None))
    return candidate.defence.build(
        loaded.model, candidate.settings, num_classes=loaded.model.num_classes, features=hook
    )


def _attack(
    folder: Path,
    search: Search,
    certified: CertifySettings,
    loaded: Mapping[str, LoadedModel],
    defended: Mapping[str, DefendedClassifier],
    graphs: Mapping[int, Graph],
    workers: int,
    quiet: bool,
) -> dict[str, Any]:
    """The smallest attacks found on a few test graphs, on the chosen classifier and on the one without defence."""
    attack = search.attack
    adds, removes = attack if isinstance(attack, tuple) else (attack, attack)
    budget = sum(attack) if isinstance(attack, tuple) else attack
    data = search.parts().dataset.subset(graphs)
    few = [list(graphs)[place] for place in drawn(data, _ATTACKED, seed=0)]
    constraints = {"adds": adds > 0 or not budget, "removes": removes > 0}
    settings = AttackSettings(
        data=certified.data,
        data_sha256=certified.data_sha256,
        graphs=few,
        graphs_seed=0,
        model_sha256=certified.model_sha256,
        undefended_sha256=loaded[_CLEAN].identity,
        defence=certified.defence,
        features=certified.features,
        budget=budget,
        attacks=["greedy"],
        constraints=constraints,
        samples=64,
        confirm_samples=2000,
        alpha=0.001,
        seed=0,
    )
    options: Any = {
        "samples": 64,
        "confirm_samples": 2000,
        "alpha": 0.001,
        "seed": 0,
        "max_calls": _CALLS,
        **constraints,
    }
    roles = {"undefended": defended[_CLEAN], "defended": defended[_MODEL]}
    work = AttackWork(roles, {index: graphs[index] for index in few}, budget, ["greedy"], options)
    with written_run(folder / "attack", settings) as held:
        radii = certified_radii(folder / "run", settings)
        engine = defended[_MODEL].engine(min(workers, len(few)), quiet=quiet)
        return attack_into(held, work, radii=radii, engine=engine, quiet=quiet).summary


def _report(folder: Path) -> Path:
    from flipproof.report.reading import read_run, with_attacks, with_lines
    from flipproof.report.report_page import report_page
    from flipproof.report.run_figures import write_figures

    runs = with_lines([read_run(folder / "run", folder.resolve().name)], [])
    runs = with_attacks(runs, folder / "attack")
    figures = write_figures(folder / "run" / "figures", runs)
    page = folder / "run" / "report.html"
    write_text(page, report_page(runs, figures=[f"figures/{path.stem}" for path in figures if path.suffix == ".csv"]))
    return page


def _summary(
    search: Search,
    target: Target,
    folder: Path,
    tried: Sequence[Tried],
    finals: Sequence[_Final],
    best: Tried,
    outcome: _Outcome,
) -> dict[str, Any]:
    chosen = finals[0]
    low, high = Curve(chosen.candidate.title, (outcome.withstood,), outcome.graphs).band
    blind = max((one for one in tried if one.trial.candidate.defence.edge_blind), key=lambda one: one.rank)
    return {
        "defence": chosen.candidate.defence.name,
        "settings": {**chosen.candidate.settings, **chosen.candidate.recipe, **_epochs_of(chosen)},
        "accuracy": outcome.certified["0"],
        "certified_accuracy": outcome.certified,
        "target": target.words,
        "withstood": outcome.withstood / outcome.graphs,
        "interval": [float(low[0]), float(high[0])],
        "edge_blind": outcome.edge_blind,
        "undefended": outcome.undefended,
        "under_attack": {
            "graphs": outcome.attacked["graphs"],
            **{role: shares[-1] for role, shares in outcome.attacked["accuracy_under_attack"].items()},
        },
        "test_graphs": outcome.graphs,
        "validation": {
            "graphs": best.found["validation_graphs"],
            "chosen": best.score,
            "edge_blind": blind.score,
        },
        "trials": [one.summary() for one in tried],
        "model": str(folder / _MODEL),
        "run": str(folder / "run"),
        "report": str(outcome.report),
        "next": _commands(search, chosen, folder),
        "predict": _prediction(chosen.candidate.defence, folder / _MODEL),
        "predict_command": f"{typed_command('predict', {'model': folder / _MODEL})} FILE...",
    }


def _epochs_of(chosen: _Final) -> dict[str, int]:
    return {"epochs": chosen.epochs} if chosen.candidate.defence.trains else {}


def _commands(search: Search, chosen: _Final, folder: Path) -> list[str]:
    """The commands that make the same model and certificates without the search; none where options cannot say it."""
    source, kind = search.source, chosen.candidate.defence
    given = {} if kind.edge_blind else chosen.candidate.arguments
    if any(isinstance(value, (list, tuple)) for value in given.values()):
        return []
    spec = load_model(str(folder / _MODEL)).features(None)
    options: dict[str, Any] = {"data": source.data, "root": source.root, "symmetrise": source.symmetrise}
    options |= {"features": spec, **_epochs_of(chosen)}
    options |= {"data_seed": source.seed, "split_seed": source.split_seed, "seed": source.split_seed}
    options |= {"test": source.test, "validation": 0, **given, **({"model": kind.name} if kind.edge_blind else {})}
    return [
        typed_command("train", {**options, "out": "MODEL"}),
        typed_command("certify", {"model": "MODEL", "out": "RUN"}),
    ]


def _prediction(space: Space, model: Path) -> str:
    """Python that answers for a graph."""
    shells = DefendedClassifier.__subclasses__()
    kind = next((shell for shell in shells if shell.defence_name == space.name), DefendedClassifier)
    return f'from {kind.__module__} import {kind.__name__}; {kind.__name__}.load("{model}").certify(graph)'
