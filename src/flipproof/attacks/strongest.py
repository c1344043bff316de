"""Several attacks, one after the other: the smallest success of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from flipproof.attacks.attack_result import AttackResult
from flipproof.attacks.beam import beam
from flipproof.attacks.genetic import genetic
from flipproof.attacks.gradient import gradient
from flipproof.attacks.greedy import greedy
from flipproof.attacks.known import known
from flipproof.attacks.random import random
from flipproof.attacks.search import Options
from flipproof.errors import InputError

__all__ = ["NAMES", "by_name", "strongest"]

_ATTACKS: dict[str, Callable[..., AttackResult]] = {
    "random": random,
    "greedy": greedy,
    "beam": beam,
    "genetic": genetic,
    "gradient": gradient,
    "known": known,
}

NAMES = tuple(_ATTACKS)
"""Attacks that :func:`by_name` knows."""


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
    attacks: Sequence[str] = ("greedy", "beam", "genetic"),
    **options: Unpack[Options],
) -> AttackResult:
    """The smallest successful attack of several; if none succeeds, the one that came nearest.

    After a success of ``k`` flips the next attacks look for ``k - 1``. Against a smoothed classifier ``alpha`` covers all of
    them together. ``model_calls`` of the result is their sum.

    Args:
        model: A :class:`flipproof.SmoothedClassifier`, or a base classifier in any form that one takes.
        graph: The clean graph.
        budget: Most flips.
        attacks: Names, in order.
        **options: See :class:`flipproof.attacks.Options`.
    """
    if isinstance(attacks, str) or not attacks:
        raise InputError(f"attacks must be a list of names among {', '.join(NAMES)}; got {attacks!r}")
    methods = [by_name(name) for name in attacks]
    options["alpha"] = options.get("alpha", 0.001) / len(methods)
    best: AttackResult | None = None
    calls, left = 0, budget
    for method in methods:
        found = method(model, graph, budget=left, **options)
        calls += found.model_calls
        if found.success or best is None or (not best.success and found.margin_after < best.margin_after):
            best = found
        if best.success:
            left = best.size - 1
        if left < 1:
            break
    assert best is not None
    alpha = best.alpha * len(methods)
    return AttackResult(**{**best.__dict__, "budget": budget, "model_calls": calls, "alpha": alpha})
