"""``flipproof verify``: derive every certificate again from the stored votes and compare, for an auditor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flipproof.commands.progress import note, progress
from flipproof.errors import InputError
from flipproof.runs import Run
from flipproof.tables import COLUMNS, Row, certified_run, derive_row, load_votes, read_table
from flipproof.votes import Votes

__all__ = ["problems_of", "verify"]


def verify(folder: Path, *, as_json: bool, quiet: bool) -> int:
    """0 if everything agrees; 1, with the graphs named, if not."""
    run = certified_run(folder)
    rows = {row["graph"]: row for row in read_table(run)}
    indices = run.settings["graphs"]
    problems: list[dict[str, Any]] = []
    with progress("verifying", len(indices), unit="graphs", quiet=quiet or as_json) as advance:
        for index in indices:
            problems += [{"graph": index, "problem": problem} for problem in problems_of(run, index, rows.get(index))]
            advance(1)
    problems += [
        {"graph": index, "problem": "is in the table and not in run.json"}
        for index in sorted(rows.keys() - set(indices))
    ]
    if as_json:
        print(json.dumps({"run": str(folder), "graphs": len(indices), "ok": not problems, "problems": problems}))
    for problem in problems:
        note(f"graph {problem['graph']}: {problem['problem']}")
    if not problems and not quiet and not as_json:
        source = "" if run.settings.get("defence") == "voting" else ", and the votes from their noise"
        print(f"verified: {len(indices)} certificates follow from their votes{source}")
    return 1 if problems else 0


def problems_of(run: Run, index: int, row: Row | None) -> list[str]:
    """What is wrong with one graph: its votes, the flips they were cast on, its row in the table."""
    if row is None:
        return ["is missing from certificates.parquet"]
    try:
        votes = load_votes(run, index)
        if isinstance(votes, Votes) and tuple(votes.stream().checksums(len(votes))) != votes.checksums:
            return ["the flips made again are not those the votes were cast on (slot order, seed or noise was altered)"]
        derived = derive_row(index, votes, run.settings)
    except FileNotFoundError:
        return [f"{run.path(index)} is missing"]
    except (InputError, KeyError, TypeError) as error:
        return [f"cannot be derived again: {error}"]
    differing = [column for column in COLUMNS if derived[column] != row[column]]
    if "votes_sha256" in differing:
        return ["the votes are not those that the certificate was read from: their hash differs"]
    return [
        f"{column} is {row[column]!r} in the table and {derived[column]!r} from the votes"
        for column in differing
        if column != "grid"
    ] or (["grid in the table is not the one from the votes"] if differing else [])
