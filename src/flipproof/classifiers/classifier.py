"""What smoothing asks of a base classifier: a label for every graph of a noisy batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise, NoisyBatch, SampleStream

__all__ = ["DEFAULT_MEMORY", "Classifier", "expected_edges", "shown_bytes"]

DEFAULT_MEMORY = 2**30
"""Bytes that the noisy copies of a graph and the model's work on them may take at once."""

_PROBE_SAMPLES = 8
_ROUNDING = 1e-4  # of the highest logit (at least 1): well above what float32 networks differ by from batch to batch


def shown_bytes(count: float) -> str:
    """Bytes for people: ``1.5 GiB``."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**29 else f"{count / 2**20:.1f} MiB"


def expected_edges(graph: Graph, noise: EdgeNoise) -> float:
    """Edges that a noisy copy has on average."""
    frozen = graph.num_edges - graph.max_removes
    return graph.max_removes * (1 - noise.p_remove) + graph.max_adds * noise.p_add + frozen


class Classifier(ABC):
    """A base classifier ``f``. Must be a function of the noisy graph alone.

    Attributes:
        num_classes: Declared classes ``C``.
        path: How batches reach the model: ``dense``, ``dense twin``, ``message passing`` or ``callable``.
        remark: Why no faster path is taken, if a model is expected to have one.
        memory: Bytes that a batch and the model's work on it may take.
        reads_own_features: Whether the model may see the graph's own ``node_features``, which no noise reaches.
        edge_blind: Whether the model cannot see edges, so that its answer needs no noise and no samples.
    """

    num_classes: int
    path: str
    remark: str = ""
    memory: int = DEFAULT_MEMORY
    reads_own_features: bool = True
    edge_blind: bool = False

    forks: bool = True
    """Whether the model survives a fork of the process; one on a GPU does not."""

    threads: bool = False
    """Whether the model may be called from several threads."""

    def one_thread(self) -> AbstractContextManager[None]:
        """While entered, the model computes on one thread: a worker has one core, and the same bits as any other."""
        return nullcontext()

    def suited(self, graph: Graph, noise: EdgeNoise) -> Classifier:
        """The classifier itself, or another way to the same model that is faster for this graph and noise."""
        return self

    @abstractmethod
    def batch_size(self, graph: Graph, noise: EdgeNoise) -> int:
        """Samples that the model sees at once: a divisor of the block, fixed by graph, noise and model.

        Floating point may round differently in batches of another size: the same samples always travel together.
        """

    def fitting(self, graph: Graph, noise: EdgeNoise, *, size: int, each: float) -> int:
        """The size, halved until it fits :attr:`memory`; refused if a single sample does not.

        Args:
            size: Samples wanted.
            each: Bytes that the model's work on one sample takes, beside making the sample.
        """
        stream = SampleStream(graph, noise, seed=0)
        needed = stream.bytes_at_rest + stream.bytes_per_sample + each
        if needed > self.memory:
            raise InputError(
                f"one noisy copy of a graph of {graph.num_nodes:,} nodes and {graph.num_edges:,} edges takes about "
                f"{shown_bytes(needed)} ({self.path}); memory allows {shown_bytes(self.memory)} ({self._remedy})"
            )
        while size > 1 and stream.bytes_at_rest + size * (stream.bytes_per_sample + each) > self.memory:
            size //= 2
        return size

    _remedy = "raise memory, or take a noise that adds fewer edges"

    @abstractmethod
    def scores(self, batch: NoisyBatch) -> NDArray[Any]:
        """What the model says of each graph, unchecked: logits ``[B, C]``, or labels ``[B]`` from a black box."""

    def labels(self, batch: NoisyBatch) -> NDArray[np.int64]:
        """The label of each graph of the batch, ``[B]``; equal logits go to the smaller label."""
        return self._checked_labels(self.scores(batch), batch.size)

    def said(self, batch: NoisyBatch) -> NDArray[np.uint8]:
        """Of each graph and class 2 if it is the answer, 1 if it could be were rounding otherwise, else 0, ``[B, C]``.

        The label of a graph can depend on rounding, and rounding on the batch that it is in: a class whose logit is within
        rounding of the highest could be the answer elsewhere. A black box names one class.
        """
        scores = self.scores(batch)
        answer = self._checked_labels(scores, batch.size)[:, None] == np.arange(self.num_classes)
        found: NDArray[np.uint8] = 2 * answer.astype(np.uint8)
        if scores.ndim == 2:
            highest = np.where(answer, scores, -np.inf).max(axis=1, keepdims=True)
            with np.errstate(invalid="ignore"):  # of infinite logits
                near = scores >= highest - _ROUNDING * np.maximum(1.0, np.abs(highest))
            found |= (near & ~answer).astype(np.uint8)
        return found

    def prepare(self) -> None:  # noqa: B027  (nothing to refuse in a black box)
        """Refuse a model whose state makes certificates false; called before every sampling."""

    def probe(self, stream: SampleStream) -> None:
        """Try the model on a few noisy graphs, together and one by one, and refuse it if the answers differ.

        Catches wrong shapes before any long work, randomness inside the model, and answers that depend on
        which other graphs are in the batch (batch statistics, caches).
        """
        size = min(_PROBE_SAMPLES, self.batch_size(stream.graph, stream.noise))
        batch, _ = stream.batch(0, size)
        together = self._tried(batch, stream.graph)
        again = self._tried(batch, stream.graph)
        alone = [self._tried(stream.batch(index, index + 1)[0], stream.graph) for index in range(size)]
        for other, cause in (
            (again, "twice on the same graphs (dropout or other randomness inside forward?)"),
            (np.concatenate(alone), "on a graph alone and in a batch (batch statistics, or a cache?)"),
        ):
            if not self._same(together, other):
                raise InputError(
                    "the model must be a function of the noisy graph alone; it gave different answers "
                    f"{cause} (certificates would be false)"
                )

    def label_of(self, graph: Graph) -> int:
        """The model's answer on the graph as it is, without noise."""
        still = EdgeNoise(add=0, remove=0)
        batch, _ = SampleStream(graph, still, seed=0).batch(0, 1)
        return int(self.suited(graph, still).labels(batch)[0])

    def _tried(self, batch: NoisyBatch, graph: Graph) -> NDArray[Any]:
        """The model's answers, or one sentence about what is wrong with them."""
        try:
            scores = self.scores(batch)
        except InputError:
            raise
        except Exception as error:
            reason = next(iter(str(error).splitlines()), "")
            raise InputError(
                f"the model failed on noisy copies of a graph of {graph.num_nodes} nodes "
                f"({type(error).__name__}: {reason}); expected it to take {self.expectation(graph)} "
                "(check the features and the model's input width)"
            ) from error
        self._checked_labels(scores, batch.size)
        return scores

    def _same(self, first: NDArray[Any], second: NDArray[Any]) -> bool:
        """Whether logits differ by no more than rounding can explain."""
        largest = float(np.abs(first[np.isfinite(first)]).max(initial=0.0))
        return np.allclose(first, second, rtol=0, atol=1e-3 * largest)

    @abstractmethod
    def expectation(self, graph: Graph) -> str:
        """What the model is called with, in words, for error messages."""

    def _checked_labels(self, scores: NDArray[Any], size: int) -> NDArray[np.int64]:
        if scores.shape != (size, self.num_classes):
            raise InputError(
                f"the model must return logits [graphs, num_classes] = [{size}, {self.num_classes}]; got shape "
                f"{list(scores.shape)} (check num_classes, and that the model pools nodes into one row a graph)"
            )
        if np.isnan(scores).any():
            raise InputError("the model returned NaN for a noisy graph; expected numbers (check weights and features)")
        labels: NDArray[np.int64] = scores.argmax(axis=1).astype(np.int64)
        return labels
