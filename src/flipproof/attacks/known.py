"""What the defence itself knows to succeed: the sets of flips that its search for a certificate came across."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from flipproof.attacks.attack_result import AttackResult
from flipproof.attacks.constraints import Space
from flipproof.attacks.search import Best, Options, run
from flipproof.defences.target import Target

__all__ = ["known", "known_search"]


def known_search(target: Target, space: Space, rng: np.random.Generator) -> Best:
    """The best of the target's own sets of flips that keep the constraints; no flip at all if it knows none."""
    nothing = np.empty((1, 0), dtype=np.int64)
    best = Best.of(nothing, target.evaluate(nothing))
    flips = target.known()
    if not flips.size:
        return best
    allowed = flips[space.holds(flips)]
    return Best.of(allowed, target.evaluate(allowed)).better(best) if len(allowed) else best


def known(model: Any, graph: Any, *, budget: int, **options: Unpack[Options]) -> AttackResult:
    """Make the attack that the defence's own evidence shows, where it shows one.

    A certificate that is found by trying flips knows the smallest attack wherever it is exact: ``radius + 1`` flips. Of defences
    that try none, nothing is known, and the attack fails.

    Args:
        model: A defended classifier.
        graph: The clean graph.
        budget: Largest number of flips.
        **options: See :class:`flipproof.attacks.Options`; ``max_calls`` limits the search for the certificate.

    >>> from flipproof import Graph
    >>> def has_edge(graphs):
    ...     return [int(graph.num_edges > 0) for graph in graphs]
    >>> known(has_edge, Graph(3, [(0, 1)]), budget=1, num_classes=2).success  # an undefended model searches nothing
    False
    """
    return run("known", known_search, model, graph, budget, options)
