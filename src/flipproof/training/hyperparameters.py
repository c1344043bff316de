"""The numbers and names that steer a training, checked; learning-rate schedules among them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from flipproof.errors import InputError
from flipproof.noise import checked_seed
from flipproof.training.objectives import OBJECTIVES

_WARM_UP = 0.1
_FIRST, _LAST = 0.04, 0.001  # factors on the highest rate


def _cosine(done: float) -> float:
    return _LAST + (1 - _LAST) * (1 + math.cos(math.pi * done)) / 2


def _one_cycle(done: float) -> float:
    return _FIRST + (1 - _FIRST) * done / _WARM_UP if done < _WARM_UP else _cosine((done - _WARM_UP) / (1 - _WARM_UP))


SCHEDULES: dict[str, Callable[[float], float]] = {
    "one-cycle": _one_cycle,
    "cosine": _cosine,
    "constant": lambda done: 1.0,
}
"""The factor on the highest learning rate, as a function of the share of steps done."""


class Shared(TypedDict, total=False):
    """Arguments that all trainings share; :func:`flipproof.train` explains them."""

    features: Any
    epochs: int
    learning_rate: float | None
    batch_size: int | None
    weight_decay: float | None
    average: float | None
    schedule: str
    class_weights: bool
    validation: Iterable[Any] | None
    seed: int
    checkpoint: str | os.PathLike[str] | None
    progress: bool | Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """Arguments of :func:`flipproof.train` that do not depend on the graphs; plain JSON."""

    epochs: int = 200
    learning_rate: float = 0.01
    batch_size: int = 64
    weight_decay: float = 1e-4
    copies: int = 1
    objective: str = "samples"
    consistency: float = 0.0
    label_smoothing: float = 0.0
    average: float = 0.0
    schedule: str = "one-cycle"
    class_weights: bool = False
    seed: int = 0

    @classmethod
    def of(cls, *, recipe: Mapping[str, float] | None = None, **values: Any) -> Hyperparameters:
        """These values; ``None`` stands for the recipe's, or the default.

        >>> Hyperparameters.of(learning_rate=None, recipe={"learning_rate": 0.006}).learning_rate
        0.006
        """
        return cls(**{**(recipe or {}), **{name: value for name, value in values.items() if value is not None}})

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "copies"):
            _check(getattr(self, name), name, int, 1)
        _check(self.learning_rate, "learning_rate", float, 0, above=True)
        for name in ("weight_decay", "consistency"):
            _check(getattr(self, name), name, float, 0)
        for name in ("label_smoothing", "average"):
            _check(getattr(self, name), name, float, 0, below=1)
        for name, known in (("schedule", SCHEDULES), ("objective", OBJECTIVES)):
            if getattr(self, name) not in known:
                raise InputError(f"{name} must be one of {', '.join(known)}; got {getattr(self, name)!r}")
        if self.consistency and self.copies < 2:
            raise InputError(
                f"consistency compares copies of a graph; got copies={self.copies} (pass copies=2 or more)"
            )
        object.__setattr__(self, "class_weights", bool(self.class_weights))
        object.__setattr__(self, "seed", checked_seed(self.seed))


def _check(value: Any, name: str, kind: type, smallest: float, *, below: float = math.inf, above: bool = False) -> None:
    fits = isinstance(value, int) if kind is int else isinstance(value, (int, float)) and math.isfinite(value)
    if isinstance(value, bool) or not fits or value < smallest or value >= below or (above and value == smallest):
        what = "an integer" if kind is int else "a number"
        bound = f"above {smallest}" if above else f"of at least {smallest}"
        if below < math.inf:
            bound += f" and below {below:g}"
        raise InputError(f"{name} must be {what} {bound}; got {value!r}")
