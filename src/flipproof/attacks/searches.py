"""The attacks: random, greedy and exhaustive search, gradient descent, what the defence itself knows, and the best of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, islice
from math import comb
from typing import Any, Unpack

import numpy as np

from flipproof.attacks.search import AttackResult, Best, Options, Space, run
from flipproof.defences.target import Target
from flipproof.errors import InputError

_TRIES = 256  # random sets of each size, where no number of model calls is set
_MOST_SETS = 2**20  # tried by the exhaustive search, where no number of model calls is set
_SETS_AT_ONCE = 2**14


def random(model: Any, graph: Any, *, budget: int, **options: Unpack[Options]) -> AttackResult:
    """Try random sets of 1, 2, ..., ``budget`` flips, equally many of each size, and stop at the first size that succeeds.

    Arguments are those of :func:`greedy`; ``max_calls`` sets the number of tries.
    """
    return run("random", _random_search, model, graph, budget, options)


def greedy(model: Any, graph: Any, *, budget: int, **options: Unpack[Options]) -> AttackResult:
    """Flip the node pair that lowers the label's margin most, until the answer changes or the budget is spent.

    All candidate flips of a step are evaluated in batches: about ``N`` candidates per flip.

    Args:
        model: A defended classifier, or a base classifier in any form that :class:`flipproof.SmoothedClassifier` takes.
        graph: The clean graph.
        budget: Largest number of flips.
        **options: See :class:`flipproof.attacks.Options`.

    >>> from flipproof import Graph
    >>> def has_triangle(graphs):
    ...     return [int((g.adjacency() @ g.adjacency() * g.adjacency()).sum() > 0) for g in graphs]
    >>> greedy(has_triangle, Graph(4, [(0, 1), (1, 2), (2, 3)]), budget=2, num_classes=2, removes=False).size
    1
    """
    return run("greedy", _greedy_search, model, graph, budget, options)


def exhaustive(model: Any, graph: Any, *, budget: int, **options: Unpack[Options]) -> AttackResult:
    """Try every set of 1, 2, ..., ``budget`` flips: if one succeeds, the smallest is found.

    More than a million sets are refused unless ``max_calls`` ends the search earlier. Arguments are those of :func:`greedy`.
    """
    return run("exhaustive", _exhaustive_search, model, graph, budget, options)


def gradient(model: Any, graph: Any, *, budget: int, **options: Unpack[Options]) -> AttackResult:
    """Relax flips to numbers in [0, 1], descend the label's margin, project onto the budget, round (Xu et al., IJCAI 2019).

    Modules whose edges cannot be weighed (attention, means or maxima over neighbours) are refused, and so are graphs of more than
    400 nodes. Arguments are those of :func:`greedy`.
    """
    from flipproof.attacks.relaxation import gradient_search

    return run("gradient", gradient_search, model, graph, budget, options)


def known(model: Any, graph: Any, *, budget: int, **options: Unpack[Options]) -> AttackResult:
    """Make the attack that the defence's own evidence shows, where it shows one; otherwise it fails.

    A certificate that is found by trying flips knows the smallest attack wherever it is exact: ``radius + 1`` flips. Arguments
    are those of :func:`greedy`; ``max_calls`` limits the search for the certificate.
    """
    return run("known", _known_search, model, graph, budget, options)


_ATTACKS: dict[str, Callable[..., AttackResult]] = {
    attack.__name__: attack for attack in (random, greedy, exhaustive, gradient, known)
}

NAMES = tuple(_ATTACKS)


def by_name(name: str) -> Callable[..., AttackResult]:
    """The attack of this name."""
    if name not in _ATTACKS:
        raise InputError(f"attacks must be among {', '.join(NAMES)}; got {name!r}")
    return _ATTACKS[name]


def strongest(
    model: Any,
    graph: Any,
    *,
    budget: int,
    attacks: Sequence[str] = ("greedy", "random"),
    **options: Unpack[Options],
) -> AttackResult:
    """The smallest successful attack of several; if none succeeds, the one that came nearest.

    After a success of ``k`` flips the next attacks look for ``k - 1``. Against a smoothed classifier ``alpha`` covers all of
    them together. ``model_calls`` of the result is their sum.

    ``attacks`` are names, in order; the other arguments are those of :func:`greedy`.
    """
    if isinstance(attacks, str) or not attacks:
        raise InputError(f"attacks must be a list of names among {', '.join(NAMES)}; got {attacks!r}")
    methods = [by_name(name) for name in attacks]
    options["alpha"] = options.get("alpha", 0.001) / len(methods)
    best: AttackResult | None = None
    calls, left = 0, budget
    for method in methods:
        result = method(model, graph, budget=left, **options)
        calls += result.model_calls
        if result.success or best is None or (not best.success and result.margin_after < best.margin_after):
            best = result
        if best.success:
            left = best.size - 1
        if left < 1:
            break
    assert best is not None
    return replace(best, budget=budget, model_calls=calls, alpha=best.alpha * len(methods))


def _random_search(target: Target, space: Space, rng: np.random.Generator) -> Best:
    best = Best.nothing()
    for size in range(1, space.budget + 1):
        tries = _TRIES if target.room is None else -(-target.room // (space.budget - size + 1))
        drawn = space.draws(tries, size, rng)
        best = best.better(Best.of(drawn, target.evaluate(drawn)))
        if best.fooled:
            break
    return best


def _greedy_search(target: Target, space: Space, rng: np.random.Generator) -> Best:
    flips, best = np.empty(0, dtype=np.int64), Best.nothing()
    for _ in range(space.budget):
        candidates = space.extensions(flips, rng, limit=target.room)
        outcome = target.evaluate(candidates)
        best = best.better(Best.of(candidates, outcome))
        if best.fooled or not len(outcome):
            break
        flips = candidates[outcome.guides.argmin()]
    return best


def _exhaustive_search(target: Target, space: Space, rng: np.random.Generator) -> Best:
    count = sum(comb(len(space.columns), size) for size in range(1, space.budget + 1))
    if target.room is None and count > _MOST_SETS:
        raise InputError(
            f"the exhaustive attack tries at most {_MOST_SETS:,} sets of flips; here there are {count:,} (lower the budget, or "
            "set max_calls)"
        )
    best = Best.nothing()
    for size in range(1, space.budget + 1):
        sets = combinations(space.columns.tolist(), size)
        while target.room != 0 and (part := list(islice(sets, _SETS_AT_ONCE))):
            candidates = np.array(part)
            best = best.better(Best.of(candidates, target.evaluate(candidates)))
            if best.fooled:
                return best
    return best


def _known_search(target: Target, space: Space, rng: np.random.Generator) -> Best:
    nothing = np.empty((1, 0), dtype=np.int64)
    best = Best.of(nothing, target.evaluate(nothing))
    flips = target.known()
    if not flips.size or flips.shape[1] > space.budget or not np.isin(flips, space.columns).all():
        return best
    return Best.of(flips, target.evaluate(flips)).better(best)
