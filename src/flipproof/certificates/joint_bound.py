"""The bound from the vote share alone under attacks on edges and node features together.

Noise changes every coordinate (a node pair, a label, a bit) independently, and an attack changes some of them. Where it does, the
noisy states fall into regions of constant ratio Pr(Y)/Pr(X), of the noisy attacked graph Y and the noisy clean graph X: for edges
by ``T_E``, the number of attacked pairs that differ from the clean graph's; for labels by ``T_L``, the number of attacked nodes
with the attacker's label less the number with the clean one; for bits as for edges. With masses ``x`` and ``y`` of the regions
``(T_E, T_L)``, products of those of each kind, a class of share at least ``1 - miss`` under X has under Y at least

    lower(miss) = max over lambda >= 0 of  F(lambda) - lambda * miss,     F(lambda) = sum over regions of min(lambda x, y).

*Proof.* For a classifier ``phi`` and any ``lambda``, ``sum y phi = lambda sum x phi + sum (y - lambda x) phi >=
lambda (1 - miss) + sum min(0, y - lambda x)``, and ``sum x = 1``. By Neyman and Pearson one of the ratios attains equality. ∎

All terms of F are positive, so nothing is lost where shares are near 1, and regions with ``x = 0`` or ``y = 0`` add nothing,
whatever probabilities are 0. A wrong ``lambda`` gives a smaller bound, never a false one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import GRID_LIMIT, Certificate
from flipproof.certificates.vote_share import FloatArray, checked_share, rounded_miss
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise
from flipproof.noise.feature_law import Change, FeatureNoise, checked_feature_noise, flip_changes

Cell = tuple[int, ...]
"""An attack: how many coordinates of each kind it changes, in the order of :attr:`JointBound.axes`."""

_LEAST_MASS = 1e-290  # below, masses lose digits; leaving a region out makes F smaller


class _Curve:
    """The concave function F of one attack: its ``breaks`` (ascending), its values there, and the mass of X from there on."""

    def __init__(self, x: FloatArray, y: FloatArray, changes: int) -> None:
        counts = (x > _LEAST_MASS) & (y > _LEAST_MASS)
        x, y = x[counts], y[counts]
        ratio = y / x
        order = np.argsort(ratio)
        x, y, self.breaks = x[order], y[order], ratio[order]
        self.tail = np.cumsum(x[::-1])[::-1]
        # By the order of *rounded* ratios, yet right: a region on the wrong side of its break has y / x and lambda apart by at
        # most one rounding of the ratio, and so adds at most (1 + 2**-53) min(lambda x, y) to the sum.
        self.values = np.cumsum(y) - y + self.breaks * self.tail
        # Twice all relative roundings of a value, none of which exceeds 1: per change the three products and sums of a mass, per
        # region one of each running sum (both sums together have one per region, and y - y another), and a few at the end.
        self.margin = (4 * changes + 2 * len(x) + 16) * 2.0**-52
        half = 0.5 + 2 * self.margin
        # the largest 1 - p (exclusive) at which lower() exceeds 1/2; 0 if there is none
        self.slack = max(0.0, float(((self.values - half) / self.breaks).max(initial=0.0)))

    def lower(self, miss: float) -> float:
        """Lower bound on the share under Y of a class with share at least ``1 - miss`` under X."""
        # F - lambda * miss rises up to the last break beyond which X has more mass than that
        place = len(self.tail) - int(np.searchsorted(self.tail[::-1], miss, side="right")) - 1
        if place < 0:
            return 0.0
        return min(1.0, max(0.0, float(self.values[place] - self.breaks[place] * miss) - self.margin))


class JointBound:
    """Bounds and thresholds for one pair of noises, computed when first needed and kept: see :func:`joint_bound`."""

    def __init__(self, noise: EdgeNoise, feature_noise: FeatureNoise, categories: int) -> None:
        self.noise, self.feature_noise = noise, feature_noise
        edges = flip_changes(noise, "flips", "additions", "removals")
        self._kinds: tuple[tuple[Change, ...], ...] = (edges, feature_noise.changes(categories))
        self._split = len(edges)
        self.axes = tuple(change.name for kind in self._kinds for change in kind)
        # for further look-ups: thresholds are small, curves may have some 8,000 regions
        self.slack = lru_cache(maxsize=2**16)(self._slack)
        self._curve = lru_cache(maxsize=128)(self._made_curve)
        self._law = lru_cache(maxsize=1024)(self._made_law)

    @property
    def largest(self) -> int:
        """Largest length of an axis of a grid: 64 for two axes, 32 for three, 16 for four."""
        return GRID_LIMIT >> (len(self.axes) - 2)

    def worst_case(self, p_lower: float, attack: Cell) -> float:
        """Lower bound on the top class's share of votes after exactly this attack, for every base classifier.

        >>> from flipproof.noise.feature_law import LabelNoise
        >>> bound = joint_bound(EdgeNoise(keep=0.8), LabelNoise(keep=0.8), categories=7)
        >>> bound.axes, round(bound.worst_case(0.99, (1, 1)), 6)
        (('flips', 'changed labels'), 0.34)
        """
        attack = self._checked(attack, "attack")
        return (
            self._curve(attack).lower(float(rounded_miss(checked_share(p_lower, "p_lower"))))
            if any(attack)
            else float(p_lower)
        )

    def _slack(self, attack: Cell) -> float:
        """The largest ``1 - p`` (exclusive) at which the share alone withstands this attack; 0 if there is none."""
        return self._curve(attack).slack if any(attack) else 0.5

    def withstands(self, p_lower: float, p_upper: float | None = None) -> Callable[[Cell], bool]:
        """Whether a class of share at least ``p_lower`` stays ahead of all others, of shares at most ``p_upper``, per attack."""
        miss = float(rounded_miss(checked_share(p_lower, "p_lower")))
        rival = miss if p_upper is None else p_upper

        def holds(attack: Cell) -> bool:
            if self.slack(attack) > miss:
                return True
            if rival >= miss:  # the rival's bound says no more than 1 - p_lower
                return False
            if not any(attack):
                return p_lower > rival
            curve = self._curve(attack)
            # lower(p_A) must exceed upper(p_B) = 1 - lower(1 - p_B)
            return curve.lower(miss) + curve.lower(rival) > 1

        return holds

    def grid(self, p_lower: float, room: Cell, p_upper: float | None = None) -> NDArray[np.bool_]:
        """Which attacks are withstood, one axis per kind of change (:attr:`axes`), those with less of each kind included.

        Args:
            p_lower: Lower bound on the top class's share.
            room: How many changes of each kind the graph offers. Others do not exist; the grid ends there.
            p_upper: Upper bound on each other class's share; by default ``1 - p_lower``.

        Returns:
            Booleans, cut where an axis is certified no further and at :attr:`largest`; empty if not even no attack is.
        """
        room, holds = self._checked(room, "room"), self.withstands(p_lower, p_upper)

        def alone(axis: int) -> Callable[[int], bool]:
            return lambda count: holds(tuple(count * (place == axis) for place in range(len(room))))

        reach = (_last(alone(axis), min(most, self.largest - 1)) for axis, most in enumerate(room))
        grid = np.zeros([1 + most for most in reach], dtype=np.bool_)
        for cell in np.ndindex(*grid.shape):  # after all that change less
            smaller = ((*cell[:axis], count - 1, *cell[axis + 1 :]) for axis, count in enumerate(cell) if count)
            grid[cell] = all(grid[before] for before in smaller) and holds(cell)
        return grid

    def feature_radius(self, p_lower: float, room: Cell, p_upper: float | None = None) -> int:
        """Labels or bits that can change with edges untouched: the largest ``r`` such that any ``r`` changes are withstood.

        ``room`` is that of :meth:`grid`; -1 where not even the unattacked prediction is certified.
        """
        feature_room, holds = self._checked(room, "room")[self._split :], self.withstands(p_lower, p_upper)

        def withstood(total: int) -> bool:
            splits = product(*(range(min(total, count) + 1) for count in feature_room))
            return all(holds((0,) * self._split + split) for split in splits if sum(split) == total)

        return _last(withstood, sum(feature_room))

    def _checked(self, cell: Cell, name: str) -> Cell:
        if len(cell) != len(self.axes) or any(count < 0 for count in cell):
            raise InputError(f"{name} must hold a number for each of {', '.join(self.axes)}; got {cell!r} (0 for none)")
        return tuple(int(count) for count in cell)

    def _made_curve(self, attack: Cell) -> _Curve:
        parts = (self._law(0, attack[: self._split]), self._law(1, attack[self._split :]))
        # every pair of regions stays a region of its own: those of equal ratio by chance do no harm
        x, y = (np.multiply.outer(one, other).ravel() for one, other in zip(*parts, strict=True))
        return _Curve(x, y, sum(attack))

    def _made_law(self, kind: int, counts: Cell) -> tuple[FloatArray, FloatArray]:
        """Masses under X and under Y of the regions of so many changes of one kind.

        States of several coordinates are joined only if their ratio is the same by construction: the same number of steps.
        """
        x = y = np.ones(1)
        for change, count in zip(self._kinds[kind], counts, strict=True):
            for _ in range(count):
                x, y = np.convolve(x, change.clean), np.convolve(y, change.attacked)
        return x, y


@lru_cache(maxsize=32)
def joint_bound(noise: EdgeNoise, feature_noise: FeatureNoise, categories: int = 2) -> JointBound:
    """The bound for smoothing with this noise on edges and on node features.

    Args:
        noise: Of the edges; ``EdgeNoise(add=0, remove=0)`` for features alone.
        feature_noise: Of the features.
        categories: Number of columns of one-hot features; of no importance for bits.
    """
    if not isinstance(noise, EdgeNoise):
        raise InputError(f"noise must be an EdgeNoise; got {noise!r} (for instance EdgeNoise(keep=0.9))")
    checked_feature_noise(feature_noise)
    return JointBound(noise, feature_noise, categories)


def with_features(
    certificate: Certificate, shares: Certificate, graph: Graph, feature_noise: FeatureNoise
) -> Certificate:
    """What votes under noise on edges and features say: a certificate against flips, and the joint bound on both.

    Args:
        certificate: Read from the votes by any method.
        shares: Read from the same votes by method ``votes``. All that the joint bound says follows from its bounds on shares, so
            that it holds together with this certificate, with probability at least ``1 - alpha``.
        graph: The graph that the votes are about.
        feature_noise: Of its node features.

    >>> from flipproof.certificates import vote_share
    >>> from flipproof.noise.feature_law import LabelNoise
    >>> graph = Graph(30, [(node, node + 1) for node in range(29)], np.eye(7)[np.arange(30) % 7])
    >>> limits = graph.max_adds, graph.max_removes
    >>> votes = vote_share.from_counts(np.array([9990, 10]), EdgeNoise(keep=0.8), alpha=0.001, limits=limits)
    >>> both = with_features(votes, votes, graph, LabelNoise(keep=0.7))
    >>> both.radius, both.feature_radius, both.grid.shape
    (5, 2, (6, 3))
    """
    noise, features = shares.noise, graph.node_features
    assert noise is not None
    assert features is not None
    bound = joint_bound(noise, feature_noise, features.shape[1])
    pairs = (graph.num_slots,) if noise.symmetric else (graph.max_adds, graph.max_removes)
    room = pairs + feature_noise.room(features)
    grid, feature_radius = np.zeros((0,) * len(bound.axes), dtype=np.bool_), -1
    if shares.label is not None:
        # 1 - p_lower is what follows without a bound of its own
        p_upper = None if shares.p_upper >= 1 - shares.p_lower else shares.p_upper
        grid = bound.grid(shares.p_lower, room, p_upper)
        feature_radius = bound.feature_radius(shares.p_lower, room, p_upper)
    if certificate.radius >= 0:
        flips = np.ones(1 + min(certificate.radius, GRID_LIMIT - 1), dtype=np.bool_)
        grid = _with_edges(grid, flips if noise.symmetric else certificate.grid)
    grid.flags.writeable = False
    radius = max(certificate.radius, shares.radius)
    return replace(
        certificate,
        label=shares.label if certificate.label is None else certificate.label,  # the class with most votes, if any
        radius=radius,
        axes=bound.axes,
        grid=grid,
        feature_radius=max(feature_radius, min(radius, 0)),
    )


def _with_edges(grid: NDArray[np.bool_], edges: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """A grid with more certified attacks on edges alone, by their numbers along its first axes.

    >>> _with_edges(np.ones((1, 2), dtype=bool), np.ones(3, dtype=bool)).astype(int).tolist()
    [[1, 1], [1, 0], [1, 0]]
    """
    edges = edges.reshape(edges.shape + (1,) * (grid.ndim - edges.ndim))
    shape = np.maximum(grid.shape, edges.shape)
    return np.logical_or(*(np.pad(part, [(0, more) for more in shape - part.shape]) for part in (grid, edges)))


def _last(holds: Callable[[int], bool], most: int) -> int:
    """The last number before the first that does not hold, going up from 0."""
    return next((count - 1 for count in range(most + 1) if not holds(count)), most)
