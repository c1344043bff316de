"""From votes or counts to a certificate: methods, budgets of alpha, what a graph offers, abstaining."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flipproof import EdgeNoise, Graph, InputError, Votes, certify_counts, certify_votes, radius
from flipproof.certificates.vote_share import label_pvalue, lower_bound, upper_bound
from flipproof.noise import SampleStream

NOISE = EdgeNoise(keep=0.8)
GRAPH = Graph(12, [(node, node + 1) for node in range(11)])


def cast(labels: Any, graph: Graph = GRAPH, noise: EdgeNoise = NOISE, num_classes: int = 3) -> Votes:
    labels = np.asarray(labels, dtype=np.uint8)
    checksums = tuple(SampleStream(graph, noise, seed=0).checksums(len(labels)))
    return Votes(labels, graph, noise, num_classes, 0, checksums)


@pytest.mark.parametrize("method", ["votes", "paper"])
def test_votes_and_their_counts_give_the_same_certificate(method: str) -> None:
    votes = cast([1] * 960 + [0] * 30 + [2] * 10)
    by_graph = certify_counts(votes.counts, NOISE, method=method, graph=GRAPH)
    found = certify_votes(votes, method=method)
    assert found.seed == 0
    assert found.to_dict() | {"seed": None} == by_graph.to_dict()
    assert found.label == 1
    assert found.radius >= 1


def test_a_prefix_of_the_votes() -> None:
    votes = cast([1] * 500 + [0] * 600)
    first = certify_votes(votes, method="votes", samples=500)
    assert (first.label, first.samples, first.counts) == (1, 500, (0, 500, 0))
    assert certify_votes(votes, method="votes").abstains
    with pytest.raises(InputError, match="at most the 1100"):
        certify_votes(votes, samples=1101)


@pytest.mark.parametrize("counts", [[900, 100], [900, 60, 40], [20, 960, 10, 10, 0, 0, 0, 0]])
@pytest.mark.parametrize("alpha", [0.001, 0.05])
def test_bounds_of_the_votes_method_spend_alpha_once(counts: list[int], alpha: float) -> None:
    """Label test .1, share of the top class .8 (two classes .9), .1 for the largest of the others."""
    found = certify_counts(counts, NOISE, alpha=alpha)
    top, many = max(counts), len(counts) > 2
    share = lower_bound(top, 1000, failure_prob=(0.8 if many else 0.9) * alpha)
    rival = upper_bound(sorted(counts)[-2], 1000, failure_prob=0.1 * alpha)
    assert found.p_lower == share
    assert found.p_upper == (min(rival, 1 - share) if many else 1 - share)
    assert found.radius == radius(float(share), NOISE, float(rival) if many else None)


@pytest.mark.parametrize("method", ["votes", "influence"])
@pytest.mark.parametrize(("factor", "label"), [(1.001, 1), (0.999, None)])
def test_label_is_named_only_if_its_test_says_so(method: str, factor: float, label: int | None) -> None:
    """A tenth of alpha is the test's: just above the p-value the label is named, just below it is not."""
    alpha = 10 * factor * float(label_pvalue(600, 400))
    certificate = certify_votes(cast([1] * 600 + [0] * 400, num_classes=2), method=method, alpha=alpha)
    assert certificate.p_lower > 0.5
    assert certificate.label == label


def test_below_half_is_certified_against_small_rivals() -> None:
    counts = [450] + [50] * 11
    found = certify_counts(counts, EdgeNoise(keep=0.6), alpha=0.001)
    assert found.label == 0
    assert found.p_lower < 0.5
    assert found.radius >= 1
    assert certify_counts(counts, EdgeNoise(keep=0.6), method="paper").abstains


@pytest.mark.parametrize("method", ["votes", "paper"])
def test_abstaining(method: str) -> None:
    for counts in ([500, 500], [1, 0], [0, 0, 7], [510, 490]):
        found = certify_counts(counts, NOISE, method=method)
        assert (found.label, found.radius, found.votes_radius, found.grid.shape) == (None, -1, -1, (0, 0))
        assert found.abstains


