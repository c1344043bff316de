"""The two combinations of smoothing and voting that docs/voting.md proves: never above the truth, on all graphs of 4 nodes."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import flipproof as fp
from flipproof.certificates.group_votes import GroupVotes
from flipproof.graphs import pairs_of_slots
from flipproof.noise.groups import EdgeGroups
from support.cube import all_states

_PATH = Path(__file__).parents[2] / "benchmarks" / "combination.py"
STATES = all_states(6)
PAIRS = pairs_of_slots(np.arange(6), 4)
DISTANCE = (STATES[:, None] ^ STATES).sum(axis=2)
CLASSES = 3


def combination() -> Any:
    """The benchmark as a module."""
    spec = importlib.util.spec_from_file_location("combination", _PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def true_radii(answers: NDArray[np.int64], distance: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of every state, the most flips with which no other answer is reached."""
    differs = answers[:, None] != answers
    return np.where(differs, distance, distance.max() + 1).min(axis=1) - 1


def leaning(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Random answers that favour one class, so that radii above 0 are common."""
    shares = rng.dirichlet([0.3] * CLASSES)
    return rng.choice(CLASSES, size, p=shares)


@pytest.mark.parametrize("seed", range(20))
def test_a_decisive_vote_withstands_what_it_says(seed: int) -> None:
    module, rng = combination(), np.random.default_rng(seed)
    groups = EdgeGroups(int(rng.integers(2, 7)), seed)
    group = groups.of_pairs(PAIRS)
    threshold, trusted = int(rng.integers(1, groups.count + 1)), set(rng.permutation(CLASSES)[: rng.integers(1, 4)])
    smoothed = leaning(rng, 64)
    tables = [leaning(rng, 64) for _ in range(groups.count)]  # as if the model knew the group
    sub = [(STATES & (group == t)) @ (1 << np.arange(6)) for t in range(groups.count)]
    votes = np.stack([table[states] for table, states in zip(tables, sub, strict=True)], axis=1)
    radii = true_radii(smoothed, DISTANCE)
    labels, claimed = [], []
    for state in range(64):
        graph = fp.Graph(4, PAIRS[STATES[state]])
        cast = fp.certify_group_votes(GroupVotes(votes[state].astype(np.uint8), graph, groups, CLASSES))
        smooth = replace(cast, label=int(smoothed[state]), radius=int(radii[state]))
        label, radius = module.decisive_vote(smooth, cast, threshold, trusted)
        counts = np.sort(np.bincount(votes[state], minlength=CLASSES))
        decisive = counts[-1] - counts[-2] >= threshold and cast.label in trusted
        assert label == (cast.label if decisive else smoothed[state])
        labels.append(label)
        claimed.append(radius)
    truth = true_radii(np.array(labels), DISTANCE)
    assert (np.array(claimed) <= truth).all()


@pytest.mark.parametrize("seed", range(20))
def test_smoothed_sub_graphs_withstand_what_they_say(seed: int) -> None:
    """Every sub-classifier is any function of its group's pairs, certified with its true radius, or abstaining."""
    module, rng = combination(), np.random.default_rng(seed)
    count = int(rng.integers(1, 5))
    group = EdgeGroups(count, seed).of_pairs(PAIRS)
    answers, costs = np.empty((64, count), dtype=np.int64), np.empty((64, count), dtype=np.int64)
    for t in range(count):
        own = np.flatnonzero(group == t)
        inside = STATES[:, own] @ (1 << np.arange(len(own)))
        table, states = leaning(rng, 2 ** len(own)), all_states(len(own))
        radii = true_radii(table, (states[:, None] ^ states).sum(axis=2)) if len(own) else np.zeros(1, dtype=np.int64)
        answers[:, t] = table[inside]
        costs[:, t] = np.where(radii[inside] < len(own), radii[inside] + 1, module.NEVER)
    abstains = rng.random((64, count)) < 0.1
    majority = np.array([np.bincount(row, minlength=CLASSES).argmax() for row in answers])
    truth = true_radii(majority, DISTANCE)
    certified = 0
    for state in range(64):
        votes = [
            (None, 0) if abstains[state, t] else (int(answers[state, t]), int(costs[state, t])) for t in range(count)
        ]
        label, radius = module.smoothed_votes(votes, CLASSES, 6)
        if label is not None:
            certified += 1
            assert label == majority[state]
            assert radius <= truth[state]
    assert certified
