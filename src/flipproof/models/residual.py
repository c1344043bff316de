"""What GraphSAGE, GAT and DiffPool have in common: normalised residual layers, written once for both layouts of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from flipproof.models.label_model import checked_config
from flipproof.models.layout import DenseLayout, Layout, SparseLayout
from flipproof.models.network import GraphNetwork, seeded_weights

__all__ = ["Block", "ResidualNetwork", "perceptron"]


class Block(nn.Module, ABC):
    """One layer: what is added to every node, from the normalised rows of the node and its neighbours."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    @abstractmethod
    def forward(self, normed: Tensor, layout: Layout) -> Tensor:
        """As ``normed``."""


class ResidualNetwork(GraphNetwork):
    r"""Layers ``H_{k+1} = H_k + block_k(LayerNorm(H_k))`` on ``H_0 = X W + b``, a readout, a perceptron.

    The readout of ``Z = LayerNorm(H)`` joins its sum over the nodes divided by the square root of their number, its mean and
    its maximum. Layer normalisation acts on each node by itself, so that a graph's answer does not depend on its batch.

    Args:
        in_features: Width ``d`` of the node features; 1 for the degree.
        num_classes: Number of classes ``C``.
        hidden: Width of the layers.
        layers: Number of message-passing layers.
        seed: Makes the initial weights; ``None`` takes torch's own generator.
    """

    def __init__(
        self,
        in_features: int = 1,
        num_classes: int = 2,
        *,
        hidden: int = 32,
        layers: int = 3,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.config = checked_config(
            self.name, in_features=in_features, num_classes=num_classes, hidden=hidden, layers=layers
        )
        with seeded_weights(seed):
            self.encoder = nn.Linear(in_features, hidden)
            self.blocks = nn.ModuleList(self.make_block(hidden) for _ in range(layers))
            self.norm = nn.LayerNorm(hidden)
            self.make_readout()
            self.head = perceptron(self.readout_width(), 2 * hidden, num_classes)

    @abstractmethod
    def make_block(self, width: int) -> Block:
        """One layer, with fresh weights."""

    def make_readout(self) -> None:
        """Weights of the readout; the plain one has none."""

    def readout_width(self) -> int:
        """Columns of :meth:`readout`."""
        return 3 * int(self.config["hidden"])

    def readout(self, hidden: Tensor, layout: Layout) -> Tensor:
        """One row a graph from the normalised rows of its nodes."""
        return layout.readout(hidden)

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
        return self._logits(x, DenseLayout(adj, mask))

    def forward_sparse(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self._logits(x, SparseLayout(edge_index, batch))

    def _logits(self, x: Tensor, layout: Layout) -> Tensor:
        hidden = self.encoder(x)
        for block in self.blocks:
            assert isinstance(block, Block)
            hidden = hidden + block(block.norm(hidden), layout)
        logits: Tensor = self.head(self.readout(self.norm(hidden), layout))
        return logits


def perceptron(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Two linear layers with a ReLU between them."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
