"""Defences: each turns a model into a classifier that can be certified. One module per defence; here is their registry.

``smoothing.py`` is the file to read first; ``defence.py`` has the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from flipproof.errors import InputError

if TYPE_CHECKING:
    from flipproof.defences.defence import Defence

__all__ = ["defence_class", "defence_classes", "defence_names", "register", "trained_defence"]

_HOMES: dict[str, Any] = {
    "smoothing": "flipproof.defences.smoothing:SmoothedClassifier",
    "voting": "flipproof.defences.voting:VotingClassifier",
    "local": "flipproof.defences.local:LocalClassifier",
    "edge-blind": "flipproof.defences.edge_blind:EdgeBlindClassifier",
    "none": "flipproof.defences.undefended:Undefended",
}
_AnyDefence = TypeVar("_AnyDefence", bound="type[Defence]")


def register(defence: _AnyDefence) -> _AnyDefence:
    """Make a defence known by its name, everywhere; a decorator for its class."""
    _HOMES[defence.name] = defence
    return defence


def defence_names() -> tuple[str, ...]:
    """All names, in the order of the registry."""
    return tuple(_HOMES)


def defence_class(name: str) -> type[Defence]:
    """The defence of this name."""
    if name not in _HOMES:
        raise InputError(f"defence must be one of {', '.join(_HOMES)}; got {name!r} (smoothing is the usual one)")
    home = _HOMES[name]
    if isinstance(home, str):
        module, _, attribute = home.partition(":")
        home = getattr(import_module(module), attribute)
    found: type[Defence] = home
    return found


def defence_classes() -> list[type[Defence]]:
    """All defences, in the order of the registry."""
    return [defence_class(name) for name in _HOMES]


def trained_defence(metadata: Mapping[str, Any]) -> tuple[type[Defence], dict[str, Any]] | None:
    """The defence, with its settings, that a model folder says its model was trained for; ``None`` if it says nothing."""
    for found in defence_classes():
        settings = found.trained_for(metadata)
        if settings is not None:
            return found, settings
    return None
