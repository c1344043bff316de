"""Models that ship with flipproof: small, fast on a CPU, and safe under smoothing.

Every network answers ``forward(x, adj, mask)`` for dense batches and ``forward_sparse(x, edge_index, batch)`` for large
graphs, with the same weights and the same logits. ``WLSVM`` is no network: a kernel machine that answers labels.
"""

from flipproof.models.diffpool import DiffPool
from flipproof.models.edge_blind import EdgeBlind
from flipproof.models.gat import GAT
from flipproof.models.gcn import GCN
from flipproof.models.gin import GIN
from flipproof.models.network import GraphNetwork
from flipproof.models.sage import GraphSAGE
from flipproof.models.storage import NAMES, SavedModel, build, load, load_metadata, save
from flipproof.models.wl_svm import WLSVM, WLFit

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "NAMES",
    "WLSVM",
    "DiffPool",
    "EdgeBlind",
    "GraphNetwork",
    "GraphSAGE",
    "SavedModel",
    "WLFit",
    "build",
    "load",
    "load_metadata",
    "save",
]
