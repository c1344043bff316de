"""How models are trained for the defences: one table, by the name of the defence. What it does not name takes any network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flipproof.fields import Option
from flipproof.noise import EdgeNoise
from flipproof.noise.groups import EdgeGroups

if TYPE_CHECKING:
    from flipproof.datasets import Dataset

Settings = Mapping[str, Any]


def _smoothing(settings: Settings) -> dict[str, Any]:
    noise = {key: value for key in ("keep", "add", "remove") if (value := settings.get(key)) is not None}
    return {"noise": EdgeNoise(**noise)}


def _voting(settings: Settings) -> dict[str, Any]:
    groups = EdgeGroups(settings["groups"], settings.get("key", 0))
    flips = {"flips": settings["flips"]} if settings.get("flips") else {}
    return {"groups": groups, "renumber": groups.count > 1, **flips}


def _local(settings: Settings) -> dict[str, Any]:
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
        fitted: Whether :func:`fitted` fits a model, instead of a network that is trained over epochs.
        edge_free_features: Whether node features must not depend on edges.
    """

    arguments: Callable[[Settings], dict[str, Any]] = lambda settings: {}
    options: tuple[Option, ...] = ()
    settings: tuple[str, ...] = ()
    network: str | None = None
    fitted: bool = False
    edge_free_features: bool = False


_TABLE = {
    "smoothing": Training(_smoothing),
    "voting": Training(
        _voting,
        (
            Option("renumber", bool, "Hash the nodes under new random numbers in every training step.", False),
            Option(
                "flips",
                int,
                "Number of flips inside a sub-graph to train against; raises the price of votes.",
                0,
                least=0,
            ),
            Option("worst_of", int, "Number of variants with flips, of which training takes the worst.", 4, least=2),
        ),
        settings=("flips",),
    ),
    "local": Training(
        _local,
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


def training_for(defence: str) -> Training:
    """How a model is trained for the defence of this name."""
    return _TABLE.get(defence, Training())


def default_features(defence: str, graphs: Dataset) -> str:
    """Node features to train with where none are asked for."""
    if graphs.num_node_features:
        return "own"
    return "constant" if training_for(defence).edge_free_features else "degree"


def fit_edge_blind(
    graphs: Dataset, *, features: Any, validation: Dataset | None = None, seed: int = 0
) -> tuple[Any, Any]:
    """The strong edge-blind line, the better of a forest and a perceptron on statistics of the nodes; and what its fit says.

    ``validation`` are graphs that choose among settings; without them cross-validation does.
    """
    from flipproof.models.node_statistics import NodeStatistics

    model = NodeStatistics(graphs.num_classes)
    return model, model.fit(graphs, features=features, validation=validation, seed=seed)
