"""Training graph classifiers for the defence that will use them: under noise, on hashed sub-graphs, through a certificate."""

from flipproof.training.loop import Epoch, TrainingResult
from flipproof.training.node_classification import train_nodes
from flipproof.training.trainings import train, train_for, train_voting

__all__ = ["Epoch", "TrainingResult", "train", "train_for", "train_nodes", "train_voting"]
