"""Training graph classifiers, on clean graphs or under the noise that they will be certified with.

Noise is drawn afresh for every graph in every epoch, and node features are computed after it, exactly as under smoothing.
With groups instead of noise, every graph is seen as one of its hashed sub-graphs, exactly as under voting.
"""

from __future__ import annotations

import copy
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from flipproof.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from flipproof.classifiers.torch_module import convention_of
from flipproof.errors import InputError
from flipproof.classifiers.features import NodeFeatures, as_features
from flipproof.graphs import Graph, as_graphs
from flipproof.noise.groups import EdgeGroups
from flipproof.models.blinded import EdgeBlind
from flipproof.models.network import GraphNetwork
from flipproof.noise import EdgeNoise, checked_seed

__all__ = ["Epoch", "TrainingResult", "train"]

_OBJECTIVES = ("samples", "majority")
_TEMPERATURE = 0.2  # of the majority: how sharply the largest share counts
_SMALLEST_SHARE = 1e-3
_SCHEDULES = ("one-cycle", "cosine", "constant")
_EDGE_FREE = ("own", "constant")
_MOST_ENTRIES = 2**23  # of adjacency matrices at a time; larger batches are cut and their gradients added up
_WORTH_SHARING = 2**20  # entries of a batch from which several threads help
_WINDOW = 16  # batches that are sorted by size together, so that little is padded
_VALIDATION_COPIES = 8
_CHECKPOINT_SECONDS = 1.0  # between checkpoints: writing one costs as much as a quick epoch


@dataclass(frozen=True)
class Epoch:
    """One pass over the training graphs.

    Attributes:
        loss: Mean loss on the (noisy) training graphs.
        accuracy: Share of (noisy) training graphs classified right, while the weights were changing.
        validation_loss, validation_accuracy: On the validation graphs, under the same noise; ``None`` without them.
    """

    loss: float
    accuracy: float
    validation_loss: float | None = None
    validation_accuracy: float | None = None


@dataclass(frozen=True)
class TrainingResult:
    """What training did; the trained weights are in the model.

    Attributes:
        history: One :class:`Epoch` each.
        best_epoch: Index of the epoch whose weights the model has: the best on validation, else the last.
        seconds: Time taken, that of earlier sessions included.
        settings: The arguments, as plain JSON: to be stored with the model.
    """

    history: tuple[Epoch, ...]
    best_epoch: int
    seconds: float
    settings: dict[str, Any]

    @property
    def epochs(self) -> int:
        """Number of epochs."""
        return len(self.history)

    @property
    def final(self) -> Epoch:
        """The epoch whose weights the model has."""
        return self.history[self.best_epoch]

    def __repr__(self) -> str:
        final = self.final
        shown = f"loss={final.loss:.4f}, accuracy={final.accuracy:.3f}"
        if final.validation_accuracy is not None:
            shown += f", validation_accuracy={final.validation_accuracy:.3f}"
        return (
            f"TrainingResult(epochs={self.epochs}, best_epoch={self.best_epoch}, {shown}, seconds={self.seconds:.1f})"
        )


