"""PyG's common layers and readouts on dense batches: the same weights, matrix products instead of messages.

Nodes stay in PyG's own layout, one row a node, ``[B * n, d]``: all graphs of a batch have ``n`` nodes, so a view as ``[B, n, d]``
costs nothing, and whatever a model does between its convolutions needs no translation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor

__all__ = ["BY_GRAPH", "POOLS", "DenseLayer", "Edges", "refusal"]


class Edges:
    """The edges of a dense batch; stands where a model expects ``edge_index``. What layers share is computed once."""

    def __init__(self, adjacency: Tensor) -> None:
        self.adjacency = adjacency  # [B, n, n], symmetric, empty diagonal
        self._scales: dict[float, Tensor] = {}

    def nodes(self, x: Tensor) -> Tensor:
        """``[B * n, d]`` as ``[B, n, d]``."""
        return x.view(*self.adjacency.shape[:2], x.shape[1])

    def sums(self, x: Tensor) -> Tensor:
        """Sum over the neighbours, ``[B * n, d]``."""
        return torch.bmm(self.adjacency, self.nodes(x)).flatten(0, 1)

    def means(self, x: Tensor) -> Tensor:
        """Mean over the neighbours, 0 without any."""
        return torch.bmm(self.adjacency, self.nodes(x)).div_(self.degrees.clamp(min=1)).flatten(0, 1)

    @cached_property
    def degrees(self) -> Tensor:
        """Row sums, ``[B, n, 1]``."""
        return self.adjacency.sum(dim=-1, keepdim=True)

    def normalised_sums(self, x: Tensor, loop: float) -> Tensor:
        """``D^-1/2 (A + loop I) D^-1/2 x`` without making the matrix; ``D`` holds the row sums of ``A + loop I``."""
        if loop not in self._scales:
            scale = (self.degrees + loop).rsqrt()
            self._scales[loop] = scale if loop > 0 else scale.masked_fill(scale == torch.inf, 0)
        scale = self._scales[loop]
        scaled = self.nodes(x) * scale
        return torch.baddbmm(scaled, self.adjacency, scaled, beta=loop).mul_(scale).flatten(0, 1)


def _gcn(layer: Any, x: Tensor, edges: Edges) -> Tensor:
    def propagated(values: Tensor) -> Tensor:
        if not layer.normalize:
            return edges.sums(values)
        # without edge weights PyG's loops weigh 1, improved or not
        return edges.normalised_sums(values, 1.0 if layer.add_self_loops else 0.0)

    # never wider than needed: propagate first where the layer widens, last where it narrows
    weight = layer.lin.weight
    if weight.shape[1] <= weight.shape[0]:
        return torch.nn.functional.linear(propagated(x), weight, layer.bias)
    result = propagated(torch.nn.functional.linear(x, weight))
    return result if layer.bias is None else result + layer.bias


def _gathered(layer: Any, x: Tensor, edges: Edges) -> Tensor:
    return edges.means(x) if layer.aggr == "mean" else edges.sums(x)


def _gin(layer: Any, x: Tensor, edges: Edges) -> Tensor:
    if layer.aggr == "mean":
        gathered = edges.means(x) + (1 + layer.eps) * x
    else:
        nodes = edges.nodes(x)
        gathered = torch.baddbmm(nodes, edges.adjacency, nodes, beta=1 + float(layer.eps)).flatten(0, 1)
    result: Tensor = layer.nn(gathered)
    return result


def _sage(layer: Any, x: Tensor, edges: Edges) -> Tensor:
    projected = layer.lin(x).relu() if layer.project else x
    result: Tensor = layer.lin_l(_gathered(layer, projected, edges))
    if layer.root_weight:
        result = result.addmm_(x, layer.lin_r.weight.mT)
    return torch.nn.functional.normalize(result, p=2.0, dim=-1) if layer.normalize else result


def _graph_conv(layer: Any, x: Tensor, edges: Edges) -> Tensor:
    result: Tensor = layer.lin_rel(_gathered(layer, x, edges)).addmm_(x, layer.lin_root.weight.mT)
    return result


def _gat(layer: Any, x: Tensor, edges: Edges) -> Tensor:
    adjacency, heads, width = edges.adjacency, layer.heads, layer.out_channels
    batch, nodes = adjacency.shape[:2]
    values = layer.lin(x).view(batch, nodes, heads, width)
    source, target = ((values * attention).sum(dim=-1).mT for attention in (layer.att_src, layer.att_dst))
    if layer.add_self_loops:
        adjacency = adjacency + torch.eye(nodes, dtype=adjacency.dtype, device=adjacency.device)
    adjacency = adjacency.unsqueeze(1)  # one for all heads
    scores = torch.nn.functional.leaky_relu(target.unsqueeze(3) + source.unsqueeze(2), layer.negative_slope)
    highest = scores.masked_fill(adjacency == 0, -torch.inf).amax(dim=-1, keepdim=True)
    # a neighbour's score is at most the highest; others are kept from overflowing before their weight of 0 removes them
    shares = (scores - highest.masked_fill(highest == -torch.inf, 0)).clamp(max=30).exp() * adjacency
    shares = shares / (shares.sum(dim=-1, keepdim=True) + 1e-16)
    gathered = torch.matmul(shares, values.transpose(1, 2)).transpose(1, 2)
    result = gathered.reshape(batch * nodes, heads * width) if layer.concat else gathered.mean(dim=2).flatten(0, 1)
    if layer.res is not None:
        result = result + layer.res(x)
    return result if layer.bias is None else result + layer.bias


def _graph_norm(layer: Any, x: Tensor, edges: Edges) -> Tensor:
    nodes = edges.nodes(x)
    centred = nodes - nodes.mean(dim=1, keepdim=True) * layer.mean_scale
    deviation = (centred.pow(2).mean(dim=1, keepdim=True) + layer.eps).sqrt()
    result: Tensor = (layer.weight * centred / deviation + layer.bias).flatten(0, 1)
    return result


def _add_pool(x: Tensor, edges: Edges) -> Tensor:
    return edges.nodes(x).sum(dim=1)


def _mean_pool(x: Tensor, edges: Edges) -> Tensor:
    return edges.nodes(x).mean(dim=1)


def _max_pool(x: Tensor, edges: Edges) -> Tensor:
    return edges.nodes(x).amax(dim=1)


POOLS: dict[Any, Callable[[Tensor, Edges], Tensor]] = {
    pyg.global_add_pool: _add_pool,
    pyg.global_mean_pool: _mean_pool,
    pyg.global_max_pool: _max_pool,
}
"""Readouts by PyG's function; each takes node rows and edges."""

