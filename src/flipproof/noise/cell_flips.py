"""Loops over noisy copies, compiled by numba: which cells of a large, mostly empty array flip, and neighbours then.

A cell is a number, such as the slot of a node pair; the occupied ones are listed. Every copy loses some of them, and gains as
many empty ones as its count says. The cost grows with the occupied cells and the flips, never with the number of cells.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from flipproof.compiling import compiled

_FEW = 48  # numbers that are sorted by insertion
_STEPS = 64  # of the generator, made at once
_HALF, _LOW = np.uint64(32), np.uint64(2**32 - 1)
_FACTORS = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)  # Salmon et al. 2011, table 2
_WEYL = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)


@partial(compiled, inline="always")  # else the loop is not made of vectors
def _high(first: Any, second: Any) -> Any:
    """The upper 64 bits of a product, from halves that processors multiply several at a time."""
    left, right, other_left, other_right = first >> _HALF, first & _LOW, second >> _HALF, second & _LOW
    middle = left * other_right + (right * other_right >> _HALF)
    return left * other_left + (middle >> _HALF) + (right * other_left + (middle & _LOW) >> _HALF)


@compiled
def philox_words(key: Any, first: Any, words: Any) -> None:
    """Fill ``words [S, 4]`` with what numpy's ``Philox`` makes from step ``first`` on: ten rounds, several steps at a time."""
    one, two, three, four = np.empty((4, _STEPS), np.uint64)
    for begin in range(0, len(words), _STEPS):
        for step in range(_STEPS):
            one[step], two[step], three[step], four[step] = first + np.uint64(begin + step + 1), 0, 0, 0
        left, right = key
        for _ in range(10):
            for step in range(_STEPS):
                value, other = one[step], three[step]
                high, other_high = _high(value, _FACTORS[0]), _high(other, _FACTORS[1])
                one[step], three[step] = other_high ^ two[step] ^ left, high ^ four[step] ^ right
                two[step], four[step] = other * _FACTORS[1], value * _FACTORS[0]
            left, right = left + _WEYL[0], right + _WEYL[1]
        for step in range(min(_STEPS, len(words) - begin)):
            words[begin + step, 0], words[begin + step, 1] = one[step], two[step]
            words[begin + step, 2], words[begin + step, 3] = three[step], four[step]


@compiled
def _insert_sorted(values: Any, first: Any, last: Any) -> None:
    """Sort ``values[first:last]`` in place, by insertion."""
    for place in range(first + 1, last):
        value = values[place]
        while place > first and values[place - 1] > value:
            values[place] = values[place - 1]
            place -= 1
        values[place] = value


@compiled
def _sort_uniform(values: Any, count: Any, bound: Any, room: Any, ends: Any) -> Any:
    """The first ``count`` values, uniform below ``bound``, in ascending order: ``values``, or ``room`` in their place."""
    if count <= _FEW:
        _insert_sorted(values, 0, count)
        return values
    shift = 0
    while (bound - 1) >> shift >= len(ends) - 1 or (bound - 1) >> shift >= 2 * count:
        shift += 1
    bins = ((bound - 1) >> shift) + 1
    ends[: bins + 1] = 0
    for place in range(count):
        ends[(values[place] >> shift) + 1] += 1
    for number in range(bins):
        ends[number + 1] += ends[number]
    for place in range(count):
        number = values[place] >> shift
        room[ends[number]] = values[place]
        ends[number] += 1
    _insert_sorted(room, 0, count)  # nothing moves further than within its bin
    return room


@compiled
def added_cells(words: Any, begin: Any, stop: Any, counts: Any, empty: Any, last: Any, empty_before: Any) -> Any:
    """For each row of draws as many empty cells as its count says, ascending: the first distinct ones drawn.

    Skipping repeats of uniform draws makes every set of the given size equally likely.

    Args:
        words, begin, stop: One 64-bit integer per draw, in these columns of ``[B, W]``.
        counts: ``[B]``.
        empty: Number of empty cells; a draw's remainder is the rank of a cell among them.
        last: Draws above it would favour small ranks and are skipped.
        empty_before: For every cell that is not empty, ascending, the number of empty cells before it.

    Returns:
        Where every row's cells start ``[B + 1]``, the cells, and which rows have too few draws ``[B]``: theirs are left open.
    """
    rows = len(words)
    starts, short = np.zeros(rows + 1, np.int64), np.zeros(rows, np.bool_)
    most = 0
    for row in range(rows):
        starts[row + 1] = starts[row] + counts[row]
        most = max(most, counts[row])
    cells = np.empty(starts[rows], np.int64)
    drawn, room, ends = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(4 * most + 2, np.int64)
    chosen, merged = np.empty(most, np.int64), np.empty(most, np.int64)
    divisor = np.uint64(empty)
    for row in range(rows):
        have, draw, count = 0, begin, counts[row]
        while have < count:
            wanted = 0
            while wanted < count - have and draw < stop:
                drawn[wanted] = np.int64(words[row, draw] % divisor)
                wanted += words[row, draw] <= last
                draw += 1
            if wanted < count - have:
                short[row] = True
                break
            ordered = _sort_uniform(drawn, wanted, empty, room, ends)
            left = right = size = 0
            previous = np.int64(-1)
            while left < have or right < wanted:
                if right == wanted or (left < have and chosen[left] < ordered[right]):
                    value = chosen[left]
                    left += 1
                else:
                    value = ordered[right]
                    right += 1
                merged[size] = value
                size += value != previous
                previous = value
            chosen, merged, have = merged, chosen, size
        if not short[row]:
            taken, start = 0, starts[row]
            for place in range(count):
                while taken < len(empty_before) and empty_before[taken] <= chosen[place]:
                    taken += 1
                cells[start + place] = chosen[place] + taken
    return starts, cells, short


