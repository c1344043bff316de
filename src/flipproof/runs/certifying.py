"""Certification into a run folder: what is missing is asked, every certificate is read, the table is written. Safe to stop.

Beside the evidence a run keeps the line to beat: what a network that ignores edges answers about its graphs.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from flipproof.certificates.certificate import Evidence
from flipproof.classifiers.classifier import OTHER_ANSWERS
from flipproof.defences.asking import ask_all
from flipproof.defences.defence import DefendedClassifier
from flipproof.engines import Engine
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.models.loading import features_identity, hook_identity
from flipproof.progress import note, progress
from flipproof.runs.run_folder import STORE_FILE, Run, open_run
from flipproof.runs.settings import RUN_FILE, CertifySettings
from flipproof.runs.table import Row, StoredRows, columns_of, derive_row, read_table, write_table

_ROUNDS = 2  # of asking: a second one where stored evidence turns out to belong to something else


class _UnusableEvidence(Exception):
    """Stored evidence that does not belong to the run, and why, by graph."""

    def __init__(self, complaints: dict[int, str]) -> None:
        super().__init__(complaints)
        self.complaints = complaints


@dataclass(frozen=True, eq=False)
class _RowWork:
    """Deriving a graph's row of the table from its stored evidence; what is wrong with evidence that cannot be used."""

    run_folder: Path
    settings: CertifySettings
    request: Any

    def __call__(self, task: tuple[int, bytes, str]) -> Row | str:
        index, content, topology = task
        source = f"the evidence of graph {index} in {self.run_folder}"
        try:
            evidence = self.settings.defence_class.evidence.from_bytes(content, source=source)
        except InputError as error:
            return str(error)
        if evidence.graph.topology != topology:
            return f"the evidence in {self.run_folder} belongs to another graph"
        if not self.settings.defence_object.made(evidence, self.settings.num_classes):
            return f"the evidence in {self.run_folder} belongs to another defence"
        if not self.request.fits(evidence):
            return f"the evidence in {self.run_folder} answers another question"
        return derive_row(index, evidence, self.request)


def certify_into(
    run: Run[CertifySettings],
    classifier: DefendedClassifier,
    graphs: Mapping[int, Graph],
    *,
    engine: Callable[[int], Engine],
    own_model: bool = False,
    quiet: bool = True,
) -> StoredRows:
    """Ask what is missing, read all certificates, write the table; returns its rows.

    Memory does not grow with evidence and certificates: a graph's evidence is stored before the next graphs are asked about, and
    rows are written in groups.

    Args:
        run: Held by this process.
        classifier: Has checked the graphs, if only ahead.
        graphs: By position in the data set, those of the run's settings.
        engine: Where so many graphs are worked on.
        own_model: Whether the model is a user's own.
        quiet: Show no progress.
    """
    for _ in range(_ROUNDS):
        ask_missing(run, classifier, graphs, engine=engine, own_model=own_model, quiet=quiet)
        try:
            return _written_rows(run, graphs, engine(len(graphs)), quiet=quiet)
        except _UnusableEvidence as error:
            for index, complaint in error.complaints.items():
                note(f"{complaint}; asking again about graph {index}", quiet=quiet)
                run.store.drop(index)
    raise InputError(f"evidence in {run.folder} cannot be used, even after asking again (choose another folder)")


def _written_rows(run: Run[CertifySettings], graphs: Mapping[int, Graph], engine: Engine, *, quiet: bool) -> StoredRows:
    """Read all certificates from the stored evidence and write the table, if all of the evidence can be used."""
    work = _RowWork(run.folder, run.settings, run.settings.request())
    order = sorted(run.settings.graphs)
    stored = ((index, run.store.load(index), graphs[index].topology) for index in order)
    with (
        progress("certifying", len(graphs), unit="graphs", quiet=quiet) as advance,
        closing(engine.run(work, stored)) as results,  # type: ignore[type-var]
    ):
        write_table(run.folder, _in_order(((task[0], row) for task, row in results), order, advance))
    return read_table(run.folder)


def _in_order(
    rows: Iterable[tuple[int, Row | str]], order: Sequence[int], advance: Callable[[int], None]
) -> Iterator[Row]:
    """Rows in the given order; those that come early are kept until it is their turn, which is seldom many."""
    waiting: dict[int, Row] = {}
    complaints: dict[int, str] = {}
    following = iter(order)
    wanted = next(following, None)
    for index, row in rows:
        advance(1)
        if isinstance(row, str):
            complaints[index] = row
        if complaints:  # no table comes of this
            continue
        assert not isinstance(row, str)
        waiting[index] = row
        while wanted in waiting:
            yield waiting.pop(wanted)
            wanted = next(following, None)
    if complaints:
        raise _UnusableEvidence(complaints)


def ask_missing(
    run: Run[CertifySettings],
    classifier: DefendedClassifier,
    graphs: Mapping[int, Graph],
    *,
    engine: Callable[[int], Engine],
    own_model: bool = False,
    quiet: bool = True,
) -> None:
    """Ask about the graphs of which the run has no evidence yet, the largest ones first, so that none is left to the end."""
    finished = run.store.finished() & graphs.keys()
    for index in sorted(finished):
        try:
            run.store.load(index)
        except InputError as error:
            note(f"{error}; asking again about graph {index}", quiet=quiet)
            run.store.drop(index)
            finished.remove(index)
    done = len(finished)
    missing = sorted((index for index in graphs if index not in finished), key=lambda index: -graphs[index].num_slots)
    if done and missing:
        note(f"continuing {run.folder}: {done} of {len(graphs)} graphs are done", quiet=quiet)
    if not missing:
        return
    with (
        classifier.classifier.one_thread(),
        progress("asking", len(graphs), unit="graphs", quiet=quiet, done=done) as advance,
    ):
        for index, evidence, _ in ask_all(
            classifier,
            run.settings.request(),
            graphs,
            chosen=missing,
            engine=engine(len(missing)),
            read=False,
            own_model=own_model,
            quiet=quiet,
            restart=lambda: _started_over(run, classifier, graphs),
        ):
            run.store.finish(index, evidence.to_bytes())
            advance(1)


