"""What an attack found, and the accuracy that is left under attack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipproof.errors import InputError
from flipproof.graphs import Graph


@dataclass(frozen=True)
class AttackResult:
    """The smallest attack that was found on one graph; if none succeeded, the one that came nearest.

    A success says that no certificate of the same classifier and label can reach ``size`` flips.

    Attributes:
        attack: Name of the attack.
        graph: The graph after the attack.
        flips: Node pairs that were flipped, each once, ``u < v``, sorted.
        label: The class that the classifier was to leave.
        success: Whether it did. Against a smoothed classifier only if confirmed with fresh noise.
        confirmed: Whether asking again agreed; ``None`` where there was nothing to confirm.
        alpha: Probability with which a false success against a smoothed classifier is confirmed; 0 for a base classifier.
        budget: Flips that were allowed.
        margin_before: Lead of the label over its strongest rival, in logits or, smoothed, in shares of votes.
        margin_after: The same after the attack; from the fresh noise where it was asked.
        model_calls: Graphs that the model was asked about.
    """

    attack: str
    graph: Graph = field(repr=False)
    flips: tuple[tuple[int, int], ...]
    label: int
    success: bool
    confirmed: bool | None
    alpha: float
    budget: int
    margin_before: float
    margin_after: float
    model_calls: int

    @property
    def size(self) -> int:
        """Number of flips."""
        return len(self.flips)

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, ready for JSON; the attacked graph is the clean one with ``flips`` flipped."""
        rest = {name: value for name, value in vars(self).items() if name not in ("attack", "graph", "flips")}
        return {"attack": self.attack, "flips": [list(pair) for pair in self.flips], "size": self.size, **rest}

    @classmethod
    def from_dict(cls, graph: Graph, values: Mapping[str, Any]) -> AttackResult:
        """What :meth:`to_dict` wrote of an attack on this clean graph."""
        flips = tuple((int(u), int(v)) for u, v in values["flips"])
        rest = {key: value for key, value in values.items() if key not in ("flips", "size")}
        return cls(graph=graph.flipped(flips), flips=flips, **rest)


def robust_accuracy(
    results: Sequence[AttackResult], labels: ArrayLike, radii: Iterable[int] = range(6)
) -> NDArray[np.float64]:
    """Share of graphs that are still right after the attacks of at most ``r`` flips that were found, for each ``r``.

    An upper bound on the accuracy under the worst attack: a better search can only lower it. A graph counts as wrong if the
    attacked label is not the true one (the answer was wrong before any attack).
    """
    truth = np.asarray(labels)
    if truth.shape != (len(results),) or not len(results):
        raise InputError(
            f"labels must be one per result, [{len(results)}], at least one; got shape {truth.shape} "
            "(pass [graph.label for graph in graphs])"
        )
    right = np.array([result.label for result in results]) == truth
    size = np.array([result.size if result.success else np.inf for result in results])
    return np.array([np.mean(right & (size > r)) for r in radii])
