"""A defence with its settings, as an experiment compares them. Studies know defences through this module alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from flipproof.defences import defence_names
from flipproof.defences.defence import DefendedClassifier
from flipproof.errors import InputError
from flipproof.fields import from_plain
from flipproof.studies.search_space import Space, default_features, fit_edge_blind, hint, space, spaces
from flipproof.studies.threat import Threat

if TYPE_CHECKING:
    from flipproof.datasets import Dataset

_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, eq=False)
class Learned:
    """A trained or fitted model, the hook of its node features, how it was trained, and what is told of it."""

    model: Any
    features: Any
    settings: dict[str, Any]
    told: dict[str, Any]
    in_features: int = 0
    num_classes: int | None = None  # by default those that the model says it has


@dataclass(frozen=True)
class Candidate:
    """A defence with its settings, perhaps another network than its own, and another way of training it."""

    defence: Space
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    network: str | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def title(self) -> str:
        more = [value if isinstance(value, str) else f"{key} {value}" for key, value in self.recipe.items()]
        return " ".join([*([self.network] if self.network else []), self.defence.title(self.settings), *more])

    @property
    def model(self) -> str:
        """The name of its network, or of what is fitted instead."""
        return self.network or self.defence.network or ("gin" if self.defence.trains else self.defence.name)

    @property
    def fitted(self) -> bool:
        """Whether it is fitted at once, not trained over epochs."""
        return not self.defence.trains and self.model == self.defence.name

    def variants(self) -> list[Candidate]:
        return [replace(self, recipe=dict(recipe)) for recipe in self.defence.recipes]

    @property
    def training(self) -> dict[str, Any]:
        """Arguments of :func:`flipproof.train`. Without a defence all copies of a graph are the same, so one is enough."""
        alone = {"copies": 1} if self.defence.baseline else {}
        return {**alone, **self.defence.training_arguments(self.settings), **self.recipe}

    @property
    def arguments(self) -> dict[str, Any]:
        """The options of ``flipproof train`` that ask for it, by name; numbers as short as they can be."""
        kind, settings = self.defence, dict(self.settings)
        short = {key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in settings.items()}
        stated = short if kind.checked(short) == settings else settings
        training = kind.training_arguments(settings)
        options = {one.name: stated[one.name] for one in kind.settings if one.name in stated}
        for one in kind.training_options:
            if training.get(one.name, one.default) != one.default:
                options[one.name] = training[one.name]
        return {"defence": kind.name, **options, **({"model": self.network} if self.network else {}), **self.recipe}

    def question(self, sampling: Mapping[str, Any], *, graphs: int = 1) -> Any:
        """What every graph is asked: the values that are known, and the command line's defaults for the others."""
        return self.defence.request(sampling, graphs=graphs)

    def features(self, name: str | None, graphs: Dataset, threat: Threat | None = None) -> Any:
        """The hook of the named node features; of the default ones, if none are named or the defence rules these out.

        The line to beat sees nothing that the attacker can change.
        """
        from flipproof.models.loading import load_features

        if threat is not None and threat.changes and self.defence.edge_blind:
            return load_features("constant")
        hook = None if name is None else load_features(name)
        if hook is None or (self.defence.edge_free_features and hook.reads_edges):
            return load_features(default_features(self.defence.name, graphs))
        return hook

    def learn(
        self,
        graphs: Dataset,
        *,
        features: Any,
        seed: int,
        network: Mapping[str, Any],
        factory: Callable[..., Any] | None,
        **training: Any,
    ) -> Learned:
        """What it learns from labelled graphs: fitted where its defence says how, otherwise a trained network.

        The network is made by ``factory``, where there is one, otherwise as ``network`` says. ``training`` are arguments of
        :func:`flipproof.train`; those that the defence needs take precedence.
        """
        from flipproof.training import train_for

        if self.fitted:
            fitted, fit = fit_edge_blind(graphs, features=features, validation=training.get("validation"), seed=seed)
            told = {"chosen": fit.kind, "compared": dict(fit.compared)}
            told |= {"train_accuracy": fit.accuracy, "validation_accuracy": fit.validation_accuracy}
            return Learned(fitted, features, {"seed": seed, "chosen": fit.kind}, told)
        model, width = self.build(graphs, features=features, seed=seed, network=network, factory=factory)
        result = train_for(model, graphs, **{**training, **self.training, "features": features, "seed": seed})
        return Learned(model, features, result.settings, training_told(result), width, graphs.num_classes)

    def build(
        self,
        graphs: Dataset,
        *,
        features: Any,
        seed: int,
        network: Mapping[str, Any],
        factory: Callable[..., Any] | None = None,
    ) -> tuple[Any, int]:
        """A fresh network for these graphs, and the number of node features that it reads."""
        from flipproof import models

        # a constant says nothing beside the number of nodes, which a network made for a defence knows
        constant = features.spec == "constant" and self.model in {kind.network for kind in (*spaces(), self.defence)}
        width = 0 if constant else int(features.of(graphs[0]).shape[1])
        sizes = {"in_features": width, "num_classes": graphs.num_classes}
        if factory is not None:
            return models.from_factory(factory, **sizes, seed=seed), width
        return models.build({"name": self.model, **sizes, **network}, seed=seed), width

    def defended(self, model: Any, features: Any, **wrapped: Any) -> DefendedClassifier:
        return DefendedClassifier(model, from_plain(self.defence.kind, self.settings), features=features, **wrapped)

    def may_withstand(self, threat: Threat, graphs: Dataset, sampling: Mapping[str, Any]) -> bool:
        """Whether a model that never changes its answer would be certified, on a small, usual or large graph."""
        ordered = sorted(graphs, key=lambda graph: graph.num_slots)
        question, defence = self.question(sampling, graphs=len(graphs)), from_plain(self.defence.kind, self.settings)
        shown = dict.fromkeys((ordered[len(ordered) // 2], ordered[0], ordered[-1]))
        return any(threat.reached(defence, question, graph, graphs.num_classes) for graph in shown)


def training_told(result: Any) -> dict[str, Any]:
    """What is told of a training."""
    accuracy = {"train_accuracy": result.final.accuracy, "validation_accuracy": result.final.validation_accuracy}
    return {"epochs": result.epochs, "best_epoch": result.best_epoch, **accuracy}


def compared_defences() -> list[Space]:
    """All registered defences that are more than something to compare with."""
    return [defence for defence in spaces() if not defence.baseline]


def baselines() -> list[Candidate]:
    return [Candidate(kind) for kind in spaces() if kind.baseline]


def configured_candidates(name: str, tables: Sequence[Mapping[str, Any]]) -> tuple[Candidate, ...]:
    """A defence with each of the settings of a config file."""
    if name not in defence_names():
        raise InputError(f"defence must be one of {', '.join(defence_names())}; got {name!r}")
    defence = space(name)
    try:
        return tuple(Candidate(defence, defence.entry(table)) for table in tables or [{}])
    except InputError as error:
        raise InputError(f"settings: {error}") from error


def check_sampling(sampling: dict[str, Any], candidate: Candidate | None = None) -> dict[str, Any]:
    """The values, unless certificates of the candidate, or of every defence, take no such thing."""
    kinds = spaces() if candidate is None else [candidate.defence]
    known = {option.name for kind in kinds for option in kind.asking}
    for key in sampling:
        if key not in known:
            who = "a defence" if candidate is None else candidate.defence.name
            raise InputError(f"certify.{key} is nothing that {who} takes ({hint(key, known)})")
    return sampling


def named_candidate(text: str) -> Candidate:
    """The candidate that a user names: a defence, then its settings.

    >>> named_candidate("smoothing add=0.01 remove=0.3").title
    'add 0.01 remove 0.3'
    """
    name, *pairs = text.split() or [""]
    defence = space(name)
    if defence.baseline:
        raise InputError(f"--candidate: {name} is something to compare with, and always there (leave it out)")
    known = (*defence.settings, *defence.training_options)
    read = {one.name: _FLAGS.__getitem__ if one.kind is bool else one.kind for one in known}
    try:
        settings = {key: read[key](value) for key, value in (pair.split("=") for pair in pairs)}
    except (KeyError, ValueError) as error:
        form = " ".join([name, *(f"{option.name}=VALUE" for option in defence.settings)])
        raise InputError(f"--candidate must read {form}; got {text!r} (quote it)") from error
    return Candidate(defence, defence.entry(settings))
