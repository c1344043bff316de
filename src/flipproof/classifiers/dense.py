"""Torch modules in the dense convention, ``forward(x, adj, mask)``, and faster ways to a model that are held against it.

A shortcut that gives other answers than rounding explains is not taken: the model itself is asked, about every graph of the run.
Before a run, that is decided on graphs made from the number of nodes, the features and the noise alone: nothing that an attacker
can change chooses how the model is run. Where a noisy copy of a graph shows a difference later, the run starts over.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flipproof.classifiers.agreement import Precise, agree, tied
from flipproof.classifiers.classifier import (
    OTHER_ANSWERS,
    Classifier,
    Probed,
    Subsets,
    assumed_edges,
    subsets,
)
from flipproof.classifiers.edges import MOST_NODES, Edges, NeighbourLists, state_of
from flipproof.classifiers.guard import ShortcutDisagrees, nodes_batch
from flipproof.classifiers.guard import delicate as delicate_graphs
from flipproof.classifiers.torch_module import (
    MessagePassingClassifier,
    TorchClassifier,
    feature_width,
    hidden_width,
    largest_batch,
    to_device,
    widest_layer,
)
from flipproof.compiling import can_compile
from flipproof.errors import InputError, MissingExtraError
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise, NoisyBatch

_CACHE = 2**21  # bytes of one batch's matrices and of one layer's values: measured fastest
_MEMORY = 2**24  # bytes that a batch of few graphs may take all the same
_FEW = 32
_MATRICES, _COPIES = 8, 4  # copies of a sample's matrix, and of its layers' values, that are alive at once
ALWAYS_DENSE = 100
"""Nodes up to which matrices are always faster than messages."""

_EDGES_PER_NODE = 4  # that a usual graph of more nodes has


class DenseClassifier(TorchClassifier):
    """``forward(x [B, n, d], adj [B, n, n], mask [B, n]) -> [B, C]``.

    A module that also has ``forward_sparse(x, edge_index, batch)`` is called so on large graphs with few edges.
    """

    path = "dense"
    entries_per_edge = 120
    """An edge's message costs as much as this many entries of a matrix: measured for our networks."""

    _remedy = "raise memory, or use a model in PyG's convention forward(x, edge_index, batch)"

    def __init__(self, module: torch.nn.Module, **settings: Any) -> None:
        super().__init__(module, **settings)
        self._with_mask = len(inspect.signature(module.forward).parameters) != 2
        sparse = getattr(module, "forward_sparse", None)
        self.sparse = sparse and MessagePassingClassifier(module, call=sparse, **settings)

    def itself(self, graph: Graph, noise: EdgeNoise) -> Classifier:
        return self if prefers_matrices(self, graph, noise) else self.sparse or self

    def wanted_size(self, graph: Graph, edges: float) -> int:
        cached = 4 * graph.num_nodes * (graph.num_nodes + hidden_width(graph))
        return max(largest_batch(cached, _CACHE), min(_FEW, largest_batch(cached, _MEMORY)))

    def bytes_each(self, graph: Graph, edges: float) -> float:
        return self.bytes_of_values(graph) + 4 * _MATRICES * graph.num_nodes**2

    def bytes_of_values(self, graph: Graph) -> float:
        """Bytes of a sample's values in the layers."""
        return 4 * graph.num_nodes * _COPIES * widest_layer(self.module, graph)

    def matrices(self, batch: NoisyBatch) -> Tensor:
        """Adjacency matrices ``[B, n, n]`` as the module takes them."""
        return to_device(batch.adjacency(), self.device).to(self.dtype)

    def logits(self, batch: NoisyBatch) -> Tensor:
        adjacency = self.matrices(batch)
        x, mask = self.node_rows(batch, adjacency), _no_padding(adjacency)
        result: Tensor = self.module(x, adjacency, mask) if self._with_mask else self.module(x, adjacency)
        return result

    def node_rows(self, batch: NoisyBatch, adjacency: Tensor) -> Tensor:
        """The node features, ``[B, n, d]``."""
        own = self.own_features(batch)
        if own is not None:
            own = own.expand(batch.size, *own.shape)
        return self.as_number(self.features.dense(adjacency, _no_padding(adjacency), own))

    def expectation(self, graph: Graph) -> str:
        return f"(x, adj, mask) with {feature_width(self.features, graph)} a graph"


def _no_padding(adjacency: Tensor) -> Tensor:
    """The mask of a batch without padding."""
    return torch.ones(adjacency.shape[:2], dtype=torch.bool, device=adjacency.device)


