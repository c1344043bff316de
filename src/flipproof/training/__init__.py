"""Training graph classifiers the way a defence will ask them: on clean graphs, under noise, or on hashed sub-graphs."""

from flipproof.training.checkpoints import finished_epochs
from flipproof.training.loop import train
from flipproof.training.result import Epoch, TrainingResult

__all__ = ["Epoch", "TrainingResult", "finished_epochs", "train"]
