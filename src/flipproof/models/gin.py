"""A stronger base classifier than the paper's: sums over neighbours, and a readout that sees size, mean and extremes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flipproof.models.network import GraphNetwork, checked_config, neighbour_sums, seeded_weights

__all__ = ["GIN"]


class GIN(GraphNetwork):
    r"""A graph isomorphism network (Xu et al., ICLR 2019) with residual connections and layer normalisation.

    .. math:: H_0 = X W + b, \qquad Z_k = \mathrm{LayerNorm}(H_k), \qquad
              H_{k+1} = H_k + \mathrm{MLP}_k((1 + \epsilon_k) Z_k + A Z_k / s)

    with a fixed scale ``s``. The readout of ``Z = LayerNorm(H)`` joins its sum over the nodes divided by the square root of
    their number, its mean and its maximum; a two-layer perceptron makes the logits.

    Sums tell degrees and counts apart that the GCN's means blur, which is what remains of a topology under strong noise.
    Layer normalisation acts on each node by itself, so that a graph's answer does not depend on its batch.

    Args:
        in_features: Width ``d`` of the node features; 1 for the degree.
        num_classes: Number of classes ``C``.
        hidden: Width of the layers.
        layers: Number of message-passing layers.
        seed: Makes the initial weights; ``None`` takes torch's own generator.

    >>> model = GIN(in_features=1, num_classes=8, seed=0).eval()
    >>> adj = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    >>> model(adj.sum(-1, keepdim=True), adj, torch.ones(1, 2, dtype=torch.bool)).shape
    torch.Size([1, 8])
    """

    name = "gin"

    def __init__(
        self, in_features: int = 1, num_classes: int = 2, *, hidden: int = 32, layers: int = 3, seed: int | None = None
    ) -> None:
        super().__init__()
        self.config = checked_config(
            self.name, in_features=in_features, num_classes=num_classes, hidden=hidden, layers=layers
        )
        with seeded_weights(seed):
            self.encoder = nn.Linear(in_features, hidden)
            self.blocks = nn.ModuleList(_Block(hidden) for _ in range(layers))
            self.norm = nn.LayerNorm(hidden)
            self.head = nn.Sequential(nn.Linear(3 * hidden, 2 * hidden), nn.ReLU(), nn.Linear(2 * hidden, num_classes))

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
        hidden = self.encoder(x)
        for block in self.blocks:
            assert isinstance(block, _Block)
            normed = block.norm(hidden)
            hidden = hidden + block(torch.baddbmm(normed, adj, normed, alpha=block.scale), normed)
        hidden = self.norm(hidden)
        nodes = mask.to(hidden.dtype)
        sizes = nodes.sum(dim=1, keepdim=True)
        sums = torch.bmm(nodes.unsqueeze(1), hidden).squeeze(1)
        highest = hidden.masked_fill(~mask.unsqueeze(2), -torch.inf).amax(dim=1)
        return self._logits(sums, highest, sizes)

    def forward_sparse(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        hidden = self.encoder(x)
        for block in self.blocks:
            assert isinstance(block, _Block)
            normed = block.norm(hidden)
            hidden = hidden + block(normed + block.scale * neighbour_sums(normed, edge_index), normed)
        hidden = self.norm(hidden)
        counts = torch.bincount(batch)
        sums = hidden.new_zeros(len(counts), hidden.shape[1]).index_add_(0, batch, hidden)
        highest = hidden.new_full(sums.shape, -torch.inf)
        highest = highest.scatter_reduce(0, batch.unsqueeze(1).expand_as(hidden), hidden, "amax")
        return self._logits(sums, highest, counts.to(hidden.dtype).unsqueeze(1))

    def _logits(self, sums: Tensor, highest: Tensor, sizes: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.cat([sums * sizes.rsqrt(), sums / sizes, highest], dim=1))
        return logits


class _Block(nn.Module):
    """The perceptron of one layer, and the normalisation before it."""

    scale = 0.25

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.epsilon = nn.Parameter(torch.zeros(()))
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, width)

    def forward(self, gathered: Tensor, normed: Tensor) -> Tensor:
        result: Tensor = self.outer(self.inner(gathered + self.epsilon * normed).relu_())
        return result
