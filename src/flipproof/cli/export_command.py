"""``flipproof export``: a run's table of certificates, or tables of certified accuracy for a paper; to a file or to stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from flipproof.cli.options import option
from flipproof.errors import InputError
from flipproof.files import written_file
from flipproof.runs.settings import CertifySettings
from flipproof.runs.table import FORMATS, read_table, write_formatted

__all__ = ["Options", "run"]

_PAPER = ("long", "latex", "paired")
_LARGEST = 100_000  # radius in a table
_KINDS = (*FORMATS, *_PAPER, "bibtex")


@dataclass(frozen=True)
class Options:
    """What ``flipproof export`` is asked for."""

    folders: list[Path] = option("Folders that certify wrote; csv, parquet and json take one.", argument="RUN")
    kind: str = option(
        "csv, parquet or json: one row per graph. long: CSV with one row per run, attacker and radius, with intervals. "
        "latex: the same as a table. paired: CSV of McNemar tests of the first run against each other one. "
        "bibtex: what to cite.",
        "csv",
        flags=("--format",),
    )
    radii: str | None = option(
        "Numbers of flips in long, latex and paired, for instance 0,1,2,5; by default up to the first without a certificate.",
        None,
    )
    out: Path | None = option("File to write; by default stdout.", None)
    config: Path | None = option("TOML file of options; what is typed here prevails.", None, panel="Output")


def run(options: Options) -> int:
    """Write the table. The exit code."""
    write = _writer(options)
    if options.out is not None:
        with written_file(options.out) as file:
            write(file)
        return 0
    write(sys.stdout.buffer)
    sys.stdout.buffer.flush()
    return 0


def _writer(options: Options) -> Callable[[BinaryIO], object]:
    """What writes the content to a file; refuses what cannot be exported."""
    kind, out, folders = options.kind, options.out, options.folders
    if kind not in _KINDS:
        raise InputError(f"--format must be one of {', '.join(_KINDS)}; got {kind!r} (csv is the default)")
    if kind == "parquet" and out is None:
        raise InputError(
            "--format parquet is not text and needs a file; got no --out (for instance --out certificates.parquet)"
        )
    if out is not None and out.is_dir():
        raise InputError(f"--out must be a file; {out} is a folder (give a file name in it)")
    if options.radii is not None and kind not in _PAPER:
        raise InputError(
            f"--radii is for --format {', '.join(_PAPER)}; got --format {kind} (leave it out: there is no choice of radii)"
        )
    if kind in FORMATS:
        return _table(options)
    if kind == "bibtex":
        from flipproof.report.templates import bibtex

        content = bibtex([CertifySettings.read(folder) for folder in folders]).encode()
        return lambda file: file.write(content)

    from flipproof.report.paper_tables import latex, long_csv, paired_csv, read_runs
    from flipproof.report.reading import run_names

    radii = None if options.radii is None else _radii(options.radii)
    made = {"long": long_csv, "latex": latex, "paired": paired_csv}[kind]
    table = made(read_runs(folders, run_names(folders)), radii).encode()
    return lambda file: file.write(table)


def _table(options: Options) -> Callable[[BinaryIO], object]:
    """The certificates of one run, one row per graph."""
    if len(options.folders) > 1:
        raise InputError(
            f"--format {options.kind} exports one run; got {len(options.folders)} (export them one by one, or use --format long)"
        )
    CertifySettings.read(options.folders[0])
    rows = read_table(options.folders[0])
    return lambda file: write_formatted(rows, options.kind, file)


def _radii(typed: str) -> list[int]:
    try:
        radii = [int(part) for part in typed.split(",")]
    except ValueError:
        radii = [-1]
    if min(radii) < 0 or max(radii) > _LARGEST or len(set(radii)) < len(radii):
        raise InputError(
            f"--radii must be different whole numbers from 0 to {_LARGEST}, with commas between; got {typed!r} (for instance "
            "0,1,2,5)"
        )
    return sorted(radii)
