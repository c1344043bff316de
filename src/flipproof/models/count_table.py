"""Classes by the numbers of nodes and edges alone, so that as many graphs as possible keep theirs when edges are flipped."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

_SIZES, _BUDGETS, _CELLS = 128, 12, 256  # of the table: numbers of nodes, budgets, parts of the numbers of edges
_SIZE_WIDTHS = (0.05, 0.1, 0.2)  # of the logarithm of the number of nodes: how far graphs stand for others
_DENSITY_WIDTHS = (0.01, 0.02, 0.04)  # the same of the share of node pairs that are edges
_DENSITIES = 400  # at which it is reckoned how common a class is

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class CountTable(nn.Module):
    """For every number of nodes the classes of all numbers of edges, as intervals; a table of whole numbers. :meth:`learn` finds
    those that are expected to certify most, for each number of nodes and each budget, by dynamic programming: docs/local.md."""

    def __init__(self) -> None:
        super().__init__()
        shapes = (_SIZES,), (_BUDGETS,), (_SIZES, _BUDGETS, _CELLS)
        self.sizes, self.budgets, self.classes = (nn.Buffer(torch.zeros(shape, dtype=torch.int64)) for shape in shapes)

    def forward(self, sizes: Tensor, edges: Tensor, budget: Tensor) -> Tensor:
        """Classes by numbers of nodes, of edges and of flips to withstand, ``[B]``; without a row the next, or the last."""
        size = torch.searchsorted(self.sizes, sizes.contiguous()).clamp_max(_SIZES - 1)
        row = torch.searchsorted(self.budgets, budget.contiguous()).clamp_max(_BUDGETS - 1)
        cell = edges * _CELLS // (sizes * (sizes - 1) // 2 + 1)
        return self.classes[size, row, cell.clamp(0, _CELLS - 1)]

    def learn(self, sizes: Ints, edges: Ints, labels: Ints, weights: Floats, flips: int, most: tuple[int, int]) -> None:
        """Fill it from training graphs ``[T]`` and weights of classes ``[C]``, for ``most`` additions and removals."""
        rows, budgets = _spread_out(int(sizes.max()), _SIZES), _spread_out(flips, _BUDGETS)
        known, place = np.unique(rows, return_inverse=True)
        common = _common(sizes, edges, labels, weights, known)
        chosen = np.empty((_SIZES, _BUDGETS, _CELLS), dtype=np.int64)
        for budget in np.unique(budgets):
            adds, removes = (min(int(budget), part) for part in most)
            chosen[:, budgets == budget] = _best_intervals(common, known, adds, removes)[place][:, None]
        for buffer, values in ((self.sizes, rows), (self.budgets, budgets), (self.classes, chosen)):
            buffer.copy_(torch.from_numpy(values))


def _spread_out(largest: int, number: int) -> Ints:
    """Ascending whole numbers from 1 up to the largest, all small ones among them; the largest several times if need be."""
    if largest <= number:
        return np.minimum(np.arange(1, number + 1), largest)
    numbers = np.geomspace(1, largest, number)
    for place in range(1, number):  # the small ones one by one, then ever larger steps
        numbers[place:] = np.geomspace(max(numbers[place], round(numbers[place - 1]) + 1), largest, number - place)
    return np.rint(numbers).astype(np.int64)


def _starts(nodes: Ints) -> Ints:
    """The first number of edges of every cell, and one more than the last, ``[S, cells + 1]``."""
    last = nodes * (nodes - 1) // 2 + 1
    return -(-np.arange(_CELLS + 1) * last[:, None] // _CELLS)


def _common(sizes: Ints, edges: Ints, labels: Ints, weights: Floats, rows: Ints) -> Floats:
    """How common each class is expected to be at each density, for each of some numbers of nodes, ``[S, C, densities]``."""
    density = edges / np.maximum(1, sizes * (sizes - 1) / 2)
    away = np.linspace(0, 1, _DENSITIES)[:, None] - density
    bells = [np.exp(-0.5 * (away / width) ** 2) for width in _DENSITY_WIDTHS]
    near = np.sum([bell / bell.sum(axis=0) for bell in bells], axis=0)
    apart = np.log(rows)[:, None] - np.log(sizes)
    # nothing underflows: far from all graphs the nearest ones count
    scaled = [-0.5 * (apart / width) ** 2 for width in _SIZE_WIDTHS]
    shares = [np.exp(part - part.max(axis=1, keepdims=True)) for part in scaled]
    alike = np.sum([share / share.sum(axis=1, keepdims=True) for share in shares], axis=0)
    by_class = (labels[:, None] == np.arange(len(weights))) * weights
    return np.asarray(np.einsum("dt,st,tc->scd", near, alike, by_class, optimize=True))


def _below(common: Floats, rows: Ints, edges: Ints) -> Floats:
    """How common each class is below some numbers of edges ``[S, E]``, for each number of nodes: ``[S, C, E]``."""
    sums = np.concatenate([np.zeros((*common.shape[:2], 1)), np.cumsum(common, axis=2)], axis=2)
    share = np.clip(edges / _starts(rows)[:, -1:], 0, 1) * _DENSITIES
    place = np.minimum(share.astype(np.int64), _DENSITIES - 1)
    low, high = (np.take_along_axis(sums, (place + more)[:, None], axis=2) for more in (0, 1))
    return np.asarray(low + (share - place)[:, None] * (high - low))


def _best_intervals(common: Floats, rows: Ints, adds: int, removes: int) -> Ints:
    """The class of every cell, ``[S, cells]``: what certifies most against these numbers of additions and removals.

    An interval certifies all its numbers of edges but the first ``removes`` and the last ``adds``, at the ends of the axis
    those, too. The best division of the cells up to one that ends with a class is the best over its last interval's start.
    """
    starts, (sizes, classes, _) = _starts(rows), common.shape
    # what lies before the part that an interval from here certifies, and before the end of that part if it ends here
    first = _below(common, rows, np.where(starts == 0, 0, starts + removes))
    last = _below(common, rows, np.where(starts == starts[:, -1:], starts, starts - adds))
    best = np.zeros((sizes, classes, _CELLS + 1))  # of what lies below, if the class ends here
    other = np.zeros_like(best)  # the same of all other classes: who comes before
    came, before = (np.zeros(best.shape, dtype=np.int64) for _ in range(2))
    everyone = np.arange(classes)
    for end in range(1, _CELLS + 1):
        values = other[:, :, :end] + np.maximum(0, last[:, :, end, None] - first[:, :, :end])
        came[:, :, end] = values.argmax(axis=2)
        best[:, :, end] = values.max(axis=2)
        ranked = np.argsort(-best[:, :, end], axis=1, kind="stable")
        before[:, :, end] = np.where(ranked[:, :1] == everyone, ranked[:, 1:2], ranked[:, :1])
        other[:, :, end] = np.take_along_axis(best[:, :, end], before[:, :, end], axis=1)
    chosen, each = np.empty((sizes, _CELLS), dtype=np.int64), np.arange(sizes)
    label, stop = best[:, :, -1].argmax(axis=1), np.full(sizes, _CELLS)
    for cell in range(_CELLS - 1, -1, -1):
        # where the interval begins after this cell: on to the one before
        while (done := (start := came[each, label, stop]) > cell).any():
            label, stop = np.where(done, before[each, label, start], label), np.where(done, start, stop)
        chosen[:, cell] = label
    return chosen
