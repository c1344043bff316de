"""Attacks of so many additions together with so many removals, held against a certificate."""

from __future__ import annotations

from flipproof import EdgeNoise, Graph
from flipproof.certificates.metrics import withstands
from flipproof.certificates.sampled_votes import certify_counts


def test_a_budget_is_withstood_as_the_grid_says() -> None:
    graph = Graph(6, [(0, 1), (1, 2), (2, 3)])
    one_sided = certify_counts([0, 995, 5], EdgeNoise(add=0.0, remove=0.4), graph=graph)
    assert one_sided.radius == 0
    assert withstands(one_sided, graph, adds=0, removes=2)
    assert not withstands(one_sided, graph, adds=1, removes=0)
    # three edges are all that can be removed
    assert withstands(one_sided, graph, adds=0, removes=3) == withstands(one_sided, graph, adds=0, removes=30)
    symmetric = certify_counts([0, 9990, 10], EdgeNoise(keep=0.8), graph=graph)
    assert withstands(symmetric, graph, adds=symmetric.radius, removes=0)
    assert not withstands(certify_counts([5, 5], EdgeNoise(keep=0.8), graph=graph), graph, adds=0, removes=0)
