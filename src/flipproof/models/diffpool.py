"""Hierarchical pooling that is learnt: nodes are gathered into clusters, and the clusters form a graph of their own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flipproof.models.layout import Layout
from flipproof.models.residual import perceptron
from flipproof.models.sage import GraphSAGE

__all__ = ["DiffPool"]

_CLUSTERS = 8


class DiffPool(GraphSAGE):
    r"""Differentiable pooling (Ying et al., NeurIPS 2018), small: GraphSAGE layers, one pooling, one layer on the clusters.

    .. math:: S = \mathrm{softmax}(\mathrm{MLP}([Z, D^{-1} A Z])), \qquad
              X' = M^{-1} S^\top Z, \quad A' = S^\top A S, \quad M = \text{diag of the column sums of } S

    Every node is shared out over eight clusters; these have the mean of their nodes and the weighted edges between
    them, and pass messages once more along the row-normalised ``A'``. The readout joins that of the nodes
    (:class:`ResidualNetwork`) with the mean and the maximum of the clusters and their shares of the nodes. Without the
    auxiliary losses of the paper: links are what the noise flips. Arguments are :class:`ResidualNetwork`'s.

    >>> model = DiffPool(in_features=1, num_classes=8, seed=0).eval()
    >>> adj = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    >>> model(adj.sum(-1, keepdim=True), adj, torch.ones(1, 2, dtype=torch.bool)).shape
    torch.Size([1, 8])
    """

    name = "diffpool"

    def make_readout(self) -> None:
        hidden = int(self.config["hidden"])
        self.assignment = perceptron(2 * hidden, hidden, _CLUSTERS)
        self.coarse = nn.Linear(2 * hidden, hidden)
        self.coarse_norm = nn.LayerNorm(hidden)

    def readout_width(self) -> int:
        return 5 * int(self.config["hidden"]) + _CLUSTERS

    def readout(self, hidden: Tensor, layout: Layout) -> Tensor:
        around = layout.neighbour_sums(hidden) / layout.degrees().clamp_min(1)
        shares = self.assignment(torch.cat([hidden, around], dim=-1)).softmax(dim=-1)
        mass = layout.sums(shares).clamp_min(1e-6)
        clusters = layout.sums(shares.unsqueeze(-1) * hidden.unsqueeze(-2)) / mass.unsqueeze(2)
        edges = layout.sums(shares.unsqueeze(-1) * layout.neighbour_sums(shares).unsqueeze(-2))
        weights = edges / edges.sum(dim=2, keepdim=True).clamp_min(1e-6)
        messages = self.coarse(torch.cat([clusters, torch.bmm(weights, clusters)], dim=2)).relu()
        coarse = self.coarse_norm(clusters + messages)
        return torch.cat([layout.readout(hidden), coarse.mean(dim=1), coarse.amax(dim=1), mass / layout.sizes], dim=1)
