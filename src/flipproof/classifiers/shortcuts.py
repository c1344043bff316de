"""Faster ways to a torch module, in compiled loops, that are held against the model itself.

A shortcut that gives other answers than rounding explains is not taken: the model itself is asked, about every graph of the run.
That is decided once, before the run, on graphs made from the number of nodes, the features and the noise alone: nothing that an
attacker can change chooses how the model is run. Differences on noisy copies of a graph are counted, and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flipproof.classifiers.classifier import OTHER_ANSWERS, Probed, Subsets, subsets
from flipproof.classifiers.edges import NeighbourLists, state_of
from flipproof.classifiers.guard import Precise, agree, delicate, nodes_batch, tied
from flipproof.classifiers.torch_module import (
    ALWAYS_DENSE,
    DenseClassifier,
    TorchClassifier,
    bytes_of_values,
    fits,
    hidden_width,
    largest_batch,
)
from flipproof.compiling import can_compile
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise, NoisyBatch

_TOLERANCE = 1e-4
_LISTS_CACHE = 2**24  # bytes of one layer's values where edges are lists of neighbours: measured fastest
_BYTES_PER_EDGE = 32  # of lists of neighbours
_COMPILED = (torch.float32, torch.float64)


class Shortcut(TorchClassifier):
    """Another way to a model, with compiled loops over lists of neighbours."""

    _other_company = "batch statistics, or a cache? model.dense_twin = False asks the model without a shortcut"

    def __init__(self, module: torch.nn.Module, original: TorchClassifier) -> None:
        self.original = original
        kept = {name: getattr(original, name) for name in ("num_classes", "features", "memory", "feature_noise")}
        super().__init__(module, **kept)

    def suits(self, graph: Graph, noise: EdgeNoise) -> bool:
        """Whether the model can be asked so about such graphs, where numba is installed."""
        weight = next(self.module.parameters(), None)  # the model may have moved since it was prepared
        known = weight is not None and weight.device.type == "cpu" and weight.dtype in _COMPILED
        if not known:
            return False
        if self.original.compiles is None:
            self.original.compiles = can_compile()
        return self.original.compiles and fits(self, graph, noise)

    def wanted_size(self, graph: Graph, edges: float) -> int:
        return largest_batch(4 * graph.num_nodes * hidden_width(graph), _LISTS_CACHE)

    def bytes_each(self, graph: Graph, edges: float) -> float:
        return bytes_of_values(self.module, graph) + _BYTES_PER_EDGE * edges

    def expectation(self, graph: Graph) -> str:
        return self.original.expectation(graph)

    def prepare(self) -> None:
        super().prepare()
        for nodes in (1, ALWAYS_DENSE + 1):
            self.itself_on(nodes).prepare()

    def itself_on(self, nodes: int) -> TorchClassifier:
        """The model itself, in the form that graphs of this size reach."""
        return self.original

    def known(self) -> bool:
        """Whether it can be told without a trial that the shortcut's answer about a graph depends on this graph alone."""
        return True

    def difference(self, graph: Graph, noise: EdgeNoise) -> str:
        """What it does otherwise than the model, in words: a function of nodes, features, noise and model; empty if nothing."""
        together, original = nodes_batch(graph, noise, self.feature_noise), self.itself_on(graph.num_nodes)
        self.prepare()
        rough, parts = delicate(together), [np.arange(together.size)]
        if not self.known():
            parts += [subset for _, subset in subsets(together.size)[::4]]
        for part in parts:
            batch = together.only(part)
            wanted = original._tried(batch, graph)
            try:
                same = self._agrees(Probed(batch, self._tried(batch, graph), rough[part]), wanted)
            except InputError:  # it fails where the model does not
                same = False
            if not same:
                return f"its {self.path} {OTHER_ANSWERS}"
        return ""

    def recheck(self, batch: NoisyBatch, labels: NDArray[np.int64], chosen: NDArray[np.int64]) -> None:
        if not self.known():
            super().recheck(batch, labels, chosen)

    def differing(self, batch: NoisyBatch, labels: NDArray[np.int64], chosen: NDArray[np.int64]) -> int:
        few, original = batch.only(chosen), self.itself_on(batch.num_nodes)
        wanted = original.scores(few)
        other = original._checked_labels(wanted, few.size) != labels[chosen]
        other &= ~tied(wanted, self.arithmetic(batch.num_nodes))
        if not other.any():
            return 0
        tried = Probed(few, self.scores(few), np.zeros(few.size, dtype=np.bool_))
        same = (tried.scores.argmax(axis=1) == labels[chosen])[other].all() and self._agrees(tried, wanted)
        return 0 if same else int(other.sum())

    def probe(self, graph: Graph, noise: EdgeNoise, chosen: Callable[[int], Subsets] = subsets) -> Probed:
        """Try the model itself: what a shortcut is taken for was decided without the graph's edges."""
        original = self.itself_on(graph.num_nodes)
        if not self.known():
            return original.probe(graph, noise)
        # a model that agrees with a shortcut that is known to take graphs one by one does so, too
        tried = original.probe(graph, noise, lambda size: subsets(size)[-1:])
        same = self._agrees(tried._replace(scores=self._tried(tried.batch, graph)), tried.scores)
        return tried if same else original.probe(graph, noise)

    def probe_finely(self, graph: Graph, noise: EdgeNoise) -> None:
        if not self.known():
            self.itself_on(graph.num_nodes).probe_finely(graph, noise)

    def _agrees(self, tried: Probed, wanted: NDArray[Any]) -> bool:
        """Whether the scores are the model's own, but for rounding."""
        arithmetic = self.arithmetic(tried.batch.num_nodes)
        same = agree(wanted, tried.scores, tolerance=_TOLERANCE, delicate=tried.delicate, arithmetic=arithmetic)
        return same or self._differs_by_rounding(tried, wanted)

    def _differs_by_rounding(self, tried: Probed, wanted: NDArray[Any]) -> bool:
        """Whether what it says otherwise than the model vanishes in double precision, and cannot turn an answer."""
        finer, reference = self.finer(), self.itself_on(tried.batch.num_nodes).finer()
        if finer is None or reference is None or tried.delicate.all():
            return False
        try:
            double, other = reference.scores(tried.batch), finer.scores(tried.batch)
        except Exception:  # whatever a user's module makes of double precision, it is not shown to round only
            return False
        for part, rough in ((~tried.delicate, False), (tried.delicate, True)):
            if part.any():
                precise = Precise(wanted[part], double[part])
                precise.add(np.arange(part.sum()), tried.scores[part], other[part])
                if not precise.only_rounding(delicate=rough) or not (rough or precise.harmless(wanted[part])):
                    return False
        return True


class _DegreeLookup(Shortcut):
    """A network that looks its rows up where the degree is the only feature."""

    path = "compiled"
    _tables: tuple[Any, Any] | None = None  # state of the weights, and what is looked up

    def begin(self) -> None:
        super().begin()
        self._tables = None

    def take_double(self) -> None:
        super().take_double()
        self._tables = None

    def itself_on(self, nodes: int) -> TorchClassifier:
        return self.original if nodes <= ALWAYS_DENSE else getattr(self.original, "sparse", None) or self.original

    def logits(self, batch: NoisyBatch) -> Tensor:
        module: Any = self.module
        state = state_of(module.parameters())
        if self._tables is None or self._tables[0] != state:
            self._tables = state, module.degree_pieces()
        logits: Tensor = module.on_degrees(NeighbourLists(batch, self.dtype), self._tables[1])
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
        wanted = self.module.looks_up_degrees and getattr(self.module, "dense_twin", True)
        usable = wanted and self.features.only_degree(own)
        return self._lookup if usable and self._lookup.suits(graph, noise) else None
