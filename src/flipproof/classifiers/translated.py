"""PyG models that reach small graphs through their dense twin, once it has proved to be one."""

from __future__ import annotations

import re
from copy import copy
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.nn import GATConv

from flipproof.classifiers.classifier import Classifier
from flipproof.classifiers.dense import DenseClassifier, prefers_matrices
from flipproof.classifiers.features import NodeFeatures
from flipproof.classifiers.message_passing import EdgeFeatures, MessagePassingClassifier
from flipproof.classifiers.translation import DenseTwin, Untranslatable, call_with_fields
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise, SampleStream

__all__ = ["TranslatedClassifier"]

_TRIED = 8  # noisy copies on which the twin must agree
_TOLERANCE = 1e-4  # of the largest logit


class TranslatedClassifier(MessagePassingClassifier):
    """A PyG model, with its dense twin for graphs on which that is faster.

    The twin is used for a graph if it gives the model's own logits, but for rounding, on the graph's first noisy copies under
    seed 0: a function of graph, noise and model alone. Otherwise the model is used as it is, and :attr:`remark` says why.
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
        super().__init__(
            module,
            num_classes=num_classes,
            features=features,
            memory=memory,
            as_data=as_data,
            edge_features=edge_features,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("_twin", "_verdicts")} | {"_state": ()}

    def suited(self, graph: Graph, noise: EdgeNoise) -> Classifier:
        self._translate()
        if self._twin is None or not prefers_matrices(self._twin, graph, noise):
            return self
        verdicts = self._verdicts.setdefault(graph, {})
        if noise not in verdicts:
            difference = self._difference(self._twin, graph, noise)
            verdicts[noise] = self._twin if difference is None else copy(self)
            if difference is not None:
                verdicts[noise].remark = difference
        return verdicts[noise]

    def _translate(self) -> None:
        """Make the twin, again if the module has changed in a way that the twin does not follow by itself.

        Tracing stands no other call of a module at the same time: smoothing asks for every graph's way before it samples.
        """
        state = _state_of(self.module)
        if state == self._state:
            return
        self._state = state
        self._twin: DenseClassifier | None = None
        self._verdicts: WeakKeyDictionary[Graph, dict[EdgeNoise, Classifier]] = WeakKeyDictionary()
        self.remark = ""
        try:
            twin = DenseTwin(self.module, call_with_fields if self._as_data else self._call_with_batch)
        except Exception as error:  # whatever a user's module makes of being traced, it works as it is
            what = "" if isinstance(error, Untranslatable) else f"{type(error).__name__}: "
            reason = f"no dense twin: {what}{next(iter(str(error).splitlines()), '')}"
            self.remark = re.sub("0x[0-9a-f]+", "0x...", reason)  # the same in every process
            return
        self._twin = _TwinClassifier(self, twin)

    def _difference(self, twin: DenseClassifier, graph: Graph, noise: EdgeNoise) -> str | None:
        """What the twin does otherwise than the model; ``None`` if nothing."""
        size = min(_TRIED, self.batch_size(graph, noise), twin.batch_size(graph, noise))
        batch, _ = SampleStream(graph, noise, seed=0).batch(0, size)
        try:
            wanted = self.scores(batch)
        except Exception:
            return "the model itself fails"  # it is probed next, and says so in full
        try:
            found = twin.scores(batch)
        except Exception as error:
            return f"its dense twin fails with {type(error).__name__}"
        return None if _agree(wanted, found) else "its dense twin gives other logits"


class _TwinClassifier(DenseClassifier):
    """The dense twin of a PyG model."""

    path = "dense twin"

    def __init__(self, original: MessagePassingClassifier, twin: DenseTwin) -> None:
        self._original = original
        # PyG's messages cost more than ours; attention costs several passes over the matrices
        attention = any(isinstance(part, GATConv) for part in original.module.modules())
        self.entries_per_edge = 45 if attention else 180
        super().__init__(twin, num_classes=original.num_classes, features=original.features, memory=original.memory)

    def prepare(self) -> None:
        self._original.prepare()
        self.device, self.dtype = self._original.device, self._original.dtype

    def probe(self, stream: SampleStream) -> None:
        # a model with a memory of its own would be refused, though its twin has none
        self._original.probe(stream)
        super().probe(stream)


def _agree(wanted: NDArray[Any], found: NDArray[Any]) -> bool:
    largest = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
    return wanted.shape == found.shape and np.allclose(wanted, found, rtol=0, atol=_TOLERANCE * largest)


def _state_of(module: torch.nn.Module) -> tuple[Any, ...]:
    """What the traced twin holds fixed: which parts and tensors there are, and plain attributes of the parts."""
    state: list[Any] = []
    for part in module.modules():
        state.append(id(part))
        state += [value for value in vars(part).values() if type(value) in (bool, int, float, str)]
        state += [id(tensor) for tensor in (*part._parameters.values(), *part._buffers.values())]
    return tuple(state)
