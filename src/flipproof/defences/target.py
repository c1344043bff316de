"""What is attacked, the model itself or a defence around it, as a batched margin over sets of flips.

A set of flips is a row of positions, each once; -1 fills up shorter rows. Position ``i`` is ``graph.slots[i]``, and position
``N + i`` the change of entry ``i`` of the node features, row by row: a node's new label, or a bit that flips.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.vote_share import checked_alpha, label_pvalue
from flipproof.checks import checked_integer, checked_samples, checked_seed
from flipproof.defences.changed_nodes import with_changes
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray, pairs_of_slots
from flipproof.noise import EdgeNoise, NoisyBatch, keyed_draws, noisy_states

if TYPE_CHECKING:
    from flipproof.defences.defence import DefendedClassifier

_MOST_ENTRIES = 2**24  # states held at once
_MOST_COPIES = 2**28  # slots of all copies of a candidate
_CLEAR = 2.0  # standard errors by which a rival must lead on the noise that the attack was searched with


@dataclass(frozen=True, eq=False)
class Outcome:
    """What several sets of flips do, one entry each."""

    margins: NDArray[np.float64]  # the label's lead over its strongest rival, in logits or in shares of votes
    guides: NDArray[np.float64]  # what a search makes small
    fooled: NDArray[np.bool_]  # whether the answer is no longer the label

    def __len__(self) -> int:
        return len(self.fooled)

    def best(self) -> int:
        return int(np.lexsort((self.guides, ~self.fooled))[0])


@dataclass(frozen=True)
class Effort:
    """How an attack looks at a classifier; see :class:`flipproof.attacks.Attack`."""

    samples: int = 256
    confirm_samples: int = 10_000
    alpha: float = 0.001
    seed: int = 0
    max_calls: int | None = None


class Target(ABC):
    """A graph, the label that an attacker wants away, and a classifier that counts its calls."""

    label: int = 0  # the class that the attacker wants the classifier to leave
    cost: int = 1  # model calls that one candidate takes
    noise: EdgeNoise  # where there is any, drawn from the seed
    seed: int = 0
    calls: int = 0  # graphs that the model was asked about so far, at most max_calls
    alpha: float = 0.0  # probability with which a false success is confirmed; 0 where nothing is sampled

    def __init__(self, defended: DefendedClassifier, graph: Graph, effort: Effort) -> None:
        self.graph, self.max_calls = graph, effort.max_calls
        self._check(defended)
        self.defended = copy.copy(defended)
        self.defended.guard = defended.guard.trusting()
        self._prepare()

    def _check(self, defended: DefendedClassifier) -> None:
        """Refuse what cannot be attacked."""
        defended.check([self.graph])

    def _prepare(self) -> None:
        """Make the model ready for the graph."""
        self._features = self.features_of(self.graph)
        self.classifier, self._batch_size = self.defended.suited(self.graph)
        self.classifier.prepare()
        self.classifier.labels(self.batch(self.graph.slot_states[None]))  # refuses wrong shapes in one sentence

    def aim(self, label: Any) -> None:
        """Set the class to be left: the one given, or by default the classifier's own answer."""
        most = self.classifier.num_classes - 1
        own = "or None for the model's own answer"
        self.label = self.prediction() if label is None else checked_integer(label, "label", 0, most, own)
        if self.max_calls is not None:  # asking for the label is not part of the search
            self.max_calls += self.calls

    @property
    def room(self) -> int | None:
        """Candidates that can still be evaluated; ``None`` for any number."""
        return None if self.max_calls is None else max(0, self.max_calls - self.calls) // self.cost

    def evaluate(self, flips: IntArray) -> Outcome:
        flips = flips if self.room is None else flips[: self.room]
        self.calls += self.cost * len(flips)
        pairs, number = self.graph.num_slots, len(flips)
        outcome = Outcome(np.empty(number), np.empty(number), np.empty(number, dtype=np.bool_))
        size = max(1, _MOST_ENTRIES // max(1, pairs * self.cost))
        entries = np.pad(np.where(flips < pairs, -1, flips - pairs), ((0, 0), (0, 1)), constant_values=-1)
        kinds, kind = np.unique(np.sort(entries, axis=1), axis=0, return_inverse=True)
        for index, changes in enumerate(kinds):
            target, rows = self.changed(changes[changes >= 0]), np.flatnonzero(kind.ravel() == index)
            for chosen in np.split(rows, range(size, len(rows), size)):
                part = flips[chosen]
                states = np.repeat(self.graph.slot_states[None], len(part), axis=0)
                row, place = np.nonzero((part >= 0) & (part < pairs))
                states[row, part[row, place]] ^= True
                evaluated = target._evaluate(states)
                for name in ("margins", "guides", "fooled"):
                    getattr(outcome, name)[chosen] = getattr(evaluated, name)
        return outcome

    def changed(self, entries: IntArray) -> Self:
        """The same target on the graph after changes of these entries of its node features."""
        if not len(entries):
            return self
        target = copy.copy(self)
        target._look_at(with_changes(self.graph, entries))
        return target

    def _look_at(self, graph: Graph) -> None:
        """Attack this graph, which has the same edges and other node features."""
        self.graph, self._features = graph, self.features_of(graph)

    def known(self) -> IntArray:
        """Sets of flips that the defence itself came across and that should succeed, ``[K, d]``; none by default."""
        return np.empty((0, 0), dtype=np.int64)

    def prediction(self) -> int:
        """The answer on the clean graph; class 0 where it abstains."""
        self.calls += self.cost
        return self.defended.predict(self.graph) or 0

    def confirm(self, graph: Graph) -> tuple[bool, float | None]:
        """Whether a whole attacked graph's answer surely differs from the label, and the label's lead, if it is seen afresh."""
        self.calls += self.cost
        return self.defended.predict(graph) != self.label, None

    @abstractmethod
    def _evaluate(self, states: NDArray[np.bool_]) -> Outcome: ...

    def features_of(self, graph: Graph) -> Any:
        """The node features of a graph in every copy, ``[S, n, d]``; ``None`` where all copies show them as they are."""
        return None

    def batch(self, states: NDArray[np.bool_], first: int = 0) -> NoisyBatch:
        """Graphs with these states; their node features are those of the copies from number ``first`` on."""
        fixed, x = self.graph.frozen_edge_slots, self.graph.node_features
        if self._features is not None:
            x = self._features[np.arange(first, first + len(states)) % self.cost]
        return NoisyBatch(self.graph.num_nodes, len(states), x, self.graph.slots, fixed, states, None)

    def logits(self, states: NDArray[np.bool_]) -> NDArray[np.float64]:
        """The model's logits, or ones and zeros from a black box's labels, ``[B, C]``."""
        parts: list[NDArray[Any]] = []
        for start in range(0, len(states), self._batch_size):
            batch = self.batch(states[start : start + self._batch_size], start)
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

    def _check(self, defended: DefendedClassifier) -> None:
        """Nothing: no certificate is to be true."""

    def _evaluate(self, states: NDArray[np.bool_]) -> Outcome:
        logits = self.logits(states)
        margins = self._margins(logits)
        return Outcome(margins, margins, logits.argmax(axis=1) != self.label)


class CopiesTarget(Target):
    """The most frequent answer on copies of the candidate, made the same way for all: ``if_empty`` and ``if_edge`` are the states
    of every slot in every copy, were it empty or an edge, ``[S, N]``."""

    relaxed: int | None = None  # copies that stand for all where slopes are computed; by default all
    copies_are, remedy = "samples", "lower samples"

    def _check(self, defended: DefendedClassifier) -> None:
        slots = self.graph.num_slots
        if self.cost * slots > _MOST_COPIES:
            raise InputError(
                f"{self.copies_are} times pairs must be at most {_MOST_COPIES:,}; got {self.cost:,} x {slots:,} ({self.remedy})"
            )
        super()._check(defended)
        self.if_empty, self.if_edge = self._copies()

    @abstractmethod
    def _copies(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """``if_empty`` and ``if_edge``."""

    def _evaluate(self, states: NDArray[np.bool_]) -> Outcome:
        copies = np.where(states[:, None, :], self.if_edge, self.if_empty)
        return self._outcome(self.logits(copies.reshape(-1, states.shape[1])))

    def _outcome(self, logits: NDArray[np.float64]) -> Outcome:
        """From the logits of all copies of every candidate, ``[K * copies, C]``."""
        soft = np.tanh(self._margins(logits)).reshape(-1, self.cost).mean(axis=1)
        votes = logits.argmax(axis=1).reshape(-1, self.cost)
        counts = (votes[:, :, None] == np.arange(self.classifier.num_classes)).sum(axis=1).astype(np.float64)
        margins = self._margins(counts)
        # votes alone stand still between copies that change sides; the soft margin tells which way they lean
        return Outcome(margins / self.cost, margins / self.cost + soft, self._fooled(counts, margins))

    @abstractmethod
    def _fooled(self, counts: NDArray[np.float64], margins: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which candidates count as fooled, from their votes ``[K, C]`` and the label's lead ``[K]``."""


class SmoothedTarget(CopiesTarget):
    """The most frequent answer under noise, estimated on the same noise for all candidates: two differ only where their flips do.
    A candidate counts as fooled when a rival leads by two standard errors."""

    relaxed = 32

    def __init__(self, defended: DefendedClassifier, graph: Graph, effort: Effort) -> None:
        self.noise, self.confirm_samples = defended.defence.trial_noise, checked_samples(effort.confirm_samples)
        self.alpha, self.seed = checked_alpha(effort.alpha), checked_seed(effort.seed)
        self.cost = checked_samples(effort.samples)
        super().__init__(defended, graph, effort)

    def _copies(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        draws = keyed_draws("attack noise", self.seed, 0, (self.cost, self.graph.num_slots))
        empty = np.zeros(draws.shape, dtype=np.bool_)
        return noisy_states(empty, draws, self.noise), noisy_states(~empty, draws, self.noise)

    def features_of(self, graph: Graph) -> Any:
        noise = getattr(self.defended.defence, "feature_noise", None)
        return None if noise is None else noise.stream(graph, seed=self.seed).shown(0, self.cost)[0]

    def _fooled(self, counts: NDArray[np.float64], margins: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.asarray(-margins > _CLEAR * np.sqrt(2 * counts[:, self.label] - margins))

    def prediction(self) -> int:
        return int(self._votes(self.graph, "clean")[0].argmax())

    def confirm(self, graph: Graph) -> tuple[bool, float | None]:
        """On fresh noise, a binomial test of the strongest rival against the label, corrected for choosing the rival.

        An attack after which the label is still the smoothed classifier's answer passes with probability at most ``alpha``.
        """
        counts, level = self._votes(graph, "confirm")
        margin = float(self._margins(counts[None].astype(np.float64))[0])
        rival = int(counts[self.label] - margin)
        # the label test is two-sided: half of it, once for each rival
        p_value = float(label_pvalue(rival, counts[self.label])) / 2 * (len(counts) - 1) if margin < 0 else 1.0
        return p_value <= level, margin / self.confirm_samples

    def _votes(self, graph: Graph, purpose: str) -> tuple[IntArray, float]:
        """Votes for each class on noise that the search had no part in, and what is left of alpha."""
        seed, defence = int(keyed_draws(f"attack {purpose}", self.seed, 0, (1,))[0]), self.defended.defence
        self.defended.check([graph])
        self.calls += self.confirm_samples
        votes: Any = defence.ask(self.defended, graph, defence.request(self.confirm_samples, seed=seed))
        counts = votes.counts if graph.node is None else votes.counts[graph.node].astype(np.int64)
        return counts, votes.remaining(self.alpha)


class AnswersTarget(Target):
    """Any defence, by its answer on each attacked graph: exact, nothing batched, no slope to follow."""

    def _evaluate(self, states: NDArray[np.bool_]) -> Outcome:
        graph = self.graph
        flips = (pairs_of_slots(graph.slots[row ^ graph.slot_states], graph.num_nodes) for row in states)
        stands = np.array([self.defended.predict(graph.flipped(pairs)) == self.label for pairs in flips])
        margins = np.where(stands, 1.0, -1.0)
        return Outcome(margins, margins, ~stands)


def target_of(model: Any, graph: Graph, effort: Effort, *, label: int | None = None, **own: Any) -> Target:
    """What a user means to attack: a defended classifier with its defence, anything else as it is with its ``own`` arguments."""
    from flipproof.defences.baselines import Undefended
    from flipproof.defences.defence import DefendedClassifier

    arguments = {key: value for key, value in own.items() if value is not None}
    if not isinstance(model, DefendedClassifier):
        model = Undefended(model, **arguments)
    elif arguments:
        name, value = next(iter(arguments.items()))
        raise InputError(f"a {type(model).__name__} has its own {name}; got {value!r} (leave it out)")
    target: Target = model.defence.target(model, graph, effort)
    target.aim(label)
    return target
