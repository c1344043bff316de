"""Losses: what the answers on the copies of a graph should be like.

An objective maps logits ``[copies, B, C]`` and labels ``[B]`` to a loss, by way of a cross-entropy that already has the class
weights and the label smoothing. A new objective is one entry in :data:`OBJECTIVES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["OBJECTIVES", "Objective", "averaged_loss", "disagreement"]

CrossEntropy = Callable[..., Tensor]
"""The mean loss of logits ``[K, C]`` against labels ``[K]``; with ``reduction="none"`` the loss of each."""

_TEMPERATURE = 0.2  # of the majority: how sharply the largest share counts
_SMALLEST_SHARE = 1e-3


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
