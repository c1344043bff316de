"""The edges of a batch of graphs with the same nodes, as a twin's layers use them: here as matrices of torch.

:class:`flipproof.classifiers.neighbour_lists.NeighbourLists` does the same with compiled loops over lists of neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

RowMap = tuple[Tensor, Tensor | None]
"""Weight ``[k, d]`` and bias ``[k]`` of a linear map of rows."""


class PiecewiseLinear:
    """``maps(relu(s * slope + offset) * gain + shift)`` as tables of its linear pieces; ``s`` may be any number.

    Args:
        slope, offset: Of every hidden unit, ``[k]``.
        gain, shift: Of every hidden unit behind the ReLU, ``[k]``.
        maps: Linear maps of the hidden units.
    """

    def __init__(self, slope: Tensor, offset: Tensor, gain: Tensor, shift: Tensor, maps: list[RowMap]) -> None:
        kind = slope.dtype
        slope, offset, gain, shift = (part.double() for part in (slope, offset, gain, shift))
        knots = torch.where(slope == 0, torch.zeros_like(slope), -offset / slope)
        knots = torch.where(torch.isfinite(knots), knots, torch.zeros_like(knots)).sort().values
        # a point inside every piece; units are on or off on the whole of it
        inner = torch.cat([knots[:1] - 1, (knots[1:] + knots[:-1]) / 2, knots[-1:] + 1])
        on = (inner.unsqueeze(1) * slope + offset > 0).double()
        self.knots = knots.to(kind)
        self.tables: list[tuple[Tensor, Tensor]] = []
        for weight, bias in maps:
            flat = weight.double().mT
            rise, level = (on * (slope * gain)) @ flat, (on * (offset * gain) + shift) @ flat
            self.tables.append((rise.to(kind), (level if bias is None else level + bias).to(kind)))

    def rows(self, values: Tensor) -> list[Tensor]:
        """For ``values [R]`` the rows of every map, ``[R, k]``."""
        piece, factor = torch.bucketize(values, self.knots), values.unsqueeze(1)
        return [
            level.index_select(0, piece).addcmul_(rise.index_select(0, piece), factor) for rise, level in self.tables
        ]


def state_of(weights: Iterable[Tensor]) -> list[tuple[int, int]]:
    """Changes whenever one of the weights does: tables made of them are made again."""
    return [(weight.data_ptr(), 0 if weight.is_inference() else weight._version) for weight in weights]


class Ending(NamedTuple):
    """What follows a convolution at once: a ReLU, and a sum (``add``) or mean over the nodes of every graph."""

    relu: bool = False
    pool: str = ""


NO_ENDING = Ending()


class Edges:
    """The edges of a dense batch; stands where a model expects ``edge_index``. What layers share is computed once.

    Rows of nodes are ``[B * n, d]``, or ``[n, d]`` where all graphs share them. What :meth:`gathering`, :meth:`normalised` and
    :meth:`attention` return is for :meth:`product` and :meth:`sums` only.

    Args:
        adjacency: ``[B, n, n]``, symmetric, with an empty diagonal.
    """

    def __init__(self, adjacency: Tensor) -> None:
        self.copies, self.num_nodes = adjacency.shape[:2]
        self.adjacency, self.dtype, self.device = adjacency, adjacency.dtype, adjacency.device
        self._normalised: dict[float, Tensor] = {}

    def nodes(self, x: Tensor) -> Tensor:
        """``[B * n, d]`` as ``[B, n, d]``."""
        return x.view(self.copies, self.num_nodes, x.shape[1])

    @cached_property
    def degrees(self) -> Tensor:
        """Row sums, ``[B, n, 1]``."""
        return self.adjacency.sum(dim=-1, keepdim=True)

    # ---- matrices ----

    def gathering(self, how: str, *, itself: Any = 0.0) -> Any:
        """The matrix whose product with rows is their mean or sum over the neighbours; plus ``itself`` times every row."""
        matrix = self._averaging if how == "mean" else self.adjacency
        return matrix + itself * self._identity if isinstance(itself, Tensor) or itself else matrix

    def normalised(self, loop: float) -> Any:
        """``D^-1/2 (A + loop I) D^-1/2``; ``D`` holds the row sums of ``A + loop I``."""
        if loop not in self._normalised:
            scale = (self.degrees + loop).rsqrt()
            if loop == 0:
                scale = scale.masked_fill(scale == torch.inf, 0)
            matrix = self.adjacency * (scale * scale.mT)
            if loop:
                matrix.diagonal(dim1=1, dim2=2).add_(scale.squeeze(2).square(), alpha=loop)
            self._normalised[loop] = matrix
        return self._normalised[loop]

    def attention(self, source: Tensor, target: Tensor, *, slope: float, loops: bool) -> Any:
        """How every node shares its attention between its neighbours, and itself with ``loops``.

        Args:
            source, target: What a node adds to its share at its neighbours, and to their shares at itself, ``[B, n]`` or
                ``[1, n]``. Edges may be weighted where a gradient is wanted.
            slope: Of the leaky ReLU of the sums.
            loops: Whether a node attends to itself.
        """
        pairs = target.unsqueeze(2) + source.unsqueeze(1)
        if loops and not torch.is_grad_enabled():
            torch.nn.functional.leaky_relu_(pairs, slope)
            return (pairs.add_(self._unreachable) if len(pairs) > 1 else pairs + self._unreachable).softmax(dim=2)
        pairs = torch.nn.functional.leaky_relu(pairs, slope)
        weights = self.adjacency + self._identity if loops else self.adjacency
        highest = pairs.masked_fill(weights == 0, -torch.inf).amax(dim=2, keepdim=True)
        # a neighbour's score is at most the highest; others are kept from overflowing before their weight of 0 removes them
        found = (pairs - highest.masked_fill(highest == -torch.inf, 0)).clamp(max=30).exp() * weights
        return found / (found.sum(dim=2, keepdim=True) + 1e-16)

    @cached_property
    def _averaging(self) -> Tensor:
        """Rows divided by their sums; a node without neighbours has none."""
        return self.adjacency / self.degrees.clamp(min=1)

    @cached_property
    def _unreachable(self) -> Tensor:
        """For pairs without an edge a number below all scores, 0 for edges and for a node and itself: added before a softmax."""
        return (self.adjacency + self._identity).sub_(1).mul_(torch.finfo(self.dtype).max / 4)

    @property
    def _identity(self) -> Tensor:
        return torch.eye(self.num_nodes, dtype=self.dtype, device=self.device)

    # ---- products ----

    def product(self, matrix: Any, rows: Any, added: Any = None, ending: Ending = NO_ENDING) -> Tensor:
        """``matrix @ rows + added`` for every graph, and what follows: ``[B * n, d]``, or ``[B, d]`` where nodes are pooled.

        Args:
            matrix: Of this batch.
            rows: Rows, or what :meth:`looked_up` made.
            added: One row ``[d]``, or as ``rows``.
            ending: What follows.
        """
        if len(rows) == self.num_nodes and self.copies > 1:
            result = matrix.view(self.copies * self.num_nodes, self.num_nodes) @ rows
            if added is not None:
                self.nodes(result).add_(added)
        elif added is None:
            result = torch.bmm(matrix, self.nodes(rows)).flatten(0, 1)
        else:
            own = self.nodes(added) if added.ndim == 2 else added
            result = torch.baddbmm(own, matrix, self.nodes(rows)).flatten(0, 1)
        return self.ended(result, ending)

    def perceptron(self, matrix: Any, rows: Any, added: Any, linear: Any, ending: Ending) -> Tensor:
        """As :meth:`product` with a ReLU, then a linear layer and what follows."""
        found: Tensor = linear(self.product(matrix, rows, added, Ending(relu=True)))
        return self.ended(found, ending)

    def sums(self, matrix: Any, values: Tensor) -> Tensor:
        """``matrix @ values`` for one number per node, ``[B, n]``: faster than many small products by the library."""
        found: Tensor = (matrix * values.mT).sum(dim=2)
        return found

    def ended(self, rows: Tensor, ending: Ending) -> Tensor:
        """What follows a convolution; may write into its rows."""
        if ending.relu:
            rows = rows.relu_()
        if not ending.pool:
            return rows
        pooled = self.nodes(rows).sum(dim=1)
        return pooled.div_(self.num_nodes) if ending.pool == "mean" else pooled

    # ---- rows that follow from degrees ----

    def looked_up(self, pieces: PiecewiseLinear, values: Tensor) -> list[Any]:
        """The rows of a piecewise linear layer for one number per node, ``[B, n]``."""
        return list(pieces.rows(values.flatten()))

    def plain(self, rows: Any) -> Tensor:
        """Rows that were looked up as a tensor."""
        found: Tensor = rows
        return found
