"""Certificates as a data frame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flipproof.certificates.certificate import Certificate
from flipproof.errors import InputError
from flipproof.graphs import as_graphs
from flipproof.runs.table import COLUMNS, certificate_row

__all__ = ["to_dataframe"]

_OF_GRAPHS = ("name", "nodes", "edges", "label", "correct")
_OF_EVIDENCE = ("evidence_sha256",)
_KINDS = {"int64": "Int64", "bool": "boolean", "double": "float64"}  # of pandas; the first two know missing values


def to_dataframe(certificates: Iterable[Certificate], graphs: Iterable[Any] | None = None) -> Any:
    """A table with one row per certificate: a pandas ``DataFrame``, or a dict of columns where pandas is not installed.

    The columns are those of ``flipproof export``: ``graph`` (the position), ``predicted`` (missing where it abstains),
    ``radius``, ``adds_radius``, ``removes_radius``, ``method``, ``alpha``, ``samples``, ``counts``, ``grid`` and others.

    Args:
        certificates: For instance what ``certify_all`` returned.
        graphs: The graphs, in the same order; adds ``name``, ``nodes``, ``edges``, ``label`` and ``correct``.

    >>> from flipproof import EdgeNoise, certify_counts
    >>> table = to_dataframe([certify_counts([990, 10], EdgeNoise(keep=0.9), method="votes")])
    >>> print(table["predicted"][0], table["radius"][0])
    0 1
    """
    found = list(certificates)
    odd = next((value for value in found if not isinstance(value, Certificate)), None)
    if odd is not None:
        raise InputError(
            f"certificates must be a list of certificates; got {type(odd).__name__} (what certify_all returned)"
        )
    members = [None] * len(found) if graphs is None else as_graphs(graphs)
    if len(members) != len(found):
        raise InputError(
            f"graphs must be those of the certificates, {len(found)}; got {len(members)} (give the same graphs, in order)"
        )
    left_out = _OF_EVIDENCE if graphs is not None else (*_OF_GRAPHS, *_OF_EVIDENCE)
    rows = [
        certificate_row(index, graph, certificate)
        for index, (graph, certificate) in enumerate(zip(members, found, strict=True))
    ]
    columns = {column: [row[column] for row in rows] for column in COLUMNS if column not in left_out}
    try:
        import pandas
    except ImportError:
        return columns
    frame = {
        column: pandas.Series(values, dtype=_KINDS.get(COLUMNS[column], "object")) for column, values in columns.items()
    }
    return pandas.DataFrame(frame)
