"""Method ``votes``: from numbers of votes to certificates, by the bounds of :mod:`flipproof.certificates.vote_share`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import GRID_LIMIT, Certificate, cut_grid, up_to
from flipproof.certificates.vote_share import (
    FloatArray,
    bounded_radius,
    certified_grids,
    label_pvalue,
    lower_bound,
    missing,
    upper_bound,
)
from flipproof.noise import EdgeNoise

_TOGETHER = 256  # shares whose grids are computed at a time


def certify_shares(
    labels: Sequence[int | None],
    p_lower: FloatArray,
    p_upper: FloatArray | None,
    counts: NDArray[np.int64],
    noise: EdgeNoise,
    limits: tuple[int, int],
    *,
    method: str,
    alpha: float,
) -> list[Certificate]:
    """The certificates that bounds on shares ``[K]`` give, for votes ``[K, C]`` on the same graph.

    One without a label, or for which ``r = 0`` is not certified, abstains. ``limits`` are the additions and removals that the
    graph offers.
    """
    max_adds, max_removes = limits
    named = np.array([label is not None for label in labels], dtype=np.bool_)
    rivals = None if p_upper is None else p_upper[named]
    radii = np.full(len(named), -1)
    radii[named] = bounded_radius(p_lower[named], noise, rivals, max_adds=max_adds, max_removes=max_removes)
    room = min(max_adds, GRID_LIMIT - 1), min(max_removes, GRID_LIMIT - 1)
    largest, miss = 1 - p_lower if p_upper is None else np.minimum(p_upper, 1 - p_lower), missing(p_lower)

    certificates = []
    for place, label in enumerate(labels):
        if place % _TOGETHER == 0 and not noise.symmetric:
            part = slice(place, place + _TOGETHER)
            grids = certified_grids(miss[part], (miss if p_upper is None else p_upper)[part], noise, *room)
        withstood, grid = int(radii[place]), np.zeros((0, 0), dtype=np.bool_)
        if withstood >= 0:
            grid = up_to(withstood, *limits) if noise.symmetric else grids[place % _TOGETHER]
        certificates.append(
            Certificate(
                label=label if withstood >= 0 else None,
                radius=withstood,
                method=method,
                alpha=alpha,
                samples=int(counts[place].sum()),
                counts=tuple(counts[place].tolist()),
                p_lower=float(p_lower[place]),
                p_upper=float(largest[place]),
                noise=noise,
                num_slots=max_adds + max_removes,
                grid=cut_grid(grid),
                votes_radius=withstood,
            )
        )
    return certificates


def from_counts(counts: NDArray[np.int64], noise: EdgeNoise, *, alpha: float, limits: tuple[int, int]) -> Certificate:
    """Method ``votes``: test of the label, lower bound on its share, upper bounds on all others'.

    Failure probabilities: ``0.1 alpha`` for naming a class that is not the most likely one; if the named class is the
    (fixed) most likely one, ``0.8 alpha`` for its share and ``0.1 alpha`` for the largest share of the others, however many
    there are: only the largest bound is used, and it is below the largest share only if the bound for that one (fixed) class is.
    With two classes the rival's share is one minus the top class's, which gets ``0.9 alpha``.
    """
    return many_from_counts(counts[None], noise, alpha=alpha, limits=limits)[0]


def many_from_counts(
    counts: NDArray[np.int64], noise: EdgeNoise, *, alpha: float, limits: tuple[int, int]
) -> list[Certificate]:
    """As :func:`from_counts`, for votes ``[K, C]``; each certificate holds with probability ``1 - alpha``."""
    samples, several = counts.sum(axis=1), counts.shape[1] > 2
    leaders = np.argsort(-counts, axis=1, kind="stable")[:, :2]
    top, second = np.take_along_axis(counts, leaders, axis=1).T
    sure = label_pvalue(top, second) <= 0.1 * alpha
    labels = [label if known else None for label, known in zip(leaders[:, 0].tolist(), sure.tolist(), strict=True)]
    p_lower = lower_bound(top, samples, failure_prob=(0.8 if several else 0.9) * alpha)
    p_upper = upper_bound(second, samples, failure_prob=0.1 * alpha) if several else None
    return certify_shares(labels, p_lower, p_upper, counts, noise, limits, method="votes", alpha=alpha)
