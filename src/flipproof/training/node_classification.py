"""The task of a network that classifies single nodes: one graph, learnt from as a whole under fresh noise in every step."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from flipproof.classifiers.features import as_features
from flipproof.datasets.node_task import NodeSplit, NodeTask, split_nodes
from flipproof.errors import InputError
from flipproof.graphs import IntArray
from flipproof.noise import EdgeNoise, FeatureNoise, SampleStream
from flipproof.noise.law import key_of
from flipproof.training.batches import digest
from flipproof.training.loop import Lesson, Outcome, Task, TrainingResult, fit

_VALIDATION_COPIES = 4


class NodeClassification(Task):
    """Training a network on the labelled nodes of one graph."""

    what = "node"

    def __init__(
        self,
        lesson: Lesson,
        task: NodeTask,
        split: NodeSplit,
        noise: EdgeNoise | None,
        feature_noise: FeatureNoise | None,
    ) -> None:
        model, features = lesson.model, lesson.features
        parameters = inspect.signature(model.forward).parameters
        if "edge_index" not in list(parameters)[1:2]:
            raise InputError(
                "a model for nodes must have forward(x, edge_index) or forward(x, edge_index, batch); "
                f"{type(model).__name__} takes ({', '.join(parameters)}) (train trains a model for graphs)"
            )
        own = task.graph.node_features is not None
        self.model, self.chosen = model, lesson.chosen
        self.features = as_features(features or ("own" if own else "degree"))
        self.task, self.split, self._with_batch = task, split, "batch" in parameters
        self.sizes = torch.tensor([task.graph.num_nodes])  # a graph is one step
        self.held_out = split.validation if len(split.validation) else None
        self.noise, self.feature_noise = noise or EdgeNoise(add=0, remove=0), feature_noise
        self.labels = torch.from_numpy(task.labels.copy())
        self.highest_label = int(self.labels.max())
        self._own = torch.from_numpy(np.asarray(task.graph.node_features, dtype=np.float32).copy()) if own else None
        # our own network adds up rows of weights where the features are binary
        binary = self._own is not None and bool(((self._own == 0) | (self._own == 1)).all())
        self._sums_rows = hasattr(model, "first_of") and binary and self.features.spec == "own"
        self._ones = np.flatnonzero(task.graph.node_features) if self._sums_rows else None  # type: ignore[arg-type]
        self._streams = {purpose: self._drawn(purpose) for purpose in ("training", "validation")}
        self.entries = task.graph.num_nodes * max(1, 0 if self._own is None else self._own.shape[1])
        edges = None if noise is None else [noise.p_add, noise.p_remove]
        self.settings = {"task": "nodes", "noise": edges, "feature_noise": feature_noise and feature_noise.plain()}

    def _drawn(self, purpose: str) -> Any:
        """Noise that is independent of that of certificates."""
        key = key_of(f"flipproof {purpose} of nodes {self.chosen.seed}".encode())
        seed, graph = int.from_bytes(key[:8], "little") >> 1, self.task.graph
        noisy = None if self.feature_noise is None else self.feature_noise.stream(graph, seed=seed)
        return SampleStream(graph, self.noise, seed=seed), noisy

    def fingerprint(self) -> dict[str, Any]:
        graph, own = self.task.graph, self._own
        parts = {name: torch.from_numpy(getattr(self.split, name)) for name in ("train", "validation")}
        content = {"labels": self.labels, **parts} | ({} if own is None else {"features": own})
        return {"features": self.features.spec or "a function", "graph": graph.topology, "nodes": digest(content)}

    def losses(self, members: Tensor, step: int) -> Iterator[Outcome]:
        copies = self.chosen.copies
        for copy in range(copies):
            loss, right = self._outcome("training", step * copies + copy, self.split.train)
            yield Outcome(loss / copies, right / copies, 1)

    def validation(self) -> Iterator[Outcome]:
        for copy in range(_VALIDATION_COPIES):
            yield Outcome(*self._outcome("validation", copy, self.split.validation), 1)

    def _outcome(self, purpose: str, index: int, nodes: Any) -> tuple[Tensor, float]:
        """Loss and share of right answers on these nodes of one noisy copy."""
        logits = self.checked(self._logits(purpose, index), len(self.labels))
        chosen = torch.from_numpy(nodes)
        labels = self.labels[chosen].to(logits.device)
        right = (logits[chosen].argmax(dim=1) == labels).float().mean()
        return nn.functional.cross_entropy(logits[chosen], labels), float(right)

    def _logits(self, purpose: str, index: int) -> Any:
        nodes, own = self.task.graph.num_nodes, self._own
        edge_index, ones = self._seen[index] if purpose == "validation" else self._copy(purpose, index)
        if self._sums_rows:
            return self.model.after_first(self.model.first_of(self._ones if ones is None else ones, nodes), edge_index)
        if ones is not None:
            assert own is not None
            own = torch.zeros(own.numel()).index_fill_(0, torch.from_numpy(ones), 1).view_as(own)
        batch = torch.zeros(nodes, dtype=torch.int64)
        device = next((weight.device for weight in self.model.parameters()), torch.device("cpu"))
        x = self.features.sparse(edge_index, batch, own).to(device)
        x, edge_index, batch = (x.float() if x.is_floating_point() else x), edge_index.to(device), batch.to(device)
        return self.model(x, edge_index, batch=batch) if self._with_batch else self.model(x, edge_index)

    def _copy(self, purpose: str, index: int) -> tuple[Tensor, IntArray | None]:
        """The edges of a noisy copy, and the cells of its features that are 1, if those are under noise."""
        stream, noisy = self._streams[purpose]
        edge_index = torch.from_numpy(np.ascontiguousarray(stream.batch(index, index + 1)[0].edge_index()[0]))
        return edge_index, None if noisy is None else noisy.ones(noisy.batch(index, index + 1)[0], 1)[0]

    @cached_property
    def _seen(self) -> list[tuple[Tensor, IntArray | None]]:
        """The copies that every epoch is judged on."""
        return [self._copy("validation", index) for index in range(_VALIDATION_COPIES)]


def train_nodes(
    model: nn.Module,
    task: NodeTask,
    *,
    split: NodeSplit | None = None,
    noise: EdgeNoise | None = None,
    feature_noise: FeatureNoise | None = None,
    features: Any = None,
    epochs: int = 200,
    learning_rate: float = 0.01,
    weight_decay: float = 1e-3,
    copies: int = 1,
    average: float = 0.0,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | Callable[[int, int], None] = False,
) -> TrainingResult:
    """Train a model that classifies nodes in place with AdamW, under fresh noise in every epoch; then it is in evaluation mode.

    Args:
        model: A torch module ``forward(x, edge_index)`` or ``forward(x, edge_index, batch)`` with a row of logits per node.
        task: The graph and its nodes' classes.
        split: The nodes to learn from, and those whose smallest loss chooses the epoch; by default ``split_nodes(task)``.
        noise: Noise on edges; ``None`` for none.
        feature_noise: Noise on the graph's own node features; ``None`` for none.
        features: As for :class:`flipproof.SmoothedClassifier`; computed on the noisy graph.
        epochs: Steps; each sees the whole graph.
        learning_rate: The highest rate.
        copies: Noisy copies per step.
        weight_decay, average, seed, checkpoint, progress: As for :func:`flipproof.train`, which is as repeatable.
    """
    if not isinstance(task, NodeTask):
        raise InputError(f"task must be a NodeTask; got {type(task).__name__} (datasets.citation reads one)")
    lesson = Lesson.of({**locals(), "graphs": [task.graph], "validation": None})
    parts = split_nodes(task) if split is None else split
    learnt = NodeClassification(lesson, task, parts, noise, feature_noise)
    return fit(learnt, checkpoint=checkpoint, progress=progress)
