"""Slow, exact references for joint attacks: masses of all noisy states of the attacked coordinates, in integers.

Nothing here imports what it is compared with, except the noises for their integer thresholds. Bounds are those of
:mod:`support.exact`, which fills regions one by one.
"""

import itertools
from collections import Counter
from fractions import Fraction

from flipproof import EdgeNoise
from flipproof.noise.feature_law import BitNoise, FeatureNoise, LabelNoise

WORD = 2**32
State = tuple[int, int]  # probability under X and under Y, in units of 2**-32


def coordinates(noise: EdgeNoise, attack: tuple[int, ...]) -> list[list[State]]:
    """The states of each attacked slot or bit, for (flips,) or (additions, removals)."""
    add, remove = noise.add_threshold, noise.remove_threshold
    adds, removes = (*attack, 0)[:2]
    return [[(WORD - add, remove), (add, WORD - remove)]] * adds + [
        [(WORD - remove, add), (remove, WORD - add)]
    ] * removes


def feature_coordinates(noise: FeatureNoise, categories: int, attack: tuple[int, ...]) -> list[list[State]]:
    """The same for attacked features; every category of a label is a state of its own."""
    if isinstance(noise, BitNoise):
        return coordinates(noise.law, attack)
    assert isinstance(noise, LabelNoise)
    other = round((1 - noise.keep) / (categories - 1) * WORD)
    kept = WORD - (categories - 1) * other
    return [[(kept, other), (other, kept)] + [(other, other)] * (categories - 2)] * attack[0]


def regions(
    noise: EdgeNoise, feature_noise: FeatureNoise, categories: int, attack: tuple[int, ...]
) -> list[tuple[Fraction, Fraction]]:
    """Masses under X and Y of all noisy states of the attacked coordinates, highest X/Y first; equal states are added up."""
    split = 1 if noise.symmetric else 2
    kinds = coordinates(noise, attack[:split]), feature_coordinates(feature_noise, categories, attack[split:])
    states = Counter({(1, 1): 1})
    for coordinate in itertools.chain(*kinds):
        grown: Counter[State] = Counter()
        for (x, y), number in states.items():
            for more_x, more_y in coordinate:
                grown[x * more_x, y * more_y] += number
        states = grown
    unit = WORD ** sum(attack)
    found = [(Fraction(x * number, unit), Fraction(y * number, unit)) for (x, y), number in states.items() if x or y]
    return sorted(found, key=lambda state: (state[1] > 0, -state[0] / state[1] if state[1] else 0))
