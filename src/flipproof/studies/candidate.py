"""A defence with its settings, as studies compare them. Studies know the protocol of defences and no single one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from flipproof.errors import InputError
from flipproof.studies.search_space import Space, space, spaces
from flipproof.training.for_defences import fit_edge_blind

if TYPE_CHECKING:
    from flipproof.datasets import Dataset

__all__ = [
    "Candidate",
    "Learned",
    "compared_defences",
    "given_candidates",
    "learned",
    "trainable_networks",
]


@dataclass(frozen=True)
class Candidate:
    """A defence and its settings.

    Attributes:
        defence: As experiments see it.
        settings: Of the defence.
        network: Name of another network than the defence's own.
        recipe: Another way of training, as arguments of :func:`flipproof.train`.
    """

    defence: Space
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    network: str | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def title(self) -> str:
        """For tables and legends."""
        more = [value if isinstance(value, str) else f"{key} {value}" for key, value in self.recipe.items()]
        return " ".join([*([self.network] if self.network else []), self.defence.title(self.settings), *more])

    @property
    def model(self) -> str:
        """The name of its network, or of what is fitted instead."""
        if not self.defence.trains:
            return self.defence.name
        return self.network or self.defence.network or "gin"

    def variants(self) -> list[Candidate]:
        """The same with other ways of training."""
        return [replace(self, recipe=recipe) for recipe in self.defence.recipes()]

    @property
    def training(self) -> dict[str, Any]:
        """Arguments of :func:`flipproof.train`. Without a defence all copies of a graph are the same, so one is enough."""
        alone = {"copies": 1, "consistency": 0.0} if self.defence.baseline else {}
        return {**alone, **self.defence.training(self.settings), **self.recipe}

    @property
    def arguments(self) -> dict[str, Any]:
        """The options of ``flipproof train`` that ask for it, by name; numbers as short as they can be."""
        kind, settings = self.defence, dict(self.settings)
        short = {key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in settings.items()}
        given = short if kind.checked(short) == settings else settings
        typed = {"defence": kind.name, **{o.name: given[o.name] for o in kind.settings if o.name in given}}
        training = kind.training(settings)
        return (
            typed
            | {
                option.name: training[option.name]
                for option in kind.training_options
                if training.get(option.name, option.default) != option.default
            }
            | ({"model": self.network} if self.network else {})
            | dict(self.recipe)
        )

    def known(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Of what is asked of all candidates, what this one's question takes."""
        return {option.name: asked[option.name] for option in self.defence.asking if option.name in asked}

    def question(self, asked: Mapping[str, Any], *, graphs: int = 1) -> Any:
        """What every graph is asked: the values that are known, and the command line's defaults for the others."""
        return self.defence.request(self.known(asked), graphs=graphs)


@dataclass(frozen=True, eq=False)
class Learned:
    """A model for a candidate.

    Attributes:
        model: Trained or fitted.
        features: The hook of its node features.
        settings: Of the training, as plain JSON.
        accuracy: Share of training graphs that are right.
    """

    model: Any
    features: Any
    settings: dict[str, Any]
    accuracy: float


def learned(
    candidate: Candidate,
    graphs: Dataset,
    *,
    features: Any,
    seed: int,
    network: Mapping[str, Any] | None = None,
    validation: Dataset | None = None,
    **training: Any,
) -> Learned:
    """The model that a candidate learns from graphs: fitted where its defence says how, otherwise a trained network.

    Args:
        candidate: The defence and its settings.
        graphs: Labelled graphs.
        features: Hook of the node features.
        seed: Of everything random.
        network: Name and arguments of another network than the defence's own.
        validation: Graphs that choose the epoch, or among fitted models.
        **training: Arguments of :func:`flipproof.train`; those that the defence needs take precedence.
    """
    from flipproof import models
    from flipproof.training import train_for

    kind = candidate.defence
    if not kind.trains:
        model, fit = fit_edge_blind(graphs, features=features, validation=validation, seed=seed)
        return Learned(model, features, {"seed": seed, "chosen": fit.kind}, fit.accuracy)
    config = kind.network_config(features.spec, int(features.of(graphs[0]).shape[1]), graphs.num_classes)
    chosen: dict[str, Any] = {"name": candidate.network} if candidate.network else {}
    model = models.build({**config, **chosen, **(network or {})}, seed=seed)
    arguments = {**training, **candidate.training, "features": features, "seed": seed, "validation": validation}
    result = train_for(model, graphs, **arguments)
    return Learned(model, features, result.settings, result.final.accuracy)


def compared_defences() -> list[Space]:
    """All registered defences that are more than something to compare with."""
    return [defence for defence in spaces() if not defence.baseline]


def trainable_networks() -> list[str]:
    """Names of the networks that are trained for a defence; the edge-blind line is there anyway."""
    from flipproof import models

    return [name for name in models.NAMES if name != models.EdgeBlind.name]


def given_candidates(values: Mapping[str, Sequence[Any]], texts: Sequence[str] = ()) -> tuple[Candidate, ...]:
    """The candidates that a user names.

    Args:
        values: For each trial option that defences declare, its values.
        texts: Candidates as text: the name of a defence, then its settings.

    >>> [candidate.title for candidate in given_candidates({"keep": [0.9]}, ["smoothing add=0.01 remove=0.3"])]
    ['keep 0.9', 'add 0.01 remove 0.3']
    """
    found = [
        Candidate(defence, defence.trial(option.name, value))
        for defence in compared_defences()
        for option in defence.trial_options
        for value in values.get(option.name) or ()
    ]
    return tuple({candidate.title: candidate for candidate in [*found, *map(_from_text, texts)]}.values())


def _value(kind: type, text: str) -> Any:
    return {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)


def _from_text(text: str) -> Candidate:
    name, *pairs = text.split() or [""]
    defence = space(name)
    if defence.baseline:
        raise InputError(f"--candidate: {name} is something to compare with, and always there (leave it out)")
    kinds = {option.name: option.kind for option in (*defence.settings, *defence.training_options)}
    try:
        settings = {key: _value(kinds[key], value) for key, value in (pair.split("=") for pair in pairs)}
    except (KeyError, ValueError) as error:
        known = " ".join(f"{option.name}=VALUE" for option in defence.settings)
        raise InputError(f"--candidate must read {f'{name} {known}'.strip()}; got {text!r} (quote it)") from error
    return Candidate(defence, defence.entry(settings))
