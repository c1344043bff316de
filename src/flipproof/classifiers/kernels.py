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
from numba.extending import intrinsic, models, register_model

from flipproof.compiling import compiled

LANES = 64
"""Columns that are added at once; rows must have a multiple of it."""

_AT_A_TIME = 16  # graphs


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
def _plus_times(typing: Any, lanes: Any, weight: Any, others: Any) -> Any:
    """``lanes + weight * others``, rounded twice: the same on every processor."""

    def make(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind, number = values[0].type, ir.IntType(32)
        nothing = ir.Constant(kind, ir.Undefined)
        single = builder.insert_element(nothing, values[1], number(0))
        weights = builder.shuffle_vector(single, nothing, ir.Constant(ir.VectorType(number, LANES), [0] * LANES))
        return builder.fadd(values[0], builder.fmul(weights, values[2]))

    return lanes(lanes, lanes.number, others), make


@intrinsic
def _plus(typing: Any, lanes: Any, others: Any) -> Any:
    def make(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.fadd(*values)

    return lanes(lanes, others), make


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


@intrinsic
def _lowest(typing: Any, word: Any) -> Any:
    """The number of zeros below the lowest one among the bits of a word."""

    def make(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.cttz(values[0], ir.IntType(1)(1))

    return types.int64(types.uint64), make


# ---- kernels -----------------------------------------------------------------------------------------------------------


@compiled
def sums(starts: Any, neighbours: Any, nodes: Any, values: Any) -> Any:
    """The sum of the values of every node's neighbours."""
    out = np.zeros_like(values)
    for base in range(0, len(values), nodes):
        for node in range(base, base + nodes):
            for place in range(starts[node], starts[node + 1]):
                out[node] += values[base + neighbours[place]]
    return out


@compiled
def weighted_sums(starts: Any, neighbours: Any, nodes: Any, entries: Any, values: Any) -> Any:
    """The same with an entry for every neighbour."""
    out = np.zeros_like(values)
    for base in range(0, len(values), nodes):
        for node in range(base, base + nodes):
            for place in range(starts[node], starts[node + 1]):
                out[node] += entries[place] * values[base + neighbours[place]]
    return out


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
def mix(lists: Any, matrix: Any, rows_by_node: Any, added_by_node: Any, relu: Any, pooled: Any, out: Any) -> None:
    """The product of a matrix with rows, plus a row for every node, a ReLU if wanted; rows, or their sums over the nodes.

    The matrix is ``target[i] entry source[j]`` for a neighbour ``j`` of ``i``, and ``own[i]`` on the diagonal; without
    ``entries`` these are 1. The row of a node is ``table[index] + factor rise[index]``, or the first alone without a ``rise``.
    The row that is added to it is ``added[added_index]``.
    """
    starts, neighbours, nodes = lists
    target, source, own, entries = matrix
    table, rise, index, factor = rows_by_node
    added, added_index = added_by_node
    width = table.shape[1]
    rows, sent = np.empty((nodes, width), table.dtype), np.empty((nodes, width), table.dtype)
    nothing = np.zeros((1, width), table.dtype)
    for copy in range(len(own) // nodes):
        base = copy * nodes
        for column in range(0, width, LANES):
            zero = _load(nothing, 0, column)
            for node in range(nodes):
                place = index[base + node]
                row = _load(table, place, column)
                if len(rise):
                    row = _plus_times(row, factor[base + node], _load(rise, place, column))
                _store(rows, node, column, row)
                _store(sent, node, column, _plus_times(zero, source[base + node], row))
            whole = zero
            for node in range(nodes):
                total = zero
                if len(entries):
                    for place in range(starts[base + node], starts[base + node + 1]):
                        total = _plus_times(total, entries[place], _load(sent, neighbours[place], column))
                else:
                    for place in range(starts[base + node], starts[base + node + 1]):
                        total = _plus(total, _load(sent, neighbours[place], column))
                row = _load(added, added_index[base + node], column)
                row = _plus_times(row, own[base + node], _load(rows, node, column))
                row = _plus_times(row, target[base + node], total)
                if relu:
                    row = _rectified(row)
                if pooled:
                    whole = _plus(whole, row)
                else:
                    _store(out, base + node, column, row)
            if pooled:
                _store(out, copy, column, whole)


@compiled
def perceptron(
    lists: Any,
    matrix: Any,
    rows_by_node: Any,
    added_by_node: Any,
    weights: Any,
    bias: Any,
    relu: Any,
    pooled: Any,
    out: Any,
) -> None:
    """As :func:`mix` with a ReLU, then the rows' product with ``weights``, plus ``bias [1, d]``, and what follows."""
    starts, neighbours, nodes = lists
    target, source, own, entries = matrix
    table, rise, index, factor = rows_by_node
    added, added_index = added_by_node
    rows = np.empty((_AT_A_TIME * nodes, table.shape[1]), table.dtype)
    nothing = np.zeros((1, weights.shape[1]), weights.dtype)
    for first in range(0, len(own) // nodes, _AT_A_TIME):
        last = min(len(own) // nodes, first + _AT_A_TIME)
        begin, end = first * nodes, last * nodes
        mix(
            (starts[begin : end + 1], neighbours, nodes),
            (target[begin:end], source[begin:end], own[begin:end], entries),
            (table, rise, index[begin:end], factor[begin:end]),
            (added, added_index[begin:end]),
            True,
            False,
            rows,
        )
        for column in range(0, weights.shape[1], LANES):
            for copy in range(first, last):
                whole = _load(nothing, 0, column)
                for node in range(copy * nodes, copy * nodes + nodes):
                    row = _load(bias, 0, column)
                    for part in range(0, rows.shape[1], LANES):
                        left = _not_zero(_load(rows, node - begin, part))
                        while left:
                            place = part + _lowest(left)
                            row = _plus_times(row, rows[node - begin, place], _load(weights, place, column))
                            left &= left - np.uint64(1)
                    if relu:
                        row = _rectified(row)
                    if pooled:
                        whole = _plus(whole, row)
                    else:
                        _store(out, node, column, row)
                if pooled:
                    _store(out, copy, column, whole)


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
