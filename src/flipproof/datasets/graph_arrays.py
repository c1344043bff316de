"""Very many graphs in a few arrays: a graph is built when it is asked for, and takes no memory afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from flipproof.graphs import Graph, IntArray, unchecked_graph
from flipproof.graphs.canonical import checked_features


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
