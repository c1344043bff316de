"""The views of many graphs and all that attacks reach from them, and what the worst attack on a batch takes from its leads.

The knapsack is a maximum over attacks, and what an attack takes from the lead is a sum of votes before minus votes after. So the
maximum is found without gradients, over all views that attacks reach, and only the votes that it is made of are computed again
with them. That costs hardly more than the network itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from flipproof.certificates.local_scores import rivals_of
from flipproof.certificates.node_views import NodeViews, default_depth, kinds_of
from flipproof.classifiers.features import NodeFeatures
from flipproof.graphs import Graph
from flipproof.models.local_network import Local, LocalViews, Voters, class_scores


class TrainingAttack(NamedTuple):
    """What a step prepares for: the network's budget, and at most so many additions, removals and flips."""

    budget: int
    adds: int
    removes: int
    flips: int


class ReachedViews:
    """The views of many graphs and all that attacks reach from them, one after the other in flat tensors.

    Every class of nodes has, for each number of flips, a segment of entries: the views that it can have after so many. The first
    entry of each is the view as it is.
    """

    def __init__(
        self,
        graphs: list[Graph],
        labels: Tensor,
        features: NodeFeatures,
        model: Local,
        flips: int,
        odds: np.ndarray[Any, np.dtype[np.float64]] | None = None,
    ) -> None:
        self.labels, self.num_classes = labels, model.num_classes
        found, sums = [], []
        parts = []
        for number, graph in enumerate(graphs):
            x = model.measured(features.of(graph).to(torch.float32)[:, : model.in_features]).float().numpy()
            kinds_rows, kinds = kinds_of(x)
            most = default_depth(len(kinds_rows), graph.num_nodes)
            depth = min(flips, most, max(1, graph.num_nodes - 1))
            views = NodeViews.of(graph, kinds, depth, swaps=False)
            found.append(views)
            counts, each = torch.from_numpy(views.counts.astype(np.float32)), torch.from_numpy(kinds_rows)
            owner = torch.full((len(views),), number)
            own = each[torch.from_numpy(views.own)]
            parts.append(LocalViews.counted(own, counts, each, owner))
            sums.append(x.sum(axis=0))
        self.depth = flips
        self.sizes = torch.tensor([graph.num_nodes for graph in graphs], dtype=torch.float32)
        self.sums = torch.from_numpy(np.stack(sums))
        self.odds = None if odds is None else torch.from_numpy(odds)
        self.edges = torch.tensor([graph.num_edges for graph in graphs], dtype=torch.float32)
        self.most = torch.tensor([[graph.max_adds, graph.max_removes] for graph in graphs], dtype=torch.float32)
        self.rows = _Parts([len(views) for views in found])
        self.inputs = model.view_inputs(LocalViews(*map(torch.cat, zip(*parts, strict=True))), self.sizes)
        self.nodes = _Parts([graph.num_nodes for graph in graphs])
        self.classes = _Parts([len(views.base) for views in found])
        self.class_of_node = torch.from_numpy(np.concatenate([views.class_of_node for views in found]))
        self.base = torch.from_numpy(np.concatenate([views.base for views in found]))
        self.kind_of_node = torch.from_numpy(np.concatenate([views.kinds for views in found]))
        self._entries(found)
        self._pairs(found)
        self.columns, self.signs = (
            torch.from_numpy(np.stack([rivals_of(label, self.num_classes)[part] for label in range(self.num_classes)]))
            for part in (0, 1)
        )

    def _entries(self, found: list[NodeViews]) -> None:
        """Segments of (class, flips), each with the views that so many flips reach: by graph, class, flips."""
        targets, adds, removes, lengths = [], [], [], []
        for views in found:
            steps, classes = views.steps, len(views.base)
            totals = steps.adds + steps.removes
            of_class, step = np.nonzero(views.reached >= 0)
            stay = np.repeat(np.arange(classes), self.depth)
            flips = np.tile(np.arange(1, self.depth + 1), classes)
            segment = np.concatenate([stay * self.depth + flips - 1, of_class * self.depth + totals[step] - 1])
            order = np.argsort(segment, kind="stable")
            targets.append(np.concatenate([views.base[stay], views.reached[of_class, step]])[order])
            zeros = np.zeros(len(stay), dtype=np.int64)
            adds.append(np.concatenate([zeros, steps.adds[step]])[order])
            removes.append(np.concatenate([zeros, steps.removes[step]])[order])
            lengths.append(np.bincount(segment, minlength=classes * self.depth))
        self.entries = _Parts([len(part) for part in targets])
        self.targets = torch.from_numpy(np.concatenate(targets))
        self.adds, self.removes = (torch.from_numpy(np.concatenate(part)) for part in (adds, removes))
        self.segment_lengths = torch.from_numpy(np.concatenate(lengths))

    def _pairs(self, found: list[NodeViews]) -> None:
        """The kinds of flips of a single pair: classes of both ends and the views that they get; each once per graph."""
        parts: list[np.ndarray[Any, Any]] = []
        for views in found:
            graph, number = views.graph, views.counts.shape[1]
            slots = graph.slots
            first = np.zeros((0, 5), dtype=np.int64)
            if len(slots):
                u, w = np.triu_indices(graph.num_nodes, 1)
                u, w = u[slots], w[slots]
                state = graph.slot_states
                cu, cw = views.class_of_node[u], views.class_of_node[w]
                shift = np.where(state, number, 0)
                first = np.unique(
                    np.stack(
                        [
                            state.astype(np.int64),
                            views.base[cu],
                            views.base[cw],
                            views.reached[cu, shift + views.kinds[w]],
                            views.reached[cw, shift + views.kinds[u]],
                        ],
                        axis=1,
                    ),
                    axis=0,
                )
            parts.append(first)
        self.pairs = _Parts([len(part) for part in parts])
        self.pair_rows = torch.from_numpy(np.concatenate(parts))

    def odds_leads(self, model: Local, members: Tensor) -> Tensor:
        """Leads of the true class over its rivals by the log-odds alone, ``[B, C - 1]``."""
        labels = self.labels[members]
        scores = model.odds_leads(self.context(model, members, 1))
        return scores.gather(1, self.columns[labels]) * self.signs[labels]

    def context(self, model: Local, members: Tensor, budget: int) -> Tensor:
        """What is known of the node sets of some graphs, ``[B, z]``."""
        odds = None if self.odds is None else self.odds[members]
        return model.context(self.sizes[members], self.sums[members], odds, budget=budget)

    def batch(self, members: Tensor) -> ReachedBatch:
        return ReachedBatch(self, members)


