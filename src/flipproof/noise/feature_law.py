"""Noise on node features: labels (one-hot rows) and bits (binary rows), with exactly known probabilities.

Noisy features are drawn like noisy edges: a pure function of (seed, graph, sample index), the same in any batch, process or
machine, from a generator of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flipproof.errors import InputError
from flipproof.fields import Option, Parts
from flipproof.graphs import Graph, IntArray
from flipproof.noise.feature_stream import BitStream, LabelStream, one_hot
from flipproof.noise.law import WORD, EdgeNoise, noisy_states


class Change(NamedTuple):
    """One way to change a coordinate at cost 1: laws of its noisy state, where the ratio of the two grows geometrically.

    State ``t`` has ratio ``attacked[t] / clean[t] = c * r**t`` wherever both are positive.
    """

    name: str
    clean: tuple[float, ...]
    attacked: tuple[float, ...]


def flip_changes(noise: EdgeNoise, flipped: str, added: str, removed: str) -> tuple[Change, ...]:
    """The changes of a 0/1 coordinate; one for symmetric noise, where all flips are alike. State 1: differs from the clean one.

    >>> [change.name for change in flip_changes(EdgeNoise(add=0.1, remove=0.4), "flips", "additions", "removals")]
    ['additions', 'removals']
    """
    add, remove = noise.p_add, noise.p_remove
    addition = Change(flipped if noise.symmetric else added, (1 - add, add), (remove, 1 - remove))
    removal = Change(removed, (1 - remove, remove), (add, 1 - add))
    return (addition,) if noise.symmetric else (addition, removal)


@dataclass(frozen=True, kw_only=True)
class LabelNoise:
    """Node labels (one-hot node features) that are kept, or replaced by one of the other categories, all equally likely.

    With ``K`` categories ``q = round((1 - keep) / (K - 1) * 2**32)``, each other category has probability exactly
    ``q / 2**32``, and the label is kept with probability exactly ``1 - (K - 1) q / 2**32``. The certificates use these values.

    Args:
        keep: Probability that a node keeps its label; more than ``1 / K``. With 1 labels are not changed.

    >>> noise = LabelNoise(keep=0.9)
    >>> noise.thresholds(2) == (2**32 - round(0.1 * 2**32), round(0.1 * 2**32))
    True
    """

    keep: float = 0.9

    def __post_init__(self) -> None:
        number = isinstance(self.keep, (int, float, np.integer, np.floating)) and not isinstance(self.keep, bool)
        if not number or not 0 < self.keep <= 1:  # NaN fails too
            raise InputError(
                f"keep must lie in (0, 1], the probability of a node to keep its label; got {self.keep!r} (for instance 0.9)"
            )
        object.__setattr__(self, "keep", float(self.keep))

    def thresholds(self, categories: int) -> tuple[int, int]:
        """Numerators, over ``2**32``, of the probabilities of the clean label and of each other one."""
        if categories < 2:
            raise InputError(
                f"LabelNoise needs at least 2 categories; got node features with {categories} column{'s' * (categories != 1)} "
                "(leave feature_noise out)"
            )
        other = round((1 - self.keep) / (categories - 1) * WORD)
        if other == 0 and self.keep < 1:
            raise InputError(
                f"keep is too close to 1 to sample exactly; got {self.keep!r} for {categories} categories (or pass 1 for none)"
            )
        kept = WORD - (categories - 1) * other
        if kept <= other:
            raise InputError(
                f"keep must exceed 1 / {categories} for {categories} categories, so that the clean label stays the likeliest; "
                f"got {self.keep:g} (for instance 0.9)"
            )
        return kept, other

    def check(self, features: NDArray[Any] | None) -> NDArray[Any]:
        """The features ``[n, d]`` themselves, if every row holds a single 1 and zeros."""
        features = _present(features, "LabelNoise")
        wrong = np.flatnonzero(((features != 0) & (features != 1)).any(axis=1) | ((features != 0).sum(axis=1) != 1))
        if len(wrong):
            raise InputError(
                f"LabelNoise needs one-hot node features, a single 1 per row; got {_shown(features[wrong[0]])} at node "
                f"{wrong[0]} (encode one category per node, use BitNoise for binary features, or leave feature_noise out)"
            )
        self.thresholds(features.shape[1])
        return features

    def changes(self, categories: int) -> tuple[Change, ...]:
        """What an attacker can change: clean label, a third one, the attacker's; ratios ``1/rho, 1, rho``."""
        kept, other = self.thresholds(categories)
        law = (kept / WORD, (categories - 2) * other / WORD, other / WORD)
        return (Change("changed labels", law, law[::-1]),)

    def room(self, features: NDArray[Any]) -> tuple[int, ...]:
        """How many of each of the :meth:`changes` the features offer: one label per node."""
        return (len(features),)

    def trial(self, features: NDArray[Any], samples: int) -> NDArray[Any]:
        """``samples`` features ``[n, d]`` to try a model on, always the same for this shape and type: uniform labels."""
        nodes, categories = features.shape
        return one_hot(np.random.default_rng(nodes).integers(categories, size=(samples, nodes)), features)

    def drawn(self, features: NDArray[Any], draws: Callable[[tuple[int, ...]], NDArray[np.uint32]]) -> NDArray[Any]:
        """Noisy versions of features ``[..., n, d]`` from uniform 32-bit draws, one per label; for training."""
        categories, labels = features.shape[-1], features.argmax(axis=-1)
        return one_hot((labels + self.shifts(draws(labels.shape), categories)) % categories, features)

    def plain(self) -> dict[str, float]:
        """Plain values from which :func:`feature_noise_from` makes this noise again."""
        return {"label_keep": self.keep}

    def shifts(self, draws: NDArray[np.uint32], categories: int) -> IntArray:
        """By how much labels move on, modulo ``K``, for uniform 32-bit draws: 0 with the probability of the clean label."""
        _, other = self.thresholds(categories)
        moved = draws // np.uint32(max(other, 1)) + np.uint32(1)
        return np.where(draws < np.uint32((categories - 1) * other), moved, 0).astype(np.int64)

    def stream(self, graph: Graph, *, seed: int) -> LabelStream:
        """The noisy features of a graph, drawn from ``seed``; refuses features of another kind."""
        return LabelStream(self, graph, seed)


