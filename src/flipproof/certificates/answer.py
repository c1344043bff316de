"""A single answer as evidence: what an undefended model, or one that sees no edges, says about a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.evidence import Evidence
from flipproof.certificates.unlimited import unlimited_certificate
from flipproof.errors import InputError
from flipproof.graphs import Graph

__all__ = ["Answer"]


@dataclass(frozen=True, eq=False)
class Answer(Evidence):
    """One label of one graph.

    Attributes:
        label: The answer.
        graph: The graph.
        num_classes: Number of declared classes.
        edge_blind: Whether the model was asked without any edge, so that the answer stands for every graph on these nodes.
    """

    kind = "answer"

    label: int
    graph: Graph
    num_classes: int
    edge_blind: bool

    def __post_init__(self) -> None:
        if not 0 <= self.label < self.num_classes:
            raise InputError(f"the answer must lie in 0..{self.num_classes - 1}; got {self.label} (check num_classes)")

    def certify(self, **reading: Any) -> Certificate:
        """Certified at every radius if no edge was seen, otherwise at radius 0: the answer itself, and nothing more."""
        graph = self.graph
        if self.edge_blind:
            return unlimited_certificate(
                self.label, num_classes=self.num_classes, max_adds=graph.max_adds, max_removes=graph.max_removes
            )
        return Certificate(
            label=self.label,
            radius=0,
            method="none",
            alpha=0.0,
            samples=1,
            counts=tuple(np.eye(self.num_classes, dtype=int)[self.label].tolist()),
            p_lower=1.0,
            p_upper=0.0,
            noise=None,
            num_slots=graph.num_slots,
            grid=np.ones((1, 1), dtype=np.bool_),
        )

    def description(self) -> dict[str, Any]:
        """Whether edges were seen."""
        return {"num_classes": self.num_classes, "edge_blind": self.edge_blind}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The label."""
        return {"labels": np.array([self.label], dtype=np.uint32)}

    @classmethod
    def from_parts(cls, graph: Graph, description: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Answer:
        """See :class:`Evidence`."""
        return cls(int(arrays["labels"][0]), graph, description["num_classes"], description["edge_blind"])
