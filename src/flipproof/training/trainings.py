"""One function per training: under noise, on hashed sub-graphs, through the certificate of a local network."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any

from torch import nn

from flipproof.checks import checked_count
from flipproof.errors import InputError
from flipproof.noise import EdgeNoise, FeatureNoise
from flipproof.noise.groups import EdgeGroups
from flipproof.training.batches import Noisy, SubGraphs, View
from flipproof.training.certified import CertifiedTraining, learn_counts, recipe
from flipproof.training.classification import ATTACKED, GraphClassification
from flipproof.training.loop import Hyperparameters, TrainingResult, fit

_OWN = ("model", "graphs", "noise", "feature_noise", "flips", "budget")  # arguments of train that are not handed on
_OWN_OF_VOTING = ("model", "graphs", "groups", "renumber", "feature_groups")
_OF_COPIES = {"objective": "samples", "copies": 1}
_STILL = EdgeNoise(add=0, remove=0)
_NUMBERS = {entry.name for entry in fields(Hyperparameters)}


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
        budget: For a :class:`flipproof.models.Local`: as :func:`train_certified`, without noise.
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
    arguments = {name: value for name, value in locals().items() if name not in _OWN}
    if budget is not None:
        shared = {name: value for name, value in arguments.items() if name not in _OF_COPIES}
        under_noise = noise is not None or feature_noise is not None
        if under_noise or flips is not None or any(arguments[name] != _OF_COPIES[name] for name in _OF_COPIES):
            raise InputError(
                f"budget={budget} trains a local network through its certificate, without noise, flips or copies; got one of "
                "these beside it (leave one of them out)"
            )
        return train_certified(model, graphs, budget=budget, **shared)
    if flips is not None and objective not in ATTACKED:
        raise InputError(
            f'flips are for objective="attacked" and "attacked-votes"; got flips={flips} and {objective!r} '
            "(flipproof.train_voting with groups=1 trains against flips without noise)"
        )
    if objective in ATTACKED:
        flips = 2 if flips is None else checked_count(flips, "flips", 1, "for instance 2")
    view = View() if noise is None and feature_noise is None else Noisy(noise or _STILL, feature_noise)
    return _fit(GraphClassification, model, graphs, view=view, flips=flips or 0, **arguments)


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
    arguments = {name: value for name, value in locals().items() if name not in _OWN_OF_VOTING}
    view = SubGraphs(groups, renumber=renumber, feature_groups=feature_groups)
    return _fit(GraphClassification, model, graphs, view=view, **arguments)


def train_certified(
    model: nn.Module,
    graphs: Iterable[Any],
    *,
    budget: int | Sequence[int],
    counts_only: bool = False,
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
    """Train a :class:`flipproof.models.Local` through its own certificate.

    Args:
        model: The local network.
        graphs: Labelled graphs, in any form the library accepts.
        budget: Largest number of flips to prepare for, or ``(additions, removals)``; the network then answers for any budget up
            to this one.
        counts_only: Let no node vote: the network learns from numbers of nodes and edges alone, at once, without epochs.
        features: As for :func:`train`; must not depend on edges.
        epochs, learning_rate, batch_size, weight_decay, average, class_weights: As for :func:`train`.
        validation, seed, checkpoint, progress: As for :func:`train`.
    """
    arguments = {
        name: value for name, value in locals().items() if name not in ("model", "graphs", "budget", "counts_only")
    }
    arguments |= {name: value for name, value in recipe(model).items() if arguments.get(name) is None}
    at_once = counts_only or getattr(model, "counts_only", False)
    return _fit(learn_counts if at_once else CertifiedTraining, model, graphs, budget=budget, **arguments)


def train_for(model: nn.Module, graphs: Iterable[Any], **arguments: Any) -> TrainingResult:
    """The training that the arguments of a defence call for: for a budget (without copies), for groups, or under noise."""
    chosen = {name: value for name, value in arguments.items() if value is not None}
    training: Callable[..., TrainingResult] = train
    if "budget" in chosen:
        training = train_certified
        chosen = {name: value for name, value in chosen.items() if name not in _OF_COPIES}
    elif "groups" in chosen:
        training = train_voting
        if chosen.get("objective") == _OF_COPIES["objective"]:
            del chosen["objective"]
    known = inspect.signature(training).parameters.keys()
    for name in sorted(chosen.keys() - known):
        raise InputError(
            f"{name} has no part in {training.__name__}; got {chosen[name]!r} (leave it out, or train for another defence)"
        )
    return training(model, graphs, **chosen)


def _fit(
    training: Callable[..., Any],
    model: nn.Module,
    graphs: Iterable[Any],
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | Callable[[int, int], None] = False,
    **arguments: Any,
) -> TrainingResult:
    """Train for the task that is made of these arguments, or at once; ``None`` stands for the default of a number."""
    if not isinstance(model, nn.Module):
        raise InputError(
            f"model must be a torch module; got {type(model).__name__} (other classifiers train themselves)"
        )
    chosen = Hyperparameters.of(**{name: value for name, value in arguments.items() if name in _NUMBERS})
    data = {name: value for name, value in arguments.items() if name not in _NUMBERS}
    task = training(model, graphs, chosen=chosen, **data)
    if not isinstance(task, TrainingResult):
        return fit(task, checkpoint=checkpoint, progress=progress)
    if callable(progress):
        progress(chosen.epochs, chosen.epochs)
    return task
