"""What a training asks for: losses of the answers on the copies of a graph, and flips to train against.

An objective maps logits ``[copies, B, C]`` and labels ``[B]`` to a loss, by way of a cross-entropy that already has the class
weights. All but ``samples`` need several noisy copies of every graph.

Training against ``k`` flips takes the worst of four variants of every graph: the graph itself, and others with ``k`` pairs
flipped. Where the model can be differentiated by its matrix, the first of these flips the ``k`` pairs along which the loss rises
most steeply, the next one the ``k`` pairs after these, and so on. Otherwise pairs are random, by turns edges only and any pairs:
random pairs of a sparse graph are hardly ever edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from flipproof.training.batches import Draws

CrossEntropy = Callable[..., Tensor]
"""The mean loss of logits ``[K, C]`` against labels ``[K]``; with ``reduction="none"`` the loss of each."""

_TEMPERATURE = 0.2  # of the majority: how sharply the largest share counts
_SMALLEST_SHARE = 1e-3
VARIANTS = 3  # with flips, of which training takes the worst


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


OBJECTIVES = {"samples": _samples, "majority": _majority, "attacked": _samples, "attacked-votes": _wrong_votes}
ATTACKED = ("attacked", "attacked-votes")
"""Objectives for which the graph is first flipped where this hurts the answer averaged over its copies most."""


def averaged_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The loss of the answer averaged over the copies of each graph, ``[B]``, for logits ``[copies, B, C]``."""
    averaged = logits.softmax(dim=2).mean(dim=0)
    return -averaged.gather(1, labels[:, None])[:, 0].clamp_min(_SMALLEST_SHARE).log()


def variants(adjacency: Tensor, room: Tensor, draws: Draws, slopes: Tensor | None, flips: int) -> Iterator[Tensor]:
    """Variants of the matrices ``[K, n, n]`` with so many flips of pairs that there is room for, one after the other.

    ``slopes`` is the gradient of the loss by the matrices, or ``None`` where there is none.
    """
    for number in range(1, VARIANTS + 1):
        if slopes is None:
            random = torch.from_numpy(draws(f"flips {number}", tuple(adjacency.shape)).astype("float64"))
            yield flip_highest(adjacency, random, room & (adjacency > 0) if number % 2 else room, flips)
        else:
            steepest = flip_highest(adjacency, rises(slopes, adjacency), room, flips)
            room = room & (steepest == adjacency)
            yield steepest


@dataclass(frozen=True, eq=False)
class Attack:
    """An attack on graphs ``[B, n, n]`` themselves, with a number of flips for each ``[B]``, under noise ``[copies, B, n, n]``
    that stays: a flipped pair is flipped in every noisy copy."""

    graphs: Tensor
    noise: Tensor
    room: Tensor
    counts: Tensor

    @classmethod
    def drawn(cls, graphs: Tensor, copies: Tensor, room: Tensor, draws: Draws, most: int) -> Attack:
        """With random numbers of flips from 0 to ``most``, for noisy copies ``[copies * B, n, n]``."""
        noise = (copies.view(-1, *graphs.shape) - graphs).abs()
        counts = (draws("attack", (len(graphs),)).astype("int64") * (most + 1)) >> 32
        return cls(graphs, noise, room, torch.from_numpy(counts))

    def noisy(self, graphs: Tensor) -> Tensor:
        """Their copies, ``[..., copies * B, n, n]``; differentiable by the graphs ``[..., B, n, n]``."""
        graphs = graphs.unsqueeze(-4)
        return (graphs + self.noise - 2 * graphs * self.noise).flatten(-4, -3)

    def along(self, scores: Tensor) -> Tensor:
        """The copies of the graphs whose pairs of the highest scores ``[..., B, n, n]`` are flipped."""
        flipped = self.graphs.expand_as(scores)
        for count in range(1, int(self.counts.max()) + 1):
            chosen = (self.counts >= count).view(-1, 1, 1)
            flipped = torch.where(chosen, flip_highest(self.graphs, scores, self.room, count), flipped)
        return self.noisy(flipped)


def rises(slopes: Tensor, adjacency: Tensor) -> Tensor:
    """How steeply a loss rises along the flip of each pair, from its gradient by the matrices."""
    return (slopes + slopes.mT) * (1 - 2 * adjacency)


def flip_highest(adjacency: Tensor, scores: Tensor, room: Tensor, count: int) -> Tensor:
    """The matrices ``[K, n, n]`` with the ``count`` pairs of the highest score flipped, of those that there is room for; for
    scores ``[..., K, n, n]`` as many versions of them.

    >>> empty = torch.zeros(1, 3, 3)
    >>> flip_highest(empty, torch.arange(9.0).view(1, 3, 3), torch.ones(1, 3, 3) > 0, 1)[0].nonzero().tolist()
    [[1, 2], [2, 1]]
    """
    n = adjacency.shape[-1]
    allowed = scores.masked_fill(~room.triu(1), -torch.inf).flatten(-2)
    best, place = allowed.topk(min(count, n * n), dim=-1)
    flipped = adjacency.expand_as(scores).flatten(-2).clone()
    for index in (place, place % n * n + place // n):
        before = flipped.gather(-1, index)
        flipped.scatter_(-1, index, torch.where(best > -torch.inf, 1 - before, before))
    return flipped.view_as(scores)
