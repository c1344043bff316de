"""The best single flip, again and again."""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

from flipproof.attacks.attack_result import AttackResult
from flipproof.attacks.beam import beam_search
from flipproof.attacks.search import Options, run

__all__ = ["greedy", "greedy_search"]

greedy_search = partial(beam_search, width=1)
"""Greedy is a beam of width 1."""


def greedy(model: Any, graph: Any, *, budget: int, **options: Unpack[Options]) -> AttackResult:
    """Flip the node pair that lowers the label's margin most, until the answer changes or the budget is spent.

    All candidate flips of a step are evaluated in batches: about ``N`` candidates a flip.

    Args:
        model: A :class:`flipproof.SmoothedClassifier`, or a base classifier in any form that one takes.
        graph: The clean graph.
        budget: Most flips.
        **options: See :class:`flipproof.attacks.Options`.

    >>> from flipproof import Graph
    >>> def has_triangle(graphs):
    ...     return [int((g.adjacency() @ g.adjacency() * g.adjacency()).sum() > 0) for g in graphs]
    >>> greedy(has_triangle, Graph(4, [(0, 1), (1, 2), (2, 3)]), budget=2, num_classes=2, removes=False).size
    1
    """
    return run("greedy", greedy_search, model, graph, budget, options)
