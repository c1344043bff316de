"""Checks of arguments that many parts share. An :class:`flipproof.InputError` names the argument, what was expected, the
value, and a remedy."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np

from flipproof.errors import InputError

_UNITS = {"s": 1, "m": 60, "h": 3600}


def checked_count(value: Any, name: str, least: int, remedy: str) -> int:
    """An integer of at least ``least``; numpy's integers are taken, ``True`` and ``3.0`` are not."""
    if not _is_integer(value) or value < least:
        raise InputError(f"{name} must be an integer of at least {least}; got {value!r} ({remedy})")
    return int(value)


def checked_integer(value: Any, name: str, least: int, most: int, remedy: str) -> int:
    """An integer from ``least`` to ``most``, both included; numpy's integers are taken, ``True`` and ``3.0`` are not."""
    if not _is_integer(value) or not least <= value <= most:
        raise InputError(f"{name} must be an integer from {least} to {most}; got {value!r} ({remedy})")
    return int(value)


def checked_samples(samples: Any, name: str = "samples") -> int:
    """A number of samples, at least 1."""
    return checked_count(samples, name, 1, "for instance 10000")


def checked_seed(seed: int | None) -> int:
    """The seed itself, or a fresh secret one for ``None``."""
    if seed is None:
        return secrets.randbits(63)
    if not _is_integer(seed) or not 0 <= seed < 2**63:
        raise InputError(f"seed must be an integer from 0 to 2**63 - 1; got {seed!r} (or None for a fresh one)")
    return int(seed)


def checked_seconds(time: str | float, name: str = "time") -> float:
    """Seconds from ``90s``, ``10m``, ``1.5h``, or a number of seconds.

    >>> checked_seconds("1.5h")
    5400.0
    """
    text = f"{time}s" if isinstance(time, (int, float)) else str(time)
    amount = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh])\s*", text)
    if amount is None or not float(amount[1]):
        raise InputError(f"{name} must be a time such as 90s, 10m or 2h; got {time!r} (the default is 10m)")
    return float(amount[1]) * _UNITS[amount[2]]


def checked_budget(budget: Any) -> tuple[int, int]:
    """Additions and removals; a single number stands for either kind."""
    if isinstance(budget, Sequence) and not isinstance(budget, str) and len(budget) == 2:
        adds, removes = (checked_count(part, "budget", 0, "for instance (2, 1)") for part in budget)
        checked_count(adds + removes, "budget", 1, "for instance (2, 1)")
        return adds, removes
    flips = checked_count(budget, "budget", 1, "for instance 3, or (additions, removals)")
    return flips, flips


def check_classes(number: int, highest_label: int) -> None:
    """A model must have a class for every label."""
    if highest_label >= number:
        raise InputError(
            f"the model must have a class for every label; got {number} classes and label {highest_label} "
            f"(build it with num_classes={highest_label + 1})"
        )


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
