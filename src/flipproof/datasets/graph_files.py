"""Files that hold one graph each (GraphML, GEXF, node-link JSON, edge lists), and tables that hold many.

FOLDER/edges.csv    graph,source,target[,...]   one line per edge; further columns are attributes of edges, which are not read
FOLDER/nodes.csv    graph,node[,...]            optional: attributes of nodes, and nodes without an edge
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flipproof.errors import InputError

EDGES, NODES = "edges.csv", "nodes.csv"
_MOST_NODES = 2**22  # of a graph that is given by its number of nodes
_HEADINGS = ({"source", "target"}, {"from", "to"}, {"u", "v"}, {"node1", "node2"})


@dataclass(frozen=True)
class RawGraph:
    """A graph as its file tells it: attributes of every node, and edges by position.

    Attributes:
        name: What the graph is called.
        source: Where it comes from, for errors.
        nodes: The attributes of every node.
        edges: Pairs of positions, each edge once, no node joined to itself.
        edge_attributes: Names of attributes that edges have; none is read.
    """

    name: str
    source: str
    nodes: list[dict[str, Any]]
    edges: list[tuple[int, int]]
    edge_attributes: set[str] = field(default_factory=set)


def read_graph_file(path: Path, where: str, *, symmetrise: bool = False) -> RawGraph:
    """The graph that a file holds.

    Args:
        path: Its suffix tells the kind.
        where: What named the file, for errors.
        symmetrise: Take a directed graph as undirected: an edge where either direction has one.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            f"{where}: {path.name} is of no known kind; expected one of {', '.join(READERS)} (convert it to GraphML)"
        )
    raw = reader(path, symmetrise)
    if not raw.nodes:
        raise InputError(f"{path} holds no node (leave the file out)")
    return raw


def read_text(path: Path, expected: str) -> str:
    """A text file; without the mark that some programs put in front."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file: {error.reason}; {expected} (save it as UTF-8)") from error
    except (FileNotFoundError, IsADirectoryError) as error:
        raise InputError(f"{path} is missing; {expected} (write it, or correct its name)") from error


def numbered(names: Iterable[str]) -> list[str]:
    """Node names in the order of their numbers: whole numbers ascending, other names as they appear."""
    found = list(dict.fromkeys(names))
    return sorted(found, key=int) if all(name.isdecimal() for name in found) else found


def _graphml(path: Path, symmetrise: bool) -> RawGraph:
    import networkx

    text = read_text(path, "expected GraphML")
    return _networkx_file(path, "GraphML", lambda: networkx.parse_graphml(text), symmetrise)


def _gexf(path: Path, symmetrise: bool) -> RawGraph:
    import networkx

    def parse() -> Any:
        graph = networkx.read_gexf(path)
        if all(data.get("label") == node for node, data in graph.nodes(data=True)):
            for _, data in graph.nodes(data=True):  # the id once more, not an attribute
                del data["label"]
        return graph

    read_text(path, "expected GEXF")
    return _networkx_file(path, "GEXF", parse, symmetrise)


def _networkx_file(path: Path, kind: str, parse: Callable[[], Any], symmetrise: bool) -> RawGraph:
    from xml.etree.ElementTree import ParseError

    import networkx

    try:
        graph = parse()
    except ParseError as error:
        raise InputError(f"{path}, line {error.position[0]}: not {kind}: {error} (export it again)") from error
    except (networkx.NetworkXException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not {kind} that can be read: {error} (export it again)") from error
    nodes = list(graph.nodes)
    place = {node: index for index, node in enumerate(nodes)}
    ends = [(place[u], place[v]) for u, v in graph.edges()]
    directed = graph.is_directed()
    edges = _undirected(ends, directed, graph.is_multigraph(), symmetrise, str(path))
    named = {key for *_, data in graph.edges(data=True) for key in data} - ({"id"} if kind == "GEXF" else set())
    return RawGraph(path.name, str(path), [dict(graph.nodes[node]) for node in nodes], edges, named)


def _node_link(path: Path, symmetrise: bool) -> RawGraph:
    content = loaded_json(read_text(path, "expected node-link JSON"), str(path), "export it again")
    return parsed_json(content, str(path), path.name, symmetrise=symmetrise)


def loaded_json(text: str, where: str, remedy: str) -> Any:
    """What JSON says; ``where`` it stands is named if it is none, or cannot be read."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{where}, line {error.lineno}" if "\n" in text.strip() else where
        raise InputError(f"{place}: not JSON: {error.msg} ({remedy})") from error
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"
        raise InputError(f"{where}: JSON that cannot be read: {reason} ({remedy})") from error


