"""The search space of experiments: what is tried of every defence, side by side; of one that is not named, its defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flipproof.defences import defence_class, defence_classes
from flipproof.defences.defence import Defence, DefendedClassifier
from flipproof.errors import InputError
from flipproof.fields import Option, from_plain, options_of, to_plain
from flipproof.noise import EdgeNoise
from flipproof.noise.groups import EdgeGroups
from flipproof.report.wording import title, wording

if TYPE_CHECKING:
    from flipproof.datasets import Dataset

Settings = dict[str, Any]
Attack = int | tuple[int, int]

_KEEPS = (0.8, 0.9, 0.95, 0.98)
# edges added for each that is there, and the share removed. Where more than half of the edges are removed, a single added one is
# mostly removed too: few additions then suffice to hide it, and the graph is thinned rather than blurred
_PAIRS = ((0.3, 0.2), (0.05, 0.4), (0.01, 0.6), (0.01, 0.8))
_GROUPS = (3, 10)
_BUDGETS = (1, 3, 8)


@dataclass(frozen=True)
class Tried:
    """What is tried of a defence.

    Attributes:
        candidates: Settings worth trying on such graphs.
        against: Settings worth trying against an attack (flips of any kind, or additions and removals); by default the same.
        recipes: Other ways of training worth trying, as arguments of :func:`flipproof.train`.
        effort: Rough cost of a trial: 0 for one answer per graph, 1 for a few, 2 for many, 3 for thousands. A search tries those
            up to 1 in any case and the others as time allows, in this order.
        options: Options of ``tune``, given any number of times: every value is a candidate. By default the settings.
        efforts: Requests of which ``describe`` shows the reach, in words.
    """

    candidates: Callable[[Dataset], list[Settings]] | None = None
    against: Callable[[Dataset, Attack], list[Settings]] | None = None
    recipes: tuple[Settings, ...] = ()
    effort: int = 2
    options: tuple[Option, ...] | None = None
    efforts: tuple[tuple[str, Settings], ...] = (("", {}),)


def _noises(graphs: Dataset) -> list[Settings]:
    """Symmetric noises, and noises that add edges in proportion to the density."""
    edges = sum(graph.max_removes for graph in graphs)
    density = edges / max(1, edges + sum(graph.max_adds for graph in graphs))
    pairs = [{"add": float(f"{times * density:.2g}"), "remove": remove} for times, remove in _PAIRS]
    space = Space(defence_class("smoothing"))
    noises = [space.checked(values) for values in [*({"keep": keep} for keep in _KEEPS), *pairs]]
    # a pair can be one of the symmetric ones
    return list({space.title(settings): settings for settings in noises}.values())


def _groups(graphs: Dataset, attack: Attack | None = None) -> list[Settings]:
    """Plain votes; against an attack twice as many groups as flips, and more. Few groups where prices must carry it."""
    numbers = _GROUPS
    if attack is not None:
        flips = sum(attack) if isinstance(attack, tuple) else attack
        numbers = (2 * flips + 1, 4 * flips + 1)
    plain: list[Settings] = [{"groups": number} for number in numbers if number > 1]
    return [*plain, *({"groups": number, "flips": 1} for number in (1, _GROUPS[0]))]


def _budgets(graphs: Dataset, attack: Attack | None = None) -> list[Settings]:
    """Training for the attack itself, and for somewhat larger ones, which leaves a margin; also without votes of the nodes
    where there are no node features."""
    budgets: list[Any] = list(_BUDGETS)
    if isinstance(attack, tuple):
        adds, removes = attack
        budgets = [[adds, removes], [2 * adds, 2 * removes]] if adds + removes else [1]
    elif attack is not None:
        budgets = sorted({max(1, attack), attack + 1, 2 * attack + 1})
    settings: list[Settings] = [{"budget": budget} for budget in budgets]
    return settings if graphs.num_node_features else [*settings, *({**one, "counts_only": True} for one in settings)]


_TABLE = {
    "smoothing": Tried(
        _noises,
        recipes=({"objective": "majority", "copies": 16}, {"objective": "attacked", "copies": 4}),
        effort=3,
        options=(
            Option("keep", float, "Symmetric noise to try; give it several times."),
            Option("noise", str, "Noise ADD,REMOVE to try; give it several times."),
        ),
        # of unanimous votes the method votes is as good as influence
        efforts=tuple((f"{count:,} samples", {"samples": count, "method": "votes"}) for count in (10**3, 10**4, 10**5)),
    ),
    "voting": Tried(
        _groups,
        _groups,
        options=(Option("groups", int, "Number of sub-graphs to try; give it several times.", least=1),),
    ),
    # the reach of a network that sees nothing says nothing
    "local": Tried(_budgets, _budgets, effort=1, efforts=()),
    "edge-blind": Tried(effort=0),
    "none": Tried(effort=0),
}


def _for_smoothing(settings: Mapping[str, Any]) -> Settings:
    noise = {key: value for key in ("keep", "add", "remove") if (value := settings.get(key)) is not None}
    return {"noise": EdgeNoise(**noise)}


def _for_voting(settings: Mapping[str, Any]) -> Settings:
    groups = EdgeGroups(settings["groups"], settings.get("key", 0))
    flips = {"flips": settings["flips"]} if settings.get("flips") else {}
    return {"groups": groups, "renumber": groups.count > 1, **flips}


def _for_local(settings: Mapping[str, Any]) -> Settings:
    # None: as fp.train finds best with a budget
    recipe = dict.fromkeys(("learning_rate", "batch_size", "weight_decay", "average"))
    counts = {"counts_only": True} if settings.get("counts_only") else {}
    return {"budget": settings.get("budget", 3), **counts, **recipe}


@dataclass(frozen=True)
class Training:
    """How a model is trained for a defence.

    Attributes:
        arguments: Arguments of :func:`flipproof.train`, from the settings of the defence.
        options: What a user may give in addition.
        settings: Those of the options that are told with the settings of the defence: they say how its model was trained.
        network: The built-in network that the defence needs, by name; ``None`` where any model will do.
        fitted: Whether :func:`fit_edge_blind` fits a model, instead of a network that is trained over epochs.
        edge_free_features: Whether node features must not depend on edges.
    """

    arguments: Callable[[Mapping[str, Any]], Settings] = lambda settings: {}
    options: tuple[Option, ...] = ()
    settings: tuple[str, ...] = ()
    network: str | None = None
    fitted: bool = False
    edge_free_features: bool = False


_TRAININGS = {
    "smoothing": Training(_for_smoothing),
    "voting": Training(
        _for_voting,
        (
            Option("renumber", bool, "Hash the nodes under new random numbers in every training step.", False),
            Option(
                "flips",
                int,
                "Number of flips inside a sub-graph to train against; raises the price of votes.",
                0,
                least=0,
            ),
        ),
        settings=("flips",),
    ),
    "local": Training(
        _for_local,
        (
            Option(
                "counts_only",
                bool,
                "Let no node vote: learn from numbers of nodes and edges alone, for local.",
                False,
            ),
        ),
        settings=("counts_only",),
        network="local",
        edge_free_features=True,
    ),
    "edge-blind": Training(fitted=True, edge_free_features=True),
}


@dataclass(frozen=True)
class Space:
    """A defence as experiments see it: its class, what is tried of it, how models are trained for it.

    The class travels to worker processes by reference, so that a defence from a user's own module is registered there too.
    """

    kind: type[Defence]

    @property
    def name(self) -> str:
        """Of the defence."""
        return self.kind.name

    @property
    def edge_blind(self) -> bool:
        """Whether no attack on edges can change any answer."""
        return self.kind.edge_blind

    @property
    def baseline(self) -> bool:
        """Whether it is something to compare with rather than a defence."""
        return wording(self.name).baseline

    @property
    def _names(self) -> list[str]:
        """Its own name, then those of the defences that it extends: their rows of the tables are its own."""
        return [base.__dict__["name"] for base in self.kind.__mro__ if "name" in base.__dict__]

    @property
    def tried(self) -> Tried:
        """What is tried of it."""
        return next((_TABLE[name] for name in self._names if name in _TABLE), Tried())

    @property
    def training(self) -> Training:
        """How models are trained for it."""
        return next((_TRAININGS[name] for name in self._names if name in _TRAININGS), Training())

    @property
    def trains(self) -> bool:
        """Whether a network is trained for it over epochs; otherwise a model is fitted."""
        return not self.training.fitted

    @property
    def network(self) -> str | None:
        """The built-in network that it needs, by name; ``None`` where any model will do."""
        return self.training.network

    @property
    def training_options(self) -> tuple[Option, ...]:
        """What its training takes in addition to the settings."""
        return self.training.options

    @property
    def settings(self) -> tuple[Option, ...]:
        """Options that make the defence."""
        return options_of(self.kind)

    @property
    def trial_options(self) -> tuple[Option, ...]:
        """Options of ``tune``."""
        return self.settings if self.tried.options is None else self.tried.options

    @property
    def asking(self) -> tuple[Option, ...]:
        """Options of its requests."""
        return options_of(self.kind.request)

    def title(self, settings: Mapping[str, Any]) -> str:
        """The defence with its settings in a few words."""
        return title({"name": self.name, **settings})

    def checked(self, values: Mapping[str, Any]) -> Settings:
        """Settings in the form in which they are stored, with those that say how the model is trained."""
        trained = {name: values[name] for name in self.training.settings if values.get(name)}
        return to_plain(from_plain(self.kind, values)) | trained

    def entry(self, values: Mapping[str, Any]) -> Settings:
        """The settings that an entry of a benchmark's config asks for."""
        names = [*(option.name for option in self.settings), *self.training.settings]
        if not isinstance(values, Mapping) or values.keys() - set(names):
            raise InputError(f"{self.name} takes tables with {', '.join(names) or 'nothing'}; got {values!r}")
        return self.checked(values)

    def trial(self, name: str, value: Any) -> Settings:
        """The settings that a value of a trial option asks for."""
        if name in {option.name for option in self.settings}:
            return self.entry({name: value})
        try:
            add, remove = map(float, value.split(","))
        except ValueError as error:
            raise InputError(f"--noise must read ADD,REMOVE; got {value!r} (for instance --noise 0.01,0.3)") from error
        return self.checked({"add": add, "remove": remove})

    def candidates(self, graphs: Dataset) -> list[Settings]:
        """Settings worth trying on such graphs."""
        if self.tried.candidates is not None:
            return self.tried.candidates(graphs)
        return [] if self.baseline else [self.checked({})]

    def candidates_against(self, graphs: Dataset, attack: Attack) -> list[Settings]:
        """Settings worth trying against an attack: a number of flips of any kind, or (additions, removals)."""
        if self.tried.against is not None:
            return self.tried.against(graphs, attack)
        return [{}] if self.baseline else self.candidates(graphs)

    def request(self, values: Mapping[str, Any], *, graphs: int = 1) -> Any:
        """What every graph is asked: those of the values that the defence knows."""
        return from_plain(self.kind.request, {**values, "graphs": graphs})

    def build(self, model: Any, settings: Mapping[str, Any], **options: Any) -> DefendedClassifier:
        """The defended classifier; further options as for :class:`~flipproof.defences.defence.DefendedClassifier`."""
        return DefendedClassifier(model, from_plain(self.kind, settings), **options)


def spaces() -> list[Space]:
    """All registered defences."""
    return [Space(kind) for kind in defence_classes()]


def space(name: str) -> Space:
    """The defence of this name."""
    return Space(defence_class(name))


def undefended() -> Space:
    """The model as it is: no defence."""
    return space("none")


def default_features(defence: str, graphs: Dataset) -> str:
    """Node features to train with where none are asked for."""
    if graphs.num_node_features:
        return "own"
    return "constant" if space(defence).training.edge_free_features else "degree"


def fit_edge_blind(
    graphs: Dataset, *, features: Any, validation: Dataset | None = None, seed: int = 0
) -> tuple[Any, Any]:
    """The strong edge-blind line, the better of a forest and a perceptron on statistics of the nodes; and what its fit says.

    ``validation`` are graphs that choose among settings; without them cross-validation does.
    """
    from flipproof.models.node_statistics import NodeStatistics

    model = NodeStatistics(graphs.num_classes)
    return model, model.fit(graphs, features=features, validation=validation, seed=seed)
