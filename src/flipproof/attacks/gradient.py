"""Projected gradient descent on relaxed flips, for torch modules of either convention."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from flipproof.attacks.attack_result import AttackResult
from flipproof.attacks.constraints import Space
from flipproof.attacks.search import Best, Options, run
from flipproof.defences.target import Target

__all__ = ["gradient", "gradient_search"]

_STEPS = 60
_RATE = 0.7
_ROUNDINGS = 96


def gradient(model: Any, graph: Any, *, budget: int, **options: Unpack[Options]) -> AttackResult:
    """Relax flips to numbers in [0, 1], descend the label's margin, project onto the budget, round (Xu et al., IJCAI 2019).

    Dense modules get a weighted adjacency matrix. Modules in PyG's convention get the complete graph with edge weights: layers
    that take ``edge_weight`` are handed them, in others each message is multiplied by its edge's weight. A module on which this
    does not give the logits back that it has on whole graphs (attention, means or maxima over neighbours) is refused.

    Args:
        model: A torch module, or a :class:`flipproof.SmoothedClassifier` of one.
        graph: The clean graph, of at most 400 nodes.
        budget: Most flips.
        **options: See :class:`flipproof.attacks.Options`.
    """
    return run("gradient", gradient_search, model, graph, budget, options)


def gradient_search(target: Target, space: Space, rng: np.random.Generator) -> Best:
    """Descend, then evaluate roundings: the largest entries, and random sets drawn by them."""
    weights = _descended(target, space)[space.columns]
    noise = rng.gumbel(size=(_ROUNDINGS, len(weights)))
    noise[0] = 0
    keys = np.log(weights + 1e-6) + noise  # the largest of such keys are a sample without replacement
    width = min(len(weights), 2 * space.budget + 8)
    wishes = space.columns[np.argsort(-keys, axis=1, kind="stable")[:, :width]]
    sets = space.repaired(wishes, space.budget)
    nested = np.where(np.tri(space.budget, dtype=np.bool_), sets[:1], -1)
    nested = nested[space.holds(nested)]
    candidates = np.concatenate([nested, sets[1:]])
    outcome = target.evaluate(candidates)
    fooled = np.flatnonzero(outcome.fooled[: len(nested)])
    if len(fooled):  # the smallest of the nested sets
        flips = candidates[fooled[0]]
        return Best(flips[flips >= 0], float(outcome.margins[fooled[0]]), float(outcome.guides[fooled[0]]), True)
    return Best.of(candidates, outcome)


def _descended(target: Target, space: Space) -> NDArray[np.float64]:
    """Relaxed flips of every slot, in [0, 1], their sum at most the budget, ``[N]``."""
    from flipproof.attacks.relaxation import Relaxation

    relaxation = Relaxation(target)
    allowed = np.zeros(target.graph.num_slots)
    allowed[space.columns] = 1
    flips = np.zeros_like(allowed)
    for step in range(1, _STEPS + 1):
        if target.room is not None and target.room < -(-relaxation.copies // target.cost) + _ROUNDINGS + space.budget:
            break
        slope = relaxation.slope(flips) * allowed
        largest = np.abs(slope).max()
        if largest == 0:
            break
        flips = _projected(flips - _RATE / step**0.5 * slope / largest, space.budget) * allowed
    return flips


def _projected(flips: NDArray[np.float64], budget: int) -> NDArray[np.float64]:
    """The nearest point with entries in [0, 1] and sum at most the budget: shift down and clip, by bisection."""
    if np.clip(flips, 0, 1).sum() <= budget:
        return np.clip(flips, 0, 1)
    low, high = flips.min() - 1, flips.max()
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(flips - middle, 0, 1).sum() > budget else (low, middle)
    return np.asarray(np.clip(flips - high, 0, 1))
