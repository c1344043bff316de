"""Training graph classifiers for the defence that will use them: under noise, on hashed sub-graphs, through a certificate.

Names are loaded when they are first used: what the defences need for training can be told without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flipproof.training.loop import Epoch, TrainingResult, finished_epochs
    from flipproof.training.trainings import train, train_certified, train_for, train_voting

__all__ = ["Epoch", "TrainingResult", "finished_epochs", "train", "train_certified", "train_for", "train_voting"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'flipproof.training' has no attribute {name!r}")
    home = "trainings" if name.startswith("train") else "loop"
    return getattr(import_module(f"flipproof.training.{home}"), name)
