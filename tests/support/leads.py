"""Exact means of the lead test's statistic, by listing every noisy version of a small graph."""

from __future__ import annotations

import numpy as np

from flipproof.certificates.influence.lead_test import Attack, Cells, Kind
from support.cube import Cube, all_states


def terms(
    cube: Cube,
    chosen: list[int],
    attack: Attack,
    top: dict[Kind, float],
    rival: dict[Kind, float],
    label: int,
    other: int,
) -> tuple[np.ndarray, Cells]:
    """What every noisy version of the graph adds to the statistic of a set, ``[2**N]``."""
    degree = max(sum(kind) for kind in top)
    cells = Cells.of(attack.groups, attack.overlap, degree)
    flips = (all_states(cube.slots) ^ cube.clean)[:, chosen]
    if len(attack.groups) == 1:
        seen = [flips[:, [cube.noise.symmetric or attack_holds(attack, slot) for slot in chosen]].sum(axis=1)]
    else:
        seen = [flips[:, ~cube.clean[chosen]].sum(axis=1), flips[:, cube.clean[chosen]].sum(axis=1)]
    cell = np.ravel_multi_index(tuple(seen), tuple(group.count + 1 for group in attack.groups))
    gain, price = ((np.array([part[kind] for kind in cells.kinds]) @ cells.features)[cell] for part in (top, rival))
    return np.where(cube.labels == label, gain, np.where(cube.labels == other, -price, 0.0)), cells


def attack_holds(attack: Attack, slot: int) -> bool:
    """Whether a slot is one whose flips the attack can see."""
    return bool((attack.slots == slot).any())


def log_mean_statistic(
    cube: Cube,
    chosen: list[int],
    attack: Attack,
    top: dict[Kind, float],
    rival: dict[Kind, float],
    label: int,
    other: int,
) -> tuple[float, Cells]:
    """The logarithm of the mean of the exponential of the statistic of one sample."""
    added, cells = terms(cube, chosen, attack, top, rival, label, other)
    return float(np.log(cube.law(cube.clean) @ np.exp(added))), cells


def mean_statistic(
    cube: Cube,
    chosen: list[int],
    attack: Attack,
    top: dict[Kind, float],
    rival: dict[Kind, float],
    label: int,
    other: int,
) -> float:
    """The mean of the statistic of one sample."""
    return float(cube.law(cube.clean) @ terms(cube, chosen, attack, top, rival, label, other)[0])