def parsed_json(content: Any, source: str, name: str, *, symmetrise: bool = False) -> RawGraph:
    """A graph from JSON: node-link, or ``{"num_nodes": 3, "edges": [[0, 1], ...], "x": [[1.0], ...]}``.

    Args:
        content: The JSON, parsed.
        source: Where it comes from, for errors.
        name: What the graph is called.
        symmetrise: As for :func:`read_graph_file`.
    """
    if isinstance(content, dict) and "num_nodes" in content:
        content = _as_node_link(content, source)
    nodes = content.get("nodes") if isinstance(content, dict) else None
    links = content.get("edges", content.get("links")) if isinstance(content, dict) else None
    if not isinstance(nodes, list) or not isinstance(links, list):
        raise InputError(
            f'{source} is not node-link JSON; expected the lists "nodes" and "edges" (or "links") (export it again)'
        )
    place: dict[Any, int] = {}
    attributes = []
    for index, node in enumerate(nodes):
        if not isinstance(node, dict) or not isinstance(node.get("id"), (str, int, float)):
            raise InputError(
                f'{source}: nodes[{index}] must be an object with an "id"; got {node!r} (give every node one)'
            )
        if node["id"] in place:
            raise InputError(f"{source}: nodes[{index}] has the id {node['id']!r} of an earlier node (ids must differ)")
        place[node["id"]] = index
        attributes.append({key: value for key, value in node.items() if key != "id"})
    ends = []
    for index, link in enumerate(links):
        named = [link.get(key) for key in ("source", "target")] if isinstance(link, dict) else [None]
        if not all(isinstance(end, (str, int, float)) and end in place for end in named):
            raise InputError(
                f'{source}: edge {index} must join two nodes by "source" and "target"; got {link!r} (correct the ids)'
            )
        ends.append((place[named[0]], place[named[1]]))
    edges = _undirected(ends, bool(content.get("directed")), bool(content.get("multigraph")), symmetrise, source)
    beside = ({key for link in links for key in link} - {"source", "target"}) | ({"edge_labels"} & content.keys())
    return RawGraph(name, source, attributes, edges, beside)


def _as_node_link(content: dict[str, Any], source: str) -> dict[str, Any]:
    """The short form with numbered nodes."""
    count, edges, rows = content["num_nodes"], content.get("edges"), content.get("x")
    pairs = isinstance(edges, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in edges)
    fits = rows is None or (isinstance(rows, list) and len(rows) == count)
    if not isinstance(count, int) or isinstance(count, bool) or count < 0 or not pairs or not fits:
        raise InputError(
            f'{source}: expected {{"num_nodes": n, "edges": [[u, v], ...]}} with nodes 0 to n - 1, and "x" with a row per node '
            "if any (or node-link JSON)"
        )
    if count > _MOST_NODES:
        raise InputError(f"{source}: num_nodes must be at most {_MOST_NODES:,}; got {count:,} (leave the graph out)")
    nodes = [{"id": index} if rows is None else {"id": index, "x": rows[index]} for index in range(count)]
    links = [{"source": u, "target": v} for u, v in edges or []]
    rest = {key: value for key, value in content.items() if key not in ("num_nodes", "edges", "x")}
    return {**rest, "nodes": nodes, "edges": links}


