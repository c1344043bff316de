"""Random edge flips with exactly known probabilities, reproducible from (seed, graph, sample index) alone.

Every slot flips independently: an empty one gains an edge with probability ``p_add``, an edge is lost with probability
``p_remove``. Randomness comes from the counter-based Philox generator, keyed by the seed and a hash of the graph:
sample ``k`` owns a fixed range of counters, so it is the same whatever the batch, the order of graphs, the process or
the machine, and can be made again at any time.

Two samplers, chosen by graph and noise:

- *dense*: one 32-bit integer a slot, compared with an integer threshold. Exact.
- *sparse*, for large graphs: one 32-bit integer an edge for removals; for additions the number of new edges is drawn from
  its binomial law, then their places without replacement. Cost grows with edges and flips, never with the number of
  node pairs. The only inexactness is the binomial table's last bit (2**-64); its total-variation distance to the exact
  law, :attr:`SampleStream.discrepancy`, is charged to alpha by the certificates.
"""

from __future__ import annotations

import decimal
import hashlib
import math
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray, pairs_of_slots, unchecked_graph

__all__ = ["BLOCK", "STREAM_VERSION", "EdgeNoise", "NoisyBatch", "SampleStream", "checked_seed"]

BLOCK = 1024
"""Samples in a block: the unit of distribution, of resuming and of checksums."""

STREAM_VERSION = 1
"""Changes whenever the flips of a given (seed, graph, index) would; stored with the votes."""

_WORD = 2**32
_DENSE_SLOTS = 4096  # up to here the dense sampler is always used (90 nodes)
_SPARE_DRAWS = 8
_BYTES_PER_SLOT = 64  # of the dense sampler's tables
_BYTES_PER_DRAW = 64  # of a sample's draws of new edges, for their sorting
_BYTES_PER_EDGE = 128  # of a sample's list of edges
_PIECE = 2**24  # bytes


