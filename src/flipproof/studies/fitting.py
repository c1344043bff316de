"""From a prepared experiment to trained classifiers in a folder.

FOLDER/run.json, FOLDER/evidence.sqlite                what was asked; every trial, every finished training
FOLDER/model, FOLDER/edge_blind, FOLDER/undefended     the chosen model, and those that it is compared with
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from flipproof.datasets.sources import DataSource
from flipproof.defences import trained_defence
from flipproof.defences.defence import DefendedClassifier
from flipproof.engines import cores
from flipproof.engines.pool import one_thread
from flipproof.models.loading import load_features, load_model
from flipproof.progress import note
from flipproof.runs.run_folder import StudySettings, written_run
from flipproof.studies.candidate import Candidate, baselines
from flipproof.studies.experiment import Experiment, Trial, run_jobs
from flipproof.studies.tuning import CERTAIN, Results, Search

MODEL, BLIND, CLEAN = "model", "edge_blind", "undefended"
_CHOICE = "final choice"  # in the store


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
    cheap = candidate.defence.effort <= CERTAIN and not candidate.defence.baseline
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
