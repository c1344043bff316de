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
from flipproof.models.network import DenseLayout, GraphNetwork, Layout, SparseLayout, seeded_weights
from flipproof.models.node_odds import NodeOdds, node_statistics
from flipproof.models.voters import BUDGET_INPUTS, DEGREE_INPUTS, UNIT_ROUNDOFF, Voters

__all__ = ["LOUDEST", "Local", "LocalViews", "class_scores"]

_BUDGETS = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)  # flips that have one; between two, both are on in part
_SIZES = 64  # numbers of nodes that have an input of their own, where graphs recur
_SIZE_WIDTH = 0.7  # of the bump around each
_LEAST_SPREAD = 0.1  # of a number that is measured: what training hardly saw must not outweigh all else
LOUDEST = 4.0  # of members beside log-odds
_LEAST_COLUMN_SPREAD = 0.01  # of a node feature that is measured, over its largest value
_LARGEST_VOTE = 0.5  # of a node for one flip, where node features make too many views to look at all


class LocalViews(NamedTuple):
    """Views of nodes as a network reads them, one row each.

    Attributes:
        own: Own features, ``[R, d]``.
        sums: Sums of the neighbours' features, ``[R, d]``.
        degrees: Numbers of neighbours, ``[R]``.
        graph: The graph of each, ``[R]``.
    """

    own: Tensor
    sums: Tensor
    degrees: Tensor
    graph: Tensor

    @classmethod
    def counted(cls, own: Tensor, counts: Tensor, rows: Tensor, graph: Tensor) -> LocalViews:
        """Views from own features and numbers of neighbours.

        Args:
            own: Own features, ``[R, d]``.
            counts: Neighbours of each kind, ``[R, K]``.
            rows: Features of each kind, ``[K, d]``.
            graph: The graph of each, ``[R]``.
        """
        return cls(own, counts @ rows, counts.sum(dim=1), graph)

    @classmethod
    def joined(cls, parts: Sequence[LocalViews]) -> LocalViews:
        """Several, one below the other."""
        return cls(*(torch.cat(column) for column in zip(*parts, strict=True)))


