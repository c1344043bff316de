"""Defences in words, by their name: one table. What it does not name is described by its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flipproof.noise import EdgeNoise

if TYPE_CHECKING:
    from flipproof.datasets import Dataset

Settings = Mapping[str, Any]

LINE = "edge-blind"
"""What tables call the line to beat: a network that ignores edges."""

_ROLES = {"undefended": "clean model under attack", "base": "base model under attack"}


@dataclass(frozen=True)
class Wording:
    """How a defence is spoken of.

    Attributes:
        title: The defence with its settings in a few words, for tables and legends; by default name and numbers.
        words: The settings as options of the command line, in words: "keep 0.9", "5 groups".
        effect: What the model will see of such graphs, in a few words.
        trait: The adjective of the defended classifier in sentences: "the smoothed classifier".
        references: What it rests on: keys of ``report/references.bib``.
        baseline: Whether it is something to compare with rather than a defence.
    """

    title: Callable[[Settings], str] | None = None
    words: Callable[[Settings], str] | None = None
    effect: Callable[[Settings, Dataset], str] = lambda settings, graphs: ""
    trait: str = "defended"
    references: tuple[str, ...] = ()
    baseline: bool = False


def _law(settings: Settings) -> EdgeNoise:
    return EdgeNoise(**{key: settings[key] for key in ("keep", "add", "remove") if settings.get(key) is not None})


def _noise(settings: Settings, digits: int, comma: str = "") -> str:
    law = _law(settings)
    if law.symmetric:
        return f"keep {1 - law.p_add:.{digits}g}"
    return f"add {law.p_add:.{digits}g}{comma} remove {law.p_remove:.{digits}g}"


def _noise_effect(settings: Settings, graphs: Dataset) -> str:
    law, count = _law(settings), max(1, len(graphs))
    added = law.p_add * sum(graph.max_adds for graph in graphs) / count
    removed = law.p_remove * sum(graph.max_removes for graph in graphs) / count
    return f"adds {added:.1f} and removes {removed:.1f} edges on average"


def _group_words(settings: Settings) -> str:
    groups, flips = settings["groups"], settings.get("flips")
    against = f", against {flips} flip{'s' * (flips > 1)}" if flips else ""
    return f"{groups} group{'s' * (groups > 1)}{against}"


def _group_effect(settings: Settings, graphs: Dataset) -> str:
    groups = settings["groups"]
    most = (groups - 1) // 2
    vote = f"the vote of {groups} sub-graphs alone withstands at most {most} flip{'s' * (most != 1)}; "
    return f"{vote if groups > 1 else ''}prices (--depth) decide how many"


def _local_title(settings: Settings) -> str:
    counts = " counts" if settings.get("counts_only") else ""
    return f"local{counts} {settings['budget']}" if "budget" in settings else f"local{counts}"


def _local_words(settings: Settings) -> str:
    said = {"budget": f"budget {settings.get('budget')}", "counts_only": "counts only"}
    return ", ".join(text for name, text in said.items() if settings.get(name))


_TABLE = {
    "smoothing": Wording(
        lambda settings: _noise(settings, 6),
        lambda settings: _noise(settings, 4, ","),
        _noise_effect,
        "smoothed",
        ("gao2020certified", "cohen2019certified", "bojchevski2020efficient", "hung2019rank"),
    ),
    "voting": Wording(
        lambda settings: (
            f"voting {settings['groups']}" + (f" flips {settings['flips']}" if settings.get("flips") else "")
        ),
        _group_words,
        _group_effect,
        "voting",
        ("xia2024gnncert", "hammoudeh2023reducing"),
    ),
    "local": Wording(
        _local_title,
        _local_words,
        lambda settings, graphs: "nothing is sampled; the network is trained through its own certificate",
        "local",
        ("jin2020certified",),
    ),
    "edge-blind": Wording(trait="edge-blind", baseline=True),
    "none": Wording(lambda settings: "clean", trait="undefended", baseline=True),
}


def wording(defence: str) -> Wording:
    """How the defence of this name is spoken of."""
    return _TABLE.get(defence, Wording())


def title(defence: Mapping[str, Any]) -> str:
    """A defence, described by name and settings, in a few words, for tables and legends."""
    name, settings = defence["name"], {key: value for key, value in defence.items() if key != "name"}
    special = wording(name).title
    if special is not None:
        return special(settings)
    return " ".join([name, *(f"{value:g}" for value in settings.values() if not isinstance(value, str))])


def setting_words(defence: Mapping[str, Any]) -> str:
    """The settings as options of the command line, in words."""
    settings, special = {key: value for key, value in defence.items() if key != "name"}, wording(defence["name"]).words
    if special is not None:
        return special(settings)
    return ", ".join(f"{key} {value:.4g}" for key, value in settings.items() if isinstance(value, (int, float)))


def role_name(role: str, defence: str | None) -> str:
    """Who was attacked, in words: ``undefended``, ``base`` or ``defended``."""
    trait = "defended" if defence is None else wording(defence).trait
    return _ROLES.get(role, f"{trait} under attack (upper bound)")
