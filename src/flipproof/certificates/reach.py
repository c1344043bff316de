"""How far a certificate can reach at best: the certificate of votes that all agree, before any sample is taken."""

from __future__ import annotations

import numpy as np

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.methods import certify_votes
from flipproof.certificates.sampled_votes import Votes
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise, SampleStream

__all__ = ["unanimous_certificate"]

_MOST_DRAWS = 2**27  # slots of all samples up to which the flips themselves are made


def unanimous_certificate(
    graph: Graph,
    noise: EdgeNoise,
    *,
    samples: int,
    alpha: float,
    method: str,
    num_classes: int,
    looks: tuple[int, ...] = (),
    seed: int = 0,
) -> Certificate:
    """The certificate if every noisy copy of the graph got the same vote: none with these settings reaches farther.

    The influence certificate reads the flips; where making them would take long, the share of votes stands for it.

    >>> asked = {"samples": 500, "alpha": 0.001, "method": "votes"}
    >>> unanimous_certificate(Graph(12, [(0, 1)]), EdgeNoise(keep=0.9), num_classes=2, **asked).radius
    1
    """
    if samples * graph.num_slots > _MOST_DRAWS:
        method = "votes" if method == "influence" else method
    reads_flips = method == "influence"
    stream = SampleStream(graph, noise, seed=seed)
    checksums = tuple(stream.checksums(samples)) if reads_flips else ("",) * -(-samples // 1024)
    votes = Votes(np.zeros(samples, dtype=np.uint8), graph, noise, num_classes, seed, checksums, looks=looks)
    return certify_votes(votes, alpha=alpha, method=method)