_Rule = Callable[[Any, Tensor, Edges], Tensor]
_SUMS, _SUMS_AND_MEANS = ("add", "sum"), ("add", "sum", "mean")
_CONVOLUTIONS: dict[type, tuple[_Rule, tuple[str, ...]]] = {
    pyg.GCNConv: (_gcn, _SUMS),
    pyg.GINConv: (_gin, _SUMS_AND_MEANS),
    pyg.SAGEConv: (_sage, _SUMS_AND_MEANS),
    pyg.GraphConv: (_graph_conv, _SUMS_AND_MEANS),
    pyg.GATConv: (_gat, _SUMS),
}
BY_GRAPH: dict[type, _Rule] = {
    pyg.GraphNorm: _graph_norm,
    pyg.SumAggregation: lambda layer, x, edges: _add_pool(x, edges),
    pyg.MeanAggregation: lambda layer, x, edges: _mean_pool(x, edges),
    pyg.MaxAggregation: lambda layer, x, edges: _max_pool(x, edges),
}
"""Layers that take ``(x, batch)``; where one is missing here, PyG's own works as well, only slower."""


def refusal(layer: Any) -> str | None:
    """Why a convolution cannot be translated, or ``None`` if it can."""
    kind = type(layer).__name__
    if type(layer) not in _CONVOLUTIONS:
        return f"{kind} has no dense form here"
    if layer.aggr not in _CONVOLUTIONS[type(layer)][1]:
        return f"{kind} with aggregation {layer.aggr!r} has no dense form here"
    if layer.decomposed_layers != 1 or getattr(layer, "edge_dim", None) is not None:
        return f"{kind} with decomposed layers or edge attributes has no dense form here"
    if isinstance(layer, pyg.GATConv) and layer.lin is None:
        return "GATConv for two kinds of nodes has no dense form here"
    if any(
        "forward" in name and "hooks" in name and held for part in layer.modules() for name, held in vars(part).items()
    ):
        return f"{kind} has hooks"
    return None


class DenseLayer(torch.nn.Module):
    """A layer's dense form around the layer itself: weights are shared, not copied."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self._rule = BY_GRAPH[type(layer)] if type(layer) in BY_GRAPH else _CONVOLUTIONS[type(layer)][0]

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        return self._rule(self.layer, x, edges)
