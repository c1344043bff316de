"""The certificate of a majority vote over hashed sub-graphs: one flip changes one sub-graph, hence at most one vote.

With ``N_A`` votes for the winner, ``N_B`` for a rival and ties to the smaller label, the answer stands while

    N_A - N_B - [B < A] >= drop,        drop <= 2 r after r flips,

so every attack of ``floor((N_A - N_B - [B < A]) / 2)`` flips is withstood (GNNCert, Xia et al., ICLR 2024). Here the drop is
counted exactly: a group without a pair that the attacker can flip keeps its vote, and so does, against removals alone, a group
without an edge. With certainty: nothing is sampled. Where the prices of votes are known, the drop is bought at these prices
instead of one flip each (:mod:`flipproof.certificates.prices`). ``docs/voting.md`` has the proofs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import GRID_LIMIT, Certificate, cut_grid
from flipproof.certificates.group_votes import GroupVotes
from flipproof.certificates.prices import cheapest_purchase, priced_grid
from flipproof.checks import checked_count
from flipproof.errors import InputError
from flipproof.graphs import IntArray

__all__ = ["METHOD", "certify_group_votes"]

METHOD = "voting"


def certify_group_votes(votes: GroupVotes, *, depth: int | None = None) -> Certificate:
    """The certificate that the votes of a graph's sub-graphs give: alpha 0, and it never abstains.

    ``radius`` is the largest ``r`` such that no ``r`` flips can change the majority, given the votes and what is known of their
    prices, whatever the base classifier says of sub-graphs that it was not asked about. ``votes_radius`` is what the counts alone
    give, without a look at which groups hold a pair at all; ``order`` is the depth to which some group was searched.

    Args:
        votes: The votes, with or without prices.
        depth: Read prices of no more than so many flips; 0 for the counts of votes alone, as without prices.
    """
    if not isinstance(votes, GroupVotes):
        raise InputError(f"expected GroupVotes; got {type(votes).__name__} (certify_votes takes sampled Votes)")
    if depth is not None:
        depth = checked_count(depth, "depth", 0, "None for all prices that are known")
    graph, counts, total = votes.graph, votes.counts, len(votes)
    label = int(counts.argmax())  # the first of equals: the smaller label
    rivals = np.delete(np.arange(votes.num_classes), label)
    leads = counts[label] - counts[rivals] - (rivals < label)
    adds, removes = votes.groups.addable(graph), votes.groups.removable(graph)
    for_label = votes.labels == label
    # of each rival, the groups whose change brings it one vote nearer: all but its own
    others = votes.labels != rivals[:, None]
    read = votes.depth if depth is None else min(depth, votes.depth)
    priced = votes.prices is not None and bool(votes.prices.depths.any() or len(votes.prices.found)) and depth != 0
    if priced:
        bought = cheapest_purchase(votes, depth=depth)
        radius = graph.num_slots if bought is None else min(bought.cost - 1, graph.num_slots)
        grid = priced_grid(votes, depth=depth)
    else:
        radius = _radius(leads, for_label & (adds | removes), others & (adds | removes), graph.num_slots)
        grid = _grid(leads, for_label, others, adds, removes, (graph.max_adds, graph.max_removes))
    return Certificate(
        label=label,
        radius=radius,
        method=METHOD,
        alpha=0.0,
        samples=total,
        counts=tuple(counts.tolist()),
        p_lower=float(counts[label] / total),
        p_upper=float(counts[rivals].max() / total),
        noise=None,
        num_slots=graph.num_slots,
        grid=grid,
        order=read,
        votes_radius=min(int(leads.min()) // 2, graph.num_slots),
    )


def _radius(leads: IntArray, for_label: NDArray[np.bool_], others: NDArray[np.bool_], num_slots: int) -> int:
    """Most flips with which no rival gets past its lead.

    ``r`` flips take ``min(r, a)`` votes from the label and give the rival ``min(r, b)``, of ``a`` groups that voted for the
    label and ``b >= a`` that did not vote for the rival, counting those only that can be changed.
    """
    a, b = for_label.sum(), others.sum(axis=1)
    withstood = np.where(leads < 2 * a, leads // 2, np.where(leads < a + b, leads - a, num_slots))
    return min(int(withstood.min()), num_slots)


def _grid(
    leads: IntArray,
    for_label: NDArray[np.bool_],
    others: NDArray[np.bool_],
    adds: NDArray[np.bool_],
    removes: NDArray[np.bool_],
    most: tuple[int, int],
) -> NDArray[np.bool_]:
    """Which attacks of ``[additions, removals]`` no rival gains enough from."""
    added, removed = (np.arange(min(limit, GRID_LIMIT - 1) + 1) for limit in most)
    taken = _changeable(for_label, adds, removes, added, removed)
    certified = np.ones(taken.shape, dtype=np.bool_)
    for lead, groups in zip(leads, others, strict=True):
        certified &= taken + _changeable(groups, adds, removes, added, removed) <= lead
    return cut_grid(certified)


def _changeable(
    groups: NDArray[np.bool_],
    adds: NDArray[np.bool_],
    removes: NDArray[np.bool_],
    added: IntArray,
    removed: IntArray,
) -> IntArray:
    """How many of the groups so many additions and removals can change, one flip each, ``[additions, removals]``."""
    only_adds, only_removes = (groups & adds & ~removes).sum(), (groups & removes & ~adds).sum()
    spare = np.maximum(added - only_adds, 0)[:, None] + np.maximum(removed - only_removes, 0)
    first = np.minimum(added, only_adds)[:, None] + np.minimum(removed, only_removes)
    result: IntArray = first + np.minimum(spare, (groups & adds & removes).sum())
    return result
