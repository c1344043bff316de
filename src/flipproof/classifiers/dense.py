"""Torch modules in the dense convention, ``forward(x, adj, mask)``: the fast way for small graphs."""

from __future__ import annotations

import inspect

import torch
from torch import Tensor

from flipproof.classifiers.classifier import DEFAULT_MEMORY, Classifier, assumed_edges
from flipproof.classifiers.features import NodeFeatures
from flipproof.classifiers.message_passing import MessagePassingClassifier
from flipproof.classifiers.torch_module import (
    TorchClassifier,
    feature_width,
    hidden_width,
    largest_batch,
    to_device,
    widest_layer,
)
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise, NoisyBatch

_CACHE = 2**21  # bytes of one batch's matrices and of one layer's values: measured fastest
_MEMORY = 2**24  # bytes that a batch of few graphs may take all the same
_FEW = 32
_MATRICES, _COPIES = 8, 4  # copies of a sample's matrix, and of its layers' values, that are alive at once
ALWAYS_DENSE = 100
"""Nodes up to which matrices are always faster than messages."""

_EDGES_PER_NODE = 4  # that a usual graph of more nodes has


class DenseClassifier(TorchClassifier):
    """``forward(x [B, n, d], adj [B, n, n], mask [B, n]) -> [B, C]``.

    A module that also has ``forward_sparse(x, edge_index, batch)`` is called so on large graphs with few edges.
    """

    path = "dense"
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
        self.sparse = sparse and MessagePassingClassifier(
            module, num_classes=num_classes, features=features, memory=memory, call=sparse
        )

    def itself(self, graph: Graph, noise: EdgeNoise) -> Classifier:
        return self if prefers_matrices(self, graph, noise) else self.sparse or self

    def wanted_size(self, graph: Graph, edges: float) -> int:
        cached = 4 * graph.num_nodes * (graph.num_nodes + hidden_width(graph))
        return max(largest_batch(cached, _CACHE), min(_FEW, largest_batch(cached, _MEMORY)))

    def bytes_each(self, graph: Graph, edges: float) -> float:
        return self.bytes_of_values(graph) + 4 * _MATRICES * graph.num_nodes**2

    def bytes_of_values(self, graph: Graph) -> float:
        """Bytes of a sample's values in the layers."""
        return 4 * graph.num_nodes * _COPIES * widest_layer(self.module, graph)

    def matrices(self, batch: NoisyBatch) -> Tensor:
        """Adjacency matrices ``[B, n, n]`` as the module takes them."""
        return to_device(batch.adjacency(), self.device).to(self.dtype)

    def logits(self, batch: NoisyBatch) -> Tensor:
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


def prefers_matrices(classifier: DenseClassifier, graph: Graph, noise: EdgeNoise) -> bool:
    """Whether dense batches are faster than messages for noisy graphs of so many nodes, and fit the memory."""
    edges = assumed_edges(graph.num_nodes, noise, _EDGES_PER_NODE)
    few_edges = classifier.entries_per_edge * edges < graph.num_nodes**2
    return not (graph.num_nodes > ALWAYS_DENSE and few_edges) and fits(classifier, graph, noise)


def fits(classifier: DenseClassifier, graph: Graph, noise: EdgeNoise) -> bool:
    """Whether a noisy copy of such a graph fits the memory."""
    try:
        classifier.batch_size(graph, noise)
    except InputError:
        return False
    return True
