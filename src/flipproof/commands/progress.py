"""What a command may print; progress itself is shown by :mod:`flipproof.progress`."""

from __future__ import annotations

from dataclasses import dataclass

from flipproof.progress import note, progress

__all__ = ["OutputOptions", "note", "progress"]


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """What a command may print, and how it was called: shown again when the command is stopped."""

    as_json: bool = False
    quiet: bool = False
    again: str = "the same command"

    @property
    def silent(self) -> bool:
        """Whether progress stays hidden."""
        return self.quiet or self.as_json
