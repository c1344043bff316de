"""An attack of a given size: the slots it can choose from, and the laws of the flips on the slots it chooses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.bounds import FloatArray
from flipproof.noise import EdgeNoise

__all__ = ["Attack", "Group"]

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """Slots that are alike, of which the attacker takes ``count``.

    Attributes:
        flip: Probability that the noise flips such a slot of the clean graph.
        moved: Probability that such a slot, attacked and then noised, differs from the clean graph.
    """

    size: int
    count: int
    flip: float
    moved: float

    def laws(self) -> tuple[FloatArray, FloatArray]:
        """Law of the number of attacked slots that differ from the clean graph: noise on clean, noise on attacked."""
        return _binomial(self.count, self.flip), _binomial(self.count, self.moved)


def _binomial(trials: int, probability: float) -> FloatArray:
    """The binomial law by convolution: sums of positive terms, so each entry has a small *relative* error."""
    law = np.ones(1)
    for _ in range(trials):
        more = np.zeros(len(law) + 1)
        more[:-1] = law * (1 - probability)
        more[1:] += law * probability
        law = more
    return law


@dataclass(frozen=True)
class Attack:
    """All attacks that take ``count`` slots of every group.

    For symmetric noise additions and removals are alike and there is one group. A group whose slots the noise never flips
    is left out; what it contributes is ``overlap``: the probability that the noise on the attacked graph undoes the attack
    on all of its slots. With the rest, nothing is known of the votes, and they are counted for the rival.

    Attributes:
        groups: Those with a flip probability above 0 and at least one attacked slot.
        slots: The slots of all groups, group by group (columns of the flips).
        overlap: See above; 1 where both probabilities are positive.
    """

    groups: tuple[Group, ...]
    slots: IntArray
    overlap: float

    @classmethod
    def of(cls, noise: EdgeNoise, states: NDArray[np.bool_], *, adds: int, removes: int) -> Attack:
        """The attacks with so many additions and removals (for symmetric noise: so many flips in all)."""
        if noise.symmetric and noise.p_add > 0:
            everything = np.arange(len(states), dtype=np.int64)
            group = Group(len(states), adds + removes, noise.p_add, 1 - noise.p_remove)
            return cls((group,) if group.count else (), everything if group.count else everything[:0], 1.0)
        groups, slots, overlap = [], [np.empty(0, dtype=np.int64)], 1.0
        for count, flip, other, places in (
            (adds, noise.p_add, noise.p_remove, np.flatnonzero(~states)),
            (removes, noise.p_remove, noise.p_add, np.flatnonzero(states)),
        ):
            if count and flip > 0:
                groups.append(Group(len(places), count, flip, 1 - other))
                slots.append(places.astype(np.int64))
            elif count:
                overlap *= other**count
        return cls(tuple(groups), np.concatenate(slots), overlap)

    @property
    def size(self) -> int:
        """Attacked slots whose flips can be seen."""
        return sum(group.count for group in self.groups)

    @property
    def exists(self) -> bool:
        """Whether the graph has so many slots."""
        return all(group.count <= group.size for group in self.groups)

    @cached_property
    def members(self) -> IntArray:
        """Number of the group of each of :attr:`slots`."""
        return np.repeat(np.arange(len(self.groups)), [group.size for group in self.groups])