def prefers_matrices(classifier: DenseClassifier, graph: Graph, noise: EdgeNoise) -> bool:
    """Whether dense batches are faster than messages for noisy graphs of so many nodes, and fit the memory."""
    edges = assumed_edges(graph.num_nodes, noise, _EDGES_PER_NODE)
    few_edges = classifier.entries_per_edge * edges < graph.num_nodes**2
    return not (graph.num_nodes > ALWAYS_DENSE and few_edges) and fits(classifier, graph, noise)


def fits(classifier: DenseClassifier, graph: Graph, noise: EdgeNoise) -> bool:
    """Whether a noisy copy of such a graph fits the memory."""
    try:
        classifier.batch_size(graph, noise)
    except InputError:
        return False
    return True


_TOLERANCE = 1e-4
_LISTS_CACHE = 2**23  # bytes of one layer's values where edges are lists of neighbours: measured fastest
_BYTES_PER_EDGE = 32  # of lists of neighbours
_COMPILED = (torch.float32, torch.float64)


class Shortcut(DenseClassifier):
    """Another way to a model, on matrices or on lists of neighbours for compiled loops."""

    compiled_path: str
    compiled = False
    """Whether edges are lists of neighbours for compiled loops, instead of matrices."""

    def __init__(self, module: torch.nn.Module, original: TorchClassifier) -> None:
        self._original = original
        settings = {"features": original.features, "memory": original.memory}
        super().__init__(module, num_classes=original.num_classes, **settings)
        self._compiled = copy(self)
        self._compiled.compiled, self._compiled.path = True, self.compiled_path

    def way(self, graph: Graph, noise: EdgeNoise) -> Shortcut | None:
        """Compiled loops if the model can be asked so, else matrices, or ``None`` where messages are faster or neither fits."""
        if self._can_use_lists(graph):
            if self._original.compiles is None:
                self._original.compiles = can_compile()
            if self._original.compiles and fits(self._compiled, graph, noise):
                return self._compiled
        return self if prefers_matrices(self, graph, noise) else None

    def _can_use_lists(self, graph: Graph) -> bool:
        weight = next(self.module.parameters(), None)  # the model may have moved since it was prepared
        known = weight is not None and weight.device.type == "cpu" and weight.dtype in _COMPILED
        enough = graph.num_nodes <= ALWAYS_DENSE or not self.needs_matrices(graph)
        return known and graph.num_nodes <= MOST_NODES and enough

    def wanted_size(self, graph: Graph, edges: float) -> int:
        if self.compiled:
            return largest_batch(4 * graph.num_nodes * hidden_width(graph), _LISTS_CACHE)
        return super().wanted_size(graph, edges)

    def bytes_each(self, graph: Graph, edges: float) -> float:
        if self.compiled and not self.needs_matrices(graph):
            return self.bytes_of_values(graph) + graph.num_nodes**2 + _BYTES_PER_EDGE * edges
        return super().bytes_each(graph, edges)

    def needs_matrices(self, graph: Graph) -> bool:
        """Whether the node features of such a graph are made from matrices."""
        return False

    def edges(self, batch: NoisyBatch) -> Edges:
        """The edges as layers use them."""
        return NeighbourLists(batch, self.dtype) if self.compiled else Edges(self.matrices(batch))

    def begin(self) -> None:
        super().begin()
        if not self.compiled:
            self._compiled.begin()

    def prepare(self) -> None:
        super().prepare()
        for nodes in (1, ALWAYS_DENSE + 1):
            self.original(nodes).prepare()

    def original(self, nodes: int) -> TorchClassifier:
        """The model itself, in the form that graphs of this size reach."""
        return self._original

    def known(self) -> bool:
        """Whether it can be told without a trial that the shortcut's answer about a graph depends on this graph alone."""
        return True

    def difference(self, graph: Graph, noise: EdgeNoise) -> str:
        """What it does otherwise than the model, in words: a function of nodes, features, noise and model; empty if nothing."""
        batch = nodes_batch(graph, noise)
        self.prepare()
        wanted = self.original(graph.num_nodes).scores(batch)
        try:
            tried = Probed(batch, self.scores(batch), delicate_graphs(batch))
        except MissingExtraError:
            raise
        except Exception as error:
            return f"its {self.path} fails with {type(error).__name__}"
        return "" if self._agrees(tried, wanted) else self._remark

    @property
    def _remark(self) -> str:
        return f"its {self.path} {OTHER_ANSWERS}"

    def recheck(self, batch: NoisyBatch, labels: NDArray[np.int64], chosen: NDArray[np.int64]) -> int:
        few, original = batch.only(chosen), self.original(batch.num_nodes)
        wanted = original.scores(few)
        other = original._checked_labels(wanted, few.size) != labels[chosen]
        other &= ~tied(wanted, self.arithmetic(batch.num_nodes))
        if other.any():
            tried = Probed(few, self.scores(few), np.zeros(few.size, dtype=np.bool_))
            if (tried.scores.argmax(axis=1) != labels[chosen])[other].any() or not self._agrees(tried, wanted):
                raise ShortcutDisagrees(self._remark)
        return len(chosen)

    def probe(self, graph: Graph, noise: EdgeNoise, chosen: Callable[[int], Subsets] = subsets) -> Probed:
        original, known = self.original(graph.num_nodes), self.known()
        # a model that agrees with a shortcut that is known to take graphs one by one does so, too
        model = original.probe(graph, noise, (lambda size: subsets(size)[-1:]) if known else chosen)
        try:
            tried = super().probe(graph, noise, (lambda size: []) if known else chosen)
        except InputError as error:  # the model itself was not refused
            raise ShortcutDisagrees(self._remark) from error
        if tried.batch.size < model.batch.size:
            tried = model._replace(scores=self.scores(model.batch))
        wanted = model.scores if tried.batch.size == model.batch.size else original.scores(tried.batch)
        if not self._agrees(tried, wanted):
            raise ShortcutDisagrees(self._remark)
        return tried

    def probe_finely(self, graph: Graph, noise: EdgeNoise) -> None:
        if not self.known():
            self.original(graph.num_nodes).probe_finely(graph, noise)

    def _agrees(self, tried: Probed, wanted: NDArray[Any]) -> bool:
        """Whether the scores are the model's own, but for rounding."""
        arithmetic = self.arithmetic(tried.batch.num_nodes)
        same = agree(wanted, tried.scores, tolerance=_TOLERANCE, delicate=tried.delicate, arithmetic=arithmetic)
        return same or self._differs_by_rounding(tried, wanted)

    def _differs_by_rounding(self, tried: Probed, wanted: NDArray[Any]) -> bool:
        """Whether what it says otherwise than the model vanishes in double precision, and cannot turn an answer."""
        finer, reference = self.finer(), self.original(tried.batch.num_nodes).finer()
        if finer is None or reference is None or tried.delicate.all():
            return False
        try:
            double, other = reference.scores(tried.batch), finer.scores(tried.batch)
        except Exception:  # whatever a user's module makes of double precision, it is not shown to round only
            return False
        for part, delicate in ((~tried.delicate, False), (tried.delicate, True)):
            if part.any():
                precise = Precise(wanted[part], double[part])
                precise.add(np.arange(part.sum()), tried.scores[part], other[part])
                if not precise.only_rounding(delicate=delicate) or not (delicate or precise.harmless(wanted[part])):
                    return False
        return True


