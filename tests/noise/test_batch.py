"""Every form of a batch holds the same graphs, and tells nothing of the clean one."""

from __future__ import annotations

import itertools

import networkx
import numpy as np

from flipproof import EdgeNoise, Graph
from support.streams import cases, forced_sparse, stream


def slow_graphs(graph: Graph, flips: np.ndarray) -> list[networkx.Graph]:
    """The noisy graphs, one flip after the other."""
    pairs = list(itertools.combinations(range(graph.num_nodes), 2))
    frozen = {tuple(pair) for pair in graph.frozen.tolist()}
    free = [pair for pair in pairs if pair not in frozen]
    noisy = []
    for row in flips:
        one = graph.to_networkx()
        for pair, flip in zip(free, row, strict=True):
            if flip:
                one.remove_edge(*pair) if one.has_edge(*pair) else one.add_edge(*pair)
        noisy.append(one)
    return noisy


@cases
def test_batches_agree_with_a_slow_reconstruction(graph: Graph, noise: EdgeNoise) -> None:
    n, size = graph.num_nodes, 12
    features = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    source = stream(graph.replaced(node_features=features, label=1, name="secret"), noise)
    slow = slow_graphs(graph, source.flips(3, 3 + size))
    batch, _ = source.batch(3, 3 + size)
    assert (batch.size, batch.num_nodes) == (size, n)
    dense = np.stack([networkx.to_numpy_array(one, nodelist=range(n), dtype=np.float32) for one in slow])
    assert batch.adjacency().dtype == np.float32
    assert np.array_equal(batch.adjacency(), dense)
    assert np.array_equal(batch.degrees(), dense.sum(axis=2))
    index, membership = batch.edge_index()
    arcs = [(u + k * n, v + k * n) for k, one in enumerate(slow) for u, v in sorted(one.to_directed().edges)]
    assert index.dtype == np.int64
    assert index.T.tolist() == [list(arc) for arc in arcs]
    assert membership.tolist() == np.repeat(np.arange(size), n).tolist()
    lists = batch.edge_lists()
    assert (np.diff(lists.sample * n * n + lists.slot) > 0).all()
    for one, noisy in zip(slow, batch.graphs(), strict=True):
        checked = Graph(n, list(one.edges), features)
        assert noisy == checked
        assert noisy.edges.tolist() == checked.edges.tolist()
        assert (noisy.edges.dtype, noisy.edges.flags.writeable) == (np.int64, False)
        assert noisy.node_features is None or not noisy.node_features.flags.writeable
        assert noisy.label is None
        assert noisy.name is None
        assert len(noisy.frozen) == 0


def test_order_of_edges_does_not_tell_the_clean_graph() -> None:
    """The same noisy graph reached from different clean graphs gives the same bytes."""
    seen: dict[bytes, set[tuple[bytes, bytes, bytes]]] = {}
    origins: dict[bytes, set[str]] = {}
    for clean in (Graph(4, []), Graph(4, [(2, 3)]), Graph(4, [(0, 1), (1, 2), (0, 3)], frozen=[(0, 3), (1, 3)])):
        for source in (stream(clean, EdgeNoise(keep=0.7)), forced_sparse(clean, EdgeNoise(keep=0.7))):
            for index in range(200):
                batch, _ = source.batch(index, index + 1)
                (only,) = batch.graphs()
                arcs = batch.edge_index()[0]
                key = only.edges.tobytes()
                views = (arcs.tobytes(), batch.adjacency().tobytes(), only.edges.tobytes())
                seen.setdefault(key, set()).add(views)
                origins.setdefault(key, set()).add(clean.topology)
    assert all(len(views) == 1 for views in seen.values())
    assert sum(len(origin) > 1 for origin in origins.values()) > 20, "the test has something to compare"
