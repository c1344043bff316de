"""What a certificate may be read from, and how far it can reach."""

from __future__ import annotations

import numpy as np
import pytest

import flipproof as fp
from flipproof.certificates.sampled_votes import unanimous_certificate
from flipproof.defences.local import LocalRequest
from flipproof.defences.voting import PriceSearch
from flipproof.noise import SampleStream

RING = fp.Graph(12, [(node, (node + 1) % 12) for node in range(12)])


def few_edges(graphs: list[fp.Graph]) -> list[int]:
    return [int(graph.num_edges > 16) for graph in graphs]


@pytest.mark.parametrize("share", [1.0, 0.98])
def test_a_large_alpha_under_thinning_noise(share: float) -> None:
    noise = fp.EdgeNoise(add=0.001, remove=0.3)
    for graph in fp.datasets.topologies(16, seed=0):
        labels = (np.random.default_rng(1).random(6000) > share).astype(np.uint8)
        checksums = tuple(SampleStream(graph, noise, seed=0).checksums(6000))
        assert fp.certify_votes(fp.Votes(labels, graph, noise, 2, 0, checksums), alpha=0.2).radius >= -1


def test_no_certificate_exceeds_what_unanimous_votes_reach() -> None:
    for noise in (fp.EdgeNoise(keep=0.9), fp.EdgeNoise(add=0.01, remove=0.3)):
        for method in ("influence", "votes", "paper"):
            asked = {"samples": 500, "alpha": 0.001, "method": method}
            reach = unanimous_certificate(RING, noise, num_classes=2, **asked).radius
            agreed = fp.SmoothedClassifier(lambda graphs: [1] * len(graphs), noise, num_classes=2)
            assert agreed.certify(RING, seed=0, **asked).radius == reach
            assert fp.SmoothedClassifier(few_edges, noise, num_classes=2).certify(RING, seed=0, **asked).radius <= reach


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("groups", [1, 4, 5])
def test_no_certificate_of_votes_exceeds_that_of_a_model_that_never_changes_its_answer(depth: int, groups: int) -> None:
    best = fp.VotingClassifier(lambda graphs: [0] * len(graphs), groups=groups, num_classes=2)
    reach = best.defence.best(RING, PriceSearch(depth=depth), 2)
    assert reach is not None
    assert reach.radius == best.certify(RING, depth=depth).radius
    if depth == 0:
        assert reach.radius == groups // 2
    assert best.defence.best(RING, PriceSearch(), 2) is None


@pytest.mark.parametrize("depth", [1, 2, None])
def test_no_certificate_of_a_local_network_exceeds_its_depth(depth: int | None) -> None:
    local = fp.LocalClassifier(fp.models.Local(in_features=0, num_classes=3, seed=0).eval())
    best = local.defence.best(RING, LocalRequest(per_node=depth), 3)
    assert best is not None
    reach = best.radius
    assert reach >= local.certify(RING, per_node=depth).radius
    if depth:
        assert reach == depth
