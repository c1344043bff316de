"""Torch modules in the dense convention, ``forward(x, adj, mask)``: the fast way for small graphs."""

from __future__ import annotations

import torch
from torch import Tensor

from flipproof.classifiers.torch_module import TorchClassifier, feature_width, largest_batch, to_device
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise, NoisyBatch

__all__ = ["DenseClassifier"]

_CACHE = 5 * 2**18  # bytes of one batch of matrices and activations that stay in a core's cache: measured fastest
_MEMORY = 2**24  # bytes that a batch of few graphs may take all the same
_FEW = 32
_MOST_ENTRIES = 2**28  # one graph's matrix beyond this is refused
_WIDTH = 64  # assumed width of the hidden layers


class DenseClassifier(TorchClassifier):
    """``forward(x [B, n, d], adj [B, n, n], mask [B, n]) -> [B, C]``."""

    path = "dense"

    def batch_size(self, graph: Graph, noise: EdgeNoise) -> int:
        nodes = graph.num_nodes
        if nodes * nodes > _MOST_ENTRIES:
            raise InputError(
                f"a dense model cannot take a graph of {nodes} nodes: one matrix would have {nodes * nodes:,} entries "
                "(use a model in PyG's convention forward(x, edge_index, batch))"
            )
        each = 4 * nodes * (nodes + _WIDTH)
        return max(largest_batch(each, _CACHE), min(_FEW, largest_batch(each, _MEMORY)))

    def logits(self, batch: NoisyBatch) -> Tensor:
        adjacency = to_device(batch.adjacency(), self.device).to(self.dtype)
        mask = torch.ones(adjacency.shape[:2], dtype=torch.bool, device=self.device)
        own = self.own_features(batch)
        if own is not None:
            own = own.expand(batch.size, *own.shape)
        x = self.as_number(self.features.dense(adjacency, mask, own))
        result: Tensor = self.module(x, adjacency, mask)
        return result

    def expectation(self, graph: Graph) -> str:
        return f"(x, adj, mask) with {feature_width(self.features, graph)} a graph"