class EdgeNoise:
    """Independent flips of node pairs, with exact probabilities.

    Args:
        keep: The paper's beta, in (0.5, 1): every slot keeps its state with this probability.
        add: Probability that an empty slot gains an edge.
        remove: Probability that an edge is lost. ``add + remove`` must be below 1; either may be 0.

    Probabilities are multiples of 2**-32: ``p_add`` and ``p_remove`` are the values in use, and the certificates use these,
    not the decimals typed.

    >>> noise = EdgeNoise(keep=0.9)
    >>> noise.p_add == noise.p_remove == round(0.1 * 2**32) / 2**32
    True
    >>> EdgeNoise(add=0.01, remove=0.4)
    EdgeNoise(add=0.01, remove=0.4)
    """

    __slots__ = ("add_threshold", "remove_threshold")

    add_threshold: int
    remove_threshold: int

    def __init__(self, *, keep: float | None = None, add: float | None = None, remove: float | None = None) -> None:
        if keep is not None:
            if add is not None or remove is not None:
                raise InputError("give either keep or add and remove; got both (keep=b means add=remove=1-b)")
            keep = _checked_number(keep, "keep")
            if not 0.5 < keep < 1:
                hint = f" (did you mean {1 - keep:g}?)" if 0 < keep < 0.5 else " (for instance 0.9)"
                raise InputError(f"keep must lie in (0.5, 1); got {keep:g}{hint}")
            thresholds = [_threshold(1 - keep, "1 - keep")] * 2
            if 2 * thresholds[0] >= _WORD:
                raise InputError(f"keep must exceed 0.5 by more than 2**-32; got {keep!r} (for instance 0.51)")
        else:
            if add is None or remove is None:
                raise InputError(
                    f"noise needs keep, or both add and remove; got add={add}, remove={remove} (pass 0 for none)"
                )
            add, remove = _checked_number(add, "add"), _checked_number(remove, "remove")
            for name, value in (("add", add), ("remove", remove)):
                if not 0 <= value < 1:
                    raise InputError(f"{name} must lie in [0, 1); got {value:g} (for instance 0.1)")
            thresholds = [_threshold(add, "add"), _threshold(remove, "remove")]
            if sum(thresholds) >= _WORD:
                raise InputError(f"add + remove must be below 1; got {add:g} + {remove:g} (lower one of them)")
        object.__setattr__(self, "add_threshold", thresholds[0])
        object.__setattr__(self, "remove_threshold", thresholds[1])

    def __setattr__(self, attribute: str, value: object) -> None:
        raise AttributeError(f"an EdgeNoise is read-only; make a new one to change {attribute}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _noise_from_thresholds, (self.add_threshold, self.remove_threshold)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EdgeNoise):
            return NotImplemented
        return (self.add_threshold, self.remove_threshold) == (other.add_threshold, other.remove_threshold)

    def __hash__(self) -> int:
        return hash((self.add_threshold, self.remove_threshold))

    def __repr__(self) -> str:
        if self.symmetric and self.add_threshold:
            return f"EdgeNoise(keep={1 - self.p_add:.9g})"
        return f"EdgeNoise(add={self.p_add:.9g}, remove={self.p_remove:.9g})"

    @property
    def p_add(self) -> float:
        """Exact probability that an empty slot gains an edge."""
        return self.add_threshold / _WORD

    @property
    def p_remove(self) -> float:
        """Exact probability that an edge is lost."""
        return self.remove_threshold / _WORD

    @property
    def symmetric(self) -> bool:
        """Whether both probabilities are equal, as in the paper."""
        return self.add_threshold == self.remove_threshold

    @classmethod
    def from_thresholds(cls, add: int, remove: int) -> EdgeNoise:
        """The noise with probabilities ``add / 2**32`` and ``remove / 2**32``: how stored noise is read back."""
        return cls(add=add / _WORD, remove=remove / _WORD)


def _noise_from_thresholds(add: int, remove: int) -> EdgeNoise:
    return EdgeNoise.from_thresholds(add, remove)


def _checked_number(value: Any, name: str) -> float:
    if isinstance(value, (bool, str)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InputError(f"{name} must be a probability; got {value!r} (for instance {name}=0.1)")
    if not math.isfinite(value):
        raise InputError(f"{name} must be a finite probability; got {value} (for instance {name}=0.1)")
    return float(value)


def _threshold(probability: float, name: str) -> int:
    threshold = round(probability * _WORD)
    if probability > 0 and threshold == 0:
        raise InputError(
            f"{name} is too small to sample exactly; got {probability:g}, the smallest is {2**-32:g} (or pass 0)"
        )
    return threshold


def checked_seed(seed: int | None) -> int:
    """The seed itself, or a fresh secret one for ``None``."""
    if seed is None:
        return secrets.randbits(63)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
        raise InputError(f"seed must be an integer from 0 to 2**63 - 1; got {seed!r} (or None for a fresh one)")
    return int(seed)


class SlotLists(NamedTuple):
    """Slots of several samples, sorted by sample, then slot."""

    sample: IntArray
    slot: IntArray


@dataclass(frozen=True)
class NoisyBatch:
    """Noisy versions of one graph. All that a classifier may see of the graph: no clean edge can be told from here.

    Exactly one of ``states`` (dense) and ``lists`` (sparse) is given.
    """

    num_nodes: int
    size: int
    node_features: NDArray[Any] | None
    slots: IntArray | None
    frozen_edges: IntArray
    states: NDArray[np.bool_] | None
    lists: SlotLists | None

    def edge_lists(self) -> SlotLists:
        """Slots of all edges of all samples, sorted by sample, then slot: the canonical order."""
        if self.lists is not None:
            return self.lists
        assert self.states is not None
        assert self.slots is not None
        sample, column = np.nonzero(self.states)
        slot = self.slots[column]
        if len(self.frozen_edges):
            return _merged(
                SlotLists(sample.astype(np.int64), slot),
                SlotLists(
                    np.repeat(np.arange(self.size, dtype=np.int64), len(self.frozen_edges)),
                    np.tile(self.frozen_edges, self.size),
                ),
            )
        return SlotLists(sample.astype(np.int64), slot)

    def adjacency(self) -> NDArray[np.float32]:
        """Dense adjacency matrices, float32 ``[size, n, n]``."""
        n = self.num_nodes
        if self.states is not None:
            # column 0 of `padded` is "no edge", column 1 "frozen edge"; entry (u, v) of `column` tells where its state is
            padded = np.zeros((self.size, self.states.shape[1] + 2), dtype=np.float32)
            padded[:, 1] = 1
            padded[:, 2:] = self.states
            return padded.take(self._column_of_entry, axis=1).reshape(self.size, n, n)
        sample, slot = self.edge_lists()
        matrix = np.zeros((self.size, n, n), dtype=np.float32)
        u, v = pairs_of_slots(slot, n).T
        matrix[sample, u, v] = 1
        matrix[sample, v, u] = 1
        return matrix

    @cached_property
    def _column_of_entry(self) -> IntArray:
        assert self.slots is not None
        return _column_of_entry(self.num_nodes, self.slots.tobytes(), self.frozen_edges.tobytes())

    def edge_index(self) -> tuple[IntArray, IntArray]:
        """Edges of the disjoint union, both directions, sorted: ``edge_index [2, 2E]`` and ``batch [size * n]``."""
        n = self.num_nodes
        if self.states is not None and not len(self.frozen_edges):
            padded = np.zeros((self.size, self.states.shape[1] + 2), dtype=np.bool_)
            padded[:, 2:] = self.states
            source, target = np.divmod(np.flatnonzero(padded.take(self._column_of_entry, axis=1)), n)
            index = np.stack([source, target + source // n * n])
        else:
            sample, slot = self.edge_lists()
            u, v = (pairs_of_slots(slot, n) + sample[:, None] * n).T
            sources, targets = np.concatenate([u, v]), np.concatenate([v, u])
            order = np.lexsort((targets, sources))
            index = np.stack([sources[order], targets[order]])
        return index, np.repeat(np.arange(self.size, dtype=np.int64), n)

    def degrees(self) -> IntArray:
        """Degree of every node of every sample, ``[size, n]``."""
        sample, slot = self.edge_lists()
        ends = pairs_of_slots(slot, self.num_nodes) + sample[:, None] * self.num_nodes
        return np.bincount(ends.ravel(), minlength=self.size * self.num_nodes).reshape(self.size, self.num_nodes)

    def graphs(self, node_features: NDArray[Any] | None = None) -> list[Graph]:
        """One :class:`Graph` a sample, for black-box classifiers; without label and name.

        Args:
            node_features: Of all samples one after the other, ``[size * n, d]``, as ``checked_features`` returned them; by
                default every sample has the graph's own.
        """
        sample, slot = self.edge_lists()
        starts = np.searchsorted(sample, np.arange(self.size + 1)).tolist()
        # slots ascend within a sample, so that the pairs of each are in the order of a Graph's edges
        pairs = pairs_of_slots(slot, self.num_nodes)
        n = self.num_nodes
        return [
            unchecked_graph(
                n,
                pairs[start:stop],
                self.node_features if node_features is None else node_features[index * n : (index + 1) * n],
            )
            for index, (start, stop) in enumerate(pairwise(starts))
        ]


@lru_cache(maxsize=64)
def _column_of_entry(num_nodes: int, slots: bytes, frozen_edges: bytes) -> IntArray:
    """For each entry of an ``n x n`` matrix the column that holds its state; see :meth:`NoisyBatch.adjacency`."""
    column = np.zeros((num_nodes, num_nodes), dtype=np.int64)
    for number, columns in (
        (np.frombuffer(frozen_edges, np.int64), 1),
        (np.frombuffer(slots, np.int64), None),
    ):
        u, v = pairs_of_slots(number, num_nodes).T
        column[u, v] = column[v, u] = np.arange(len(number)) + 2 if columns is None else columns
    return column.ravel()


def _merged(first: SlotLists, second: SlotLists) -> SlotLists:
    """Two disjoint sorted lists as one."""
    width = 1 + max((int(lists.slot.max(initial=0)) for lists in (first, second)), default=0)
    keys = first.sample * width + first.slot
    more = second.sample * width + second.slot
    places = np.searchsorted(keys, more)
    return SlotLists(np.insert(first.sample, places, second.sample), np.insert(first.slot, places, second.slot))


class SampleStream:
    """The noisy versions of one graph, numbered 0, 1, 2, ...; a pure function of (seed, graph, noise).

    The generator's key depends on seed and graph only, so a stronger noise flips a superset of the slots that a weaker
    one flips (within one sampler): curves over noises are smooth, each certificate is as valid as with keys of its own.
    """

    def __init__(self, graph: Graph, noise: EdgeNoise, *, seed: int) -> None:
        self.graph, self.noise, self.seed = graph, noise, checked_seed(seed)
        identity = f"flipproof stream {STREAM_VERSION} {self.seed} {graph.topology}".encode()
        self._key = hashlib.blake2b(identity, digest_size=16).digest()
        self._additions = (
            _AdditionLaw.of(graph.max_adds, noise.add_threshold) if graph.num_slots > _DENSE_SLOTS else None
        )
        if self._additions is not None:
            removals = graph.max_removes if noise.remove_threshold else 0
            if 2 * self._additions.draws + removals > graph.num_slots // 4:
                self._additions = None  # so many flips that drawing every slot is cheaper, and exact
        self.sparse = self._additions is not None

    @property
    def discrepancy(self) -> float:
        """Bound on the total-variation distance between one sample's law and the exact one; 0 for the dense sampler."""
        return 0.0 if self._additions is None else self._additions.discrepancy

    @property
    def words_per_sample(self) -> int:
        """64-bit random words that one sample owns: its cost."""
        if self._additions is None:
            return 4 * -(-self.graph.num_slots // 8)
        removal_words = -(-self.graph.max_removes // 2) if self.noise.remove_threshold else 0
        return 4 * -(-(removal_words + 1 + self._additions.draws) // 4)

    @property
    def bytes_at_rest(self) -> int:
        """Memory, about, that the stream and its batches need whatever their size; measured."""
        return _BYTES_PER_SLOT * self.graph.num_slots if self._additions is None else 0

    @property
    def bytes_per_sample(self) -> int:
        """Memory, about, that one sample of a batch takes while it is made; measured."""
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
        if self._additions is None:
            sample, column = np.nonzero(self._dense_flips(start, stop))
            return SlotLists(sample.astype(np.int64), self.graph.slots[column])
        return _merged(*self._sparse_flips(start, stop))

    def batch(self, start: int, stop: int) -> tuple[NoisyBatch, bytes]:
        """Samples ``start..stop-1`` for a classifier, and the canonical bytes of their flips for the checksum.

        The bytes of consecutive batches, put end to end, are those of the whole range.
        """
        graph = self.graph
        if self._additions is None:
            flips = self._dense_flips(start, stop)
            states, lists, content = flips ^ graph.slot_states, None, np.packbits(flips, axis=1).tobytes()
        else:
            removed, added = self._sparse_flips(start, stop)
            flipped = _merged(removed, added)
            content = np.stack([flipped.sample + start, flipped.slot], axis=1).astype("<i8").tobytes()
            kept = np.ones((stop - start, graph.num_edges), dtype=np.bool_)
            kept[removed.sample, np.searchsorted(graph.edge_slots, removed.slot)] = False
            sample, column = np.nonzero(kept)
            states, lists = None, _merged(SlotLists(sample.astype(np.int64), graph.edge_slots[column]), added)
        noisy = NoisyBatch(
            num_nodes=graph.num_nodes,
            size=stop - start,
            node_features=graph.node_features,
            slots=graph.slots if states is not None else None,
            frozen_edges=self._frozen_edges,
            states=states,
            lists=lists,
        )
        return noisy, content

    def checksums(self, samples: int) -> Iterator[str]:
        """The checksum of each block's flips, made again from the index; see :class:`flipproof.Votes`."""
        for start in range(0, samples, BLOCK):
            checksum = self.new_checksum()
            for _, content in self.pieces(start, start + BLOCK):
                checksum.update(content)
            yield checksum.hexdigest()

    def pieces(self, start: int, stop: int) -> Iterator[tuple[NoisyBatch, bytes]]:
        """As :meth:`batch`, in as many parts as keep memory small."""
        size = max(1, _PIECE // max(1, self.bytes_per_sample))
        for begin in range(start, stop, size):
            yield self.batch(begin, min(begin + size, stop))

    def new_checksum(self) -> Any:
        """A hash to feed a block's flips into; it starts from everything that gives the flips their meaning."""
        kind = "sparse" if self.sparse else "dense"
        meaning = f"flips {STREAM_VERSION} {kind} {self.graph.topology} {self.noise.add_threshold} "
        checksum = hashlib.blake2b(f"{meaning}{self.noise.remove_threshold}".encode(), digest_size=16)
        if not self.sparse:
            checksum.update(pairs_of_slots(self.graph.slots, self.graph.num_nodes).astype("<i8").tobytes())
        return checksum

    def _words(self, start: int, stop: int) -> NDArray[np.uint64]:
        words = self.words_per_sample
        generator = np.random.Philox(key=int.from_bytes(self._key, "little"))
        generator.advance(start * words // 4)  # one step of the counter makes four words
        return generator.random_raw((stop - start) * words).reshape(stop - start, words)

    def _dense_flips(self, start: int, stop: int) -> NDArray[np.bool_]:
        draws = _halves(self._words(start, stop))[:, : self.graph.num_slots]
        return draws < self._dense_thresholds

    @cached_property
    def _dense_thresholds(self) -> NDArray[np.uint32]:
        thresholds = np.where(self.graph.slot_states, self.noise.remove_threshold, self.noise.add_threshold)
        return thresholds.astype(np.uint32)

    def _sparse_flips(self, start: int, stop: int) -> tuple[SlotLists, SlotLists]:
        """Removed and added slots."""
        assert self._additions is not None
        graph, words = self.graph, self._words(start, stop)
        removal_words = -(-graph.max_removes // 2) if self.noise.remove_threshold else 0
        draws = _halves(words[:, :removal_words])[:, : graph.max_removes]
        sample, column = np.nonzero(draws < np.uint32(self.noise.remove_threshold))
        removed = SlotLists(sample.astype(np.int64), graph.flippable_edge_slots[column])
        first = removal_words + 1
        counts = self._additions.counts(words[:, removal_words])
        sample, rank = self._places(words[:, first : first + self._additions.draws], counts, start)
        occupied = self._occupied_slots
        # the rank-th empty slot is preceded by `rank` empty ones and by every occupied slot below it
        slot = rank + np.searchsorted(occupied - np.arange(len(occupied)), rank, side="right")
        return removed, SlotLists(sample, slot)

    @cached_property
    def _frozen_edges(self) -> IntArray:
        return np.setdiff1d(self.graph.edge_slots, self.graph.flippable_edge_slots, assume_unique=True)

    @cached_property
    def _occupied_slots(self) -> IntArray:
        return np.union1d(self.graph.edge_slots, self.graph.frozen_slots)

    def _places(self, words: NDArray[np.uint64], counts: IntArray, start: int) -> tuple[IntArray, IntArray]:
        """For each row its count of distinct ranks among the empty slots: the first distinct ones in drawing order.

        A uniform draw that repeats an earlier one is skipped, which makes every set of the given size equally likely.
        """
        empty = self.graph.max_adds
        rows = len(words)
        if not counts.any():
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        limit = 2**64 // empty * empty  # draws at or above it would favour small ranks
        accepted = np.ones(words.shape, dtype=np.bool_) if limit == 2**64 else words < np.uint64(limit)
        # a refused draw gets a rank that no other has, so that it stands in nobody's way
        ranks = np.where(accepted, (words % np.uint64(empty)).astype(np.int64), empty + np.arange(words.shape[1]))
        order = np.argsort(ranks, axis=1, kind="stable")
        ordered = np.take_along_axis(ranks, order, axis=1)
        repeats = np.zeros(words.shape, dtype=np.bool_)
        repeats[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
        fresh = np.empty(words.shape, dtype=np.bool_)
        np.put_along_axis(fresh, order, ~repeats, axis=1)
        fresh &= accepted
        chosen = fresh & (np.cumsum(fresh, axis=1) <= counts[:, None])
        sample, column = np.nonzero(chosen)
        rank = ranks[sample, column]
        short = np.flatnonzero(chosen.sum(axis=1) < counts)
        if len(short):
            extra = [self._replacement(int(row) + start, int(counts[row])) for row in short]
            keep = ~np.isin(sample, short)
            sample = np.concatenate(
                [sample[keep], *(np.full(len(e), row) for row, e in zip(short, extra, strict=True))]
            )
            rank = np.concatenate([rank[keep], *extra])
        keys = np.sort(sample * np.int64(empty) + rank)
        return np.divmod(keys, empty) if rows else (sample, rank)

    def _replacement(self, index: int, count: int) -> IntArray:
        """Ranks of a sample whose own words held too many repeats, from a generator of its own. Rare."""
        key = hashlib.blake2b(self._key + index.to_bytes(8, "little"), digest_size=16).digest()
        generator = np.random.Philox(key=int.from_bytes(key, "little"))
        empty, chosen = self.graph.max_adds, dict[int, None]()
        limit = 2**64 // empty * empty
        while len(chosen) < count:
            draws = generator.random_raw(2 * (count - len(chosen)) + _SPARE_DRAWS)
            for word in draws.tolist():
                if word < limit and len(chosen) < count:
                    chosen.setdefault(word % empty)
        return np.fromiter(chosen, dtype=np.int64, count=count)


def _halves(words: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Each 64-bit word as two 32-bit ones, low half first on every machine."""
    return np.ascontiguousarray(words).astype("<u8", copy=False).view("<u4")


@dataclass(frozen=True)
class _AdditionLaw:
    """The number of added edges: a binomial law as a table of 64-bit thresholds."""

    first: int
    thresholds: NDArray[np.uint64]
    draws: int
    discrepancy: float

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, empty: int, threshold: int) -> _AdditionLaw | None:
        """The law of Binomial(empty, threshold / 2**32), or ``None`` where a table would be too long to be of use."""
        mean = empty * threshold / _WORD
        if mean > 100_000:
            return None
        first, thresholds = _binomial_thresholds(empty, threshold)
        most = first + len(thresholds)
        spare = 2 * most * most // max(1, empty) + _SPARE_DRAWS
        # every threshold is off by less than 2**-64, and so are both ends that are cut off; doubled for the decimal digits
        discrepancy = 0.0 if threshold == 0 else (len(thresholds) + 4) * 2.0**-63
        return cls(first, thresholds, 0 if threshold == 0 else most + spare, discrepancy)

    def counts(self, words: NDArray[np.uint64]) -> IntArray:
        """Counts by inversion: the number of thresholds at or below each word."""
        return self.first + np.searchsorted(self.thresholds, words, side="right").astype(np.int64)


def _binomial_thresholds(trials: int, threshold: int) -> tuple[int, NDArray[np.uint64]]:
    """``floor(2**64 Pr(count <= c))`` for c = first, first + 1, ... as long as it is between 0 and 2**64."""
    if threshold == 0 or trials == 0:
        return 0, np.empty(0, dtype=np.uint64)
    with decimal.localcontext() as context:
        context.prec, context.Emin, context.Emax = 60, decimal.MIN_EMIN, decimal.MAX_EMAX
        stay = decimal.Decimal(_WORD - threshold) / _WORD
        odds = decimal.Decimal(threshold) / (_WORD - threshold)
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


def noisy_states(states: NDArray[np.bool_], draws: NDArray[np.uint32], noise: EdgeNoise) -> NDArray[np.bool_]:
    """The states of slots after the noise, one 32-bit draw per slot; shapes broadcast."""
    return np.where(states, draws >= noise.remove_threshold, draws < noise.add_threshold)


def keyed_draws(purpose: str, seed: int, index: int, shape: tuple[int, ...]) -> NDArray[np.uint32]:
    """Uniform 32-bit integers, a pure function of the arguments."""
    key = hashlib.blake2b(f"flipproof {purpose} {seed} {index}".encode(), digest_size=16).digest()
    count = math.prod(shape)
    words = np.random.Philox(key=int.from_bytes(key, "little")).random_raw(-(-count // 2))
    return _halves(words)[:count].reshape(shape)
