"""A faster way to a torch module, its compiled twin, that is held against the model itself.

A twin that gives other answers than rounding explains is not taken: the model itself is asked, about every graph of the run.
That is decided once, before the run, on graphs made from the number of nodes, the features and the noise alone: nothing that an
attacker can change chooses how the model is run. Differences on noisy copies of a graph are counted, and change nothing.
"""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flipproof.classifiers.classifier import OTHER_ANSWERS, Classifier, Probed, Subsets, subsets
from flipproof.classifiers.edges import NeighbourLists
from flipproof.classifiers.guard import Precise, agree, delicate, nodes_batch, tied
from flipproof.classifiers.torch_module import (
    ALWAYS_DENSE,
    DenseClassifier,
    MessagePassingClassifier,
    TorchClassifier,
    bytes_of_values,
    hidden_width,
    largest_batch,
)
from flipproof.classifiers.translation import Twin, Untranslatable, call_with_fields
from flipproof.compiling import can_compile
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise, NoisyBatch

_TOLERANCE = 1e-4
_LISTS_CACHE = 2**24  # bytes of one layer's values where edges are lists of neighbours: measured fastest
_BYTES_PER_EDGE = 32  # of lists of neighbours
_COMPILED = (torch.float32, torch.float64)
_PLAIN = frozenset([bool, int, float, str])  # types of attributes that a traced twin holds fixed
_AT_ONCE = 16  # samples of a graph that are held against the model's own answers in one call
_FEW_NODES = 64  # beyond, one at a time: the model takes more memory than its twin


class _Translating(TorchClassifier):
    """A classifier with a twin for graphs on which that is faster."""

    compiles: bool | None = (
        None  # whether loops can be compiled, once known: a copy in a worker must not go another way
    )
    _state: tuple[Any, ...] = ()
    _twin: Shortcut | None = None

    def __init__(self, module: torch.nn.Module, **settings: Any) -> None:
        super().__init__(module, **settings)
        # nodes, features and noise for which the twin is taken; a copy in a worker keeps to it, whatever its processor rounds
        self._agreed = set[Any]()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_twin"} | {"_state": ()}

    @abstractmethod
    def made_twin(self) -> Twin:
        """The twin of the module as it is now."""

    @property
    @abstractmethod
    def messages(self) -> MessagePassingClassifier:
        """The module on PyG's layout."""

    def begin(self) -> None:
        super().begin()
        self._agreed.clear()
        if self.shortcuts:
            self._translate()
            if self._twin is not None:
                self._twin.begin()

    def suited(self, graph: Graph, noise: EdgeNoise) -> Classifier:
        if self.shortcuts:
            self._translate()
        if not self.shortcuts or self._twin is None or not self._twin.suits(graph, noise):
            return self.itself(graph, noise)
        features = graph.node_features
        known: Any = None if features is None else hashlib.blake2b(features.tobytes()).digest()
        if features is not None and self.feature_noise is not None:  # values that an attacker may change decide nothing
            known = features.shape, features.dtype
        if (graph.num_nodes, known, noise) not in self._agreed:
            remark = self._twin.difference(graph, noise)
            if remark:
                self.take_no_shortcuts(remark)
                return self.itself(graph, noise)
            self._agreed.add((graph.num_nodes, known, noise))
        return self._twin

    def _translate(self) -> None:
        """Make the twin, again if the module has changed in a way that the twin does not follow by itself.

        Tracing stands no other call of a module at the same time: a defence asks for every graph's way before it asks the model.
        """
        state = _state_of(self.module)
        if state == self._state:
            return
        if self._state:  # a copy in a worker has none, and keeps to what was decided
            self._agreed.clear()
        self._state, self._twin, self.remark = state, None, ""
        if getattr(self.module, "dense_twin", True) is False:
            self.remark = "the model declines a twin"
            return
        try:
            self._twin = Shortcut(self.made_twin(), self)
        except Exception as error:  # whatever a user's module makes of being traced, it works as it is
            what = "" if isinstance(error, Untranslatable) else f"{type(error).__name__}: "
            reason = f"no twin: {what}{next(iter(str(error).splitlines()), '')}"
            self.remark = re.sub("0x[0-9a-f]+", "0x...", reason)  # the same in every process


