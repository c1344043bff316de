"""Learning classes from numbers of nodes and edges alone: at once, without steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from flipproof.checks import checked_budget
from flipproof.graphs import Graph, as_graphs
from flipproof.training.batches import LabelledGraphs
from flipproof.training.certified import check_labels, check_local
from flipproof.training.loop import Epoch, Hyperparameters, TrainingResult

__all__ = ["learn_counts"]


def learn_counts(
    model: Any,
    graphs: Iterable[Any],
    *,
    budget: int | Sequence[int],
    validation: Iterable[Any] | None,
    chosen: Hyperparameters,
    progress: bool | Callable[[int, int], None] = False,
) -> TrainingResult:
    """Let a local network read numbers of nodes and edges alone, and fill its table; see :func:`flipproof.train`.

    Its one epoch tells the share of graphs that are wrong, as loss, and that of those that are right.
    """
    started = time.perf_counter()
    check_local(model)
    most = checked_budget(budget)
    members = as_graphs(graphs)
    labels = _labels(members, "graphs", model)
    kept = None if validation is None else as_graphs(validation)
    told = None if kept is None else _labels(kept, "validation", model)
    if not model.counts_only:
        model.read_counts_only()
    weights = np.ones(model.num_classes)
    if chosen.class_weights:
        weights = 1 / np.maximum(1, np.bincount(labels, minlength=model.num_classes))
    flips = most[0] if isinstance(budget, int) else sum(most)
    model.table.learn(*_counts(members), labels, weights, flips, most)
    model.for_budget(flips, trained=True)
    model.eval()
    right = _right(model, members, labels, flips)
    held_out = None if kept is None or told is None else _right(model, kept, told, flips)
    epoch = Epoch(1 - right, right, None if held_out is None else 1 - held_out, held_out)
    if callable(progress):
        progress(chosen.epochs, chosen.epochs)
    settings = {"budget": budget if isinstance(budget, int) else list(most), "class_weights": chosen.class_weights}
    return TrainingResult((epoch,), 0, time.perf_counter() - started, settings)


def _labels(graphs: Sequence[Graph], name: str, model: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    labelled = LabelledGraphs(graphs, name)
    check_labels(labelled, model)
    return np.asarray(labelled.labels.numpy(), dtype=np.int64)


def _counts(graphs: Sequence[Graph]) -> tuple[Any, Any]:
    """Numbers of nodes, and of edges."""
    found = np.array([(graph.num_nodes, graph.num_edges) for graph in graphs], dtype=np.int64).T
    return found[0], found[1]


def _right(model: Any, graphs: Sequence[Graph], labels: Any, flips: int) -> float:
    """Share of the graphs whose class the table has."""
    sizes, edges = map(torch.from_numpy, _counts(graphs))
    found = model.table(sizes, edges, torch.full_like(sizes, flips)).numpy()
    return math.fsum(found == labels) / len(labels)
