"""Finished work in one SQLite file: a row per finished item, committed as it is done.

Only the process that the user started writes, and it holds the file for itself: a second process is refused. Transactions make
the file safe against kills at any point; what is under way is lost, what is committed stays. An *item* is a graph by its number
in the data set, or a job of a study by its name.
"""

from __future__ import annotations

import errno
import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from flipproof.errors import InputError

__all__ = ["FILE", "Store"]

FILE = "evidence.sqlite"
_TABLES = (
    "CREATE TABLE IF NOT EXISTS finished (item PRIMARY KEY, content BLOB, sha256 TEXT)",
    "CREATE TABLE IF NOT EXISTS asked (run_json TEXT)",
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
                if write:
                    self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                    self._connection.execute("PRAGMA journal_mode = WAL")
                    self._connection.execute("PRAGMA synchronous = NORMAL")
                    self._connection.execute("BEGIN EXCLUSIVE")
                    for table in _TABLES:
                        self._connection.execute(table)
                    self._connection.execute("COMMIT")
                else:
                    self._connection.execute("SELECT item FROM finished LIMIT 1")
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
        row = (item, content, _digest(content))
        self._changed(lambda: self._connection.execute("INSERT OR REPLACE INTO finished VALUES (?, ?, ?)", row))

    def drop(self, item: _Item) -> None:
        """Forget a finished item, so that it is done again."""
        self._changed(lambda: self._connection.execute("DELETE FROM finished WHERE item = ?", (item,)))

    def clear(self) -> None:
        """Forget all graphs, and the settings that their evidence was made with."""

        def change() -> None:
            self._connection.execute("DELETE FROM finished WHERE typeof(item) = 'integer'")
            self._connection.execute("DELETE FROM asked")

        self._changed(change)

    def asked(self) -> str | None:
        """The settings that the evidence was made with, as they were first written; ``None`` if none were."""
        rows = list(self._read("SELECT run_json FROM asked"))
        return rows[0][0] if rows else None

    def bind(self, run_json: str) -> None:
        """Remember the settings that the evidence is made with, once."""
        if self.asked() is None:
            self._changed(lambda: self._connection.execute("INSERT INTO asked VALUES (?)", (run_json,)))

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

    def _changed(self, change: Callable[[], Any]) -> None:
        with self._in_words():
            self._connection.execute("BEGIN")
            try:
                change()
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
