"""The line to beat: how many graphs of a run a network that ignores edges answers right; kept beside the certificates."""

from __future__ import annotations

import json
from pathlib import Path

from flipproof.errors import InputError
from flipproof.files import write_json

__all__ = ["read_line", "write_line"]

_FILE = "edge_blind.json"


def write_line(folder: Path, right: int, graphs: int) -> None:
    """Keep the line of a run; derived, and written again by the same command."""
    write_json(folder / _FILE, {"right": right, "graphs": graphs})


def read_line(folder: Path, graphs: int) -> int | None:
    """The line of a run with so many graphs, if it was given one."""
    path = folder / _FILE
    if not path.is_file():
        return None
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        right = stored["right"]
        if stored["graphs"] != graphs or not isinstance(right, int) or not 0 <= right <= graphs:
            raise ValueError("it belongs to other graphs")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} was altered: {error} (delete it, and run flipproof certify again)") from error
    return right
