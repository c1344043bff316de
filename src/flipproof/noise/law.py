"""The law of the noise: independent flips of node pairs with exactly known probabilities, and the noisy graphs they make.

All its randomness is drawn here, by the counter-based Philox generator, keyed by a hash of what it is for: pure functions of key
and place, the same in any batch, process or machine.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flipproof.compiling import can_compile
from flipproof.errors import InputError
from flipproof.fields import Option, Parts
from flipproof.graphs import Graph, IntArray, pairs_of_slots, unchecked_graph
from flipproof.graphs.conversions import slots_of_pairs

WORD = 2**32
"""Probabilities are multiples of ``1 / WORD``."""


@dataclass(frozen=True, init=False, repr=False, slots=True)
class EdgeNoise:
    """Independent flips of node pairs, with exact probabilities.

    Args:
        keep: The paper's beta, in (0.5, 1): every slot keeps its state with this probability.
        add: Probability that an empty slot gains an edge.
        remove: Probability that an edge is lost. ``add + remove`` must be below 1; either may be 0.
        unnamed: Refused, as one number could mean any of these.

    Probabilities are multiples of 2**-32. ``p_add`` and ``p_remove`` are the values in use; the certificates use them, not
    the decimals that were typed.

    >>> noise = EdgeNoise(keep=0.9)
    >>> noise.p_add == noise.p_remove == round(0.1 * 2**32) / 2**32
    True
    >>> EdgeNoise(add=0.01, remove=0.4)
    EdgeNoise(add=0.01, remove=0.4)
    """

    add_threshold: int
    remove_threshold: int

    def __init__(
        self, *unnamed: float, keep: float | None = None, add: float | None = None, remove: float | None = None
    ) -> None:
        if unnamed:
            shown = ", ".join(f"{value!r}" for value in unnamed)
            say = f"keep={unnamed[0]!r}" if len(unnamed) == 1 else "add={!r}, remove={!r}".format(*unnamed)
            raise InputError(f"EdgeNoise takes its numbers by name; got {shown} (say {say})")
        for name, value in (("keep", keep), ("add", add), ("remove", remove)):
            if value is not None:
                _check_number(value, name)
        if keep is not None:
            if add is not None or remove is not None:
                raise InputError("give either keep or add and remove; got both (keep=b means add=remove=1-b)")
            if not 0.5 < keep < 1:
                hint = f"did you mean {1 - keep:g}?" if 0 < keep < 0.5 else "for instance 0.9"
                raise InputError(f"keep must lie in (0.5, 1); got {keep:g} ({hint})")
            add_threshold = remove_threshold = _threshold(1 - float(keep), "1 - keep")
        elif add is None or remove is None:
            one = next(
                (f"only {name}" for name, value in (("add", add), ("remove", remove)) if value is not None), "neither"
            )
            raise InputError(
                f"EdgeNoise needs keep, or both add and remove; got {one} (for instance keep=0.9, or add=0.01, remove=0.4)"
            )
        else:
            for name, value in (("add", add), ("remove", remove)):
                if not 0 <= value < 1:
                    raise InputError(f"{name} must lie in [0, 1); got {value:g} (for instance 0.1)")
            add_threshold, remove_threshold = _threshold(float(add), "add"), _threshold(float(remove), "remove")
        if add_threshold + remove_threshold >= WORD:
            if keep is not None:
                raise InputError(f"keep must exceed 0.5 by more than 2**-32; got {keep!r} (for instance 0.51)")
            raise InputError(f"add + remove must be below 1; got {add:g} + {remove:g} (lower one of them)")
        object.__setattr__(self, "add_threshold", add_threshold)
        object.__setattr__(self, "remove_threshold", remove_threshold)

    def __repr__(self) -> str:
        if self.symmetric and self.add_threshold:
            return f"EdgeNoise(keep={1 - self.p_add:.9g})"
        return f"EdgeNoise(add={self.p_add:.9g}, remove={self.p_remove:.9g})"

    @property
    def p_add(self) -> float:
        """Exact probability that an empty slot gains an edge."""
        return self.add_threshold / WORD

    @property
    def p_remove(self) -> float:
        """Exact probability that an edge is lost."""
        return self.remove_threshold / WORD

    @property
    def symmetric(self) -> bool:
        """Whether both probabilities are equal, as in the paper."""
        return self.add_threshold == self.remove_threshold

    def sample(self, graph: Any, *, seed: int | None = None) -> Any:
        """One noisy version of a graph, independent of the samples of a certificate; all but the edges survives.

        Args:
            graph: A PyG ``Data``, which gives a ``Data``; or anything else that the library accepts, which gives a
                :class:`Graph`. A ``Data`` with an entry per edge, such as ``edge_attr``, is refused: see
                :class:`flipproof.EdgeFlip`.
            seed: The same seed and graph give the same draw; ``None`` gives a fresh one.

        >>> from flipproof import Graph
        >>> triangle = Graph(3, [(0, 1), (0, 2), (1, 2)], label=1)
        >>> EdgeNoise(add=0, remove=0.5).sample(triangle, seed=0)
        Graph(num_nodes=3, num_edges=2, label=1)
        """
        from flipproof.noise.stream import noisy_version

        return noisy_version(graph, self, seed=seed)

    @classmethod
    def from_thresholds(cls, add: int, remove: int) -> EdgeNoise:
        """The noise with probabilities ``add / 2**32`` and ``remove / 2**32``: how stored noise is read back."""
        return cls(add=add / WORD, remove=remove / WORD)


def _check_number(value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise InputError(f"{name} must be a finite probability; got {value!r} (for instance {name}=0.1)")


def _threshold(probability: float, name: str) -> int:
    threshold = round(probability * WORD)
    if probability > 0 and threshold == 0:
        raise InputError(
            f"{name} is too small to sample exactly; got {probability:g}, the smallest is {2**-32:g} (or pass 0)"
        )
    return threshold


def flips_of_draws(states: NDArray[np.bool_], draws: NDArray[np.uint32], noise: EdgeNoise) -> NDArray[np.bool_]:
    """Which slots flip, ``[..., N]``: those whose draw, a uniform 32-bit integer, is below the threshold of their state, which
    gives every flip exactly its probability.
    """
    return draws < np.where(states, np.uint32(noise.remove_threshold), np.uint32(noise.add_threshold))


def noisy_states(states: NDArray[np.bool_], draws: NDArray[np.uint32], noise: EdgeNoise) -> NDArray[np.bool_]:
    """States of slots ``[..., N]`` after the noise."""
    return flips_of_draws(states, draws, noise) ^ states


def keyed_draws(purpose: str, seed: int, index: int, shape: tuple[int, ...]) -> NDArray[np.uint32]:
    """Uniform 32-bit integers; a pure function of the arguments, independent for different purposes, seeds and indices.

    A larger array starts with the draws of a smaller one, in C order.
    """
    count = math.prod(shape)
    generator = philox(key_of(f"flipproof {purpose} {seed}".encode()), index << 128)  # 2**128 steps for each index
    return halves(generator.random_raw(-(-count // 2)))[:count].astype(np.uint32, copy=False).reshape(shape)


def key_of(identity: bytes) -> bytes:
    """The key of a generator that belongs to ``identity`` alone."""
    return hashlib.blake2b(identity, digest_size=16).digest()


def philox(key: bytes, counter: int = 0) -> np.random.Philox:
    """The generator with this key, from this place on."""
    return np.random.Philox(key=int.from_bytes(key, "little"), counter=counter)


def random_words(key: bytes, first: int, count: int) -> NDArray[np.uint64]:
    """The generator's words from number ``first`` on, which must be the first of four that one step of its counter makes."""
    if not can_compile():
        generator = philox(key)
        generator.advance(first // 4)
        return generator.random_raw(count)
    from flipproof.noise import cell_flips  # numba takes a while to load

    words = np.empty((-(-count // 4), 4), dtype=np.uint64)
    left, right = np.frombuffer(key, "<u8").astype(np.uint64)
    cell_flips.philox_words((left, right), np.uint64(first // 4), words)
    return words.reshape(-1)[:count]


def halves(words: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Each 64-bit word as two 32-bit ones, low half first on every machine."""
    return np.ascontiguousarray(words).astype("<u8", copy=False).view("<u4")


class SlotLists(NamedTuple):
    """Slots of several samples, sorted by sample, then slot."""

    sample: IntArray
    slot: IntArray


class Neighbours(NamedTuple):
    """Those of node ``i`` of copy ``b`` are ``places[starts[b n + i] : starts[b n + i + 1]]``, ascending, below ``n``."""

    starts: IntArray
    places: NDArray[np.int32]

    @classmethod
    def of(cls, lists: SlotLists, size: int, num_nodes: int) -> Neighbours:
        """From the slots of the edges, in any order."""
        u, v = pairs_of_slots(lists.slot, num_nodes).T
        first = lists.sample * num_nodes
        rows, places = np.concatenate([first + u, first + v]), np.concatenate([v, u])
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=size * num_nodes))])
        return cls(starts, places[np.lexsort((places, rows))].astype(np.int32))


@dataclass(frozen=True)
class NoisyBatch:
    """Noisy versions of one graph: all that a classifier may see of it. The clean edges cannot be told from this.

    Either ``states`` (dense) or ``listed`` (sparse) is ``None``. ``node_features`` are ``[n, d]`` where all samples have the
    same, else ``[size, n, d]``.
    """

    num_nodes: int
    size: int
    node_features: NDArray[Any] | None
    slots: IntArray | None
    frozen_edges: IntArray
    states: NDArray[np.bool_] | None
    listed: Neighbours | None

    def only(self, chosen: IntArray) -> NoisyBatch:
        """The chosen samples, in this order."""
        if self.node_features is not None and self.node_features.ndim == 3:
            shared = replace(self, node_features=None).only(chosen)
            return replace(shared, node_features=self.node_features[chosen])
        if self.states is not None:
            return replace(self, size=len(chosen), states=self.states[chosen])
        starts, places = self.neighbours
        begins = starts[:: self.num_nodes]
        parts = [places[begins[index] : begins[index + 1]] for index in chosen.tolist()]
        degrees = np.diff(starts).reshape(self.size, -1)[chosen].ravel()
        listed = Neighbours(np.concatenate([[0], np.cumsum(degrees)]), np.concatenate([places[:0], *parts]))
        return replace(self, size=len(chosen), listed=listed)

    @cached_property
    def neighbours(self) -> Neighbours:
        """The neighbours of all nodes."""
        if self.listed is not None:
            return self.listed
        from flipproof.noise import cell_flips

        assert self.slots is not None
        states, frozen, slots = np.ascontiguousarray(self.states), self.frozen_edges, self.slots
        if len(frozen):
            before = np.searchsorted(slots, frozen)
            states, slots = np.insert(states, before, True, axis=1), np.insert(slots, before, frozen)
        none = np.zeros(self.size + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
        return Neighbours(*cell_flips.noisy_neighbours(states, *ends_of_slots(slots.tobytes(), self.num_nodes), *none))

    def edge_lists(self) -> SlotLists:
        """Slots of all edges of all samples, sorted by sample, then slot: the canonical order."""
        (starts, places), n = self.neighbours, self.num_nodes
        rows = np.repeat(np.arange(self.size * n), np.diff(starts))
        once = rows % n < places
        sample, source = np.divmod(rows[once], n)
        return SlotLists(sample, slots_of_pairs(np.stack([source, places[once]], axis=1), n))

    def adjacency(self) -> NDArray[np.float32]:
        """Dense adjacency matrices, float32 ``[size, n, n]``."""
        n = self.num_nodes
        if self.states is not None:
            assert self.slots is not None
            # column 0 of `padded` is "no edge", column 1 "frozen edge"
            padded = np.zeros((self.size, self.states.shape[1] + 2), dtype=np.float32)
            padded[:, 1] = 1
            padded[:, 2:] = self.states
            columns = _column_of_entry(n, self.slots.tobytes(), self.frozen_edges.tobytes())
            return padded.take(columns, axis=1).reshape(self.size, n, n)
        starts, places = self.neighbours
        matrix = np.zeros((self.size * n, n), dtype=np.float32)
        matrix[np.repeat(np.arange(self.size * n), np.diff(starts)), places] = 1
        return matrix.reshape(self.size, n, n)

    def edge_index(self) -> tuple[IntArray, IntArray]:
        """Edges of the disjoint union, both directions, sorted: ``edge_index [2, 2E]`` and ``batch [size * n]``."""
        starts, places = self.neighbours
        owner = np.repeat(np.arange(self.size, dtype=np.int64), self.num_nodes)
        sources = np.repeat(np.arange(len(owner)), np.diff(starts))
        return np.stack([sources, places + owner[sources] * self.num_nodes]), owner

    def graphs(self, node_features: NDArray[Any] | None = None) -> list[Graph]:
        """One :class:`Graph` per sample, for black-box classifiers; without label and name.

        ``node_features`` are those of all samples one after the other, ``[size * n, d]``, as ``checked_features`` returned them;
        by default they are those of the batch.
        """
        sample, slot = self.edge_lists()
        n, starts = self.num_nodes, np.searchsorted(sample, np.arange(self.size + 1)).tolist()
        # slots ascend within a sample, so its pairs are in the order of a Graph's edges
        pairs, graphs = pairs_of_slots(slot, n), []
        rows = self.node_features if node_features is None else node_features.reshape(self.size, n, -1)
        for index, (start, stop) in enumerate(pairwise(starts)):
            features = rows if rows is None or rows.ndim == 2 else rows[index]
            graphs.append(unchecked_graph(n, pairs[start:stop], features))
        return graphs


@lru_cache(maxsize=64)
def ends_of_slots(slots: bytes, num_nodes: int) -> tuple[NDArray[np.uint64], IntArray]:
    """The nodes of every slot as one number ``u 2**32 + v``, and the slot of the pair of every node and the next one."""
    first, second = pairs_of_slots(np.frombuffer(slots, np.int64), num_nodes).T.astype(np.uint64)
    nodes = np.arange(num_nodes)
    return first << np.uint64(32) | second, slots_of_pairs(np.stack([nodes, nodes + 1], axis=1), num_nodes)


@lru_cache(maxsize=64)
def _column_of_entry(num_nodes: int, slots: bytes, frozen_edges: bytes) -> IntArray:
    """For each entry of an ``n x n`` matrix the column that holds its state; see :meth:`NoisyBatch.adjacency`."""
    column = np.zeros((num_nodes, num_nodes), dtype=np.int64)
    free = np.frombuffer(slots, np.int64)
    for numbers, columns in ((np.frombuffer(frozen_edges, np.int64), 1), (free, np.arange(len(free)) + 2)):
        u, v = pairs_of_slots(numbers, num_nodes).T
        column[u, v] = column[v, u] = columns
    return column.ravel()


EDGE_NOISE = Parts(
    (
        Option("keep", float, "Probability that a node pair keeps its state (the paper's beta)."),
        Option("add", float, "Probability that an empty node pair gains an edge."),
        Option("remove", float, "Probability that an edge is lost."),
    ),
    plain=lambda noise: {"add": noise.p_add, "remove": noise.p_remove},
    made=lambda values: EdgeNoise(**values),
    stored=("keep", "add", "remove"),
)
