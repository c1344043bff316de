"""The config file of a benchmark: read, and refused with the file and the key before any work.

A key may stand at the top, for all data sets, and again in a ``[[data]]`` table, for one; the table ``training`` and the table
``asked`` are then merged key by key. Every ``[[row]]`` is a method: a defence with the settings among which validation graphs
choose.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from flipproof.datasets.sources import DataSource
from flipproof.datasets.splits import FOLDS
from flipproof.defences import defence_names
from flipproof.errors import InputError
from flipproof.studies.candidate import Candidate
from flipproof.studies.search_space import space, spaces

__all__ = ["Protocol", "Row", "checked_training", "read_protocols"]

_LINE = "edge-blind"
_NAMES = "names of data sets"


@dataclass(frozen=True)
class Row:
    """A method of the table.

    Attributes:
        name: In tables.
        candidates: Settings among which validation graphs choose; of one there is no choice.
        asked: What every graph is asked, where it differs from the other rows.
        readings: Other certificates from the same evidence that are rows of their own: from their name to the row's.
        network: Name and arguments of the network; by default what the defence needs.
        training: Where it differs from the other rows.
        features: Node features, where they differ.
    """

    name: str
    candidates: tuple[Candidate, ...]
    asked: Mapping[str, Any] = field(default_factory=dict)
    readings: Mapping[str, str] = field(default_factory=dict)
    network: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    features: str | None = None

    @property
    def defence(self) -> Any:
        """The class of the defence."""
        return self.candidates[0].defence

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "name": self.name,
            "defence": self.defence.name,
            "settings": [dict(candidate.settings) for candidate in self.candidates],
            **{key: dict(getattr(self, key)) for key in ("asked", "readings", "network", "training")},
            "features": self.features,
        }


@dataclass(frozen=True)
class Protocol:
    """What is done with one data set.

    Attributes:
        source: Where the graphs come from; its shares and split seed are not used.
        rows: The methods.
        splits: Folder of the files that say which graph is tested in which fold.
        folds: The folds that are run.
        training: Arguments of :func:`flipproof.train`, the same for every row.
        asked: What every graph is asked, as far as a defence's question knows it.
        validation_graphs: Largest number of validation graphs that choose, every class in proportion.
        attacked: Number of test graphs per fold that are attacked, every class in proportion.
        attack_budget: Flips of the attacks.
        attack_calls: Model calls of the attacks on one graph.
        limit: Whether the limit of the task is computed.
        features: Node features, as for ``flipproof train``; ``None`` for what each defence takes by default.
    """

    source: DataSource
    rows: tuple[Row, ...]
    splits: Path | None
    folds: tuple[int, ...]
    training: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)
    validation_graphs: int | None = None
    attacked: int = 0
    attack_budget: int = 3
    attack_calls: int = 10_000
    limit: bool = False
    features: str | None = None

    @property
    def name(self) -> str:
        """Of the data set, as it was given."""
        return self.source.data

    @property
    def title(self) -> str:
        """Of the data set, for headings."""
        return Path(self.name).name

    def to_dict(self) -> dict[str, Any]:
        """What is asked for as plain JSON; where the graphs are stored makes no difference."""
        kept = ("validation_graphs", "attacked", "attack_budget", "attack_calls", "limit", "features")
        return {
            "data_seed": self.source.seed,
            "folds": list(self.folds),
            **dict(self.training),
            **dict(self.asked),
            **{key: getattr(self, key) for key in kept},
            "rows": {row.name: row.to_dict() for row in self.rows},
        }


def read_protocols(path: Path, *, root: str | None = None) -> list[Protocol]:
    """The protocols of a config file, one per data set; ``root`` overrides the file's."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no config file {path} (give the path of a TOML file)") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, IsADirectoryError) as error:
        raise InputError(f"{path} is not a TOML file: {error} (compare benchmarks/quick.toml)") from error
    common = {key: value for key, value in content.items() if key not in ("data", "row", "plugins")}
    top = _Table(content, str(path), "")
    _imported(top)
    top.refuse_unknown((*_KEYS, "data", "row", "plugins"))
    rows = top.tables("row", "one [[row]] table per method")
    tables = top.tables("data", "one [[data]] table per data set")
    _refuse_other_data(rows, [table.get("name") for table in tables], str(path))
    found: dict[str, Protocol] = {}
    for number, table in enumerate(tables):
        own = _Table(table, str(path), f"data[{number}].")
        own.refuse_unknown((*_KEYS, "name"))
        protocol = _protocol(_Table({**_merged(common, table)}, str(path), own.where), path.parent, root)
        protocol = replace(protocol, rows=_rows(rows, str(path), protocol))
        if protocol.name in found:
            raise InputError(f"{path}: {own.where}name {protocol.name!r} is there twice (merge the two tables)")
        found[protocol.name] = protocol
    return list(found.values())


