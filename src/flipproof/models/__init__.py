"""Models that ship with flipproof: small, fast on a CPU, and safe under smoothing.

Every network answers ``forward(x, adj, mask)`` for dense batches and ``forward_sparse(x, edge_index, batch)`` for large
graphs, with the same weights and the same logits; ``PyGNetwork`` is called as PyG's are. ``NodeStatistics`` is no network: the
line to beat, which sees no edges and answers labels.

Names are loaded when they are first used: whoever only names a model of their own need not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flipproof.models.blinded import EdgeBlind as EdgeBlind
    from flipproof.models.gcn import GCN as GCN
    from flipproof.models.gin import GIN as GIN
    from flipproof.models.loading import NAMES as NAMES
    from flipproof.models.loading import SavedModel as SavedModel
    from flipproof.models.loading import build as build
    from flipproof.models.loading import load as load
    from flipproof.models.loading import load_metadata as load_metadata
    from flipproof.models.loading import save as save
    from flipproof.models.local_network import Local as Local
    from flipproof.models.network import GraphNetwork as GraphNetwork
    from flipproof.models.network import PyGNetwork as PyGNetwork
    from flipproof.models.node_statistics import NodeFit as NodeFit
    from flipproof.models.node_statistics import NodeStatistics as NodeStatistics

_HOMES = {
    "EdgeBlind": "blinded",
    "GCN": "gcn",
    "GIN": "gin",
    "Local": "local_network",
    "GraphNetwork": "network",
    "PyGNetwork": "network",
    **dict.fromkeys(("NodeFit", "NodeStatistics"), "node_statistics"),
    **dict.fromkeys(("NAMES", "SavedModel", "build", "load", "load_metadata", "save"), "loading"),
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'flipproof.models' has no attribute {name!r}")
    value = getattr(import_module(f"flipproof.models.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
