"""Smoothing for single nodes: one noisy copy of the graph is a vote for every node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.node_votes import NodeVotes
from flipproof.defences.defence import DefendedClassifier, Run, feature_noise_of
from flipproof.defences.smoothing import Sampling, Smoothing
from flipproof.defences.target import BaseTarget, Effort, Outcome, SmoothedTarget
from flipproof.errors import InputError
from flipproof.fields import option
from flipproof.graphs import Graph, IntArray, whole_graphs
from flipproof.noise import BLOCK, Neighbours, NoisyBatch, SampleStream, SlotLists, keyed_draws, noisy_states

if TYPE_CHECKING:
    from flipproof.classifiers.node_model import NodeClassifier


@dataclass(frozen=True)
class NodeSampling(Sampling):
    """How many noisy copies of the graph are asked about, and how the votes are read: by their shares."""

    method: str = option(default="votes", stored=None)

    @property
    def reading(self) -> dict[str, Any]:
        return {"alpha": self.level}

    @property
    def other_readings(self) -> dict[str, dict[str, Any]]:
        return {}


@dataclass(frozen=True)
class NodeSmoothing(Smoothing):
    """Ask about every node of noisy copies of the graph, and let the copies vote."""

    name = "node-smoothing"
    evidence = NodeVotes  # type: ignore[assignment]
    request = NodeSampling

    def check(self, classifier: DefendedClassifier, graphs: Sequence[Graph], request: Any = None) -> None:
        base, wholes = node_classifier(classifier), whole_graphs(graphs)
        base.begin()
        base.prepare()
        classifier.guard.check_features(wholes)
        for graph in wholes:
            base.check_memory(graph, self.noise)
            base.try_on_nodes(graph, self.noise)

    def ask(  # type: ignore[override]
        self, classifier: DefendedClassifier, graph: Graph, request: Sampling, run: Run = map
    ) -> NodeVotes:
        starts = range(0, request.samples, BLOCK)
        counts = np.zeros((graph.num_nodes, classifier.num_classes), dtype=np.uint32)
        checksums = list[tuple[str, str]]()
        for part, *both in run(lambda start: self.node_block(classifier, graph, start, request), starts):
            counts += part
            checksums.append(tuple(both))
        of_edges, of_features = zip(*checksums, strict=True)
        features = self.feature_noise, () if self.feature_noise is None else of_features
        return NodeVotes(counts, graph, self.noise, request.seed, of_edges, None, len(starts), *features)

    def node_block(
        self, classifier: DefendedClassifier, graph: Graph, start: int, request: Sampling
    ) -> tuple[NDArray[np.uint32], str, str]:
        """Counts ``[n, C]`` of one block of samples, as far as they are wanted, and checksums of the noise of the whole block."""
        stream, base = SampleStream(graph, self.noise, seed=request.seed), node_classifier(classifier)
        base.prepare()
        noisy = None if self.feature_noise is None else self.feature_noise.stream(graph, seed=request.seed)
        checksums, ones = [drawn.new_checksum() for drawn in (stream, noisy) if drawn is not None], None
        size, nodes, classes = base.batch_size(graph, self.noise), graph.num_nodes, classifier.num_classes
        counts = np.zeros(nodes * classes, dtype=np.int64)
        for begin in range(start, start + BLOCK, size):
            batch, flips = stream.batch(begin, begin + size)
            checksums[0].update(flips)
            if noisy is not None:
                drawn, changes = noisy.batch(begin, begin + size)
                checksums[1].update(changes)
                ones = noisy.ones(drawn, size)
            wanted = min(size, request.samples - begin)
            if wanted <= 0:
                continue
            labels = base.node_labels(batch if wanted == size else batch.only(np.arange(wanted)), ones)
            counts += np.bincount((np.arange(nodes) * classes + labels).ravel(), minlength=nodes * classes)
            if begin == start and not np.array_equal(base.node_labels(batch.only(np.array([0])), ones)[0], labels[0]):
                raise InputError(
                    "the model gave different answers about the same noisy graph: it is not a function of the graph alone, and "
                    "certificates would be false (dropout or other randomness, or a cache?)"
                )
        digests = [checksum.hexdigest() for checksum in checksums]
        return counts.reshape(nodes, classes).astype(np.uint32), digests[0], digests[-1]

    def target(self, classifier: DefendedClassifier, graph: Graph, effort: Effort) -> SmoothedTarget:
        meant_node(graph)
        return SmoothedNodeTarget(classifier, graph, effort)

    def answer(self, classifier: DefendedClassifier, graph: Graph) -> int | None:
        node = meant_node(graph)
        classifier.check([graph])
        return self.ask(classifier, graph, NodeSampling(1_000, seed=None)).of(node).certify(alpha=0.001).label


def meant_node(graph: Graph) -> int:
    if graph.node is None:
        raise InputError(
            "a model for nodes answers about a node; got a graph without one (use certify_nodes, or graph.replaced(node=0))"
        )
    return graph.node


def node_classifier(classifier: DefendedClassifier) -> NodeClassifier:
    """The base classifier, if it answers single nodes."""
    from flipproof.classifiers.node_model import NodeClassifier  # needs torch

    if not isinstance(classifier.classifier, NodeClassifier):
        raise InputError(
            f"certificates of nodes need a torch module in PyG's convention forward(x, edge_index); got one that is asked as "
            f"{classifier.classifier.path} (return a row of logits per node)"
        )
    return classifier.classifier


class NodeTarget(BaseTarget):
    """An attack on a node. Lists of edges stand for copies, so that large graphs fit: a flip changes one entry of each."""

    def _prepare(self) -> None:
        self.noise = self.defended.defence.trial_noise
        self.classifier = self._nodes = node_classifier(self.defended)
        self._nodes.prepare()
        self._nodes.try_on_nodes(self.graph, self.noise)
        sample, slot = SampleStream(self.graph, self.noise, seed=self.seed).batch(0, self.cost)[0].edge_lists()
        self._edges = np.split(slot, np.searchsorted(sample, np.arange(1, self.cost)))  # of every copy, ascending
        self._features = self.features_of(self.graph)

    def features_of(self, graph: Graph) -> list[IntArray] | None:
        """Where the node features of every copy are 1, if they are under noise."""
        noise = feature_noise_of(self.defended.defence)
        if noise is None:
            return None
        stream = noise.stream(graph, seed=self.seed)
        return stream.ones(stream.batch(0, self.cost)[0], self.cost)

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
        return self._nodes.scores_of(meant_node(graph), batch, self._features)


class SmoothedNodeTarget(NodeTarget, SmoothedTarget):
    """The most frequent answer about a node under noise, estimated on the same noise for all candidates."""

    def _evaluate(self, states: NDArray[np.bool_]) -> Outcome:
        return self._outcome(self.logits(states))
