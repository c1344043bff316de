"""Random graphs for property tests."""

import itertools

from hypothesis import strategies as st

from flipproof import Graph


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 8, frozen: bool = False) -> Graph:
    """Small graphs; with ``frozen``, some pairs are frozen, edges among them."""
    n = draw(st.integers(1, max_nodes))
    pairs = list(itertools.combinations(range(n), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    kept = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs and frozen else []
    return Graph(n, chosen, frozen=kept)
