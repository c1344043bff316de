"""From options to a defended classifier: which graphs, which defence, around which model; and what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from flipproof.cli.options import ModelDataOptions, ModelOptions, checked_memory
from flipproof.datasets import Dataset
from flipproof.datasets.sources import DataSource, by_class_names, fingerprint, model_data, part_indices
from flipproof.datasets.splits import drawn
from flipproof.defences import defence_classes, defence_names, trained_defence
from flipproof.defences.defence import Defence, DefendedClassifier
from flipproof.errors import InputError
from flipproof.fields import from_plain, to_plain
from flipproof.graphs import Graph
from flipproof.models.loading import LoadedModel, load_features, load_model
from flipproof.progress import note
from flipproof.report.wording import wording
from flipproof.runs.certifying import Line
from flipproof.studies.search_space import Space, fit_edge_blind, space, space_of, spaces

NONE = "none"
MOST_GRAPHS = 5_000  # training graphs that the line to beat is learned from


@dataclass(frozen=True, eq=False)
class ChosenData:
    """The graphs that a command works on, by position in their data set."""

    source: DataSource
    dataset: Dataset
    graphs: Mapping[int, Graph]
    graphs_seed: int | None  # that drew them from a larger part; None for a whole part
    notes: tuple[str, ...] = ()  # what a user should know about the choice, to be said once the work begins

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.dataset)


def chosen_data(loaded: LoadedModel, options: ModelDataOptions) -> ChosenData:
    """The data of the options, else the model's own; their classes are the model's, by name."""
    source, data = model_data(loaded.metadata, **options.source_values | {"task": loaded.task})
    notes = list[str]()
    if loaded.saved is None:
        numbered = ", ".join(f"{number} is {name}" for number, name in enumerate(data.class_names))
        notes.append(f"the model does not name its classes; taken by number: {numbered}")
    notes += data.remarks
    parts = source.split(data)
    indices = part_indices(parts, options.part, options.graphs, seed=options.graphs_seed)
    number = len(part_indices(parts, options.part, None))
    seed = options.graphs_seed if len(indices) < number else None
    if seed is not None:
        of = "" if options.part == "all" else f"{options.part} "
        notes.append(
            f"{len(indices)} of {number} {of}{loaded.task}, drawn with every class in proportion (seed {seed})"
        )
    return ChosenData(source, data, {index: data[index] for index in indices}, seed, tuple(notes))


def spoken_of(values: Mapping[str, Any], name: str | None, task: str = "graphs") -> Space | None:
    """The defence of this name, else the first that has a setting among the values; ``None`` if there is none."""
    if name is not None:
        return space(name)
    return next((one for one in spaces(task) if any(option.name in values for option in one.settings)), None)


def own_values(defence: Space, values: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The values of one kind of a defence's options; refuses values of another defence's."""
    for name in values:
        if name not in _option_names(defence):
            owner = next(other for other in spaces() if name in _option_names(other))
            raise InputError(
                f"--{name.replace('_', '-')} belongs to {owner.name}, and the defence here is {defence.name} (leave it out)"
            )
    return {option.name: values[option.name] for option in getattr(defence, kind) if option.name in values}


def _option_names(defence: Space) -> set[str]:
    return {option.name for option in (*defence.settings, *defence.training_options, *defence.asking)}


def blindness() -> Defence:
    return next(kind for kind in defence_classes() if kind.edge_blind)()


