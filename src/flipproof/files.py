"""The only writer of files: whole or not at all.

Everything is written beside its place under a name that ends in ``.tmp`` and then renamed. What a killed process left beside a
place is removed by the next that writes there.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO


def write_bytes(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file; missing folders are made. If ``durable``, the file also survives a power cut."""
    with written_file(path, durable=durable) as file:
        file.write(content)


@contextmanager
def written_file(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A file to write to, piece by piece; it takes its place when the ``with`` block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    temporary = _beside(path, "tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write readable JSON."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder that holds exactly these files; a folder that exists already is replaced with all its content."""
    _remove_leftovers(path)
    temporary, old = _beside(path, "tmp"), _beside(path, "old")
    try:
        temporary.mkdir(parents=True)
        for name, content in files.items():
            write_bytes(temporary / name, content)
        if path.exists():
            path.rename(old)
        temporary.rename(path)
    finally:
        if old.exists() and not path.exists():
            old.rename(path)
        for leftover in (temporary, old):
            shutil.rmtree(leftover, ignore_errors=True)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{ending}")


def _remove_leftovers(path: Path) -> None:
    """Remove what processes that no longer run, or an earlier write of this one, left beside a place."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*"):
        process, _, ending = leftover.name.removeprefix(f".{path.name}.").partition(".")
        if ending in ("tmp", "old") and process.isdecimal() and not _runs_elsewhere(int(process)):
            remove = shutil.rmtree if leftover.is_dir() else os.unlink
            with suppress(OSError):
                remove(leftover)


def _runs_elsewhere(process: int) -> bool:
    """Whether another process of this number runs; one that has ended and that nobody has waited for does not."""
    if process == os.getpid() or os.name != "posix":  # signal 0 is not a question elsewhere
        return process != os.getpid()
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # another user's, or a system without /proc
        return True
