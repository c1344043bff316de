"""The config file of a benchmark: read, and refused with the file and the key before any work.

A key may stand at the top, for all data sets, and again in a ``[[data]]`` table, for one; the table ``training`` and the table
``asked`` are then merged key by key. Every ``[[row]]`` is a method: a defence with the settings among which validation graphs
choose.
"""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

from flipproof.datasets.sources import DataSource
from flipproof.datasets.splits import FOLDS
from flipproof.errors import InputError
from flipproof.studies.candidate import Candidate, baselines, check_sampling, configured_candidates, hint
from flipproof.studies.experiment import Experiment, check_training

Text = Annotated[str, Field(min_length=1)]
Fold = Annotated[int, Field(ge=0, lt=FOLDS)]
Item = TypeVar("Item")


def _once(values: list[Item]) -> list[Item]:
    if any(value in values[:place] for place, value in enumerate(values)):
        raise ValueError("must hold nothing twice")
    return values


Once = Annotated[list[Item], AfterValidator(_once)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Row(_Table):
    """A method of the table: its keys in a config file (docs/tuning.md)."""

    defence: str
    name: Text = Field(default_factory=lambda values: values["defence"])
    settings: Once[dict[str, Any]] = [{}]
    asked: dict[str, Any] = {}
    readings: dict[str, Text] = {}
    network: dict[str, Any] = {}
    training: dict[str, Any] = {}
    features: Text | None = None
    data: Once[Text] = []

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        return configured_candidates(self.defence, self.settings)

    @property
    def edge_blind(self) -> bool:
        return self.candidates[0].defence.edge_blind

    @property
    def names(self) -> list[str]:
        return [self.name, *self.readings.values()]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        settings = [dict(candidate.settings) for candidate in self.candidates]
        return {**self.model_dump(exclude={"data"}), "settings": settings}


class _Shared(_Table):
    """Keys that may stand at the top and in a [[data]] table."""

    root: Text | None = None
    download: bool = False
    data_seed: NonNegativeInt = 0
    splits: Text | None = None
    folds: Annotated[Once[Fold], Field(min_length=1)] = list(range(FOLDS))
    training: dict[str, Any] = {}
    asked: dict[str, Any] = {}
    features: Text | None = None
    validation_graphs: PositiveInt | None = None
    attacked: NonNegativeInt = 0
    attack_budget: PositiveInt = 3
    attack_calls: PositiveInt = 10_000
    limit: bool = False


class Protocol(_Shared):
    """What is done with one data set: its keys in a config file (docs/tuning.md), and the methods."""

    name: Text
    rows: tuple[Row, ...] = ()

    @property
    def source(self) -> DataSource:
        return DataSource(self.name, self.root, self.download, self.data_seed)

    @property
    def title(self) -> str:
        return Path(self.name).name

    @property
    def folds_file(self) -> str:
        return f"{self.title.replace(':', '-')}.json"

    def experiment(self, row: Row, fold: int = 0) -> Experiment:
        return Experiment(
            self.source,
            candidates=row.candidates,
            features=row.features or self.features,
            training={**self.training, **row.training},
            sampling={**self.asked, **row.asked},
            network=row.network,
            validation_graphs=self.validation_graphs,
            fold=fold,
            published=None if self.splits is None else Path(self.splits) / self.folds_file,
        )

    def to_dict(self) -> dict[str, Any]:
        """What is asked for as plain JSON; where the graphs are stored makes no difference."""
        stated = self.model_dump(exclude={"name", "root", "download", "splits", "training", "asked", "rows"})
        return {**stated, **self.training, **self.asked, "rows": {row.name: row.to_dict() for row in self.rows}}


class _File(_Shared):
    plugins: Once[Text] = []
    row: Annotated[list[Row], Field(min_length=1)]
    data: Annotated[list[dict[str, Any]], Field(min_length=1)]


def read_protocols(path: Path, *, root: str | None = None) -> list[Protocol]:
    """The protocols of a config file, one per data set; ``root`` overrides the file's."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no config file {path} (give the path of a TOML file)") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, IsADirectoryError) as error:
        raise InputError(f"{path} is not a TOML file: {error} (compare benchmarks/quick.toml)") from error
    with _blamed(path):
        file = _validated(_File, content)
        _import_plugins(file.plugins)
        shared = {key: value for key, value in content.items() if key in _Shared.model_fields}
        protocols = []
        for number, table in enumerate(file.data):
            merged: dict[str, Any] = {**shared, **table, **({} if root is None else {"root": root})}
            for key in ("training", "asked"):
                if isinstance(table.get(key), dict):
                    merged[key] = {**shared.get(key, {}), **table[key]}
            protocol = _validated(Protocol, merged, f"data[{number}].")
            with _blamed(f"data[{number}]"):
                protocols.append(_with_rows(protocol, file.row, path.parent))
        _check_names(protocols, file.row)
    return protocols


Model = TypeVar("Model", bound=BaseModel)


def _validated(model: type[Model], content: Mapping[str, Any], where: str = "") -> Model:
    """The content of a table, or one sentence about its first mistake."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        mistake = error.errors()[0]
        inside = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in mistake["loc"]]
        key = where + "".join(inside).removeprefix(".")
        if mistake["type"] == "extra_forbidden":
            name = str(mistake["loc"][-1])
            known = Row.model_fields if mistake["loc"][0] == "row" else model.model_fields
            raise InputError(f"{key} is not a key of a benchmark ({hint(name, known)})") from None
        if mistake["type"] == "missing":
            raise InputError(f"{key} is needed, and not there (compare benchmarks/quick.toml)") from None
        expected = re.sub(r"^(Value error, |\w+ should )| after validation, not \d+$", "", mistake["msg"])
        raise InputError(f"{key} must {expected.removeprefix('must ')}; got {mistake['input']!r}") from None


