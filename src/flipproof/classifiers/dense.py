"""Torch modules in the dense convention, ``forward(x, adj, mask)``: the fast way for small graphs."""

from __future__ import annotations

import inspect
from copy import copy
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from flipproof.classifiers.agreement import agree
from flipproof.classifiers.classifier import DEFAULT_MEMORY, Classifier, assumed_edges
from flipproof.classifiers.edges import Edges
from flipproof.classifiers.features import NodeFeatures
from flipproof.classifiers.message_passing import MessagePassingClassifier
from flipproof.classifiers.neighbour_lists import MOST_NODES, NeighbourLists
from flipproof.classifiers.piecewise_linear import state_of
from flipproof.classifiers.torch_module import (
    TorchClassifier,
    feature_width,
    hidden_width,
    largest_batch,
    to_device,
    widest_layer,
)
from flipproof.compiling import can_compile
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise, NoisyBatch

__all__ = ["ALWAYS_DENSE", "DenseClassifier"]

_CACHE = 2**21  # bytes of one batch's matrices and of one layer's values: measured fastest
_LISTS_CACHE = 2**23  # bytes of one layer's values where edges are lists of neighbours: measured fastest
_MEMORY = 2**24  # bytes that a batch of few graphs may take all the same
_FEW = 32
_MATRICES, _COPIES = 8, 4  # copies of a sample's matrix, and of its layers' values, that are alive at once
_BYTES_PER_EDGE = 32  # of lists of neighbours
ALWAYS_DENSE = 100
"""Nodes up to which matrices are always faster than messages."""

_TOLERANCE = 1e-4
_COMPILED = (torch.float32, torch.float64)
_EDGES_PER_NODE = 4  # that a usual graph of more nodes has