_KEYS = (
    "root",
    "download",
    "data_seed",
    "splits",
    "folds",
    "training",
    "asked",
    "features",
    "validation_graphs",
    "attacked",
    "attack_budget",
    "attack_calls",
    "limit",
)
_ROW_KEYS = ("name", "defence", "settings", "asked", "readings", "network", "training", "features", "data")


def _imported(top: _Table) -> None:
    """Import the modules that register further defences; found beside the command, like a model of one's own."""
    here = str(Path.cwd())
    for name in top.several("plugins", lambda value: isinstance(value, str), "names of modules"):
        if here not in sys.path:
            sys.path.insert(0, here)
        try:
            importlib.import_module(name)
        except Exception as error:
            raise InputError(
                f"{top.file}: plugins: importing {name} failed with {type(error).__name__}: {error} (run it from the folder that "
                "holds it)"
            ) from error


def _merged(common: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: {**common[key], **table[key]} for key in ("training", "asked") if key in common and key in table}
    return {**common, **table, **both}


def _protocol(table: _Table, beside: Path, root: str | None) -> Protocol:
    name = table.text("name")
    if name is None:
        raise table.complain("name", "topologies, a TU name or a folder of graphs")
    source = DataSource(
        name,
        table.text("root") if root is None else root,
        table.truth("download"),
        table.whole("data_seed", 0),
    )
    given = table.text("splits")
    folds = table.several("folds", lambda value: _whole(value) and value < FOLDS, f"folds below {FOLDS}", range(FOLDS))
    if not folds:
        raise table.complain("folds", "at least one fold, for instance [0, 1, 2]")
    training, asked = table.inner("training"), table.inner("asked")
    with table.blamed("training"):
        checked_training(training)
    known = {option.name for defence in spaces() for option in defence.asking}
    for key in asked:
        if key not in known:
            raise InputError(f"{table.file}: asked.{key} is nothing that a defence takes ({_hint(key, known)})")
    return Protocol(
        source=source,
        rows=(),
        splits=None if given is None else beside / given,
        folds=tuple(folds),
        training=training,
        asked=asked,
        validation_graphs=table.whole("validation_graphs", None, least=1),
        attacked=table.whole("attacked", 0),
        attack_budget=table.whole("attack_budget", 3, least=1),
        attack_calls=table.whole("attack_calls", 10_000, least=1),
        limit=table.truth("limit"),
        features=table.text("features"),
    )


def _refuse_other_data(rows: Iterable[Mapping[str, Any]], known: Iterable[Any], file: str) -> None:
    """Refuse rows for data sets that are not there: a row would be left out without a word."""
    names = [name for name in known if isinstance(name, str)]
    for number, row in enumerate(rows):
        for name in _Table(row, file, f"row[{number}].").several("data", lambda v: isinstance(v, str), _NAMES):
            if name not in names:
                raise InputError(f"{file}: row[{number}].data: there is no data set {name} ({_hint(name, names)})")


def _rows(given: Iterable[Mapping[str, Any]], file: str, protocol: Protocol) -> tuple[Row, ...]:
    rows: list[Row] = []
    for number, content in enumerate(given):
        table = _Table(content, file, f"row[{number}].")
        table.refuse_unknown(_ROW_KEYS)
        only = table.several("data", lambda value: isinstance(value, str), _NAMES)
        row = _row(table, protocol)
        names = {name for other in rows for name in (other.name, *other.readings.values())}
        if only and protocol.name not in only:
            continue
        for name in (row.name, *row.readings.values()):
            if name in names:
                raise InputError(f"{file}: {table.where}name {name!r} is there twice (choose another)")
        rows.append(row)
    if all(row.defence.name != _LINE for row in rows):
        rows.insert(0, Row(_LINE, (Candidate(space(_LINE)),)))
    return tuple(rows)


