"""What a run was asked for: frozen dataclasses, written to and read from ``run.json`` here and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar, Self

from flipproof.defences import defence_class, defence_from
from flipproof.defences.defence import Defence
from flipproof.errors import InputError
from flipproof.fields import from_plain
from flipproof.files import write_json

RUN_FILE = "run.json"
_FORMAT = 3
_SHOWN = 160  # characters of a value in a sentence
_RECORDED = ("flipproof", "numpy", "scipy", "torch")


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run; every field is plain JSON."""

    command: ClassVar[str]

    def write(self, folder: Path) -> None:
        """Write ``run.json``, or refuse a folder in which something else was asked."""
        path, wanted = folder / RUN_FILE, self._plain()
        if path.exists():
            found = type(self).read(folder)
            self.refuse_other(folder, found)
            if found._plain() == wanted:
                return
        write_json(path, {"format": _FORMAT, "command": self.command, "settings": wanted, "versions": _versions()})

    def refuse_other(self, folder: Path, found: Self) -> None:
        """Refuse a run in which something else was asked."""
        if self.continues(found):
            return
        for key, mine, theirs in differences(self._plain(), found._plain()):
            raise InputError(
                f"{folder} holds a run with {key} = {_short(theirs)}; asked for {key} = {_short(mine)} (choose another "
                "folder, or ask for the same)"
            )

    def continues(self, found: Self) -> bool:
        """Whether a run with these settings may go on where one with those ended."""
        return self._plain() == found._plain()

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The settings of a run that is there already; refuses runs of other commands and of earlier versions."""
        path = folder / RUN_FILE
        if not path.is_file():
            what = f"it has no {RUN_FILE}" if folder.is_dir() else "there is no such folder"
            raise InputError(f"{folder} is not a run folder: {what} (give the --out of flipproof {cls.command})")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"{path} cannot be read as a run's settings: {error} (choose another folder, or delete it)"
            ) from error
        return cls.parsed(text, path)

    @classmethod
    def parsed(cls, text: str, path: Path) -> Self:
        """The settings that the content of ``run.json`` holds; ``path`` is where it stands, for errors."""
        folder = path.parent
        try:
            content = json.loads(text)
            if not isinstance(content, dict) or not isinstance(content["settings"], dict):
                raise ValueError("it holds no settings")
        except (ValueError, KeyError, RecursionError) as error:
            raise InputError(
                f"{path} cannot be read as a run's settings: {error} (choose another folder, or delete it)"
            ) from error
        if content.get("format") != _FORMAT:
            raise InputError(
                f"{folder} holds a run of another version of flipproof (use that version, or choose another folder)"
            )
        if content.get("command") != cls.command:
            raise InputError(f"{folder} was not made by flipproof {cls.command} (give such a run)")
        settings, known = content["settings"], {entry.name for entry in fields(cls)}
        if settings.keys() != known:
            odd = sorted(settings.keys() ^ known)[0]
            raise InputError(
                f"{path} has other settings than flipproof {cls.command} writes: {odd} (make the run again)"
            )
        return cls(**settings)

    def _plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain


@dataclass(frozen=True)
class CertifySettings(RunSettings):
    """What ``flipproof certify`` was asked for.

    Attributes:
        data, data_sha256: Name and hash of the data set.
        class_names: Names of its classes.
        part, split_seed: Which graphs of which split.
        graphs: Their positions in the data set.
        graphs_seed: The seed that drew them from the part, every class in proportion; ``None`` if they are all of it.
        model, model_sha256: Name and identity of the model.
        features: Node features that the model is shown; of the default, what it comes to on these graphs.
        num_classes: Number of classes that the model can name.
        defence: Its name and settings.
        question: What is asked about every graph: the defence's request.
        paths: How graphs reach the model, and how many at once, with the number of graphs: rounding can depend on it.
    """

    command = "certify"

    data: str
    data_sha256: str
    class_names: list[str]
    part: str
    split_seed: int
    graphs: list[int]
    model: str
    model_sha256: str
    features: str
    num_classes: int
    defence: dict[str, Any]
    question: dict[str, Any]
    paths: dict[str, int] = field(default_factory=dict)
    graphs_seed: int | None = None

    @property
    def defence_class(self) -> type[Defence]:
        """The defence."""
        return defence_class(self.defence["name"])

    @cached_property
    def defence_object(self) -> Defence:
        """The defence with its settings."""
        return defence_from(self.defence)

    def request(self) -> Any:
        """What is asked about every graph, as its defence reads it."""
        return from_plain(self.defence_class.request, {**self.question, "graphs": len(self.graphs)})


@dataclass(frozen=True)
class AttackSettings(RunSettings):
    """What ``flipproof attack`` was asked for; ``defence`` is its name and settings, or ``None``."""

    command = "attack"

    data: str
    data_sha256: str
    graphs: list[int]
    model_sha256: str
    undefended_sha256: str | None
    defence: dict[str, Any] | None
    features: str
    budget: int
    attacks: list[str]
    constraints: dict[str, Any]
    samples: int
    confirm_samples: int
    alpha: float
    seed: int
    graphs_seed: int | None = None

    def belongs_to(self, certified: CertifySettings) -> bool:
        """Whether model, data, features and defence are those of a run of certificates."""
        return self.difference(certified) is None

    def difference(self, certified: CertifySettings) -> str | None:
        """What a run of certificates has otherwise, in words; ``None`` if it is of the same classifier."""
        words = {"data_sha256": "other data", "model_sha256": "another model", "features": "other node features"}
        words |= {"defence": "another defence"}
        return next((word for key, word in words.items() if getattr(self, key) != getattr(certified, key)), None)


@dataclass(frozen=True)
class StudySettings(RunSettings):
    """What a study was asked for: ``reproduce``, ``tune`` or ``benchmark``.

    Attributes:
        study: Its name.
        asked: What identifies it.
        jobs: Its jobs by name, each with a hash of everything that its result depends on. Jobs may be added later.
    """

    command = "study"

    study: str
    asked: dict[str, Any]
    jobs: dict[str, str] = field(default_factory=dict)

    def continues(self, found: Self) -> bool:
        """Whether nothing has changed, or only jobs were added."""
        grown = bool(found.jobs) and found.study == self.study and found.jobs.items() <= self.jobs.items()
        return grown or super().continues(found)


def differences(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Name, wanted and found value of all that differs; tables that have keys in common are compared value by value."""
    for key in [*wanted, *(found.keys() - wanted.keys())]:
        mine, theirs = wanted.get(key), found.get(key)
        if isinstance(mine, dict) and isinstance(theirs, dict) and mine.keys() & theirs.keys():
            yield from (
                (("defence" if inner == "name" else inner), *values) for inner, *values in differences(mine, theirs)
            )
        elif mine != theirs:
            yield key, mine, theirs


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in _RECORDED:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
        found.setdefault(package, None)
    return found
