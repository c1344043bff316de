"""A user's own data: a folder of graphs with a table of their classes, ``labels.csv``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from flipproof.datasets.dataset import Attribute, Dataset
from flipproof.datasets.graph_files import (
    EDGES,
    NODES,
    READERS,
    RawGraph,
    csv_rows,
    has_edge_table,
    loaded_json,
    parsed_json,
    read_edge_table,
    read_graph_file,
)
from flipproof.errors import InputError
from flipproof.graphs import Graph

LABELS = "labels.csv"
_MOST_CATEGORIES = 64
_LARGEST = float(np.finfo(np.float32).max)
_SHOWN = 5  # names in a remark


def folder(path: str | os.PathLike[str], *, like: Sequence[Attribute] = (), symmetrise: bool = False) -> Dataset:
    """The graphs that ``labels.csv`` lists, in its order: lines of ``file,label``, or of ``graph,label`` beside an ``edges.csv``.

    Classes are numbered from 0 in ascending order of their names (as numbers, if all are whole numbers), which stay as
    ``class_names``. Node features: the attribute ``x`` (a number or a list of numbers) if every node of every graph has it;
    otherwise the attributes that every node of every graph has, in alphabetical order: numbers as they are, texts one-hot, a
    column per text. :meth:`Dataset.describe_features` says what was taken and ignored, and why. Edge attributes and weights are
    not read: an edge that the noise adds has none. Nodes of GraphML, GEXF and JSON keep their order; in edge lists and tables
    whole numbers are sorted, other names are numbered as they appear.

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
        read, used = [], set(listed)
        for file, (where, _) in listed.items():
            if Path(file).is_absolute() or ".." in Path(file).parts:
                raise InputError(f"{where}: {file} lies outside the folder (copy the graph into it)")
            read.append(replace(read_graph_file(base / file, where, symmetrise=symmetrise), name=file))
    left = sorted(entry.name for entry in base.iterdir() if entry.is_file() and entry.name not in {*used, LABELS})
    more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    remarks = [f"not listed in {LABELS}, and not read: {', '.join(left[:_SHOWN])}{more}"] if left else []
    attributes = list(like) or _attributes(read)
    if unread := {name for raw in read for name in raw.attributes} - {attribute.name for attribute in attributes}:
        remarks.append(
            f"attributes that the model's data do not have, and that are not read: {', '.join(sorted(unread))}"
        )
    labels = [label for _, label in listed.values()]
    names = _classes(labels)
    graphs = [graph_of(raw, attributes, names.index(label)) for raw, label in zip(read, labels, strict=True)]
    return Dataset(graphs, class_names=names, name=base.resolve().name, attributes=attributes, remarks=remarks)


def _from_tables(base: Path, listed: Mapping[str, tuple[str, str]]) -> list[RawGraph]:
    graphs = read_edge_table(base)
    for graph, (where, _) in listed.items():
        if graph not in graphs:
            raise InputError(
                f"{where}: {EDGES} has no graph {graph} (a graph without edges is given by its nodes in {NODES})"
            )
    if unlisted := graphs.keys() - listed.keys():
        raise InputError(
            f"{base / EDGES} has {len(unlisted)} graphs that {LABELS} does not list, such as {min(unlisted)} (add their classes, "
            "or leave them out)"
        )
    return [graphs[graph] for graph in listed]


def _listed(table: Path) -> dict[str, tuple[str, str]]:
    """For each file or graph of the table where it stands (for errors), and its label."""
    rows: dict[str, tuple[str, str]] = {}
    for where, row in csv_rows(table, "expected lines of file,label"):
        if not rows and row in (["file", "label"], ["graph", "label"]):
            continue
        if len(row) != 2 or not all(row):
            raise InputError(f"{where}: expected file,label; got {','.join(row)!r} (one graph per line)")
        if row[0] in rows:
            raise InputError(f"{where}: {row[0]} is listed twice (leave one of the lines out)")
        rows[row[0]] = (where, row[1])
    if not rows:
        raise InputError(f"{table} lists no graph; expected lines of file,label (add one line per graph)")
    return rows


def _classes(labels: Sequence[str]) -> list[str]:
    try:
        names = sorted(set(labels), key=lambda name: (int(name), name))  # 1 and 01 are two names
    except ValueError:
        names = sorted(set(labels))
    if len(names) < 2:
        raise InputError(
            f"{LABELS} must name at least two classes; got only {names[0]!r} (list graphs of another class)"
        )
    return names


def _attributes(graphs: Sequence[RawGraph]) -> list[Attribute]:
    names = {name for graph in graphs for node in graph.nodes for name in node}
    attributes = [_attribute(graphs, name) for name in sorted(names)]
    if any(attribute.name == "x" and attribute.columns and not attribute.categories for attribute in attributes):
        alone = "x is there, and is taken alone"
        attributes = [a if a.name == "x" or not a.columns else Attribute(a.name, remark=alone) for a in attributes]
    of_edges = {name for graph in graphs for name in graph.attributes} - names
    return [*attributes, *(Attribute(name, remark="an edge that the noise adds has none") for name in sorted(of_edges))]