@dataclass(frozen=True, eq=False)
class ReachedBatch:
    """Some of the graphs."""

    views: ReachedViews
    members: Tensor

    def leads(
        self, model: Local, attack: TrainingAttack, *, attacked: bool = True, voters: Voters | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Leads of the true class over its rivals, what the worst attack takes ``[B, C - 1]``; who is right ``[B]``.

        They are those of one member of the network, ``voters``, or else of all together.
        """
        views, members = self.views, self.members
        context = views.context(model, members, attack.budget)
        labels = views.labels[members]
        columns, signs = views.columns[labels], views.signs[labels]
        offsets = self._offsets(model, voters, context, torch.zeros(len(members), 1))[:, 0]
        rows, owner = views.rows.select(members)

        def lead(chosen: Tensor, graph: Tensor) -> Tensor:
            scores = model.view_scores(views.inputs[rows[chosen]], context, graph, voters)
            return scores.gather(1, columns[graph]) * signs[graph]

        # views of the graphs as they are, and how many nodes have each
        node_rows, node_owner = self._node_rows(rows)
        distinct, place = torch.unique(node_rows, return_inverse=True)
        graph = owner[distinct]
        scores = model.view_scores(views.inputs[rows[distinct]], context, graph, voters)
        count = torch.bincount(place, minlength=len(distinct)).unsqueeze(1)
        totals = offsets.index_add(0, graph, scores * count)
        leads = totals.gather(1, columns) * signs
        right = class_scores(totals, views.num_classes).argmax(dim=1) == labels
        if not attacked:
            return leads, torch.zeros_like(leads), right
        with torch.no_grad():
            everywhere = lead(torch.arange(len(rows)), owner)
            before, after, of_graph, rival = self._worst(everywhere, node_rows, node_owner, attack)
        used, place = torch.unique(torch.cat([before, after]), return_inverse=True)
        known = lead(used, owner[used])[place, rival.repeat(2)]
        drops = known[: len(before)] - known[len(before) :]
        worst = leads.new_zeros(leads.numel()).index_add(0, of_graph * leads.shape[1] + rival, drops).view_as(leads)
        if not model.in_features:
            worst = worst + self._worst_offset(model, voters, context, attack, columns, signs)
        return leads, worst, right

    def _offsets(self, model: Local, voters: Voters | None, context: Tensor, changes: Tensor) -> Tensor:
        """The offsets with so many edges more, ``[B, K, P]`` for ``[B, K]``."""
        views, members = self.views, self.members
        number = changes.shape[1]
        sizes = views.sizes[members].repeat_interleave(number)
        counts = model.count_inputs(sizes, (views.edges[members].unsqueeze(1) + changes).flatten())
        return model.offsets(context.repeat_interleave(number, 0), counts, voters).view(len(members), number, -1)

    def _worst_offset(
        self,
        model: Local,
        voters: Voters | None,
        context: Tensor,
        attack: TrainingAttack,
        columns: Tensor,
        signs: Tensor,
    ) -> Tensor:
        """What the worst number of edges takes from the leads, ``[B, C - 1]``."""
        most = self.views.most[self.members]
        changes = torch.arange(-min(attack.removes, attack.flips), min(attack.adds, attack.flips) + 1.0)
        changes = torch.maximum(torch.minimum(changes, most[:, :1]), -most[:, 1:])
        offsets = self._offsets(model, voters, context, changes)
        leads = offsets.gather(2, columns.unsqueeze(1).expand(-1, changes.shape[1], -1)) * signs.unsqueeze(1)
        now = (changes == 0).float().argmax(dim=1)
        own = leads[torch.arange(len(leads)), now]
        return own - leads.amin(dim=1)

    def _node_rows(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The view of every node as a row of the batch, and the graph of every node."""
        views, members = self.views, self.members
        nodes, owner = views.nodes.select(members)
        classes = views.class_of_node[nodes] + views.classes.starts[members][owner]
        return views.base[classes] + self._first_rows()[owner], owner

    def _first_rows(self) -> Tensor:
        counts = self.views.rows.counts[self.members]
        return torch.cumsum(counts, 0) - counts

    def _worst(
        self, leads: Tensor, node_rows: Tensor, node_owner: Tensor, attack: TrainingAttack
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The views before and after the worst attack, as rows of the batch, with graph and rival of each."""
        views, members = self.views, self.members
        _, adds, removes, flips = attack
        if flips == 1:
            return self._worst_pair(leads, adds, removes)
        # the worst view of every class after each number of flips
        entries, owner = views.entries.select(members)
        classes, class_owner = views.classes.select(members)
        segments = (classes.unsqueeze(1) * views.depth + torch.arange(views.depth)).flatten()
        lengths = views.segment_lengths[segments]
        targets = views.targets[entries] + self._first_rows()[owner]
        allowed = (views.adds[entries] <= adds) & (views.removes[entries] <= removes)
        values = leads[targets].masked_fill(~allowed.unsqueeze(1), torch.inf)
        starts = (torch.cumsum(lengths, 0) - lengths).numpy()
        least = np.minimum.reduceat(values.numpy(), starts, axis=0)
        attained = values.numpy() == np.repeat(least, lengths.numpy(), axis=0)
        places = np.where(attained, np.arange(len(attained))[:, None], len(attained))
        first = torch.from_numpy(np.minimum.reduceat(places, starts, axis=0)).view(len(classes), views.depth, -1)
        reached = targets[first[:, :flips]]  # [V, k, rivals]
        lowest = torch.from_numpy(least).view(len(classes), views.depth, -1)[:, :flips]
        # at most k flips: the best number up to k
        lowest, number = torch.cummin(lowest, dim=1)
        reached = reached.gather(1, number)
        own = leads[(views.base[classes] + self._first_rows()[class_owner])].unsqueeze(1)
        losses = torch.cat([torch.zeros_like(own), own - lowest], dim=1)  # [V, k + 1, rivals]
        # nodes, padded: two more that lose nothing take up what is left of the total
        nodes, _ = views.nodes.select(members)
        first_class = torch.cumsum(views.classes.counts[members], 0) - views.classes.counts[members]
        class_of_node = views.class_of_node[nodes] + first_class[node_owner]
        counts = views.nodes.counts[members]
        place = torch.arange(len(nodes)) - (torch.cumsum(counts, 0) - counts)[node_owner]
        rivals = leads.shape[1]
        padded = leads.new_zeros(len(members), int(counts.max()) + 2, flips + 1, rivals)
        padded[node_owner, place] = losses[class_of_node]
        chosen = worst_choice(padded.permute(0, 3, 1, 2).flatten(0, 1), 2 * flips)
        taken = chosen.view(len(members), rivals, -1)[node_owner, :, place]  # [nodes, rivals]
        touched, rival = taken.nonzero(as_tuple=True)
        after = reached[class_of_node[touched], taken[touched, rival] - 1, rival]
        return node_rows[touched], after, node_owner[touched], rival

    def _worst_pair(self, leads: Tensor, adds: int, removes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One flip, exactly: the pair whose two ends lose most together."""
        views, members = self.views, self.members
        pairs, owner = views.pairs.select(members)
        if not len(pairs):
            nothing = torch.zeros(0, dtype=torch.int64)
            return nothing, nothing, nothing, nothing
        rows = views.pair_rows[pairs]
        rows[:, 1:] += self._first_rows()[owner].unsqueeze(1)
        drops = leads[rows[:, 1]] + leads[rows[:, 2]] - leads[rows[:, 3]] - leads[rows[:, 4]]
        possible = torch.where(rows[:, 0] == 1, removes > 0, adds > 0)
        drops = drops.masked_fill(~possible.unsqueeze(1), -torch.inf)
        most = drops.new_full((len(members), leads.shape[1]), -torch.inf)
        most = most.scatter_reduce(0, owner.unsqueeze(1).expand_as(drops), drops, "amax")
        attained = (drops == most[owner]) & possible.unsqueeze(1)
        places = torch.where(attained, torch.arange(len(drops)).unsqueeze(1), len(drops))
        first = torch.full(most.shape, len(drops))
        first = first.scatter_reduce(0, owner.unsqueeze(1).expand_as(places), places, "amin")
        graph, rival = (first < len(drops)).nonzero(as_tuple=True)
        pair = rows[first[graph, rival]]
        return (
            torch.cat([pair[:, 1], pair[:, 2]]),
            torch.cat([pair[:, 3], pair[:, 4]]),
            graph.repeat(2),
            rival.repeat(2),
        )


class _Parts:
    """How a flat tensor is divided among graphs."""

    def __init__(self, counts: list[int]) -> None:
        self.counts = torch.tensor(counts)
        self.starts = torch.cumsum(self.counts, 0) - self.counts

    def select(self, members: Tensor) -> tuple[Tensor, Tensor]:
        """Places of the members' entries, and for each the number of its graph in the batch."""
        counts = self.counts[members]
        owner = torch.repeat_interleave(torch.arange(len(members)), counts)
        first = torch.cumsum(counts, 0) - counts
        return torch.arange(len(owner)) + (self.starts[members] - first)[owner], owner


def worst_choice(values: Tensor, total: int) -> Tensor:
    """How to hand out a total among nodes so that their values add up to most, ``[Q, n]``.

    Args:
        values: What ``0, 1, ..., k`` bring at each node, ``[Q, n, k + 1]``.
        total: The sum to hand out, at most ``n k``.

    >>> worst_choice(torch.tensor([[[0.0, 5.0, 6.0], [0.0, 4.0, 8.5], [0.0, 1.0, 1.0]]]), 2).tolist()
    [[1, 1, 0]]
    """
    levels = []
    number = 2 ** math.ceil(math.log2(max(2, values.shape[1])))
    padding = values.new_full((len(values), number - values.shape[1], values.shape[2]), -torch.inf)
    padding[..., 0] = 0
    best = torch.cat([values, padding], dim=1)
    while best.shape[1] > 1:
        left, right = best[:, 0::2], best[:, 1::2]
        shares = left.shape[2]
        width = min(total, shares + right.shape[2] - 2) + 1
        # windows[..., s, i] is what is right of a share of `shares - 1 - i` for a total of s
        beyond = (shares - 1, max(0, width - right.shape[2]))
        windows = torch.nn.functional.pad(right, beyond, value=-torch.inf).unfold(2, shares, 1)[:, :, :width]
        best, place = (windows + left.flip(2).unsqueeze(2)).max(dim=3)
        share = shares - 1 - place
        levels.append(share)
    chosen = torch.full((len(values), 1), total)
    for share in reversed(levels):
        left_part = share.gather(2, chosen.unsqueeze(2)).squeeze(2)
        chosen = torch.stack([left_part, chosen - left_part], dim=2).flatten(1)
    return chosen[:, : values.shape[1]]
