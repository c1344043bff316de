"""Certification into a run folder: what is missing is asked, every certificate is read, the table is written. Safe to stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flipproof.certificates.evidence import Evidence
from flipproof.defences.asking import ask_all
from flipproof.defences.defence import Defence
from flipproof.engines import Engine
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.progress import note, progress
from flipproof.runs.run_folder import Run
from flipproof.runs.settings import CertifySettings
from flipproof.runs.table import Row, derive_row, write_table

__all__ = ["ask_missing", "certify_into", "model_paths", "read_evidence"]


@dataclass(frozen=True, eq=False)
class _RowWork:
    """Deriving a graph's row of the table."""

    question: Any

    def __call__(self, task: tuple[int, Evidence]) -> Row:
        return derive_row(*task, self.question)


def certify_into(
    run: Run[CertifySettings],
    defence: Defence,
    graphs: Mapping[int, Graph],
    *,
    engine: Callable[[int], Engine],
    own_model: bool = False,
    quiet: bool = True,
) -> list[Row]:
    """Ask what is missing, read all certificates, write the table; returns its rows.

    Args:
        run: Held by this process.
        defence: Has checked the graphs.
        graphs: By position in the data set, those of the run's settings.
        engine: Where so many pieces of work are done.
        own_model: Whether the model is a user's own.
        quiet: Show no progress.
    """
    ask_missing(run, defence, graphs, engine=engine, own_model=own_model, quiet=quiet)
    rows: dict[int, Row] = {}
    work = _RowWork(run.settings.asked())
    with progress("certifying", len(graphs), unit="graphs", quiet=quiet) as advance:
        for (index, _), row in engine(len(graphs)).run(work, read_evidence(run)):
            rows[index] = row
            advance(1)
    ordered = [rows[index] for index in sorted(rows)]
    write_table(run.folder, ordered)
    return ordered


def ask_missing(
    run: Run[CertifySettings],
    defence: Defence,
    graphs: Mapping[int, Graph],
    *,
    engine: Callable[[int], Engine],
    own_model: bool = False,
    quiet: bool = True,
) -> None:
    """Ask about the graphs of which the run has no evidence yet."""
    question = run.settings.asked()
    missing = dict(graphs)
    for index in run.store.finished() & graphs.keys():
        complaint = _complaint(run, defence, question, index, graphs[index])
        if complaint is None:
            del missing[index]
        else:
            note(f"{complaint}; asking again about graph {index}", quiet=quiet)
            run.store.drop(index)
    done = len(graphs) - len(missing)
    if done and missing:
        note(f"continuing {run.folder}: {done} of {len(graphs)} graphs are done", quiet=quiet)
    if not missing:
        return
    each = question.amount
    unit = "graphs" if each is None else question.unit
    total, pieces = (
        len(graphs) * (each or 1),
        sum(len(defence.tasks(graph, question, {})) for graph in missing.values()),
    )
    with (
        defence.classifier.one_thread(),
        progress(question.doing, total, unit=unit, quiet=quiet, done=done * (each or 1)) as advance,
    ):
        asked = ask_all(
            defence,
            question,
            missing,
            engine=engine(pieces),
            store=run.store,
            read=False,
            own_model=own_model,
            advance=(lambda amount: None) if each is None else advance,
        )
        for index, evidence, _ in asked:
            run.store.finish(index, evidence.to_bytes())
            if each is None:
                advance(1)


def model_paths(defence: Defence, graphs: Mapping[int, Graph]) -> dict[str, int]:
    """How graphs reach the model, and how many at once: part of what was asked, since rounding can depend on it."""
    kinds: Counter[str] = Counter()
    for graph in graphs.values():
        classifier = defence.classifier.suited(graph, defence.noise)
        path = f"{classifier.path} ({classifier.remark})" if classifier.remark else classifier.path
        kinds[f"{path}, {classifier.batch_size(graph, defence.noise)} at a time"] += 1
    return dict(sorted(kinds.items()))


def read_evidence(run: Run[CertifySettings]) -> Iterator[tuple[int, Evidence]]:
    """The evidence of every graph, in the order of the data set; refuses a run that is not finished."""
    kind = run.settings.defence_class.evidence_type
    for index in sorted(run.settings.graphs):
        yield index, kind.from_bytes(run.store.load(index), source=f"the evidence of graph {index} in {run.folder}")


def _complaint(run: Run[CertifySettings], defence: Defence, question: Any, index: int, graph: Graph) -> str | None:
    """What is wrong with the stored evidence of a graph; ``None`` if it can be used."""
    try:
        evidence = defence.evidence_type.from_bytes(run.store.load(index), source="the evidence")
    except InputError as error:
        return str(error)
    settings = run.settings
    if evidence.graph.topology != graph.topology:
        return f"the evidence in {run.folder} belongs to another graph"
    if not defence.answered(evidence, settings.defence_settings, settings.num_classes):
        return f"the evidence in {run.folder} belongs to another defence"
    if not question.fits(evidence):
        return f"the evidence in {run.folder} answers another question"
    return None