@contextmanager
def _blamed(where: object) -> Iterator[None]:
    """Whatever is refused inside is the fault of this place."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _import_plugins(names: Sequence[str]) -> None:
    """Import the modules that register further defences; found beside the command, like a model of one's own."""
    for name in names:
        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        try:
            importlib.import_module(name)
        except Exception as error:
            what = f"importing {name} failed with {type(error).__name__}: {error}"
            raise InputError(f"plugins: {what} (run it from the folder that holds it)") from error


def _with_rows(protocol: Protocol, rows: Sequence[Row], beside: Path) -> Protocol:
    """The protocol with its rows, and with paths beside the config file; the edge-blind line is always there."""
    with _blamed("training"):
        check_training(protocol.training)
    check_sampling(protocol.asked)
    own: list[Row] = []
    for number, row in enumerate(rows):
        with _blamed(f"row[{number}]"):
            _check_row(row, protocol)
            if row.data and protocol.name not in row.data:
                continue
            for name in row.names:
                if any(name in other.names for other in own) or row.names.count(name) > 1:
                    raise InputError(f"name {name!r} is there twice (choose another)")
            own.append(row)
    if not any(row.edge_blind for row in own):
        own.insert(0, Row(defence=next(line.defence.name for line in baselines() if line.defence.edge_blind)))
    splits = None if protocol.splits is None else str(beside / protocol.splits)
    return protocol.model_copy(update={"rows": tuple(own), "splits": splits})


def _check_row(row: Row, protocol: Protocol) -> None:
    candidate = row.candidates[0]
    with _blamed("training"):
        check_training({**protocol.training, **row.training})
    check_sampling(row.asked, candidate)
    with _blamed("asked"):
        known = tuple(candidate.question({**protocol.asked, **row.asked}).other_readings)
    for key in row.readings:
        if key not in known:
            name = candidate.defence.name
            raise InputError(f"readings: {key} is no other certificate of {name} ({hint(key, known)})")


def _check_names(protocols: Sequence[Protocol], rows: Sequence[Row]) -> None:
    """Refuse a data set that is there twice, and rows for one that is not: they would be left out without a word."""
    names = [protocol.name for protocol in protocols]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise InputError(f"data[{number}].name {name!r} is there twice (merge the two tables)")
    for number, name in [(number, name) for number, row in enumerate(rows) for name in row.data]:
        if name not in names:
            raise InputError(f"row[{number}].data: there is no data set {name} ({hint(name, names)})")