@compiled
def _merged(first: Any, one_size: Any, second: Any, other_size: Any, out: Any) -> Any:
    """Two ascending lists as one, without a branch, from both ends at once: a step waits for the one before it.

    The numbers of a list stand behind a lower one and before a higher one than all in both.
    """
    size = one_size + other_size
    left, right, last_left, last_right = 1, 1, one_size, other_size
    for place in range((size + 1) // 2):
        one, other = first[left], second[right]
        out[place] = min(one, other)
        left += one < other
        right = place + 3 - left
        one, other = first[last_left], second[last_right]
        out[size - 1 - place] = max(one, other)
        last_left -= one > other
        last_right = size - place - 1 - last_left
    return out[:size]


@compiled
def flipped_cells(kept: Any, occupied: Any, starts: Any, added: Any, end: Any, cells: Any) -> None:
    """Write down what flips: of every row the cells that it loses, those that it gains, and ``end``.

    Args:
        kept: Which occupied cells do not flip, ``[B, K]``.
        occupied: Their numbers, ascending ``[K]``.
        starts, added: The cells that are added, as :func:`added_cells` returns them.
        end: A number that no cell has.
        cells: As many places as numbers.
    """
    place = 0
    for row in range(len(kept)):
        for column in range(len(occupied)):  # without a branch: flips are random
            cells[place] = occupied[column]
            place += not kept[row, column]
        for number in range(starts[row], starts[row + 1]):
            cells[place] = added[number]
            place += 1
        cells[place] = end
        place += 1


@compiled
def noisy_cells(kept: Any, occupied: Any, starts: Any, added: Any) -> Any:
    """The cells that are occupied afterwards: where every row's start ``[B + 1]``, and themselves, ascending."""
    rows, count = kept.shape
    firsts, cells, place = np.zeros(rows + 1, np.int64), np.empty(kept.size + len(added), np.int64), 0
    old, new = np.empty(count + 2, np.int64), np.empty(len(added) + 2, np.int64)
    old[0] = new[0] = -1
    for row in range(rows):
        size, adds = 1, starts[row + 1] - starts[row]
        for column in range(count):
            old[size] = occupied[column]
            size += kept[row, column]
        new[1 : adds + 1] = added[starts[row] : starts[row + 1]]
        old[size] = new[adds + 1] = np.iinfo(np.int64).max
        place += len(_merged(old, size - 1, new, adds, cells[place:]))
        firsts[row + 1] = place
    return firsts, cells[:place]


@compiled
def noisy_neighbours(kept: Any, edges: Any, row_starts: Any, starts: Any, added: Any) -> Any:
    """The neighbours of all nodes of all copies, ascending: where those of node ``b n + i`` start ``[B n + 1]``, and themselves.

    Args:
        kept: Which edges are there, ``[B, E]``: those of the clean graph that are kept, or of all node pairs.
        edges: The nodes of every edge as one number, ``u 2**32 + v`` with ``u < v``, ascending ``[E]``.
        row_starts: The slot of the pair of every node and the next one, ``[n]``.
        starts, added: Slots of further edges, as :func:`added_cells` returns them.
    """
    copies, count = kept.shape
    nodes, half, low = len(row_starts), np.uint64(32), np.uint64(2**32 - 1)
    total, most = len(added), 0
    for copy in range(copies):
        most = max(most, starts[copy + 1] - starts[copy])
        for column in range(count):
            total += kept[copy, column]
    firsts, places = np.zeros(copies * nodes + 1, np.int64), np.empty(2 * total, np.int32)
    end = np.uint64(2**64 - 1)
    old, new, both = np.empty(count + 2, np.uint64), np.empty(most + 2, np.uint64), np.empty(count + most, np.uint64)
    old[0] = new[0] = 0  # below all edges
    place, start = np.empty(nodes, np.int64), 0
    for copy in range(copies):
        size, node = 1, 0
        for column in range(count):  # without a branch: states are random
            old[size] = edges[column]
            size += kept[copy, column]
        old[size] = end
        adds = starts[copy + 1] - starts[copy]
        for number in range(adds):
            slot = added[starts[copy] + number]
            while node + 1 < nodes and row_starts[node + 1] <= slot:
                node += 1
            new[number + 1] = np.uint64(node) << half | np.uint64(slot - row_starts[node] + node + 1)
        new[adds + 1] = end
        joined = _merged(old, size - 1, new, adds, both) if adds else old[1:size]
        place[:] = 0
        for edge in joined:
            place[edge >> half] += 1
            place[edge & low] += 1
        base = copy * nodes + 1
        for node in range(nodes):
            degree = place[node]
            place[node] = start
            start += degree
            firsts[base + node] = start
        for edge in joined:  # they ascend, hence every node's neighbours do
            u, v = edge >> half, edge & low
            places[place[u]] = v
            place[u] += 1
            places[place[v]] = u
            place[v] += 1
    return firsts, places
