"""Loops over edges and lists of neighbours, compiled by numba: the sums of a convolution, graph by graph, in the nearest cache.

Sums are made in a fixed order, one graph after the other: an answer does not depend on the batch, to the last bit. Only
:mod:`flipproof.classifiers.edges` imports this module, when the first batch comes: compiling takes a while.

Shapes: ``B`` graphs of ``n`` nodes, nodes numbered ``b n + i``. The
neighbours of node ``r`` are ``neighbours[starts[r] : starts[r + 1]]``, numbered within their graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.cpython.unsafe.numbers import trailing_zeros
from numba.extending import intrinsic, models, register_model

from flipproof.compiling import compiled

LANES = 64
"""Columns that are added at once; rows must have a multiple of it."""

_AT_A_TIME = 32  # nodes


# ---- several columns at once, in registers: numba has no such type, and its plain loops are less than half as fast --------


class _Lanes(types.Type):
    def __init__(self, number: Any) -> None:
        self.number = number
        super().__init__(name=f"Lanes({number})")


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        number = ir.FloatType() if kind.number == types.float32 else ir.DoubleType()
        super().__init__(manager, kind, ir.VectorType(number, LANES))


def _place(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """The address of the columns from ``values[2]`` on, in a row of an array."""
    kind = signature.args[0]
    array = context.make_array(kind)(context, builder, values[0])
    place = cgutils.get_item_pointer(context, builder, kind, array, values[1:3], wraparound=False)
    return builder.bitcast(place, context.get_value_type(_Lanes(kind.dtype)).as_pointer())


@intrinsic
def _load(typing: Any, array: Any, row: Any, column: Any) -> Any:
    def make(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load(_place(context, builder, signature, values), align=array.dtype.bitwidth // 8)

    return _Lanes(array.dtype)(array, types.intp, types.intp), make


@intrinsic
def _store(typing: Any, array: Any, row: Any, column: Any, lanes: Any) -> Any:
    def make(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        builder.store(values[3], _place(context, builder, signature, values), align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, lanes), make


@intrinsic
def _zeros(typing: Any, array: Any) -> Any:
    def make(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return ir.Constant(context.get_value_type(signature.return_type), [0.0] * LANES)

    return _Lanes(array.dtype)(array), make


@intrinsic
def _plus_times(typing: Any, lanes: Any, weight: Any, others: Any) -> Any:
    """``lanes + weight * others``, rounded once where the processor can."""

    def make(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind, number = values[0].type, ir.IntType(32)
        nothing = ir.Constant(kind, ir.Undefined)
        single = builder.insert_element(nothing, values[1], number(0))
        weights = builder.shuffle_vector(single, nothing, ir.Constant(ir.VectorType(number, LANES), [0] * LANES))
        name = f"llvm.fmuladd.v{LANES}{kind.element.intrinsic_name}"
        fused = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
        return builder.call(fused, [weights, values[2], values[0]])

    return lanes(lanes, lanes.number, others), make


@intrinsic
def _rectified(typing: Any, lanes: Any) -> Any:
    """Zero where negative; what is not a number stays so."""

    def make(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        zero = ir.Constant(values[0].type, [0.0] * LANES)
        return builder.select(builder.fcmp_ordered("<", values[0], zero), zero, values[0])

    return lanes(lanes), make


@intrinsic
def _not_zero(typing: Any, lanes: Any) -> Any:
    """A bit for every column, the lowest for the first: whether it is not zero."""

    def make(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        zero = ir.Constant(values[0].type, [0.0] * LANES)
        return builder.bitcast(builder.fcmp_unordered("!=", values[0], zero), ir.IntType(LANES))

    return types.uint64(lanes), make


# ---- kernels -----------------------------------------------------------------------------------------------------------


@compiled
def sums(starts: Any, neighbours: Any, nodes: Any, values: Any) -> Any:
    """The sum of the values of every node's neighbours."""
    out = np.empty_like(values)
    most = _AT_A_TIME * nodes
    running = np.empty(most + 1, np.float64)  # a loop per node, of unforeseeable length, would take three times as long
    for base in range(0, len(values), nodes):
        for first in range(base, base + nodes, _AT_A_TIME):
            last = min(first + _AT_A_TIME, base + nodes)
            begin, total = starts[first], 0.0
            running[0] = total
            for place in range(begin, starts[last]):
                total += values[base + neighbours[place]]
                running[place - begin + 1] = total
            for node in range(first, last):
                out[node] = running[starts[node + 1] - begin] - running[starts[node] - begin]
    return out


