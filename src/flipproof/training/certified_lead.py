"""The certified lead in torch: the attack that lowers it most, and the loss of what is left."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["bounded_loss", "worst_choice"]


def bounded_loss(leads: Tensor, bound: float) -> Tensor:
    """Loss of each graph ``[B]`` from its leads over all rivals ``[B, C - 1]``: at most ``1 / bound``; for 0 the cross-entropy.

    >>> bounded_loss(torch.tensor([[50.0, 60.0], [-1000.0, 1.0]]), 0.5).tolist()
    [0.0, 2.0]
    """
    log_share = -torch.logsumexp(torch.cat([torch.zeros_like(leads[:, :1]), -leads], dim=1), dim=1)
    return -log_share if bound == 0 else -torch.expm1(bound * log_share) / bound


def worst_choice(values: Tensor, total: int) -> Tensor:
    """How to hand out a total among nodes so that their values add up to most, ``[Q, n]``.

    Args:
        values: What ``0, 1, ..., k`` bring at each node, ``[Q, n, k + 1]``.
        total: The sum to hand out, at most ``n k``.

    >>> worst_choice(torch.tensor([[[0.0, 5.0, 6.0], [0.0, 4.0, 8.5], [0.0, 1.0, 1.0]]]), 2).tolist()
    [[1, 1, 0]]
    """
    levels = []
    number = 2 ** math.ceil(math.log2(max(2, values.shape[1])))
    padding = values.new_full((len(values), number - values.shape[1], values.shape[2]), -torch.inf)
    padding[..., 0] = 0
    best = torch.cat([values, padding], dim=1)
    while best.shape[1] > 1:
        left, right = best[:, 0::2], best[:, 1::2]
        shares = left.shape[2]
        width = min(total, shares + right.shape[2] - 2) + 1
        # windows[..., s, i] is what is right of a share of `shares - 1 - i` for a total of s
        beyond = (shares - 1, max(0, width - right.shape[2]))
        windows = torch.nn.functional.pad(right, beyond, value=-torch.inf).unfold(2, shares, 1)[:, :, :width]
        best, place = (windows + left.flip(2).unsqueeze(2)).max(dim=3)
        share = shares - 1 - place
        levels.append(share)
    chosen = torch.full((len(values), 1), total)
    for share in reversed(levels):
        left_part = share.gather(2, chosen.unsqueeze(2)).squeeze(2)
        chosen = torch.stack([left_part, chosen - left_part], dim=2).flatten(1)
    return chosen[:, : values.shape[1]]
