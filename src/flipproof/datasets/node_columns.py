"""From the attributes that files give to nodes to the columns of node features; and what is ignored, with the reason."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.datasets.dataset import Attribute
from flipproof.datasets.graph_files import RawGraph
from flipproof.errors import InputError

__all__ = ["check_like", "feature_matrix", "found_attributes"]

_MOST_CATEGORIES = 64
_LARGEST = float(np.finfo(np.float32).max)


def found_attributes(graphs: Sequence[RawGraph]) -> list[Attribute]:
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


def _attribute(graphs: Sequence[RawGraph], name: str) -> Attribute:
    """What becomes of one attribute of nodes; refuses numbers that are none, and lists of unequal length."""
    missing = [(graph, index) for graph, index, node in _nodes(graphs) if name not in node]
    if missing:
        graph, index = missing[0]
        some = f"node {index}" if any(name in node for node in graph.nodes) else "all nodes"
        more = len(missing) - (1 if some != "all nodes" else len(graph.nodes))
        also = f", and at {more} node{'s' * (more != 1)} of other graphs or further on" if more else ""
        return Attribute(name, remark=f"missing at {some} of {graph.name}{also}")
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


def check_like(graphs: Sequence[RawGraph], like: Sequence[Attribute]) -> None:
    """Refuse graphs that lack one of the given attributes, or have another text than its categories."""
    for attribute in like:
        for graph, index, node in _nodes(graphs) if attribute.columns else ():
            value = node.get(attribute.name)
            known = _text_of(value) in attribute.categories if attribute.categories else _row(value) is not None
            if not known:
                expected = f"one of {', '.join(attribute.categories)}" if attribute.categories else "a number"
                got = f"got {value!r}" if attribute.name in node else "it is missing"
                raise InputError(
                    f"{graph.source}: {attribute.name} of node {index} must be {expected}, as in the data of the model; {got} "
                    "(correct the file, or train on data that have it)"
                )
        if attribute.columns and not attribute.categories:
            _check_numbers(graphs, attribute.name, attribute.columns)


def _check_numbers(graphs: Sequence[RawGraph], name: str, width: int) -> None:
    for graph, index, node in _nodes(graphs):
        row = _row(node[name]) or []
        if len(row) != width or not row:
            raise InputError(
                f"{graph.source}: node {index} must have {width or 'some'} numbers in {name}, as the nodes before; got "
                f"{node[name]!r} (give every node the same numbers)"
            )
        if not all(map(math.isfinite, row)):
            raise InputError(
                f"{graph.source}: {name} of node {index} must be finite; got {node[name]!r} (fill it in, or take {name} out of "
                "the files)"
            )
        if max(map(abs, row)) > _LARGEST:
            raise InputError(
                f"{graph.source}: {name} of node {index} must be a number of single precision, at most {_LARGEST:.2g}; got "
                f"{node[name]!r} (scale it, or take {name} out of the files)"
            )


def feature_matrix(graph: RawGraph, attributes: Sequence[Attribute]) -> NDArray[np.float32] | None:
    """The features of a graph's nodes."""
    taken = [attribute for attribute in attributes if attribute.columns]
    if not taken:
        return None
    rows = [[number for attribute in taken for number in _numbers(node, attribute)] for node in graph.nodes]
    return np.array(rows, dtype=np.float32)


def _numbers(node: dict[str, Any], attribute: Attribute) -> list[float]:
    value = node[attribute.name]
    if attribute.categories:
        return [float(_text_of(value) == category) for category in attribute.categories]
    return _row(value) or []


def _text_of(value: Any) -> Any:
    """A category as it is stored: whole numbers as text."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _nodes(graphs: Sequence[RawGraph]) -> Iterator[tuple[RawGraph, int, dict[str, Any]]]:
    """Every node with its graph and number."""
    return ((graph, index, node) for graph in graphs for index, node in enumerate(graph.nodes))


def _row(value: Any) -> list[float] | None:
    """A number, or a list of numbers, as a list; ``None`` for anything else."""
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(number, (int, float)) for number in values):
        return None
    return [_as_float(number) for number in values]


def _as_float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:  # a whole number beyond all floats
        return math.inf
