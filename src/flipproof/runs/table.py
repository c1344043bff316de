"""The table of a run's certificates: one row per graph, derived from its evidence; as parquet, CSV or JSON.

Rows stand in the order of the data set and hold no times and no paths, so that the same evidence gives the same bytes.
``evidence_sha256`` is a hash of what the certificate was read from: it shows that stored evidence was altered by accident or by a
careless hand. It is no signature: whoever can write to the folder can make evidence and hash agree.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.evidence import Evidence
from flipproof.errors import InputError
from flipproof.files import write_bytes
from flipproof.graphs import Graph

__all__ = ["COLUMNS", "FORMATS", "Row", "derive_row", "formatted", "has_table", "read_table", "write_table"]

Row = dict[str, Any]
FORMATS = ("csv", "parquet", "json")
COLUMNS = {
    "graph": "int64",
    "name": "string",
    "nodes": "int64",
    "edges": "int64",
    "label": "int64",
    "predicted": "int64",
    "correct": "bool",
    "radius": "int64",
    "adds_radius": "int64",
    "removes_radius": "int64",
    "votes_radius": "int64",
    "order": "int64",
    "method": "string",
    "alpha": "double",
    "spent_alpha": "double",
    "samples": "int64",
    "looks": "looks",
    "seed": "int64",
    "p_add": "double",
    "p_remove": "double",
    "p_lower": "double",
    "p_upper": "double",
    "num_slots": "int64",
    "counts": "counts",
    "grid": "grid",
    "evidence_sha256": "string",
}
"""Columns and their types. ``graph`` is the position in the data set; ``predicted`` is empty where it abstains.

Where nothing is sampled, ``seed``, ``p_add`` and ``p_remove`` are empty.
"""

FILE = "certificates.parquet"


def derive_row(index: int, evidence: Evidence, question: Any) -> Row:
    """One graph's row, from its evidence alone; refuses evidence that does not answer the question."""
    try:
        certificate = question.read(evidence)
    except InputError as error:
        raise InputError(f"graph {index}: {error}") from error
    return _row(index, evidence.graph, certificate, evidence.digest)


def _row(index: int, graph: Graph, certificate: Certificate, digest: str) -> Row:
    values = certificate.to_dict()
    values["grid"] = certificate.grid.tolist()
    return {
        "graph": index,
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "predicted": certificate.label,
        "correct": None if graph.label is None else certificate.label == graph.label,
        "evidence_sha256": digest,
        **{key: values[key] for key in COLUMNS if key in values},
        "label": graph.label,
    }


def has_table(folder: Path) -> bool:
    """Whether the run's certificates are written."""
    return (folder / FILE).is_file()


def write_table(folder: Path, rows: Sequence[Row]) -> Path:
    """Write ``certificates.parquet`` into the run's folder, whole or not at all."""
    path = folder / FILE
    write_bytes(path, formatted(rows, "parquet"))
    return path


def read_table(folder: Path) -> list[Row]:
    """The rows of ``certificates.parquet``."""
    import pyarrow
    from pyarrow import parquet

    path = folder / FILE
    if not has_table(folder):
        raise InputError(f"{folder} has no {FILE}: the run is not finished (run its flipproof certify command again)")
    try:
        # without threads: a table is small, and a process that ends while arrow's threads start up can be aborted
        source = pyarrow.BufferReader(path.read_bytes())
        table = parquet.ParquetFile(source, pre_buffer=False).read(use_threads=False)
    except (pyarrow.ArrowException, ValueError, OSError) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise InputError(
            f"{path} is cut off or altered: {reason} (delete it, and run flipproof certify again)"
        ) from error
    if table.column_names != list(COLUMNS):
        raise InputError(
            f"{path} has other columns than this flipproof writes (delete it, and run flipproof certify again)"
        )
    rows: list[Row] = table.to_pylist()
    return rows


def formatted(rows: Sequence[Row], kind: str) -> bytes:
    """The table as a file's content: ``csv``, ``parquet`` or ``json``."""
    if kind == "parquet":
        return _parquet(rows)
    ordered = [{column: row[column] for column in COLUMNS} for row in rows]
    if kind == "json":
        return (json.dumps(ordered, indent=1, allow_nan=False) + "\n").encode()
    if kind == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([_cell(value) for value in row.values()] for row in ordered)
        return text.getvalue().encode()
    raise InputError(f"--format must be one of {', '.join(FORMATS)}; got {kind!r} (csv is the default)")


def _cell(value: Any) -> str:
    """Lists as ``9;1``, grids as ``11;10``: a row of removals for each number of additions."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, list):
        return ";".join(_flat(entry) for entry in value)
    return repr(value) if isinstance(value, float) else str(value)


def _flat(entry: Any) -> str:
    return "".join(str(int(cell)) for cell in entry) if isinstance(entry, Iterable) else str(entry)


def _parquet(rows: Sequence[Row]) -> bytes:
    import pyarrow
    from pyarrow import parquet

    numbers = pyarrow.list_(pyarrow.int64())
    nested = {"counts": numbers, "looks": numbers, "grid": pyarrow.list_(pyarrow.list_(pyarrow.bool_()))}
    fields = [
        (column, nested[column] if column in nested else pyarrow.type_for_alias(kind))
        for column, kind in COLUMNS.items()
    ]
    content = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(list(rows), schema=pyarrow.schema(fields)), content)
    return content.getvalue()
