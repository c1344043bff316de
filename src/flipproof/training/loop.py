"""The loop: optimiser, schedule, averaged weights, checkpoints and history of a training of a :class:`Task`.

All randomness is a pure function of the seed and of the epoch or step: a resumed training has nothing to restore but dropout.
"""

from __future__ import annotations

import copy
import io
import math
import os
import pickle
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from flipproof.checks import check_classes, checked_count, checked_seed
from flipproof.classifiers.features import NodeFeatures
from flipproof.datasets.dataset import fingerprint
from flipproof.errors import InputError
from flipproof.files import write_bytes
from flipproof.graphs import Graph, as_graphs
from flipproof.models.network import NamedNetwork
from flipproof.progress import note, watched
from flipproof.training.batches import LabelledGraphs, digest, shuffled

_FORMAT = "flipproof checkpoint 5"
_WORTH_SHARING = 2**20  # entries of a batch from which several threads help
_CHECKPOINT_SECONDS = 1.0  # between checkpoints: writing one costs as much as a quick epoch
_FORGETTING = 10  # early on the average reaches back a tenth of the steps: the first weights are soon forgotten
_WARM_UP = 0.1  # share of the steps in which the learning rate rises
_FIRST, _LAST = 0.04, 0.001  # factors on the highest rate
OBJECTIVES = ("samples", "majority", "attacked", "attacked-votes")
_AMOUNTS = {
    "learning_rate": ("above 0", math.inf),
    "weight_decay": ("of at least 0", math.inf),
    "average": ("of at least 0 and below 1", 1),
}


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """Arguments of :func:`flipproof.train` that do not depend on the graphs; plain JSON."""

    epochs: int = 200
    learning_rate: float = 0.01
    batch_size: int = 64
    weight_decay: float = 1e-4
    copies: int = 1
    objective: str = "samples"
    average: float = 0.0
    class_weights: bool = False
    seed: int = 0

    @classmethod
    def of(cls, values: Mapping[str, Any], **defaults: Any) -> Hyperparameters:
        """Those among the values that are hyperparameters; ``None`` stands for the default."""
        names = [entry.name for entry in fields(cls)]
        return cls(**defaults | {name: values[name] for name in names if values.get(name) is not None})

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "copies"):
            object.__setattr__(self, name, checked_count(getattr(self, name), name, 1, "for instance 8"))
        for name, (expected, end) in _AMOUNTS.items():
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < end
            if not number or (name == "learning_rate" and not value):
                raise InputError(f"{name} must be a number {expected}; got {value!r}")
        if self.objective not in OBJECTIVES:
            raise InputError(f"objective must be one of {', '.join(OBJECTIVES)}; got {self.objective!r}")
        if not isinstance(self.class_weights, bool):
            raise InputError(f"class_weights must be true or false; got {self.class_weights!r}")
        object.__setattr__(self, "seed", checked_seed(self.seed))

    def rate(self, step: int, members: int) -> float:
        """The learning rate of a step: a warm-up, then a cosine to nearly nothing."""
        steps = self.epochs * -(-members // self.batch_size)
        done = step / max(1, steps - 1)
        if done < _WARM_UP:
            return self.learning_rate * (_FIRST + (1 - _FIRST) * done / _WARM_UP)
        cosine = math.cos(math.pi * ((done - _WARM_UP) / (1 - _WARM_UP)))
        return self.learning_rate * (_LAST + (1 - _LAST) * (1 + cosine) / 2)

    def memory(self, step: int) -> float:
        """The part of the averaged weights that is kept after ``step`` steps."""
        return min(self.average, step / (step + _FORGETTING))


@dataclass(frozen=True)
class Epoch:
    """One pass: mean loss and share classified correctly of training graphs, as training views them, and of validation graphs."""

    loss: float
    accuracy: float
    validation_loss: float | None = None
    validation_accuracy: float | None = None


@dataclass(frozen=True)
class TrainingResult:
    """What training did; the trained weights are in the model."""

    history: tuple[Epoch, ...] = field(repr=False)
    best_epoch: int  # whose weights the model has: the best on validation, else the last
    seconds: float  # earlier sessions included
    settings: dict[str, Any]  # the arguments as plain JSON, to be stored with the model

    @property
    def epochs(self) -> int:
        return len(self.history)

    @property
    def final(self) -> Epoch:
        """The epoch whose weights the model has."""
        return self.history[self.best_epoch]


@dataclass(frozen=True, eq=False)
class Lesson:
    """What every training is told: the model, graphs to learn from and to choose by, node features and hyperparameters."""

    model: Any
    graphs: list[Graph]
    validation: list[Graph] | None
    features: Any
    chosen: Hyperparameters

    @classmethod
    def of(cls, values: Mapping[str, Any], **defaults: Any) -> Lesson:
        """From the arguments of a training, by name."""
        model, validation, chosen = values["model"], values["validation"], Hyperparameters.of(values, **defaults)
        if not isinstance(model, nn.Module):
            raise InputError(f"model must be a torch module; got {type(model).__name__} (others train themselves)")
        held_out = None if validation is None else as_graphs(validation)
        return cls(model, as_graphs(values["graphs"]), held_out, values["features"], chosen)


class Outcome(NamedTuple):
    """Mean loss over some members, how many are classified correctly (averaged over copies), and how many there are."""

    loss: Tensor
    right: float
    size: int


class Task(ABC):
    """A way of training: the labelled graphs that are learnt from, its members, and their losses."""

    what = "graph"  # that has a label
    entries = 0  # numbers in the largest batch: whether several threads are worth having
    model: Any
    sizes: Tensor  # of the members: what may share a batch
    held_out: Any  # members to choose the epoch by, or None
    settings: dict[str, Any]  # how members are viewed, as plain JSON: stored with the model

    def __init__(self, lesson: Lesson, features: NodeFeatures) -> None:
        self.lesson, self.model, self.features, self.chosen = lesson, lesson.model, features, lesson.chosen
        self.graphs = LabelledGraphs(lesson.graphs, "graphs")
        self.held_out = None if lesson.validation is None else LabelledGraphs(lesson.validation, "validation")
        self.sizes = self.graphs.sizes
        self.highest_label = max(int(part.labels.max()) for part in (self.graphs, self.held_out) if part is not None)

    def fingerprint(self) -> dict[str, Any]:
        """Of the graphs as they are shown, as plain JSON, for the checkpoint."""
        held_out = None if self.lesson.validation is None else fingerprint(self.lesson.validation)
        features = self.features.spec or "a function"
        return {"features": features, "graphs": fingerprint(self.lesson.graphs), "validation": held_out}

    @abstractmethod
    def losses(self, members: Tensor, step: int) -> Iterator[Outcome]:
        """On a batch, piece by piece."""

    @abstractmethod
    def validation(self) -> Iterator[Outcome]:
        """On the validation graphs, in the same guise in every epoch."""

    def checked(self, logits: Any, rows: int) -> Tensor:
        """The logits, if they are a matrix with so many rows and a column for every class."""
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != rows:
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise InputError(
                f"the model must return logits [{rows}, num_classes], one row per {self.what}; got {shape}"
            )
        check_classes(logits.shape[1], self.highest_label)
        return logits

    def finish(self) -> None:
        """Make the model, which has the weights to keep, ready for use."""
        self.model.eval()


def fit(
    task: Task, *, checkpoint: str | os.PathLike[str] | None = None, progress: bool | Callable[[int, int], None] = False
) -> TrainingResult:
    """Train the model of a task; see :func:`flipproof.train` for what the arguments mean."""
    model, chosen = task.model, task.chosen
    state, settings, started = _State(task), asdict(chosen) | task.settings, time.perf_counter()
    path, training, stored = None, dict[str, Any](), dict[str, Any]()
    if checkpoint is not None:
        kind = model.config if isinstance(model, NamedNetwork) else type(model).__qualname__
        training = settings | task.fingerprint() | {"model": kind, "initial weights": digest(model.state_dict())}
        path = Path(checkpoint)
        stored = _stored(path, training)
    done = len(stored.get("history", ()))
    if done:
        note(f"continuing {path}: {done} of {chosen.epochs} epochs were done", quiet=progress is not True)
    # a fork keeps the caller's generator as it was, and dropout depends on our seed alone
    with (
        torch.random.fork_rng(devices=[]),
        _threads_worth_having(task.entries),
        watched(progress, "training", chosen.epochs, unit="epochs", done=done) as advance,
    ):
        torch.manual_seed(chosen.seed % 2**63)
        if stored:
            state.restore(stored)
            started -= stored["seconds"]
        due = -math.inf
        while len(state.history) < chosen.epochs:
            try:
                state.run_epoch()
            except InputError:  # it diverged: with other settings it has to start over
                if path is not None:
                    path.unlink(missing_ok=True)
                raise
            now = time.perf_counter()
            if path is not None and (now >= due or len(state.history) == chosen.epochs):
                file = io.BytesIO()
                torch.save({"format": _FORMAT, "training": training, "seconds": now - started} | state.content(), file)
                write_bytes(path, file.getvalue(), durable=False)
                due = time.perf_counter() + _CHECKPOINT_SECONDS
            advance(1)
    if (weights := state.best_state or state.averaged) is not None:
        model.load_state_dict(weights)
    task.finish()
    history = tuple(Epoch(*epoch) for epoch in state.history)
    return TrainingResult(history, state.best_epoch % chosen.epochs, time.perf_counter() - started, settings)


class _State:
    """A training under way; everything that changes from epoch to epoch is here."""

    kept = ("history", "step", "lowest", "best_epoch", "best_state", "averaged")

    def __init__(self, task: Task) -> None:
        self.task, self.model, self.chosen = task, task.model, task.chosen
        weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        if not weights:
            raise InputError(f"model must have weights to train; {type(self.model).__name__} has none")
        # the fused optimiser updates all weights at once: for small networks a loop over them would cost as much as the rest
        self.optimizer = torch.optim.AdamW(
            weights, lr=self.chosen.learning_rate, weight_decay=self.chosen.weight_decay, fused=True
        )
        self.averaged = copy.deepcopy(self.model.state_dict()) if self.chosen.average else None
        self.history: list[tuple[float, ...]] = []
        self.step, self.lowest, self.best_epoch = 0, math.inf, -1
        self.best_state: dict[str, Any] | None = None

    def run_epoch(self) -> None:
        """One pass over the members, and a look at the validation members."""
        self.model.train()
        chosen = self.chosen
        batches = shuffled(self.task.sizes, chosen.batch_size, seed=chosen.seed, epoch=len(self.history))
        shares = _mean([part for members in batches for part in self.run_step(members)])
        if not math.isfinite(shares[0]):
            raise InputError(
                f"training diverged in epoch {len(self.history)}: the loss is {shares[0]} (lower learning_rate; "
                f"got {self.chosen.learning_rate:g})"
            )
        if self.task.held_out is not None:
            current = copy.deepcopy(self.model.state_dict())
            self.model.load_state_dict(self.averaged or current)
            self.model.eval()
            with torch.no_grad():
                shares += _mean(self.task.validation())
            if shares[2] < self.lowest:
                self.lowest, self.best_epoch = shares[2], len(self.history)
                self.best_state = copy.deepcopy(self.averaged) or current
            self.model.load_state_dict(current)
        self.history.append(shares)

    def run_step(self, members: Tensor) -> list[Outcome]:
        self.optimizer.param_groups[0]["lr"] = self.chosen.rate(self.step, len(self.task.sizes))
        self.optimizer.zero_grad(set_to_none=True)
        parts = []
        for part in self.task.losses(members, self.step):
            (part.loss * (part.size / len(members))).backward()  # type: ignore[no-untyped-call]
            parts.append(part._replace(loss=part.loss.detach()))
        self.optimizer.step()
        self.step += 1
        current = self.model.state_dict()
        for name, value in (self.averaged or {}).items():
            if value.is_floating_point():
                value.lerp_(current[name], 1 - self.chosen.memory(self.step))
            else:
                value.copy_(current[name])
        return parts

    def content(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in self.kept},
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "dropout": torch.get_rng_state(),
        }

    def restore(self, content: dict[str, Any]) -> None:
        self.model.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        torch.set_rng_state(content["dropout"])
        for name in self.kept:
            setattr(self, name, content[name])


