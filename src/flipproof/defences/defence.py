"""What a defence is: a frozen dataclass that says how a model is asked, so that its answer can be certified.

Its fields are its settings, those of its request what certification takes: both are options of the command line and stand in
run.json. :class:`DefendedClassifier` is what users hold; each defence has a thin subclass with its own arguments.
"""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.evidence import Evidence
from flipproof.checks import checked_count
from flipproof.classifiers import DEFAULT_MEMORY, Classifier, as_classifier, unwrapped
from flipproof.classifiers.guard import Guard
from flipproof.defences import defence_class, trained_defence
from flipproof.defences.asking import ask_all, in_order, say_differing
from flipproof.engines import Engine, local_engine
from flipproof.errors import InputError
from flipproof.fields import from_plain, to_plain
from flipproof.graphs import Graph, as_graph, as_graphs
from flipproof.graphs.conversions import UnusedEdgeFields
from flipproof.noise import EdgeNoise, FeatureNoise
from flipproof.progress import Progress

if TYPE_CHECKING:
    from flipproof.defences.target import Effort, Target

Run = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""How a defence does pieces of work on one graph: ``map``, or the same on many cores."""


@dataclass(frozen=True)
class Request:
    """What certification takes beside the graph: plain values, checked when it is made. This one leaves nothing open."""

    @property
    def reading(self) -> dict[str, Any]:
        """How evidence is read: the arguments of its ``certify``."""
        return {}

    @property
    def other_readings(self) -> dict[str, dict[str, Any]]:
        """The same for other methods at the same level, by method; for comparison."""
        return {}

    def fits(self, evidence: Any) -> bool:
        """Whether evidence answers this request."""
        return True

    def read(self, evidence: Any) -> Any:
        """The certificate that is requested; refuses evidence that does not answer the request."""
        if not self.fits(evidence):
            raise InputError(
                f"the {evidence.kind} do not answer this request, but another one (certify the graph again)"
            )
        return evidence.certify(**self.reading)

    def readings(self, evidence: Any) -> dict[str, Certificate]:
        """The certificates of :attr:`other_readings`."""
        return {method: evidence.certify(**reading) for method, reading in self.other_readings.items()}


class Defence(ABC):
    """A way to ask a model that allows for certificates; subclasses are frozen dataclasses."""

    name: ClassVar[str]  # in the registry, on the command line and in run.json
    evidence: ClassVar[type[Evidence]]  # what is stored of every graph
    request: ClassVar[type[Any]] = Request  # a frozen dataclass: what certification takes beside the graph
    edge_blind: ClassVar[bool] = False  # whether no attack on edges can change any answer

    @property
    def trial_noise(self) -> EdgeNoise:
        """Random changes such as the model will meet: what it is tried on, and what a batch is reckoned to cost."""
        return _STILL

    def features(self, model: Any, features: Any) -> Any:
        """The node features that the model is shown if a user asks for these; refuses a model that cannot be defended so."""
        return features

    def check(self, classifier: DefendedClassifier, graphs: Sequence[Graph], request: Any = None) -> None:
        """Refuse, before any long work, what would make a certificate false or asking fail.

        By default the model is tried on a few of the graphs now, and on each of the others before its answer counts.
        """
        classifier.guard.check_features(graphs)
        shown = [classifier.shown(graph) for graph in graphs]
        classifier.guard.check_model(shown, self.trial_noise, first=_TRIED_FIRST)

    @abstractmethod
    def ask(self, classifier: DefendedClassifier, graph: Graph, request: Any, run: Run = map) -> Evidence:
        """Ask the model all that the request needs, about a graph that :meth:`check` has passed; ``run`` does pieces of it."""

    def answer(self, classifier: DefendedClassifier, graph: Graph) -> int | None:
        """The defended classifier's answer without a certificate; ``None`` where it abstains."""
        classifier.check([graph])
        certificate: Certificate = self.request().read(self.ask(classifier, graph, self.request()))
        return certificate.label

    def made(self, evidence: Any, num_classes: int) -> bool:
        """Whether evidence was made by this defence, whose settings it then has; for stored evidence, which may be anybody's."""
        if not isinstance(evidence, self.evidence) or evidence.num_classes != num_classes:
            return False
        names = [entry.name for entry in fields(self) if hasattr(evidence, entry.name)]  # type: ignore[arg-type]
        return all(getattr(evidence, name) == getattr(self, name) for name in names)

    def best(self, graph: Graph, request: Any, num_classes: int) -> Certificate | None:
        """The certificate of a model that never changes its answer, which none exceeds; ``None`` if only the graph limits it."""
        return None

    def target(self, classifier: DefendedClassifier, graph: Graph, effort: Effort) -> Target:
        """What an attack on a graph minimises. By default attacked graphs are answered one by one."""
        from flipproof.defences.target import AnswersTarget

        return AnswersTarget(classifier, graph, effort)


