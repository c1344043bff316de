"""The line to beat: a network that ignores edges, from a folder or fitted to the graphs that the model was trained on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from flipproof.cli.defending import ChosenData, blindness, defend, refuse_other_classes, warn_of_training_graphs
from flipproof.datasets import Dataset
from flipproof.datasets.sources import fingerprint, model_data
from flipproof.datasets.splits import drawn
from flipproof.defences.defence import DefendedClassifier
from flipproof.errors import InputError
from flipproof.models.loading import LoadedModel, load_model
from flipproof.progress import note
from flipproof.runs.certifying import Line
from flipproof.studies.search_space import fit_edge_blind

FIT, NONE = "fit", "none"
MOST_GRAPHS = 5_000
"""Training graphs that are learned from unless ``fit`` is given."""

_fitted: dict[str, DefendedClassifier] = {}  # the last one, by what it was fitted to


class LineToBeat:
    """What certificates are to be compared with: a network that ignores edges, and the most frequent class.

    By default the network is fitted to the training graphs, or to a part of very many; where that cannot be, the line says why.
    What can be refused is refused here, before any work.

    Args:
        order: ``fit``, ``none``, a folder of ``train --model edge-blind``, or ``None``.
        loaded: The model that is certified.
        chosen: The graphs.
        trust_features: Accept node features that look as if computed from the clean edges.
        quiet: Say nothing.
    """

    def __init__(
        self, order: str | None, loaded: LoadedModel, chosen: ChosenData, *, trust_features: bool, quiet: bool
    ) -> None:
        self._order, self._chosen, self._trusts, self._quiet = order, chosen, trust_features, quiet
        self._missing = ""
        self._blind: DefendedClassifier | None = None
        self._known: Dataset | None = None
        try:
            self._known = training_graphs(loaded, chosen)
        except InputError as error:
            self._missing = self._unless_ordered(error)
        if order not in (None, FIT, NONE):
            self._blind = edge_blind_model(order, loaded, chosen, trust_features=trust_features, quiet=quiet)

    def line(self, stored: Line | None) -> Line:
        """The line; one that was fitted before for the same run is not fitted again."""
        if stored is not None and stored.learned_from is not None:
            whole = stored.learned_from == stored.training_graphs
            if self._order is None or (self._order == FIT and whole):
                return stored
        train = self._chosen.source.split(self._chosen.dataset).train if self._known is None else self._known
        unfitted = Line(missing=self._missing, majority=_most_frequent(train))
        if self._order == NONE:
            return replace(unfitted, missing="--edge-blind none was given (leave it out to compare)")
        if self._blind is not None:
            return replace(unfitted, missing="", answers=_answers(self._blind, self._chosen))
        if self._known is None:
            return unfitted
        learned = self._learned(self._known)
        try:
            answers = _answers(_fitted_line(learned, self._chosen, trust_features=self._trusts), self._chosen)
        except InputError as error:
            return replace(unfitted, missing=self._unless_ordered(error))
        return replace(unfitted, answers=answers, learned_from=len(learned), training_graphs=len(self._known))

    def _unless_ordered(self, error: InputError) -> str:
        """Why there is no line; refused where it was ordered."""
        if self._order == FIT:
            raise InputError(f"--edge-blind fit is not possible: {error}") from error
        return str(error)

    def _learned(self, known: Dataset) -> Dataset:
        """All training graphs if that was ordered, else as many as can be fitted in seconds."""
        if self._order == FIT or len(known) <= MOST_GRAPHS:
            return known
        note(
            f"the line to beat learns from {MOST_GRAPHS:,} of {len(known):,} training graphs, drawn with every class in "
            "proportion (--edge-blind fit takes all)",
            quiet=self._quiet,
        )
        return known.subset(drawn(known, MOST_GRAPHS))


def edge_blind_model(
    name: str, loaded: LoadedModel, chosen: ChosenData, *, trust_features: bool, quiet: bool
) -> DefendedClassifier:
    """A model that sees no edges, from a folder of ``train --model edge-blind``, or fitted now."""
    if name == FIT:
        return _fitted_line(training_graphs(loaded, chosen), chosen, trust_features=trust_features)
    blind = load_model(name)
    if blind.saved is None or not getattr(blind.model, "edge_blind", False):
        raise InputError(
            f"--edge-blind must be a folder of train --model edge-blind; it holds {blind.name} (train one, or give fit)"
        )
    refuse_other_classes(blind, chosen.dataset, "--edge-blind")
    warn_of_training_graphs(blind, chosen, quiet=quiet)
    return defend(blind, blindness(), blind.model.num_classes)


def training_graphs(loaded: LoadedModel, chosen: ChosenData) -> Dataset:
    """The graphs that the model was trained on, with its validation graphs, or those that the split keeps for training.

    Refuses where they cannot be read, and where graphs to be certified are among them.
    """
    stored = loaded.metadata.get("data_sha256")
    if stored in (None, chosen.fingerprint):
        parts, certified = chosen.source.split(chosen.dataset), chosen.graphs.keys()
        if certified & set(parts.train_indices.tolist()):
            raise InputError(
                "the graphs asked about are among those that it would learn from (leave --part out, or give --edge-blind with a "
                "folder of train --model edge-blind)"
            )
        apart = {*parts.test_indices.tolist(), *certified}
    else:
        unchanged: dict[str, Any] = dict.fromkeys(("data", "root", "data_seed", "split_seed"))
        try:
            source, data = model_data(loaded.metadata, **unchanged, download=False)
        except (InputError, OSError) as error:
            raise InputError(
                f"the graphs that the model was trained on cannot be read: {error} (give --edge-blind with a folder of train "
                "--model edge-blind)"
            ) from error
        parts = source.split(data)
        apart = set(parts.test_indices.tolist())
    return parts.dataset.subset(index for index in range(len(parts.dataset)) if index not in apart)


def _fitted_line(learned: Dataset, chosen: ChosenData, *, trust_features: bool) -> DefendedClassifier:
    """The strong line, fitted to these graphs; once per process to the same ones."""
    key = fingerprint(learned)
    if key not in _fitted:
        model, _ = fit_edge_blind(learned, features=None)
        _fitted.clear()
        _fitted[key] = DefendedClassifier(model, blindness())
    if not trust_features:
        _fitted[key].guard.check_features(chosen.dataset.subset(chosen.graphs))
    return _fitted[key]


def _answers(blind: DefendedClassifier, chosen: ChosenData) -> dict[int, int]:
    """A network that ignores edges never abstains."""
    return {index: int(blind.predict(graph)) for index, graph in chosen.graphs.items()}  # type: ignore[arg-type]


def _most_frequent(graphs: Dataset) -> int | None:
    """The most frequent class, if all labels are known."""
    try:
        return int(np.bincount(graphs.labels).argmax()) if len(graphs) else None
    except InputError:
        return None
