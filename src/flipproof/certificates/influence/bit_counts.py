"""Counts of slots that were flipped together, 64 samples at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import config
from numba.core import types
from numba.extending import intrinsic

from flipproof.compiling import compiled


@compiled
def transposed(rows: Any) -> Any:
    """A byte per eight samples, for every slot: blocks of eight by eight bits, transposed by exchanges of ever larger parts."""
    samples, width = rows.shape
    columns = np.empty((8 * width, samples // 8), np.uint8)
    for eight in range(samples // 8):
        for byte in range(width):
            block = np.uint64(0)
            for row in range(8):
                block |= np.uint64(rows[8 * eight + row, byte]) << np.uint64(8 * row)
            part = (block ^ (block >> np.uint64(7))) & np.uint64(0x00AA00AA00AA00AA)
            block ^= part ^ (part << np.uint64(7))
            part = (block ^ (block >> np.uint64(14))) & np.uint64(0x0000CCCC0000CCCC)
            block ^= part ^ (part << np.uint64(14))
            part = (block ^ (block >> np.uint64(28))) & np.uint64(0x00000000F0F0F0F0)
            block ^= part ^ (part << np.uint64(28))
            for bit in range(8):  # the first slot of a byte is its highest bit
                columns[8 * byte + 7 - bit, eight] = (block >> np.uint64(8 * bit)) & np.uint64(255)
    return columns


@intrinsic
def _compiled_ones(typing: Any, word: Any) -> Any:
    """The number of ones among the bits of a word."""

    def make(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.ctpop(values[0])

    return types.uint64(types.uint64), make


# where nothing is compiled, the loops are plain Python
_ones: Any = (lambda word: int(word).bit_count()) if config.DISABLE_JIT else _compiled_ones


@compiled
def count_singles(words: Any, voted: Any) -> Any:
    """In how many samples of several sets ``[C, M / 64]`` each slot was flipped, ``[C, N]``."""
    counts = np.zeros((len(voted), len(words)), np.int64)
    for label in range(len(voted)):
        for slot in range(len(words)):
            count = np.uint64(0)
            for place in range(words.shape[1]):
                count += _ones(words[slot, place] & voted[label, place])
            counts[label, slot] = count
    return counts


@compiled
def add_pairs(words: Any, table: Any) -> None:
    """Add to ``table [N, N]`` in how many samples two slots were both flipped."""
    for i in range(len(table)):
        first = words[i]
        for j in range(i + 1, len(table)):
            second, count = words[j], np.uint64(0)
            for place in range(len(first)):
                count += _ones(first[place] & second[place])
            table[i, j] += count
            table[j, i] += count


@compiled
def add_triples(words: Any, table: Any) -> None:
    """Add to a symmetric ``table [N, N, N]`` in how many samples three slots were all flipped."""
    both = np.empty(words.shape[1], np.uint64)
    for i in range(len(table)):
        first = words[i]
        for j in range(i + 1, len(table)):
            second = words[j]
            for place in range(len(both)):
                both[place] = first[place] & second[place]
            for k in range(j + 1, len(table)):
                third, count = words[k], np.uint64(0)
                for place in range(len(both)):
                    count += _ones(both[place] & third[place])
                table[i, j, k] += count
                for a, b, c in ((i, k, j), (j, i, k), (j, k, i), (k, i, j), (k, j, i)):
                    table[a, b, c] = table[i, j, k]
