"""Torch modules in PyG's convention, ``forward(x, edge_index, batch)`` or ``forward(data)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from flipproof.classifiers.classifier import DEFAULT_MEMORY
from flipproof.classifiers.features import NodeFeatures
from flipproof.classifiers.torch_module import (
    TorchClassifier,
    feature_width,
    hidden_width,
    largest_batch,
    repeated,
    to_device,
    widest_layer,
)
from flipproof.graphs import Graph
from flipproof.noise import NoisyBatch

__all__ = ["MessagePassingClassifier"]

_BUDGET = 2**26  # bytes of one batch's messages
_COPIES = 4  # arrays of messages alive at once
_BYTES_PER_ROW = 160  # of a message or node, for the lists of edges


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
        memory: int = DEFAULT_MEMORY,
        call: Callable[[Tensor, Tensor, Tensor], Any] | None = None,
        as_data: bool = False,
    ) -> None:
        super().__init__(module, num_classes=num_classes, features=features, memory=memory)
        self._call = call or partial(_call_with_data if as_data else self._call_with_batch, module)
        self._expected = "a PyG Batch of x, edge_index and batch" if as_data else "(x, edge_index, batch)"
        self._batch_by_name = "batch" in inspect.signature(module.forward).parameters

    def wanted_size(self, graph: Graph, edges: float) -> int:
        return largest_batch(int(4 * hidden_width(graph) * (2 * edges + graph.num_nodes)), _BUDGET)

    def bytes_each(self, graph: Graph, edges: float) -> float:
        return (2 * edges + graph.num_nodes) * (_BYTES_PER_ROW + _COPIES * 4 * widest_layer(self.module, graph))

    def logits(self, batch: NoisyBatch) -> Tensor:
        index, membership = batch.edge_index()
        edge_index, owner = to_device(index, self.device), to_device(membership, self.device)
        own = repeated(self.own_features(batch), batch.size)
        x = self.as_number(self.features.sparse(edge_index, owner, own))
        result: Tensor = self._call(x, edge_index, owner)
        return result

    def _call_with_batch(self, module: torch.nn.Module, x: Any, edge_index: Any, batch: Any) -> Any:
        if self._batch_by_name:  # other arguments with defaults may stand before it
            return module(x, edge_index, batch=batch)
        return module(x, edge_index, batch)

    def expectation(self, graph: Graph) -> str:
        return f"{self._expected} with {feature_width(self.features, graph)} a graph"


def _call_with_data(module: torch.nn.Module, x: Tensor, edge_index: Tensor, batch: Tensor) -> Any:
    from torch_geometric.data import Batch

    data = Batch(x=x, edge_index=edge_index, batch=batch)
    data.ptr = torch.searchsorted(batch, torch.arange(int(batch[-1]) + 2, device=batch.device))
    return module(data)
