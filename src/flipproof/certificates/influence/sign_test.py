"""The sign test of one attacked slot: the top class leads a rival where the noise flipped the slot, and where it did not.

The attacked graph under noise is a mixture of the two cases, so a class that leads in both leads after the attack. If the
attack takes the lead away, the top class does not lead in one of them. There, among the votes for the two classes, each is for
the top class with probability one half at most, and an exact binomial test passes with probability ``level`` at most. Which of
the two cases it is need not be known: both tests must pass, and each has the whole level. Proof: ``docs/influence.md``.

The test of the lead (:mod:`flipproof.certificates.influence.lead_test`) also counts how far the class leads where the slot was
not flipped. Under weak noise that is worth little, and the exact binomial is tighter than an exponential bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from flipproof.certificates.bounds import lower_bound
from flipproof.certificates.influence.attack import Attack
from flipproof.certificates.influence.lead_test import NOMINAL, RIVAL_PART

__all__ = ["SignTest"]


@dataclass(frozen=True)
class SignTest:
    """The test for attacks of one slot.

    Attributes:
        level: A slot whose attack takes the lead away passes with probability ``level`` at most.
        needed: Share of votes of the nominal classifier from which on the test is expected to pass for all slots.
    """

    level: float
    needed: float

    @classmethod
    def of(cls, attack: Attack, *, samples: int, level: float) -> SignTest | None:
        """The test; ``None`` for more than one slot, where the test of the lead is better, or where none is expected to pass.

        A function of sizes, noise and number of samples. A lead where the slot is not flipped makes up for one of at most
        ``(1 - moved) / moved`` against the class where it is. This is worth counting where it exceeds the standard deviation.
        """
        if level <= 0 or attack.overlap < 1 or attack.size != 1:
            return None
        (group,) = attack.groups
        if samples * group.flip * (1 - group.moved) ** 2 >= 1:
            return None
        share = np.array(NOMINAL)
        rival = RIVAL_PART * (1 - share)
        # where the slot is flipped, which is the rarer case, in standard deviations of the votes for either class
        ahead = math.sqrt(samples * min(group.flip, 1 - group.flip)) * (share - rival) / np.sqrt(share + rival)
        wanted = -float(special.ndtri(level)) + math.sqrt(2 * math.log(group.size))
        return next((cls(level, float(s)) for s, z in zip(share, ahead, strict=True) if z > wanted), None)

    def passes(self, top: ArrayLike, rival: ArrayLike) -> bool:
        """Whether the top class leads the rival in one of the two cases, for every slot; votes for each, ``[n]``.

        >>> test = SignTest(level=0.001, needed=0.8)
        >>> test.passes([70, 90], [30, 10]), test.passes([60, 90], [40, 10])
        (True, False)
        """
        top, rival = np.asarray(top), np.asarray(rival)
        return bool(np.all(lower_bound(top, top + rival, failure_prob=self.level) > 0.5))
