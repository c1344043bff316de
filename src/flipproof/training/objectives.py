"""What a training asks for: losses of the answers on the copies of a graph, and flips to train against.

An objective maps logits ``[copies, B, C]`` and labels ``[B]`` to a loss, by way of a cross-entropy that already has the class
weights and the label smoothing. A new objective is one entry in :data:`OBJECTIVES`.

Training against flips takes the worst of several variants of every graph: the graph itself, and others with ``k`` pairs flipped.
Where the model can be differentiated by its matrix, the first of these flips the ``k`` pairs along which the loss rises most
steeply, the next one the ``k`` pairs after these, and so on. Every fourth flips random pairs, by turns edges only and any pairs:
a gradient may mislead, and random pairs of a sparse graph are hardly ever edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from flipproof.checks import checked_count
from flipproof.training.batches import Draws

CrossEntropy = Callable[..., Tensor]
"""The mean loss of logits ``[K, C]`` against labels ``[K]``; with ``reduction="none"`` the loss of each."""

_TEMPERATURE = 0.2  # of the majority: how sharply the largest share counts
_SMALLEST_SHARE = 1e-3
_RANDOM = 4  # every fourth variant with flips is random


@dataclass(frozen=True)
class Objective:
    """An entry of the registry.

    Attributes:
        loss: The loss of logits ``[copies, B, C]`` and labels ``[B]``.
        needs_noise: Whether it makes sense only for several noisy copies.
        attacked: Whether the graph is first flipped where this hurts the answer averaged over its copies most.
    """

    loss: Callable[[Tensor, Tensor, CrossEntropy], Tensor]
    needs_noise: bool = False
    attacked: bool = False


def _samples(logits: Tensor, labels: Tensor, cross_entropy: CrossEntropy) -> Tensor:
    """Every copy by itself."""
    return cross_entropy(logits.flatten(0, 1), labels.repeat(len(logits)))


def _majority(logits: Tensor, labels: Tensor, cross_entropy: CrossEntropy) -> Tensor:
    """The answer averaged over the copies of a graph."""
    evidence = (logits.softmax(dim=2).mean(dim=0) + _SMALLEST_SHARE).log()
    # the second term goes on raising the share of votes where the majority is right already
    return _TEMPERATURE * cross_entropy(evidence / _TEMPERATURE, labels) + cross_entropy(evidence, labels)


def _wrong_votes(logits: Tensor, labels: Tensor, cross_entropy: CrossEntropy) -> Tensor:
    """The probability of a wrong answer on every copy. Bounded: a graph that cannot be held does not govern the training."""
    losses: Tensor = cross_entropy(logits.flatten(0, 1), labels.repeat(len(logits)), reduction="none")
    return -torch.expm1(-losses).mean()


OBJECTIVES = {
    "samples": Objective(_samples),
    "majority": Objective(_majority, needs_noise=True),
    "attacked": Objective(_samples, needs_noise=True, attacked=True),
    "attacked-votes": Objective(_wrong_votes, needs_noise=True, attacked=True),
}


def averaged_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The loss of the answer averaged over the copies of each graph, ``[B]``, for logits ``[copies, B, C]``."""
    averaged = logits.softmax(dim=2).mean(dim=0)
    return -averaged.gather(1, labels[:, None])[:, 0].clamp_min(_SMALLEST_SHARE).log()


def disagreement(logits: Tensor) -> Tensor:
    """The mean divergence ``KL(mean answer || answer)`` over the copies of each graph, for logits ``[copies, B, C]``."""
    answers = logits.log_softmax(dim=2)
    mean = answers.exp().mean(dim=0)
    return (mean * (mean.clamp_min(1e-12).log() - answers)).sum(dim=2).mean()


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
        for field, name, least in (("count", "flips", 1), ("worst_of", "worst_of", 2)):
            value = checked_count(getattr(self, field), name, least, f"for instance {least}")
            object.__setattr__(self, field, value)

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


def flip_counted(adjacency: Tensor, scores: Tensor, room: Tensor, counts: Tensor) -> Tensor:
    """As :func:`flip_highest`, with a number of flips ``[K]`` for each matrix."""
    flipped = adjacency
    for count in range(1, int(counts.max()) + 1):
        chosen = (counts >= count).view(-1, 1, 1)
        flipped = torch.where(chosen, flip_highest(adjacency, scores, room, count), flipped)
    return flipped


def attack_counts(draws: Draws, size: int, most: int) -> Tensor:
    """Random numbers of flips from 0 to ``most``, ``[size]``."""
    return torch.from_numpy((draws("attack", (size,)).astype("int64") * (most + 1)) >> 32)


def exclusive_or(graphs: Tensor, noise: Tensor) -> Tensor:
    """The 0/1 matrices with the entries of ``noise`` flipped; differentiable."""
    return graphs + noise - 2 * graphs * noise


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
