"""Defences: each turns a model into a classifier that can be certified. Their registry; ``smoothing.py`` is to be read first."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from flipproof.errors import InputError
from flipproof.fields import from_plain

if TYPE_CHECKING:
    from flipproof.defences.defence import Defence

__all__ = ["defence_class", "defence_classes", "defence_from", "defence_names", "register", "trained_defence"]

_HOMES: dict[str, Any] = {
    "smoothing": "flipproof.defences.smoothing:Smoothing",
    "node-smoothing": "flipproof.defences.node_smoothing:NodeSmoothing",
    "voting": "flipproof.defences.voting:Voting",
    "local": "flipproof.defences.local:Local",
    "edge-blind": "flipproof.defences.baselines:EdgeBlindness",
    "none": "flipproof.defences.baselines:NoDefence",
}
_AnyDefence = TypeVar("_AnyDefence", bound="type[Defence]")


def register(defence: _AnyDefence) -> _AnyDefence:
    """Make a defence known by its name, everywhere; a decorator for its class."""
    _HOMES[defence.name] = defence
    return defence


def defence_names(task: str = "graphs") -> tuple[str, ...]:
    return tuple(kind.name for kind in defence_classes(task))


def defence_class(name: str) -> type[Defence]:
    if name not in _HOMES:
        raise InputError(
            f"defence must be one of {', '.join(defence_names())}; got {name!r} (smoothing is the usual one)"
        )
    home = _HOMES[name]
    if isinstance(home, str):
        module, _, attribute = home.partition(":")
        home = getattr(import_module(module), attribute)
    kind: type[Defence] = home
    return kind


def defence_classes(task: str = "graphs") -> list[type[Defence]]:
    """All that classify graphs, or nodes."""
    return [kind for kind in map(defence_class, _HOMES) if kind.evidence.task == task]


def defence_from(description: Mapping[str, Any]) -> Defence:
    return from_plain(defence_class(description["name"]), description)


def trained_defence(metadata: Mapping[str, Any]) -> Defence | None:
    """The defence that a model folder says its model was trained for; ``None`` if it says nothing."""
    described = metadata.get("defence")
    if isinstance(described, Mapping) and described.get("name") in _HOMES:
        return defence_from(described)
    return None
