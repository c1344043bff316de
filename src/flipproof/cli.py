"""The command line. Heavy imports happen inside the commands, so that help answers at once.

Exit codes: 0 done, 1 a fault of flipproof, 2 input that cannot be used, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from flipproof import __version__

__all__ = ["app", "main"]

app = typer.Typer(
    help="Makes graph classifiers provably robust against edge flips.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"flipproof {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Makes graph classifiers provably robust against edge flips, and says how many flips each prediction withstands."""


@app.command()
def reproduce(
    out: Annotated[
        Path, typer.Option("--out", help="Folder for everything that is made; run again to continue.")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version, well under a minute; its figures mean little.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of data, split, weights and noise.")] = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes at a time; by default one a core.")
    ] = None,
) -> None:
    """The paper, end to end: data, training, certification, the three figures, its claims measured.

    [bold]Example:[/bold]  flipproof reproduce --out results/reproduce
    """
    from rich.console import Console

    from flipproof.noise import checked_seed
    from flipproof.reproduce.command import reproduce as run
    from flipproof.reproduce.experiment import Settings

    checked_seed(seed)
    settings = Settings.quick(seed=seed) if quick else Settings(seed=seed)
    again = (
        f"flipproof reproduce --out {shlex.quote(str(out))}"
        + " --quick" * quick
        + f" --seed {seed}" * (seed != 0)
    )
    raise typer.Exit(run(out, settings, workers=workers, console=Console(), again=again))


@app.command()
def radius(
    p_lower: Annotated[
        float, typer.Option("--p-lower", help="Lower bound on the top class's share of votes.")
    ],
    keep: Annotated[
        float | None, typer.Option(help="Probability that a node pair keeps its state (the paper's beta).")
    ] = None,
    add: Annotated[float | None, typer.Option(help="Probability that an empty pair gains an edge.")] = None,
    remove: Annotated[float | None, typer.Option(help="Probability that an edge is lost.")] = None,
    p_upper: Annotated[
        float | None, typer.Option("--p-upper", help="Upper bound on every other class's share.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """The mathematics alone, no model: how many edge flips a share of votes withstands.

    [bold]Example:[/bold]  flipproof radius --keep 0.9 --p-lower 0.99
    """
    from flipproof.certificates.votes import radius as certified_radius
    from flipproof.noise import EdgeNoise

    noise = EdgeNoise(keep=keep, add=add, remove=remove)
    found = certified_radius(p_lower, noise, p_upper)
    if as_json:
        shares = {"p_lower": p_lower, "p_upper": p_upper, "p_add": noise.p_add, "p_remove": noise.p_remove}
        typer.echo(json.dumps({"radius": found, **shares}))
    elif found == -1:
        typer.echo("nothing is certified: the top class is not sure to win even without an attack")
    else:
        typer.echo(
            f"radius {found}: no attack of at most {found} edge flip{'s' * (found != 1)} changes the prediction"
        )


def main() -> None:
    """The entry point: bad input ends in one sentence and exit code 2."""
    from flipproof.errors import InputError

    try:
        app()
    except InputError as error:
        print(f"flipproof: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(
            f"flipproof: {error.strerror or error}: {error.filename or ''} (check the path and its permissions)",
            file=sys.stderr,
        )
        sys.exit(2)
