"""The commands, and what ends them. A command's module is imported when it is called, so that help answers at once.

Exit codes: 0 done; 1 a fault of flipproof, or a run that ``verify`` found altered; 2 input that cannot be used, or a disk that
is full; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import sys
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer

from flipproof import __version__
from flipproof.errors import InputError
from flipproof.progress import note

# heading: command: what it does, an example
_COMMANDS = {
    "The paper and the mathematics": {
        "reproduce": (
            "Reproduce the paper end to end: data, training, certification, the three figures, its claims measured.",
            "flipproof reproduce --out results/reproduce",
        ),
        "radius": (
            "Compute how many edge flips a share of votes withstands: the mathematics alone, no model.",
            "flipproof radius --keep 0.9 --p-lower 0.99",
        ),
    },
    "A model and its robustness": {
        "train": (
            "Train a base classifier for the defence that it will be certified with.",
            "flipproof train --data MUTAG --root data --add 0.01 --remove 0.3 --out models/mutag",
        ),
        "describe": (
            "Say what was read: classes, sizes, node features taken and ignored, repeated graphs; and how far defences reach.",
            "flipproof describe --data my_graphs",
        ),
        "certify": (
            "Certify a data set's test graphs. Defence, features, data and split are the model's unless given.",
            "flipproof certify --model models/mutag --samples 10000 --out runs/mutag",
        ),
        "predict": (
            "Answer graphs without labels: class, certified radius or abstention. With - as FILE, JSON lines in and out.",
            "flipproof predict --model models/mutag new_molecules/",
        ),
        "attack": (
            "Find the smallest attack on every graph, against the model and against its defended version.",
            "flipproof attack --model models/mutag --budget 5 --certificates runs/mutag --out runs/attack",
        ),
    },
    "What a run holds": {
        "report": (
            "Write figures (SVG, PDF, PNG, with their numbers) and one self-contained page, report.html, that opens offline.",
            "flipproof report runs/mutag --attack runs/attack",
        ),
        "export": (
            "Export a run's certificates as a table; or tables of certified accuracy, tests and references for a paper.",
            "flipproof export runs/mutag --format csv > mutag.csv",
        ),
        "verify": (
            "Derive every certificate again from the stored evidence and compare; the exit code is 1 if one was altered.",
            "flipproof verify runs/mutag",
        ),
    },
    "Choosing and comparing": {
        "protect": (
            "Find the best certified classifier: try all defences on validation graphs, train the best, certify the test graphs.",
            "flipproof protect --data MUTAG --root data --radius 1 --out results/protect",
        ),
        "tune": (
            "Choose a defence and a network for the attack you want to withstand, on validation graphs.",
            "flipproof tune --data MUTAG --root data --radius 1 --out results/tune",
        ),
        "benchmark": (
            "Compare methods on published folds: certified accuracy with intervals, beside the edge-blind line.",
            "flipproof benchmark benchmarks/full.toml --root data --out results/benchmark",
        ),
    },
}

_MODULES = {  # where it is not a module of its own
    "radius": "describe_command",
    **dict.fromkeys(("report", "export", "verify"), "run_commands"),
    **dict.fromkeys(("protect", "tune", "benchmark"), "choosing_commands"),
}


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
    for panel, commands in _COMMANDS.items():
        for name, (summary, example) in commands.items():
            function: Any = lambda: None  # noqa: E731 - its options are not needed now
            if only in (None, name):
                from flipproof.cli.options import command_function

                module = import_module(f"flipproof.cli.{_MODULES.get(name, f'{name}_command')}")
                function = command_function(getattr(module, name))
            app.command(name, help=f"{summary}\n\n[bold]Example:[/bold]  {example}", rich_help_panel=panel)(function)
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
    """What was typed for the option that the parser complains about."""
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
