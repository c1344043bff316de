"""The numbered noisy samples of a graph, reproducible from (seed, graph, sample index) alone.

The Philox generator is keyed by the seed and a hash of the graph, and sample ``k`` owns a fixed range of its counters. There are
two samplers; graph and noise decide which one is used:

- *dense*: one 32-bit integer per slot, compared with an integer threshold. Exact.
- *sparse*, for large graphs: one 32-bit integer per edge for removals; for additions the number of new edges is drawn
  from its binomial law, then their places without replacement. The cost grows with the edges and flips, never with the
  number of node pairs. The only inexactness is the last bit (2**-64) of the binomial table; the total-variation distance
  to the exact law, :attr:`SampleStream.discrepancy`, is charged to alpha by the certificates.
"""

from __future__ import annotations

import decimal
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.checks import checked_seed
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray, as_graph, pairs_of_slots, unchecked_graph
from flipproof.graphs.conversions import canonical_pairs, pyg_edge_fields, pyg_pairs, pyg_with_edges
from flipproof.noise.law import (
    WORD,
    EdgeNoise,
    Neighbours,
    NoisyBatch,
    SlotLists,
    ends_of_slots,
    flips_of_draws,
    halves,
    key_of,
    noisy_states,
    philox,
    random_words,
)

BLOCK = 1024
"""Samples in a block: the unit of distribution, of resuming and of checksums."""

STREAM_VERSION = 2
"""Changes whenever the flips of a (seed, graph, index) would, or their checksum; stored with the votes."""

_DENSE_SLOTS = 4096  # up to here the dense sampler is always used (90 nodes)
_SPARE_DRAWS = 8
_BYTES_PER_SLOT = 64  # of the dense sampler's tables
_BYTES_PER_DRAW = 64  # of a sample's draws of new edges, for their sorting
_BYTES_PER_EDGE = 128  # of a sample's list of edges
_PIECE = 2**24  # bytes


class NoiseStream(ABC):
    """Noisy samples of one graph, numbered 0, 1, 2, ...; a pure function of (seed, graph, noise)."""

    discrepancy: float
    """Bound on the total-variation distance between one sample's law and the exact one."""

    @abstractmethod
    def batch(self, start: int, stop: int) -> tuple[Any, bytes]:
        """Samples ``start..stop-1``, and what the noise did as canonical bytes; those of consecutive batches join."""

    @abstractmethod
    def meaning(self) -> bytes:
        """Everything that gives those bytes their meaning."""

    @property
    @abstractmethod
    def bytes_per_sample(self) -> int:
        """Approximate memory that one sample of a batch takes while it is made."""

    def pieces(self, start: int, stop: int) -> Iterator[tuple[Any, bytes]]:
        """The same as :meth:`batch`, in as many parts as keep memory small."""
        size = max(1, _PIECE // max(1, self.bytes_per_sample))
        for begin in range(start, stop, size):
            yield self.batch(begin, min(begin + size, stop))

    def checksums(self, samples: int) -> Iterator[str]:
        """The checksum of what the noise did in each block of samples, computed afresh; see :class:`flipproof.Votes`."""
        for start in range(0, samples, BLOCK):
            checksum = self.new_checksum()
            for _, content in self.pieces(start, start + BLOCK):
                checksum.update(content)
            yield checksum.hexdigest()

    def new_checksum(self) -> Any:
        """A hash for the bytes of a block, which already covers their meaning."""
        return hashlib.blake2b(self.meaning(), digest_size=16)


@dataclass(frozen=True)
class AdditionLaw:
    """The number of added edges: a binomial law as a table of 64-bit thresholds."""

    first: int
    thresholds: NDArray[np.uint64]
    draws: int
    discrepancy: float

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, empty: int, threshold: int) -> AdditionLaw | None:
        """The law of Binomial(empty, threshold / 2**32), or ``None`` where a table would be too long to be useful."""
        if empty * threshold > 100_000 * WORD:
            return None
        first, thresholds = _binomial_thresholds(empty, threshold)
        most = first + len(thresholds)
        if threshold == 0:
            return cls(first, thresholds, 0, 0.0)
        spare = 2 * most * most // max(1, empty) + _SPARE_DRAWS
        # every threshold is off by less than 2**-64, as are both ends that are cut off; doubled for the decimal digits
        return cls(first, thresholds, most + spare, (len(thresholds) + 4) * 2.0**-63)

    def counts(self, words: NDArray[np.uint64]) -> IntArray:
        """Counts by inversion: the number of thresholds at or below each word."""
        return self.first + np.searchsorted(self.thresholds, words, side="right").astype(np.int64)


