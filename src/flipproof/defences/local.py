"""Certified by design ("local"): a network whose nodes vote on their own neighbourhoods, with an exact certificate.

    views = what each node sees, and what it could see after a few flips          (flipproof.certificates.node_views)
    scores = the network's vote on each of these views, 64-bit                    (ask)
    certificate = a knapsack over nodes: the worst that an attack can do          (flipproof.certificates.matched_knapsack)

A flip of the pair {u, w} changes the votes of u and w and no other. Nothing is random: alpha is 0.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.local_scores import LocalScores, answer_of, edge_changes, graph_scores, leads_over_rivals
from flipproof.certificates.node_views import (
    NodeViews,
    count_neighbours,
    default_depth,
    kinds_of,
    unique_rows,
    views_of,
)
from flipproof.checks import checked_budget, checked_count
from flipproof.classifiers import DEFAULT_MEMORY
from flipproof.defences.changed_nodes import check_node_changes, node_radii
from flipproof.defences.defence import Defence, DefendedClassifier, Progress, Request, Run
from flipproof.defences.target import AnswersTarget, Effort, Outcome
from flipproof.engines import Engine
from flipproof.errors import InputError
from flipproof.fields import option
from flipproof.graphs import Graph, IntArray, pairs_of_slots

if TYPE_CHECKING:
    from flipproof.models.local_network import Local as Network

_MOST_ROWS = 2**14  # views that the network is asked about at once

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LocalRequest(Request):
    """How deep to look."""

    per_node: int | None = option(
        "Largest number of flips at one node to look at; without node features, the radius cannot exceed it. By default "
        "as many as are cheap.",
        None,
        least=1,
    )
    nodes: int | None = option(
        "Number of nodes that an attacker can remove, add or relabel beside the flips; certified in addition.",
        None,
        least=1,
        stored=False,
    )

    def __post_init__(self) -> None:
        for name in ("per_node", "nodes"):
            if (value := getattr(self, name)) is not None:
                checked_count(value, name, 1, f"for instance {3 if name == 'per_node' else 1}")

    def fits(self, evidence: Any) -> bool:
        return self.nodes == (None if evidence.node_radii is None else evidence.node_radii.nodes)


@dataclass(frozen=True)
class Local(Defence):
    """Ask a local network about the views of the nodes."""

    name = "local"
    evidence = LocalScores
    request = LocalRequest

    budget: Any = option(
        "Number of flips to withstand, for local: up to so many in training, one number later.",
        None,
        kind=int,
        least=1,
        stored=False,
    )

    def __post_init__(self) -> None:
        if self.budget is not None:
            parts = checked_budget(self.budget)
            object.__setattr__(self, "budget", parts if isinstance(self.budget, Sequence) else parts[0])

    @property
    def flips(self) -> int:
        """The budget as a number; 0 for the network's own."""
        return sum(self.budget) if isinstance(self.budget, tuple) else self.budget or 0

    def features(self, model: Any, features: Any) -> Any:
        from flipproof.classifiers.features import as_features

        _checked_network(model, self)
        # the default of other defences falls back on degrees
        hook = as_features((features or "own") if model.in_features else "constant")
        if hook.reads_edges:
            raise InputError(
                f"features of a local network must not depend on edges; got {hook.spec or hook} (it counts "
                'neighbours itself: None for the graph\'s own features, or "constant")'
            )
        return hook

    def check(self, classifier: DefendedClassifier, graphs: Sequence[Graph], request: Any = None) -> None:
        model = classifier.model
        classifier.derived = _checked_network(model, self)
        classifier.guard.check_features(graphs)
        for graph in graphs if model.in_features else ():
            width = hook_of(classifier).of(graph).shape[1]
            if width != model.in_features:
                raise InputError(
                    f"the network takes {model.in_features} node features; a graph has {width} (certify graphs like those "
                    "of training)"
                )
        if request is not None and request.nodes:
            check_node_changes(classifier, request.nodes, graphs)

    def ask(self, classifier: DefendedClassifier, graph: Graph, request: LocalRequest, run: Run = map) -> LocalScores:
        scores = look(classifier, graph, request.per_node)
        if request.nodes is None:
            return scores
        return replace(scores, node_radii=node_radii(classifier, graph, scores.certify(), request))

    def answer(self, classifier: DefendedClassifier, graph: Graph) -> int | None:
        classifier.check([graph])
        return answer_to(classifier, graph)

    def best(self, graph: Graph, request: LocalRequest, num_classes: int) -> Certificate | None:
        # nodes of one kind allow the deepest look
        depth, kinds = _depth(request.per_node, 1, graph), np.zeros(graph.num_nodes, dtype=np.int64)
        views, pairs = views_of(graph, kinds, depth), num_classes * (num_classes - 1) // 2
        nothing, sure = np.zeros((len(views), pairs)), np.ones(pairs)
        bound = 0 * sure if graph.node_features is not None else None  # votes are bounded where neighbours differ
        return LocalScores(graph, num_classes, kinds, depth, sure, nothing, 0 * sure, bound).certify()

    def target(self, classifier: DefendedClassifier, graph: Graph, effort: Effort) -> LocalTarget:
        return LocalTarget(classifier, graph, effort)


