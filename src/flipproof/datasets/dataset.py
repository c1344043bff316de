"""A labelled collection of graphs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import numpy as np

from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray, as_graphs
from flipproof.graphs.conversions import read_only


@dataclass(frozen=True)
class Attribute:
    """What became of an attribute that the files give to nodes or edges."""

    name: str
    columns: int = 0
    """Columns of ``node_features`` that it fills; 0 if it is ignored."""
    categories: tuple[str, ...] = ()
    """Of texts: the category of each column."""
    remark: str = ""
    """Why it is ignored."""

    @property
    def column_names(self) -> list[str]:
        """Names of the columns: ``weight``, ``x[0]``, ``element=C``."""
        if self.categories:
            return [f"{self.name}={category}" for category in self.categories]
        return [self.name] if self.columns == 1 else [f"{self.name}[{place}]" for place in range(self.columns)]

    @property
    def words(self) -> str:
        """What became of it, in words."""
        if not self.columns:
            return f"ignored: {self.remark}"
        if self.categories:
            return f"{len(self.categories)} categories, one-hot: {', '.join(self.categories)}"
        return "a number" if self.columns == 1 else f"{self.columns} numbers"


UNNAMED = "graphs"  # the name of a data set that was given none


@dataclass(frozen=True, init=False, repr=False)
class Dataset(Sequence[Graph]):
    """Graphs with the names of their classes; a read-only sequence of :class:`flipproof.Graph`.

    Args:
        graphs: Graphs in any form the library accepts.
        class_names: Name of class 0, 1, 2, ...; by default the class numbers, as many as the labels need.
        name: Free text, for reports.
        attributes: What became of the attributes that the files have, in the order of the columns.
        remarks: What else a user should know of how the files were read: what was left out, merged or dropped.

    A slice is again a data set, with the same classes.

    >>> Dataset([Graph(3, [(0, 1)], label=0), Graph(2, [], label=1)], class_names=["joined", "apart"])[1:]
    Dataset(name='graphs', graphs=1, classes=2)
    """

    graphs: tuple[Graph, ...]
    class_names: tuple[str, ...]
    name: str = field(compare=False)
    attributes: tuple[Attribute, ...] = field(compare=False)
    remarks: tuple[str, ...] = field(compare=False)

    def __init__(
        self,
        graphs: Iterable[Any],
        *,
        class_names: Iterable[str] | None = None,
        name: str = UNNAMED,
        attributes: Iterable[Attribute] = (),
        remarks: Iterable[str] = (),
    ) -> None:
        members = tuple(as_graphs(graphs))
        highest = max((graph.label for graph in members if graph.label is not None), default=-1)
        names = tuple(map(str, range(highest + 1) if class_names is None else class_names))
        if highest >= len(names):
            raise InputError(
                f"class_names must name every class, 0..{highest}; got {len(names)} names (add the missing ones)"
            )
        content = {"graphs": members, "class_names": names, "name": str(name)}
        self.__dict__.update(content, attributes=tuple(attributes), remarks=tuple(remarks))

    def __len__(self) -> int:
        return len(self.graphs)

    @overload
    def __getitem__(self, index: int) -> Graph: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: int | slice) -> Graph | Dataset:
        return self._with(self.graphs[index]) if isinstance(index, slice) else self.graphs[index]

    def __repr__(self) -> str:
        return f"Dataset(name={self.name!r}, graphs={len(self)}, classes={self.num_classes})"

    @property
    def num_classes(self) -> int:
        """Number of declared classes, also those without a graph."""
        return len(self.class_names)

    @cached_property
    def labels(self) -> IntArray:
        """The class of every graph, ``[len(self)]``."""
        missing = [index for index, graph in enumerate(self.graphs) if graph.label is None]
        if missing:
            raise InputError(
                f"every graph of the data set must have a label; graph {missing[0]} has none "
                "(build it with label=..., or leave it out)"
            )
        return read_only(np.array([graph.label for graph in self.graphs], dtype=np.int64))

    @property
    def num_node_features(self) -> int:
        """Columns of the graphs' own node features; 0 if they have none."""
        widths = {0 if graph.node_features is None else graph.node_features.shape[1] for graph in self.graphs}
        if len(widths) > 1:
            raise InputError(
                f"all graphs must have equally many node features; got widths {sorted(widths)} "
                "(pad the features, or leave the odd graphs out)"
            )
        return widths.pop() if widths else 0

    def subset(self, indices: Iterable[int]) -> Dataset:
        """The graphs at these positions (indices), in that order."""
        return self._with(self.graphs[int(index)] for index in indices)

    def _with(self, graphs: Iterable[Graph], class_names: tuple[str, ...] | None = None) -> Dataset:
        names = self.class_names if class_names is None else class_names
        return Dataset(graphs, class_names=names, name=self.name, attributes=self.attributes, remarks=self.remarks)

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of ``node_features``, where the files name them; else none."""
        return [name for attribute in self.attributes for name in attribute.column_names]

    def describe_features(self) -> str:
        """A table of the attributes that the files have: what was taken, what was ignored, and why; and the remarks."""
        width = max((len(attribute.name) for attribute in self.attributes), default=0)
        rows = [f"  {attribute.name.ljust(width)}  {attribute.words}" for attribute in self.attributes]
        return "\n".join([f"node features of {self.name}", *(rows or ["  none"]), *self.remarks])

    def with_classes(self, class_names: Iterable[str]) -> Dataset:
        """The same graphs with their classes numbered as in the given list, by name; refuses a class that is not in it."""
        names = tuple(map(str, class_names))
        used = sorted({graph.label for graph in self.graphs if graph.label is not None})
        unknown = [self.class_names[label] for label in used if self.class_names[label] not in names]
        if unknown:
            raise InputError(
                f"the classes must be among {', '.join(names)}; {self.name} has {', '.join(unknown)} (rename the classes of the "
                "data, or choose data with these)"
            )
        number = {None: None} | {label: names.index(self.class_names[label]) for label in used}
        return self._with((graph.replaced(label=number[graph.label]) for graph in self.graphs), names)

    def describe(self) -> str:
        """A table of the classes: how many graphs, and their sizes.

        >>> print(Dataset([Graph(3, [(0, 1)], label=0), Graph(4, [], label=0)], name="tiny").describe())
        tiny: 2 graphs, 1 class
        class  graphs nodes edges
        0           2   3-4   0-1
        """
        import pandas

        rows = []
        for label in range(self.num_classes):
            members = [self.graphs[index] for index in np.flatnonzero(self.labels == label)]
            sizes = _span([graph.num_nodes for graph in members]), _span([graph.num_edges for graph in members])
            rows.append((len(members), *sizes))
        columns = pandas.Index(["graphs", "nodes", "edges"], name="class")
        graphs, classes = len(self), self.num_classes
        head = f"{self.name}: {graphs} graph{'s' * (graphs != 1)}, {classes} class{'es' * (classes != 1)}"
        return f"{head}\n{pandas.DataFrame(rows, list(self.class_names), columns).to_string()}"


def _span(values: list[int]) -> str:
    low, high = min(values, default="-"), max(values, default="-")
    return str(low) if low == high else f"{low}-{high}"


def fingerprint(graphs: Sequence[Graph]) -> str:
    """Hash of all graphs, their features, labels and class names; independent of machine and path."""
    digest = hashlib.sha256(json.dumps([len(graphs), list(getattr(graphs, "class_names", ()))]).encode())
    first: Graph | None = None
    for graph in graphs:
        digest.update(f"{graph.topology} {graph.label}".encode() + (b"" if graph.node is None else b" %d" % graph.node))
        if first is not None and graph.node is not None and graph.node_features is first.node_features:
            continue  # another node of the same graph
        first = graph
        if graph.node_features is not None:
            features = graph.node_features
            digest.update(f"{features.shape} {features.dtype.str}".encode())
            digest.update(features.tobytes())
    return digest.hexdigest()
