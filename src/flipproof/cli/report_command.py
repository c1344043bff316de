"""``flipproof report``: figures, and one self-contained HTML page, of one run or of several compared."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from flipproof.cli.options import OutputOptions, option
from flipproof.errors import InputError
from flipproof.files import write_text
from flipproof.progress import progress
from flipproof.report.reading import check_attacks, check_baseline, read_run, run_names, with_attacks, with_lines
from flipproof.runs.settings import CertifySettings

__all__ = ["Options", "run"]


@dataclass(frozen=True)
class Options(OutputOptions):
    """What ``flipproof report`` is asked for."""

    runs: list[Path] = option("Folders that certify wrote; several are compared.", argument="RUN")
    out: Path | None = option(
        "Folder to write to; by default the run's own, or for several runs the folder comparison in the first one.",
        None,
    )
    edge_blind: Path | None = option(
        "A run of an edge-blind model on the same graphs: the line to beat.", None, panel="Compare"
    )
    attack: list[Path] = option(
        "A folder that attack wrote, to show what it found; may be repeated.", [], panel="Compare"
    )


def run(options: Options) -> int:
    """Read the runs, draw, write. The exit code."""
    folders = options.runs
    names = run_names(folders)
    target = options.out or (folders[0] if len(folders) == 1 else folders[0] / "comparison")
    if target.exists() and not target.is_dir():
        raise InputError(f"--out must be a folder; {target} is a file (choose another name)")
    settings = [CertifySettings.read(folder) for folder in folders]
    for folder in options.attack:
        check_attacks(folder, settings)
    if options.edge_blind is not None:
        check_baseline(options.edge_blind, settings)
    graphs = sum(len(asked.graphs) for asked in settings)
    with progress("reading", graphs, unit="graphs", quiet=options.silent) as advance:
        runs = [read_run(folder, name, advance) for folder, name in zip(folders, names, strict=True)]
    baselines = [one for one in runs if one.edge_blind]
    if options.edge_blind is not None:
        baselines.append(read_run(options.edge_blind, options.edge_blind.name))
    runs = with_lines(runs, baselines)
    for folder in options.attack:
        runs = with_attacks(runs, folder)

    from flipproof.report.report_page import report_page
    from flipproof.report.run_figures import write_figures

    figures = write_figures(target / "figures", runs)
    page = target / "report.html"
    write_text(page, report_page(runs, figures=[f"figures/{path.stem}" for path in figures if path.suffix == ".csv"]))
    if options.as_json:
        written = {"report": str(page), "figures": [str(path) for path in figures]}
        print(json.dumps({"runs": [str(folder) for folder in folders], **written}))
    elif not options.quiet:
        print(f"written: {page} (open it in a browser)")
        print(f"figures: {target / 'figures'}")
    return 0
