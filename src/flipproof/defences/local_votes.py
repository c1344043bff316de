"""What a local network says of the views of a graph's nodes, in 64-bit arithmetic: for certificates, answers and attacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from flipproof.certificates.local_scores import LocalScores, answer_of, edge_changes, graph_scores, leads_over_rivals
from flipproof.certificates.node_views import NodeViews, count_neighbours, kinds_of, unique_rows, views_of
from flipproof.defences.defence import DefendedClassifier
from flipproof.defences.local import depth_of
from flipproof.defences.target import AnswersTarget, Outcome
from flipproof.graphs import Graph, IntArray, pairs_of_slots
from flipproof.models.local_network import LocalViews

_MOST_ROWS = 2**14  # views that the network is asked about at once

Floats = NDArray[np.float64]


def look(classifier: DefendedClassifier, graph: Graph, per_node: int | None, *, most: int | None = None) -> LocalScores:
    """The votes on all views that attacks reach; no deeper than attacks of ``most`` flips need."""
    nodes = NodeSet(classifier, graph)
    depth = min(depth_of(per_node, nodes.num_kinds, graph), most or graph.num_nodes)
    views = views_of(graph, nodes.kinds, depth)
    clean = nodes.scores(views.own[: views.num_clean], views.counts[: views.num_clean])
    scores = np.concatenate([clean, nodes.scores(views.own[views.num_clean :], views.counts[views.num_clean :])])
    offsets = None
    if not classifier.model.in_features:
        changes = edge_changes(graph, depth)
        offsets = nodes.offsets(graph.num_edges + changes)
        offsets[changes == 0] = nodes.offset  # in a batch of another shape it may round differently
    kinds: Any = nodes.kinds.astype(np.uint32)
    whole = graph, classifier.num_classes, kinds, depth, nodes.offset, scores
    return LocalScores(*whole, nodes.rounding(views), nodes.bound, offsets)


def answer_to(classifier: DefendedClassifier, graph: Graph) -> int | None:
    return answer_of(NodeSet(classifier, graph).totals(), classifier.num_classes)


class NodeSet:
    """The nodes of a graph without its edges, as the network reads them in 64-bit arithmetic."""

    def __init__(self, classifier: DefendedClassifier, graph: Graph) -> None:
        self.graph, self.network = graph, classifier.derived
        nodes = classifier.features.of(graph).to(torch.float32)[:, : self.network.in_features]
        features = self.network.measured(nodes.double()).numpy()
        odds = self.network.odds.of_nodes(nodes, [graph.num_nodes]) if self.network.in_features else None
        rows, self.kinds = kinds_of(features)
        self.rows, self.num_kinds = torch.from_numpy(rows), len(rows)
        self.sizes = torch.tensor([graph.num_nodes], dtype=torch.float64)
        total = torch.from_numpy(np.sort(features, axis=0).sum(axis=0, keepdims=True))
        with torch.inference_mode():
            self.context = self.network.context(self.sizes, total, odds)
        self.offset: Floats = self.offsets(np.array([graph.num_edges]))[0]

    @property
    def bound(self) -> Floats | None:
        largest = self.network.largest_votes(self.context)
        # a hyperbolic tangent may round up
        return None if largest is None else np.full(len(self.offset), float(largest) * (1 + 1e-12))

    def totals(self) -> Floats:
        """The scores of all pairs of classes, ``[P]``, in the same arithmetic as :func:`look`."""
        views = NodeViews.of(self.graph, self.kinds, 0)
        return graph_scores(views, self.offset, self.scores(views.own, views.counts))

    @torch.inference_mode()
    def offsets(self, edges: IntArray) -> Floats:
        """The scores of the node set with these numbers of edges, ``[E, P]``."""
        number = len(edges)
        counts = self.network.count_inputs(self.sizes.expand(number), torch.from_numpy(edges).double())
        offsets: Floats = self.network.offsets(self.context.expand(number, -1), counts).numpy().copy()
        return offsets

    @torch.inference_mode()
    def scores(self, own: IntArray, counts: IntArray) -> Floats:
        votes = [np.empty((0, len(self.offset)))]
        for start in range(0, len(own), _MOST_ROWS):
            part = slice(start, start + _MOST_ROWS)
            rows, neighbours = self.rows[torch.from_numpy(own[part])], torch.from_numpy(counts[part].astype(float))
            graph = torch.zeros(len(rows), dtype=torch.int64)
            inputs = self.network.view_inputs(LocalViews.counted(rows, neighbours, self.rows, graph), self.sizes)
            votes.append(self.network.view_scores(inputs, self.context, graph).numpy())
        return np.concatenate(votes)

    @torch.inference_mode()
    def rounding(self, views: NodeViews) -> Floats:
        """Bound on the error of any score."""
        # sums of absolute values: rounding in a sum of features is relative to them
        rows, counts = self.rows.abs(), torch.from_numpy(views.counts.max(axis=0, keepdims=True).astype(np.float64))
        degree = torch.tensor([float(views.counts.sum(axis=1).max())], dtype=torch.float64)
        most = LocalViews.counted(rows.amax(dim=0, keepdim=True), counts, rows, torch.zeros(1, dtype=torch.int64))
        inputs = self.network.largest_inputs(most._replace(degrees=degree), self.sizes)
        bound: Floats = self.network.rounding(inputs, self.context, self.sizes).numpy().copy()
        return bound


class LocalTarget(AnswersTarget):
    """A local network's answer on many attacked graphs at a time: only nodes that an attack touches are asked again."""

    def _prepare(self) -> None:
        super()._prepare()
        self._pairs = pairs_of_slots(self.graph.slots, self.graph.num_nodes)
        self._look_at(self.graph)

    def _look_at(self, graph: Graph) -> None:
        super()._look_at(graph)
        self._node_set = nodes = NodeSet(self.defended, graph)
        self._counts = count_neighbours(self.graph.edges, nodes.kinds, nodes.num_kinds)
        self._votes = nodes.scores(nodes.kinds, self._counts)

    def _evaluate(self, states: NDArray[np.bool_]) -> Outcome:
        nodes, n = self._node_set, self.graph.num_nodes
        flip, slot = np.nonzero(states != self.graph.slot_states)
        change = np.where(states[flip, slot], 1, -1)
        ends = self._pairs[slot]
        touched, row = np.unique(flip[:, None] * n + ends, return_inverse=True)
        counts = self._counts[touched % n]
        np.add.at(counts, (row.reshape(-1, 2), nodes.kinds[ends[:, ::-1]]), change[:, None])
        votes = np.repeat(self._votes[None], len(states), axis=0)
        if len(touched):
            distinct, _, place = unique_rows(np.column_stack([nodes.kinds[touched % n], counts]))
            votes[touched // n, touched % n] = nodes.scores(distinct[:, 0], distinct[:, 1:])[place]
        edges = self.graph.num_edges + np.bincount(flip, change, len(states)).astype(np.int64)
        offsets = nodes.offsets(edges)
        margins = leads_over_rivals(offsets + votes.sum(axis=1), self.label, self.defended.num_classes).min(axis=1)
        return Outcome(margins, margins, margins <= 0)