class LocalClassifier(DefendedClassifier):
    """A local network as a certified classifier: no sampling, alpha 0, milliseconds per graph.

    The certificate holds against every attack of at most ``radius`` edge flips, with full knowledge of the network. For a single
    flip it is exact, rounding aside; beyond, it may be smaller than the truth, never larger. The classifier abstains where no
    class leads over every other.

    ``certify(graph, nodes=1)`` also says how many flips the answer withstands beside one removed, added or relabelled node, in
    ``node_radii``.

    Args:
        model: A :class:`flipproof.models.Local`, best trained with ``flipproof.train(model, graphs, budget=3)``.
        budget: Number of flips, or additions and removals, that the answers are to withstand: by default what the network was
            trained for. It chooses how the network answers; the certificate holds for any.
        features: Must not depend on edges; by default the graph's own, or none if the network takes none.
        num_classes, trust_features, memory: See :class:`flipproof.defences.defence.DefendedClassifier`.

    >>> from flipproof.models import Local
    >>> local = LocalClassifier(Local(in_features=0, num_classes=2, seed=0).eval())
    >>> certificate = local.certify(Graph(6, [(0, 1), (1, 2), (2, 3)]))
    >>> certificate.alpha, certificate.method
    (0.0, 'local')
    """

    defence_name = "local"
    defence: Local

    def __init__(
        self,
        model: Any,
        budget: int | Sequence[int] | None = None,
        *,
        num_classes: int | None = None,
        features: Any = None,
        trust_features: bool = False,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        super().__init__(model, Local(budget), num_classes, features, None, trust_features, memory)

    @property
    def budget(self) -> int | tuple[int, int] | None:
        """Number of flips that the answers are to withstand; ``None`` for the network's own."""
        return self.defence.budget  # type: ignore[no-any-return]

    def certify(self, graph: Any, *, per_node: int | None = None, nodes: int | None = None) -> Certificate:
        """The answer for a graph, and the number of edge flips that it withstands, with certainty.

        Args:
            graph: A :class:`Graph`, PyG ``Data``, networkx graph or adjacency matrix.
            per_node: Largest number of flips at one node to look at; by default as many as are cheap.
            nodes: Number of nodes that an attacker can remove, add or relabel beside the flips.
        """
        return self._certificate(self.graph_of(graph), LocalRequest(per_node, nodes))

    def certify_all(
        self,
        graphs: Iterable[Any],
        *,
        per_node: int | None = None,
        nodes: int | None = None,
        progress: Progress = False,
        workers: int | None = None,
        engine: Engine | None = None,
    ) -> list[Certificate]:
        """As :meth:`certify`, for each graph in order; see also :meth:`DefendedClassifier.certify_all`."""
        request = LocalRequest(per_node, nodes)
        return self._certificates(self.graphs_of(graphs), request, progress=progress, workers=workers, engine=engine)


def _checked_network(model: Any, defence: Local) -> Network:
    """The network in 64-bit arithmetic as it is now; refuses one that computes what its weights do not tell."""
    from flipproof.models.local_network import Local as Network
    from flipproof.models.network import alteration

    if not isinstance(model, Network):
        raise InputError(
            f"model must be a local network; got {type(model).__name__} (flipproof.models.Local; smoothing and voting "
            "take any model)"
        )
    trained = int(model.trained_for)
    if trained and defence.flips > trained:
        budget = list(defence.budget) if isinstance(defence.budget, tuple) else defence.budget
        raise InputError(
            f"budget must be at most {trained}, the flips that the network was trained for; got {budget} (train it with "
            f"budget={defence.flips})"
        )
    altered = alteration(model)
    if altered is not None:
        raise InputError(
            f"model must be a local network as flipproof builds it, or its certificates would be false; {altered} (take "
            "flipproof.models.Local as it is; smoothing and voting take any model)"
        )
    exact = copy.deepcopy(model).double().cpu().eval()
    if defence.flips:
        exact.for_budget(defence.flips)
    return exact


def hook_of(classifier: DefendedClassifier) -> Any:
    return classifier.classifier.features  # type: ignore[attr-defined]


def look(classifier: DefendedClassifier, graph: Graph, per_node: int | None, *, most: int | None = None) -> LocalScores:
    """The votes on all views that attacks reach; no deeper than attacks of ``most`` flips need."""
    node_set = _NodeSet(classifier, graph)
    depth = min(_depth(per_node, node_set.num_kinds, graph), most or graph.num_nodes)
    views = views_of(graph, node_set.kinds, depth)
    clean = node_set.scores(views.own[: views.num_clean], views.counts[: views.num_clean])
    rest = node_set.scores(views.own[views.num_clean :], views.counts[views.num_clean :])
    offsets = None
    if not classifier.model.in_features:
        changes = edge_changes(graph, depth)
        offsets = node_set.offsets(graph.num_edges + changes)
        offsets[changes == 0] = node_set.offset  # in a batch of another shape it may round differently
    return LocalScores(
        graph=graph,
        num_classes=classifier.num_classes,
        kinds=node_set.kinds.astype(np.uint32),
        depth=depth,
        offset=node_set.offset,
        scores=np.concatenate([clean, rest]),
        rounding=node_set.rounding(views),
        bound=node_set.bound,
        offsets=offsets,
    )


def answer_to(classifier: DefendedClassifier, graph: Graph) -> int | None:
    return answer_of(_totals(classifier, graph), classifier.num_classes)


def _totals(classifier: DefendedClassifier, graph: Graph) -> Floats:
    """The scores of all pairs of classes, ``[P]``, in the same arithmetic as :func:`look`."""
    node_set = _NodeSet(classifier, graph)
    views = NodeViews.of(graph, node_set.kinds, 0)
    return graph_scores(views, node_set.offset, node_set.scores(views.own, views.counts))


class _NodeSet:
    """The nodes of a graph without its edges, as the network reads them in 64-bit arithmetic."""

    def __init__(self, classifier: DefendedClassifier, graph: Graph) -> None:
        import torch

        self.network: Network = classifier.derived
        nodes = hook_of(classifier).of(graph).to(torch.float32)[:, : self.network.in_features]
        features = self.network.measured(nodes.double()).numpy()
        odds = self.network.odds.of_nodes(nodes, [graph.num_nodes]) if self.network.in_features else None
        rows, self.kinds = kinds_of(features)
        self.rows, self.num_kinds = torch.from_numpy(rows), len(rows)
        self.sizes = torch.tensor([graph.num_nodes], dtype=torch.float64)
        with torch.inference_mode():
            self.context = self.network.context(
                self.sizes, torch.from_numpy(np.sort(features, axis=0).sum(axis=0, keepdims=True)), odds
            )
        self.offset: Floats = self.offsets(np.array([graph.num_edges]))[0]

    @property
    def bound(self) -> Floats | None:
        largest = self.network.largest_votes(self.context)
        # a hyperbolic tangent may round up
        return None if largest is None else np.full(len(self.offset), float(largest) * (1 + 1e-12))

    def offsets(self, edges: IntArray) -> Floats:
        """The scores of the node set with these numbers of edges, ``[E, P]``."""
        import torch

        number = len(edges)
        with torch.inference_mode():
            counts = self.network.count_inputs(self.sizes.expand(number), torch.from_numpy(edges).double())
            offsets: Floats = self.network.offsets(self.context.expand(number, -1), counts).numpy().copy()
        return offsets

    def scores(self, own: IntArray, counts: IntArray) -> Floats:
        import torch

        from flipproof.models.local_network import LocalViews

        votes = [np.empty((0, len(self.offset)))]
        with torch.inference_mode():
            for start in range(0, len(own), _MOST_ROWS):
                part = slice(start, start + _MOST_ROWS)
                rows, neighbours = self.rows[torch.from_numpy(own[part])], torch.from_numpy(counts[part].astype(float))
                graph = torch.zeros(len(rows), dtype=torch.int64)
                views = LocalViews.counted(rows, neighbours, self.rows, graph)
                inputs = self.network.view_inputs(views, self.sizes)
                votes.append(self.network.view_scores(inputs, self.context, graph).numpy())
        return np.concatenate(votes)

    def rounding(self, views: NodeViews) -> Floats:
        """Bound on the error of any score."""
        import torch

        from flipproof.models.local_network import LocalViews

        with torch.inference_mode():
            # sums of absolute values: rounding in a sum of features is relative to them
            rows, counts = self.rows.abs(), torch.from_numpy(views.counts.max(axis=0, keepdims=True).astype(np.float64))
            degree = torch.tensor([float(views.counts.sum(axis=1).max())], dtype=torch.float64)
            graph = torch.zeros(1, dtype=torch.int64)
            most = LocalViews.counted(rows.amax(dim=0, keepdim=True), counts, rows, graph)
            inputs = self.network.largest_inputs(most._replace(degrees=degree), self.sizes)
            bound: Floats = self.network.rounding(inputs, self.context, self.sizes).numpy().copy()
        return bound


class LocalTarget(AnswersTarget):
    """A local network's answer on many attacked graphs at a time: only nodes that an attack touches are asked again."""

    def __init__(self, local: DefendedClassifier, graph: Graph, effort: Effort) -> None:
        super().__init__(local, graph, effort)
        self._pairs = pairs_of_slots(graph.slots, graph.num_nodes)
        self._look()

    def _look(self) -> None:
        self._node_set = nodes = _NodeSet(self.defended, self.graph)
        self._counts = count_neighbours(self.graph.edges, nodes.kinds, nodes.num_kinds)
        self._votes = nodes.scores(nodes.kinds, self._counts)

    def seeing(self, graph: Graph) -> Self:
        target = super().seeing(graph)
        target._look()
        return target

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


def _depth(per_node: int | None, num_kinds: int, graph: Graph) -> int:
    return min(per_node or default_depth(num_kinds, graph.num_nodes), max(1, graph.num_nodes - 1))
