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
from torch import Tensor

from flipproof.checks import checked_count
from flipproof.errors import InputError
from flipproof.graphs import Graph


class NodeFeatures(ABC):
    """A function from a noisy graph to node features; for dense batches, for PyG's layout, and for one graph."""

    spec: str | None = None
    """A text from which :func:`as_features` makes the same hook again; ``None`` for a user's own function."""

    reads_own: bool = True
    """Whether the graph's own ``node_features``, which the noise does not reach, can come through."""

    reads_edges: bool = True
    """Whether the features can change when an edge does."""

    def shared(self, num_nodes: int, own: Tensor | None) -> Tensor | None:
        """``[n, width]`` where no edge can change the features, for own features ``[n, d]``; else ``None``."""
        return None

    def only_degree(self, own: Tensor | None) -> bool:
        """Whether the features are the degree and nothing else."""
        return False

    @abstractmethod
    def dense(self, adjacency: Tensor, mask: Tensor, own: Tensor | None) -> Tensor:
        """``[B, n, width]`` for ``adjacency [B, n, n]``, ``mask [B, n]`` and own features ``[B, n, d]``."""

    @abstractmethod
    def sparse(self, edge_index: Tensor, batch: Tensor, own: Tensor | None) -> Tensor:
        """``[V, width]`` for a union of graphs: ``edge_index [2, E]``, ``batch [V]``, own features ``[V, d]``."""

    def of(self, graph: Graph) -> Tensor:
        """For one graph, ``[n, width]``."""
        own = None if graph.node_features is None else torch.from_numpy(graph.node_features.copy())
        shared = self.shared(graph.num_nodes, own)
        if shared is not None:
            return shared
        edges = torch.from_numpy(np.concatenate([graph.edges, graph.edges[:, ::-1]]).T.copy())
        return self.sparse(edges, torch.zeros(graph.num_nodes, dtype=torch.int64), own)


class _OfDegrees(NodeFeatures):
    """Features that follow from the degrees in the noisy graph and the graph's own."""

    @abstractmethod
    def rows(self, degrees: Tensor, own: Tensor | None) -> Tensor:
        """``[..., width]`` for degrees ``[...]`` as floating numbers, and own features ``[..., d]``."""

    def shared(self, num_nodes: int, own: Tensor | None) -> Tensor | None:
        return None if self.reads_edges else self.rows(torch.zeros(num_nodes), own)

    def dense(self, adjacency: Tensor, mask: Tensor, own: Tensor | None) -> Tensor:
        return self.rows(adjacency.sum(dim=-1), own)

    def sparse(self, edge_index: Tensor, batch: Tensor, own: Tensor | None) -> Tensor:
        degrees = torch.bincount(edge_index[0], minlength=len(batch)) if self.reads_edges else batch
        return self.rows(degrees.to(torch.float32), own)


class Own(_OfDegrees):
    """The graph's own ``node_features``, untouched by noise. They must not depend on the edges."""

    spec = "own"
    reads_edges = False

    def rows(self, degrees: Tensor, own: Tensor | None) -> Tensor:
        if own is None:
            raise InputError(
                "the model needs node features and the graph has none (give it node_features, or compute them on "
                'the noisy graph, for instance features="degree")'
            )
        return own


class Constant(_OfDegrees):
    """The number 1 at every node."""

    spec = "constant"
    reads_own = reads_edges = False

    def rows(self, degrees: Tensor, own: Tensor | None) -> Tensor:
        return torch.ones(*degrees.shape, 1, device=degrees.device)


class Degree(_OfDegrees):
    """The degree in the noisy graph, raw count."""

    spec = "degree"
    reads_own = False

    def only_degree(self, own: Tensor | None) -> bool:
        return True

    def rows(self, degrees: Tensor, own: Tensor | None) -> Tensor:
        return degrees.unsqueeze(-1)


class OwnOrDegree(_OfDegrees):
    """The default: the graph's own ``node_features``, or the degree in the noisy graph where it has none."""

    spec = "own-or-degree"

    def shared(self, num_nodes: int, own: Tensor | None) -> Tensor | None:
        return own

    def only_degree(self, own: Tensor | None) -> bool:
        return own is None

    def rows(self, degrees: Tensor, own: Tensor | None) -> Tensor:
        return degrees.unsqueeze(-1) if own is None else own


