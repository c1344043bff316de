"""The bound from the vote share alone ("votes"): Clopper-Pearson on the share, Neyman-Pearson on the attacked slots.

An attack adds ``a`` and removes ``d`` edges. Of the noisy clean graph X and the noisy attacked graph Y only the number ``T`` of
attacked slots that differ from the clean graph matters:

    under X:  T ~ Binomial(a, p_add)        + Binomial(d, p_remove)
    under Y:  T ~ Binomial(a, 1 - p_remove) + Binomial(d, 1 - p_add)

and the ratio Pr(Y)/Pr(X) grows with T: the share under Y is least when the class sits on the smallest ``T``. All quantities are
kept as ``1 - p`` and tail sums, which floating point resolves where ``p`` is near 1, and every result is moved by a margin in the
direction that makes the certificate smaller. ``docs/theory.md`` has the proofs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from flipproof.certificates.certificate import GRID_LIMIT, Certificate, cut_grid, up_to
from flipproof.checks import checked_count
from flipproof.errors import InputError
from flipproof.noise import EdgeNoise

FloatArray = NDArray[np.float64]

# scipy's incomplete beta function is accurate to a few parts in 1e13 for the counts that occur; this margin is added
# in the direction that hurts us, and tests compare the result with exact arithmetic
_MARGIN = 2.0**-38


def lower_bound(successes: ArrayLike, trials: ArrayLike, *, failure_prob: float) -> FloatArray:
    """Lower confidence bound on a share of votes (one-sided Clopper-Pearson), rounded down.

    With probability at least ``1 - failure_prob`` the true share is not below it: the solution ``p`` of
    ``Pr(Binomial(trials, p) >= successes) = failure_prob``, or 0 without a success. Scalars or arrays that broadcast.

    >>> round(float(lower_bound(1000, 1000, failure_prob=0.001)), 4)
    0.9931
    """
    successes, trials = _checked_counts(successes, trials)
    if not 0 < failure_prob < 1:
        raise InputError(f"failure_prob must lie in (0, 1); got {failure_prob!r} (for instance 0.001)")
    k, n = np.broadcast_arrays(successes.astype(np.float64), trials.astype(np.float64))
    bound = np.zeros(k.shape)
    positive = k > 0
    k, n = k[positive], n[positive]
    # a smaller tail probability gives a smaller bound; the last factor covers the inverse's own rounding
    tail = failure_prob * (1 - _MARGIN)
    share = np.where(k == n, np.exp(np.log(tail) / np.maximum(n, 1)), special.betaincinv(k, n - k + 1, tail))
    bound[positive] = np.clip(share - np.minimum(share, 1 - share) * _MARGIN - 4 * np.spacing(share), 0.0, 1.0)
    return bound


def upper_bound(successes: ArrayLike, trials: ArrayLike, *, failure_prob: float) -> FloatArray:
    """Upper confidence bound on a share of votes (one-sided Clopper-Pearson), rounded up; see :func:`lower_bound`.

    >>> round(float(upper_bound(0, 1000, failure_prob=0.001)), 4)
    0.0069
    """
    successes, trials = _checked_counts(successes, trials)
    complement = lower_bound(trials - successes, trials, failure_prob=failure_prob)
    return np.minimum(1.0, np.nextafter(1.0 - complement, 2.0))


def label_pvalue(top: ArrayLike, second: ArrayLike) -> FloatArray:
    """Two-sided binomial p-value of the two largest counts under a fair coin, rounded up [BPV].

    If the label is only named when this is at most ``delta``, a class that is not the most likely one is named with
    probability at most ``delta``, for any number of classes (Hung and Fithian, Annals of Statistics 2019).

    >>> float(label_pvalue(10, 0)) <= 2 * 2**-10 * (1 + 1e-9)
    True
    """
    top, second = np.asarray(top, dtype=np.float64), np.asarray(second, dtype=np.float64)
    # Pr(Binomial(top + second, 1/2) >= top); a beta function with a zero parameter is the certain event
    tail = np.where(top > 0, special.betainc(np.maximum(top, 1), second + 1, 0.5), 1.0)
    return np.clip(2 * tail * (1 + _MARGIN), np.finfo(np.float64).tiny, 1.0)


def checked_alpha(alpha: float, *, samples: int = 0, discrepancy: float = 0.0) -> float:
    """Alpha, less what the sampler's inexactness costs: ``samples`` times its total-variation distance."""
    if isinstance(alpha, (bool, str)) or not isinstance(alpha, (int, float, np.floating)) or not 0 < alpha < 1:
        raise InputError(f"alpha must lie in (0, 1); got {alpha!r} (for instance 0.001)")
    remaining = float(alpha) - samples * discrepancy * (1 + 2.0**-40)
    if remaining <= 0:
        raise InputError(
            f"alpha = {alpha:g} is used up by the sampler's inexactness, {samples * discrepancy:g} (use a larger one)"
        )
    return remaining


