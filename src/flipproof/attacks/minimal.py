"""After a success, flips that are not needed are taken back."""

from __future__ import annotations

import numpy as np

from flipproof.attacks.constraints import Space
from flipproof.defences.target import Target
from flipproof.graphs import IntArray

__all__ = ["minimal"]


def minimal(target: Target, space: Space, flips: IntArray) -> IntArray:
    """A subset of a successful set of flips ``[d]`` that succeeds too, and of which no single flip can be taken back.

    Every subset with one flip less is tried at once; the one that fools the target best is kept, and so on. Flips whose taking
    back would break a constraint (an added edge that holds the graph together) stay.
    """
    while len(flips):
        count = len(flips)
        fewer = np.tile(flips, (count, 1))[~np.eye(count, dtype=np.bool_)].reshape(count, count - 1)
        fewer = fewer[space.holds(fewer)]
        outcome = target.evaluate(fewer)
        if not len(outcome) or not outcome.fooled.any():
            break
        flips = fewer[outcome.best()]
    return flips
