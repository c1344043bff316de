"""The config file of a benchmark: read, and refused with the file and the key before any work.

A key may stand at the top, for all data sets, and again in a ``[[data]]`` table, for one; the table ``training`` and the table
``certify`` are then merged key by key. Every ``[[row]]`` is a method: a defence with the settings among which validation graphs
choose.
"""

from __future__ import annotations

import re
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from flipproof.datasets.sources import DataSource
from flipproof.datasets.splits import FOLDS
from flipproof.errors import InputError
from flipproof.studies.candidate import Candidate, baselines, check_sampling, configured_candidates
from flipproof.studies.experiment import Experiment, check_training
from flipproof.studies.search_space import hint

Values = dict[str, Any]


Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]
Fold = Annotated[int, Field(ge=0, lt=FOLDS)]
Training = Annotated[Values, AfterValidator(check_training)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Row(_Table):
    """A method of the table: its keys in a config file (docs/benchmarks.md)."""

    defence: str
    name: Text = Field(default_factory=lambda values: values["defence"])
    settings: list[Values] = [{}]
    certify: Values = {}
    readings: dict[str, Text] = {}
    network: Values = {}
    training: Training = {}
    features: Text | None = None
    data: list[Text] = []

    @model_validator(mode="after")
    def _check(self) -> Row:
        check_sampling(self.certify, self.candidates[0])
        return self

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        return configured_candidates(self.defence, self.settings)

    @property
    def edge_blind(self) -> bool:
        return self.candidates[0].defence.edge_blind

    @property
    def names(self) -> list[str]:
        return [self.name, *self.readings.values()]


class _Shared(_Table):
    root: Text | None = None
    download: bool = False
    data_seed: Count = 0
    splits: Text | None = None
    folds: Annotated[list[Fold], Field(min_length=1)] = list(range(FOLDS))
    training: Training = {}
    certify: Annotated[Values, AfterValidator(check_sampling)] = {}
    features: Text | None = None
    validation_graphs: Positive | None = None
    attacked: Count = 0
    attack_budget: Positive = 3
    attack_calls: Positive = 10_000
    limit: bool = False


class Protocol(_Shared):
    """What is done with one data set: its keys in a config file (docs/benchmarks.md), and the methods."""

    name: Text
    rows: tuple[Row, ...] = ()

    @model_validator(mode="after")
    def _check_rows(self) -> Protocol:
        names: list[str] = []
        for row in self.rows:
            try:
                question = row.candidates[0].question({**self.certify, **row.certify})
            except InputError as error:
                raise InputError(f"row {row.name}: certify: {error}") from error
            for key in row.readings:
                if key not in question.other_readings:
                    known = hint(key, question.other_readings)
                    raise InputError(
                        f"row {row.name}: readings: {key} is no other certificate of {row.defence} ({known})"
                    )
            for name in row.names:
                if name in names:
                    raise InputError(f"row {row.name}: name {name!r} is there twice (choose another)")
                names.append(name)
        return self

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
            sampling={**self.certify, **row.certify},
            network=row.network,
            validation_graphs=self.validation_graphs,
            fold=fold,
            published=None if self.splits is None else Path(self.splits) / self.folds_file,
        )

    def stated_for(self, row: Row) -> Values:
        """What a result depends on beside the graphs, as plain JSON; where these are stored makes no difference."""
        alike = {"name", "root", "download", "splits", "folds", "limit", "rows"}
        return {**self.model_dump(exclude=alike), "row": row.model_dump(exclude={"data"})}


class _File(_Shared):
    row: Annotated[list[Row], Field(min_length=1)]
    data: Annotated[list[Values], Field(min_length=1)]


def read_protocols(path: Path, *, root: str | None = None) -> list[Protocol]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no config file {path} (give the path of a TOML file)") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, IsADirectoryError) as error:
        raise InputError(f"{path} is not a TOML file: {error} (compare benchmarks/full.toml)") from error
    try:
        return _protocols(content, path.parent, {} if root is None else {"root": root})
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _protocols(content: Values, folder: Path, overriding: Values) -> list[Protocol]:
    file, protocols = _validated(_File, content, ""), list[Protocol]()
    shared = {key: value for key, value in content.items() if key in _Shared.model_fields}
    for number, table in enumerate(file.data):
        rows = [row for row in file.row if not row.data or table.get("name") in row.data]
        if not any(row.edge_blind for row in rows):  # the line to beat is always there
            rows.insert(0, Row(defence=next(one.defence.name for one in baselines() if one.defence.edge_blind)))
        merged = {**shared, **table, **overriding, "rows": tuple(rows)}
        for key in ("training", "certify"):
            if isinstance(table.get(key), dict):
                merged[key] = {**shared.get(key, {}), **table[key]}
        protocol = _validated(Protocol, merged, f"data[{number}]")
        if protocol.name in [other.name for other in protocols]:
            raise InputError(f"data[{number}].name {protocol.name!r} is there twice (merge the two tables)")
        splits = protocol.splits and str(folder / protocol.splits)
        protocols.append(protocol.model_copy(update={"splits": splits}))
    names = [protocol.name for protocol in protocols]
    for number, name in [(number, name) for number, row in enumerate(file.row) for name in row.data]:
        if name not in names:  # it would be left out without a word
            raise InputError(f"row[{number}].data: there is no data set {name} ({hint(name, names)})")
    return protocols


Model = TypeVar("Model", bound=BaseModel)


def _validated(model: type[Model], content: Values, where: str) -> Model:
    """The content of a table, or one sentence about its first mistake."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        mistake = error.errors()[0]
        inside = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in mistake["loc"]]
        key = "".join([where, *inside]).removeprefix(".")
        refused = mistake.get("ctx", {}).get("error")
        if isinstance(refused, InputError):
            raise InputError(f"{key}: {refused}") from None
        if mistake["type"] == "extra_forbidden":
            known = Row.model_fields if mistake["loc"][0] == "row" else model.model_fields
            raise InputError(f"{key} is not a key of a benchmark ({hint(str(mistake['loc'][-1]), known)})") from None
        if mistake["type"] == "missing":
            raise InputError(f"{key} is needed, and not there (compare benchmarks/full.toml)") from None
        expected = re.sub(r"^(Value error, |\w+ should )| after validation, not \d+$", "", mistake["msg"])
        raise InputError(f"{key} must {expected.removeprefix('must ')}; got {mistake['input']!r}") from None
