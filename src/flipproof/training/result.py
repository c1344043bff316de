"""What a training did, epoch by epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Epoch", "TrainingResult"]


@dataclass(frozen=True)
class Epoch:
    """One pass over the training graphs.

    Attributes:
        loss: Mean loss on the training graphs, as the training views them.
        accuracy: Share of these graphs classified correctly while the weights were changing.
        validation_loss, validation_accuracy: The same for the validation graphs; ``None`` without them.
    """

    loss: float
    accuracy: float
    validation_loss: float | None = None
    validation_accuracy: float | None = None


@dataclass(frozen=True)
class TrainingResult:
    """What training did; the trained weights are in the model.

    Attributes:
        history: One :class:`Epoch` per pass.
        best_epoch: Index of the epoch whose weights the model has: the best on validation, else the last.
        seconds: Time taken, earlier sessions included.
        settings: The arguments as plain JSON, to be stored with the model.
    """

    history: tuple[Epoch, ...]
    best_epoch: int
    seconds: float
    settings: dict[str, Any]

    @property
    def epochs(self) -> int:
        """Number of epochs."""
        return len(self.history)

    @property
    def final(self) -> Epoch:
        """The epoch whose weights the model has."""
        return self.history[self.best_epoch]

    def __repr__(self) -> str:
        final = self.final
        shown = f"loss={final.loss:.4f}, accuracy={final.accuracy:.3f}"
        if final.validation_accuracy is not None:
            shown += f", validation_accuracy={final.validation_accuracy:.3f}"
        return (
            f"TrainingResult(epochs={self.epochs}, best_epoch={self.best_epoch}, {shown}, seconds={self.seconds:.1f})"
        )
