"""How far a class's lead can fall under attack, given bounds on its influences: the identity and the linear programme.

Let A be the top class, B a rival, S the attacked slots, T the number of them that differ from the clean graph. All functions
here return a number that is never above ``Pr(f(Y)=A) - Pr(f(Y)=B)``, for any attacked set of the given kind, if the moment
bounds they are given are true for that set. Proofs: ``docs/influence.md``.

No solver is trusted. Multipliers come from tables or from a solver; whatever they are, the bound that counts is the dual
formula, evaluated with every rounding against us.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from flipproof.certificates.bounds import FloatArray
from flipproof.certificates.influence.attack import Attack, Group
from flipproof.certificates.influence.statistics import MomentBounds

__all__ = ["Cells", "dual_bound", "lead_by_identity", "lead_by_programme", "lead_by_triples", "least_sum"]

IntArray = NDArray[np.int64]

_NODES = 20  # at most so many values of T serve as nodes of tabled multipliers
_IDENTITY_MARGIN = 2.0**-44
_UP = 1 + 2.0**-50
_CLOSE = -0.02  # with one group the solver is asked only where tabled multipliers come as near as this


# ---- the identity --------------------------------------------------------------------------------------------------


def lead_by_identity(bounds: MomentBounds, attack: Attack) -> float:
    """The worst lead over all attacked sets of one or two slots, where every subset has a bound of its own.

    The likelihood ratio of the noisy attacked graph to the noisy clean one is a product over the attacked slots of
    ``stay_ratio + flip_gain * [slot flipped]``. Multiplied out,

        Pr(f(Y)=A) = sum over U subset of S of  c_U Pr(f(X)=A, every slot of U flipped),

    with c_U the product of ``flip_gain`` over U and of ``stay_ratio`` over the rest of S: all positive.
    """
    assert attack.size < len(bounds.lower) <= 3, "every subset needs a bound"
    difference = [low - high for low, high in zip(bounds.lower, bounds.upper, strict=True)]
    stay, gain = _factors(attack)
    if attack.size == 0:
        leads = difference[0]
    elif attack.size == 1:
        leads = stay * difference[0] + gain * difference[1]
    else:
        leads = _pair_leads(difference[0], difference[1], difference[2], stay, gain)[_pairs_of(attack.members, attack)]
    return _worst(leads, attack)


def lead_by_triples(
    bounds: MomentBounds,
    attack: Attack,
    refine: Callable[[int, IntArray, IntArray], tuple[FloatArray, FloatArray]],
    *,
    enough: float = 0.0,
    hopeless: float = 0.0,
) -> float:
    """The identity for attacks on three slots, asking for bounds on triples only where pairs do not say enough.

    Slot by slot: with one of the three slots fixed, the identity for the other two has the same form, with
    ``stay Pr(.) + gain Pr(., slot flipped)`` in place of every probability.

    Args:
        bounds: Of order 2.
        attack: On three slots.
        refine: Given places ``i, j, k`` in the attack's slots (one, and two arrays), bounds on Pr(A, all three flipped) from
            below and Pr(B, all three flipped) from above.
        enough: Triples are not refined where pairs alone give more than this.
        hopeless: A lead that is not above this even when refined ends the search; the bound returned is then minus infinity.
    """
    assert attack.size == 3
    assert len(bounds.lower) == 3
    stay, gain = _factors(attack)
    share, first, second = (low - high for low, high in zip(bounds.lower, bounds.upper, strict=True))
    # most harmful slots first, so that a lost case ends early
    ranked = np.argsort(gain * (first + np.sort(second, axis=1)[:, :2].sum(axis=1)), kind="stable")
    stay, gain, q, first = (values[ranked] for values in (stay, gain, attack.flips, first))
    second, low2, high2 = (table[np.ix_(ranked, ranked)] for table in (second, bounds.lower[2], bounds.upper[2]))
    pair_leads = _pair_leads(share, first, second, stay, gain)
    weight = gain * q
    worst_third = np.multiply.outer(weight, weight)
    goal = (enough + (1 - attack.overlap) + _IDENTITY_MARGIN) / attack.overlap
    worst = np.inf
    for slot in range(len(ranked) - 2):
        rest = slice(slot + 1, None)
        wanted = _pairs_of(attack.members[ranked[rest]], attack, int(attack.members[ranked[slot]]))
        # the identity for the other two slots, with the triple's difference at its worst, -Pr(all three flipped)
        mixed = np.multiply.outer(gain[rest] * second[slot, rest] + stay[rest] * (first[slot] / 2), stay[rest])
        leads = stay[slot] * pair_leads[rest, rest] + gain[slot] * (mixed + mixed.T - q[slot] * worst_third[rest, rest])
        j, k = np.nonzero(wanted & ~(leads > goal))
        if len(j):
            i, j, k = slot, j + slot + 1, k + slot + 1
            flipped = q[i] * q[j] * q[k]
            low = np.maximum(0.0, implied_lower(low2[j, k], q[j] * q[k], q[i]))
            low = np.maximum(low, implied_lower(low2[i, j], q[i] * q[j], q[k]))
            low = np.minimum(np.maximum(low, implied_lower(low2[i, k], q[i] * q[k], q[j])), flipped)
            high = np.minimum(np.minimum(high2[j, k], np.minimum(high2[i, j], high2[i, k])), flipped * _UP - low)
            third = gain[i] * gain[j] * gain[k]
            raised = leads[j - slot - 1, k - slot - 1] + third * (low - high + flipped)
            open_ = np.flatnonzero(~(raised > goal))
            if len(open_):
                more_low, more_high = refine(int(ranked[i]), ranked[j[open_]], ranked[k[open_]])
                more_low = np.maximum(more_low, low[open_])
                more_high = np.minimum(np.minimum(more_high, high[open_]), flipped[open_] * _UP - more_low)
                raised[open_] += third[open_] * (more_low - more_high - low[open_] + high[open_])
            leads[j - slot - 1, k - slot - 1] = raised
        worst = min(worst, _worst(leads[wanted], attack))
        if worst <= hopeless:
            return -np.inf
    return worst


def implied_lower(less: FloatArray, flipped: FloatArray, one_more: FloatArray | float) -> FloatArray:
    """Pr(A, U and i flipped) is at least Pr(A, U flipped) - Pr(U flipped) (1 - q_i); rounded down."""
    # the constant outweighs the rounding of three operations on numbers up to 1
    return np.asarray(less - flipped * (1 - one_more) - 2.0**-50)


def _factors(attack: Attack) -> tuple[FloatArray, FloatArray]:
    """``stay_ratio`` and ``flip_gain`` of every slot."""
    stay = attack.per_slot([group.stay_ratio for group in attack.groups], 1)
    return stay, attack.per_slot([group.flip_gain for group in attack.groups], 1)


def _pair_leads(
    nothing: FloatArray, one: FloatArray, two: FloatArray, stay: FloatArray, gain: FloatArray
) -> FloatArray:
    """The identity for every pair of slots, given differences with none, one and both of them flipped: ``[n, n]``."""
    mixed = np.multiply.outer(gain * one, stay)
    return np.asarray(np.multiply.outer(stay * nothing, stay) + mixed + mixed.T + np.multiply.outer(gain, gain) * two)


def _pairs_of(members: IntArray, attack: Attack, *others: int) -> NDArray[np.bool_]:
    """Which pairs ``i < j`` of places make an attacked set, together with ``others``' groups: ``[n, n]``."""
    ascending = np.arange(len(members))[:, None] < np.arange(len(members))
    if len(attack.groups) == 1:
        return ascending
    in_first = (members == 0).astype(np.int64)
    already = sum(group == 0 for group in others)
    return np.asarray(ascending & (in_first[:, None] + in_first + already == attack.groups[0].count))


