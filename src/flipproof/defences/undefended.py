"""The model as it is ("none"): how accurate it could be if nobody attacked. Certifies no flip; the baseline of every table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flipproof.certificates.evidence import Answer
from flipproof.defences.defence import Defence
from flipproof.defences.target import BaseTarget, Target
from flipproof.errors import InputError
from flipproof.graphs import Graph, as_graph

__all__ = ["Undefended", "as_defence"]


class Undefended(Defence):
    """A model without a defence. Its certificates have radius 0: the answer itself, and nothing more."""

    name = "none"
    evidence_type = Answer
    baseline = True
    effort = 0
    trait = "undefended"

    @classmethod
    def title(cls, settings: Mapping[str, Any]) -> str:
        return "clean"

    def predict(self, graph: Any) -> int:
        """The model's answer."""
        return self.classifier.label_of(as_graph(graph))

    def ask(self, graph: Graph, question: Any) -> Answer:
        return Answer(self.classifier.label_of(graph), graph, self.num_classes, edge_blind=False)

    def target(self, graph: Graph, **search: Any) -> Target:
        return BaseTarget(self.classifier, graph, self.noise, search.get("max_calls"))


def as_defence(model: Any, **wrapped: Any) -> Defence:
    """A defended classifier itself, or a base model without a defence.

    ``wrapped`` are arguments for a base model; a defended classifier has its own.
    """
    given = {key: value for key, value in wrapped.items() if value is not None}
    if not isinstance(model, Defence):
        return Undefended(model, **given)
    for name, value in given.items():
        raise InputError(f"a {type(model).__name__} has its own {name}; got {value!r} (leave it out)")
    return model
