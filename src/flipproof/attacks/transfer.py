"""Attacks made on one model, tried on others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from flipproof.attacks.attack_result import AttackResult
from flipproof.attacks.greedy import greedy
from flipproof.attacks.search import Options
from flipproof.classifiers import Classifier
from flipproof.defences.defence import Defence
from flipproof.defences.undefended import as_defence
from flipproof.errors import InputError
from flipproof.graphs import Graph, as_graphs

__all__ = ["TransferTable", "transfer"]


@dataclass(frozen=True)
class TransferTable:
    """Row: the model that was attacked. Column: the model that the attacked graphs were shown to.

    Attributes:
        names: The models.
        fooled: Share of the graphs that the column's model answers right on when clean and wrong when attacked; ``[M, M]``.
        clean_accuracy: Share of graphs that each model answers right on when clean, ``[M]``.
        graphs: Number of graphs.
        results: The attacks on each model, one a graph.
    """

    names: tuple[str, ...]
    fooled: NDArray[np.float64]
    clean_accuracy: NDArray[np.float64]
    graphs: int
    results: dict[str, list[AttackResult]] = field(repr=False)

    def __str__(self) -> str:
        """A Markdown table."""
        rows = [("attacked on, shown to", *self.names), ("---",) * (len(self.names) + 1)]
        rows += [
            (name, *(f"{share:.2f}" for share in shares)) for name, shares in zip(self.names, self.fooled, strict=True)
        ]
        return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def transfer(
    models: Mapping[str, Any],
    graphs: Iterable[Any],
    *,
    budget: int,
    attack: Callable[..., AttackResult] = greedy,
    **options: Unpack[Options],
) -> TransferTable:
    """Attack every model on every labelled graph, and show the attacked graphs to all models.

    Where an attack did not succeed, the graph that came nearest is shown. A smoothed classifier answers by
    :meth:`flipproof.SmoothedClassifier.predict`; abstaining counts as neither right nor fooled.

    Args:
        models: Name to base or smoothed classifier. ``num_classes``, ``features`` and ``convention`` among the options are for
            the base classifiers; where these differ, pass what :func:`flipproof.classifiers.as_classifier` returns.
        graphs: With labels.
        budget: Most flips.
        attack: Which attack.
        **options: See :class:`flipproof.attacks.Options`.
    """
    given = as_graphs(graphs)
    if not models or not given:
        raise InputError(f"transfer needs at least one model and one graph; got {len(models)} and {len(given)}")
    if any(graph.label is None for graph in given):
        raise InputError("transfer needs the label of every graph; got one without (set graph.label)")
    names, truth = tuple(models), np.array([graph.label for graph in given])
    results = {
        name: [
            attack(model, graph, budget=budget, **{**_own_options(model, options), "label": graph.label})
            for graph in given
        ]
        for name, model in models.items()
    }
    clean = np.array([_answers(models[name], given, options) for name in names]) == truth
    fooled = np.zeros((len(names), len(names)))
    for row, made_on in enumerate(names):
        for column, shown_to in enumerate(names):
            answers = _answers(models[shown_to], [result.graph for result in results[made_on]], options)
            lost = clean[column] & (answers != truth) & (answers >= 0)
            fooled[row, column] = lost.mean()
    return TransferTable(names, fooled, clean.mean(axis=1), len(given), results)


def _own_options(model: Any, options: Options) -> dict[str, Any]:
    """The options that a model takes: one that knows its classes and features is not told them."""
    told = ("num_classes", "features", "convention")
    return {
        key: value for key, value in options.items() if not (isinstance(model, (Defence, Classifier)) and key in told)
    }


def _answers(model: Any, graphs: list[Graph], options: Options) -> NDArray[np.int64]:
    """The answer on each graph; -1 for abstaining."""
    told = {
        key: value
        for key, value in _own_options(model, options).items()
        if key in ("num_classes", "features", "convention")
    }
    found = [as_defence(model, **told).answer(graph, options) for graph in graphs]
    return np.array([-1 if label is None else label for label in found])
