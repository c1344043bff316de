"""``flipproof report``: figures, and one self-contained HTML page, of one run or of several compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flipproof.commands.progress import progress
from flipproof.errors import InputError
from flipproof.report.content import CertifiedRun, check_attacks, read_attacks, read_run, run_names, with_attacks
from flipproof.runs.folder import write_text
from flipproof.runs.table import certified_run

__all__ = ["report"]


def report(
    folders: Sequence[Path],
    *,
    out: Path | None,
    edge_blind: Path | None,
    attacks: Sequence[Path],
    as_json: bool,
    quiet: bool,
) -> int:
    """Read the runs, draw, write. The exit code."""
    names = run_names(folders)
    target = out if out is not None else folders[0] if len(folders) == 1 else folders[0] / "comparison"
    if target.exists() and not target.is_dir():
        raise InputError(f"--out must be a folder; {target} is a file (choose another name)")
    settings = [certified_run(folder).settings for folder in folders]
    stored = [read_attacks(folder) for folder in attacks]
    for found in stored:
        check_attacks(settings, found)
    if edge_blind is not None:
        _check_baseline(edge_blind, settings)
    total = sum(len(asked["graphs"]) for asked in settings)
    with progress("reading", total, unit="graphs", quiet=quiet or as_json) as advance:
        runs = [read_run(folder, name, advance) for folder, name in zip(folders, names, strict=True)]
    baselines = [run for run in runs if run.edge_blind]
    if edge_blind is not None:
        baselines.append(read_run(edge_blind, edge_blind.name))
    for found in stored:
        runs = with_attacks(runs, found)
    floors = {run.data_key: run.accuracy for run in baselines}
    paths = _written(target, runs, floors)
    if as_json:
        described = {"report": str(paths[0]), "figures": [str(path) for path in paths[1:]]}
        print(json.dumps({"runs": [str(folder) for folder in folders], **described}))
    elif not quiet:
        print(f"written: {paths[0]} (open it in a browser)")
        print(f"figures: {target / 'figures'}")
    return 0


def _check_baseline(folder: Path, compared: Sequence[Mapping[str, Any]]) -> None:
    baseline = certified_run(folder).settings
    if not baseline["edge_blind"]:
        raise InputError(
            f"--edge-blind must be a run of a model that sees no edges; {folder} is none (certify an edge-blind model)"
        )
    if not any(all(asked[key] == baseline[key] for key in ("data_sha256", "graphs")) for asked in compared):
        raise InputError(f"--edge-blind {folder} is of other graphs than the runs (certify the same graphs)")


def _written(target: Path, runs: Sequence[CertifiedRun], floors: dict[str, float]) -> list[Path]:
    """The page first, then the figures."""
    from flipproof.report.page import report_page
    from flipproof.report.run_figures import write_figures

    figures = write_figures(target / "figures", runs, floors)
    names = [f"figures/{path.stem}" for path in figures if path.suffix == ".csv"]
    page = target / "report.html"
    write_text(page, report_page(runs, floors, figures=names))
    return [page, *figures]
