"""The nodes of many graphs as one union, and what their edges say of them: degrees, triangles, PageRank, distances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import shortest_path

from flipproof.graphs import Graph

__all__ = ["COUNTS", "Floats", "Ints", "Nodes", "structure"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

COUNTS = ("the degree", "the number of triangles", "the clustering coefficient", "the core number")
"""Quantities with few values. A finer one, such as PageRank, tells surroundings apart, and atom types nearly follow from them."""

_FAR = 500  # nodes of a graph up to which distances are computed,
_BETWEEN = 100  # and betweenness
_PAIRS = 2**17  # node pairs of which distances are computed, beyond the first graph
_TRIPLES = 2**17  # of nodes, looked at together
_VALENCE = 6  # degrees of atoms; graphs with larger ones are no molecules
_EVIDENCE = float(np.log(1e6))


class Nodes:
    """The nodes of all graphs as one union: their columns, and their edges."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self.graphs = graphs
        self.sizes = np.array([graph.num_nodes for graph in graphs])
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.owner = np.repeat(np.arange(len(graphs)), self.sizes)
        features = [graph.node_features for graph in graphs if graph.node_features is not None]
        self.columns: Floats = np.concatenate(features).astype(np.float64).T
        self.degrees: Ints = np.concatenate([graph.degrees for graph in graphs])
        self.varying = np.flatnonzero(self.differ(self.columns).any(axis=1))
        """Columns that differ between nodes of one graph."""

    def __len__(self) -> int:
        return len(self.owner)

    def fewer(self, graphs: int) -> bool:
        """Whether these could be fewer molecules than so many, in which an atom type follows the valence by accident."""
        return len(self.sizes) < graphs and int(self.degrees.max()) <= _VALENCE

    def in_fewer(self, codes: Ints, graphs: int) -> bool:
        """Whether these could be molecules of which fewer than so many hold the rarer of a column's two values."""
        rarer = codes == np.bincount(codes, minlength=2).argmin()
        return len(np.unique(self.owner[rarer])) < graphs and int(self.degrees.max()) <= _VALENCE

    def sums(self, values: Floats) -> Floats:
        """Sums over every graph, ``[..., graphs]``."""
        return np.add.reduceat(values, self.starts, axis=-1)

    def differ(self, values: Floats) -> NDArray[np.bool_]:
        """Whether the values of a graph's nodes differ, ``[..., graphs]``; nodes without an edge are passed over."""
        joined = self.degrees > 0
        most = np.maximum.reduceat(np.where(joined, values, -np.inf), self.starts, axis=-1)
        least = np.minimum.reduceat(np.where(joined, values, np.inf), self.starts, axis=-1)
        return np.asarray(most - least > 1e-6 * (np.abs(values).max(axis=-1, keepdims=True) + 1e-300))

    def differ_over_edges(self, codes: Ints) -> NDArray[np.bool_]:
        """Whether an edge of the graph joins two different values, ``[graphs]``."""
        one, other = self.adjacency.nonzero()
        return np.bincount(self.owner[one], codes[one] != codes[other], minlength=len(self.sizes)) > 0

    def standardised(self, values: Floats) -> Floats:
        """Mean 0 and length 1 in every graph in which the values differ, 0 elsewhere."""
        centred = values - (self.sums(values) / self.sizes)[..., self.owner]
        length = np.sqrt(self.sums(centred**2))
        same = length < 1e-6 * np.sqrt(self.sums(values**2)) + 1e-300
        length = np.where(same, np.inf, length)
        scaled: Floats = centred / length[..., self.owner]
        return scaled

    @cached_property
    def adjacency(self) -> Any:
        """Of the union, sparse."""
        edges = np.concatenate([graph.edges + start for graph, start in zip(self.graphs, self.starts, strict=True)])
        rows, columns = np.concatenate([edges, edges[:, ::-1]]).T
        return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(self), len(self)))

    @cached_property
    def walk(self) -> Any:
        """One step to a random neighbour."""
        return sparse.diags_array(1 / np.maximum(self.degrees, 1)) @ self.adjacency

    def threshold(self, tried: int) -> float:
        """The evidence that is needed when each column is compared with so many things."""
        return _EVIDENCE + float(np.log(max(1, len(self.varying)) * tried))


