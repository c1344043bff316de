"""Seeing no edge ("edge-blind"): the line that every other defence must beat.

The model is asked about the graph without its edges. By construction no attack on edges can change the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flipproof.certificates.answer import Answer
from flipproof.classifiers import is_torch_module
from flipproof.defences.defence import Defence
from flipproof.graphs import Graph, as_graph

if TYPE_CHECKING:
    from flipproof.datasets import Dataset
    from flipproof.models.node_statistics import NodeFit, NodeStatistics

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
    trains = False
    edge_blind = True
    edge_free_features = True
    effort = 0
    trait = "edge-blind"

    def __init__(self, model: Any, **wrapped: Any) -> None:
        if wrapped.get("features") is None and is_torch_module(model):
            wrapped["features"] = "own"  # the default falls back on degrees
        super().__init__(model, **wrapped)

    @classmethod
    def fitted(
        cls, graphs: Dataset, *, features: Any, validation: Dataset | None = None, seed: int = 0
    ) -> tuple[NodeStatistics, NodeFit]:
        """The strong line: the better of a forest and a perceptron on statistics of the nodes."""
        from flipproof.models.node_statistics import NodeStatistics

        model = NodeStatistics(graphs.num_classes)
        return model, model.fit(graphs, features=features, validation=validation, seed=seed)

    def check(self, graphs: Sequence[Graph]) -> None:
        # a model that claims to see no edge is tried on the edges, too
        super().check(graphs if self.classifier.edge_blind else [graph.replaced(edges=()) for graph in graphs])
        self.check_features(graphs)

    def predict(self, graph: Any) -> int:
        """The answer without any edge."""
        return self.classifier.label_of(as_graph(graph).replaced(edges=()))

    def ask(self, graph: Graph, question: Any) -> Answer:
        return Answer(self.predict(graph), graph, self.num_classes, edge_blind=True)
