"""The commands of commands.toml, and what ends them. The module of one is imported when it is called: help answers at once.

Exit codes: 0 done; 1 a fault of flipproof, or a run that ``verify`` found altered; 2 input that cannot be used, or a disk that
is full; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import sys
import tomllib
from importlib import import_module
from importlib.resources import files
from typing import Annotated, Any, NoReturn

import typer

from flipproof import __version__
from flipproof.errors import InputError
from flipproof.progress import note


def parser(only: str | None = None) -> typer.Typer:
    """The parser; with the options of one command, or of all. The others are there by name."""
    app = typer.Typer(
        help="Makes graph classifiers provably robust against edge flips.",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    commands = tomllib.loads(files("flipproof.cli").joinpath("commands.toml").read_text(encoding="utf-8"))
    for name, told in commands.items():
        function: Any = lambda: None  # noqa: E731 - its options are not needed now
        if only in (None, name):
            from flipproof.cli.options import command_function

            function = command_function(getattr(import_module(f"flipproof.cli.{told['module']}"), name))
        shown = f"{told['does']}\n\n[bold]Example:[/bold]  {told['example']}"
        app.command(name, help=shown, rich_help_panel=told["panel"])(function)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"flipproof {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Makes graph classifiers provably robust against edge flips, and says how many flips each prediction withstands."""


def main() -> None:
    """Run what was typed: bad input ends in one sentence and exit code 2."""
    # before numpy is loaded: one worker per core is enough, each with one thread
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        typed = sys.argv[1:]
        called = next((word for word in typed if not word.startswith("-")), None)
        code = parser(called or "")(typed, prog_name="flipproof", standalone_mode=False)
        sys.stdout.flush()
    except (InputError, ImportError) as error:
        if isinstance(error, ImportError) and "pip install" not in str(error):
            raise  # a fault, not a missing extra
        _end(str(error))
    except BrokenPipeError:
        _unread()
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # the parser and rich end with 1 then
            _unread()
        raise
    except OSError as error:
        _end(_in_words(error))
    except Exception as error:
        # the parser's own complaints, about options that it cannot read
        if not hasattr(error, "format_message"):
            raise
        sentence = _wanted(error) or error.format_message().rstrip(".")
        if not sentence:  # no command was given, and the help has been shown
            sys.exit(0)
        command = getattr(getattr(error, "ctx", None), "command_path", None) or "flipproof"
        _end(f"{sentence}{_typed(error)} (see {command} --help)")
    sys.exit(code if isinstance(code, int) else 0)


def _unread() -> NoReturn:
    """End quietly: whoever read our output has seen enough."""
    for stream in (sys.stdout, sys.stderr):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(0)


_EXPECTED = {
    r"greater than or equal to (\S+)": r"at least \1",
    r"a valid integer.*": "an integer",
    r"a valid number.*": "a number",
}


def _wanted(error: Exception) -> str:
    """What an option expects, where the parser could not take the number that was typed."""
    for pattern, expected in _EXPECTED.items():
        if found := re.fullmatch(f"Input should be {pattern}", getattr(error, "message", None) or ""):
            return f"{error.param.opts[0]} must be {found.expand(expected)}"  # type: ignore[attr-defined]
    return ""


def _typed(error: Exception) -> str:
    options = getattr(getattr(error, "param", None), "opts", [])
    typed = [value for option, value in itertools.pairwise(sys.argv) if option in options]
    return f"; got {typed[-1]!r}" if typed else ""


def _end(sentence: str) -> NoReturn:
    note(" ".join(sentence.split()))
    sys.exit(2)


def _in_words(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        place = f" for {error.filename}" if error.filename else ""
        return f"no space left on the disk{place}; what is finished is kept (free some space, and run the same command again)"
    return f"{error.strerror or error}: {error.filename or ''} (check the path and its permissions)"
