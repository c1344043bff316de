"""The model as it is ("none"): how accurate it could be if nobody attacked. Certifies no flip; the baseline of every table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flipproof.certificates.evidence import Answer
from flipproof.classifiers import DEFAULT_MEMORY
from flipproof.defences.defence import Defence, Run
from flipproof.defences.defended import DefendedClassifier
from flipproof.defences.target import BaseTarget, Effort
from flipproof.errors import InputError
from flipproof.graphs import Graph


@dataclass(frozen=True)
class NoDefence(Defence):
    """Ask about the graph itself. Certificates have radius 0: the answer, and nothing more."""

    name = "none"
    evidence = Answer

    def ask(self, classifier: DefendedClassifier, graph: Graph, request: Any, run: Run = map) -> Answer:
        return Answer(self.answer(classifier, graph), graph, classifier.num_classes, edge_blind=False)

    def answer(self, classifier: DefendedClassifier, graph: Graph) -> int:
        return classifier.classifier.label_of(graph)

    def target(self, classifier: DefendedClassifier, graph: Graph, effort: Effort) -> BaseTarget:
        return BaseTarget(classifier.classifier, graph, self.trial_noise, effort.max_calls)


class Undefended(DefendedClassifier):
    """A model without a defence; the arguments are those of :class:`flipproof.defences.defended.DefendedClassifier`."""

    defence_name = "none"

    def __init__(
        self,
        model: Any,
        *,
        num_classes: int | None = None,
        features: Any = None,
        convention: str | None = None,
        trust_features: bool = False,
        memory: int = DEFAULT_MEMORY,
        edge_features: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        super().__init__(
            model,
            NoDefence(),
            num_classes=num_classes,
            features=features,
            convention=convention,
            trust_features=trust_features,
            memory=memory,
            edge_features=edge_features,
        )

    def effective(self) -> DefendedClassifier:
        """The model as it is, whatever it sees."""
        return self


def as_defended(model: Any, **arguments: Any) -> DefendedClassifier:
    """A defended classifier itself, or a base model without a defence.

    ``arguments`` are for a base model; a defended classifier has its own.
    """
    given = {key: value for key, value in arguments.items() if value is not None}
    if not isinstance(model, DefendedClassifier):
        return Undefended(model, **given)
    for name, value in given.items():
        raise InputError(f"a {type(model).__name__} has its own {name}; got {value!r} (leave it out)")
    return model
