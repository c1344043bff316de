"""The baseline that cannot be attacked: the same network, edges ignored."""

from __future__ import annotations

import torch
from torch import Tensor

from flipproof.errors import InputError
from flipproof.models.network import GraphNetwork

__all__ = ["EdgeBlind"]


class EdgeBlind(GraphNetwork):
    """A network that sees the nodes and no edge.

    Its answer does not depend on the edges, so it is certified at every radius: the line that a certified curve must beat.
    It holds only with node features that do not depend on edges either, ``features=None`` or ``"constant"``;
    :func:`flipproof.train` refuses others.

    Args:
        network: The network to blind. It is used, not copied.

    >>> from flipproof.models import GIN
    >>> model = EdgeBlind(GIN(in_features=3, num_classes=2, seed=0)).eval()
    >>> x, mask, adj = torch.rand(1, 4, 3), torch.ones(1, 4, dtype=torch.bool), torch.ones(1, 4, 4).triu(1)
    >>> bool((model(x, adj + adj.mT, mask) == model(x, 0 * adj, mask)).all())
    True
    """

    name = "edge-blind"
    edge_blind = True

    def __init__(self, network: GraphNetwork) -> None:
        super().__init__()
        if not isinstance(network, GraphNetwork) or isinstance(network, EdgeBlind):
            raise InputError(
                f"network must be one of flipproof's networks; got {type(network).__name__} (for instance GIN(...))"
            )
        self.network = network
        self.config = {
            "name": self.name,
            "in_features": network.config["in_features"],
            "num_classes": network.config["num_classes"],
            "network": network.config,
        }

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
        logits: Tensor = self.network(x, torch.zeros_like(adj), mask)
        return logits

    def forward_sparse(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.network.forward_sparse(x, edge_index[:, :0], batch)
