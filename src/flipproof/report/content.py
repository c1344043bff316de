"""What a report shows, in numbers: certificates of every method, attacks, and the accuracy of a classifier that ignores edges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.attacks import AttackResult
from flipproof.certificates.certificate import Certificate, WeakSpots
from flipproof.certificates.metrics import Curve, PairedTest, compare_radii, only_class, right_radii
from flipproof.datasets.dataset import UNNAMED
from flipproof.defences.defence import feature_noise_of
from flipproof.graphs import Graph, IntArray
from flipproof.report.wording import attack_targets, setting_words, wording
from flipproof.runs.run_folder import CertifySettings
from flipproof.runs.table import Row, certificate_of, columns_of

ATTACKERS = {"radius": "any flips", "adds_radius": "additions only", "removes_radius": "removals only"}
"""Columns of the table of certificates, and the attacker that each is about."""

RADII = (0, 1, 2, 3, 5, 10)  # shown in tables

_LEAST_RANGE, _MOST_RANGE, _BLIND_RANGE, _MOST_CELLS = 4, 64, 10, 17
_LEAST_SHARE = 0.02  # of the graphs: where fewer are left, a chart ends


def percent(count: float, total: float) -> str:
    """A share in per cent, rounded half up as in report.js; 0% means none of them, and 100% means all."""
    share = 100 * count / total
    if share in (0, 100) or 1 <= share <= 99:
        return f"{math.floor(share + 0.5)}%"
    return f"{min(99.9, max(0.1, math.floor(10 * share + 0.5) / 10)):.1f}%"


@dataclass(frozen=True, slots=True)
class Reading:
    label: int | None
    radius: int
    adds_radius: int
    removes_radius: int
    p_lower: float | None

    @classmethod
    def of(cls, certificate: Certificate) -> Reading:
        return cls(*(getattr(certificate, column) for column in ("label", *ATTACKERS, "p_lower")))


@dataclass(frozen=True, eq=False, kw_only=True)
class CertifiedRun:
    """A finished run of ``flipproof certify``, by its table of certificates; for a page read back with its evidence.

    Attributes:
        name: What reports and tables call it.
        settings: What was asked.
        rows: Its certificates, in the order of the data set.
        line: How many of its graphs a classifier that ignores edges answers right; ``None`` if unknown.
        folder: Where it is.
        graphs: The clean graphs that a page lists, by position in the data set.
        readings: By method and graph; the run's own method first, then others that read the same evidence.
        majority: How many are of the class that is most frequent in training; ``None`` if unknown.
        no_line: Why there is no line, where that is known.
        attacks: What attacks found, by graph and role.
        weak_spots: Where an attacker would strike, by graph, where the evidence tells.
    """

    name: str
    settings: CertifySettings
    rows: Sequence[Row]
    folder: Path
    line: int | None = None
    graphs: Mapping[int, Graph] = field(default_factory=dict)
    readings: Mapping[str, Mapping[int, Reading]] = field(default_factory=dict)
    majority: int | None = None
    no_line: str = ""
    attacks: Mapping[int, Mapping[str, AttackResult]] = field(default_factory=dict)
    weak_spots: Mapping[int, WeakSpots] = field(default_factory=dict)

    @cached_property
    def radii(self) -> dict[str, IntArray]:
        """The flips that each graph withstands, by attacker; -1 where it is wrong or abstained on."""
        columns = columns_of(self.rows, "predicted", "label", *ATTACKERS)
        return {column: right_radii(columns[column], columns["predicted"], columns["label"]) for column in ATTACKERS}

    @cached_property
    def symmetric(self) -> bool:
        """Whether the radius says everything: no graph withstands more additions or removals alone."""
        columns = columns_of(self.rows, *ATTACKERS)
        return columns["radius"] == columns["adds_radius"] == columns["removes_radius"]

    @property
    def edge_blind(self) -> bool:
        return self.settings.defence_class.edge_blind

    @property
    def noun(self) -> str:
        return self.settings.noun

    @property
    def data_key(self) -> str:
        """The same for two runs on the same data."""
        return self.settings.data_sha256

    @cached_property
    def graphs_key(self) -> tuple[str, tuple[int, ...]]:
        """The same for two runs on the same graphs."""
        return self.data_key, tuple(columns_of(self.rows, "graph")["graph"])

    @property
    def defence(self) -> str:
        name, words = self.settings.defence["name"], setting_words(self.settings.defence)
        return f"{name} ({words})" if words else wording(name).trait if wording(name).baseline else name

    @property
    def method(self) -> str:
        return next(iter(self.readings))

    @property
    def class_names(self) -> list[str]:
        known = [str(name) for name in self.settings.class_names]
        return known + [f"class {label}" for label in range(len(known), self.settings.num_classes)]

    @property
    def only_class(self) -> str | None:
        label = only_class(*columns_of(self.rows, "predicted", "label").values())
        return None if label is None else self.class_names[label]

    @property
    def alpha(self) -> float:
        return max(float(row["alpha"]) for row in self.rows)

    @property
    def abstained(self) -> int:
        return sum(row["predicted"] is None for row in self.rows)

    @property
    def what(self) -> str:
        part = "" if self.settings.part == "all" else f"{self.settings.part} "
        of = "" if self.settings.data == UNNAMED else f" of {self.settings.data}"
        return f"{len(self.rows)} {part}{self.noun}s{of}"

    def right_radii(self, method: str | None = None, attacker: str = "radius") -> IntArray:
        """The flips that each graph withstands, by default by the run's own method; -1 where it is wrong or abstained on."""
        if method is None or method == self.method:
            return self.radii[attacker]
        own = [self.readings[method][row["graph"]] for row in self.rows]
        labels = [row["label"] for row in self.rows]
        return right_radii([getattr(reading, attacker) for reading in own], [reading.label for reading in own], labels)

    def curve(self, method: str | None = None, attacker: str = "radius", *, top: int, name: str = "") -> Curve:
        return Curve.of(name or self.name, self.right_radii(method, attacker), top)

    def add_remove_counts(self) -> IntArray:
        """How many graphs stay right under any ``a`` additions with ``b`` removals, ``[a, b]``, cut where there are none."""
        flips = np.add.outer(np.arange(_MOST_CELLS), np.arange(_MOST_CELLS))

        def withstood(row: Row) -> NDArray[np.bool_]:
            grid = np.array(row["grid"] or [[False]], dtype=bool)[:_MOST_CELLS, :_MOST_CELLS]
            cells: NDArray[np.bool_] = flips <= row["radius"]
            cells[: grid.shape[0], : grid.shape[1]] |= grid
            return cells

        return self._counts(withstood)

    def joint_counts(self) -> IntArray:
        """How many graphs stay right under any flips with any changed features, ``[flips, changes]``, cut as the others."""
        return self._counts(lambda row: certificate_of(row).joint_grid)

    def _counts(self, cells: Callable[[Row], NDArray[np.bool_]]) -> IntArray:
        """How many right graphs withstand so many changes of two kinds, at least two of each."""
        total = np.zeros((_MOST_CELLS, _MOST_CELLS), dtype=np.int64)
        for row, radius in zip(self.rows, self.right_radii(), strict=True):
            if radius >= 0:
                grid = cells(row)[:_MOST_CELLS, :_MOST_CELLS]
                total[: grid.shape[0], : grid.shape[1]] += grid
        first, second = (max(2, int(np.count_nonzero(total.any(axis=axis)))) for axis in (1, 0))
        return total[:first, :second]

    @cached_property
    def feature_kind(self) -> str | None:
        """What is changed of the node features by attackers that certificates speak of: labels, bits; ``None`` for nothing."""
        noise = feature_noise_of(self.settings.defence_object)
        return None if noise is None else noise.changes(2)[0].name.split()[-1]

    def lead_over(self, right: int) -> int:
        """The most flips under which more than ``right`` graphs are certified; -1 if never."""
        ordered = np.sort(self.right_radii())[::-1]
        return int(ordered[right]) if right < len(ordered) else -1

    @property
    def targets(self) -> dict[str, str]:
        return attack_targets(self.settings.defence["name"])

    @property
    def under_attack(self) -> dict[str, Curve]:
        """By role: of the graphs attacked, how many are still right after the attacks found of up to r flips."""
        curves = {}
        for role in self.targets:
            own = [results[role] for results in self.attacks.values() if role in results]
            if own:
                top = max(result.budget for result in own)
                withstood = np.array([result.size - 1 if result.success else top for result in own])
                curves[role] = Curve.of(role, withstood, top)
        return curves

    @property
    def certified_of_attacked(self) -> Curve | None:
        """Certified accuracy of the attacked graphs, if they are a part of all: the lower bound beside :attr:`under_attack`."""
        attacked = [place for place, row in enumerate(self.rows) if row["graph"] in self.attacks]
        if not attacked or len(attacked) == len(self.rows):
            return None
        top = max(result.budget for results in self.attacks.values() for result in results.values())
        return Curve.of("certified", self.right_radii()[attacked], top)

    @cached_property
    def broken(self) -> list[int]:
        """Graphs on which an attack on the defended classifier succeeded within the certified region: there should be none."""
        by_graph, broken = {row["graph"]: row for row in self.rows}, []
        for index, roles in self.attacks.items():
            attack, row = roles.get("defended"), by_graph[index]
            if attack is None or not attack.success or attack.label != row["predicted"]:
                continue
            if attack.size <= certificate_of(row).radius_beside(len(attack.changes)):
                broken.append(index)
        return broken


