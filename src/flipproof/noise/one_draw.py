"""One noisy version of a graph, for a user's own loop: from the one sampler, apart from all that certificates see."""

from __future__ import annotations

from typing import Any

from flipproof.checks import checked_seed
from flipproof.errors import InputError
from flipproof.graphs import Graph, as_graph, pairs_of_slots, unchecked_graph
from flipproof.graphs.canonical import canonical_pairs
from flipproof.graphs.conversions import pyg_edge_fields, pyg_pairs, pyg_with_edges
from flipproof.noise.draws import key_of
from flipproof.noise.law import EdgeNoise
from flipproof.noise.stream import SampleStream

__all__ = ["noisy_version"]


def noisy_version(graph: Any, noise: EdgeNoise, *, seed: int | str | None, edge_features: bool = False) -> Any:
    """The graph after one draw of the noise: a PyG ``Data`` for a ``Data``, else a :class:`Graph`.

    Every flip has exactly its probability, a multiple of ``2**-32``, as in the samples of a certificate. The seed is hashed
    under a purpose of its own: a model may be trained on these draws and certified with the same seed.

    Args:
        graph: In any form that the library accepts.
        noise: The law.
        seed: ``None`` for a fresh one; a text is taken as it is.
        edge_features: Whether the caller makes ``edge_attr`` anew; all other fields with an entry per edge are refused.
    """
    identity = seed if isinstance(seed, str) else str(checked_seed(seed))
    own_seed = int.from_bytes(key_of(f"flipproof one draw {identity}".encode())[:8], "little") >> 1
    if not hasattr(graph, "edge_index") or isinstance(graph, Graph):
        given = as_graph(graph)
        flips = SampleStream(given, noise, seed=own_seed).flip_lists(0, 1).slot
        # labels would tell edges that were there from those that the noise added
        return given.flipped(pairs_of_slots(flips, given.num_nodes))
    left = [field for field in pyg_edge_fields(graph) if not (edge_features and field == "edge_attr")]
    if left:
        raise InputError(
            f"{left[0]} has an entry per edge, and an edge that the noise adds has none (EdgeFlip(noise, "
            'edge_features=function) makes edge_attr from the two end nodes, edge_features="drop" leaves such fields out; a '
            "field of the whole graph has a first dimension of 1)"
        )
    num_nodes, pairs = pyg_pairs(graph)
    bare = unchecked_graph(num_nodes, canonical_pairs(pairs, num_nodes, "edge_index"), None)
    drawn, _ = SampleStream(bare, noise, seed=own_seed).batch(0, 1)
    return pyg_with_edges(graph, drawn.edge_index()[0])
