"""Any callable from a list of graphs to labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flipproof.classifiers.classifier import DEFAULT_MEMORY, MORE_PROBES, Classifier
from flipproof.errors import InputError
from flipproof.graphs import Graph, checked_features
from flipproof.noise import NoisyBatch

if TYPE_CHECKING:
    from flipproof.classifiers.features import NodeFeatures

_BATCH = 256
_MOST_EDGES = 2**22
_BYTES_PER_EDGE = 128


class BlackBoxClassifier(Classifier):
    """``function(graphs: list[Graph]) -> labels``: no gradients, no tensors, no assumptions."""

    path = "callable"
    more_probes = MORE_PROBES

    def __init__(
        self,
        function: Callable[[list[Graph]], Any],
        *,
        num_classes: int,
        features: NodeFeatures | None = None,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        self.function, self.num_classes, self.features, self.memory = function, num_classes, features, memory
        self.reads_own_features = features is None or features.reads_own

    def wanted_size(self, graph: Graph, edges: float) -> int:
        return min(_BATCH, 1 << int(np.log2(max(1.0, _MOST_EDGES / (edges + 1)))))

    def bytes_each(self, graph: Graph, edges: float) -> float:
        return _BYTES_PER_EDGE * (edges + 1)

    def scores(self, batch: NoisyBatch) -> NDArray[Any]:
        return np.asarray(self.function(self.graphs(batch)))

    def graphs(self, batch: NoisyBatch) -> list[Graph]:
        """The noisy graphs as the function sees them, with the features computed on them."""
        if self.features is None:
            return batch.graphs()
        import torch

        index, owner = (torch.from_numpy(array) for array in batch.edge_index())
        own = None if batch.node_features is None else torch.from_numpy(np.tile(batch.node_features, (batch.size, 1)))
        found = self.features.sparse(index, owner, own)
        return batch.graphs(checked_features(found, len(owner)))

    def _checked_labels(self, scores: NDArray[Any], size: int) -> NDArray[np.int64]:
        if scores.shape != (size,):
            raise InputError(
                f"the classifier must return one label a graph, shape [{size}]; got shape "
                f"{list(scores.shape)} (it is called with a list of flipproof.Graph)"
            )
        if scores.dtype.kind not in "iub" and not _whole_numbers(scores):
            raise InputError(
                f"the classifier must return class numbers; got {scores.dtype} such as "
                f"{scores[:1].tolist()[0]!r} (map class names to 0, 1, 2, ...)"
            )
        outside = (scores < 0) | (scores >= self.num_classes)
        if outside.any():
            raise InputError(
                f"the classifier must return labels 0..{self.num_classes - 1}; got {scores[outside][0]} "
                "(check num_classes)"
            )
        return scores.astype(np.int64)

    def expectation(self, graph: Graph) -> str:
        return "a list of flipproof.Graph"


def _whole_numbers(scores: NDArray[Any]) -> bool:
    return scores.dtype.kind == "f" and bool(np.isfinite(scores).all() and (scores == np.floor(scores)).all())
