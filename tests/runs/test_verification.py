"""Nothing in run.json or in the table can be altered without verify telling of it, whatever the defence."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

import flipproof as fp
from flipproof.models import GIN, EdgeBlind, Local
from flipproof.runs.saved_run import problems_of_run
from flipproof.runs.table import COLUMNS, TABLE_FILE, read_table

GRAPHS = [fp.Graph(6, [(0, 1), (1, 2), (2, 3)][:size], label=size % 2, name=f"{size}") for size in (1, 2, 3)]


def network(kind: type[Any] = GIN) -> Any:
    return kind(in_features=1, num_classes=2, seed=0).eval()


DEFENCES: dict[str, tuple[Any, dict[str, Any]]] = {
    "smoothing": (
        lambda: fp.SmoothedClassifier(network(), fp.EdgeNoise(keep=0.8), features="degree"),
        {"samples": 100},
    ),
    "priced votes": (lambda: fp.VotingClassifier(network(), 3, features="degree"), {"depth": 1}),
    "local": (lambda: fp.LocalClassifier(Local(in_features=0, num_classes=2, seed=0).eval()), {"per_node": 2}),
    "edge-blind": (lambda: fp.EdgeBlindClassifier(EdgeBlind(network()).eval(), features="constant"), {}),
}


def altered(value: Any) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case [first, *rest]:
            return [altered(first), *rest]
        case {}:
            key = next(iter(value), "more")
            return {**value, key: altered(value.get(key))}
        case []:
            return [1]
    return 1


def keys_of(content: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for key, value in content.items():
        yield (key,)
        if isinstance(value, dict):
            yield from ((key, *rest) for rest in keys_of(value))


def told(folder: Path) -> bool:
    """Whether verify finds something wrong with the run, or refuses to read it."""
    try:
        return bool(problems_of_run(folder))
    except fp.InputError:
        return True


@pytest.mark.parametrize("name", DEFENCES)
def test_whatever_is_altered_is_told_of(name: str, tmp_path: Path) -> None:
    make, asked = DEFENCES[name]
    folder = tmp_path / "run"
    fp.certify_run(make(), GRAPHS, out=folder, **asked)
    assert problems_of_run(folder) == []
    content = json.loads((folder / "run.json").read_text())
    for key in keys_of(content):
        changed = copy.deepcopy(content)
        place = changed
        for part in key[:-1]:
            place = place[part]
        place[key[-1]] = altered(place[key[-1]])
        (folder / "run.json").write_text(json.dumps(changed))
        assert told(folder), key
    (folder / "run.json").write_text(json.dumps(content))
    schema, rows = parquet.read_schema(folder / TABLE_FILE), read_table(folder)
    tables = {column: [{**rows[0], column: altered(rows[0][column])}, *rows[1:]] for column in COLUMNS}
    tables |= {
        "a better row before the true one": [{**rows[0], "radius": 15}, *rows],
        "a row twice": [*rows, rows[0]],
        "a row too few": rows[1:],
        "a row too many": [*rows, {**rows[0], "graph": 9}],
        "another order": rows[::-1],
    }
    for what, changed_rows in tables.items():
        parquet.write_table(pyarrow.Table.from_pylist(changed_rows, schema=schema), folder / TABLE_FILE)
        assert told(folder), what
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), folder / TABLE_FILE)
    assert problems_of_run(folder) == []