_STILL = EdgeNoise(add=0, remove=0)
_TRIED_FIRST = 8  # graphs on which a model is tried before any work: most that is to be refused is refused there


def feature_noise_of(defence: Defence) -> FeatureNoise | None:
    """Noise on the graphs' own node features, of a defence that has some."""
    noise: FeatureNoise | None = getattr(defence, "feature_noise", None)
    return noise


def described(defence: Defence) -> dict[str, Any]:
    return {"name": defence.name, **to_plain(defence)}


class DefendedClassifier:
    """A model made certifiable by a defence; ``defence_name`` is that of a subclass.

    Args:
        model: A torch module with ``forward(x, edge_index, batch)`` (PyG's convention), ``forward(data)`` or
            ``forward(x, adj, mask)`` (dense), returning logits ``[graphs, num_classes]``, or for two classes one logit per
            graph, which is above 0 for class 1; or any callable from a list of :class:`Graph` to labels. It is asked on the
            device of its weights.
        defence: How it is asked; by default the subclass's own.
        num_classes: Number of classes, including those that never get a vote; by default ``model.num_classes``.
        features: Node features, computed on every graph that the model is asked about: ``None`` for the graph's own (which must
            not depend on edges), or the degree of graphs that have none; ``"own"``, ``"degree"``, ``"one-hot-degree"``,
            ``"constant"``, a function from a Graph to an array ``[n, d]``, a PyG transform, or several in a list.
        convention: ``"pyg"``, ``"data"`` or ``"dense"``, where the module's ``forward`` does not tell.
        trust_features: Accept node features that look as if computed from the clean edges.
        memory: Bytes that graphs and the model's work on them may take at once; batches are cut to fit.
        edge_features: For a PyG module that reads ``edge_attr``: a function that makes it from the features of the two ends of
            every edge, ``[E, d]`` each, after the noise. A stored ``edge_attr`` is not used: added edges have none.
    """

    defence_name: ClassVar[str] = ""

    def __init__(
        self,
        model: Any,
        defence: Defence | None = None,
        num_classes: int | None = None,
        features: Any = None,
        convention: str | None = None,
        trust_features: bool = False,
        memory: int = DEFAULT_MEMORY,
        edge_features: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        defence = defence_class(self.defence_name)() if defence is None else defence
        if self.defence_name not in ("", defence.name):
            raise InputError(f"{type(self).__name__} has its own defence; got {defence!r} (use another classifier)")
        self.model, self.defence, self.edge_features = unwrapped(model), defence, edge_features
        self.derived: Any = None  # what the defence has made of the model since it checked it last
        features = defence.features(self.model, features)
        number = getattr(self.model, "num_classes", None) if num_classes is None else num_classes
        if number is None:
            raise InputError(
                f"num_classes is needed, as {type(self.model).__name__} does not tell it; got None (say how many "
                "classes the model answers with, for instance num_classes=2)"
            )
        self.num_classes = checked_count(number, "num_classes", 2, "the number of classes that the model answers with")
        self.classifier = as_classifier(
            self.model,
            num_classes=self.num_classes,
            features=features,
            convention=convention,
            memory=checked_count(memory, "memory", 2**20, "a number of bytes, for instance 2**30"),
            edge_features=edge_features,
            feature_noise=feature_noise_of(defence),
        )
        hook = self.features
        if (defence.edge_blind or self.classifier.edge_blind) and hook is not None:
            from flipproof.classifiers.features import edge_free

            edge_free(hook, "an edge-blind model")
        if feature_noise_of(defence) is not None and not self.classifier.reads_own_features:
            raise InputError(
                f"feature_noise changes the graph's own node features, which the model does not see; got features="
                f'{getattr(hook, "spec", None)!r} (pass features="own", or leave feature_noise out)'
            )
        self.guard = Guard(self.classifier, trust_features=trust_features)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.model).__name__}, {self.defence}, num_classes={self.num_classes})"

    @property
    def features(self) -> Any:
        """How node features are made; ``None`` for those of the graphs that a black box is asked about."""
        return getattr(self.classifier, "features", None)

    def graph_of(self, graph: Any) -> Graph:
        """The graph, from any form that the library accepts."""
        with self._stored_edge_features_unused():
            return as_graph(graph)

    def graphs_of(self, graphs: Iterable[Any]) -> list[Graph]:
        """The graphs, from any form that the library accepts."""
        with self._stored_edge_features_unused():
            return as_graphs(graphs)

    def _stored_edge_features_unused(self) -> AbstractContextManager[Any]:
        """Where ``edge_features`` are made, nobody misses those that are stored."""
        made = self.edge_features is not None
        return warnings.catch_warnings(action="ignore", category=UnusedEdgeFields) if made else nullcontext()

    def predict(self, graph: Any) -> int | None:
        """The defended classifier's answer, or ``None`` where it abstains."""
        return self.defence.answer(self, self.graph_of(graph))

    def predict_all(
        self,
        graphs: Iterable[Any],
        *,
        progress: Progress = False,
        workers: int | None = None,
        engine: Engine | None = None,
    ) -> list[int | None]:
        """The answer for each graph, in their order; the arguments are those of :meth:`certify_all`."""
        members, where = self.graphs_of(graphs), engine or self.engine(workers)
        answers = where.run(lambda task: self.defence.answer(self, task[1]), enumerate(members))
        return in_order("asking", ((number, answer) for (number, _), answer in answers), len(members), progress)

    def explain(self, graph: Any, *, seed: int | None = None) -> Certificate:
        """See :func:`flipproof.explain`."""
        chosen = self.effective()
        request = from_plain(chosen.defence.request, {"seed": seed})
        evidence = chosen._evidence(self.graph_of(graph), request)
        certificate: Certificate = request.read(evidence)
        return replace(certificate, weakest=evidence.weak_spots(certificate.radius))

    def certify(self, graph: Any) -> Certificate:
        """The answer for a graph, and the number of edge flips that it withstands."""
        return self._certificate(self.graph_of(graph), self.defence.request())

    def certify_all(
        self,
        graphs: Iterable[Any],
        *,
        progress: Progress = False,
        workers: int | None = None,
        engine: Engine | None = None,
    ) -> list[Certificate]:
        """A certificate for each graph, in their order.

        Args:
            graphs: A list, a PyG data set or a ``DataLoader``, of graphs in any form that the library accepts.
            progress: Show a progress bar, or a function called with the number of graphs done and their number.
            workers: Processes of this machine to use; 0 for one per core. By default this process.
            engine: Where the work is done, instead of ``workers``; see :mod:`flipproof.engines`.
        """
        return self._certificates(self.graphs_of(graphs), self.defence.request(), progress, workers, engine)

    def _certificate(self, graph: Graph, request: Any) -> Certificate:
        chosen, request = self._effective(request)
        certificate: Certificate = request.read(chosen._evidence(graph, request))
        return certificate

    def _effective(self, request: Any) -> tuple[DefendedClassifier, Any]:
        """The classifier that answers, and what is requested of it."""
        chosen = self.effective()
        return chosen, request if chosen is self else chosen.defence.request()

    def _evidence(self, graph: Graph, request: Any) -> Any:
        self.check([graph], request)
        evidence = self.defence.ask(self, graph, request)
        if evidence.differing:
            say_differing(evidence.differing, evidence.compared)
        return evidence

    def _certificates(
        self,
        graphs: Sequence[Graph],
        request: Any,
        progress: Progress = False,
        workers: int | None = None,
        engine: Engine | None = None,
    ) -> list[Certificate]:
        chosen, request = self._effective(request)
        chosen.check(graphs, request)
        results = ask_all(chosen, request, dict(enumerate(graphs)), engine=engine or chosen.engine(workers))
        return in_order("certifying", ((number, answer) for number, _, answer in results), len(graphs), progress)

    def effective(self) -> DefendedClassifier:
        """The classifier itself; around a model that sees no edges, unless features are certified too, that of every radius."""
        covers_features = feature_noise_of(self.defence) is not None or self.hides_features
        if not self.classifier.edge_blind or self.defence.edge_blind or covers_features:
            return self
        from flipproof.defences.baselines import EdgeBlindClassifier

        return EdgeBlindClassifier(self.classifier, num_classes=self.num_classes)

    def check(self, graphs: Sequence[Graph], request: Any = None) -> None:
        """Refuse, before any long work, graphs or a request that would make a certificate false or asking fail."""
        self.defence.check(self, graphs, request)

    @property
    def hides_features(self) -> bool:
        """Whether node features are divided into groups, so that certificates cover changes of them."""
        return bool(getattr(self.defence, "feature_groups", 1) > 1)

    def shown(self, graph: Graph) -> Graph:
        """The graph that a model is tried on and its path chosen by: node features that an attacker can change are hidden."""
        features = graph.node_features if self.hides_features else None
        return graph if features is None else graph.replaced(node_features=np.zeros_like(features))

    def suited(self, graph: Graph) -> tuple[Classifier, int]:
        """The form of the model in which such graphs reach it, and how many of them at once."""
        base = self.classifier.suited(self.shown(graph), self.defence.trial_noise)
        return base, base.batch_size(graph, self.defence.trial_noise)

    def try_on(self, graph: Graph) -> None:
        """Try the model on a graph on which :meth:`check` has not tried it, and refuse it if the graph shows that it must be."""
        self.guard.try_on(self.shown(graph), self.defence.trial_noise)

    def engine(self, workers: int | None, *, quiet: bool = True) -> Engine:
        """This number of workers, or what comes nearest for this model, which unless ``quiet`` is said; 0 is one per core."""
        return local_engine(workers, forks=self.classifier.forks, quiet=quiet)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write model and defence to a folder, whole or not at all; the model must be one of flipproof's own."""
        from flipproof import models

        models.save(self.model, folder, defence=described(self.defence), features=self.features)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        model: Callable[..., Any] | None = None,
        features: Any = None,
        trust_features: bool = False,
        memory: int = DEFAULT_MEMORY,
    ) -> Self:
        """What :meth:`save` or ``flipproof train`` wrote, if it was made for this defence; by default with its own features.

        Args:
            folder: The model folder.
            model: The factory of a network of your own, where it cannot be imported by its name.
            features, trust_features, memory: As for :class:`DefendedClassifier`.
        """
        from flipproof import models

        saved = models.load_metadata(folder)
        defence = trained_defence(saved.metadata)
        if defence is None:
            raise InputError(f"{folder} does not say for which defence its model is (use flipproof.models.load)")
        if cls.defence_name not in ("", defence.name):
            raise InputError(
                f"{folder} holds a model for {defence.name}, not for {cls.defence_name} (use flipproof.load)"
            )
        kinds = [kind for child in cls.__subclasses__() for kind in (child, *child.__subclasses__())]
        kind = next((kind for kind in kinds if kind.defence_name == defence.name), cls)
        made, chosen = kind.__new__(kind), saved.metadata.get("features") if features is None else features
        options = saved.metadata.get("num_classes"), chosen, None, trust_features, memory
        DefendedClassifier.__init__(made, models.load(folder, model), defence, *options)
        return made
