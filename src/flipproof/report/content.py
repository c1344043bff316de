"""What a report shows: runs of certificates read back, each graph certified by every method, and attacks beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from flipproof.attacks.result import AttackResult
from flipproof.certificates.certificate import Certificate
from flipproof.certificates.group_votes import GroupVotes
from flipproof.certificates.methods import METHODS, certify_votes
from flipproof.certificates.sampled_votes import Votes
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.report.figures import Curve
from flipproof.runs.folder import Run
from flipproof.runs.table import Row, certified_run, derive_row, has_table, load_votes, read_table, votes_digest

__all__ = [
    "ATTACKERS",
    "Attacks",
    "CertifiedRun",
    "Reading",
    "check_attacks",
    "curve_range",
    "read_attacks",
    "read_run",
    "run_names",
    "with_attacks",
]

ATTACKERS = {"radius": "any flips", "adds_radius": "additions only", "removes_radius": "removals only"}
"""Columns of the table of certificates, and the attacker that each speaks of."""

_LEAST_RANGE, _MOST_RANGE, _BLIND_RANGE = 4, 64, 10


@dataclass(frozen=True)
class Reading:
    """What one method certifies of one graph."""

    label: int | None
    radius: int
    adds_radius: int
    removes_radius: int
    p_lower: float | None

    @classmethod
    def of(cls, certificate: Certificate) -> Reading:
        """The part of a certificate that is shown."""
        return cls(
            certificate.label,
            certificate.radius,
            certificate.adds_radius,
            certificate.removes_radius,
            certificate.p_lower,
        )


@dataclass(frozen=True, eq=False)
class CertifiedRun:
    """A run of ``flipproof certify``, read back.

    Attributes:
        name: What the report calls it.
        settings: What was asked.
        rows: Its certificates, in the order of the data set.
        graphs: The clean graphs, by position in the data set.
        readings: By method and graph; the run's own method first. Others are read off the same votes, where there are any.
        attacks: What attacks found, by graph and by who was attacked.
    """

    name: str
    settings: Mapping[str, Any]
    rows: Sequence[Row]
    graphs: Mapping[int, Graph]
    readings: Mapping[str, Mapping[int, Reading]]
    attacks: Mapping[int, Mapping[str, AttackResult]] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """The method whose certificates the run holds."""
        return next(iter(self.readings))

    @property
    def edge_blind(self) -> bool:
        """Whether the model cannot see edges, so that no attack changes its answers."""
        return bool(self.settings["edge_blind"])

    @property
    def data_key(self) -> str:
        """The same for two runs on the same data."""
        return str(self.settings["data_sha256"])

    @property
    def class_names(self) -> list[str]:
        """Names of the classes that the model can name."""
        known = [str(name) for name in self.settings["class_names"]]
        return known + [f"class {label}" for label in range(len(known), self.settings["num_classes"])]

    @cached_property
    def symmetric(self) -> bool:
        """Whether additions and removals cost the same, so that the radius alone tells everything."""
        same_noise = self.settings.get("p_add") == self.settings.get("p_remove")
        return same_noise and all(row["adds_radius"] == row["removes_radius"] == row["radius"] for row in self.rows)

    @property
    def noise(self) -> str:
        """The noise in words."""
        add, remove = self.settings.get("p_add"), self.settings.get("p_remove")
        if add is None or remove is None or self.edge_blind:
            return "no noise"
        return f"keep {1 - add:.4g}" if add == remove else f"add {add:.4g}, remove {remove:.4g}"

    @property
    def what(self) -> str:
        """The graphs in words."""
        part = "" if self.settings["part"] == "all" else f"{self.settings['part']} "
        return f"{len(self.rows)} {part}graphs of {self.settings['data']}"

    def right_radii(self, method: str, attacker: str = "radius") -> list[int]:
        """Of every graph, the flips withstood; -1 where the answer is wrong, missing or cannot be judged."""
        found = (self.readings[method][row["graph"]] for row in self.rows)
        return [
            getattr(reading, attacker) if reading.label is not None and reading.label == row["label"] else -1
            for reading, row in zip(found, self.rows, strict=True)
        ]

    def curve(self, method: str, attacker: str, top: int, name: str = "") -> Curve:
        """Certified accuracy for r = 0..top."""
        radii = self.right_radii(method, attacker)
        return Curve(name or self.name, tuple(sum(radius >= r for radius in radii) for r in range(top + 1)), len(radii))

    @property
    def accuracy(self) -> float:
        """Share of graphs that are answered right."""
        return sum(radius >= 0 for radius in self.right_radii(self.method)) / len(self.rows)

    @property
    def under_attack(self) -> dict[str, list[int]]:
        """By who was attacked: of the graphs attacked, how many were still right after the attacks found of r flips."""
        return {
            who: [self._survivors(who, r) for r in range(self._budget + 1)]
            for who in ("smoothed", "base", "undefended")
            if any(who in found for found in self.attacks.values())
        }

    @property
    def _budget(self) -> int:
        return max(result.budget for found in self.attacks.values() for result in found.values())

    def _survivors(self, who: str, r: int) -> int:
        results = (found[who] for found in self.attacks.values())
        return sum(not (result.success and result.size <= r) for result in results)


def curve_range(runs: Sequence[CertifiedRun]) -> int:
    """The largest r worth drawing: one beyond the largest radius of a right answer. An edge-blind line has no end."""
    reached = [
        max(run.right_radii(method, attacker))
        for run in runs
        if not run.edge_blind
        for method in run.readings
        for attacker in ATTACKERS
    ]
    return min(max(_LEAST_RANGE, max(reached, default=_BLIND_RANGE - 1) + 1), _MOST_RANGE)


def run_names(folders: Sequence[Path]) -> list[str]:
    """A name for each run: its folder's, with the folder above where two are the same."""
    places = [folder.resolve() for folder in folders]
    for place, folder in zip(places, folders, strict=True):
        if places.count(place) > 1:
            raise InputError(f"each run must be given once; got {folder} twice (leave one out)")
    short = [place.name for place in places]
    return [
        name if short.count(name) == 1 else "/".join(place.parts[-2:])
        for name, place in zip(short, places, strict=True)
    ]


