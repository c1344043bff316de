"""Certification into a run folder: what is missing is asked, every certificate is read, the table is written. Safe to stop.

Beside the evidence a run keeps the line to beat: what a classifier that ignores edges answers about its graphs.
"""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from flipproof.certificates.evidence import Evidence
from flipproof.classifiers.classifier import OTHER_ANSWERS
from flipproof.datasets import Dataset
from flipproof.datasets.sources import fingerprint
from flipproof.defences.asking import ask_all
from flipproof.defences.defence import DefendedClassifier, described
from flipproof.engines import Engine
from flipproof.engines.pool import one_thread
from flipproof.errors import InputError
from flipproof.fields import to_plain
from flipproof.graphs import Graph
from flipproof.models.loading import hook_identity
from flipproof.progress import note, progress
from flipproof.runs.run_folder import RUN_FILE, STORE_FILE, CertifySettings, Run, Store, open_run, written_run
from flipproof.runs.table import ROWS_AT_ONCE, Row, StoredRows, columns_of, derive_row, read_table, write_table


@contextmanager
def certified_run(
    out: str | os.PathLike[str],
    classifier: DefendedClassifier,
    request: Any,
    dataset: Dataset,
    graphs: Mapping[int, Graph],
    *,
    features: str | None = None,
    **stated: Any,
) -> Iterator[Run[CertifySettings]]:
    """A run folder for certificates of these graphs of the data, begun or continued once model and graphs are checked.

    No shortcut to the model is taken where the run that is there took none. ``features`` names a user's own function. What else
    is ``stated`` are fields of :class:`CertifySettings`: at least ``model`` and ``model_sha256``.
    """
    there = classifier.classifier.shortcuts and (Path(out) / RUN_FILE).is_file()
    for path in CertifySettings.read(Path(out)).paths if there else ():
        if OTHER_ANSWERS in path:
            classifier.classifier.take_no_shortcuts(path.partition("(")[2].rpartition(")")[0])
            break
    classifier.check(dataset.subset(graphs), request)
    settings = CertifySettings(
        **{"data": dataset.name, "part": "test", "split_seed": 0, **stated},
        data_sha256=fingerprint(dataset),
        class_names=list(dataset.class_names),
        graphs=list(graphs),
        features=features_shown(classifier, graphs.values(), features),
        num_classes=classifier.num_classes,
        defence=described(classifier.defence),
        question=to_plain(request),
        paths=model_paths(classifier, graphs),
    )
    with written_run(out, settings) as run:
        yield run


def certify_into(
    run: Run[CertifySettings],
    classifier: DefendedClassifier,
    graphs: Mapping[int, Graph],
    *,
    engine: Callable[[int], Engine],
    quiet: bool = True,
) -> StoredRows:
    """Ask what is missing, read all certificates, write the table; returns its rows. Memory does not grow with their number.

    ``engine`` says where a number of graphs is worked on.
    """
    ask_missing(run, classifier, graphs, engine=engine, quiet=quiet)
    with progress("certifying", len(graphs), unit=run.settings.task, quiet=quiet) as advance:
        write_table(run.folder, _rows(run, engine(len(graphs)), advance))
    return read_table(run.folder)


def _rows(run: Run[CertifySettings], engine: Engine, advance: Callable[[int], None]) -> Iterator[Row]:
    """The rows of the table, in the order of the data set, read from the stored evidence in groups."""
    order, request = iter(sorted(run.settings.graphs)), run.settings.request()
    if run.settings.task == "nodes":  # which share their evidence
        for node, evidence in read_evidence(run):
            advance(1)
            yield derive_row(node, evidence, request)
        return
    while part := list(islice(order, ROWS_AT_ONCE)):
        rows, stored = dict[int, Row](), ((index, run.store.load(index)) for index in part)
        with closing(engine.run(partial(_row, run.settings.defence_class.evidence, request), stored)) as results:  # type: ignore[type-var]
            for (index, _), row in results:
                rows[index] = row
                advance(1)
        yield from (rows[index] for index in part)