def _edge_list(path: Path, symmetrise: bool) -> RawGraph:
    """Every line is an undirected edge, whichever end comes first."""
    rows: list[list[str]] = []
    for line, text in enumerate(read_text(path, "expected an edge per line").splitlines(), 1):
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
        rows.append(cells)
    names = numbered(name for cells in rows for name in cells)
    place = {name: index for index, name in enumerate(names)}
    edges = [(place[cells[0]], place[cells[1]]) for cells in rows if len(cells) == 2]
    return RawGraph(path.name, str(path), [{} for _ in names], edges)


def _undirected(
    ends: list[tuple[int, int]], directed: bool, parallel: bool, symmetrise: bool, source: str
) -> list[tuple[int, int]]:
    """Each edge once; refuses a directed graph or parallel edges unless told to make them one."""
    if (directed or parallel) and not symmetrise:
        kind = "directed" if directed else "with parallel edges"
        raise InputError(
            f"{source}: expected an undirected simple graph; got one {kind} (--symmetrise, or symmetrise=True in Python, keeps "
            "an edge where either direction has one; certificates then count undirected flips)"
        )
    loop = next((u for u, v in ends if u == v), None)
    if loop is not None:
        raise InputError(f"{source}: node {loop} is joined to itself (leave self-loops out)")
    return sorted({(min(u, v), max(u, v)) for u, v in ends})


# ---- one table of the edges of many graphs, and one of their nodes ----


def has_edge_table(folder: Path) -> bool:
    """Whether a folder holds a table of the edges of many graphs: its heading has a column ``graph``."""
    return (folder / EDGES).is_file() and "graph" in heading(folder / EDGES)


def heading(path: Path) -> list[str]:
    """The cells of the first line of a table, in lower case."""
    first = next(iter(read_text(path, "expected an edge per line").splitlines()), "")
    return [cell.strip().lower() for cell in first.split(",")]


def csv_rows(path: Path, expected: str) -> Iterator[tuple[str, list[str]]]:
    """The cells of every line of a CSV file that is not blank, with where it stands."""
    reader = csv.reader(read_text(path, expected).splitlines())
    try:
        for cells in reader:
            row = [cell.strip() for cell in cells]
            if any(row):
                yield f"{path}, line {reader.line_num}", row
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: {error} ({expected})") from error


def read_edge_table(folder: Path) -> dict[str, RawGraph]:
    """The graphs of both tables by name, in the order in which they appear."""
    edges: dict[str, list[tuple[str, str]]] = defaultdict(list)
    nodes: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    columns, lines = read_table_rows(folder / EDGES, ("graph", "source", "target"))
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
    attributes = set(columns) - {"graph", "source", "target"}
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
    columns: list[str] = []
    rows: list[tuple[str, dict[str, str]]] = []
    for where, row in csv_rows(path, f"expected the columns {', '.join(needed)}"):
        if not columns:
            columns = [cell.lower() if cell.lower() in needed else cell for cell in row]
            if not set(needed) <= set(columns) or len(set(columns)) < len(columns):
                raise InputError(
                    f"{where}: expected a heading with {', '.join(needed)}, each column once; got {','.join(row)!r} (name "
                    "the columns)"
                )
            continue
        if len(row) != len(columns):
            raise InputError(f"{where}: expected {len(columns)} cells; got {len(row)} (quote cells that hold commas)")
        cells = dict(zip(columns, row, strict=True))
        empty = next((name for name in needed if not cells[name]), None)
        if empty is not None:
            raise InputError(f"{where}: {empty} is empty (fill it in, or leave the line out)")
        rows.append((where, cells))
    return columns, rows


def _value(text: str) -> Any:
    """A number, if it reads as one."""
    try:
        return float(text)
    except ValueError:
        return text


READERS: dict[str, Callable[[Path, bool], RawGraph]] = {
    ".graphml": _graphml,
    ".gexf": _gexf,
    ".json": _node_link,
    ".edges": _edge_list,
    ".edgelist": _edge_list,
    ".txt": _edge_list,
    ".csv": _edge_list,
}
"""The reader of each kind of file, by suffix."""