def _worst(leads: FloatArray, attack: Attack) -> float:
    """The least lead, less more than all rounding, with the part that the noise never reaches counted for the rival.

    For f = A throughout the identity reads 1 = sum_U c_U Pr(U flipped), and no |term| exceeds c_U Pr(U flipped): so the
    rounding of the bounds (2**-50 relative), of a dozen products and of the sums stays far below the margin.
    """
    worst = float(np.min(leads, initial=np.inf))
    return attack.overlap * worst - (1 - attack.overlap) - _IDENTITY_MARGIN


# ---- the linear programme ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cells:
    """The cells of T (one count a group), their laws, and the moments that are bounded.

    Attributes:
        x, y: Probability of each cell under noise on the clean and on the attacked graph, ``[K]``; relative errors below
            ``accuracy``. ``y`` adds up to the attack's overlap.
        features: The moments' functions of the cell, products of binomials ``C(t_g, k_g)``: ``[m, K]``, all >= 0.
        kinds: For each moment the order in each group.
        totals: The moments of the constant 1, ``[m]``.
    """

    x: FloatArray
    y: FloatArray
    features: FloatArray
    kinds: tuple[tuple[int, ...], ...]
    totals: FloatArray
    accuracy: float

    @classmethod
    @lru_cache(maxsize=512)
    def of(cls, groups: tuple[Group, ...], overlap: float, order: int) -> Cells:
        """Cells of an attack, with moments up to ``order``."""
        x, y = np.ones(()), np.full((), overlap)
        for group in groups:
            law_x, law_y = group.laws()
            x, y = np.multiply.outer(x, law_x), np.multiply.outer(y, law_y)
        counts = np.indices(x.shape).reshape(len(groups), -1)
        kinds = tuple(
            kind
            for kind in np.ndindex(*(order + 1,) * len(groups))
            if sum(kind) <= order and all(k <= group.count for k, group in zip(kind, groups, strict=True))
        )
        kinds = tuple(sorted(kinds, key=lambda kind: (sum(kind), kind)))
        features = np.array([[_binomials(c, kind) for c in counts.T] for kind in kinds])
        totals = np.array(
            [math.prod(math.comb(g.count, k) * g.flip**k for k, g in zip(kind, groups, strict=True)) for kind in kinds]
        )
        size = sum(group.count for group in groups)
        # convolution: three roundings a step; the rest: features (exact integers below 2**53 for the sizes in use), products
        return cls(x.ravel(), y.ravel(), features, kinds, totals, (6 * size + 64) * 2.0**-52)