class _DegreeLookup(Shortcut):
    """A network that looks its rows up where the degree is the only feature."""

    path = "dense"
    compiled_path = "compiled"
    _tables: tuple[Any, Any] | None = None  # state of the weights, and what is looked up

    def begin(self) -> None:
        super().begin()
        self._tables = None

    def take_double(self) -> None:
        super().take_double()
        self._tables = None

    def original(self, nodes: int) -> TorchClassifier:
        return self._original if nodes <= ALWAYS_DENSE else getattr(self._original, "sparse", None) or self._original

    def logits(self, batch: NoisyBatch) -> Tensor:
        module: Any = self.module
        state = state_of(module.parameters())
        if self._tables is None or self._tables[0] != state:
            self._tables = state, module.degree_pieces()
        logits: Tensor = module.on_degrees(self.edges(batch), self._tables[1])
        return logits


class LookupClassifier(DenseClassifier):
    """A dense network with ``looks_up_degrees``, ``degree_pieces`` and ``on_degrees``, such as :class:`flipproof.models.GCN`."""

    def __init__(self, module: torch.nn.Module, **settings: Any) -> None:
        super().__init__(module, **settings)
        self._lookup = _DegreeLookup(module, self)

    def begin(self) -> None:
        super().begin()
        self._lookup.begin()

    def shortcut(self, graph: Graph, noise: EdgeNoise) -> Shortcut | None:
        own = None if graph.node_features is None else torch.empty(0)
        weight = next(self.module.parameters())
        if self.module.looks_up_degrees and weight.dtype in _COMPILED and self.features.only_degree(own):
            return self._lookup.way(graph, noise)
        return None
