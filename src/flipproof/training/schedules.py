"""Learning-rate schedules: the factor on the highest rate, as a function of the share of steps done."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["SCHEDULES"]

_WARM_UP = 0.1
_FIRST, _LAST = 0.04, 0.001  # factors


def _cosine(done: float) -> float:
    return _LAST + (1 - _LAST) * (1 + math.cos(math.pi * done)) / 2


def _one_cycle(done: float) -> float:
    if done < _WARM_UP:
        return _FIRST + (1 - _FIRST) * done / _WARM_UP
    return _cosine((done - _WARM_UP) / (1 - _WARM_UP))


SCHEDULES: dict[str, Callable[[float], float]] = {
    "one-cycle": _one_cycle,
    "cosine": _cosine,
    "constant": lambda done: 1.0,
}
