"""The config file of a benchmark: read, and refused with the file and the key before any work.

Every key may stand at the top, for all data sets, and again in a ``[[data]]`` table, for one; tables named ``training`` and
``networks`` are then merged key by key. The name of every registered defence is a key: a list of what it is tried with.
"""

from __future__ import annotations

import difflib
import inspect
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from flipproof.certificates.bounds import checked_alpha
from flipproof.certificates.methods import DEFAULT_METHOD, checked_method
from flipproof.checks import checked_seed
from flipproof.datasets.sources import DataSource
from flipproof.errors import InputError
from flipproof.studies.candidate import Candidate, compared_defences

__all__ = ["Network", "Plan", "checked_training", "parse_config", "read_config", "trainable_networks"]


@dataclass(frozen=True)
class Network:
    """A network to be trained: its name, its constructor's arguments, and how it is trained."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """What is done with one data set.

    Attributes:
        name: For tables.
        source: Where the graphs come from, and the shares of the split; its split seed is not used.
        networks: The networks to train.
        candidates: The defences to train them for.
        asked: What is asked about every graph, by name; a defence takes what its question knows.
        methods: Certificates read from the same evidence beside the one asked for.
        splits: Seeds of the splits.
        features: Node features, as for ``flipproof train``; ``None`` for the graphs' own, or the degree if they have none.
        train_graphs: Train on only so many graphs, with every class in proportion.
        test_graphs: Certify only so many graphs, with every class in proportion.
        choose_epoch: Keep the epoch with the smallest loss on the validation part; otherwise there need not be one.
        budgets: Attacks of (additions, removals) for which it is noted who withstands them.
        part: ``test`` to measure, ``validation`` to choose.
    """

    name: str
    source: DataSource
    networks: tuple[Network, ...]
    candidates: tuple[Candidate, ...]
    asked: Mapping[str, Any] = field(default_factory=dict)
    methods: tuple[str, ...] = ()
    splits: tuple[int, ...] = (0,)
    features: str | None = None
    train_graphs: int | None = None
    test_graphs: int | None = None
    choose_epoch: bool = False
    budgets: tuple[tuple[int, int], ...] = ()
    part: str = "test"

    def to_dict(self) -> dict[str, Any]:
        """What is asked for as plain JSON; where the graphs are stored makes no difference."""
        plain = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        del plain["source"]
        return plain | {
            "networks": {n.name: {"arguments": dict(n.arguments), **n.training} for n in self.networks},
            "candidates": [candidate.title for candidate in self.candidates],
            "asked": dict(self.asked),
            "data_seed": self.source.seed,
            "shares": [self.source.test, self.source.validation],
        }


def read_config(path: Path, *, root: str | None = None) -> list[Plan]:
    """The plans of a config file, one per data set; ``root`` overrides the file's."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no config file {path} (give the path of a TOML file)") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, IsADirectoryError) as error:
        raise InputError(f"{path} is not a TOML file: {error} (compare benchmarks/real.toml)") from error
    return parse_config(content, str(path), root=root)


def parse_config(content: Mapping[str, Any], file: str, *, root: str | None = None) -> list[Plan]:
    """The plans that a config's content describes; ``file`` is named in complaints."""
    common = {key: value for key, value in content.items() if key != "data"}
    tables = content.get("data")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"{file}: data must be one [[data]] table per data set; got {tables!r} (add one with a name)")
    _Reader(common, file, "").refuse_unknown()
    plans: list[Plan] = []
    for number, table in enumerate(tables):
        where = f"data[{number}]."
        _Reader(table, file, where).refuse_unknown(also=("name",))
        plan = _plan(_Reader(_merged(common, table), file, where), root)
        if any(plan.name == other.name for other in plans):
            raise InputError(f"{file}: {where}name {plan.name!r} is there twice (merge the two tables)")
        plans.append(plan)
    return plans


