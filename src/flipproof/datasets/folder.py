"""A user's own data: a folder with one file a graph, and a table of their classes.

FOLDER/labels.csv      file,label   one line a graph; the first line may be that heading
FOLDER/a.graphml       GraphML
FOLDER/b.json          node-link JSON: {"nodes": [{"id": 0, "x": [1.0]}, ...], "edges": [{"source": 0, "target": 1}, ...]}
FOLDER/c.edges         an edge a line, two node names split by a comma or blanks; .txt and .csv alike.
                       A line with one name is a node that may have no edge; # starts a comment
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.datasets.dataset import Attribute, Dataset
from flipproof.errors import InputError
from flipproof.graphs import Graph

__all__ = ["LABELS", "folder"]

LABELS = "labels.csv"

_MOST_CATEGORIES = 64
_HEADINGS = ({"source", "target"}, {"from", "to"}, {"u", "v"}, {"node1", "node2"})


def folder(path: str | os.PathLike[str], *, like: Sequence[Attribute] = ()) -> Dataset:
    """The graphs that ``labels.csv`` lists, in its order.

    Classes are numbered from 0 in ascending order of their names (as numbers, if all are whole numbers), which stay as
    ``class_names``. Node features: the attribute ``x`` (a number or a list of numbers) if every node of every graph has it;
    otherwise the attributes that every node of every graph has, in alphabetical order: numbers as they are, texts one-hot, a
    column per text, in alphabetical order. :meth:`Dataset.describe_features` says what was taken and ignored, and why. Edge
    attributes and weights are not read: an edge that the noise adds has none. Nodes of GraphML and JSON keep their order; in
    edge lists whole numbers are sorted, other names are numbered as they appear.

    Files in the folder that the table does not list are not read.

    Args:
        path: The folder.
        like: The attributes of other data, for instance of those that a model was trained on: the features get the same columns,
            and what does not fit them is refused.
    """
    base = Path(path)
    if not base.is_dir():
        raise InputError(f"{base} is not a folder (give the folder that holds {LABELS} and the graphs)")
    listed = _listed(base / LABELS)
    read = [_read(base / file, where) for where, file, _ in listed]
    names, labels = _classes([label for _, _, label in listed])
    attributes = _like(read, like) if like else _attributes(read)
    features = [_matrix(raw, attributes) for raw in read]
    graphs = []
    for (_, file, _), raw, label, own in zip(listed, read, labels, features, strict=True):
        try:
            graphs.append(Graph(len(raw.nodes), raw.edges, own, label, name=file))
        except InputError as error:
            raise InputError(f"{base / file}: {error}") from error
    return Dataset(graphs, class_names=names, name=base.resolve().name, attributes=attributes)


@dataclass(frozen=True)
class _Raw:
    """A graph as its file tells it: attributes of every node, and edges by position."""

    path: Path
    nodes: list[dict[str, Any]]
    edges: list[tuple[int, int]]
    edge_attributes: set[str] = field(default_factory=set)


def _listed(table: Path) -> list[tuple[str, str, str]]:
    """Where (for errors), file and label of every line of the table."""
    rows: list[tuple[str, str, str]] = []
    seen: set[str] = set()
    reader = csv.reader(_text(table, "expected lines of file,label").splitlines())
    try:
        for cells in reader:
            where = f"{table}, line {reader.line_num}"
            row = [cell.strip() for cell in cells]
            if not any(row) or (not rows and row == ["file", "label"]):
                continue
            if len(row) != 2 or not all(row):
                raise InputError(f"{where}: expected file,label; got {','.join(row)!r} (one graph a line)")
            if row[0] in seen:
                raise InputError(f"{where}: {row[0]} is listed twice (leave one of the lines out)")
            if Path(row[0]).is_absolute() or ".." in Path(row[0]).parts:
                raise InputError(f"{where}: {row[0]} lies outside the folder (copy the graph into it)")
            seen.add(row[0])
            rows.append((where, row[0], row[1]))
    except csv.Error as error:
        raise InputError(f"{table}, line {reader.line_num}: {error} (expected file,label)") from error
    if not rows:
        raise InputError(f"{table} lists no graph; expected lines of file,label (add one line a graph)")
    return rows


def _text(path: Path, expected: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file: {error.reason}; {expected} (save it as UTF-8)") from error
    except (FileNotFoundError, IsADirectoryError) as error:
        raise InputError(f"{path} is missing; {expected} (write it, or correct its name)") from error


def _classes(labels: list[str]) -> tuple[list[str], list[int]]:
    distinct = set(labels)
    try:
        names = sorted(distinct, key=int)
    except ValueError:
        names = sorted(distinct)
    if len(names) < 2:
        raise InputError(
            f"{LABELS} must name at least two classes; got only {names[0]!r} (list graphs of another class)"
        )
    number = {name: index for index, name in enumerate(names)}
    return names, [number[label] for label in labels]


def _read(path: Path, where: str) -> _Raw:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            f"{where}: {path.name} is of no known kind; expected one of {', '.join(_READERS)} (convert it to GraphML)"
        )
    raw = reader(path)
    if not raw.nodes:
        raise InputError(f"{path} holds no node (leave it out of {LABELS})")
    return raw


def _graphml(path: Path) -> _Raw:
    from xml.etree.ElementTree import ParseError

    import networkx

    text = _text(path, "expected GraphML")
    try:
        graph = networkx.parse_graphml(text)
    except ParseError as error:
        raise InputError(f"{path}, line {error.position[0]}: not GraphML: {error} (export it again)") from error
    except (networkx.NetworkXException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not GraphML that can be read: {error} (export it again)") from error
    try:
        simple = Graph.from_networkx(graph, node_features=np.zeros((graph.number_of_nodes(), 1)), label=0)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    edges = [(u, v) for u, v in simple.edges.tolist()]
    return _Raw(
        path,
        [dict(graph.nodes[node]) for node in graph],
        edges,
        {key for *_, data in graph.edges(data=True) for key in data},
    )


def _node_link(path: Path) -> _Raw:
    try:
        content = json.loads(_text(path, "expected node-link JSON"))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON: {error.msg} (export it again)") from error
    nodes = content.get("nodes") if isinstance(content, dict) else None
    links = content.get("edges", content.get("links")) if isinstance(content, dict) else None
    if not isinstance(nodes, list) or not isinstance(links, list):
        raise InputError(
            f'{path} is not node-link JSON; expected the lists "nodes" and "edges" (or "links") (export it again)'
        )
    if content.get("directed") or content.get("multigraph"):
        kind = "directed" if content.get("directed") else "multigraph"
        raise InputError(
            f"{path}: expected an undirected simple graph; it says {kind} (symmetrise it, and set it to false)"
        )
    place: dict[Any, int] = {}
    attributes = []
    for index, node in enumerate(nodes):
        if not isinstance(node, dict) or not isinstance(node.get("id"), (str, int, float)):
            raise InputError(
                f'{path}: nodes[{index}] must be an object with an "id"; got {node!r} (give every node one)'
            )
        if node["id"] in place:
            raise InputError(f"{path}: nodes[{index}] has the id {node['id']!r} of an earlier node (ids must differ)")
        place[node["id"]] = index
        attributes.append({key: value for key, value in node.items() if key != "id"})
    edges = []
    for index, link in enumerate(links):
        ends = [link.get(key) for key in ("source", "target")] if isinstance(link, dict) else [None]
        if not all(isinstance(end, (str, int, float)) and end in place for end in ends):
            raise InputError(
                f'{path}: edge {index} must join two nodes by "source" and "target"; got {link!r} (correct the ids)'
            )
        edges.append((place[ends[0]], place[ends[1]]))
    return _Raw(path, attributes, edges, {key for link in links for key in link} - {"source", "target"})


def _edge_list(path: Path) -> _Raw:
    rows: list[tuple[int, list[str]]] = []
    for line, text in enumerate(_text(path, "expected an edge a line").splitlines(), 1):
        content = text.split("#", 1)[0].strip()
        if not content:
            continue
        cells = [cell.strip() for cell in content.split(",")] if "," in content else content.split()
        if len(cells) > 2 or not all(cells):
            raise InputError(
                f"{path}, line {line}: expected two nodes, u v; got {content!r} (edge weights are not read: leave them out)"
            )
        if not rows and {cell.lower() for cell in cells} in _HEADINGS:
            continue
        if len(cells) == 2 and cells[0] == cells[1]:
            raise InputError(f"{path}, line {line}: node {cells[0]} is joined to itself (leave self-loops out)")
        rows.append((line, cells))
    names = list(dict.fromkeys(name for _, cells in rows for name in cells))
    if all(name.isdecimal() for name in names):
        names.sort(key=int)
    place = {name: index for index, name in enumerate(names)}
    edges = [(place[cells[0]], place[cells[1]]) for _, cells in rows if len(cells) == 2]
    return _Raw(path, [{} for _ in names], edges)


_READERS: dict[str, Callable[[Path], _Raw]] = {
    ".graphml": _graphml,
    ".json": _node_link,
    ".edges": _edge_list,
    ".txt": _edge_list,
    ".csv": _edge_list,
}


def _attributes(graphs: list[_Raw]) -> list[Attribute]:
    """What becomes of every attribute that a node or an edge has."""
    names = sorted({name for graph in graphs for node in graph.nodes for name in node})
    found = [_attribute(graphs, name) for name in names]
    if any(attribute.name == "x" and attribute.columns and not attribute.categories for attribute in found):
        found = [
            attribute
            if attribute.name == "x" or not attribute.columns
            else Attribute(attribute.name, remark="x is there, and is taken alone")
            for attribute in found
        ]
    edges = sorted({name for graph in graphs for name in graph.edge_attributes})
    remark = "an edge that the noise adds has none"
    return [*found, *(Attribute(f"{name} (of edges)", remark=remark) for name in edges)]


def _attribute(graphs: list[_Raw], name: str) -> Attribute:
    """What becomes of one attribute of nodes; refuses numbers that are none, and lists of unequal length."""
    missing = [(graph, index) for graph, index, node in _nodes(graphs) if name not in node]
    if missing:
        graph, index = missing[0]
        some = f"node {index}" if any(name in node for node in graph.nodes) else "all nodes"
        more = len(missing) - (1 if some != "all nodes" else len(graph.nodes))
        also = f", and at {more} node{'s' * (more != 1)} of other graphs or further on" if more else ""
        return Attribute(name, remark=f"missing at {some} of {graph.path.name}{also}")
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


def _like(graphs: list[_Raw], like: Sequence[Attribute]) -> list[Attribute]:
    """The given attributes, if the graphs have them all, with no other text than their categories."""
    for attribute in like:
        for graph, index, node in _nodes(graphs) if attribute.columns else ():
            value = node.get(attribute.name)
            known = value in attribute.categories if attribute.categories else _row(value) is not None
            if not known:
                expected = f"one of {', '.join(attribute.categories)}" if attribute.categories else "a number"
                got = f"got {value!r}" if attribute.name in node else "it is missing"
                raise InputError(
                    f"{graph.path}: {attribute.name} of node {index} must be {expected}, as in the data of the model; {got} "
                    "(correct the file, or train on data that have it)"
                )
        if attribute.columns and not attribute.categories:
            _check_numbers(graphs, attribute.name, attribute.columns)
    return list(like)


def _check_numbers(graphs: list[_Raw], name: str, width: int) -> None:
    for graph, index, node in _nodes(graphs):
        row = _row(node[name]) or []
        if len(row) != width or not row:
            raise InputError(
                f"{graph.path}: node {index} must have {width or 'some'} numbers in {name}, as the nodes before; got "
                f"{node[name]!r} (give every node the same numbers)"
            )
        if not all(map(math.isfinite, row)):
            raise InputError(
                f"{graph.path}: {name} of node {index} must be finite; got {node[name]!r} (fill it in, or take {name} out of "
                "the files)"
            )


def _matrix(graph: _Raw, attributes: Sequence[Attribute]) -> NDArray[np.float32] | None:
    """The features of a graph's nodes."""
    taken = [attribute for attribute in attributes if attribute.columns]
    if not taken:
        return None
    rows = [[number for attribute in taken for number in _numbers(node, attribute)] for node in graph.nodes]
    return np.array(rows, dtype=np.float32)


def _numbers(node: dict[str, Any], attribute: Attribute) -> list[float]:
    value = node[attribute.name]
    if attribute.categories:
        return [float(value == category) for category in attribute.categories]
    return _row(value) or []


def _nodes(graphs: list[_Raw]) -> Iterator[tuple[_Raw, int, dict[str, Any]]]:
    """Every node with its graph and number."""
    return ((graph, index, node) for graph in graphs for index, node in enumerate(graph.nodes))


def _row(value: Any) -> list[float] | None:
    """A number, or a list of numbers, as a list; ``None`` for anything else."""
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(number, (int, float)) for number in values):
        return None
    return [float(number) for number in values]
