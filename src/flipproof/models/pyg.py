"""Networks of PyTorch Geometric by name: its stacks of layers, a readout and a linear head."""

from __future__ import annotations

import torch
import torch_geometric.nn.models as pyg
from torch import Tensor, nn
from torch_geometric.nn import global_add_pool, global_mean_pool

from flipproof.errors import InputError
from flipproof.models.network import NamedNetwork, checked_config, seeded_weights

_HEADS = 4  # of the attention
_STACKS = {"graphsage": pyg.GraphSAGE, "sage": pyg.GraphSAGE, "gat": pyg.GAT}


class PyGNetwork(NamedNetwork):
    """``torch_geometric.nn.models.GraphSAGE`` or ``GAT``, the sum and the mean over the nodes, and a linear head.

    Layers are followed by a layer normalisation of each node by itself, so that a graph's answer does not depend on its batch.

    Args:
        name: ``graphsage`` (``sage`` for short) or ``gat``.
        in_features: Width of the node features; 1 for the degree.
        num_classes: Number of classes.
        hidden: Width of the layers; of ``gat`` a multiple of its four heads.
        layers: Number of message-passing layers.
        seed: Seed of the initial weights; ``None`` takes torch's own generator.

    >>> model = PyGNetwork("graphsage", in_features=1, num_classes=8, seed=0).eval()
    >>> model(torch.ones(2, 1), torch.tensor([[0, 1], [1, 0]]), torch.zeros(2, dtype=torch.int64)).shape
    torch.Size([1, 8])
    """

    def __init__(
        self,
        name: str,
        in_features: int = 1,
        num_classes: int = 2,
        *,
        hidden: int = 32,
        layers: int = 3,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.config = checked_config(
            name, in_features=in_features, num_classes=num_classes, hidden=hidden, layers=layers
        )
        heads = {"heads": _HEADS} if name == "gat" else {}
        if heads and hidden % _HEADS:
            raise InputError(f"hidden must be a multiple of the {_HEADS} heads of gat; got {hidden} (for instance 32)")
        norm = {"norm": "LayerNorm", "norm_kwargs": {"mode": "node"}}
        with seeded_weights(seed):
            self.stack = _STACKS[name](in_features, hidden, layers, **norm, **heads)
            self.head = nn.Linear(2 * hidden, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Logits ``[B, C]`` of a disjoint union of graphs."""
        hidden = self.stack(x, edge_index)
        logits: Tensor = self.head(torch.cat([global_add_pool(hidden, batch), global_mean_pool(hidden, batch)], dim=1))
        return logits
