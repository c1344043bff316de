"""Graph data sets: the paper's eight topologies, the TU collection, a folder of your own; and how to split them."""

from flipproof.datasets.dataset import Attribute, Dataset
from flipproof.datasets.folder import folder
from flipproof.datasets.splits import Split, folds, isomorphic_to_any, split
from flipproof.datasets.topologies import topologies
from flipproof.datasets.tu import tu

__all__ = [
    "Attribute",
    "Dataset",
    "Split",
    "folder",
    "folds",
    "isomorphic_to_any",
    "split",
    "topologies",
    "tu",
]
