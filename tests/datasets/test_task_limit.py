"""The limit of a task is never below what some classifier reaches: distances are upper bounds, and so is the count."""

from __future__ import annotations

import itertools

import numpy as np

from flipproof.datasets.task_limit import distances, most_certified
from flipproof.graphs import Graph


def random_graph(generator: np.random.Generator, n: int, kinds: int) -> Graph:
    upper = np.triu(generator.random((n, n)) < generator.random(), 1)
    return Graph(n, np.argwhere(upper), np.eye(kinds)[generator.integers(0, kinds, n)])


def exact(first: Graph, second: Graph) -> int | None:
    """The fewest flips over all matchings of nodes that keep their features."""
    a, b = (graph.adjacency().astype(np.int64) for graph in (first, second))
    found = [
        int(np.triu(a ^ b[np.ix_(order, order)], 1).sum())
        for order in map(list, itertools.permutations(range(first.num_nodes)))
        if (first.node_features == second.node_features[order]).all()
    ]
    return min(found, default=None)


def test_distances_are_upper_bounds_and_mostly_exact() -> None:
    generator = np.random.default_rng(0)
    graphs = [random_graph(generator, 5, 1 + index % 2) for index in range(40)]
    labels = [index % 3 for index in range(40)]
    found = distances(graphs, labels, most=20)
    same = [
        (i, j)
        for i, j in itertools.combinations(range(40), 2)
        if labels[i] != labels[j] and graphs[i].node_features.shape == graphs[j].node_features.shape
    ]
    hits = 0
    for pair in same:
        truth = exact(graphs[pair[0]], graphs[pair[1]])
        assert (pair in found) == (truth is not None)
        if truth is not None:
            assert found[pair] >= truth
            hits += found[pair] == truth
    assert hits > 0.9 * len(found) > 20


def test_the_count_is_that_of_the_largest_independent_set() -> None:
    generator = np.random.default_rng(1)
    for _ in range(20):
        apart = {
            pair: int(generator.integers(0, 9))
            for pair in itertools.combinations(range(8), 2)
            if generator.random() < 0.4
        }
        for radius in (0, 1, 3):
            conflicts = [pair for pair, flips in apart.items() if flips <= 2 * radius]
            largest = max(
                len(kept)
                for size in range(9)
                for kept in itertools.combinations(range(8), size)
                if not any(a in kept and b in kept for a, b in conflicts)
            )
            assert most_certified(apart, 8, [radius]) == [largest]
