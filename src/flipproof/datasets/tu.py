"""The TU collection (Morris et al., 2020): real graphs from text files, or by PyG's download.

    ROOT/NAME/NAME_A.txt                 one "row, column" a line, node numbers from 1 over all graphs
    ROOT/NAME/NAME_graph_indicator.txt   line i: the graph of node i
    ROOT/NAME/NAME_graph_labels.txt      line i: the class of graph i
    ROOT/NAME/NAME_node_labels.txt, NAME_node_attributes.txt      line i: of node i; need not be there

The files may also lie in ``ROOT/NAME/raw``, where PyG puts them, or in ``ROOT`` itself. Edge labels and edge
attributes are ignored: an edge that an attacker or the noise adds has none.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.datasets.dataset import Attribute, Dataset, GraphArrays
from flipproof.errors import InputError
from flipproof.graphs import IntArray

_MOST_OBJECTS = 20_000  # graphs; of more, each is built when it is asked for


def tu(
    name: str,
    root: str | os.PathLike[str] = "data",
    *,
    download: bool = False,
    attributes: bool = True,
    symmetrise: bool = False,
) -> Dataset:
    """A data set of the TU collection.

    Classes are numbered from 0 in ascending order of the files' values, which stay as ``class_names``. Node features are
    the node labels, one-hot (every column of labels by itself, values ascending), then the node attributes; ``None`` if the
    files have neither. Nodes without an edge are kept. Self-loops, which have no slot, are dropped; a pair listed twice is
    one edge.

    Graphs and nodes keep the order of the files. Most files are sorted by class: split with :func:`flipproof.datasets.split`,
    which shuffles. The order of nodes can tell the class too (it comes from whoever wrote the files); the networks here do
    not see it, a model of your own should not either.

    Args:
        name: For instance ``"MUTAG"``.
        root: Folder that holds the folder ``name``, or the files themselves.
        download: Fetch files that are not there, with PyG; otherwise a name without files is an error at once.
        attributes: Read node attributes, where there are any.
        symmetrise: Take directed graphs as undirected: an edge where either direction has one. Otherwise they are refused.
    """
    base = _Files.find(name, Path(root))
    if base is None and download:
        base = _downloaded(name, Path(root))
    if base is None:
        names, expected = tu_names(root), Path(root) / name / f"{name}_A.txt"
        there = f"found there: {', '.join(names)}" if names else "no TU data set lies there"
        raise InputError(
            f"no files of {name} under {Path(root)}: expected {expected}; {there} (choose another root, or allow the download)"
        )
    return _read(base, attributes, symmetrise)


def tu_names(root: str | os.PathLike[str]) -> list[str]:
    """Names of the data sets whose files lie under a folder."""
    folder = Path(root)
    if not folder.is_dir():
        return []
    here = {path.name.removesuffix("_A.txt") for path in folder.glob("*_A.txt")}
    return sorted(here | {entry.name for entry in folder.iterdir() if _Files.find(entry.name, folder) is not None})


class _Files:
    """The files of one data set, and how their numbers are read."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name

    @classmethod
    def find(cls, name: str, root: Path) -> _Files | None:
        if not name or name in (".", "..") or Path(name).name != name:
            raise InputError(f"name must be that of a TU data set; got {name!r} (for instance MUTAG, with root=...)")
        for folder in (root / name, root / name / "raw", root):
            if (folder / f"{name}_A.txt").is_file():
                return cls(folder, name)
        return None

    def path(self, kind: str) -> Path:
        return self.folder / f"{self.name}_{kind}.txt"

    def numbers(self, kind: str, *, columns: int | None = None) -> NDArray[np.float64] | None:
        """A file's numbers, ``[lines, columns]``; ``None`` if there is no such file. Blank lines are passed over."""
        path = self.path(kind)
        try:
            lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not a text file: {error.reason} (unpack it, or copy it again)") from error
        if not lines:
            return np.zeros((0, columns or 1))
        with suppress(ValueError):
            values: NDArray[np.float64] = np.loadtxt(lines, delimiter=",", comments=None, ndmin=2)
            if columns in (None, values.shape[1]) and np.isfinite(values).all():
                return values
        width = columns or lines[0].count(",") + 1
        for row, line in enumerate(lines):
            cells = [cell.strip() for cell in line.split(",")]
            if len(cells) != width:
                wanted = f"{width} number{'s' * (width != 1)}, split by commas"
                raise self.error(kind, row, f"expected {wanted}; got {len(cells)}")
            for cell in cells:
                if not _is_finite(cell):
                    raise self.error(kind, row, f"expected a number; got {cell!r}")
        raise InputError(f"{path} cannot be read as numbers split by commas (copy the file again)")

    def integers(self, kind: str, *, columns: int | None = 1) -> IntArray | None:
        """As :meth:`numbers`, whole ones."""
        values = self.numbers(kind, columns=columns)
        if values is None:
            return None
        whole = (values == np.floor(values)) & (np.abs(values) < 2**53)
        if not whole.all():
            row, column = np.argwhere(~whole)[0]
            raise self.error(kind, int(row), f"expected whole numbers; got {values[row, column]:g}")
        return values.astype(np.int64)

    def needed(self, kind: str, *, columns: int = 1) -> IntArray:
        values = self.integers(kind, columns=columns)
        if values is None:
            raise InputError(f"{self.path(kind)} is missing: without it {self.name} cannot be read (copy it again)")
        return values

    def error(self, kind: str, row: int, what: str) -> InputError:
        """An error that names the file and the line of the given row of numbers."""
        path = self.path(kind)
        lines = path.read_text(encoding="utf-8").splitlines()
        number = [place for place, line in enumerate(lines, 1) if line.strip()][row]
        return InputError(f"{path}, line {number}: {what} (correct the line, or copy the file again)")