def chosen_rows(rows: Sequence[Row], most: int) -> list[Row]:
    """At most ``most`` rows, in their order: in turn one of every true class and outcome, so that nothing rare is missing."""
    rank, groups = list[tuple[int, int]](), Counter[tuple[Any, ...]]()
    for place, row in enumerate(rows):
        group = (row["label"], row["predicted"] == row["label"], row["predicted"] is None, row["radius"])
        rank.append((groups[group], place))
        groups[group] += 1
    chosen = {place for _, place in sorted(rank)[:most]}
    return [row for place, row in enumerate(rows) if place in chosen]


def paired(runs: Sequence[CertifiedRun], radii: Iterable[int]) -> list[PairedTest]:
    """Tests of the first run against each other one, where all certify the same graphs; none otherwise."""
    if len(runs) < 2 or len({run.graphs_key for run in runs}) > 1:
        return []
    return compare_radii({run.name: run.radii["radius"] for run in runs}, radii)


def share_text(curve: Curve, r: int) -> str:
    """A share in per cent with its 95% interval, as in "90% (78–97)"."""
    low, high = (end[r] for end in curve.band)
    ends = "–".join(percent(end, 1).removesuffix("%") for end in (low, high))
    return f"{percent(curve.certified[r], curve.graphs)} ({ends})"


def reach_worth_drawing(radii: IntArray) -> int:
    """The largest r that at least 2% of the graphs withstand."""
    least = max(1, math.ceil(_LEAST_SHARE * len(radii)))
    return int(np.sort(radii)[-least])


def curve_range(runs: Sequence[CertifiedRun]) -> int:
    """The largest r worth drawing: one beyond what 2% of the graphs withstand. An edge-blind line has no end."""
    known = (
        (run.right_radii(method, attacker) for method in run.readings or [None] for attacker in ATTACKERS)
        for run in runs
        if not run.edge_blind
    )
    reached = [reach_worth_drawing(radii) for of_run in known for radii in of_run]
    return min(max(_LEAST_RANGE, max(reached, default=_BLIND_RANGE - 1) + 1), _MOST_RANGE)