@compiled
def weighted_sums(lists: Any, matrix: Any, values: Any) -> Any:
    """The product of a matrix, as :func:`mix` takes it, with a number for every node."""
    starts, neighbours, nodes = lists
    target, source, own, entries, by_degree = matrix
    if len(entries):
        out = np.empty_like(values)
        for base in range(0, len(values), nodes):
            for node in range(base, base + nodes):
                total = values.dtype.type(0)
                for place in range(starts[node], starts[node + 1]):
                    total += entries[place] * values[base + neighbours[place]]
                out[node] = total
    elif len(source):
        sent = np.empty_like(values)
        for node in range(len(values)):
            sent[node] = source[starts[node + 1] - starts[node]] * values[node]
        out = sums(starts, neighbours, nodes, sent)
    else:
        out = sums(starts, neighbours, nodes, values)
    for node in range(len(values)):
        key = starts[node + 1] - starts[node] if by_degree else node
        out[node] = target[key] * out[node] + own[key] * values[node]
    return out


@compiled
def distinct(first: Any, second: Any) -> Any:
    """For every pair of numbers its place among those that differ, and these in the order in which they come, ``[P, 2]``."""
    size, width, count = 64, 1, 0
    while size < 2 * len(first):
        size *= 2
    for number in second:
        width = max(width, number + 1)
    keys, place_of_key = np.full(size, -1, np.int64), np.empty(size, np.int64)
    places, numbers = np.empty(len(first), np.int64), np.empty(len(first), np.int64)
    for number in range(len(first)):
        key = first[number] * width + second[number]
        slot = key & (size - 1)
        while keys[slot] != key:
            if keys[slot] < 0:
                keys[slot], place_of_key[slot], numbers[count] = key, count, number
                count += 1
                break
            slot = (slot + 1) & (size - 1)
        places[number] = place_of_key[slot]
    pairs = np.empty((count, 2), np.int64)
    for place in range(count):
        pairs[place, 0], pairs[place, 1] = first[numbers[place]], second[numbers[place]]
    return places, pairs


@compiled
def pieces_of(values: Any, knots: Any) -> Any:
    """The number of knots below every value."""
    out = np.empty(len(values), np.int64)
    for place in range(len(values)):
        value, count = values[place], np.int32(0)
        for knot in range(len(knots)):
            count += np.int32(knots[knot] < value)
        out[place] = count
    return out


@compiled
def _send(first: Any, last: Any, starts: Any, source: Any, rows_by_node: Any, sent: Any) -> None:
    """The rows that nodes ``first`` to ``last - 1`` send to their neighbours."""
    table, rise, index, factor = rows_by_node
    zero = _zeros(table)
    for node in range(first, last):
        place = index[node]
        weight = source[starts[node + 1] - starts[node]] if len(source) else table.dtype.type(1)
        for column in range(0, table.shape[1], LANES):
            row = _load(table, place, column)
            if len(rise):
                row = _plus_times(row, factor[node], _load(rise, place, column))
            _store(sent, node - first, column, _plus_times(zero, weight, row))


