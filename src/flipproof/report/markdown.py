"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["markdown_table"]


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table whose first row is its head.

    >>> print("\\n".join(markdown_table([["r", "share"], ["0", "0.9"]])))
    | r | share |
    |---|---|
    | 0 | 0.9 |
    """
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]
