"""Training graph classifiers for the defence that will use them: under noise, on hashed sub-graphs, through a certificate.

Names are loaded when they are first used: what the defences need for training can be told without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flipproof.training.loop import Epoch as Epoch
    from flipproof.training.loop import TrainingResult as TrainingResult
    from flipproof.training.loop import finished_epochs as finished_epochs
    from flipproof.training.trainings import train as train
    from flipproof.training.trainings import train_certified as train_certified
    from flipproof.training.trainings import train_for as train_for
    from flipproof.training.trainings import train_voting as train_voting

_HOMES = {
    **dict.fromkeys(("Epoch", "TrainingResult", "finished_epochs"), "loop"),
    **dict.fromkeys(("train", "train_certified", "train_for", "train_voting"), "trainings"),
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'flipproof.training' has no attribute {name!r}")
    return getattr(import_module(f"flipproof.training.{_HOMES[name]}"), name)
