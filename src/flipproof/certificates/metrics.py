"""What a set of certificates is worth: certified accuracy and average radius, computed here and nowhere else.

Everything is read off one array, the *right radii*: of each graph the radius, or -1 where the answer is wrong, missing, or cannot
be judged because the graph has no label.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipproof.certificates.bounds import lower_bound, upper_bound
from flipproof.certificates.certificate import Certificate
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray

__all__ = [
    "Curve",
    "average_certified_radius",
    "certified_accuracy",
    "mean_radius",
    "right_radii",
    "shares",
    "withstands",
]


def right_radii(radii: ArrayLike, predicted: Sequence[int | None], labels: Sequence[int | None]) -> IntArray:
    """Of each graph the radius where the prediction is right, -1 elsewhere."""
    right = [answer is not None and answer == label for answer, label in zip(predicted, labels, strict=True)]
    return np.where(right, np.asarray(radii, dtype=np.int64), -1)


def shares(radii: IntArray, at: Iterable[int]) -> NDArray[np.float64]:
    """Certified accuracy: the share of graphs that are right with a radius of at least ``r``, for each ``r``."""
    return np.array([np.mean(radii >= max(r, 0)) for r in at])


def mean_radius(radii: IntArray) -> float:
    """Average certified radius; a wrong or missing answer counts 0."""
    return float(np.maximum(radii, 0).mean())


@dataclass(frozen=True)
class Curve:
    """Certified accuracy against the radius: of ``graphs`` graphs, ``certified[r]`` are right with radius >= r."""

    name: str
    certified: tuple[int, ...]
    graphs: int

    @classmethod
    def of(cls, name: str, radii: IntArray, top: int) -> Curve:
        """The curve for r = 0..top."""
        return cls(name, tuple(int((radii >= r).sum()) for r in range(top + 1)), len(radii))

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """Share of the graphs, for r = 0, 1, 2, ..."""
        return np.array(self.certified) / self.graphs

    @property
    def band(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Pointwise 95% interval (Clopper-Pearson) of the accuracy on graphs like these."""
        counts = np.array(self.certified)
        return (
            lower_bound(counts, self.graphs, failure_prob=0.025),
            upper_bound(counts, self.graphs, failure_prob=0.025),
        )


def certified_accuracy(
    certificates: Sequence[Certificate], labels: ArrayLike, radii: Iterable[int] = range(17)
) -> NDArray[np.float64]:
    """Share of graphs that are not abstained on, predicted right, and have radius at least ``r``, for each ``r``.

    At ``r = 0`` it is the accuracy of the defended classifier. (The paper prints ``L > r``; its CA(r) is CA(r + 1) here.)
    """
    return shares(_of_certificates(certificates, labels), radii)


def average_certified_radius(certificates: Sequence[Certificate], labels: ArrayLike) -> float:
    """Mean radius; a wrong or abstained prediction counts 0."""
    return mean_radius(_of_certificates(certificates, labels))


def _of_certificates(certificates: Sequence[Certificate], labels: ArrayLike) -> IntArray:
    truth = np.asarray(labels)
    if truth.shape != (len(certificates),) or not len(certificates):
        raise InputError(
            f"labels must be one per certificate, [{len(certificates)}], at least one; got shape {truth.shape} "
            "(pass [graph.label for graph in graphs])"
        )
    radii = [certificate.radius for certificate in certificates]
    return right_radii(radii, [certificate.label for certificate in certificates], truth.tolist())


def withstands(certificate: Certificate, graph: Graph, *, adds: int, removes: int) -> bool:
    """Whether the prediction stands against at most so many additions together with at most so many removals.

    Every smaller attack must be certified too; the grid is read as far as it goes, the radius beyond. What the graph has no
    room for, no attacker can do.
    """
    if certificate.abstains:
        return False
    adds, removes = min(adds, graph.max_adds), min(removes, graph.max_removes)
    if certificate.radius >= adds + removes:
        return True
    grid = certificate.grid
    return bool(adds < grid.shape[0] and removes < grid.shape[1] and np.all(grid[: adds + 1, : removes + 1]))
