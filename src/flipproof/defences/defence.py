"""What a defence is: a frozen dataclass that says how a model is asked, so that its answer can be certified.

    ask       what the model says about a graph, as evidence                               (anywhere: a core, a cluster)
    read      the certificate that follows from the evidence                               (pure mathematics, anywhere)

The fields of a defence are its settings, those of its request what certification takes: both are options of the command line and
stand in run.json. Everything above the defences (run folder, attacks, report, studies, command line) knows this protocol and no
single defence. CONTRIBUTING.md says what a new one needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.evidence import Evidence
from flipproof.fields import to_plain
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise

if TYPE_CHECKING:
    from flipproof.defences.defended import DefendedClassifier
    from flipproof.defences.target import Effort, Target

__all__ = ["Defence", "Request", "described", "label_dtype"]

Run = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""How a defence does pieces of work on one graph: ``map``, or the same on many cores."""


@dataclass(frozen=True)
class Request:
    """What is asked about every graph: plain values, checked when it is made. This one leaves nothing open."""

    def fits(self, evidence: Any) -> bool:
        """Whether evidence answers this request, as far as can be told without reading the certificate."""
        return True

    def read(self, evidence: Any) -> Certificate:
        """The certificate that is requested; refuses evidence that does not answer the request."""
        certificate: Certificate = evidence.certify()
        return certificate

    @property
    def other_readings(self) -> tuple[str, ...]:
        """The names that :meth:`readings` may give."""
        return ()

    def readings(self, evidence: Any) -> dict[str, Certificate]:
        """Certificates that other methods read from the same evidence at the same level, by method; for comparison."""
        return {}


class Defence(ABC):
    """A way to ask a model that allows for certificates; subclasses are frozen dataclasses."""

    name: ClassVar[str]
    """In the registry, on the command line and in run.json."""

    evidence: ClassVar[type[Evidence]]
    """What is stored of every graph."""

    request: ClassVar[type[Any]] = Request
    """A frozen dataclass: what certification takes beside the graph."""

    edge_blind: ClassVar[bool] = False
    """Whether no attack on edges can change any answer."""

    @property
    def trial_noise(self) -> EdgeNoise:
        """Random changes such as the model will meet: what it is tried on, and what a batch is reckoned to cost."""
        return _STILL

    def features(self, model: Any, features: Any) -> Any:
        """The node features that the model is shown if a user asks for these; refuses a model that cannot be defended so."""
        return features

    def check(self, classifier: DefendedClassifier, graphs: Sequence[Graph], request: Any = None) -> None:
        """Refuse, before any long work, what would make a certificate false or asking fail.

        Where this is left as it is, the model is tried on every graph: on a few of them now, on the others before they are asked
        about.
        """
        classifier.guard.check(graphs, self.trial_noise)

    @abstractmethod
    def ask(self, classifier: DefendedClassifier, graph: Graph, request: Any, run: Run = map) -> Evidence:
        """Ask the model all that the request needs, about a graph that :meth:`check` has passed.

        Args:
            classifier: Has the model.
            graph: The graph.
            request: What is asked.
            run: Does pieces of the work, perhaps on many cores, and returns their results in order.
        """

    def answer(self, classifier: DefendedClassifier, graph: Graph) -> int | None:
        """The defended classifier's answer without a certificate; ``None`` where it abstains."""
        self.check(classifier, [graph])
        request = self.request()
        label: int | None = request.read(self.ask(classifier, graph, request)).label
        return label

    def made(self, evidence: Any, num_classes: int) -> bool:
        """Whether evidence was made by this defence; for stored evidence, which may be anybody's."""
        return isinstance(evidence, self.evidence) and evidence.num_classes == num_classes

    def best(self, graph: Graph, request: Any, num_classes: int) -> Certificate | None:
        """The certificate of a model that never changes its answer: no certificate of a graph of this size reaches farther.

        Computed without a model; ``None`` if nothing but the graph limits it.
        """
        return None

    def target(self, classifier: DefendedClassifier, graph: Graph, effort: Effort) -> Target:
        """What an attack on a graph minimises. By default attacked graphs are answered one by one."""
        from flipproof.defences.target import AnswersTarget

        return AnswersTarget(classifier, graph, effort.max_calls)


_STILL = EdgeNoise(add=0, remove=0)


def described(defence: Defence) -> dict[str, Any]:
    """A defence with its settings as plain JSON: name and values."""
    return {"name": defence.name, **to_plain(defence)}


def label_dtype(num_classes: int) -> type[np.unsignedinteger[Any]]:
    """The smallest unsigned type that labels are stored in."""
    return np.uint8 if num_classes <= 256 else np.uint32