def _is_finite(cell: str) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False


def _read(files: _Files, attributes: bool, symmetrise: bool) -> Dataset:
    values = files.needed("graph_labels")[:, 0]
    if not len(values):
        raise InputError(f"{files.path('graph_labels')} is empty: there is no graph (copy the file again)")
    classes, labels = np.unique(values, return_inverse=True)
    graph_of_node = _graph_of_node(files, len(values))
    # nodes of a graph in the order of the file; the file is nearly always sorted already
    order = np.argsort(graph_of_node, kind="stable")
    node_starts = np.searchsorted(graph_of_node[order], np.arange(len(values) + 1))
    empty = np.flatnonzero(np.diff(node_starts) == 0)
    if len(empty):
        raise files.error("graph_labels", int(empty[0]), f"graph {empty[0] + 1} has no node in the graph indicator")
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order)) - node_starts[graph_of_node[order]]
    edge_graphs, edges, remarks = _edges(files, graph_of_node, number, symmetrise)
    features, described = _features(files, len(order), attributes)
    if features is not None:
        features = features[order]
    arrays = GraphArrays(np.diff(node_starts), edge_graphs, edges, labels, features, name=files.name)
    # as objects, graphs keep what was computed of them, but take some thirty times the memory
    graphs = arrays if len(arrays) > _MOST_OBJECTS else [graph.replaced() for graph in arrays]
    class_names = [str(value) for value in classes.tolist()]
    return Dataset(graphs, class_names=class_names, name=files.name, attributes=described, remarks=remarks)


def _graph_of_node(files: _Files, graphs: int) -> IntArray:
    graph_of_node = files.needed("graph_indicator")[:, 0] - 1
    outside = np.flatnonzero((graph_of_node < 0) | (graph_of_node >= graphs))
    if len(outside):
        what = f"expected a graph from 1 to {graphs}, the lines of the graph labels; got"
        raise files.error("graph_indicator", int(outside[0]), f"{what} {graph_of_node[outside[0]] + 1}")
    return graph_of_node


