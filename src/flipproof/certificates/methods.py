"""From stored votes, or class counts from elsewhere, to a certificate; without a model call."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from flipproof.certificates import influence, paper
from flipproof.certificates import vote_share as by_votes
from flipproof.certificates.bounds import AlphaSplit, checked_alpha, spending
from flipproof.certificates.certificate import Certificate
from flipproof.certificates.sampled_votes import Votes
from flipproof.errors import InputError
from flipproof.graphs import Graph, as_graph
from flipproof.noise import EdgeNoise

__all__ = ["DEFAULT_METHOD", "METHODS", "certify_counts", "certify_votes", "checked_method"]

METHODS = ("influence", "votes", "paper")
DEFAULT_METHOD = "influence"
_UNBOUNDED = 1000  # where the graph is unknown, radii are looked for up to here


def checked_method(method: str) -> str:
    """The method's name, if there is one of this name."""
    if method not in METHODS:
        raise InputError(
            f"method must be one of {', '.join(METHODS)}; got {method!r} (the default is {DEFAULT_METHOD})"
        )
    return method


def certify_votes(
    votes: Votes,
    *,
    alpha: float = 0.001,
    method: str = DEFAULT_METHOD,
    samples: int | None = None,
    split: AlphaSplit | None = None,
) -> Certificate:
    """A certificate from stored votes: for another alpha, another method, or the first ``samples`` of them.

    Each single certificate holds with probability ``1 - alpha``. Reading several from the same votes and keeping the best
    is not covered: the better of two, at alpha each, costs two alpha. Votes that were sampled until there were enough
    (``samples="auto"``) are read at the part of alpha that belongs to the look at which sampling ended.

    Args:
        votes: What the classifier said of every sample.
        alpha: Failure probability.
        method: ``"influence"``, ``"votes"`` or ``"paper"``.
        samples: Use the first so many votes only.
        split: How alpha is shared among the bounds; by default what the method finds best. ``paper`` has none.
    """
    if not isinstance(votes, Votes):
        raise InputError(f"expected Votes; got {type(votes).__name__} (certify_counts takes class counts)")
    checked_method(method)
    if samples is not None:
        votes = votes.first(samples)
    parts = spending(len(votes.looks)) if votes.looks else (1.0,)
    taken = votes.looks[: votes.looks.index(len(votes)) + 1] if votes.looks else ()
    level = checked_alpha(alpha) * parts[max(0, len(taken) - 1)]
    remaining = checked_alpha(level, samples=len(votes), discrepancy=votes.stream().discrepancy)
    origin: dict[str, Any] = {"seed": votes.seed, "looks": taken}
    if taken:
        origin["spent_alpha"] = float(alpha) * math.fsum(parts[: len(taken)])
    if split is not None and not isinstance(split, AlphaSplit):
        raise InputError(f"split must be an AlphaSplit; got {split!r} (or None for the default)")
    if method == "influence":
        found = influence.from_votes(votes, alpha=remaining, stated_alpha=float(alpha), split=split)
        return replace(found, **origin)
    if method == "paper" and split is not None:
        raise InputError(f"method paper does not split alpha; got {split} (leave split out)")
    options: dict[str, Any] = {"max_adds": votes.graph.max_adds, "max_removes": votes.graph.max_removes}
    if split is not None:
        options["split"] = split
    from_counts = paper.from_counts if method == "paper" else by_votes.from_counts
    found = from_counts(votes.counts, votes.noise, alpha=remaining, stated_alpha=float(alpha), **options)
    return replace(found, **origin)


def certify_counts(
    counts: ArrayLike,
    noise: EdgeNoise,
    *,
    alpha: float = 0.001,
    method: str = "votes",
    graph: Graph | None = None,
) -> Certificate:
    """A certificate from class counts that come from elsewhere.

    The counts must be the votes of independent samples under exactly this noise, one entry a declared class, classes
    without a vote included.

    >>> certify_counts([9990, 10], EdgeNoise(keep=0.8)).radius
    5
    """
    values = np.asarray(counts)
    if values.ndim != 1 or len(values) < 2:
        raise InputError(
            f"counts must be one number a class, at least two; got shape {values.shape} (classes without a vote count as 0)"
        )
    if values.dtype.kind not in "iu" or np.any(values < 0) or values.sum() < 1:
        raise InputError(f"counts must be numbers of votes, at least one in all; got {values.tolist()} (pass integers)")
    if method == "influence":
        raise InputError(
            "method influence reads the flips of every sample; counts do not hold them (use votes, or certify_votes)"
        )
    checked_method(method)
    from_counts = paper.from_counts if method == "paper" else by_votes.from_counts
    offered = (_UNBOUNDED, _UNBOUNDED)
    if graph is not None:
        known = as_graph(graph)
        offered = (known.max_adds, known.max_removes)
    return from_counts(
        values.astype(np.int64), noise, alpha=checked_alpha(alpha), max_adds=offered[0], max_removes=offered[1]
    )
