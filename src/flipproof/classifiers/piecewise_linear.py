"""A hidden layer of one number per node as tables of its linear pieces: two rows of a table replace a product with a matrix."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = ["PiecewiseLinear", "RowMap", "state_of"]

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
