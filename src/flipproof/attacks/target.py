"""What is attacked, the model itself or a defence around it, as a batched margin over sets of flips."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.attacks.constraints import attacked_states
from flipproof.bounds import checked_alpha, label_pvalue
from flipproof.checks import checked_count, checked_samples, checked_seed
from flipproof.classifiers import Classifier, as_classifier
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray
from flipproof.noise import EdgeNoise, NoisyBatch, keyed_draws, noisy_states
from flipproof.smoothing import SmoothedClassifier
from flipproof.voting import VotingClassifier

__all__ = [
    "BaseTarget",
    "Confirmation",
    "CopiesTarget",
    "Outcome",
    "SmoothedTarget",
    "Target",
    "VotingTarget",
    "as_target",
]

_MOST_ENTRIES = 2**24  # states held at once
_MOST_DRAWS = 2**28  # noisy slots that the common random numbers may cover
_CLEAR = 2.0  # standard errors by which a rival must lead on the noise that the attack was searched with
_STILL = EdgeNoise(add=0, remove=0)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What several sets of flips do, one entry each.

    Attributes:
        margins: The label's lead over its strongest rival, in logits or in shares of votes.
        guides: What a search makes small.
        fooled: Whether the answer is no longer the label.
    """

    margins: NDArray[np.float64]
    guides: NDArray[np.float64]
    fooled: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.fooled)

    def best(self) -> int:
        """The candidate to prefer: fooled ones first, then the smallest guide."""
        return int(np.lexsort((self.guides, ~self.fooled))[0])

    @classmethod
    def joined(cls, parts: Sequence[Outcome]) -> Outcome:
        """Several, one after the other."""
        if not parts:
            return cls(np.empty(0), np.empty(0), np.empty(0, dtype=np.bool_))
        return cls(
            np.concatenate([part.margins for part in parts]),
            np.concatenate([part.guides for part in parts]),
            np.concatenate([part.fooled for part in parts]),
        )


@dataclass(frozen=True)
class Confirmation:
    """Whether an attacked graph's answer surely differs from the label, and the label's lead there."""

    confirmed: bool
    margin: float
    p_value: float


