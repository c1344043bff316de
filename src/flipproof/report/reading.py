"""From run folders to the content of a report: certificates read back, with attacks and edge-blind runs beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flipproof.attacks.attack_result import AttackResult
from flipproof.certificates.evidence import Evidence
from flipproof.certificates.weak_spots import WeakSpots
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.report.content import ATTACKERS, CertifiedRun, Reading
from flipproof.runs.attacking import read_attacks
from flipproof.runs.certifying import read_evidence
from flipproof.runs.edge_blind_line import read_line
from flipproof.runs.run_folder import open_run
from flipproof.runs.settings import AttackSettings, CertifySettings
from flipproof.runs.table import Row, derive_row, has_table, read_table

__all__ = ["check_attacks", "check_baseline", "read_run", "run_names", "with_attacks", "with_lines"]


def run_names(folders: Sequence[Path]) -> list[str]:
    """A name for each run: that of its folder, with the folder above where two are the same."""
    places = [folder.resolve() for folder in folders]
    for place, folder in zip(places, folders, strict=True):
        if places.count(place) > 1:
            raise InputError(f"each run must be given once; got {folder} twice (leave one out)")
    short = [place.name for place in places]
    return [
        name if short.count(name) == 1 else "/".join(place.parts[-2:])
        for name, place in zip(short, places, strict=True)
    ]


def read_run(folder: Path, name: str, advance: Callable[[int], None] = lambda amount: None) -> CertifiedRun:
    """A run with its certificates, read graph by graph; without a table they are derived from the evidence.

    Args:
        folder: That ``flipproof certify`` wrote.
        name: What the report calls it.
        advance: Called with 1 after each graph.
    """
    with open_run(folder, CertifySettings) as run:
        wanted, question = set(run.settings.graphs), run.settings.asked()
        done = len(wanted & run.store.finished())
        if done < len(wanted) or not wanted:
            raise InputError(
                f"{folder} has evidence of {done} of {len(wanted)} graphs: the run is not finished (run its flipproof certify "
                "command again)"
            )
        known = {row["graph"]: row for row in read_table(folder)} if has_table(folder) else None
        rows: list[Row] = []
        graphs: dict[int, Graph] = {}
        readings: dict[str, dict[int, Reading]] = {}
        weak_spots: dict[int, WeakSpots] = {}
        for index, evidence in read_evidence(run):
            row = (
                derive_row(index, evidence, question) if known is None else _stored_row(folder, index, evidence, known)
            )
            rows.append(row)
            graphs[index] = evidence.graph.replaced()  # without what asking has cached in it
            own = Reading(row["predicted"], *(row[column] for column in (*ATTACKERS, "p_lower")))
            others = {method: Reading.of(found) for method, found in question.readings(evidence).items()}
            for method, reading in {rows[0]["method"]: own, **others}.items():
                readings.setdefault(method, {})[index] = reading
            spots = None if row["predicted"] is None else evidence.weak_spots(row["radius"])
            if spots is not None:
                weak_spots[index] = spots
            advance(1)
        line = read_line(folder, len(rows))
        return CertifiedRun(name, run.settings, rows, graphs, readings, line, weak_spots=weak_spots)


def _stored_row(folder: Path, index: int, evidence: Evidence, known: Mapping[int, Row]) -> Row:
    row = known.get(index)
    if row is None or row["evidence_sha256"] != evidence.digest:
        raise InputError(
            f"the certificate of graph {index} in {folder} was not read from the evidence that is there (flipproof verify tells "
            "more; delete certificates.parquet to derive it again)"
        )
    return row


def check_baseline(folder: Path, compared: Iterable[CertifySettings]) -> None:
    """Refuse a run that is not of an edge-blind model, or does not cover the graphs of any run with these settings."""
    baseline = CertifySettings.read(folder)
    if not baseline.defence_class.edge_blind:
        raise InputError(
            f"--edge-blind must be a run of a model that sees no edges; {folder} is none (certify an edge-blind model)"
        )
    covered = set(baseline.graphs)
    if not any(run.data_sha256 == baseline.data_sha256 and covered.issuperset(run.graphs) for run in compared):
        raise InputError(f"--edge-blind {folder} is of other graphs than the runs (certify the same graphs)")


def with_lines(runs: Sequence[CertifiedRun], baselines: Iterable[CertifiedRun]) -> list[CertifiedRun]:
    """The runs, each with the best line known: of an edge-blind run on all its graphs, or given to a run on the same graphs."""
    rights = [
        (run.data_key, dict(zip(run.graphs, (run.right_radii() >= 0).tolist(), strict=True))) for run in baselines
    ]
    found = []
    for run in runs:
        lines = [
            sum(right[index] for index in run.graphs)
            for key, right in rights
            if key == run.data_key and right.keys() >= run.graphs.keys()
        ]
        same = [other for other in runs if other.data_key == run.data_key and other.graphs.keys() == run.graphs.keys()]
        lines += [other.line for other in same if other.line is not None]
        found.append(replace(run, line=max(lines, default=None)))
    return found


def check_attacks(folder: Path, certified: Iterable[CertifySettings]) -> None:
    """Refuse attacks that belong to none of the runs with these settings."""
    if not any(map(AttackSettings.read(folder).belongs_to, certified)):
        raise InputError(
            f"--attack {folder} attacked another model, data or defence than the runs (attack what was certified)"
        )


def with_attacks(runs: Sequence[CertifiedRun], folder: Path) -> list[CertifiedRun]:
    """The runs, with the attacks on the same model, data and defence; of two attacks on a graph the stronger counts."""
    settings, stored = read_attacks(folder)
    return [
        replace(run, attacks=_stronger(run, folder, stored)) if settings.belongs_to(run.settings) else run
        for run in runs
    ]


def _stronger(
    run: CertifiedRun, folder: Path, stored: Mapping[int, Mapping[str, Any]]
) -> dict[int, dict[str, AttackResult]]:
    found = {index: dict(by_role) for index, by_role in run.attacks.items()}
    for index in stored.keys() & run.graphs.keys():
        for role, values in stored[index].items():
            try:
                result = AttackResult.from_dict(run.graphs[index], values)
            except (KeyError, TypeError, ValueError) as error:
                raise InputError(
                    f"the attack on graph {index} in {folder} cannot be read: {error} (attack again in another folder)"
                ) from error
            rivals = [result, *filter(None, [found.setdefault(index, {}).get(role)])]
            found[index][role] = min(
                rivals, key=lambda one: (not one.success, one.size if one.success else -one.budget)
            )
    return dict(sorted(found.items()))
