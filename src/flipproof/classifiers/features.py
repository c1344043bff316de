"""Node features, computed on every noisy graph after the noise.

A certificate is only true if the model sees nothing of the clean graph's edges. Degrees, positional encodings
and everything else that depends on edges must therefore come from a hook applied to the noisy graph, not from
``node_features``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flipproof.checks import checked_count
from flipproof.errors import InputError
from flipproof.graphs import Graph

__all__ = [
    "Constant",
    "Degree",
    "Function",
    "NodeFeatures",
    "OneHotDegree",
    "Own",
    "Several",
    "as_features",
    "refuse_clean_degrees",
]


class NodeFeatures(ABC):
    """A function from a noisy graph to node features; for dense batches, for PyG's layout, and for one graph."""

    spec: str | None = None
    """A text from which :func:`as_features` makes the same hook again; ``None`` for a user's own function."""

    reads_own: bool = True
    """Whether the graph's own ``node_features``, which the noise does not reach, can come through."""

    reads_edges: bool = True
    """Whether the features can change when an edge does."""

    @abstractmethod
    def dense(self, adjacency: Tensor, mask: Tensor, own: Tensor | None) -> Tensor:
        """``[B, n, width]`` for ``adjacency [B, n, n]``, ``mask [B, n]`` and own features ``[B, n, d]``."""

    @abstractmethod
    def sparse(self, edge_index: Tensor, batch: Tensor, own: Tensor | None) -> Tensor:
        """``[V, width]`` for a union of graphs: ``edge_index [2, E]``, ``batch [V]``, own features ``[V, d]``."""

    def of(self, graph: Graph) -> Tensor:
        """For one graph, ``[n, width]``."""
        edges = torch.from_numpy(np.concatenate([graph.edges, graph.edges[:, ::-1]]).T.copy())
        own = None if graph.node_features is None else torch.from_numpy(graph.node_features.copy())
        return self.sparse(edges, torch.zeros(graph.num_nodes, dtype=torch.int64), own)


class Own(NodeFeatures):
    """The graph's own ``node_features``, untouched by noise. They must not depend on the edges."""

    spec = "own"
    reads_edges = False

    def dense(self, adjacency: Tensor, mask: Tensor, own: Tensor | None) -> Tensor:
        return self._given(own)

    def sparse(self, edge_index: Tensor, batch: Tensor, own: Tensor | None) -> Tensor:
        return self._given(own)

    @staticmethod
    def _given(own: Tensor | None) -> Tensor:
        if own is None:
            raise InputError(
                "the model needs node features and the graph has none (give it node_features, or compute them on "
                'the noisy graph, for instance features="degree")'
            )
        return own


class Constant(NodeFeatures):
    """The number 1 at every node."""

    spec = "constant"
    reads_own = reads_edges = False

    def dense(self, adjacency: Tensor, mask: Tensor, own: Tensor | None) -> Tensor:
        return torch.ones(*adjacency.shape[:2], 1, device=adjacency.device)

    def sparse(self, edge_index: Tensor, batch: Tensor, own: Tensor | None) -> Tensor:
        return torch.ones(len(batch), 1, device=edge_index.device)


class Degree(NodeFeatures):
    """The degree in the noisy graph, raw count."""

    spec = "degree"
    reads_own = False

    def dense(self, adjacency: Tensor, mask: Tensor, own: Tensor | None) -> Tensor:
        return adjacency.sum(dim=-1, keepdim=True)

    def sparse(self, edge_index: Tensor, batch: Tensor, own: Tensor | None) -> Tensor:
        return torch.bincount(edge_index[0], minlength=len(batch)).to(torch.float32).unsqueeze(1)


class OneHotDegree(NodeFeatures):
    """The degree in the noisy graph, one-hot; degrees above ``max_degree`` share the last column.

    >>> OneHotDegree(2).of(Graph(3, [(0, 1)])).tolist()
    [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """

    reads_own = False

    def __init__(self, max_degree: int = 63) -> None:
        self.max_degree = checked_count(max_degree, "max_degree", 1, "for instance 63")
        self.spec = f"one-hot-degree:{self.max_degree}"

    def dense(self, adjacency: Tensor, mask: Tensor, own: Tensor | None) -> Tensor:
        return self._one_hot(adjacency.sum(dim=-1).to(torch.int64))

    def sparse(self, edge_index: Tensor, batch: Tensor, own: Tensor | None) -> Tensor:
        return self._one_hot(torch.bincount(edge_index[0], minlength=len(batch)))

    def _one_hot(self, degrees: Tensor) -> Tensor:
        clipped = degrees.clamp(max=self.max_degree)
        return torch.nn.functional.one_hot(clipped, self.max_degree + 1).to(torch.float32)


