"""Torch modules in PyG's convention, ``forward(x, edge_index, batch)`` or ``forward(data)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, partial
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
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import NoisyBatch

EdgeFeatures = Callable[[Tensor, Tensor], Tensor]
"""From the features of the two ends of every edge, ``[E, d]`` each, to those of the edges, ``[E, k]``."""

_BUDGET = 2**26  # bytes of one batch's messages
_COPIES = 4  # arrays of messages alive at once
_BYTES_PER_ROW = 160  # of a message or node, for the lists of edges


class MessagePassingClassifier(TorchClassifier):
    """Noisy copies as one disjoint union; edges in canonical order, both directions.

    Args:
        module, num_classes, features, memory: As of every torch module.
        call: What is called with ``(x, edge_index, batch)``; by default the module's forward.
        as_data: Whether forward takes one PyG ``Data``.
        edge_features: Makes ``edge_attr`` from the two end nodes, after the noise: an edge that the noise adds then has
            features like any other.
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
        edge_features: EdgeFeatures | None = None,
    ) -> None:
        super().__init__(module, num_classes=num_classes, features=features, memory=memory)
        self._as_data, self.edge_features = as_data, edge_features
        self._call = call or partial(self._call_with_data if as_data else self._call_with_batch, module)
        self._edge_argument = None if as_data or edge_features is None else edge_argument(module)
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

    def _call_with_data(self, module: torch.nn.Module, x: Tensor, edge_index: Tensor, batch: Tensor) -> Any:
        return module(data_batch(x, edge_index, batch, self.edge_features))

    def _call_with_batch(self, module: torch.nn.Module, x: Any, edge_index: Any, batch: Any) -> Any:
        if self._edge_argument is not None and self.edge_features is not None:
            edges = {self._edge_argument: made_edge_features(self.edge_features, x, edge_index)}
            return module(x, edge_index, batch=batch, **edges)
        if self._batch_by_name:  # other arguments with defaults may stand before it
            return module(x, edge_index, batch=batch)
        return module(x, edge_index, batch)

    def expectation(self, graph: Graph) -> str:
        return f"{self._expected} with {feature_width(self.features, graph)} a graph"


def data_batch(x: Tensor, edge_index: Tensor, batch: Tensor, edge_features: EdgeFeatures | None = None) -> Any:
    """A PyG ``Batch`` that refuses to be asked for edge attributes, unless they are made from the end nodes."""
    from torch_geometric.data import Batch

    fields: dict[str, Any] = {"x": x, "edge_index": edge_index, "batch": batch}
    if edge_features is not None:
        fields["edge_attr"] = made_edge_features(edge_features, x, edge_index)
    data = Batch(**fields) if edge_features is not None else Batch(_base_cls=_without_edge_attributes(), **fields)
    data.ptr = torch.searchsorted(batch, torch.arange(int(batch[-1]) + 2, device=batch.device))
    return data


@cache
def _without_edge_attributes() -> type[Any]:
    from torch_geometric.data import Data

    def refused(name: str) -> property:
        def read(data: Any) -> Any:
            raise InputError(
                f"the model's forward reads {name}, which noisy graphs do not have: an edge that the noise adds has no "
                "attributes (pass edge_features=function, which makes edge_attr from the features of the two end nodes, or "
                "train a model that does not read it)"
            )

        return property(read)

    names = ("edge_attr", "edge_weight")

    class NoisyData(Data):  # type: ignore[misc]
        def __getitem__(self, key: str) -> Any:
            return getattr(self, key) if key in names else super().__getitem__(key)

        def __contains__(self, key: str) -> bool:
            return bool(getattr(self, key)) if key in names else super().__contains__(key)

    for name in names:
        setattr(NoisyData, name, refused(name))
    return NoisyData


def made_edge_features(function: EdgeFeatures, x: Tensor, edge_index: Tensor) -> Tensor:
    """The features of every edge, from those of its two ends."""
    found = function(x[edge_index[0]], x[edge_index[1]])
    if not isinstance(found, Tensor) or found.ndim == 0 or len(found) != edge_index.shape[1]:
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise InputError(
            f"edge_features must return a tensor with one row per edge, [{edge_index.shape[1]}, k]; got {shape} (it is called "
            "with the features of both ends of every edge, [E, d] each)"
        )
    return found


def edge_argument(module: torch.nn.Module) -> str:
    """The argument of forward that takes edge features."""
    parameters = inspect.signature(module.forward).parameters
    found = next((name for name in ("edge_attr", "edge_weight") if name in parameters), None)
    if found is None or "batch" not in parameters:
        raise InputError(
            f"edge_features need a forward that takes edge_attr and batch by name; it takes ({', '.join(parameters)}) (add the "
            "argument, or leave edge_features out)"
        )
    return found
