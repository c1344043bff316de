"""GraphSAGE: every node beside the mean of its neighbours."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flipproof.models.layout import Layout
from flipproof.models.residual import Block, ResidualNetwork

__all__ = ["GraphSAGE"]


class GraphSAGE(ResidualNetwork):
    r"""GraphSAGE (Hamilton, Ying and Leskovec, NeurIPS 2017) with the mean of all neighbours, no sampling of them.

    .. math:: H_{k+1} = H_k + \mathrm{ReLU}(Z_k W_k + D^{-1} A Z_k W'_k + b_k), \qquad Z_k = \mathrm{LayerNorm}(H_k)

    A node without neighbours has the mean 0. Encoder, readout, head and arguments are :class:`ResidualNetwork`'s.

    >>> model = GraphSAGE(in_features=1, num_classes=8, seed=0).eval()
    >>> adj = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    >>> model(adj.sum(-1, keepdim=True), adj, torch.ones(1, 2, dtype=torch.bool)).shape
    torch.Size([1, 8])
    """

    name = "sage"

    def make_block(self, width: int) -> Block:
        return _MeanBlock(width)


class _MeanBlock(Block):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.linear = nn.Linear(2 * width, width)

    def forward(self, normed: Tensor, layout: Layout) -> Tensor:
        mean = layout.neighbour_sums(normed) / layout.degrees().clamp_min(1)
        result: Tensor = self.linear(torch.cat([normed, mean], dim=-1)).relu_()
        return result
