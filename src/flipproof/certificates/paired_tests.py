"""Whether one method certifies more of the same graphs than another: exact McNemar tests, corrected for their number.

Two methods that are tried on the same graphs are compared graph by graph. Only graphs that one method certifies and the other
does not can tell them apart. If neither were better, each such graph would be a fair coin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipproof.certificates.bounds import label_pvalue
from flipproof.certificates.certificate import Certificate
from flipproof.certificates.metrics import judged_radii
from flipproof.errors import InputError
from flipproof.graphs import IntArray


@dataclass(frozen=True)
class PairedTest:
    """Two methods on the same graphs at one radius.

    Attributes:
        first: The method that is compared with the other.
        second: The other method.
        radius: Number of flips; a graph counts for a method that is right there with at least this radius.
        both: Graphs that count for both methods.
        only_first: Graphs that count for the first alone.
        only_second: Graphs that count for the second alone.
        neither: Graphs that count for none.
        p_value: Exact two-sided McNemar test: the probability of a difference at least this large if neither were better.
        adjusted: The p-value corrected for ``comparisons`` tests (Holm). If a difference is claimed wherever it is at most 0.05,
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
    """Compare the first method with each other one, at each radius, on the same graphs.

    The exact McNemar test asks whether certified accuracy differs. Its p-values are corrected by Holm's method for the number of
    tests made here; tests that you make elsewhere are not counted.

    Args:
        methods: Names and certificates, which belong to the same graphs in the same order. The first is compared with the others.
        labels: Class numbers, or the labelled graphs.
        radii: Numbers of flips.
    """
    known = list(labels) if isinstance(labels, Iterable) else labels
    judged = {name: judged_radii(certificates, known) for name, certificates in methods.items()}
    return compare_radii(judged, radii)


def compare_radii(methods: Mapping[str, IntArray], radii: Iterable[int]) -> list[PairedTest]:
    """The same for right radii; see ``certificates.metrics``."""
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

    It holds whatever the tests have to do with each other.

    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    scaled = np.minimum(1.0, values[order] * np.arange(len(values), 0, -1))
    corrected = np.empty_like(values)
    corrected[order] = np.maximum.accumulate(scaled)
    return corrected
