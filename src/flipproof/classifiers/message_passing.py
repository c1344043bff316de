"""Torch modules in PyG's convention, ``forward(x, edge_index, batch)`` or ``forward(data)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flipproof.classifiers.classifier import expected_edges
from flipproof.classifiers.torch_module import (
    TorchClassifier,
    feature_width,
    hidden_width,
    largest_batch,
    repeated,
    to_device,
)
from flipproof.features import NodeFeatures
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise, NoisyBatch

__all__ = ["MessagePassingClassifier"]

_BUDGET = 2**26  # bytes of one batch's messages


class MessagePassingClassifier(TorchClassifier):
    """Noisy copies as one disjoint union; edges in canonical order, both directions.

    ``call`` is what is called with ``(x, edge_index, batch)``; by default the module's forward.
    """

    path = "message passing"

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        num_classes: int,
        features: NodeFeatures,
        call: Callable[[Tensor, Tensor, Tensor], Any] | None = None,
        as_data: bool = False,
    ) -> None:
        super().__init__(module, num_classes=num_classes, features=features)
        self._call = call or (self._with_data if as_data else self._with_batch)
        self._expected = "a PyG Batch of x, edge_index and batch" if as_data else "(x, edge_index, batch)"
        self._batch_by_name = "batch" in inspect.signature(module.forward).parameters

    def batch_size(self, graph: Graph, noise: EdgeNoise) -> int:
        rows = 2 * expected_edges(graph, noise) + graph.num_nodes
        return largest_batch(int(4 * hidden_width(graph) * rows), _BUDGET)

    def logits(self, batch: NoisyBatch) -> Tensor:
        index, membership = batch.edge_index()
        edge_index, owner = to_device(index, self.device), to_device(membership, self.device)
        own = repeated(self.own_features(batch), batch.size)
        x = self.as_number(self.features.sparse(edge_index, owner, own))
        result: Tensor = self._call(x, edge_index, owner)
        return result

    def _with_batch(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Any:
        if self._batch_by_name:  # other arguments with defaults may stand before it
            return self.module(x, edge_index, batch=batch)
        return self.module(x, edge_index, batch)

    def _with_data(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Any:
        from torch_geometric.data import Batch

        data = Batch(x=x, edge_index=edge_index, batch=batch)
        data.ptr = torch.searchsorted(batch, torch.arange(int(batch[-1]) + 2, device=batch.device))
        return self.module(data)

    def expectation(self, graph: Graph) -> str:
        return f"{self._expected} with {feature_width(self.features, graph)} a graph"
