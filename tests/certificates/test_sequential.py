"""Sampling that stops early: when it stops, at which level it certifies, and what is recorded."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flipproof as fp
from flipproof.certificates.bounds import spending
from flipproof.certificates.sampled_votes import Plan, Sequential
from flipproof.noise import BLOCK

NOISE = fp.EdgeNoise(keep=0.8)
GRAPH = fp.Graph(6, [(0, 1), (1, 2), (2, 3)])


def votes_of(shares: list[float], samples: int, seed: int = 0, noise: fp.EdgeNoise = NOISE) -> fp.Votes:
    """Votes with these probabilities, whatever the flips; with the checksums that belong to the flips."""
    labels = np.random.default_rng(seed).choice(len(shares), samples, p=shares).astype(np.uint8)
    stream = fp.Votes(labels[:1], GRAPH, noise, len(shares), seed, ("",)).stream()
    return fp.Votes(labels, GRAPH, noise, len(shares), seed, tuple(stream.checksums(samples)))


@given(st.integers(1, 10**7))
def test_looks_grow_and_end_with_the_most(most: int) -> None:
    looks = Sequential(max_samples=most).looks
    assert looks[-1] == most
    assert all(look % BLOCK == 0 for look in looks[:-1])
    assert all(1.24 * sooner <= later <= 2.6 * sooner for sooner, later in pairwise(looks))


@pytest.mark.parametrize("looks", range(1, 61))
def test_parts_of_alpha_add_up_to_one_at_most(looks: int) -> None:
    """In exact arithmetic: a sum of floats would be rounded to 1 where the parts exceed it."""
    parts = spending(looks)
    assert len(parts) == looks
    assert 1 - 1e-9 < sum(map(Fraction, parts)) <= 1
    assert min(parts) > 0


@pytest.mark.parametrize("method", ["votes", "paper", "influence"])
def test_a_certificate_has_the_level_of_its_look(method: str) -> None:
    goal = Sequential(max_samples=10_000, target_radius=1)
    votes = votes_of([0.93, 0.05, 0.02], 10_000)
    found = goal.certify(votes, alpha=0.01, method=method)
    place, parts = goal.looks.index(found.samples), spending(len(goal.looks))
    by_hand = fp.certify_votes(votes, alpha=0.01 * parts[place], method=method, samples=found.samples)
    assert (found.radius, found.p_lower, found.counts) == (by_hand.radius, by_hand.p_lower, by_hand.counts)
    assert found.radius >= 1
    assert (found.alpha, found.looks) == (0.01, goal.looks[: place + 1])
    assert found.spent_alpha == pytest.approx(0.01 * sum(parts[: place + 1]))
    assert by_hand.looks == ()
    assert by_hand.to_dict()["spent_alpha"] == by_hand.alpha


def test_it_stops_when_the_target_is_reached() -> None:
    votes = votes_of([1.0, 0.0], 10_000)
    ends = []
    for target in range(6):
        goal = Sequential(max_samples=10_000, target_radius=target)
        found = goal.certify(votes, method="votes")
        levels = zip(goal.looks, spending(len(goal.looks)), strict=True)
        radii = {
            look: fp.certify_votes(votes, alpha=0.001 * part, method="votes", samples=look).radius
            for look, part in levels
        }
        assert found.samples == min(look for look, radius in radii.items() if radius >= target)
        ends.append(found.samples)
    assert ends[0] == 1024
    assert len(set(ends)) > 2


@pytest.mark.parametrize("method", ["votes", "paper", "influence"])
@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.34, 0.33, 0.33]])
def test_it_stops_when_abstaining_is_certain(method: str, shares: list[float]) -> None:
    """Two classes that are nearly tied: 100,000 samples could tell apart what 1,000 cannot, so it stops late, but it stops."""
    found = Sequential(max_samples=20_000, target_radius=3).certify(votes_of(shares, 20_000), method=method)
    assert found.samples < 20_000 or method == "influence"
    assert found.radius < 3


def test_it_stops_when_the_target_is_out_of_reach() -> None:
    """The share is below the threshold of two flips, as a thousand votes show."""
    votes = votes_of([0.92, 0.08], 100_000)
    found = Sequential(target_radius=2).certify(votes, method="votes")
    assert (found.samples, found.radius) == (1024, 1)
    assert fp.certify_votes(votes, method="votes").radius == 1
    assert Sequential(target_radius=16).certify(votes).samples == 1024  # the graph has 15 slots


def test_without_a_target_it_stops_when_no_larger_radius_is_in_reach() -> None:
    votes = votes_of([0.92, 0.08], 100_000)
    found = Sequential().certify(votes, method="votes")
    assert (found.radius, found.samples) == (1, 1024)
    certain = Sequential(max_samples=10_000).certify(votes_of([1.0, 0.0], 10_000), method="votes")
    assert certain.samples == 10_000


def test_one_harmful_slot_ends_the_sampling_of_influences() -> None:
    """The label follows one slot: one flip changes the answer, and a thousand samples show it."""
    smooth = fp.SmoothedClassifier(
        lambda graphs: [int(graph.adjacency()[0, 1] > 0) for graph in graphs], NOISE, num_classes=2
    )
    found = smooth.certify(GRAPH, samples=Sequential(target_radius=1), seed=0)
    assert (found.label, found.radius, found.samples) == (1, 0, 1024)


def test_precision() -> None:
    votes = votes_of([0.7, 0.3], 100_000)
    widths = {}
    for precision in (0.2, 0.05, 0.02):
        found = Sequential(precision=precision).certify(votes, method="votes")
        widths[precision] = found.samples
    assert widths == {0.2: 1024, 0.05: 6144, 0.02: 49152}


@settings(max_examples=20, deadline=None)
@given(st.floats(0.5, 1.0), st.integers(0, 10**6), st.sampled_from([None, 1, 2, 3]))
def test_the_decision_depends_on_the_votes_so_far_alone(share: float, seed: int, target: int | None) -> None:
    goal = Sequential(max_samples=8_000, target_radius=target)
    votes = votes_of([share, 1 - share], 8_000, seed)
    found = goal.certify(votes, method="votes")
    assert goal.certify(votes.first(found.samples), method="votes") == found
    others = np.concatenate([votes.labels[: found.samples], 1 - votes.labels[found.samples :]])
    assert goal.certify(replace(votes, labels=others), method="votes") == found
    for look in goal.looks[: goal.looks.index(found.samples)]:
        with pytest.raises(fp.InputError, match="votes are too few: sampling does not end before"):
            goal.certify(votes.first(look), method="votes")


def test_the_library_samples_as_far_as_needed_and_remembers_the_looks(tmp_path: Path) -> None:
    calls = []

    def many(graphs: list[fp.Graph]) -> list[int]:
        calls.append(len(graphs))
        return [int(graph.num_edges > 1) for graph in graphs]

    smooth = fp.SmoothedClassifier(many, NOISE, num_classes=2)
    goal = Sequential(max_samples=50_000, target_radius=1)
    options: dict[str, Any] = {"seed": 3, "method": "votes", "alpha": 0.01}
    found = smooth.certify(GRAPH, samples=goal, **options)
    assert sum(calls[-found.samples // 1024 :]) <= 2 * found.samples < 50_000
    votes = smooth.sample(GRAPH, samples=goal, **options)
    assert (len(votes), votes.looks) == (found.samples, goal.looks)
    votes.save(tmp_path / "votes.npz")
    again = fp.Votes.load(tmp_path / "votes.npz")
    assert again == votes
    # the level of the look is used whoever reads the votes, so that the stop is paid for
    assert (
        fp.certify_votes(again, alpha=0.01, method="votes") == found == goal.certify(again, alpha=0.01, method="votes")
    )
    assert smooth.certify_all([GRAPH, GRAPH], samples=goal, **options) == [found, found]
    with pytest.raises(fp.InputError, match="samples must be an integer of at least 1; got 'auto'"):
        smooth.predict(GRAPH, samples="auto")  # type: ignore[arg-type]
    with pytest.raises(fp.InputError, match="sampling ends at one of the looks"):
        replace(votes, looks=(5, 10))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"max_samples": 0}, "max_samples must be an integer of at least 1; got 0"),
        ({"target_radius": -1}, "target_radius must be an integer of at least 0; got -1"),
        ({"target_radius": True}, "target_radius must be an integer of at least 0; got True"),
        ({"precision": 0}, r"precision must lie in \(0, 1\); got 0"),
        ({"precision": 0.1, "target_radius": 1}, "give target_radius or precision, not both; got 1 and 0.1"),
    ],
)
def test_goals_are_checked(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(fp.InputError, match=sentence):
        Sequential(**arguments)


def test_samples_are_a_number_or_auto() -> None:
    with pytest.raises(fp.InputError, match="samples must be an integer of at least 1, or \"auto\"; got 'many'"):
        Plan.of("many", alpha=0.001, method="votes")
    assert Plan.of("auto", alpha=0.001, method="votes").looks == Sequential().looks
    fixed = Plan.of(2_000, alpha=0.001, method="votes")
    votes = votes_of([0.9, 0.1], 2_000)
    assert fixed.read(votes) == fp.certify_votes(votes, method="votes")
