"""PyG models that reach small graphs through their dense twin, once it has proved to be one."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.nn import GATConv

from flipproof.classifiers.agreement import Precise, agree, tied
from flipproof.classifiers.classifier import Classifier, Companies, Probed, companies
from flipproof.classifiers.dense import ALWAYS_DENSE, DenseClassifier
from flipproof.classifiers.features import NodeFeatures, Own
from flipproof.classifiers.message_passing import EdgeFeatures, MessagePassingClassifier
from flipproof.classifiers.probes import nodes_batch
from flipproof.classifiers.translation import DenseTwin, Untranslatable, call_with_fields
from flipproof.errors import InputError, MissingExtraError
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise, NoisyBatch

__all__ = ["TranslatedClassifier"]

_TOLERANCE = 1e-4
_AT_ONCE = 16  # samples of a graph that are held against the model's own answers in one call
_OTHER_ANSWERS = (
    "the model's dense twin gives other answers than the model itself on noisy copies of a graph, perhaps since a branch of "
    "forward depends on the edges (set model.dense_twin = False to have the model asked as it is)"
)
_FEW_NODES = 64  # beyond, one at a time: the model takes more memory than its twin


class TranslatedClassifier(MessagePassingClassifier):
    """A PyG model, with its dense twin for graphs on which that is faster.

    The twin is used for graphs of certain nodes if it gives the model's own logits, but for rounding, on deliberately different
    graphs on these nodes: a function of nodes and model alone. Otherwise the model is used as it is, and :attr:`remark` says why.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        num_classes: int,
        features: NodeFeatures,
        memory: int,
        as_data: bool = False,
        edge_features: EdgeFeatures | None = None,
    ) -> None:
        self._state: tuple[Any, ...] = ()
        self._verdicts: dict[tuple[Any, ...], Classifier] = {}
        self._stale = True
        self.compiles: bool | None = None  # see DenseClassifier
        super().__init__(
            module,
            num_classes=num_classes,
            features=features,
            memory=memory,
            as_data=as_data,
            edge_features=edge_features,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_twin"} | {"_state": (), "_verdicts": {}}

    def begin(self) -> None:
        super().begin()
        self._verdicts.clear()  # the model may have changed in a way that its parts do not tell
        self._stale = True
        self._translate()
        if self._twin is not None:
            self._twin.begin()

    def suited(self, graph: Graph, noise: EdgeNoise) -> Classifier:
        self._translate()
        twin = self._way(graph, noise)
        if twin is None:
            return self
        features = graph.node_features
        key = (graph.num_nodes, None if features is None else hash(features.tobytes()), twin.path)
        if key not in self._verdicts:
            difference = self._difference(graph, twin)
            if difference is not None and self._stale:  # perhaps it was traced from an earlier state of the model
                self._stale = False
                self._translate(afresh=True)
                twin = self._way(graph, noise)
                difference = self.remark if twin is None else self._difference(graph, twin)
            self._verdicts[key] = twin if difference is None and twin is not None else copy(self)
            if difference is not None:
                self._verdicts[key].remark = difference
        return self._verdicts[key]

    def _way(self, graph: Graph, noise: EdgeNoise) -> DenseClassifier | None:
        return None if self._twin is None else self._twin.way(graph, noise)

    def _translate(self, *, afresh: bool = False) -> None:
        """Make the twin, again if the module has changed in a way that the twin does not follow by itself.

        Tracing stands no other call of a module at the same time: a defence asks for every graph's way before it asks the model.
        """
        state = _state_of(self.module)
        if state == self._state and not afresh:
            return
        self._state = state
        self._twin: DenseClassifier | None = None
        self._verdicts.clear()
        self.remark = ""
        if getattr(self.module, "dense_twin", True) is False:
            self.remark = "the model declines a dense twin"
            return
        try:
            twin = DenseTwin(self.module, call_with_fields if self._as_data else self._call_with_batch)
        except Exception as error:  # whatever a user's module makes of being traced, it works as it is
            what = "" if isinstance(error, Untranslatable) else f"{type(error).__name__}: "
            reason = f"no dense twin: {what}{next(iter(str(error).splitlines()), '')}"
            self.remark = re.sub("0x[0-9a-f]+", "0x...", reason)  # the same in every process
            return
        self._twin = _TwinClassifier(self, twin)

    def _difference(self, graph: Graph, twin: DenseClassifier) -> str | None:
        """What the twin does otherwise than the model, on graphs of these nodes; ``None`` if nothing."""
        batch = nodes_batch(graph)
        try:
            wanted = self.scores(batch)
        except Exception:
            return "the model itself fails"  # it is probed next, and says so in full
        try:
            found = twin.scores(batch)
        except MissingExtraError:
            raise
        except Exception as error:
            return f"its dense twin fails with {type(error).__name__}"
        return (
            None
            if agree(wanted, found, tolerance=_TOLERANCE, unit=self.unit_roundoff)
            else "its dense twin gives other logits"
        )


class _TwinClassifier(DenseClassifier):
    """The dense twin of a PyG model."""

    path = "dense twin"
    compiled_path = "compiled twin"
    module: DenseTwin
    _at_once: bool | None = None  # once it was asked: see _known

    def __init__(self, original: TranslatedClassifier, twin: DenseTwin) -> None:
        self._original = original
        # PyG's messages cost more than ours; attention costs several passes over the matrices
        attention = any(isinstance(part, GATConv) for part in original.module.modules())
        self.entries_per_edge = 45 if attention else 180
        super().__init__(twin, num_classes=original.num_classes, features=original.features, memory=original.memory)

    def _known(self) -> bool:
        """Whether it can be told without a trial that the twin's answer about a graph depends on this graph alone."""
        return self.features.spec is not None and self.module.graph_by_graph()

    def prepare(self) -> None:
        self._original.prepare()
        self.device, self.dtype = self._original.device, self._original.dtype
        self.unit_roundoff = self._original.unit_roundoff

    def begin(self) -> None:
        super().begin()
        self.module.forget()
        self._at_once = None

    @property
    def compiles(self) -> bool | None:
        return self._original.compiles

    @compiles.setter
    def compiles(self, value: bool | None) -> None:
        self._original.compiles = value

    def knows_lists(self, graph: Graph) -> bool:
        return graph.num_nodes <= ALWAYS_DENSE or not self.needs_matrices(graph)

    def needs_matrices(self, graph: Graph) -> bool:
        own = None if graph.node_features is None else torch.empty(0)
        if self.features.only_degree(own) or isinstance(self.features, Own):
            return False
        return self.features.shared(graph.num_nodes, own) is None

    def take_double(self) -> None:
        self._original.module.double()
        self.module.forget()
        super().take_double()

    def logits(self, batch: NoisyBatch) -> Tensor:
        own, edges = self.own_features(batch), self.edges(batch)
        shared = self.features.shared(batch.num_nodes, own)
        if shared is not None:
            result: Tensor = self.module.on_shared(self.as_number(shared.to(self.device)), edges)
        elif self.features.only_degree(own):
            result = self.module.on_degrees(edges)
        else:
            result = self.module.on_rows(self.node_rows(batch, edges.adjacency), edges)
        return result

    def asked_again(self, graph: Graph, start: int) -> int:
        # the twin's answers know no company, so those of all blocks can be held against the model at once
        if self._at_once is None:
            self._at_once = self._known()
        few = graph.num_nodes > _FEW_NODES or not self._at_once
        return super().asked_again(graph, start) if few else _AT_ONCE * (start == 0)

    def asked_alone(self, batch: NoisyBatch, labels: NDArray[np.int64], chosen: NDArray[np.int64]) -> int:
        some = batch.only(chosen)
        wanted = self._original.scores(some)
        other = self._original._checked_labels(wanted, some.size) != labels[chosen]
        other &= ~tied(wanted, unit=self.unit_roundoff)
        if other.any():
            tried = Probed(some, self.scores(some), np.zeros(some.size, dtype=np.bool_))
            if not self._differs_by_rounding(tried, wanted):
                raise InputError(_OTHER_ANSWERS)
        return len(chosen)

    def probe(self, graph: Graph, noise: EdgeNoise, chosen: Callable[[int], Companies] = companies) -> Probed:
        # a model with a memory of its own would be refused, though its twin has none
        if self._known():  # a model that agrees with such a twin in company minds none
            model, twin = self._original.probe(graph, noise, _last_alone), super().probe(graph, noise, _nobody)
        else:
            model, twin = self._original.probe(graph, noise, chosen), super().probe(graph, noise, chosen)
        if twin.batch.size < model.batch.size:
            twin = model._replace(scores=self.scores(model.batch))
        wanted = model.scores if twin.batch.size == model.batch.size else self._original.scores(twin.batch)
        same = agree(wanted, twin.scores, tolerance=_TOLERANCE, unit=self.unit_roundoff, delicate=twin.delicate)
        if not same and not self._differs_by_rounding(twin, wanted):
            raise InputError(_OTHER_ANSWERS)
        return twin

    def probe_finely(self, graph: Graph, noise: EdgeNoise) -> None:
        if not self._known():
            super().probe_finely(graph, noise)

    def _differs_by_rounding(self, tried: Probed, wanted: NDArray[Any]) -> bool:
        """Whether what the twin says otherwise than the model vanishes in double precision, and cannot turn an answer."""
        finer = self._original.finer(), self.finer()
        exact = np.flatnonzero(~tried.delicate)
        if finer[0] is None or finer[1] is None or not len(exact):
            return False
        roughly, some = partial(agree, tolerance=_TOLERANCE, unit=self.unit_roundoff, among=wanted), tried.delicate
        if some.any() and not roughly(wanted[some], tried.scores[some], delicate=some[some]):
            return False
        try:
            one, other = (each.scores(tried.batch.only(exact)) for each in finer if each is not None)
        except Exception:  # whatever a user's module makes of double precision, it is not shown to round only
            return False
        precise = Precise(wanted[exact], one)
        precise.add(np.arange(len(exact)), tried.scores[exact], other)
        return precise.only_rounding() and precise.harmless(wanted[exact])


def _last_alone(size: int) -> Companies:
    return companies(size)[-1:]


def _nobody(size: int) -> Companies:
    return []


def _state_of(module: torch.nn.Module) -> tuple[Any, ...]:
    """What the traced twin holds fixed: which parts and tensors there are, and plain attributes of the parts."""
    state: list[Any] = []
    for part in module.modules():
        state.append(id(part))
        state += [value for value in vars(part).values() if type(value) in (bool, int, float, str)]
        state += [id(tensor) for tensor in (*part._parameters.values(), *part._buffers.values())]
    return tuple(state)
