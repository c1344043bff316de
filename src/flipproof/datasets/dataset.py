"""A labelled collection of graphs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray, as_graphs, unchecked_graph
from flipproof.graphs.conversions import checked_features


class GraphArrays(Sequence[Graph]):
    """Graphs one after the other in common arrays; a read-only sequence of :class:`flipproof.Graph`.

    A graph of ten nodes takes some hundred bytes here and thousands as an object. It is built anew whenever it is asked for, so
    nothing that was computed of it is kept.

    Args:
        sizes: Number of nodes of every graph, ``[G]``; at least 1 each.
        owners: The graph of every edge, ascending, ``[E]``.
        edges: The two ends of every edge, numbered within its graph, ``[E, 2]``; no self-loops. The order of the ends has no
            meaning, and an edge listed twice is one.
        labels: The class of every graph, ``[G]``.
        features: Node features of all graphs, one below the other, ``[sum(sizes), d]``.
        name: Graph ``i`` is called ``name-i``.

    >>> graphs = GraphArrays(np.array([3, 2]), np.array([0, 0, 1]), np.array([[1, 0], [1, 2], [0, 1]]), np.array([1, 0]))
    >>> graphs[0].edges.tolist(), graphs[1].label
    ([[0, 1], [1, 2]], 0)
    """

    def __init__(
        self,
        sizes: IntArray,
        owners: IntArray,
        edges: IntArray,
        labels: IntArray,
        features: NDArray[Any] | None = None,
        *,
        name: str = "graph",
    ) -> None:
        ends = np.sort(edges.reshape(-1, 2), axis=1)
        order = np.lexsort((ends[:, 1], ends[:, 0], owners))
        rows = np.column_stack([owners[order], ends[order]])
        rows = rows[np.append(True, (rows[1:] != rows[:-1]).any(axis=1))[: len(rows)]]
        self._node_starts = np.concatenate([[0], np.cumsum(sizes)])
        self._edge_starts = np.searchsorted(rows[:, 0], np.arange(len(sizes) + 1))
        self._edges = rows[:, 1:].astype(np.min_scalar_type(int(sizes.max(initial=1))))
        self._features = checked_features(features, int(self._node_starts[-1]))
        self._labels, self._name = labels.astype(np.int64), name
        self._places: IntArray = np.arange(len(sizes))

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Graph: ...
    @overload
    def __getitem__(self, index: slice) -> GraphArrays: ...
    def __getitem__(self, index: int | slice) -> Graph | GraphArrays:
        if isinstance(index, slice):
            return self.at(np.arange(len(self))[index])
        place = int(self._places[index])
        first, last = self._node_starts[place], self._node_starts[place + 1]
        edges = self._edges[self._edge_starts[place] : self._edge_starts[place + 1]].astype(np.int64)
        features = None if self._features is None else self._features[first:last]
        label, name = int(self._labels[place]), f"{self._name}-{place}"
        return unchecked_graph(int(last - first), edges, features, label=label, name=name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GraphArrays):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(len(self))

    @property
    def labels(self) -> IntArray:
        """The class of every graph, ``[len(self)]``."""
        return self._labels[self._places]

    @property
    def num_node_features(self) -> int:
        """Columns of node features; 0 if there are none."""
        return 0 if self._features is None else int(self._features.shape[1])

    def at(self, indices: Any) -> GraphArrays:
        """The graphs at the given positions; the arrays are shared."""
        return self._like(_places=self._places[np.asarray(indices, dtype=np.int64)])

    def renumbered(self, classes: IntArray) -> GraphArrays:
        """The same graphs, where class ``c`` is now ``classes[c]``."""
        return self._like(_labels=classes[self._labels])

    def _like(self, **changes: Any) -> GraphArrays:
        found = GraphArrays.__new__(GraphArrays)
        found.__dict__.update(self.__dict__ | changes)
        return found


@dataclass(frozen=True)
class Attribute:
    """What became of an attribute that the files give to nodes or edges.

    Attributes:
        name: As the files call it.
        columns: Columns of ``node_features`` that it fills; 0 if it is ignored.
        categories: Of texts: the category of each column.
        remark: Why it is ignored.
    """

    name: str
    columns: int = 0
    categories: tuple[str, ...] = ()
    remark: str = ""

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


class Dataset(Sequence[Graph]):
    """Graphs with the names of their classes; a read-only sequence of :class:`flipproof.Graph`.

    Args:
        graphs: Graphs in any form the library accepts. A :class:`GraphArrays` stays what it is: its graphs are built when they
            are asked for.
        class_names: Name of class 0, 1, 2, ...; by default the class numbers, as many as the labels need.
        name: Free text, for reports.
        attributes: What became of the attributes that the files have, in the order of the columns.
        remarks: What else a user should know of how the files were read: what was left out, merged or dropped.

    A slice is again a data set, with the same classes.

    >>> data = Dataset([Graph(3, [(0, 1)], label=0), Graph(2, [], label=1)], class_names=["joined", "apart"])
    >>> len(data), data.num_classes, data.labels.tolist()
    (2, 2, [0, 1])
    >>> data[1:]
    Dataset(name='graphs', graphs=1, classes=2)
    """

    graphs: Sequence[Graph]
    class_names: tuple[str, ...]
    name: str
    attributes: tuple[Attribute, ...]
    remarks: tuple[str, ...]

    def __init__(
        self,
        graphs: Iterable[Any],
        *,
        class_names: Iterable[str] | None = None,
        name: str = "graphs",
        attributes: Iterable[Attribute] = (),
        remarks: Iterable[str] = (),
    ) -> None:
        members: Sequence[Graph]
        if isinstance(graphs, GraphArrays):
            members, highest = graphs, int(graphs.labels.max(initial=-1))
        else:
            members = tuple(as_graphs(graphs))
            highest = max((graph.label for graph in members if graph.label is not None), default=-1)
        names = tuple(map(str, range(highest + 1) if class_names is None else class_names))
        if highest >= len(names):
            raise InputError(
                f"class_names must name every class, 0..{highest}; got {len(names)} names (add the missing ones)"
            )
        known = {"attributes": tuple(attributes), "remarks": tuple(remarks)}
        self.__dict__.update(graphs=members, class_names=names, name=str(name), **known)

    def __setattr__(self, attribute: str, value: object) -> None:
        raise AttributeError(f"a Dataset is read-only; make a new one to change {attribute}")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "labels"}

    def __len__(self) -> int:
        return len(self.graphs)

    @overload
    def __getitem__(self, index: int) -> Graph: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: int | slice) -> Graph | Dataset:
        if isinstance(index, slice):
            return self._with(self.graphs[index])
        return self.graphs[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dataset):
            return NotImplemented
        same = len(self) == len(other) and self.class_names == other.class_names
        return same and all(one == two for one, two in zip(self.graphs, other.graphs, strict=True))

    def __hash__(self) -> int:
        return hash((tuple(map(hash, self.graphs)), self.class_names))

    def __repr__(self) -> str:
        return f"Dataset(name={self.name!r}, graphs={len(self)}, classes={self.num_classes})"

    @property
    def num_classes(self) -> int:
        """Number of declared classes, also those without a graph."""
        return len(self.class_names)

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """The class of every graph, ``[len(self)]``."""
        if isinstance(self.graphs, GraphArrays):
            return self.graphs.labels
        missing = [index for index, graph in enumerate(self.graphs) if graph.label is None]
        if missing:
            raise InputError(
                f"every graph of the data set must have a label; graph {missing[0]} has none "
                "(build it with label=..., or leave it out)"
            )
        labels = np.array([graph.label for graph in self.graphs], dtype=np.int64)
        labels.flags.writeable = False
        return labels

    @property
    def num_node_features(self) -> int:
        """Columns of the graphs' own node features; 0 if they have none."""
        if isinstance(self.graphs, GraphArrays):
            return self.graphs.num_node_features
        widths = {0 if graph.node_features is None else graph.node_features.shape[1] for graph in self.graphs}
        if len(widths) > 1:
            raise InputError(
                f"all graphs must have equally many node features; got widths {sorted(widths)} "
                "(pad the features, or leave the odd graphs out)"
            )
        return widths.pop() if widths else 0

    def subset(self, indices: Iterable[int]) -> Dataset:
        """The graphs at the given positions, in that order."""
        if isinstance(self.graphs, GraphArrays):
            return self._with(self.graphs.at(list(indices)))
        return self._with([self.graphs[int(i)] for i in indices])

    def numbered(self, indices: Iterable[int]) -> NumberedGraphs:
        """The graphs at the given positions, by position; looked up when they are asked for."""
        return NumberedGraphs(self, indices)

    def _with(self, graphs: Iterable[Graph], class_names: tuple[str, ...] | None = None) -> Dataset:
        names = self.class_names if class_names is None else class_names
        return Dataset(graphs, class_names=names, name=self.name, attributes=self.attributes, remarks=self.remarks)

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of ``node_features``, where the files name them; else none."""
        return [name for attribute in self.attributes for name in attribute.column_names]

    def describe_features(self) -> str:
        """A table of the attributes that the files have: what was taken, what was ignored, and why; and the remarks.

        >>> kinds = Attribute("element", 2, ("C", "N")), Attribute("mass", remark="missing at node 3 of a.json")
        >>> print(Dataset([], name="tiny", attributes=kinds).describe_features())
        node features of tiny
          element  2 categories, one-hot: C, N
          mass     ignored: missing at node 3 of a.json
        """
        width = max((len(attribute.name) for attribute in self.attributes), default=0)
        rows = [f"  {attribute.name.ljust(width)}  {attribute.words}" for attribute in self.attributes]
        return "\n".join([f"node features of {self.name}", *(rows or ["  none"]), *self.remarks])

    def with_classes(self, class_names: Iterable[str]) -> Dataset:
        """The same graphs with their classes numbered as in the given list, by name; refuses a class that is not in it.

        >>> data = Dataset([Graph(3, [], label=0), Graph(2, [], label=1)], class_names=["ring", "tree"])
        >>> data.with_classes(["path", "tree", "ring"]).labels.tolist()
        [2, 1]
        """
        names = tuple(map(str, class_names))
        arrays = self.graphs if isinstance(self.graphs, GraphArrays) else None
        found = np.unique(arrays.labels).tolist() if arrays else [graph.label for graph in self.graphs]
        used = {self.class_names[label] for label in found if label is not None}
        unknown = [name for name in self.class_names if name in used and name not in names]
        if unknown:
            raise InputError(
                f"the classes must be among {', '.join(names)}; {self.name} has {', '.join(unknown)} (rename the classes of the "
                "data, or choose data with these)"
            )
        number = {old: names.index(name) for old, name in enumerate(self.class_names) if name in used}
        if arrays is not None:
            classes = [number.get(old, -1) for old in range(len(self.class_names))]
            return self._with(arrays.renumbered(np.array(classes)), names)
        members = [graph if graph.label is None else graph.replaced(label=number[graph.label]) for graph in self.graphs]
        return self._with(members, names)

    def describe(self) -> str:
        """A table of the classes: how many graphs, and their sizes.

        >>> print(Dataset([Graph(3, [(0, 1)], label=0), Graph(4, [], label=0)], name="tiny").describe())
        tiny: 2 graphs, 1 class
          class  graphs  nodes  edges
          0           2    3-4    0-1
        """
        rows: list[tuple[str, ...]] = [("class", "graphs", "nodes", "edges")]
        labels = self.labels
        sizes = np.array([(graph.num_nodes, graph.num_edges) for graph in self.graphs]).reshape(-1, 2)
        for label, name in enumerate(self.class_names):
            members = sizes[labels == label]
            rows.append((name, str(len(members)), *(_span(column) for column in members.T.tolist())))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  " + "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        ]
        graphs, classes = len(self), self.num_classes
        head = f"{self.name}: {graphs} graph{'s' * (graphs != 1)}, {classes} class{'es' * (classes != 1)}"
        return "\n".join([head, *lines])


class NumberedGraphs(Mapping[int, Graph]):
    """Some graphs of a data set by their positions in it; read-only.

    >>> data = Dataset([Graph(3, []), Graph(2, []), Graph(5, [])])
    >>> {number: graph.num_nodes for number, graph in data.numbered([2, 0]).items()}
    {2: 5, 0: 3}
    """

    def __init__(self, dataset: Dataset, indices: Iterable[int]) -> None:
        self._dataset, self._numbers = dataset, dict.fromkeys(indices)

    def __getitem__(self, number: int) -> Graph:
        if number not in self._numbers:
            raise KeyError(number)
        return self._dataset[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, number: object) -> bool:
        return number in self._numbers


def fingerprint(graphs: Dataset) -> str:
    """Hash of all graphs, their features, labels and class names; independent of machine and path."""
    digest = hashlib.sha256(json.dumps([len(graphs), list(graphs.class_names)]).encode())
    for graph in graphs:
        digest.update(f"{graph.topology} {graph.label}".encode())
        if graph.node_features is not None:
            features = graph.node_features
            digest.update(f"{features.shape} {features.dtype.str}".encode())
            digest.update(features.tobytes())
    return digest.hexdigest()


def _span(values: list[int]) -> str:
    if not values:
        return "-"
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}-{high}"
