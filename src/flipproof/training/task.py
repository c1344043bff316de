"""What a loop trains for: the protocol between :mod:`flipproof.training.loop` and a way of training.

The loop owns optimiser, schedule, averaged weights, checkpoints, progress and history. A task owns the members (training
graphs, numbered from 0), how they are drawn into batches, and the losses. Per step, the loop asks for the losses of the
batch's pieces and lets each go backward before it asks for the next, so that only one piece is in memory at a time. All
randomness of a task is a pure function of the seed and of the epoch or step it is asked for: a training that resumes has
nothing to restore but dropout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

__all__ = ["Outcome", "Task"]


@dataclass(frozen=True)
class Outcome:
    """How the model did on some members.

    Attributes:
        loss: Mean loss over the members, to be differentiated in training.
        right: Number of members classified correctly, averaged over the copies of each.
        size: Number of members.
    """

    loss: Tensor
    right: float
    size: int


class Task(Protocol):
    """A way of training; the model is the task's own business."""

    def __len__(self) -> int:
        """Number of members."""

    @property
    def entries(self) -> int:
        """Numbers in the largest batch: whether several threads are worth having."""

    @property
    def settings(self) -> dict[str, Any]:
        """How members are viewed, as plain JSON: stored with the model."""

    def fingerprint(self) -> dict[str, Any]:
        """Hashes of the data and all else that the weights depend on, as plain JSON: stored in the checkpoint."""

    def batches(self, epoch: int) -> Iterator[Tensor]:
        """The members of every batch of an epoch; all members once."""

    def losses(self, members: Tensor, step: int) -> Iterator[Outcome]:
        """The outcome of a step on a batch, piece by piece; the model is in training mode."""

    def validation(self) -> Iterator[Outcome] | None:
        """The outcome on the validation members, the same members in the same guise in every epoch; ``None`` without them.

        The model is in evaluation mode, without gradients.
        """

    def finish(self) -> None:
        """What is left to do once the weights to keep are in the model, in evaluation mode."""
