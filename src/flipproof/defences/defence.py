"""What a defence is: it turns a base model into a classifier that can be certified.

    tasks     the pieces of work that a graph needs, given the pieces that are there        (in the main process)
    work      does one of them                                                             (anywhere: a core, a cluster)
    evidence  puts the pieces of a graph together                                          (in the main process)
    read      the certificate that follows from the evidence                               (pure mathematics, anywhere)

Everything above the defences (run folder, attacks, report, studies, command line) knows this protocol and no single defence.
CONTRIBUTING.md says what a new one needs.
"""

from __future__ import annotations

import os
from abc import ABC
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.evidence import Evidence
from flipproof.checks import checked_count
from flipproof.classifiers import DEFAULT_MEMORY, as_classifier, unwrapped
from flipproof.classifiers.guard import Guard
from flipproof.defences.question import Option, Question, Request
from flipproof.engines import Engine, ThisProcess, cores, local_engine
from flipproof.errors import InputError
from flipproof.graphs import Graph, as_graph, as_graphs
from flipproof.noise import EdgeNoise
from flipproof.progress import note, watched

if TYPE_CHECKING:
    from flipproof.datasets import Dataset
    from flipproof.defences.target import Target

__all__ = ["Defence", "Option", "Question", "Request", "label_dtype"]

_STILL = EdgeNoise(add=0, remove=0)
_TRIED_FIRST = 8  # graphs on which a model is tried before any work: most that is to be refused is refused there