def _binomial_thresholds(trials: int, threshold: int) -> tuple[int, NDArray[np.uint64]]:
    """``floor(2**64 Pr(count <= c))`` for c = first, first + 1, ... for as long as it lies between 0 and 2**64."""
    if threshold == 0 or trials == 0:
        return 0, np.empty(0, dtype=np.uint64)
    with decimal.localcontext() as context:
        context.prec, context.Emin, context.Emax = 60, decimal.MIN_EMIN, decimal.MAX_EMAX
        stay = decimal.Decimal(WORD - threshold) / WORD
        odds = decimal.Decimal(threshold) / (WORD - threshold)
        mass = stay**trials
        total, scale = mass, decimal.Decimal(2**64)
        first, table = 0, list[int]()
        for count in range(trials):
            value = int(total * scale)
            if value >= 2**64 - 1:
                break
            if value > 0:
                table.append(value)
            else:
                first = count + 1
            mass = mass * (trials - count) / (count + 1) * odds
            total += mass
    return first, np.array(table, dtype=np.uint64)


class SampleStream(NoiseStream):
    """The noisy versions of one graph, numbered 0, 1, 2, ...; a pure function of (seed, graph, noise).

    The generator's key depends on seed and graph only: a stronger noise flips a superset of the slots that a weaker one flips
    (within one sampler), and each certificate is as valid as with its own key.
    """

    def __init__(self, graph: Graph, noise: EdgeNoise, *, seed: int) -> None:
        self.graph, self.noise, self.seed = graph, noise, checked_seed(seed)
        self._key = key_of(f"flipproof stream 1 {self.seed} {graph.topology}".encode())
        law = AdditionLaw.of(graph.max_adds, noise.add_threshold) if graph.num_slots > _DENSE_SLOTS else None
        removals = graph.max_removes if noise.remove_threshold else 0
        self._removal_words = -(-removals // 2)
        # where there are many flips, drawing every slot is cheaper, and exact
        self._additions = None if law is None or 2 * law.draws + removals > graph.num_slots // 4 else law
        self.sparse = self._additions is not None
        self.discrepancy = 0.0 if self._additions is None else self._additions.discrepancy

    @property
    def words_per_sample(self) -> int:
        """Number of 64-bit random words that one sample owns: its cost."""
        if self._additions is None:
            return 4 * -(-self.graph.num_slots // 8)
        return 4 * -(-(self._removal_words + 1 + self._additions.draws) // 4)

    @property
    def bytes_at_rest(self) -> int:
        """Approximate memory that the stream and its batches need in addition to their samples, as measured."""
        return _BYTES_PER_SLOT * self.graph.num_slots if self._additions is None else 0

    @property
    def bytes_per_sample(self) -> int:
        """See :class:`NoiseStream`; as measured."""
        if self._additions is None:
            return 8 * self.graph.num_slots
        edges = self.graph.num_edges + self._additions.draws
        return 8 * self.words_per_sample + _BYTES_PER_DRAW * self._additions.draws + _BYTES_PER_EDGE * edges

    def flips(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Which slots flip in samples ``start..stop-1``: bool ``[stop - start, N]``, columns as ``graph.slots``."""
        if self._additions is None:
            return self._dense_flips(start, stop)
        sample, slot = self.flip_lists(start, stop)
        flips = np.zeros((stop - start, self.graph.num_slots), dtype=np.bool_)
        flips[sample, np.searchsorted(self.graph.slots, slot)] = True
        return flips

    def flip_lists(self, start: int, stop: int) -> SlotLists:
        """The flipped slots of samples ``start..stop-1`` (numbered from 0), sorted by sample, then slot."""
        if self._additions is not None:
            sample, slot = self._listed_flips(self._flipped_cells(*self._sparse_samples(start, stop)))
            order = np.lexsort((slot, sample))
            return SlotLists(sample[order], slot[order])
        sample, column = np.nonzero(self.flips(start, stop))
        return SlotLists(sample.astype(np.int64), self.graph.slots[column])

    def batch(self, start: int, stop: int) -> tuple[NoisyBatch, bytes]:
        """See :class:`NoiseStream`: samples for a classifier."""
        graph = self.graph
        if self._additions is None:
            flips, listed = self._dense_flips(start, stop), None
            states, content = flips ^ graph.slot_states, np.packbits(flips, axis=1).tobytes()
        else:
            samples = self._sparse_samples(start, stop)
            content = self._flipped_cells(*samples)
            states, listed = None, self._sparse_neighbours(*samples)
        slots, frozen = None if states is None else graph.slots, graph.frozen_edge_slots
        return NoisyBatch(graph.num_nodes, stop - start, graph.node_features, slots, frozen, states, listed), content

    def noisy_cells(self, start: int, stop: int) -> tuple[SlotLists, bytes]:
        """The same as lists of the slots with an edge, for graphs without frozen slots."""
        if self._additions is None:
            flips = self._dense_flips(start, stop)
            return SlotLists(*np.nonzero(flips ^ self.graph.slot_states)), np.packbits(flips, axis=1).tobytes()
        kept, *added = self._sparse_samples(start, stop)
        starts, cells = cell_flips().noisy_cells(kept, self.graph.edge_slots, *added)
        return SlotLists(np.repeat(np.arange(len(kept)), np.diff(starts)), cells), self._flipped_cells(kept, *added)

    def packed_flips(self, start: int) -> tuple[NDArray[np.uint8], str]:
        """The flips of a whole block, eight slots a byte, ``[BLOCK, N / 8]``, and their checksum."""
        content, checksum = b"".join(content for _, content in self.pieces(start, start + BLOCK)), self.new_checksum()
        checksum.update(content)
        if not self.sparse:
            return np.frombuffer(content, np.uint8).reshape(BLOCK, -1), checksum.hexdigest()
        sample, slot = self._listed_flips(content)
        flips = np.zeros((BLOCK, self.graph.num_slots), dtype=np.bool_)
        flips[sample, np.searchsorted(self.graph.slots, slot)] = True
        return np.packbits(flips, axis=1), checksum.hexdigest()

    def meaning(self) -> bytes:
        """See :class:`NoiseStream`."""
        graph, noise, kind = self.graph, self.noise, "sparse" if self.sparse else "dense"
        meaning = (
            f"flips {STREAM_VERSION} {kind} {graph.topology} {noise.add_threshold} {noise.remove_threshold}".encode()
        )
        return meaning if self.sparse else meaning + _pairs_of_slots(graph.slots.tobytes(), graph.num_nodes)

    def _words(self, start: int, stop: int) -> NDArray[np.uint64]:
        words = self.words_per_sample
        return random_words(self._key, start * words, (stop - start) * words).reshape(stop - start, words)

    def _dense_flips(self, start: int, stop: int) -> NDArray[np.bool_]:
        draws = halves(self._words(start, stop))[:, : self.graph.num_slots]
        return flips_of_draws(self.graph.slot_states, draws, self.noise)

    def _sparse_samples(self, start: int, stop: int) -> tuple[NDArray[np.bool_], IntArray, IntArray]:
        """Which flippable edges every sample keeps, where the slots that it adds start, and these."""
        assert self._additions is not None
        words, first, empty = self._words(start, stop), self._removal_words, max(1, self.graph.max_adds)
        kept = np.ones((len(words), self.graph.max_removes), dtype=np.bool_)
        if kept.size and first:
            kept = noisy_states(kept[0], halves(words[:, :first])[:, : self.graph.max_removes], self.noise)
        counts, columns = self._additions.counts(words[:, first]), (first + 1, first + 1 + self._additions.draws)
        highest = np.uint64(2**64 // empty * empty - 1)  # draws above it would favour small ranks
        starts, added, short = cell_flips().added_cells(words, *columns, counts, empty, highest, self._empty_before)
        for row in np.flatnonzero(short).tolist():
            ranks = np.sort(self._replacement(row + start, int(counts[row])))
            # the rank-th empty slot is preceded by `rank` empty ones and by every occupied slot below it
            added[starts[row] : starts[row + 1]] = ranks + np.searchsorted(self._empty_before, ranks, side="right")
        return kept, starts, added

    def _flipped_cells(self, kept: NDArray[np.bool_], starts: IntArray, added: IntArray) -> bytes:
        """What is hashed of sparse samples: of each the slots that lose their edge, those that gain one, and an end."""
        flipped = kept.size - np.count_nonzero(kept) + len(added)
        cells = np.empty(flipped + len(kept), dtype=self._cell_type)
        cell_flips().flipped_cells(kept, self.graph.flippable_edge_slots, starts, added, self._end, cells)
        return cells.tobytes()

    def _listed_flips(self, content: bytes) -> SlotLists:
        """The flips of sparse samples, from what is hashed of them."""
        cells = np.frombuffer(content, self._cell_type).astype(np.int64)
        ends = cells == self._end
        return SlotLists(np.cumsum(ends)[~ends], cells[~ends])

    @cached_property
    def _end(self) -> int:
        """A number above all slots."""
        return self.graph.num_slots + len(self.graph.frozen_slots)

    @cached_property
    def _cell_type(self) -> Any:
        return np.dtype("<u4" if self._end < WORD else "<i8")

    def _sparse_neighbours(self, kept: NDArray[np.bool_], starts: IntArray, added: IntArray) -> Neighbours:
        """The neighbours of all nodes of all samples."""
        before = np.searchsorted(self.graph.flippable_edge_slots, self.graph.frozen_edge_slots)
        kept = np.insert(kept, before, True, axis=1) if len(before) else kept
        ends = ends_of_slots(self.graph.edge_slots.tobytes(), self.graph.num_nodes)
        return Neighbours(*cell_flips().noisy_neighbours(kept, *ends, starts, added))

    @cached_property
    def _empty_before(self) -> IntArray:
        """The number of empty slots before each occupied one."""
        occupied = np.union1d(self.graph.edge_slots, self.graph.frozen_slots)
        return occupied - np.arange(len(occupied))

    def _replacement(self, index: int, count: int) -> IntArray:
        """Ranks of a sample whose words held too many repeats, from a separate generator. Rare."""
        generator = philox(key_of(self._key + index.to_bytes(8, "little")))
        empty, chosen = self.graph.max_adds, dict[int, None]()
        limit = 2**64 // empty * empty
        while len(chosen) < count:
            draws = generator.random_raw(2 * (count - len(chosen)) + _SPARE_DRAWS)
            chosen |= dict.fromkeys(word % empty for word in draws.tolist() if word < limit)
        return np.fromiter(chosen, dtype=np.int64, count=count)


@cache
def cell_flips() -> Any:
    """The compiled loops; numba takes a while to load."""
    from flipproof.noise import cell_flips

    return cell_flips


@lru_cache(maxsize=64)
def _pairs_of_slots(slots: bytes, num_nodes: int) -> bytes:
    """The node pairs of slots: as bytes, from bytes."""
    return pairs_of_slots(np.frombuffer(slots, np.int64), num_nodes).astype("<i8").tobytes()


def noisy_version(graph: Any, noise: EdgeNoise, *, seed: int | str | None, edge_features: bool = False) -> Any:
    """The graph after one draw of the noise (see :meth:`EdgeNoise.sample`): a PyG ``Data`` for a ``Data``, else a :class:`Graph`.

    The seed is hashed under a purpose of its own; a text is taken as it is. With ``edge_features`` the caller makes a new
    ``edge_attr``; all other fields with an entry per edge are refused.
    """
    identity = seed if isinstance(seed, str) else str(checked_seed(seed))
    own_seed = int.from_bytes(key_of(f"flipproof one draw {identity}".encode())[:8], "little") >> 1
    if not hasattr(graph, "edge_index") or isinstance(graph, Graph):
        clean = as_graph(graph)
        flips = SampleStream(clean, noise, seed=own_seed).flip_lists(0, 1).slot
        return clean.flipped(pairs_of_slots(flips, clean.num_nodes))
    left = [field for field in pyg_edge_fields(graph) if not (edge_features and field == "edge_attr")]
    if left:
        raise InputError(
            f"{left[0]} has an entry per edge, and an edge that the noise adds has none (EdgeFlip(noise, "
            'edge_features=function) makes edge_attr from the two end nodes, edge_features="drop" leaves such fields out; a '
            "field of the whole graph has a first dimension of 1)"
        )
    num_nodes, pairs = pyg_pairs(graph)
    bare = unchecked_graph(num_nodes, canonical_pairs(pairs, num_nodes, "edge_index"), None)
    drawn, _ = SampleStream(bare, noise, seed=own_seed).batch(0, 1)
    return pyg_with_edges(graph, drawn.edge_index()[0])
