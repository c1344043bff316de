"""From run folders to the content of a report: certificates read back, with attacks and edge-blind runs beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flipproof.attacks.search import AttackResult
from flipproof.certificates.certificate import Evidence, WeakSpots
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.report.content import ATTACKERS, CertifiedRun, Reading, chosen_rows
from flipproof.runs.attacking import read_attacks
from flipproof.runs.certifying import Line, read_evidence, read_line
from flipproof.runs.run_folder import Run, open_run
from flipproof.runs.settings import AttackSettings, CertifySettings
from flipproof.runs.table import Row, derive_row, has_table, read_table

MOST_LISTED = 2_000
"""Graphs of a run that a page lists one by one; of more, it lists some of every class and outcome."""

_GRAPH, _EVIDENCE = (
    ("graph", "nodes", "edges", "label", "predicted"),
    ("method", "alpha", "num_slots", "counts", "grid"),
)
_NEEDED = (*_GRAPH, *ATTACKERS, *_EVIDENCE)


def run_names(folders: Sequence[Path]) -> list[str]:
    """A name for each run: that of its folder, with as many folders above it as tell it from the others."""
    places = [folder.resolve() for folder in folders]
    for place, folder in zip(places, folders, strict=True):
        if places.count(place) > 1:
            raise InputError(f"each run must be given once; got {folder} twice (leave one out)")
    names = [""] * len(places)
    for length in range(1, max((len(place.parts) for place in places), default=0) + 1):
        tried = ["/".join(place.parts[-length:]) for place in places]
        names = [name or (shown if tried.count(shown) == 1 else "") for name, shown in zip(names, tried, strict=True)]
    return names


def read_run(folder: Path, name: str, advance: Callable[[int], None] = lambda amount: None) -> CertifiedRun:
    """A run with its certificates, read graph by graph; without a table they are derived from the evidence.

    Of a run with very many graphs, a few columns are kept of each, and graph and weak spots only of those that a page lists.

    Args:
        folder: That ``flipproof certify`` wrote.
        name: What the report calls it.
        advance: Called with 1 after each graph.
    """
    with open_run(folder, CertifySettings) as run:
        wanted, request = set(run.settings.graphs), run.settings.request()
        done = len(wanted & run.store.finished())
        if done < len(wanted) or not wanted:
            raise InputError(
                f"{folder} has evidence of {done} of {len(wanted)} graphs: the run is not finished (run its flipproof certify "
                "command again)"
            )
        table = read_table(folder) if has_table(folder) else None
        places = {} if table is None else {index: at for at, index in enumerate(table.columns("graph")["graph"])}
        many = len(wanted) > MOST_LISTED
        rows: list[Row] = []
        graphs: dict[int, Graph] = {}
        readings: dict[str, dict[int, Reading]] = {}
        weak_spots: dict[int, WeakSpots] = {}
        kept: dict[str, Any] = {}
        for index, evidence in read_evidence(run):
            if table is None:
                row = derive_row(index, evidence, request)
            else:
                row = _stored_row(folder, index, evidence, table[places[index]] if index in places else None)
            rows.append(_shortened(row, kept) if many else row)
            own = Reading(row["predicted"], *(row[column] for column in (*ATTACKERS, "p_lower")))
            others = {method: Reading.of(found) for method, found in request.readings(evidence).items()}
            for method, reading in {rows[0]["method"]: own, **others}.items():
                readings.setdefault(method, {})[index] = reading
            if not many:
                _look_closely(index, evidence, row, graphs, weak_spots)
            advance(1)
        listed = chosen_rows(rows, MOST_LISTED) if many else []
        for row in listed:
            _look_closely(row["graph"], _evidence(run, row["graph"]), row, graphs, weak_spots)
        line = read_line(run) or Line()
        return CertifiedRun(
            name,
            run.settings,
            rows,
            _StoredGraphs(folder, [row["graph"] for row in rows], graphs) if many else graphs,
            readings,
            line.right(rows),
            majority=line.majority_right(rows),
            no_line=line.missing,
            weak_spots=weak_spots,
            listed={row["graph"] for row in listed} if many else None,
        )


def _look_closely(
    index: int, evidence: Evidence, row: Row, graphs: dict[int, Graph], weak_spots: dict[int, WeakSpots]
) -> None:
    """Keep what a page shows of a graph that it lists."""
    graphs[index] = evidence.graph.replaced()  # without what asking has cached in it
    spots = None if row["predicted"] is None else evidence.weak_spots(row["radius"])
    if spots is not None:
        weak_spots[index] = spots


def _shortened(row: Row, kept: dict[str, Any]) -> Row:
    """The columns that a report needs; lists, of which most graphs have the same, are kept once."""
    return {
        column: kept.setdefault(str(row[column]), row[column]) if isinstance(row[column], list) else row[column]
        for column in _NEEDED
    }


def _evidence(run: Run[CertifySettings], index: int) -> Evidence:
    source = f"the evidence of graph {index} in {run.folder}"
    return run.settings.defence_class.evidence.from_bytes(run.store.load(index), source=source)


class _StoredGraphs(Mapping[int, Graph]):
    """The graphs of a run; those that are not in memory are read from its evidence when they are asked for."""

    def __init__(self, folder: Path, indices: Sequence[int], kept: Mapping[int, Graph]) -> None:
        self._folder, self._indices, self._kept = folder, dict.fromkeys(indices), kept

    def __getitem__(self, index: int) -> Graph:
        if index not in self._kept and index in self._indices:
            with open_run(self._folder, CertifySettings) as run:
                return _evidence(run, index).graph
        return self._kept[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)

    def __contains__(self, index: object) -> bool:
        return index in self._indices


def _stored_row(folder: Path, index: int, evidence: Evidence, row: Row | None) -> Row:
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