def _merged(common: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**common, **table}
    for key in common.keys() & table.keys():
        if isinstance(common[key], dict) and isinstance(table[key], dict):
            merged[key] = _merged(common[key], table[key])
    return merged


class _Reader:
    """A table of the config: typed values, and complaints that name file and key."""

    def __init__(self, table: Mapping[str, Any], file: str, where: str) -> None:
        self.table, self.file, self.where = table, file, where

    def refuse_unknown(self, *, also: tuple[str, ...] = ()) -> None:
        """Refuse keys that nothing reads."""
        for key in self.table:
            if key not in (known := (*_KEYS, *(defence.name for defence in compared_defences()), *also)):
                raise InputError(f"{self.file}: {self.where}{key} is not a key of a benchmark ({_hint(key, known)})")

    def complain(self, key: str, expected: str) -> InputError:
        """The sentence for a value that does not fit."""
        return InputError(f"{self.file}: {self.where}{key} must be {expected}; got {self.table.get(key)!r}")

    @contextmanager
    def blamed(self, key: str) -> Iterator[None]:
        """Whatever is refused inside is this key's fault."""
        try:
            yield
        except InputError as error:
            raise InputError(f"{self.file}: {self.where}{key}: {error}") from error

    def value(self, key: str, default: Any, fits: Callable[[Any], bool], expected: str) -> Any:
        """The value, if it fits; the default needs no check."""
        if key in self.table and not fits(self.table[key]):
            raise self.complain(key, expected)
        return self.table.get(key, default)

    def text(self, key: str) -> str | None:
        found: str | None = self.value(key, None, lambda value: isinstance(value, str) and bool(value), "a text")
        return found

    def whole(self, key: str, default: Any, *, least: int = 0) -> Any:
        return self.value(key, default, lambda v: _whole(v) and v >= least, f"a whole number of at least {least}")

    def share(self, key: str, default: float, *, zero: bool) -> float:
        expected = "a share of the graphs, at least 0 and below 1" if zero else "a share in (0, 1)"
        return float(self.value(key, default, lambda v: _number(v) and 0 <= v < 1 and (v > 0 or zero), expected))

    def truth(self, key: str) -> bool:
        return bool(self.value(key, False, lambda value: isinstance(value, bool), "true or false"))

    def inner(self, key: str) -> dict[str, Any]:
        return dict(self.value(key, {}, lambda value: isinstance(value, dict), f"a table [{key}]"))

    def several(self, key: str, fits: Callable[[Any], bool], expected: str, default: Sequence[Any] = ()) -> list[Any]:
        """A list without repetitions."""

        def all_fit(found: Any) -> bool:
            return isinstance(found, list) and all(fits(v) and v not in found[:i] for i, v in enumerate(found))

        return list(self.value(key, default, all_fit, f"a list of {expected}, none of them twice"))


_DATA = ("root", "download", "data_seed", "features", "train_graphs", "test", "validation", "test_graphs", "splits")
_TRAINING = ("models", "networks", "training", "choose_epoch")
_KEYS = (*_DATA, *_TRAINING, "samples", "alpha", "methods", "seed", "budgets")


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_whole, value))


def _plan(reader: _Reader, root: str | None) -> Plan:
    name = reader.text("name")
    if name is None:
        raise reader.complain("name", "topologies, a TU name or a folder of graphs")
    choose_epoch = reader.truth("choose_epoch")
    validation = reader.share("validation", 0.1 if choose_epoch else 0.0, zero=True)
    if choose_epoch and not validation:
        raise reader.complain("validation", "above 0, since choose_epoch asks for validation graphs")
    source = DataSource(
        name,
        reader.text("root") if root is None else root,
        reader.truth("download"),
        reader.whole("data_seed", 0),
        test=reader.share("test", 0.2, zero=False),
        validation=validation,
    )
    asked, methods = _asked(reader)
    return Plan(
        name=name,
        source=source,
        networks=_networks(reader),
        candidates=_candidates(reader),
        asked=asked,
        methods=methods,
        splits=_splits(reader),
        features=_features(reader),
        train_graphs=reader.whole("train_graphs", None, least=1),
        test_graphs=reader.whole("test_graphs", None, least=1),
        choose_epoch=choose_epoch,
        budgets=tuple((adds, removes) for adds, removes in reader.several("budgets", _pair, "[additions, removals]")),
    )