def _edges(
    files: _Files, graph_of_node: IntArray, number: IntArray, symmetrise: bool
) -> tuple[IntArray, IntArray, list[str]]:
    """Of every edge the graph, ascending, and the ends within it ``[E, 2]``; and what became of odd edges."""
    pairs = files.needed("A", columns=2) - 1
    outside = np.flatnonzero(((pairs < 0) | (pairs >= len(graph_of_node))).any(axis=1))
    if len(outside):
        row = int(outside[0])
        what = f"expected nodes from 1 to {len(graph_of_node)}; got {pairs[row, 0] + 1}, {pairs[row, 1] + 1}"
        raise files.error("A", row, what)
    owner, other = graph_of_node[pairs].T
    across = np.flatnonzero(owner != other)
    if len(across):
        row = int(across[0])
        raise files.error("A", row, f"the edge joins graph {owner[row] + 1} and graph {other[row] + 1}")
    kept = pairs[:, 0] != pairs[:, 1]
    loops, keys = int((~kept).sum()), pairs @ [len(graph_of_node), 1]
    one_way = np.flatnonzero(~np.isin(pairs @ [1, len(graph_of_node)], keys))
    # files list each edge in both directions, or (seldom) each once; between is a directed graph
    if 0 < len(one_way) < kept.sum() and not symmetrise:
        u, v = pairs[one_way[0]] + 1
        what = f"the edge {u}, {v} has no counterpart in the other direction; expected an undirected graph, both directions of "
        raise files.error("A", int(one_way[0]), f"{what}every edge, or --symmetrise")
    remarks = []
    if len(one_way):
        remarks.append(f"{len(one_way):,} edges are listed in one direction only, and taken as undirected")
    if loops:
        remarks.append(f"{loops:,} self-loops are left out: flips concern pairs of distinct nodes")
    owner, ends = owner[kept], number[pairs[kept]]
    order = np.argsort(owner, kind="stable")
    return owner[order], ends[order], remarks


def _features(files: _Files, nodes: int, attributes: bool) -> tuple[NDArray[np.float32] | None, list[Attribute]]:
    """Node labels, one-hot, and node attributes, ``[nodes, d]``; and what became of everything that the files have."""
    parts: list[NDArray[Any]] = []
    described: list[Attribute] = []
    labels = files.integers("node_labels", columns=None)
    if labels is not None:
        _refuse_length(files, "node_labels", labels, nodes)
        for number, column in enumerate(labels.T, start=1):
            kinds, place = np.unique(column, return_inverse=True)
            parts.append(np.eye(len(kinds), dtype=np.float32)[place])
            name = "node label" if labels.shape[1] == 1 else f"node label {number}"
            described.append(Attribute(name, len(kinds), tuple(map(str, kinds.tolist()))))
    values = files.numbers("node_attributes") if attributes else None
    if values is not None:
        _refuse_length(files, "node_attributes", values, nodes)
        parts.append(values.astype(np.float32))
        described.append(Attribute("node attribute", values.shape[1]))
    elif files.path("node_attributes").is_file():
        described.append(Attribute("node attribute", remark="attributes=False"))
    described += [
        Attribute(kind.replace("_", " "), remark="an edge that the noise adds has none")
        for kind in ("edge_labels", "edge_attributes")
        if files.path(kind).is_file()
    ]
    return np.concatenate(parts, axis=1) if parts else None, described


def _refuse_length(files: _Files, kind: str, values: NDArray[Any], nodes: int) -> None:
    if len(values) != nodes:
        raise InputError(
            f"{files.path(kind)} has {len(values)} lines; expected one a node, {nodes}, as the graph indicator "
            "(copy the files again)"
        )


def _downloaded(name: str, root: Path) -> _Files | None:
    from torch_geometric.datasets import TUDataset

    try:
        TUDataset(str(root), name)
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise InputError(
            f"{name} could not be downloaded into {root}: {reason} (check the name and the network, or copy its text "
            f"files to {root / name})"
        ) from error
    return _Files.find(name, root)
