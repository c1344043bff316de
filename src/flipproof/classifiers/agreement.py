"""Whether two sets of scores of the same graphs are the same answers, but for rounding.

Differences are held against the scores that decide: of every class against its own size and against the two leading classes of
the same graph. A class that is masked with a huge negative score therefore loosens nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["agree", "tied"]

_ROUNDING = 1e-5  # of the leading scores of the other graphs: sums of large numbers that cancel leave about so much


def agree(first: NDArray[Any], second: NDArray[Any], *, tolerance: float) -> bool:
    """Whether scores ``[B, C]`` (or labels ``[B]``) differ by no more than rounding can explain.

    Args:
        first, second: Scores of the same graphs, from two ways to ask the same model.
        tolerance: Largest difference, as a share of the scores that decide.
    """
    if first.shape != second.shape:
        return False
    if first.ndim == 1:
        return bool(np.array_equal(first, second))
    one, other = first.astype(np.float64), second.astype(np.float64)
    finite = np.isfinite(one)
    if not np.array_equal(finite, np.isfinite(other)) or not np.array_equal(
        one[~finite], other[~finite], equal_nan=True
    ):
        return False
    leading = _leading(one)
    allowed = tolerance * np.maximum(np.abs(one), leading[:, None]) + _ROUNDING * np.median(leading)
    with np.errstate(invalid="ignore"):
        close = ~finite | (np.abs(one - other) <= allowed)
    changed = one.argmax(axis=1) != other.argmax(axis=1)
    return bool(close.all() and (tied(one, tolerance) | ~changed).all())


def tied(scores: NDArray[Any], tolerance: float) -> NDArray[np.bool_]:
    """Of which graphs the two leading classes are so close that rounding may exchange them, ``[B]``."""
    ordered = np.sort(np.where(np.isfinite(scores), scores, -np.inf), axis=1)
    with np.errstate(invalid="ignore"):
        lead = ordered[:, -1] - ordered[:, -2]
    leading = _leading(scores)
    return np.asarray(lead <= 2 * tolerance * leading + _ROUNDING * np.median(leading))


def _leading(scores: NDArray[Any]) -> NDArray[np.float64]:
    """The larger size of the two leading scores of each graph; 0 where neither is finite."""
    ordered = np.sort(np.where(np.isfinite(scores), scores, -np.inf), axis=1)[:, -2:]
    sizes: NDArray[np.float64] = np.where(np.isfinite(ordered), np.abs(ordered), 0.0).max(axis=1)
    return sizes
