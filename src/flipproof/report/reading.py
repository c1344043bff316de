"""From run folders to the content of a report: certificates read back, with attacks and edge-blind runs beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flipproof.attacks import AttackResult
from flipproof.certificates.certificate import WeakSpots
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.report.content import ATTACKERS, CertifiedRun, Reading, chosen_rows
from flipproof.runs.attacking import read_attacks
from flipproof.runs.certifying import Line, evidence_of, line_in, read_evidence, read_line
from flipproof.runs.run_folder import AttackSettings, CertifySettings, open_run
from flipproof.runs.table import columns_of, read_table

MOST_LISTED = 2_000  # graphs of a run that a page lists one by one; of more, some of every class and outcome


def run_names(folders: Sequence[Path]) -> list[str]:
    """A name for each run: that of its folder or, where two have the same one, the path that was given."""
    places = [folder.resolve() for folder in folders]
    for place, folder in zip(places, folders, strict=True):
        if places.count(place) > 1:
            raise InputError(f"each run must be given once; got {folder} twice (leave one out)")
    names = [place.name for place in places]
    return [name if names.count(name) == 1 else folder.as_posix() for name, folder in zip(names, folders, strict=True)]


def read_tables(folders: Sequence[Path]) -> list[CertifiedRun]:
    """Finished runs, by their tables of certificates; a run without any label is refused."""
    runs = []
    for folder, name in zip(folders, run_names(folders), strict=True):
        rows, line = read_table(folder), line_in(folder)
        if all(label is None for label in columns_of(rows, "label")["label"]):
            raise InputError(
                f"{folder} certifies graphs without labels, so there is no certified accuracy (use --format csv)"
            )
        right = None if line is None else line.right(rows)
        runs.append(
            CertifiedRun(name=name, settings=CertifySettings.read(folder), rows=rows, folder=folder, line=right)
        )
    return runs


def read_run(folder: Path, name: str, advance: Callable[[int], None] = lambda amount: None) -> CertifiedRun:
    """A run with its certificates, read graph by graph, called ``name``; ``advance`` is called with 1 after each graph.

    Of a run with very many graphs, graph and weak spots are read only of those that a page lists.
    """
    with open_run(folder, CertifySettings) as run:
        wanted, request = set(run.settings.graphs), run.settings.request()
        items = set(run.settings.items)
        done = len(items & run.store.finished())
        if done < len(items) or not wanted:
            raise InputError(
                f"{folder} has evidence of {done} of {len(items)} graphs: the run is not finished (run its flipproof certify "
                "command again)"
            )
        rows = read_table(folder)
        columns = rows.columns("graph", "evidence_sha256", "predicted", *ATTACKERS, "p_lower")
        digests = dict(zip(columns.pop("graph"), columns.pop("evidence_sha256"), strict=True))
        readings: dict[str, dict[int, Reading]] = {
            rows[0]["method"]: dict(zip(digests, map(Reading, *columns.values()), strict=True))
        }
        for index, evidence in read_evidence(run):
            if digests.get(index) != evidence.digest:
                raise InputError(
                    f"the certificate of graph {index} in {folder} was not read from the evidence that is there (flipproof "
                    "verify tells more; run its flipproof certify command again to derive it again)"
                )
            for method, certificate in request.readings(evidence).items():
                readings.setdefault(method, {})[index] = Reading.of(certificate)
            advance(1)
        graphs: dict[int, Graph] = {}
        weak_spots: dict[int, WeakSpots] = {}
        for row in chosen_rows(rows, MOST_LISTED):
            evidence = evidence_of(run, row["graph"])
            graphs[row["graph"]] = evidence.graph.replaced()  # without what asking has cached in it
            spots = None if row["predicted"] is None else evidence.weak_spots(row["radius"])
            if spots is not None:
                weak_spots[row["graph"]] = spots
        line = read_line(run) or Line()
        compared = {"line": line.right(rows), "majority": line.majority_right(rows), "no_line": line.missing}
        known: Any = {"graphs": graphs, "readings": readings, "weak_spots": weak_spots, **compared}
        return CertifiedRun(name=name, settings=run.settings, rows=rows, folder=folder, **known)


def with_lines(runs: Sequence[CertifiedRun]) -> list[CertifiedRun]:
    """The runs, each with the best line known: its own, or of another run on the same graphs, which may be edge-blind."""
    lines: dict[Any, list[int]] = {run.graphs_key: [] for run in runs}
    for run in runs:
        own = int((run.right_radii() >= 0).sum()) if run.edge_blind else run.line
        lines[run.graphs_key] += [] if own is None else [own]
    return [replace(run, line=max(lines[run.graphs_key], default=None)) for run in runs]


def check_attacks(folder: Path, certified: Iterable[CertifySettings]) -> None:
    if all(map(AttackSettings.read(folder).difference, certified)):
        raise InputError(
            f"--attack {folder} attacked another model, data or defence than the runs (attack what was certified)"
        )


def with_attacks(runs: Sequence[CertifiedRun], folder: Path) -> list[CertifiedRun]:
    """The runs, with the attacks on the same model, data and defence; of two attacks on a graph the stronger counts."""
    settings, stored = read_attacks(folder)
    return [_with_stronger(run, folder, stored) if settings.difference(run.settings) is None else run for run in runs]


def _with_stronger(run: CertifiedRun, folder: Path, stored: Mapping[int, Mapping[str, Any]]) -> CertifiedRun:
    attacked = stored.keys() & set(run.settings.graphs)
    graphs, attacks = dict(run.graphs), {index: dict(by_role) for index, by_role in run.attacks.items()}
    with open_run(run.folder, CertifySettings) as held:
        graphs |= {index: evidence_of(held, index).graph.replaced() for index in sorted(attacked - graphs.keys())}
    for index in attacked:
        for role, values in stored[index].items():
            try:
                result = AttackResult.from_dict(graphs[index], values)
            except (KeyError, TypeError, ValueError) as error:
                raise InputError(
                    f"the attack on graph {index} in {folder} cannot be read: {error} (attack again in another folder)"
                ) from error
            rivals = [result, *filter(None, [attacks.setdefault(index, {}).get(role)])]
            attacks[index][role] = min(
                rivals, key=lambda one: (not one.success, one.size if one.success else -one.budget)
            )
    return replace(run, graphs=graphs, attacks=dict(sorted(attacks.items())))