@dataclass(frozen=True, init=False, repr=False)
class BitNoise:
    """Independent flips of binary node features, with exact probabilities as those of :class:`flipproof.EdgeNoise`.

    Args:
        keep: Every bit keeps its value with this probability, in (0.5, 1).
        add: Probability that a 0 becomes a 1.
        remove: Probability that a 1 becomes a 0. ``add + remove`` must be below 1; either may be 0.

    >>> BitNoise(add=0.01, remove=0.6)
    BitNoise(add=0.01, remove=0.6)
    """

    law: EdgeNoise

    def __init__(self, *, keep: float | None = None, add: float | None = None, remove: float | None = None) -> None:
        object.__setattr__(self, "law", EdgeNoise(keep=keep, add=add, remove=remove))

    def __repr__(self) -> str:
        return repr(self.law).replace("EdgeNoise", "BitNoise")

    def check(self, features: NDArray[Any] | None) -> NDArray[Any]:
        """The features ``[n, d]`` themselves, if every entry is 0 or 1."""
        features = _present(features, "BitNoise")
        wrong = (features != 0) & (features != 1)
        if wrong.any():
            node, column = np.argwhere(wrong)[0]
            raise InputError(
                f"BitNoise needs binary node features, 0 or 1; got {features[node, column]:g} at node {node}, column {column} "
                "(pass features > 0, or leave feature_noise out)"
            )
        return features

    def changes(self, categories: int) -> tuple[Change, ...]:
        """As for labels: two kinds of changes, or one where they are alike; ``categories`` are of no importance."""
        return flip_changes(self.law, "changed bits", "added bits", "removed bits")

    def room(self, features: NDArray[Any]) -> tuple[int, ...]:
        """As for labels: zeros and ones."""
        ones = int(np.count_nonzero(features))
        return (features.size,) if self.law.symmetric else (features.size - ones, ones)

    def trial(self, features: NDArray[Any], samples: int) -> NDArray[Any]:
        """``samples`` features to try a model on: from few ones to many."""
        draws = np.random.default_rng(len(features)).random((samples, *features.shape))
        return (draws < (np.arange(samples) + 0.5)[:, None, None] / samples).astype(features.dtype)

    def drawn(self, features: NDArray[Any], draws: Callable[[tuple[int, ...]], NDArray[np.uint32]]) -> NDArray[Any]:
        """Noisy versions of features ``[..., n, d]`` from uniform 32-bit draws, one per bit; for training."""
        return noisy_states(features != 0, draws(features.shape), self.law).astype(features.dtype)

    def plain(self) -> dict[str, float]:
        """Plain values from which :func:`feature_noise_from` makes this noise again."""
        return {"bit_add": self.law.p_add, "bit_remove": self.law.p_remove}

    def stream(self, graph: Graph, *, seed: int) -> BitStream:
        """The noisy features of a graph, drawn from ``seed``; refuses features of another kind."""
        return BitStream(self, graph, seed)


FeatureNoise = LabelNoise | BitNoise


def _present(features: NDArray[Any] | None, noise: str) -> NDArray[Any]:
    if features is None:
        raise InputError(f"{noise} needs node features; the graph has none (give it some, or leave feature_noise out)")
    return features


def checked_feature_noise(noise: Any) -> FeatureNoise | None:
    """The noise, if it is one; ``None`` for none."""
    if noise is not None and not isinstance(noise, FeatureNoise):
        raise InputError(
            f"feature_noise must be a LabelNoise or BitNoise; got {noise!r} (for instance LabelNoise(keep=0.9))"
        )
    return noise


def feature_noise_from(values: Mapping[str, Any]) -> FeatureNoise | None:
    """The noise that ``label_keep``, or ``bit_add`` and ``bit_remove``, describe; ``None`` without them.

    >>> feature_noise_from({"label_keep": 0.9})
    LabelNoise(keep=0.9)
    """
    keep, add, remove = map(values.get, ("label_keep", "bit_add", "bit_remove"))
    if keep is None and add is None and remove is None:
        return None
    if keep is None and (add is None or remove is None):
        raise InputError(f"noise on bits needs bit_add and bit_remove; got {add} and {remove} (pass 0 for none)")
    if keep is None:
        return BitNoise(add=add, remove=remove)
    if add is not None or remove is not None:
        raise InputError(
            "noise on node features is on labels or on bits; got label_keep and bit_add or bit_remove (leave one out)"
        )
    return LabelNoise(keep=keep)


def _shown(row: NDArray[Any]) -> str:
    """The first entries of a row."""
    return f"[{', '.join(f'{value:g}' for value in row[:8])}{', ...' if len(row) > 8 else ''}]"


FEATURE_NOISE = Parts(
    (
        Option("label_keep", float, "Probability that a node keeps its label (one-hot node features)."),
        Option("bit_add", float, "Probability that a binary node feature becomes 1."),
        Option("bit_remove", float, "Probability that a binary node feature becomes 0."),
    ),
    plain=lambda noise: {} if noise is None else noise.plain(),
    made=feature_noise_from,
    stored=("label_keep", "bit_add", "bit_remove"),
)
