"""One table of edges for many graphs, and one of their nodes.

FOLDER/edges.csv    graph,source,target[,...]   one line per edge; further columns are attributes of edges, which are not read
FOLDER/nodes.csv    graph,node[,...]            need not be there: attributes of nodes, and nodes without an edge
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

from flipproof.datasets.graph_files import RawGraph, numbered, read_text
from flipproof.errors import InputError

__all__ = ["EDGES", "NODES", "has_edge_table", "read_edge_table", "read_table_rows"]

EDGES, NODES = "edges.csv", "nodes.csv"


def has_edge_table(folder: Path) -> bool:
    """Whether a folder holds a table of the edges of many graphs: its heading has a column ``graph``."""
    path = folder / EDGES
    if not path.is_file():
        return False
    first = next(iter(read_text(path, "expected a table of edges").splitlines()), "")
    return "graph" in [cell.strip().lower() for cell in first.split(",")]


def read_edge_table(folder: Path) -> dict[str, RawGraph]:
    """The graphs of both tables by name, in the order in which they appear."""
    edges: dict[str, list[tuple[str, str]]] = defaultdict(list)
    nodes: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    heading, lines = read_table_rows(folder / EDGES, ("graph", "source", "target"))
    for where, row in lines:
        graph, u, v = row["graph"], row["source"], row["target"]
        if u == v:
            raise InputError(f"{where}: node {u} of graph {graph} is joined to itself (leave self-loops out)")
        edges[graph].append((u, v))
    if (folder / NODES).is_file():
        _, lines = read_table_rows(folder / NODES, ("graph", "node"))
        for where, row in lines:
            graph, node = row.pop("graph"), row.pop("node")
            if node in nodes[graph]:
                raise InputError(f"{where}: node {node} of graph {graph} is listed twice (leave one of the lines out)")
            nodes[graph][node] = {key: _value(value) for key, value in row.items() if value != ""}
    attributes = set(heading) - {"graph", "source", "target"}
    return {
        graph: _raw(graph, folder / EDGES, edges[graph], nodes[graph], attributes)
        for graph in dict.fromkeys([*edges, *nodes])
    }


def _raw(
    graph: str, path: Path, edges: list[tuple[str, str]], nodes: dict[str, dict[str, Any]], attributes: set[str]
) -> RawGraph:
    names = numbered([*nodes, *(end for pair in edges for end in pair)])
    place = {name: index for index, name in enumerate(names)}
    pairs = sorted({(min(place[u], place[v]), max(place[u], place[v])) for u, v in edges})
    return RawGraph(graph, f"{path}, graph {graph}", [nodes.get(name, {}) for name in names], pairs, attributes)


def read_table_rows(path: Path, needed: tuple[str, ...]) -> tuple[list[str], list[tuple[str, dict[str, str]]]]:
    """The heading of a CSV table, and its rows by column, each with where it stands; blank lines are passed over."""
    reader = csv.reader(read_text(path, f"expected the columns {', '.join(needed)}").splitlines())
    heading: list[str] = []
    rows: list[tuple[str, dict[str, str]]] = []
    try:
        for cells in reader:
            where, row = f"{path}, line {reader.line_num}", [cell.strip() for cell in cells]
            if not any(row):
                continue
            if not heading:
                heading = [cell.lower() if cell.lower() in needed else cell for cell in row]
                missing = [name for name in needed if name not in heading]
                if missing or len(set(heading)) < len(heading):
                    raise InputError(
                        f"{where}: expected a heading with {', '.join(needed)}, each column once; got {','.join(row)!r} (name "
                        "the columns)"
                    )
                continue
            if len(row) != len(heading):
                raise InputError(
                    f"{where}: expected {len(heading)} cells; got {len(row)} (quote cells that hold commas)"
                )
            found = dict(zip(heading, row, strict=True))
            empty = next((name for name in needed if not found[name]), None)
            if empty is not None:
                raise InputError(f"{where}: {empty} is empty (fill it in, or leave the line out)")
            rows.append((where, found))
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: {error} (expected CSV)") from error
    return heading, rows


def _value(text: str) -> Any:
    """A number, if it reads as one."""
    try:
        return float(text)
    except ValueError:
        return text