def _binomials(counts: NDArray[Any], kind: tuple[int, ...]) -> float:
    return float(math.prod(math.comb(int(t), k) for t, k in zip(counts, kind, strict=True)))


def lead_by_programme(bounds: MomentBounds, attack: Attack, *, coupled: bool, goal: float = 0.0) -> float:
    """The least lead that the moment bounds allow, over all attacked sets; stops as soon as it exceeds ``goal``.

    Minimise ``sum_t y_t (phi_A(t) - phi_B(t))`` over ``phi >= 0``, ``phi_A + phi_B <= 1``, with A's moments at least and B's
    at most as given. By weak duality any multipliers ``lam, mu >= 0`` give the bound

        lam.a - mu.b + sum_t min(0, y_t - x_t Lam_t, x_t Mu_t - y_t),      Lam_t = sum_k lam_k C(t, k), Mu_t likewise.

    Args:
        bounds: For each subset of slots, up to an order below the attack's size.
        attack: The kind of attack.
        coupled: Whether B has bounds of its own (more than two classes); if not, B is all that is not A.
        goal: A bound above this is good enough.
    """
    cells = Cells.of(attack.groups, attack.overlap, len(bounds.lower) - 1)
    sums = _Sums(bounds, attack, cells)
    best = -np.inf
    tried: list[tuple[FloatArray, FloatArray]] = []
    for propose in (_from_tables, _from_solver):
        if propose is _from_solver and not (coupled or len(attack.groups) > 1):
            break  # one unknown a cell and one group: the tables hold every basic solution
        if propose is _from_solver and best < _CLOSE and len(attack.groups) == 1:
            break
        for lam, mu in propose(cells, sums):
            lam, mu = _sane(lam, len(cells.kinds)), _sane(mu, len(cells.kinds))
            if any(np.array_equal(lam, old[0]) and np.array_equal(mu, old[1]) for old in tried):
                continue
            tried.append((lam, mu))
            for least in (sums.separate(lam, mu), sums.together(lam, mu)):
                best = max(best, dual_bound(cells, lam, mu, *least))
                if best > goal:
                    return best
    return best


