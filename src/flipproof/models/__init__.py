"""Models that ship with flipproof: small, fast on a CPU, and safe under smoothing. Names are loaded when they are first used.

Every network has a dense and a sparse way to the same logits; ``PyGNetwork`` is called as PyG's are.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flipproof.models.loading import NAMES, SavedModel, build, from_factory, load, load_metadata, save
    from flipproof.models.local_network import Local
    from flipproof.models.network import GCN, GIN, GraphNetwork, PyGNetwork
    from flipproof.models.node_network import NodeGCN
    from flipproof.models.node_statistics import NodeFit, NodeStatistics

__all__ = [
    "GCN",
    "GIN",
    "NAMES",
    "GraphNetwork",
    "Local",
    "NodeFit",
    "NodeGCN",
    "NodeStatistics",
    "PyGNetwork",
    "SavedModel",
    "build",
    "from_factory",
    "load",
    "load_metadata",
    "save",
]
_HOMES = {
    "Local": "local_network",
    "NodeGCN": "node_network",
    **dict.fromkeys(("GCN", "GIN", "GraphNetwork", "PyGNetwork"), "network"),
    **dict.fromkeys(("NodeFit", "NodeStatistics"), "node_statistics"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'flipproof.models' has no attribute {name!r}")
    return getattr(import_module(f"flipproof.models.{_HOMES.get(name, 'loading')}"), name)