def _row(table: _Table, protocol: Protocol) -> Row:
    name = table.text("defence")
    if name not in defence_names():
        raise table.complain("defence", f"one of {', '.join(defence_names())}")
    defence = space(str(name))
    tables = table.several("settings", lambda value: isinstance(value, dict), "tables of settings", [{}])
    candidates = []
    for settings in tables or [{}]:
        known = {option.name for option in (*defence.settings, *defence.training_options)}
        with table.blamed("settings"):
            for key in settings:
                if key not in known:
                    raise InputError(f"{key} is no setting of {defence.name} ({_hint(key, known)})")
            candidates.append(Candidate(defence, defence.entry(settings)))
    network, training = table.inner("network"), table.inner("training")
    with table.blamed("training"):
        checked_training({**protocol.training, **training})
    asked = table.inner("asked")
    known = {option.name for option in defence.asking}
    for key in asked:
        if key not in known:
            raise InputError(
                f"{table.file}: {table.where}asked.{key} is nothing that {defence.name} takes ({_hint(key, known)})"
            )
    with table.blamed("asked"):
        question = candidates[0].question({**protocol.asked, **asked})
    title, readings = table.text("name") or defence.name, table.inner("readings")
    for key in readings:
        if key not in question.other_readings:
            raise InputError(
                f"{table.file}: {table.where}readings: {key} is no other certificate of {defence.name} "
                f"({_hint(key, question.other_readings)})"
            )
    names = [title, *map(str, readings.values())]
    if len(set(names)) < len(names):
        raise InputError(f"{table.file}: {table.where}readings must have names of their own; got {', '.join(names)}")
    return Row(
        title,
        tuple(candidates),
        asked,
        {key: str(value) for key, value in readings.items()},
        network,
        training,
        table.text("features"),
    )


class _Table:
    """A table of the config: typed values, and complaints that name file and key."""

    def __init__(self, content: Mapping[str, Any], file: str, where: str) -> None:
        self.content, self.file, self.where = content, file, where

    def refuse_unknown(self, known: Iterable[str]) -> None:
        """Refuse keys that nothing reads."""
        for key in self.content:
            if key not in known:
                raise InputError(f"{self.file}: {self.where}{key} is not a key of a benchmark ({_hint(key, known)})")

    def complain(self, key: str, expected: str) -> InputError:
        """The sentence for a value that does not fit."""
        return InputError(f"{self.file}: {self.where}{key} must be {expected}; got {self.content.get(key)!r}")

    @contextmanager
    def blamed(self, key: str) -> Iterator[None]:
        """Whatever is refused inside is this key's fault."""
        try:
            yield
        except InputError as error:
            raise InputError(f"{self.file}: {self.where}{key}: {error}") from error

    def value(self, key: str, default: Any, fits: Callable[[Any], bool], expected: str) -> Any:
        """The value, if it fits; the default needs no check."""
        if key in self.content and not fits(self.content[key]):
            raise self.complain(key, expected)
        return self.content.get(key, default)

    def tables(self, key: str, expected: str) -> list[dict[str, Any]]:
        found = self.content.get(key)
        if not isinstance(found, list) or not found or not all(isinstance(table, dict) for table in found):
            raise InputError(f"{self.file}: {key} must be {expected}; got {found!r} (add one)")
        return found

    def text(self, key: str) -> str | None:
        found: str | None = self.value(key, None, lambda value: isinstance(value, str) and bool(value), "a text")
        return found

    def whole(self, key: str, default: Any, *, least: int = 0) -> Any:
        return self.value(key, default, lambda v: _whole(v) and v >= least, f"a whole number of at least {least}")

    def truth(self, key: str) -> bool:
        return bool(self.value(key, False, lambda value: isinstance(value, bool), "true or false"))

    def inner(self, key: str) -> dict[str, Any]:
        return dict(self.value(key, {}, lambda value: isinstance(value, dict), f"a table [{key}]"))

    def several(self, key: str, fits: Callable[[Any], bool], expected: str, default: Iterable[Any] = ()) -> list[Any]:
        """A list without repetitions."""

        def all_fit(found: Any) -> bool:
            return isinstance(found, list) and all(fits(v) and v not in found[:i] for i, v in enumerate(found))

        return list(self.value(key, default, all_fit, f"a list of {expected}, none of them twice"))


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def checked_training(table: Mapping[str, Any]) -> None:
    """Refuse what :func:`flipproof.train` would refuse, before any graph is read."""
    from flipproof.training import train
    from flipproof.training.hyperparameters import Hyperparameters

    defaults = inspect.signature(train).parameters
    known = {entry.name: defaults[entry.name].default for entry in fields(Hyperparameters) if entry.name != "seed"}
    for key in table:
        if key not in known:
            raise InputError(f"{key} is not a training setting ({_hint(key, known)})")
    if not isinstance(table.get("class_weights", False), bool):
        raise InputError(f"class_weights must be true or false; got {table['class_weights']!r}")
    Hyperparameters.of(**{**known, **table, "seed": 0})


def _hint(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, list(known), n=1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known)) or 'none'}"