def train(
    model: nn.Module,
    graphs: Iterable[Any],
    *,
    noise: EdgeNoise | None = None,
    groups: int | EdgeGroups | None = None,
    renumber: bool = False,
    features: Any = "degree",
    epochs: int = 200,
    learning_rate: float = 0.01,
    batch_size: int = 64,
    weight_decay: float = 1e-4,
    copies: int = 1,
    objective: str = "samples",
    consistency: float = 0.0,
    label_smoothing: float = 0.0,
    average: float = 0.0,
    schedule: str = "one-cycle",
    class_weights: bool = False,
    validation: Iterable[Any] | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | Callable[[int, int], None] = False,
) -> TrainingResult:
    """Train a model in place with AdamW; afterwards it is in evaluation mode.

    Repeatable: the same model, graphs and arguments give the same weights, byte for byte, on the same machine (graphs of
    hundreds of nodes are computed with torch's threads, and then with the same number of them). The initial weights are the
    model's own (``GCN(..., seed=0)``).

    Args:
        model: A torch module in the dense convention ``forward(x, adj, mask)`` or PyG's ``forward(x, edge_index, batch)``.
        graphs: Labelled graphs, in any form the library accepts.
        noise: Edge noise, fresh for every graph in every epoch; frozen pairs are left alone. ``None`` trains on the graphs
            as they are.
        groups: Number of groups (or the groups themselves) of a :class:`flipproof.VotingClassifier`: every graph of a step is
            replaced by its sub-graph of a random group. Validation graphs are seen as all their sub-graphs.
        renumber: With groups, number the nodes of every training graph at random before they are hashed, afresh in every step.
            Makes ever new sub-graphs; right for data whose node numbers mean nothing.
        features: As for :class:`flipproof.SmoothedClassifier`; computed on the noisy graphs or sub-graphs.
        epochs: Passes over the graphs.
        learning_rate: The highest of the schedule.
        batch_size: Graphs a step.
        weight_decay: AdamW's.
        copies: Noisy versions (or sub-graphs) of every graph of a step.
        objective: What is made right. ``"samples"``: every noisy copy by itself (cross-entropy). ``"majority"``: the answer
            averaged over the copies of a graph, which is what smoothing asks for: a class that is never the likeliest on a
            single copy can still get the most votes. It needs many copies (64), and starts best from a model that was
            trained for the samples; it buys accuracy under strong noise with some of the largest shares of votes.
        consistency: Weight of a term that draws the answers on the copies of one graph together: the mean divergence
            ``KL(mean answer || answer)``. Needs at least two copies.
        label_smoothing: Share of the target spread over all classes.
        average: Decay of an exponential moving average of the weights over steps, for instance 0.99; the average becomes the
            model. 0 takes the last weights.
        schedule: ``"one-cycle"`` (warm-up, then cosine to nearly nothing), ``"cosine"`` or ``"constant"``.
        class_weights: Weigh every class alike in the loss, however many graphs it has.
        validation: Labelled graphs; the weights of the epoch with the smallest loss on them are kept. With noise they are
            seen under noise, the same noisy versions in every epoch.
        seed: Makes the order of graphs, the noise and dropout.
        checkpoint: A file that holds the training after an epoch, written every second or so. Stopped or killed, the same
            call goes on from there and ends with the same weights, byte for byte; of a finished training it gives the result
            at once. A file of another training is refused. Dropout on another device than the CPU is not restored.
        progress: Show a progress bar with the time left; or a function called with the epochs done and their number.

    >>> from flipproof import EdgeNoise
    >>> from flipproof.datasets import topologies
    >>> from flipproof.models import GCN
    >>> model = GCN(in_features=1, num_classes=8, seed=0)
    >>> train(model, topologies(32), noise=EdgeNoise(keep=0.9), epochs=2).epochs
    2
    """
    settings = {
        "epochs": _checked(epochs, "epochs", int, 1),
        "learning_rate": _checked(learning_rate, "learning_rate", float, 0, open_end=True),
        "batch_size": _checked(batch_size, "batch_size", int, 1),
        "weight_decay": _checked(weight_decay, "weight_decay", float, 0),
        "copies": _checked(copies, "copies", int, 1),
        "objective": objective,
        "consistency": _checked(consistency, "consistency", float, 0),
        "label_smoothing": _checked(label_smoothing, "label_smoothing", float, 0, below=1),
        "average": _checked(average, "average", float, 0, below=1),
        "schedule": schedule,
        "class_weights": bool(class_weights),
        "seed": checked_seed(seed),
    }
    if not isinstance(model, nn.Module):
        raise InputError(
            f"model must be a torch module; got {type(model).__name__} (other classifiers train themselves)"
        )
    if noise is not None and not isinstance(noise, EdgeNoise):
        raise InputError(f"noise must be an EdgeNoise or None; got {noise!r} (for instance EdgeNoise(keep=0.9))")
    if noise is not None and groups is not None:
        raise InputError(f"give either noise, for smoothing, or groups, for voting; got {noise} and groups={groups}")
    if renumber and groups is None:
        raise InputError("renumber is about the hash of node numbers; got no groups (pass groups=3 or the like)")
    parted = groups if groups is None or isinstance(groups, EdgeGroups) else EdgeGroups(groups)
    if schedule not in _SCHEDULES:
        raise InputError(f"schedule must be one of {', '.join(_SCHEDULES)}; got {schedule!r}")
    if objective not in _OBJECTIVES:
        raise InputError(f"objective must be samples or majority; got {objective!r} (majority needs many copies)")
    if objective == "majority" and (copies < 2 or noise is None):
        raise InputError(
            f"the majority is one of noisy copies; got copies={copies}, noise={noise} (pass noise and copies=64)"
        )
    if consistency and copies < 2:
        raise InputError(f"consistency compares copies of a graph; got copies={copies} (pass copies=2 or more)")
    hook = as_features(features)
    if isinstance(model, EdgeBlind) and hook.spec not in _EDGE_FREE:
        raise InputError(
            f"an edge-blind model needs features that do not depend on edges; got {hook.spec or 'a function'} "
            '(pass features=None for the graphs\' own, or features="constant")'
        )
    settings |= {"groups": None if parted is None else parted.count, "renumber": bool(renumber)}
    run = _Run(model, _Batches(graphs, noise, hook, "graphs", parted, renumber=renumber), settings)
    held_out = None if validation is None else _Batches(validation, noise, hook, "validation", parted)
    path, asked = None if checkpoint is None else Path(checkpoint), {}
    if path is not None:
        asked = settings | {
            "model": model.config if isinstance(model, GraphNetwork) else type(model).__qualname__,
            "noise": None if noise is None else [noise.add_threshold, noise.remove_threshold],
            "hash key": None if parted is None else parted.key,
            "features": hook.spec or "a function",
            "graphs": run.batches.digest(),
            "validation": None if held_out is None else held_out.digest(),
            "initial weights": _digest(model.state_dict()),
        }
    stored = None if path is None else read_checkpoint(path, asked)
    started = time.perf_counter() - (0.0 if stored is None else stored.state["seconds"])
    # a fork keeps the caller's generator as it was, and dropout depends on our seed alone
    with (
        torch.random.fork_rng(devices=[]),
        _threads_worth_having(copies * run.batches.entries(batch_size)),
        _progress(epochs, 0 if stored is None else len(stored.state["history"]), shown=progress) as advance,
    ):
        torch.manual_seed(settings["seed"] % 2**63)
        if stored is not None:
            run.restore(stored)
        due = -math.inf
        while run.epoch < epochs:
            try:
                run.step_epoch(held_out)
            except InputError:  # it diverged: other settings are to begin anew
                if path is not None:
                    path.unlink(missing_ok=True)
                raise
            now = time.perf_counter()
            if path is not None and (now >= due or run.epoch == epochs):
                state = run.state() | {"seconds": now - started}
                write_checkpoint(path, Checkpoint(asked, state, run.tensors()))
                due = time.perf_counter() + _CHECKPOINT_SECONDS
            advance(run.history[-1])
    run.finish()
    return TrainingResult(tuple(run.history), run.best_epoch, time.perf_counter() - started, settings)


