"""Group votes: what the base classifier said about every hashed sub-graph, what votes cost, and the majority's certificate.

One flip changes one sub-graph, hence at most one vote: with ``N_A`` votes for the winner, ``N_B`` for a rival and ties to the
smaller label, every attack of ``floor((N_A - N_B - [B < A]) / 2)`` flips is withstood (GNNCert, Xia et al., ICLR 2024). Here it
is counted which groups an attacker can change at all, and votes are bought at their prices where these are known
(:mod:`flipproof.certificates.prices`). ``docs/voting.md`` has the proofs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import EDGE_AXES, GRID_LIMIT, Certificate, ClassCell, WeakSpots, cut_grid
from flipproof.certificates.crossed_votes import withstood
from flipproof.certificates.evidence import Evidence, by_fields
from flipproof.certificates.prices import Prices, Purchase, cheapest_purchase, contest, price_table, priced_grid
from flipproof.checks import checked_count
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray, pairs_of_slots
from flipproof.noise.groups import GROUPS, HASH_VERSION, EdgeGroups

_SHOWN_ROWS = 12


@dataclass(frozen=True, eq=False)
class GroupVotes(Evidence):
    """The base classifier's label on each of the ``T`` sub-graphs of one graph.

    Attributes:
        labels: Label of sub-graph 0, 1, ...; small unsigned integers ``[T]``, or ``[S * T]`` for ``S`` feature groups: first
            those with the features of group 0.
        graph: The whole graph.
        groups: The assignment of node pairs.
        num_classes: Declared classes ``C``, also those without a vote.
        prices: What is known of the price of every vote; ``None`` if the model saw the sub-graphs alone.
        differing: 1 if the model itself answers otherwise about the sub-graph on which a shortcut to it was compared with it.
        feature_groups: Number of groups ``S`` of nodes whose features are shown together.
    """

    kind = "group votes"
    versions: ClassVar = {"hash": HASH_VERSION}
    parts: ClassVar = {"groups": GROUPS, "prices": by_fields(Prices)}

    labels: NDArray[np.unsignedinteger[Any]]
    graph: Graph
    groups: EdgeGroups
    num_classes: int
    prices: Prices | None = None
    differing: int = 0
    feature_groups: int = 1

    compared = 1

    def __post_init__(self) -> None:
        count = self.groups.count * self.feature_groups
        if self.labels.shape != (count,) or self.labels.dtype.kind not in "iu":
            raise InputError(
                f"votes must be one integer per group, [{count}]; got {self.labels.dtype} of shape "
                f"{list(self.labels.shape)}"
            )
        outside = self.labels[(self.labels < 0) | (self.labels >= self.num_classes)]
        if len(outside):
            raise InputError(f"votes must lie in 0..{self.num_classes - 1}; got {outside[0]} (check num_classes)")
        if self.prices is not None:
            if self.feature_groups > 1:
                raise InputError("votes of feature groups have no prices; got some (leave prices out)")
            self._check_prices(self.prices)
        self.labels.flags.writeable = False

    def _check_prices(self, prices: Prices) -> None:
        if len(prices.depths) != len(self.labels):
            raise InputError(f"prices must be known for {len(self.labels)} groups; got {len(prices.depths)}")
        group, label = prices.ways[:, 0], prices.ways[:, 1]
        if (group >= len(self.labels)).any() or (label >= self.num_classes).any():
            raise InputError("prices must belong to a group and a class of the votes (make the evidence again)")
        if (prices.totals < 1).any() or (label == self.labels[np.minimum(group, len(self.labels) - 1)]).any():
            raise InputError(
                "a price must be that of another class than the vote, at least 1 (make the evidence again)"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def counts(self) -> IntArray:
        """Votes for each class, ``[C]``."""
        return np.bincount(self.labels, minlength=self.num_classes).astype(np.int64)

    @cached_property
    def room(self) -> tuple[IntArray, IntArray]:
        """Empty pairs and edges that an attacker finds in each group, ``[T]`` each."""
        return self.groups.room(self.graph)

    @cached_property
    def reachable(self) -> NDArray[np.bool_]:
        """Whether an attacker finds an empty pair, and an edge, in each group, ``[2, T]``; known of large graphs, too."""
        return np.stack([self.groups.addable(self.graph), self.groups.removable(self.graph)])

    @property
    def depth(self) -> int:
        """The largest number of flips up to which all sets of flips inside a group were tried; 0 without prices."""
        return 0 if self.prices is None else int(self.prices.depths.max())

    @property
    def calls(self) -> int:
        if self.prices is None:
            return len(self)
        searched = zip((self.room[0] + self.room[1]).tolist(), self.prices.depths.tolist(), strict=True)
        flips = sum(comb(size, level) for size, depth in searched for level in range(1, depth + 1))
        return len(self) + flips + int(self.prices.tried.sum())

    def purchase(self) -> Purchase | None:
        """What an attacker would buy: the cheapest votes that change the majority."""
        return cheapest_purchase(self)

    def attack(self) -> IntArray | None:
        """The smallest attack that changes the majority, as node pairs ``[cost, 2]``; ``None`` where prices do not tell."""
        bought = None if self.prices is None else cheapest_purchase(self)
        if bought is None or not bought.exact:
            return None
        flips, complete = self._known_flips(bought)
        return flips if complete else None

    def weak_spots(self, radius: int) -> WeakSpots | None:
        """The cheapest purchase with the flips that are known to buy its votes, and what the next votes would cost.

        ``radius`` is the number of flips that the certificate withstands. The flips succeed if all prices are exact. If not,
        those of the votes whose price is known are a candidate.
        """
        bought = None if self.prices is None else cheapest_purchase(self)
        if bought is None or radius < 0:
            return None
        flips, complete = self._known_flips(bought)
        prices, exact = price_table(self)
        parts = {part.group: part.label for part in bought.parts}
        # a vote that is not bought is shown with the price at which the rival would get it
        votes = [(group, parts.get(group, bought.rival)) for group in range(len(self))]
        votes = [(group, label) for group, label in votes if label != self.labels[group]]
        votes.sort(key=lambda vote: (vote[0] not in parts, int(prices[vote]), vote[0]))
        rows = []
        for group, label in votes[:_SHOWN_ROWS]:
            price = f"{'' if exact[group, label] else '≥ '}{prices[group, label]}"
            price = "not for sale" if prices[group, label] > self.graph.num_slots else price
            was, after = ClassCell(int(self.labels[group])), ClassCell(label)
            rows.append((group, was, after, price, "yes" if group in parts else ""))
        return WeakSpots(
            rival=bought.rival,
            flips=tuple((u, v) for u, v in flips.tolist()),
            succeeds=complete,
            caption="What votes cost in flips, cheapest first",
            columns=("Group", "Vote", "Turned into", "Price", "Bought"),
            rows=tuple(rows),
        )

    def _known_flips(self, bought: Purchase) -> tuple[IntArray, bool]:
        """The flips of those votes of a purchase whose price is known, as node pairs, and whether these are all."""
        exact = [part for part in bought.parts if part.exact and self.prices is not None]
        known = [self.prices.flips(part.group, part.label) for part in exact if self.prices is not None]
        slots = [flips for flips in known if flips is not None]
        joined = np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *slots]))
        return pairs_of_slots(joined, self.graph.num_nodes), len(slots) == len(bought.parts)

    def made_again(self) -> bool:
        """Whether every stored set of flips lies in its group and has as many additions and removals as it claims."""
        if self.prices is None:
            return True
        ways, graph = self.prices.ways, self.graph
        flips, width = ways[:, 5:], ways.shape[1] - 5
        inside = flips >= 0
        slots = np.where(inside, flips, 0)
        if (slots >= graph.num_nodes * (graph.num_nodes - 1) // 2).any():
            return False
        group = self.groups.of_slots(slots.ravel(), graph.num_nodes).reshape(slots.shape)
        is_edge = np.isin(slots, graph.flippable_edge_slots)
        ordered = np.sort(np.where(inside, flips, -1 - np.arange(width)), axis=1)
        return bool(
            (~inside | (group == ways[:, :1])).all()
            and not (inside & np.isin(slots, graph.frozen_slots)).any()
            and (np.diff(ordered, axis=1) != 0).all()
            and ((inside & ~is_edge).sum(axis=1) == ways[:, 2]).all()
            and ((inside & is_edge).sum(axis=1) == ways[:, 3]).all()
        )

    def certify(self, *, depth: int | None = None) -> Certificate:
        """The certificate of the majority; see :func:`flipproof.certify_group_votes`."""
        return certify_group_votes(self, depth=depth)


def certify_group_votes(votes: GroupVotes, *, depth: int | None = None) -> Certificate:
    """The certificate that the votes of a graph's sub-graphs give: alpha 0, and it never abstains.

    ``radius`` is the largest ``r`` such that no ``r`` flips can change the majority, given the votes and what is known of their
    prices, whatever the base classifier says about other sub-graphs. ``votes_radius`` is what the counts alone give, without a
    look at which groups hold a pair at all; ``order`` is the largest depth to which a group was searched. With several feature
    groups, ``feature_radius`` is the number of nodes whose features may change, and the grid counts flips and changed nodes.

    Args:
        votes: The votes, with or without prices.
        depth: Read prices of at most this many flips; 0 for the counts of votes alone, as without prices.
    """
    if not isinstance(votes, GroupVotes):
        raise InputError(f"expected GroupVotes; got {type(votes).__name__} (certify_votes takes sampled Votes)")
    if depth is not None:
        depth = checked_count(depth, "depth", 0, "None for all prices that are known")
    graph, counts, total = votes.graph, votes.counts, len(votes)
    label, rivals, needed = contest(counts)
    leads = needed - 1
    read = votes.depth if depth is None else min(depth, votes.depth)
    priced = votes.prices is not None and bool(votes.prices.depths.any() or len(votes.prices.ways)) and depth != 0
    axes, feature_radius, votes_radius = EDGE_AXES, None, int(leads.min()) // (2 * votes.feature_groups)
    if votes.feature_groups > 1:
        axes, (radius, feature_radius), grid = ("flips", "changed nodes"), *_crossed(votes)
    else:
        grid = priced_grid(votes, depth=depth)
        if priced:
            bought = cheapest_purchase(votes, depth=depth)
            radius = graph.num_slots if bought is None else min(bought.cost - 1, graph.num_slots)
        else:
            # r flips take min(r, a) votes from the label and give the rival min(r, b)
            inside, others = np.any(votes.reachable, axis=0), votes.labels != rivals[:, None]
            a, b = ((votes.labels == label) & inside).sum(), (others & inside).sum(axis=1)
            flips = np.where(leads < 2 * a, leads // 2, np.where(leads < a + b, leads - a, graph.num_slots))
            radius = min(int(flips.min()), graph.num_slots)
    return Certificate(
        label=label,
        radius=radius,
        method="voting",
        samples=total,
        counts=tuple(counts.tolist()),
        p_lower=float(counts[label] / total),
        p_upper=float(counts[rivals].max() / total),
        num_slots=graph.num_slots,
        grid=grid,
        order=read,
        votes_radius=min(votes_radius, graph.num_slots),
        axes=axes,
        feature_radius=feature_radius,
    )


def _crossed(votes: GroupVotes) -> tuple[tuple[int, int], NDArray[np.bool_]]:
    """Flips and changed nodes withstood, each alone, and the grid of both."""
    graph, number = votes.graph, votes.feature_groups
    nodes = np.bincount(votes.groups.of_nodes(graph.num_nodes, number), minlength=number) > 0
    table = withstood(votes.labels.reshape(number, -1), votes.num_classes, nodes, np.any(votes.reachable, axis=0))
    limits = graph.num_slots, graph.num_nodes
    flips, changes = (
        limit if alone.all() else int(alone.argmin()) - 1
        for limit, alone in zip(limits, (table[:, 0], table[0]), strict=True)
    )
    # beyond the number of groups, an attack reaches no more
    numbers = (np.arange(min(limit, GRID_LIMIT - 1) + 1) for limit in limits)
    reached = (np.minimum(number, end - 1) for number, end in zip(numbers, table.shape, strict=True))
    return (flips, changes), cut_grid(table[np.ix_(*reached)])
