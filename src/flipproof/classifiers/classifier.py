"""What smoothing asks of a base classifier: a label for every graph of a noisy batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise, NoisyBatch, SampleStream

__all__ = ["Classifier"]

_PROBE_SAMPLES = 4


class Classifier(ABC):
    """A base classifier ``f``. Must be a function of the noisy graph alone.

    Attributes:
        num_classes: Declared classes ``C``.
        path: How batches reach the model: ``dense``, ``message passing`` or ``callable``.
    """

    num_classes: int
    path: str

    @abstractmethod
    def batch_size(self, graph: Graph, noise: EdgeNoise) -> int:
        """Samples that the model sees at once: a divisor of the block, fixed by graph, noise and model.

        Floating point may round differently in batches of another size, so the same samples always travel together.
        """

    @abstractmethod
    def scores(self, batch: NoisyBatch) -> NDArray[Any]:
        """What the model says of each graph: logits ``[B, C]``, or labels ``[B]`` from a black box. Not yet checked."""

    def labels(self, batch: NoisyBatch) -> NDArray[np.int64]:
        """The label of each graph of the batch, ``[B]``; equal logits go to the smaller label."""
        return self._checked_labels(self.scores(batch), batch.size)

    def prepare(self) -> None:
        """Refuse a model whose state makes certificates false; called before every sampling."""

    def probe(self, stream: SampleStream) -> None:
        """Try the model on a few noisy graphs, together and one by one, and refuse it if the answers differ.

        Catches wrong shapes before any long work, randomness inside the model, and answers that depend on which other
        graphs are in the batch (batch statistics, caches).
        """
        batch, _ = stream.batch(0, _PROBE_SAMPLES)
        try:
            together = self.scores(batch)
            self._checked_labels(together, batch.size)
            again = self.scores(batch)
            alone = [self.scores(stream.batch(index, index + 1)[0])[0] for index in range(_PROBE_SAMPLES)]
        except InputError:
            raise
        except (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
            raise InputError(
                f"the model failed on noisy copies of a graph of {stream.graph.num_nodes} nodes "
                f"({type(error).__name__}: {error}); expected it to take {self.expectation(stream.graph)} "
                "(check the features and the model's input width)"
            ) from error
        for other, cause in (
            (again, "twice on the same graphs (dropout or other randomness inside forward?)"),
            (np.stack(alone), "on a graph alone and in a batch (batch statistics, or a cache, inside the model?)"),
        ):
            if not np.allclose(together, other, rtol=1e-3, atol=1e-3 * (1 + np.abs(together).max())):
                raise InputError(
                    f"the model must be a function of the noisy graph alone; it gave different answers {cause} "
                    "(certificates would be false)"
                )

    @abstractmethod
    def expectation(self, graph: Graph) -> str:
        """What the model is called with, in words, for error messages."""

    def _checked_labels(self, scores: NDArray[Any], size: int) -> NDArray[np.int64]:
        if scores.shape != (size, self.num_classes):
            raise InputError(
                f"the model must return logits of shape [graphs, num_classes] = [{size}, {self.num_classes}]; "
                f"got {list(scores.shape)} (check num_classes, and that the model pools nodes into one row a graph)"
            )
        if np.isnan(scores).any():
            raise InputError("the model returned NaN for a noisy graph; expected numbers (check weights and features)")
        return scores.argmax(axis=1).astype(np.int64)
