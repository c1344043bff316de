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
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.local_scores import LocalScores
from flipproof.certificates.node_views import default_depth, views_of
from flipproof.checks import checked_budget, checked_count
from flipproof.classifiers import DEFAULT_MEMORY
from flipproof.defences.changed_nodes import check_node_changes, node_radii
from flipproof.defences.defence import Defence, DefendedClassifier, Request, Run
from flipproof.defences.target import Effort, Target
from flipproof.engines import Engine
from flipproof.errors import InputError
from flipproof.fields import option
from flipproof.graphs import Graph
from flipproof.progress import Progress

if TYPE_CHECKING:
    from flipproof.models.local_network import Local as Network


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
        from flipproof.classifiers.features import edge_free

        _checked_network(model, self)
        # the default of other defences falls back on degrees
        return edge_free((features or "own") if model.in_features else "constant", "a local network")

    def check(self, classifier: DefendedClassifier, graphs: Sequence[Graph], request: Any = None) -> None:
        model = classifier.model
        classifier.derived = _checked_network(model, self)
        classifier.guard.check_features(graphs)
        for graph in graphs if model.in_features else ():
            width = classifier.features.of(graph).shape[1]
            if width != model.in_features:
                raise InputError(
                    f"the network takes {model.in_features} node features; a graph has {width} (certify graphs of that width)"
                )
        if request is not None and request.nodes:
            for graph in graphs:
                check_node_changes(as_seen(classifier, graph), request.nodes)

    def ask(self, classifier: DefendedClassifier, graph: Graph, request: LocalRequest, run: Run = map) -> LocalScores:
        from flipproof.defences.local_votes import answer_to, look

        scores = look(classifier, graph, request.per_node)
        if request.nodes is None:
            return scores
        radii = node_radii(
            as_seen(classifier, graph),
            scores.certify(),
            request.nodes,
            answer=partial(answer_to, classifier),
            certify=lambda after, most: look(classifier, after, request.per_node, most=most).certify(),
        )
        return replace(scores, node_radii=radii)

    def answer(self, classifier: DefendedClassifier, graph: Graph) -> int | None:
        from flipproof.defences.local_votes import answer_to

        classifier.check([graph])
        return answer_to(classifier, graph)

    def best(self, graph: Graph, request: LocalRequest, num_classes: int) -> Certificate | None:
        # nodes of one kind allow the deepest look
        depth, kinds = depth_of(request.per_node, 1, graph), np.zeros(graph.num_nodes, dtype=np.int64)
        views, pairs = views_of(graph, kinds, depth), num_classes * (num_classes - 1) // 2
        nothing, sure = np.zeros((len(views), pairs)), np.ones(pairs)
        bound = 0 * sure if graph.node_features is not None else None  # votes are bounded where neighbours differ
        return LocalScores(graph, num_classes, kinds, depth, sure, nothing, 0 * sure, bound).certify()

    def target(self, classifier: DefendedClassifier, graph: Graph, effort: Effort) -> Target:
        from flipproof.defences.local_votes import LocalTarget

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
        return self._certificates(self.graphs_of(graphs), LocalRequest(per_node, nodes), progress, workers, engine)


def _checked_network(model: Any, defence: Local) -> Network:
    """The network in 64-bit arithmetic as it is now; refuses one that computes what its weights do not tell."""
    from flipproof.models.local_network import Local as Network
    from flipproof.models.network import alteration

    if not isinstance(model, Network):
        raise InputError(
            f"model must be a local network; got {type(model).__name__} (flipproof.models.Local; smoothing takes any model)"
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


def depth_of(per_node: int | None, num_kinds: int, graph: Graph) -> int:
    """How many flips at one node are looked at."""
    return min(per_node or default_depth(num_kinds, graph.num_nodes), max(1, graph.num_nodes - 1))


def as_seen(classifier: DefendedClassifier, graph: Graph) -> Graph:
    """The graph with its node features if the network reads them: labels, of which a changed node can get any other."""
    hook = classifier.features
    if hook.spec is None:  # it may depend on how nodes are numbered, and the attacker can number them
        raise InputError(
            f"changes of nodes need the graph's own node features, or none; got {type(hook).__name__} (leave features out)"
        )
    return graph if hook.reads_own else graph.replaced(node_features=None)
