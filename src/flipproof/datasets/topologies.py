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

from collections.abc import Callable

import numpy as np

from flipproof.checks import checked_count, checked_integer, checked_seed
from flipproof.datasets.dataset import Dataset
from flipproof.graphs import Graph, IntArray

_MOST = 10_000_000  # graphs
CLASS_NAMES = ("cycle", "star", "wheel", "lollipop", "hypercube", "grid", "complete", "circular ladder")

_SMALLEST = 10  # below, some classes share graphs
_STREAM = 2  # graphs of earlier streams were looked at while the networks were being tuned


def topologies(
    count: int = 480,
    *,
    seed: int = 0,
    min_nodes: int = 10,
    max_nodes: int = 20,
    shuffle_nodes: bool = True,
) -> Dataset:
    """The paper's data set: equally many graphs of each of eight topologies.

    Graph ``i`` has class ``i % 8`` and depends on seed and ``i`` alone, so a smaller data set is the beginning of a larger
    one. The module's docstring tells how each topology meets a drawn size.

    Args:
        count: Number of graphs; the paper has 480, 60 a class.
        seed: Makes the sizes, the lollipops' cliques and the order of nodes.
        min_nodes: Smallest size drawn, at least 10. Hypercubes are smaller: 8 nodes for sizes 10 to 15.
        max_nodes: Largest size drawn.
        shuffle_nodes: Number the nodes at random. The generators' own order gives the class away to anything that sees
            node numbers.

    >>> data = topologies(16)
    >>> data.class_names[:3], data.labels[:3].tolist()
    (('cycle', 'star', 'wheel'), [0, 1, 2])
    >>> data == topologies(480)[:16]
    True
    """
    count = checked_integer(count, "count", 1, _MOST, "the paper has 480")
    low = checked_count(min_nodes, "min_nodes", _SMALLEST, "smaller topologies coincide, for instance at 8 nodes")
    high = checked_count(max_nodes, "max_nodes", low, "it must not be below min_nodes")
    seed = checked_seed(seed)
    graphs = []
    for index in range(count):
        label = index % len(CLASS_NAMES)
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, _STREAM, index])))
        size = int(generator.integers(low, high + 1))
        num_nodes, edges = _REALISATIONS[label](size, generator)
        if shuffle_nodes:
            edges = generator.permutation(num_nodes)[edges]
        graphs.append(Graph(num_nodes, edges, label=label, name=f"{CLASS_NAMES[label]}-{index}"))
    return Dataset(graphs, class_names=CLASS_NAMES, name="topologies")


# ---- one function per class: (drawn size, generator) -> (number of nodes, edges [E, 2]) -----------------------

Realisation = tuple[int, IntArray]


def _ring(nodes: IntArray) -> IntArray:
    return np.stack([nodes, np.roll(nodes, -1)], axis=1)


def _path(nodes: IntArray) -> IntArray:
    return np.stack([nodes[:-1], nodes[1:]], axis=1)


def _clique(size: int) -> IntArray:
    return np.stack(np.triu_indices(size, 1), axis=1).astype(np.int64)


def _spokes(size: int) -> IntArray:
    leaves = np.arange(1, size)
    return np.stack([np.zeros_like(leaves), leaves], axis=1)


def _cycle(size: int, generator: np.random.Generator) -> Realisation:
    return size, _ring(np.arange(size))


def _star(size: int, generator: np.random.Generator) -> Realisation:
    return size, _spokes(size)


def _wheel(size: int, generator: np.random.Generator) -> Realisation:
    return size, np.concatenate([_spokes(size), _ring(np.arange(1, size))])


def _lollipop(size: int, generator: np.random.Generator) -> Realisation:
    clique = int(generator.integers(3, size))
    return size, np.concatenate([_clique(clique), _path(np.arange(clique - 1, size))])


def _hypercube(size: int, generator: np.random.Generator) -> Realisation:
    dimension = size.bit_length() - 1
    corners = np.arange(2**dimension)
    edges = [np.stack([corners, corners ^ (1 << bit)], axis=1) for bit in range(dimension)]
    return len(corners), np.concatenate(edges)


def _grid(size: int, generator: np.random.Generator) -> Realisation:
    rows = _rows(size)
    if rows == 1:
        size -= 1  # the neighbours of a prime are even
        rows = _rows(size)
    places = np.arange(size).reshape(rows, size // rows)
    return size, np.concatenate([*map(_path, places), *map(_path, places.T)])


def _rows(size: int) -> int:
    return max(rows for rows in range(1, int(size**0.5) + 1) if size % rows == 0)


def _complete(size: int, generator: np.random.Generator) -> Realisation:
    return size, _clique(size)


def _circular_ladder(size: int, generator: np.random.Generator) -> Realisation:
    rungs = size // 2
    inner, outer = np.arange(rungs), np.arange(rungs, 2 * rungs)
    return 2 * rungs, np.concatenate([_ring(inner), _ring(outer), np.stack([inner, outer], axis=1)])


_REALISATIONS: tuple[Callable[[int, np.random.Generator], Realisation], ...] = (
    _cycle,
    _star,
    _wheel,
    _lollipop,
    _hypercube,
    _grid,
    _complete,
    _circular_ladder,
)
