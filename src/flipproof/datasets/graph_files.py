"""Files that hold one graph each, and tables that hold many.

a.graphml, a.gexf   GraphML, GEXF
a.json              node-link JSON: {"nodes": [{"id": 0, "x": [1.0]}, ...], "edges": [{"source": 0, "target": 1}, ...]}
a.edges             one edge per line, two node names split by a comma or blanks; .edgelist, .txt and .csv alike.
                    A line with one name is a node that may have no edge; # starts a comment
edges.csv           graph,source,target[,...]   one line per edge; further columns are attributes of edges, which are not read
nodes.csv           graph,node[,...]            optional: attributes of nodes, and nodes without an edge
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
    """A graph as its file tells it: attributes of every node, edges by position, and where it comes from (for errors)."""

    name: str
    source: str
    nodes: list[dict[str, Any]]
    edges: list[tuple[int, int]]
    edge_attributes: set[str] = field(default_factory=set)  # their names; none is read
    irregular: str = ""  # what kind of graph it is, if it is not undirected and simple

    @property
    def attributes(self) -> set[str]:
        """The attributes of its nodes and edges, as users are told of them."""
        return {name for node in self.nodes for name in node} | {f"{name} (of edges)" for name in self.edge_attributes}

    def checked(self, symmetrise: bool) -> RawGraph:
        """Itself; refuses a graph without nodes, and an irregular one unless it is to be made simple and undirected."""
        if not self.nodes:
            raise InputError(f"{self.source} holds no node (leave it out)")
        if self.irregular and not symmetrise:
            raise InputError(
                f"{self.source}: expected an undirected simple graph; got one {self.irregular} (--symmetrise, or symmetrise=True "
                "in Python, keeps an edge where either direction has one; certificates then count undirected flips)"
            )
        return self


def read_graph_file(path: Path, where: str, *, symmetrise: bool = False) -> RawGraph:
    """The graph that a file holds, whose suffix tells the kind; ``where`` it was named is for errors."""
    if (kind := path.suffix.lower()) not in READERS:
        raise InputError(
            f"{where}: {path.name} is of no known kind; expected one of {', '.join(READERS)} (convert it to GraphML)"
        )
    return READERS[kind](path).checked(symmetrise)


def read_text(path: Path, expected: str) -> str:
    """A text file; without the mark that some programs put in front."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file: {error.reason}; {expected} (save it as UTF-8)") from error
    except (FileNotFoundError, IsADirectoryError) as error:
        raise InputError(f"{path} is missing; {expected} (write it, or correct its name)") from error


def _numbered(names: Iterable[str]) -> dict[str, int]:
    """The position of every node name: whole numbers ascending, other names as they appear."""
    distinct = list(dict.fromkeys(names))
    if all(name.isdecimal() for name in distinct):
        distinct.sort(key=int)
    return {name: place for place, name in enumerate(distinct)}


def _networkx_file(path: Path) -> RawGraph:
    import networkx

    is_gexf = path.suffix.lower() == ".gexf"
    kind, read = ("GEXF", networkx.read_gexf) if is_gexf else ("GraphML", networkx.read_graphml)
    read_text(path, f"expected {kind}")
    try:
        graph = read(path)
    except Exception as error:  # broken files fail in many ways
        raise InputError(f"{path} is not {kind} that can be read: {error} (export it again)") from error
    named = {key for *_, data in graph.edges(data=True) for key in data} - ({"id"} if is_gexf else set())
    nodes = [dict(data) for _, data in graph.nodes(data=True)]
    if is_gexf and all(data.get("label") == node for node, data in graph.nodes(data=True)):
        nodes = [{key: value for key, value in data.items() if key != "label"} for data in nodes]  # the id once more
    place = {node: index for index, node in enumerate(graph)}
    edges = [(place[u], place[v]) for u, v in graph.edges()]
    irregular = "directed" if graph.is_directed() else "with parallel edges" if graph.is_multigraph() else ""
    return RawGraph(path.name, str(path), nodes, edges, named, irregular)


def _json_file(path: Path) -> RawGraph:
    content = loaded_json(read_text(path, "expected node-link JSON"), str(path), "export it again")
    return parsed_json(content, str(path), path.name)


