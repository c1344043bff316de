r"""The limit of a task: how many graphs of a data set any classifier can certify, whatever it computes.

Two graphs of different classes that are at most ``2 r`` edge flips apart cannot both be certified at radius ``r``: some graph
lies at most ``r`` flips from each, and it would need both answers. A set of graphs that are certified at ``r`` is therefore an
independent set of the graph of such conflicts.

The bound is on the safe side. Distances are upper bounds (any matching of nodes gives one), so every conflict is real; and where
the largest independent set is not found exactly, an upper bound takes its place. It holds for classifiers whose answer does not
depend on the numbering of nodes, which all of flipproof's networks are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linear_sum_assignment, milp
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from flipproof.graphs import Graph

_SPREADS = (0.0, 0.5, 0.5, 3.0)  # randomness of the matchings that are improved, per pair of graphs
_SECONDS = 20.0  # for the exact answer of one component


def distances(graphs: Sequence[Graph], labels: Sequence[int], *, most: int) -> dict[tuple[int, int], int]:
    """Upper bounds on the number of flips between graphs of different classes on the same nodes, where at most ``most``.

    Nodes are matched only with nodes of the same features.
    """
    matrices = [graph.adjacency().astype(np.int64) for graph in graphs]
    kinds = [
        [b""] * graph.num_nodes if graph.node_features is None else [row.tobytes() for row in graph.node_features]
        for graph in graphs
    ]
    groups: dict[Any, list[int]] = {}
    for place, kind in enumerate(kinds):
        groups.setdefault(tuple(sorted(kind)), []).append(place)
    apart: dict[tuple[int, int], int] = {}
    for one, two in (pair for members in groups.values() for pair in combinations(members, 2)):
        if labels[one] != labels[two] and abs(graphs[one].num_edges - graphs[two].num_edges) <= most:
            flips = _distance(matrices[one], matrices[two], kinds[one], kinds[two])
            if flips <= most:
                apart[one, two] = flips
    return apart


def most_certified(apart: dict[tuple[int, int], int], count: int, radii: Iterable[int]) -> list[int]:
    """An upper bound on how many of ``count`` graphs can be right with radius ``r``, for each ``r``.

    >>> most_certified({(0, 1): 2, (1, 2): 6}, 4, [0, 1, 3])
    [4, 3, 3]
    """
    bounds = []
    for radius in radii:
        pairs = np.array([pair for pair, flips in apart.items() if flips <= 2 * radius], dtype=np.int64).reshape(-1, 2)
        bounds.append(count - _fewest_lost(pairs, count))
    return bounds


def _fewest_lost(pairs: NDArray[np.int64], count: int) -> int:
    """A lower bound on the number of graphs that must go until no conflict is left; exact where time allows."""
    if not len(pairs):
        return 0
    matrix = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    _, component = connected_components(matrix, directed=False)
    lost = 0
    for number in np.unique(component[pairs[:, 0]]):
        own = pairs[component[pairs[:, 0]] == number]
        nodes, local = np.unique(own, return_inverse=True)
        rows, ones = np.repeat(np.arange(len(own)), 2), np.ones(len(nodes))
        cover = coo_array((np.ones(2 * len(own)), (rows, local.ravel())), shape=(len(own), len(nodes))).tocsr()
        constraint, limit = LinearConstraint(cover, lb=1), {"time_limit": _SECONDS}
        solved = milp(ones, integrality=ones, bounds=Bounds(0, 1), constraints=constraint, options=limit)
        lost += max(0, int(np.ceil((solved.mip_dual_bound or 0.0) - 1e-6)))
    return lost


def _distance(first: NDArray[Any], second: NDArray[Any], kinds: list[bytes], others: list[bytes]) -> int:
    """The fewest flips that matchings improved by exchanges of two nodes show."""
    size, generator = len(first), np.random.default_rng(0)
    allowed = np.array([[kind == other for other in others] for kind in kinds])
    degrees, other_degrees = first.sum(axis=1), second.sum(axis=1)
    start = np.abs(degrees[:, None] - other_degrees)
    start = start + 0.01 * np.abs((first @ degrees)[:, None] - second @ other_degrees)
    best = size * size
    for spread in _SPREADS:
        cost = start + (spread * generator.random((size, size)) if spread else 0.0)
        match = linear_sum_assignment(np.where(allowed, cost, 1e9))[1]
        best = min(best, _improved(first, second, match, allowed))
        if best == 0:
            break
    return best


def _improved(first: NDArray[Any], second: NDArray[Any], match: NDArray[Any], allowed: NDArray[Any]) -> int:
    signs = 1 - 2 * first  # flips that remain: sum over pairs of first xor matched second
    while True:
        image = second[np.ix_(match, match)]
        # what row u of `first` costs against row v of the image, and what the pair (u, v) itself adds to it
        mixed = first.sum(axis=1)[:, None] + signs @ image
        both, now = mixed - image.T - first, np.diag(mixed) - (first ^ image)
        gain = np.where(allowed[:, match] & allowed[:, match].T, both + both.T - now - now.T, 0)
        place = int(gain.argmin())
        if gain.flat[place] >= 0:
            return int(np.triu(first ^ image, 1).sum())
        u, v = divmod(place, len(match))
        match[[u, v]] = match[[v, u]]
