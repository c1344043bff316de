"""Streams of noisy samples to look at, and tests of fit for their flips.

Tests of fit use fixed seeds, so they are deterministic. Their false-alarm rate, had the seed been random, is below
``FALSE_ALARM`` for each p-value, after Bonferroni over all slots and pairs that it looks at.
"""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from flipproof import EdgeNoise, Graph
from flipproof.noise import SampleStream
from flipproof.noise.stream import AdditionLaw

FALSE_ALARM = 1e-6

SMALL = Graph(8, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (0, 7), (0, 4)])
FROZEN = SMALL.replaced(frozen=[(0, 1), (2, 5), (4, 5), (6, 7), (1, 7)])
RING = Graph(100, [(node, (node + 1) % 100) for node in range(100)])
FROZEN_RING = RING.replaced(frozen=[(0, 1), (50, 51), (0, 50), (1, 2), (10, 90)])
SPARSE_NOISE = EdgeNoise(add=0.002, remove=0.3)


def stream(graph: Graph = SMALL, noise: EdgeNoise | None = None, seed: int = 0) -> SampleStream:
    return SampleStream(graph, EdgeNoise(keep=0.8) if noise is None else noise, seed=seed)


def forced_sparse(graph: Graph, noise: EdgeNoise, seed: int = 0, draws: int | None = None) -> SampleStream:
    """The sparse sampler where the dense one would be chosen, if need be with fewer draws than it wants."""
    forced = SampleStream(graph, noise, seed=seed)
    law = AdditionLaw.of(graph.max_adds, noise.add_threshold)
    forced._additions = law if draws is None else dataclasses.replace(law, draws=draws)
    forced.sparse = True
    return forced


CASES = {
    "dense": (SMALL, EdgeNoise(keep=0.8)),
    "dense, unequal, frozen": (FROZEN, EdgeNoise(add=0.1, remove=0.4)),
    "dense, large": (RING, EdgeNoise(keep=0.9)),
    "sparse": (RING, SPARSE_NOISE),
    "sparse, frozen": (FROZEN_RING, SPARSE_NOISE),
    "sparse, only removals": (RING, EdgeNoise(add=0, remove=0.3)),
    "sparse, only additions": (RING, EdgeNoise(add=0.002, remove=0)),
    "no slots": (Graph(1, []), EdgeNoise(keep=0.8)),
    "no noise": (SMALL, EdgeNoise(add=0, remove=0)),
}
cases = pytest.mark.parametrize(("graph", "noise"), CASES.values(), ids=CASES.keys())


def flip_probabilities(graph: Graph, noise: EdgeNoise) -> np.ndarray:
    return np.where(graph.slot_states, noise.p_remove, noise.p_add)


def count_law(probabilities: np.ndarray) -> np.ndarray:
    """The law of a sum of independent coins."""
    law = np.ones(1)
    for q, number in zip(*np.unique(probabilities, return_counts=True), strict=True):
        law = np.convolve(law, stats.binom.pmf(np.arange(number + 1), number, q))
    return law


def smallest_pvalue(counts: np.ndarray, trials: int, probabilities: np.ndarray) -> float:
    """Two-sided exact binomial p-value of the worst of several counts, times their number."""
    below = stats.binom.cdf(counts, trials, probabilities)
    above = stats.binom.sf(counts - 1, trials, probabilities)
    return float(min(1.0, 2 * np.minimum(below, above).min(initial=1.0) * max(1, counts.size)))


def chi_square_pvalue(observed: np.ndarray, law: np.ndarray) -> float:
    """Fit of a histogram, bins with fewer than 5 expected joined with their neighbours."""
    expected = law * observed.sum()
    edges = np.searchsorted(np.cumsum(expected), np.arange(5, observed.sum(), 5), side="left")
    starts = np.unique(np.concatenate([[0], edges[:-1] + 1]))
    starts = starts[starts < len(law)]
    joined, wanted = np.add.reduceat(observed, starts), np.add.reduceat(expected, starts)
    if wanted[-1] < 5 and len(wanted) > 1:
        joined, wanted = np.append(joined[:-2], joined[-2:].sum()), np.append(wanted[:-2], wanted[-2:].sum())
    return float(stats.chisquare(joined, wanted * joined.sum() / wanted.sum()).pvalue)


def fit_pvalues(flips: np.ndarray, probabilities: np.ndarray) -> dict[str, float]:
    """P-values of all that is tested about flips ``[M, N]`` of known probabilities; Bonferroni in each."""
    samples, slots = flips.shape
    as_float = flips.astype(np.float32)
    together = np.rint(as_float.T @ as_float).astype(np.int64)
    upper = np.triu_indices(slots, 1)
    after_each_other = np.rint(as_float[:-1:2].T @ as_float[1::2]).astype(np.int64)  # disjoint pairs of samples
    products = np.outer(probabilities, probabilities)
    totals = flips.sum(axis=1)
    law = count_law(probabilities)
    return {
        "slots": smallest_pvalue(flips.sum(axis=0), samples, probabilities),
        "pairs": smallest_pvalue(together[upper], samples, products[upper]),
        "consecutive samples": smallest_pvalue(after_each_other.ravel(), samples // 2, products.ravel()),
        "totals": chi_square_pvalue(np.bincount(totals, minlength=len(law)), law),
    }
