"""The usual task: a network that classifies whole graphs, whose features are computed after a view has changed the edges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.utils import dense_to_sparse

from flipproof.checks import checked_count
from flipproof.classifiers import torch_module
from flipproof.classifiers.features import as_features, edge_free
from flipproof.errors import InputError
from flipproof.noise import FeatureNoise, keyed_draws
from flipproof.training.batches import Draws, Padded, Shown, View
from flipproof.training.loop import Lesson, Outcome, Task

CrossEntropy = Callable[..., Tensor]  # the mean loss of logits [K, C], with class weights; reduction="none": of each
_TEMPERATURE = 0.2  # of the majority: how sharply the largest share counts
_SMALLEST_SHARE = 1e-3
VARIANTS = 3  # with flips, of which training takes the worst


def _samples(logits: Tensor, labels: Tensor, cross_entropy: CrossEntropy) -> Tensor:
    return cross_entropy(logits.flatten(0, 1), labels.repeat(len(logits)))


def _majority(logits: Tensor, labels: Tensor, cross_entropy: CrossEntropy) -> Tensor:
    evidence = (logits.softmax(dim=2).mean(dim=0) + _SMALLEST_SHARE).log()
    # the second term goes on raising the share of votes where the majority is right already
    return _TEMPERATURE * cross_entropy(evidence / _TEMPERATURE, labels) + cross_entropy(evidence, labels)


def _wrong_votes(logits: Tensor, labels: Tensor, cross_entropy: CrossEntropy) -> Tensor:
    """The probability of a wrong answer on every copy. Bounded: a graph that cannot be held does not govern the training."""
    losses: Tensor = cross_entropy(logits.flatten(0, 1), labels.repeat(len(logits)), reduction="none")
    return -torch.expm1(-losses).mean()


LOSSES = {"samples": _samples, "majority": _majority, "attacked": _samples, "attacked-votes": _wrong_votes}
ATTACKED = ("attacked", "attacked-votes")  # the graph is first flipped where this hurts its averaged answer most


def variants(adjacency: Tensor, room: Tensor, draws: Draws, slopes: Tensor | None, flips: int) -> Iterator[Tensor]:
    """Variants of the matrices ``[K, n, n]`` with ``flips`` pairs flipped, as far as there is room, one after the other: along
    the gradient of the loss, or without one random pairs, by turns edges only and any (random pairs are hardly ever edges)."""
    for number in range(1, VARIANTS + 1):
        if slopes is None:
            random = torch.from_numpy(draws(f"flips {number}", tuple(adjacency.shape)).astype("float64"))
            yield flip_highest(adjacency, random, room & (adjacency > 0) if number % 2 else room, flips)
        else:
            steepest = flip_highest(adjacency, rises(slopes, adjacency), room, flips)
            room = room & (steepest == adjacency)
            yield steepest


def rises(slopes: Tensor, adjacency: Tensor) -> Tensor:
    """How steeply a loss rises along the flip of each pair, from its gradient by the matrices."""
    return (slopes + slopes.mT) * (1 - 2 * adjacency)


def flip_highest(adjacency: Tensor, scores: Tensor, room: Tensor, count: int) -> Tensor:
    """The matrices ``[K, n, n]`` with ``count`` pairs flipped, those with the highest scores ``[..., K, n, n]`` in the room."""
    n = adjacency.shape[-1]
    allowed = scores.masked_fill(~room.triu(1), -torch.inf).flatten(-2)
    best, place = allowed.topk(min(count, n * n), dim=-1)
    flipped = adjacency.expand_as(scores).flatten(-2).clone()
    for index in (place, place % n * n + place // n):
        before = flipped.gather(-1, index)
        flipped.scatter_(-1, index, torch.where(best > -torch.inf, 1 - before, before))
    return flipped.view_as(scores)


_VALIDATION_BATCH = 256  # copies of validation graphs at a time


class GraphClassification(Task):
    """Training a network on labelled graphs."""

    def __init__(self, lesson: Lesson, view: View, flips: int = 0) -> None:
        model, chosen = lesson.model, lesson.chosen
        self.view, self.attacked = view, chosen.objective in ATTACKED
        self.flips = checked_count(flips, "flips", 0, "for instance 2")
        if chosen.objective != "samples" and (chosen.copies < 2 or not view.noisy):
            raise InputError(
                f"the {chosen.objective} objective needs several noisy copies; got copies={chosen.copies} "
                f"{'with' if view.noisy else 'without'} noise (pass noise and copies=64)"
            )
        own = any(graph.node_features is not None for graph in lesson.graphs)  # the default is that of the defences
        super().__init__(lesson, as_features(lesson.features or ("own" if own else "degree")))
        noise: FeatureNoise | None = getattr(view, "feature_noise", None)
        if noise is not None:
            if not self.features.reads_own:
                raise InputError(
                    "feature_noise changes the graphs' own node features, which the model does not see; got "
                    f"features={self.features.spec!r} (pass features='own', or leave feature_noise out)"
                )
            for graph in [*lesson.graphs, *(lesson.validation or ())]:
                noise.check(graph.node_features)
        if getattr(model, "edge_blind", False):
            edge_free(self.features, "an edge-blind model")
        self.convention = torch_module.convention_of(model)
        self.device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
        # a loss that is a mean over graphs is that of the pieces together; batch statistics and class weights see pieces
        statistics = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in model.modules())
        self._by_size = not statistics and not chosen.class_weights
        self.class_weight = None
        if chosen.class_weights:  # every class that occurs counts alike
            counts = torch.bincount(self.graphs.labels).to(torch.float32)
            weights = len(self.graphs) / ((counts > 0).sum() * counts.clamp_min(1))
            self.class_weight = torch.where(counts > 0, weights, 0).to(self.device)
        self.entries = chosen.copies * min(chosen.batch_size, len(self.graphs)) * int(self.graphs.sizes.max()) ** 2
        against = {"flips": self.flips} if self.flips else {}
        self.settings = {"noise": None, "groups": None, "renumber": False} | view.description() | against

    def losses(self, members: Tensor, step: int) -> Iterator[Outcome]:
        for piece, part in enumerate(self.graphs.cut(members, self.chosen.copies, by_size=self._by_size)):
            batch, draws = self.graphs.padded(part), self.draws(f"training {piece}", step)
            yield self.outcome(batch, self.view.show(batch, self.chosen.copies, draws), draws)

    def validation(self) -> Iterator[Outcome]:
        copies = self.view.validation_copies(self.chosen.copies)
        together = max(1, max(_VALIDATION_BATCH, self.chosen.batch_size) // copies)
        members = torch.split(torch.arange(len(self.held_out)), together)
        for index, part in enumerate(part for piece in members for part in self.held_out.cut(piece, copies)):
            batch, draws = self.held_out.padded(part), self.draws("validation", index)
            shown = self.view.show(batch, copies, draws, validation=True)
            yield self.outcome(batch, shown, draws, validation=True)

    def _worst(self, batch: Padded, adjacency: Tensor, room: Tensor, draws: Draws) -> Tensor:
        """Of each matrix and its variants the one with the highest loss, ``[copies * B, n, n]``."""
        labels = batch.labels.to(self.device).repeat(len(adjacency) // len(batch.labels))

        def losses(matrices: Tensor) -> Tensor:
            logits = self._logits(batch, matrices).flatten(0, 1)
            return nn.functional.cross_entropy(logits, labels, reduction="none")

        with _in_evaluation(self.model):  # variants differ by their flips and not by dropout
            highest, slopes = self._slopes(losses, adjacency)
            return _worst_of(variants(adjacency, room, draws, slopes, self.flips), losses, adjacency, highest)

    def _attacked(self, batch: Padded, adjacency: Tensor, draws: Draws) -> Tensor:
        """The noisy copies of each graph after a random number of flips of the graph itself, those along which the loss of the
        averaged answer rises most; without slopes, the worst of random sets."""
        labels, graphs, room = batch.labels.to(self.device), batch.adjacency, batch.free()
        noise = (adjacency.view(-1, *graphs.shape) - graphs).abs()  # a flipped pair is flipped in every noisy copy
        counts = torch.from_numpy((draws("attack", (len(graphs),)).astype("int64") * (self.flips + 1)) >> 32)

        def noisy(matrices: Tensor) -> Tensor:
            """Their copies, ``[..., copies * B, n, n]``, for matrices ``[..., B, n, n]``."""
            matrices = matrices.unsqueeze(-4)
            return (matrices + noise - 2 * matrices * noise).flatten(-4, -3)

        def loss(copies: Tensor) -> Tensor:
            """That of the answer averaged over the copies of each graph, ``[B]``."""
            averaged = self._logits(batch, copies).softmax(dim=2).mean(dim=0)
            return -averaged.gather(1, labels[:, None])[:, 0].clamp_min(_SMALLEST_SHARE).log()

        def along(scores: Tensor) -> Tensor:
            """The copies of the graphs whose pairs of the highest scores ``[B, n, n]`` are flipped."""
            flipped = graphs
            for count in range(1, int(counts.max()) + 1):
                chosen = (counts >= count).view(-1, 1, 1)
                flipped = torch.where(chosen, flip_highest(graphs, scores, room, count), flipped)
            return noisy(flipped)

        with _in_evaluation(self.model):
            unattacked, slopes = self._slopes(lambda matrices: loss(noisy(matrices)), graphs)
            if slopes is not None:
                return along(rises(slopes, graphs))
            scores = (draws(f"attack {number}", tuple(graphs.shape)).astype("float64") for number in range(VARIANTS))
            sets = (along(torch.from_numpy(part)) for part in scores)
            return _worst_of(sets, loss, adjacency, torch.full_like(unattacked, -torch.inf))

    def _slopes(self, losses: Callable[[Tensor], Tensor], matrices: Tensor) -> tuple[Tensor, Tensor | None]:
        """The losses and their gradient by the matrices; ``None`` for a model that takes edges as lists."""
        dense = self.convention == "dense"
        leaf, slopes = matrices.clone().requires_grad_(dense), None
        with torch.set_grad_enabled(dense):
            values = losses(leaf)
            if values.requires_grad:
                (slopes,) = torch.autograd.grad(values.sum(), leaf, allow_unused=True)
        return values.detach(), slopes

    def draws(self, purpose: str, index: int) -> Draws:
        """The randomness of a step."""
        return lambda what, shape: keyed_draws(f"{purpose} {what}", self.chosen.seed, index, shape)

    def outcome(self, batch: Padded, shown: Shown, draws: Draws, *, validation: bool = False) -> Outcome:
        """The loss on what is shown of a batch, after an attack on it."""
        adjacency, own, pairs = shown
        batch = batch._replace(own=own)  # from here on those of every copy
        if self.flips and not self.attacked:
            room = batch.free().repeat(len(adjacency) // len(batch.labels), 1, 1)
            adjacency = self._worst(batch, adjacency, room if pairs is None else room & pairs, draws)
        elif self.attacked and not validation:
            adjacency = self._attacked(batch, adjacency, draws)
        logits, labels = self._logits(batch, adjacency), batch.labels.to(self.device)
        cross_entropy = partial(nn.functional.cross_entropy, weight=self.class_weight)
        loss = LOSSES[self.chosen.objective](logits, labels, cross_entropy)
        return Outcome(loss, int((logits.argmax(dim=2) == labels).sum()) / len(logits), len(labels))

    def _logits(self, batch: Padded, adjacency: Tensor) -> Tensor:
        copies = len(adjacency) // len(batch.labels)
        mask = batch.mask.repeat(copies, 1)
        x = self.features.dense(adjacency, mask, batch.own)
        x = x.to(torch.float32) if x.is_floating_point() else x
        logits = self._answer(*(part.to(self.device) for part in (x, adjacency, mask)))
        logits = torch_module.logit_per_class(logits, len(mask), max(2, self.highest_label + 1))
        return self.checked(logits, len(mask)).view(copies, len(batch.labels), -1)

    def _answer(self, x: Tensor, adjacency: Tensor, mask: Tensor) -> Any:
        """The logits of a padded batch; for PyG's conventions, of the nodes that exist and edges in canonical order."""
        if self.convention == "dense":
            return self.model(x, adjacency, mask)
        (edge_index, _), x = dense_to_sparse(adjacency, mask), x[mask]
        batch = torch.repeat_interleave(torch.arange(len(mask), device=mask.device), mask.sum(dim=1))
        if self.convention == "data":
            return self.model(torch_module.data_batch(x, edge_index, batch))
        return self.model(x, edge_index, batch)


@torch.no_grad()
def _worst_of(variants: Iterable[Tensor], losses: Callable[[Tensor], Tensor], worst: Tensor, highest: Tensor) -> Tensor:
    """Of matrices ``[copies * B, n, n]`` and their variants those with the highest losses, one for each matrix, or ``[B]`` for
    all copies of a graph together."""
    for variant in variants:
        loss = losses(variant)
        higher = (loss > highest).repeat(len(variant) // len(loss)).view(-1, 1, 1)
        worst, highest = torch.where(higher.to(worst.device), variant, worst), torch.maximum(loss, highest)
    return worst


@contextmanager
def _in_evaluation(model: nn.Module) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
