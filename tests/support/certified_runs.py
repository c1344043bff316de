"""Small real runs for the tests of the report, on data whose every name wants to break out of a page."""

import sys
from pathlib import Path

import pytest

from flipproof.cli import main
from support.command_line import OWN_MODEL, write_graphs

RING = '<script>alert("ring")</script>'
WHEEL = "wheel's \"<img src=x onerror=alert(1)> & </script><!--style-->"
DATA = "data '\"<b>$x_"
KEEP = ["--keep", "0.8"]


def run_command(folder: Path, *arguments: str) -> None:
    """A command of flipproof in a user's folder, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        patch.delitem(sys.modules, "own", raising=False)
        patch.setattr(sys, "argv", ["flipproof", *arguments, "--quiet"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0, arguments


def make_runs(folder: Path) -> Path:
    """``even``, ``uneven``, ``blind`` and the attacks ``attack`` on the first of them, in a user's folder."""
    import flipproof as fp

    make_small_runs(folder)
    certify(folder, "uneven", "--add", "0.02", "--remove", "0.3")
    blind = fp.models.NodeStatistics(2)
    blind.fit([fp.Graph(size, [], label=size // 2 % 2) for size in range(6, 10)] * 2, features="constant")
    fp.models.save(blind, folder / "model", features="constant")
    run_command(folder, "certify", "--model", "model", "--data", DATA, "--part", "all", "--out", "blind")
    attack(folder, "attack", *KEEP, "--graphs", "4")
    return folder


def attack(folder: Path, out: str, *options: str) -> None:
    """Small attacks on the black box and its defence."""
    searched = ["--budget", "2", "--samples", "48", "--confirm-samples", "500", "--part", "all"]
    run_command(folder, "attack", "--model", "own:make", "--data", DATA, *options, *searched, "--out", out)


def make_small_runs(folder: Path) -> Path:
    """``even`` alone: rings and wheels of 6 to 9 nodes, votes of a black box."""
    (folder / "own.py").write_text(OWN_MODEL)
    name = "<u>{} & 'co'.edges"
    write_graphs(folder / DATA, nodes=lambda index: 6 + index % 4, name=name, classes=(RING, WHEEL))
    certify(folder, "even", *KEEP)
    return folder


def certify(folder: Path, out: str, *options: str, samples: bool = True) -> None:
    """A run of the black box."""
    asked = [*options, *(["--samples", "400"] if samples else []), "--part", "all", "--out", out]
    run_command(folder, "certify", "--model", "own:make", "--data", DATA, *asked)
