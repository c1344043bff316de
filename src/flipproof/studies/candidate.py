"""A defence with its settings, as studies compare them. Studies know the protocol of defences and no single one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flipproof.defences import defence_class, defence_classes
from flipproof.defences.defence import Defence
from flipproof.errors import InputError

__all__ = ["Candidate", "baselines", "compared_defences", "default_candidates", "given_candidates"]


@dataclass(frozen=True)
class Candidate:
    """A defence and its settings.

    The class travels to worker processes by reference, so that a defence from a user's own module is registered there too.
    """

    defence: type[Defence]
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def title(self) -> str:
        """For tables and legends."""
        return self.defence.title(self.settings)

    @property
    def training(self) -> dict[str, Any]:
        """Arguments of :func:`flipproof.train`. Without a defence all copies of a graph are the same, so one is enough."""
        alone = {"copies": 1, "consistency": 0.0} if self.defence.baseline else {}
        return {**alone, **self.defence.training(self.settings)}

    @property
    def arguments(self) -> dict[str, Any]:
        """The options of ``flipproof train`` that ask for it, by name; numbers as short as they can be."""
        kind, settings = self.defence, dict(self.settings)
        short = {key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in settings.items()}
        given = short if kind.checked(short) == settings else settings
        typed = {"defence": kind.name, **{o.name: given[o.name] for o in kind.settings if o.name in given}}
        training = kind.training(settings)
        return typed | {
            option.name: training[option.name]
            for option in kind.training_options
            if training.get(option.name, option.default) != option.default
        }

    def known(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Of what is asked of all candidates, what this one's question takes."""
        return {option.name: asked[option.name] for option in self.defence.asking if option.name in asked}

    def question(self, asked: Mapping[str, Any], *, graphs: int = 1) -> Any:
        """What every graph is asked: the values that are known, and the command line's defaults for the others."""
        defaults = {option.name: option.default for option in self.defence.asking if option.default is not None}
        return self.defence.question_type.of(graphs=graphs, **{**defaults, **self.known(asked)})


def compared_defences() -> list[type[Defence]]:
    """All registered defences that are more than something to compare with."""
    return [defence for defence in defence_classes() if not defence.baseline]


def baselines() -> list[Candidate]:
    """The lines that every defence is held against."""
    return [Candidate(defence) for defence in defence_classes() if defence.baseline]


def default_candidates(graphs: Any) -> tuple[Candidate, ...]:
    """What every defence finds worth trying on such graphs.

    >>> from flipproof.datasets import topologies
    >>> [candidate.title for candidate in default_candidates(topologies(16))][3:6]
    ['keep 0.98', 'add 0.083 remove 0.2', 'add 0.014 remove 0.4']
    """
    return tuple(Candidate(defence, found) for defence in compared_defences() for found in defence.candidates(graphs))


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
        for option in (defence.settings if defence.trial_options is None else defence.trial_options)
        for value in values.get(option.name) or ()
    ]
    return tuple({candidate.title: candidate for candidate in [*found, *map(_from_text, texts)]}.values())


def _from_text(text: str) -> Candidate:
    name, *pairs = text.split() or [""]
    defence = defence_class(name)
    if defence.baseline:
        raise InputError(f"--candidate: {name} is something to compare with, and always there (leave it out)")
    kinds = {option.name: option.kind for option in defence.settings}
    try:
        settings = {key: kinds[key](value) for key, value in (pair.split("=") for pair in pairs)}
    except (KeyError, ValueError) as error:
        known = " ".join(f"{key}=VALUE" for key in kinds)
        raise InputError(f"--candidate must read {f'{name} {known}'.strip()}; got {text!r} (quote it)") from error
    return Candidate(defence, defence.entry(settings))
