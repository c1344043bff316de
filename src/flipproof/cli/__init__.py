"""The command line: one module per command, or for commands of one subject. The only place with typer and rich."""

from flipproof.cli.app import main

__all__ = ["main"]