def _attribute(graphs: Sequence[RawGraph], name: str) -> Attribute:
    values = [node.get(name) for graph in graphs for node in graph.nodes]
    places = [(index, graph.name, name in node) for graph in graphs for index, node in enumerate(graph.nodes)]
    if missing := [f"{index} of {graph}" for index, graph, there in places if not there]:
        return Attribute(name, remark=f"missing at {len(missing)} of {len(values)} nodes, first at node {missing[0]}")
    if all(isinstance(value, str) for value in values):
        texts = sorted(set(map(str, values)))
        if len(texts) == 1:
            return Attribute(name, remark=f"{texts[0]!r} at every node")
        if len(texts) > min(_MOST_CATEGORIES, max(3, len(values) * 3 // 4)):
            return Attribute(name, remark=f"{len(texts)} different texts at {len(values)} nodes: names, not categories")
        return Attribute(name, len(texts), tuple(texts))
    odd = [value for value in values if not _row(value)]
    if odd:
        return Attribute(name, remark=f"neither numbers nor texts at every node: {odd[0]!r}")
    return Attribute(name, len(_row(values[0])))


def graph_of(raw: RawGraph, attributes: Sequence[Attribute], label: int | None = None) -> Graph:
    """The graph with these attributes as its node features; refuses a node that lacks one, or has another kind of value."""
    taken = [attribute for attribute in attributes if attribute.columns]
    try:
        rows = [
            [number for attribute in taken for number in _numbers(node, index, attribute)]
            for index, node in enumerate(raw.nodes)
        ]
        features = np.array(rows, dtype=np.float32) if taken else None
        return Graph(len(raw.nodes), raw.edges, features, label, name=raw.name)
    except InputError as error:
        raise InputError(f"{raw.source}: {error}") from error


def _numbers(node: dict[str, Any], index: int, attribute: Attribute) -> list[float]:
    name, value = attribute.name, node.get(attribute.name)
    if attribute.categories:
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        row, fits = [float(text == category) for category in attribute.categories], text in attribute.categories
        expected = f"one of {', '.join(attribute.categories)}"
    else:
        row = _row(value)
        fits, expected = len(row) == attribute.columns, attribute.words
    if not fits:
        got = f"got {value!r}" if name in node else "it is missing"
        raise InputError(
            f"{name} of node {index} must be {expected}, as at the other nodes or in the data of the model; {got} (correct the "
            "file, or train on data that have it)"
        )
    if not all(abs(number) <= _LARGEST for number in row):
        raise InputError(
            f"{name} of node {index} must be finite, at most {_LARGEST:.2g} in single precision; got {value!r} (fill it in or "
            f"scale it, or take {name} out of the files)"
        )
    return row


def _row(value: Any) -> list[float]:
    """A number, or a list of numbers, as a list; an empty one for anything else."""
    values = value if isinstance(value, list) else [value]
    return values if all(isinstance(number, (int, float)) for number in values) else []


def read_unlabelled(path: Path, *, symmetrise: bool = False) -> tuple[list[RawGraph], list[str]]:
    """The graphs of a file or folder, and the names of files in the folder that were not read."""
    if not path.exists():
        raise InputError(f"{path} is missing; expected a file or a folder of graphs (correct its name)")
    if not path.is_dir():
        return [read_graph_file(path, str(path), symmetrise=symmetrise)], []
    files = [entry for entry in sorted(path.iterdir()) if entry.is_file() and entry.name != LABELS]
    if has_edge_table(path):
        return list(read_edge_table(path).values()), [file.name for file in files if file.name not in (EDGES, NODES)]
    known = [file for file in files if file.suffix.lower() in READERS]
    if not known:
        raise InputError(f"{path} holds no graph; expected files of {', '.join(READERS)} (give another folder)")
    graphs = [read_graph_file(file, str(file), symmetrise=symmetrise) for file in known]
    return graphs, [file.name for file in files if file not in known]


def parsed_line(text: str, number: int, *, symmetrise: bool = False) -> RawGraph:
    """The graph of one line: node-link JSON, or the short form with numbered nodes; ``name`` names it."""
    where = f"line {number}"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: not UTF-8 (write one graph per line, as JSON)") from error
    content = loaded_json(text, where, "write one graph per line")
    if not isinstance(content, dict):
        raise InputError(f"{where}: expected a JSON object; got {type(content).__name__} (write one graph per line)")
    name = str(content.get("name", content.get("id", number))).encode(errors="backslashreplace").decode()
    return parsed_json(content, where, name).checked(symmetrise)


@dataclass(eq=False)
class Columns:
    """The columns of node features that a model was trained with, and what graphs have beside them."""

    attributes: Sequence[Attribute] | None
    """What the model's data had. ``None`` for a model that does not say: the attribute ``x`` is then taken as it is."""
    unused: set[str] = field(default_factory=set)

    def graph(self, raw: RawGraph) -> Graph:
        """The graph with the model's columns; refuses one that lacks an attribute that the model reads."""
        first = raw.nodes[0].get("x")
        width = len(first) if isinstance(first, list) else int(first is not None)
        taken = [attribute for attribute in self.attributes or () if attribute.columns]
        named = raw.attributes & {attribute.name for attribute in taken if attribute.name != "x"}
        at_once = taken and width == sum(attribute.columns for attribute in taken) and not named
        if width and (self.attributes is None or at_once):
            taken = [Attribute("x", width)]
        self.unused |= raw.attributes - {attribute.name for attribute in taken}
        return graph_of(raw, taken)
