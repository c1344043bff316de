"""The paper's Algorithm 1 ("paper"), kept as its own method so that the paper's figures are the paper's.

Gao, Hu, Gong: Certified Robustness of Graph Classification against Topology Attack with Randomized Smoothing, GLOBECOM 2020.
Differences to the printed text are listed in ``docs/paper.md``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flipproof.bounds import label_pvalue, lower_bound
from flipproof.certificates.certificate import Certificate
from flipproof.certificates.votes import certify_shares
from flipproof.noise import EdgeNoise

__all__ = ["from_counts"]


def from_counts(
    counts: NDArray[np.int64],
    noise: EdgeNoise,
    *,
    alpha: float,
    max_adds: int,
    max_removes: int,
    stated_alpha: float | None = None,
) -> Certificate:
    """Algorithm 1: certify iff BPV(eta_A, eta_A + eta_B, 0.5) <= alpha and LCB(eta_A, M, 1 - alpha) > 1/2.

    The paper uses level alpha for the share although the class is chosen on the same samples. For keep probabilities of
    .55 and more the failure probability is at most alpha all the same; for others (and for unequal probabilities) the
    share is tested at alpha / 2, which is always enough.
    """
    top, second = (int(index) for index in np.argsort(-counts, kind="stable")[:2])
    level = alpha if noise.symmetric and noise.p_add <= 0.45 else alpha / 2
    p_lower = float(lower_bound(counts[top], counts.sum(), failure_prob=level))
    named = label_pvalue(counts[top], counts[second]) <= alpha and p_lower > 0.5
    return certify_shares(
        top if named else None,
        p_lower,
        None,
        method="paper",
        alpha=alpha if stated_alpha is None else stated_alpha,
        counts=counts,
        noise=noise,
        max_adds=max_adds,
        max_removes=max_removes,
    )
