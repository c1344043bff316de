"""Noise on node features: labels (one-hot rows) and bits (binary rows), with exactly known probabilities.

Noisy features are drawn like noisy edges: a pure function of (seed, graph, sample index), the same in any batch, process or
machine, from a generator of their own.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from flipproof.checks import checked_seed
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray
from flipproof.noise.law import WORD, EdgeNoise, SlotLists, halves, key_of, merged, philox
from flipproof.noise.stream import BLOCK, SampleStream

FEATURE_STREAM_VERSION = 1
"""Changes whenever the noisy features of a given (seed, graph, index) would; stored with the votes."""

_PIECE = 2**24  # bytes
_MOST_DENSE_BITS = 2**26  # beyond, drawing every bit of a sample takes gigabytes


class Change(NamedTuple):
    """One way to change a coordinate at cost 1: laws of its noisy state, where the ratio of the two grows geometrically.

    State ``t`` has ratio ``attacked[t] / clean[t] = c * r**t`` wherever both are positive.
    """

    name: str
    clean: tuple[float, ...]
    attacked: tuple[float, ...]


def flip_changes(noise: EdgeNoise, flipped: str, added: str, removed: str) -> tuple[Change, ...]:
    """The changes of a 0/1 coordinate; one for symmetric noise, where all flips are alike. State 1: differs from the clean one.

    >>> [change.name for change in flip_changes(EdgeNoise(add=0.1, remove=0.4), "flips", "additions", "removals")]
    ['additions', 'removals']
    """
    add, remove = noise.p_add, noise.p_remove
    addition = Change(flipped if noise.symmetric else added, (1 - add, add), (remove, 1 - remove))
    removal = Change(removed, (1 - remove, remove), (add, 1 - add))
    return (addition,) if noise.symmetric else (addition, removal)


class FeatureStream(ABC):
    """The noisy features of one graph, numbered 0, 1, 2, ..."""

    discrepancy = 0.0
    """Bound on the total-variation distance between one sample's law and the exact one."""

    features: NDArray[Any]
    """The clean features ``[n, d]``."""

    @abstractmethod
    def batch(self, start: int, stop: int) -> tuple[Any, bytes]:
        """Samples ``start..stop-1``, and what the noise did as canonical bytes; those of consecutive batches join."""

    @abstractmethod
    def rows(self, drawn: Any, samples: int) -> NDArray[Any]:
        """The samples that :meth:`batch` drew as arrays ``[samples, n, d]``."""

    def shown(self, start: int, stop: int) -> tuple[NDArray[Any], bytes]:
        """As :meth:`batch`, as arrays ``[stop - start, n, d]`` of the type of the clean features, read-only."""
        drawn, content = self.batch(start, stop)
        rows = self.rows(drawn, stop - start)
        rows.flags.writeable = False
        return rows, content

    def checksums(self, samples: int) -> Iterator[str]:
        """The checksum of what the noise did in each block of samples, computed afresh."""
        size = max(1, min(BLOCK, _PIECE // max(1, 8 * self.features.size)))
        for start in range(0, samples, BLOCK):
            checksum = self.new_checksum()
            for begin in range(start, start + BLOCK, size):
                checksum.update(self.batch(begin, min(begin + size, start + BLOCK))[1])
            yield checksum.hexdigest()

    @abstractmethod
    def meaning(self) -> str:
        """Everything that gives those bytes their meaning."""

    def new_checksum(self) -> Any:
        """A hash for the bytes of samples, which already covers their meaning."""
        return hashlib.blake2b(f"features {FEATURE_STREAM_VERSION} {self.meaning()}".encode(), digest_size=16)


class FeatureNoise(ABC):
    """Independent changes of node features."""

    @abstractmethod
    def check(self, features: NDArray[Any] | None) -> NDArray[Any]:
        """The features ``[n, d]`` themselves, if this noise can be applied to them."""

    @abstractmethod
    def changes(self, categories: int) -> tuple[Change, ...]:
        """What an attacker can change; ``categories`` is the number of columns of the features."""

    @abstractmethod
    def room(self, features: NDArray[Any]) -> tuple[int, ...]:
        """How many of each of the :meth:`changes` a graph with these features offers."""

    @abstractmethod
    def stream(self, graph: Graph, *, seed: int) -> FeatureStream:
        """The noisy features of a graph; refuses features of another kind."""

    @abstractmethod
    def trial(self, features: NDArray[Any], samples: int) -> NDArray[Any]:
        """Features ``[samples, n, d]`` to try a model on: always the same random ones for features of this shape and type."""

    @abstractmethod
    def plain(self) -> dict[str, float]:
        """Plain values from which :func:`feature_noise_from` makes this noise again."""

    def sample(self, graph: Graph, start: int, stop: int, *, seed: int) -> Any:
        """The noisy features of samples ``start..stop-1``: a pure function of seed, graph and index."""
        return self.stream(graph, seed=seed).batch(start, stop)[0]


@dataclass(frozen=True, kw_only=True)
class LabelNoise(FeatureNoise):
    """Node labels (one-hot node features) that are kept, or replaced by one of the other categories, all equally likely.

    With ``K`` categories ``q = round((1 - keep) / (K - 1) * 2**32)``, each other category has probability exactly
    ``q / 2**32``, and the label is kept with probability exactly ``1 - (K - 1) q / 2**32``. The certificates use these values.

    Args:
        keep: Probability that a node keeps its label; more than ``1 / K``. With 1 labels are not changed.

    >>> noise = LabelNoise(keep=0.9)
    >>> noise.thresholds(2) == (2**32 - round(0.1 * 2**32), round(0.1 * 2**32))
    True
    """

    keep: float = 0.9

    def __post_init__(self) -> None:
        number = isinstance(self.keep, (int, float, np.integer, np.floating)) and not isinstance(self.keep, bool)
        if not number or not 0 < self.keep <= 1:  # NaN fails too
            raise InputError(
                f"keep must lie in (0, 1], the probability of a node to keep its label; got {self.keep!r} (for instance 0.9)"
            )
        object.__setattr__(self, "keep", float(self.keep))

    def thresholds(self, categories: int) -> tuple[int, int]:
        """Numerators, over ``2**32``, of the probabilities of the clean label and of each other one."""
        if categories < 2:
            raise InputError(
                f"LabelNoise needs at least 2 categories; got node features with {categories} column{'s' * (categories != 1)} "
                "(leave feature_noise out)"
            )
        other = round((1 - self.keep) / (categories - 1) * WORD)
        if other == 0 and self.keep < 1:
            raise InputError(
                f"keep is too close to 1 to sample exactly; got {self.keep!r} for {categories} categories (or pass 1 for none)"
            )
        kept = WORD - (categories - 1) * other
        if kept <= other:
            raise InputError(
                f"keep must exceed 1 / {categories} for {categories} categories, so that the clean label stays the likeliest; "
                f"got {self.keep:g} (for instance 0.9)"
            )
        return kept, other

    def check(self, features: NDArray[Any] | None) -> NDArray[Any]:
        """See :class:`FeatureNoise`; every row must hold a single 1 and zeros."""
        features = _present(features, "LabelNoise")
        wrong = np.flatnonzero(((features != 0) & (features != 1)).any(axis=1) | ((features != 0).sum(axis=1) != 1))
        if len(wrong):
            raise InputError(
                f"LabelNoise needs one-hot node features, a single 1 per row; got {_shown(features[wrong[0]])} at node "
                f"{wrong[0]} (encode one category per node, use BitNoise for binary features, or leave feature_noise out)"
            )
        self.thresholds(features.shape[1])
        return features

    def changes(self, categories: int) -> tuple[Change, ...]:
        """See :class:`FeatureNoise`: clean label, a third one, the attacker's; ratios ``1/rho, 1, rho``."""
        kept, other = self.thresholds(categories)
        law = (kept / WORD, (categories - 2) * other / WORD, other / WORD)
        return (Change("changed labels", law, law[::-1]),)

    def room(self, features: NDArray[Any]) -> tuple[int, ...]:
        """See :class:`FeatureNoise`: one label per node."""
        return (len(features),)

    def trial(self, features: NDArray[Any], samples: int) -> NDArray[Any]:
        """See :class:`FeatureNoise`."""
        nodes, categories = features.shape
        return _one_hot(np.random.default_rng(nodes).integers(categories, size=(samples, nodes)), features)

    def plain(self) -> dict[str, float]:
        """See :class:`FeatureNoise`."""
        return {"label_keep": self.keep}

    def shifts(self, draws: NDArray[np.uint32], categories: int) -> IntArray:
        """By how much labels move on, modulo ``K``, for uniform 32-bit draws: 0 with the probability of the clean label."""
        _, other = self.thresholds(categories)
        moved = draws // np.uint32(max(other, 1)) + np.uint32(1)
        return np.where(draws < np.uint32((categories - 1) * other), moved, 0).astype(np.int64)

    def stream(self, graph: Graph, *, seed: int) -> LabelStream:
        """See :class:`FeatureNoise`: labels ``[B, n]``.

        >>> graph = Graph(4, [], [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]])
        >>> LabelNoise(keep=0.6).sample(graph, 0, 2, seed=0).shape
        (2, 4)
        """
        return LabelStream(self, graph, seed)


@dataclass(frozen=True, init=False, repr=False)
class BitNoise(FeatureNoise):
    """Independent flips of binary node features, with exact probabilities as those of :class:`flipproof.EdgeNoise`.

    Args:
        keep: Every bit keeps its value with this probability, in (0.5, 1).
        add: Probability that a 0 becomes a 1.
        remove: Probability that a 1 becomes a 0. ``add + remove`` must be below 1; either may be 0.

    >>> BitNoise(add=0.01, remove=0.6)
    BitNoise(add=0.01, remove=0.6)
    """

    law: EdgeNoise

    def __init__(self, *, keep: float | None = None, add: float | None = None, remove: float | None = None) -> None:
        object.__setattr__(self, "law", EdgeNoise(keep=keep, add=add, remove=remove))

    def __repr__(self) -> str:
        return repr(self.law).replace("EdgeNoise", "BitNoise")

    def check(self, features: NDArray[Any] | None) -> NDArray[Any]:
        """See :class:`FeatureNoise`; every entry must be 0 or 1."""
        features = _present(features, "BitNoise")
        wrong = (features != 0) & (features != 1)
        if wrong.any():
            node, column = np.argwhere(wrong)[0]
            raise InputError(
                f"BitNoise needs binary node features, 0 or 1; got {features[node, column]:g} at node {node}, column {column} "
                "(pass features > 0, or leave feature_noise out)"
            )
        return features

    def changes(self, categories: int) -> tuple[Change, ...]:
        """See :class:`FeatureNoise`: two kinds, or one where they are alike."""
        return flip_changes(self.law, "changed bits", "added bits", "removed bits")

    def room(self, features: NDArray[Any]) -> tuple[int, ...]:
        """See :class:`FeatureNoise`: zeros and ones."""
        ones = int(np.count_nonzero(features))
        return (features.size,) if self.law.symmetric else (features.size - ones, ones)

    def trial(self, features: NDArray[Any], samples: int) -> NDArray[Any]:
        """See :class:`FeatureNoise`: from few ones to many."""
        draws = np.random.default_rng(len(features)).random((samples, *features.shape))
        return (draws < (np.arange(samples) + 0.5)[:, None, None] / samples).astype(features.dtype)

    def plain(self) -> dict[str, float]:
        """See :class:`FeatureNoise`."""
        return {"bit_add": self.law.p_add, "bit_remove": self.law.p_remove}

    def stream(self, graph: Graph, *, seed: int) -> BitStream:
        """See :class:`FeatureNoise`: the bits that are 1, as sorted lists of samples and cells ``node * d + column``.

        >>> graph = Graph(2, [], [[1, 0, 1], [0, 0, 1]])
        >>> BitNoise(add=0, remove=0).sample(graph, 0, 2, seed=0)
        SlotLists(sample=array([0, 0, 0, 1, 1, 1]), slot=array([0, 2, 5, 0, 2, 5]))
        """
        return BitStream(self, graph, seed)


class LabelStream(FeatureStream):
    """The noisy labels of one graph."""

    def __init__(self, noise: LabelNoise, graph: Graph, seed: int) -> None:
        self.features = features = noise.check(graph.node_features)
        self.noise, self._topology, (self.num_nodes, self.categories) = noise, graph.topology, features.shape
        self.labels: IntArray = features.argmax(axis=1).astype(np.int64)
        self._key = key_of(f"flipproof labels {FEATURE_STREAM_VERSION} {checked_seed(seed)} {graph.topology}".encode())

    def batch(self, start: int, stop: int) -> tuple[IntArray, bytes]:
        """Labels ``[stop - start, n]``; the bytes do not depend on the clean labels."""
        words = 4 * -(-self.num_nodes // 8)  # 32-bit draws, in whole steps of the counter: four 64-bit words
        generator = philox(self._key)
        generator.advance(start * words // 4)
        draws = halves(generator.random_raw((stop - start) * words).reshape(stop - start, words))
        shifts = self.noise.shifts(draws[:, : self.num_nodes], self.categories)
        return (self.labels + shifts) % self.categories, shifts.astype("<u4").tobytes()

    def rows(self, drawn: IntArray, samples: int) -> NDArray[Any]:
        """See :class:`FeatureStream`."""
        return _one_hot(drawn, self.features)

    def meaning(self) -> str:
        """See :class:`FeatureStream`."""
        kept, other = self.noise.thresholds(self.categories)
        return f"labels {self._topology} {self.categories} {kept} {other}"


class BitStream(FeatureStream):
    """The noisy bits of one graph, at a cost in proportion to set bits and flips where additions are rare.

    The bits are drawn by the sampler of edges, whose exactness is theirs (:attr:`discrepancy`): dense and exact, or sparse.
    """

    def __init__(self, noise: BitNoise, graph: Graph, seed: int) -> None:
        self.features = features = noise.check(graph.node_features)
        self._cells = _Cells(f"{graph.topology} bits {features.shape[1]}", features.size, np.flatnonzero(features))
        self._noise, self._digest = noise, _digest(self._cells.edge_slots)
        self._stream = SampleStream(cast(Graph, self._cells), noise.law, seed=seed)
        if not self._stream.sparse and features.size > _MOST_DENSE_BITS:
            raise InputError(
                f"BitNoise with add={noise.law.p_add:g} changes too many of {features.size:,} bits to draw them sparsely "
                "(lower add below 100,000 / number of bits, or pass fewer columns)"
            )
        self.discrepancy = self._stream.discrepancy

    def batch(self, start: int, stop: int) -> tuple[SlotLists, bytes]:
        """The bits that are 1 in each sample, sorted by sample, then cell."""
        flips, ones = self._stream.flip_lists(start, stop), self._cells.edge_slots
        place = np.searchsorted(ones, flips.slot)
        lost = np.append(ones, -1)[place] == flips.slot
        kept = np.ones((stop - start, len(ones)), dtype=np.bool_)
        kept[flips.sample[lost], place[lost]] = False
        sample, column = np.nonzero(kept)
        bits = merged(
            SlotLists(sample.astype(np.int64), ones[column]), SlotLists(flips.sample[~lost], flips.slot[~lost])
        )
        return bits, np.stack([flips.sample + start, flips.slot], axis=1).astype("<i8").tobytes()

    def rows(self, drawn: SlotLists, samples: int) -> NDArray[Any]:
        """See :class:`FeatureStream`."""
        rows = np.zeros((samples, self.features.size), dtype=self.features.dtype)
        rows[drawn.sample, drawn.slot] = 1
        return rows.reshape(samples, *self.features.shape)

    def meaning(self) -> str:
        """See :class:`FeatureStream`."""
        law, kind = self._noise.law, "sparse" if self._stream.sparse else "dense"
        return f"bits {kind} {self._cells.topology} {self._digest} {law.add_threshold} {law.remove_threshold}"


@dataclass(frozen=True)
class _Cells:
    """The bits of a feature matrix in the words of :class:`SampleStream`: cells are slots, ones are edges."""

    topology: str
    num_slots: int
    edge_slots: IntArray

    @property
    def frozen_slots(self) -> IntArray:
        return np.empty(0, dtype=np.int64)

    @property
    def flippable_edge_slots(self) -> IntArray:
        return self.edge_slots

    @property
    def max_removes(self) -> int:
        return len(self.edge_slots)

    @property
    def max_adds(self) -> int:
        return self.num_slots - len(self.edge_slots)

    @cached_property
    def slots(self) -> IntArray:
        return np.arange(self.num_slots, dtype=np.int64)

    @cached_property
    def slot_states(self) -> NDArray[np.bool_]:
        states = np.zeros(self.num_slots, dtype=np.bool_)
        states[self.edge_slots] = True
        return states


def _present(features: NDArray[Any] | None, noise: str) -> NDArray[Any]:
    if features is None:
        raise InputError(f"{noise} needs node features; the graph has none (give it some, or leave feature_noise out)")
    return features


def checked_feature_noise(noise: Any) -> FeatureNoise | None:
    """The noise, if it is one; ``None`` for none."""
    if noise is not None and not isinstance(noise, FeatureNoise):
        raise InputError(
            f"feature_noise must be a LabelNoise or BitNoise; got {noise!r} (for instance LabelNoise(keep=0.9))"
        )
    return noise


def feature_noise_from(values: Mapping[str, Any]) -> FeatureNoise | None:
    """The noise that ``label_keep``, or ``bit_add`` and ``bit_remove``, describe; ``None`` without them.

    >>> feature_noise_from({"label_keep": 0.9})
    LabelNoise(keep=0.9)
    """
    keep, add, remove = map(values.get, ("label_keep", "bit_add", "bit_remove"))
    if keep is None and add is None and remove is None:
        return None
    if keep is None:
        return BitNoise(add=add, remove=remove)
    if add is not None or remove is not None:
        raise InputError(
            "noise on node features is on labels or on bits; got label_keep and bit_add or bit_remove (leave one out)"
        )
    return LabelNoise(keep=keep)


def _one_hot(labels: IntArray, like: NDArray[Any]) -> NDArray[Any]:
    """Labels ``[..., n]`` as one-hot rows with the columns and the type of the features ``like``."""
    return np.eye(like.shape[1], dtype=like.dtype)[labels]


def _shown(row: NDArray[Any]) -> str:
    """The first entries of a row."""
    return f"[{', '.join(f'{value:g}' for value in row[:8])}{', ...' if len(row) > 8 else ''}]"


def _digest(cells: IntArray) -> str:
    return hashlib.blake2b(cells.astype("<i8").tobytes(), digest_size=16).hexdigest()
