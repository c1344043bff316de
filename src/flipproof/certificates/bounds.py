"""Confidence: Clopper-Pearson bounds rounded outward, and the test of the label.

Pure mathematics on counts; math in ``docs/theory.md``, section "Confidence".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from flipproof.errors import InputError

FloatArray = NDArray[np.float64]

# scipy's incomplete beta function is accurate to a few parts in 1e13 for the counts that occur; this margin is added
# in the direction that hurts us, and tests compare the result with exact arithmetic
_MARGIN = 2.0**-38


def lower_bound(successes: ArrayLike, trials: ArrayLike, *, failure_prob: float) -> FloatArray:
    """Lower confidence bound on a share of votes (one-sided Clopper-Pearson), rounded down.

    With probability at least ``1 - failure_prob`` the true share is not below it: the solution ``p`` of
    ``Pr(Binomial(trials, p) >= successes) = failure_prob``, or 0 without a success. Scalars or arrays that broadcast.

    >>> round(float(lower_bound(1000, 1000, failure_prob=0.001)), 4)
    0.9931
    """
    successes, trials = _checked_counts(successes, trials)
    if not 0 < failure_prob < 1:
        raise InputError(f"failure_prob must lie in (0, 1); got {failure_prob!r} (for instance 0.001)")
    k, n = np.broadcast_arrays(successes.astype(np.float64), trials.astype(np.float64))
    bound = np.zeros(k.shape)
    positive = k > 0
    k, n = k[positive], n[positive]
    # a smaller tail probability gives a smaller bound; the last factor covers the inverse's own rounding
    tail = failure_prob * (1 - _MARGIN)
    share = np.where(k == n, np.exp(np.log(tail) / np.maximum(n, 1)), special.betaincinv(k, n - k + 1, tail))
    bound[positive] = np.clip(share - np.minimum(share, 1 - share) * _MARGIN - 4 * np.spacing(share), 0.0, 1.0)
    return bound


def upper_bound(successes: ArrayLike, trials: ArrayLike, *, failure_prob: float) -> FloatArray:
    """Upper confidence bound on a share of votes (one-sided Clopper-Pearson), rounded up.

    With probability at least ``1 - failure_prob`` the true share is not above it; 1 where every trial was a success.

    >>> round(float(upper_bound(0, 1000, failure_prob=0.001)), 4)
    0.0069
    """
    successes, trials = _checked_counts(successes, trials)
    complement = lower_bound(trials - successes, trials, failure_prob=failure_prob)
    return np.minimum(1.0, np.nextafter(1.0 - complement, 2.0))


def label_pvalue(top: ArrayLike, second: ArrayLike) -> FloatArray:
    """Two-sided binomial p-value of the two largest counts under a fair coin, rounded up [BPV].

    If the label is only named when this is at most ``delta``, a class that is not the most likely one is named with
    probability at most ``delta``, for any number of classes (Hung and Fithian, Annals of Statistics 2019).

    >>> float(label_pvalue(10, 0)) <= 2 * 2**-10 * (1 + 1e-9)
    True
    """
    top, second = np.asarray(top, dtype=np.float64), np.asarray(second, dtype=np.float64)
    # Pr(Binomial(top + second, 1/2) >= top); a beta function with a zero parameter is the certain event
    tail = np.where(top > 0, special.betainc(np.maximum(top, 1), second + 1, 0.5), 1.0)
    return np.clip(2 * tail * (1 + _MARGIN), np.finfo(np.float64).tiny, 1.0)


def checked_alpha(alpha: float, *, samples: int = 0, discrepancy: float = 0.0) -> float:
    """Alpha, less what the sampler's inexactness costs: ``samples`` times its total-variation distance."""
    if isinstance(alpha, (bool, str)) or not isinstance(alpha, (int, float, np.floating)) or not 0 < alpha < 1:
        raise InputError(f"alpha must lie in (0, 1); got {alpha!r} (for instance 0.001)")
    remaining = float(alpha) - samples * discrepancy * (1 + 2.0**-40)
    if remaining <= 0:
        raise InputError(
            f"alpha = {alpha:g} is used up by the sampler's inexactness, {samples * discrepancy:g} (use a larger one)"
        )
    return remaining


def _checked_counts(successes: ArrayLike, trials: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    k, n = np.asarray(successes), np.asarray(trials)
    if k.dtype.kind not in "iu" or n.dtype.kind not in "iu":
        raise InputError(f"counts must be integers; got {k.dtype} and {n.dtype} (pass numbers of votes)")
    if (k < 0).any() or (k > n).any():
        raise InputError("successes must lie between 0 and trials; got counts outside (check the order of arguments)")
    return k.astype(np.int64, copy=False), n.astype(np.int64, copy=False)
