"""Training through the certificate: a local network learns to keep its lead under the worst attack that its certificate knows.

With leads ``s_yB`` of the true class ``y`` over its rivals ``B``, the share ``p = 1 / (1 + sum_B exp(-lead_B))``, and
``worst_B`` the knapsack's value for ``r`` flips, the loss of a graph is

    (1 - mix) loss(s_y) + mix loss(s_y - ramp * worst),        loss(lead) = (1 - p^q) / q.

Half of the batches face the whole budget, the others a number of flips drawn from 1 up to it; ``ramp`` grows from 0 to 1 over
the first half of the training. Late in the training the loss is bounded (Zhang and Sabuncu, NeurIPS 2018): some graphs are so
near to one of another class that not both can be certified, and with the unbounded cross-entropy these would govern the
training. Bounded from the start, it would give up whole classes: ``q`` stays 0 for the first 40% of the steps and grows to its
value over the next 40%.

The knapsack is a maximum over attacks, and what an attack takes from the lead is a sum of votes before minus votes after. So the
maximum is found without gradients, over all views that attacks reach, and only the votes that it is made of are computed again
with them. That costs hardly more than the network itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flipproof.certificates.local_scores import rivals_of
from flipproof.certificates.node_views import NodeViews, default_depth, kinds_of
from flipproof.checks import checked_count
from flipproof.classifiers.features import Constant, NodeFeatures, as_features
from flipproof.errors import InputError
from flipproof.graphs import Graph, as_graphs
from flipproof.models.local_network import Local, LocalViews, class_scores
from flipproof.noise import keyed_draws
from flipproof.training.batches import LabelledGraphs, shuffled
from flipproof.training.hyperparameters import Hyperparameters
from flipproof.training.task import Outcome

__all__ = ["CertifiedTraining", "bounded_loss", "worst_choice"]

_MIX = 0.8  # weight of the lead under attack
_BOUND = 0.7  # q of the loss
_FULL = 0.5  # share of the batches that face the whole budget
_VALIDATION_BATCH = 128


class CertifiedTraining:
    """Training a local network through its certificate; a :class:`flipproof.training.task.Task`.

    Args:
        model: The network.
        graphs: Labelled graphs.
        budget: Flips to prepare for, or additions and removals.
        features: Node features, which must not depend on edges.
        validation: Labelled graphs on which the epoch is chosen, or ``None``.
        chosen: The other arguments of :func:`flipproof.train`.
    """

    def __init__(
        self,
        model: Any,
        graphs: Iterable[Any],
        *,
        budget: int | Sequence[int],
        features: Any,
        validation: Iterable[Any] | None,
        chosen: Hyperparameters,
    ) -> None:
        if not isinstance(model, Local):
            raise InputError(
                f"budget is for local networks; got {type(model).__name__} (train a flipproof.models.Local, or leave it out)"
            )
        self.model, self.chosen = model, chosen
        self.most = _checked_budget(budget)
        self.budget = budget if isinstance(budget, int) else list(self.most)
        self.features = _hook(features, model)
        members = as_graphs(graphs)
        self.labelled = LabelledGraphs(members, "graphs")
        self._check_labels(self.labelled)
        self.graphs = _Views(
            members, self.labelled.labels, self.features, model, sum(self.most) if self._both else self.flips
        )
        self.held_out = None
        if validation is not None:
            kept = as_graphs(validation)
            labelled = LabelledGraphs(kept, "validation")
            self._check_labels(labelled)
            self.held_out = _Views(kept, labelled.labels, self.features, model, self.graphs.depth)
        self.steps = chosen.epochs * -(-len(members) // chosen.batch_size)
        self.class_weight = torch.ones(model.num_classes)
        if chosen.class_weights:
            counts = torch.bincount(self.labelled.labels, minlength=model.num_classes).clamp_min(1)
            self.class_weight = len(members) / (counts * model.num_classes)

    def __len__(self) -> int:
        return len(self.labelled)

    @property
    def _both(self) -> bool:
        return isinstance(self.budget, list)

    @property
    def flips(self) -> int:
        """The largest number of flips."""
        return self.most[0] if isinstance(self.budget, int) else sum(self.most)

    @property
    def entries(self) -> int:
        return 0

    @property
    def settings(self) -> dict[str, Any]:
        return {"budget": self.budget, "mix": _MIX, "bound": _BOUND, "full": _FULL}

    def fingerprint(self) -> dict[str, Any]:
        return {
            "features": self.features.spec or "a function",
            "graphs": self.labelled.digest(),
            "validation": None if self.held_out is None else len(self.held_out.labels),
        }

    def batches(self, epoch: int) -> Iterator[Tensor]:
        return shuffled(self.labelled.sizes, self.chosen.batch_size, seed=self.chosen.seed, epoch=epoch)

    def losses(self, members: Tensor, step: int) -> Iterator[Outcome]:
        ramp = min(1.0, 2 * step / max(1, self.steps))
        draws = keyed_draws("training budget", self.chosen.seed, step, (3,)).astype(np.int64)
        bound = _BOUND * min(1.0, max(0.0, (step / max(1, self.steps) - 0.4) / 0.4))
        yield self._outcome(self.graphs, members, self._drawn(draws), ramp, bound)

    def validation(self) -> Iterator[Outcome] | None:
        return None if self.held_out is None else self._validated(self.held_out)

    def _validated(self, held_out: _Views) -> Iterator[Outcome]:
        middle = np.full(3, 2**31, dtype=np.int64)
        for part in torch.split(torch.arange(len(held_out.labels)), _VALIDATION_BATCH):
            yield self._outcome(held_out, part, self._drawn(middle), 1.0, _BOUND)

    def _drawn(self, draws: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[int, int, int]:
        """Additions, removals and flips of a step, from uniform 32-bit integers."""
        if isinstance(self.budget, int):
            flips = 1 + int(draws[0] * self.most[0] >> 32)
            if draws[1] < _FULL * 2**32:
                flips = self.most[0]
            return flips, flips, flips
        adds, removes = (int(draw * (most + 1) >> 32) for draw, most in zip(draws[:2], self.most, strict=True))
        if adds + removes == 0 or draws[2] < _FULL * 2**32:
            adds, removes = self.most
        return adds, removes, adds + removes

    def _outcome(
        self, views: _Views, members: Tensor, budget: tuple[int, int, int], ramp: float, bound: float
    ) -> Outcome:
        """Mean loss over graphs, with the part that the worst attack has in it."""
        leads, worst, right = views.batch(members).leads(self.model, budget if ramp > 0 else None)
        each = (1 - _MIX) * bounded_loss(leads, bound) + _MIX * bounded_loss(leads - ramp * worst, bound)
        weights = self.class_weight[views.labels[members]]
        return Outcome((each * weights).sum() / weights.sum(), float(right.sum()), len(members))

    def _check_labels(self, labelled: LabelledGraphs) -> None:
        highest = int(labelled.labels.max())
        if highest >= self.model.num_classes:
            raise InputError(
                f"the model must have a class for every label; got {self.model.num_classes} classes and label {highest} "
                f"(build it with num_classes={highest + 1})"
            )


class _Views:
    """The views of many graphs and all that attacks reach from them, one after the other in flat tensors.

    Every class of nodes has, for each number of flips, a segment of entries: the views that it can have after so many. The first
    entry of each is the view as it is.
    """

    def __init__(self, graphs: list[Graph], labels: Tensor, features: NodeFeatures, model: Local, flips: int) -> None:
        self.labels, self.num_classes = labels, model.num_classes
        found, sums = [], []
        rows, own, counts = [], [], []
        for graph in graphs:
            x = features.of(graph).to(torch.float32).numpy()[:, : model.in_features]
            kinds_rows, kinds = kinds_of(x)
            depth = min(flips, default_depth(len(kinds_rows), graph.num_nodes), max(1, graph.num_nodes - 1))
            views = NodeViews.of(graph, kinds, depth, swaps=False)
            found.append(views)
            rows.append((views.counts.astype(np.float32)) @ kinds_rows)
            own.append(kinds_rows[views.own])
            counts.append(views.counts.sum(axis=1))
            sums.append(x.sum(axis=0))
        self.depth = flips
        self.sizes = torch.tensor([graph.num_nodes for graph in graphs], dtype=torch.float32)
        self.context = model.context(self.sizes, torch.from_numpy(np.stack(sums)))
        self.rows = _Parts([len(views) for views in found])
        graph_of_row = torch.repeat_interleave(torch.arange(len(graphs)), self.rows.counts)
        flat = LocalViews(
            torch.from_numpy(np.concatenate(own)),
            torch.from_numpy(np.concatenate(rows)),
            torch.from_numpy(np.concatenate(counts).astype(np.float32)),
            graph_of_row,
        )
        self.inputs = model.view_inputs(flat, self.sizes)
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
                u, w, state = u[slots], w[slots], graph.slot_states
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

    def batch(self, members: Tensor) -> _Batch:
        return _Batch(self, members)


@dataclass(frozen=True, eq=False)
class _Batch:
    """Some of the graphs."""

    views: _Views
    members: Tensor

    def leads(self, model: Local, budget: tuple[int, int, int] | None) -> tuple[Tensor, Tensor, Tensor]:
        """Leads of the true class over its rivals, what the worst attack takes ``[B, C - 1]``; who is right ``[B]``."""
        views, members = self.views, self.members
        context = views.context[members]
        rows, owner = views.rows.select(members)
        labels = views.labels[members]
        columns, signs = views.columns[labels], views.signs[labels]

        def lead(chosen: Tensor, graph: Tensor) -> Tensor:
            scores = model.view_scores(views.inputs[rows[chosen]], context, graph)
            return scores.gather(1, columns[graph]) * signs[graph]

        # views of the graphs as they are, and how many nodes have each
        node_rows, node_owner = self._node_rows(rows)
        distinct, place = torch.unique(node_rows, return_inverse=True)
        graph = owner[distinct]
        scores = model.view_scores(views.inputs[rows[distinct]], context, graph)
        count = torch.bincount(place, minlength=len(distinct)).unsqueeze(1)
        totals = model.offsets(context).index_add(0, graph, scores * count)
        leads = totals.gather(1, columns) * signs
        right = class_scores(totals, views.num_classes).argmax(dim=1) == labels
        if budget is None:
            return leads, torch.zeros_like(leads), right
        with torch.no_grad():
            everywhere = lead(torch.arange(len(rows)), owner)
            before, after, of_graph, rival = self._worst(everywhere, node_rows, node_owner, budget)
        used, place = torch.unique(torch.cat([before, after]), return_inverse=True)
        known = lead(used, owner[used])[place, rival.repeat(2)]
        drops = known[: len(before)] - known[len(before) :]
        worst = leads.new_zeros(leads.numel()).index_add(0, of_graph * leads.shape[1] + rival, drops)
        return leads, worst.view_as(leads), right

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
        self, leads: Tensor, node_rows: Tensor, node_owner: Tensor, budget: tuple[int, int, int]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The views before and after the worst attack, as rows of the batch, with graph and rival of each."""
        views, members = self.views, self.members
        adds, removes, flips = budget
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


