"""A user's own data: a folder of graphs, and a table of their classes.

FOLDER/labels.csv      file,label   one line per graph; the first line may be that heading
FOLDER/a.graphml       GraphML; b.gexf GEXF
FOLDER/b.json          node-link JSON: {"nodes": [{"id": 0, "x": [1.0]}, ...], "edges": [{"source": 0, "target": 1}, ...]}
FOLDER/c.edges         one edge per line, two node names split by a comma or blanks; .edgelist, .txt and .csv alike.
                       A line with one name is a node that may have no edge; # starts a comment

Or one table for all graphs, ``edges.csv`` with the columns ``graph,source,target``; ``labels.csv`` then has ``graph,label``, and
``nodes.csv`` (``graph,node,...``) may give the nodes attributes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.datasets.dataset import Attribute, Dataset
from flipproof.datasets.graph_files import (
    EDGES,
    NODES,
    RawGraph,
    csv_rows,
    has_edge_table,
    read_edge_table,
    read_graph_file,
    read_table_rows,
)
from flipproof.errors import InputError, MissingExtraError
from flipproof.graphs import Graph

LABELS = "labels.csv"
_MOST_CATEGORIES = 64
_LARGEST = float(np.finfo(np.float32).max)
_SHOWN = 5  # names in a remark


def folder(path: str | os.PathLike[str], *, like: Sequence[Attribute] = (), symmetrise: bool = False) -> Dataset:
    """The graphs that ``labels.csv`` lists, in its order.

    Classes are numbered from 0 in ascending order of their names (as numbers, if all are whole numbers), which stay as
    ``class_names``. Node features: the attribute ``x`` (a number or a list of numbers) if every node of every graph has it;
    otherwise the attributes that every node of every graph has, in alphabetical order: numbers as they are, texts one-hot, a
    column per text, in alphabetical order. :meth:`Dataset.describe_features` says what was taken and ignored, and why. Edge
    attributes and weights are not read: an edge that the noise adds has none. Nodes of GraphML, GEXF and JSON keep their order;
    in edge lists and tables whole numbers are sorted, other names are numbered as they appear.

    Files in the folder that the table does not list are not read; :attr:`Dataset.remarks` names them.

    Args:
        path: The folder.
        like: The attributes of other data, for instance of those that a model was trained on: the features get the same columns,
            and what does not fit them is refused.
        symmetrise: Take directed graphs as undirected: an edge where either direction has one. Otherwise they are refused.
    """
    base = Path(path)
    if not base.is_dir():
        raise InputError(f"{base} is not a folder (give the folder that holds {LABELS} and the graphs)")
    listed = _listed(base / LABELS)
    if has_edge_table(base):
        read, used = _from_tables(base, listed), {EDGES, NODES}
    else:
        read = [_from_file(base, file, where, symmetrise) for where, file, _ in listed]
        used = {file for _, file, _ in listed}
    left = sorted(entry.name for entry in base.iterdir() if entry.is_file() and entry.name not in {*used, LABELS})
    remarks = [f"not listed in {LABELS}, and not read: {_some(left)}"] if left else []
    return assembled(read, [label for _, _, label in listed], base.resolve().name, like=like, remarks=remarks)


def assembled(
    read: Sequence[RawGraph],
    labels: Sequence[str],
    name: str,
    *,
    like: Sequence[Attribute] = (),
    more: Iterable[Attribute] = (),
    remarks: Iterable[str] = (),
) -> Dataset:
    """A data set from graphs as their files tell them, with the names of their classes; ``more`` are attributes never read."""
    names, numbers = _classes(labels)
    attributes = list(like) or [*found_attributes(read), *more]
    if like:
        check_like(read, like)
        remarks = [*remarks, *_unread(read, like)]
    graphs = [graph_of(raw, attributes, label) for raw, label in zip(read, numbers, strict=True)]
    return Dataset(graphs, class_names=names, name=name, attributes=attributes, remarks=remarks)


def _unread(read: Sequence[RawGraph], like: Sequence[Attribute]) -> list[str]:
    """What the files have and the given attributes do not name."""
    known = {attribute.name for attribute in like}
    own = {name for raw in read for node in raw.nodes for name in node}
    names = sorted((own | {f"{name} (of edges)" for raw in read for name in raw.edge_attributes}) - known)
    return [f"attributes that the model's data do not have, and that are not read: {', '.join(names)}"] if names else []


def graph_of(raw: RawGraph, attributes: Sequence[Attribute], label: int | None = None) -> Graph:
    """The graph with these attributes as its node features."""
    try:
        return Graph(len(raw.nodes), raw.edges, feature_matrix(raw, attributes), label, name=raw.name)
    except InputError as error:
        raise InputError(f"{raw.source}: {error}") from error


def _from_tables(base: Path, listed: Sequence[tuple[str, str, str]]) -> list[RawGraph]:
    """The graphs of ``edges.csv`` in the order of ``labels.csv``; both must name the same ones."""
    found = read_edge_table(base)
    for where, graph, _ in listed:
        if graph not in found:
            raise InputError(
                f"{where}: {EDGES} has no graph {graph} (a graph without edges is given by its nodes in {NODES})"
            )
    unlisted = list(found.keys() - {graph for _, graph, _ in listed})
    if unlisted:
        raise InputError(
            f"{base / EDGES} has {len(unlisted)} graphs that {LABELS} does not list, such as {min(unlisted)} (add their classes, "
            "or leave them out)"
        )
    return [found[graph] for _, graph, _ in listed]


def _from_file(base: Path, file: str, where: str, symmetrise: bool) -> RawGraph:
    if Path(file).is_absolute() or ".." in Path(file).parts:
        raise InputError(f"{where}: {file} lies outside the folder (copy the graph into it)")
    return replace(read_graph_file(base / file, where, symmetrise=symmetrise), name=file)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _listed(table: Path) -> list[tuple[str, str, str]]:
    """Where (for errors), file and label of every line of the table."""
    rows: list[tuple[str, str, str]] = []
    seen: set[str] = set()
    for where, row in csv_rows(table, "expected lines of file,label"):
        if not rows and row in (["file", "label"], ["graph", "label"]):
            continue
        if len(row) != 2 or not all(row):
            raise InputError(f"{where}: expected file,label; got {','.join(row)!r} (one graph per line)")
        if row[0] in seen:
            raise InputError(f"{where}: {row[0]} is listed twice (leave one of the lines out)")
        seen.add(row[0])
        rows.append((where, row[0], row[1]))
    if not rows:
        raise InputError(f"{table} lists no graph; expected lines of file,label (add one line per graph)")
    return rows


def _classes(labels: Sequence[str]) -> tuple[list[str], list[int]]:
    distinct = set(labels)
    try:
        names = sorted(distinct, key=lambda name: (int(name), name))  # 1 and 01 are two names
    except ValueError:
        names = sorted(distinct)
    if len(names) < 2:
        raise InputError(
            f"{LABELS} must name at least two classes; got only {names[0]!r} (list graphs of another class)"
        )
    number = {name: index for index, name in enumerate(names)}
    return names, [number[label] for label in labels]


# ---- from the attributes that files give to nodes to the columns of node features ----


def found_attributes(graphs: Sequence[RawGraph]) -> list[Attribute]:
    """What becomes of every attribute that a node or an edge has."""
    names = sorted({name for graph in graphs for node in graph.nodes for name in node})
    found = [_attribute(graphs, name) for name in names]
    if any(attribute.name == "x" and attribute.columns and not attribute.categories for attribute in found):
        alone = "x is there, and is taken alone"
        found = [a if a.name == "x" or not a.columns else Attribute(a.name, remark=alone) for a in found]
    edges = sorted({name for graph in graphs for name in graph.edge_attributes})
    remark = "an edge that the noise adds has none"
    return [*found, *(Attribute(f"{name} (of edges)", remark=remark) for name in edges)]


def _attribute(graphs: Sequence[RawGraph], name: str) -> Attribute:
    """What becomes of one attribute of nodes; refuses numbers that are none, and lists of unequal length."""
    missing = [(graph, index) for graph, index, node in _nodes(graphs) if name not in node]
    if missing:
        graph, index = missing[0]
        some = f"node {index}" if any(name in node for node in graph.nodes) else "all nodes"
        more = len(missing) - (1 if some != "all nodes" else len(graph.nodes))
        also = f", and at {more} node{'s' * (more != 1)} of other graphs or further on" if more else ""
        return Attribute(name, remark=f"missing at {some} of {graph.name}{also}")
    values = [node[name] for _, _, node in _nodes(graphs)]
    if all(isinstance(value, str) for value in values):
        texts = sorted(set(values))
        if len(texts) == 1:
            return Attribute(name, remark=f"{texts[0]!r} at every node")
        if len(texts) > min(_MOST_CATEGORIES, max(3, len(values) * 3 // 4)):
            return Attribute(name, remark=f"{len(texts)} different texts at {len(values)} nodes: names, not categories")
        return Attribute(name, len(texts), tuple(texts))
    if any(_row(value) is None for value in values):
        odd = next(value for value in values if _row(value) is None)
        return Attribute(name, remark=f"neither numbers nor texts at every node: {odd!r}")
    width = len(_row(values[0]) or ())
    _check_numbers(graphs, name, width)
    return Attribute(name, width)


def check_like(graphs: Sequence[RawGraph], like: Sequence[Attribute]) -> None:
    """Refuse graphs that lack one of the given attributes, or have another text than its categories."""
    for attribute in like:
        for graph, index, node in _nodes(graphs) if attribute.columns else ():
            value = node.get(attribute.name)
            known = _text_of(value) in attribute.categories if attribute.categories else _row(value) is not None
            if not known:
                expected = f"one of {', '.join(attribute.categories)}" if attribute.categories else "a number"
                got = f"got {value!r}" if attribute.name in node else "it is missing"
                raise InputError(
                    f"{graph.source}: {attribute.name} of node {index} must be {expected}, as in the data of the model; {got} "
                    "(correct the file, or train on data that have it)"
                )
        if attribute.columns and not attribute.categories:
            _check_numbers(graphs, attribute.name, attribute.columns)


def _check_numbers(graphs: Sequence[RawGraph], name: str, width: int) -> None:
    for graph, index, node in _nodes(graphs):
        row = _row(node[name]) or []
        if len(row) != width or not row:
            raise InputError(
                f"{graph.source}: node {index} must have {width or 'some'} numbers in {name}, as the nodes before; got "
                f"{node[name]!r} (give every node the same numbers)"
            )
        if not all(map(math.isfinite, row)):
            raise InputError(
                f"{graph.source}: {name} of node {index} must be finite; got {node[name]!r} (fill it in, or take {name} out of "
                "the files)"
            )
        if max(map(abs, row)) > _LARGEST:
            raise InputError(
                f"{graph.source}: {name} of node {index} must be a number of single precision, at most {_LARGEST:.2g}; got "
                f"{node[name]!r} (scale it, or take {name} out of the files)"
            )


def feature_matrix(graph: RawGraph, attributes: Sequence[Attribute]) -> NDArray[np.float32] | None:
    """The features of a graph's nodes."""
    taken = [attribute for attribute in attributes if attribute.columns]
    if not taken:
        return None
    rows = [[number for attribute in taken for number in _numbers(node, attribute)] for node in graph.nodes]
    return np.array(rows, dtype=np.float32)


