"""Verification for an auditor: every certificate derived again from the stored evidence and compared with the table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flipproof.errors import InputError
from flipproof.runs.edge_blind_line import read_line
from flipproof.runs.run_folder import Run, open_run
from flipproof.runs.settings import CertifySettings, differences
from flipproof.runs.table import COLUMNS, Row, derive_row, read_table

__all__ = ["problems_of_run"]


def problems_of_run(folder: Path, advance: Callable[[int], None] = lambda amount: None) -> list[dict[str, Any]]:
    """What is wrong with a run, one entry per finding: ``graph`` (``None`` for the run) and ``problem``; empty if all agrees."""
    with open_run(folder, CertifySettings) as run:
        request, table = run.settings.request(), read_table(folder)
        order = table.columns("graph")["graph"]
        places = {index: place for place, index in enumerate(order)}
        problems: list[dict[str, Any]] = []
        for index in run.settings.graphs:
            row = table[places[index]] if index in places else None
            found = _problems_of_graph(run, request, index, row)
            problems += [{"graph": index, "problem": problem} for problem in found]
            advance(1)
        problems += [
            {"graph": index, "problem": "is in the table and not in run.json"}
            for index in sorted(places.keys() - set(run.settings.graphs))
        ]
        if order != sorted(set(order)):
            problems.append({"graph": None, "problem": "the table has rows twice, or not in the order of the data set"})
        problems += [{"graph": None, "problem": problem} for problem in _altered_settings(run)]
        try:
            read_line(run)
        except InputError as error:
            problems.append({"graph": None, "problem": str(error)})
    return problems


def _altered_settings(run: Run[CertifySettings]) -> list[str]:
    """Where run.json is no longer what the evidence was made with."""
    stored = run.store.asked()
    if stored is None:
        return ["evidence.sqlite does not say what it was made with"]
    now = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))
    return [
        f"run.json was altered: {key} is {theirs!r} there, and the evidence was made with {mine!r}"
        for key, mine, theirs in differences(json.loads(stored), now)
    ]


def _problems_of_graph(run: Run[CertifySettings], request: Any, index: int, row: Row | None) -> list[str]:
    """What is wrong with one graph: its evidence, what the model was shown, its row in the table."""
    if row is None:
        return ["is missing from certificates.parquet"]
    try:
        evidence = run.settings.defence_class.evidence.from_bytes(run.store.load(index), source="its evidence")
        if not evidence.made_again():
            return ["what the model was shown, made again, is not what it answered (order, seed or noise was altered)"]
        if not run.settings.defence_object.made(evidence, run.settings.num_classes):
            return ["its evidence belongs to another defence than run.json's"]
        altered = ["its evidence is not what the certificate was read from: the hash differs"]
        altered = altered if evidence.digest != row["evidence_sha256"] else []
    except (InputError, KeyError, TypeError) as error:
        return [f"cannot be derived again: {error}"]
    try:
        derived = derive_row(index, evidence, request)
    except (InputError, KeyError, TypeError) as error:
        return [f"cannot be derived again: {error}", *altered]
    if altered:
        return altered
    differing = [column for column in COLUMNS if derived[column] != row[column]]
    return [
        f"{column} is {row[column]!r} in the table and {derived[column]!r} from the evidence"
        for column in differing
        if column != "grid"
    ] or (["grid in the table is not the one from the evidence"] if differing else [])
