"""The paper's data: eight kinds of topology, to be told apart by structure alone.

The paper gives 480 graphs in eight classes and neither sizes nor generators. Here a size ``n`` is drawn uniformly for every
graph, and the topology takes the realisation nearest to it:

| class | graph | nodes |
|---|---|---|
| cycle | one ring | n |
| star | one centre, n - 1 leaves | n |
| wheel | a ring of n - 1 nodes and a hub joined to all of them | n |
| lollipop | a clique of m nodes with a path of n - m nodes attached, m uniform from 3 to n - 1 | n |
| hypercube | all corners of a cube | the power of two at or below n |
| grid | rows x columns, as square as possible, at least two rows | n; n - 1 if n is prime |
| complete | all pairs joined | n |
| circular ladder | two rings joined by rungs | n; n - 1 if n is odd |

From 10 to 20 nodes no graph belongs to two classes. (At 8 nodes the circular ladder *is* the cube.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flipproof.checks import checked_count, checked_integer, checked_seed
from flipproof.datasets.dataset import Dataset
from flipproof.graphs import Graph

_MOST = 10_000_000  # graphs
CLASS_NAMES = ("cycle", "star", "wheel", "lollipop", "hypercube", "grid", "complete", "circular ladder")

_SMALLEST = 10  # below, some classes share graphs
_STREAM = 2  # graphs of earlier streams were looked at while the networks were being tuned


def topologies(
    count: int = 480, *, seed: int = 0, min_nodes: int = 10, max_nodes: int = 20, shuffle_nodes: bool = True
) -> Dataset:
    """The paper's data set: equally many graphs of each of eight topologies.

    Graph ``i`` has class ``i % 8`` and depends on seed and ``i`` alone, so a smaller data set is the beginning of a larger
    one.

    Args:
        count: Number of graphs; the paper has 480, 60 per class.
        seed: Makes the sizes, the lollipops' cliques and the order of nodes.
        min_nodes, max_nodes: Smallest size drawn, at least 10, and largest. Hypercubes are smaller: 8 nodes for sizes 10 to 15.
        shuffle_nodes: Number the nodes at random; the generators' order gives the class away to a model that sees node numbers.

    >>> data = topologies(16)
    >>> data.class_names[:3], data.labels[:3].tolist()
    (('cycle', 'star', 'wheel'), [0, 1, 2])
    """
    low = checked_count(min_nodes, "min_nodes", _SMALLEST, "smaller topologies coincide, for instance at 8 nodes")
    high = checked_count(max_nodes, "max_nodes", low, "it must not be below min_nodes")
    seed, graphs = checked_seed(seed), []
    for index in range(checked_integer(count, "count", 1, _MOST, "the paper has 480")):
        label = index % len(CLASS_NAMES)
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, _STREAM, index])))
        size = int(generator.integers(low, high + 1))
        drawn = _realisation(CLASS_NAMES[label], size, generator)
        place = {node: number for number, node in enumerate(sorted(drawn))}
        edges = np.array([(place[u], place[v]) for u, v in drawn.edges])
        if shuffle_nodes:
            edges = generator.permutation(len(drawn))[edges]
        graphs.append(Graph(len(drawn), edges, label=label, name=f"{CLASS_NAMES[label]}-{index}"))
    return Dataset(graphs, class_names=CLASS_NAMES, name="topologies")


def _realisation(name: str, size: int, generator: np.random.Generator) -> Any:
    import networkx as nx

    if name == "lollipop":
        clique = int(generator.integers(3, size))
        return nx.lollipop_graph(clique, size - clique)
    if name == "grid":
        size -= _rows(size) == 1  # the neighbours of a prime are even
        return nx.grid_2d_graph(_rows(size), size // _rows(size))
    return {
        "cycle": nx.cycle_graph,
        "star": lambda nodes: nx.star_graph(nodes - 1),
        "wheel": nx.wheel_graph,
        "hypercube": lambda nodes: nx.hypercube_graph(nodes.bit_length() - 1),
        "complete": nx.complete_graph,
        "circular ladder": lambda nodes: nx.circular_ladder_graph(nodes // 2),
    }[name](size)


def _rows(size: int) -> int:
    return max(rows for rows in range(1, int(size**0.5) + 1) if size % rows == 0)
