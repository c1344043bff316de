"""Attacks into a run folder: the smallest attack found on every graph, beside its certificate. Safe to stop.

RUN/run.json, RUN/evidence.sqlite      as for any run; a row per attacked graph
RUN/attacks.csv, RUN/summary.json      derived
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flipproof.attacks import AttackResult, robust_accuracy, strongest
from flipproof.certificates.metrics import right_radii, shares
from flipproof.defences.defence import DefendedClassifier
from flipproof.engines import Engine, ThisProcess
from flipproof.engines.pool import one_thread
from flipproof.errors import InputError
from flipproof.files import write_json, write_text
from flipproof.graphs import Graph
from flipproof.progress import progress
from flipproof.runs.run_folder import AttackSettings, CertifySettings, Run, open_run
from flipproof.runs.table import certificate_of, read_table


@dataclass(frozen=True, eq=False)
class AttackWork:
    attacked: Mapping[str, DefendedClassifier]
    graphs: Mapping[int, Graph]
    budget: int
    attacks: Sequence[str]
    options: Mapping[str, Any]  # of every attack

    def __call__(self, index: int) -> dict[str, Any]:
        graph = self.graphs[index]
        options = {**self.options, "label": graph.label}
        return {
            role: strongest(defence, graph, budget=self.budget, attacks=self.attacks, **options).to_dict()
            for role, defence in self.attacked.items()
        }


def attack_into(
    run: Run[AttackSettings],
    work: AttackWork,
    *,
    radii: Mapping[int, tuple[int | None, int]] | None = None,
    engine: Engine | None = None,
    quiet: bool = True,
) -> dict[str, Any]:
    """Attack what is not attacked yet, write the tables, and return what the summary says.

    ``radii`` are the certified label and radius of the defended classifier by graph, where known.
    """
    graphs = work.graphs
    noun = "graph" if all(graph.node is None for graph in graphs.values()) else "node"
    for index, graph in graphs.items():
        if graph.label is None:
            raise InputError(
                f"attacks need the label of every {noun}; {noun} {index} has none (set it, or leave it out)"
            )
    finished = run.store.finished()
    missing = [index for index in graphs if index not in finished]
    done = len(graphs) - len(missing)
    with one_thread(), progress("attacking", len(graphs), unit=f"{noun}s", quiet=quiet, done=done) as advance:
        for index, attacks in (engine or ThisProcess()).run(work, missing):
            run.store.finish(index, json.dumps(attacks, allow_nan=False).encode())
            advance(1)
    results: dict[str, dict[int, AttackResult]] = {role: {} for role in work.attacked}
    for index, graph in graphs.items():
        stored = json.loads(run.store.load(index))
        for role in results:
            results[role][index] = AttackResult.from_dict(graph, stored[role])
    write_text(run.folder / "attacks.csv", _table(graphs, results))
    summary = _summarised(graphs, results, work.budget, radii or {})
    if run.settings.constraints.get("changes"):
        summary["changes"] = run.settings.constraints["changes"]
    write_json(run.folder / "summary.json", summary)
    return {"run": str(run.folder), "task": f"{noun}s", **summary}


def certified_radii(folder: Path, settings: AttackSettings) -> dict[int, tuple[int | None, int]]:
    other = settings.difference(CertifySettings.read(folder))
    if other is not None:
        raise InputError(
            f"--certificates {folder} has {other} than the attack (certify the same model, data, node features and defence)"
        )
    certificates = ((row["graph"], certificate_of(row)) for row in read_table(folder))
    changes = settings.constraints.get("changes", 0)
    return {graph: (certificate.label, certificate.radius_beside(changes)) for graph, certificate in certificates}


def read_attacks(folder: Path) -> tuple[AttackSettings, dict[int, dict[str, Any]]]:
    with open_run(folder, AttackSettings) as run:
        stored = {index: json.loads(run.store.load(index)) for index in sorted(run.store.finished())}
    if not stored:
        raise InputError(f"--attack {folder} holds no finished attack (run its flipproof attack command again)")
    return run.settings, stored


def _summarised(
    graphs: Mapping[int, Graph],
    results: Mapping[str, Mapping[int, AttackResult]],
    budget: int,
    radii: Mapping[int, tuple[int | None, int]],
) -> dict[str, Any]:
    labels, steps = np.array([graph.label for graph in graphs.values()]), range(budget + 1)
    summary: dict[str, Any] = {
        "graphs": len(graphs),
        "budget": budget,
        "accuracy_under_attack": {
            role: robust_accuracy(list(attacks.values()), labels, steps).tolist() for role, attacks in results.items()
        },
        "model_calls": {
            role: sum(result.model_calls for result in attacks.values()) for role, attacks in results.items()
        },
    }
    known, defended = [index for index in graphs if index in radii], results.get("defended")
    if known and defended is not None:
        answers, reached = zip(*(radii[index] for index in known), strict=True)
        certified = right_radii(reached, answers, [graphs[index].label for index in known])
        gaps = {
            index: defended[index].size - int(radius)
            for index, radius in zip(known, certified, strict=True)
            if radius >= 0 and defended[index].success
        }
        summary["certified_graphs"] = len(known)
        summary["certified_accuracy"] = shares(certified, steps).tolist()
        summary["gaps"] = {str(index): gap for index, gap in gaps.items()}
        summary["mean_gap"] = float(np.mean(list(gaps.values()))) if gaps else None
        summary["attacks_within_a_certified_radius"] = sum(gap <= 0 for gap in gaps.values())
    return summary


def _table(graphs: Mapping[int, Graph], results: Mapping[str, Mapping[int, AttackResult]]) -> str:
    import pandas

    rows = list[dict[str, Any]]()
    for index, graph in graphs.items():
        for role, result in ((role, attacks[index]) for role, attacks in results.items()):
            about = {"graph": index, "name": graph.name, "label": graph.label, "target": role}
            about |= {"success": result.success, "size": result.size}
            about["flips"] = " ".join(f"{u}-{v}" for u, v in result.flips)
            about["changes"] = " ".join(f"{node}:{column}" for node, column in result.changes)
            rows.append(about | {name: f"{getattr(result, name):.6g}" for name in ("margin_before", "margin_after")})
    return str(pandas.DataFrame(rows).to_csv(index=False, lineterminator="\n"))
