"""The line to beat: what can be learned from a graph without its edges, by the better of a forest and a perceptron.

A weak line flatters every certificate. This one is fitted in seconds, and no attack on edges can change any of its answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flipproof.checks import checked_count, checked_seed
from flipproof.errors import InputError
from flipproof.graphs import Graph, as_graphs
from flipproof.models.node_odds import (
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

if TYPE_CHECKING:
    from torch import Tensor

_Array = NDArray[np.float64]
_FOLDS = 3


@dataclass(frozen=True)
class NodeFit:
    """What fitting did; the weights are in the model.

    Attributes:
        kind: The family that was chosen, with its setting.
        accuracy: Share of training graphs that are classified correctly.
        validation_accuracy: Of the chosen one, on the graphs that chose it, before it was fitted to all of them.
        compared: The same for every setting that was tried.
    """

    kind: str
    accuracy: float
    validation_accuracy: float
    compared: Mapping[str, float]


class NodeStatistics:
    r"""A classifier that sees the nodes of a graph and no edge: the better of a random forest and a perceptron.

    Its inputs are the number of nodes and, for every node feature, sum, logarithm of the sum and mean (for one-hot features: how
    often each kind occurs); for features with other values than 0 and 1 also deviation, smallest and largest value. None of them
    depends on edges, so the answer is certified at every radius, provided that the node features do not depend on edges.

    Args:
        num_classes: Number of classes ``C``.

    It is called with a list of :class:`flipproof.Graph`, and returns labels.

    >>> graphs = [Graph(n, [], label=int(n > 6)) for n in range(2, 12)] * 3
    >>> model = NodeStatistics(2)
    >>> model.fit(graphs).accuracy
    1.0
    >>> model([Graph(3, [(0, 1)]), Graph(11, [])]).tolist()
    [0, 1]
    """

    name = "node-statistics"
    edge_blind = True

    def __init__(self, num_classes: int = 2) -> None:
        self.num_classes = checked_count(num_classes, "num_classes", 1, "for instance num_classes=8")
        self.config = {"name": self.name, "num_classes": self.num_classes}
        self._state: dict[str, NDArray[Any]] = {}

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> NodeStatistics:
        """The model that a config describes, not fitted."""
        try:
            return cls(**{key: value for key, value in config.items() if key != "name"})
        except TypeError as error:
            raise InputError(f"config of {cls.name} does not fit: {error} (compare {cls.__name__})") from error

    def __repr__(self) -> str:
        return f"NodeStatistics(num_classes={self.num_classes})"

    def __call__(self, graphs: Sequence[Graph]) -> NDArray[np.int64]:
        """The label of every graph."""
        labels: NDArray[np.int64] = self.scores(graphs).argmax(axis=1)
        return labels

    def scores(self, graphs: Sequence[Graph]) -> _Array:
        """Scores of the classes, ``[graphs, C]``; those of a graph do not depend on the graphs beside it."""
        if not self._state:
            raise InputError("NodeStatistics must be fitted before it is asked (call fit, or load a model folder)")
        rows = [self._inputs(node_statistics(_own(graph))) for graph in graphs]
        if "roots" in self._state:
            return forest_scores(self._state, rows, self.num_classes)
        return np.array([perceptron_scores(self._state, row) for row in rows]).reshape(len(rows), self.num_classes)

    def _inputs(self, statistics: _Array) -> _Array:
        width = int(self._state["width"][0])
        if len(statistics) != width:
            raise InputError(
                f"the node features must be those of the training graphs, {_columns(width)} columns; got "
                f"{_columns(len(statistics))} (use the same data and features)"
            )
        chosen: _Array = statistics[self._state["columns"]]
        return chosen

    def fit(
        self,
        graphs: Iterable[Any],
        *,
        features: Any = None,
        validation: Iterable[Any] | None = None,
        seed: int = 0,
    ) -> NodeFit:
        """Fit all settings, choose the best, and fit it once more to all graphs. The same arguments give the same weights.

        Args:
            graphs: Labelled graphs.
            features: Node features, as for :class:`flipproof.EdgeBlindClassifier`; by default the graphs' own, if they have any.
            validation: Labelled graphs that choose the setting, and then belong to the training graphs. By default three-fold
                cross-validation on ``graphs`` chooses it.
            seed: Seed of forests, perceptrons and folds.
        """
        seed = checked_seed(seed)
        rows, truth = _labelled(graphs, features, "graphs")
        held_out = None
        if validation is not None:
            more, held_out = _labelled(validation, features, "validation")
            rows, truth = [*rows, *more], np.concatenate([truth, held_out])
        if truth.max() >= self.num_classes:
            raise InputError(
                f"the model must have a class for every label; got {self.num_classes} classes and label {truth.max()} "
                f"(build it with num_classes={truth.max() + 1})"
            )
        if len({len(row) for row in rows}) > 1:
            raise InputError("graphs must have node features of one width (give all of them the same columns)")
        inputs = np.array(rows)
        columns = worth_having(inputs)
        self._state = {"width": np.array([inputs.shape[1]]), "columns": columns}
        inputs = inputs[:, columns]
        learn = np.arange(len(truth) - (0 if held_out is None else len(held_out)))
        parts = folds(truth, seed, _FOLDS) if held_out is None else [(learn, np.arange(len(learn), len(truth)))]
        settings = _settings(seed)
        compared = {name: _right(settings[name], inputs, truth, parts) for name in settings}
        kind = max(compared, key=lambda name: compared[name])
        machine = fitted(settings[kind], inputs, truth)
        self._state |= (forest_state if kind.startswith("forest") else perceptron_state)(machine, self.num_classes)
        accuracy = float(np.mean(machine.predict(inputs) == truth))
        return NodeFit(kind, accuracy, compared[kind], compared)

    def state_dict(self) -> dict[str, Tensor]:
        """The weights, as a torch module's."""
        import torch

        return {key: torch.from_numpy(np.ascontiguousarray(value).copy()) for key, value in self._state.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take what :meth:`state_dict` returned."""
        found = {key: value.numpy() for key, value in state.items()}
        last = found["value"] if "roots" in found else found[f"weights_{int(found['layers'][0]) - 1}"]
        if last.shape[1] != self.num_classes or found["columns"].max(initial=0) >= found["width"][0]:
            raise RuntimeError(f"shapes {last.shape} for {self.num_classes} classes")
        self._state = found


def _own(graph: Graph) -> NDArray[Any]:
    return np.zeros((graph.num_nodes, 0)) if graph.node_features is None else graph.node_features


def _columns(width: int) -> int:
    return (width - 2) // 6


def _labelled(graphs: Iterable[Any], features: Any, argument: str) -> tuple[list[_Array], NDArray[np.int64]]:
    given = as_graphs(graphs)
    if not given or any(graph.label is None for graph in given):
        raise InputError(f"{argument} must be labelled graphs, at least one (build them with label=0, 1, 2, ...)")
    if features is None:
        rows = [node_statistics(_own(graph)) for graph in given]
        return rows, np.array([int(graph.label or 0) for graph in given])
    from flipproof.classifiers.features import as_features

    hook = as_features(features)
    if hook.reads_edges:
        raise InputError(
            f"an edge-blind model needs features that do not depend on edges; got {hook.spec or 'a function'} "
            '(pass features=None for the graphs\' own, or features="constant")'
        )
    rows = [node_statistics(np.asarray(hook.of(graph))) for graph in given]
    return rows, np.array([int(graph.label or 0) for graph in given])


def _settings(seed: int) -> dict[str, Any]:
    """Every setting that is tried, as an estimator that is not fitted."""
    return {
        **{f"forest, {leaf} graphs per leaf": forest(seed, leaf=leaf) for leaf in (1, 5)},
        **{f"perceptron, weight decay {decay:g}": perceptron(seed, decay=decay) for decay in (0.1, 1.0)},
    }


def _right(machine: Any, inputs: _Array, truth: NDArray[np.int64], parts: Sequence[Any]) -> float:
    """Share of the graphs that are right when they are not learned from."""
    right = [
        fitted(machine, inputs[learn], truth[learn]).predict(inputs[judge]) == truth[judge] for learn, judge in parts
    ]
    return float(np.mean(np.concatenate(right))) if right else 0.0