class Several(NodeFeatures):
    """Several hooks side by side."""

    def __init__(self, parts: Sequence[NodeFeatures]) -> None:
        if not parts:
            raise InputError("features must name at least one hook; got an empty list (None for the graph's own)")
        self.parts = tuple(parts)
        self.reads_own = any(part.reads_own for part in parts)
        self.reads_edges = any(part.reads_edges for part in parts)
        specs = [part.spec for part in parts]
        self.spec = None if None in specs else "+".join(str(spec) for spec in specs)

    def dense(self, adjacency: Tensor, mask: Tensor, own: Tensor | None) -> Tensor:
        return torch.cat([part.dense(adjacency, mask, own) for part in self.parts], dim=-1)

    def sparse(self, edge_index: Tensor, batch: Tensor, own: Tensor | None) -> Tensor:
        return torch.cat([part.sparse(edge_index, batch, own) for part in self.parts], dim=-1)


class Function(NodeFeatures):
    """A user's own function from a noisy :class:`Graph` to an array ``[n, d]``; called once a sample.

    A PyG transform (``Data`` to ``Data``) is taken as well: the features are the ``x`` it leaves.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def dense(self, adjacency: Tensor, mask: Tensor, own: Tensor | None) -> Tensor:
        sizes = mask.sum(dim=1).tolist()
        matrices = adjacency.cpu().numpy()
        features = []
        for row, size in enumerate(sizes):
            edges = np.argwhere(np.triu(matrices[row, :size, :size], 1))
            part = self._apply(size, edges, None if own is None else own[row, :size])
            features.append(torch.nn.functional.pad(part, (0, 0, 0, adjacency.shape[1] - size)))
        return torch.stack(features).to(adjacency.device)

    def sparse(self, edge_index: Tensor, batch: Tensor, own: Tensor | None) -> Tensor:
        sizes = torch.bincount(batch).tolist()
        forward = edge_index[:, edge_index[0] < edge_index[1]].cpu()
        owner, order = torch.sort(batch.cpu()[forward[0]], stable=True)
        edges = forward[:, order].T.numpy()
        stops = torch.bincount(owner, minlength=len(sizes)).cumsum(0).tolist()
        features, node, edge = [], 0, 0
        for size, stop in zip(sizes, stops, strict=True):
            rows = None if own is None else own[node : node + size]
            features.append(self._apply(size, edges[edge:stop] - node, rows))
            node, edge = node + size, stop
        return torch.cat(features).to(edge_index.device)

    def _apply(self, size: int, edges: NDArray[Any], own: Tensor | None) -> Tensor:
        graph = Graph(size, edges, None if own is None else own.cpu().numpy())
        if _is_transform(self.function):
            result = self.function(graph.to_pyg()).x
            if result is None:
                raise InputError("the features transform left no x on the graph (use one that sets node features)")
        else:
            result = self.function(graph)
        # a tensor keeps its type (an embedding wants integers); anything else becomes what a network wants
        features = result if isinstance(result, Tensor) else self._as_tensor(result)
        if features.ndim != 2 or len(features) != size:
            raise InputError(
                f"the features function must return one row per node, [{size}, d]; got shape "
                f"{tuple(features.shape)} (it is called with each noisy flipproof.Graph)"
            )
        return features

    @staticmethod
    def _as_tensor(result: Any) -> Tensor:
        try:
            values = np.array(result)
        except ValueError:  # rows of unequal length
            values = np.array(None)
        if values.dtype.kind not in "fiub":
            raise InputError(
                f"the features function must return numbers, one row per node; got {type(result).__name__} "
                "(an array or a tensor [n, d])"
            )
        return torch.from_numpy(values.astype(np.float32))


def _is_transform(function: Any) -> bool:
    return any(base.__module__.startswith("torch_geometric.transforms") for base in type(function).__mro__)


_BY_NAME: dict[str, Callable[[], NodeFeatures]] = {
    "own": Own,
    "degree": Degree,
    "one-hot-degree": OneHotDegree,
    "constant": Constant,
}


def as_features(value: Any) -> NodeFeatures:
    """The hook that a user means: ``None``, a name, a function, a PyG transform, or several in a list.

    Names: ``own`` (as ``None``), ``degree``, ``one-hot-degree`` (``one-hot-degree:20`` to set the largest),
    ``constant``; several joined by ``+``.

    >>> as_features("own+degree").spec
    'own+degree'
    """
    if value is None:
        return Own()
    if isinstance(value, NodeFeatures):
        return value
    if isinstance(value, str):
        names = [name.strip() for name in value.split("+")]
        if len(names) > 1:
            return Several([as_features(name) for name in names])
        name, colon, number = value.partition(":")
        if name == "one-hot-degree" and colon and number.isdigit():
            return OneHotDegree(int(number))
        if value not in _BY_NAME:
            raise InputError(f"features must be one of {', '.join(_BY_NAME)}; got {value!r} (or pass a function)")
        return _BY_NAME[value]()
    if isinstance(value, (list, tuple)):
        return Several([as_features(part) for part in value])
    if callable(value) and not isinstance(value, type):
        return Function(value)
    raise InputError(
        f"features must be a name, a function, a PyG transform or None; got {value!r} (or a list of these)"
    )


def refuse_clean_degrees(graphs: Sequence[Graph]) -> None:
    """Refuse graphs whose own features are plainly their degrees: the noise would not reach them.

    A column is refused if it agrees with the degrees on *all* the graphs, so that a node label which happens
    to agree on a small graph passes together with graphs on which it does not.
    """
    by_width: dict[int, list[Graph]] = {}
    for graph in graphs:
        if graph.node_features is not None:
            by_width.setdefault(graph.node_features.shape[1], []).append(graph)
    for given in by_width.values():
        found = _clean_degrees(given)
        if found is not None:
            name = f" of graph {given[0].name!r}" if len(given) == 1 and given[0].name is not None else ""
            raise InputError(
                f"{found}{name}: computed on the clean graph, they would survive the noise and every certificate "
                'would be false (leave them out and pass features="degree" or "one-hot-degree" to '
                "SmoothedClassifier, which computes them on each noisy graph; trust_features=True if they only look "
                "like degrees)"
            )


def _clean_degrees(graphs: Sequence[Graph]) -> str | None:
    """Where in the features of these graphs their degrees stand, in words."""
    features = [graph.node_features for graph in graphs if graph.node_features is not None]
    columns = np.concatenate(features).astype(np.float64).T
    degrees = np.concatenate([graph.degrees for graph in graphs]).astype(np.float64)
    kinds = len(np.unique(degrees))
    if max(graph.num_nodes for graph in graphs) < 4 or kinds < 2:
        return None  # too little to tell
    share = np.concatenate([graph.degrees / max(1, graph.num_nodes - 1) for graph in graphs])
    scaled = np.concatenate([graph.degrees / max(1, graph.degrees.max()) for graph in graphs])
    forms = {
        "the degrees": degrees,
        "the degrees plus one": degrees + 1,
        "the degrees divided by n - 1": share,
        "the degrees divided by the largest": scaled,
        "the logarithms of the degrees plus one": np.log1p(degrees),
        "the inverse square roots of the degrees plus one": 1 / np.sqrt(degrees + 1),
    }
    for what, values in forms.items():
        equal = np.isclose(columns, values, rtol=1e-5, atol=1e-6).all(axis=1)
        # a column of zeros and ones agrees by accident too easily
        if equal.any() and not set(np.unique(values)) <= {0.0, 1.0}:
            return f"column {int(np.argmax(equal))} of node_features is {what}"
    if kinds > 2:
        for number, column in enumerate(columns):
            slope, constant = np.polyfit(degrees, column, 1)
            if abs(slope) > 1e-6 and np.allclose(column, slope * degrees + constant, rtol=1e-5, atol=1e-6):
                return f"column {number} of node_features is {slope:g} times the degrees plus {constant:g}"
    if len(columns) > 1 and set(np.unique(columns)) <= {0, 1} and (columns.sum(axis=0) == 1).all():
        return _one_hot_degrees(columns.argmax(axis=0), degrees.astype(np.int64), len(columns) - 1)
    return None


def _one_hot_degrees(hot: NDArray[Any], degrees: NDArray[np.int64], last: int) -> str | None:
    """Whether the column that holds the 1 tells the degree; strict where few kinds could agree by accident.

    Types of atoms follow their valence, so that a one-to-one relation alone proves nothing.
    """
    kinds = len(np.unique(hot))
    codes = {
        2: [degrees],
        3: [np.minimum(degrees, last), degrees - 1],
        4: [np.unique(degrees, return_inverse=True)[1]],
    }
    agree = any(kinds >= least and np.array_equal(hot, code) for least in codes for code in codes[least])
    return "node_features are the degrees, one-hot" if agree else None
