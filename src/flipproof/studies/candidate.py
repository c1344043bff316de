"""A defence with its settings, as an experiment compares them. Studies know defences through this module alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.metrics import withstands
from flipproof.defences import defence_names
from flipproof.defences.asking import ask_all
from flipproof.defences.defence import DefendedClassifier
from flipproof.errors import InputError
from flipproof.fields import from_plain
from flipproof.graphs import Graph
from flipproof.studies.search_space import Space, default_features, fit_edge_blind, hint, space, spaces

if TYPE_CHECKING:
    from flipproof.datasets import Dataset


@dataclass(frozen=True)
class Threat:
    """The attack to withstand: any flips within a radius, or additions together with removals."""

    radius: int | None = None
    adds: int | None = None
    removes: int | None = None

    def __post_init__(self) -> None:
        if (self.adds is not None or self.removes is not None) == (self.radius is not None):
            raise InputError(
                "say which attack is to be withstood: either --radius (any flips), or --adds and --removes (for instance "
                "--radius 2)"
            )

    @property
    def flips(self) -> int | tuple[int, int]:
        """The number of flips of any kind, or (additions, removals)."""
        return (self.adds or 0, self.removes or 0) if self.radius is None else self.radius

    @property
    def words(self) -> str:
        return f"{self} withstood"

    def __str__(self) -> str:
        both = [(self.adds, "addition"), (self.removes, "removal")]
        named = both if self.radius is None else [(self.radius, "flip")]
        return " and ".join(f"{number or 0} {word}{'s' * (number != 1)}" for number, word in named)

    def withstood(self, certificate: Certificate, graph: Graph) -> bool:
        """Whether a certificate covers the attack."""
        if self.radius is not None:
            return certificate.radius >= self.radius
        return withstands(certificate, graph, adds=self.adds or 0, removes=self.removes or 0)


@dataclass(frozen=True, eq=False)
class Learned:
    """A trained or fitted model, the hook of its node features, how it was trained, and its accuracy on training graphs."""

    model: Any
    features: Any
    settings: dict[str, Any]
    accuracy: float
    in_features: int = 0
    num_classes: int | None = None  # by default those that the model says it has


@dataclass(frozen=True, eq=False)
class Certified:
    """Certificates of graphs, by name: "" for the certificate asked for, otherwise another reading of the same evidence.

    ``calls`` are model calls per graph, ``seconds`` computing time of asking and of reading, for all graphs together.
    """

    certificates: Mapping[str, list[Certificate]]
    calls: float
    seconds: Mapping[str, float]


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
        return (self.network or self.defence.network or "gin") if self.defence.trains else self.defence.name

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

    def known(self, sampling: Mapping[str, Any]) -> dict[str, Any]:
        """Of what all candidates are certified with, what this one's certificates take."""
        return {option.name: sampling[option.name] for option in self.defence.asking if option.name in sampling}

    def question(self, sampling: Mapping[str, Any], *, graphs: int = 1) -> Any:
        """What every graph is asked: the values that are known, and the command line's defaults for the others."""
        return self.defence.request(self.known(sampling), graphs=graphs)

    def features(self, name: str | None, graphs: Dataset) -> Any:
        """The hook of the named node features; of the default ones, if none are named or the defence rules these out."""
        from flipproof.models.loading import load_features

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
        network: Mapping[str, Any] | None = None,
        factory: Callable[..., Any] | None = None,
        **training: Any,
    ) -> Learned:
        """What it learns from labelled graphs: fitted where its defence says how, otherwise a trained network.

        The network is made by ``factory``, where there is one, otherwise as ``network`` says. ``training`` are arguments of
        :func:`flipproof.train`; those that the defence needs take precedence.
        """
        from flipproof import models
        from flipproof.training import train_for

        if not self.defence.trains:
            model, fit = fit_edge_blind(graphs, features=features, validation=None, seed=seed)
            return Learned(model, features, {"seed": seed, "chosen": fit.kind}, fit.accuracy)
        # a constant says nothing beside the number of nodes, which a network of a defence's own knows
        constant = self.defence.network is not None and features.spec == "constant"
        width = 0 if constant else int(features.of(graphs[0]).shape[1])
        sizes = {"in_features": width, "num_classes": graphs.num_classes}
        if factory is None:
            model = models.build({"name": self.model, **sizes, **(network or {})}, seed=seed)
        else:
            model = models.from_factory(factory, **sizes, seed=seed)
        result = train_for(model, graphs, **{**training, **self.training, "features": features, "seed": seed})
        return Learned(model, features, result.settings, result.final.accuracy, width, graphs.num_classes)

    def defended(self, model: Any, features: Any, **wrapped: Any) -> DefendedClassifier:
        return DefendedClassifier(model, from_plain(self.defence.kind, self.settings), features=features, **wrapped)

    def certify(
        self, learned: Learned, graphs: Sequence[Graph], sampling: Mapping[str, Any], readings: Sequence[str] = ()
    ) -> Certified:
        """Certificates of graphs; those of other ``readings`` too. Node features must have been judged before."""
        classes = learned.num_classes
        defence = self.defended(learned.model, learned.features, num_classes=classes, trust_features=True)
        question = self.question(sampling, graphs=len(graphs))
        certificates: dict[str, dict[int, Certificate]] = {name: {} for name in ("", *readings)}
        seconds, calls, started = {"ask": 0.0, "read": 0.0}, [], time.process_time()
        defence.check(graphs)
        for index, evidence, _ in ask_all(defence, question, dict(enumerate(graphs)), read=False):
            answered = time.process_time()
            own = question.read(evidence)
            others = question.readings(evidence) if readings else {}
            for name, by_graph in certificates.items():
                by_graph[index] = others.get(name, own)
            calls.append(evidence.calls)
            seconds["ask"] += answered - started
            started = time.process_time()
            seconds["read"] += started - answered
        ordered = {name: [by_graph[index] for index in range(len(graphs))] for name, by_graph in certificates.items()}
        return Certified(ordered, float(np.mean(calls)), seconds)

    def may_withstand(self, threat: Threat, graphs: Dataset, sampling: Mapping[str, Any]) -> bool:
        """Whether a model that never changes its answer would be certified, on a small, usual or large graph."""
        ordered = sorted(graphs, key=lambda graph: graph.num_slots)
        question = self.question(sampling, graphs=len(graphs))
        for graph in dict.fromkeys((ordered[len(ordered) // 2], ordered[0], ordered[-1])):
            best = from_plain(self.defence.kind, self.settings).best(graph, question, graphs.num_classes)
            if best is None or threat.withstood(best, graph):
                return True
        return False


def compared_defences() -> list[Space]:
    """All registered defences that are more than something to compare with."""
    return [defence for defence in spaces() if not defence.baseline]


def baselines() -> list[Candidate]:
    """What every candidate is compared with: ignoring edges, and no defence."""
    return [Candidate(kind) for kind in spaces() if kind.baseline]


def on_networks(candidates: Sequence[Candidate], networks: Sequence[str]) -> list[Candidate]:
    """The candidates, those that take any network with each of these, if there are any; cheap ones first."""
    named = [
        replace(one, network=network) if network else one
        for one in candidates
        for network in (networks if networks and one.defence.network is None else ("",))
    ]
    return sorted(named, key=lambda candidate: candidate.defence.effort)


def check_networks(names: Sequence[str]) -> None:
    """Refuse names that are no network to be trained for a defence; the edge-blind line is there anyway."""
    from flipproof import models

    known = [name for name in models.NAMES if name != models.EdgeBlind.name]
    for name in names:
        if name not in known:
            raise InputError(f"--model must be one of {', '.join(known)}; got {name!r} (give it once per network)")


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
            raise InputError(f"asked.{key} is nothing that {who} takes ({hint(key, known)})")
    return sampling


def named_candidates(texts: Sequence[str]) -> tuple[Candidate, ...]:
    """The candidates that a user names: a defence, then its settings.

    >>> [candidate.title for candidate in named_candidates(["smoothing keep=0.9", "smoothing add=0.01 remove=0.3"])]
    ['keep 0.9', 'add 0.01 remove 0.3']
    """
    return tuple({candidate.title: candidate for candidate in map(_from_text, texts)}.values())


_FLAGS = {"true": True, "false": False}


def _from_text(text: str) -> Candidate:
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
