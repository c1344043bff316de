"""A network that is built to be certified: every node votes after a look at its own neighbourhood, and votes add up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from flipproof.checks import checked_count
from flipproof.errors import InputError
from flipproof.models.count_table import CountTable
from flipproof.models.network import DenseLayout, GraphNetwork, Layout, seeded_weights
from flipproof.models.node_odds import NodeOdds

_BUDGETS = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)  # flips that have one; between two, both are on in part
_SIZES = 64  # numbers of nodes that have an input of their own, where graphs recur
_SIZE_WIDTH = 0.7  # of the bump around each
_LEAST_SPREAD = 0.1  # of a number that is measured: what training hardly saw must not outweigh all else
_DEGREE_INPUTS = 16  # degrees that have an input of their own
_BUDGET_INPUTS = len(_BUDGETS)
_COUNT_INPUTS = 7  # inputs that say how many edges there are, where nodes tell nothing
_UNIT_ROUNDOFF = 2.0**-53
_SPARE = 1.5625  # factor of the rounding error for what is done to votes
_SUMMARY = 4  # numbers in which nodes are told of all node features
LOUDEST = 4.0  # of the network beside log-odds
_LEAST_COLUMN_SPREAD = 0.01  # of a node feature that is measured, over its largest value
_LARGEST_VOTE = 0.5  # of a node for one flip, where node features make too many views to look at all


class LocalViews(NamedTuple):
    """Views of nodes as a network reads them, one row each."""

    own: Tensor  # features [R, d]
    sums: Tensor  # of the neighbours' features [R, d]
    degrees: Tensor  # [R]
    graph: Tensor  # of each [R]

    @classmethod
    def counted(cls, own: Tensor, counts: Tensor, rows: Tensor, graph: Tensor) -> LocalViews:
        """From own features, numbers of neighbours of each kind ``[R, K]`` and the features of each kind ``[K, d]``."""
        return cls(own, counts @ rows, counts.sum(dim=1), graph)


class Voters(nn.Module):
    """The perceptron of the nodes and that of the node set, which ``node_set`` columns of the context describe."""

    def __init__(self, in_features: int, node_set: int, hidden: int, pairs: int) -> None:
        super().__init__()
        self._node_set = node_set
        told = _SUMMARY if in_features else node_set
        self.view = nn.Linear(3 * in_features + 4 + _DEGREE_INPUTS, hidden)
        # votes that know the node set in detail are learnt by heart: on NCI1 they certify .03 less at one flip
        self.summary = nn.Linear(node_set, told, bias=False) if in_features else None
        self.setting = nn.Linear(told + _BUDGET_INPUTS, hidden, bias=False)
        self.inner = nn.Linear(hidden, hidden)
        self.outer = nn.Linear(hidden, pairs)
        known = node_set + _BUDGET_INPUTS + (0 if in_features else _COUNT_INPUTS)
        self.offset = nn.Sequential(
            nn.Linear(known, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, pairs)
        )
        # some tens of votes are added up; but where node features say much, small votes never outgrow the offset
        with torch.no_grad():
            self.outer.weight.mul_(5 if in_features else 0.1)
            self.outer.bias.zero_()
            if not in_features:  # most of their inputs, the numbers of nodes one by one, are zero
                self.setting.weight.mul_(2)
                cast(nn.Linear, self.offset[0]).weight.mul_(2)

    def view_scores(self, inputs: Tensor, context: Tensor, graph: Tensor) -> Tensor:
        hidden = (self.view(inputs) + self.setting(self._told(context))[graph]).relu()
        return cast(Tensor, self.outer(self.inner(hidden).relu()))

    def offsets(self, context: Tensor, counts: Tensor) -> Tensor:
        known = context[:, : self._node_set + _BUDGET_INPUTS]
        return cast(Tensor, self.offset(torch.cat([known, counts], dim=1)))

    def rounding(self, largest_inputs: Tensor, context: Tensor, counts: Tensor) -> Tensor:
        r"""A bound on the rounding error of any score, ``[P]``, from bounds on absolute inputs.

        A layer of ``m`` inputs computes :math:`W x + b` with an error of at most :math:`(m + 2) u (|W| |x| + |b|)`, ``u`` the
        unit roundoff, and passes on the error of ``x`` by :math:`|W|`; rectifiers enlarge neither. By induction the error of
        the whole is at most ``u`` times the sum of all ``m + 2`` times the value of the network with absolute weights on
        absolute inputs. The factor here is more than twice as large, which also covers inputs that are off by some units in
        the last place.
        """
        value = _absolute(self.view, largest_inputs.unsqueeze(0)) + _absolute(self.setting, self._told(context, True))
        value = _absolute(self.outer, _absolute(self.inner, value))
        offset = torch.cat([context[:, : self._node_set + _BUDGET_INPUTS], counts], dim=1)
        for layer in (self.offset[0], self.offset[2], self.offset[4]):
            offset = _absolute(cast(nn.Linear, layer), offset)
        widths = [layer.in_features for layer in self.modules() if isinstance(layer, nn.Linear)]
        factor = 64 + 2 * sum(width + 8 for width in widths)
        return factor * _UNIT_ROUNDOFF * torch.maximum(value, offset).squeeze(0)

    def _told(self, context: Tensor, absolute: bool = False) -> Tensor:
        if self.summary is None:
            return context
        known, budget = context[:, : self._node_set], context[:, self._node_set : self._node_set + _BUDGET_INPUTS]
        return torch.cat([_absolute(self.summary, known) if absolute else self.summary(known), budget], dim=1)


class Local(GraphNetwork):
    r"""A network in which an edge flip changes the votes of two nodes and nothing else.

    The **view** of a node ``v`` is its own features, the sum of its neighbours' features, its degree, and a context ``z`` of
    the node set that no edge has a part in. For each unordered pair of classes ``(A, B)`` the network gives the lead of ``A``
    over ``B``,

    .. math:: s_{AB} = b_{AB}(z, m) + \sum_v h_{AB}(\mathrm{view}(v)).

    The answer is the class that leads over every other. Without node features the offset ``b`` knows the number of edges ``m``.
    With them it sees no edges, and log-odds by forests and perceptrons stand beside it. How many flips its answers are to
    withstand, ``budget``, is part of the context. :class:`flipproof.LocalClassifier` certifies its answers. Called as any other
    network, it returns for each class its smallest lead, so that the largest logit is the answer.

    Args:
        in_features: Width ``d`` of the node features; 0 for graphs without any, whose views are degrees.
        counts_only: Read numbers of nodes and edges alone, for graphs without node features.
        num_classes, hidden, seed: As for :class:`GCN`.
    """

    name = "local"

    def __init__(
        self,
        in_features: int = 0,
        num_classes: int = 2,
        *,
        hidden: int = 64,
        counts_only: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.in_features = checked_count(in_features, "in_features", 0, "0 for graphs without node features")
        self.config = {
            "name": self.name,
            "in_features": self.in_features,
            "num_classes": checked_count(num_classes, "num_classes", 2, "for instance num_classes=8"),
            "hidden": checked_count(hidden, "hidden", 1, "for instance 64"),
        }
        node_set = 2 + 2 * self.in_features
        self.budget, self.trained_for, self.recurring = (nn.Buffer(torch.tensor(value)) for value in (1, 0, 0))
        if self.in_features:
            self.column_centre = nn.Buffer(torch.zeros(self.in_features))
            self.column_spread = nn.Buffer(torch.ones(self.in_features))
            self.centre, self.spread = nn.Buffer(torch.zeros(node_set)), nn.Buffer(torch.ones(node_set))
            self.loudness = nn.Buffer(torch.ones(int(_BUDGETS[-1])))
            self.odds = NodeOdds(self.in_features, num_classes)
        node_set += 0 if self.in_features else _SIZES
        pairs = num_classes * (num_classes - 1) // 2
        with seeded_weights(seed):
            self.voters = Voters(self.in_features, node_set, hidden, pairs)
        if counts_only:
            self.read_counts_only()

    def for_budget(self, budget: int, *, trained: bool = False) -> None:
        """Answer for this budget from now on; ``trained``: training prepared for it, and for all smaller ones."""
        self.budget.fill_(budget)
        if trained:
            self.trained_for.fill_(budget)

    def read_counts_only(self) -> None:
        if self.in_features:
            raise InputError("counts_only is for local networks without node features, unlike this one (leave it out)")
        self.config["counts_only"] = True
        self.table = CountTable()
        del self.voters

    def standardise(self, sizes: Tensor, sums: Tensor) -> None:
        """Measure node features of sets, with sizes ``[B]`` and sums ``[B, d]``, by mean and deviation of those of training."""
        if self.in_features:
            numbers = self._node_set(sizes, sums)
            self.centre.copy_(numbers.mean(dim=0))
            self.spread.copy_(numbers.std(dim=0, correction=0).clamp_min(_LEAST_SPREAD))

    def learn_sizes(self, recurring: bool) -> None:
        """Whether to know every number of nodes apart: only where graphs of training come back, see :func:`flipproof.train`."""
        self.recurring.fill_(int(recurring and not self.in_features))

    @property
    def counts_only(self) -> bool:
        return "counts_only" in self.config

    def measure_columns(self, nodes: Tensor) -> None:
        """Measure real-valued features by the mean and deviation of the nodes ``[V, d]`` that are learnt from."""
        nodes = nodes.double()
        real = ~((nodes == 0) | (nodes == 1)).all(dim=0)
        least = _LEAST_COLUMN_SPREAD * nodes.abs().amax(dim=0)
        spread = torch.maximum(nodes.std(dim=0, correction=0), least)
        self.column_centre.copy_(torch.where(real, nodes.mean(dim=0), 0))
        self.column_spread.copy_(torch.where(real & (spread > 0), spread, 1))

    def measured(self, x: Tensor) -> Tensor:
        """Node features ``[..., d]`` as views hold them: numbers of 32 bits, whose sums hardly round in 64."""
        if not self.in_features:
            return x
        return ((x.double() - self.column_centre) / self.column_spread).float().to(x.dtype)

    def context(self, sizes: Tensor, sums: Tensor, odds: Tensor | None = None, *, budget: int | None = None) -> Tensor:
        """What is known of node sets, ``[B, z]``, from sizes ``[B]``, sums of features ``[B, d]``, with node features log-odds
        ``[B, C]``, and the budget, by default the network's own."""
        flips = int(self.budget) if budget is None else budget
        if self.counts_only:
            return torch.stack([sizes, torch.full_like(sizes, flips)], dim=1)
        known = [self._node_set(sizes, sums)]
        if self.in_features:
            known = [(known[0] - self.centre) / self.spread]
        else:
            # only if graphs recur: on IMDB-BINARY the classes of sizes were learnt by heart, and .06 of accuracy lost
            places = torch.arange(_SIZES, dtype=sizes.dtype, device=sizes.device)
            # bumps, so that neighbouring numbers share something
            known.append(self.recurring * torch.exp(-0.5 * ((sizes.unsqueeze(1) - places) / _SIZE_WIDTH) ** 2))
        # shares of the two numbers around it that have a column: no jumps between them
        code = [float(np.interp(flips, _BUDGETS, column)) for column in np.eye(_BUDGET_INPUTS)]
        known.append(sizes.new_tensor(code).expand(len(sizes), -1))
        if self.in_features:
            known.append(sizes.new_zeros(len(sizes), self.num_classes) if odds is None else odds.to(sizes))
        return torch.cat(known, dim=1)

    def _node_set(self, sizes: Tensor, sums: Tensor) -> Tensor:
        """Number of nodes and their features, ``[B, ...]``, as they are."""
        known = [torch.stack([sizes / 20, sizes.log()], dim=1)]
        if self.in_features:
            known += [sums / sizes.unsqueeze(1), _logarithmic(sums)]
        return torch.cat(known, dim=1)

    def view_inputs(self, views: LocalViews, sizes: Tensor) -> Tensor:
        """The numbers that a node's perceptron reads, ``[R, ...]``, but for the context."""
        degrees, size = views.degrees, sizes[views.graph]
        shape = torch.stack([degrees / 8, degrees.log1p(), degrees / size, (size - 1 - degrees) / 8], dim=1)
        one_hot = nn.functional.one_hot(degrees.round().clamp(0, _DEGREE_INPUTS - 1).long(), _DEGREE_INPUTS)
        parts = [shape, one_hot.to(degrees.dtype)]  # the last column is for all above
        if self.in_features:
            parts += [views.own, views.sums / 4, _logarithmic(views.sums)]
        return torch.cat(parts, dim=1)

    def largest_inputs(self, most_views: LocalViews, sizes: Tensor) -> Tensor:
        """Bounds on the absolute values of :meth:`view_inputs`, ``[...]``, from one row of bounds on what views are made of."""
        most = self.view_inputs(most_views, sizes)[0].clone()
        most[3] = (sizes[0] - 1) / 8  # the only input that falls with the degree
        most[4 : 4 + _DEGREE_INPUTS] = 1
        # a logarithm is off by as much as the sum that it is taken of, which is off by a unit per node
        longer = 1 + sizes[0] / 64
        place = 4 + _DEGREE_INPUTS + self.in_features
        most[place : place + self.in_features] *= longer
        most[place + self.in_features :] = most_views.sums[0] * longer
        return most

    def view_scores(self, inputs: Tensor, context: Tensor, graph: Tensor, *, alone: bool = False) -> Tensor:
        """Votes ``h`` of views, ``[R, P]``, within :meth:`largest_votes`; ``alone``: at full volume, unbounded in training."""
        if self.counts_only:
            return 0 * inputs[:, :1].expand(-1, self.num_classes * (self.num_classes - 1) // 2)
        votes: Tensor = self.voters.view_scores(inputs, context, graph)
        if not self.in_features:
            return votes
        largest, volume = (limit[graph] for limit in self._limits(context))
        if not (alone and self.training):
            votes = (votes / largest).tanh() * largest
        return votes if alone else votes * volume

    def largest_votes(self, context: Tensor) -> Tensor | None:
        """What no vote exceeds in absolute value, ``[B, 1]``; ``None`` without node features."""
        return torch.mul(*self._limits(context)) if self.in_features else None

    def _limits(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """With node features: what a node may say, a half over the number of flips that the context tells before the log-odds;
        and how loud the network is beside these; each ``[B, 1]``."""
        last = context.shape[1] - self.num_classes
        flips = (context[:, last - _BUDGET_INPUTS : last] @ context.new_tensor(_BUDGETS)).unsqueeze(1)
        return _LARGEST_VOTE / flips, self.loudness.to(context).clamp(0, LOUDEST)[flips.round().long() - 1]

    def hear(self, loudness: Sequence[float]) -> None:
        """Be so loud beside the log-odds, from 0 to 4, for budgets of 1, 2, ... flips; the last is for all above."""
        first = torch.tensor([*loudness])[: len(self.loudness)]
        self.loudness.copy_(torch.cat([first, first[-1:].expand(len(self.loudness) - len(first))]))

    def count_inputs(self, sizes: Tensor, edges: Tensor) -> Tensor:
        """What the offset reads of numbers of edges ``[B]``, ``[B, ...]``, each monotone; with node features nothing."""
        if self.in_features:
            return sizes.new_zeros(len(sizes), 0)
        if self.counts_only:
            return edges.unsqueeze(1)
        slots = (sizes * (sizes - 1) / 2).clamp_min(1)
        free = (slots - edges).clamp_min(0)
        known = [edges / sizes / 4, edges.log1p(), edges / slots, _logarithmic(edges - sizes)]
        return torch.stack([*known, free / 20, free.log1p(), (-free / 3).exp()], dim=1)

    def offsets(self, context: Tensor, counts: Tensor, *, alone: bool = False) -> Tensor:
        """The scores ``b`` of node sets with these numbers of edges, ``[B, P]``; ``alone``: without log-odds, at full volume."""
        if self.counts_only:
            sizes, budget = context.round().long().unbind(dim=1)
            label = self.table(sizes, counts[:, 0].round().long(), budget)
            return self._differences(nn.functional.one_hot(label, self.num_classes).to(context.dtype))
        own: Tensor = self.voters.offsets(context, counts)
        return own if alone or not self.in_features else self.odds_leads(context) + self._limits(context)[1] * own

    def odds_leads(self, context: Tensor) -> Tensor:
        """Differences of the log-odds that the context holds, for every pair of classes, ``[B, P]``; with node features."""
        return self._differences(context[:, -self.num_classes :])

    def _differences(self, scores: Tensor) -> Tensor:
        """Of the first and second class of every pair, ``[B, P]``, for scores of classes ``[B, C]``."""
        first, second = torch.triu_indices(self.num_classes, self.num_classes, 1, device=scores.device)
        return scores[:, first] - scores[:, second]

    def rounding(self, largest_inputs: Tensor, context: Tensor, sizes: Tensor) -> Tensor:
        """A bound on the rounding error of any score in 64-bit arithmetic, in whatever order its sums are taken, ``[P]``.

        Beside that of the perceptrons, bounding a vote ``M <= e / (64 u)`` with an error of ``e`` enlarges no error and adds less
        than ``32 u M`` of its own, that is, half of ``e``; so does making it less loud.
        """
        if self.counts_only:  # ones, minus ones and zeros
            return context.new_zeros(self.num_classes * (self.num_classes - 1) // 2)
        told = context.abs()
        counted = torch.maximum(*(self.count_inputs(sizes, m).abs() for m in (0 * sizes, sizes * (sizes - 1) / 2)))
        if self.in_features:  # what is subtracted may cancel
            far = 2 * (self.centre / self.spread).abs()
            told[:, : len(far)] += far
        bound: Tensor = self.voters.rounding(largest_inputs, told, counted) * _SPARE
        if self.in_features:
            # log-odds are the same number for every graph with these nodes; only adding them up rounds
            adding = 128 * _UNIT_ROUNDOFF * self.odds_leads(context)[0].abs()
            bound = bound * self._limits(context)[1][0].clamp_min(1) + adding
        return bound

    def logits(self, x: Tensor, layout: Layout) -> Tensor:
        mask = layout.mask if isinstance(layout, DenseLayout) else torch.ones_like(layout.batch, dtype=torch.bool)
        counts = layout.sizes.squeeze(1)
        odds = self.odds.of_nodes(x[mask], counts.long().tolist()) if self.in_features else None
        x = self.measured(x.to(next(self.parameters(), x).dtype)) * mask.unsqueeze(-1)
        x = x if self.in_features else x[..., :0]
        graph = layout.spread(torch.arange(len(counts), device=x.device).unsqueeze(1)).expand(*mask.shape, 1).flatten()
        own, sums = (values.reshape(len(graph), x.shape[-1]) for values in (x, layout.neighbour_sums(x)))
        views = LocalViews(own, sums, layout.degrees().flatten().to(x.dtype), graph)
        sizes = counts.to(x.dtype)
        context = self.context(sizes, layout.sums(x), odds)
        votes = self.view_scores(self.view_inputs(views, sizes), context, graph)
        edges = self.count_inputs(sizes, layout.sums(layout.degrees()).squeeze(1).to(x.dtype) / 2)
        scores = self.offsets(context, edges) + layout.sums(votes.view(*mask.shape, -1))
        return class_scores(scores, self.num_classes)


def class_scores(scores: Tensor, num_classes: int) -> Tensor:
    """For each class its smallest lead over another, ``[B, C]``, from the scores of all pairs ``[B, P]``."""
    first, second = torch.triu_indices(num_classes, num_classes, 1, device=scores.device)
    leads = scores.new_full((len(scores), num_classes, num_classes), torch.inf)
    leads[:, first, second], leads[:, second, first] = scores, -scores
    return leads.amin(dim=2)


def _logarithmic(values: Tensor) -> Tensor:
    return values.sign() * values.abs().log1p()


def _absolute(layer: nn.Linear, value: Tensor) -> Tensor:
    return nn.functional.linear(value, layer.weight.abs(), None if layer.bias is None else layer.bias.abs())
