"""Small graphs with features of which every noisy state and every attack can be enumerated."""

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flipproof import EdgeNoise
from flipproof.certificates.joint_bound import JointBound, joint_bound
from flipproof.noise.feature_law import BitNoise, FeatureNoise, LabelNoise

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """All graphs with so many slots and so many features: every state of the first against every state of the second."""

    noise: EdgeNoise
    feature_noise: FeatureNoise
    slots: int
    features: int
    categories: int = 2

    @property
    def bound(self) -> JointBound:
        return joint_bound(self.noise, self.feature_noise, self.categories)

    @cached_property
    def states(self) -> NDArray[np.int64]:
        """``[S, slots + features]``; the last coordinate runs fastest."""
        ranges = [range(2)] * self.slots + [range(self._values)] * self.features
        return np.array(list(itertools.product(*ranges)))

    @property
    def _values(self) -> int:
        return self.categories if isinstance(self.feature_noise, LabelNoise) else 2

    @cached_property
    def law(self) -> FloatArray:
        """Probability ``[x, z]`` that the noisy version of ``x`` is ``z``: one coordinate after the other."""
        slot = flips(self.noise)
        if isinstance(self.feature_noise, LabelNoise):
            kept, other = (part / 2**32 for part in self.feature_noise.thresholds(self.categories))
            feature = np.full((self._values, self._values), other) + np.eye(self._values) * (kept - other)
        else:
            assert isinstance(self.feature_noise, BitNoise)
            feature = flips(self.feature_noise.law)
        return functools.reduce(np.kron, [slot] * self.slots + [feature] * self.features, np.ones((1, 1)))

    @cached_property
    def changes(self) -> NDArray[np.int64]:
        """How many changes of each kind lead from one state to another, ``[S, S, axes]``."""
        edges, features = np.split(self.states, [self.slots], axis=1)
        parts = counted(edges, merge=self.noise.symmetric)
        if isinstance(self.feature_noise, BitNoise):
            parts += counted(features, merge=self.feature_noise.law.symmetric)
        else:
            parts += [(features[:, None] != features[None]).sum(axis=2)]
        return np.stack(parts, axis=2)

    def kinds_of_attacks(self, clean: int) -> Iterator[tuple[tuple[int, ...], NDArray[np.int64]]]:
        """The attacks on a graph: how many changes of each kind, and which graphs they lead to."""
        kinds, which = np.unique(self.changes[clean], axis=0, return_inverse=True)
        for number, kind in enumerate(kinds.tolist()):
            yield tuple(kind), np.flatnonzero(which.ravel() == number)


def flips(noise: EdgeNoise) -> FloatArray:
    return np.array([[1 - noise.p_add, noise.p_add], [noise.p_remove, 1 - noise.p_remove]])


def counted(bits: NDArray[np.int64], *, merge: bool) -> list[NDArray[np.int64]]:
    """Additions and removals from row to row, ``[S, S]``; or their sum."""
    additions = (1 - bits) @ bits.T
    return [additions + additions.T] if merge else [additions, additions.T]
