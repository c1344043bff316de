"""Whether two sets of scores of the same graphs are the same answers, but for rounding.

Differences are held against what decides: the lead of the first class over the second, of the same graph. What all graphs have in
common, such as a number added to every score, loosens nothing; nor does a class that is masked with a huge negative score.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

FLOAT32 = 2.0**-24
"""The unit roundoff of most networks."""

ROUNDING = 1e-4
"""Of the highest logit (at least 1): well above what float32 networks differ by from batch to batch."""

_SURE = 8.0  # errors of independent signs exceed so many times their root sum of squares once in 10^13 times
_LAST = _SURE * 4  # roundings of the scores as they are: the last sum has few terms as large as the score, 16 say
_SHRINK = 2.0**-20  # double precision shrinks rounding by 2**-29; anything else it leaves as it is
_ROOT = 2.0**-14  # and the square root of rounding by 2**-14.5
_DOUBLE = 2.0**-53
_OTHER_ORDER = 8  # times the graphs of a batch: how much more a running sum may round there than for one alone


class Arithmetic(NamedTuple):
    """How a model computes."""

    depth: float
    unit: float = FLOAT32

    @classmethod
    def of_sums(cls, terms: Iterable[int], unit: float) -> Self:
        """Of sums of so many terms each, one after the other.

        The rounding errors of a sum of ``k`` terms add up to ``k`` units of roundoff in the worst case. Their signs are as good
        as independent, and they exceed ``c sqrt(k)`` with probability ``2 exp(-c^2 / 2)`` (Higham and Mary 2019).

        >>> Arithmetic.of_sums([16, 9], FLOAT32).depth
        56.0
        """
        return cls(_SURE * sum(math.sqrt(count) for count in terms), unit)


def agree(
    first: NDArray[Any],
    second: NDArray[Any],
    *,
    tolerance: float,
    arithmetic: Arithmetic,
    among: NDArray[Any] | None = None,
    delicate: NDArray[np.bool_] | None = None,
) -> bool:
    """Whether scores ``[B, C]`` (or labels ``[B]``) differ by no more than rounding can explain.

    Args:
        first, second: Scores of the same graphs, from two ways to ask the same model.
        tolerance: Largest difference, as a share of the lead that it concerns.
        arithmetic: The model's.
        among: Scores of more graphs, which tell how large numbers are from which these scores are made; by default ``first``.
        delicate: Of which graphs all nodes look alike, ``[B]``. Layers that normalise make the square root of rounding of them: a
            standard deviation is 0 but for rounding. They are compared as roughly as that; only double precision tells more.
    """
    if first.shape != second.shape:
        return False
    if first.ndim == 1:
        return bool(np.array_equal(first, second))
    one, other = first.astype(np.float64), second.astype(np.float64)
    finite = np.isfinite(one)
    if (finite != np.isfinite(other)).any():
        return False
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return False
    leaders = _leaders(one)
    leads = np.abs(leaders[:, 1:] - np.where(finite, one, leaders[:, 1:]))  # of the first class over each
    leads = np.maximum(leads, (leaders[:, 1] - leaders[:, 0])[:, None])
    known = leaders if among is None else _leaders(among.astype(np.float64))
    rounding = _rounding(leaders, arithmetic, known)
    allowed = tolerance * leads + rounding[:, None]
    if delicate is not None and delicate.any():
        rough = _SURE * (arithmetic.depth * arithmetic.unit) ** 0.5
        rounding = np.where(delicate, np.maximum(rounding, rough * _size(leaders, known)), rounding)
        allowed = np.where(delicate, np.maximum(rounding, rough * leads.T), allowed.T).T
    with np.errstate(invalid="ignore"):
        close = ~finite | (np.abs(one - other) <= allowed)
    changed = one.argmax(axis=1) != other.argmax(axis=1)
    return bool(close.all() and (not changed.any() or (_near(leaders, rounding) | ~changed).all()))


def tied(scores: NDArray[Any], arithmetic: Arithmetic) -> NDArray[np.bool_]:
    """Of which graphs the two leading classes are so close that rounding may exchange them, ``[B]``."""
    leaders = _leaders(scores.astype(np.float64))
    return _near(leaders, _rounding(leaders, arithmetic, leaders))


def _near(leaders: NDArray[np.float64], rounding: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray(leaders[:, 1] - leaders[:, 0] <= 2 * rounding)


def _leaders(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The two leading scores of each graph, the larger one last, ``[B, 2]``; for one that is not finite, the other or 0."""
    finite = np.isfinite(scores)
    if finite.all():
        return np.sort(scores, axis=1)[:, -2:]
    ordered = np.sort(np.where(finite, scores, -np.inf), axis=1)[:, -2:]
    first = np.where(np.isfinite(ordered[:, 1]), ordered[:, 1], 0.0)
    return np.stack([np.where(np.isfinite(ordered[:, 0]), ordered[:, 0], first), first], axis=1)