def _mean(outcomes: Iterable[Outcome]) -> tuple[float, ...]:
    parts = list(outcomes)
    size = sum(part.size for part in parts)
    loss = sum(float(part.loss) * part.size for part in parts)
    return loss / size, sum(part.right for part in parts) / size


@contextmanager
def _threads_worth_having(entries: int) -> Iterator[None]:
    """One thread for small batches: sharing them out costs more than it saves, most of all on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if entries < _WORTH_SHARING else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _stored(path: Path, training: dict[str, Any]) -> dict[str, Any]:
    """The state of this training; empty if there is no file. That of another training is refused."""
    if not path.exists():
        return {}
    try:
        content: dict[str, Any] = torch.load(path, weights_only=True)  # tensors and plain values: reading runs no code
        if content["format"] != _FORMAT:
            raise ValueError(f"it has format {content['format']!r}, this flipproof reads {_FORMAT!r}")
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, TypeError, pickle.UnpicklingError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path} is not a whole checkpoint: {reason} (remove it to start over)") from error
    stored = content.pop("training")
    for key in [*training, *(stored.keys() - training.keys())]:
        if stored.get(key) != training.get(key):
            raise InputError(
                f"{path} holds a training with {key} = {stored.get(key)!r}; asked for {key} = {training.get(key)!r} (ask for "
                "the same to continue it, or remove the file to start over)"
            )
    return content
