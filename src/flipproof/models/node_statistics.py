"""The line to beat: what can be learned from a graph without its edges, by the best of forest, perceptron and majority class.

scikit-learn fits them; they are kept as plain arrays, evaluated here, and saved without pickle.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flipproof.checks import check_classes, checked_count, checked_seed
from flipproof.errors import InputError
from flipproof.graphs import Graph, labelled_graphs

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
State = dict[str, NDArray[Any]]
_TREES = 100
_NEVER = -1e30  # score of a class without graphs
_FOLDS = 3


@dataclass(frozen=True)
class NodeFit:
    """What fitting did: the setting that was chosen, the share of training graphs classified correctly, that of the graphs that
    chose it before it was fitted to all, and the same for every setting that was tried."""

    kind: str
    accuracy: float
    validation_accuracy: float
    compared: Mapping[str, float]


class NodeStatistics:
    r"""A classifier that ignores edges: the best of a random forest, a perceptron and the most frequent class.

    Its inputs are the number of nodes and, for every node feature, sum, logarithm of the sum and mean; for features with other
    values than 0 and 1 also deviation, smallest and largest value. The answer is certified at every radius, provided that the
    node features do not depend on edges. It is called with a list of :class:`flipproof.Graph`, and returns labels, numbers
    below ``num_classes``.

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
        self._state: State = {}

    def __call__(self, graphs: Sequence[Graph]) -> NDArray[np.int64]:
        return np.asarray(self.scores(graphs).argmax(axis=1))

    def scores(self, graphs: Sequence[Graph]) -> Floats:
        """Scores of the classes, ``[graphs, C]``; those of a graph do not depend on the graphs beside it."""
        if not self._state:
            raise InputError("NodeStatistics must be fitted before it is asked (call fit, or load a model folder)")
        rows = [node_statistics(_own(graph)) for graph in graphs]
        for row in rows:
            if len(row) != (width := int(self._state["width"][0])):
                columns, expected = ((number - 2) // 6 for number in (len(row), width))
                raise InputError(
                    f"the node features must be those of the training graphs, {expected} columns; got {columns} (use the same "
                    "data and features)"
                )
        inputs = np.array([row[self._state["columns"]] for row in rows]).reshape(len(graphs), -1)
        if "roots" in self._state:
            return forest_scores(self._state, inputs, self.num_classes)
        return np.array([perceptron_scores(self._state, row) for row in inputs]).reshape(len(rows), self.num_classes)

    def fit(
        self, graphs: Iterable[Any], *, features: Any = None, validation: Iterable[Any] | None = None, seed: int = 0
    ) -> NodeFit:
        """Fit all settings to labelled graphs, choose the best, and fit it once more to all graphs.

        Args:
            features: Node features, as for :class:`flipproof.EdgeBlindClassifier`; by default the graphs' own, if they have any.
            validation: Labelled graphs that choose the setting; by default three-fold cross-validation on ``graphs``.
            seed: Seed of forests, perceptrons and folds. The same arguments give the same weights.
        """
        seed = checked_seed(seed)
        rows, truth = _labelled(graphs, features, "graphs")
        parts = None
        if validation is not None:
            learn, (more, held_out) = np.arange(len(truth)), _labelled(validation, features, "validation")
            parts = [(learn, len(learn) + np.arange(len(held_out)))]
            rows, truth = [*rows, *more], np.concatenate([truth, held_out])
        check_classes(self.num_classes, int(truth.max()))
        if len({len(row) for row in rows}) > 1:
            raise InputError("graphs must have node features of one width (give all of them the same columns)")
        inputs = np.array(rows)
        columns = worth_having(inputs)
        self._state = {"width": np.array([inputs.shape[1]]), "columns": columns}
        inputs, settings = inputs[:, columns], _settings(seed)
        parts = folds(truth, seed, _FOLDS) if parts is None else parts
        compared = dict.fromkeys(settings, 0.0)
        for name, machine in settings.items() if parts else ():
            right = [fitted(machine, inputs[a], truth[a]).predict(inputs[b]) == truth[b] for a, b in parts]
            compared[name] = float(np.mean(np.concatenate(right)))
        kind = max(compared, key=lambda name: compared[name])
        machine = fitted(settings[kind], inputs, truth)
        self._state |= (perceptron_state if kind.startswith("perceptron") else forest_state)(machine, self.num_classes)
        return NodeFit(kind, float(np.mean(machine.predict(inputs) == truth)), compared[kind], compared)

    def state_dict(self) -> dict[str, Tensor]:
        """What was learnt, as torch's modules give it."""
        import torch

        return {key: torch.from_numpy(np.ascontiguousarray(value).copy()) for key, value in self._state.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take the state that :meth:`state_dict` gave."""
        tables = {key: value.numpy() for key, value in state.items()}
        last = tables["value"] if "roots" in tables else tables[f"weights_{_layers(tables) - 1}"]
        if last.shape[1] != self.num_classes or tables["columns"].max(initial=0) >= tables["width"][0]:
            raise RuntimeError(f"shapes {last.shape} for {self.num_classes} classes")
        if "roots" in tables:
            check_trees(tables, len(tables["columns"]))
        self._state = tables


def _own(graph: Graph) -> NDArray[Any]:
    features = np.zeros((graph.num_nodes, 0)) if graph.node_features is None else graph.node_features
    return features if graph.node is None else features[[graph.node]]


def _labelled(graphs: Iterable[Any], features: Any, argument: str) -> tuple[list[Floats], NDArray[np.int64]]:
    members = labelled_graphs(graphs, argument)
    labels = np.array([graph.label for graph in members])
    if features is None:
        return [node_statistics(_own(graph)) for graph in members], labels
    from flipproof.classifiers.features import edge_free

    hook = edge_free(features, "an edge-blind model")
    return [node_statistics(np.asarray(hook.of(graph))) for graph in members], labels


def _settings(seed: int) -> dict[str, Any]:
    """Every setting that is tried, as an estimator that is not fitted; the most frequent class is a tree without questions."""
    from sklearn.ensemble import RandomForestClassifier

    return {
        **{f"forest, {leaf} graphs per leaf": forest(seed, leaf=leaf) for leaf in (1, 5)},
        **{f"perceptron, weight decay {decay:g}": perceptron(seed, decay=decay) for decay in (0.1, 1.0)},
        "most frequent class": RandomForestClassifier(1, bootstrap=False, min_impurity_decrease=1.0, random_state=0),
    }


def node_statistics(features: NDArray[Any]) -> Floats:
    """All that can be said of a graph without its edges, ``[2 + 6 d]``, from the features of its nodes, ``[n, d]``."""
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
    columns = np.flatnonzero(wanted & (np.ptp(inputs, axis=0) > 0))
    return columns if len(columns) else np.array([0])


def folds(truth: Ints, seed: int, number: int) -> list[tuple[Ints, Ints]]:
    """Pairs of graphs to learn from and to judge by, every class in proportion."""
    order = np.random.default_rng(seed).permutation(len(truth))
    order = order[np.argsort(truth[order], kind="stable")]  # class by class, dealt out in turn
    count = max(2, min(number, len(truth)))
    parts = [np.sort(order[start::count]) for start in range(count)]
    everything = np.arange(len(truth))
    return [(np.setdiff1d(everything, part), part) for part in parts if len(part) and len(part) < len(truth)]


def forest(seed: int, *, leaf: int = 1, depth: int | None = None) -> Any:
    """A random forest that is not fitted, with at least ``leaf`` graphs per leaf and at most ``depth`` questions in a row."""
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(_TREES, min_samples_leaf=leaf, max_depth=depth, random_state=seed % 2**32)


def perceptron(seed: int, *, decay: float) -> Any:
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = MLPClassifier(
        (64, 64), alpha=decay, learning_rate_init=0.003, batch_size=64, max_iter=60, random_state=seed % 2**32
    )
    return make_pipeline(StandardScaler(), network)


def fitted(machine: Any, inputs: Floats, truth: Ints) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a perceptron that has not converged is one that stopped early
        return machine.fit(inputs, truth)


def forest_state(machine: Any, num_classes: int) -> State:
    """All trees in one table of nodes: where to go, and at the leaves the shares of the classes."""
    trees = [estimator.tree_ for estimator in machine.estimators_]
    starts = np.cumsum([0, *(tree.node_count for tree in trees)])
    left, right, feature, threshold, shares = (
        np.concatenate([getattr(tree, name) for tree in trees])
        for name in ("children_left", "children_right", "feature", "threshold", "value")
    )
    own, leaves, first = np.arange(starts[-1]), left < 0, np.repeat(starts[:-1], np.diff(starts))
    value = np.zeros((starts[-1], num_classes), dtype=np.float32)
    value[:, machine.classes_] = shares[:, 0] / shares[:, 0].sum(axis=1, keepdims=True)
    return {
        "roots": starts[:-1].astype(np.int32),
        "left": np.where(leaves, own, left + first).astype(np.int32),
        "right": np.where(leaves, own, right + first).astype(np.int32),
        "feature": np.where(leaves, 0, feature).astype(np.int32),
        "threshold": np.where(leaves, 0.0, threshold),
        "value": value,
    }


def check_trees(state: State, inputs: int) -> None:
    """Refuse stored trees that do not lead to leaves: children stand behind their parents, or are the leaf itself."""
    own, left, right = np.arange(len(state["value"])), state["left"], state["right"]
    ahead = (left > own) & (right > own) | (left == own) & (right == own)
    places = np.concatenate([state["roots"], left, right])
    if (
        not ahead.all()
        or places.min() < 0
        or places.max() >= len(own)
        or not np.isin(state["feature"], range(inputs)).all()
    ):
        raise RuntimeError("the trees of its forest do not end in leaves")


def forest_scores(state: State, rows: Floats, num_classes: int) -> Floats:
    """Sums over the trees of the shares of classes, ``[rows, C]``."""
    inputs = rows.astype(np.float32)  # what the trees have learned from
    node, after = np.full((len(rows), len(state["roots"])), -1), np.tile(state["roots"], (len(rows), 1))
    while not np.array_equal(node, after):
        node = after
        below = np.take_along_axis(inputs, state["feature"][node], axis=1) <= state["threshold"][node]
        after = np.where(below, state["left"][node], state["right"][node])
    return np.asarray(state["value"][node].sum(axis=1, dtype=np.float64)).reshape(len(rows), num_classes)


def perceptron_state(machine: Any, num_classes: int) -> State:
    """What is taken off and divided by, and the weights of every layer; classes without a graph score next to nothing."""
    scaler, network = (step for _, step in machine.steps)
    weights, biases = list(network.coefs_), list(network.intercepts_)
    if len(network.classes_) == 2:  # a single output, for the second class
        weights[-1], biases[-1] = np.hstack([-weights[-1], weights[-1]]) / 2, np.array([-0.5, 0.5]) * biases[-1]
    last, bias = np.zeros((len(weights[-1]), num_classes)), np.full(num_classes, _NEVER)
    last[:, network.classes_], bias[network.classes_] = weights[-1], biases[-1]
    state = {"mean": scaler.mean_, "scale": scaler.scale_}
    for place, (matrix, offset) in enumerate(zip([*weights[:-1], last], [*biases[:-1], bias], strict=True)):
        state |= {f"weights_{place}": matrix, f"bias_{place}": offset}
    return state


def perceptron_scores(state: State, row: Floats) -> Floats:
    """Scores of the classes, ``[C]``; of several perceptrons whose weights are stacked, ``[M, C]``."""
    value: Floats = (row - state["mean"]) / state["scale"]
    for place in range(_layers(state)):
        value = np.maximum(value, 0) if place else value
        value = np.matmul(value[..., None, :], state[f"weights_{place}"])[..., 0, :] + state[f"bias_{place}"]
    return value


def _layers(state: State) -> int:
    return sum(name.startswith("weights_") for name in state)