def _rounding(leaders: NDArray[np.float64], arithmetic: Arithmetic, among: NDArray[np.float64]) -> NDArray[np.float64]:
    """What rounding may make of the scores of each graph, ``[B]``."""
    last = _LAST * np.abs(leaders).max(axis=1)
    return np.asarray(arithmetic.unit * (arithmetic.depth * _size(leaders, among) + last))


def _size(leaders: NDArray[np.float64], among: NDArray[np.float64]) -> NDArray[np.float64]:
    """How large the numbers are that the scores of each graph are made from, but for what all graphs have in common, ``[B]``."""
    middle = _middle(among.ravel())
    usual = _middle(np.abs(among - middle).max(axis=1))
    return np.asarray(np.maximum(np.abs(leaders - middle).max(axis=1), usual))


def _middle(values: NDArray[np.float64]) -> float:
    """The median; ``np.median`` takes longer than all the rest."""
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2)


class Precise:
    """Scores of the same graphs in single and in double precision, for several subsets of them: whether only rounding differs.

    Double precision shrinks rounding by ``2**-29`` and leaves every other difference as it is. So if the answers in two batches
    come closer by ``2**-20`` at least, what is left of a true dependence on the batch is a millionth of the rounding.
    Classes are judged one by one: the rounding of a masked class says nothing about the others.

    Args:
        single, double: Scores ``[B, C]`` of all graphs together.
    """

    def __init__(self, single: NDArray[Any], double: NDArray[Any]) -> None:
        self._single, self._double = single.astype(np.float64), double.astype(np.float64)
        self._gap, self._left, self._alone = (np.zeros(single.shape[1]) for _ in range(3))
        self._same = np.array_equal(np.isfinite(self._single), np.isfinite(self._double))
        self._error = _differences(self._single, self._double)
        self._largest = np.abs(np.where(np.isfinite(self._double), self._double, 0)).max(axis=0)

    def add(self, subset: NDArray[np.int64], single: NDArray[Any], double: NDArray[Any]) -> None:
        """Scores of a subset in a batch of its own; the rounding of one graph alone is a measure for the others."""
        if single.shape != self._single[subset].shape or double.shape != single.shape:
            self._same = False
            return
        pairs = (single, self._single[subset]), (double, self._double[subset])
        self._same &= all(np.array_equal(np.isfinite(one), np.isfinite(other)) for one, other in pairs)
        gap, left = (_differences(one, other).max(axis=0) for one, other in pairs)
        self._gap, self._left = np.maximum(self._gap, gap), np.maximum(self._left, left)
        error = _differences(single, double)
        self._error[subset] = np.maximum(self._error[subset], error)
        if len(subset) == 1:
            self._alone = np.maximum(self._alone, error[0])

    def only_rounding(self, *, delicate: bool = False) -> bool:
        """Whether the answers in different batches differ by rounding alone; for delicate graphs, by its square root."""
        shrink = _ROOT if delicate else _SHRINK
        rounding = np.maximum(self._gap, self._error.max(axis=0))
        return bool(self._same and (self._left <= shrink * rounding + _LAST * _DOUBLE * self._largest).all())

    def usual(self) -> bool:
        """Whether no batch makes far more of the scores in single precision than rounding makes of a graph alone."""
        most = _OTHER_ORDER * len(self._single) * self._alone
        return bool((self._gap <= most + _LAST * FLOAT32 * self._largest).all())

    def harmless(self, scores: NDArray[Any]) -> bool:
        """Whether the largest rounding seen is too small to turn an answer that is not close; ``scores [B, C]`` of the graphs."""
        size = np.maximum(np.abs(scores), np.abs(scores.max(axis=1, keepdims=True)))
        return bool((2 * self._error <= ROUNDING * np.maximum(1.0, size)).all())


def _differences(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.float64]:
    """Absolute differences where both are finite, 0 elsewhere."""
    both = np.isfinite(one) & np.isfinite(other)
    return np.asarray(np.abs(np.where(both, one, 0.0) - np.where(both, other, 0.0)))