class Defence(ABC):
    """A model made certifiable.

    Args:
        model: A torch module with ``forward(x, edge_index, batch)`` (PyG's convention), ``forward(data)`` or
            ``forward(x, adj, mask)`` (dense), returning logits ``[graphs, num_classes]``, or for two classes one logit per
            graph, which is above 0 for class 1; or any callable from a list of :class:`Graph` to labels. It is asked on the
            device of its weights.
        num_classes: Number of classes, including those that never get a vote; by default ``model.num_classes``.
        features: Node features, computed on every graph that the model is asked about: ``None`` for the graph's own (which must
            not depend on edges), or the degree of graphs that have none; ``"own"``, ``"degree"``, ``"one-hot-degree"``,
            ``"constant"``, a function from a Graph to an array ``[n, d]``, a PyG transform, or several in a list.
        convention: ``"pyg"``, ``"data"`` or ``"dense"``, where the module's ``forward`` does not tell.
        trust_features: Accept node features that look as if computed from the clean edges.
        memory: Bytes that graphs and the model's work on them may take at once. Batches are cut to fit; a graph of which
            not even one copy fits is refused.
        edge_features: For a PyG module that reads ``edge_attr``: a function that makes it from the features of the two ends of
            every edge, ``[E, d]`` each, after the noise. A stored ``edge_attr`` cannot be used: an edge that the noise adds has
            none, so a model that reads one is refused without this function.
    """

    name: ClassVar[str]
    """In the registry, on the command line and in run.json."""

    evidence_type: ClassVar[type[Evidence]]
    question_type: ClassVar[type[Question]] = Question
    settings: ClassVar[tuple[Option, ...]] = ()
    """What the defence is, beside its model: given in training and stored with the model."""

    training_options: ClassVar[tuple[Option, ...]] = ()
    """What its training takes in addition."""

    asking: ClassVar[tuple[Option, ...]] = ()
    """What certification takes: the fields of its question."""

    trial_options: ClassVar[tuple[Option, ...] | None] = None
    """Options of ``tune``, given any number of times: every value is a candidate. By default the settings."""
    network: ClassVar[str | None] = None
    """The built-in network that it needs, by name; ``None`` where any model will do."""

    baseline: ClassVar[bool] = False
    """Whether it is something to compare with rather than a defence."""

    trains: ClassVar[bool] = True
    """Whether a network is trained for it over epochs; ``False`` where :meth:`fitted` fits a model."""

    edge_blind: ClassVar[bool] = False
    """Whether no attack on edges can change any answer."""

    edge_free_features: ClassVar[bool] = False
    """Whether node features must not depend on edges."""

    tried_where_asked: ClassVar[bool] = False
    """Whether :meth:`check` is left as it is, which tries the model on every graph: that can be done where the graph is asked
    about."""

    effort: ClassVar[int] = 2
    """Rough cost of a trial: 0 for one answer per graph, 1 for a few, 2 for many, 3 for thousands. A search tries those up to 1
    in any case and the others as time allows, in this order."""

    trait: ClassVar[str] = "defended"
    """The adjective of the defended classifier in sentences: "the smoothed classifier"."""

    references: ClassVar[tuple[str, ...]] = ()
    """What it rests on: keys of ``report/references.bib``."""

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
        self.model = model = unwrapped(model)
        given = getattr(model, "num_classes", None) if num_classes is None else num_classes
        self.num_classes = checked_count(given, "num_classes", 2, "count declared classes")
        self.classifier = as_classifier(
            model,
            num_classes=self.num_classes,
            features=features,
            convention=convention,
            memory=checked_count(memory, "memory", 2**20, "a number of bytes, for instance 2**30"),
            edge_features=edge_features,
        )
        hook = getattr(self.classifier, "features", None)
        if (self.edge_blind or self.classifier.edge_blind) and hook is not None and hook.reads_edges:
            raise InputError(
                f"features of an edge-blind model must not depend on edges; got {hook.spec or hook} "
                '(None for the graph\'s own, or "constant")'
            )
        self._guard = Guard(self.classifier, trust_features=trust_features)

    # ---- what the defence is ----------------------------------------------------------------------------------------------

    @classmethod
    def checked(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that were given, in the form in which they are stored; refuses what does not make a defence."""
        return {option.name: given[option.name] for option in cls.settings if given.get(option.name) is not None}

    @classmethod
    def build(cls, model: Any, settings: Mapping[str, Any], **wrapped: Any) -> Self:
        """The defence of a model with these settings; ``wrapped`` are the constructor's other arguments."""
        return cls(model, **settings, **wrapped)

    def describe(self) -> dict[str, Any]:
        """The defence as plain JSON, the model aside; :meth:`from_description` takes it back."""
        return {"name": self.name, **{option.name: getattr(self, option.name) for option in self.settings}}

    @classmethod
    def from_description(cls, description: Mapping[str, Any], model: Any, **wrapped: Any) -> Self:
        """The defence that :meth:`describe` described."""
        return cls.build(model, {key: value for key, value in description.items() if key != "name"}, **wrapped)

    @classmethod
    def title(cls, settings: Mapping[str, Any]) -> str:
        """The defence with its settings in a few words, for tables and legends."""
        return " ".join([cls.name, *(f"{value:g}" for value in settings.values() if not isinstance(value, str))])

    @classmethod
    def training(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of :func:`flipproof.train` with which a model is trained for the defence."""
        return {}

    @classmethod
    def trained_for(cls, metadata: Mapping[str, Any]) -> dict[str, Any] | None:
        """The settings for which a model folder says that its model was trained; ``None`` if for another defence."""
        stored = metadata.get("defence")
        if not isinstance(stored, Mapping) or stored.get("name") != cls.name:
            return None
        return cls.checked(stored)

    @classmethod
    def entry(cls, value: Any) -> dict[str, Any]:
        """The settings that an entry of a benchmark's config asks for: a table of them."""
        if not isinstance(value, Mapping) or value.keys() - {option.name for option in cls.settings}:
            names = ", ".join(option.name for option in cls.settings) or "nothing"
            raise InputError(f"{cls.name} takes tables with {names}; got {value!r}")
        return cls.checked(value)

    @classmethod
    def trial(cls, name: str, value: Any) -> dict[str, Any]:
        """The settings that a value of a trial option asks for."""
        return cls.entry({name: value})

    @classmethod
    def candidates(cls, graphs: Dataset) -> list[dict[str, Any]]:
        """Settings worth trying on such graphs."""
        return [] if cls.settings or cls.baseline else [{}]

    @classmethod
    def candidates_against(cls, graphs: Dataset, attack: int | tuple[int, int]) -> list[dict[str, Any]]:
        """Settings worth trying against an attack of any so many flips, or of (additions, removals)."""
        return [{}] if cls.baseline else cls.candidates(graphs)

    @classmethod
    def default_features(cls, graphs: Dataset) -> str:
        """Node features to train with where none are asked for."""
        return "own" if graphs.num_node_features else "constant" if cls.edge_free_features else "degree"

    @classmethod
    def network_config(cls, features: str | None, width: int, num_classes: int) -> dict[str, Any]:
        """The built-in network that suits it, for :func:`flipproof.models.build`; ``width`` is that of the node features."""
        return {"name": cls.network or "gin", "in_features": width, "num_classes": num_classes}

    @classmethod
    def reads_edge_labels(cls, settings: Mapping[str, Any]) -> bool:
        """Whether its network is to read the edge labels of graphs that have them, and takes their number as ``edge_labels``."""
        return False

    @classmethod
    def recipes(cls, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Other ways of training worth trying, as arguments of :func:`flipproof.train`."""
        return []

    @classmethod
    def fitted(
        cls, graphs: Dataset, *, features: Any, validation: Dataset | None = None, seed: int = 0
    ) -> tuple[Any, Any] | None:
        """A model that is fitted to labelled graphs rather than trained over epochs, and what the fit says: at least its
        ``accuracy`` on these graphs. ``None`` where a network is trained.

        ``validation`` are graphs that choose among settings; without them cross-validation does.
        """
        return None

    @classmethod
    def words(cls, settings: Mapping[str, Any]) -> str:
        """The settings as options of the command line, in words: "keep 0.9", "5 groups"."""
        return ", ".join(f"{key} {value:.4g}" for key, value in settings.items() if isinstance(value, (int, float)))

    # ---- asking ---------------------------------------------------------------------------------------------------------------

    @property
    def noise(self) -> EdgeNoise:
        """Random changes such as the model will meet: what it is tried on, and what a batch is reckoned to cost."""
        return _STILL

    def check(self, graphs: Sequence[Graph]) -> None:
        """Refuse, before any long work, what would make a certificate false or asking fail."""
        self._guard.check(graphs, self.noise)

    def check_ahead(self, graphs: Sequence[Graph]) -> None:
        """As :meth:`check`, before the graphs are asked about with :func:`flipproof.defences.asking.ask_all`.

        Where the model is tried on every graph, it is tried on a few of them now. On each of the others it is tried where the
        graph is asked about, before the first piece of work on it.
        """
        if self.tried_where_asked:
            self._guard.check(graphs, self.noise, first=_TRIED_FIRST)
        else:
            self.check(graphs)

    def check_question(self, question: Any, graphs: Sequence[Graph]) -> None:  # noqa: B027  (most refuse nothing)
        """Refuse, before any work, what cannot be asked about some of the graphs, which :meth:`check_ahead` has passed."""

    def untried(self, graph: Graph) -> bool:
        """Whether the model must be tried on a graph before it is asked about."""
        return self.tried_where_asked and self._guard.untried(graph)

    def try_on(self, graph: Graph) -> None:
        """Try the model on a graph, anywhere; refuses as :meth:`check` does."""
        self._guard.try_on(graph, self.noise)

    def passed(self, graph: Graph) -> None:
        """Remember that the model was tried on a graph and not refused."""
        self._guard.passed(graph)

    def take_no_shortcuts(self, graphs: Sequence[Graph], remark: str) -> None:
        """Ask the model itself about all the graphs, after a shortcut to it gave other answers; tries it on them first."""
        self.classifier.take_no_shortcuts(remark)
        self._guard.check_model(graphs, self.noise, first=_TRIED_FIRST if self.tried_where_asked else None)

    def check_features(self, graphs: Sequence[Graph]) -> None:
        """Refuse node features that know the clean edges, where the model may see them; a part of :meth:`check`."""
        self._guard.check_features(graphs)

    def question(self, *, graphs: int = 1, **asked: Any) -> Any:
        """What is to be asked, checked; the arguments are those of :meth:`certify`."""
        return self.question_type.of(graphs=graphs, **asked)

    @classmethod
    def asked_by_default(cls) -> dict[str, Any]:
        """What a run folder's question holds where nothing is given: repeatable, unlike the library's fresh seeds."""
        return {entry.name: entry.default for entry in cls.asking if entry.default is not None}

    def tasks(self, graph: Graph, question: Any, pieces: Mapping[str, bytes]) -> list[Request]:
        """The pieces that are missing now; none if those that are there answer the question."""
        return [] if "answer" in pieces else [Request("answer")]

    def work(self, graph: Graph, question: Any, request: Request) -> bytes | Evidence:
        """Do a piece of work, anywhere. By default the graph is one piece, :meth:`ask`, which need not be packed."""
        return self.ask(graph, question)

    def ask(self, graph: Graph, question: Any) -> Evidence:
        """Ask the model all that the question needs; for a defence that does so in one piece."""
        raise NotImplementedError

    def evidence(self, graph: Graph, question: Any, pieces: Mapping[str, Any]) -> Evidence:
        """Put together what the pieces say."""
        found = pieces["answer"]
        return found if isinstance(found, Evidence) else self.evidence_type.from_bytes(found, source="the answer")

    @classmethod
    def answered(cls, evidence: Any, settings: Mapping[str, Any], num_classes: int) -> bool:
        """Whether evidence was made by a defence with these settings; for stored evidence, which may be anybody's."""
        return isinstance(evidence, cls.evidence_type) and evidence.num_classes == num_classes

    @classmethod
    def best(cls, graph: Graph, question: Any, settings: Mapping[str, Any], num_classes: int) -> Certificate | None:
        """The certificate of a model that never changes its answer: no certificate of a graph of this size reaches farther.

        Computed without a model; ``None`` if nothing but the graph limits it.
        """
        return None

    @classmethod
    def reaches(cls, graph: Graph, settings: Mapping[str, Any], num_classes: int) -> dict[str, Certificate]:
        """The same by effort in words ("10,000 samples"), for a user who has not chosen yet; empty if nothing limits it."""
        found = cls.best(graph, cls.question_type.of(**cls.asked_by_default()), settings, num_classes)
        return {} if found is None else {"": found}

    @classmethod
    def effect(cls, settings: Mapping[str, Any], graphs: Dataset) -> str:
        """What the model will see of such graphs, in a few words."""
        return ""

    def reach(self, graph: Graph, question: Any) -> int | None:
        """The largest radius that any certificate of a graph of this size can have with this question, if it is limited."""
        settings = {key: value for key, value in self.describe().items() if key != "name"}
        found = self.best(graph, question, settings, self.num_classes)
        return None if found is None else found.radius

    # ---- answers --------------------------------------------------------------------------------------------------------------

    def predict(self, graph: Any) -> int | None:
        """The defended classifier's answer, or ``None`` where it abstains."""
        return self.certify(graph).label

    def predict_all(
        self,
        graphs: Iterable[Any],
        *,
        progress: bool | Callable[[int, int], None] = False,
        workers: int | None = None,
        engine: Engine | None = None,
        **asked: Any,
    ) -> list[int | None]:
        """The answer for each graph, in their order; the arguments are those of :meth:`predict` and :meth:`certify_all`."""
        from flipproof.defences.asking import PredictWork

        given, chosen = as_graphs(graphs), engine or self.engine(workers)
        found: dict[int, int | None] = {}
        with watched(progress, "asking", len(given), unit="graphs") as advance:
            for (index, _), answer in chosen.run(PredictWork(self, asked), enumerate(given)):
                found[index] = answer
                advance(1)
        return [found[index] for index in range(len(given))]

    def answer(self, graph: Any, search: Mapping[str, Any]) -> int | None:
        """As :meth:`predict`, with the options of an attack, as far as they concern it."""
        return self.predict(graph)

    def certify(self, graph: Any, **asked: Any) -> Certificate:
        """The answer for a graph, and the number of edge flips that it withstands."""
        return self.certify_all([as_graph(graph)], **asked)[0]

    def certify_all(
        self,
        graphs: Iterable[Any],
        *,
        progress: bool | Callable[[int, int], None] = False,
        workers: int | None = None,
        engine: Engine | None = None,
        **asked: Any,
    ) -> list[Certificate]:
        """A certificate for each graph, in their order.

        Args:
            graphs: A list, a PyG data set or a ``DataLoader``, of graphs in any form that the library accepts.
            progress: Show a progress bar, or a function called with the number of graphs done and their number.
            workers: Processes of this machine to use; 0 for one per core. By default this process.
            engine: Where the work is done, instead of ``workers``; see :mod:`flipproof.engines`.
            **asked: See :meth:`certify`.
        """
        given, defence = as_graphs(graphs), self.effective()
        question = self.question(graphs=max(1, len(given)), **asked)
        if defence is not self:
            question = defence.question()
        found = defence._asked(given, question, progress=progress, workers=workers, engine=engine)
        return [certificate for _, certificate in found if certificate is not None]

    def _asked(
        self,
        graphs: list[Graph],
        question: Any,
        *,
        progress: bool | Callable[[int, int], None],
        workers: int | None,
        engine: Engine | None,
        read: bool = True,
    ) -> list[tuple[Evidence, Certificate | None]]:
        """Evidence about each graph and, if it is read, the certificate, in their order."""
        from flipproof.defences.asking import ask_all

        self.check_ahead(graphs)
        self.check_question(question, graphs)
        chosen = engine or self.engine(workers)
        found: dict[int, tuple[Evidence, Certificate | None]] = {}
        with watched(progress, "certifying" if read else "asking", len(graphs), unit="graphs") as advance:
            for index, evidence, certificate in ask_all(
                self, question, dict(enumerate(graphs)), engine=chosen, read=read
            ):
                advance(index not in found)
                found[index] = evidence, certificate
        return [found[index] for index in range(len(graphs))]

    def effective(self) -> Defence:
        """The defence itself; for a model that sees no edges, the one that certifies it at every radius."""
        if not self.classifier.edge_blind or self.baseline or self.edge_blind:
            return self
        from flipproof.defences.edge_blind import EdgeBlindClassifier

        return EdgeBlindClassifier(self.classifier, num_classes=self.num_classes)

    def engine(self, workers: int | None, *, quiet: bool = True) -> Engine:
        """So many processes of this machine, or what comes nearest for this model; ``None`` is this process."""
        if workers is None:
            return ThisProcess()
        count = cores() if workers == 0 else checked_count(workers, "workers", 1, "0 for one per core")
        found, sentence = local_engine(count, forks=self.classifier.forks, threads=self.classifier.threads)
        if sentence:
            note(sentence, quiet=quiet)
        return found

    def target(self, graph: Graph, **search: Any) -> Target:
        """What an attack on a graph minimises. By default attacked graphs are answered one by one."""
        from flipproof.defences.target import AnswersTarget

        return AnswersTarget(self, graph, max_calls=search.get("max_calls"))

    # ---- in a folder ----------------------------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write model and defence to a folder, whole or not at all; the model must be one of flipproof's own."""
        from flipproof import models

        features = getattr(self.classifier, "features", None)
        models.save(self.model, folder, defence=self.describe(), features=features)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **wrapped: Any) -> Self:
        """What :meth:`save` or ``flipproof train`` wrote, if it was made for this defence."""
        from flipproof import models

        saved = models.load_metadata(folder)
        settings = cls.trained_for(saved.metadata)
        if settings is None:
            raise InputError(f"{folder} does not hold a model for {cls.name} (load it with flipproof.models.load)")
        return cls.build(models.load(folder), settings, **{"features": saved.metadata.get("features"), **wrapped})

    def __repr__(self) -> str:
        settings = {key: value for key, value in self.describe().items() if key != "name"}
        shown = ", ".join(f"{key}={value!r}" for key, value in {**settings, "num_classes": self.num_classes}.items())
        return f"{type(self).__name__}({type(self.model).__name__}, {shown})"


def label_dtype(num_classes: int) -> type[np.unsignedinteger[Any]]:
    """The smallest unsigned type that labels are stored in."""
    return np.uint8 if num_classes <= 256 else np.uint32
