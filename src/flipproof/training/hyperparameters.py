"""The numbers and names that steer a training, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flipproof.errors import InputError
from flipproof.noise import checked_seed
from flipproof.training.objectives import OBJECTIVES
from flipproof.training.schedules import SCHEDULES

__all__ = ["Hyperparameters"]


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """Arguments of :func:`flipproof.train` that do not depend on the graphs; plain JSON."""

    epochs: int
    learning_rate: float = 0.01
    batch_size: int = 64
    weight_decay: float = 1e-4
    copies: int
    objective: str
    consistency: float
    label_smoothing: float
    average: float = 0.0
    schedule: str
    class_weights: bool
    seed: int

    @classmethod
    def of(cls, *, recipe: Mapping[str, float] | None = None, **given: Any) -> Hyperparameters:
        """As given; ``None`` stands for the recipe's value, or the default.

        >>> shared = {"epochs": 1, "copies": 1, "objective": "samples", "consistency": 0, "label_smoothing": 0, "seed": 0}
        >>> shared |= {"schedule": "cosine", "class_weights": False}
        >>> Hyperparameters.of(**shared, learning_rate=None, recipe={"learning_rate": 0.006}).learning_rate
        0.006
        """
        return cls(**{**(recipe or {}), **{name: value for name, value in given.items() if value is not None}})

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
