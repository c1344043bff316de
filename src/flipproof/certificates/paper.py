"""The paper's Algorithm 1 ("paper"), kept as its own method so that the paper's figures are the paper's.

Gao, Hu, Gong: Certified Robustness of Graph Classification against Topology Attack with Randomized Smoothing, GLOBECOM 2020.
Differences to the printed text are listed in ``docs/paper.md``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.vote_share import certify_shares, label_pvalue, lower_bound, slack
from flipproof.noise import EdgeNoise


def from_counts(counts: NDArray[np.int64], noise: EdgeNoise, *, alpha: float, limits: tuple[int, int]) -> Certificate:
    """Algorithm 1: certify iff BPV(eta_A, eta_A + eta_B, 0.5) <= alpha and LCB(eta_A, M, 1 - alpha) > 1/2.

    The paper uses level alpha for the share although the class is chosen on the same samples; see :func:`share_level`
    for where that is sound, and what is used elsewhere.
    """
    top, second = (int(index) for index in np.argsort(-counts, kind="stable")[:2])
    level = share_level(int(counts.sum()), noise, alpha)
    p_lower = lower_bound(counts[[top]], counts.sum(), failure_prob=level)
    named = label_pvalue(counts[top], counts[second]) <= alpha and p_lower > 0.5
    labels, votes = [top if named else None], counts[None]
    return certify_shares(labels, p_lower, None, votes, noise, limits, method="paper", alpha=alpha)[0]


def share_level(samples: int, noise: EdgeNoise, alpha: float) -> float:
    """Level of the bound on the share such that the certificate fails with probability at most alpha.

    A false radius of 1 or more for the truly most likely class costs the level. On top of that a class that is behind
    may win the vote. Where a radius of 1 is at stake, such a class has a share of at most ``s = 1 - p*(1)``, so that it
    wins a majority with probability at most ``Pr(Binomial(M, s) > M/2)``. If this is at most a hundredth of alpha, it
    is taken off alpha (with the paper's numbers of samples nothing is left of it: the level is alpha). Otherwise the
    level is alpha / 2, which is enough for any number of classes.
    """
    majority = samples // 2 + 1
    share = max(slack(noise, 1, 0), slack(noise, 0, 1))
    behind = float(special.betainc(majority, samples - majority + 1, share)) * (1 + 2.0**-38)
    return alpha - behind if behind <= alpha / 100 else alpha / 2