class Target(ABC):
    """A graph, the label that an attacker wants away, and a classifier that counts its calls.

    Attributes:
        label: The class that the attacker wants the classifier to leave.
        calls: Graphs that the model was asked about so far.
        max_calls: Most of them, or ``None``; :meth:`evaluate` then leaves the last candidates out.
    """

    calls: int = 0

    def __init__(self, classifier: Classifier, graph: Graph, noise: EdgeNoise, max_calls: int | None) -> None:
        self.graph, self.max_calls = graph, max_calls
        self.classifier = classifier.suited(graph, noise)
        self.classifier.prepare()
        self._batch_size = self.classifier.batch_size(graph, noise)
        self.classifier.labels(self.batch(graph.slot_states[None]))  # refuses wrong shapes in one sentence
        self.label = 0

    @property
    @abstractmethod
    def cost(self) -> int:
        """Model calls that one candidate takes."""

    @property
    def room(self) -> int | None:
        """Candidates that can still be evaluated; ``None`` for any number."""
        return None if self.max_calls is None else max(0, self.max_calls - self.calls) // self.cost

    def evaluate(self, flips: IntArray) -> Outcome:
        """What each set of flips does (rows as in :class:`flipproof.attacks.constraints.Space`)."""
        flips = flips if self.room is None else flips[: self.room]
        self.calls += self.cost * len(flips)
        size = max(1, _MOST_ENTRIES // max(1, self.graph.num_slots * self.cost))
        parts = [
            self._evaluate(attacked_states(self.graph, flips[start : start + size]))
            for start in range(0, len(flips), size)
        ]
        return Outcome.joined(parts)

    @abstractmethod
    def prediction(self) -> int:
        """The answer on the clean graph."""

    @abstractmethod
    def confirm(self, graph: Graph) -> Confirmation:
        """Ask once more, about a whole attacked graph, in a way that the search had no part in."""

    @abstractmethod
    def _evaluate(self, states: NDArray[np.bool_]) -> Outcome: ...

    def batch(self, states: NDArray[np.bool_]) -> NoisyBatch:
        """Graphs with these states, for a classifier."""
        graph = self.graph
        return NoisyBatch(
            graph.num_nodes, len(states), graph.node_features, graph.slots, graph.frozen_edge_slots, states, None
        )

    def logits(self, states: NDArray[np.bool_]) -> NDArray[np.float64]:
        """The model's logits, or ones and zeros from a black box's labels, ``[B, C]``."""
        parts: list[NDArray[Any]] = []
        for start in range(0, len(states), self._batch_size):
            batch = self.batch(states[start : start + self._batch_size])
            if self.classifier.path == "callable":
                parts.append(np.eye(self.classifier.num_classes)[self.classifier.labels(batch)])
            else:
                parts.append(self.classifier.scores(batch).astype(np.float64))
        return np.concatenate(parts)

    def _margins(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        rivals = logits.copy()
        rivals[:, self.label] = -np.inf
        return np.asarray(logits[:, self.label] - rivals.max(axis=1))


class BaseTarget(Target):
    """The model's answer on the attacked graph itself."""

    cost = 1

    def _evaluate(self, states: NDArray[np.bool_]) -> Outcome:
        logits = self.logits(states)
        margins = self._margins(logits)
        return Outcome(margins, margins, logits.argmax(axis=1) != self.label)

    def prediction(self) -> int:
        self.calls += 1
        return int(self.logits(self.graph.slot_states[None])[0].argmax())

    def confirm(self, graph: Graph) -> Confirmation:
        self.calls += 1
        logits = self.logits(np.isin(self.graph.slots, graph.edge_slots)[None])
        fooled = bool(logits[0].argmax() != self.label)
        return Confirmation(fooled, float(self._margins(logits)[0]), 0.0 if fooled else 1.0)


class CopiesTarget(Target):
    """The most frequent answer on several copies of the candidate, made the same way for all candidates.

    Attributes:
        if_empty: State of every slot in every copy, were it empty, ``[S, N]``.
        if_edge: State of every slot in every copy, were it an edge, ``[S, N]``.
    """

    if_empty: NDArray[np.bool_]
    if_edge: NDArray[np.bool_]

    @property
    def cost(self) -> int:
        return len(self.if_edge)

    def _evaluate(self, states: NDArray[np.bool_]) -> Outcome:
        copies = np.where(states[:, None, :], self.if_edge, self.if_empty)
        logits = self.logits(copies.reshape(-1, states.shape[1]))
        soft = np.tanh(self._margins(logits)).reshape(len(states), self.cost).mean(axis=1)
        votes = logits.argmax(axis=1).reshape(len(states), self.cost)
        counts = (votes[:, :, None] == np.arange(self.classifier.num_classes)).sum(axis=1).astype(np.float64)
        margins = self._margins(counts)
        # votes alone stand still between copies that change sides; the soft margin tells which way they lean
        return Outcome(margins / self.cost, margins / self.cost + soft, self._fooled(counts, margins))

    @abstractmethod
    def _fooled(self, counts: NDArray[np.float64], margins: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which candidates count as fooled, from their votes for each class ``[K, C]`` and the label's lead ``[K]``."""


class SmoothedTarget(CopiesTarget):
    """The most frequent answer under noise, estimated on the same noise for all candidates.

    Common random numbers: slot ``i`` of sample ``m`` has one random integer, compared with the threshold of the state that the
    candidate has there, so that two candidates differ only where their flips do. A candidate counts as fooled when a rival
    leads by two standard errors; whether it truly is, :meth:`confirm` tells with fresh noise.
    """

    def __init__(
        self,
        smooth: SmoothedClassifier,
        graph: Graph,
        *,
        samples: int,
        confirm_samples: int,
        alpha: float,
        seed: int,
        max_calls: int | None,
    ) -> None:
        self.smooth, self.samples = smooth, checked_samples(samples)
        self.confirm_samples, self.alpha, self.seed = checked_samples(confirm_samples), checked_alpha(alpha), seed
        if self.samples * graph.num_slots > _MOST_DRAWS:
            raise InputError(
                f"samples times node pairs must be at most {_MOST_DRAWS:,}; got {self.samples} x {graph.num_slots:,} "
                "(lower samples)"
            )
        smooth.check([graph])
        draws = keyed_draws("attacks attack noise", seed, 0, (self.samples, graph.num_slots))
        self.if_empty = noisy_states(np.zeros(graph.num_slots, dtype=np.bool_), draws, smooth.noise)
        self.if_edge = noisy_states(np.ones(graph.num_slots, dtype=np.bool_), draws, smooth.noise)
        super().__init__(smooth.classifier, graph, smooth.noise, max_calls)

    def _fooled(self, counts: NDArray[np.float64], margins: NDArray[np.float64]) -> NDArray[np.bool_]:
        own = counts[:, self.label]
        fooled: NDArray[np.bool_] = -margins > _CLEAR * np.sqrt(2 * own - margins)
        return fooled

    def prediction(self) -> int:
        found = self.smooth.sample(self.graph, samples=self.confirm_samples, seed=_fresh_seed("clean", self.seed))
        self.calls += self.confirm_samples
        return int(found.counts.argmax())

    def confirm(self, graph: Graph) -> Confirmation:
        """On fresh noise, a binomial test of the strongest rival against the label, corrected for choosing the rival.

        An attack after which the label is still the smoothed classifier's answer passes with probability at most ``alpha``.
        """
        votes = self.smooth.sample(graph, samples=self.confirm_samples, seed=_fresh_seed("confirm", self.seed))
        self.calls += self.confirm_samples
        counts = votes.counts
        margin = float(self._margins(counts[None].astype(np.float64))[0])
        rival = int(counts[self.label] - margin)
        p_value = 1.0
        if margin < 0:  # the label test is two-sided: half of it, once for each rival
            p_value = min(1.0, float(label_pvalue(rival, counts[self.label])) / 2 * (len(counts) - 1))
        level = checked_alpha(self.alpha, samples=len(votes), discrepancy=votes.stream().discrepancy)
        return Confirmation(p_value <= level, margin / len(votes), p_value)


class VotingTarget(CopiesTarget):
    """The majority over hashed sub-graphs: copy ``t`` keeps the edges of group ``t``. Exact, ties to the smaller label."""

    def __init__(self, voting: VotingClassifier, graph: Graph, max_calls: int | None) -> None:
        self.voting = voting
        if voting.groups.count * graph.num_slots > _MOST_DRAWS:
            raise InputError(
                f"groups times node pairs must be at most {_MOST_DRAWS:,} in an attack; got {voting.groups.count} x "
                f"{graph.num_slots:,} (attack smaller graphs)"
            )
        voting.check([graph])
        group = voting.groups.of_slots(graph.slots, graph.num_nodes)
        self.if_edge = group == np.arange(voting.groups.count)[:, None]
        self.if_empty = np.zeros_like(self.if_edge)
        super().__init__(voting.classifier, graph, voting.density, max_calls)

    def _fooled(self, counts: NDArray[np.float64], margins: NDArray[np.float64]) -> NDArray[np.bool_]:
        fooled: NDArray[np.bool_] = counts.argmax(axis=1) != self.label
        return fooled

    def prediction(self) -> int:
        self.calls += self.cost
        return self.voting.predict(self.graph)

    def confirm(self, graph: Graph) -> Confirmation:
        self.calls += self.cost
        counts = self.voting.vote_checked(graph).counts
        fooled = bool(counts.argmax() != self.label)
        return Confirmation(fooled, float(self._margins(counts[None] / self.cost)[0]), 0.0 if fooled else 1.0)


def _fresh_seed(purpose: str, seed: int) -> int:
    digest = hashlib.blake2b(f"flipproof attacks {purpose} {seed}".encode(), digest_size=16).digest()
    return int.from_bytes(digest[:7], "little")


def as_target(
    model: Any,
    graph: Graph,
    *,
    label: int | None = None,
    num_classes: int | None = None,
    features: Any = None,
    convention: str | None = None,
    samples: int = 256,
    confirm_samples: int = 10_000,
    alpha: float = 0.001,
    seed: int = 0,
    max_calls: int | None = None,
) -> Target:
    """The target that a user means: a defended classifier is attacked with its defence, anything else as it is."""
    if isinstance(model, (SmoothedClassifier, VotingClassifier)):
        for name, value in (("num_classes", num_classes), ("features", features), ("convention", convention)):
            if value is not None:
                raise InputError(f"a {type(model).__name__} has its own {name}; got {value!r} (leave it out)")
    if isinstance(model, VotingClassifier):
        target: Target = VotingTarget(model, graph, max_calls)
    elif isinstance(model, SmoothedClassifier):
        target = SmoothedTarget(
            model,
            graph,
            samples=samples,
            confirm_samples=confirm_samples,
            alpha=alpha,
            seed=checked_seed(seed),
            max_calls=max_calls,
        )
    else:
        num_classes = getattr(model, "num_classes", None) if num_classes is None else num_classes
        num_classes = checked_count(num_classes, "num_classes", 2, "count the declared classes")
        classifier = as_classifier(model, num_classes=num_classes, features=features, convention=convention)
        target = BaseTarget(classifier, graph, _STILL, max_calls)
    if label is None:
        target.label = target.prediction()
    elif isinstance(label, bool) or not isinstance(label, (int, np.integer)):
        raise InputError(f"label must be a class number; got {label!r} (None for the model's own answer)")
    elif not 0 <= label < target.classifier.num_classes:
        raise InputError(f"label must lie in 0..{target.classifier.num_classes - 1}; got {label}")
    else:
        target.label = int(label)
    if max_calls is not None:  # asking for the label is not part of the search
        target.max_calls = max_calls + target.calls
    return target
