"""A trial: a candidate that is trained; and its result: what it certifies of some graphs."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from flipproof.certificates.metrics import mean_radius, right_radii, share_interval
from flipproof.graphs import IntArray
from flipproof.studies.candidate import Candidate


@dataclass(frozen=True)
class Trial:
    """A candidate, trained for a number of epochs; ``role`` is the folder of a model that is kept."""

    candidate: Candidate
    epochs: int | None = None  # by default those of the experiment's training
    role: str = ""

    @property
    def name(self) -> str:
        epochs = f", {self.epochs} epoch{'s' * (self.epochs != 1)}" if self.candidate.defence.trains else ""
        return (f"final {self.role}: " if self.role else "") + self.candidate.title + epochs

    @property
    def training(self) -> dict[str, int]:
        """Arguments of :func:`flipproof.train`."""
        return {} if self.epochs is None or not self.candidate.defence.trains else {"epochs": self.epochs}


@dataclass(frozen=True, eq=False)
class TrialResult:
    """What a trained candidate certifies of some graphs of its data set; all but the trial is plain JSON.

    Attributes:
        score: What the best trial has most of: graphs that withstand the attack, or, where all radii count, certified accuracy.
        certified: Answers and radii by attacker; under ``""`` those of the request, else of another reading of the same evidence.
        seconds: Of training, of asking about all graphs, and of reading their certificates.
    """

    trial: Trial
    graphs: list[int]
    labels: list[int]
    method: str
    score: float
    certified: dict[str, dict[str, list[Any]]]
    seconds: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "trial"}

    def radii(self, reading: str = "", attacker: str = "radius") -> IntArray:
        """Of each graph what it withstands, -1 where the answer is wrong."""
        own = self.certified[reading]
        return right_radii(own[attacker], own["label"], self.labels)

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.radii() >= 0))

    @property
    def rank(self) -> tuple[float, ...]:
        """The higher the better; of equals the more accurate, then the cheaper."""
        return (self.score, self.accuracy, -self.trial.candidate.defence.effort, mean_radius(self.radii()))

    def needed(self, epochs: int) -> float:
        """Seconds that the same trial with another number of epochs would take."""
        times = epochs / (self.trial.epochs or epochs) if self.trial.candidate.defence.trains else 1
        return self.seconds["train"] * times + self.seconds["ask"] + self.seconds["read"]

    def summary(self) -> dict[str, Any]:
        """What a reader wants to know of it, as plain JSON."""
        candidate, count = self.trial.candidate, len(self.graphs)
        ends = share_interval(round(self.score * count), count)
        return {
            "model": candidate.model,
            "defence": replace(candidate, network=None).title,
            "settings": {**candidate.settings, **candidate.recipe},
            "epochs": self.trial.training.get("epochs"),
            "certificate": self.method,
            "validation_graphs": count,
            "accuracy": self.accuracy,
            "certified_accuracy": self.score,
            "interval": [round(float(end), 6) for end in ends],
            "average_radius": mean_radius(self.radii()),
            "seconds_train": self.seconds["train"],
            "seconds_certify": round(self.seconds["ask"] + self.seconds["read"], 3),
        }
