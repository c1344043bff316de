"""A network that classifies single nodes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn

from flipproof.errors import InputError
from flipproof.models.network import NamedNetwork, SparseLayout, checked_config, seeded_weights


class NodeGCN(NamedNetwork):
    r"""The graph convolutional network of Kipf and Welling (ICLR 2017): a row of logits per node.

    .. math:: H_{k+1} = \hat A\, \mathrm{ReLU}(H_k) W_k + b_k, \qquad H_1 = \hat A X W_0 + b_0, \qquad
              \hat A = D^{-1/2} (A + I) D^{-1/2}, \quad D = \text{degrees of } A + I

    Where noise does not reach the features, ``X W_0`` is the same in every noisy copy and is computed once; binary features under
    noise are gathered as sums of rows of ``W_0``. In training, dropout is applied before every layer but the first.

    Args:
        in_features, num_classes, hidden, layers, seed: As for :class:`GCN`.
        dropout: Probability that a hidden value is dropped in training.

    >>> NodeGCN(3, 4, seed=0).eval()(torch.eye(3), torch.tensor([[0, 1], [1, 0]])).shape
    torch.Size([3, 4])
    """

    name = "node-gcn"

    def __init__(
        self,
        in_features: int = 1,
        num_classes: int = 2,
        *,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.5,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
            raise InputError(f"dropout must lie in [0, 1); got {dropout!r} (for instance 0.5)")
        config = checked_config(self.name, in_features, num_classes, hidden, layers)
        self.config = {**config, "dropout": float(dropout)}
        widths = [in_features, *[hidden] * (layers - 1), num_classes]
        with seeded_weights(seed):
            self.convolutions = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(widths))
            for linear in cast(list[nn.Linear], self.convolutions):
                nn.init.xavier_uniform_(linear.weight)
                nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Logits ``[n, C]`` for node features ``[n, d]`` and every edge in both directions ``[2, E]``."""
        return self.after_first(self.first(x), edge_index)

    def after_first(self, hidden: Tensor, edge_index: Tensor) -> Tensor:
        """The logits, from ``X W_0``."""
        layout = SparseLayout(edge_index, torch.zeros(len(hidden), dtype=torch.int64, device=hidden.device))
        scale = (layout.degrees() + 1).to(hidden.dtype).rsqrt()
        for number, linear in enumerate(cast(list[nn.Linear], self.convolutions)):
            if number:
                hidden = nn.functional.dropout(hidden.relu(), self.config["dropout"], self.training)
                hidden = nn.functional.linear(hidden, linear.weight)
            hidden = layout.gathered(hidden * scale) * scale + linear.bias
        return hidden

    def first(self, x: Tensor) -> Tensor:
        """``X W_0`` ``[n, hidden]``."""
        weight = cast(nn.Linear, self.convolutions[0]).weight
        return nn.functional.linear(x.to(weight.dtype), weight)

    def first_of(self, ones: NDArray[np.int64], nodes: int) -> Tensor:
        """The same for binary features, from the ascending numbers ``node * d + column`` of those that are 1."""
        weight = cast(nn.Linear, self.convolutions[0]).weight
        starts, columns = np.searchsorted(ones, np.arange(nodes) * weight.shape[1]), ones % weight.shape[1]
        bags = torch.from_numpy(columns), weight.T.contiguous(), torch.from_numpy(starts)
        return nn.functional.embedding_bag(*bags, mode="sum")

    def on_first(self, first: NDArray[Any], starts: NDArray[np.int64], neighbours: NDArray[Any]) -> NDArray[Any]:
        """As :meth:`forward`, without gradients, from ``X W_0`` and the lists of all nodes' neighbours, one after the other."""
        entries = np.ones(len(neighbours), dtype=first.dtype)
        matrix = csr_array((entries, neighbours, starts), shape=(len(first), len(first)))
        scale = (1 / np.sqrt(np.diff(starts) + 1)).astype(first.dtype)[:, None]
        hidden = first
        for number, linear in enumerate(cast(list[nn.Linear], self.convolutions)):
            if number:
                hidden = np.maximum(hidden, 0, out=hidden) @ linear.weight.detach().numpy().T
            hidden = hidden * scale
            hidden += matrix @ hidden
            hidden *= scale
            hidden += linear.bias.detach().numpy()
        return hidden
