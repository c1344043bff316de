"""Random graphs for property tests, and a model without structure."""

import itertools

from hypothesis import strategies as st

from flipproof import Graph


def parity(graphs: list[Graph]) -> list[int]:
    """A black box: whether the number of edges is odd."""
    return [graph.num_edges % 2 for graph in graphs]


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 8, frozen: bool = False) -> Graph:
    """Small graphs; with ``frozen``, some pairs are frozen, edges among them."""
    n = draw(st.integers(1, max_nodes))
    pairs = list(itertools.combinations(range(n), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    kept = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs and frozen else []
    return Graph(n, chosen, frozen=kept)