class _Run:
    """The state of a training under way; everything that changes from epoch to epoch is here."""

    def __init__(self, model: nn.Module, batches: _Batches, settings: dict[str, Any]) -> None:
        self.model, self.batches, self.settings = model, batches, settings
        self.convention = convention_of(model)
        self.device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        if not weights:
            raise InputError(f"model must have weights to train; {type(model).__name__} has none")
        # the fused optimiser does all weights at once: for small networks the loop over them would cost as much as the rest
        self.optimizer = torch.optim.AdamW(
            weights, lr=settings["learning_rate"], weight_decay=settings["weight_decay"], fused=True
        )
        self.steps = settings["epochs"] * -(-len(batches) // settings["batch_size"])
        self.step = 0
        self.generator = torch.Generator().manual_seed(settings["seed"] % 2**63)
        self.averaged = copy.deepcopy(model.state_dict()) if settings["average"] else None
        self.class_weight = _balanced(batches.labels) if settings["class_weights"] else None
        self.history: list[Epoch] = []
        self.best_epoch, self.best_loss = -1, math.inf
        self.best_state: dict[str, Any] | None = None

    @property
    def epoch(self) -> int:
        return len(self.history)

    def step_epoch(self, held_out: _Batches | None) -> None:
        """One pass over the graphs, and a look at the validation graphs."""
        self.model.train()
        total_loss = total_right = 0.0
        copies = self.settings["copies"]
        for members in self.batches.order(self.settings["batch_size"], self.generator):
            self._set_learning_rate()
            self.optimizer.zero_grad(set_to_none=True)
            for part in self.batches.cut(members, copies):
                loss, right = self._loss(part, copies)
                share = len(part) / len(members)
                (loss * share).backward()  # type: ignore[no-untyped-call]
                total_loss += float(loss.detach()) * len(part)
                total_right += right
            self.optimizer.step()
            self.step += 1
            self._update_average()
        count = len(self.batches)
        figures = (total_loss / count, total_right / (count * copies))
        if not math.isfinite(total_loss):
            raise InputError(
                f"training diverged in epoch {self.epoch}: the loss is {total_loss} (lower learning_rate; "
                f"got {self.settings['learning_rate']:g})"
            )
        if held_out is None:
            self.history.append(Epoch(*figures))
            return
        with self._weights_to_keep():
            validation_loss, validation_accuracy = self._evaluate(held_out)
        self.history.append(Epoch(*figures, validation_loss, validation_accuracy))
        if validation_loss < self.best_loss:
            self.best_epoch, self.best_loss = self.epoch - 1, validation_loss
            self.best_state = copy.deepcopy(self.averaged or self.model.state_dict())

    def finish(self) -> None:
        """Put the weights to keep into the model."""
        state = self.best_state or self.averaged
        if state is not None:
            self.model.load_state_dict(state)
        if self.best_epoch < 0:
            self.best_epoch = self.epoch - 1
        self.model.eval()

    def state(self) -> dict[str, Any]:
        """What changes from epoch to epoch and is no tensor."""
        return {
            "history": [asdict(epoch) for epoch in self.history],
            "step": self.step,
            "best_epoch": self.best_epoch,
            "best_loss": None if self.best_epoch < 0 else self.best_loss,
        }

    def tensors(self) -> dict[str, Tensor]:
        """What changes from epoch to epoch and is a tensor."""
        parts: dict[str, dict[str, Any]] = {
            "model": self.model.state_dict(),
            "averaged": self.averaged or {},
            "best": self.best_state or {},
            "random": {"order": self.generator.get_state(), "dropout": torch.get_rng_state()},
        }
        for index, moments in self.optimizer.state_dict()["state"].items():
            parts[f"optimizer/{index}"] = moments
        return {f"{part}/{name}": value for part, values in parts.items() for name, value in values.items()}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go back to a state that :meth:`state` and :meth:`tensors` described."""
        parts: dict[str, dict[str, Tensor]] = {}
        for name, value in checkpoint.tensors.items():
            part, _, key = name.rpartition("/")
            parts.setdefault(part, {})[key] = value
        self.model.load_state_dict(parts["model"])
        self.averaged, self.best_state = parts.get("averaged"), parts.get("best")
        self.generator.set_state(parts["random"]["order"])
        torch.set_rng_state(parts["random"]["dropout"])
        moments = {
            int(part.partition("/")[2]): values for part, values in parts.items() if part.startswith("optimizer/")
        }
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": moments})
        state = checkpoint.state
        self.history = [Epoch(**epoch) for epoch in state["history"]]
        self.step, self.best_epoch = state["step"], state["best_epoch"]
        self.best_loss = math.inf if state["best_loss"] is None else state["best_loss"]

    def _loss(self, members: Tensor, copies: int) -> tuple[Tensor, int]:
        logits, labels = self._logits(self.batches, members.repeat(copies), self.generator)
        loss = self._objective(logits, labels, copies, label_smoothing=self.settings["label_smoothing"])
        if self.settings["consistency"]:
            answers = logits.log_softmax(dim=1).view(copies, -1, logits.shape[1])
            mean = answers.exp().mean(dim=0)
            divergence = (mean * (mean.clamp_min(1e-12).log() - answers)).sum(dim=2).mean()
            loss = loss + self.settings["consistency"] * divergence
        return loss, int((logits.argmax(dim=1) == labels).sum())

    def _objective(self, logits: Tensor, labels: Tensor, copies: int, *, label_smoothing: float = 0.0) -> Tensor:
        """The loss on ``copies`` noisy versions of some graphs, one after the other."""
        cross_entropy = partial(nn.functional.cross_entropy, weight=self.class_weight, label_smoothing=label_smoothing)
        if self.settings["objective"] == "samples":
            return cross_entropy(logits, labels)
        shares = logits.softmax(dim=1).view(copies, -1, logits.shape[1]).mean(dim=0)
        evidence, labels = (shares + _SMALLEST_SHARE).log(), labels[: len(shares)]
        # the second term goes on raising the share of votes where the majority is right already
        return _TEMPERATURE * cross_entropy(evidence / _TEMPERATURE, labels) + cross_entropy(evidence, labels)

    def _logits(
        self, batches: _Batches, members: Tensor, generator: torch.Generator, group: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        adj, mask, x, labels = (part.to(self.device) for part in batches.draw(members, generator, group))
        dense = self.convention == "dense"
        logits = self.model(x, adj, mask) if dense else _on_union(self.model, self.convention, x, adj, mask)
        if logits.ndim != 2 or len(logits) != len(members):
            raise InputError(
                f"the model must return logits [{len(members)}, num_classes]; got shape {tuple(logits.shape)} "
                "(one row a graph)"
            )
        if logits.shape[1] <= int(labels.max()):
            raise InputError(
                f"the model must have a class for every label; got {logits.shape[1]} classes and label "
                f"{int(labels.max())} (build it with num_classes={int(batches.labels.max()) + 1})"
            )
        return logits, labels

    @torch.no_grad()
    def _evaluate(self, held_out: _Batches) -> tuple[float, float]:
        self.model.eval()
        generator = torch.Generator().manual_seed(self.settings["seed"] % 2**63)
        copies = 1 if held_out.noise is None else max(_VALIDATION_COPIES, self.settings["copies"])
        copies = self.settings["groups"] or copies  # copy t of a graph is its sub-graph t
        loss = right = 0.0
        for members in torch.split(
            torch.arange(len(held_out)), max(1, max(256, self.settings["batch_size"]) // copies)
        ):
            for part in held_out.cut(members, copies):
                group = torch.arange(copies).repeat_interleave(len(part))
                logits, labels = self._logits(held_out, part.repeat(copies), generator, group)
                loss += float(self._objective(logits, labels, copies)) * len(part)
                right += int((logits.argmax(dim=1) == labels).sum())
        return loss / len(held_out), right / (len(held_out) * copies)

    def _set_learning_rate(self) -> None:
        done, schedule = self.step / max(1, self.steps - 1), self.settings["schedule"]
        warm_up = 0.1
        factor = 1.0
        if schedule == "one-cycle" and done < warm_up:
            factor = 0.04 + 0.96 * done / warm_up
        elif schedule == "one-cycle":
            factor = 0.001 + 0.999 * (1 + math.cos(math.pi * (done - warm_up) / (1 - warm_up))) / 2
        elif schedule == "cosine":
            factor = 0.001 + 0.999 * (1 + math.cos(math.pi * done)) / 2
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings["learning_rate"] * factor

    def _update_average(self) -> None:
        if self.averaged is None:
            return
        # the first weights are soon forgotten: early on the average looks back a tenth of the way
        keep = min(self.settings["average"], self.step / (self.step + 10))
        current = self.model.state_dict()
        with torch.no_grad():
            for name, value in self.averaged.items():
                if value.is_floating_point():
                    value.lerp_(current[name], 1 - keep)
                else:
                    value.copy_(current[name])

    @contextmanager
    def _weights_to_keep(self) -> Iterator[None]:
        if self.averaged is None:
            yield
            return
        current = copy.deepcopy(self.model.state_dict())
        self.model.load_state_dict(self.averaged)
        try:
            yield
        finally:
            self.model.load_state_dict(current)


class _Batches:
    """Labelled graphs as flat tensors, from which any batch is made at once, noise included."""

    def __init__(
        self,
        graphs: Iterable[Any],
        noise: EdgeNoise | None,
        features: NodeFeatures,
        argument: str,
        groups: EdgeGroups | None = None,
        *,
        renumber: bool = False,
    ) -> None:
        members = as_graphs(graphs)
        if not members:
            raise InputError(f"{argument} must hold at least one graph; got none (pass the training part of a split)")
        unlabelled = [index for index, graph in enumerate(members) if graph.label is None]
        if unlabelled:
            raise InputError(
                f"{argument} must be labelled; graph {unlabelled[0]} has no label (build it with label=0, 1, 2, ...)"
            )
        self.noise, self.features, self.groups, self.renumber = noise, features, groups, renumber
        self.labels = torch.tensor([graph.label for graph in members])
        self.sizes = torch.tensor([graph.num_nodes for graph in members])
        self._edges = _Ragged([graph.edges for graph in members])
        self._frozen = _Ragged([graph.frozen for graph in members]) if any(len(g.frozen) for g in members) else None
        self._own = _own_features(members, argument)
        self._group_of = None if groups is None else _group_matrix(groups, int(self.sizes.max()))

    def __len__(self) -> int:
        return len(self.labels)

    def digest(self) -> str:
        """Hash of the graphs, their labels and features."""
        parts = {"labels": self.labels, "sizes": self.sizes, "counts": self._edges.counts, "edges": self._edges.pairs}
        if self._frozen is not None:
            parts |= {"frozen counts": self._frozen.counts, "frozen": self._frozen.pairs}
        if self._own is not None:
            parts["features"] = self._own.values
        return _digest(parts)

    def entries(self, batch_size: int) -> int:
        """Entries of the matrices of the largest batch."""
        return min(batch_size, len(self)) * int(self.sizes.max()) ** 2

    def order(self, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
        """All graphs once, in batches of random graphs of similar size."""
        shuffled = torch.randperm(len(self), generator=generator)
        if int(self.sizes.min()) < int(self.sizes.max()) and len(self) > 2 * batch_size:
            window = _WINDOW * batch_size
            shuffled = torch.cat(
                [part[self.sizes[part].argsort(stable=True)] for part in torch.split(shuffled, window)]
            )
        batches = torch.split(shuffled, batch_size)
        for index in torch.randperm(len(batches), generator=generator).tolist():
            yield batches[index]

    def cut(self, members: Tensor, copies: int) -> Iterator[Tensor]:
        """The batch in pieces whose matrices fit into memory; nearly always whole."""
        entries = copies * int(self.sizes[members].max()) ** 2
        return iter(torch.split(members, max(1, _MOST_ENTRIES // entries)))

    def draw(
        self, members: Tensor, generator: torch.Generator, group: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Noisy versions of the given graphs: ``adj [B, n, n]``, ``mask [B, n]``, ``x [B, n, d]``, ``labels [B]``.

        With groups, their sub-graphs of the given groups ``[B]``, by default of random ones.
        """
        sizes = self.sizes[members]
        widest = int(sizes.max())
        mask = torch.arange(widest) < sizes.unsqueeze(1)
        adj = self._edges.matrices(members, widest)
        if self.noise is not None and (self.noise.add_threshold or self.noise.remove_threshold):
            upper = torch.ones(widest, widest).triu_(1)
            # probability of an edge at every slot; 2 at edges that stay, 0 at pairs that cannot be joined
            probability = torch.where(adj > 0, 1 - self.noise.p_remove, self.noise.p_add)
            if self._frozen is not None:
                frozen = self._frozen.matrices(members, widest)
                probability = torch.where(frozen > 0, 2 * adj, probability)
            probability = probability * (upper * mask.unsqueeze(1))
            adj = (torch.rand(adj.shape, generator=generator) < probability).to(torch.float32)
            adj = adj + adj.mT
        if self.groups is not None and self._group_of is not None:
            if group is None:
                group = torch.randint(self.groups.count, (len(members),), generator=generator)
            group_of = self._group_of[:widest, :widest]
            if self.renumber:
                # random keys, padding last: their order is a random numbering of each graph's own nodes
                keys = torch.rand(mask.shape, generator=generator) + ~mask
                number = keys.argsort(dim=1).argsort(dim=1)
                group_of = group_of[number.unsqueeze(2), number.unsqueeze(1)]
            kept = group_of == group.view(-1, 1, 1)
            if self._frozen is not None:
                kept |= self._frozen.matrices(members, widest) > 0
            adj = adj * kept
        own = None if self._own is None else self._own.rows(members, sizes, widest)
        x = self.features.dense(adj, mask, own)
        return adj, mask, x.to(torch.float32) if x.is_floating_point() else x, self.labels[members]


class _Ragged:
    """Pairs of nodes of many graphs, one after the other."""

    def __init__(self, pairs: list[Any]) -> None:
        self.counts = torch.tensor([len(part) for part in pairs])
        self.starts = torch.cumsum(self.counts, 0) - self.counts
        self.pairs = torch.from_numpy(np.concatenate(pairs)).reshape(-1, 2)

    def matrices(self, members: Tensor, widest: int) -> Tensor:
        """Symmetric 0/1 matrices of the given graphs, float32 ``[B, n, n]``."""
        counts = self.counts[members]
        owner = torch.repeat_interleave(torch.arange(len(members)), counts)
        first = torch.cumsum(counts, 0) - counts
        u, v = self.pairs[torch.arange(len(owner)) + (self.starts[members] - first)[owner]].T
        matrices = torch.zeros(len(members), widest, widest)
        matrices[owner, u, v] = 1
        matrices[owner, v, u] = 1
        return matrices


class _OwnFeatures:
    """Node features of many graphs, one after the other."""

    def __init__(self, features: list[Any], sizes: list[int]) -> None:
        self.values = torch.from_numpy(np.concatenate(features))
        if self.values.dtype == torch.float64:
            self.values = self.values.to(torch.float32)
        self.starts = torch.tensor(np.cumsum([0, *sizes[:-1]]))

    def rows(self, members: Tensor, sizes: Tensor, widest: int) -> Tensor:
        """Padded with zeros, ``[B, n, d]``."""
        place = torch.arange(widest)
        mask = place < sizes.unsqueeze(1)
        rows = (self.starts[members].unsqueeze(1) + place).clamp_max(len(self.values) - 1)
        return self.values[rows] * mask.unsqueeze(2).to(self.values.dtype)


def _group_matrix(groups: EdgeGroups, num_nodes: int) -> Tensor:
    """The group of every node pair, symmetric ``[n, n]``."""
    u, v = np.triu_indices(num_nodes, 1)
    matrix = torch.zeros(num_nodes, num_nodes, dtype=torch.int32)
    matrix[u, v] = matrix[v, u] = torch.from_numpy(groups.of_pairs(np.stack([u, v], axis=1))).to(torch.int32)
    return matrix


def _own_features(graphs: list[Graph], argument: str) -> _OwnFeatures | None:
    widths = {None if graph.node_features is None else graph.node_features.shape[1] for graph in graphs}
    if len(widths) > 1:
        raise InputError(
            f"{argument} must all have equally many node features; got {sorted(width or 0 for width in widths)} "
            "(give every graph the same columns)"
        )
    if widths == {None}:
        return None
    return _OwnFeatures([graph.node_features for graph in graphs], [graph.num_nodes for graph in graphs])


def _on_union(model: nn.Module, convention: str, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
    """A padded batch for a model in PyG's convention: nodes that exist, edges in canonical order."""
    number = torch.cumsum(mask.flatten(), 0).view(mask.shape) - 1
    graph, u, v = adj.nonzero(as_tuple=True)
    edge_index = torch.stack([number[graph, u], number[graph, v]])
    batch = torch.repeat_interleave(torch.arange(len(mask), device=mask.device), mask.sum(dim=1))
    if convention == "data":
        from torch_geometric.data import Batch

        data = Batch(x=x[mask], edge_index=edge_index, batch=batch)
        data.ptr = torch.searchsorted(batch, torch.arange(len(mask) + 1, device=mask.device))
        result: Tensor = model(data)
    else:
        result = model(x[mask], edge_index, batch)
    return result


def _digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, value in tensors.items():
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _balanced(labels: Tensor) -> Tensor:
    counts = torch.bincount(labels).to(torch.float32)
    return torch.where(counts > 0, len(labels) / ((counts > 0).sum() * counts.clamp_min(1)), 0)


def _checked(
    value: Any, argument: str, kind: type, smallest: float, *, below: float = math.inf, open_end: bool = False
) -> Any:
    fits = isinstance(value, int) if kind is int else isinstance(value, (int, float)) and math.isfinite(value)
    if isinstance(value, bool) or not fits or value < smallest or value >= below or (open_end and value == smallest):
        what = "an integer" if kind is int else "a number"
        bound = f"above {smallest}" if open_end else f"of at least {smallest}"
        if below < math.inf:
            bound += f" and below {below:g}"
        raise InputError(f"{argument} must be {what} {bound}; got {value!r}")
    return value


@contextmanager
def _threads_worth_having(entries: int) -> Iterator[None]:
    """One thread for small batches: sharing them out costs more than it saves, most of all on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if entries < _WORTH_SHARING else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _progress(epochs: int, finished: int, *, shown: bool | Callable[[int, int], None]) -> Iterator[Any]:
    if callable(shown):
        done = iter(range(finished + 1, epochs + 1))
        yield lambda epoch: shown(next(done), epochs)
        return
    if not shown:
        yield lambda epoch: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns) as bar:
        task = bar.add_task("training", total=epochs, completed=finished, state="")

        def advance(epoch: Epoch) -> None:
            state = f"loss {epoch.loss:.3f}, accuracy {epoch.accuracy:.3f}"
            if epoch.validation_accuracy is not None:
                state += f", validation {epoch.validation_accuracy:.3f}"
            bar.update(task, advance=1, state=state)

        yield advance
