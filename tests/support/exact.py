"""Slow, exact references: rational arithmetic for the certificates, many digits for binomial tails.

Nothing here imports what it is compared with, except the noises for their integer thresholds.
"""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache

import mpmath

from flipproof import EdgeNoise
from flipproof.noise.feature_law import BitNoise, FeatureNoise, LabelNoise

WORD = 2**32
NOTHING = Fraction(0)
State = tuple[int, int]  # probability under X and under Y, in units of 2**-32 per coordinate
Masses = list[tuple[Fraction, Fraction]]


def probabilities(noise: EdgeNoise) -> tuple[Fraction, Fraction]:
    """``p_add`` and ``p_remove`` as the fractions they are."""
    return Fraction(noise.add_threshold, WORD), Fraction(noise.remove_threshold, WORD)


def coordinates(noise: EdgeNoise, attack: tuple[int, ...]) -> list[list[State]]:
    """The states of each attacked slot or bit, for (flips,) or (additions, removals)."""
    add, remove = noise.add_threshold, noise.remove_threshold
    added, removed = [(WORD - add, remove), (add, WORD - remove)], [(WORD - remove, add), (remove, WORD - add)]
    adds, removes = (*attack, 0)[:2]
    return [added] * adds + [removed] * removes


def feature_coordinates(noise: FeatureNoise, categories: int, attack: tuple[int, ...]) -> list[list[State]]:
    """The same for attacked features; every category of a label is a state of its own."""
    if isinstance(noise, BitNoise):
        return coordinates(noise.law, attack)
    assert isinstance(noise, LabelNoise)
    other = round((1 - noise.keep) / (categories - 1) * WORD)
    kept = WORD - (categories - 1) * other
    return [[(kept, other), (other, kept)] + [(other, other)] * (categories - 2)] * attack[0]


def joined(attacked: list[list[State]]) -> Masses:
    """Masses under X and Y of the states of all attacked coordinates, merged by likelihood ratio, highest X/Y first."""
    totals = {(1, 1): (1, 1)}  # by X : Y in lowest terms
    for states in attacked:
        grown: dict[State, State] = {}
        for (x, y), (more_x, more_y) in itertools.product(totals.values(), states):
            x, y = x * more_x, y * more_y
            if divisor := math.gcd(x, y):
                ratio = x // divisor, y // divisor
                old_x, old_y = grown.get(ratio, (0, 0))
                grown[ratio] = old_x + x, old_y + y
        totals = grown
    unit = WORD ** len(attacked)
    masses = [(Fraction(x, unit), Fraction(y, unit)) for x, y in totals.values()]
    return sorted(masses, key=lambda mass: (mass[1] > 0, -mass[0] / mass[1] if mass[1] else 0))


@cache
def regions(noise: EdgeNoise, adds: int, removes: int) -> Masses:
    """The regions of an attack on edges."""
    return joined(coordinates(noise, (adds, removes)))


def joint_regions(noise: EdgeNoise, feature_noise: FeatureNoise, categories: int, attack: tuple[int, ...]) -> Masses:
    """The regions of an attack on edges and features."""
    split = 1 if noise.symmetric else 2
    features = feature_coordinates(feature_noise, categories, attack[split:])
    return joined(coordinates(noise, attack[:split]) + features)


def lower_from(masses: Masses, share: Fraction) -> Fraction:
    """Least share under Y of a class with this share under X: regions are filled, the last one in part."""
    left, total = Fraction(share), Fraction(0)
    for x, y in masses:
        if x == 0 or left <= 0:
            continue
        used = min(left, x)
        total += y * used / x
        left -= used
    return total


def upper_from(masses: Masses, share: Fraction) -> Fraction:
    """Greatest share under Y of a class with this share under X; what X cannot reach counts whole."""
    left, total = Fraction(share), Fraction(0)
    for x, y in reversed(masses):
        if x == 0:
            total += y
        elif left > 0:
            used = min(left, x)
            total += y * used / x
            left -= used
    missing = 1 - sum((y for _, y in masses), Fraction(0))
    return total + missing


def threshold(noise: EdgeNoise, adds: int, removes: int) -> Fraction:
    """Infimum of the shares that certify the attack; 1 if none does (shares must exceed it)."""
    share, total = Fraction(0), Fraction(0)
    for x, y in regions(noise, adds, removes):
        if x == 0:
            continue
        if total + y > Fraction(1, 2):
            return share + x * (Fraction(1, 2) - total) / y
        share, total = share + x, total + y
    return Fraction(1)


def certified(
    noise: EdgeNoise, adds: int, removes: int, top: Fraction, rival: Fraction | None = None, lead: Fraction = NOTHING
) -> bool:
    """Whether the top class stays ahead of a rival after the attack, in the worst case, by more than ``lead``."""
    masses = regions(noise, adds, removes)
    rival = 1 - top if rival is None else min(rival, 1 - top)
    return lower_from(masses, top) - upper_from(masses, rival) > lead


def splits(flips: int, max_adds: int | None = None, max_removes: int | None = None) -> Iterator[tuple[int, int]]:
    """All ``(adds, removes)`` of this many flips that a graph offers."""
    for adds in range(flips + 1):
        removes = flips - adds
        if (max_adds is None or adds <= max_adds) and (max_removes is None or removes <= max_removes):
            yield adds, removes


def radius(
    noise: EdgeNoise,
    top: Fraction,
    rival: Fraction | None = None,
    *,
    max_radius: int,
    max_adds: int | None = None,
    max_removes: int | None = None,
    lead: Fraction = NOTHING,
) -> int:
    """Largest ``r`` such that every attack of at most ``r`` flips is certified; -1 if not even none is."""
    for flips in range(max_radius + 1):
        offered = list(splits(flips, max_adds, max_removes))
        if not all(certified(noise, *split, top, rival, lead) for split in offered):
            return flips - 1
    return max_radius


def binomial_tail(trials: int, share: float | mpmath.mpf, least: int, digits: int = 50) -> mpmath.mpf:
    """``Pr(Binomial(trials, share) >= least)`` to many digits, by adding up the terms."""
    with mpmath.workdps(digits):
        share = mpmath.mpf(share)
        if least <= 0 or share == 1:
            return mpmath.mpf(1)
        if share == 0:
            return mpmath.mpf(0)
        if least <= trials * share:  # the other side has fewer large terms
            return 1 - _terms(trials, 1 - share, trials - least + 1)
        return _terms(trials, share, least)


def _terms(trials: int, share: mpmath.mpf, least: int) -> mpmath.mpf:
    """Terms from ``least`` on, which lies at or above the mean, so that they fall."""
    if least > trials:
        return mpmath.mpf(0)
    log_term = (
        mpmath.loggamma(trials + 1)
        - mpmath.loggamma(least + 1)
        - mpmath.loggamma(trials - least + 1)
        + least * mpmath.log(share)
        + (trials - least) * mpmath.log1p(-share)
    )
    term = total = mpmath.exp(log_term)
    odds = share / (1 - share)
    for count in range(least, trials):
        term = term * (trials - count) / (count + 1) * odds
        total += term
        if term < total * mpmath.mpf(10) ** -(mpmath.mp.dps - 5):
            break
    return total
