"""The only source of randomness for noise: keyed draws of 32 bits, and what they do to the slots of a graph.

Draws come from the counter-based Philox generator, keyed by a hash of what they are for. They are pure functions of
their key and place, hence the same in any batch, process or machine, and can be made again at any time.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from flipproof.noise.law import EdgeNoise

__all__ = ["halves", "key_of", "keyed_draws", "noisy_states", "philox"]


def noisy_states(states: NDArray[np.bool_], draws: NDArray[np.uint32], noise: EdgeNoise) -> NDArray[np.bool_]:
    """States of slots after the noise: a slot flips if its draw is below the threshold of its state.

    An edge is lost for ``remove_threshold`` of the ``2**32`` possible draws, an empty slot is joined for
    ``add_threshold`` of them, so that both have exactly their probability.

    Args:
        states: Whether each slot holds an edge; broadcast against the draws.
        draws: One uniform 32-bit integer per slot and sample, for instance ``[M, N]``.
        noise: The thresholds.

    >>> noise = EdgeNoise.from_thresholds(add=3, remove=5)
    >>> noisy_states(np.array([False, True]), np.array([[2, 4], [3, 5]], dtype=np.uint32), noise).tolist()
    [[True, False], [False, True]]
    """
    thresholds = np.where(states, np.uint32(noise.remove_threshold), np.uint32(noise.add_threshold))
    return np.not_equal(draws < thresholds, states)


def keyed_draws(purpose: str, seed: int, index: int, shape: tuple[int, ...]) -> NDArray[np.uint32]:
    """Independent uniform 32-bit integers; a pure function of the arguments.

    Args:
        purpose: What they are for; draws for different purposes or seeds are independent.
        seed: The user's seed.
        index: Number of the batch, from 0; different batches are independent.
        shape: A larger array starts with the draws of a smaller one, in C order.

    >>> keyed_draws("doctest", 0, 0, (3,)).tolist() == keyed_draws("doctest", 0, 0, (2, 2)).ravel()[:3].tolist()
    True
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


def halves(words: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Each 64-bit word as two 32-bit ones, low half first on every machine."""
    return np.ascontiguousarray(words).astype("<u8", copy=False).view("<u4")
