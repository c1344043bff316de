"""``flipproof report``, ``export`` and ``verify``: what is made of run folders, and checked in them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from flipproof.cli.options import OutputOptions, Result
from flipproof.errors import InputError
from flipproof.fields import option
from flipproof.files import written_file
from flipproof.progress import note, progress
from flipproof.runs.run_folder import CertifySettings
from flipproof.runs.table import FORMATS, read_table, write_formatted

_PAPER = ("long", "latex", "paired")
_LARGEST = 100_000  # radius in a table
_KINDS = (*FORMATS, *_PAPER, "bibtex")
_NOT_DERIVED = (
    "flips withstood beside changed nodes were compared with the evidence, which does not hold the scores behind them"
)


@dataclass(frozen=True, kw_only=True)
class ReportOptions(OutputOptions):
    runs: list[Path] = option("Folders that certify wrote; several are compared.", argument="RUN")
    out: Path | None = option(
        "Folder to write to; by default the run's own, or for several runs comparison in the first one.", None
    )
    attack: list[Path] = option("A folder that attack wrote, to show what it found; repeatable.", [], panel="Compare")


def report(options: ReportOptions) -> Result:
    from flipproof.report.reading import check_attacks, read_run, run_names, with_attacks, with_lines
    from flipproof.report.report_page import write_report

    folders = options.runs
    names = run_names(folders)
    target = options.out or (folders[0] if len(folders) == 1 else folders[0] / "comparison")
    if target.exists() and not target.is_dir():
        raise InputError(f"--out must be a folder; {target} is a file (choose another name)")
    settings = [CertifySettings.read(folder) for folder in folders]
    for folder in options.attack:
        check_attacks(folder, settings)
    graphs = sum(len(one.graphs) for one in settings)
    with progress("reading", graphs, unit=settings[0].task, quiet=options.silent) as advance:
        runs = with_lines([read_run(folder, name, advance) for folder, name in zip(folders, names, strict=True)])
    for folder in options.attack:
        runs = with_attacks(runs, folder)
    page, figures = write_report(target, runs)
    written = {"report": str(page), "figures": [str(path) for path in figures]}
    lines = [f"written: {page} (open it in a browser)", f"figures: {target / 'figures'}"]
    return Result({"runs": [str(folder) for folder in folders], **written}, lines)


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    folders: list[Path] = option("Folders that certify wrote; csv, parquet and json take one.", argument="RUN")
    format: str = option(
        "csv, parquet or json: one row per graph. long: CSV with one row per run, attacker and radius, with intervals. "
        "latex: the same as a table. paired: CSV of McNemar tests of the first run against each other one. "
        "bibtex: what to cite.",
        "csv",
    )
    radii: str | None = option(
        "Numbers of flips in long, latex and paired, such as 0,1,2,5; by default as far as there are certificates.",
        None,
    )
    out: Path | None = option("File to write; by default stdout.", None)


def export(options: ExportOptions) -> int:
    write = _writer(options)
    with nullcontext(sys.stdout.buffer) if options.out is None else written_file(options.out) as file:
        write(file)
        file.flush()
    return 0


def _writer(options: ExportOptions) -> Callable[[BinaryIO], object]:
    """What writes the content to a file; refuses what cannot be exported."""
    kind, out, folders = options.format, options.out, options.folders
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
        if len(folders) > 1:
            raise InputError(
                f"--format {kind} exports one run; got {len(folders)} (export them one by one, or use --format long)"
            )
        CertifySettings.read(folders[0])
        rows = read_table(folders[0])
        return lambda file: write_formatted(rows, kind, file)
    if kind == "bibtex":
        from flipproof.report.templates import bibtex

        content = bibtex([CertifySettings.read(folder) for folder in folders])
    else:
        from flipproof.report import paper_tables
        from flipproof.report.reading import read_tables

        radii = None if options.radii is None else _radii(options.radii)
        tables = {"long": paper_tables.long_csv, "latex": paper_tables.latex, "paired": paper_tables.paired_csv}
        content = tables[kind](read_tables(folders), radii)
    return lambda file: file.write(content.encode())


def _radii(typed: str) -> list[int]:
    radii = [int(part) if part.strip().isdecimal() else -1 for part in typed.split(",")]
    if min(radii) < 0 or max(radii) > _LARGEST or len(set(radii)) < len(radii):
        raise InputError(
            f"--radii must be different whole numbers from 0 to {_LARGEST}, with commas between; got {typed!r} (for instance "
            "0,1,2,5)"
        )
    return sorted(radii)


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(OutputOptions):
    folder: Path = option("A folder that certify wrote.", argument="RUN")


def verify(options: VerifyOptions) -> Result:
    from flipproof.runs.saved_run import problems_of_run

    settings = CertifySettings.read(options.folder)
    graphs = len(settings.graphs)
    with progress("verifying", graphs, unit=settings.task, quiet=options.silent) as advance:
        problems = problems_of_run(options.folder, advance)
    for problem in problems:
        what = "the run" if problem["graph"] is None else f"{settings.noun} {problem['graph']}"
        note(f"{what}: {problem['problem']}")
    summary = {"run": str(options.folder), "graphs": graphs, "ok": not problems, "problems": problems}
    if problems:
        return Result(summary, code=1)
    line = f"verified: {graphs} certificates follow from their evidence, and what the model was shown can be made again"
    if settings.question.get("nodes"):
        return Result(summary | {"not_derived": _NOT_DERIVED}, [line, f"not derived again: {_NOT_DERIVED}"])
    return Result(summary, [line])
