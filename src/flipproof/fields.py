"""Fields of frozen dataclasses, declared once: options of the command line with their help, and plain JSON in files."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Option:
    """A value that a user gives by name: on the command line as ``--name``, in a config file as ``name``.

    Attributes:
        name: With underscores.
        kind: ``int``, ``float``, ``str`` or ``bool``.
        help: A whole sentence.
        default: ``None`` where something else decides.
        least: The smallest value of a number.
    """

    name: str
    kind: type
    help: str
    default: Any = None
    least: int | None = None


@dataclass(frozen=True)
class Parts:
    """How a field that is no plain value is given and stored, as several plain values.

    Attributes:
        options: The values that a user gives.
        plain: From the field to the values that are stored.
        made: From given or stored values to the field.
    """

    options: tuple[Option, ...]
    plain: Callable[[Any], dict[str, Any]]
    made: Callable[[Mapping[str, Any]], Any]
    stored: tuple[str, ...]


def option(
    help: str = "",
    default: Any = MISSING,
    *,
    kind: type | None = None,
    least: int | None = None,
    stored: bool | None = True,
    parts: Parts | None = None,
) -> Any:
    """A dataclass field that a user gives by name.

    Args:
        help: A whole sentence; a field without one is no option.
        default: Left out where the user must give it.
        kind: On the command line, if it is not the field's own type.
        least: The smallest value of a number.
        stored: Whether it stands in files: always, where it is not ``None`` (``False``), or never (``None``).
        parts: For a field that is no plain value.
    """
    metadata = {"help": help, "kind": kind, "least": least, "stored": stored, "parts": parts}
    return field(default=default, metadata=metadata)


def options_of(kind: type) -> tuple[Option, ...]:
    """What a user may give for a dataclass."""
    hints, found = get_type_hints(kind), list[Option]()
    for entry in fields(kind):
        parts: Parts | None = entry.metadata.get("parts")
        if parts is not None:
            found += parts.options
        elif entry.metadata.get("help"):
            given = entry.metadata["kind"] or _plain_type(hints[entry.name])
            found.append(
                Option(entry.name, given, entry.metadata["help"], _default(entry), least=entry.metadata["least"])
            )
    return tuple(found)


def to_plain(value: Any) -> dict[str, Any]:
    """A dataclass as plain JSON; :func:`from_plain` takes it back."""
    found: dict[str, Any] = {}
    for entry in fields(value):
        content, parts, stored = getattr(value, entry.name), *map(entry.metadata.get, ("parts", "stored"))
        if parts is not None:
            found |= parts.plain(content)
        elif stored or (stored is False and content is not None):
            found[entry.name] = list(content) if isinstance(content, tuple) else content
    return found


def from_plain(kind: type[_Made], values: Mapping[str, Any]) -> _Made:
    """The dataclass that these values describe; values of other things are left out."""
    given: dict[str, Any] = {}
    for entry in fields(kind):  # type: ignore[arg-type]
        parts: Parts | None = entry.metadata.get("parts")
        if parts is not None:
            given[entry.name] = parts.made(
                {name: values[name] for name in parts.stored if values.get(name) is not None}
            )
        elif entry.name in values:
            given[entry.name] = values[entry.name]
    return kind(**given)


def _default(entry: Field[Any]) -> Any:
    return None if entry.default is MISSING else entry.default


def _plain_type(hint: Any) -> type:
    """``int`` of ``int | None``."""
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    found: type = hint
    return found
