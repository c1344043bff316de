"""Defences in words, by their name: one table. What it does not name is described by its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flipproof.certificates.certificate import shortened
from flipproof.noise import EdgeNoise

if TYPE_CHECKING:
    from flipproof.datasets import Dataset

Settings = Mapping[str, Any]

LINE = "edge-blind"  # what tables call the line to beat: a classifier that ignores edges


@dataclass(frozen=True)
class Wording:
    """How a defence is spoken of.

    Attributes:
        title: The defence with its settings in a few words, for tables and legends; by default name and numbers.
        effect: What the model will see of such graphs, in a few words.
        trait: The adjective of the defended classifier in sentences: "the smoothed classifier".
        references: What it rests on: keys of ``report/references.bib``.
        baseline: Whether it is something to compare with rather than a defence.
    """

    title: Callable[[Settings], str] | None = None
    effect: Callable[[Settings, Dataset], str] = lambda settings, graphs: ""
    trait: str = "defended"
    references: tuple[str, ...] = ()
    baseline: bool = False


def _noise_effect(settings: Settings, graphs: Dataset) -> str:
    law = EdgeNoise(**{key: settings[key] for key in ("keep", "add", "remove") if settings.get(key) is not None})
    added = law.p_add * sum(graph.max_adds for graph in graphs) / max(1, len(graphs))
    removed = law.p_remove * sum(graph.max_removes for graph in graphs) / max(1, len(graphs))
    return f"adds {added:.1f} and removes {removed:.1f} edges on average"


def _voting_title(settings: Settings) -> str:
    more = (f" {name.replace('_', ' ')} {settings[name]}" for name in ("feature_groups", "flips") if settings.get(name))
    return f"voting {settings['groups']}" + "".join(more)


def _local_title(settings: Settings) -> str:
    counts = " counts" if settings.get("counts_only") else ""
    return f"local{counts} {settings['budget']}" if "budget" in settings else f"local{counts}"


_SMOOTHING = Wording(
    lambda settings: " ".join(f"{key.replace('_', ' ')} {value:.6g}" for key, value in _symmetric(settings).items()),
    _noise_effect,
    "smoothed",
    ("gao2020certified", "cohen2019certified", "bojchevski2020efficient", "hung2019rank"),
)

_TABLE = {
    "smoothing": _SMOOTHING,
    "node-smoothing": _SMOOTHING,
    "voting": Wording(
        _voting_title,
        lambda settings, graphs: "nothing is sampled; prices of votes (--depth) decide how many flips are withstood",
        "voting",
        ("xia2024gnncert", "hammoudeh2023reducing"),
    ),
    "local": Wording(
        _local_title,
        lambda settings, graphs: "nothing is sampled; the network is trained through its own certificate",
        "local",
        ("jin2020certified",),
    ),
    "edge-blind": Wording(trait="edge-blind", baseline=True),
    "none": Wording(lambda settings: "clean", trait="undefended", baseline=True),
}


def wording(defence: str) -> Wording:
    return _TABLE.get(defence, Wording())


def title(defence: Settings) -> str:
    """A defence, described by name and settings, in a few words, for tables and legends."""
    name, settings = defence["name"], {key: value for key, value in defence.items() if key != "name"}
    special = wording(name).title
    if special is not None:
        return special(settings)
    return " ".join([name, *(f"{value:g}" for value in settings.values() if not isinstance(value, str))])


def shown_settings(defence: Settings) -> dict[str, Any]:
    """Name and settings as they were typed: an exact probability is a multiple of 2**-32, and has too many digits."""
    return {key: shortened(value) if isinstance(value, float) else value for key, value in defence.items()}


def setting_words(defence: Settings) -> str:
    """The settings as options of the command line, in words: "keep 0.9", "groups 5"."""
    words = {
        key: value
        for key, value in _symmetric(defence).items()
        if isinstance(value, (int, float)) and value is not False
    }
    return ", ".join(key.replace("_", " ") + ("" if value is True else f" {value:.4g}") for key, value in words.items())


def _symmetric(settings: Settings) -> Settings:
    """The settings that have a value, with ``keep`` in place of two equal probabilities of noise."""
    settings = {key: value for key, value in settings.items() if value is not None}
    if "add" not in settings or settings["add"] != settings.get("remove"):
        return settings
    others = {key: value for key, value in settings.items() if key not in ("add", "remove")}
    return {"keep": 1 - settings["add"], **others}


def attack_targets(defence: str | None) -> dict[str, str]:
    trait = "defended" if defence is None else wording(defence).trait
    return {"defended": f"the {trait} classifier", "base": "its base model", "undefended": "the undefended model"}
