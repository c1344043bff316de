"""Training against flips: several variants of every graph of a step, of which the model is trained on the worst.

The first variant is the graph itself. Each of the others has ``k`` pairs flipped, of those that an attacker could flip. Where the
model can be differentiated by its matrix, the second variant flips the ``k`` pairs along which the loss rises most steeply, the
next one the ``k`` pairs after these, and so on. Every fourth of them flips random pairs, by turns edges only and any pairs: a
gradient may mislead, and random pairs of a sparse graph are hardly ever edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from flipproof.errors import InputError
from flipproof.training.views import Draws

__all__ = ["Flips", "flip_highest"]

_RANDOM = 4  # every fourth variant with flips


@dataclass(frozen=True)
class Flips:
    """How many pairs are flipped, and of how many variants the worst is taken.

    Args:
        count: Pairs that each variant flips, ``k``.
        worst_of: Number of variants, the graph itself included.
    """

    count: int
    worst_of: int = 4

    def __post_init__(self) -> None:
        for name, value, least in (("flips", self.count, 1), ("worst_of", self.worst_of, 2)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"{name} must be an integer of at least {least}; got {value!r} (for instance {least})")

    def variants(self, adjacency: Tensor, room: Tensor, draws: Draws, slopes: Tensor | None) -> Iterator[Tensor]:
        """The variants with flips one after the other, float32 ``[K, n, n]`` each; the graph itself is not among them.

        Args:
            adjacency: Symmetric 0/1 matrices, float32 ``[K, n, n]``.
            room: Pairs that may be flipped, symmetric bool ``[K, n, n]``.
            draws: Randomness of the step.
            slopes: The gradient of the loss by the matrices, or ``None`` where there is none.
        """
        rise = None if slopes is None else (slopes + slopes.transpose(1, 2)) * (1 - 2 * adjacency)
        left = room
        for number in range(1, self.worst_of):
            if rise is not None and number % _RANDOM:
                steepest = flip_highest(adjacency, rise, left, self.count)
                left = left & (steepest == adjacency)
                yield steepest
                continue
            turn = number if rise is None else number // _RANDOM
            random = torch.from_numpy(draws(f"flips {number}", tuple(adjacency.shape)).astype("float64"))
            yield flip_highest(adjacency, random, room & (adjacency > 0) if turn % 2 else room, self.count)


def flip_highest(adjacency: Tensor, scores: Tensor, room: Tensor, count: int) -> Tensor:
    """The matrices with the ``count`` pairs of the highest score flipped, of those that there is room for.

    >>> empty = torch.zeros(1, 3, 3)
    >>> flip_highest(empty, torch.arange(9.0).view(1, 3, 3), torch.ones(1, 3, 3) > 0, 1)[0].nonzero().tolist()
    [[1, 2], [2, 1]]
    """
    n = adjacency.shape[1]
    allowed = scores.masked_fill(~room.triu(1), -torch.inf).flatten(1)
    best, place = allowed.topk(min(count, n * n), dim=1)
    flipped = adjacency.flatten(1).clone()
    for index in (place, place % n * n + place // n):
        before = flipped.gather(1, index)
        flipped.scatter_(1, index, torch.where(best > -torch.inf, 1 - before, before))
    return flipped.view_as(adjacency)
