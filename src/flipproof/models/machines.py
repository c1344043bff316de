"""Forests and perceptrons of scikit-learn as plain arrays: fitted there, asked here, and saved without pickle."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "fitted",
    "folds",
    "forest",
    "forest_scores",
    "forest_state",
    "perceptron",
    "perceptron_scores",
    "perceptron_state",
]

_Array = NDArray[np.float64]
_TREES = 100
_NEVER = -1e30  # score of a class without graphs
_BATCH = 256  # graphs that go through the trees together


def folds(truth: NDArray[np.int64], seed: int, number: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Pairs of graphs to learn from and to judge by, every class in proportion."""
    order = np.random.default_rng(seed).permutation(len(truth))
    order = order[np.argsort(truth[order], kind="stable")]  # class by class, dealt out in turn
    count = max(2, min(number, len(truth)))
    parts = [np.sort(order[start::count]) for start in range(count)]
    everything = np.arange(len(truth))
    return [(np.setdiff1d(everything, part), part) for part in parts if len(part) and len(part) < len(truth)]


def forest(seed: int, *, leaf: int = 1, depth: int | None = None) -> Any:
    """A random forest that is not fitted, with so many graphs per leaf at least and so many questions per tree at most."""
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(_TREES, min_samples_leaf=leaf, max_depth=depth, random_state=seed % 2**32)


def perceptron(seed: int, *, decay: float) -> Any:
    """A perceptron on standardised inputs that is not fitted."""
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = MLPClassifier(
        (64, 64), alpha=decay, learning_rate_init=0.003, batch_size=64, max_iter=60, random_state=seed % 2**32
    )
    return make_pipeline(StandardScaler(), network)


def fitted(machine: Any, inputs: _Array, truth: NDArray[np.int64]) -> Any:
    """The machine, fitted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a perceptron that has not converged is one that stopped early
        return machine.fit(inputs, truth)


def forest_state(machine: Any, num_classes: int) -> dict[str, NDArray[Any]]:
    """All trees in one table of nodes: where to go, and at the leaves the shares of the classes."""
    trees = [estimator.tree_ for estimator in machine.estimators_]
    starts = np.cumsum([0, *(tree.node_count for tree in trees)])
    value = np.zeros((starts[-1], num_classes), dtype=np.float32)
    shares = np.concatenate([tree.value[:, 0, :] for tree in trees])
    value[:, machine.classes_] = shares / shares.sum(axis=1, keepdims=True)

    def joined(name: str, kind: Any) -> NDArray[Any]:
        return np.concatenate([getattr(tree, name) for tree in trees]).astype(kind)

    leaves = joined("children_left", np.int64) < 0
    own = np.arange(starts[-1])
    offsets = np.repeat(starts[:-1], np.diff(starts))
    children = {
        side: np.where(leaves, own, joined(f"children_{side}", np.int64) + offsets).astype(np.int32)
        for side in ("left", "right")
    }
    feature = np.where(leaves, 0, joined("feature", np.int32)).astype(np.int32)
    threshold = np.where(leaves, 0.0, joined("threshold", np.float64))
    roots = starts[:-1].astype(np.int32)
    return {"roots": roots, **children, "feature": feature, "threshold": threshold, "value": value}


def forest_scores(state: Mapping[str, NDArray[Any]], rows: Sequence[_Array], num_classes: int) -> _Array:
    """Sums over the trees of the shares of classes, ``[rows, C]``."""
    found = [np.zeros((0, num_classes))]
    for start in range(0, len(rows), _BATCH):
        part = np.array(rows[start : start + _BATCH]).astype(np.float32)  # what the trees have learned from
        node = np.tile(state["roots"], (len(part), 1))
        while True:
            below = np.take_along_axis(part, state["feature"][node], axis=1) <= state["threshold"][node]
            after = np.where(below, state["left"][node], state["right"][node])
            if (after == node).all():
                break
            node = after
        found.append(state["value"][node].sum(axis=1, dtype=np.float64))
    return np.concatenate(found)


def perceptron_state(machine: Any, num_classes: int) -> dict[str, NDArray[Any]]:
    """What is taken off and divided by, and the weights of every layer; classes without a graph score next to nothing."""
    scaler, perceptron = (step for _, step in machine.steps)
    weights, biases = list(perceptron.coefs_), list(perceptron.intercepts_)
    if len(perceptron.classes_) == 2:  # a single output, for the second class
        weights[-1], biases[-1] = np.hstack([-weights[-1], weights[-1]]) / 2, np.array([-0.5, 0.5]) * biases[-1]
    last, bias = np.zeros((len(weights[-1]), num_classes)), np.full(num_classes, _NEVER)
    last[:, perceptron.classes_], bias[perceptron.classes_] = weights[-1], biases[-1]
    weights[-1], biases[-1] = last, bias
    state = {"mean": scaler.mean_, "scale": scaler.scale_, "layers": np.array([len(weights)])}
    for place, (matrix, offset) in enumerate(zip(weights, biases, strict=True)):
        state |= {f"weights_{place}": matrix, f"bias_{place}": offset}
    return state


def perceptron_scores(state: Mapping[str, NDArray[Any]], row: _Array) -> _Array:
    """Scores of the classes, ``[C]``; of several perceptrons whose weights are stacked, ``[M, C]``."""
    value: _Array = (row - state["mean"]) / state["scale"]
    last = sum(name.startswith("weights_") for name in state) - 1
    for place in range(last + 1):
        value = np.matmul(value[..., None, :], state[f"weights_{place}"])[..., 0, :] + state[f"bias_{place}"]
        if place < last:
            value = np.maximum(value, 0)
    return value
