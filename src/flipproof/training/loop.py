"""The loop: optimiser, schedule, averaged weights, checkpoints and history of a training.

What is learnt is a :class:`flipproof.training.task.Task`: it draws batches and gives losses. The loop knows neither graphs
nor noise.
"""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from flipproof.errors import InputError
from flipproof.models.network import NamedNetwork
from flipproof.noise import EdgeNoise
from flipproof.noise.groups import EdgeGroups
from flipproof.progress import watched
from flipproof.training.certified import CertifiedTraining, recipe
from flipproof.training.checkpoints import Checkpoint, digest, read_checkpoint, write_checkpoint
from flipproof.training.classification import GraphClassification
from flipproof.training.counting import learn_counts
from flipproof.training.flips import Flips
from flipproof.training.hyperparameters import Hyperparameters
from flipproof.training.result import Epoch, TrainingResult
from flipproof.training.schedules import SCHEDULES
from flipproof.training.task import Outcome, Task
from flipproof.training.views import Clean, as_view

__all__ = ["fit", "train"]

_WORTH_SHARING = 2**20  # entries of a batch from which several threads help
_CHECKPOINT_SECONDS = 1.0  # between checkpoints: writing one costs as much as a quick epoch
_FORGETTING = 10  # early on the average reaches back a tenth of the steps: the first weights are soon forgotten