def _row(kind: type[Evidence], request: Any, task: tuple[int, bytes]) -> Row:
    return derive_row(task[0], kind.from_bytes(task[1]), request)


def evidence_of(run: Run[CertifySettings], index: int) -> Any:
    settings, kind = run.settings, run.settings.defence_class.evidence
    if settings.task == "graphs":
        return kind.from_bytes(run.store.load(index), source=f"the evidence of graph {index} in {run.folder}")
    if run.whole is None:
        run.whole = kind.from_bytes(run.store.load(settings.items[0]), source=f"the evidence in {run.folder}")
    return run.whole.of(index)


def _complaint(run: Run[CertifySettings], request: Any, index: int, graph: Graph) -> str | None:
    try:
        evidence = evidence_of(run, index)
    except InputError as error:
        return str(error)
    stored = evidence.graph.node_features  # under noise on features; else they are not stored
    same = stored is None or (graph.node_features is not None and np.array_equal(stored, graph.node_features))
    if evidence.graph.topology != graph.topology or not same:
        return f"the evidence in {run.folder} belongs to another graph"
    if not run.settings.defence_object.made(evidence, run.settings.num_classes):
        return f"the evidence in {run.folder} belongs to another defence"
    return None if request.fits(evidence) else f"the evidence in {run.folder} answers another question"


def ask_missing(
    run: Run[CertifySettings],
    classifier: DefendedClassifier,
    graphs: Mapping[int, Graph],
    *,
    engine: Callable[[int], Engine],
    quiet: bool = True,
) -> None:
    """Ask about graphs without usable evidence in the run, the largest ones first, so that none is left to the end."""
    labels = {index: graph.label for index, graph in graphs.items()}
    if run.settings.task == "nodes":
        graphs = {run.settings.items[0]: next(iter(graphs.values())).replaced(node=None, label=None, name=None)}
    finished, request, kept = run.store.finished() & graphs.keys(), run.settings.request(), _Pieces(run.store)
    for index in sorted(finished):
        if complaint := _complaint(run, request, index, graphs[index]):
            note(f"{complaint}; asking again about graph {index}", quiet=quiet)
            run.store.drop(index)
            run.whole = None
            finished.remove(index)
    done, missing = len(finished), sorted(graphs.keys() - finished, key=lambda index: (-graphs[index].num_slots, index))
    if not missing:
        return
    if done:
        note(f"continuing {run.folder}: {done} of {len(graphs)} graphs are done", quiet=quiet)

    where = engine(len(missing))
    with one_thread(), progress("asking", len(graphs), unit="graphs", quiet=quiet, done=done) as advance:
        for index, evidence, _ in ask_all(
            classifier, request, graphs, chosen=missing, engine=where, read=False, kept=kept, quiet=quiet
        ):
            answered: Any = evidence if run.settings.task == "graphs" else evidence.with_labels(labels)  # type: ignore[attr-defined]
            run.store.finish(index, answered.to_bytes())
            kept.drop(index)
            advance(1)


@dataclass(frozen=True)
class _Pieces:
    """Pieces of work on one graph, in the store until the whole is there: tuples of arrays, texts and numbers."""

    store: Store

    def _items(self, index: int) -> dict[int, str]:
        stem = f"graph {index}, piece "
        names = (item for item in self.store.finished() if isinstance(item, str) and item.startswith(stem))
        return {int(name.removeprefix(stem)): name for name in names}

    def of(self, index: int) -> dict[int, tuple[Any, ...]]:
        results = dict[int, tuple[Any, ...]]()
        for place, item in self._items(index).items():
            with suppress(InputError), np.load(io.BytesIO(self.store.load(item)), allow_pickle=False) as stored:
                results[place] = tuple(part if part.ndim else part.item() for part in map(stored.get, stored.files))
        return results

    def keep(self, index: int, place: int, result: tuple[Any, ...]) -> None:
        content = io.BytesIO()
        np.savez_compressed(content, *result, allow_pickle=False)
        self.store.finish(f"graph {index}, piece {place}", content.getvalue())

    def drop(self, index: int) -> None:
        for item in self._items(index).values():
            self.store.drop(item)


