"""The usual task: a network that classifies whole graphs, seen through a view.

Node features are computed after the view has changed the edges, exactly as under the defence that will ask the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from flipproof.classifiers.features import as_features
from flipproof.classifiers.torch_module import (
    EdgeFeatures,
    convention_of,
    data_batch,
    edge_argument,
    logit_per_class,
    made_edge_features,
)
from flipproof.errors import InputError
from flipproof.noise import keyed_draws
from flipproof.training.batches import Draws, LabelledGraphs, Padded, View, shuffled
from flipproof.training.loop import Hyperparameters, Outcome
from flipproof.training.objectives import (
    OBJECTIVES,
    Flips,
    attack_counts,
    averaged_loss,
    disagreement,
    exclusive_or,
    flip_counted,
)

_VALIDATION_BATCH = 256  # copies of validation graphs at a time
_ATTACK = 2  # flips of the objectives with an attack where no other number is given


class GraphClassification:
    """Training a network on labelled graphs; a :class:`flipproof.training.loop.Task`."""

    def __init__(
        self,
        model: nn.Module,
        graphs: Iterable[Any],
        *,
        view: View,
        features: Any,
        validation: Iterable[Any] | None,
        chosen: Hyperparameters,
        edge_features: EdgeFeatures | None = None,
        flips: Flips | None = None,
    ) -> None:
        self.model, self.view, self.chosen, self.flips = model, view, chosen, flips
        self.objective = OBJECTIVES[chosen.objective]
        if self.objective.needs_noise and (chosen.copies < 2 or not view.noisy):
            raise InputError(
                f"the {chosen.objective} objective needs several noisy copies; got copies={chosen.copies} "
                f"{'with' if view.noisy else 'without'} noise (pass noise and copies=64)"
            )
        self.graphs = LabelledGraphs(graphs, "graphs")
        default = "own" if self.graphs.has_own else "degree"  # as a defence will ask it
        self.features = as_features(default if features is None else features)
        if getattr(model, "edge_blind", False) and self.features.reads_edges:
            raise InputError(
                f"an edge-blind model needs features that do not depend on edges; got {self.features.spec or 'a function'} "
                '(pass features=None for the graphs\' own, or features="constant")'
            )
        self.held_out = None if validation is None else LabelledGraphs(validation, "validation")
        self.highest_label = max(int(part.labels.max()) for part in (self.graphs, self.held_out) if part is not None)
        self.edge_features = edge_features
        self.convention = convention_of(model, extra=() if edge_features is None else ("edge_attr", "edge_weight"))
        self.device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
        # a loss that is a mean over graphs is that of the pieces together; batch statistics and class weights see pieces
        statistics = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in model.modules())
        self._by_size = not statistics and not chosen.class_weights
        self.class_weight = _balanced(self.graphs.labels).to(self.device) if chosen.class_weights else None

    def __len__(self) -> int:
        return len(self.graphs)

    @property
    def entries(self) -> int:
        return self.chosen.copies * self.graphs.entries(self.chosen.batch_size)

    @property
    def settings(self) -> dict[str, Any]:
        against = {} if self.flips is None else {"flips": self.flips.count, "worst_of": self.flips.worst_of}
        return {"noise": None, "groups": None, "renumber": False} | self.view.description() | against

    def fingerprint(self) -> dict[str, Any]:
        return {
            "features": self.features.spec or "a function",
            "graphs": self.graphs.digest(),
            "validation": None if self.held_out is None else self.held_out.digest(),
        }

    def batches(self, epoch: int) -> Iterator[Tensor]:
        return shuffled(self.graphs.sizes, self.chosen.batch_size, seed=self.chosen.seed, epoch=epoch)

    def losses(self, members: Tensor, step: int) -> Iterator[Outcome]:
        copies = self.chosen.copies
        for piece, part in enumerate(self.graphs.cut(members, copies, by_size=self._by_size)):
            batch = self.graphs.padded(part)
            draws = self._draws(f"training {piece}", step)
            adjacency = self.view.adjacency(batch, copies, draws)
            if self.objective.attacked:
                adjacency = self._attacked(self.flips or Flips(_ATTACK), batch, adjacency, draws)
            elif self.flips is not None:
                adjacency = self._worst(self.flips, batch, adjacency, self.view.room(batch, copies, draws), draws)
            logits = self._logits(batch, adjacency, copies)
            yield self._outcome(logits, batch.labels, self.chosen.label_smoothing, self.chosen.consistency)

    def validation(self) -> Iterator[Outcome] | None:
        return None if self.held_out is None else self._validated(self.held_out)

    def finish(self) -> None:
        """Nothing is left to do."""

    def _validated(self, held_out: LabelledGraphs) -> Iterator[Outcome]:
        copies = self.view.validation_copies(self.chosen.copies)
        together = max(1, max(_VALIDATION_BATCH, self.chosen.batch_size) // copies)
        members = torch.split(torch.arange(len(held_out)), together)
        for index, part in enumerate(part for some in members for part in held_out.cut(some, copies)):
            batch = held_out.padded(part)
            draws = self._draws("validation", index)
            adjacency = self.view.adjacency(batch, copies, draws, validation=True)
            if self.flips is not None and not self.objective.attacked:
                room = self.view.room(batch, copies, draws, validation=True)
                adjacency = self._worst(self.flips, batch, adjacency, room, draws)
            yield self._outcome(self._logits(batch, adjacency, copies), batch.labels)

    def _worst(self, flips: Flips, batch: Padded, adjacency: Tensor, room: Tensor, draws: Draws) -> Tensor:
        """Of the variants of each matrix the one with the highest loss, ``[copies * B, n, n]``."""
        copies = len(adjacency) // len(batch.labels)
        labels = batch.labels.to(self.device).repeat(copies)

        def losses(matrices: Tensor) -> Tensor:
            logits = self._logits(batch, matrices, copies).flatten(0, 1)
            return nn.functional.cross_entropy(logits, labels, reduction="none")

        with _in_evaluation(self.model):  # variants differ by their flips and not by dropout
            leaf, slopes = adjacency.clone(), None
            with torch.set_grad_enabled(self.convention == "dense"):
                highest = losses(leaf.requires_grad_(self.convention == "dense"))
                if highest.requires_grad:
                    (slopes,) = torch.autograd.grad(highest.sum(), leaf, allow_unused=True)
            worst, highest = adjacency, highest.detach()
            for variant in flips.variants(adjacency, room, draws, slopes):
                with torch.no_grad():
                    loss = losses(variant)
                higher = loss > highest
                worst = torch.where(higher.view(-1, 1, 1).to(worst.device), variant, worst)
                highest = torch.where(higher, loss, highest)
        return worst

    def _attacked(self, flips: Flips, batch: Padded, adjacency: Tensor, draws: Draws) -> Tensor:
        """The noisy copies of each graph after an attack on the graph itself, of at most so many flips.

        The noise is that of the copies as they are: a pair that the attack flips is flipped in every copy. A random number of
        pairs is taken, those along which the loss of the averaged answer rises most; without slopes, the worst of random sets.
        """
        size = len(batch.labels)
        copies = len(adjacency) // size
        labels = batch.labels.to(self.device)
        room = self.view.room(batch, 1, draws)
        noise = (adjacency.view(copies, size, *adjacency.shape[1:]) - batch.adjacency).abs()
        counts = attack_counts(draws, size, flips.count)

        def noisy(graphs: Tensor) -> Tensor:
            return exclusive_or(graphs, noise).flatten(0, 1)

        def loss(graphs: Tensor) -> Tensor:
            return averaged_loss(self._logits(batch, noisy(graphs), copies), labels)

        with _in_evaluation(self.model):
            clean, slopes = batch.adjacency.clone(), None
            if self.convention == "dense":
                with torch.enable_grad():
                    (slopes,) = torch.autograd.grad(loss(clean.requires_grad_()).sum(), clean, allow_unused=True)
            if slopes is not None:
                rise = (slopes + slopes.mT) * (1 - 2 * batch.adjacency)
                return noisy(flip_counted(batch.adjacency, rise, room, counts))
            worst, highest = batch.adjacency, torch.full((size,), -torch.inf)
            for number in range(flips.worst_of - 1):
                scores = torch.from_numpy(draws(f"attack {number}", tuple(worst.shape)).astype(np.float64))
                variant = flip_counted(batch.adjacency, scores, room, counts)
                with torch.no_grad():
                    reached = loss(variant).cpu()
                higher = (reached > highest).view(-1, 1, 1)
                worst, highest = torch.where(higher, variant, worst), torch.maximum(reached, highest)
        return noisy(worst)

    def _draws(self, purpose: str, index: int) -> Draws:
        return lambda what, shape: keyed_draws(f"{purpose} {what}", self.chosen.seed, index, shape)

    def _outcome(
        self, logits: Tensor, labels: Tensor, label_smoothing: float = 0.0, consistency: float = 0.0
    ) -> Outcome:
        labels = labels.to(self.device)
        cross_entropy = partial(nn.functional.cross_entropy, weight=self.class_weight, label_smoothing=label_smoothing)
        loss = self.objective.loss(logits, labels, cross_entropy)
        if consistency:
            loss = loss + consistency * disagreement(logits)
        return Outcome(loss, int((logits.argmax(dim=2) == labels).sum()) / len(logits), len(labels))

    def _logits(self, batch: Padded, adjacency: Tensor, copies: int) -> Tensor:
        """The model's answers, ``[copies, B, C]``."""
        mask = batch.mask.repeat(copies, 1)
        own = None if batch.own is None else batch.own.repeat(copies, 1, 1)
        x = self.features.dense(adjacency, mask, own)
        x = x.to(torch.float32) if x.is_floating_point() else x
        logits = _answer(
            self.model, self.convention, self.edge_features, *(part.to(self.device) for part in (x, adjacency, mask))
        )
        logits = logit_per_class(logits, len(mask), max(2, self.highest_label + 1))
        if logits.ndim != 2 or len(logits) != len(mask):
            raise InputError(
                f"the model must return logits [{len(mask)}, num_classes]; got shape {tuple(logits.shape)} "
                "(one row per graph)"
            )
        if logits.shape[1] <= self.highest_label:
            raise InputError(
                f"the model must have a class for every label; got {logits.shape[1]} classes and label "
                f"{self.highest_label} (build it with num_classes={self.highest_label + 1})"
            )
        return logits.view(copies, len(batch.labels), -1)


