"""The run folder: ``run.json`` beside the evidence. Everything else in it is derived and can be made again.

RUN/run.json              what was asked; written first
RUN/evidence.sqlite       a row per finished graph, committed as it is done, and the line to beat
RUN/certificates.parquet, RUN/report.html, RUN/figures/   derived

Only the process that the user started writes, and it holds the file for itself: a second process is refused. Transactions make
the file safe against kills at any point; what is under way is lost, what is committed stays. An *item* is a graph by its number
in the data set, or a job of a study by its name.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

from flipproof.errors import InputError
from flipproof.runs.settings import RUN_FILE, RunSettings

STORE_FILE = "evidence.sqlite"
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
_Found = TypeVar("_Found")


class Store:
    """The SQLite file of a run.

    Args:
        path: The file; made if it does not exist and is to be written.
        write: Hold the file for this process and write to it; otherwise it is only read.
    """

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; it is then a plain database that any tool can open."""
        try:
            if self._write:
                self._connection.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error:  # a full disk; the next process folds the journal in
            pass
        finally:
            self._connection.close()

    def finish(self, item: _Item, content: bytes) -> None:
        """Keep what a finished item amounts to."""
        self._change("INSERT OR REPLACE INTO finished VALUES (?, ?, ?)", item, content, _digest(content))

    def drop(self, item: _Item) -> None:
        """Forget a finished item, so that it is done again."""
        self._change("DELETE FROM finished WHERE item = ?", item)

    def clear(self) -> None:
        """Forget all graphs, and the settings that their evidence was made with."""
        self._change("DELETE FROM finished WHERE typeof(item) = 'integer'", also="DELETE FROM asked")

    def asked(self) -> str | None:
        """The settings that the evidence was made with, as they were first written; ``None`` if none were."""
        rows = list(self._read("SELECT run_json FROM asked"))
        return rows[0][0] if rows else None

    def bind(self, run_json: str) -> None:
        """Remember the settings that the evidence is made with, once."""
        if self.asked() is None:
            self._change("INSERT INTO asked VALUES (?)", run_json)

    def finished(self) -> set[Any]:
        """All finished items."""
        return {item for (item,) in self._read("SELECT item FROM finished")}

    def load(self, item: _Item) -> bytes:
        """What a finished item amounts to; refuses a damaged one."""
        rows = list(self._read("SELECT content, sha256 FROM finished WHERE item = ?", item))
        if not rows:
            raise InputError(f"{self.path} holds nothing of {_named(item)} (run the same command again)")
        content: bytes = rows[0][0]
        if not isinstance(content, bytes) or _digest(content) != rows[0][1]:
            raise InputError(f"what {self.path} holds of {_named(item)} was altered: its hash is not the stored one")
        return content

    def _change(self, statement: str, *values: Any, also: str = "") -> None:
        with self._in_words():
            self._connection.execute("BEGIN")
            try:
                self._connection.execute(statement, values)
                if also:
                    self._connection.execute(also)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _read(self, query: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        with self._in_words():
            yield from self._connection.execute(query, values).fetchall()

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


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _named(item: _Item) -> str:
    return f"graph {item}" if isinstance(item, int) else str(item)


_Settings = TypeVar("_Settings", bound=RunSettings)


class Run(Generic[_Settings]):
    """A run folder that is held, or read, by this process."""

    def __init__(self, folder: Path, settings: _Settings, store: Store) -> None:
        self.folder, self.settings, self.store = folder, settings, store

    def begin_again(self, settings: _Settings) -> None:
        """Forget all evidence, and record other settings with which it is made from now on."""
        self.store.clear()  # first: evidence without settings is asked again, and not taken for that of others
        (self.folder / RUN_FILE).unlink()
        settings.write(self.folder)
        self.store.bind((self.folder / RUN_FILE).read_text(encoding="utf-8"))
        self.settings = settings


@contextmanager
def written_run(folder: str | os.PathLike[str], settings: _Settings) -> Iterator[Run[_Settings]]:
    """Begin or continue a run, held for this process; refuses a folder of other files, and a run with other settings."""
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise InputError(f"--out must be a folder; {path} is a file (choose another name)")
    _refuse_foreign(path)
    if (path / RUN_FILE).exists():
        settings.refuse_other(path, type(settings).read(path))  # even while another process is writing
    path.mkdir(parents=True, exist_ok=True)
    with Store(path / STORE_FILE, write=True) as store:
        made_with = store.asked()
        if made_with is not None:  # evidence outlives a run.json that was deleted, and knows one that was edited
            settings.refuse_other(path, type(settings).parsed(made_with, store.path))
        settings.write(path)
        store.bind((path / RUN_FILE).read_text(encoding="utf-8"))
        for left in path.glob(".*.tmp"):  # of a process that was killed
            left.unlink(missing_ok=True)
        yield Run(path, settings, store)


@contextmanager
def open_run(folder: str | os.PathLike[str], kind: type[_Settings]) -> Iterator[Run[_Settings]]:
    """A run that is there already, to be read."""
    path = Path(folder)
    settings = kind.read(path)
    with Store(path / STORE_FILE, write=False) as store:
        yield Run(path, settings, store)


def _refuse_foreign(folder: Path) -> None:
    """Refuse a folder of somebody else's files; what a process killed before it wrote ``run.json`` left is none."""
    if not folder.is_dir() or (folder / RUN_FILE).exists():
        return
    if any(not path.name.startswith(STORE_FILE) and path.suffix != ".tmp" for path in folder.iterdir()):
        raise InputError(
            f"{folder} holds files but no run.json: it is not a run folder (choose an empty or new folder)"
        )
