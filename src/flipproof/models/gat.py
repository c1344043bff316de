"""The graph attention network: neighbours weigh what the network makes of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flipproof.errors import InputError
from flipproof.models.layout import Layout
from flipproof.models.residual import Block, ResidualNetwork

__all__ = ["GAT"]

_HEADS = 4


class GAT(ResidualNetwork):
    r"""The graph attention network of Veličković et al. (ICLR 2018), four heads.

    .. math:: H_{k+1} = H_k + \mathrm{ReLU}\Big(\sum_{j \in N(i) \cup \{i\}} a_{ij} Z_j W_k\Big), \qquad
              a_{ij} = \mathrm{softmax}_j\,\mathrm{LeakyReLU}(u^\top Z_i W_k + v^\top Z_j W_k)

    with ``Z = LayerNorm(H)``; the heads stand side by side in the columns. No dropout on the attention: the noise is on the
    edges already. Encoder, readout, head and arguments are :class:`ResidualNetwork`'s; ``hidden`` is a multiple of four.

    >>> model = GAT(in_features=1, num_classes=8, seed=0).eval()
    >>> adj = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    >>> model(adj.sum(-1, keepdim=True), adj, torch.ones(1, 2, dtype=torch.bool)).shape
    torch.Size([1, 8])
    """

    name = "gat"

    def make_block(self, width: int) -> Block:
        return _AttentionBlock(width)


class _AttentionBlock(Block):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        if width % _HEADS:
            raise InputError(f"hidden must be a multiple of the {_HEADS} heads of gat; got {width} (for instance 32)")
        self.linear = nn.Linear(width, width, bias=False)
        self.sent = nn.Parameter(torch.randn(_HEADS, width // _HEADS) * 0.1)
        self.received = nn.Parameter(torch.randn(_HEADS, width // _HEADS) * 0.1)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, normed: Tensor, layout: Layout) -> Tensor:
        values = self.linear(normed).unflatten(-1, (_HEADS, -1))
        sent, received = (values * self.sent).sum(-1), (values * self.received).sum(-1)
        return (layout.attended(values, sent, received).flatten(-2) + self.bias).relu_()
