"""One graph whose nodes are classified: citation networks, and how their nodes are split."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from flipproof.checks import checked_count, checked_seed
from flipproof.datasets.dataset import Dataset
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray, as_graph
from flipproof.graphs.conversions import read_only

_PLANETOID = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_ARRAYS = ("num_nodes", "edges", "attr_indptr", "attr_indices", "num_attributes", "labels", "class_names")


@dataclass(frozen=True, init=False, repr=False, eq=False)
class NodeTask:
    """A graph, the classes of its nodes, and their names.

    Args:
        graph: The graph, in any form the library accepts.
        labels: The class of every node, ``[n]``; -1 where it is not known.
        class_names: Name of class 0, 1, 2, ...; by default the class numbers, as many as the labels need.
        name: Free text, for reports.

    >>> NodeTask(Graph(3, [(0, 1)]), [0, 0, 1])
    NodeTask(name='nodes', nodes=3, classes=2)
    """

    graph: Graph
    labels: IntArray
    class_names: tuple[str, ...]
    name: str = field(compare=False)

    def __init__(self, graph: Any, labels: ArrayLike, class_names: Any = None, *, name: str = "nodes") -> None:
        known, classes = as_graph(graph), np.asarray(labels)
        if classes.shape != (known.num_nodes,) or classes.dtype.kind not in "iu" or classes.min() < -1:
            raise InputError(
                f"labels must be integers of at least -1, one per node, [{known.num_nodes}]; got {classes.dtype} of shape "
                f"{classes.shape} (-1 for a node of unknown class)"
            )
        names = tuple(map(str, range(int(classes.max()) + 1) if class_names is None else class_names))
        if classes.max() >= len(names):
            raise InputError(f"class_names must name every class, 0..{classes.max()}; got {len(names)} names")
        classes = read_only(classes.astype(np.int64))
        self.__dict__.update(graph=known, labels=classes, class_names=names, name=str(name))

    def __repr__(self) -> str:
        return f"NodeTask(name={self.name!r}, nodes={self.graph.num_nodes}, classes={self.num_classes})"

    @property
    def num_classes(self) -> int:
        """Number of declared classes, also those without a node."""
        return len(self.class_names)

    def dataset(self) -> Dataset:
        """The nodes as a data set: its members are the same graph, each time with another node that is meant."""
        labels = [None if label < 0 else label for label in self.labels.tolist()]
        nodes = (self.graph.replaced(node=node, label=label, name=f"node {node}") for node, label in enumerate(labels))
        return Dataset(nodes, class_names=self.class_names, name=self.name)

    @classmethod
    def of(cls, nodes: Dataset) -> NodeTask:
        """The task of which :meth:`dataset` gave the nodes."""
        graph = nodes[0].replaced(node=None, label=None, name=nodes.name)
        labels = [-1 if node.label is None else node.label for node in nodes]
        return cls(graph, labels, nodes.class_names, name=nodes.name)


@dataclass(frozen=True, eq=False, repr=False)
class NodeSplit:
    """Numbers of the nodes to train on, to choose on and to certify, each ascending; a function of ``seed``."""

    train: IntArray
    validation: IntArray
    test: IntArray
    seed: int

    def __repr__(self) -> str:
        sizes = f"train={len(self.train)}, validation={len(self.validation)}, test={len(self.test)}"
        return f"NodeSplit({sizes}, seed={self.seed})"


def split_nodes(task: NodeTask, *, train: int = 20, validation: int = 20, seed: int = 0) -> NodeSplit:
    """Split a task's nodes of known class at random: a fixed number of every class to train and to choose on, the rest for tests.

    >>> split_nodes(NodeTask(Graph(6, []), [0, 0, 0, 1, 1, 1]), train=1, validation=1)
    NodeSplit(train=2, validation=2, test=2, seed=0)
    """
    train = checked_count(train, "train", 1, "nodes of every class")
    held = checked_count(validation, "validation", 0, "nodes of every class")
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([checked_seed(seed), 3])))
    order = generator.permutation(task.graph.num_nodes)
    parts = []
    for label in range(task.num_classes):
        members = order[task.labels[order] == label]
        if len(members) < train + held:
            raise InputError(
                f"every class needs {train} nodes to train and {held} to choose on; class {task.class_names[label]} has "
                f"{len(members)} (ask for fewer)"
            )
        parts.append(np.split(members, [train, train + held]))
    chosen, held_out, rest = (np.sort(np.concatenate(part)) for part in zip(*parts, strict=True))
    if not len(rest):
        raise InputError("a split needs a node to test; got none (ask for fewer nodes to train and to choose on)")
    return NodeSplit(chosen, held_out, rest, seed)


def citation(path: str | os.PathLike[str]) -> NodeTask:
    """A citation network; ``path`` is an npz file (or the folder of one), or a folder of PyG's ``Planetoid``.

    The file holds ``num_nodes``, ``edges [m, 2]``, ``labels``, ``class_names`` and binary attributes as a CSR matrix:
    ``attr_indptr``, ``attr_indices`` and ``num_attributes``. A ``Planetoid`` folder is ``ROOT/NAME``, for instance
    ``data/Cora``, with the files ``raw/ind.cora.x`` and so on, which PyG downloads; flipproof does not.
    """
    place = Path(path).expanduser()
    if not place.exists():
        raise InputError(f"{place} does not exist (give the npz file of a citation network, or a folder of Planetoid)")
    files = sorted(place.glob("*.npz")) if place.is_dir() else [place]
    planetoid = (place / "raw").is_dir()
    if len(files) != 1 and not planetoid:
        raise InputError(
            f"{place} holds {len(files)} npz files and no folder raw (give the file, or a folder of Planetoid)"
        )
    try:
        return _from_planetoid(place) if planetoid else _from_npz(files[0])
    except InputError:
        raise
    except Exception as error:  # pickled files fail in many ways
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(
            f"{place} cannot be read as a citation network: {reason} (it must hold {', '.join(_ARRAYS)}, or be a folder of "
            "Planetoid)"
        ) from error


def _from_npz(path: Path) -> NodeTask:
    with np.load(path, allow_pickle=False) as stored:
        if missing := [name for name in _ARRAYS if name not in stored.files]:
            raise ValueError(f"it has no {missing[0]}")
        content = {name: stored[name] for name in _ARRAYS}
    shape = int(content["num_nodes"]), int(content["num_attributes"])
    starts, columns = content["attr_indptr"], content["attr_indices"]
    if len(starts) != shape[0] + 1 or len(columns) != starts[-1] or (np.diff(starts) < 0).any():
        raise ValueError("attr_indptr and attr_indices do not describe a row per node")
    features = np.zeros(shape, dtype=np.float32)
    features[np.repeat(np.arange(shape[0]), np.diff(starts)), columns] = 1
    graph = Graph(shape[0], content["edges"], features, name=path.stem)
    return NodeTask(graph, content["labels"], content["class_names"].tolist(), name=path.stem)


def _from_planetoid(place: Path) -> NodeTask:
    from torch_geometric.io import read_planetoid_data

    files = [place / "raw" / f"ind.{place.name.lower()}.{part}" for part in _PLANETOID]
    if missing := [file for file in files if not file.is_file()]:
        raise InputError(f"{missing[0]} is missing; expected all files of Planetoid (let PyG download them first)")
    data = read_planetoid_data(str(place / "raw"), place.name)
    graph = Graph(data.num_nodes, data.edge_index.T.numpy(), data.x.numpy(), name=place.name)
    return NodeTask(graph, data.y.numpy(), name=place.name)
