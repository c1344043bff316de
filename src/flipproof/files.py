"""Writing files whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_bytes"]


def write_bytes(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file whole or not at all; unless ``durable`` is off, it also survives a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
