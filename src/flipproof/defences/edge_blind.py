"""Seeing no edge ("edge-blind"): the line that every other defence must beat.

The model is asked about the graph without its edges. By construction no attack on edges can change the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flipproof.certificates.answer import Answer
from flipproof.classifiers import is_torch_module
from flipproof.defences.defence import Defence
from flipproof.graphs import Graph, as_graph

__all__ = ["EdgeBlindClassifier"]


class EdgeBlindClassifier(Defence):
    """A model that is never shown an edge: certified at every radius.

    Node features must not depend on edges either.

    >>> def counts_nodes(graphs):
    ...     return [int(graph.num_nodes > 3) for graph in graphs]
    >>> EdgeBlindClassifier(counts_nodes, num_classes=2).certify(Graph(4, [(0, 1)])).radius
    6
    """

    name = "edge-blind"
    evidence_type = Answer
    baseline = True
    edge_blind = True
    edge_free_features = True
    effort = 0
    trait = "edge-blind"

    def __init__(self, model: Any, **wrapped: Any) -> None:
        if wrapped.get("features") is None and is_torch_module(model):
            wrapped["features"] = "own"  # the default falls back on degrees
        super().__init__(model, **wrapped)

    @classmethod
    def network_config(cls, features: str | None, width: int, num_classes: int) -> dict[str, Any]:
        return {"name": cls.name, "network": super().network_config(features, width, num_classes)}

    def check(self, graphs: Sequence[Graph]) -> None:
        super().check([graph.replaced(edges=()) for graph in graphs])
        self._guard.check_features(graphs)

    def predict(self, graph: Any) -> int:
        """The answer without any edge."""
        return self.classifier.label_of(as_graph(graph).replaced(edges=()))

    def ask(self, graph: Graph, question: Any) -> Answer:
        return Answer(self.predict(graph), graph, self.num_classes, edge_blind=True)
