"""The table of a run's certificates: one row per graph, derived from its evidence; as parquet, CSV, JSON or data frame.

Rows stand in the order of the data set and hold no times and no paths, so that the same evidence gives the same bytes.
``grid`` is that over additions and removals with features untouched; ``joint_grid`` has changed features beside them.

``evidence_sha256`` shows that stored evidence was altered by accident. It is no signature: whoever can write to the folder can
make evidence and hash agree.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import Certificate, NodeRadii, cut_grid, shortened
from flipproof.certificates.evidence import Evidence
from flipproof.errors import InputError
from flipproof.files import written_file
from flipproof.graphs import Graph, as_graphs
from flipproof.noise import EdgeNoise

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
    "node_changes": "int64",
    "removed_nodes_radius": "int64",
    "added_nodes_radius": "int64",
    "changed_nodes_radius": "int64",
    "feature_radius": "int64",
    "votes_radius": "int64",
    "order": "int64",
    "method": "string",
    "alpha": "double",
    "samples": "int64",
    "seed": "int64",
    "p_add": "double",
    "p_remove": "double",
    "p_lower": "double",
    "p_upper": "double",
    "num_slots": "int64",
    "counts": "counts",
    "grid": "grid",
    "joint_grid": "string",
    "evidence_sha256": "string",
}
"""Columns and their types. ``graph`` is the position in the data set, of a node its number; what does not apply is empty."""

TABLE_FILE = "certificates.parquet"
NODE_COLUMNS = ("node_changes", "removed_nodes_radius", "added_nodes_radius", "changed_nodes_radius")
ROWS_AT_ONCE = 10_000  # that are made into columns


def derive_row(index: int, evidence: Evidence, request: Any) -> Row:
    """One graph's row, from its evidence alone; refuses evidence that does not answer the request."""
    try:
        certificate = request.read(evidence)
    except InputError as error:
        raise InputError(f"graph {index}: {error}") from error
    return certificate_row(index, evidence.graph, certificate, evidence.digest)


def certificate_row(index: int, graph: Graph | None, certificate: Certificate, digest: str | None = None) -> Row:
    """A certificate's row; what the graph and the evidence would tell is empty without them."""
    values = certificate.to_dict()
    values |= {"grid": certificate.edge_grid.tolist(), "joint_grid": _joint_text(certificate)}
    if (noise := certificate.noise) is not None:
        values |= {"p_add": noise.p_add, "p_remove": noise.p_remove}  # exactly: certificates are made of rows again
    label = None if graph is None else graph.label
    return {
        "graph": index,
        "name": None if graph is None else graph.name,
        "nodes": None if graph is None else graph.num_nodes,
        "edges": None if graph is None else graph.num_edges,
        "predicted": certificate.label,
        "correct": None if label is None else certificate.label == label,
        "evidence_sha256": digest,
        **{key: values[key] for key in COLUMNS if key in values},
        "label": label,
    }


def _joint_text(certificate: Certificate) -> str | None:
    """A grid over changes of edges and features as JSON: how many entries of its last axis are certified, for all the others."""
    if certificate.feature_radius is None:
        return None
    return json.dumps({"axes": certificate.axes, "certified": certificate.grid.sum(axis=-1).tolist()})


def joint_grid(row: Row) -> tuple[tuple[str, ...], NDArray[np.bool_]]:
    stored = json.loads(row["joint_grid"])
    certified = np.array(stored["certified"], dtype=np.int64).reshape(np.shape(stored["certified"]))
    if not certified.size:
        return tuple(stored["axes"]), np.zeros((0,) * len(stored["axes"]), dtype=np.bool_)
    return tuple(stored["axes"]), np.arange(certified.max()) < certified[..., None]


def certificate_of(row: Row) -> Certificate:
    noise = None if row["p_add"] is None else EdgeNoise(add=row["p_add"], remove=row["p_remove"])
    grid = np.array(row["grid"], dtype=np.bool_)
    kept = ("radius", "method", "alpha", "samples", "p_lower", "p_upper", "num_slots", "order", "votes_radius")
    certificate = Certificate(
        label=row["predicted"],
        noise=noise,
        grid=cut_grid(grid if grid.ndim == 2 else np.zeros((0, 0), dtype=np.bool_)),
        counts=tuple(row["counts"]),
        seed=row["seed"],
        node_radii=None if row["node_changes"] is None else NodeRadii(*(row[column] for column in NODE_COLUMNS)),
        **{key: row[key] for key in kept},
    )
    if row["feature_radius"] is None:
        return certificate
    axes, joint = joint_grid(row)
    return replace(certificate, feature_radius=row["feature_radius"], axes=axes, grid=joint)


def write_table(folder: Path, rows: Iterable[Row]) -> None:
    """Write ``certificates.parquet`` into the run's folder, whole or not at all; few rows are in memory at a time."""
    with written_file(folder / TABLE_FILE) as file:
        _write_parquet(rows, file)


def read_table(folder: Path) -> StoredRows:
    if not (folder / TABLE_FILE).is_file():
        raise InputError(
            f"{folder} has no {TABLE_FILE}: the run is not finished (run its flipproof certify command again)"
        )
    return StoredRows(folder / TABLE_FILE)