def model_paths(classifier: DefendedClassifier, graphs: Mapping[int, Graph]) -> dict[str, int]:
    """How graphs reach the model, and how many at once: part of what was asked, since rounding can depend on it."""
    kinds = Counter[str]()
    for base, size in map(classifier.suited, graphs.values()):
        path = f"{base.path} ({base.remark})" if base.remark else base.path
        kinds[f"{path}, {size} at a time"] += 1
    return dict(sorted(kinds.items()))


def features_shown(classifier: DefendedClassifier, graphs: Iterable[Graph], name: str | None = None) -> str:
    """The node features that the model is shown, by name; of the default, what it comes to on these graphs.

    ``name`` is that of a user's own function.
    """
    identity = hook_identity(classifier.features, name)
    if identity != "own-or-degree":
        return identity
    return "degree" if all(graph.node_features is None for graph in graphs) else "own"


def read_evidence(run: Run[CertifySettings]) -> Iterator[tuple[int, Evidence]]:
    """The evidence of every graph or node, in the order of the data set; refuses a run that is not finished."""
    return ((index, evidence_of(run, index)) for index in sorted(run.settings.graphs))


_ITEM = "edge-blind line"


@dataclass(frozen=True)
class Line:
    """What certificates are compared with. No attack on edges changes any of these answers."""

    answers: Mapping[int, int] | None = None  # of a classifier that ignores edges, by graph
    missing: str = ""  # why there are none, in words
    majority: int | None = None  # the class that is most frequent among the training graphs, if they are known
    learned_from: int | None = None  # training graphs, where the network was fitted for this run

    def right(self, rows: Sequence[Row]) -> int | None:
        """How many graphs of a table are answered right without edges; ``None`` without answers, or without labels.

        By the classifier that was learnt, or by always naming the most frequent class: whichever is right on more.
        """
        if self.answers is None:
            return None
        labels = dict(zip(*columns_of(rows, "graph", "label").values(), strict=True))
        known = [index for index, label in labels.items() if label is not None]
        learnt = sum(self.answers[index] == labels[index] for index in known)
        return max(learnt, self.majority_right(rows) or 0) if known else None

    def majority_right(self, rows: Sequence[Row]) -> int | None:
        """How many graphs of a table are of the class that is most frequent in training; ``None`` if nothing is known."""
        labels = columns_of(rows, "label")["label"]
        return None if self.majority is None or set(labels) == {None} else labels.count(self.majority)


def keep_line(run: Run[CertifySettings], line: Line) -> None:
    run.store.finish(_ITEM, json.dumps(asdict(line)).encode())


def read_line(run: Run[CertifySettings]) -> Line | None:
    """The line of a run, if it was given one; refuses one of other graphs."""
    if _ITEM not in run.store.finished():
        return None
    try:
        stored = json.loads(run.store.load(_ITEM))
        answers = stored.pop("answers")
        line = Line(None if answers is None else {int(graph): int(label) for graph, label in answers.items()}, **stored)
        if line.answers is not None and line.answers.keys() != set(run.settings.graphs):
            raise ValueError("it was altered: it belongs to other graphs")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        sentence = f"the edge-blind line in {run.folder} cannot be read: {error}"
        raise InputError(f"{sentence} (certify again in another folder)") from error
    return line


def line_in(folder: Path) -> Line | None:
    if not (folder / STORE_FILE).is_file():
        return None
    with open_run(folder, CertifySettings) as run:
        return read_line(run)