def dual_bound(cells: Cells, lam: FloatArray, mu: FloatArray, moments: float, magnitude: float) -> float:
    """The dual formula, less more than all of its rounding.

    Args:
        cells: Laws and moments.
        lam, mu: Multipliers >= 0, ``[m]``; taken as they are, so they have no error.
        moments: A number not above ``lam.a - mu.b`` for any attacked set, up to rounding.
        magnitude: The sum of the absolute values that it was summed from.

    All products are of non-negative numbers with small relative errors, so the error of the whole is at most the accuracy
    times the sum of the absolute values of all terms.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        weight, rival_weight = cells.x * (lam @ cells.features), cells.x * (mu @ cells.features)
        terms = np.minimum(0.0, np.minimum(cells.y - weight, rival_weight - cells.y))
        size = magnitude + float(np.sum(cells.y + weight + rival_weight)) + 1
        overlap = float(np.sum(cells.y))
        value = moments + float(np.sum(terms)) - (1 - overlap) - 2 * cells.accuracy * size
    return value if np.isfinite(value) else -np.inf


def _sane(multipliers: FloatArray, length: int) -> FloatArray:
    """Multipliers from anywhere as ``length`` finite numbers >= 0."""
    values = np.zeros(length)
    given = np.asarray(multipliers, dtype=np.float64).ravel()[:length]
    values[: len(given)] = np.where(np.isfinite(given) & (given > 0), np.minimum(given, 1e100), 0.0)
    return values


# ---- the worst attacked set ----------------------------------------------------------------------------------------


class _Sums:
    """Least sums of moment bounds over the attacked sets, for all sets at once."""

    def __init__(self, bounds: MomentBounds, attack: Attack, cells: Cells) -> None:
        self.bounds, self.attack, self.cells = bounds, attack, cells
        self.lower = np.array([self._least(bounds.lower, kind) for kind in cells.kinds])
        left_over = tuple(attack.flip_probability(order) - upper for order, upper in enumerate(bounds.upper))
        # what is not B has moments of at least this; B's own are at most the totals less this
        self.not_rival = np.array([self._least(left_over, kind) for kind in cells.kinds])
        difference = tuple(low - high for low, high in zip(bounds.lower, bounds.upper, strict=True))
        self.difference = np.array([self._least(difference, kind) for kind in cells.kinds])

    def _least(self, tables: tuple[FloatArray, ...], kind: tuple[int, ...]) -> float:
        order = sum(kind)
        weights = {other: float(other == kind) for other in self.cells.kinds if sum(other) == order}
        return least_sum(self._weighted(tables, weights, orders=(order,)), self.attack)

    def _weighted(
        self, tables: tuple[FloatArray, ...], weights: dict[tuple[int, ...], float], orders: tuple[int, ...]
    ) -> list[FloatArray]:
        """Tables times the multiplier of their slots' groups, order by order; 0 for orders not asked for."""
        parts, result = self.attack.parts, []
        for order, table in enumerate(tables):
            if order not in orders:
                result.append(np.zeros(()))
                continue
            if len(parts) == 1 or order == 0:
                result.append(table * weights[tuple([order] * len(parts)) if order else (0,) * len(parts)])
                continue
            weighted = np.zeros(table.shape)
            for places in np.ndindex(*(len(parts),) * order):
                kind = tuple(places.count(group) for group in range(len(parts)))
                block = tuple(parts[place] for place in places)
                weighted[block] = table[block] * weights.get(kind, 0.0)
            result.append(weighted)
        return result

    def separate(self, lam: FloatArray, mu: FloatArray) -> tuple[float, float]:
        """``lam.a - mu.b`` with every moment at its own worst set, and the size of its terms."""
        upper = self.cells.totals - self.not_rival
        joined = np.minimum(lam, mu)  # as far as both multipliers are equal, the difference has one worst set
        with np.errstate(over="ignore", invalid="ignore"):
            value = joined @ self.difference + (lam - joined) @ self.lower - (mu - joined) @ upper
            size = (lam + mu) @ (2 * self.cells.totals)
        return float(value), float(size)

    def together(self, lam: FloatArray, mu: FloatArray) -> tuple[float, float]:
        """``lam.a - mu.b`` with one worst set for all moments."""
        orders = tuple(range(len(self.bounds.lower)))
        plus = self._weighted(self.bounds.lower, dict(zip(self.cells.kinds, lam.tolist(), strict=True)), orders)
        minus = self._weighted(self.bounds.upper, dict(zip(self.cells.kinds, mu.tolist(), strict=True)), orders)
        value = least_sum([p - m for p, m in zip(plus, minus, strict=True)], self.attack)
        return value, float((lam + mu) @ (2 * self.cells.totals))


