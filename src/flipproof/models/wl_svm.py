"""A support vector machine on the Weisfeiler-Lehman subtree kernel: no network, no gradients, a black box to smoothing.

The kernel's feature map is explicit (how often each subtree pattern occurs), so the machine is linear: its support vectors
collapse into one weight a pattern, and a graph is classified without comparing it with a single training graph.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flipproof.checks import checked_count, checked_seed
from flipproof.classifiers.black_box import BlackBoxClassifier
from flipproof.classifiers.features import as_features
from flipproof.errors import InputError
from flipproof.graphs import Graph, as_graphs
from flipproof.models.label_model import LabelModel, checked_config
from flipproof.noise import EdgeNoise, SampleStream

__all__ = ["WLSVM", "WLFit", "subtree_patterns"]

_COSTS = (0.01, 0.1, 1.0, 10.0, 100.0)
_VALIDATION_COPIES = 8
_BATCH = 1024


@dataclass(frozen=True)
class WLFit:
    """What fitting did; the weights are in the model.

    Attributes:
        cost: The SVM's ``C``: the best on validation, else 1.
        patterns: Subtree patterns that have a weight.
        accuracy: Share of (noisy) training graphs classified right.
        validation_accuracy: On the validation graphs, under the same noise; ``None`` without them.
    """

    cost: float
    patterns: int
    accuracy: float
    validation_accuracy: float | None


class WLSVM(LabelModel):
    r"""A linear support vector machine on the Weisfeiler-Lehman subtree features (Shervashidze et al., JMLR 2011).

    Node labels start as the rows of the node features (all alike without them). In each iteration a node's label becomes
    that of the subtree below it: its own label with the multiset of its neighbours'. With ``phi(G)`` the number of nodes of
    each label in all iterations, the kernel is

    .. math:: k(G, G') = \frac{\phi(G)^\top \phi(G')}{\|\phi(G)\| \, \|\phi(G')\|}

    the normalised kernel of GraKeL, up to collisions of 64-bit hashes. One machine a class against the others; the highest
    score wins.

    Args:
        num_classes: Number of classes ``C``.
        iterations: Depth of the subtrees.

    It is called with a list of :class:`flipproof.Graph`, and returns labels: :class:`flipproof.SmoothedClassifier` takes it
    as it is.
    """

    name = "wl-svm"

    def __init__(self, num_classes: int = 2, *, iterations: int = 3) -> None:
        self.config = checked_config(self.name, num_classes=num_classes, iterations=iterations)
        self._patterns = np.empty(0, dtype=np.uint64)
        self._weights = np.zeros((0, num_classes))
        self._bias = np.zeros(num_classes)

    def __repr__(self) -> str:
        return f"WLSVM(num_classes={self.num_classes}, iterations={self.iterations}, patterns={len(self._patterns)})"

    @property
    def iterations(self) -> int:
        """Depth of the subtrees."""
        return int(self.config["iterations"])

    def scores(self, graphs: Sequence[Graph]) -> NDArray[np.float64]:
        """The machines' scores, ``[graphs, C]``."""
        owner, pattern, share = subtree_patterns(graphs, iterations=self.iterations)
        place = np.searchsorted(self._patterns, pattern)
        known = place < len(self._patterns)
        known[known] = self._patterns[place[known]] == pattern[known]
        owner, place, share = owner[known], place[known], share[known]
        sums = [np.bincount(owner, share * column[place], minlength=len(graphs)) for column in self._weights.T]
        return np.stack(sums, axis=1) + self._bias

    def fit(
        self,
        graphs: Iterable[Any],
        *,
        noise: EdgeNoise | None = None,
        features: Any = None,
        copies: int = 8,
        class_weights: bool = False,
        validation: Iterable[Any] | None = None,
        seed: int = 0,
    ) -> WLFit:
        """Fit the machine to labelled graphs, or to noisy copies of them. The same arguments give the same weights.

        Args:
            graphs: Labelled graphs.
            noise: Edge noise; ``None`` takes the graphs as they are.
            features: As for :class:`flipproof.SmoothedClassifier`; computed on the noisy graphs.
            copies: Noisy copies of every graph.
            class_weights: Weigh every class alike, however many graphs it has.
            validation: Labelled graphs that choose the SVM's cost, under the same noise.
            seed: Seed of the noise.
        """
        from sklearn.svm import LinearSVC

        copies = checked_count(copies, "copies", 1, "for instance 8")
        hook = BlackBoxClassifier(self, num_classes=self.num_classes, features=features and as_features(features))
        shown, truth = _noisy(hook, graphs, noise, copies, seed, "graphs")
        if truth.max() >= self.num_classes:
            raise InputError(
                f"the model must have a class for every label; got {self.num_classes} classes and label {truth.max()} "
                f"(build it with num_classes={truth.max() + 1})"
            )
        if len(np.unique(truth)) < 2:
            raise InputError("graphs must be of at least two classes; got one (pass the training part of a split)")
        held_out = None
        if validation is not None:
            held_out = _noisy(hook, validation, noise, _VALIDATION_COPIES, seed, "validation")
        matrix, self._patterns = _matrix(shown, self.iterations)
        best: tuple[float, float, NDArray[Any], NDArray[Any]] | None = None
        for cost in _COSTS if held_out is not None else (1.0,):
            # the primal problem: no randomness in its solution
            machine = LinearSVC(C=cost, dual=False, class_weight="balanced" if class_weights else None)
            machine.fit(matrix, truth)
            self._weights, self._bias = self._of_all_classes(machine)
            right = 0.0 if held_out is None else float(np.mean(_answers(self, held_out[0]) == held_out[1]))
            if best is None or right > best[0]:
                best = right, cost, self._weights, self._bias
        assert best is not None
        right, cost, self._weights, self._bias = best
        accuracy = float(np.mean(_answers(self, shown) == truth))
        return WLFit(cost, len(self._patterns), accuracy, None if held_out is None else right)

    def _of_all_classes(self, machine: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weights and bias with a column for every class; one that no training graph has never wins."""
        weights = np.zeros((len(self._patterns), self.num_classes))
        bias = np.full(self.num_classes, -np.finfo(np.float64).max)
        coefficients, intercepts = machine.coef_.T, machine.intercept_
        if len(machine.classes_) == 2:  # a single machine, for the second class
            coefficients, intercepts = np.hstack([-coefficients, coefficients]), np.array([-1, 1]) * intercepts
        weights[:, machine.classes_] = coefficients
        bias[machine.classes_] = intercepts
        return weights, bias

    def state_dict(self) -> dict[str, Tensor]:
        """The weights, as a torch module's."""
        return {
            "patterns": torch.from_numpy(self._patterns.view(np.int64).copy()),
            "weights": torch.from_numpy(self._weights.copy()),
            "bias": torch.from_numpy(self._bias.copy()),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take what :meth:`state_dict` returned."""
        patterns, weights, bias = (state[key].numpy() for key in ("patterns", "weights", "bias"))
        if weights.shape != (len(patterns), self.num_classes) or bias.shape != (self.num_classes,):
            raise RuntimeError(f"shapes {patterns.shape}, {weights.shape}, {bias.shape} for {self.num_classes} classes")
        self._patterns, self._weights, self._bias = patterns.view(np.uint64), weights, bias


def subtree_patterns(
    graphs: Sequence[Graph], *, iterations: int, normalised: bool = True
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.float64]]:
    """The Weisfeiler-Lehman features of graphs, as three columns: graph, pattern (a hash), value.

    The value is how often the pattern occurs in the graph, ``normalised`` by the length of the graph's vector of counts. A
    graph's features do not depend on those beside it, to the last bit.
    """
    sizes = np.array([graph.num_nodes for graph in graphs])
    starts = np.cumsum(sizes) - sizes
    owner = np.repeat(np.arange(len(graphs)), sizes)
    edges = np.concatenate([graph.edges + start for graph, start in zip(graphs, starts, strict=True)])
    sources, targets = np.concatenate([edges, edges[:, ::-1]]).T
    neighbours = sources[np.argsort(targets, kind="stable")]
    stops = np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=len(owner)))])
    label = _first_labels(graphs)
    labels = [label]
    for _ in range(iterations):
        # a sum of hashes is a hash of the multiset; sums modulo 2**64 are exact, so differences of running sums are too
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mixed(label, 1)[neighbours], dtype=np.uint64)])
        label = _mixed(label + _mixed(running[stops[1:]] - running[stops[:-1]], 2), 3)
        labels.append(label)
    owner, pattern = np.tile(owner, len(labels)), np.concatenate(labels)
    order = np.lexsort((pattern, owner))
    owner, pattern = owner[order], pattern[order]
    first = np.flatnonzero(np.r_[True, (owner[1:] != owner[:-1]) | (pattern[1:] != pattern[:-1])])
    counts = np.diff(np.r_[first, len(owner)]).astype(np.float64)
    owner, pattern = owner[first], pattern[first]
    if normalised:
        counts /= np.sqrt(np.bincount(owner, counts**2))[owner]  # sums of integers: exact in any order
    return owner, pattern, counts


def _first_labels(graphs: Sequence[Graph]) -> NDArray[np.uint64]:
    """A hash of every node's features; all alike for graphs without."""
    rows = [graph.node_features for graph in graphs if graph.node_features is not None]
    if len(rows) < len(graphs):
        return np.zeros(sum(graph.num_nodes for graph in graphs), dtype=np.uint64)
    values = np.concatenate(rows).astype(np.float64) + 0.0  # no negative zero
    label = np.zeros(len(values), dtype=np.uint64)
    for column in values.T:
        label = _mixed(label + np.ascontiguousarray(column).view(np.uint64), 4)
    return label


def _mixed(values: NDArray[np.uint64], salt: int) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea and Flood, 2014): a bijection that leaves no trace of sums and orders."""
    values = values + np.uint64(salt * 0x9E3779B97F4A7C15 % 2**64)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _noisy(
    hook: BlackBoxClassifier, graphs: Iterable[Any], noise: EdgeNoise | None, copies: int, seed: int, argument: str
) -> tuple[list[Graph], NDArray[np.int64]]:
    """Noisy copies with their features, and their labels."""
    given = as_graphs(graphs)
    if not given or any(graph.label is None for graph in given):
        raise InputError(f"{argument} must be labelled graphs, at least one (build them with label=0, 1, 2, ...)")
    # another stream than any that certificates are sampled from: the votes must not come from what the model has learnt
    identity = f"flipproof wl-svm {argument} {checked_seed(seed)}".encode()
    stream_seed = int.from_bytes(hashlib.blake2b(identity, digest_size=8).digest(), "little") >> 1
    count = copies if noise is not None else 1
    still = noise or EdgeNoise(add=0, remove=0)
    shown: list[Graph] = []
    for graph in given:
        shown += hook.graphs(SampleStream(graph, still, seed=stream_seed).batch(0, count)[0])
    return shown, np.repeat([int(graph.label or 0) for graph in given], count)


def _matrix(graphs: list[Graph], iterations: int) -> tuple[Any, NDArray[np.uint64]]:
    """The features of all graphs as a sparse matrix, and the pattern of each column, ascending."""
    from scipy.sparse import csr_array

    owner, pattern, share = subtree_patterns(graphs, iterations=iterations)
    patterns, column = np.unique(pattern, return_inverse=True)
    places = owner.astype(np.int32), column.astype(np.int32)  # all that liblinear takes
    return csr_array((share, places), shape=(len(graphs), len(patterns))), patterns


def _answers(model: WLSVM, graphs: list[Graph]) -> NDArray[np.int64]:
    cuts = [*range(0, len(graphs), _BATCH), len(graphs)]
    return np.concatenate([model(graphs[start:stop]) for start, stop in pairwise(cuts)])
