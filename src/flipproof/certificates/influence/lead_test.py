"""Tests of the lead: for a fixed attacked set and rival, a statistic that is large only if the top class stays ahead.

Fix an attacked set S and a rival B. In a sample, let T be the number of slots of S (of each kind) that the noise flipped. The
statistic adds ``a(T)`` for every vote for the top class A and subtracts ``b(T)`` for every vote for B. ``x`` and ``y`` are the
laws of T under noise on the clean and on the attacked graph, ``overlap`` is the sum of ``y``. If the attack takes the lead away,

    E exp(a(T) [A] - b(T) [B])  <=  1 + nu (1 - overlap) + sum_t max(0, x_t (e^a_t - 1) - nu y_t, nu y_t - x_t (1 - e^-b_t))

for every ``nu >= 0``. So the sum over M samples exceeds ``log(1 / level) + M log(right-hand side)`` with probability at most
``level``, whatever the classifier is: no bound on any single share is needed, and nothing is added up over subsets of S.
Proof: ``docs/influence.md``. The functions ``a`` and ``b`` are polynomials, so the statistic is a sum of counts over the subsets
of S. Their coefficients come from a solver that is not trusted: the formula above holds for any.

A single slot has a sign test as well. The attacked graph under noise is a mixture of two cases, slot flipped or not, so a class
that leads in both leads after the attack: both cases must pass an exact binomial test, each at the whole level. Under weak noise
this is tighter than an exponential bound.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from flipproof.certificates.vote_share import FloatArray, lower_bound, one_more
from flipproof.graphs import IntArray
from flipproof.noise import EdgeNoise

Kind = tuple[int, ...]

# Shares of votes of the nominal classifier, whatever is flipped; the test is made for the smallest that it can confirm.
NOMINAL = (0.455, 0.47, 0.49, 0.51, 0.53, 0.56, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.93, 0.96, 0.98, 0.99, 0.996)
RIVAL_PART = 0.8  # of the nominal classifier's other votes, those for the rival
_CAPS = (3.0, 10.0, 40.0)  # of likelihood ratios (their roots), where the solver starts
_LARGEST = 32  # attacks on more slots are left to the vote share


@dataclass(frozen=True)
class Group:
    """Slots that are alike."""

    size: int  # number of such slots
    count: int  # how many of them are attacked
    flip: float  # probability that the noise flips such a slot of the clean graph
    moved: float  # probability that such a slot, attacked and then noised, differs from the clean graph


def _binomial(trials: int, probability: float) -> FloatArray:
    """The binomial law by convolution: sums of positive terms, so each entry has a small *relative* error."""
    law = np.ones((1, 1))
    for _ in range(trials):
        law = one_more(law, probability)
    return law.ravel()


@dataclass(frozen=True)
class Attack:
    """All attacks that take ``count`` slots of every group.

    For symmetric noise additions and removals are alike and there is one group. A group whose slots the noise never flips
    is left out; what it contributes is ``overlap``: the probability that the noise on the attacked graph undoes the attack
    on all of its slots. With the rest, nothing is known of the votes, and they are counted for the rival.
    """

    groups: tuple[Group, ...]  # those with a flip probability above 0 and at least one attacked slot
    slots: IntArray  # the slots of all groups, group by group (columns of the flips)
    overlap: float  # see above; 1 where both probabilities are positive

    @classmethod
    def of(cls, noise: EdgeNoise, states: NDArray[np.bool_], *, adds: int, removes: int) -> Attack:
        """The attacks with these numbers of additions and removals (for symmetric noise only their sum matters)."""
        if noise.symmetric and noise.p_add > 0:
            kinds = [(adds + removes, noise.p_add, noise.p_remove, np.arange(len(states)))]
        else:
            kinds = [
                (adds, noise.p_add, noise.p_remove, np.flatnonzero(~states)),
                (removes, noise.p_remove, noise.p_add, np.flatnonzero(states)),
            ]
        groups, slots, overlap = [], [np.empty(0, dtype=np.int64)], 1.0
        for count, flip, other, places in kinds:
            if count and flip > 0:
                groups.append(Group(len(places), count, flip, 1 - other))
                slots.append(places)
            elif count:
                overlap *= other**count
        return cls(tuple(groups), np.concatenate(slots), overlap)

    @property
    def size(self) -> int:
        """Attacked slots whose flips can be seen."""
        return sum(group.count for group in self.groups)

    @property
    def exists(self) -> bool:
        """Whether the graph has enough slots."""
        return all(group.count <= group.size for group in self.groups)

    @cached_property
    def members(self) -> IntArray:
        """Number of the group of each of :attr:`slots`."""
        return np.repeat(np.arange(len(self.groups)), [group.size for group in self.groups])


@dataclass(frozen=True)
class Cells:
    """The values of T, their laws, and the products of binomials that polynomials of T are made of."""

    x: FloatArray  # probability of each cell under noise on the clean and on the attacked graph, ``[K]``
    y: FloatArray
    kinds: tuple[Kind, ...]  # for each product its order in each group
    features: FloatArray  # the products ``C(t_1, k_1) C(t_2, k_2)``, ``[m, K]``

    @classmethod
    @lru_cache(maxsize=512)
    def of(cls, groups: tuple[Group, ...], overlap: float, degree: int) -> Cells:
        """Cells of an attack, with products up to a degree."""
        x, y = np.ones(()), np.full((), overlap)
        for group in groups:
            x = np.multiply.outer(x, _binomial(group.count, group.flip))
            y = np.multiply.outer(y, _binomial(group.count, group.moved))
        counts = np.indices(x.shape).reshape(len(groups), -1).T.tolist()
        most = (min(degree, group.count) for group in groups)
        kinds = (kind for kind in np.ndindex(*(count + 1 for count in most)) if sum(kind) <= degree)
        ordered = tuple(sorted(kinds, key=lambda kind: (sum(kind), kind)))
        features = [[float(math.prod(map(math.comb, cell, kind))) for cell in counts] for kind in ordered]
        return cls(x.ravel(), y.ravel(), ordered, np.array(features))


@dataclass(frozen=True)
class LeadTest:
    """The test for attacks of one size."""

    # for each kind of subset, the weight of a vote for the top class in a sample in which it is flipped
    top: dict[Kind, float]
    # what a vote for the rival takes off, likewise. ``b`` is nowhere negative, so votes for further classes that are counted
    # for the rival only make the statistic smaller.
    rival: dict[Kind, float]
    # the statistic of a set whose attack takes the lead away exceeds it with probability ``level`` at most
    threshold: float
    needed: float  # share of votes of the nominal classifier from which on the test is expected to pass for all sets

    @property
    def degree(self) -> int:
        """Of the polynomials: slots of the largest subsets that are counted."""
        return max(map(sum, self.top))

    @classmethod
    def of(cls, attack: Attack, order: int, *, samples: int, level: float) -> LeadTest | None:
        """The test, a function of sizes, noise and number of samples; ``None`` where it is not expected ever to pass."""
        degree = min(order, attack.size)
        if degree == 0 or attack.size > _LARGEST or level <= 0:
            return None
        return cls._of(attack.groups, attack.overlap, degree, samples, level)

    @classmethod
    @lru_cache(maxsize=4096)
    def _of(cls, groups: tuple[Group, ...], overlap: float, degree: int, samples: int, level: float) -> LeadTest | None:
        sets = sum(math.log(math.comb(group.size, group.count)) for group in groups)
        # the number of slots plays no part in the formula, so graphs of like sizes share a test
        alike = tuple(Group(group.count, group.count, group.flip, group.moved) for group in groups)
        design = _designed(alike, overlap, degree, samples, round(-math.log(level)), round(math.sqrt(2 * sets)))
        if design is None:
            return None
        cells = Cells.of(alike, overlap, degree)
        threshold = -math.log(level) * (1 + 2.0**-40) + samples * log_excess(cells, *design[:3])
        top, rival = (dict(zip(cells.kinds, part.tolist(), strict=True)) for part in design[:2])
        return cls(top, rival, threshold, design[3])


def log_excess(cells: Cells, top: FloatArray, rival: FloatArray, balance: float) -> float:
    """The logarithm of the right-hand side of the formula, rounded up; ``balance`` is nu.

    >>> cells = Cells.of((Group(1, 1, 0.2, 0.8),), 1.0, 1)
    >>> log_excess(cells, np.zeros(2), np.zeros(2), 0.0) < 1e-9
    True
    """
    with np.errstate(over="ignore", invalid="ignore"):
        gain = cells.x * np.expm1(top @ cells.features)
        loss = cells.x * -np.expm1(-(rival @ cells.features))
        moved = balance * cells.y
        worst = np.maximum(0.0, np.maximum(gain - moved, moved - loss)).sum()
        # relative errors: laws 1e-14 (convolutions of at most 32 coins), polynomials of four terms each, sums of at most 1,089
        size = 1 + np.sum(cells.x * np.exp(np.abs(top) @ cells.features) * (1 + np.abs(top) @ cells.features))
        size += np.sum(cells.x * (1 + np.abs(rival) @ cells.features) * np.exp(np.abs(rival) @ cells.features))
        size += np.sum(moved)
        value = np.log1p(worst + balance * max(0.0, 1 - float(cells.y.sum())) + 2.0**-42 * size)
    return float(value) if np.isfinite(value) else math.inf


@lru_cache(maxsize=4096)
def _designed(
    groups: tuple[Group, ...], overlap: float, degree: int, samples: int, surprise: int, spread: int
) -> tuple[FloatArray, FloatArray, float, float] | None:
    """Coefficients for the smallest nominal share that the test confirms, and that share."""
    design = _Design(Cells.of(groups, overlap, degree), samples, spread)
    best, low, high = None, 0, len(NOMINAL)
    while low < high:
        middle = (low + high) // 2
        proposal, value = design.solve(NOMINAL[middle])
        if value > surprise:
            best, high = (*proposal, NOMINAL[middle]), middle
        else:
            low = middle + 1
    return best


class _Design:
    """The search for coefficients: a convex programme that scipy's SLSQP solves well enough."""

    def __init__(self, cells: Cells, samples: int, spread: int) -> None:
        self.cells, self.samples, self.spread = cells, samples, spread
        self.scale = 1 / np.sqrt((cells.x * cells.features**2).sum(axis=1))
        self.features = cells.features * self.scale[:, None]
        count, m = len(cells.x), len(self.scale)
        self.steady = np.zeros((3 * count, 2 * m + 1 + count))  # of the slope of the room: what is the same everywhere
        self.steady[2 * count :, m : 2 * m] = (cells.x * self.features).T
        self.steady[:count, 2 * m], self.steady[count : 2 * count, 2 * m] = cells.y, -cells.y
        self.steady[:count, 2 * m + 1 :] = self.steady[count : 2 * count, 2 * m + 1 :] = np.eye(count) / samples
        self.steady *= samples
        self.start: FloatArray | None = None

    def solve(self, share: float) -> tuple[tuple[FloatArray, FloatArray, float], float]:
        """Coefficients for a nominal share, and what is then expected above ``M log(right-hand side)`` for the worst set."""
        best = (self._clean(np.zeros(2 * len(self.scale) + 1)), -math.inf)
        for start in (*(self._first(cap) for cap in _CAPS), *([] if self.start is None else [self.start])):
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                solution = optimize.minimize(
                    self._cost,
                    start,
                    args=(share,),
                    jac=self._slope,
                    constraints=[{"type": "ineq", "fun": self._room, "jac": self._room_slope}],
                    bounds=[(None, None)] * (2 * len(self.scale)) + [(0, None)] * (1 + len(self.cells.x)),
                    method="SLSQP",
                    options={"maxiter": 300, "ftol": 1e-7},
                )
            proposal = self._clean(solution.x)
            value = self._value(*proposal, share)
            if value > best[1]:
                best = (proposal, value)
                self.start = solution.x
        return best

    def _first(self, cap: float) -> FloatArray:
        """Where to start: the likelihood ratio, cut off, as well as polynomials fit it."""
        x, y = self.cells.x, self.cells.y
        ratio = np.minimum(y / np.maximum(x, 1e-300), cap**2)
        size = 3.7 / math.sqrt(self.samples * max(float(x @ ratio**2), 1e-12))
        target = np.minimum(size * ratio, 0.7)
        root = np.sqrt(x)
        fitted = np.linalg.lstsq((self.features * root).T, target * root, rcond=None)[0]
        values = fitted @ self.features
        excess = np.maximum(0, np.maximum(x * np.expm1(values) - size * y, size * y + x * np.expm1(-values)))
        return np.concatenate([fitted, fitted, [size], excess * self.samples])

    def _parts(self, point: FloatArray) -> tuple[FloatArray, FloatArray, float, FloatArray]:
        """``a`` and ``b`` of every cell, ``nu``, and the maxima in the formula: variables of their own, bounded from below."""
        m = len(self.scale)
        excess = point[2 * m + 1 :] / self.samples
        return point[:m] @ self.features, point[m : 2 * m] @ self.features, float(point[2 * m]), excess

    def _spread(self, a: FloatArray, b: FloatArray, share: float) -> tuple[float, float]:
        """Mean and mean square of the statistic of one sample, for the nominal classifier with this share."""
        rival, x = RIVAL_PART * (1 - share), self.cells.x
        return float(x @ (share * a - rival * b)), float(x @ (share * a**2 + rival * b**2))

    def _cost(self, point: FloatArray, share: float) -> float:
        a, b, _, excess = self._parts(point)
        mean, square = self._spread(a, b, share)
        return -self.samples * (mean - float(excess.sum())) + self.spread * math.sqrt(self.samples * max(square, 1e-18))

    def _slope(self, point: FloatArray, share: float) -> FloatArray:
        a, b, _, _ = self._parts(point)
        x, m, rival = self.cells.x, len(self.scale), RIVAL_PART * (1 - share)
        pull = self.spread * math.sqrt(self.samples / max(self._spread(a, b, share)[1], 1e-18))
        slope = np.ones(len(point))
        slope[:m] = share * self.features @ (x * (pull * a - self.samples))
        slope[m : 2 * m] = rival * self.features @ (x * (pull * b + self.samples))
        slope[2 * m] = self.samples * max(0.0, 1 - float(self.cells.y.sum()))
        return slope

    def _room(self, point: FloatArray) -> FloatArray:
        a, b, balance, excess = self._parts(point)
        x, y = self.cells.x, self.cells.y
        up, down = excess - x * np.expm1(a) + balance * y, excess - balance * y - x * np.expm1(-b)
        return np.concatenate([up, down, x * b]) * self.samples

    def _room_slope(self, point: FloatArray) -> FloatArray:
        a, b, _, _ = self._parts(point)
        x, m, count = self.cells.x, len(self.scale), len(self.cells.x)
        slope = self.steady.copy()
        slope[:count, :m] = -((x * np.exp(a)) * self.features).T * self.samples
        slope[count : 2 * count, m : 2 * m] = ((x * np.exp(-b)) * self.features).T * self.samples
        return slope

    def _clean(self, point: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Finite coefficients with ``b >= 0`` and ``nu >= 0``, whatever came."""
        m = len(self.scale)
        values = np.clip(np.nan_to_num(point[: 2 * m + 1], nan=0.0, posinf=0.0, neginf=0.0), -1e6, 1e6)
        top, rival = values[:m] * self.scale, values[m : 2 * m] * self.scale
        rival[0] += max(0.0, -float((rival @ self.cells.features).min())) * (1 + 2.0**-30)
        return top, rival, max(0.0, float(values[2 * m]))

    def _value(self, top: FloatArray, rival: FloatArray, balance: float, share: float) -> float:
        mean, square = self._spread(top @ self.cells.features, rival @ self.cells.features, share)
        expected = self.samples * (mean - log_excess(self.cells, top, rival, balance))
        return expected - self.spread * math.sqrt(self.samples * max(square - mean**2, 0.0))


@dataclass(frozen=True)
class SignTest:
    """The test for attacks of one slot."""

    level: float  # A slot whose attack takes the lead away passes with probability ``level`` at most
    needed: float  # share of votes of the nominal classifier from which on the test is expected to pass for all slots

    @classmethod
    def of(cls, attack: Attack, *, samples: int, level: float) -> SignTest | None:
        """The test; ``None`` for more than one slot, where the test of the lead is better, or where none is expected to pass."""
        if level <= 0 or attack.overlap < 1 or attack.size != 1:
            return None
        (group,) = attack.groups
        if samples * group.flip * (1 - group.moved) ** 2 >= 1:
            return None
        share = np.array(NOMINAL)
        rival = RIVAL_PART * (1 - share)
        # where the slot is flipped, which is the rarer case, in standard deviations of the votes for either class
        ahead = math.sqrt(samples * min(group.flip, 1 - group.flip)) * (share - rival) / np.sqrt(share + rival)
        wanted = -float(special.ndtri(level)) + math.sqrt(2 * math.log(group.size))
        return next((cls(level, float(s)) for s, z in zip(share, ahead, strict=True) if z > wanted), None)

    def passes(self, top: ArrayLike, rival: ArrayLike) -> bool:
        """Whether the top class leads the rival in one of the two cases, for every slot; votes for each, ``[n]``.

        >>> test = SignTest(level=0.001, needed=0.8)
        >>> test.passes([70, 90], [30, 10]), test.passes([60, 90], [40, 10])
        (True, False)
        """
        top, rival = np.asarray(top), np.asarray(rival)
        return bool(np.all(lower_bound(top, top + rival, failure_prob=self.level) > 0.5))
