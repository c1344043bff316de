"""Log-odds of the classes from the nodes of a graph alone: what a local network starts from before any node votes.

Forests and perceptrons of scikit-learn are kept as plain arrays: fitted there, asked here, and saved without pickle.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

_TREES = 100
_NEVER = -1e30  # score of a class without graphs
_BATCH = 256  # graphs that go through the trees together
_FOLDS = 5
_LAYERS = 3  # of a perceptron
_DEPTH = 8  # questions per tree: deeper ones gain nothing that was seen, and take longer
_DECAYS = (0.1, 1.0)  # weight decays of the perceptrons
_LEAST_SHARE = 1e-3  # of a class: no graph is so sure that votes could not matter
_SHARPNESS = np.geomspace(0.1, 4, 60)  # factors of the log-odds that are tried

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class NodeOdds(nn.Module):
    """What the nodes of a graph say of its class, edges left out: the mean of forests and perceptrons.

    Each of five parts of the training graphs has a forest and two perceptrons that were fitted to the other four. A training
    graph is known to those alone that have not seen it, any other graph to all of them; so what is learnt on top of the log-odds
    does not rely on what was learnt by heart. One factor makes them as sure as they are right.

    Args:
        in_features: Width ``d`` of the node features.
        num_classes: Number of classes ``C``.
    """

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        self._width, self._classes = 2 + 6 * in_features, num_classes
        self._take(_nothing(num_classes))

    def __len__(self) -> int:
        """Number of trees; 0 before it is fitted."""
        return len(self.get_buffer("roots"))

    def _take(self, state: Mapping[str, NDArray[Any]]) -> None:
        for name, value in state.items():
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(value)))

    def fit(self, rows: Floats, truth: Ints, weights: Floats, seed: int) -> Floats:
        """Fit all to training graphs, and return the log-odds of these, ``[T, C]``; a single graph teaches nothing.

        Args:
            rows: What is known of their nodes, ``[T, s]``; see :func:`flipproof.models.node_statistics.node_statistics`.
            truth: Their classes, ``[T]``.
            weights: How much more a graph of each class counts than others, ``[C]``.
            seed: Seed of parts, forests and perceptrons.
        """
        self._take(_nothing(self._classes))
        columns = worth_having(rows)
        inputs = rows[:, columns]
        states, shares = [], np.ones((len(rows), self._classes))
        for number, (learn, judge) in enumerate(folds(truth, seed, _FOLDS)):
            states.append(_fitted_state(inputs[learn], truth[learn], self._classes, seed + number))
            shares[judge] = [_shares(states[-1], row, self._classes) for row in inputs[judge]]
        logarithms = np.log(np.maximum(shares, _LEAST_SHARE))
        if states:
            known = {"columns": columns, "sharpness": _best_sharpness(logarithms, truth), "shift": np.log(weights)}
            self._take({**_joined(states), **known})
            logarithms = known["sharpness"] * logarithms + known["shift"]
        return logarithms

    def of(self, rows: Sequence[Floats] | Floats) -> Floats:
        """Log-odds of the classes, ``[B, C]``, of other graphs; zeros before it is fitted. They are asked for one by one."""
        found = np.zeros((len(rows), self._classes))
        if len(self):
            state = {name: value.cpu().numpy() for name, value in self.named_buffers()}
            for place, row in enumerate(rows):
                shares = np.maximum(_shares(state, row[state["columns"]], self._classes), _LEAST_SHARE)
                found[place] = state["sharpness"] * np.log(shares) + state["shift"]
        return found

    def of_nodes(self, nodes: Tensor, sizes: Sequence[int]) -> Tensor:
        """Log-odds ``[B, C]`` from the features of all nodes ``[V, d]``; equal node sets, as of noisy copies, once."""
        features = np.split(nodes.detach().cpu().to(torch.float32).numpy(), np.cumsum(sizes)[:-1])[: len(sizes)]
        keys = [(len(rows), rows.tobytes()) for rows in features]
        distinct = dict(zip(keys, features, strict=True))
        odds = dict(zip(distinct, self.of(list(map(node_statistics, distinct.values()))), strict=True))
        rows = np.array([odds[key] for key in keys]).reshape(len(keys), self._classes)
        return torch.from_numpy(rows).to(nodes.device)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        metadata: Any,
        strict: bool,
        missing: Any,
        unexpected: Any,
        errors: list[str],
    ) -> None:
        """Take tables of any length that fit together."""
        expected = _nothing(self._classes)
        given = {name: state_dict.get(prefix + name) for name in expected}
        if all(isinstance(value, Tensor) for value in given.values()):
            state = {name: value.cpu().numpy() for name, value in given.items()}
            wrong = _misfits(state, self._width, self._classes)
            if wrong:
                errors.append(f"log-odds of nodes: {wrong}")
                return
            for name, value in given.items():
                self.register_buffer(name, torch.empty_like(value))
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, unexpected, errors)


def _nothing(num_classes: int) -> dict[str, NDArray[Any]]:
    """The state of machines that are not there."""
    found: dict[str, NDArray[Any]] = {
        name: np.zeros(0, dtype=np.int32) for name in ("roots", "left", "right", "feature")
    }
    found |= {"threshold": np.zeros(0), "value": np.zeros((0, num_classes), dtype=np.float32)}
    found |= {"columns": np.zeros(0, dtype=np.int64), "sharpness": np.ones(1), "shift": np.zeros(num_classes)}
    found |= {"mean": np.zeros((0, 0)), "scale": np.zeros((0, 0))}
    for place in range(_LAYERS):
        found |= {f"weights_{place}": np.zeros((0, 0, 0)), f"bias_{place}": np.zeros((0, 0))}
    return found


def _misfits(state: Mapping[str, NDArray[Any]], width: int, num_classes: int) -> str:
    """What is wrong with a state that was read; empty if nothing is."""
    nothing = _nothing(num_classes)
    if any(value.dtype != nothing[name].dtype for name, value in state.items()):
        return "numbers are of another type"
    if not all(np.isfinite(value).all() for value in state.values()):
        return "not all numbers are finite"
    if not len(state["roots"]):
        empty = all(value.shape == nothing[name].shape for name, value in state.items())
        return "" if empty else "there are tables and no trees"
    nodes, machines, inputs = len(state["threshold"]), len(state["mean"]), len(state["columns"])
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("left", "right", "feature", "threshold"), (nodes,))
    shapes |= {"value": (nodes, num_classes), "shift": (num_classes,), "sharpness": (1,)}
    shapes |= {
        "mean": (machines, inputs),
        "scale": (machines, inputs),
        "roots": (len(state["roots"]),),
        "columns": (inputs,),
    }
    before = inputs
    for place in range(_LAYERS):
        after = num_classes if place == _LAYERS - 1 else state[f"bias_{place}"].shape[-1]
        shapes |= {f"weights_{place}": (machines, before, after), f"bias_{place}": (machines, after)}
        before = after
    for name, shape in shapes.items():
        if state[name].shape != shape:
            return f"{name} has shape {list(state[name].shape)}"
    if not machines:
        return "there are no perceptrons"
    own = np.arange(nodes)
    behind = all(((state[side] >= own) & (state[side] < nodes)).all() for side in ("left", "right"))
    apart = ((state["left"] == own) == (state["right"] == own)).all()
    ranges = {"roots": nodes, "feature": inputs, "columns": width}
    inside = all(((state[name] >= 0) & (state[name] < most)).all() for name, most in ranges.items())
    fits = behind and apart and inside and (state["scale"] > 0).all()
    return "" if fits else "trees or columns lead nowhere"


def _fitted_state(inputs: Floats, truth: Ints, num_classes: int, seed: int) -> dict[str, NDArray[Any]]:
    """A forest and perceptrons, fitted to the same graphs."""
    trees = forest_state(fitted(forest(seed, depth=_DEPTH), inputs, truth), num_classes)
    parts = [perceptron_state(fitted(perceptron(seed, decay=decay), inputs, truth), num_classes) for decay in _DECAYS]
    return trees | {name: np.stack([part[name] for part in parts]) for name in parts[0] if name != "layers"}


def _joined(states: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Several such states as one."""
    starts = np.cumsum([0, *(len(state["value"]) for state in states)])
    found = {name: np.concatenate([state[name] for state in states]) for name in states[0]}
    for name in ("roots", "left", "right"):
        moved = [state[name] + start for state, start in zip(states, starts[:-1], strict=True)]
        found[name] = np.concatenate(moved).astype(np.int32)
    return found


