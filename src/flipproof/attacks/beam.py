"""Several sets of flips at a time, each grown by its best flips."""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

import numpy as np

from flipproof.attacks.attack_result import AttackResult
from flipproof.attacks.constraints import Space
from flipproof.attacks.search import Best, Options, run
from flipproof.checks import checked_count
from flipproof.defences.target import Target

__all__ = ["beam", "beam_search"]


def beam(model: Any, graph: Any, *, budget: int, width: int = 8, **options: Unpack[Options]) -> AttackResult:
    """Keep the ``width`` best sets of flips, extend each by every allowed flip, keep the best again.

    Tries about ``width * N`` candidates per flip. Finds pairs of flips that only work together, which greedy misses.

    Args:
        model: A :class:`flipproof.SmoothedClassifier`, or a base classifier in any form that one takes.
        graph: The clean graph.
        budget: Largest number of flips.
        width: Number of sets that are kept.
        **options: See :class:`flipproof.attacks.Options`.
    """
    width = checked_count(width, "width", 1, "for instance 8")
    return run("beam", partial(beam_search, width=width), model, graph, budget, options)


def beam_search(target: Target, space: Space, rng: np.random.Generator, *, width: int) -> Best:
    """The first success, smallest size first; without one, the set with the smallest guide."""
    beams = np.empty((1, 0), dtype=np.int64)
    best = Best.nothing()
    for step in range(space.budget):
        if target.room is not None:  # rather fewer sets than a search that ends half-way
            beams = beams[: max(1, target.room // ((space.budget - step) * len(space.columns)))]
        candidates = space.extensions(beams, rng, limit=target.room)
        outcome = target.evaluate(candidates)
        best = best.better(Best.of(candidates, outcome))
        if best.fooled or not len(outcome):
            break
        beams = candidates[: len(outcome)][np.argsort(outcome.guides, kind="stable")[:width]]
    return best