def train(
    model: nn.Module,
    graphs: Iterable[Any],
    *,
    noise: EdgeNoise | None = None,
    groups: int | EdgeGroups | None = None,
    renumber: bool = False,
    flips: int = 0,
    worst_of: int = 4,
    budget: int | Sequence[int] | None = None,
    counts_only: bool = False,
    features: Any = None,
    epochs: int = 200,
    learning_rate: float | None = None,
    batch_size: int | None = None,
    weight_decay: float | None = None,
    copies: int = 1,
    objective: str = "samples",
    consistency: float = 0.0,
    label_smoothing: float = 0.0,
    average: float | None = None,
    schedule: str = "one-cycle",
    class_weights: bool = False,
    validation: Iterable[Any] | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | Callable[[int, int], None] = False,
    edge_features: Callable[[Any, Any], Any] | None = None,
) -> TrainingResult:
    """Train a model in place with AdamW; afterwards it is in evaluation mode.

    Repeatable: the same model, graphs and arguments give the same weights, byte for byte, on the same machine (graphs of
    hundreds of nodes are computed with torch's threads, and then with the same number of them). The initial weights are the
    model's own (``GCN(..., seed=0)``).

    Args:
        model: A torch module in the dense convention ``forward(x, adj, mask)`` or PyG's ``forward(x, edge_index, batch)``.
        graphs: Labelled graphs, in any form the library accepts.
        noise: Edge noise, fresh for every graph in every step; frozen pairs are left alone. ``None`` trains on the graphs
            as they are.
        groups: Number of groups (or the groups themselves) of a :class:`flipproof.VotingClassifier`: every graph of a step is
            replaced by its sub-graph of a random group. Validation graphs are seen as all their sub-graphs.
        renumber: With groups, number the nodes of every training graph at random before they are hashed, afresh in every step.
            This makes ever new sub-graphs and suits data whose node numbers have no meaning.
        flips: Number of pairs to train against: every graph of a step is replaced by the worst of several variants with so many
            pairs flipped, with groups inside the sub-graph's group. It raises the price of votes; with ``groups=1`` it is
            adversarial training of the model as it is. Validation graphs are flipped likewise. 0 flips nothing. With the
            objectives ``"attacked"`` and ``"attacked-votes"``, the most flips of the attack; validation graphs are then not
            flipped.
        worst_of: Number of variants, found by a forward pass: the graph as it is, the pairs of the steepest loss, random pairs.
        budget: For a :class:`flipproof.models.Local`: train it through its own certificate for attacks of at most so many
            flips, or of ``(additions, removals)``. The network then answers for any budget up to this one
            (``LocalClassifier(model, budget=2)``), by default for this one.
        counts_only: With a budget, let no node vote: the network learns from numbers of nodes and edges alone. It learns at
            once, so epochs and all that concerns steps and weights have no part in it.
        features: As for :class:`flipproof.SmoothedClassifier` (by default the graphs' own, or the degree where they have none);
            computed on the noisy graphs or sub-graphs. With a budget, the graphs' own.
        epochs: Passes over the graphs.
        learning_rate: The highest rate of the schedule; by default 0.01; with a budget 0.006, and 0.003 with node features.
        batch_size: Graphs per step; by default 64.
        weight_decay: Weight decay of AdamW; by default 0.0001; with a budget 0.001, and 0.3 with node features.
        copies: Noisy versions (or sub-graphs) per graph and step.
        objective: What the loss rewards. ``"samples"``: every noisy copy answered correctly (cross-entropy). ``"majority"``:
            the answer averaged over the copies of a graph, which is what smoothing asks for: a class that is never the
            likeliest on a single copy can still get the most votes. It needs many copies (64) and works best on a model
            already trained for the samples; it gains accuracy under strong noise and lowers the largest shares of votes.
            ``"attacked"``: every noisy copy answered correctly after an attack on the graph: up to ``flips`` pairs (by default
            2) that raise the loss of the averaged answer most steeply are flipped before the noise is added. It trains for the
            radius, needs several copies, and gives up some accuracy at radius 0. ``"attacked-votes"``: the same with a bounded
            loss, the probability of a wrong answer. Of two graphs that no classifier can both hold, it holds one, where the
            cross-entropy holds neither. Start from a model trained with ``"attacked"``.
        consistency: Weight of a term that draws the answers on the copies of one graph together: the mean divergence
            ``KL(mean answer || answer)``. It needs at least two copies.
        label_smoothing: Share of the target that is spread over all classes.
        average: Decay of an exponential moving average of the weights over steps, for instance 0.99; the average becomes the
            model. 0 takes the last weights. By default 0, and 0.99 with a budget.
        schedule: ``"one-cycle"`` (warm-up, then cosine to nearly nothing), ``"cosine"`` or ``"constant"``.
        class_weights: Give every class the same weight in the loss, however many graphs it has.
        validation: Labelled graphs; the weights of the epoch with the smallest loss on them are kept. With noise they are
            seen under noise, the same noisy versions in every epoch.
        seed: Seed of the order of graphs, the noise and dropout.
        checkpoint: A file that holds the state of the training, written every second or so at the end of an epoch. After a
            stop or a kill, the same call continues from there and ends with the same weights, byte for byte; a finished
            training returns its result at once. The file of another training is refused. Dropout on devices other than
            the CPU is not restored.
        progress: ``True`` shows progress with the time left on stderr; a function is called with the number of epochs done
            and their total.
        edge_features: As for :class:`flipproof.SmoothedClassifier`.

    >>> from flipproof import EdgeNoise
    >>> from flipproof.datasets import topologies
    >>> from flipproof.models import GCN
    >>> model = GCN(in_features=1, num_classes=8, seed=0)
    >>> train(model, topologies(32), noise=EdgeNoise(keep=0.9), epochs=2).epochs
    2
    """
    chosen = Hyperparameters.of(
        recipe=None if budget is None else recipe(model),
        epochs=epochs,
        learning_rate=learning_rate,
        batch_size=batch_size,
        weight_decay=weight_decay,
        copies=copies,
        objective=objective,
        consistency=consistency,
        label_smoothing=label_smoothing,
        average=average,
        schedule=schedule,
        class_weights=class_weights,
        seed=seed,
    )
    if not isinstance(model, nn.Module):
        raise InputError(
            f"model must be a torch module; got {type(model).__name__} (other classifiers train themselves)"
        )
    view = as_view(noise, groups, renumber=renumber)
    task: Task
    if budget is None:
        if counts_only:
            raise InputError(
                "counts_only is for local networks, which are trained for a budget; got none (pass budget=3)"
            )
        task = GraphClassification(
            model,
            graphs,
            view=view,
            features=features,
            validation=validation,
            chosen=chosen,
            edge_features=edge_features,
            flips=Flips(flips, worst_of) if flips else None,
        )
    elif isinstance(view, Clean) and not flips:
        if counts_only or getattr(model, "counts_only", False):
            return learn_counts(model, graphs, budget=budget, validation=validation, chosen=chosen, progress=progress)
        task = CertifiedTraining(
            model,
            graphs,
            budget=budget,
            features=features,
            validation=validation,
            chosen=chosen,
        )
    else:
        raise InputError(
            f"give either a budget, for local, or noise, groups or flips; got budget={budget} beside another"
        )
    return fit(model, task, chosen, checkpoint=checkpoint, progress=progress)


def fit(
    model: nn.Module,
    task: Task,
    chosen: Hyperparameters,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | Callable[[int, int], None] = False,
) -> TrainingResult:
    """Train a model for a task; see :func:`train` for what the arguments mean."""
    state = _State(model, task, chosen)
    settings = asdict(chosen) | task.settings
    path, asked = None if checkpoint is None else Path(checkpoint), dict[str, Any]()
    if path is not None:
        asked = settings | task.fingerprint()
        asked["model"] = model.config if isinstance(model, NamedNetwork) else type(model).__qualname__
        asked["initial weights"] = digest(model.state_dict())
    stored = None if path is None else read_checkpoint(path, asked)
    started, finished = time.perf_counter(), 0
    if stored is not None:
        started, finished = started - stored.state["seconds"], len(stored.state["history"])
    # a fork keeps the caller's generator as it was, and dropout depends on our seed alone
    with (
        torch.random.fork_rng(devices=[]),
        _threads_worth_having(task.entries),
        watched(progress, "training", chosen.epochs, unit="epochs", done=finished) as advance,
    ):
        torch.manual_seed(chosen.seed % 2**63)
        if stored is not None:
            state.restore(stored)
        due = -math.inf
        while state.epoch < chosen.epochs:
            try:
                state.run_epoch()
            except InputError:  # it diverged: with other settings it has to start over
                if path is not None:
                    path.unlink(missing_ok=True)
                raise
            now = time.perf_counter()
            if path is not None and (now >= due or state.epoch == chosen.epochs):
                numbers = state.numbers() | {"seconds": now - started}
                write_checkpoint(path, Checkpoint(asked, numbers, state.tensors()))
                due = time.perf_counter() + _CHECKPOINT_SECONDS
            advance(1)
    state.finish()
    task.finish()
    return TrainingResult(tuple(state.history), state.best_epoch, time.perf_counter() - started, settings)


