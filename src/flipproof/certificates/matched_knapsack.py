r"""The matched knapsack: how far an attack can lower the lead of a class, where every node votes on its own view.

Write ``h(v)`` for the part that node ``v`` has in the lead, ``D_v(W)`` for the drop of ``h(v)`` when its pairs with all nodes of
``W`` are flipped, and ``delta_u(w) = D_u({w})``. For any ``theta`` put

    shift(u, w) = theta (delta_u(w) - delta_w(u)) / 2,        W_v(k) = max over |W| = k of [D_v(W) - sum over w in W of
    shift(v, w)].

**Theorem.** An attack of exactly ``q`` flips lowers the lead by at most

    K_q(theta) = max { sum_v W_v(k_v) :  sum_v k_v = 2q,  k_v <= q }.

*Proof.* Let ``k_v`` be the number of flipped pairs at ``v``. Every flipped pair has two ends and no node has more than ``q`` of
them, so ``k`` is feasible. ``shift(u, w) + shift(w, u) = 0``: taking the shifts of all flipped pairs off both ends changes no
total. What remains at ``v`` is at most ``W_v(k_v)``.

Every ``theta`` gives a bound, hence the smallest does. ``theta = 0`` is the plain knapsack. With ``theta = 1`` both ends of a
pair carry half of its value, so that the bound for a single flip is exact. ``docs/local.md`` has the proof at length, also for
budgets of additions and removals, where ``k_v`` counts both.

Here the partners of a node are taken as the best ones of their kind, over and over if need be: a superset of what an attacker
can do. Everything is float64 and in a fixed order; the caller adds a margin for rounding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.node_views import NodeViews

__all__ = ["THETAS", "NodeLosses", "heaviest", "worst_drops"]

THETAS = (0.0, 0.5, 1.0)

Floats = NDArray[np.float64]


class NodeLosses:
    """What attacks on a single node take from the lead over each rival.

    Args:
        views: The views and what reaches them.
        leads: Part that each view has in the lead over each of ``B`` rivals, ``[R, B]``.
    """

    def __init__(self, views: NodeViews, leads: Floats) -> None:
        self.views, self.rivals = views, leads.shape[1]
        reached, base = views.reached, leads[views.base]
        drops = base[:, None] - leads[reached]
        drops[reached < 0] = -np.inf
        self._drops = drops  # [V, M, B]
        self._slack = self._slacks(drops[:, : views.steps.moves.shape[1]])
        self._table = np.zeros((views.graph.num_nodes, len(THETAS), self.rivals, 1, 1))

    def _slacks(self, single: Floats) -> Floats:
        """``(delta_v(w) - delta_w(v)) / 2`` for the best partner ``w`` of every node and move, ``[n, 2K, B]``; 0 if impossible.

        ``delta_v(w)`` depends only on the kind of ``w``, so the best partner is the one that loses most itself.
        """
        views, graph = self.views, self.views.graph
        n, number = graph.num_nodes, single.shape[1] // 2
        joined = np.zeros((n, n), dtype=np.bool_)
        joined[graph.edges[:, 0], graph.edges[:, 1]] = True
        free = ~np.eye(n, dtype=np.bool_)
        if len(graph.frozen):
            free[graph.frozen[:, 0], graph.frozen[:, 1]] = free[graph.frozen[:, 1], graph.frozen[:, 0]] = False
        joined |= joined.T
        order = np.argsort(views.kinds, kind="stable")
        starts = np.searchsorted(views.kinds[order], np.arange(number))
        slack = np.zeros((n, 2 * number, self.rivals))
        for part, pairs in ((slice(0, number), free & ~joined), (slice(number, None), free & joined)):
            mine = single[views.class_of_node][:, part]  # [n, K, B]: what v loses by a partner of each kind
            theirs = np.where(pairs[order][:, :, None], mine[order][:, views.kinds], -np.inf)  # [w, v, B]
            best = np.maximum.reduceat(theirs, starts, axis=0).transpose(1, 0, 2)
            possible = np.isfinite(best)
            slack[:, part][possible] = (mine[possible] - best[possible]) / 2
        return slack

    def table(self, flips: int) -> Floats:
        """``W_v`` for each theta, ``[n, thetas, B, additions, removals]``, for at least so many flips, as far as was looked;
        ``-inf`` where impossible.

        Few flips are looked at first: most graphs need no more.
        """
        deepest = int((self.views.steps.adds + self.views.steps.removes).max())
        if self._table.shape[-1] <= min(flips, deepest):
            self._table = self._tabulated(min(deepest, max(flips, 2 * self._table.shape[-1])))
        return self._table

    def _tabulated(self, flips: int) -> Floats:
        steps = self.views.steps
        wanted = np.flatnonzero(steps.adds + steps.removes <= flips)
        drops = self._drops[self.views.class_of_node[:, None], wanted]  # [n, M, B]
        shifts = np.matmul(steps.moves[wanted].astype(np.float64), self._slack)
        found = np.full((len(drops), len(THETAS), self.rivals, flips + 1, flips + 1), -np.inf)
        found[..., 0, 0] = 0.0
        # compositions with as many additions and as many removals stand together
        adds, removes = steps.adds[wanted], steps.removes[wanted]
        starts = np.flatnonzero(np.diff(np.stack([adds, removes]), prepend=-1).any(axis=0))
        for place, theta in enumerate(THETAS):
            best = np.maximum.reduceat(drops - theta * shifts if theta else drops, starts, axis=1)
            found[:, place, :, adds[starts], removes[starts]] = best.transpose(1, 0, 2)
        return found


def heaviest(values: Floats, total: tuple[int, int]) -> Floats:
    r"""The largest sum with one value per node and exactly the given total, ``max { sum_v values_v[k_v] : sum_v k_v = total }``.

    Args:
        values: ``[n, ..., A, D]``; entry ``[v, ..., a, d]`` is what ``a`` additions and ``d`` removals at ``v`` bring.
        total: Additions and removals to hand out.

    Returns:
        ``[...]``, ``-inf`` where the total cannot be handed out.

    >>> drops = np.array([[0.0, 5.0, 6.0], [0.0, 4.0, 9.0], [0.0, 1.0, 1.0]])
    >>> float(heaviest(drops[:, :, None], (2, 0)))  # 5 + 4 and 9 are the best two
    9.0
    """
    values = values[..., : total[0] + 1, : total[1] + 1]
    while len(values) > 1:
        even = len(values) // 2 * 2
        merged = _merged(values[0:even:2], values[1:even:2], total)
        if even < len(values):
            rest = np.full((1, *merged.shape[1:]), -np.inf)
            rest[..., : values.shape[-2], : values.shape[-1]] = values[even:]
            merged = np.concatenate([merged, rest])
        values = merged
    if values.shape[-2] <= total[0] or values.shape[-1] <= total[1]:
        return np.full(values.shape[1:-2], -np.inf)
    found: Floats = values[0, ..., total[0], total[1]]
    return found


def _merged(left: Floats, right: Floats, total: tuple[int, int]) -> Floats:
    """The best of two nodes together for every total up to the one wanted."""
    rows, columns = left.shape[-2:]
    top = [
        min(size + other - 2, most) + 1
        for size, other, most in zip((rows, columns), right.shape[-2:], total, strict=True)
    ]
    out = np.full((*np.broadcast_shapes(left.shape[:-2], right.shape[:-2]), *top), -np.inf)
    for a in range(min(rows, top[0])):
        for d in range(min(columns, top[1])):
            part = right[..., : top[0] - a, : top[1] - d]
            place = out[..., a : a + part.shape[-2], d : d + part.shape[-1]]
            np.maximum(place, left[..., a : a + 1, d : d + 1] + part, out=place)
    return out


def _either(values: Floats, flips: int) -> Floats:
    """The best of all splits into additions and removals: ``[..., A, D]`` becomes ``[..., flips + 1, 1]``."""
    out = np.full((*values.shape[:-2], flips + 1, 1), -np.inf)
    for a in range(min(values.shape[-2], flips + 1)):
        for d in range(min(values.shape[-1], flips + 1 - a)):
            np.maximum(out[..., a + d, 0], values[..., a, d], out=out[..., a + d, 0])
    return out


def worst_drops(losses: NodeLosses, budget: tuple[int, int] | int) -> Floats:
    """The largest drop of the lead over each rival in an attack of exactly so many flips, ``[B]``; ``-inf`` if there is none.

    Args:
        losses: Of the nodes, looked at deep enough for the budget.
        budget: Flips of either kind, or additions and removals.
    """
    if isinstance(budget, int):
        values, total = _either(losses.table(budget), budget), (2 * budget, 0)
    else:
        adds, removes = budget
        values = losses.table(adds + removes)[..., : adds + 1, : removes + 1]
        total = (2 * adds, 2 * removes)
    found: Floats = heaviest(values, total).min(axis=0)
    return found
