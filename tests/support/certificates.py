"""Certificates made by hand."""

from typing import Any

import numpy as np

from flipproof import Certificate, EdgeNoise


def certificate(label: int | None = 0, radius: int = 0, **changes: Any) -> Certificate:
    fields: dict[str, Any] = {
        "label": label,
        "radius": radius,
        "method": "votes",
        "alpha": 0.001,
        "samples": 1000,
        "counts": (990, 10),
        "p_lower": 0.97,
        "p_upper": 0.03,
        "noise": EdgeNoise(keep=0.8),
        "num_slots": 6,
        "grid": np.ones((radius + 1, radius + 1), dtype=bool),
    }
    return Certificate(**(fields | changes))


ABSTAINED = certificate(None, -1, grid=np.zeros((0, 0), dtype=bool))
