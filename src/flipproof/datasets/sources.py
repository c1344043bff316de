"""A data set as a user names it, how it is split, and what a model folder remembers of both.

Of a task on nodes the data set is a citation network, and its members are the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flipproof.checks import checked_seed
from flipproof.datasets.dataset import Attribute, Dataset
from flipproof.datasets.dataset import fingerprint as fingerprint
from flipproof.datasets.folder import LABELS, folder
from flipproof.datasets.node_task import NodeTask, citation, split_nodes
from flipproof.datasets.splits import Split, drawn, split
from flipproof.datasets.topologies import topologies
from flipproof.datasets.tu import tu, tu_names
from flipproof.errors import InputError

PARTS = ("test", "validation", "train", "all")
_TASKS = ("graphs", "nodes")


def checked_task(task: str) -> str:
    if task not in _TASKS:
        raise InputError(f"--task must be {' or '.join(_TASKS)}; got {task!r} (graphs is the default)")
    return task


@dataclass(frozen=True)
class DataSource:
    """A data set as the options name it, and how it is split."""

    data: str
    """``topologies`` (``topologies:96`` for 96 graphs), a folder of graphs, or a TU name below ``root``."""
    root: str | None = None
    download: bool = False
    data_seed: int = 0
    split_seed: int = 0
    test: float = 1 / 3
    validation: float = 0.0
    symmetrise: bool = False
    task: str = "graphs"

    def __post_init__(self) -> None:
        checked_task(self.task)

    def load(self, *, like: Sequence[Attribute] = ()) -> Dataset:
        """The graphs; of a folder, with the same columns of node features as the given attributes have."""
        checked_seed(self.data_seed)
        if self.task == "nodes":
            return citation(self.data).dataset()
        kind, colon, count = self.data.partition(":")
        if kind == "topologies":
            if colon and not count.isdecimal():
                raise InputError(
                    f"--data topologies:COUNT needs a number of graphs; got {self.data!r} (for instance topologies:96)"
                )
            return topologies(int(count or 480), seed=self.data_seed)
        path = self._folder
        if path is None:
            return tu(self.data, self.root or "data", download=self.download, symmetrise=self.symmetrise)
        if (path / LABELS).is_file():
            return folder(path, like=like, symmetrise=self.symmetrise)
        sets = [name for name in tu_names(path) if (path / f"{name}_A.txt").is_file()]
        if len(sets) == 1:
            return tu(sets[0], path, symmetrise=self.symmetrise)
        what = "is no folder here, and a TU name needs --root (for instance --root data)"
        if sets:
            what = f"holds several TU data sets (give --root {path} and --data with one of {', '.join(sets)})"
        elif path.is_dir():
            below = [f"--root {path} --data {name}" for name in tu_names(path)]
            remedy = next(iter(below), f"write {LABELS}, or name a TU data set and its --root")
            what = f"is a folder without {LABELS} ({remedy})"
        elif path.is_file():
            what = "is a file (put it into a folder)"
        raise InputError(f"--data must be topologies, a folder with {LABELS}, or a TU name with --root; {path} {what}")

    @property
    def _folder(self) -> Path | None:
        """The folder that ``data`` names; ``None`` for the topologies, and for a name that is to be looked up in ``root``."""
        path = Path(self.data).expanduser()
        looked_up = self.root is not None and path.name == self.data
        return None if looked_up or self.data.partition(":")[0] == "topologies" else path

    def split(self, graphs: Dataset) -> Split:
        """The parts to train on, to choose the epoch with, and to certify; of nodes 20 of every class for either choice."""
        if self.task == "nodes":
            nodes = split_nodes(NodeTask.of(graphs), seed=self.split_seed)
            return Split(graphs, nodes.train, nodes.validation, nodes.test, nodes.seed)
        for option, share in (("--test", self.test), ("--validation", self.validation)):
            if not 0 <= share < 1 or (option == "--test" and share == 0):
                raise InputError(f"{option} must be a share of the graphs in (0, 1); got {share:g} (for instance 0.2)")
        return split(graphs, test=self.test, validation=self.validation, seed=self.split_seed)

    def metadata(self, graphs: Dataset) -> dict[str, Any]:
        """What a model folder remembers of its data; :func:`model_data` reads it."""
        data = self.data if self._folder is None else str(self._folder.resolve())
        root = None if self.root is None else str(Path(self.root).expanduser().resolve())
        return {name: getattr(self, name) for name in _REMEMBERED} | {
            "data": data,
            "root": root,
            "data_sha256": fingerprint(graphs),
            "class_names": list(graphs.class_names),
            "attributes": [asdict(attribute) for attribute in graphs.attributes],
        }


_REMEMBERED = ("task", "data", "root", "data_seed", "split_seed", "test", "validation", "symmetrise")


def model_data(stored: Mapping[str, Any], **typed: Any) -> tuple[DataSource, Dataset]:
    """The data that a model folder remembers, with fields of :class:`DataSource` that override it.

    Data that have changed since the training are refused, so a graph that the model was trained on never becomes a test graph by
    accident: only an explicit ``--data``, ``--data-seed`` or ``--split-seed`` gives another split than the stored one.
    """
    typed = {name: value for name, value in typed.items() if value is not None and value is not False}
    if "data" not in typed and not isinstance(stored.get("data"), str):
        raise InputError("the model does not say which data it belongs to (give --data)")
    places = [typed["data"], str(Path(typed["data"]).expanduser().resolve())] if "data" in typed else [stored["data"]]
    same = stored.get("data") in places
    kept = {
        name: stored[name] for name in _REMEMBERED if name in stored and (same or name not in ("root", "symmetrise"))
    }
    source = DataSource(**kept | typed)
    graphs = source.load(like=stored_attributes(stored))
    expected = stored.get("data_sha256")
    if same and "data_seed" not in typed and expected is not None and fingerprint(graphs) != expected:
        raise InputError(
            f"the data {source.data} are not those that the model was trained on: their hash has changed, so that training "
            "graphs could be taken for test graphs (restore the data, or train again)"
        )
    return source, by_class_names(graphs, stored)


def stored_attributes(stored: Mapping[str, Any]) -> list[Attribute]:
    entries = stored.get("attributes") or []
    return [Attribute(**{**entry, "categories": tuple(entry["categories"])}) for entry in entries]


def by_class_names(graphs: Dataset, stored: Mapping[str, Any], model: str = "the model") -> Dataset:
    names = stored.get("class_names")
    if names is None or tuple(names) == graphs.class_names:
        return graphs
    try:
        return graphs.with_classes(names)
    except InputError as error:
        raise InputError(f"the data do not fit {model}: {error}") from error


def part_indices(parts: Split, part: str, limit: int | None, *, seed: int = 0) -> list[int]:
    """Positions in the data set of the graphs to certify: all of a part, or ``limit`` of them with every class in proportion."""
    if part not in PARTS:
        raise InputError(f"--part must be one of {', '.join(PARTS)}; got {part!r} (test is the default)")
    indices = list(range(len(parts.dataset))) if part == "all" else getattr(parts, f"{part}_indices").tolist()
    if limit is not None and limit < len(indices):
        indices = [indices[place] for place in drawn(parts.dataset.subset(indices), limit, seed=seed)]
    if not indices:
        raise InputError(f"--part {part} holds no graph (choose another part, or train with --validation above 0)")
    return indices
