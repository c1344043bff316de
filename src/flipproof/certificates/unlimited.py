"""The certificate of an answer that no edge can change ("edge-blind"): nothing is sampled, nothing can fail."""

from __future__ import annotations

import numpy as np

from flipproof.certificates.certificate import GRID_LIMIT, Certificate, cut_grid

__all__ = ["unlimited_certificate"]


def unlimited_certificate(label: int, *, num_classes: int, max_adds: int, max_removes: int) -> Certificate:
    """The answer stands for every graph on the same nodes: radius ``N``, alpha 0, no samples.

    >>> unlimited_certificate(1, num_classes=2, max_adds=5, max_removes=1).radius
    6
    """
    size = (min(max_adds, GRID_LIMIT - 1) + 1, min(max_removes, GRID_LIMIT - 1) + 1)
    return Certificate(
        label=label,
        radius=max_adds + max_removes,
        method="edge-blind",
        alpha=0.0,
        samples=0,
        counts=(0,) * num_classes,
        p_lower=1.0,
        p_upper=0.0,
        noise=None,
        num_slots=max_adds + max_removes,
        grid=cut_grid(np.ones(size, dtype=np.bool_)),
        votes_radius=max_adds + max_removes,
    )
