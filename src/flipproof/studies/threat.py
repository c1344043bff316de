"""The attack that an experiment is to withstand."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.metrics import withstands
from flipproof.checks import checked_count
from flipproof.datasets import Dataset
from flipproof.defences.changed_nodes import number_of_changes
from flipproof.defences.defence import Defence, DefendedClassifier
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import BitNoise, LabelNoise

_MOST_GRAPHS = 1_000  # that changed labels make of a graph, for a search to list them all


@dataclass(frozen=True)
class Threat:
    """Any number of flips, or (additions, removals); beside flips of any kind, changed node labels or bits."""

    flips: int | tuple[int, int]
    changes: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.flips, Sequence) and not isinstance(self.flips, str) and len(self.flips) == 2:
            adds, removes = (checked_count(part, "radius", 0, "for instance (2, 1)") for part in self.flips)
            object.__setattr__(self, "flips", (adds, removes))
        else:
            checked_count(self.flips, "radius", 0, "for instance 3, or (additions, removals)")
        if checked_count(self.changes, "changes", 0, "for instance 1") and isinstance(self.flips, tuple):
            raise InputError(
                f"changes of node features go with a radius of any flips; got changes {self.changes} beside additions and "
                "removals (for instance --radius 2 --changes 1)"
            )

    @property
    def number(self) -> int:
        return sum(self.flips) if isinstance(self.flips, tuple) else self.flips

    @property
    def request(self) -> dict[str, int]:
        """What certification must take so that certificates speak of the attack, as far as a defence knows it."""
        return {"nodes": self.changes} if self.changes else {}

    @property
    def words(self) -> str:
        return f"{self} withstood"

    @property
    def line(self) -> str:
        """The classifier that no such attack can touch: the line to beat."""
        return f"a classifier that ignores edges{' and node features' if self.changes else ''}"

    def __str__(self) -> str:
        named = [(self.changes, "feature change")] if self.changes else []
        if isinstance(self.flips, tuple):
            named = [(self.flips[0], "addition"), (self.flips[1], "removal")]
        else:
            named = [(self.flips, "flip"), *named]
        return " and ".join(f"{number} {word}{'s' * (number != 1)}" for number, word in named)

    def withstood(self, certificate: Certificate, graph: Graph) -> bool:
        if isinstance(self.flips, tuple):
            return withstands(certificate, graph, adds=self.flips[0], removes=self.flips[1])
        return min(map(certificate.radius_beside, range(self.changes + 1))) >= self.flips

    def right(self, classifier: DefendedClassifier, certificate: Certificate, graph: Graph) -> bool:
        """Whether the certified answer of a classifier is right, and stays right under the attack."""
        untouched = classifier.defence.edge_blind and not classifier.classifier.reads_own_features
        return certificate.label == graph.label and (untouched or self.withstood(certificate, graph))

    def reached(self, defence: Defence, request: Any, graph: Graph, num_classes: int) -> bool:
        """Whether a model that never changes its answer would withstand the attack on a graph."""
        best = defence.best(graph, request, num_classes)
        of_features = best is not None and best.feature_radius is not None
        if self.changes and not (of_features or getattr(request, "nodes", None)):
            return False  # certificates would not speak of node features
        return best is None or (self if of_features else replace(self, changes=0)).withstood(best, graph)

    def check(self, data: Dataset, graphs: Sequence[Graph]) -> None:
        """Refuse graphs that have no room for the attack, and node features that no certificate can let change."""
        most = max((graph.num_slots for graph in graphs), default=0)
        if not isinstance(self.flips, tuple) and self.flips > most:
            pairs = f"{most} node pair{'s' * (most != 1)}"
            raise InputError(
                f"no graph has room for {replace(self, changes=0)}: the largest one has {pairs} (ask for less)"
            )
        if self.changes and feature_kind(data) is None:
            features = "other ones" if data.num_node_features else "none"
            raise InputError(
                f"changes = {self.changes} needs node labels (one 1 per row) or bits (0 and 1) as node features; {data.name} has "
                f"{features} (leave changes out)"
            )


def feature_kind(graphs: Dataset) -> str | None:
    """What an attacker can change of the graphs' own node features: ``labels``, ``bits`` or, if they are neither, nothing."""
    noises: dict[str, Any] = {"labels": LabelNoise(keep=0.9), "bits": BitNoise(keep=0.9)}
    for kind, noise in noises.items():
        with suppress(InputError):
            for graph in graphs:
                noise.check(graph.node_features)
            return kind
    return None


def few_changes(graphs: Dataset, changes: int) -> bool:
    kinds = graphs.num_node_features
    return feature_kind(graphs) == "labels" and all(
        number_of_changes(graph.num_nodes, kinds, changes) <= _MOST_GRAPHS for graph in graphs
    )
