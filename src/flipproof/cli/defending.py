"""From options to a defended classifier: which defence, with which settings, around which model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flipproof.classifiers import DEFAULT_MEMORY
from flipproof.cli.options import ModelDataOptions
from flipproof.datasets import Dataset
from flipproof.datasets.sources import DataSource, by_class_names, fingerprint, model_data, part_indices
from flipproof.defences import defence_names, trained_defence
from flipproof.defences.defence import Defence
from flipproof.defences.defended import DefendedClassifier
from flipproof.defences.edge_blind import EdgeBlindness
from flipproof.errors import InputError
from flipproof.fields import from_plain
from flipproof.graphs import Graph
from flipproof.models.loading import LoadedModel, load_features
from flipproof.progress import note
from flipproof.report.wording import wording
from flipproof.studies.search_space import Space, space, spaces

__all__ = [
    "ChosenData",
    "chosen_data",
    "chosen_defence",
    "defend",
    "given_defence",
    "own_values",
    "required_defence",
    "unused",
]


@dataclass(frozen=True, eq=False)
class ChosenData:
    """The graphs that a command works on, by position in their data set."""

    source: DataSource
    dataset: Dataset
    graphs: Mapping[int, Graph]
    graphs_seed: int | None
    """The seed that drew them from a larger part; ``None`` for a whole part."""
    notes: tuple[str, ...] = ()
    """What a user should know about the choice, to be said once the work begins."""

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the whole data set."""
        return fingerprint(self.dataset)


def chosen_data(loaded: LoadedModel, options: ModelDataOptions) -> ChosenData:
    """The data of the options, else the model's own; their classes are the model's, by name."""
    source, data = model_data(
        loaded.metadata,
        data=options.data,
        root=options.root,
        download=options.download,
        data_seed=options.data_seed,
        split_seed=options.split_seed,
        symmetrise=options.symmetrise,
    )
    notes = []
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
        notes.append(f"{len(indices)} of {number} {of}graphs, drawn with every class in proportion (seed {seed})")
    return ChosenData(source, data, data.numbered(indices), seed, tuple(notes))


def given_defence(values: Mapping[str, Any], name: str | None, kind: str = "settings") -> Space | None:
    """The defence that was asked for by name, else the one that the given options belong to; ``None`` if none is spoken of.

    Options of another defence than the one asked for are refused.
    """
    owners = {
        option.name: defence
        for defence in reversed(spaces())
        for option in (*defence.settings, *getattr(defence, kind))
    }
    chosen = None if name is None else space(name)
    for value in values:
        owner = owners.get(value)
        if owner is None or (chosen is not None and value in _option_names(chosen)):
            continue
        if chosen is not None and chosen != owner:
            raise InputError(
                f"--{value.replace('_', '-')} belongs to {owner.name}; got it for {chosen.name} (leave one of them out)"
            )
        if any(option.name == value for option in owner.settings):
            chosen = owner
    return chosen


def _option_names(defence: Space) -> set[str]:
    return {option.name for option in (*defence.settings, *defence.training_options, *defence.asking)}


def unused(values: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """No values at all: a model that sees no edges has no use for those of other defences, which is said."""
    if values:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in values)
        note(f"the model sees no edges and needs no other defence: {names} not used", quiet=quiet)
    return {}


def own_values(defence: Space, values: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The given values of one kind of a defence's options; refuses values of another defence's."""
    known = _option_names(defence)
    for name in values:
        if name not in known:
            owner = next(other for other in spaces() if name in _option_names(other))
            raise InputError(
                f"--{name.replace('_', '-')} belongs to {owner.name}, and the defence here is {defence.name} (leave it out)"
            )
    return {option.name: values[option.name] for option in getattr(defence, kind) if option.name in values}


def chosen_defence(loaded: LoadedModel, values: Mapping[str, Any], name: str | None) -> Defence | None:
    """The defence: that of the options, else the one that the model was trained for; ``None`` if neither says.

    A model that sees no edges needs no other defence than that, whatever options say, unless one is asked for by name.
    """
    if getattr(loaded.model, "edge_blind", False) and name is None:
        return EdgeBlindness()
    trained = trained_defence(loaded.metadata)
    if trained is not None and wording(trained.name).baseline:
        trained = None  # no defence at all, which must be asked for by name
    chosen = given_defence(values, name)
    if chosen is None:
        return trained
    names = {option.name for option in chosen.settings}
    settings = own_values(chosen, {key: value for key, value in values.items() if key in names}, "settings")
    if not settings and trained is not None and trained.name == chosen.name:
        return trained
    return from_plain(chosen.kind, settings)


def required_defence(
    loaded: LoadedModel, values: Mapping[str, Any], name: str | None, *, quiet: bool
) -> tuple[Defence, dict[str, Any]]:
    """The defence, and what is asked of it; refuses a model for which nothing says a defence."""
    defence = chosen_defence(loaded, values, name)
    if defence is None:
        raise InputError(
            "the model was not trained for a defence, so one must be given (--keep 0.9, or --add and --remove, or --defence "
            f"with one of {', '.join(defence_names())})"
        )
    if defence.edge_blind and name is None:
        values = unused(values, quiet=quiet)
    return defence, own_values(Space(type(defence)), values, "asking")


def num_classes(loaded: LoadedModel, asked: int | None, data: Dataset) -> int:
    """The model's number of classes, which the data must fit."""
    own = getattr(loaded.model, "num_classes", None)
    number = asked if asked is not None else own if isinstance(own, int) else data.num_classes
    if loaded.saved is not None and number != own:
        raise InputError(f"--classes must be the model's own number of classes, {own}; got {number} (leave it out)")
    if number < data.num_classes:
        raise InputError(
            f"the model has {number} classes and the data {data.name} have {data.num_classes} (certify data with the model's "
            "classes, or give --classes)"
        )
    return int(number)


def defend(
    loaded: LoadedModel,
    defence: Defence,
    *,
    classes: int,
    features: str | None,
    trust_features: bool = False,
    memory: int = DEFAULT_MEMORY,
) -> DefendedClassifier:
    """The defended classifier."""
    hook = load_features(loaded.features(features))
    return DefendedClassifier(
        loaded.model, defence, num_classes=classes, features=hook, trust_features=trust_features, memory=memory
    )


def refuse_other_classes(loaded: LoadedModel, data: Dataset, option: str) -> None:
    """Refuse a model to compare with that numbers the classes otherwise than the data."""
    names = loaded.metadata.get("class_names")
    if (
        names is not None
        and by_class_names(data, loaded.metadata, f"the model of {option}").class_names != data.class_names
    ):
        raise InputError(
            f"the model of {option} must have the classes {', '.join(data.class_names)}, in this order; it has "
            f"{', '.join(names)} (train it on the same data)"
        )


def warn_of_training_graphs(loaded: LoadedModel, chosen: ChosenData, *, quiet: bool) -> None:
    """Say so if test graphs may have been training graphs: another split than the stored one can only be asked for."""
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
