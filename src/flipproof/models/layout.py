"""A batch of graphs in either layout, padded matrices or a union of edges: a network written once runs on both."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from flipproof.models.network import degrees, neighbour_sums

__all__ = ["DenseLayout", "Layout", "SparseLayout"]


class Layout(ABC):
    """What a network may ask of a batch. Values are rows of nodes: ``[B, n, d]`` dense, ``[V, d]`` sparse.

    Padded nodes take no part in anything that is asked of a node that exists, or of a graph.
    """

    @property
    @abstractmethod
    def sizes(self) -> Tensor:
        """Nodes of every graph, ``[B, 1]``."""

    @abstractmethod
    def neighbour_sums(self, values: Tensor) -> Tensor:
        """Sum over the neighbours of every node, as ``values``."""

    @abstractmethod
    def degrees(self) -> Tensor:
        """Neighbours of every node, one column."""

    @abstractmethod
    def attended(self, values: Tensor, sent: Tensor, received: Tensor) -> Tensor:
        """Mean over every node and its neighbours, weighted by a softmax of ``leaky_relu(received + sent)``.

        Args:
            values: ``[..., H, d]``, for ``H`` heads.
            sent: What a node adds to its weight at its neighbours, ``[..., H]``.
            received: What it adds to the weights of its neighbours at itself, ``[..., H]``.
        """

    @abstractmethod
    def sums(self, values: Tensor) -> Tensor:
        """Sum over the nodes of every graph, ``[B, ...]`` for values with any number of columns."""

    @abstractmethod
    def highest(self, values: Tensor) -> Tensor:
        """Maximum over the nodes of every graph, ``[B, d]``."""

    def readout(self, values: Tensor) -> Tensor:
        """Sum over the nodes divided by the square root of their number, mean and maximum, ``[B, 3d]``."""
        sums, sizes = self.sums(values), self.sizes
        return torch.cat([sums * sizes.rsqrt(), sums / sizes, self.highest(values)], dim=1)


class DenseLayout(Layout):
    """``adj [B, n, n]`` and ``mask [B, n]``."""

    def __init__(self, adj: Tensor, mask: Tensor) -> None:
        self.adj, self.mask = adj, mask
        self._nodes = mask.to(adj.dtype)

    @property
    def sizes(self) -> Tensor:
        return self._nodes.sum(dim=1, keepdim=True)

    def neighbour_sums(self, values: Tensor) -> Tensor:
        return torch.bmm(self.adj, values)

    def degrees(self) -> Tensor:
        return self.adj.sum(dim=2, keepdim=True)

    def attended(self, values: Tensor, sent: Tensor, received: Tensor) -> Tensor:
        weights = torch.nn.functional.leaky_relu(received.mT.unsqueeze(3) + sent.mT.unsqueeze(2), 0.2)
        itself = torch.eye(self.adj.shape[1], device=self.adj.device)
        shares = weights.masked_fill((self.adj + itself == 0).unsqueeze(1), -torch.inf).softmax(dim=3)
        return (shares @ values.transpose(1, 2)).transpose(1, 2)

    def sums(self, values: Tensor) -> Tensor:
        columns = values.flatten(2)
        return torch.bmm(self._nodes.unsqueeze(1), columns).view(len(values), *values.shape[2:])

    def highest(self, values: Tensor) -> Tensor:
        return values.masked_fill(~self.mask.unsqueeze(2), -torch.inf).amax(dim=1)


class SparseLayout(Layout):
    """``edge_index [2, E]`` and ``batch [V]`` of a union of graphs, as in PyG."""

    def __init__(self, edge_index: Tensor, batch: Tensor) -> None:
        self.edge_index, self.batch = edge_index, batch
        self._counts = torch.bincount(batch)

    @property
    def sizes(self) -> Tensor:
        return self._counts.to(torch.get_default_dtype()).unsqueeze(1)

    def neighbour_sums(self, values: Tensor) -> Tensor:
        return neighbour_sums(values, self.edge_index)

    def degrees(self) -> Tensor:
        return degrees(self.edge_index, len(self.batch)).to(torch.get_default_dtype()).unsqueeze(1)

    def attended(self, values: Tensor, sent: Tensor, received: Tensor) -> Tensor:
        itself = torch.arange(len(self.batch), device=self.batch.device)
        sources, targets = torch.cat([self.edge_index, itself.expand(2, -1)], dim=1)
        weights = torch.nn.functional.leaky_relu(received[targets] + sent[sources], 0.2)
        # the largest weight of every node goes out of the exponent, as in any softmax
        places = targets.unsqueeze(1).expand_as(weights)
        largest = torch.full_like(received, -torch.inf).scatter_reduce(0, places, weights.detach(), "amax")
        shares = (weights - largest[targets]).exp()
        total = torch.zeros_like(received).index_add(0, targets, shares)
        gathered = torch.zeros_like(values).index_add(0, targets, shares.unsqueeze(2) * values[sources])
        return gathered / total.unsqueeze(2)

    def sums(self, values: Tensor) -> Tensor:
        return values.new_zeros(len(self._counts), *values.shape[1:]).index_add(0, self.batch, values)

    def highest(self, values: Tensor) -> Tensor:
        lowest = values.new_full((len(self._counts), values.shape[1]), -torch.inf)
        return lowest.scatter_reduce(0, self.batch.unsqueeze(1).expand_as(values), values, "amax")