@pytest.mark.parametrize("method", ["votes", "paper"])
def test_radius_is_at_most_the_number_of_slots(method: str) -> None:
    for graph in (Graph(1, []), Graph(2, []), Graph(3, [(0, 1)]), Graph(4, [], frozen=[(0, 1), (0, 2), (0, 3)])):
        found = certify_counts([100_000, 0], EdgeNoise(keep=0.6), method=method, graph=graph)
        assert found.radius == graph.num_slots == found.num_slots
        assert found.grid.shape == (graph.max_adds + 1, graph.max_removes + 1)
        assert found.grid.all()
    unbounded = certify_counts([100_000, 0], EdgeNoise(keep=0.6), method=method)
    assert unbounded.radius == {"votes": 89, "paper": 90}[method]


def test_what_the_graph_cannot_offer_counts_as_withstood() -> None:
    """Only removals can be certified here (``p_add = 0`` and few survive), and only removals are possible."""
    noise = EdgeNoise(add=0, remove=0.4)
    complete = Graph(3, [(0, 1), (0, 2), (1, 2)])
    counts = [9900, 50, 50]
    assert certify_counts(counts, noise).radius == 0
    found = certify_counts(counts, noise, graph=complete)
    assert found.radius >= 1
    assert found.grid.shape[0] == 1
    assert found.removes_radius == found.radius


def test_zero_probability_with_rivals_does_not_certify_what_it_cannot_see() -> None:
    """Three removals leave 0.4**3 of the old graph's law: a share of .9 then proves nothing."""
    found = certify_counts([9100, 450, 450], EdgeNoise(add=0, remove=0.4))
    assert found.removes_radius == 2
    assert found.adds_radius == 0


def test_graph_may_be_of_any_kind() -> None:
    found = [
        certify_counts([1000, 0], EdgeNoise(keep=0.6), graph=kind)  # type: ignore[arg-type]
        for kind in (GRAPH, GRAPH.to_networkx(), GRAPH.to_pyg(), GRAPH.adjacency())
    ]
    assert all(one == found[0] for one in found)
    assert found[0].num_slots == 66


def test_the_sparse_samplers_inexactness_is_charged() -> None:
    ring = Graph(100, [(node, (node + 1) % 100) for node in range(100)])
    noise = EdgeNoise(add=0.002, remove=0.3)
    votes = cast([0] * 1000, ring, noise)
    discrepancy = votes.stream().discrepancy
    assert discrepancy > 0
    found = certify_votes(votes, alpha=0.01, method="votes")
    assert found.alpha == 0.01
    plain = certify_counts(votes.counts, noise, alpha=0.01, graph=ring)
    assert found.p_lower <= plain.p_lower
    with pytest.raises(InputError, match="used up by the sampler's inexactness"):
        certify_votes(votes, alpha=500 * discrepancy, method="votes")


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ([10], "at least two"),
        ([], "at least two"),
        (5, "one number per class"),
        ([[5, 5]], "one number per class"),
        ([5.0, 5.0], "pass integers"),
        ([-1, 5], "pass integers"),
        ([0, 0], "at least one in all"),
        (["a", "b"], "pass integers"),
    ],
)
def test_bad_counts(counts: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        certify_counts(counts, NOISE)


def test_other_bad_arguments() -> None:
    with pytest.raises(InputError, match=r"method must be one of .*votes.*'guess'"):
        certify_counts([10, 0], NOISE, method="guess")
    with pytest.raises(InputError, match="method must be one of"):
        certify_votes(cast([0] * 10), method="guess")
    with pytest.raises(InputError, match="counts do not hold them"):
        certify_counts([10, 0], NOISE, method="influence")
    with pytest.raises(InputError, match="expected Votes; got list"):
        certify_votes([10, 0])  # type: ignore[arg-type]
    for alpha in (0, 1, None):
        with pytest.raises(InputError, match="alpha must lie in"):
            certify_counts([10, 0], NOISE, alpha=alpha)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="alpha must lie in"):
            certify_votes(cast([0] * 10), alpha=alpha, method="votes")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected a graph"):
        certify_counts([10, 0], NOISE, graph=5)  # type: ignore[arg-type]
