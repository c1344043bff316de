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
import re
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.datasets.dataset import Attribute, Dataset
from flipproof.datasets.graph_files import read_text
from flipproof.errors import InputError
from flipproof.graphs import IntArray, checked_features, unchecked_graph

_NUMBER = r"\s*[-+]?(\d{1,99}\.?\d*|\.\d+)(e[-+]?\d{1,2})?\s*"  # finite, and read by numpy


def tu(
    name: str, root: str | os.PathLike[str] = "data", *, download: bool = False, symmetrise: bool = False
) -> Dataset:
    """A data set of the TU collection.

    Classes are numbered from 0 in ascending order of the files' values, which stay as ``class_names``. Node features are
    the node labels, one-hot (every column of labels by itself, values ascending), then the node attributes; ``None`` if the
    files have neither. Nodes without an edge are kept, self-loops dropped; a pair listed twice is one edge. Graphs and nodes keep
    the order of the files, which can tell the class: :func:`flipproof.datasets.split` shuffles graphs, and no model should see
    node numbers.

    Args:
        name: For instance ``"MUTAG"``.
        root: Folder that holds the folder ``name``, or the files themselves.
        download: Fetch files that are not there, with PyG; otherwise a name without files is an error at once.
        symmetrise: Take directed graphs as undirected: an edge where either direction has one. Otherwise they are refused.
    """
    base = Path(root)
    folder = _folder(name, base)
    if folder is None and download:
        folder = _downloaded(name, base)
    if folder is None:
        names, expected = tu_names(root), base / name / f"{name}_A.txt"
        there = f"found there: {', '.join(names)}" if names else "no TU data set lies there"
        raise InputError(
            f"no files of {name} under {base}: expected {expected}; {there} (choose another root, or allow the download)"
        )
    return _read(f"{folder / name}_", name, symmetrise)


def tu_names(root: str | os.PathLike[str]) -> list[str]:
    """Names of the data sets whose files lie under a folder."""
    folder = Path(root)
    if not folder.is_dir():
        return []
    here = {path.name.removesuffix("_A.txt") for path in folder.glob("*_A.txt")}
    return sorted(here | {entry.name for entry in folder.iterdir() if _folder(entry.name, folder) is not None})


def _folder(name: str, root: Path) -> Path | None:
    if name in ("", ".", "..") or Path(name).name != name:
        raise InputError(f"name must be that of a TU data set; got {name!r} (for instance MUTAG, with root=...)")
    return next((at for at in (root / name, root / name / "raw", root) if (at / f"{name}_A.txt").is_file()), None)


def _downloaded(name: str, root: Path) -> Path | None:
    from torch_geometric.datasets import TUDataset

    try:
        TUDataset(str(root), name)
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise InputError(
            f"{name} could not be downloaded into {root}: {reason} (check the name and the network, or copy its text "
            f"files to {root / name})"
        ) from error
    return _folder(name, root)


def _numbers(path: str, columns: int | None = None) -> NDArray[np.float64]:
    """A file of numbers split by commas, ``[lines, columns]``; blank lines are passed over."""
    text = read_text(Path(path), "without it the data set cannot be read")
    lines = {number: line for number, line in enumerate(text.splitlines(), 1) if line.strip()}
    width = columns or next(iter(lines.values()), "").count(",") + 1
    with suppress(ValueError):
        values = np.loadtxt(lines.values(), delimiter=",", comments=None, ndmin=2) if lines else np.empty((0, width))
        if values.shape[1] == width and np.isfinite(values).all():
            return values
    expected = re.compile(",".join([_NUMBER] * width), re.IGNORECASE | re.ASCII)
    odd = next(number for number, line in lines.items() if not expected.fullmatch(line))
    raise InputError(
        f"{path}, line {odd}: expected {width} number{'s, split by commas' * (width != 1)}; got {lines[odd]!r} (correct it, or "
        "copy the file again)"
    )


def _integers(path: str, columns: int | None) -> IntArray:
    values = _numbers(path, columns)
    odd = values[(values != np.floor(values)) | (np.abs(values) >= 2**53)]
    if len(odd):
        raise InputError(f"{path} must hold whole numbers; got {odd[0]:g} (correct it, or copy the file again)")
    return values.astype(np.int64)