def _checked_counts(successes: ArrayLike, trials: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    k, n = np.asarray(successes), np.asarray(trials)
    if k.dtype.kind not in "iu" or n.dtype.kind not in "iu":
        raise InputError(f"counts must be integers; got {k.dtype} and {n.dtype} (pass numbers of votes)")
    if (k < 0).any() or (k > n).any():
        raise InputError("successes must lie between 0 and trials; got counts outside (check the order of arguments)")
    return k.astype(np.int64, copy=False), n.astype(np.int64, copy=False)


_CACHED_LEVELS = 64
_TOGETHER = 256  # shares whose grids are computed at a time


def _margin(flips: int) -> float:
    """More than all rounding errors of a bound for this many flips: two roundings per flip, and a few at the end."""
    return (flips + 4) * 2.0**-48


class _Regions:
    """Laws of T for several attacks of the same number of flips: ``x`` and ``y``, ``[cells, flips + 1]``."""

    def __init__(self, x: FloatArray, y: FloatArray) -> None:
        self.x, self.y = x, y
        self.flips = x.shape[1] - 1
        self.x_tail = np.cumsum(x[:, ::-1], axis=1)[:, ::-1]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = y / x
        # A region that X cannot reach (or whose mass underflowed) gives no bound: with ratio 0 and nothing before it,
        # it stands for the bound 0. Keeping what lies before it would be a false bound.
        known = np.isfinite(ratio) & (x > 1e-290)
        self.ratio = np.where(known, ratio, 0.0)
        self.y_before = np.where(known, np.cumsum(y, axis=1) - y, 0.0)
        self.parts = self.ratio, self.y_before, self.x_tail

    def lower(self, miss: FloatArray) -> FloatArray:
        """Lower bound on the share under Y of a class with share at least ``1 - miss`` under X: ``[cells, ...]``."""
        # weak duality: ratio * p + sum_t min(0, y_t - ratio * x_t) is a bound for every ratio, and that of a region equals this
        best = np.zeros((len(self.x), *miss.shape))
        extra = (1,) * miss.ndim
        for region in range(self.flips + 1):
            ratio, before, tail = (part[:, region].reshape(-1, *extra) for part in self.parts)
            np.maximum(best, before + ratio * (tail - miss), out=best)
        return np.clip(best - _margin(self.flips), 0.0, 1.0)

    def slack(self) -> FloatArray:
        """For each cell the largest ``1 - p`` (exclusive) at which :meth:`lower` exceeds 1/2; 0 if there is none."""
        half = 0.5 + 2 * _margin(self.flips)
        # the last region with a bound before which no more than half of Y's mass lies
        early = (self.ratio > 0) & (self.y_before <= half)
        region = self.flips - np.argmax(early[:, ::-1], axis=1)[:, None]
        ratio, before, tail = (np.take_along_axis(part, region, 1)[:, 0] for part in self.parts)
        with np.errstate(divide="ignore", invalid="ignore"):
            slack = tail - (half - before) / ratio
        return np.where((ratio > 0) & (slack > 0), slack, 0.0)


class _Levels:
    """Regions and slacks of all attacks of one noise, by number of flips, computed once and kept.

    Cell ``a`` of level ``r`` is the attack with ``a`` additions and ``r - a`` removals; for symmetric noise all cells of a
    level are alike and only one is kept.
    """

    def __init__(self, noise: EdgeNoise) -> None:
        self.noise = noise
        # dicts, not lists: threads that compute the same level write the same entry
        self._regions = {0: _Regions(np.ones((1, 1)), np.ones((1, 1)))}
        self._last = self._regions[0]
        self._slacks = {0: np.array([0.5])}

    def regions(self, flips: int) -> _Regions:
        """Of level ``flips``: ``[flips + 1 or 1]`` cells."""
        if flips in self._regions:
            return self._regions[flips]
        current = self._last
        if current.flips > flips:
            current = self._regions[_CACHED_LEVELS]
        while current.flips < flips:
            current = self._next(current)
            if current.flips <= _CACHED_LEVELS:
                self._regions[current.flips] = current
        self._last = current
        return current

    def slacks(self, flips: int) -> FloatArray:
        """Slack of every cell of level ``flips``."""
        if flips not in self._slacks:
            self._slacks[flips] = self.regions(flips).slack()
        return self._slacks[flips]

    def withstood(self, flips: int, adds: NDArray[np.int64], miss: FloatArray, rival: FloatArray) -> NDArray[np.bool_]:
        """Whether a class of share ``1 - miss`` stays ahead of all others, of share ``rival`` at most, ``[cells, K]``."""
        cells = adds[:1] * 0 if self.noise.symmetric else adds
        if flips == 0:
            return ((miss < 0.5) | (1 - miss > rival))[None]
        sound: NDArray[np.bool_] = self.slacks(flips)[cells, None] > miss
        # the rival's bound may say more than 1 - p_lower
        open_ = np.flatnonzero((rival < miss) & ~sound.all(axis=0))
        if len(open_):
            regions = self.regions(flips)
            part = _Regions(regions.x[cells], regions.y[cells])
            # lower(p_A) must exceed upper(p_B) = 1 - lower(1 - p_B)
            sound[:, open_] |= part.lower(miss[open_]) + part.lower(rival[open_]) > 1
        return sound

    def _next(self, level: _Regions) -> _Regions:
        p_add, p_remove = self.noise.p_add, self.noise.p_remove
        if p_add > 0 and p_remove > 0:
            x, y = one_more(level.x, p_remove), one_more(level.y, 1 - p_add)
            if not self.noise.symmetric:
                x = np.concatenate([x, one_more(level.x[-1:], p_add)])
                y = np.concatenate([y, one_more(level.y[-1:], 1 - p_remove)])
            return _Regions(x, y)
        return self._one_sided(level.flips + 1)

    def _one_sided(self, flips: int) -> _Regions:
        """With a probability of 0, X and Y overlap in one region; what only X can reach comes first, with Y-mass 0."""
        adds = np.arange(1 if self.noise.symmetric else flips + 1, dtype=np.float64)
        x, y = np.zeros((len(adds), flips + 1)), np.zeros((len(adds), flips + 1))
        removes = flips - adds
        p_add, p_remove = self.noise.p_add, self.noise.p_remove
        shared_x = p_remove**removes if p_remove > 0 else p_add**adds if p_add > 0 else np.zeros(len(adds))
        shared_y = p_remove**adds if p_remove > 0 else p_add**removes if p_add > 0 else np.zeros(len(adds))
        x[:, 0], x[:, 1], y[:, 1] = 1 - shared_x, shared_x, shared_y
        return _Regions(x, y)


def one_more(law: FloatArray, probability: float) -> FloatArray:
    """The law of a sum with one more independent coin."""
    more = np.zeros((len(law), law.shape[1] + 1))
    more[:, :-1] = law * (1 - probability)
    more[:, 1:] += law * probability
    return more


@lru_cache(maxsize=256)
def _levels(noise: EdgeNoise) -> _Levels:
    if not isinstance(noise, EdgeNoise):
        raise InputError(f"noise must be an EdgeNoise; got {noise!r} (for instance EdgeNoise(keep=0.9))")
    return _Levels(noise)


def worst_case(p_lower: ArrayLike, noise: EdgeNoise, adds: int = 0, removes: int = 0) -> float | FloatArray:
    """Lower bound on the top class's share of votes after an attack of exactly ``adds`` additions and ``removes`` removals.

    If the class has share at least ``p_lower`` under noise on the clean graph, it has at least this share on the attacked
    one, for every base classifier; some base classifier attains it (Neyman-Pearson). Never above the exact value, and
    within 1e-12 of it for moderate attacks.

    >>> noise = EdgeNoise(keep=0.8)
    >>> round(worst_case(0.875, noise, adds=1), 6)
    0.5
    """
    share = checked_share(p_lower, "p_lower")
    for name, value in (("adds", adds), ("removes", removes)):
        checked_count(value, name, 0, "a number of edges")
    if adds + removes > 0:
        regions = _levels(noise).regions(adds + removes)
        cell = slice(0, 1) if noise.symmetric else slice(adds, adds + 1)
        share = _Regions(regions.x[cell], regions.y[cell]).lower(rounded_miss(share))[0]
    return float(share) if np.ndim(p_lower) == 0 else share


def radius(
    p_lower: ArrayLike, noise: EdgeNoise, p_upper: ArrayLike | None = None, max_radius: int = 1000
) -> int | NDArray[np.int64]:
    """Flips that a vote share withstands: the largest ``r`` such that every attack of at most ``r`` flips is certified.

    Certified means that the top class keeps more votes than any other: ``worst_case(p_lower) > 1/2``, or, with an upper
    bound ``p_upper`` on every other class's share, more than that share can grow to.

    Args:
        p_lower: Lower bound on the top class's share; a number or an array of any shape.
        noise: The noise of the smoothed classifier.
        p_upper: Upper bound on each other class's share, of the same shape; by default ``1 - p_lower``.
        max_radius: Where to stop looking.

    Returns:
        An ``int`` for a number, an array for an array; -1 where not even ``r = 0`` is certified.

    >>> radius(0.99, EdgeNoise(keep=0.8))
    2
    >>> radius([0.4, 0.6, 0.99], EdgeNoise(keep=0.8), [0.3, 0.4, 0.01]).tolist()
    [0, 0, 2]
    """
    checked_count(max_radius, "max_radius", 0, "a number of edges")
    radii = bounded_radius(p_lower, noise, p_upper, max_adds=max_radius, max_removes=max_radius, max_radius=max_radius)
    return int(radii) if radii.ndim == 0 else radii


def bounded_radius(
    p_lower: ArrayLike,
    noise: EdgeNoise,
    p_upper: ArrayLike | None = None,
    *,
    max_adds: int,
    max_removes: int,
    max_radius: int | None = None,
) -> NDArray[np.int64]:
    """As :func:`radius` for a graph that offers ``max_adds`` empty slots and ``max_removes`` edges."""
    share = checked_share(p_lower, "p_lower")
    rival = share if p_upper is None else checked_share(p_upper, "p_upper")
    if rival.shape != share.shape:
        raise InputError(f"p_upper must have the shape of p_lower, {share.shape}; got {rival.shape} (one bound each)")
    levels, miss = _levels(noise), rounded_miss(share).reshape(-1)
    rivals = miss if p_upper is None else np.minimum(miss, rival.reshape(-1))
    radii, open_ = np.full(miss.shape, -1), np.arange(len(miss))
    for flips in range(1 + (max_adds + max_removes if max_radius is None else min(max_radius, max_adds + max_removes))):
        adds = np.arange(max(0, flips - max_removes), min(flips, max_adds) + 1)
        sound = levels.withstood(flips, adds, miss[open_], rivals[open_]).all(axis=0)
        open_ = open_[sound]
        radii[open_] = flips
        if not len(open_):
            break
    return radii.reshape(share.shape)


def certified_grid(
    p_lower: float, noise: EdgeNoise, max_adds: int, max_removes: int, p_upper: float | None = None
) -> NDArray[np.bool_]:
    """Which attacks a vote share of at least ``p_lower`` withstands under this noise: bool ``[max_adds + 1, max_removes + 1]``.

    ``p_upper`` bounds the share of the strongest rival from above; by default all other votes are taken for its own.

    >>> certified_grid(0.95, EdgeNoise(add=0.1, remove=0.4), 2, 2).astype(int).tolist()
    [[1, 1, 1], [1, 0, 0], [1, 0, 0]]
    """
    for name, value in (("max_adds", max_adds), ("max_removes", max_removes)):
        checked_count(value, name, 0, "a number of edges")
    miss = rounded_miss(checked_share(p_lower, "p_lower", single=True))
    rival = miss if p_upper is None else checked_share(p_upper, "p_upper", single=True)
    return np.asarray(_grids(miss.reshape(1), rival.reshape(1), noise, max_adds, max_removes)[0])


def _grids(miss: FloatArray, rival: FloatArray, noise: EdgeNoise, max_adds: int, max_removes: int) -> NDArray[np.bool_]:
    """As :func:`certified_grid`, for many shares ``1 - miss`` and bounds on their rivals, ``[K]`` each: ``[K, ...]``."""
    levels, rival = _levels(noise), np.minimum(miss, rival)
    grids = np.zeros((len(miss), max_adds + 1, max_removes + 1), dtype=np.bool_)
    for flips in range(max_adds + max_removes + 1):
        adds = np.arange(max(0, flips - max_removes), min(flips, max_adds) + 1)
        # a cell counts if all smaller cells are certified too
        ready = (grids[:, adds - 1, flips - adds] | (adds == 0)) & (grids[:, adds, flips - adds - 1] | (adds == flips))
        adds, ready = adds[ready.any(axis=0)], ready[:, ready.any(axis=0)]
        if not len(adds):
            break
        grids[:, adds, flips - adds] = levels.withstood(flips, adds, miss, rival).T & ready
    return grids


def slack(noise: EdgeNoise, adds: int, removes: int) -> float:
    """The largest ``1 - p`` at which the vote share alone withstands attacks of this size; 0 if none does."""
    cells = _levels(noise).slacks(adds + removes)
    return float(cells[0 if noise.symmetric else adds])


def certify_shares(
    labels: Sequence[int | None],
    p_lower: FloatArray,
    p_upper: FloatArray | None,
    counts: NDArray[np.int64],
    noise: EdgeNoise,
    limits: tuple[int, int],
    *,
    method: str,
    alpha: float,
) -> list[Certificate]:
    """The certificates that bounds on shares ``[K]`` give, for votes ``[K, C]`` on the same graph.

    One without a label, or for which ``r = 0`` is not certified, abstains. ``limits`` are the additions and removals that the
    graph offers.
    """
    max_adds, max_removes = limits
    radii = bounded_radius(p_lower, noise, p_upper, max_adds=max_adds, max_removes=max_removes)
    radii[[label is None for label in labels]] = -1
    room = min(max_adds, GRID_LIMIT - 1), min(max_removes, GRID_LIMIT - 1)
    largest, miss = 1 - p_lower if p_upper is None else np.minimum(p_upper, 1 - p_lower), rounded_miss(p_lower)
    grids: Iterable[NDArray[np.bool_]] = (up_to(radius, *limits) for radius in radii.tolist())
    if not noise.symmetric:
        rivals = miss if p_upper is None else p_upper
        parts = (slice(start, start + _TOGETHER) for start in range(0, len(miss), _TOGETHER))
        grids = (grid for part in parts for grid in _grids(miss[part], rivals[part], noise, *room))
    return [
        Certificate(
            label=label if radius >= 0 else None,
            radius=radius,
            method=method,
            alpha=alpha,
            samples=sum(votes),
            counts=tuple(votes),
            p_lower=lower,
            p_upper=upper,
            noise=noise,
            num_slots=max_adds + max_removes,
            grid=cut_grid(grid if radius >= 0 else grid[:0, :0]),
            votes_radius=radius,
        )
        for label, radius, votes, lower, upper, grid in zip(
            labels, radii.tolist(), counts.tolist(), p_lower.tolist(), largest.tolist(), grids, strict=True
        )
    ]


def from_counts(counts: NDArray[np.int64], noise: EdgeNoise, *, alpha: float, limits: tuple[int, int]) -> Certificate:
    """Method ``votes``: test of the label, lower bound on its share, upper bounds on all others'.

    Failure probabilities: ``0.1 alpha`` for naming a class that is not the most likely one; if the named class is the
    (fixed) most likely one, ``0.8 alpha`` for its share and ``0.1 alpha`` for the largest share of the others, however many
    there are: only the largest bound is used, and it is below the largest share only if the bound for that one (fixed) class is.
    With two classes the rival's share is one minus the top class's, which gets ``0.9 alpha``.
    """
    return many_from_counts(counts[None], noise, alpha=alpha, limits=limits)[0]


def many_from_counts(
    counts: NDArray[np.int64], noise: EdgeNoise, *, alpha: float, limits: tuple[int, int]
) -> list[Certificate]:
    """As :func:`from_counts`, for votes ``[K, C]``; each certificate holds with probability ``1 - alpha``."""
    samples, several = counts.sum(axis=1), counts.shape[1] > 2
    second, top = np.sort(counts, axis=1)[:, -2:].T
    sure = label_pvalue(top, second) <= 0.1 * alpha
    labels = np.asarray(np.where(sure, counts.argmax(axis=1), None)).tolist()
    p_lower = lower_bound(top, samples, failure_prob=(0.8 if several else 0.9) * alpha)
    p_upper = upper_bound(second, samples, failure_prob=0.1 * alpha) if several else None
    return certify_shares(labels, p_lower, p_upper, counts, noise, limits, method="votes", alpha=alpha)


def rounded_miss(share: FloatArray) -> FloatArray:
    """``1 - share``, rounded up where it is not exact (below 1/2)."""
    miss = 1.0 - share
    return np.where(share < 0.5, np.nextafter(miss, 2.0), miss)


def checked_share(value: ArrayLike, name: str, *, single: bool = False) -> FloatArray:
    share = np.asarray(value, dtype=np.float64)
    if not np.all((share >= 0) & (share <= 1)):  # NaN fails too
        bad = share[~((share >= 0) & (share <= 1))].flat[0]
        raise InputError(f"{name} must lie in [0, 1]; got {bad} (a share of votes, for instance 0.99)")
    if single and share.size != 1:
        raise InputError(f"{name} must be a single number here; got shape {share.shape} (one grid at a time)")
    return share
