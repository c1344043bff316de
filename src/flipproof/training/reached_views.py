"""The views of many graphs and all that attacks reach from them, and what the worst attack on a batch takes from its leads.

The worst attack is found without gradients; only the votes that it is made of are computed again with them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from flipproof.certificates.local_scores import rivals_of
from flipproof.certificates.node_views import NodeViews, default_depth, kinds_of
from flipproof.classifiers.features import NodeFeatures
from flipproof.graphs import Graph
from flipproof.models.local_network import Local, LocalViews, class_scores
from flipproof.models.node_statistics import Floats
from flipproof.training.batches import Parts

_Changes = tuple[Tensor, Tensor, Tensor, Tensor]  # views before and after, graph and rival of each


class TrainingAttack(NamedTuple):
    """What a step prepares for: the network's budget, and the largest numbers of additions, removals and flips."""

    budget: int
    adds: int
    removes: int
    flips: int


class ReachedViews:
    """The views of many graphs and all that attacks reach from them, one after the other in flat tensors: every class of nodes
    has, for each number of flips, a segment of the views that it can have after them, the first the view as it is."""

    def __init__(
        self, graphs: list[Graph], labels: Tensor, features: NodeFeatures, model: Local, flips: int, odds: Floats | None
    ) -> None:
        self.labels, self.depth = labels, flips
        views_of, parts, sums = [], [], []
        for number, graph in enumerate(graphs):
            x = model.measured(features.of(graph).to(torch.float32)[:, : model.in_features]).float().numpy()
            rows, kinds = kinds_of(x)
            depth = min(flips, default_depth(len(rows), graph.num_nodes), max(1, graph.num_nodes - 1))
            views = NodeViews.of(graph, kinds, depth, swaps=False)
            counts, own = torch.from_numpy(views.counts.astype(np.float32)), torch.from_numpy(rows)[views.own]
            parts.append(LocalViews.counted(own, counts, torch.from_numpy(rows), torch.full((len(views),), number)))
            views_of.append(views)
            sums.append(x.sum(axis=0))
        self.sizes = torch.tensor([graph.num_nodes for graph in graphs], dtype=torch.float32)
        self.sums = torch.from_numpy(np.stack(sums))
        self.odds = None if odds is None else torch.from_numpy(odds)
        self.edges = torch.tensor([graph.num_edges for graph in graphs], dtype=torch.float32)
        self.most = torch.tensor([[graph.max_adds, graph.max_removes] for graph in graphs], dtype=torch.float32)
        self.rows = Parts([len(views) for views in views_of])
        self.inputs = model.view_inputs(LocalViews(*map(torch.cat, zip(*parts, strict=True))), self.sizes)
        self.nodes = Parts([graph.num_nodes for graph in graphs])
        self.classes = Parts([len(views.base) for views in views_of])
        self.class_of_node = torch.from_numpy(np.concatenate([views.class_of_node for views in views_of]))
        self.base = torch.from_numpy(np.concatenate([views.base for views in views_of]))
        segments = [_segments(views, flips) for views in views_of]
        self.entries = Parts([len(targets) for targets, *_ in segments])
        self.targets, self.adds, self.removes, self.segment_lengths = (
            torch.from_numpy(np.concatenate(column)) for column in zip(*segments, strict=True)
        )
        pairs = [_single_flips(views) for views in views_of]
        self.pairs, self.pair_rows = Parts([len(rows) for rows in pairs]), torch.from_numpy(np.concatenate(pairs))
        rivals = [rivals_of(label, model.num_classes) for label in range(model.num_classes)]
        self.columns, self.signs = (torch.from_numpy(np.stack(column)) for column in zip(*rivals, strict=True))

    def odds_leads(self, model: Local, members: Tensor) -> Tensor:
        """Leads of the true class over its rivals by the log-odds alone, ``[B, C - 1]``."""
        labels, scores = self.labels[members], model.odds_leads(self.context(model, members, 1))
        return scores.gather(1, self.columns[labels]) * self.signs[labels]

    def context(self, model: Local, members: Tensor, budget: int) -> Tensor:
        odds = None if self.odds is None else self.odds[members]
        return model.context(self.sizes[members], self.sums[members], odds, budget=budget)

    def leads(
        self, model: Local, members: Tensor, attack: TrainingAttack, *, attacked: bool = True, alone: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Leads of the true class over its rivals, what the worst attack takes ``[B, C - 1]``; who is right ``[B]``. ``alone``:
        without log-odds."""
        context, labels = self.context(model, members, attack.budget), self.labels[members]
        columns, signs = self.columns[labels], self.signs[labels]
        rows, owner = self.rows.select(members)

        def offsets(changes: Tensor) -> Tensor:
            """The offsets after changes of the numbers of edges, ``[B, K, P]`` for ``[B, K]``."""
            number, edges = changes.shape[1], (self.edges[members].unsqueeze(1) + changes).flatten()
            counts = model.count_inputs(self.sizes[members].repeat_interleave(number), edges)
            return model.offsets(context.repeat_interleave(number, 0), counts, alone=alone).view(*changes.shape, -1)

        def lead(chosen: Tensor, graph: Tensor) -> Tensor:
            votes = model.view_scores(self.inputs[rows[chosen]], context, graph, alone=alone)
            return votes.gather(1, columns[graph]) * signs[graph]

        # views of the graphs as they are, and how many nodes have each
        nodes, node_owner = self.nodes.select(members)
        classes = self.class_of_node[nodes] + self.classes.starts[members][node_owner]
        node_rows = self.base[classes] + self.rows.starts_of(members)[node_owner]
        distinct, place = torch.unique(node_rows, return_inverse=True)
        votes = model.view_scores(self.inputs[rows[distinct]], context, owner[distinct], alone=alone)
        count = torch.bincount(place, minlength=len(distinct)).unsqueeze(1)
        totals = offsets(torch.zeros(len(members), 1))[:, 0].index_add(0, owner[distinct], votes * count)
        leads = totals.gather(1, columns) * signs
        right = class_scores(totals, model.num_classes).argmax(dim=1) == labels
        if not attacked:
            return leads, torch.zeros_like(leads), right
        with torch.no_grad():
            everywhere = lead(torch.arange(len(rows)), owner)
            if attack.flips == 1:
                before, after, graph, rival = self._worst_pair(members, everywhere, attack)
            else:
                before, after, graph, rival = self._worst(members, everywhere, node_rows, node_owner, attack)
        used, place = torch.unique(torch.cat([before, after]), return_inverse=True)
        known = lead(used, owner[used])[place, rival.repeat(2)]
        drops = known[: len(before)] - known[len(before) :]
        worst = leads.new_zeros(leads.numel()).index_add(0, graph * leads.shape[1] + rival, drops).view_as(leads)
        if not model.in_features:  # beside it, what the worst number of edges takes
            most = self.most[members]
            changes = torch.arange(-min(attack.removes, attack.flips), min(attack.adds, attack.flips) + 1.0)
            changes = torch.maximum(torch.minimum(changes, most[:, :1]), -most[:, 1:])
            places, now = columns.unsqueeze(1).expand(-1, changes.shape[1], -1), (changes == 0).float().argmax(dim=1)
            by_number = offsets(changes).gather(2, places) * signs.unsqueeze(1)
            worst = worst + (by_number[torch.arange(len(most)), now] - by_number.amin(dim=1))
        return leads, worst, right

    def _worst(
        self, members: Tensor, leads: Tensor, node_rows: Tensor, node_owner: Tensor, attack: TrainingAttack
    ) -> _Changes:
        """The views before and after the worst attack, as rows of the batch, with graph and rival of each."""
        _, adds, removes, flips = attack
        # the worst view of every class after each number of flips
        entries, owner = self.entries.select(members)
        classes, class_owner = self.classes.select(members)
        segments = (classes.unsqueeze(1) * self.depth + torch.arange(self.depth)).flatten()
        lengths, first_rows = self.segment_lengths[segments], self.rows.starts_of(members)
        targets = self.targets[entries] + first_rows[owner]
        allowed = (self.adds[entries] <= adds) & (self.removes[entries] <= removes)
        values = leads[targets].masked_fill(~allowed.unsqueeze(1), torch.inf).numpy()
        starts = (torch.cumsum(lengths, 0) - lengths).numpy()
        least = np.minimum.reduceat(values, starts, axis=0)
        attained = values == np.repeat(least, lengths.numpy(), axis=0)
        places = np.where(attained, np.arange(len(attained))[:, None], len(attained))
        first = torch.from_numpy(np.minimum.reduceat(places, starts, axis=0)).view(len(classes), self.depth, -1)
        reached = targets[first[:, :flips]]  # [V, k, rivals]
        # at most k flips: the best number up to k
        lowest, number = torch.cummin(torch.from_numpy(least).view_as(first)[:, :flips], dim=1)
        reached = reached.gather(1, number)
        own = leads[self.base[classes] + first_rows[class_owner]].unsqueeze(1)
        losses = torch.cat([torch.zeros_like(own), own - lowest], dim=1)  # [V, k + 1, rivals]
        # nodes, padded: two more that lose nothing take up what is left of the total
        nodes, _ = self.nodes.select(members)
        class_of_node = self.class_of_node[nodes] + self.classes.starts_of(members)[node_owner]
        place = torch.arange(len(nodes)) - self.nodes.starts_of(members)[node_owner]
        rivals = leads.shape[1]
        padded = leads.new_zeros(len(members), int(self.nodes.counts[members].max()) + 2, flips + 1, rivals)
        padded[node_owner, place] = losses[class_of_node]
        chosen = worst_choice(padded.permute(0, 3, 1, 2).flatten(0, 1), 2 * flips)
        taken = chosen.view(len(members), rivals, -1)[node_owner, :, place]  # [nodes, rivals]
        touched, rival = taken.nonzero(as_tuple=True)
        after = reached[class_of_node[touched], taken[touched, rival] - 1, rival]
        return node_rows[touched], after, node_owner[touched], rival

    def _worst_pair(self, members: Tensor, leads: Tensor, attack: TrainingAttack) -> _Changes:
        """The same for one flip, exactly: the pair whose two ends lose most together."""
        pairs, owner = self.pairs.select(members)
        rows = self.pair_rows[pairs]
        rows[:, 1:] += self.rows.starts_of(members)[owner].unsqueeze(1)
        drops = leads[rows[:, 1]] + leads[rows[:, 2]] - leads[rows[:, 3]] - leads[rows[:, 4]]
        possible = torch.where(rows[:, 0] == 1, attack.removes > 0, attack.adds > 0)
        drops = drops.masked_fill(~possible.unsqueeze(1), -torch.inf)
        most = drops.new_full((len(members), leads.shape[1]), -torch.inf)
        most = most.scatter_reduce(0, owner.unsqueeze(1).expand_as(drops), drops, "amax")
        attained = (drops == most[owner]) & possible.unsqueeze(1)
        places = torch.where(attained, torch.arange(len(drops)).unsqueeze(1), len(drops))
        first = torch.full(most.shape, len(drops))
        first = first.scatter_reduce(0, owner.unsqueeze(1).expand_as(places), places, "amin")
        graph, rival = (first < len(drops)).nonzero(as_tuple=True)
        pair = rows[first[graph, rival]]
        return pair[:, 1:3].T.flatten(), pair[:, 3:5].T.flatten(), graph.repeat(2), rival.repeat(2)


def _segments(views: NodeViews, depth: int) -> tuple[np.ndarray[Any, Any], ...]:
    """The views that each class reaches, with additions and removals, by class and number of flips; how many each has."""
    steps, classes = views.steps, len(views.base)
    of_class, step = np.nonzero(views.reached >= 0)
    stay, flips = np.repeat(np.arange(classes), depth), np.tile(np.arange(1, depth + 1), classes)
    totals = (steps.adds + steps.removes)[step]
    segment = np.concatenate([stay * depth + flips - 1, of_class * depth + totals - 1])
    order, nothing = np.argsort(segment, kind="stable"), np.zeros(len(stay), dtype=np.int64)
    columns = [(views.base[stay], views.reached[of_class, step])]
    columns += [(nothing, steps.adds[step]), (nothing, steps.removes[step])]
    lengths = np.bincount(segment, minlength=classes * depth)
    return (*(np.concatenate(column)[order] for column in columns), lengths)


def _single_flips(views: NodeViews) -> np.ndarray[Any, Any]:
    """The kinds of flips of a single pair: whether it is an edge, the views of both ends before and after; each once."""
    graph = views.graph
    u, w = (ends[graph.slots] for ends in np.triu_indices(graph.num_nodes, 1))
    state, first, second = graph.slot_states, views.class_of_node[u], views.class_of_node[w]
    shift = np.where(state, views.counts.shape[1], 0)
    after = views.reached[first, shift + views.kinds[w]], views.reached[second, shift + views.kinds[u]]
    columns = [state.astype(np.int64), views.base[first], views.base[second], *after]
    return np.unique(np.stack(columns, axis=1), axis=0)


def worst_choice(values: Tensor, total: int) -> Tensor:
    """How to hand out a total so that values add up to most, ``[Q, n]``; at each node ``0, ..., k`` bring ``[Q, n, k + 1]``.

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
        levels.append(shares - 1 - place)
    chosen = torch.full((len(values), 1), total)
    for share in reversed(levels):
        left_part = share.gather(2, chosen.unsqueeze(2)).squeeze(2)
        chosen = torch.stack([left_part, chosen - left_part], dim=2).flatten(1)
    return chosen[:, : values.shape[1]]
