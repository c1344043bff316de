"""Graphs without labels, for a model that is there already: from files, folders, and JSON lines.

Their node features get the columns that the model was trained with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flipproof.datasets.dataset import Attribute
from flipproof.datasets.folder import LABELS, check_like, graph_of, molecule
from flipproof.datasets.graph_files import (
    EDGES,
    NODES,
    READERS,
    RawGraph,
    has_edge_table,
    heading,
    loaded_json,
    parsed_json,
    read_edge_table,
    read_graph_file,
    read_table_rows,
    read_text,
)
from flipproof.errors import InputError
from flipproof.graphs import Graph

_SMILES = ".smi"


def read_unlabelled(path: Path, *, symmetrise: bool = False) -> tuple[list[RawGraph], list[str]]:
    """The graphs of a file or folder, and the names of files in the folder that were not read.

    A file holds one graph; or several: a list of SMILES (``.smi``, or CSV with a column ``smiles``), JSON lines (``.jsonl``). A
    folder holds files, in alphabetical order, or the table ``edges.csv`` for all graphs.
    """
    if not path.exists():
        raise InputError(f"{path} is missing; expected a file or a folder of graphs (correct its name)")
    if not path.is_dir():
        return _of_file(path, symmetrise), []
    if has_edge_table(path):
        used, graphs = {EDGES, NODES, LABELS}, list(read_edge_table(path).values())
        left = [entry.name for entry in sorted(path.iterdir()) if entry.is_file() and entry.name not in used]
        return graphs, left
    files = [entry for entry in sorted(path.iterdir()) if entry.is_file() and entry.name != LABELS]
    known = [entry for entry in files if entry.suffix.lower() in (*READERS, _SMILES, ".jsonl")]
    if not known:
        raise InputError(f"{path} holds no graph; expected files of {', '.join(READERS)} (give another folder)")
    graphs = [graph for entry in known for graph in _of_file(entry, symmetrise)]
    return graphs, [entry.name for entry in files if entry not in known]


def parsed_line(text: str, number: int, *, source: str = "", symmetrise: bool = False) -> RawGraph:
    """The graph of one line: node-link JSON, the short form with numbered nodes, or ``{"smiles": "CCO"}``; ``name`` names it."""
    where = f"{source}line {number}"
    if not _is_unicode(text):
        raise InputError(f"{where}: not UTF-8 (write one graph per line, as JSON)")
    content = loaded_json(text, where, "write one graph per line")
    if not isinstance(content, dict):
        raise InputError(f"{where}: expected a JSON object; got {type(content).__name__} (write one graph per line)")
    name = str(content.get("name", content.get("id", number)))
    name = name if _is_unicode(name) else repr(name)
    if isinstance(content.get("smiles"), str):
        return molecule(content["smiles"], name, where)
    raw = parsed_json(content, where, name, symmetrise=symmetrise)
    if not raw.nodes:
        raise InputError(f"{where}: the graph has no node (leave it out)")
    return raw


def _is_unicode(text: str) -> bool:
    """Whether it can be written; half a character, or a byte that was none, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _of_file(path: Path, symmetrise: bool) -> list[RawGraph]:
    suffix = path.suffix.lower()
    if suffix == ".jsonl":
        lines = read_text(path, "expected one JSON object per line").splitlines()
        return [
            parsed_line(line, number, source=f"{path}, ", symmetrise=symmetrise)
            for number, line in enumerate(lines, 1)
            if line.strip()
        ]
    if suffix == _SMILES:
        return list(_smiles_lines(path))
    if suffix == ".csv" and "smiles" in heading(path):
        _, rows = read_table_rows(path, ("smiles",))
        return [molecule(row["smiles"], row.get("name") or row["smiles"], where) for where, row in rows]
    return [read_graph_file(path, str(path), symmetrise=symmetrise)]


def _smiles_lines(path: Path) -> Iterator[RawGraph]:
    for number, line in enumerate(read_text(path, "expected one SMILES per line").splitlines(), 1):
        text, _, name = line.strip().partition(" ")
        if text:
            yield molecule(text, name.strip() or text, f"{path}, line {number}")


@dataclass(eq=False)
class Columns:
    """The columns of node features that a model was trained with, and what is found beside them.

    Attributes:
        attributes: What the model's data had. ``None`` for a model that does not say: the attribute ``x`` is then taken as it is.
        unused: Attributes that graphs had and the model does not know.
    """

    attributes: Sequence[Attribute] | None
    unused: set[str] = field(default_factory=set)

    def graph(self, raw: RawGraph) -> Graph:
        """The graph with the model's columns; refuses one that lacks an attribute that the model reads."""
        own = {name for node in raw.nodes for name in node}
        taken = self._taken(raw, own)
        self.unused |= own - {attribute.name for attribute in taken}
        self.unused |= {f"{name} (of edges)" for name in raw.edge_attributes}
        check_like([raw], taken)
        return graph_of(raw, taken)

    def _taken(self, raw: RawGraph, own: set[str]) -> list[Attribute]:
        width = _width(raw)
        if self.attributes is None:
            return [Attribute("x", width)] if width else []
        needed = [attribute for attribute in self.attributes if attribute.columns]
        if needed and width == sum(a.columns for a in needed) and not own & {a.name for a in needed if a.name != "x"}:
            return [Attribute("x", width)]  # all columns at once
        return needed


def _width(raw: RawGraph) -> int:
    """The length of the attribute ``x`` at the first node; 0 without one."""
    value: Any = raw.nodes[0].get("x")
    return 0 if value is None else len(value) if isinstance(value, list) else 1