@contextmanager
def _in_evaluation(model: nn.Module) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _answer(
    model: nn.Module,
    convention: str,
    edge_features: EdgeFeatures | None,
    x: Tensor,
    adjacency: Tensor,
    mask: Tensor,
) -> Tensor:
    """The logits of a padded batch; for PyG's conventions, of the nodes that exist and edges in canonical order."""
    logits: Tensor
    if convention == "dense":
        logits = model(x, adjacency, mask)
        return logits
    number = torch.cumsum(mask.flatten(), 0).view(mask.shape) - 1
    graph, u, v = adjacency.nonzero(as_tuple=True)
    edge_index = torch.stack([number[graph, u], number[graph, v]])
    batch = torch.repeat_interleave(torch.arange(len(mask), device=mask.device), mask.sum(dim=1))
    if convention == "data":
        logits = model(data_batch(x[mask], edge_index, batch, edge_features))
    elif edge_features is not None:
        edges = {edge_argument(model): made_edge_features(edge_features, x[mask], edge_index)}
        logits = model(x[mask], edge_index, batch=batch, **edges)
    else:
        logits = model(x[mask], edge_index, batch)
    return logits


def _balanced(labels: Tensor) -> Tensor:
    """Weights under which every class that occurs counts alike."""
    counts = torch.bincount(labels).to(torch.float32)
    return torch.where(counts > 0, len(labels) / ((counts > 0).sum() * counts.clamp_min(1)), 0)