def structure(nodes: Nodes) -> Iterator[tuple[str, Floats]]:
    """Named quantities of every node; NaN where one would take too long."""
    adjacency, walk = nodes.adjacency, nodes.walk
    degrees = nodes.degrees.astype(np.float64)
    yield "the degree", degrees
    two = adjacency @ adjacency
    triangles = np.asarray(two.multiply(adjacency).sum(axis=1)).ravel() / 2
    yield "the number of triangles", triangles
    yield "the clustering coefficient", triangles / np.maximum(1, degrees * (degrees - 1) / 2)
    yield "the core number", _core_numbers(adjacency, degrees)
    yield "the PageRank", _page_rank(nodes)
    yield "the neighbours' degrees, summed", adjacency @ degrees
    yield "the neighbours' mean degree", walk @ degrees
    steps = walk @ walk
    yield "a random walk's return probability in 2 steps", steps.diagonal()
    yield "a random walk's return probability in 3 steps", np.asarray(steps.multiply(walk.T).sum(axis=1)).ravel()
    yield "a random walk's return probability in 4 steps", np.asarray(steps.multiply(steps.T).sum(axis=1)).ravel()
    yield "the number of nodes within two steps", np.diff(two.indptr).astype(np.float64)
    far = np.full((3, len(nodes)), np.nan)
    pairs, alike = 0, dict[int, list[tuple[int, Floats]]]()
    for graph, start in zip(nodes.graphs, nodes.starts.tolist(), strict=True):
        if graph.num_nodes <= _FAR and pairs < _PAIRS:
            pairs += graph.num_nodes**2
            alike.setdefault(graph.num_nodes, []).append((start, graph.adjacency().astype(np.float64)))
    for size, members in alike.items():
        number = max(1, _TRIPLES // size**3)
        for first in range(0, len(members), number):
            starts, matrices = zip(*members[first : first + number], strict=True)
            far[:, np.array(starts)[:, None] + np.arange(size)] = _distances(np.stack(matrices))
    yield from zip(("the eccentricity", "the closeness", "the betweenness"), far, strict=True)


def _core_numbers(adjacency: Any, degrees: Floats) -> Floats:
    core = np.zeros(len(degrees))
    left = np.ones(len(degrees), dtype=np.bool_)
    for level in range(1, int(degrees.max()) + 1):
        while True:  # peel off what has fewer neighbours left
            kept = left & (adjacency @ left.astype(np.float64) >= level)
            if (kept == left).all():
                break
            left = kept
        if not left.any():
            break
        core[left] = level
    return core


def _page_rank(nodes: Nodes) -> Floats:
    share = 1 / nodes.sizes[nodes.owner]
    back, idle = nodes.walk.T.tocsr(), nodes.degrees == 0
    rank = share
    for _ in range(100):
        lost = nodes.sums(np.where(idle, rank, 0.0))[nodes.owner]
        rank = 0.85 * (back @ rank + lost * share) + 0.15 * share
    return rank


def _shortest_paths(matrices: Floats) -> tuple[Floats, Floats]:
    """Length and number of the shortest paths from each node to each, ``[g, n, n]``; infinite and 0 where there is none."""
    walks = np.broadcast_to(np.eye(matrices.shape[1]), matrices.shape)
    paths, distance = walks.copy(), np.where(walks > 0, 0.0, np.inf)
    for length in range(1, matrices.shape[1]):
        walks = walks @ matrices
        new = (walks > 0) & (paths == 0)
        if not new.any():
            break
        np.copyto(distance, length, where=new)
        np.copyto(paths, walks, where=new)
    return distance, paths


def _distances(matrices: Floats) -> Floats:
    """Eccentricity, closeness and betweenness of graphs of equal size, ``[3, g, n]``; of a graph in parts, within the parts."""
    size = matrices.shape[1]
    if size > _BETWEEN:
        distance = np.stack([shortest_path(matrix, unweighted=True, directed=False) for matrix in matrices])
    else:
        distance, paths = _shortest_paths(matrices)
    near = np.isfinite(distance)
    reached = np.where(near, distance, 0)
    sums, others = reached.sum(axis=2), near.sum(axis=2) - 1
    closeness = np.divide(others**2, sums * max(1, size - 1), out=np.zeros(sums.shape), where=sums > 0)
    if size > _BETWEEN:
        return np.stack([reached.max(axis=2), closeness, np.full(sums.shape, np.nan)])
    # [from, via, to]; where there is no path, there is none from or none to the node between
    between = distance[:, :, :, None] + distance[:, None] == distance[:, :, None]
    shares = np.where(between, 1 / np.maximum(1, paths)[:, :, None], 0)
    through = np.einsum("gsv,gsvt,gvt->gv", paths, shares, paths)
    # paths that begin or end at the node itself are taken off again
    return np.stack([reached.max(axis=2), closeness, through - 2 * others - 1])