class Local(GraphNetwork):
    r"""A network in which an edge flip changes the votes of two nodes and nothing else.

    The **view** of a node ``v`` is its own features, the sum of its neighbours' features, its degree, and a context ``z`` of
    the node set that no edge has a part in (number of nodes, mean and sum of node features). For each unordered pair of classes
    ``(A, B)`` the network gives

    .. math:: s_{AB} = b_{AB}(z, m) + \sum_v h_{AB}(\mathrm{view}(v)),

    the lead of ``A`` over ``B``. The answer is the class that leads over every other. Where nodes have no features, the
    offset ``b`` knows the number of edges ``m``, which a flip changes by one; otherwise it sees no edges.

    With node features there is a second offset, the word of forests and perceptrons on the node set
    (:class:`flipproof.models.node_odds.NodeOdds`). How loud the network's own offset and votes are beside it is found for each
    budget on training graphs that they were not learnt from; where they gain nothing that withstands the flips, they are silent.
    Votes know all node features of a graph only in four numbers, which are learnt, and are bounded:
    :math:`h = c \tanh(h' / c)`, ``c`` a half over the budget. However often a node is touched, it does no more harm than that.
    Real-valued features and node sets are measured by the mean and deviation of those of training.

    A network is a family: how many flips its answers are to withstand, ``budget``, is part of the context. Trained for up to
    ``R`` flips, it answers for any budget up to ``R``, carefully where many flips must do no harm and sharply where few do.

    A sum of local networks is again one. With ``members=k``, ``k`` of them are trained side by side and their mean is
    certified: votes that one alone learnt by heart count for less. It takes ``k`` times as long.

    With ``counts_only=True`` no node votes: the answer follows from the numbers of nodes and edges, by a
    :class:`flipproof.models.count_table.CountTable`. Of graphs in which these say most, it certifies more, since a flip changes
    one number by one and nothing else. It is learnt at once.

    :class:`flipproof.LocalClassifier` certifies its answers exactly where one flip is concerned, without sampling;
    ``flipproof.train(model, graphs, budget=3)`` trains it through the certificate. Called as any other network, it returns for
    each class its smallest lead, so that the largest logit is the answer.

    Args:
        in_features: Width ``d`` of the node features; 0 for graphs without any, whose views are degrees.
        num_classes: Number of classes ``C``.
        hidden: Width of the layers.
        members: Number of networks whose mean answers.
        counts_only: Read numbers of nodes and edges alone, for graphs without node features.
        seed: Makes the initial weights; ``None`` takes torch's own generator.

    >>> model = Local(in_features=0, num_classes=8, seed=0).eval()
    >>> adj = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    >>> model(torch.ones(1, 2, 1), adj, torch.ones(1, 2, dtype=torch.bool)).shape
    torch.Size([1, 8])
    """

    name = "local"
    budget: Tensor
    trained_for: Tensor
    recurring: Tensor
    centre: Tensor
    spread: Tensor
    column_centre: Tensor
    column_spread: Tensor
    loudness: Tensor

    def __init__(
        self,
        in_features: int = 0,
        num_classes: int = 2,
        *,
        hidden: int = 64,
        members: int = 1,
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
            "members": checked_count(members, "members", 1, "for instance 3"),
        }
        self.register_buffer("budget", torch.tensor(1))
        self.register_buffer("trained_for", torch.tensor(0))
        self.register_buffer("recurring", torch.tensor(0))
        if self.in_features:
            self.register_buffer("column_centre", torch.zeros(self.in_features))
            self.register_buffer("column_spread", torch.ones(self.in_features))
            self.register_buffer("centre", torch.zeros(2 + 2 * self.in_features))
            self.register_buffer("spread", torch.ones(2 + 2 * self.in_features))
            self.register_buffer("loudness", torch.ones(int(_BUDGETS[-1])))
            self.odds = NodeOdds(self.in_features, num_classes)
        node_set = 2 + 2 * self.in_features + (0 if self.in_features else _SIZES)
        pairs = num_classes * (num_classes - 1) // 2
        with seeded_weights(seed):
            self.voters = nn.ModuleList(Voters(self.in_features, node_set, hidden, pairs) for _ in range(members))
        if counts_only:
            self.read_counts_only()

    def for_budget(self, budget: int, *, trained: bool = False) -> None:
        """Answer for so many flips from now on.

        Args:
            budget: Number of flips that answers are to withstand.
            trained: Whether to remember that training prepared for them, and for all fewer.
        """
        self.budget.fill_(budget)
        if trained:
            self.trained_for.fill_(budget)

    def read_counts_only(self) -> None:
        """Let no node vote from now on."""
        if not self.counts_edges:
            raise InputError(
                "counts_only is for local networks without node features; this one reads them (leave it out)"
            )
        self.config["counts_only"] = True
        self.table, self.voters = CountTable(), nn.ModuleList()

    def standardise(self, sizes: Tensor, sums: Tensor) -> None:
        """Measure node sets by the mean and deviation of those that are learnt from; a network without node features does not.

        Args:
            sizes: Numbers of nodes ``[B]``.
            sums: Sums of node features ``[B, d]``.
        """
        if self.in_features:
            numbers = self._node_set(sizes, sums)
            self.centre.copy_(numbers.mean(dim=0))
            self.spread.copy_(numbers.std(dim=0, correction=0).clamp_min(_LEAST_SPREAD))

    def learn_sizes(self, recurring: bool) -> None:
        """Whether to know every number of nodes apart: only where graphs of training come back, see :func:`flipproof.train`."""
        self.recurring.fill_(int(recurring and not self.in_features))

    @property
    def counts_edges(self) -> bool:
        """Whether the offset knows how many edges there are."""
        return not self.in_features

    @property
    def counts_only(self) -> bool:
        """Whether no node votes."""
        return "counts_only" in self.config

    @property
    def each(self) -> list[Voters]:
        """The members."""
        return [cast(Voters, voters) for voters in self.voters]

    # ---- the parts that the certificate reads --------------------------------------------------------------------------------

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
        """What is known of the node sets, ``[B, z]``, from their sizes ``[B]`` and the sums of their features ``[B, d]``.

        Args:
            sizes: Numbers of nodes.
            sums: Sums of node features.
            odds: Log-odds of the classes from the nodes alone, ``[B, C]``; only with node features.
            budget: Number of flips that answers are to withstand, by default the network's own.
        """
        asked = int(self.budget) if budget is None else budget
        if self.counts_only:
            return torch.stack([sizes, torch.full_like(sizes, asked)], dim=1)
        known = [self._node_set(sizes, sums)]
        if self.in_features:
            known = [(known[0] - self.centre) / self.spread]
        else:
            # only if graphs recur: on IMDB-BINARY the classes of sizes were learnt by heart, and .06 of accuracy lost
            known.append(self._size_code(sizes))
        known.append(_budget_code(asked, sizes))
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
        parts = [shape, _one_hot(degrees, DEGREE_INPUTS)]
        if self.in_features:
            parts += [views.own, views.sums / 4, _logarithmic(views.sums)]
        return torch.cat(parts, dim=1)

    def largest_inputs(self, most_views: LocalViews, sizes: Tensor) -> Tensor:
        """Bounds on the absolute values of :meth:`view_inputs`, one row ``[...]``, from bounds on what views are made of.

        Args:
            most_views: One row: absolute features, sums of them, and numbers, each as large as it can be.
            sizes: Number of nodes, ``[1]``.
        """
        most = self.view_inputs(most_views, sizes)[0].clone()
        most[3] = (sizes[0] - 1) / 8  # the only input that falls with the degree
        most[4 : 4 + DEGREE_INPUTS] = 1
        # a logarithm is off by as much as the sum that it is taken of, which is off by a unit per node
        longer = 1 + sizes[0] / 64
        width = self.in_features
        place = 4 + DEGREE_INPUTS + width
        most[place : place + width] *= longer
        most[place + width :] = most_views.sums[0] * longer
        return most

    def view_scores(self, inputs: Tensor, context: Tensor, graph: Tensor, voters: Voters | None = None) -> Tensor:
        """The votes ``h`` of views, ``[R, P]``: the mean over members, bounded by :meth:`largest_votes`.

        With ``voters``, those of one member alone, at full volume; while it is trained, they are not bounded.
        """
        if self.counts_only:
            return 0 * inputs[:, :1].expand(-1, self.num_classes * (self.num_classes - 1) // 2)
        found = [member.view_scores(inputs, context, graph) for member in ([voters] if voters else self.each)]
        if self.in_features and not (voters and self.training):
            largest = self._bounds(context)[graph]
            found = [(votes / largest).tanh() * largest for votes in found]
        mean = _sum_in_order(found) / len(found)
        return mean * self._volume(context)[graph] if self.in_features and not voters else mean

    def largest_votes(self, context: Tensor) -> Tensor | None:
        """What no vote exceeds in absolute value, ``[B, 1]``; ``None`` without node features."""
        return self._bounds(context) * self._volume(context) if self.in_features else None

    def _bounds(self, context: Tensor) -> Tensor:
        """The more flips are to be withstood, the less a node may say: a half over their number, ``[B, 1]``."""
        return _LARGEST_VOTE / (self._budgets(context) @ context.new_tensor(_BUDGETS)).unsqueeze(1)

    def _volume(self, context: Tensor) -> Tensor:
        """How loud the members are beside the log-odds, ``[B, 1]``."""
        flips = (self._budgets(context) @ context.new_tensor(_BUDGETS)).round().long()
        return self.loudness.to(context).clamp(0, LOUDEST)[flips - 1].unsqueeze(1)

    def _budgets(self, context: Tensor) -> Tensor:
        """The columns of the context that tell the budget, ``[B, 7]``: before the log-odds, if there are any."""
        last = context.shape[1] - (self.num_classes if self.in_features else 0)
        return context[:, last - BUDGET_INPUTS : last]

    def hear(self, loudness: Sequence[float]) -> None:
        """Let members be so loud beside the log-odds, from 0 to 4, where answers are to withstand 1, 2, ... flips.

        Beyond, they are as loud as for the last number.
        """
        given = torch.tensor([*loudness])[: len(self.loudness)]
        self.loudness.copy_(torch.cat([given, given[-1:].expand(len(self.loudness) - len(given))]))

    def count_inputs(self, sizes: Tensor, edges: Tensor) -> Tensor:
        """What the offset reads of numbers of edges ``[B]`` between so many nodes, ``[B, ...]``; each rises or falls with them.

        Nothing with node features.
        """
        if not self.counts_edges:
            return sizes.new_zeros(len(sizes), 0)
        if self.counts_only:
            return edges.unsqueeze(1)
        slots = (sizes * (sizes - 1) / 2).clamp_min(1)
        free = (slots - edges).clamp_min(0)
        known = [edges / sizes / 4, edges.log1p(), edges / slots, _logarithmic(edges - sizes)]
        return torch.stack([*known, free / 20, free.log1p(), (-free / 3).exp()], dim=1)

    def offsets(self, context: Tensor, counts: Tensor, voters: Voters | None = None) -> Tensor:
        """The scores ``b`` of node sets with so many edges, ``[B, P]``.

        Without votes they come from the table; otherwise they are the mean over members, and with node features this mean, as
        loud as votes are, beside the differences of log-odds. With ``voters``, those of one member alone.
        """
        if self.counts_only:
            sizes, budget = context.round().long().unbind(dim=1)
            label = self.table(sizes, counts[:, 0].round().long(), budget)
            wins, loses = (label.unsqueeze(1) == each for each in self._pairs(label.device))
            found: Tensor = wins.to(context.dtype) - loses.to(context.dtype)
            return found
        each = [voters] if voters else self.each
        mean = _sum_in_order([member.offsets(context, counts) for member in each]) / len(each)
        if voters or not self.in_features:
            return mean
        return self.odds_leads(context) + self._volume(context) * mean

    def odds_leads(self, context: Tensor) -> Tensor:
        """Differences of the log-odds that the context holds, for every pair of classes, ``[B, P]``; with node features."""
        first, second = self._pairs(context.device)
        odds = context[:, -self.num_classes :]
        return odds[:, first] - odds[:, second]

    def _pairs(self, device: torch.device) -> Tensor:
        """The two classes of every pair, ``[2, P]``."""
        return torch.triu_indices(self.num_classes, self.num_classes, 1, device=device)

    def rounding(self, largest_inputs: Tensor, context: Tensor, sizes: Tensor) -> Tensor:
        """A bound on the rounding error of any score in 64-bit arithmetic, in whatever order its sums are taken, ``[P]``.

        The mean of ``k`` numbers with bounds ``e_i`` on their errors and ``M_i <= e_i / (64 u)`` on their values is off by at
        most the mean of ``e_i + (k + 1) u M_i (1 + u)^k``, which is below ``1 + k / 16`` times the mean of ``e_i``. Bounding it
        enlarges no error, and adds less than ``32 u M_i`` of its own, that is, half of ``e_i``; so does making it less loud.

        Args:
            largest_inputs: For each column, a bound on its absolute values; see :meth:`largest_inputs`.
            context: Of their graph, ``[1, z]``.
            sizes: Number of nodes, ``[1]``.
        """
        if self.counts_only:  # ones, minus ones and zeros
            return context.new_zeros(self.num_classes * (self.num_classes - 1) // 2)
        members = len(self.voters)
        ends = [self.count_inputs(sizes, edges).abs() for edges in (0 * sizes, sizes * (sizes - 1) / 2)]
        told, counted = context.abs(), torch.maximum(*ends)
        if self.in_features:  # what is subtracted may cancel
            far = 2 * (self.centre / self.spread).abs()
            told[:, : len(far)] += far
        known = torch.cat([told[:, : told.shape[1] - (self.num_classes if self.in_features else 0)], counted], dim=1)
        found = _sum_in_order([voters.rounding(largest_inputs, told, known) for voters in self.each])
        found = found * ((1.5 + members / 16) / members)
        if self.in_features:
            # log-odds are the same number for every graph with these nodes; only adding them up rounds
            found = (
                found * self._volume(context)[0].clamp_min(1) + 128 * UNIT_ROUNDOFF * self.odds_leads(context)[0].abs()
            )
        return found

    def _size_code(self, sizes: Tensor) -> Tensor:
        """A bump around every number of nodes, so that neighbouring numbers share something, ``[B, columns]``; or zeros."""
        places = torch.arange(_SIZES, dtype=sizes.dtype, device=sizes.device)
        return self.recurring * torch.exp(-0.5 * ((sizes.unsqueeze(1) - places) / _SIZE_WIDTH) ** 2)

    # ---- as any other network ------------------------------------------------------------------------------------------------

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
        graph = torch.arange(len(mask), device=mask.device).unsqueeze(1).expand_as(mask).flatten()
        odds = self._odds(x[mask], mask.sum(dim=1))
        return self._logits(self._measured_as_computed(x) * mask.unsqueeze(2), odds, DenseLayout(adj, mask), graph)

    def forward_sparse(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        odds = self._odds(x, torch.bincount(batch))
        return self._logits(self._measured_as_computed(x), odds, SparseLayout(edge_index, batch), batch)

    def _measured_as_computed(self, x: Tensor) -> Tensor:
        return self.measured(x.to(next(self.parameters(), x).dtype))

    def _odds(self, x: Tensor, sizes: Tensor) -> Tensor | None:
        """Log-odds ``[B, C]`` from the features of all nodes ``[V, d]``; equal node sets, as of noisy copies, once."""
        if not self.in_features:
            return None
        features = np.split(x.detach().cpu().to(torch.float32).numpy(), np.cumsum(sizes.tolist())[:-1])[: len(sizes)]
        keys = [(len(nodes), nodes.tobytes()) for nodes in features]
        distinct = dict(zip(keys, features, strict=True))
        found = dict(zip(distinct, self.odds.of(list(map(node_statistics, distinct.values()))), strict=True))
        each = np.array([found[key] for key in keys]).reshape(len(keys), self.num_classes)
        return torch.from_numpy(each).to(x.device)

    def _logits(self, x: Tensor, odds: Tensor | None, layout: Layout, graph: Tensor) -> Tensor:
        x = x if self.in_features else x[..., :0]
        rows = len(graph)
        views = LocalViews(
            x.reshape(rows, x.shape[-1]),
            layout.neighbour_sums(x).reshape(rows, x.shape[-1]),
            layout.degrees().reshape(rows).to(x.dtype),
            graph,
        )
        sizes = layout.sizes.squeeze(1).to(x.dtype)
        context = self.context(sizes, layout.sums(x), odds)
        votes = self.view_scores(self.view_inputs(views, sizes), context, graph)
        counts = self.count_inputs(sizes, layout.sums(layout.degrees()).squeeze(1).to(x.dtype) / 2)
        scores = self.offsets(context, counts) + layout.sums(votes.view(*x.shape[:-1], -1))
        return class_scores(scores, self.num_classes)


def _sum_in_order(parts: list[Tensor]) -> Tensor:
    """The sum, always in the same order."""
    found = parts[0]
    for part in parts[1:]:
        found = found + part
    return found


def class_scores(scores: Tensor, num_classes: int) -> Tensor:
    """For each class its smallest lead over another, ``[B, C]``, from the scores of all pairs ``[B, P]``."""
    first, second = torch.triu_indices(num_classes, num_classes, 1, device=scores.device)
    leads = scores.new_full((len(scores), num_classes, num_classes), torch.inf)
    leads[:, first, second] = scores
    leads[:, second, first] = -scores
    return leads.amin(dim=2)


def _logarithmic(values: Tensor) -> Tensor:
    return values.sign() * values.abs().log1p()


def _budget_code(budget: int, like: Tensor) -> Tensor:
    """A number of flips as shares of the two numbers around it that have a column, ``[B, columns]``: no jumps between them."""
    flips = min(max(float(budget), _BUDGETS[0]), _BUDGETS[-1])
    above = next(place for place, knot in enumerate(_BUDGETS) if knot >= flips)
    code = [0.0] * BUDGET_INPUTS
    code[above] = 1.0
    if _BUDGETS[above] > flips:
        share = (flips - _BUDGETS[above - 1]) / (_BUDGETS[above] - _BUDGETS[above - 1])
        code[above - 1], code[above] = 1 - share, share
    return like.new_tensor(code).expand(len(like), -1)


def _one_hot(values: Tensor, width: int) -> Tensor:
    """Columns for 0, 1, ..., and a last one for all above."""
    places = values.round().clamp(0, width - 1).unsqueeze(1)
    return (places == torch.arange(width, device=values.device)).to(values.dtype)
