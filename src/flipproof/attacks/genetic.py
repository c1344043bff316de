"""A population of sets of flips that are crossed and mutated, begun from what greedy found."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from flipproof.attacks.attack_result import AttackResult
from flipproof.attacks.constraints import Space
from flipproof.attacks.greedy import greedy_search
from flipproof.attacks.minimal import minimal
from flipproof.attacks.search import Best, Options, run
from flipproof.defences.target import Target
from flipproof.graphs import IntArray

__all__ = ["genetic", "genetic_search"]

_POPULATION = 64
_GENERATIONS = 15
_MUTATION = 0.85  # where the priority of a fresh random flip begins; those of the parents' flips begin at 0


def genetic(model: Any, graph: Any, *, budget: int, **options: Unpack[Options]) -> AttackResult:
    """Evolve sets of flips (Dai et al., ICML 2018, for graphs), with greedy's set in the first population.

    Never worse than greedy for the same budget: where greedy failed it looks among sets of ``budget`` flips, where greedy
    succeeded it looks for a smaller set.

    Args:
        model: A :class:`flipproof.SmoothedClassifier`, or a base classifier in any form that one takes.
        graph: The clean graph.
        budget: Most flips.
        **options: See :class:`flipproof.attacks.Options`.
    """
    return run("genetic", genetic_search, model, graph, budget, options)


def genetic_search(target: Target, space: Space, rng: np.random.Generator) -> Best:
    """Greedy, then generations."""
    best = greedy_search(target, space, rng)
    if best.fooled:
        flips = minimal(target, space, best.flips)[None]
        best = best.better(Best.of(flips, target.evaluate(flips)))
    while best.guide < np.inf:
        size = len(best.flips) - 1 if best.fooled else space.budget
        if size < (2 if best.fooled else 1):  # single flips were all tried by greedy
            break
        found = _evolved(target, space, rng, best.flips, size)
        if not found.fooled:
            return best.better(found)
        best = best.better(found)
    return best


def _evolved(target: Target, space: Space, rng: np.random.Generator, start: IntArray, size: int) -> Best:
    """The best of several generations of sets of ``size`` flips, begun from variations of one set."""
    fresh = space.columns[rng.integers(0, len(space.columns), (_POPULATION, 2 * size + 4))]
    shuffled = rng.permuted(np.tile(start, (_POPULATION, 1)), axis=1)[:, : max(1, size - 1)]
    shuffled[_POPULATION // 2 :] = -1  # the other half is wholly random
    population = space.repaired(np.concatenate([shuffled, fresh], axis=1), size)
    if len(start) <= size:
        population[0] = np.pad(start, (0, size - len(start)), constant_values=-1)
    outcome = target.evaluate(population)
    population, guides = population[: len(outcome)], outcome.guides
    best = Best.of(population, outcome)
    for _ in range(_GENERATIONS):
        if best.fooled or len(population) < 2:
            break
        parents = rng.integers(0, len(population), (2, _POPULATION, 2))
        winners = np.take_along_axis(parents, guides[parents].argmin(axis=2, keepdims=True), axis=2)[..., 0]
        fresh = space.columns[rng.integers(0, len(space.columns), (_POPULATION, size + 4))]
        genes = np.concatenate([population[winners[0]], population[winners[1]], fresh], axis=1)
        priority = rng.random(genes.shape)
        priority[:, 2 * size :] += _MUTATION
        children = space.repaired(np.take_along_axis(genes, priority.argsort(axis=1), axis=1), size)
        outcome = target.evaluate(children)
        if not len(outcome):
            break
        best = best.better(Best.of(children, outcome))
        everyone = np.concatenate([population, children[: len(outcome)]])
        guides = np.concatenate([guides, outcome.guides])
        _, first = np.unique(np.sort(everyone, axis=1), axis=0, return_index=True)
        kept = first[np.argsort(guides[first], kind="stable")[:_POPULATION]]
        population, guides = everyone[kept], guides[kept]
    return best