class _State:
    """A training under way; everything that changes from epoch to epoch is here."""

    def __init__(self, model: nn.Module, task: Task, chosen: Hyperparameters) -> None:
        self.model, self.task, self.chosen = model, task, chosen
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        if not weights:
            raise InputError(f"model must have weights to train; {type(model).__name__} has none")
        # the fused optimiser updates all weights at once: for small networks a loop over them would cost as much as the rest
        self.optimizer = torch.optim.AdamW(
            weights, lr=chosen.learning_rate, weight_decay=chosen.weight_decay, fused=True
        )
        self.steps = chosen.epochs * -(-len(task) // chosen.batch_size)
        self.step = 0
        self.averaged = copy.deepcopy(model.state_dict()) if chosen.average else None
        self.history: list[Epoch] = []
        self.best_epoch, self.best_loss = -1, math.inf
        self.best_state: dict[str, Any] | None = None

    @property
    def epoch(self) -> int:
        return len(self.history)

    def run_epoch(self) -> None:
        """One pass over the members, and a look at the validation members."""
        self.model.train()
        loss, accuracy = _mean([part for members in self.task.batches(self.epoch) for part in self.run_step(members)])
        if not math.isfinite(loss):
            raise InputError(
                f"training diverged in epoch {self.epoch}: the loss is {loss} (lower learning_rate; "
                f"got {self.chosen.learning_rate:g})"
            )
        validation = self.task.validation()
        if validation is None:
            self.history.append(Epoch(loss, accuracy))
            return
        with self._weights_to_keep(), torch.no_grad():
            self.model.eval()
            validated = _mean(validation)
        self.history.append(Epoch(loss, accuracy, *validated))
        if validated[0] < self.best_loss:
            self.best_epoch, self.best_loss = self.epoch - 1, validated[0]
            self.best_state = copy.deepcopy(self.averaged or self.model.state_dict())

    def run_step(self, members: Tensor) -> list[Outcome]:
        """One step of the optimiser, on one batch."""
        rate = self.chosen.learning_rate * SCHEDULES[self.chosen.schedule](self.step / max(1, self.steps - 1))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        parts = []
        for part in self.task.losses(members, self.step):
            (part.loss * (part.size / len(members))).backward()  # type: ignore[no-untyped-call]
            parts.append(replace(part, loss=part.loss.detach()))
        self.optimizer.step()
        self.step += 1
        self._update_average()
        return parts

    def finish(self) -> None:
        """Put the weights to keep into the model."""
        state = self.best_state or self.averaged
        if state is not None:
            self.model.load_state_dict(state)
        if self.best_epoch < 0:
            self.best_epoch = self.epoch - 1
        self.model.eval()

    def numbers(self) -> dict[str, Any]:
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
            "random": {"dropout": torch.get_rng_state()},
        }
        for index, moments in self.optimizer.state_dict()["state"].items():
            parts[f"optimizer/{index}"] = moments
        return {f"{part}/{name}": value for part, values in parts.items() for name, value in values.items()}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go back to a state that :meth:`numbers` and :meth:`tensors` described."""
        parts: dict[str, dict[str, Tensor]] = {}
        for name, value in checkpoint.tensors.items():
            part, _, key = name.rpartition("/")
            parts.setdefault(part, {})[key] = value
        self.model.load_state_dict(parts["model"])
        self.averaged, self.best_state = parts.get("averaged"), parts.get("best")
        torch.set_rng_state(parts["random"]["dropout"])
        moments = {
            int(part.partition("/")[2]): values for part, values in parts.items() if part.startswith("optimizer/")
        }
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": moments})
        state = checkpoint.state
        self.history = [Epoch(**epoch) for epoch in state["history"]]
        self.step, self.best_epoch = state["step"], state["best_epoch"]
        self.best_loss = math.inf if state["best_loss"] is None else state["best_loss"]

    def _update_average(self) -> None:
        if self.averaged is None:
            return
        keep = min(self.chosen.average, self.step / (self.step + _FORGETTING))
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


def _mean(outcomes: Iterable[Outcome]) -> tuple[float, float]:
    """Loss and accuracy over all members."""
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
