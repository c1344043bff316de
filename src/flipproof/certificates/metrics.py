"""What a set of certificates is worth: certified accuracy, average radius and their intervals, computed here and nowhere else.

Everything is read off one array, the *right radii*: of each graph the radius, or -1 where the answer is wrong, missing, or cannot
be judged. Intervals treat the graphs as a random sample: they say what another sample of as many graphs may give, and nothing
about another training run or about alpha.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.vote_share import label_pvalue, lower_bound, upper_bound
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray, as_graphs
from flipproof.graphs.conversions import as_array

CONFIDENCE = 0.95
"""Of the intervals in tables and figures."""


def right_radii(radii: ArrayLike, predicted: Sequence[int | None], labels: Sequence[int | None]) -> IntArray:
    """Of each graph the radius where the prediction is right, -1 elsewhere."""
    right = [answer is not None and answer == label for answer, label in zip(predicted, labels, strict=True)]
    return np.where(right, np.asarray(radii, dtype=np.int64), -1)


def shares(radii: IntArray, at: Iterable[int]) -> NDArray[np.float64]:
    """Certified accuracy: the share of graphs that are right with a radius of at least ``r``, for each ``r``."""
    if not isinstance(at, Iterable):
        raise InputError(f"radii must be a list of whole numbers; got {at!r} (for instance range({at}) or [0, 1, 2])")
    return np.array([np.mean(radii >= max(r, 0)) for r in at])


def share_interval(
    right: ArrayLike, graphs: ArrayLike, *, confidence: float = CONFIDENCE
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Exact interval (Clopper-Pearson) of a share of graphs: its lower and its upper ends.

    >>> low, high = share_interval(45, 50)
    >>> round(float(low), 3), round(float(high), 3)
    (0.782, 0.967)
    """
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie in (0, 1); got {confidence!r} (for instance 0.95)")
    tail = (1 - confidence) / 2
    return lower_bound(right, graphs, failure_prob=tail), upper_bound(right, graphs, failure_prob=tail)


def majority_share(trained: IntArray, labels: IntArray) -> float:
    """Accuracy, at every radius, of always naming the class that is most frequent among the training labels."""
    return float(np.mean(np.asarray(labels) == np.bincount(trained).argmax()))


def only_class(predicted: Sequence[int | None], labels: Sequence[int | None]) -> int | None:
    """The answer for every graph, abstentions aside, though their labels differ; ``None`` if answers differ too.

    >>> only_class([1, None, 1], [0, 1, 1]), only_class([1, 0], [0, 1]), only_class([1, 1], [1, 1])
    (1, None, None)
    """
    answers = {answer for answer in predicted if answer is not None}
    several = len({label for label in labels if label is not None}) > 1
    return answers.pop() if len(answers) == 1 and several else None


def mean_radius(radii: IntArray) -> float:
    """Average certified radius; a wrong or missing answer counts 0."""
    return float(np.maximum(radii, 0).mean())


def median_radius(radii: IntArray) -> float:
    """Median of the certified radii; a wrong or missing answer counts 0. One huge radius does not move it."""
    return float(np.median(np.maximum(radii, 0)))


def mean_radius_interval(radii: IntArray) -> tuple[float, float] | None:
    """Student's (approximate) 95% interval of the average certified radius, cut at 0; ``None`` for fewer than two graphs.

    >>> [round(end, 2) for end in mean_radius_interval(np.array([0, 1, 2, 3]))]
    [0.0, 3.55]
    """
    counted = np.maximum(radii, 0)
    if len(counted) < 2:
        return None
    spread = counted.std(ddof=1) / np.sqrt(len(counted))
    reach, mean = float(special.stdtrit(len(counted) - 1, (1 + CONFIDENCE) / 2) * spread), float(counted.mean())
    return max(0.0, mean - reach), mean + reach