def _started_over(
    run: Run[CertifySettings], classifier: DefendedClassifier, graphs: Mapping[int, Graph]
) -> Iterable[int]:
    """Forget what a shortcut to the model said that gave other answers, and record that the model itself is asked."""
    run.begin_again(replace(run.settings, paths=model_paths(classifier, graphs)))
    return graphs


def keep_to_path(classifier: DefendedClassifier, folder: str | os.PathLike[str]) -> None:
    """Take no shortcuts to the model where the run in the folder took none, since they gave other answers."""
    if classifier.classifier.shortcuts and (Path(folder) / RUN_FILE).is_file():
        recorded = [path for path in CertifySettings.read(Path(folder)).paths if OTHER_ANSWERS in path]
        if recorded:
            classifier.classifier.take_no_shortcuts(recorded[0].partition("(")[2].rpartition(")")[0])


def model_paths(classifier: DefendedClassifier, graphs: Mapping[int, Graph]) -> dict[str, int]:
    """How graphs reach the model, and how many at once: part of what was asked, since rounding can depend on it."""
    kinds, noise = Counter[str](), classifier.defence.trial_noise
    for graph in graphs.values():
        base = classifier.classifier.suited(graph, noise)
        path = f"{base.path} ({base.remark})" if base.remark else base.path
        kinds[f"{path}, {base.batch_size(graph, noise)} at a time"] += 1
    return dict(sorted(kinds.items()))


def features_shown(classifier: DefendedClassifier, graphs: Iterable[Graph], name: str | None = None) -> str:
    """The node features that the model is shown, by name; ``name`` is that of a user's own function.

    The default is named by what it comes to on these graphs: their own features, or degrees.
    """
    hook = getattr(classifier.classifier, "features", None)
    if name is not None and hook is not None and hook.spec is None:
        return features_identity(name)
    identity = hook_identity(hook)
    if identity != "own-or-degree":
        return identity
    return "degree" if all(graph.node_features is None for graph in graphs) else "own"


def read_evidence(run: Run[CertifySettings]) -> Iterator[tuple[int, Evidence]]:
    """The evidence of every graph, in the order of the data set; refuses a run that is not finished."""
    kind = run.settings.defence_class.evidence
    for index in sorted(run.settings.graphs):
        yield index, kind.from_bytes(run.store.load(index), source=f"the evidence of graph {index} in {run.folder}")


_ITEM = "edge-blind line"


@dataclass(frozen=True)
class Line:
    """What certificates are compared with. No attack on edges changes any of these answers.

    Attributes:
        answers: Of a network that ignores edges, by graph; ``None`` if there is none to compare with.
        missing: Why there is none, in words.
        majority: The class that is most frequent among the training graphs, if they are known.
        learned_from: How many training graphs the network has learned from, where it was fitted for this run.
        training_graphs: How many there are.
    """

    answers: Mapping[int, int] | None = None
    missing: str = ""
    majority: int | None = None
    learned_from: int | None = None
    training_graphs: int | None = None

    def right(self, rows: Sequence[Row]) -> int | None:
        """How many graphs of a table the network answers right; ``None`` without one, or without labels."""
        if self.answers is None:
            return None
        found = columns_of(rows, "graph", "label")
        if all(label is None for label in found["label"]):
            return None
        pairs = zip(found["graph"], found["label"], strict=True)
        return sum(1 for graph, label in pairs if self.answers[graph] == label)

    def majority_right(self, rows: Sequence[Row]) -> int | None:
        """How many graphs of a table are of the class that is most frequent in training; ``None`` if nothing is known."""
        labels = columns_of(rows, "label")["label"]
        if self.majority is None or all(label is None for label in labels):
            return None
        return labels.count(self.majority)


def keep_line(run: Run[CertifySettings], line: Line) -> None:
    """Keep the line of a run, in place of an earlier one."""
    run.store.finish(_ITEM, json.dumps(asdict(line)).encode())


def read_line(run: Run[CertifySettings]) -> Line | None:
    """The line of a run, if it was given one; refuses one of other graphs."""
    if _ITEM not in run.store.finished():
        return None
    try:
        stored = json.loads(run.store.load(_ITEM))
        answers = stored.pop("answers")
        line = Line(None if answers is None else {int(graph): int(label) for graph, label in answers.items()}, **stored)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"the edge-blind line in {run.folder} cannot be read: {error} ({_REMEDY})") from error
    if line.answers is not None and line.answers.keys() != set(run.settings.graphs):
        raise InputError(f"the edge-blind line in {run.folder} was altered: it belongs to other graphs ({_REMEDY})")
    return line


def line_in(folder: Path) -> Line | None:
    """The line of a run folder, if it was given one; ``None`` also where only the table is left of a run."""
    if not (folder / STORE_FILE).is_file():
        return None
    with open_run(folder, CertifySettings) as run:
        return read_line(run)


_REMEDY = "certify again in another folder"
