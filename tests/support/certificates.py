"""Certificates made by hand."""

from typing import Any

import numpy as np

from flipproof import Certificate, EdgeNoise, Graph, Votes
from flipproof.noise import SampleStream


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


def votes_of(labels: Any, graph: Graph, noise: EdgeNoise, num_classes: int = 2, seed: int = 0) -> Votes:
    """These votes, with the checksums of what the classifier saw."""
    checksums = tuple(SampleStream(graph, noise, seed=seed).checksums(len(labels)))
    return Votes(np.asarray(labels, dtype=np.uint8), graph, noise, num_classes, seed, checksums)


ABSTAINED = certificate(None, -1, grid=np.zeros((0, 0), dtype=bool))