def _shares(state: Mapping[str, NDArray[Any]], row: Floats, num_classes: int) -> Floats:
    """Shares of the classes, ``[C]``: half of the forest's word, half of the perceptrons'."""
    trees = forest_scores(state, [row], num_classes)[0] / len(state["roots"])
    scores = perceptron_scores(state, row)
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: Floats = (trees + (likely / likely.sum(axis=1, keepdims=True)).mean(axis=0)) / 2
    return found


def _best_sharpness(logarithms: Floats, truth: Ints) -> Floats:
    """The factor under which the truth is likeliest, ``[1]``."""
    scaled = _SHARPNESS[:, None, None] * logarithms
    total = np.log(np.exp(scaled).sum(axis=2))
    likely = (scaled[:, np.arange(len(truth)), truth] - total).mean(axis=1)
    best: Floats = _SHARPNESS[likely.argmax(keepdims=True)]
    return best


def node_statistics(features: NDArray[Any]) -> Floats:
    """All that can be said of a graph without its edges, ``[2 + 6 d]``, from the features of its nodes, ``[n, d]``.

    >>> node_statistics(np.array([[1.0], [3.0]])).round(2).tolist()
    [2.0, 0.69, 4.0, 1.61, 2.0, 1.0, 1.0, 3.0]
    """
    count = len(features)
    size = [count, np.log(max(count, 1))]
    if not features.size:
        return np.array([*size, *np.zeros(6 * features.shape[1])])
    x = np.sort(np.asarray(features, dtype=np.float64), axis=0)  # sums must not depend on how nodes are numbered
    sums = x.sum(axis=0)
    logarithms = np.sign(sums) * np.log1p(np.abs(sums))
    return np.concatenate([size, sums, logarithms, sums / count, x.std(axis=0), x.min(axis=0), x.max(axis=0)])