@compiled
def _receive(
    first: Any,
    last: Any,
    lists: Any,
    matrix: Any,
    sent: Any,
    index: Any,
    added_by_node: Any,
    relu: Any,
    pooled: Any,
    out: Any,
) -> None:
    """What nodes ``first`` to ``last - 1``, of whole graphs, make of the rows ``sent[index]``; without an index, of theirs."""
    starts, neighbours, nodes = lists
    target, source, own, entries, by_degree = matrix
    added, added_index = added_by_node
    zero, one = _zeros(sent), sent.dtype.type(1)
    for base in range(first, last, nodes):
        begin = base - first if index is None else base
        for column in range(0, sent.shape[1], LANES):
            together = zero
            for node in range(base, base + nodes):
                start, stop = starts[node], starts[node + 1]
                key = stop - start if by_degree else node
                total = zero
                for place in range(start, stop):
                    entry = entries[place] if len(entries) else one
                    other = begin + neighbours[place]
                    total = _plus_times(total, entry, _load(sent, other if index is None else index[other], column))
                row = _load(added, added_index[node] if len(added_index) else 0, column)
                row = _plus_times(row, target[key], total)
                if own[key] != 0:
                    weight = own[key] / source[key] if len(source) else own[key]
                    itself = node - first if index is None else index[node]
                    row = _plus_times(row, weight, _load(sent, itself, column))
                if relu:
                    row = _rectified(row)
                if pooled:
                    together = _plus_times(together, one, row)
                else:
                    _store(out, node - first, column, row)
            if pooled:
                _store(out, (base - first) // nodes, column, together)


@compiled
def _pass_through(rows: Any, nodes: Any, layer: Any, relu: Any, pooled: Any, out: Any) -> None:
    """What a linear layer makes of rows that a ReLU has made, many of them zeros."""
    weights, bias = layer
    zero, one = _zeros(rows), rows.dtype.type(1)
    for base in range(0, len(rows), nodes):
        for column in range(0, weights.shape[1], LANES):
            together = zero
            for node in range(base, base + nodes):
                row, rest = _load(bias, 0, column), zero
                for part in range(0, rows.shape[1], LANES):
                    left = _not_zero(_load(rows, node, part))
                    while left:  # two at a time: a sum waits for the one before it
                        place = part + trailing_zeros(left)
                        left &= left - np.uint64(1)
                        row = _plus_times(row, rows[node, place], _load(weights, place, column))
                        other = part + trailing_zeros(left) if left else place
                        value = rows[node, other] if left else one - one
                        left &= left - np.uint64(1)
                        rest = _plus_times(rest, value, _load(weights, other, column))
                row = _plus_times(row, one, rest)
                if relu:
                    row = _rectified(row)
                if pooled:
                    together = _plus_times(together, one, row)
                else:
                    _store(out, node, column, row)
            if pooled:
                _store(out, base // nodes, column, together)


@compiled
def mix(
    lists: Any,
    matrix: Any,
    rows_by_node: Any,
    added_by_node: Any,
    layer: Any,
    relu: Any,
    pooled: Any,
    room: Any,
    out: Any,
) -> None:
    """The product of a matrix with rows, plus a row for every node, and what follows; rows, or their sums over the nodes.

    The matrix is ``target[i] entry source[j]`` for a neighbour ``j`` of ``i``, and ``own[i]`` on the diagonal, 0 where ``source``
    is; without ``entries`` or ``source`` these are 1. Where it is ``by_degree``, these are tables by the degree of the node, as
    ``source`` always is. The row of a node is ``table[index] + factor rise[index]``, or the first alone without a ``rise``. The
    row that is added to it is ``added[added_index]``, or the only one. What follows is a ReLU, if wanted; where ``layer`` has
    weights, a ReLU, a product with these and a bias ``[1, k]`` go before. ``room [2 k n, d]`` is written over: memory that
    torch allocates starts where a cache line does, and numba's often does not.
    """
    source, (table, rise, index, _), every, nodes = matrix[1], rows_by_node, len(lists[0]) - 1, lists[2]
    sends, through, half = len(source) > 0 or len(rise) > 0, len(layer[0]) > 0, len(room) // 2
    sent, hidden, at_once = room[:half], room[half:], half if sends or through else max(1, every)
    for first in range(0, every, at_once):
        last = min(every, first + at_once)
        goals = out[first // nodes :] if pooled else out[first:]
        rows, how = (hidden[: last - first], (True, False)) if through else (goals, (relu, pooled))
        if sends:
            _send(first, last, lists[0], source, rows_by_node, sent)
            _receive(first, last, lists, matrix, sent, None, added_by_node, *how, rows)
        else:
            _receive(first, last, lists, matrix, table, index, added_by_node, *how, rows)
        if through:
            _pass_through(rows, nodes, layer, relu, pooled, goals)


@compiled
def scores(starts: Any, neighbours: Any, nodes: Any, source: Any, target: Any, slope: Any, loops: Any) -> Any:
    """The exponents of attention, at most 0: every entry's and every node's own (minus infinity without loops)."""
    entries, own = np.empty(len(neighbours), source.dtype), np.empty_like(target)
    nothing = target.dtype.type(-np.inf)
    for base in range(0, len(target), nodes):
        for node in range(base, base + nodes):
            highest = nothing
            if loops:
                highest = target[node] + source[node]
                highest = highest if highest > 0 else highest * slope
            own[node] = highest
            for place in range(starts[node], starts[node + 1]):
                score = target[node] + source[base + neighbours[place]]
                score = score if score > 0 else score * slope
                entries[place] = score
                highest = score if score > highest else highest
            if highest > nothing:
                own[node] -= highest
            for place in range(starts[node], starts[node + 1]):
                entries[place] -= highest
    return entries, own


@compiled
def attend(entries: Any, own: Any, starts: Any) -> None:
    """Divide the exponentials of every node's scores by their sum."""
    for node in range(len(own)):
        total = own[node]
        for place in range(starts[node], starts[node + 1]):
            total += entries[place]
        if total > 0:
            own[node] /= total
            for place in range(starts[node], starts[node + 1]):
                entries[place] /= total