def _splits(reader: _Reader) -> tuple[int, ...]:
    given = reader.table.get("splits", 3)
    if isinstance(given, int) and not isinstance(given, bool):
        return tuple(range(reader.whole("splits", 3, least=1)))
    seeds = reader.several("splits", _whole, "seeds (or a number of splits)")
    if not seeds:
        raise reader.complain("splits", "a number of splits of at least 1, or a list of seeds")
    return tuple(seeds)


def _features(reader: _Reader) -> str | None:
    features = reader.text("features")
    if features is not None:
        from flipproof.classifiers.features import as_features

        with reader.blamed("features"):
            as_features(features)
    return features


def _asked(reader: _Reader) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What is asked about every graph, with the first of the methods; and the other methods."""
    methods = reader.several("methods", lambda value: isinstance(value, str), "certificates", [DEFAULT_METHOD])
    if not methods:
        raise reader.complain("methods", "at least one certificate")
    asked = {"samples": reader.whole("samples", 2_000, least=1), "alpha": reader.table.get("alpha", 0.001)}
    asked |= {"method": methods[0], "seed": reader.whole("seed", 0)}
    checks: list[tuple[str, Callable[[Any], Any], list[Any]]] = [
        ("alpha", checked_alpha, [asked["alpha"]]),
        ("seed", checked_seed, [asked["seed"]]),
    ]
    for key, check, values in [*checks, ("methods", checked_method, methods)]:
        with reader.blamed(key):
            for value in values:
                check(value)
    return asked, tuple(methods[1:])


def _candidates(reader: _Reader) -> tuple[Candidate, ...]:
    found: dict[str, Candidate] = {}
    for defence in compared_defences():
        for value in reader.several(defence.name, lambda value: True, "settings"):
            with reader.blamed(defence.name):
                candidate = Candidate(defence, defence.entry(value))
            if found.setdefault(candidate.title, candidate) is not candidate:
                raise reader.complain(defence.name, "a list of settings, none of them twice")
    if not found:
        names = ", ".join(defence.name for defence in compared_defences())
        raise InputError(f"{reader.file}: {reader.where}name has no defence to compare (add one of {names})")
    return tuple(found.values())


def trainable_networks() -> list[str]:
    """Names of the networks that are trained for a defence; the edge-blind line is there anyway."""
    from flipproof import models

    return [name for name in models.NAMES if name != models.EdgeBlind.name]


def _networks(reader: _Reader) -> tuple[Network, ...]:
    from flipproof import models

    known = trainable_networks()
    expected = f"networks among {', '.join(known)} (the edge-blind line is always there)"
    names = reader.several("models", lambda value: value in known, expected, ["gin"])
    if not names:
        raise reader.complain("models", "at least one network")
    training, networks = reader.inner("training"), reader.inner("networks")
    with reader.blamed("training"):
        checked_training(training)
    for name, table in networks.items():
        if name not in known:
            raise reader.complain("networks", f"about the networks {', '.join(known)}; {name} is none of them")
        if not isinstance(table, dict) or not isinstance(table.get("training", {}), dict):
            raise reader.complain("networks", f"tables, one per network; networks.{name} is none")
    found = []
    for name in names:
        arguments = dict(networks.get(name, {}))
        own = {**training, **arguments.pop("training", {})}
        with reader.blamed(f"networks.{name}"):
            models.build({"name": name, "in_features": 1, "num_classes": 2, **arguments})
            checked_training(own)
        found.append(Network(name, arguments, own))
    return tuple(found)


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
    Hyperparameters(**{**known, **table, "seed": 0})


def _hint(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, list(known), n=1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}"
