"""PyG models that reach small graphs through their dense twin, once it has proved to be one."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GATConv

from flipproof.classifiers.dense import Shortcut
from flipproof.classifiers.features import Own
from flipproof.classifiers.torch_module import MessagePassingClassifier
from flipproof.classifiers.translation import DenseTwin, Untranslatable, call_with_fields
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise, NoisyBatch

_AT_ONCE = 16  # samples of a graph that are held against the model's own answers in one call
_FEW_NODES = 64  # beyond, one at a time: the model takes more memory than its twin


class TranslatedClassifier(MessagePassingClassifier):
    """A PyG model, with its dense twin for graphs on which that is faster.

    Where there is no twin, or it gives other answers, the model is used as it is, and :attr:`remark` says why.
    """

    def __init__(self, module: torch.nn.Module, **settings: Any) -> None:
        self._state: tuple[Any, ...] = ()
        self._stale = True
        super().__init__(module, **settings)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_twin"} | {"_state": ()}

    def begin(self) -> None:
        super().begin()
        self._stale = True  # the model may have changed in a way that its parts do not tell
        if self.shortcuts:
            self._translate()
            if self._twin is not None:
                self._twin.begin()

    def shortcut(self, graph: Graph, noise: EdgeNoise) -> Shortcut | None:
        self._translate()
        return None if self._twin is None else self._twin.way(graph, noise)

    def made_again(self) -> bool:
        again, self._stale = self._stale, False
        if again:
            self._translate(afresh=True)
        return again

    def _translate(self, *, afresh: bool = False) -> None:
        """Make the twin, again if the module has changed in a way that the twin does not follow by itself.

        Tracing stands no other call of a module at the same time: a defence asks for every graph's way before it asks the model.
        """
        state = _state_of(self.module)
        if state == self._state and not afresh:
            return
        self._state = state
        self._twin: _TwinClassifier | None = None
        self._agreed = None
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


class _TwinClassifier(Shortcut):
    """The dense twin of a PyG model."""

    path = "dense twin"
    compiled_path = "compiled twin"
    module: DenseTwin
    _original: TranslatedClassifier
    _at_once: bool | None = None  # once it was asked: see known

    def __init__(self, original: TranslatedClassifier, twin: DenseTwin) -> None:
        # PyG's messages cost more than ours; attention costs several passes over the matrices
        attention = any(isinstance(part, GATConv) for part in original.module.modules())
        self.entries_per_edge = 45 if attention else 180
        super().__init__(twin, original)

    def known(self) -> bool:
        return self.features.spec is not None and self.module.graph_by_graph()

    def prepare(self) -> None:
        self._original.prepare()
        self.device, self.dtype = self._original.device, self._original.dtype
        self.unit_roundoff = self._original.unit_roundoff

    def begin(self) -> None:
        super().begin()
        self.module.forget()
        self._at_once = None

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
            result = self.module(self.node_rows(batch, edges.adjacency), edges)
        return result

    def recheck_count(self, graph: Graph, start: int) -> int:
        # the twin takes graphs one by one, so that the samples of all blocks can be compared with the model at once
        if self._at_once is None:
            self._at_once = self.known()
        few = graph.num_nodes > _FEW_NODES or not self._at_once
        return super().recheck_count(graph, start) if few else _AT_ONCE * (start == 0)


def _state_of(module: torch.nn.Module) -> tuple[Any, ...]:
    """What the traced twin holds fixed: which parts and tensors there are, and plain attributes of the parts."""
    state: list[Any] = []
    for part in module.modules():
        state.append(id(part))
        state += [value for value in vars(part).values() if type(value) in (bool, int, float, str)]
        state += [id(tensor) for tensor in (*part._parameters.values(), *part._buffers.values())]
    return tuple(state)
