"""The run folder: ``run.json`` beside the evidence. Everything else in it is derived and can be made again.

RUN/run.json              what was asked; written first, and written and read nowhere but here
RUN/evidence.sqlite       a row per finished graph, or block of samples of a huge one, committed as it is done; the line to beat
RUN/certificates.parquet, RUN/report.html, RUN/figures/   derived

Only the process that the user started writes, and it holds the file for itself: a second process is refused. Transactions make
the file safe against kills at any point; what is under way is lost, what is committed stays. An *item* is a graph by its number
in the data set, or a job of a study by its name.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from flipproof.defences import defence_class, defence_from
from flipproof.defences.defence import Defence
from flipproof.errors import InputError
from flipproof.fields import from_plain
from flipproof.files import write_json

RUN_FILE = "run.json"
STORE_FILE = "evidence.sqlite"
_FORMAT = 3
_SHOWN = 160  # characters of a value in a sentence
_RECORDED = ("flipproof", "numpy", "scipy", "torch")
_OPEN = (
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "BEGIN EXCLUSIVE",
    "CREATE TABLE IF NOT EXISTS finished (item PRIMARY KEY, content BLOB, sha256 TEXT)",
    "CREATE TABLE IF NOT EXISTS asked (run_json TEXT)",
    "COMMIT",
)
_Item = int | str


@dataclass(frozen=True)
class RunSettings:
    """What a run was asked for; every field is plain JSON."""

    command: ClassVar[str]

    def write(self, folder: Path) -> None:
        path = folder / RUN_FILE
        if path.exists():
            self.refuse_other(folder, other := type(self).read(folder))
            if other == self:
                return
        versions = dict.fromkeys(_RECORDED)
        for package in _RECORDED:
            with suppress(PackageNotFoundError):
                versions[package] = version(package)
        content = {"format": _FORMAT, "command": self.command, "settings": self._plain(), "versions": versions}
        write_json(path, content)

    def refuse_other(self, folder: Path, other: Self) -> None:
        for key, mine, theirs in differences(self._plain(), other._plain()):
            raise InputError(
                f"{folder} holds a run with {key} = {_short(theirs)}; asked for {key} = {_short(mine)} (choose another "
                "folder, or ask for the same)"
            )

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The settings of a run that is there already; refuses runs of other commands and of earlier versions."""
        path = folder / RUN_FILE
        if not path.is_file():
            reason = f"it has no {RUN_FILE}" if folder.is_dir() else "there is no such folder"
            raise InputError(f"{folder} is not a run folder: {reason} (give the --out of flipproof {cls.command})")
        return cls.parsed(path.read_bytes(), path)

    @classmethod
    def parsed(cls, text: str | bytes, path: Path) -> Self:
        """The settings that the content of ``run.json`` holds; ``path`` is where it stands, for errors."""
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
                f"{path.parent} holds a run of another version of flipproof (use that version, or choose another folder)"
            )
        if content.get("command") != cls.command:
            raise InputError(
                f"{path.parent} was not made by flipproof {cls.command}, but by {content.get('command')} (give such a run)"
            )
        settings: dict[str, Any] = content["settings"]
        if odd := sorted(settings.keys() ^ {entry.name for entry in fields(cls)}):
            raise InputError(
                f"{path} has other settings than flipproof {cls.command} writes: {odd[0]} (make the run again)"
            )
        return cls(**settings)

    def _plain(self) -> dict[str, Any]:
        return dict(json.loads(json.dumps(asdict(self))))


@dataclass(frozen=True)
class CertifySettings(RunSettings):
    command = "certify"

    data: str
    data_sha256: str
    class_names: list[str]
    part: str
    split_seed: int
    graphs: list[int]  # positions in the data set; of nodes their numbers
    model: str
    model_sha256: str
    features: str  # node features that the model is shown; of the default, what it comes to on these graphs
    num_classes: int
    defence: dict[str, Any]  # name and settings
    question: dict[str, Any]  # what is asked about every graph: the defence's request
    paths: dict[str, int] = field(default_factory=dict)  # how graphs reach the model: rounding can depend on it
    graphs_seed: int | None = None  # that drew the graphs from the part, if they are not all of it

    @property
    def defence_class(self) -> type[Defence]:
        return defence_class(self.defence["name"])

    @cached_property
    def defence_object(self) -> Defence:
        return defence_from(self.defence)

    @property
    def task(self) -> str:
        """What is certified: graphs, or the nodes of one graph, which share one item of evidence."""
        return self.defence_class.evidence.task

    @property
    def noun(self) -> str:
        return self.task.removesuffix("s")

    @property
    def items(self) -> list[int]:
        return self.graphs if self.task == "graphs" else [0]

    def request(self) -> Any:
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

    def difference(self, certified: CertifySettings) -> str | None:
        """What a run of certificates has otherwise, in words; ``None`` if it is of the same classifier."""
        words = {"data_sha256": "other data", "model_sha256": "another model", "features": "other node features"}
        words |= {"defence": "another defence"}
        return next((word for key, word in words.items() if getattr(self, key) != getattr(certified, key)), None)


