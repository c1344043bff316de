"""A stronger base classifier than the paper's: sums over neighbours, and a readout that sees size, mean and extremes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from flipproof.checks import checked_count
from flipproof.errors import InputError
from flipproof.models.network import GraphNetwork, Layout, checked_config, seeded_weights
from flipproof.noise import EdgeNoise


class GIN(GraphNetwork):
    r"""A graph isomorphism network (Xu et al., ICLR 2019) with residual connections and layer normalisation.

    .. math:: H_0 = X W + b, \qquad Z_k = \mathrm{LayerNorm}(H_k), \qquad
              H_{k+1} = H_k + \mathrm{MLP}_k((1 + \epsilon_k) Z_k + A Z_k / s)

    with a fixed scale ``s``. The readout joins the sum of ``LayerNorm(H)`` over the nodes divided by the square root of their
    number, its mean and its maximum; a two-layer perceptron makes the logits.

    With ``noise``, messages pass over :math:`\hat A = (A - p_+ (J - I)) / (1 - p_+ - p_-)`, whose mean over the noise is the
    clean adjacency matrix, and every node also sees its degree in it. With ``sizes``, a learned vector for each number of nodes
    up to ``sizes`` is added to ``H_0``, which suits data whose classes have typical sizes.

    Args:
        in_features: Width ``d`` of the node features; 1 for the degree.
        num_classes: Number of classes ``C``.
        hidden: Width of the layers.
        layers: Number of message-passing layers.
        noise: The noise to correct for, an :class:`flipproof.EdgeNoise` or its ``(p_add, p_remove)``; ``None`` for none.
        sizes: Number of nodes up to which each number has a vector of its own; ``None`` for none.
        seed: Makes the initial weights; ``None`` takes torch's own generator.
    """

    name = "gin"

    def __init__(
        self,
        in_features: int = 1,
        num_classes: int = 2,
        *,
        hidden: int = 32,
        layers: int = 3,
        noise: EdgeNoise | Sequence[float] | None = None,
        sizes: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.config = checked_config(
            self.name, in_features=in_features, num_classes=num_classes, hidden=hidden, layers=layers
        )
        self.background, self.contrast, self.corrects = 0.0, 1.0, noise is not None
        if noise is not None:
            self.background, lost = _probabilities(noise)
            self.contrast -= self.background + lost
            self.config["noise"] = [self.background, lost]
        self.by_size: nn.Embedding | None = None
        with seeded_weights(seed):
            self.encoder = nn.Linear(in_features + self.corrects, hidden)
            self.blocks = nn.ModuleList(_Block(hidden) for _ in range(layers))
            self.norm = nn.LayerNorm(hidden)
            self.head = nn.Sequential(nn.Linear(3 * hidden, 2 * hidden), nn.ReLU(), nn.Linear(2 * hidden, num_classes))
            if sizes is not None:
                self.config["sizes"] = checked_count(sizes, "sizes", 1, "for instance sizes=32")
                self.by_size = nn.Embedding(self.config["sizes"] + 1, hidden)
                nn.init.zeros_(self.by_size.weight)

    def logits(self, x: Tensor, layout: Layout) -> Tensor:
        sizes = layout.sizes.to(x.dtype)
        if self.corrects:
            degree = layout.degrees().to(x.dtype) - self.background * (layout.spread(sizes) - 1)
            x = torch.cat([x, degree / self.contrast], dim=-1)
        hidden = self.encoder(x)
        if self.by_size is not None:
            numbers = sizes.squeeze(1).long().clamp_max(self.by_size.num_embeddings - 1)
            hidden = hidden + layout.spread(self.by_size(numbers))
        for block in self.blocks:
            assert isinstance(block, _Block)
            normed, scale = block.norm(hidden), block.scale / self.contrast
            # A_hat Z = (A Z - p (sum of all rows - Z)) / contrast, without the matrix
            gathered = layout.gathered(normed, own=1 + scale * self.background, scale=scale)
            if self.background:
                gathered = gathered - scale * self.background * layout.spread(layout.sums(normed))
            hidden = hidden + block(gathered, normed)
        hidden = self.norm(hidden)
        sums, highest = layout.sums(hidden), layout.highest(hidden)
        logits: Tensor = self.head(torch.cat([sums * sizes.rsqrt(), sums / sizes, highest], dim=1))
        return logits


def _probabilities(noise: EdgeNoise | Sequence[float]) -> tuple[float, float]:
    pair = (noise.p_add, noise.p_remove) if isinstance(noise, EdgeNoise) else noise
    try:
        added, lost = (float(value) for value in pair)
    except (TypeError, ValueError):
        added = lost = -1.0
    if not (0 <= added < 1 and 0 <= lost < 1 and added + lost < 1):
        raise InputError(
            f"noise must be an EdgeNoise, or its probabilities to add and to remove with a sum below 1; got {noise!r} "
            "(for instance noise=EdgeNoise(keep=0.9))"
        )
    return added, lost


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
