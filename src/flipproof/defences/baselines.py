"""The lines to compare with: the model that sees no edge ("edge-blind"), and the model as it is ("none")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flipproof.certificates.evidence import Answer
from flipproof.classifiers import is_torch_module
from flipproof.defences.defence import Defence, DefendedClassifier, Run
from flipproof.defences.node_smoothing import NodeTarget
from flipproof.defences.target import BaseTarget, Effort, Target
from flipproof.graphs import Graph


@dataclass(frozen=True)
class EdgeBlindness(Defence):
    """Ask about the graph without its edges. Node features must not depend on edges either."""

    name = "edge-blind"
    evidence = Answer
    edge_blind = True

    def features(self, model: Any, features: Any) -> Any:
        return "own" if features is None and is_torch_module(model) else features  # the default falls back on degrees

    def check(self, classifier: DefendedClassifier, graphs: Sequence[Graph], request: Any = None) -> None:
        # a model that claims to see no edge is tried on the edges, too
        blind = classifier.classifier.edge_blind
        classifier.guard.check(graphs if blind else [graph.replaced(edges=()) for graph in graphs], self.trial_noise)
        classifier.guard.check_features(graphs)

    def ask(self, classifier: DefendedClassifier, graph: Graph, request: Any, run: Run = map) -> Answer:
        return Answer(self.answer(classifier, graph), graph, classifier.num_classes, edge_blind=True)

    def answer(self, classifier: DefendedClassifier, graph: Graph) -> int:
        return classifier.classifier.label_of(graph.replaced(edges=()))


class EdgeBlindClassifier(DefendedClassifier):
    """A model that is never shown an edge, not even by its node features: certified at every radius.

    >>> def counts_nodes(graphs):
    ...     return [int(graph.num_nodes > 3) for graph in graphs]
    >>> EdgeBlindClassifier(counts_nodes, num_classes=2).certify(Graph(4, [(0, 1)])).radius
    6
    """

    defence_name = "edge-blind"


@dataclass(frozen=True)
class NoDefence(Defence):
    """Ask about the graph itself. Certificates have radius 0: the answer, and nothing more."""

    name = "none"
    evidence = Answer

    def ask(self, classifier: DefendedClassifier, graph: Graph, request: Any, run: Run = map) -> Answer:
        return Answer(self.answer(classifier, graph), graph, classifier.num_classes, edge_blind=False)

    def answer(self, classifier: DefendedClassifier, graph: Graph) -> int:
        return classifier.classifier.label_of(graph)

    def target(self, classifier: DefendedClassifier, graph: Graph, effort: Effort) -> Target:
        return (BaseTarget if graph.node is None else NodeTarget)(classifier, graph, effort)


class Undefended(DefendedClassifier):
    """A model without a defence; the arguments are those of :class:`flipproof.defences.defence.DefendedClassifier`."""

    defence_name = "none"

    def effective(self) -> DefendedClassifier:
        return self