def short_interval(ends: Sequence[float]) -> str:
    """An interval that fits under a share, such as ``.51-1``."""
    low, high = ("1" if end > 0.995 else f"{end:.2f}".removeprefix("0") for end in ends)
    return f"{low}-{high}"


def shown_share(right: float, graphs: int) -> str:
    """A share of ``right`` among ``graphs`` graphs with its exact 95% interval, for tables: ``0.900 (.78-.97)``."""
    low, high = share_interval([round(right)], graphs)
    return f"{right / graphs:.3f} ({short_interval((float(low[0]), float(high[0])))})"


def shown_mean(radii: IntArray) -> str:
    """The average certified radius with its interval, for tables: ``1.50 (0.00-3.55)``."""
    interval = mean_radius_interval(radii)
    return f"{mean_radius(radii):.2f}" + ("" if interval is None else f" ({interval[0]:.2f}-{interval[1]:.2f})")


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
        return share_interval(np.array(self.certified), self.graphs)


def certified_accuracy(
    certificates: Sequence[Certificate], labels: ArrayLike | Sequence[Graph], radii: Iterable[int] = range(17)
) -> NDArray[np.float64]:
    """Share of certificates that do not abstain, are right, and have radius at least ``r``, for each ``r`` in ``radii``.

    ``labels`` are class numbers, or the labelled graphs themselves. At ``r = 0`` it is the accuracy of the defended
    classifier. (The paper prints ``L > r``; its CA(r) is CA(r + 1) here.)
    """
    return shares(judged_radii(certificates, labels), radii)


