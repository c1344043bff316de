"""Graph data sets: the paper's eight topologies, and how to split them. Imports no torch."""

from flipproof.datasets.dataset import Dataset
from flipproof.datasets.splits import Split, folds, isomorphic_to_any, split
from flipproof.datasets.topologies import topologies, unseen_topologies

__all__ = ["Dataset", "Split", "folds", "isomorphic_to_any", "split", "topologies", "unseen_topologies"]
