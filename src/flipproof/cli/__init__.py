"""The command line: one module per command. The only place with typer and rich."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """The entry point."""
    from flipproof.cli.app import main as run

    run()