def _numbers(node: dict[str, Any], attribute: Attribute) -> list[float]:
    value = node[attribute.name]
    if attribute.categories:
        return [float(_text_of(value) == category) for category in attribute.categories]
    return _row(value) or []


def _text_of(value: Any) -> Any:
    """A category as it is stored: whole numbers as text."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _nodes(graphs: Sequence[RawGraph]) -> Iterator[tuple[RawGraph, int, dict[str, Any]]]:
    """Every node with its graph and number."""
    return ((graph, index, node) for graph in graphs for index, node in enumerate(graph.nodes))


def _row(value: Any) -> list[float] | None:
    """A number, or a list of numbers, as a list; ``None`` for anything else."""
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(number, (int, float)) for number in values):
        return None
    return [_as_float(number) for number in values]


def _as_float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:  # a whole number beyond all floats
        return math.inf


_DEPENDENT = Attribute("hydrogens, aromaticity, rings", remark="they follow from the bonds, which the noise changes")


def smiles(path: str | os.PathLike[str], *, like: Sequence[Attribute] = ()) -> Dataset:
    """Molecules from a CSV file with the columns ``smiles`` and ``label``, and ``name`` if there is one.

    Every heavy atom is a node with the features ``element`` (one-hot) and ``charge``; every bond is an edge. The kind of a bond
    is not read: a bond that the noise adds has none. Neither are the number of hydrogens, aromaticity, hybridisation and
    membership in rings: they depend on the bonds, so a certificate would be false.

    Needs RDKit: ``pip install rdkit``.

    Args:
        path: The CSV file.
        like: As for :func:`flipproof.datasets.folder`.
    """
    table = Path(path)
    heading, rows = read_table_rows(table, ("smiles", "label"))
    if not rows:
        raise InputError(f"{table} lists no molecule; expected lines of smiles,label (add one line per molecule)")
    read = [molecule(row["smiles"], row.get("name") or row["smiles"], where) for where, row in rows]
    left = sorted(set(heading) - {"smiles", "label", "name"})
    remarks = [f"columns of {table.name} that are not read: {', '.join(left)}"] if left else []
    labels = [row["label"] for _, row in rows]
    return assembled(read, labels, table.stem, like=like, more=[_DEPENDENT], remarks=remarks)


def molecule(text: str, name: str, where: str) -> RawGraph:
    """One molecule, before its features are columns."""
    try:
        from rdkit import Chem, rdBase
    except ImportError as error:
        raise MissingExtraError(
            "molecules from SMILES need RDKit, which is not installed (pip install rdkit)"
        ) from error
    with rdBase.BlockLogs():
        found: Any = Chem.MolFromSmiles(text)
    if found is None or not found.GetNumAtoms():
        raise InputError(f"{where}: not a molecule that RDKit can read: {text!r} (correct the SMILES)")
    atoms = [{"element": atom.GetSymbol(), "charge": atom.GetFormalCharge()} for atom in found.GetAtoms()]
    bonds = [tuple(sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))) for bond in found.GetBonds()]
    return RawGraph(name, where, atoms, [(u, v) for u, v in bonds], {"bond type"} if bonds else set())
