"""The number of edges that the sparse sampler adds: a binomial law, by inversion of a table."""

from __future__ import annotations

import decimal
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from flipproof.graphs import IntArray
from flipproof.noise.law import WORD

__all__ = ["AdditionLaw"]

_SPARE_DRAWS = 8


@dataclass(frozen=True)
class AdditionLaw:
    """The number of added edges: a binomial law as a table of 64-bit thresholds."""

    first: int
    thresholds: NDArray[np.uint64]
    draws: int
    discrepancy: float

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, empty: int, threshold: int) -> AdditionLaw | None:
        """The law of Binomial(empty, threshold / 2**32), or ``None`` where a table would be too long to be useful."""
        mean = empty * threshold / WORD
        if mean > 100_000:
            return None
        first, thresholds = _binomial_thresholds(empty, threshold)
        most = first + len(thresholds)
        spare = 2 * most * most // max(1, empty) + _SPARE_DRAWS
        # every threshold is off by less than 2**-64, as are both ends that are cut off; doubled for the decimal digits
        discrepancy = 0.0 if threshold == 0 else (len(thresholds) + 4) * 2.0**-63
        return cls(first, thresholds, 0 if threshold == 0 else most + spare, discrepancy)

    def counts(self, words: NDArray[np.uint64]) -> IntArray:
        """Counts by inversion: the number of thresholds at or below each word."""
        return self.first + np.searchsorted(self.thresholds, words, side="right").astype(np.int64)


def _binomial_thresholds(trials: int, threshold: int) -> tuple[int, NDArray[np.uint64]]:
    """``floor(2**64 Pr(count <= c))`` for c = first, first + 1, ... for as long as it lies between 0 and 2**64."""
    if threshold == 0 or trials == 0:
        return 0, np.empty(0, dtype=np.uint64)
    with decimal.localcontext() as context:
        context.prec, context.Emin, context.Emax = 60, decimal.MIN_EMIN, decimal.MAX_EMAX
        stay = decimal.Decimal(WORD - threshold) / WORD
        odds = decimal.Decimal(threshold) / (WORD - threshold)
        mass = stay**trials
        total, scale = mass, decimal.Decimal(2**64)
        first, table = 0, list[int]()
        for count in range(trials):
            value = int(total * scale)
            if value >= 2**64 - 1:
                break
            if value > 0:
                table.append(value)
            else:
                first = count + 1
            mass = mass * (trials - count) / (count + 1) * odds
            total += mass
    return first, np.array(table, dtype=np.uint64)
