"""Certified by design ("local"): a network whose nodes vote on their own neighbourhoods, with an exact certificate.

    views = what each node sees, and what it could see after a few flips          (flipproof.certificates.node_views)
    scores = the network's vote on each of these views, 64-bit                    (ask)
    certificate = a knapsack over nodes: the worst that an attack can do          (flipproof.certificates.matched_knapsack)

A flip of the pair {u, w} changes the votes of u and w and no other. Nothing is random: alpha is 0.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

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
from flipproof.checks import checked_count
from flipproof.classifiers import unwrapped
from flipproof.defences.changed_nodes import check_node_changes, checked_kinds, node_radii
from flipproof.defences.defence import Defence, Option, Question
from flipproof.defences.target import Confirmation, Outcome, Target
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray, as_graph, pairs_of_slots

if TYPE_CHECKING:
    from flipproof.datasets import Dataset
    from flipproof.models.local_network import Local

__all__ = ["LocalClassifier"]

_CANDIDATES = (1, 3, 8)
_MOST_ROWS = 2**14  # views that the network is asked about at once

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LocalQuestion(Question):
    """How deep to look.

    Attributes:
        per_node: Largest number of flips at one node to look at; without node features the radius cannot exceed it. ``None`` for
            as many as are cheap.
        nodes: Number of nodes that an attacker can remove, add or change beside the flips; ``None`` if this is not asked.
        kinds: Rows of node features that an added or changed node can have; ``None`` for labels, which can be any.
    """

    per_node: int | None = None
    nodes: int | None = None
    kinds: list[list[float]] | None = None

    @classmethod
    def of(cls, *, graphs: int = 1, **asked: Any) -> LocalQuestion:
        per_node, nodes, kinds = (asked.pop(name, None) for name in ("per_node", "nodes", "kinds"))
        Question.of(graphs=graphs, **asked)
        if kinds is not None and nodes is None:
            raise InputError("kinds are for changes of nodes; got kinds without nodes (give nodes=1, too)")
        return cls(
            None if per_node is None else checked_count(per_node, "per_node", 1, "for instance 3"),
            None if nodes is None else checked_count(nodes, "nodes", 1, "for instance 1"),
            None if kinds is None else checked_kinds(kinds),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; what concerns nodes only where it was asked."""
        asked = {"nodes": self.nodes, "kinds": self.kinds}
        return {"per_node": self.per_node, **{key: value for key, value in asked.items() if value is not None}}

    def fits(self, evidence: Any) -> bool:
        """See :class:`Question`."""
        return self.nodes == (None if evidence.node_radii is None else evidence.node_radii.nodes)

    @property
    def not_derived(self) -> str:
        """See :class:`Question`."""
        if self.nodes is None:
            return ""
        return "flips withstood beside changed nodes were compared with the evidence, which does not hold the scores behind them"