def chosen_defence(loaded: LoadedModel, values: Mapping[str, Any], name: str | None) -> Defence | None:
    """The defence: that of the options, else the one that the model was trained for; ``None`` if neither says.

    A model that sees no edges needs no other defence than that, unless one is named.
    """
    if getattr(loaded.model, "edge_blind", False) and name is None:
        return blindness()
    trained = trained_defence(loaded.metadata)
    if trained is not None and wording(trained.name).baseline:
        trained = None  # no defence at all, which must be named
    chosen = spoken_of(values, name, loaded.task)
    if chosen is not None and chosen.kind.evidence.task != loaded.task:
        raise InputError(
            f"a model for {loaded.task} is certified with {', '.join(defence_names(loaded.task))}; got --defence {name} "
            "(leave it out)"
        )
    if chosen is None:
        return trained
    settings = own_values(chosen, values, "settings")
    if trained is not None and trained.name == chosen.name:
        if not settings:
            return trained
        settings = to_plain(trained, without=settings) | settings
    return from_plain(chosen.kind, settings)


def required_defence(loaded: LoadedModel, options: ModelOptions) -> tuple[Defence, dict[str, Any]]:
    """The defence, and the values of its request; refuses a model for which nothing says a defence."""
    defence = chosen_defence(loaded, options.defence_values, options.defence)
    if defence is None:
        raise InputError(
            "the model was not trained for a defence, so one must be given (--keep 0.9, or --add and --remove, or --defence "
            f"with one of {', '.join(defence_names(loaded.task))})"
        )
    return defence, own_values(space_of(type(defence)), options.defence_values, "asking")


def num_classes(loaded: LoadedModel, typed: int | None, data: Dataset | None = None) -> int:
    own = getattr(loaded.model, "num_classes", None)
    known = len(loaded.metadata.get("class_names") or ()) if data is None else data.num_classes
    number = typed if typed is not None else own if isinstance(own, int) else known
    if not number:
        raise InputError("the model does not say how many classes it has (give --classes)")
    if loaded.saved is not None and number != own:
        raise InputError(f"--classes must be the model's own number of classes, {own}; got {number} (leave it out)")
    if data is not None and number < known:
        raise InputError(
            f"the model has {number} classes and the data {data.name} have {known} (certify data with the model's "
            "classes, or give --classes)"
        )
    return int(number)


def defend(
    loaded: LoadedModel, defence: Defence, classes: int, options: ModelOptions | None = None
) -> DefendedClassifier:
    """The defended classifier; of a model to compare with, no options speak."""
    more: dict[str, Any] = {"convention": "nodes" if loaded.task == "nodes" else None}
    if options is not None:
        more |= {"trust_features": options.trust_features, "memory": checked_memory(options.memory)}
    hook = load_features(loaded.features(None if options is None else options.features))
    return DefendedClassifier(loaded.model, defence, num_classes=classes, features=hook, **more)


def refuse_other_classes(loaded: LoadedModel, data: Dataset, option: str) -> None:
    """Refuse a model to compare with that numbers the classes otherwise than the data."""
    renumbered = by_class_names(data, loaded.metadata, f"the model of {option}")
    if renumbered.class_names != data.class_names:
        raise InputError(
            f"the model of {option} must have the classes {', '.join(data.class_names)}, in this order; it has "
            f"{', '.join(renumbered.class_names)} (train it on the same data)"
        )


def warn_of_training_graphs(loaded: LoadedModel, chosen: ChosenData, *, quiet: bool) -> None:
    """Say so if test graphs may have been training graphs: another split than the stored one must have been typed."""
    stored, split_seed = loaded.metadata, chosen.source.split_seed
    if stored.get("data_sha256") not in (None, chosen.fingerprint):
        what = "these are not the data that the model was trained on, so a test graph may have been a training graph"
        remedy = "leave --data and --data-seed out to certify graphs that it has not seen"
    elif stored.get("split_seed", split_seed) != split_seed:
        what = (
            f"the model was trained with split seed {stored['split_seed']}, so many of the test graphs of split seed "
            f"{split_seed} were training graphs"
        )
        remedy = "leave --split-seed out to certify graphs that it has not seen"
    else:
        return
    note(f"warning: {what} ({remedy})", quiet=quiet)


# ---- the line to beat --------------------------------------------------------------------------------------------------