def least_sum(weights: list[FloatArray], attack: Attack) -> float:
    """A number not above the sum of all weights of subsets of S, for every attacked set S (up to rounding).

    Weights of slots are first spread over the pairs: a slot lies in ``r - 1`` pairs of S. A pair's row is the sum of its smallest
    completions; every pair of S is met in two rows.
    """
    size = attack.size
    constant = float(weights[0])
    order = len(weights) - 1
    while order > 0 and not weights[order].any():
        order -= 1
    if order == 0:
        return constant
    spread = weights[order]
    if order == 2:
        spread = spread + ((weights[1][:, None] + weights[1]) / (size - 1) if weights[1].ndim else 0.0)
        np.fill_diagonal(spread, np.inf)
    counts = [group.count for group in attack.groups]
    return constant + _least_rows(spread, attack.parts, counts) / math.factorial(order)


def _least_rows(table: FloatArray, parts: tuple[slice, ...], counts: list[int]) -> float:
    if len(parts) == 1:
        return float(_smallest(table if table.ndim == 1 else _smallest(table, counts[0] - 1), counts[0]))
    if table.ndim == 1:
        return float(sum(_smallest(table[part], count) for part, count in zip(parts, counts, strict=True)))
    total = 0.0
    for own, (part, count) in enumerate(zip(parts, counts, strict=True)):
        rows = sum(
            _smallest(table[part, other], others - (own == place))
            for place, (other, others) in enumerate(zip(parts, counts, strict=True))
        )
        total += float(_smallest(np.asarray(rows), count))
    return total


def _smallest(values: FloatArray, count: int) -> FloatArray:
    """Sum of the smallest entries along the last axis."""
    if count <= 0:
        return np.zeros(values.shape[:-1])
    if count == 1:
        return np.asarray(values.min(axis=-1))
    if count >= values.shape[-1]:
        return np.asarray(values.sum(axis=-1))
    return np.asarray(np.partition(values, count - 1, axis=-1)[..., :count].sum(axis=-1))


# ---- proposals of multipliers --------------------------------------------------------------------------------------