def certified_interval(
    certificates: Sequence[Certificate],
    labels: ArrayLike | Sequence[Graph],
    radii: Iterable[int] = range(17),
    *,
    confidence: float = CONFIDENCE,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper ends of an exact interval (Clopper-Pearson) of :func:`certified_accuracy`, for each ``r`` on its own.

    The certificates, labels and radii are as there; with probability ``confidence`` the true share lies within.
    """
    right = judged_radii(certificates, labels)
    counts = np.array([int((right >= max(r, 0)).sum()) for r in radii], dtype=np.int64)
    return share_interval(counts, len(right), confidence=confidence)


def average_certified_radius(certificates: Sequence[Certificate], labels: ArrayLike | Sequence[Graph]) -> float:
    """Mean radius of certificates; one that abstains, or is wrong by the labels, counts 0."""
    return mean_radius(judged_radii(certificates, labels))


def judged_radii(certificates: Sequence[Certificate], labels: Any) -> IntArray:
    """The right radii of certificates, from the graphs' class numbers or the labelled graphs themselves."""
    if not isinstance(certificates, Sequence):
        raise InputError(
            f"certificates must be a list of certificates; got {type(certificates).__name__} (wrap a single one in a list)"
        )
    labels = list(labels) if isinstance(labels, Iterable) else labels
    if isinstance(labels, list) and labels and (isinstance(labels[0], Graph) or hasattr(labels[0], "edge_index")):
        labels = [graph.label for graph in as_graphs(labels)]
        if None in labels:
            raise InputError(
                f"labels must be known; graph {labels.index(None)} has none (build it with label=..., or leave it out)"
            )
    truth = as_array(labels, "labels", "class numbers, or labelled graphs")
    if truth.shape != (len(certificates),) or not len(certificates):
        raise InputError(
            f"labels must be one per certificate, [{len(certificates)}], at least one; got shape {truth.shape} "
            "(pass [graph.label for graph in graphs])"
        )
    odd = truth[truth != np.floor(truth)] if truth.dtype.kind in "iufb" else truth
    if len(odd):
        raise InputError(
            f"labels must be class numbers, or labelled graphs; got {odd.tolist()[0]!r} (pass [graph.label for graph in graphs])"
        )
    radii = [certificate.radius for certificate in certificates]
    return right_radii(radii, [certificate.label for certificate in certificates], truth.tolist())


def withstands(certificate: Certificate, graph: Graph, *, adds: int, removes: int) -> bool:
    """Whether the prediction stands against at most ``adds`` additions together with at most ``removes`` removals."""
    if certificate.abstains:
        return False
    adds, removes = min(adds, graph.max_adds), min(removes, graph.max_removes)
    if certificate.radius >= adds + removes:
        return True
    grid = certificate.edge_grid
    return bool(adds < grid.shape[0] and removes < grid.shape[1] and np.all(grid[: adds + 1, : removes + 1]))


@dataclass(frozen=True)
class PairedTest:
    """Two methods on the same graphs at one radius; a graph counts for a method that is right with at least this radius.

    Attributes:
        first: Name of the first method.
        second: Name of the other method.
        radius: Number of flips.
        both: Number of graphs that count for both.
        only_first: Number of graphs that count for the first method alone.
        only_second: Number of graphs that count for the second method alone.
        neither: Number of graphs that count for none of them.
        p_value: Exact two-sided McNemar test: the probability of a difference at least this large if neither were better.
        adjusted: The p-value corrected for all ``comparisons`` (Holm). If a difference is claimed wherever it is at most 0.05,
            there is a false claim among all of them with probability at most 0.05.
        comparisons: Number of tests that the correction covers.
    """

    first: str
    second: str
    radius: int
    both: int
    only_first: int
    only_second: int
    neither: int
    p_value: float
    adjusted: float
    comparisons: int

    @property
    def graphs(self) -> int:
        """Number of graphs."""
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def difference(self) -> float:
        """Certified accuracy of the first method minus that of the second."""
        return (self.only_first - self.only_second) / self.graphs


def paired_tests(
    methods: Mapping[str, Sequence[Certificate]], labels: ArrayLike | Sequence[Any], radii: Iterable[int] = (0, 1, 2, 3)
) -> list[PairedTest]:
    """Compare the first method with each other one, at each radius, by exact McNemar tests, corrected by Holm's method.

    Args:
        methods: Names and certificates, which belong to the same graphs in the same order.
        labels: Class numbers, or the labelled graphs.
        radii: Numbers of flips.
    """
    known = list(labels) if isinstance(labels, Iterable) else labels
    judged = {name: judged_radii(certificates, known) for name, certificates in methods.items()}
    return compare_radii(judged, radii)


def compare_radii(methods: Mapping[str, IntArray], radii: Iterable[int]) -> list[PairedTest]:
    """As :func:`paired_tests`, of right radii."""
    (name, own), *others = methods.items()
    lengths = set(map(len, methods.values()))
    if len(lengths) > 1:
        raise InputError(
            f"methods must be compared on the same graphs; got {', '.join(map(str, sorted(lengths)))} certificates (certify the "
            "same graphs with each)"
        )
    pairs = [(other, right, r) for other, right in others for r in radii]
    if not pairs:
        return []
    counts = [_table(own >= max(r, 0), right >= max(r, 0)) for _, right, r in pairs]
    # a fair coin, two-sided, as in the test of a label
    values = [float(label_pvalue(max(table[1:3]), min(table[1:3]))) for table in counts]
    return [
        PairedTest(name, other, int(r), *table, value, adjusted, len(pairs))
        for (other, _, r), table, value, adjusted in zip(pairs, counts, values, holm(values).tolist(), strict=True)
    ]


def _table(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    both, only_first, only_second = (int(np.sum(cell)) for cell in (first & second, first & ~second, ~first & second))
    return both, only_first, only_second, len(first) - both - only_first - only_second


def holm(p_values: Sequence[float]) -> NDArray[np.float64]:
    """Holm's correction: claiming those of at most ``a`` makes any false claim with probability at most ``a``.

    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    scaled = np.minimum(1.0, values[order] * np.arange(len(values), 0, -1))
    corrected = np.empty_like(values)
    corrected[order] = np.maximum.accumulate(scaled)
    return corrected
