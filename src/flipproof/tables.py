"""The table of a run's certificates: one row a graph, derived from its stored votes; as parquet, CSV or JSON.

Rows stand in the order of the data set and hold no times and no paths, so that the same votes give the same bytes.
``votes_sha256`` is a hash of what the certificate was read from: it shows that a stored vote was altered by accident or by a
careless hand. It is no signature: whoever can write to the folder can make votes and hash agree.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.edge_blind import edge_blind_certificate
from flipproof.certificates.sequential import Plan, Sequential
from flipproof.certificates.voting import certify_group_votes
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.grouping import EdgeGroups, GroupVotes
from flipproof.noise import EdgeNoise
from flipproof.runs import Run, write_bytes
from flipproof.votes import Votes

__all__ = [
    "COLUMNS",
    "FORMATS",
    "Row",
    "alpha_of_each",
    "certificate_of",
    "certified_run",
    "derive_row",
    "formatted",
    "has_table",
    "load_votes",
    "plan_of",
    "read_table",
    "votes_digest",
    "write_table",
]

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
    "votes_sha256": "string",
}
"""Columns and their types. ``graph`` is the position in the data set; ``predicted`` is empty where it abstains.

Of the voting defence, ``samples`` and ``counts`` are of its sub-graphs, and ``seed``, ``p_add`` and ``p_remove`` are empty.
"""

_FILE = "certificates.parquet"


def certificate_of(votes: Votes, settings: dict[str, Any]) -> Certificate:
    """The certificate that a run's settings ask for, from a graph's votes."""
    graph = votes.graph
    if settings["edge_blind"]:
        return edge_blind_certificate(
            int(votes.labels[0]),
            votes.noise,
            num_classes=votes.num_classes,
            max_adds=graph.max_adds,
            max_removes=graph.max_removes,
        )
    certificate = plan_of(settings).read(votes)
    if certificate.samples != len(votes):
        raise InputError(
            f"sampling ends at {certificate.samples:,} votes, and {len(votes):,} were cast (votes beyond the stop were added)"
        )
    return certificate


def plan_of(settings: dict[str, Any]) -> Plan:
    """When the sampling of a run's graphs ends, and at which levels their certificates are read."""
    goal = settings.get("sequential")
    samples: int | Sequential = settings["votes"]
    if goal is not None:
        samples = Sequential(settings["votes"], target_radius=goal["target_radius"], precision=goal["precision"])
        if list(samples.looks) != goal["looks"]:
            raise InputError(
                f"run.json has looks at {goal['looks']} samples; this flipproof looks at {list(samples.looks)} (use the version "
                "that made the run)"
            )
    return Plan.of(samples, alpha=alpha_of_each(settings), method=settings["method"])


def alpha_of_each(settings: dict[str, Any]) -> float:
    """The failure probability of every certificate: the run's, or its share where that holds for all graphs at once."""
    alpha = float(settings["alpha"])
    return alpha / len(settings["graphs"]) if settings.get("simultaneous") else alpha


def load_votes(run: Run, index: int) -> Votes | GroupVotes:
    """One graph's votes, of whatever kind the run's defence casts."""
    return run.load_group_votes(index) if run.settings.get("defence") == "voting" else run.load(index)


def derive_row(index: int, votes: Votes | GroupVotes, settings: dict[str, Any]) -> Row:
    """One graph's row, from its votes alone; refuses votes that were cast with other settings."""
    if isinstance(votes, GroupVotes):
        return _derive_voting_row(index, votes, settings)
    noise = EdgeNoise.from_thresholds(*settings["noise"])
    plan = plan_of(settings)
    cast = (votes.noise, votes.seed, votes.num_classes, votes.looks)
    if cast != (noise, settings["seed"], settings["num_classes"], plan.schedule) or len(votes) not in plan.looks:
        raise InputError(
            f"the votes of graph {index} were cast with other settings than run.json's (sample them again)"
        )
    return _row(index, votes.graph, certificate_of(votes, settings), votes_digest(votes))


def _derive_voting_row(index: int, votes: GroupVotes, settings: dict[str, Any]) -> Row:
    groups = EdgeGroups(settings["groups"], settings["hash_key"])
    if (votes.groups, votes.num_classes) != (groups, settings["num_classes"]):
        raise InputError(f"the votes of graph {index} were cast with other settings than run.json's (vote again)")
    certificate = certify_group_votes(votes, edge_blind=settings["edge_blind"])
    return _row(index, votes.graph, certificate, votes_digest(votes))


def _row(index: int, graph: Graph, certificate: Certificate, votes_sha256: str) -> Row:
    values = certificate.to_dict()
    values["grid"] = certificate.grid.tolist()
    return {
        "graph": index,
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "predicted": certificate.label,
        "correct": None if graph.label is None else certificate.label == graph.label,
        "votes_sha256": votes_sha256,
        **{key: values[key] for key in COLUMNS if key in values},
        "label": graph.label,
    }


def votes_digest(votes: Votes | GroupVotes) -> str:
    """Hash of everything a certificate reads; independent of the machine and of how the file is packed."""
    labels = votes.labels.astype("<u4").tobytes()
    if isinstance(votes, GroupVotes):
        meaning = json.dumps([votes.graph.topology, votes.description()], sort_keys=True)
        return hashlib.sha256(meaning.encode() + labels).hexdigest()
    described = [
        votes.graph.topology,
        votes.noise.add_threshold,
        votes.noise.remove_threshold,
        votes.num_classes,
        votes.seed,
        votes.stream_version,
        list(votes.checksums),
        *([list(votes.looks)] if votes.looks else []),
    ]
    return hashlib.sha256(json.dumps(described).encode() + labels).hexdigest()


def certified_run(folder: str | os.PathLike[str]) -> Run:
    """The run in a folder that ``flipproof certify`` wrote; refuses others."""
    run = Run.open(folder)
    if run.settings.get("command") != "certify" or not isinstance(run.settings.get("graphs"), list):
        raise InputError(f"{folder} was not made by flipproof certify (give such a run)")
    return run


def has_table(run: Run) -> bool:
    """Whether the run's certificates are written."""
    return (run.folder / _FILE).is_file()


def write_table(run: Run, rows: Sequence[Row]) -> Path:
    """Write ``certificates.parquet`` into the run's folder, whole or not at all."""
    path = run.folder / _FILE
    write_bytes(path, formatted(rows, "parquet"))
    return path


def read_table(run: Run) -> list[Row]:
    """The rows of ``certificates.parquet``."""
    import pyarrow
    from pyarrow import parquet

    path = run.folder / _FILE
    if not has_table(run):
        raise InputError(
            f"{run.folder} has no {_FILE}: the run is not finished (run its flipproof certify command again)"
        )
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