def read_run(folder: Path, name: str, advance: Callable[[int], None] = lambda amount: None) -> CertifiedRun:
    """A run with its certificates; without a table they are derived from the votes, which must all be there.

    Args:
        folder: That ``flipproof certify`` wrote.
        name: What the report calls it.
        advance: Called with 1 after each graph.
    """
    run = certified_run(folder)
    settings = run.settings
    missing = [index for index in settings["graphs"] if not run.path(index).is_file()]
    if missing or not settings["graphs"]:
        raise InputError(
            f"{folder} has votes of {len(settings['graphs']) - len(missing)} of {len(settings['graphs'])} graphs: the run is not "
            "finished (run its flipproof certify command again)"
        )
    known = {row["graph"]: row for row in read_table(run)} if has_table(run) else None
    rows: list[Row] = []
    graphs: dict[int, Graph] = {}
    readings: dict[str, dict[int, Reading]] = {}
    for index in settings["graphs"]:
        votes = load_votes(run, index)
        row = derive_row(index, votes, settings) if known is None else _stored_row(run, index, votes, known)
        rows.append(row)
        graphs[index] = votes.graph
        for method, reading in _readings(row, votes, settings).items():
            readings.setdefault(method, {})[index] = reading
        advance(1)
    return CertifiedRun(name, settings, rows, graphs, readings)


def _stored_row(run: Run, index: int, votes: Votes | GroupVotes, known: Mapping[int, Row]) -> Row:
    row = known.get(index)
    if row is None or row["votes_sha256"] != votes_digest(votes):
        raise InputError(
            f"the certificate of graph {index} in {run.folder} was not read from the votes that are there (flipproof verify "
            "tells more; delete certificates.parquet to derive it again)"
        )
    return row


def _readings(row: Row, votes: Votes | GroupVotes, settings: Mapping[str, Any]) -> dict[str, Reading]:
    """The run's own certificate first, then those of the other methods that can read the same votes."""
    own = Reading(row["predicted"], row["radius"], row["adds_radius"], row["removes_radius"], row["p_lower"])
    found = {row["method"]: own}
    if isinstance(votes, Votes) and row["method"] in METHODS:
        for method in METHODS:
            if method not in found:
                found[method] = Reading.of(certify_votes(votes, alpha=settings["alpha"], method=method))
    return found


# ---- attacks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Attacks:
    """A run of ``flipproof attack``: what it attacked, and the stored results by graph and by who was attacked."""

    folder: Path
    settings: Mapping[str, Any]
    stored: Mapping[int, Mapping[str, Any]]

    def belongs_to(self, certified: Mapping[str, Any]) -> bool:
        """Whether model, data and defence are those of a run of certificates with these settings."""
        keys = ("data_sha256", "model_sha256", "noise", "groups")
        return all(certified.get(key) == self.settings.get(key) for key in keys)


def read_attacks(folder: Path) -> Attacks:
    """A run of attacks, as far as it is finished."""
    if not (folder / "run.json").is_file():
        what = "it has no run.json" if folder.is_dir() else "there is no such folder"
        raise InputError(f"--attack {folder} is not a run of attacks: {what} (give the --out of flipproof attack)")
    settings = Run.open(folder).settings
    if settings.get("command") != "attack":
        raise InputError(f"--attack {folder} was not made by flipproof attack (give such a run)")
    stored = {}
    for path in sorted((folder / "attacks").glob("*.json")):
        try:
            stored[int(path.stem)] = dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{path} is not a whole attack: {error} (delete it, and attack again)") from error
    if not stored:
        raise InputError(f"--attack {folder} holds no finished attack (run its flipproof attack command again)")
    return Attacks(folder, settings, stored)


def check_attacks(certified: Iterable[Mapping[str, Any]], attacks: Attacks) -> None:
    """Refuse attacks that belong to none of the runs with these settings."""
    if not any(map(attacks.belongs_to, certified)):
        raise InputError(
            f"--attack {attacks.folder} attacked another model, data or noise than the runs (attack what was certified)"
        )


def with_attacks(runs: Sequence[CertifiedRun], attacks: Attacks) -> list[CertifiedRun]:
    """The runs, with the attacks beside the certificates of the same model, data and noise."""
    return [replace(run, attacks=_results(run, attacks)) if attacks.belongs_to(run.settings) else run for run in runs]


def _results(run: CertifiedRun, attacks: Attacks) -> dict[int, dict[str, AttackResult]]:
    found: dict[int, dict[str, AttackResult]] = {}
    for index, by_target in attacks.stored.items():
        if index not in run.graphs:
            continue
        try:
            found[index] = {who: AttackResult.from_dict(run.graphs[index], values) for who, values in by_target.items()}
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"the attack on graph {index} in {attacks.folder} cannot be read: {error} (delete it, and attack again)"
            ) from error
    return found
