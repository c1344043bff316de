"""Smoothing for single nodes: one noisy copy of the graph is a vote for every node.

votes = the model's label for every node on each of M noisy copies of the graph    (ask)
certificate = label and radius of a node that follow from its votes                (NodeVotes.certify)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.node_votes import NodeVotes
from flipproof.defences.defence import DefendedClassifier, Run
from flipproof.defences.node_target import SmoothedNodeTarget
from flipproof.defences.smoothing import Sampling, Smoothing
from flipproof.defences.target import Effort, SmoothedTarget
from flipproof.errors import InputError
from flipproof.fields import option
from flipproof.graphs import Graph, whole_graphs
from flipproof.noise import BLOCK, SampleStream

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
        counts, checksums = (
            np.zeros((graph.num_nodes, classifier.num_classes), dtype=np.uint32),
            list[tuple[str, str]](),
        )
        starts = range(0, request.samples, BLOCK)
        for part, *both in run(lambda start: self.node_block(classifier, graph, start, request), starts):
            counts += part
            checksums.append(tuple(both))
        of_edges, of_features = zip(*checksums, strict=True)
        votes = NodeVotes(counts, graph, self.noise, request.seed, of_edges, compared=len(starts))
        if self.feature_noise is None:
            return votes
        return replace(votes, feature_noise=self.feature_noise, feature_checksums=of_features)

    def node_block(
        self, classifier: DefendedClassifier, graph: Graph, start: int, request: Sampling
    ) -> tuple[NDArray[np.uint32], str, str]:
        """Counts ``[n, C]`` of one block of samples, as far as they are below the number requested, and its checksums.

        The checksums always cover the noise of the whole block.
        """
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
        return SmoothedNodeTarget(classifier, graph, self.noise, self.feature_noise, effort)

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