def _read(prefix: str, name: str, symmetrise: bool) -> Dataset:
    labels_file = f"{prefix}graph_labels.txt"
    classes, classes_of = np.unique(_integers(labels_file, 1)[:, 0], return_inverse=True)
    graph_of, count = _integers(f"{prefix}graph_indicator.txt", 1)[:, 0] - 1, len(classes_of)
    if not np.array_equal(np.unique(graph_of), np.arange(count)):
        raise InputError(
            f"{prefix}graph_indicator.txt must give nodes to every graph from 1 to {count}, the number of lines of "
            f"{labels_file}, and to no other (copy both files again)"
        )
    # nodes are renumbered graph by graph; the file is nearly always sorted already
    order, nodes = np.argsort(graph_of, kind="stable"), len(graph_of)
    starts = np.searchsorted(graph_of[order], np.arange(count + 1))
    pairs, remarks = _pairs(f"{prefix}A.txt", graph_of, symmetrise)
    ends = np.sort(np.argsort(order)[pairs], axis=1)
    edges = np.stack(np.divmod(np.unique(ends @ [nodes, 1]), nodes), axis=1)
    bounds = pairwise(np.searchsorted(edges[:, 0], starts))
    rows, attributes = _features(prefix, nodes)
    features = checked_features(None if rows is None else rows[order], nodes)
    graphs = []
    for number, ((start, stop), (first, last)) in enumerate(zip(pairwise(starts.tolist()), bounds, strict=True)):
        own, label = None if features is None else features[start:stop], int(classes_of[number])
        graphs.append(
            unchecked_graph(stop - start, edges[first:last] - start, own, label=label, name=f"{name}-{number}")
        )
    return Dataset(graphs, class_names=map(str, classes), name=name, attributes=attributes, remarks=remarks)


def _pairs(path: str, graph_of: IntArray, symmetrise: bool) -> tuple[IntArray, list[str]]:
    """The node pairs that are joined, self-loops left out, ``[E, 2]``; and what became of odd edges."""
    pairs, nodes = _integers(path, 2) - 1, len(graph_of)

    def refuse(odd: Any, what: str) -> None:
        for u, v in pairs[odd][:1] + 1:
            raise InputError(f"{path}: the edge {u}, {v} {what} (correct it, or copy the file again)")

    refuse(((pairs < 0) | (pairs >= nodes)).any(axis=1), f"joins a node that is not there; expected 1 to {nodes}")
    refuse(np.diff(graph_of[pairs])[:, 0] != 0, "joins two graphs")
    kept = pairs[:, 0] != pairs[:, 1]
    one_way = ~np.isin(pairs @ [1, nodes], pairs @ [nodes, 1])
    loops, single = int((~kept).sum()), int(one_way.sum())
    # files list each edge in both directions, or (seldom) each once; between is a directed graph
    if single < kept.sum() and not symmetrise:
        refuse(
            one_way, "has no counterpart; expected an undirected graph, both directions of every edge, or --symmetrise"
        )
    remarks = {
        f"{single:,} edges are listed in one direction only, and taken as undirected": single,
        f"{loops:,} self-loops are left out: flips concern pairs of distinct nodes": loops,
    }
    return pairs[kept], [remark for remark, count in remarks.items() if count]


def _features(prefix: str, nodes: int) -> tuple[NDArray[np.float32] | None, list[Attribute]]:
    """Node labels, one-hot, and node attributes, ``[nodes, d]``; and what became of everything that the files have."""
    parts: list[NDArray[Any]] = []
    attributes: list[Attribute] = []
    for kind in ("node_labels", "node_attributes", "edge_labels", "edge_attributes"):
        path = f"{prefix}{kind}.txt"
        if not Path(path).is_file():
            continue
        if kind.startswith("edge"):
            attributes.append(Attribute(kind.replace("_", " "), remark="an edge that the noise adds has none"))
            continue
        values = _numbers(path) if kind == "node_attributes" else _integers(path, None)
        if len(values) != nodes:
            raise InputError(
                f"{path} has {len(values)} lines; expected one per node, {nodes} as in the graph indicator (copy the files again)"
            )
        if kind == "node_attributes":
            parts.append(values)
            attributes.append(Attribute("node attribute", values.shape[1]))
            continue
        columns = values.T
        for number, column in enumerate(columns, start=1):
            kinds, place = np.unique(column, return_inverse=True)
            parts.append(np.eye(len(kinds))[place])
            title = "node label" if len(columns) == 1 else f"node label {number}"
            attributes.append(Attribute(title, len(kinds), tuple(map(str, kinds.tolist()))))
    return np.concatenate(parts, axis=1, dtype=np.float32) if parts else None, attributes
