"""Weak spots: what an answer rests on, and the worst flips that the evidence knows of. Explains a certificate; proves nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flipproof.errors import InputError

__all__ = ["ClassCell", "WeakSpots"]


@dataclass(frozen=True)
class ClassCell:
    """A cell of a table that names a class: whoever shows it knows the name."""

    label: int


@dataclass(frozen=True, eq=False)
class WeakSpots:
    """Where an attacker would strike, as far as the evidence tells.

    Attributes:
        rival: The class that would overtake first.
        flips: Node pairs ``(u, v)``, ``u < v``, in the order in which an attacker would choose them.
        succeeds: Whether the flips are known to change the answer. If not, they are a candidate attack, the worst one found.
        weights: How much each node carries of the label's lead over the rival, ``[n]``, negative where it speaks for the rival;
            ``None`` where the lead is not a sum over nodes.
        rest: The part of the lead that no single node carries.
        caption: What the table shows.
        columns: Heads of the table.
        rows: Its cells: text, numbers and classes.
    """

    rival: int
    flips: tuple[tuple[int, int], ...] = ()
    succeeds: bool = False
    weights: NDArray[np.float64] | None = None
    rest: float = 0.0
    caption: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str | int | ClassCell, ...], ...] = ()

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise InputError(f"every row of weak spots must have {len(self.columns)} cells, one per column")
        if self.succeeds and not self.flips:
            raise InputError("weak spots without flips cannot be a successful attack (leave succeeds out)")
