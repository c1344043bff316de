"""The line to beat: what a network that ignores edges answers about the graphs of a run; kept with the evidence."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from flipproof.errors import InputError
from flipproof.runs.run_folder import Run, open_run
from flipproof.runs.settings import CertifySettings
from flipproof.runs.store import FILE
from flipproof.runs.table import Row, columns_of

__all__ = ["Line", "keep_line", "line_in", "read_line"]

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
    if not (folder / FILE).is_file():
        return None
    with open_run(folder, CertifySettings) as run:
        return read_line(run)


_REMEDY = "certify again in another folder"
