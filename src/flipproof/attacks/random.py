"""Random flips: the attack that every other must beat."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from flipproof.attacks.attack_result import AttackResult
from flipproof.attacks.constraints import Space
from flipproof.attacks.search import Best, Options, run
from flipproof.defences.target import Target

__all__ = ["random", "random_search"]

_TRIES = 256  # sets a size, where no number of model calls is given


def random(model: Any, graph: Any, *, budget: int, **options: Unpack[Options]) -> AttackResult:
    """Try random sets of 1, 2, ..., ``budget`` flips, equally many of each size, and stop at the first size that succeeds.

    Args:
        model: A :class:`flipproof.SmoothedClassifier`, or a base classifier in any form that one takes.
        graph: The clean graph.
        budget: Most flips.
        **options: See :class:`flipproof.attacks.Options`; ``max_calls`` sets the number of tries.
    """
    return run("random", random_search, model, graph, budget, options)


def random_search(target: Target, space: Space, rng: np.random.Generator) -> Best:
    """The best random set."""
    best = Best.nothing()
    for size in range(1, space.budget + 1):
        tries = _TRIES if target.room is None else -(-target.room // (space.budget - size + 1))
        drawn = space.draws(tries, size, rng)
        best = best.better(Best.of(drawn, target.evaluate(drawn)))
        if best.fooled:
            break
    return best
