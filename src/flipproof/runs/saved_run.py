"""Certified runs from Python: the run folder that ``flipproof certify`` would write, back from the folder to certificates, and
their verification for an auditor, who derives every certificate again from the stored evidence."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from flipproof.certificates.certificate import Certificate
from flipproof.datasets import Dataset
from flipproof.defences.defence import DefendedClassifier
from flipproof.engines import Engine
from flipproof.errors import InputError
from flipproof.models.loading import model_identity
from flipproof.runs.certifying import certified_run, certify_into, evidence_of, read_evidence, read_line
from flipproof.runs.run_folder import RUN_FILE, CertifySettings, Run, differences, open_run
from flipproof.runs.table import COLUMNS, Row, certificate_of, derive_row, read_table

_OF_RUNS = ("defended", "graphs", "out", "name", "progress", "workers", "engine", "request")  # no part of the question


@dataclass(frozen=True, eq=False)
class SavedRun:
    """What a run folder holds: certificates in the order of the data set, graphs without node features, and what was asked."""

    folder: Path
    certificates: list[Certificate]
    graphs: Dataset
    class_names: tuple[str, ...]
    settings: CertifySettings


def certify_run(
    defended: DefendedClassifier,
    graphs: Iterable[Any],
    *,
    out: str | os.PathLike[str],
    name: str | None = None,
    progress: bool = False,
    workers: int | None = None,
    engine: Engine | None = None,
    samples: int | None = None,
    alpha: float | None = None,
    simultaneous: bool | None = None,
    method: str | None = None,
    seed: int | None = None,
    depth: int | None = None,
    calls: int | None = None,
    per_node: int | None = None,
    nodes: int | None = None,
    request: Any = None,
) -> list[Certificate]:
    """Certify graphs into a run folder, as ``flipproof certify`` does; the same call continues where it was stopped.

    Args:
        defended: A :class:`SmoothedClassifier` or any other defended classifier.
        graphs: A :class:`flipproof.datasets.Dataset`, a list, a PyG data set or a ``DataLoader`` that does not shuffle.
        out: The run folder.
        name: What reports call the graphs; by default the data set's own name.
        progress, workers, engine: As for :meth:`DefendedClassifier.certify_all`.
        samples, alpha, simultaneous, method, seed: As for :meth:`SmoothedClassifier.certify_all`, but the default seed is 0.
        depth, calls: As for :meth:`VotingClassifier.certify`.
        per_node, nodes: As for :meth:`LocalClassifier.certify`.
        request: In place of these, the request of a defence of your own.

    >>> import tempfile
    >>> from flipproof import EdgeNoise, Graph, SmoothedClassifier
    >>> smooth = SmoothedClassifier(lambda graphs: [0] * len(graphs), EdgeNoise(keep=0.9), num_classes=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = certify_run(smooth, [Graph(4, [(0, 1)], label=0)], out=f"{folder}/run", samples=500)
    ...     load_run(f"{folder}/run").certificates == made
    True
    """
    question = {name: value for name, value in locals().items() if name not in _OF_RUNS and value is not None}
    if not isinstance(defended, DefendedClassifier):
        raise InputError(
            f"defended must be a defended classifier; got {defended!r} (for instance a SmoothedClassifier)"
        )
    data = graphs if isinstance(graphs, Dataset) else Dataset(defended.graphs_of(graphs))
    chosen = defended.effective()
    if not len(data):
        raise InputError("graphs must hold at least one graph; got none (give the graphs to certify)")
    highest = max((graph.label for graph in data if graph.label is not None), default=-1)
    if highest >= chosen.num_classes:
        raise InputError(
            f"the model has {chosen.num_classes} classes and a graph has the label {highest} (certify data with the model's "
            "classes)"
        )
    kind, members = defended.defence.request, dict(enumerate(data))
    known = {entry.name for entry in fields(kind)}
    for key, value in question.items():
        if key not in known:
            raise InputError(
                f"{key} has no part in certifying with {defended.defence.name}; got {value!r} (leave it out)"
            )
    if chosen is not defended:
        request = chosen.defence.request()
    elif request is None:
        request = kind(**question, **({"graphs": len(data)} if "graphs" in known else {}))
    where = engine or chosen.engine(workers)
    stated: dict[str, Any] = {"model": type(defended.model).__name__, "part": "all"}
    stated |= {"model_sha256": model_identity(defended.model)} | ({} if name is None else {"data": str(name)})
    with certified_run(out, chosen, request, data, members, **stated) as run:
        rows = certify_into(run, chosen, members, engine=lambda pieces: where, quiet=not progress)
    return [certificate_of(row) for row in rows]


def load_run(folder: str | os.PathLike[str]) -> SavedRun:
    """The certificates of a finished run, made by :func:`certify_run` or by ``flipproof certify``."""
    path = Path(folder)
    with open_run(path, CertifySettings) as run:
        settings, names = run.settings, tuple(run.settings.class_names)
        certificates = [certificate_of(row) for row in read_table(path)]
        graphs = Dataset(
            (evidence.graph for _, evidence in read_evidence(run)), class_names=names or None, name=settings.data
        )
    return SavedRun(path, certificates, graphs, graphs.class_names, settings)


def problems_of_run(folder: Path, advance: Callable[[int], None] = lambda amount: None) -> list[dict[str, Any]]:
    """What is wrong with a run, one entry per finding: ``graph`` (``None`` for the run) and ``problem``; empty if all agrees."""
    problems: list[tuple[int | None, str]] = []
    with open_run(folder, CertifySettings) as run:
        request, table, graphs = run.settings.request(), read_table(folder), run.settings.graphs
        order = table.columns("graph")["graph"]
        places = {index: place for place, index in enumerate(order)}
        for index in graphs:
            row = table[places[index]] if index in places else None
            problems += [(index, problem) for problem in _problems_of_graph(run, request, index, row)]
            advance(1)
        problems += [(index, "is in the table and not in run.json") for index in sorted(places.keys() - set(graphs))]
        if order != sorted(set(order)):
            problems.append((None, "the table has rows twice, or not in the order of the data set"))
        stored = run.store.made_with()
        if stored is None:
            problems.append((None, "evidence.sqlite does not say what it was made with"))
        else:
            now = json.loads((run.folder / RUN_FILE).read_text(encoding="utf-8"))
            for key, mine, theirs in differences(json.loads(stored), now):
                sentence = f"{key} is {theirs!r} there, and the evidence was made with {mine!r}"
                problems.append((None, f"run.json was altered: {sentence}"))
        try:
            read_line(run)
        except InputError as error:
            problems.append((None, str(error)))
    if run.settings.task == "nodes":  # what is wrong with their common evidence is told once
        times = Counter(problem for _, problem in problems)
        problems = list(dict.fromkeys((None if times[problem] > 1 else node, problem) for node, problem in problems))
    return [{"graph": index, "problem": problem} for index, problem in problems]


def _problems_of_graph(run: Run[CertifySettings], request: Any, index: int, row: Row | None) -> list[str]:
    if row is None:
        return ["is missing from certificates.parquet"]
    altered: list[str] = []
    try:
        evidence = evidence_of(run, index)
        if not evidence.made_again():
            return ["what the model was shown, made again, is not what it answered (order, seed or noise was altered)"]
        if not run.settings.defence_object.made(evidence, run.settings.num_classes):
            return ["its evidence belongs to another defence than run.json's"]
        if evidence.digest != row["evidence_sha256"]:
            altered = ["its evidence is not what the certificate was read from: the hash differs"]
        derived = derive_row(index, evidence, request)
    except (InputError, KeyError, TypeError) as error:
        return [f"cannot be derived again: {error}", *altered]
    if altered:
        return altered
    differing = [column for column in COLUMNS if derived[column] != row[column]]
    told = [f"{name} is {row[name]!r} in the table and {derived[name]!r} from the evidence" for name in differing]
    shown = [sentence for name, sentence in zip(differing, told, strict=True) if name != "grid"]
    return shown or ["grid in the table is not the one from the evidence"] * bool(differing)
