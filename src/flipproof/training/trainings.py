"""One function per training: under noise or through the certificate of a local network, and on hashed sub-graphs."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import nn

from flipproof.checks import checked_count
from flipproof.errors import InputError
from flipproof.noise import EdgeNoise, FeatureNoise
from flipproof.noise.groups import EdgeGroups
from flipproof.training.batches import Noisy, SubGraphs, View
from flipproof.training.certified import CertifiedTraining, learn_counts, recipe
from flipproof.training.classification import ATTACKED, GraphClassification
from flipproof.training.loop import Lesson, TrainingResult, fit


def train(
    model: nn.Module,
    graphs: Iterable[Any],
    *,
    noise: EdgeNoise | None = None,
    feature_noise: FeatureNoise | None = None,
    objective: str = "samples",
    flips: int | None = None,
    copies: int = 1,
    budget: int | Sequence[int] | None = None,
    features: Any = None,
    epochs: int = 200,
    learning_rate: float | None = None,
    batch_size: int | None = None,
    weight_decay: float | None = None,
    average: float | None = None,
    class_weights: bool = False,
    validation: Iterable[Any] | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | Callable[[int, int], None] = False,
) -> TrainingResult:
    """Train a model in place with AdamW, under noise or as it is; afterwards it is in evaluation mode.

    Repeatable: the same model, graphs and arguments give the same weights, byte for byte, on the same machine and with the same
    number of torch's threads. The initial weights are the model's own (``GCN(..., seed=0)``).

    Args:
        model: A torch module in the dense convention ``forward(x, adj, mask)`` or PyG's ``forward(x, edge_index, batch)``.
        graphs: Labelled graphs, in any form the library accepts.
        noise: Edge noise, fresh for every graph in every step; frozen pairs are left alone.
        feature_noise: Noise on the graphs' own node features, beside that on edges; validation graphs see it, too.
        objective: What the loss rewards: every noisy copy answered correctly (``"samples"``), the answer averaged over 64 copies
            (``"majority"``), every copy after the flips of the graph that hurt the averaged answer most (``"attacked"``), or
            the same with a bounded loss (``"attacked-votes"``). docs/models.md compares them.
        flips: Largest number of flips of the attack in ``"attacked"`` and ``"attacked-votes"``; by default 2.
        copies: Noisy versions per graph and step.
        budget: Trains a :class:`flipproof.models.Local` through its own certificate, without noise: the largest number of flips
            to prepare for, or ``(additions, removals)``; the network then answers for any budget up to this one. One made with
            ``counts_only=True`` learns at once, without epochs.
        features: As for :class:`flipproof.SmoothedClassifier`; computed on the noisy graphs or sub-graphs.
        epochs: Passes over the graphs.
        learning_rate: The highest rate; by default 0.01; with a budget 0.006, and 0.003 with node features.
        batch_size: Graphs per step; by default 64.
        weight_decay: Weight decay of AdamW; by default 0.0001; with a budget 0.001, and 0.3 with node features.
        average: Decay of a moving average of the weights, which becomes the model; by default 0, and 0.99 with a budget.
        class_weights: Give every class the same weight in the loss, however many graphs it has.
        validation: Labelled graphs; the weights of the epoch with the smallest loss on them are kept.
        seed: Seed of the order of graphs, the noise and dropout.
        checkpoint: A file from which the same call continues after a stop or a kill, to the same weights.
        progress: ``True`` shows progress on stderr; a function is called with the number of epochs done and their total.

    >>> from flipproof import EdgeNoise
    >>> from flipproof.datasets import topologies
    >>> from flipproof.models import GCN
    >>> model = GCN(in_features=1, num_classes=8, seed=0)
    >>> train(model, topologies(32), noise=EdgeNoise(keep=0.9), epochs=2).epochs
    2
    """
    values = locals()
    if budget is not None:
        if (noise, feature_noise, flips, copies, objective) != (None, None, None, 1, "samples"):
            raise InputError(
                f"budget={budget} trains a local network through its certificate, without noise, flips or copies; got one of "
                "these beside it (leave one of them out)"
            )
        lesson = Lesson.of(values, **recipe(model))
        if getattr(model, "counts_only", False):
            return learn_counts(lesson, budget, progress)
        return fit(CertifiedTraining(lesson, budget), checkpoint=checkpoint, progress=progress)
    if flips is not None and objective not in ATTACKED:
        raise InputError(
            f'flips are for objective="attacked" and "attacked-votes"; got flips={flips} and {objective!r} '
            "(flipproof.train_voting with groups=1 trains against flips without noise)"
        )
    if objective in ATTACKED:
        flips = 2 if flips is None else checked_count(flips, "flips", 1, "for instance 2")
    still = noise is None and feature_noise is None
    view = View() if still else Noisy(noise or EdgeNoise(add=0, remove=0), feature_noise)
    task = GraphClassification(Lesson.of(values), view, flips or 0)
    return fit(task, checkpoint=checkpoint, progress=progress)


def train_voting(
    model: nn.Module,
    graphs: Iterable[Any],
    *,
    groups: int | EdgeGroups,
    feature_groups: int = 1,
    renumber: bool = False,
    flips: int = 0,
    copies: int = 1,
    features: Any = None,
    epochs: int = 200,
    learning_rate: float | None = None,
    batch_size: int | None = None,
    weight_decay: float | None = None,
    average: float | None = None,
    class_weights: bool = False,
    validation: Iterable[Any] | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | Callable[[int, int], None] = False,
) -> TrainingResult:
    """Train a model for a :class:`flipproof.VotingClassifier`: every graph of a step is its sub-graph of a random group.

    Args:
        model: As for :func:`train`.
        graphs: Labelled graphs, in any form the library accepts.
        groups: Number of groups, or the groups themselves.
        feature_groups: Number of feature groups; each copy shows the node features of a random one.
        renumber: Number the nodes of every graph at random before they are hashed, for data whose node numbers mean nothing.
        flips: Number of pairs to train against: every sub-graph is replaced by the worst of several variants with this many pairs
            of its group flipped, which raises the price of votes.
        copies: Sub-graphs per graph and step.
        features, epochs, learning_rate, batch_size, weight_decay, average, class_weights: As for :func:`train`.
        validation, seed, checkpoint, progress: As for :func:`train`.
    """
    lesson, view = Lesson.of(locals()), SubGraphs(groups, renumber=renumber, feature_groups=feature_groups)
    task = GraphClassification(lesson, view, flips)
    return fit(task, checkpoint=checkpoint, progress=progress)


def train_for(model: nn.Module, graphs: Iterable[Any], **arguments: Any) -> TrainingResult:
    """The training that the arguments of a defence call for: for a budget (without copies), for groups, or under noise."""
    chosen = {name: value for name, value in arguments.items() if value is not None}
    training: Callable[..., TrainingResult] = train_voting if "groups" in chosen else train
    if chosen.pop("counts_only", False):
        model.read_counts_only()  # type: ignore[operator]
    if "budget" in chosen:
        chosen |= {"objective": "samples", "copies": 1}
    elif chosen.get("objective") == "samples":
        del chosen["objective"]
    known = inspect.signature(training).parameters.keys()
    for name in sorted(chosen.keys() - known):
        raise InputError(f"{name} has no part in {training.__name__}; got {chosen[name]!r} (leave it out)")
    return training(model, graphs, **chosen)
