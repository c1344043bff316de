"""What a report shows, in numbers: certificates of every method, attacks, and the accuracy of a network that ignores edges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.attacks.search import AttackResult
from flipproof.certificates.certificate import Certificate, WeakSpots
from flipproof.certificates.metrics import Curve, PairedTest, compare_radii, only_class, right_radii
from flipproof.graphs import Graph, IntArray
from flipproof.report.wording import setting_words, wording
from flipproof.runs.settings import CertifySettings
from flipproof.runs.table import Row, columns_of

ATTACKERS = {"radius": "any flips", "adds_radius": "additions only", "removes_radius": "removals only"}
"""Columns of the table of certificates, and the attacker that each is about."""

RADII = (0, 1, 2, 3, 5, 10)
"""Shown in tables."""

_TESTED = (0, 1, 2, 3)
_LEAST_RANGE, _MOST_RANGE, _BLIND_RANGE, _MOST_CELLS = 4, 64, 10, 17


def percent(count: float, total: float) -> str:
    """A share in per cent, rounded half up as in report.js; 0% means none of them, and 100% means all.

    >>> percent(29, 40), percent(1, 300), percent(9999, 10000)
    ('73%', '0.3%', '99.9%')
    """
    share = 100 * count / total
    if share in (0, 100) or 1 <= share <= 99:
        return f"{math.floor(share + 0.5)}%"
    return f"{min(99.9, max(0.1, math.floor(10 * share + 0.5) / 10)):.1f}%"


@dataclass(frozen=True, slots=True)
class Reading:
    """What one method certifies for one graph."""

    label: int | None
    radius: int
    adds_radius: int
    removes_radius: int
    p_lower: float | None

    @classmethod
    def of(cls, certificate: Certificate) -> Reading:
        """The part of a certificate that is shown."""
        return cls(*(getattr(certificate, column) for column in ("label", *ATTACKERS, "p_lower")))


@dataclass(frozen=True, eq=False)
class CertifiedRun:
    """A run of ``flipproof certify``, read back.

    Attributes:
        name: What the report calls it.
        settings: What was asked.
        rows: Its certificates, in the order of the data set.
        graphs: The clean graphs, by position in the data set.
        readings: By method and graph; the run's own method first, then others that read the same evidence.
        line: How many of its graphs a network that ignores edges answers right; ``None`` if unknown.
        majority: How many are of the class that is most frequent in training; ``None`` if unknown.
        no_line: Why there is no line, where that is known.
        attacks: What attacks found, by graph and role.
        weak_spots: Where an attacker would strike, by graph, where the evidence tells.
        listed: Graphs that a page lists one by one, beside those that were attacked; ``None`` for all.
    """

    name: str
    settings: CertifySettings
    rows: Sequence[Row]
    graphs: Mapping[int, Graph]
    readings: Mapping[str, Mapping[int, Reading]]
    line: int | None = None
    majority: int | None = None
    no_line: str = ""
    attacks: Mapping[int, Mapping[str, AttackResult]] = field(default_factory=dict)
    weak_spots: Mapping[int, WeakSpots] = field(default_factory=dict)
    listed: Set[int] | None = None

    @property
    def listed_rows(self) -> list[Row]:
        """The rows of the graphs that a page lists one by one."""
        return [row for row in self.rows if self.lists(row["graph"])]

    def lists(self, index: int) -> bool:
        """Whether a page lists a graph."""
        return self.listed is None or index in self.listed or index in self.attacks

    @property
    def method(self) -> str:
        """The method whose certificates the run holds."""
        return next(iter(self.readings))

    @property
    def edge_blind(self) -> bool:
        """Whether no attack on edges can change any answer."""
        return self.settings.defence_class.edge_blind

    @property
    def data_key(self) -> str:
        """The same for two runs on the same data."""
        return self.settings.data_sha256

    @property
    def class_names(self) -> list[str]:
        """Names of the classes that the model can name."""
        known = [str(name) for name in self.settings.class_names]
        return known + [f"class {label}" for label in range(len(known), self.settings.num_classes)]

    @property
    def only_class(self) -> str | None:
        """The name of the class that every graph is given, though their labels differ; ``None`` if there is none."""
        label = only_class(*columns_of(self.rows, "predicted", "label").values())
        return None if label is None else self.class_names[label]

    @property
    def alpha(self) -> float:
        """The failure probability of each certificate."""
        return max(float(row["alpha"]) for row in self.rows)

    @property
    def abstained(self) -> int:
        """Number of graphs without an answer."""
        return sum(row["predicted"] is None for row in self.rows)

    @cached_property
    def symmetric(self) -> bool:
        """Whether the radius says everything: no graph withstands more additions or removals alone."""
        return all(row["adds_radius"] == row["removes_radius"] == row["radius"] for row in self.rows)

    @property
    def defence(self) -> str:
        """The defence in words."""
        name, words = self.settings.defence["name"], setting_words(self.settings.defence)
        return f"{name} ({words})" if words else wording(name).trait if wording(name).baseline else name

    @property
    def what(self) -> str:
        """The graphs in words."""
        part = "" if self.settings.part == "all" else f"{self.settings.part} "
        return f"{len(self.rows)} {part}graphs of {self.settings.data}"

    def right_radii(self, method: str | None = None, attacker: str = "radius") -> IntArray:
        """The flips that each graph withstands, by default by the run's own method; -1 where it is wrong or abstained on."""
        known: dict[tuple[str, str], IntArray] = self.__dict__.setdefault("_right_radii", {})
        key = (method or self.method, attacker)
        if key not in known:
            own = [self.readings[key[0]][row["graph"]] for row in self.rows]
            radii = [getattr(reading, attacker) for reading in own]
            known[key] = right_radii(radii, [reading.label for reading in own], [row["label"] for row in self.rows])
            known[key].flags.writeable = False
        return known[key]

    @property
    def nodes(self) -> int | None:
        """Number of nodes that an attacker could change beside the flips; ``None`` if this was not asked."""
        number: int | None = self.settings.question.get("nodes")
        return number

    def right_beside(self, change: str) -> IntArray:
        """The flips that each graph withstands beside one of ``NODE_CHANGES``; -1 where it is wrong or the answer changes."""
        return right_radii(*columns_of(self.rows, f"{change}_nodes_radius", "predicted", "label").values())

    def curve(self, method: str | None = None, attacker: str = "radius", *, top: int, name: str = "") -> Curve:
        """Certified accuracy for r = 0..top."""
        return Curve.of(name or self.name, self.right_radii(method, attacker), top)

    def add_remove_counts(self) -> IntArray:
        """How many graphs stay right under any ``a`` additions with ``b`` removals, ``[a, b]``, cut where there are none."""
        total = np.zeros((_MOST_CELLS, _MOST_CELLS), dtype=np.int64)
        flips = np.add.outer(np.arange(_MOST_CELLS), np.arange(_MOST_CELLS))
        for row, radius in zip(self.rows, self.right_radii(), strict=True):
            cells = flips <= radius
            if radius >= 0 and row["grid"]:
                grid: NDArray[np.bool_] = np.array(row["grid"], dtype=bool)[:_MOST_CELLS, :_MOST_CELLS]
                cells[: grid.shape[0], : grid.shape[1]] |= grid
            total += cells
        adds, removes = (max(2, int(np.count_nonzero(total.any(axis=axis)))) for axis in (1, 0))
        return total[:adds, :removes]

    def radii_by_class(self) -> dict[str, Counter[int]]:
        """How many graphs of each true class have which radius; -1 where wrong or abstained on."""
        counts: dict[str, Counter[int]] = {}
        for row, radius in zip(self.rows, self.right_radii().tolist(), strict=True):
            name = "no label" if row["label"] is None else self.class_names[row["label"]]
            counts.setdefault(name, Counter())[radius] += 1
        return counts

    def radii_by_size(self) -> list[tuple[float, float]]:
        """Mean number of nodes and mean radius of the right ones, in at most eight groups of similar size and number."""
        radii, sizes = self.right_radii(), np.array([row["nodes"] for row in self.rows])
        sizes, radii = sizes[radii >= 0], radii[radii >= 0]
        if not len(sizes):
            return []
        edges = np.unique(np.quantile(sizes, np.linspace(0, 1, 9), method="nearest"))
        group = np.searchsorted(edges, sizes, side="right")
        return [(sizes[group == at].mean().item(), radii[group == at].mean().item()) for at in np.unique(group)]

    def radius_by_nodes(self) -> dict[tuple[int, int], list[int]]:
        """The graphs with each number of nodes and radius; -1 where wrong or abstained on."""
        members: dict[tuple[int, int], list[int]] = {}
        for row, radius in zip(self.rows, self.right_radii().tolist(), strict=True):
            members.setdefault((row["nodes"], radius), []).append(row["graph"])
        return members

    def radius_pairs(self) -> Counter[tuple[int, int]]:
        """How many graphs have which radius by the run's own method and by the next one; -1 where a method abstains."""
        own, other = list(self.readings.values())[:2]
        return Counter((own[index].radius, other[index].radius) for index in self.graphs)

    def lead_over(self, right: int) -> int:
        """The most flips under which more than ``right`` graphs are certified; -1 if never."""
        ordered = np.sort(self.right_radii())[::-1]
        return int(ordered[right]) if right < len(ordered) else -1

    @property
    def targets(self) -> dict[str, str]:
        """Who may have been attacked: roles, in words."""
        trait = wording(self.settings.defence["name"]).trait
        return {"defended": f"the {trait} classifier", "base": "its base model", "undefended": "the undefended model"}

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
        top = max(result.budget for found in self.attacks.values() for result in found.values())
        return Curve.of("certified", self.right_radii()[attacked], top)

    @property
    def broken(self) -> list[int]:
        """Graphs on which an attack on the defended classifier succeeded within the certified radius: there should be none."""
        by_graph = {row["graph"]: row for row in self.rows}
        defended = {index: roles["defended"] for index, roles in self.attacks.items() if "defended" in roles}
        return [
            index
            for index, attack in defended.items()
            if attack.success and attack.label == by_graph[index]["predicted"]
            if attack.size <= by_graph[index]["radius"]
        ]