@dataclass(frozen=True)
class StudySettings(RunSettings):
    """What a study was asked for: its name, what identifies it, and its jobs, each with a hash of what its result depends on."""

    command = "study"

    study: str
    asked: dict[str, Any]
    jobs: dict[str, str] = field(default_factory=dict)

    def refuse_other(self, folder: Path, other: Self) -> None:
        """As for any run, but jobs may be added."""
        if not (other.jobs and other.study == self.study and other.jobs.items() <= self.jobs.items()):
            super().refuse_other(folder, other)


def differences(wanted: Mapping[str, Any], stored: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Name, wanted and stored value of all that differs; tables that have keys in common are compared value by value."""
    for key in [*wanted, *(stored.keys() - wanted.keys())]:
        mine, theirs = wanted.get(key), stored.get(key)
        if isinstance(mine, dict) and isinstance(theirs, dict) and mine.keys() & theirs.keys():
            for inner, *values in differences(mine, theirs):
                yield "defence" if inner == "name" else inner, *values
        elif mine != theirs:
            yield key, mine, theirs


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


class Store:
    """The SQLite file of a run, held for this process if it is to be written, otherwise only read."""

    def __init__(self, path: Path, *, write: bool) -> None:
        self.path, self._write = path, write
        if not write and not path.is_file():
            raise InputError(f"{path} is missing: nothing of the run is finished (run its command again)")
        with self._in_words():
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=0.2)
            try:
                for statement in _OPEN if write else ("SELECT item FROM finished LIMIT 1",):
                    self._connection.execute(statement)
            except sqlite3.Error:
                self._connection.close()
                raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        """Let go of the file; it is then a plain database that any tool can open."""
        with suppress(sqlite3.Error):  # a full disk; the next process folds the journal in
            if self._write:
                self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def finish(self, item: _Item, content: bytes) -> None:
        self._do("INSERT OR REPLACE INTO finished VALUES (?, ?, ?)", item, content, hashlib.sha256(content).hexdigest())

    def drop(self, item: _Item) -> None:
        self._do("DELETE FROM finished WHERE item = ?", item)

    def made_with(self) -> str | None:
        """The settings that the evidence was made with, as they were first written; ``None`` if none were."""
        return next((text for (text,) in self._do("SELECT run_json FROM asked")), None)

    def bind(self, run_json: str) -> None:
        """Remember the settings that the evidence is made with, once."""
        self._do("INSERT INTO asked SELECT ? WHERE NOT EXISTS (SELECT * FROM asked)", run_json)

    def finished(self) -> set[Any]:
        return {item for (item,) in self._do("SELECT item FROM finished")}

    def load(self, item: _Item) -> bytes:
        """What a finished item amounts to; refuses a damaged one."""
        rows, name = self._do("SELECT content, sha256 FROM finished WHERE item = ?", item), f"graph {item}"
        name = name if isinstance(item, int) else item
        if not rows:
            raise InputError(f"{self.path} holds nothing of {name} (run the same command again)")
        content, digest = rows[0]
        if not isinstance(content, bytes) or hashlib.sha256(content).hexdigest() != digest:
            raise InputError(f"what {self.path} holds of {name} was altered: its hash is not the stored one")
        return content

    def _do(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """A statement, done whole or not at all, and its rows."""
        with self._in_words():
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            text = str(error)
            if "locked" in text:
                raise InputError(
                    f"{self.path.parent} is in use by another process (wait until it has finished, or choose another folder)"
                ) from error
            if "full" in text or "disk I/O" in text:
                raise OSError(errno.ENOSPC, "no space left on the disk", str(self.path)) from error
            raise InputError(
                f"{self.path} cannot be used: {text} (move it away and run the same command again)"
            ) from error


_Settings = TypeVar("_Settings", bound=RunSettings)


@dataclass(eq=False)
class Run(Generic[_Settings]):
    """A run folder that is held, or read, by this process."""

    folder: Path
    settings: _Settings
    store: Store
    whole: Any = None  # the evidence that all nodes share, once it is read


@contextmanager
def written_run(folder: str | os.PathLike[str], settings: _Settings) -> Iterator[Run[_Settings]]:
    """Begin or continue a run, held for this process; refuses a folder of other files, and a run with other settings."""
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise InputError(f"--out must be a folder; {path} is a file (choose another name)")
    if (path / RUN_FILE).exists():
        settings.refuse_other(path, type(settings).read(path))  # even while another process is writing
    # what a process that was killed before it wrote run.json left is not somebody else's
    elif path.is_dir() and any(not f.name.startswith(STORE_FILE) and f.suffix != ".tmp" for f in path.iterdir()):
        raise InputError(f"{path} holds files but no run.json: it is not a run folder (choose an empty or new folder)")
    path.mkdir(parents=True, exist_ok=True)
    with Store(path / STORE_FILE, write=True) as store:
        made_with = store.made_with()
        if made_with is not None:  # evidence outlives a run.json that was deleted, and knows one that was edited
            settings.refuse_other(path, type(settings).parsed(made_with, store.path))
        settings.write(path)
        store.bind((path / RUN_FILE).read_text(encoding="utf-8"))
        for left in path.glob(".*.tmp"):  # of a process that was killed
            left.unlink(missing_ok=True)
        yield Run(path, settings, store)


@contextmanager
def open_run(folder: str | os.PathLike[str], kind: type[_Settings]) -> Iterator[Run[_Settings]]:
    path = Path(folder)
    settings = kind.read(path)
    with Store(path / STORE_FILE, write=False) as store:
        yield Run(path, settings, store)