def worth_having(inputs: Floats) -> Ints:
    """The columns that tell graphs apart; of features that are 0 or 1 alone the counts say all there is."""
    own = (inputs.shape[1] - 2) // 6
    smallest, largest = inputs[:, 2 + 4 * own : 2 + 5 * own], inputs[:, 2 + 5 * own :]
    binary = np.isin(smallest, (0, 1)).all(axis=0) & np.isin(largest, (0, 1)).all(axis=0)
    wanted = np.concatenate([np.ones(2 + 3 * own, dtype=bool), *[~binary] * 3])
    found = np.flatnonzero(wanted & (np.ptp(inputs, axis=0) > 0))
    return found if len(found) else np.array([0])


def folds(truth: Ints, seed: int, number: int) -> list[tuple[Ints, Ints]]:
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


def fitted(machine: Any, inputs: Floats, truth: Ints) -> Any:
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


def forest_scores(state: Mapping[str, NDArray[Any]], rows: Sequence[Floats], num_classes: int) -> Floats:
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


def perceptron_scores(state: Mapping[str, NDArray[Any]], row: Floats) -> Floats:
    """Scores of the classes, ``[C]``; of several perceptrons whose weights are stacked, ``[M, C]``."""
    value: Floats = (row - state["mean"]) / state["scale"]
    last = sum(name.startswith("weights_") for name in state) - 1
    for place in range(last + 1):
        value = np.matmul(value[..., None, :], state[f"weights_{place}"])[..., 0, :] + state[f"bias_{place}"]
        if place < last:
            value = np.maximum(value, 0)
    return value
