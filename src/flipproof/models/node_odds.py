"""Log-odds of the classes from the nodes of a graph alone: what a local network starts from before any node votes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from safetensors import numpy as arrays
from torch import Tensor, nn

from flipproof.models import node_statistics as line
from flipproof.models.node_statistics import Floats, Ints, State, folds, node_statistics, worth_having

_FOLDS = 5
_DEPTH = 8  # questions per tree: deeper ones gain nothing that was seen, and take longer
_DECAYS = (0.1, 1.0)  # weight decays of the perceptrons
_LEAST_SHARE = 1e-3  # of a class: no graph is so sure that votes could not matter
_SHARPNESS = np.geomspace(0.1, 4, 60)  # factors of the log-odds that are tried


class NodeOdds(nn.Module):
    """What the nodes of a graph say of its class: the mean of forests and perceptrons, one factor makes them as sure as right.

    Each of five parts of the training graphs is judged by what was fitted to the other four; any other graph by all.
    """

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        self._width, self._classes = 2 + 6 * in_features, num_classes
        self.take({})

    def take(self, tables: State) -> None:
        """Answer by these tables from now on; by none, with zeros."""
        self.tables, self._packed = tables, torch.frombuffer(bytearray(arrays.save(tables)), dtype=torch.uint8)

    def get_extra_state(self) -> Tensor:
        return self._packed

    def set_extra_state(self, packed: Tensor) -> None:
        tables = arrays.load(packed.cpu().numpy().tobytes())
        if tables:
            fits = tables["value"].shape[1] == len(tables["shift"]) == self._classes
            if not fits or not 0 <= tables["columns"].min() <= tables["columns"].max() < self._width:
                raise RuntimeError("the log-odds of nodes are those of other features or classes")
            line.check_trees(tables, len(tables["columns"]))
        self.take(tables)

    def fit(self, rows: Floats, truth: Ints, weights: Floats, seed: int) -> Floats:
        """Fit all to training graphs, from node statistics ``[T, s]``, classes ``[T]`` and weights of the classes ``[C]``, and
        return the log-odds of these graphs, ``[T, C]``; a single graph teaches nothing."""
        columns = worth_having(rows)
        inputs = rows[:, columns]
        states, shares = [], np.ones((len(rows), self._classes))
        for number, (learn, judge) in enumerate(folds(truth, seed, _FOLDS)):
            states.append(_fitted_state(inputs[learn], truth[learn], self._classes, seed + number))
            shares[judge] = [_shares(states[-1], row, self._classes) for row in inputs[judge]]
        if not states:
            self.take({})
            return np.zeros_like(shares)
        logarithms = np.log(np.maximum(shares, _LEAST_SHARE))
        known = {"columns": columns, "sharpness": _best_sharpness(logarithms, truth), "shift": np.log(weights)}
        self.take(_joined(states) | known)
        return np.asarray(known["sharpness"] * logarithms + known["shift"])

    def of(self, rows: Sequence[Floats] | Floats) -> Floats:
        """Log-odds of the classes, ``[B, C]``, of other graphs; zeros before it is fitted. Each is computed by itself."""
        odds, tables = np.zeros((len(rows), self._classes)), self.tables
        for place, row in enumerate(rows if tables else ()):
            shares = np.maximum(_shares(tables, row[tables["columns"]], self._classes), _LEAST_SHARE)
            odds[place] = tables["sharpness"] * np.log(shares) + tables["shift"]
        return odds

    def of_nodes(self, nodes: Tensor, sizes: Sequence[int]) -> Tensor:
        """Log-odds ``[B, C]`` from the features of all nodes ``[V, d]``; equal node sets, as of noisy copies, once."""
        features = np.split(nodes.detach().cpu().to(torch.float32).numpy(), np.cumsum(sizes)[:-1])[: len(sizes)]
        keys = [(len(rows), rows.tobytes()) for rows in features]
        distinct = dict(zip(keys, features, strict=True))
        odds = dict(zip(distinct, self.of([node_statistics(rows) for rows in distinct.values()]), strict=True))
        return torch.from_numpy(np.array([odds[key] for key in keys]).reshape(-1, self._classes)).to(nodes.device)


def _fitted_state(inputs: Floats, truth: Ints, num_classes: int, seed: int) -> State:
    trees = line.forest_state(line.fitted(line.forest(seed, depth=_DEPTH), inputs, truth), num_classes)
    parts = [
        line.perceptron_state(line.fitted(line.perceptron(seed, decay=decay), inputs, truth), num_classes)
        for decay in _DECAYS
    ]
    return trees | {name: np.stack([part[name] for part in parts]) for name in parts[0]}


def _joined(states: list[State]) -> State:
    starts = np.cumsum([0, *(len(state["value"]) for state in states)])[:-1].astype(np.int32)
    moved = [
        state | {name: state[name] + start for name in ("roots", "left", "right")}
        for state, start in zip(states, starts, strict=True)
    ]
    return {name: np.concatenate([state[name] for state in moved]) for name in moved[0]}


def _shares(state: State, row: Floats, num_classes: int) -> Floats:
    """Shares of the classes, ``[C]``: half of the forest's word, half of the perceptrons'."""
    trees = line.forest_scores(state, row[None], num_classes)[0] / len(state["roots"])
    scores = line.perceptron_scores(state, row)
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray((trees + (likely / likely.sum(axis=1, keepdims=True)).mean(axis=0)) / 2)


def _best_sharpness(logarithms: Floats, truth: Ints) -> Floats:
    """The factor under which the truth is likeliest, ``[1]``."""
    scaled = _SHARPNESS[:, None, None] * logarithms
    total = np.log(np.exp(scaled).sum(axis=2))
    likely = (scaled[:, np.arange(len(truth)), truth] - total).mean(axis=1)
    return np.asarray(_SHARPNESS[likely.argmax(keepdims=True)])