def loaded_json(text: str, where: str, remedy: str) -> Any:
    """What JSON says; ``where`` it stands is named if it is none, or cannot be read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON that can be read: {error} ({remedy})") from error


def parsed_json(content: Any, source: str, name: str) -> RawGraph:
    """A graph from parsed JSON: node-link, or ``{"num_nodes": 3, "edges": [[0, 1], ...], "x": [[1.0], ...]}``."""
    content = content if isinstance(content, dict) else {}
    irregular = "directed" if content.get("directed") else "with parallel edges" if content.get("multigraph") else ""
    named = {"edge_labels"} & content.keys()
    if "num_nodes" in content:
        nodes, edges = _numbered_form(content, source)
        return RawGraph(name, source, nodes, edges, named, irregular)
    nodes, links = content.get("nodes"), content.get("edges", content.get("links"))
    if not isinstance(nodes, list) or not isinstance(links, list):
        raise InputError(
            f'{source} is not node-link JSON; expected the lists "nodes" and "edges" (or "links") (export it again)'
        )
    place: dict[Any, int] = {}
    for index, node in enumerate(nodes):
        if not isinstance(node, dict) or not isinstance(node.get("id"), (str, int, float)) or node["id"] in place:
            raise InputError(
                f'{source}: nodes[{index}] must be an object with an "id" of its own; got {node!r} (give it one)'
            )
        place[node["id"]] = index
    edges = []
    for index, link in enumerate(links):
        try:
            edges.append((place[link["source"]], place[link["target"]]))
        except (KeyError, TypeError) as error:
            raise InputError(
                f'{source}: edge {index} must join two nodes by "source" and "target"; got {link!r} (correct the ids)'
            ) from error
        named |= link.keys() - {"source", "target"}
    attributes = [{key: value for key, value in node.items() if key != "id"} for node in nodes]
    return RawGraph(name, source, attributes, edges, named, irregular)


def _numbered_form(content: dict[str, Any], source: str) -> tuple[list[dict[str, Any]], list[tuple[int, int]]]:
    """Nodes and edges of the short form, whose nodes are numbered; which numbers there are :class:`Graph` checks."""
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
    nodes = [{} for _ in range(count)] if rows is None else [{"x": row} for row in rows]
    return nodes, edges or []


def _edge_list(path: Path) -> RawGraph:
    rows: list[list[str]] = []
    for line, text in enumerate(read_text(path, "expected an edge per line").splitlines(), 1):
        content = text.split("#", 1)[0].strip()
        cells = [cell.strip() for cell in content.split(",")] if "," in content else content.split()
        if not cells or (not rows and {cell.lower() for cell in cells} in _HEADINGS):
            continue
        if len(cells) > 2 or not all(cells):
            raise InputError(
                f"{path}, line {line}: expected two nodes, u v; got {content!r} (edge weights are not read: leave them out)"
            )
        if cells == cells[:1] * 2:
            raise InputError(f"{path}, line {line}: node {cells[0]} is joined to itself (leave self-loops out)")
        rows.append(cells)
    place = _numbered(name for cells in rows for name in cells)
    edges = [(place[cells[0]], place[cells[1]]) for cells in rows if len(cells) == 2]
    return RawGraph(path.name, str(path), [{} for _ in place], edges)


READERS: dict[str, Callable[[Path], RawGraph]] = {
    **dict.fromkeys((".graphml", ".gexf"), _networkx_file),
    ".json": _json_file,
    **dict.fromkeys((".edges", ".edgelist", ".txt", ".csv"), _edge_list),
}
"""The reader of each kind of file, by suffix."""


def has_edge_table(folder: Path) -> bool:
    """Whether a folder holds a table of the edges of many graphs: its heading has a column ``graph``."""
    if not (folder / EDGES).is_file():
        return False
    heading = read_text(folder / EDGES, "expected an edge per line").partition("\n")[0]
    return "graph" in (cell.strip().lower() for cell in heading.split(","))


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


def table_rows(path: Path, needed: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a CSV table by column, each with where it stands; blank lines are passed over."""
    rows = csv_rows(path, f"expected the columns {', '.join(needed)}")
    where, heading = next(rows, (str(path), []))
    columns = [cell.lower() if cell.lower() in needed else cell for cell in heading]
    if not set(needed) <= set(columns) or len(set(columns)) < len(columns):
        raise InputError(
            f"{where}: expected a heading with {', '.join(needed)}, each once; got {','.join(heading)!r} (name the columns)"
        )
    for where, row in rows:
        if len(row) != len(columns):
            raise InputError(f"{where}: expected {len(columns)} cells; got {len(row)} (quote cells that hold commas)")
        cells = dict(zip(columns, row, strict=True))
        if empty := next((name for name in needed if not cells[name]), None):
            raise InputError(f"{where}: {empty} is empty (fill it in, or leave the line out)")
        yield where, cells


def read_edge_table(folder: Path) -> dict[str, RawGraph]:
    """The graphs of both tables by name, in the order in which they appear."""
    edges: dict[str, list[tuple[str, str]]] = defaultdict(list)
    nodes: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    named: set[str] = set()
    for where, row in table_rows(folder / EDGES, ("graph", "source", "target")):
        graph, u, v = (row.pop(name) for name in ("graph", "source", "target"))
        if u == v:
            raise InputError(f"{where}: node {u} of graph {graph} is joined to itself (leave self-loops out)")
        edges[graph].append((u, v))
        named |= row.keys()
    for where, row in table_rows(folder / NODES, ("graph", "node")) if (folder / NODES).is_file() else ():
        graph, node = row.pop("graph"), row.pop("node")
        if node in nodes[graph]:
            raise InputError(f"{where}: node {node} of graph {graph} is listed twice (leave one of the lines out)")
        nodes[graph][node] = {key: _value(value) for key, value in row.items() if value != ""}
    graphs = {}
    for graph in dict.fromkeys([*edges, *nodes]):
        place = _numbered([*nodes[graph], *(end for pair in edges[graph] for end in pair)])
        pairs = [(place[u], place[v]) for u, v in edges[graph]]
        own = [nodes[graph].get(name, {}) for name in place]
        graphs[graph] = RawGraph(graph, f"{folder / EDGES}, graph {graph}", own, pairs, named)
    return graphs


def _value(text: str) -> Any:
    """A number, if it reads as one."""
    try:
        return float(text)
    except ValueError:
        return text
