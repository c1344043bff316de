"""The noisy features of one graph as numbered samples: a pure function of (seed, graph, index), as those of edges are."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from flipproof.checks import checked_seed
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray
from flipproof.graphs.conversions import read_only
from flipproof.noise.law import SlotLists, halves, key_of, random_words
from flipproof.noise.stream import NoiseStream, SampleStream

if TYPE_CHECKING:
    from flipproof.noise.feature_law import BitNoise, LabelNoise

FEATURE_STREAM_VERSION = 2
"""Changes whenever the noisy features of a given (seed, graph, index) would, or their checksum; stored with the votes."""

_MOST_DENSE_BITS = 2**26  # beyond, drawing every bit of a sample takes gigabytes


class FeatureStream(NoiseStream):
    """The noisy features of one graph: of every sample the cells ``node * d + column`` that are 1, ascending."""

    features: NDArray[Any]
    """The clean features ``[n, d]``."""

    @abstractmethod
    def batch(self, start: int, stop: int) -> tuple[SlotLists, bytes]:
        """See :class:`NoiseStream`."""

    @property
    def bytes_per_sample(self) -> int:
        """See :class:`NoiseStream`."""
        return 8 * self.features.size

    def ones(self, drawn: SlotLists, samples: int) -> list[IntArray]:
        """The cells that are 1 in each of the samples that :meth:`batch` drew."""
        return np.split(drawn.slot, np.searchsorted(drawn.sample, np.arange(1, samples)))

    def shown(self, start: int, stop: int) -> tuple[NDArray[Any], bytes]:
        """As :meth:`batch`, as arrays ``[stop - start, n, d]`` of the type of the clean features, read-only."""
        drawn, content = self.batch(start, stop)
        rows = np.zeros((stop - start, self.features.size), dtype=self.features.dtype)
        rows[drawn.sample, drawn.slot] = 1
        return read_only(rows.reshape(stop - start, *self.features.shape)), content


class LabelStream(FeatureStream):
    """The noisy labels of one graph."""

    discrepancy = 0.0

    def __init__(self, noise: LabelNoise, graph: Graph, seed: int) -> None:
        self.features = features = noise.check(graph.node_features)
        self.noise, self._topology, (self.num_nodes, self.categories) = noise, graph.topology, features.shape
        self.labels: IntArray = features.argmax(axis=1).astype(np.int64)
        self._key = key_of(f"flipproof labels 1 {checked_seed(seed)} {graph.topology}".encode())

    def batch(self, start: int, stop: int) -> tuple[SlotLists, bytes]:
        """See :class:`FeatureStream`; the bytes do not depend on the clean labels."""
        words = 4 * -(-self.num_nodes // 8)  # 32-bit draws, in whole steps of the counter: four 64-bit words
        draws = halves(random_words(self._key, start * words, (stop - start) * words).reshape(stop - start, words))
        shifts = self.noise.shifts(draws[:, : self.num_nodes], self.categories)
        cells = np.arange(self.num_nodes) * self.categories + (self.labels + shifts) % self.categories
        return SlotLists(np.repeat(np.arange(stop - start), self.num_nodes), cells.ravel()), shifts.astype(
            "<u4"
        ).tobytes()

    def meaning(self) -> bytes:
        """See :class:`NoiseStream`."""
        kept, other = self.noise.thresholds(self.categories)
        return f"features {FEATURE_STREAM_VERSION} labels {self._topology} {self.categories} {kept} {other}".encode()


class BitStream(FeatureStream):
    """The noisy bits of one graph, at a cost in proportion to set bits and flips where additions are rare.

    The bits are drawn by the sampler of edges, whose exactness is theirs (:attr:`discrepancy`): dense and exact, or sparse.
    """

    def __init__(self, noise: BitNoise, graph: Graph, seed: int) -> None:
        self.features = features = noise.check(graph.node_features)
        self._noise, self._ones, self._topology = (
            noise,
            np.flatnonzero(features),
            f"{graph.topology} bits {features.shape[1]}",
        )
        # the matrix in the words of a graph: cells are slots, ones are edges
        ones, zeros = self._ones, features.size - len(self._ones)
        cells = SimpleNamespace(topology=self._topology, num_slots=features.size, max_adds=zeros, max_removes=len(ones))
        cells.edge_slots, cells.flippable_edge_slots, cells.frozen_slots = ones, ones, ones[:0]
        self._stream = SampleStream(cast(Graph, cells), noise.law, seed=seed)
        if not self._stream.sparse:
            if features.size > _MOST_DENSE_BITS:
                raise InputError(
                    f"BitNoise with add={noise.law.p_add:g} changes too many of {features.size:,} bits to draw them sparsely "
                    "(lower add below 100,000 / number of bits, or pass fewer columns)"
                )
            cells.slots, cells.slot_states = np.arange(features.size), features.ravel() != 0
        self.discrepancy = self._stream.discrepancy

    def batch(self, start: int, stop: int) -> tuple[SlotLists, bytes]:
        """See :class:`FeatureStream`."""
        return self._stream.noisy_cells(start, stop)

    def meaning(self) -> bytes:
        """See :class:`NoiseStream`."""
        law, kind = self._noise.law, "sparse" if self._stream.sparse else "dense"
        clean = hashlib.blake2b(self._ones.astype("<i8").tobytes(), digest_size=16).hexdigest()
        what = f"bits {kind} {self._topology} {clean} {law.add_threshold} {law.remove_threshold}"
        return f"features {FEATURE_STREAM_VERSION} {what}".encode()


def one_hot(labels: IntArray, like: NDArray[Any]) -> NDArray[Any]:
    """Labels ``[..., n]`` as one-hot rows with the columns and the type of the features ``like``."""
    return np.eye(like.shape[-1], dtype=like.dtype)[labels]