def bounded_loss(leads: Tensor, bound: float) -> Tensor:
    """Loss of each graph ``[B]`` from its leads over all rivals ``[B, C - 1]``: at most ``1 / bound``; for 0 the cross-entropy.

    >>> bounded_loss(torch.tensor([[50.0, 60.0], [-1000.0, 1.0]]), 0.5).tolist()
    [0.0, 2.0]
    """
    log_share = -torch.logsumexp(torch.cat([torch.zeros_like(leads[:, :1]), -leads], dim=1), dim=1)
    return -log_share if bound == 0 else -torch.expm1(bound * log_share) / bound


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


def _checked_budget(budget: Any) -> tuple[int, int]:
    """Additions and removals; a single number stands for either kind."""
    if isinstance(budget, Sequence) and not isinstance(budget, str) and len(budget) == 2:
        adds, removes = (checked_count(part, "budget", 0, "for instance (2, 1)") for part in budget)
        checked_count(adds + removes, "budget", 1, "for instance (2, 1)")
        return adds, removes
    flips = checked_count(budget, "budget", 1, "for instance 3, or (additions, removals)")
    return flips, flips


def _hook(features: Any, model: Local) -> NodeFeatures:
    """The node features; the default of other networks, degrees, stands for the graphs' own."""
    if not model.in_features:
        return Constant()
    hook = as_features("own" if features in (None, "degree") else features)
    if hook.reads_edges:
        raise InputError(
            f"a local network needs features that do not depend on edges; got {hook.spec or 'a function'} (it counts "
            "neighbours itself: pass features=None for the graphs' own)"
        )
    return hook
