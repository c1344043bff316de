"""Overlapping groups and run-off voting: the certificates that docs/voting.md proves, never above the truth on 4 nodes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flipproof.noise.groups import EdgeGroups
from support.cube import all_states

_PATH = Path(__file__).parents[2] / "benchmarks" / "vote_rules.py"
STATES = all_states(6)
DISTANCE = (STATES[:, None] ^ STATES).sum(axis=2)


def rules() -> Any:
    """The benchmark as a module."""
    spec = importlib.util.spec_from_file_location("vote_rules", _PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def table(rng: np.random.Generator, classes: int) -> Any:
    """Random logits for every sub-graph, leaning to one class so that radii above 0 are common."""
    logits = rng.normal(size=(64, classes)).round(1) + rng.choice([0.0, 1.0, 2.0]) * (
        np.arange(classes) == rng.integers(classes)
    )
    return lambda states: logits[states @ (1 << np.arange(6))]


def true_radii(answers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of every graph, the most flips with which no other answer is reached."""
    differs = answers[:, None] != answers
    return np.where(differs, DISTANCE, 7).min(axis=1) - 1


def case(seed: int, spread: int) -> tuple[Any, NDArray[np.bool_], list[Any]]:
    """The rules, the groups, and what a random model says on every graph."""
    module, rng = rules(), np.random.default_rng(seed)
    classes, groups = int(rng.integers(2, 6)), int(rng.integers(1, 5))
    buckets = EdgeGroups(groups * spread, seed).of_slots(np.arange(6), 4)
    member, model = module.groups_of(buckets, groups, spread), table(rng, classes)
    return module, member, [module.asked(model, state, member) for state in STATES]


@pytest.mark.parametrize("spread", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_overlapping_groups(seed: int, spread: int) -> None:
    module, member, answers = case(seed, spread)
    assert (member.sum(axis=0) == len(np.unique([0, 1, 3][:spread] % np.array(len(member))))).all()
    truth = true_radii(np.array([each.counts.argmax() for each in answers]))
    for depth in (0, 1):
        for each, largest in zip(answers[:: 1 + depth], truth[:: 1 + depth].tolist(), strict=True):
            label, radius = module.voting_radius(each.at_depth(depth), spread, 6)
            assert label == each.counts.argmax()
            assert radius <= largest


@pytest.mark.parametrize("seed", range(6))
def test_run_off_voting(seed: int) -> None:
    module, _, answers = case(seed, 1)
    winners = np.array([module.run_off(each.before)[0] for each in answers])
    truth = true_radii(winners)
    for depth in (0, 1):
        for each, winner, largest in zip(answers, winners.tolist(), truth.tolist(), strict=True):
            label, radius = module.run_off_radius(each.at_depth(depth), 6)
            assert label == winner
            assert radius <= largest


def test_without_overlap_it_is_priced_voting() -> None:
    """The same radius as the library's own certificate, for disjoint groups."""
    import flipproof as fp
    from flipproof.graphs import pairs_of_slots

    module, rng = rules(), np.random.default_rng(3)
    for _ in range(4):
        logits, groups = rng.normal(size=(64, 3)), EdgeGroups(3, int(rng.integers(100)))

        def answers(states: NDArray[np.bool_], logits: NDArray[np.float64] = logits) -> NDArray[np.float64]:
            return logits[states @ (1 << np.arange(6))]

        def black_box(graphs: list[fp.Graph], logits: NDArray[np.float64] = logits) -> list[int]:
            return [int(logits[graph.slot_states @ (1 << np.arange(6))].argmax()) for graph in graphs]

        voting = fp.VotingClassifier(black_box, groups, num_classes=3)
        member = module.groups_of(groups.of_slots(np.arange(6), 4), 3, 1)
        for state in STATES[::9]:
            known = voting.price(fp.Graph(4, pairs_of_slots(np.flatnonzero(state), 4)), depth=1)
            found = module.asked(answers, state, member)
            certificate = fp.certify_group_votes(known)
            label, radius = module.voting_radius(found, 1, 6)
            assert label == certificate.label
            assert radius >= certificate.radius
