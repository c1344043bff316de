"""Log-odds of the classes from the nodes of a graph alone: what a local network starts from before any node votes.

Forests and perceptrons of scikit-learn are kept as plain arrays: fitted there, asked here, and saved without pickle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from flipproof.models.node_statistics import (
    LAYERS,
    Floats,
    Ints,
    fitted,
    folds,
    forest,
    forest_scores,
    forest_state,
    node_statistics,
    perceptron,
    perceptron_scores,
    perceptron_state,
    worth_having,
)

_FOLDS = 5
_DEPTH = 8  # questions per tree: deeper ones gain nothing that was seen, and take longer
_DECAYS = (0.1, 1.0)  # weight decays of the perceptrons
_LEAST_SHARE = 1e-3  # of a class: no graph is so sure that votes could not matter
_SHARPNESS = np.geomspace(0.1, 4, 60)  # factors of the log-odds that are tried


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
    for place in range(LAYERS):
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
    for place in range(LAYERS):
        after = num_classes if place == LAYERS - 1 else state[f"bias_{place}"].shape[-1]
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
