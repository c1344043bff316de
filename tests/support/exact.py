"""Slow, exact references: rational arithmetic for the certificates, many digits for binomial tails.

Nothing here imports what it is compared with, except ``EdgeNoise`` for its integer thresholds.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import cache

import mpmath

from flipproof import EdgeNoise

WORD = 2**32
NOTHING = Fraction(0)


def probabilities(noise: EdgeNoise) -> tuple[Fraction, Fraction]:
    """``p_add`` and ``p_remove`` as the fractions they are."""
    return Fraction(noise.add_threshold, WORD), Fraction(noise.remove_threshold, WORD)


@cache
def regions(noise: EdgeNoise, adds: int, removes: int) -> list[tuple[Fraction, Fraction]]:
    """Masses under X and Y of the states of the attacked slots, merged by likelihood ratio, highest X/Y first.

    Slot by slot: each attacked slot's noisy state either differs from the clean graph's or does not.
    """
    add, remove = noise.add_threshold, noise.remove_threshold
    if add == 0 or remove == 0:
        return one_sided_regions(noise, adds, removes)
    masses_x, masses_y = [1], [1]  # in units of 2**-32 a slot
    for differs_x, differs_y in [(add, WORD - remove)] * adds + [(remove, WORD - add)] * removes:
        masses_x, masses_y = _one_more(masses_x, differs_x), _one_more(masses_y, differs_y)
    unit = WORD ** (adds + removes)
    return [(Fraction(x, unit), Fraction(y, unit)) for x, y in zip(masses_x, masses_y, strict=True)]


def _one_more(masses: list[int], differs: int) -> list[int]:
    grown = [mass * (WORD - differs) for mass in masses] + [0]
    for count, mass in enumerate(masses):
        grown[count + 1] += mass * differs
    return grown


def one_sided_regions(noise: EdgeNoise, adds: int, removes: int) -> list[tuple[Fraction, Fraction]]:
    """The same where a probability is 0: all states of the attacked slots, sorted by ratio."""
    p_add, p_remove = probabilities(noise)
    kinds = [  # probabilities of an edge in an attacked slot under X and under Y
        (p_add, 1 - p_remove, adds),
        (1 - p_remove, p_add, removes),
    ]
    states = [(Fraction(1), Fraction(1))]
    for edge_x, edge_y, slots in kinds:
        for _ in range(slots):
            states = _merged(
                [(x * fx, y * fy) for x, y in states for fx, fy in ((edge_x, edge_y), (1 - edge_x, 1 - edge_y))]
            )
    only_x = [state for state in states if state[1] == 0]
    both = [state for state in states if state[1] > 0]
    return only_x + sorted(both, key=lambda state: state[0] / state[1], reverse=True)


def _merged(states: list[tuple[Fraction, Fraction]]) -> list[tuple[Fraction, Fraction]]:
    totals: dict[object, tuple[Fraction, Fraction]] = {}
    for x, y in states:
        if x or y:
            key = (None if y == 0 else x / y, x == 0)
            old = totals.get(key, (Fraction(0), Fraction(0)))
            totals[key] = (old[0] + x, old[1] + y)
    return list(totals.values())


def lower(share: Fraction, noise: EdgeNoise, adds: int, removes: int) -> Fraction:
    """Least share under Y of a class with this share under X: regions are filled, the last one in part."""
    return lower_from(regions(noise, adds, removes), share)


def lower_from(masses: list[tuple[Fraction, Fraction]], share: Fraction) -> Fraction:
    """As :func:`lower`, for regions that are known already."""
    left, total = Fraction(share), Fraction(0)
    for x, y in masses:
        if x == 0 or left <= 0:
            continue
        used = min(left, x)
        total += y * used / x
        left -= used
    return total


def upper_from(masses: list[tuple[Fraction, Fraction]], share: Fraction) -> Fraction:
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
