"""Certificates of single nodes, of a classifier with noise."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.node_votes import NodeVotes, checked_nodes
from flipproof.certificates.vote_share import checked_alpha
from flipproof.defences.defence import DefendedClassifier, feature_noise_of


class NodeCertifier(DefendedClassifier):
    """A model under noise, whose answers about single nodes are certified."""

    def certify_nodes(
        self,
        graph: Any,
        nodes: Any = None,
        *,
        samples: int = 10_000,
        alpha: float = 0.001,
        simultaneous: bool = False,
        seed: int | None = None,
    ) -> list[Certificate]:
        """The smoothed prediction for each node, and the number of edge flips, anywhere in the graph, that it withstands.

        For a model with a row of logits per node, ``forward(x, edge_index)``. Each certificate holds with probability at least
        ``1 - alpha``; one noisy copy of the graph is a sample for all nodes.

        Args:
            graph, samples, alpha, seed: As for :meth:`SmoothedClassifier.certify`.
            nodes: Numbers of the nodes to certify, or a mask; all by default.
            simultaneous: Let alpha hold for all these nodes at once.
        """
        known = self.graph_of(graph)
        chosen = checked_nodes(nodes, known.num_nodes)
        return self.sample_nodes(known, samples=samples, seed=seed).certificates(
            chosen, alpha=checked_alpha(alpha), simultaneous=simultaneous
        )

    def sample_nodes(self, graph: Any, *, samples: int = 10_000, seed: int | None = None) -> NodeVotes:
        """The model's votes for every node on noisy copies of a graph; ``certificates`` reads certificates off them."""
        from flipproof.defences.node_smoothing import NodeSampling

        votes: NodeVotes = self._for_nodes._evidence(self.graph_of(graph), NodeSampling(samples, seed=seed))
        return votes

    @cached_property
    def _for_nodes(self) -> DefendedClassifier:
        """The same model and noise as a classifier of single nodes."""
        from flipproof.defences.node_smoothing import NodeSmoothing

        defence = NodeSmoothing(self.defence.trial_noise, feature_noise_of(self.defence))
        options = self.num_classes, self.features, "nodes", self.guard.trust_features, self.classifier.memory
        return DefendedClassifier(self.model, defence, *options)
