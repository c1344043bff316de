"""The shortest way in Python: an estimator that chooses a defence, trains it, and answers with certificates.

``flipproof protect`` is this estimator, with folders.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.metrics import certified_accuracy, right_radii, share_interval, shares, shown_share
from flipproof.checks import checked_count, checked_seconds, checked_seed
from flipproof.datasets import Dataset, split
from flipproof.datasets.dataset import UNNAMED
from flipproof.datasets.sources import DataSource, fingerprint
from flipproof.defences.defence import DefendedClassifier
from flipproof.engines import cores
from flipproof.errors import InputError
from flipproof.fields import from_plain
from flipproof.files import write_json
from flipproof.graphs import Graph, as_graphs
from flipproof.models.loading import load_model
from flipproof.progress import note
from flipproof.report.content import RADII
from flipproof.report.templates import rendered
from flipproof.runs.certifying import Line, certified_run, certify_into, keep_line, read_evidence
from flipproof.studies import tuning
from flipproof.studies.candidate import Candidate, compared_defences, named_candidate
from flipproof.studies.experiment import Experiment, ladder_of
from flipproof.studies.threat import Threat
from flipproof.studies.tuning import Choice, typed_command

_TINY = 4  # pieces of work that are not worth more than this process
_ESTIMATOR, _SUMMARY = "estimator.json", "protect.json"  # what save and flipproof protect leave


@dataclass(frozen=True)
class GivenGraphs(DataSource):
    """Graphs that are in memory: all of them are there to train on and to choose with. Equal if the graphs are."""

    graphs: Dataset | None = field(default=None, compare=False)
    sha256: str = ""  # of the graphs

    def load(self, *, like: Sequence[Any] = ()) -> Dataset:
        assert self.graphs is not None
        return self.graphs

    def split(self, graphs: Dataset) -> Any:
        return split(graphs, test=0, validation=self.validation, seed=self.split_seed)

    def metadata(self, graphs: Dataset) -> dict[str, Any]:
        return {"class_names": list(graphs.class_names), "split_seed": self.split_seed}


@dataclass(eq=False, repr=False, kw_only=True)
class RobustGraphClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A graph classifier whose answers withstand edge flips: tries the defences, trains the best one, certifies its answers.

    Works as any estimator of scikit-learn on lists of graphs: in pipelines of its own, ``cross_val_score`` and ``GridSearchCV``.

    Args:
        radius: Number of edge flips that the answers are to withstand; ``(additions, removals)`` for both separately.
        changes: Number of changed node labels (or bits, of binary node features) that they are to withstand beside the flips.
        time: Time for search and training: ``"90s"``, ``"10m"``, ``"2h"`` or seconds. Half of it is for the search; what is under
            way is not cut short.
        defence: ``smoothing``, ``voting`` or ``local`` to search among settings of this one alone; or one candidate with
            its settings, such as ``smoothing keep=0.9``. By default all defences are tried.
        model: A function that returns a fresh PyG module, called with ``in_features`` and ``num_classes`` if it takes them. By
            default flipproof's own networks. Local networks cannot be of your own.
        features: Node features, as for :class:`flipproof.SmoothedClassifier`, by name; by default the graphs' own, or the degree.
        epochs: Epochs of the longest trainings.
        validation: Share of the graphs on which the choice is made.
        samples: Noisy copies per graph, if the choice is smoothing.
        alpha: Failure probability of each certificate, if the choice is smoothing.
        seed: Seed of the split, the trainings and the noise; ``None`` for a fresh one.
        workers: Processes; 0 for one per core. By default this process. With several, a script needs its
            ``if __name__ == "__main__":``.
        progress: Show progress and what is done.

    Attributes:
        classes_: The labels, sorted. ``certificate.label`` is a position in them.
        defence_: The chosen defence and its settings, in words.
        classifier_: The defended classifier.
        trials_: A data frame: what was tried, and how many validation graphs it got right under attack.
        edge_blind_: The share of validation graphs that a classifier which ignores edges (with ``changes``, node features too)
            gets right: the line to beat.
    """

    radius: int | tuple[int, int] = 1
    changes: int = 0
    time: str | float = "10m"
    defence: str | None = None
    model: Callable[..., Any] | None = None
    features: str | None = None
    epochs: int = 200
    validation: float = 0.2
    samples: int = 10_000
    alpha: float = 0.001
    seed: int | None = 0
    workers: int | None = None
    progress: bool = False

    def fit(self, graphs: Iterable[Any], labels: ArrayLike | None = None) -> Self:
        """Choose a defence on a part of the graphs, and train it on all of them.

        Args:
            graphs: Graphs in any form that the library accepts: PyG ``Data``, networkx, adjacency matrices, :class:`Graph`.
            labels: One per graph, numbers or texts; by default those that the graphs have.
        """
        Threat(self.radius, self.changes)  # what cannot be meant is refused before any work
        checked_seconds(self.time)
        members = as_graphs(graphs)
        classes, known = np.unique(_labels(members, labels), return_inverse=True)
        if len(classes) < 2:
            raise InputError(f"at least two classes are needed; got {classes.tolist()} (check the labels)")
        data = Dataset(_with_labels(members, known), class_names=map(str, classes))
        seed, sha256 = checked_seed(self.seed), fingerprint(data)
        source = GivenGraphs("graphs", split_seed=seed, validation=self.validation, graphs=data, sha256=sha256)
        self._fit(self._experiment(source), self._new_folder())
        self.classes_ = classes
        return self

    def _new_folder(self) -> Path:
        self._folder = Path(tempfile.mkdtemp(prefix="flipproof"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def predict(self, graphs: Iterable[Any]) -> NDArray[Any]:
        """The label of each graph. Where the classifier abstains it is ``None``, and the array has the type ``object``."""
        answers = self._fitted().predict_all(graphs, workers=self.workers, progress=self.progress)
        if any(answer is None for answer in answers):
            return np.array([None if answer is None else self.classes_[answer] for answer in answers], dtype=object)
        return np.asarray(self.classes_[np.array(answers, dtype=np.int64)])

    def certify(self, graphs: Iterable[Any]) -> list[Certificate]:
        """A certificate for each graph. Its ``label`` is a position in ``classes_``; ``None`` where it abstains."""
        members, classifier = as_graphs(graphs), self._fitted()
        request = from_plain(classifier.defence.request, {**self._question, "graphs": len(members)})
        return classifier._certificates(members, request, workers=self.workers, progress=self.progress)

    def explain(self, graph: Any, *, seed: int | None = None) -> Certificate:
        """See :func:`flipproof.explain`."""
        return self._fitted().explain(graph, seed=seed)

    def score(self, graphs: Iterable[Any], labels: ArrayLike | None = None) -> float:
        """Certified accuracy at ``radius``: the share of graphs that are right by the labels, and stay right under the attack."""
        members, known = self._judged(graphs, labels)
        threat, judged = self._threat, _with_labels(members, known)
        certified = zip(self.certify(members), judged, strict=True)
        return float(np.mean([threat.right(self._fitted(), *pair) for pair in certified]))

    def certified_accuracy(
        self, graphs: Iterable[Any], labels: ArrayLike | None = None, radii: Iterable[int] = range(17)
    ) -> NDArray[np.float64]:
        """The share of graphs that are right by the labels, and stay right under any ``r`` edge flips, for each of the radii."""
        members, known = self._judged(graphs, labels)
        return certified_accuracy(self.certify(members), known, radii)

    def report(
        self,
        path: str | os.PathLike[str],
        graphs: Iterable[Any],
        labels: ArrayLike | None = None,
        *,
        name: str = UNNAMED,
    ) -> Path:
        """Certify graphs and write a report about them into the folder ``path``, beside the evidence; returns the page to open.

        ``name`` is what the report calls the graphs.
        The folder is a run folder of ``flipproof certify``: every command that takes one takes it too.
        """
        members, known = self._judged(graphs, labels)
        data = Dataset(_with_labels(members, known), class_names=map(str, self.classes_), name=name)
        self._measured(self._folder, Path(path), data, range(len(data)))
        return Path(path) / "report.html"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to the folder ``path``; of a network of your own the weights and the name of its factory."""
        self._fitted()
        target = Path(path)
        if target.exists() and not (target / _ESTIMATOR).is_file():
            raise InputError(f"{target} exists and holds no estimator (choose another name, or remove it)")
        shutil.copytree(self._folder, target, dirs_exist_ok=True)
        kept = {name: value for name, value in self.get_params().items() if name != "model"}
        fitted = {"defence": self.defence_, "edge_blind": self.edge_blind_, "classes": self.classes_.tolist()}
        trials = json.loads(self.trials_.to_json(orient="records"))
        write_json(target / _ESTIMATOR, {"parameters": kept, **fitted, "trials": trials})

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, model: Callable[..., Any] | None = None) -> Self:
        """What :meth:`save` wrote to the folder ``path``.

        ``model`` is the factory of your own network, where it cannot be imported by its name.
        """
        import pandas

        try:
            stored = json.loads((Path(path) / _ESTIMATOR).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{path} holds no estimator that save wrote (give the folder's name)") from error
        radius = stored["parameters"].pop("radius")
        made = cls(radius=tuple(radius) if isinstance(radius, list) else radius, model=model, **stored["parameters"])
        made.classes_, made.trials_ = np.array(stored["classes"]), pandas.DataFrame(stored["trials"])
        made.defence_, made.edge_blind_ = stored["defence"], stored["edge_blind"]
        shutil.copytree(path, made._new_folder(), dirs_exist_ok=True)
        made.classifier_ = tuning.classifiers_in(made._folder, model)[tuning.MODEL]
        return made

    @property
    def _question(self) -> dict[str, Any]:
        return {"samples": self.samples, "alpha": self.alpha, "seed": self.seed, **self._threat.request}

    @property
    def _threat(self) -> Threat:
        return Threat(self.radius, self.changes)

    def _experiment(self, source: DataSource) -> Experiment:
        epochs = checked_count(self.epochs, "epochs", 1, "for instance 200")
        plain = Experiment(source, self._threat, (), ladder_of(epochs), self.features, factory=self.model)
        return replace(plain, candidates=self._candidates(plain)).prepared(quiet=not self.progress)

    def _fit(self, experiment: Experiment, folder: Path) -> tuning.Fitted:
        seconds, workers = checked_seconds(self.time), 1 if self.workers is None else self.workers
        fitted = tuning.fit(experiment, folder, seconds=seconds, workers=workers, quiet=not self.progress)
        self.trials_, self.edge_blind_ = fitted.results.table(), fitted.results.line.score
        self.defence_ = fitted.finals[0].candidate.title
        self.classifier_ = tuning.classifiers_in(folder, self.model)[tuning.MODEL]
        return fitted

    def _measured(
        self, folder: Path, out: Path, data: Dataset, indices: Sequence[int], split_seed: int = 0
    ) -> dict[str, Any]:
        """Certify graphs with what is in the folder, into a run folder with a report; what they say, as plain JSON."""
        from flipproof.report.reading import read_run
        from flipproof.report.report_page import write_report

        graphs, threat, quiet = {index: data[index] for index in indices}, self._threat, not self.progress
        loaded = load_model(str(folder / tuning.MODEL), self.model)
        classifiers = tuning.classifiers_in(folder, self.model)
        model, count = classifiers.pop(tuning.MODEL), cores() if self.workers == 0 else self.workers or 1
        request = from_plain(model.defence.request, {**self._question, "graphs": len(indices)})
        answers = {
            role: {index: line.predict(graph) for index, graph in graphs.items()} for role, line in classifiers.items()
        }
        right = {role: sum(graphs[i].label == answer for i, answer in own.items()) for role, own in answers.items()}
        stated: dict[str, Any] = {"split_seed": split_seed, "model": loaded.name, "model_sha256": loaded.identity}
        with certified_run(out, model, request, data, graphs, features=loaded.features(None), **stated) as held:
            rows = certify_into(
                held,
                model,
                graphs,
                engine=lambda pieces: model.engine(1 if pieces < _TINY else count, quiet=quiet),
                quiet=quiet,
            )
            certified = ((request.read(evidence), graphs[index]) for index, evidence in read_evidence(held))
            withstood = sum(threat.right(model, *pair) for pair in certified)
            radii = right_radii(*rows.columns("radius", "predicted", "label").values())
            blind = right.get(tuning.BLIND, int((radii >= 0).sum()))  # handed over itself where there is no other
            if line := answers.get(tuning.BLIND):
                keep_line(held, Line({index: answer for index, answer in line.items() if answer is not None}))
        shown, total = sorted({*RADII, threat.number}), len(rows)
        accuracy = dict(zip(map(str, shown), shares(radii, shown).tolist(), strict=True))
        write_report(out, [read_run(out, folder.resolve().name)])
        return {
            "accuracy": accuracy["0"],
            "certified_accuracy": accuracy,
            "target": threat.words,
            "withstood": withstood / total,
            "interval": [float(end) for end in share_interval(withstood, total)],
            "edge_blind": blind / total,
            "undefended": right[tuning.CLEAN] / total,
            "test_graphs": total,
        }

    def _candidates(self, experiment: Experiment) -> tuple[Candidate, ...]:
        kinds = compared_defences()
        if self.defence is not None:
            name = str(self.defence).split(" ", 1)[0]
            if name not in [kind.name for kind in kinds]:
                known = ", ".join(kind.name for kind in kinds)
                raise InputError(f"defence must be one of {known}; got {self.defence!r} (None tries them all)")
            if name != self.defence:
                return (named_candidate(self.defence),)
            kinds = [kind for kind in kinds if kind.name == name]
        if self.model is not None:
            if not callable(self.model):
                raise InputError(f"model must be a function that returns a PyG module; got {self.model!r} (or None)")
            kinds = [kind for kind in kinds if kind.network is None]
            if not kinds:
                raise InputError(f"defence {self.defence} brings its own network (leave model or defence out)")
        train = experiment.parts.train
        return tuple(Candidate(kind, one) for kind in kinds for one in kind.candidates(train, experiment.threat))

    def _judged(self, graphs: Iterable[Any], labels: ArrayLike | None) -> tuple[list[Graph], NDArray[np.int64]]:
        """Graphs, and the positions of their labels in ``classes_``."""
        self._fitted()
        members = as_graphs(graphs)
        known = _labels(members, labels)
        places = {label: place for place, label in enumerate(self.classes_.tolist())}
        for label in known.tolist():
            if label not in places:
                raise InputError(
                    f"labels must be among those of fit, {self.classes_.tolist()}; got {label!r} (correct it)"
                )
        return members, np.array([places[label] for label in known.tolist()], dtype=np.int64)

    def _fitted(self) -> DefendedClassifier:
        classifier: DefendedClassifier | None = getattr(self, "classifier_", None)
        if classifier is None:
            raise NotFittedError("this RobustGraphClassifier is not fitted yet (call fit with graphs and labels first)")
        return classifier


def explain(classifier: Any, graph: Any, *, seed: int | None = None) -> Certificate:
    """The certificate of a graph, with the pairs whose flips would hurt its answer most as ``certificate.weakest``.

    Where the truth is known (exhaustive and priced votes, local networks), ``weakest.succeeds`` says whether these flips change
    the answer; from sampled votes they are the pairs whose flips go with the smallest lead.

    Args:
        classifier: A defended classifier or a :class:`flipproof.RobustGraphClassifier`, certified with its defaults.
        graph: A graph in any form that the library accepts.
        seed: Seed of the noise, where the defence has any; ``None`` for a fresh one.
    """
    certificate: Certificate = classifier.explain(graph, seed=seed)
    return certificate


def load(
    path: str | os.PathLike[str], *, model: Callable[..., Any] | None = None
) -> RobustGraphClassifier | DefendedClassifier:
    """The classifier in a folder, ready to use, whatever its defence.

    Args:
        path: A folder that ``flipproof train`` or ``protect`` wrote, or ``save`` of any of flipproof's classifiers.
        model: The factory of a network of your own, where it cannot be imported by its name.
    """
    folder = Path(path)
    if (folder / _ESTIMATOR).is_file():
        return RobustGraphClassifier.load(folder, model=model)
    protected = (folder / _SUMMARY).is_file()
    return DefendedClassifier.load(folder / tuning.MODEL if protected else folder, model=model)


def _labels(graphs: Sequence[Graph], labels: ArrayLike | None) -> NDArray[Any]:
    if labels is None:
        missing = next((place for place, graph in enumerate(graphs) if graph.label is None), None)
        if missing is not None:
            raise InputError(f"every graph needs a label; graph {missing} has none (pass labels, one per graph)")
        return np.array([graph.label for graph in graphs])
    known = np.asarray(labels)
    if known.shape != (len(graphs),):
        raise InputError(
            f"labels must be one per graph, {len(graphs)} in all; got shape {known.shape} (check graphs and labels)"
        )
    return known


def _with_labels(graphs: Sequence[Graph], labels: NDArray[np.int64]) -> list[Graph]:
    return [graph.replaced(label=int(label)) for graph, label in zip(graphs, labels, strict=True)]


# ---- flipproof protect -------------------------------------------------------------------------------------------------


def protect(robust: RobustGraphClassifier, source: DataSource, folder: Path) -> Choice:
    """Fit an estimator to all but the test graphs of a data set, then certify the test graphs, and report."""
    experiment = robust._experiment(source)
    parts, threat = experiment.parts, robust._threat
    sizes = map(len, (parts.train, parts.validation, parts.test))
    said = "{} graphs to train on, {} to choose with, {} kept for the end".format(*sizes)
    note(said, quiet=not robust.progress)
    fitted = robust._fit(experiment, folder)
    tested = tuning.final_source(experiment).split(parts.dataset).test_indices.tolist()
    measured = robust._measured(folder, folder / "run", parts.dataset, tested, source.split_seed)
    final, best, line, model = fitted.finals[0], fitted.results.chosen, fitted.results.line, folder / tuning.MODEL
    chosen = final.candidate
    summary: dict[str, Any] = {
        "defence": chosen.defence.name,
        "settings": {**chosen.settings, **chosen.recipe, **final.training},
        **measured,
        "validation": {"graphs": len(best.graphs), "chosen": best.score, "edge_blind": line.score},
        "trials": [result.summary() for result in fitted.results.all],
        "model": str(model),
        "run": str(folder / "run"),
        "report": str(folder / "run" / "report.html"),
        "predict": f'flipproof.load("{model}").certify(graph)',
        "predict_command": f"{typed_command('predict', {'model': model})} FILE...",
    }
    write_json(folder / _SUMMARY, summary)
    words = rendered("protection.txt", **summary, title=chosen.title, blind=chosen.defence.edge_blind, line=threat.line)
    total, keys = summary["test_graphs"], ("accuracy", "withstood", "edge_blind", "undefended")
    accuracy, withstood, blind, clean = (shown_share(summary[key] * total, total) for key in keys)
    table = [
        ["classifier", "not attacked", summary["target"]],
        *([] if chosen.defence.edge_blind else [[chosen.title, accuracy, withstood]]),
        [threat.line, blind, blind],
        ["without a defence", clean, clean if threat == Threat(0) else "not known"],
    ]
    return Choice(summary, table, [" ".join(words.split())])
