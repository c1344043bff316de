"""The search space of experiments: what is tried of every defence, side by side; of one that is not named, its defaults."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from flipproof.defences import defence_class, defence_classes
from flipproof.defences.defence import Defence
from flipproof.errors import InputError
from flipproof.fields import Option, from_plain, options_of, to_plain
from flipproof.noise import EdgeNoise, feature_noise_from
from flipproof.noise.groups import EdgeGroups
from flipproof.report.wording import title, wording
from flipproof.studies.threat import Threat, feature_kind, few_changes

if TYPE_CHECKING:
    from flipproof.datasets import Dataset

Settings = dict[str, Any]

_KEEPS = (0.8, 0.9, 0.95, 0.98)
# edges added for each that is there, and the share removed. Where more than half of the edges are removed, a single added one is
# mostly removed too: few additions then suffice to hide it, and the graph is thinned rather than blurred
_PAIRS = ((0.3, 0.2), (0.05, 0.4), (0.01, 0.6), (0.01, 0.8))
_GROUPS = (3, 10)
_BUDGETS = (1, 3, 8)
# keep probabilities of edges, each with noises on labels or bits
_JOINT_KEEPS = (0.7, 0.8, 0.9)
_FEATURE_NOISES: dict[str | None, tuple[dict[str, float], ...]] = {
    "labels": ({"label_keep": 0.55}, {"label_keep": 0.75}),
    "bits": ({"bit_add": 0.01, "bit_remove": 0.6}, {"bit_add": 0.2, "bit_remove": 0.2}),
    None: (),
}


@dataclass(frozen=True, eq=False)
class Space:
    """A defence as experiments see it: what is tried of it, and how models are trained for it.

    ``proposed`` are settings worth trying on such graphs ``recipes`` other ways of training. ``effort`` is the
    rough cost of a trial: 0 for one answer per graph, 1 for a few, 2 for many, 3 for thousands; a search tries those up to 1 in
    any case and the others as time allows. The class travels to worker processes by reference, so that a defence from a user's
    own module is registered there too.
    """

    kind: type[Defence]
    proposed: Callable[[Dataset, Threat | None], list[Settings]] | None = None
    recipes: tuple[Settings, ...] = ()
    effort: int = 2
    efforts: tuple[tuple[str, Settings], ...] = (("", {}),)  # requests of which ``describe`` shows the reach, in words
    training_arguments: Callable[[Mapping[str, Any]], Settings] = lambda settings: {}  # of flipproof.train
    training_options: tuple[Option, ...] = ()  # what a user may give in addition
    trained_settings: tuple[str, ...] = ()  # those of them that are told with the settings of the defence
    network: str | None = None  # the built-in one that the defence needs; None where any model will do
    trains: bool = True  # a network, over epochs; otherwise fit_edge_blind fits a model
    edge_free_features: bool = False  # node features must not depend on edges

    def __reduce__(self) -> tuple[Any, ...]:
        return space_of, (self.kind,)

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def edge_blind(self) -> bool:
        return self.kind.edge_blind

    @property
    def baseline(self) -> bool:
        return wording(self.name).baseline

    @property
    def settings(self) -> tuple[Option, ...]:
        return options_of(self.kind)

    @property
    def asking(self) -> tuple[Option, ...]:
        return options_of(self.kind.request)

    def title(self, settings: Mapping[str, Any]) -> str:
        return title({"name": self.name, **settings})

    def checked(self, values: Mapping[str, Any]) -> Settings:
        """Settings in the form in which they are stored, with those that say how the model is trained."""
        trained = {name: values[name] for name in self.trained_settings if values.get(name)}
        return to_plain(from_plain(self.kind, values)) | trained

    def entry(self, values: Mapping[str, Any]) -> Settings:
        known = [*(option.name for option in self.settings), *self.trained_settings]
        for key in values:
            if key not in known:
                raise InputError(f"{key} is no setting of {self.name} ({hint(key, known)})")
        return self.checked(values)

    def candidates(self, graphs: Dataset, threat: Threat | None = None) -> list[Settings]:
        if self.baseline:
            return []
        return [self.checked({})] if self.proposed is None else self.proposed(graphs, threat)

    def request(self, values: Mapping[str, Any], *, graphs: int = 1) -> Any:
        """What every graph is asked: those of the values that the defence knows."""
        return from_plain(self.kind.request, {**values, "graphs": graphs})


def hint(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known)) or 'none'}"


def _noises(graphs: Dataset, threat: Threat | None) -> list[Settings]:
    """Symmetric noises, and noises that add edges in proportion to the density; against changed features, on these too."""
    smoothing = space("smoothing")
    if threat is not None and threat.changes:
        of_features = _FEATURE_NOISES[feature_kind(graphs)]
        return [smoothing.checked({"keep": keep, **noise}) for keep in _JOINT_KEEPS for noise in of_features]
    edges = sum(graph.max_removes for graph in graphs)
    density = edges / max(1, edges + sum(graph.max_adds for graph in graphs))
    pairs = [{"add": float(f"{times * density:.2g}"), "remove": remove} for times, remove in _PAIRS]
    noises = [smoothing.checked(values) for values in [*({"keep": keep} for keep in _KEEPS), *pairs]]
    # a pair can be one of the symmetric ones
    return list({smoothing.title(settings): settings for settings in noises}.values())


def _groups(graphs: Dataset, threat: Threat | None) -> list[Settings]:
    """Plain votes; against an attack twice as many groups as flips, and more. Few groups where prices must carry it."""
    if threat is not None and threat.changes:
        numbers = ((4 * threat.number + 1, 4 * threat.changes + 1), (max(1, 8 * threat.number), 8 * threat.changes))
        return [{"groups": groups, "feature_groups": of_features} for groups, of_features in numbers]
    plain = _GROUPS if threat is None else (2 * threat.number + 1, 4 * threat.number + 1)
    settings: list[Settings] = [{"groups": number} for number in plain if number > 1]
    return [*settings, *({"groups": number, "flips": 1} for number in (1, _GROUPS[0]))]


def _budgets(graphs: Dataset, threat: Threat | None) -> list[Settings]:
    """Training for the attack, and for larger ones, which leaves a margin; without node features also without votes."""
    if threat is not None and threat.changes and not few_changes(graphs, threat.changes):
        return []
    flips: Any = None if threat is None else threat.flips
    budgets: list[Any] = list(_BUDGETS)
    if isinstance(flips, tuple):
        adds, removes = flips
        budgets = [[adds, removes], [2 * adds, 2 * removes]] if adds + removes else [1]
    elif flips is not None:
        budgets = sorted({max(1, flips), flips + 1, 2 * flips + 1})
    settings: list[Settings] = [{"budget": budget} for budget in budgets]
    return settings if graphs.num_node_features else [*settings, *({**one, "counts_only": True} for one in settings)]


def _for_smoothing(settings: Mapping[str, Any]) -> Settings:
    noise = {key: value for key in ("keep", "add", "remove") if (value := settings.get(key)) is not None}
    of_features = feature_noise_from(settings)
    return {"noise": EdgeNoise(**noise), **({} if of_features is None else {"feature_noise": of_features})}


def _for_voting(settings: Mapping[str, Any]) -> Settings:
    groups = EdgeGroups(settings["groups"], settings.get("key", 0))
    flips = {"flips": settings["flips"]} if settings.get("flips") else {}
    crossed = {"feature_groups": settings["feature_groups"]} if settings.get("feature_groups") else {}
    return {"groups": groups, "renumber": groups.count > 1, **flips, **crossed}


def _for_local(settings: Mapping[str, Any]) -> Settings:
    # None: as fp.train finds best with a budget
    recipe = dict.fromkeys(("learning_rate", "batch_size", "weight_decay", "average"))
    counts = {"counts_only": True} if settings.get("counts_only") else {}
    return {"budget": settings.get("budget", 3), **counts, **recipe}


_TABLE: dict[str, Settings] = {
    "smoothing": {
        "proposed": _noises,
        "recipes": ({"objective": "majority", "copies": 16}, {"objective": "attacked", "copies": 4}),
        "effort": 3,
        # of unanimous votes the method votes is as good as influence
        "efforts": tuple(
            (f"{count:,} samples", {"samples": count, "method": "votes"}) for count in (10**3, 10**4, 10**5)
        ),
        "training_arguments": _for_smoothing,
    },
    "node-smoothing": {"effort": 3, "training_arguments": _for_smoothing, "network": "node-gcn"},
    "voting": {
        "proposed": _groups,
        "training_arguments": _for_voting,
        "training_options": (
            Option("renumber", bool, "Hash the nodes under new random numbers in every training step.", False),
            Option(
                "flips",
                int,
                "Number of flips inside a sub-graph to train against; raises the price of votes.",
                0,
                least=0,
            ),
        ),
        "trained_settings": ("flips",),
    },
    "local": {
        "proposed": _budgets,
        "effort": 1,
        "efforts": (),  # the reach of a network that sees nothing says nothing
        "training_arguments": _for_local,
        "training_options": (
            Option(
                "counts_only", bool, "Let no node vote: learn from numbers of nodes and edges alone, for local.", False
            ),
        ),
        "trained_settings": ("counts_only",),
        "network": "local",
        "edge_free_features": True,
    },
    "edge-blind": {"effort": 0, "trains": False, "edge_free_features": True},
    "none": {"effort": 0},
}


@cache
def space_of(kind: type[Defence]) -> Space:
    """A defence as experiments see it; one that extends another shares its row of the table."""
    names = [base.__dict__["name"] for base in kind.__mro__ if "name" in base.__dict__]
    return Space(kind, **next((_TABLE[name] for name in names if name in _TABLE), {}))


def spaces(task: str = "graphs") -> list[Space]:
    return [space_of(kind) for kind in defence_classes(task)]


def space(name: str) -> Space:
    return space_of(defence_class(name))


def undefended() -> Space:
    return space("none")


def default_features(defence: str, graphs: Dataset) -> str:
    """Node features to train with where none are asked for."""
    if graphs.num_node_features:
        return "own"
    return "constant" if space(defence).edge_free_features else "degree"


def fit_edge_blind(
    graphs: Dataset, *, features: Any, validation: Dataset | None = None, seed: int = 0
) -> tuple[Any, Any]:
    """The edge-blind line, and what its fit says; ``validation`` graphs choose among settings, otherwise cross-validation."""
    from flipproof.models.node_statistics import NodeStatistics

    model = NodeStatistics(graphs.num_classes)
    return model, model.fit(graphs, features=features, validation=validation, seed=seed)
