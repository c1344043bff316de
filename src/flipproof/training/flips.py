"""Training against flips: several variants of every graph of a step, of which the model is trained on the worst.

A variant has ``k`` pairs flipped, of those that an attacker could flip. The first is the graph itself, the second flips the pairs
along which the loss rises most steeply (where the model can be differentiated by its matrix), and the others flip random pairs,
by turns any pairs and only edges: random pairs of a sparse graph are hardly ever edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from flipproof.errors import InputError
from flipproof.training.views import Draws

__all__ = ["Flips", "flip_highest"]


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

    def variants(
        self, adjacency: Tensor, room: Tensor, draws: Draws, slopes: Callable[[Tensor], Tensor | None]
    ) -> Iterator[Tensor]:
        """The variants one after the other, float32 ``[K, n, n]`` each.

        Args:
            adjacency: Symmetric 0/1 matrices, float32 ``[K, n, n]``.
            room: Pairs that may be flipped, symmetric bool ``[K, n, n]``.
            draws: Randomness of the step.
            slopes: The gradient of the loss by the matrices, or ``None`` where there is none.
        """
        yield adjacency
        steepest = slopes(adjacency)
        for number in range(1, self.worst_of):
            if number == 1 and steepest is not None:
                rise = (steepest + steepest.transpose(1, 2)) * (1 - 2 * adjacency)
                yield flip_highest(adjacency, rise, room, self.count)
                continue
            random = torch.from_numpy(draws(f"flips {number}", tuple(adjacency.shape)).astype("float64"))
            yield flip_highest(adjacency, random, room & (adjacency > 0) if number % 2 else room, self.count)


def flip_highest(adjacency: Tensor, scores: Tensor, room: Tensor, count: int) -> Tensor:
    """The matrices with the ``count`` pairs of the highest score flipped, of those that there is room for.

    >>> empty = torch.zeros(1, 3, 3)
    >>> flip_highest(empty, torch.arange(9.0).view(1, 3, 3), torch.ones(1, 3, 3) > 0, 1)[0].nonzero().tolist()
    [[1, 2], [2, 1]]
    """
    size, n = adjacency.shape[:2]
    u, v = torch.triu_indices(n, n, 1)
    allowed = torch.where(room[:, u, v], scores[:, u, v].to(torch.float64), -torch.inf)
    best, place = allowed.topk(min(count, len(u)), dim=1)
    flat = torch.zeros(size, len(u)).scatter_(1, place, (best > -torch.inf).to(torch.float32))
    change = torch.zeros_like(adjacency)
    change[:, u, v] = flat
    change[:, v, u] = flat
    return (adjacency - change).abs()