class LocalClassifier(Defence):
    """A local network as a certified classifier: no sampling, alpha 0, milliseconds per graph.

    The certificate holds against every attack of so many edge flips, with full knowledge of the network. For a single flip it is
    exact: if a radius is 0, there is a flip that changes the answer (rounding aside). Beyond, it may be smaller than the truth,
    never larger. The classifier abstains where no class leads over every other.

    ``certify(graph, nodes=1)`` also says how many flips the answer withstands beside one removed, added or changed node, in
    ``node_radii``. ``kinds`` are the rows of node features that such a node can get; by default every label, where features
    are labels.

    Args:
        model: A :class:`flipproof.models.Local`, best trained with ``flipproof.train(model, graphs, budget=3)``.
        budget: Number of flips that the answers are to withstand, or additions and removals: at most what the network was trained
            for, which is the default. It chooses how the network answers; the certificate holds for any.
        **wrapped: ``features`` (must not depend on edges; by default the graph's own, or none if the network takes none),
            ``trust_features`` and ``memory``; see :class:`flipproof.defences.Defence`.

    >>> from flipproof.models import Local
    >>> local = LocalClassifier(Local(in_features=0, num_classes=2, seed=0).eval())
    >>> certificate = local.certify(Graph(6, [(0, 1), (1, 2), (2, 3)]))
    >>> certificate.alpha, certificate.method
    (0.0, 'local')
    """

    name = "local"
    evidence_type = LocalScores
    question_type = LocalQuestion
    trait = "local"
    references = ("jin2020certified",)
    network = "local"
    edge_free_features = True
    effort = 1
    settings = (
        Option(
            "budget",
            int,
            "Number of flips to withstand, for local: up to so many in training, one number later.",
            least=1,
        ),
    )
    training_options = (
        Option("counts_only", bool, "Let no node vote: learn from numbers of nodes and edges alone, for local.", False),
    )
    asking = (
        Option(
            "per_node",
            int,
            "Largest number of flips at one node to look at; without node features, the radius cannot exceed it. By default "
            "as many as are cheap.",
            least=1,
        ),
        Option(
            "nodes",
            int,
            "Number of nodes that an attacker can remove, add or relabel beside the flips; certified in addition.",
            least=1,
        ),
    )

    def __init__(self, model: Any, budget: int | Sequence[int] | None = None, **wrapped: Any) -> None:
        from flipproof.models.local_network import Local

        model = unwrapped(model)
        if not isinstance(model, Local):
            raise InputError(
                f"model must be a local network; got {type(model).__name__} (flipproof.models.Local; smoothing and voting "
                "take any model)"
            )
        self.budget = self.checked({"budget": budget}).get("budget")
        trained = int(model.trained_for)
        if trained and self._flips > trained:
            raise InputError(
                f"budget must be at most {trained}, the flips that the network was trained for; got {self.budget} (train it with "
                f"budget={self._flips})"
            )
        given = wrapped.pop("features", None) or "own"  # the default of other defences falls back on degrees
        super().__init__(model, features=given if model.in_features else "constant", **wrapped)
        self.hook = self.classifier.features  # type: ignore[attr-defined]
        if self.hook.reads_edges:
            raise InputError(
                f"features of a local network must not depend on edges; got {self.hook.spec or self.hook} (it counts "
                'neighbours itself: None for the graph\'s own features, or "constant")'
            )
        self._refresh()

    @property
    def _flips(self) -> int:
        """The budget as a number; 0 for the network's own."""
        return self.budget or 0 if not isinstance(self.budget, list) else sum(self.budget)

    def _refresh(self) -> None:
        """Read the network as it is now; refuses one that computes what its weights do not tell."""
        from flipproof.models.network import alteration

        found = alteration(self.model)
        if found is not None:
            raise InputError(
                f"model must be a local network as flipproof builds it, or its certificates would be false; {found} (take "
                "flipproof.models.Local as it is; smoothing and voting take any model)"
            )
        self._exact: Local = copy.deepcopy(self.model).double().cpu().eval()
        if self._flips:
            self._exact.for_budget(self._flips)

    # ---- what the defence is ----------------------------------------------------------------------------------------------

    @classmethod
    def checked(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        budget = given.get("budget")
        # the second is no part of the defence: it says how its network was trained
        return {
            **({} if budget is None else {"budget": _checked_budget(budget)}),
            **({"counts_only": True} if given.get("counts_only") else {}),
        }

    @classmethod
    def build(cls, model: Any, settings: Mapping[str, Any], **wrapped: Any) -> LocalClassifier:
        return cls(model, settings.get("budget"), **wrapped)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, **self.checked({"budget": self.budget})}

    @classmethod
    def title(cls, settings: Mapping[str, Any]) -> str:
        counts = " counts" if settings.get("counts_only") else ""
        return f"local{counts} {settings['budget']}" if "budget" in settings else f"local{counts}"

    @classmethod
    def words(cls, settings: Mapping[str, Any]) -> str:
        said = {"budget": f"budget {settings.get('budget')}", "counts_only": "counts only"}
        return ", ".join(text for name, text in said.items() if settings.get(name))

    @classmethod
    def training(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        # None: as fp.train finds best with a budget
        recipe = dict.fromkeys(("learning_rate", "batch_size", "weight_decay", "average"))
        counts = {"counts_only": True} if settings.get("counts_only") else {}
        return {"budget": settings.get("budget", 3), **counts, **recipe}

    @classmethod
    def entry(cls, value: Any) -> dict[str, Any]:
        """A budget, or a table that may also say to count only."""
        given = value if isinstance(value, Mapping) else {"budget": value}
        if given.keys() - {"budget", "counts_only"}:
            raise InputError(f"local takes a budget, or tables with budget and counts_only; got {value!r}")
        return cls.checked(given)

    @classmethod
    def effect(cls, settings: Mapping[str, Any], graphs: Dataset) -> str:
        return "nothing is sampled; the network is trained through its own certificate"

    @classmethod
    def reaches(cls, graph: Graph, settings: Mapping[str, Any], num_classes: int) -> dict[str, Certificate]:
        return {}  # of a network that sees nothing, and so says nothing

    @classmethod
    def candidates(cls, graphs: Dataset) -> list[dict[str, Any]]:
        return cls._with_counts([{"budget": number} for number in _CANDIDATES], graphs)

    @classmethod
    def candidates_against(cls, graphs: Dataset, attack: int | tuple[int, int]) -> list[dict[str, Any]]:
        """Training for the attack itself, and for somewhat larger ones, which leaves a margin."""
        if isinstance(attack, tuple):
            adds, removes = attack
            budgets: list[Any] = [[adds, removes], [2 * adds, 2 * removes]] if adds + removes else [1]
        else:
            budgets = sorted({max(1, attack), attack + 1, 2 * attack + 1})
        return cls._with_counts([{"budget": budget} for budget in budgets], graphs)

    @staticmethod
    def _with_counts(found: list[dict[str, Any]], graphs: Dataset) -> list[dict[str, Any]]:
        """The same without votes, too, where there are no node features."""
        return found if graphs.num_node_features else [*found, *({**one, "counts_only": True} for one in found)]

    @classmethod
    def network_config(cls, features: str | None, width: int, num_classes: int) -> dict[str, Any]:
        # a constant says nothing beside the number of nodes, which the network knows
        return super().network_config(features, 0 if features == "constant" else width, num_classes)

    # ---- asking ---------------------------------------------------------------------------------------------------------------

    def check(self, graphs: Sequence[Graph]) -> None:
        self._refresh()
        self.check_features(graphs)
        self._guard.check_model(graphs[:1], self.noise)  # memory is no matter: the network sees views, not graphs
        for graph in graphs if self.model.in_features else ():
            width = self.hook.of(graph).shape[1]
            if width != self.model.in_features:
                raise InputError(
                    f"the network takes {self.model.in_features} node features; a graph has {width} (certify graphs like those "
                    "of training)"
                )

    def check_question(self, question: LocalQuestion, graphs: Sequence[Graph]) -> None:
        if question.nodes:
            check_node_changes(self, question, graphs)

    def predict(self, graph: Any) -> int | None:
        """The class that leads over every other, or ``None`` where there is none."""
        graph = as_graph(graph)
        self.check([graph])
        return self.answer_to(graph)

    def ask(self, graph: Graph, question: Any) -> LocalScores:
        """The votes on all views that attacks reach, of a graph that :meth:`check` has passed."""
        asked = LocalQuestion() if question is None else question
        found = self.look(graph, asked.per_node)
        if asked.nodes is None:
            return found
        return replace(found, node_radii=node_radii(self, graph, found.certify(), asked))

    def look(self, graph: Graph, per_node: int | None, *, most: int | None = None) -> LocalScores:
        """The votes on all views that attacks reach; no deeper than attacks of ``most`` flips need."""
        node_set = _NodeSet(self, graph)
        depth = _depth(per_node, node_set.num_kinds, graph)
        depth = depth if most is None else min(depth, most)
        views = views_of(graph, node_set.kinds, depth)
        clean = node_set.scores(views.own[: views.num_clean], views.counts[: views.num_clean])
        rest = node_set.scores(views.own[views.num_clean :], views.counts[views.num_clean :])
        offsets = None
        if self.model.counts_edges:
            changes = edge_changes(graph, depth)
            offsets = node_set.offsets(graph.num_edges + changes)
            offsets[changes == 0] = node_set.offset  # in a batch of another shape it may round differently
        return LocalScores(
            graph=graph,
            num_classes=self.num_classes,
            kinds=node_set.kinds.astype(np.uint32),
            depth=depth,
            offset=node_set.offset,
            scores=np.concatenate([clean, rest]),
            rounding=node_set.rounding(views),
            bound=node_set.bound,
            offsets=offsets,
        )

    @classmethod
    def best(
        cls, graph: Graph, question: LocalQuestion, settings: Mapping[str, Any], num_classes: int
    ) -> Certificate | None:
        # nodes of one kind allow the deepest look
        depth, kinds = _depth(question.per_node, 1, graph), np.zeros(graph.num_nodes, dtype=np.int64)
        views, pairs = views_of(graph, kinds, depth), num_classes * (num_classes - 1) // 2
        nothing, sure = np.zeros((len(views), pairs)), np.ones(pairs)
        bound = 0 * sure if graph.node_features is not None else None  # votes are bounded where neighbours differ
        return LocalScores(graph, num_classes, kinds, depth, sure, nothing, 0 * sure, bound).certify()

    def target(self, graph: Graph, **search: Any) -> Target:
        return LocalTarget(self, graph, search.get("max_calls"))

    def answer_to(self, graph: Graph) -> int | None:
        """As :meth:`predict`, of a graph that :meth:`check` has passed."""
        return answer_of(self._totals(graph), self.num_classes)

    def _totals(self, graph: Graph) -> Floats:
        """The scores of all pairs of classes, ``[P]``, in the same arithmetic as :meth:`ask`."""
        node_set = _NodeSet(self, graph)
        views = NodeViews.of(graph, node_set.kinds, 0)
        return graph_scores(views, node_set.offset, node_set.scores(views.own, views.counts))


class _NodeSet:
    """The nodes of a graph without its edges, as the network reads them in 64-bit arithmetic."""

    def __init__(self, defence: LocalClassifier, graph: Graph) -> None:
        import torch

        from flipproof.models.node_statistics import node_statistics

        self.network = defence._exact
        nodes = defence.hook.of(graph).to(torch.float32)[:, : self.network.in_features]
        features = self.network.measured(nodes.double()).numpy()
        odds = None
        if self.network.in_features:
            odds = torch.from_numpy(self.network.odds.of(node_statistics(nodes.numpy())[None]))
        rows, self.kinds = kinds_of(features)
        self.rows = torch.from_numpy(rows)
        self.sizes = torch.tensor([graph.num_nodes], dtype=torch.float64)
        with torch.inference_mode():
            self.context = self.network.context(
                self.sizes, torch.from_numpy(np.sort(features, axis=0).sum(axis=0, keepdims=True)), odds
            )
        self.offset: Floats = self.offsets(np.array([graph.num_edges]))[0]

    @property
    def bound(self) -> Floats | None:
        """What no vote exceeds, ``[P]``."""
        largest = self.network.largest_votes(self.context)
        # a hyperbolic tangent may round up
        return None if largest is None else np.full(len(self.offset), float(largest) * (1 + 1e-12))

    @property
    def num_kinds(self) -> int:
        return int(self.kinds.max()) + 1

    def offsets(self, edges: IntArray) -> Floats:
        """The scores of the node set with these numbers of edges, ``[E, P]``."""
        import torch

        number = len(edges)
        with torch.inference_mode():
            counts = self.network.count_inputs(self.sizes.expand(number), torch.from_numpy(edges).double())
            found: Floats = self.network.offsets(self.context.expand(number, -1), counts).numpy().copy()
        return found

    def scores(self, own: IntArray, counts: IntArray) -> Floats:
        """The votes on views, ``[R, P]``."""
        import torch

        parts = [np.empty((0, len(self.offset)))]
        with torch.inference_mode():
            for start in range(0, len(own), _MOST_ROWS):
                inputs, graph = self._inputs(own[start : start + _MOST_ROWS], counts[start : start + _MOST_ROWS])
                parts.append(self.network.view_scores(inputs, self.context, graph).numpy())
        return np.concatenate(parts)

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
            found: Floats = self.network.rounding(inputs, self.context, self.sizes).numpy().copy()
        return found

    def _inputs(self, own: IntArray, counts: IntArray) -> tuple[Any, Any]:
        import torch

        from flipproof.models.local_network import LocalViews

        graph = torch.zeros(len(own), dtype=torch.int64)
        neighbours = torch.from_numpy(counts.astype(np.float64))
        own_rows = self.rows[torch.from_numpy(own)]
        views = LocalViews.counted(own_rows, neighbours, self.rows, graph)
        return self.network.view_inputs(views, self.sizes), graph


class LocalTarget(Target):
    """A local network's answer on attacked graphs, many at a time: exact; the margin is the label's smallest lead.

    A flip changes what its two ends see, so only the votes of nodes that an attack touches are asked for anew.
    """

    cost = 1

    def __init__(self, local: LocalClassifier, graph: Graph, max_calls: int | None) -> None:
        self.local = local
        local.check([graph])
        super().__init__(local.classifier, graph, local.noise, max_calls)
        self._node_set = nodes = _NodeSet(local, graph)
        self._pairs = pairs_of_slots(graph.slots, graph.num_nodes)
        self._counts = count_neighbours(graph.edges, nodes.kinds, nodes.num_kinds)
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
        margins = leads_over_rivals(offsets + votes.sum(axis=1), self.label, self.local.num_classes).min(axis=1)
        return Outcome(margins, margins, margins <= 0)

    def prediction(self) -> int:
        self.calls += 1
        found = self.local.predict(self.graph)
        return 0 if found is None else found

    def confirm(self, graph: Graph) -> Confirmation:
        self.calls += 1
        totals = self.local._totals(graph)
        fooled = answer_of(totals, self.local.num_classes) != self.label
        margin = float(leads_over_rivals(totals, self.label, self.local.num_classes).min())
        return Confirmation(fooled, margin, 0.0 if fooled else 1.0)


def _depth(asked: int | None, num_kinds: int, graph: Graph) -> int:
    """Flips per node to look at."""
    return min(asked or default_depth(num_kinds, graph.num_nodes), max(1, graph.num_nodes - 1))


def _checked_budget(budget: Any) -> int | list[int]:
    if isinstance(budget, Sequence) and not isinstance(budget, str):
        if len(budget) != 2:
            raise InputError(
                f"budget must be a number of flips, or additions and removals; got {budget!r} (for instance 3)"
            )
        adds, removes = (checked_count(part, "budget", 0, "for instance (2, 1)") for part in budget)
        checked_count(adds + removes, "budget", 1, "for instance (2, 1)")
        return [adds, removes]
    return checked_count(budget, "budget", 1, "for instance 3")