def _from_tables(cells: Cells, sums: _Sums) -> list[tuple[FloatArray, FloatArray]]:
    """The best of the basic dual solutions, for the lead as one unknown and for A and B apart."""
    if len(sums.attack.groups) > 1:
        return []
    table = basic_multipliers(sums.attack.groups, sums.attack.overlap, len(sums.bounds.lower) - 1)
    joint = table.best((cells.totals + sums.difference) / 2)
    return [(joint, joint), (table.best(sums.lower), table.best(sums.not_rival))]


@dataclass(frozen=True)
class _Multipliers:
    """Rows of multipliers with the constant of their dual bound on ``sum_t y_t h(t)``, ``0 <= h <= 1``."""

    rows: FloatArray
    constants: FloatArray

    def best(self, moments: FloatArray) -> FloatArray:
        """The row with the largest bound for these moments."""
        return np.asarray(self.rows[int(np.argmax(self.rows @ moments + self.constants))])


@lru_cache(maxsize=512)
def basic_multipliers(groups: tuple[Group, ...], overlap: float, order: int) -> _Multipliers:
    """All basic solutions of the dual programme with one unknown a cell and one group.

    A basic solution has ``j`` multipliers above 0 and is tight in ``j`` cells: the polynomial ``Lam`` meets the likelihood
    ratio there. They depend on noise and size alone, so they are found once, and the programme of every graph is a
    maximum over a table.
    """
    cells = Cells.of(groups, overlap, order)
    (group,) = groups
    nodes = np.arange(group.count + 1)
    if len(nodes) > _NODES:
        middle = np.linspace(group.count * group.flip, group.count * group.moved, _NODES)
        spread = 3 * math.sqrt(group.count) / 2
        nodes = np.unique(
            np.clip(np.rint(np.linspace(middle[0] - spread, middle[-1] + spread, _NODES)), 0, group.count)
        )
        nodes = nodes.astype(np.int64)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ratio = np.where(cells.x > 1e-290, cells.y / cells.x, 0.0)
    found = [np.zeros((1, order + 1))]
    for active in range(1, order + 2):
        places = np.array(list(combinations(nodes.tolist(), active)))
        if not len(places):
            continue
        for chosen in combinations(range(order + 1), active):
            matrix = cells.features[np.ix_(chosen, range(cells.features.shape[1]))][:, places].transpose(1, 2, 0)
            regular = np.abs(np.linalg.det(matrix)) > 1e-9
            solved = np.linalg.solve(matrix[regular], ratio[places[regular]][..., None])[..., 0]
            rows = np.zeros((len(solved), order + 1))
            rows[:, list(chosen)] = solved
            found.append(rows[(solved >= 0).all(axis=1)])
    rows = np.concatenate(found)
    constants = np.minimum(0.0, cells.y - cells.x * (rows @ cells.features)).sum(axis=1)
    return _Multipliers(rows, constants)


def _from_solver(cells: Cells, sums: _Sums) -> list[tuple[FloatArray, FloatArray]]:
    """Multipliers of the whole programme from scipy's HiGHS; none if it fails."""
    scale = 1 / np.maximum(cells.totals, 1e-300)
    rows = cells.x * cells.features * scale[:, None]
    count = len(cells.x)
    zeros = np.zeros_like(rows)
    matrix = np.block([[-rows, zeros], [zeros, rows], [np.eye(count), np.eye(count)]])
    limits = np.concatenate([-sums.lower * scale, (cells.totals - sums.not_rival) * scale, np.ones(count)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            solution = optimize.linprog(
                np.concatenate([cells.y, -cells.y]), A_ub=matrix, b_ub=limits, bounds=(0, None), method="highs"
            )
            marginals = _sane(-np.asarray(solution.ineqlin.marginals, dtype=np.float64), 2 * len(cells.kinds))
        except (ValueError, AttributeError, TypeError):
            return []
    moments = len(cells.kinds)
    return [(marginals[:moments] * scale, marginals[moments : 2 * moments] * scale)]
