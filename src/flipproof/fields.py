"""Fields of frozen dataclasses, declared once: options of the command line with their help, and plain JSON in files."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Option:
    """A value that a user gives by name: on the command line as ``--name``, in a config file as ``name``."""

    name: str
    kind: type
    help: str  # a whole sentence
    default: Any = None  # where something else decides
    least: int | None = None  # the smallest value of a number
    panel: str | None = None  # heading in the help
    short: str | None = None
    argument: str | None = None  # what the help calls an argument without a name


@dataclass(frozen=True)
class Parts:
    """How a field that is no plain value is given and stored, as several plain values."""

    options: tuple[Option, ...]
    plain: Callable[[Any], dict[str, Any]]  # from the field to the values that are stored
    made: Callable[[Mapping[str, Any]], Any]  # from values that a user gave, or that were stored, to the field
    stored: tuple[str, ...]


def option(
    help: str = "",
    default: Any = MISSING,
    *,
    kind: type | None = None,
    least: int | None = None,
    stored: bool | None = True,
    parts: Parts | None = None,
    panel: str | None = None,
    short: str | None = None,
    argument: str | None = None,
) -> Any:
    """A dataclass field that a user gives by name, as in :class:`Option`; one without ``help`` is no option.

    ``kind`` is its type on the command line, if it is not the field's own; ``parts`` is for a field that is no plain value. It
    stands in files always, unless it is the default (``stored=False``), or never (``stored=None``).
    """
    metadata = {name: value for name, value in locals().items() if name != "default"}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def options_of(kind: type) -> tuple[Option, ...]:
    """What a user may give for a dataclass."""
    hints, options = get_type_hints(kind), list[Option]()
    for entry in fields(kind):
        meta = entry.metadata
        if meta.get("parts") is not None:
            options += meta["parts"].options
        elif meta.get("help"):
            plain, default = meta["kind"] or _plain_type(hints[entry.name]), _default(entry)
            others = (meta[name] for name in ("least", "panel", "short", "argument"))
            options.append(Option(entry.name, plain, meta["help"], default, *others))
    return tuple(options)


def to_plain(value: Any, *, without: Iterable[str] = ()) -> dict[str, Any]:
    """A dataclass as plain JSON, :func:`from_plain` takes it back; but for the fields that have a value of these names."""
    plain: dict[str, Any] = {}
    for entry in fields(value):
        content, parts, stored = getattr(value, entry.name), *map(entry.metadata.get, ("parts", "stored"))
        if not {entry.name, *(parts.stored if parts else ())}.isdisjoint(without):
            continue
        if parts is not None:
            plain |= parts.plain(content)
        elif stored or (stored is False and content != _default(entry)):
            plain[entry.name] = list(content) if isinstance(content, tuple) else content
    return plain


def from_plain(kind: type[_Made], values: Mapping[str, Any]) -> _Made:
    """The dataclass that these values describe; values of other things are left out."""
    content: dict[str, Any] = {}
    for entry in fields(kind):  # type: ignore[arg-type]
        parts: Parts | None = entry.metadata.get("parts")
        if parts is not None:
            content[entry.name] = parts.made({key: values[key] for key in parts.stored if values.get(key) is not None})
        elif entry.name in values:
            content[entry.name] = values[entry.name]
    return kind(**content)


def _default(entry: Field[Any]) -> Any:
    if entry.default_factory is not MISSING:
        return entry.default_factory()
    return None if entry.default is MISSING else entry.default


def _plain_type(hint: Any) -> Any:
    """``int`` of ``int | None``."""
    is_union = get_origin(hint) in (Union, types.UnionType)
    return next(part for part in get_args(hint) if part is not type(None)) if is_union else hint
