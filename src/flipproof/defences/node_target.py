"""What an attack on a single node minimises: the lead of its class, on one graph or on noisy copies of it.

Lists of edges stand for copies, so that large graphs fit: a flip changes one entry of each.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.vote_share import checked_alpha
from flipproof.checks import checked_samples, checked_seed
from flipproof.defences.target import Effort, Outcome, SmoothedTarget, Target
from flipproof.graphs import Graph, IntArray
from flipproof.noise import (
    EdgeNoise,
    FeatureNoise,
    Neighbours,
    NoisyBatch,
    SampleStream,
    SlotLists,
    keyed_draws,
    noisy_states,
)

if TYPE_CHECKING:
    from flipproof.defences.defence import DefendedClassifier

_STILL = EdgeNoise(add=0, remove=0)


class NodeTarget(Target):
    """The model's answer about a node of the attacked graph."""

    noise: EdgeNoise = _STILL
    feature_noise: FeatureNoise | None = None
    seed: int = 0

    def __init__(self, defended: DefendedClassifier, graph: Graph, effort: Effort) -> None:
        from flipproof.defences.node_smoothing import node_classifier

        self.defended, self.graph, self.max_calls = copy.copy(defended), graph, effort.max_calls
        self.defended.guard = defended.guard.trusting()
        self.base = self.classifier = node_classifier(defended)
        self.base.prepare()
        self.base.try_on_nodes(graph, self.noise)
        sample, slot = SampleStream(graph, self.noise, seed=self.seed).batch(0, self.cost)[0].edge_lists()
        self._edges = np.split(slot, np.searchsorted(sample, np.arange(1, self.cost)))  # of every copy, ascending
        self._ones = self._ones_of(graph)

    def _ones_of(self, graph: Graph) -> list[IntArray] | None:
        """Where the node features of every copy are 1, if they are under noise."""
        if self.feature_noise is None:
            return None
        stream = self.feature_noise.stream(graph, seed=self.seed)
        return stream.ones(stream.batch(0, self.cost)[0], self.cost)

    def seeing(self, graph: Graph) -> Any:
        target = copy.copy(self)
        target.graph, target._ones = graph, self._ones_of(graph)
        return target

    def logits(self, states: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Of every copy of every candidate, the logits of the node, ``[K * copies, C]``."""
        return np.concatenate([self._candidate(np.flatnonzero(row ^ self.graph.slot_states)) for row in states])

    def _candidate(self, places: IntArray) -> NDArray[np.float64]:
        """Of a candidate with these places flipped; a flipped pair is drawn anew in every copy, the same for all candidates."""
        graph, flipped, copies = self.graph, self.graph.slots[places], np.arange(self.cost)
        shown = np.empty((len(flipped), self.cost), dtype=np.bool_)
        for row, (slot, state) in enumerate(zip(flipped.tolist(), ~graph.slot_states[places], strict=True)):
            draws = keyed_draws(f"attack pair {slot}", self.seed, 0, (self.cost,))
            shown[row] = noisy_states(np.full(self.cost, state), draws, self.noise)
        kept = [edges[~np.isin(edges, flipped, assume_unique=True)] for edges in self._edges]
        lists = [np.concatenate([edges, flipped[shown[:, index]]]) for index, edges in enumerate(kept)]
        together = SlotLists(np.repeat(copies, [len(edges) for edges in lists]), np.concatenate(lists))
        listed = Neighbours.of(together, self.cost, graph.num_nodes)
        batch = NoisyBatch(graph.num_nodes, self.cost, graph.node_features, None, graph.frozen_edge_slots, None, listed)
        assert graph.node is not None
        return self.base.scores_of(graph.node, batch, self._ones)

    def _evaluate(self, states: NDArray[np.bool_]) -> Outcome:
        logits = self.logits(states)
        margins = self._margins(logits)
        return Outcome(margins, margins, logits.argmax(axis=1) != self.label)


class SmoothedNodeTarget(NodeTarget, SmoothedTarget):
    """The most frequent answer about a node under noise, estimated on the same noise for all candidates."""

    def __init__(
        self,
        defended: DefendedClassifier,
        graph: Graph,
        noise: EdgeNoise,
        feature_noise: FeatureNoise | None,
        effort: Effort,
    ) -> None:
        self.noise, self.feature_noise, self.cost = noise, feature_noise, checked_samples(effort.samples)
        self.alpha, self.confirm_samples = checked_alpha(effort.alpha), checked_samples(effort.confirm_samples)
        self.seed = checked_seed(effort.seed)
        NodeTarget.__init__(self, defended, graph, effort)

    def _evaluate(self, states: NDArray[np.bool_]) -> Outcome:
        return self._outcome(self.logits(states))

    def _votes(self, graph: Graph, purpose: str) -> tuple[IntArray, float]:
        votes = self._cast(graph, purpose)
        return votes.counts[graph.node].astype(np.int64), votes.remaining(self.alpha)