def line_to_beat(
    typed: str | None, loaded: LoadedModel, chosen: ChosenData, *, trust_features: bool, quiet: bool
) -> Callable[[Line | None], Line]:
    """What certificates are compared with: a classifier that ignores edges, and the most frequent class.

    What can be refused is refused now. The function that is returned takes the line that the run holds, if any, and fits the
    network to the training graphs, or to a part of very many; where that cannot be, the line says why.
    """
    known, missing = None, ""
    try:
        known = _training_graphs(loaded, chosen)
    except InputError as error:
        missing = str(error)
    blind = None if typed in (None, NONE) else _edge_blind_model(typed, chosen, quiet=quiet)

    def line(stored: Line | None) -> Line:
        if typed is None and stored is not None and stored.learned_from is not None:
            return stored
        train = chosen.source.split(chosen.dataset).train if known is None else known
        unfitted = Line(missing=missing, majority=_most_frequent(train))
        if typed == NONE:
            return replace(unfitted, missing="--edge-blind none was given (leave it out to compare)")
        if blind is not None:
            return replace(unfitted, missing="", answers=_answers(blind, chosen))
        if known is None:
            return unfitted
        learned = known.subset(drawn(known, MOST_GRAPHS))
        if len(learned) < len(known):
            note(
                f"the line to beat learns from {MOST_GRAPHS:,} of {len(known):,} training graphs, drawn with every class in "
                "proportion (--edge-blind with a folder of train --model edge-blind takes one that learned from all)",
                quiet=quiet,
            )
        try:
            fitted = DefendedClassifier(fit_edge_blind(learned, features=None)[0], blindness())
            if not trust_features:
                fitted.guard.check_features(chosen.dataset.subset(chosen.graphs))
            return replace(unfitted, answers=_answers(fitted, chosen), learned_from=len(learned))
        except InputError as error:
            return replace(unfitted, missing=str(error))

    return line


def _edge_blind_model(folder: str, chosen: ChosenData, *, quiet: bool) -> DefendedClassifier:
    blind = load_model(folder)
    if blind.saved is None or not getattr(blind.model, "edge_blind", False):
        raise InputError(
            f"--edge-blind must be a folder of train --model edge-blind; it holds {blind.name} (train one, or leave it out)"
        )
    refuse_other_classes(blind, chosen.dataset, "--edge-blind")
    warn_of_training_graphs(blind, chosen, quiet=quiet)
    return defend(blind, blindness(), blind.model.num_classes)


def _training_graphs(loaded: LoadedModel, chosen: ChosenData) -> Dataset:
    """The graphs that the model was trained on, with its validation graphs, or those that the split keeps for training.

    Refuses where they cannot be read, and where graphs to be certified are among them.
    """
    if loaded.metadata.get("data_sha256") in (None, chosen.fingerprint):
        parts, certified = chosen.source.split(chosen.dataset), chosen.graphs.keys()
        if certified & set(parts.train_indices.tolist()):
            raise InputError(
                "the graphs asked about are among those that it would learn from (leave --part out, or give --edge-blind with a "
                "folder of train --model edge-blind)"
            )
        apart = {*parts.test_indices.tolist(), *certified}
    else:
        try:
            source, data = model_data(loaded.metadata, task=loaded.task)
        except (InputError, OSError) as error:
            raise InputError(
                f"the graphs that the model was trained on cannot be read: {error} (give --edge-blind with a folder of train "
                "--model edge-blind)"
            ) from error
        parts = source.split(data)
        apart = set(parts.test_indices.tolist())
    return parts.dataset.subset(index for index in range(len(parts.dataset)) if index not in apart)


def _answers(blind: DefendedClassifier, chosen: ChosenData) -> dict[int, int]:
    return {index: int(blind.predict(graph)) for index, graph in chosen.graphs.items()}  # type: ignore[arg-type]


def _most_frequent(graphs: Dataset) -> int | None:
    with suppress(InputError):
        return int(np.bincount(graphs.labels).argmax()) if len(graphs) else None
    return None