class StoredRows(Sequence[Row]):
    """The rows of a table that is on disk: held as columns, made into rows as they are asked for."""

    def __init__(self, path: Path) -> None:
        import pyarrow
        from pyarrow import parquet

        remedy = "delete it, and run flipproof certify again"
        try:
            # without threads: a table is small, and a process that ends while arrow's threads start up can be aborted
            buffer = pyarrow.BufferReader(path.read_bytes())
            self._table = parquet.ParquetFile(buffer, pre_buffer=False).read(use_threads=False)
        except (pyarrow.ArrowException, ValueError, OSError) as error:
            reason = next(iter(str(error).splitlines()), "")
            raise InputError(f"{path} is cut off or altered: {reason} ({remedy})") from error
        if self._table.column_names != list(COLUMNS):
            raise InputError(f"{path} has other columns than this flipproof writes ({remedy})")

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: int | slice) -> Any:
        places = range(len(self))[index]
        rows = self._table.take([places] if isinstance(places, int) else list(places)).to_pylist()
        return rows[0] if isinstance(places, int) else rows

    def __iter__(self) -> Iterator[Row]:
        for batch in self._table.to_batches(max_chunksize=ROWS_AT_ONCE):
            yield from batch.to_pylist()

    def columns(self, *names: str) -> dict[str, list[Any]]:
        return {name: self._table.column(name).to_pylist() for name in names}


def columns_of(rows: Sequence[Row], *names: str) -> dict[str, list[Any]]:
    if isinstance(rows, StoredRows):
        return rows.columns(*names)
    return {name: [row[name] for row in rows] for name in names}


def write_formatted(rows: Iterable[Row], kind: str, file: BinaryIO) -> None:
    if kind not in FORMATS:
        raise InputError(f"--format must be one of {', '.join(FORMATS)}; got {kind!r} (csv is the default)")
    if kind == "parquet":
        return _write_parquet(rows, file)
    first, rest = list(islice(source := iter(rows), 1)), source
    columns = _columns_shown(first)
    ordered = ({column: _shown(column, row[column]) for column in columns} for row in chain(first, rest))
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    if kind == "json":
        text.write(json.dumps(list(ordered), indent=1, allow_nan=False) + "\n")
    else:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(value) for value in row.values()] for row in ordered)
    text.detach()
    return None


def _columns_shown(rows: Sequence[Row]) -> list[str]:
    """All columns; those about changed nodes only where these were asked about, which is the same for all rows."""
    hidden = () if any(row["node_changes"] is not None for row in rows) else NODE_COLUMNS
    return [column for column in COLUMNS if column not in hidden]


def _shown(column: str, value: Any) -> Any:
    return shortened(value) if column in ("p_add", "p_remove") and value is not None else value


def _cell(value: Any) -> str:
    """Lists as ``9;1``, grids as ``11;10``: a row of removals for each number of additions."""
    if isinstance(value, list):
        return ";".join("".join(map(_cell, entry)) if isinstance(entry, list) else _cell(entry) for entry in value)
    return "" if value is None else str(int(value)) if isinstance(value, bool) else str(value)


def _write_parquet(rows: Iterable[Row], file: Any) -> None:
    import pyarrow
    from pyarrow import parquet

    numbers = pyarrow.list_(pyarrow.int64())
    nested = {"counts": numbers, "grid": pyarrow.list_(pyarrow.list_(pyarrow.bool_()))}
    kinds = {column: nested.get(kind) or pyarrow.type_for_alias(kind) for column, kind in COLUMNS.items()}
    schema, source = pyarrow.schema(kinds), iter(rows)
    with parquet.ParquetWriter(file, schema) as writer:
        while part := list(islice(source, ROWS_AT_ONCE)):
            writer.write_table(pyarrow.Table.from_pylist(part, schema=schema))


_OF_GRAPHS = ("name", "nodes", "edges", "label", "correct")
_KINDS = {"int64": "Int64", "bool": "boolean", "double": "float64"}  # of pandas; the first two know missing values


def to_dataframe(certificates: Iterable[Certificate], graphs: Iterable[Any] | None = None) -> Any:
    """A pandas ``DataFrame`` with one row per certificate and the columns of ``flipproof export``.

    Columns about changed nodes are there where these were asked about. ``graphs``, in the same order, add
    ``name``, ``nodes``, ``edges``, ``label`` and ``correct``.

    >>> from flipproof import EdgeNoise, certify_counts
    >>> table = to_dataframe([certify_counts([990, 10], EdgeNoise(keep=0.9), method="votes")])
    >>> print(table["predicted"][0], table["radius"][0])
    0 1
    """
    import pandas

    certificates = list(certificates)
    odd = next((value for value in certificates if not isinstance(value, Certificate)), None)
    if odd is not None:
        raise InputError(
            f"certificates must be a list of certificates; got {type(odd).__name__} (what certify_all returned)"
        )
    number = len(certificates)
    members = [None] * number if graphs is None else as_graphs(graphs)
    if len(members) != number:
        raise InputError(
            f"graphs must be those of the certificates, {number}; got {len(members)} (give the same graphs, in order)"
        )
    rows = list(map(certificate_row, range(number), members, certificates))
    left_out = {"evidence_sha256", *(() if graphs is not None else _OF_GRAPHS)}
    kinds = {column: _KINDS.get(COLUMNS[column], "object") for column in _columns_shown(rows) if column not in left_out}
    shown = [{column: _shown(column, row[column]) for column in kinds} for row in rows]
    return pandas.DataFrame(shown, columns=list(kinds), dtype="object").astype(kinds)
