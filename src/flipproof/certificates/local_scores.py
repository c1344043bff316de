"""Local scores: what a network that only sees views says of every view of a graph. The evidence of the local defence.

For each pair of classes ``A < B`` the network scores the node set with its number of edges (the offset) and every node's view.
The sum is the lead of ``A`` over ``B``; the answer is the class that leads over every other, if there is one. With the
scores of all views that attacks reach, the certificate is arithmetic (:mod:`flipproof.certificates.matched_knapsack`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import GRID_LIMIT, Certificate, NodeRadii, WeakSpots, cut_grid
from flipproof.certificates.evidence import Evidence, by_fields
from flipproof.certificates.matched_knapsack import KINDS, Flip, FlipSearch, NodeLosses, greedy_bounds, worst_drops
from flipproof.certificates.node_views import NodeViews, views_of
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray

# additions, and removals, of a budget of both: the knapsack of two totals costs the square of their product
_MOST_MIXED = 4
_MOST_FLIPS = 64  # the margin is proved up to here
_SEARCHED_NODES = 1000  # beyond, no attack is looked for: every flip of a search takes the square of their number
_SHOWN_ROWS = 12

Floats = NDArray[np.float64]
Budget = tuple[int, int] | int
"""Additions and removals, or flips of either kind."""


@lru_cache(maxsize=64)
def rivals_of(label: int, num_classes: int) -> tuple[IntArray, IntArray]:
    """For each other class, in order: the column of its pair with ``label``, and the sign that makes it the label's lead.

    >>> [part.tolist() for part in rivals_of(1, 3)]  # pairs are (0, 1), (0, 2), (1, 2)
    [[0, 2], [-1, 1]]
    """
    first, second = np.triu_indices(num_classes, 1)
    columns = np.flatnonzero((first == label) | (second == label))
    return columns, np.where(first[columns] == label, 1, -1)


def leads_over_rivals(scores: Floats, label: int, num_classes: int) -> Floats:
    """Leads of a class over each other one ``[..., C - 1]``, from scores of pairs ``[..., P]``."""
    columns, signs = rivals_of(label, num_classes)
    return scores[..., columns] * signs


def answer_of(scores: Floats, num_classes: int) -> int | None:
    """The class that leads over every other, from the scores of all pairs ``[P]``.

    >>> answer_of(np.array([-1.0, 2.0, 0.5]), 3), answer_of(np.array([1.0, -1.0, 1.0]), 3)  # the second one goes in a circle
    (1, None)
    """
    for label in range(num_classes):
        if (leads_over_rivals(scores, label, num_classes) > 0).all():
            return label
    return None


@dataclass(frozen=True, eq=False)
class LocalScores(Evidence):
    """The scores of all views that an attack of few flips per node can reach."""

    kind = "local scores"
    parts: ClassVar = {"node_radii": by_fields(NodeRadii)}

    graph: Graph  # the graph
    num_classes: int  # number of classes ``C``; there are ``P = C (C - 1) / 2`` pairs
    kinds: IntArray  # kind of every node, ``[n]``
    depth: int  # flips per node that were looked at. Without a bound, the radius is at most this.
    offset: Floats  # score of the node set and its number of edges, ``[P]``
    scores: Floats  # scores of the views in the order of :class:`NodeViews`, ``[R, P]``
    rounding: Floats  # bound on the error of any single score, ``[P]``
    # largest absolute score that any view can have, ``[P]``; ``None`` if there is no such bound
    bound: Floats | None = None
    # the offset after each of :func:`edge_changes`, ``[E, P]``; ``None`` if it does not depend on edges
    offsets: Floats | None = None
    # what follows from the scores of graphs with other nodes, which are not kept; ``None`` if it is not wanted
    node_radii: NodeRadii | None = None

    def __post_init__(self) -> None:
        pairs, nodes = self.num_classes * (self.num_classes - 1) // 2, self.graph.num_nodes
        distinct = set(self.kinds.tolist())
        if len(self.kinds) != nodes or distinct != set(range(len(distinct))):
            raise InputError(f"local scores must have a kind for each of {nodes} nodes: 0, 1, 2, ..., each with a node")
        changes = edge_changes(self.graph, self.depth)
        shapes: dict[str, tuple[int, ...]] = {"offset": (pairs,), "rounding": (pairs,), "bound": (pairs,)}
        shapes |= {"scores": (len(self.views), pairs), "offsets": (len(changes), pairs)}
        for name, shape in shapes.items():
            part = getattr(self, name)
            if part is None and name in ("bound", "offsets"):
                continue
            if part.shape != shape or part.dtype != np.float64 or not np.isfinite(part).all():
                raise InputError(
                    f"local scores: {name} must be finite 64-bit numbers of shape {list(shape)}; got {part.dtype} of shape "
                    f"{list(part.shape)} (check the weights of the network)"
                )
        if (self.rounding < 0).any() or (self.bound is not None and (np.abs(self.scores) > self.bound).any()):
            raise InputError("local scores must lie within their bound, with a rounding of at least 0 (certify again)")
        if self.offsets is not None and (self.offsets[changes == 0] != self.offset).any():
            raise InputError("local scores: the offsets must hold the offset itself (certify again)")

    @cached_property
    def views(self) -> NodeViews:
        """The views, made again from the graph."""
        return views_of(self.graph, self.kinds.astype(np.int64), self.depth)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "views"}

    @cached_property
    def totals(self) -> Floats:
        """Score of the whole graph for every pair of classes, ``[P]``."""
        return graph_scores(self.views, self.offset, self.scores[: self.views.num_clean])

    @property
    def label(self) -> int | None:
        """The answer."""
        return answer_of(self.totals, self.num_classes)

    def certify(self) -> Certificate:
        """The answer and the flips that it withstands: alpha 0. Abstains where no class leads over every other."""
        label, graph = self.label, self.graph
        radius, grid = (-1, np.zeros((0, 0), dtype=np.bool_)) if label is None else self._withstood(label)
        nodes = self.node_radii
        if nodes is not None and not all(-1 <= part <= radius for part in (nodes.removed, nodes.added, nodes.changed)):
            raise InputError(f"flips withstood beside changed nodes must be -1 to {radius}, the radius (certify again)")
        counts = np.zeros(self.num_classes, dtype=int)
        counts[[] if label is None else [label]] = 1
        return Certificate(
            label=label,
            radius=radius,
            method="local",
            samples=1,
            counts=tuple(counts.tolist()),
            p_lower=0.0 if label is None else 1.0,
            p_upper=1.0 if label is None else 0.0,
            num_slots=graph.num_slots,
            grid=cut_grid(grid),
            node_radii=nodes,
        )

    def margin(self, flips: int | IntArray) -> Floats:
        """What all roundings together can be off by, of a lead before and after so many flips and of the bound, ``[..., P]``.

        With ``e`` the bound on a single score: both leads are sums of ``n + 1`` scores. Adding them up rounds by less than
        ``(n + 1)^2 u M``, where ``u`` is the unit roundoff and ``M`` bounds every score; since ``e >= 64 u M``, this is at most
        ``(n + 1)^2 e / 64``. The drop at a node that is touched ``k`` times is off by at most ``(2 + 2k) e`` and its own
        roundings; there are at most ``2q`` such nodes with ``2q`` touches in all, together ``8 q e``. Adding them up rounds by
        at most ``16 q^3 u M <= q^3 e / 4``, and ``8 q + q^3 / 4 <= 16 (q + 1)^2`` for ``q <= 64``. Sums of gains instead of
        drops round each gain by a few ``u M`` more, together less than ``q e``, for which there is room. The drop of
        the offset is off by less than ``3 e``; the two leads take up only half of the first term, which is more than that.
        """
        nodes = self.graph.num_nodes + 1
        return np.asarray(self.rounding * (4 * nodes * (1 + nodes / 64) + 16 * (flips + 1) ** 2))

    def _withstood(self, label: int) -> tuple[int, NDArray[np.bool_]]:
        graph, classes = self.graph, self.num_classes
        columns, _ = rivals_of(label, classes)
        bound = None if self.bound is None else self.bound[columns]
        losses = NodeLosses(self.views, leads_over_rivals(self.scores, label, classes), bound)
        leads = leads_over_rivals(self.totals, label, classes)
        most = [min(limit, GRID_LIMIT - 1) for limit in (graph.max_adds, graph.max_removes)]
        silent = bound is not None and self.offsets is None and not bound.any()
        if silent and (leads > self.margin(0)[columns]).all():  # no node says anything
            return graph.num_slots, np.ones((most[0] + 1, most[1] + 1), dtype=np.bool_)
        offset = _OffsetDrops(self, label)
        # looked at so deep, nothing is left out
        whole = self.depth >= graph.num_nodes - 1
        deepest = _MOST_FLIPS if whole or (bound is not None and self.offsets is None) else self.depth
        margins = self.margin(np.arange(_MOST_FLIPS + 1)[:, None])[:, columns]

        def stands(budget: Budget) -> bool:
            """Whether no attack of exactly this budget, flips of either kind or additions and removals, changes the answer."""
            adds, removes = (budget, 0) if isinstance(budget, int) else budget
            flips = adds + removes
            if flips == 0 or flips > graph.num_slots:
                return True
            if not isinstance(budget, int) and (adds > graph.max_adds or removes > graph.max_removes):
                return True
            # mixed budgets beyond the depth cost much and are mostly lost
            if flips > (self.depth if adds and removes and not whole else deepest):
                return False
            return bool((leads - (worst_drops(losses, budget) + offset.of(budget)) > margins[flips]).all())

        limits = dict(zip(KINDS, (graph.num_slots, *most), strict=True))
        known = dict.fromkeys(KINDS, 0)
        flips, left = 1, [kind for kind in KINDS if limits[kind]]
        while left:
            flips = min(4 * flips, deepest, max(limits[kind] for kind in left))
            of_offset = [[offset.of(_budget(kind, number)) for number in range(flips + 1)] for kind in left]
            lost = greedy_bounds(losses, flips, left) + np.array(of_offset)
            holds = np.all(leads - lost[:, 1:] > margins[1 : flips + 1], axis=2)
            known |= dict(zip(left, np.where(holds.all(axis=1), flips, holds.argmin(axis=1)).tolist(), strict=True))
            left = [kind for kind in left if known[kind] == flips < min(limits[kind], deepest)]

        def along(kind: str, least: int = 0) -> int:
            """Flips of one kind up to which all are withstood; it is known of at least so many."""
            flips = min(max(known[kind], least), limits[kind])
            while flips < limits[kind] and stands(_budget(kind, flips + 1)):
                flips += 1
            return flips

        radius = along("either")
        grid = np.add.outer(np.arange(most[0] + 1), np.arange(most[1] + 1)) <= radius
        adds, removes = along("adds", radius), along("removes", radius)
        grid[: adds + 1, 0] = grid[0, : removes + 1] = True
        for adds in range(1, min(most[0], _MOST_MIXED) + 1):
            for removes in range(1, min(most[1], _MOST_MIXED) + 1):
                if not grid[adds, removes]:
                    below = grid[adds - 1, removes] and grid[adds, removes - 1]
                    grid[adds, removes] = below and stands((adds, removes))
        while radius < graph.num_slots and _diagonal(grid, radius + 1, graph):
            radius += 1
        return radius, grid

    def weak_spots(self, radius: int) -> WeakSpots | None:
        """The part of every node in the lead over the nearest rival, and the worst flips.

        The nearest rival is the one that a search overtakes with the fewest flips. The flips succeed if they turn the lead by
        more than all rounding. If no search does, they are the worst of up to ``radius + 1`` flips.
        """
        label = self.label
        if label is None or radius < 0:
            return None
        parts = leads_over_rivals(self.scores, label, self.num_classes)
        leads = leads_over_rivals(self.totals, label, self.num_classes)
        columns, _ = rivals_of(label, self.num_classes)
        offset = _OffsetDrops(self, label)
        attacks = [
            self._worst_flips(FlipSearch(self.views, parts[:, at], offset.over(at)), float(leads[at]), column, radius)
            for at, column in enumerate(columns.tolist())
        ]
        # the nearest is the smallest attack that succeeds; if none does, the one that leaves the smallest lead
        ranks = [(not succeeds, len(flips) * succeeds, min(falls)) for flips, succeeds, falls in attacks]
        best = ranks.index(min(ranks))
        flips, succeeds, falls = attacks[best]
        edges = {(u, v) for u, v in self.graph.edges.tolist()}
        steps = ["no flip", *(f"{'remove' if pair in edges else 'add'} {pair[0]}–{pair[1]}" for pair in flips)]
        rows = [(step, f"{lead:.3g}") for step, lead in zip(steps, falls, strict=True)]
        if len(rows) > _SHOWN_ROWS:
            rows[_SHOWN_ROWS - 2 : -1] = [("…", "…")]
        return WeakSpots(
            rival=best + (best >= label),
            flips=tuple(flips),
            succeeds=succeeds,
            weights=parts[self.views.base[self.views.class_of_node], best],
            rest=float(leads_over_rivals(self.offset, label, self.num_classes)[best]),
            caption="How the flips lower the lead",
            columns=("After", "Lead"),
            rows=tuple(rows),
        )

    def _worst_flips(
        self, search: FlipSearch, lead: float, column: int, radius: int
    ) -> tuple[list[Flip], bool, list[float]]:
        """Flips against one rival, whether they succeed, and the lead after 0, 1, 2, ... of them."""

        def enough(number: int, drop: float) -> bool:
            return lead - drop < -float(self.margin(number)[column])

        flips = list[Flip]()
        if radius < self.graph.num_slots and self.graph.num_nodes <= _SEARCHED_NODES:
            flips = search.greedy(min(2 * radius + 3, _MOST_FLIPS, self.graph.num_slots), enough)
        succeeds = bool(flips) and enough(len(flips), search.drop(flips))
        flips = search.pruned(flips, enough) if succeeds else flips[: radius + 1]
        falls = [lead - search.drop(flips[:number]) for number in range(len(flips) + 1)]
        if not succeeds:  # flips that do not bring the rival nearer are no part of a candidate
            flips = flips[: int(np.argmin(falls))]
        return flips, succeeds, falls[: len(flips) + 1]


def edge_changes(graph: Graph, depth: int) -> IntArray:
    """By how much attacks that are looked at can change the number of edges, ascending.

    >>> edge_changes(Graph(3, [(0, 1)]), 2).tolist()
    [-1, 0, 1, 2]
    """
    flips = _MOST_FLIPS if depth >= graph.num_nodes - 1 else depth
    return np.arange(-min(flips, graph.max_removes), min(flips, graph.max_adds) + 1)


class _OffsetDrops:
    """What attacks take from the offset's part in the leads of the answer, ``[C - 1]``: it depends on additions less removals."""

    def __init__(self, evidence: LocalScores, label: int) -> None:
        graph, classes = evidence.graph, evidence.num_classes
        self._limits, self._nothing = (graph.max_adds, graph.max_removes), np.zeros(classes - 1)
        self._changes = np.zeros(0, dtype=np.int64)
        if evidence.offsets is not None:
            after = leads_over_rivals(evidence.offsets, label, classes)
            self._changes = edge_changes(graph, evidence.depth)
            self._table = leads_over_rivals(evidence.offset, label, classes) - after

    def over(self, rival: int) -> dict[int, float] | None:
        """Of the lead over one rival, for each change of the number of edges; ``None`` if it is never anything."""
        if not len(self._changes):
            return None
        return dict(zip(self._changes.tolist(), self._table[:, rival].tolist(), strict=True))

    def of(self, budget: Budget) -> Floats:
        """The largest of exactly this budget; ``-inf`` if there is no room for it."""
        if not len(self._changes):
            return self._nothing
        if isinstance(budget, int):
            least, most = budget - 2 * min(budget, self._limits[1]), 2 * min(budget, self._limits[0]) - budget
        else:
            least = most = budget[0] - budget[1]
        first = int(self._changes[0])
        start = least - first if least >= first else (least - first) % 2
        chosen = self._table[start : max(0, most - first + 1) : 2]
        return chosen.max(axis=0) if len(chosen) else self._nothing - np.inf


def _budget(kind: str, flips: int) -> Budget:
    """So many flips of one of :data:`KINDS`."""
    return flips if kind == "either" else (flips, 0) if kind == "adds" else (0, flips)


def graph_scores(views: NodeViews, offset: Floats, scores: Floats) -> Floats:
    """Scores of the whole graph, from those of its own views ``[num_clean, P]``."""
    return np.asarray(offset + (views.clean_nodes[:, None] * scores).sum(axis=0))


def _diagonal(grid: NDArray[np.bool_], flips: int, graph: Graph) -> bool:
    """Whether the grid says that every attack of exactly so many flips is withstood."""
    adds = np.arange(max(0, flips - graph.max_removes), min(flips, graph.max_adds) + 1)
    inside = (adds < grid.shape[0]) & (flips - adds < grid.shape[1])
    return bool(inside.all() and grid[adds, flips - adds].all())