def chosen_rows(rows: Sequence[Row], most: int) -> list[Row]:
    """At most ``most`` rows, in their order: in turn one of every true class and outcome, so that nothing rare is missing.

    >>> rows = [{"label": 0, "predicted": 0, "radius": 1}] * 5 + [{"label": 0, "predicted": 1, "radius": 2}]
    >>> [row["predicted"] for row in chosen_rows(rows, 3)]
    [0, 0, 1]
    """
    rank, groups = list[tuple[int, int]](), Counter[tuple[Any, ...]]()
    for place, row in enumerate(rows):
        group = (row["label"], row["predicted"] == row["label"], row["predicted"] is None, row["radius"])
        rank.append((groups[group], place))
        groups[group] += 1
    return [rows[place] for place in sorted(place for _, place in sorted(rank)[:most])]


def paired(runs: Sequence[CertifiedRun], radii: Iterable[int] = _TESTED) -> list[PairedTest]:
    """Tests of the first run against each other one, where all certify the same graphs; none otherwise."""
    if len({(run.data_key, tuple(run.graphs)) for run in runs}) > 1:
        return []
    return compare_radii({run.name: run.right_radii() for run in runs}, radii)


def share_text(curve: Curve, r: int) -> str:
    """A share in per cent with its 95% interval.

    >>> share_text(Curve("", (45,), 50), 0)
    '90% (78–97)'
    """
    low, high = (end[r] for end in curve.band)
    ends = "–".join(percent(end, 1).removesuffix("%") for end in (low, high))
    return f"{percent(curve.certified[r], curve.graphs)} ({ends})"


def curve_range(runs: Sequence[CertifiedRun]) -> int:
    """The largest r worth drawing: one beyond the largest radius of a right answer. An edge-blind line has no end."""
    return curve_limit(
        int(run.right_radii(method, attacker).max())
        for run in runs
        if not run.edge_blind
        for method in run.readings
        for attacker in ATTACKERS
    )


def curve_limit(reached: Iterable[int]) -> int:
    """The same, from the largest radii of the runs that are not edge-blind."""
    return min(max(_LEAST_RANGE, max(reached, default=_BLIND_RANGE - 1) + 1), _MOST_RANGE)