class OneHotDegree(_OfDegrees):
    """The degree in the noisy graph, one-hot; degrees above ``max_degree`` share the last column.

    >>> OneHotDegree(2).of(Graph(3, [(0, 1)])).tolist()
    [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """

    reads_own = False

    def __init__(self, max_degree: int = 63) -> None:
        self.max_degree = checked_count(max_degree, "max_degree", 1, "for instance 63")
        self.spec = f"one-hot-degree:{self.max_degree}"

    def rows(self, degrees: Tensor, own: Tensor | None) -> Tensor:
        clipped = degrees.to(torch.int64).clamp(max=self.max_degree)
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
    """A user's own function from a noisy :class:`Graph` to an array ``[n, d]``; called once per sample."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def dense(self, adjacency: Tensor, mask: Tensor, own: Tensor | None) -> Tensor:
        numbers = mask.flatten().cumsum(0).view(mask.shape) - 1  # of the nodes that are no padding
        graph, *ends = adjacency.nonzero(as_tuple=True)
        edge_index = torch.stack([numbers[graph, end] for end in ends])
        rows = self.sparse(edge_index, mask.nonzero()[:, 0], None if own is None else own[mask])
        features = rows.new_zeros(*mask.shape, rows.shape[1])
        features[mask] = rows
        return features

    def sparse(self, edge_index: Tensor, batch: Tensor, own: Tensor | None) -> Tensor:
        sizes = torch.bincount(batch).tolist()
        forward = edge_index[:, edge_index[0] < edge_index[1]].cpu()
        owner, order = torch.sort(batch.cpu()[forward[0]], stable=True)
        edges = forward[:, order].T.numpy()
        stops = torch.bincount(owner, minlength=len(sizes)).cumsum(0).tolist()
        features, node, edge = [], 0, 0
        for size, stop in zip(sizes, stops, strict=True):
            rows = None if own is None else own[node : node + size].cpu().numpy()
            features.append(self._apply(Graph(size, edges[edge:stop] - node, rows)))
            node, edge = node + size, stop
        return torch.cat(features).to(edge_index.device)

    def _apply(self, graph: Graph) -> Tensor:
        transform = any(
            base.__module__.startswith("torch_geometric.transforms") for base in type(self.function).__mro__
        )
        result = self.function(graph.to_pyg()).x if transform else self.function(graph)
        if transform and result is None:
            raise InputError("the features transform left no x on the graph (use one that sets node features)")
        # a tensor keeps its type (an embedding wants integers); anything else becomes what a network wants
        if not isinstance(result, Tensor):
            try:
                values = np.array(result)
            except ValueError:  # rows of unequal length
                values = np.array(None)
            if values.dtype.kind not in "fiub":
                raise InputError(
                    f"the features function must return numbers, one row per node; got {type(result).__name__} "
                    "(an array or a tensor [n, d])"
                )
            result = torch.from_numpy(values.astype(np.float32))
        if result.ndim != 2 or len(result) != graph.num_nodes:
            raise InputError(
                f"the features function must return one row per node, [{graph.num_nodes}, d]; got shape "
                f"{tuple(result.shape)} (it is called with each noisy flipproof.Graph)"
            )
        return result


_BY_NAME: dict[str, Callable[[], NodeFeatures]] = {
    "own": Own,
    "degree": Degree,
    "one-hot-degree": OneHotDegree,
    "constant": Constant,
    "own-or-degree": OwnOrDegree,
}


def edge_free(features: Any, reader: str) -> NodeFeatures:
    """The hook that a user means, for a reader that must not see edges."""
    hook = as_features(features)
    if hook.reads_edges:
        raise InputError(
            f"features of {reader} must not depend on edges; got {hook.spec or 'a function'} (pass None for the graphs' own, "
            'or "constant")'
        )
    return hook


def as_features(value: Any) -> NodeFeatures:
    """The hook that a user means: ``None``, a name, a function, a PyG transform, or several in a list.

    Names: ``own`` (as ``None``), ``own-or-degree`` (the default of defences and training), ``degree``, ``one-hot-degree``
    (``one-hot-degree:20`` to set the largest), ``constant``; several joined by ``+``.

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