class TranslatedClassifier(_Translating, MessagePassingClassifier):
    """A PyG model."""

    @property
    def messages(self) -> MessagePassingClassifier:
        return self

    def made_twin(self) -> Twin:
        return Twin(self.module, call_with_fields if self.as_data else self.call_with_batch)


class TranslatedDenseClassifier(_Translating, DenseClassifier):
    """A dense network that can be had in PyG's layers, such as :class:`flipproof.models.GCN`."""

    @property
    def messages(self) -> MessagePassingClassifier:
        assert self.sparse is not None
        return self.sparse

    def made_twin(self) -> Twin:
        module: Any = self.module
        return Twin(module.as_pyg(), lambda layers, *inputs: layers(*inputs))


class Shortcut(TorchClassifier):
    """The twin of a model: compiled loops over lists of neighbours."""

    path = "compiled twin"
    module: Twin
    _other_company = "batch statistics, or a cache? model.dense_twin = False asks the model without a shortcut"
    _at_once: bool | None = None  # once it was asked: see known

    def __init__(self, module: Twin, original: _Translating) -> None:
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
        try:
            self.batch_size(graph, noise)
        except InputError:  # too large for the memory
            return False
        return self.original.compiles

    def wanted_size(self, graph: Graph, edges: float) -> int:
        return largest_batch(4 * graph.num_nodes * hidden_width(graph), _LISTS_CACHE)

    def bytes_each(self, graph: Graph, edges: float) -> float:
        return bytes_of_values(self.module, graph) + _BYTES_PER_EDGE * edges

    def expectation(self, graph: Graph) -> str:
        return self.original.expectation(graph)

    def prepare(self) -> None:
        for original in {self.original, self.original.messages}:
            original.prepare()
        self.device, self.dtype = self.original.device, self.original.dtype
        self.unit_roundoff = self.original.unit_roundoff

    def begin(self) -> None:
        super().begin()
        self._at_once = None

    def take_double(self) -> None:
        self.original.module.double()
        super().take_double()

    def itself_on(self, nodes: int) -> TorchClassifier:
        """The model itself, in the form that graphs of this size reach."""
        return self.original if nodes <= ALWAYS_DENSE else self.original.messages

    def known(self) -> bool:
        """Whether the code shows that the twin's answer about a graph depends on this graph alone."""
        return self.features.spec is not None and self.module.graph_by_graph()

    def logits(self, batch: NoisyBatch) -> Tensor:
        own, rows = self.own_features(batch), None
        under_noise = own is not None and own.ndim == 3
        if not under_noise and (shared := self.features.shared(batch.num_nodes, own)) is not None:
            rows = self.as_number(shared)
        elif under_noise or not self.features.only_degree(own):
            rows = self.original.messages.inputs(batch)[0]
        logits: Tensor = self.module(rows, NeighbourLists(batch, self.dtype))
        return logits

    def recheck_count(self, graph: Graph, start: int) -> int:
        # the twin takes graphs one by one, so that the samples of all blocks can be compared with the model at once
        if self._at_once is None:
            self._at_once = self.known()
        few = graph.num_nodes > _FEW_NODES or not self._at_once
        return super().recheck_count(graph, start) if few else _AT_ONCE * (start == 0)

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

    def recheck(self, batch: NoisyBatch, labels: NDArray[np.int64], chosen: NDArray[np.int64]) -> int:
        if not self.known():
            super().recheck(batch, labels, chosen)
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
            precise = Precise(wanted, reference.scores(tried.batch), tried.delicate)
            precise.add(np.arange(tried.batch.size), tried.scores, finer.scores(tried.batch))
        except Exception:  # whatever a user's module makes of double precision, it is not shown to round only
            return False
        return precise.only_rounding() and precise.harmless()


def _state_of(module: torch.nn.Module) -> tuple[Any, ...]:
    """What the traced twin holds fixed: which parts and tensors there are, and plain attributes of the parts."""
    state: list[Any] = []
    for part in module.modules():
        state.append(id(part))
        state += [value for value in vars(part).values() if type(value) in _PLAIN]
        state += map(id, (*part._parameters.values(), *part._buffers.values()))
    return tuple(state)