class DenseClassifier(TorchClassifier):
    """``forward(x [B, n, d], adj [B, n, n], mask [B, n]) -> [B, C]``.

    A module that also has ``forward_sparse(x, edge_index, batch)`` is called so on large graphs with few edges. One with
    ``looks_up_degrees``, ``degree_pieces`` and ``on_degrees``, such as :class:`flipproof.models.GCN`, looks its rows up
    where the degree is its only feature.
    """

    path = "dense"
    compiled_path = "compiled"
    compiled = False
    """Whether edges are lists of neighbours for compiled loops, instead of matrices."""

    compiles: bool | None = None
    """Whether numba is installed, once it was looked for. A copy in a worker without numba must not go another way."""

    entries_per_edge = 120
    """An edge's message costs as much as this many entries of a matrix: measured for our networks."""

    _remedy = "raise memory, or use a model in PyG's convention forward(x, edge_index, batch)"

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        num_classes: int,
        features: NodeFeatures,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        super().__init__(module, num_classes=num_classes, features=features, memory=memory)
        self._with_mask = len(inspect.signature(module.forward).parameters) != 2
        sparse = getattr(module, "forward_sparse", None)
        self._sparse = sparse and MessagePassingClassifier(
            module, num_classes=num_classes, features=features, memory=memory, call=sparse
        )
        self._compiled = self._made_compiled()

    def suited(self, graph: Graph, noise: EdgeNoise) -> Classifier:
        return self.way(graph, noise) or self._sparse or self

    def way(self, graph: Graph, noise: EdgeNoise) -> DenseClassifier | None:
        """Compiled loops if the model can be asked so, else matrices, or ``None`` where messages are faster or neither fits."""
        if self._compiled is not None and self._can_use_lists(graph):
            if self.compiles is None:
                self.compiles = can_compile()
            if self.compiles and _fits(self._compiled, graph, noise):
                return self._compiled
        return self if _prefers_matrices(self, graph, noise) else None

    def _can_use_lists(self, graph: Graph) -> bool:
        weight = next(self.module.parameters(), None)  # the model may have moved since it was prepared
        known = weight is not None and weight.device.type == "cpu" and weight.dtype in _COMPILED
        return known and graph.num_nodes <= MOST_NODES and self.knows_lists(graph)

    _compiled: DenseClassifier | None = None

    def knows_lists(self, graph: Graph) -> bool:
        """Whether the module can do with lists of neighbours on such a graph."""
        own = None if graph.node_features is None else torch.empty(0)
        return getattr(self.module, "looks_up_degrees", False) and self.features.only_degree(own)

    def _made_compiled(self) -> Self:
        found = copy(self)
        found.compiled, found.path = True, self.compiled_path
        return found

    def wanted_size(self, graph: Graph, edges: float) -> int:
        if self.compiled:
            return largest_batch(4 * graph.num_nodes * hidden_width(graph), _LISTS_CACHE)
        cached = 4 * graph.num_nodes * (graph.num_nodes + hidden_width(graph))
        return max(largest_batch(cached, _CACHE), min(_FEW, largest_batch(cached, _MEMORY)))

    def bytes_each(self, graph: Graph, edges: float) -> float:
        nodes, values = graph.num_nodes, 4 * graph.num_nodes * _COPIES * widest_layer(self.module, graph)
        lists = self.compiled and not self.needs_matrices(graph)
        return values + (nodes**2 + _BYTES_PER_EDGE * edges if lists else 4 * _MATRICES * nodes**2)

    def needs_matrices(self, graph: Graph) -> bool:
        """Whether the node features of such a graph are made from matrices."""
        return False

    def matrices(self, batch: NoisyBatch) -> Tensor:
        """Adjacency matrices ``[B, n, n]`` as the module takes them."""
        return to_device(batch.adjacency(), self.device).to(self.dtype)

    def edges(self, batch: NoisyBatch) -> Edges:
        """The edges as layers use them."""
        return NeighbourLists(batch, self.dtype) if self.compiled else Edges(self.matrices(batch))

    def begin(self) -> None:
        super().begin()
        self._pieces = None
        if self._compiled is not None:
            self._compiled.begin()

    def take_double(self) -> None:
        super().take_double()
        self._pieces = None

    _pieces: tuple[Any, Any, dict[int, bool]] | None = (
        None  # state of the weights, tables, sizes for which they are right
    )

    def _by_degrees(self, batch: NoisyBatch) -> Tensor | None:
        """The answer of a network that knows a faster way where the degree is the only feature; ``None`` of others.

        The faster way is used for graphs of so many nodes if it gives the module's own logits, but for rounding, on four graphs
        on these nodes.
        """
        module: Any = self.module
        if not hasattr(module, "on_degrees") or self.dtype not in _COMPILED:
            return None
        state = state_of(module.parameters())
        if self._pieces is None or self._pieces[0] != state:
            self._pieces = state, module.degree_pieces(), {}
        _, pieces, right = self._pieces
        if pieces is None:
            return None
        nodes = batch.num_nodes
        if nodes not in right:
            graphs = _four_graphs(nodes)
            wanted, found = self._layer_by_layer(graphs), module.on_degrees(self.edges(graphs), pieces)
            right[nodes] = agree(wanted.cpu().numpy(), found.cpu().numpy(), tolerance=_TOLERANCE)
        result: Tensor | None = module.on_degrees(self.edges(batch), pieces) if right[nodes] else None
        return result

    def logits(self, batch: NoisyBatch) -> Tensor:
        if self.features.only_degree(self.own_features(batch)):
            found = self._by_degrees(batch)
            if found is not None:
                return found
        return self._layer_by_layer(batch)

    def _layer_by_layer(self, batch: NoisyBatch) -> Tensor:
        """The module's own answer."""
        adjacency = self.matrices(batch)
        x, mask = self.node_rows(batch, adjacency), _everyone(adjacency)
        result: Tensor = self.module(x, adjacency, mask) if self._with_mask else self.module(x, adjacency)
        return result

    def node_rows(self, batch: NoisyBatch, adjacency: Tensor) -> Tensor:
        """The node features, ``[B, n, d]``."""
        own = self.own_features(batch)
        if own is not None:
            own = own.expand(batch.size, *own.shape)
        return self.as_number(self.features.dense(adjacency, _everyone(adjacency), own))

    def expectation(self, graph: Graph) -> str:
        return f"(x, adj, mask) with {feature_width(self.features, graph)} a graph"


def _everyone(adjacency: Tensor) -> Tensor:
    """The mask of a batch without padding."""
    return torch.ones(adjacency.shape[:2], dtype=torch.bool, device=adjacency.device)


def _four_graphs(nodes: int) -> NoisyBatch:
    """A graph without edges, the complete one, a star and a path."""
    first, second = np.triu_indices(nodes, 1)
    states = np.stack([first < 0, first >= 0, first == 0, second == first + 1])
    return NoisyBatch(nodes, 4, None, np.arange(len(first)), np.empty(0, dtype=np.int64), states, None)


def _prefers_matrices(classifier: DenseClassifier, graph: Graph, noise: EdgeNoise) -> bool:
    """Whether dense batches are faster than messages for noisy graphs of so many nodes, and fit the memory."""
    edges = assumed_edges(graph.num_nodes, noise, _EDGES_PER_NODE)
    few_edges = classifier.entries_per_edge * edges < graph.num_nodes**2
    return not (graph.num_nodes > ALWAYS_DENSE and few_edges) and _fits(classifier, graph, noise)


def _fits(classifier: DenseClassifier, graph: Graph, noise: EdgeNoise) -> bool:
    try:
        classifier.batch_size(graph, noise)
    except InputError:
        return False
    return True
