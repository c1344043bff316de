"""Graph data sets: the paper's eight topologies, the TU collection, a folder of your own, and citation networks; and how to split
them."""

from flipproof.datasets.dataset import Attribute, Dataset
from flipproof.datasets.folder import folder
from flipproof.datasets.node_task import NodeSplit, NodeTask, citation, split_nodes
from flipproof.datasets.splits import Split, folds, isomorphic_to_any, split
from flipproof.datasets.topologies import topologies
from flipproof.datasets.tu import tu

__all__ = [
    "Attribute",
    "Dataset",
    "NodeSplit",
    "NodeTask",
    "Split",
    "citation",
    "folder",
    "folds",
    "isomorphic_to_any",
    "split",
    "split_nodes",
    "topologies",
    "tu",
]
