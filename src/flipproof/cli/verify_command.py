"""``flipproof verify``: derive every certificate again from the stored evidence and compare, for an auditor."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from flipproof.cli.options import OutputOptions, option
from flipproof.progress import note, progress
from flipproof.runs.settings import CertifySettings
from flipproof.runs.verification import problems_of_run

__all__ = ["Options", "run"]


_NOT_DERIVED = (
    "flips withstood beside changed nodes were compared with the evidence, which does not hold the scores behind them"
)


@dataclass(frozen=True)
class Options(OutputOptions):
    """What ``flipproof verify`` is asked for."""

    folder: Path = option("A folder that certify wrote.", argument="RUN")


def run(options: Options) -> int:
    """0 if everything agrees; 1, with the graphs named, if not."""
    settings = CertifySettings.read(options.folder)
    graphs, not_derived = len(settings.graphs), _NOT_DERIVED if settings.question.get("nodes") else ""
    with progress("verifying", graphs, unit="graphs", quiet=options.silent) as advance:
        problems = problems_of_run(options.folder, advance)
    if options.as_json:
        found = {"run": str(options.folder), "graphs": graphs, "ok": not problems, "problems": problems}
        print(json.dumps(found | ({"not_derived": not_derived} if not_derived else {})))
    for problem in problems:
        what = "the run" if problem["graph"] is None else f"graph {problem['graph']}"
        note(f"{what}: {problem['problem']}")
    if not problems and not options.silent:
        print(
            f"verified: {graphs} certificates follow from their evidence, and what the model was shown can be made again"
        )
        if not_derived:
            print(f"not derived again: {not_derived}")
    return 1 if problems else 0
