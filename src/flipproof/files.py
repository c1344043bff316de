"""The only writer of files: whole or not at all.

Everything is written beside its place under a name that ends in ``.tmp`` and then renamed, so that a process that is
killed, or a disk that is full, leaves the earlier content or none.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["write_bytes", "write_folder", "write_json", "write_text", "written_file"]


def write_bytes(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file; missing folders are made. If ``durable``, the file also survives a power cut."""
    with written_file(path, durable=durable) as file:
        file.write(content)


@contextmanager
def written_file(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A file to write to, piece by piece; it takes its place when the ``with`` block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
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
    temporary, old = _beside(path, "tmp"), _beside(path, "old")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        for name, content in files.items():
            write_bytes(temporary / name, content)
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)
            path.rename(old)
        temporary.rename(path)
    finally:
        if old.exists() and not path.exists():
            old.rename(path)
        for leftover in (temporary, old):
            shutil.rmtree(leftover, ignore_errors=True)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{ending}")
