"""A network that is built to be certified: every node votes after a look at its own neighbourhood, and votes add up."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from flipproof.checks import checked_count
from flipproof.models.layout import DenseLayout, Layout, SparseLayout
from flipproof.models.network import GraphNetwork, seeded_weights

__all__ = ["Local", "LocalViews", "class_scores"]

_DEGREES = 16  # degrees that have an input of their own
_SIZES = 64  # numbers of nodes that have one, where nodes have no features
_UNIT_ROUNDOFF = 2.0**-53


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


class Local(GraphNetwork):
    r"""A network in which an edge flip changes the votes of two nodes and nothing else.

    The **view** of a node ``v`` is its own features, the sum of its neighbours' features, its degree, and a context ``z`` of
    the node set that no edge has a part in (number of nodes, mean and sum of node features). Two perceptrons give, for each
    unordered pair of classes ``(A, B)``,

    .. math:: s_{AB} = b_{AB}(z) + \sum_v h_{AB}(\mathrm{view}(v)),

    the lead of ``A`` over ``B``. The answer is the class that leads over every other. ``b`` alone sees no edges: with ``h =
    0`` this is an edge-blind network.

    :class:`flipproof.LocalClassifier` certifies its answers exactly where one flip is concerned, without sampling;
    ``flipproof.train(model, graphs, budget=3)`` trains it through the certificate. Called as any other network, it returns for
    each class its smallest lead, so that the largest logit is the answer.

    Args:
        in_features: Width ``d`` of the node features; 0 for graphs without any, whose views are degrees.
        num_classes: Number of classes ``C``.
        hidden: Width of the layers.
        seed: Makes the initial weights; ``None`` takes torch's own generator.

    >>> model = Local(in_features=0, num_classes=8, seed=0).eval()
    >>> adj = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    >>> model(torch.ones(1, 2, 1), adj, torch.ones(1, 2, dtype=torch.bool)).shape
    torch.Size([1, 8])
    """

    name = "local"

    def __init__(
        self, in_features: int = 0, num_classes: int = 2, *, hidden: int = 64, seed: int | None = None
    ) -> None:
        super().__init__()
        self.in_features = checked_count(in_features, "in_features", 0, "0 for graphs without node features")
        hidden = checked_count(hidden, "hidden", 1, "for instance 64")
        self.config = {
            "name": self.name,
            "in_features": self.in_features,
            "num_classes": checked_count(num_classes, "num_classes", 2, "for instance num_classes=8"),
            "hidden": hidden,
        }
        pairs = num_classes * (num_classes - 1) // 2
        seen = 3 * self.in_features + 4 + _DEGREES
        known = 2 + (2 * self.in_features or _SIZES)
        with seeded_weights(seed):
            self.view = nn.Linear(seen, hidden)
            self.setting = nn.Linear(known, hidden, bias=False)
            self.inner = nn.Linear(hidden, hidden)
            self.outer = nn.Linear(hidden, pairs)
            self.blind = nn.Sequential(
                nn.Linear(known, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, pairs)
            )
            with torch.no_grad():  # some tens of votes are added up
                self.outer.weight.mul_(0.1)
                self.outer.bias.zero_()

    # ---- the parts that the certificate reads --------------------------------------------------------------------------------

    def context(self, sizes: Tensor, sums: Tensor) -> Tensor:
        """What is known of the node sets, ``[B, z]``, from their sizes ``[B]`` and the sums of their features ``[B, d]``."""
        known = [(sizes / 20).unsqueeze(1), sizes.log().unsqueeze(1)]
        if self.in_features:
            known += [sums / sizes.unsqueeze(1), _logarithmic(sums)]
        else:
            known.append(_one_hot(sizes, _SIZES))
        return torch.cat(known, dim=1)

    def view_inputs(self, views: LocalViews, sizes: Tensor) -> Tensor:
        """The numbers that a node's perceptron reads, ``[R, ...]``, but for the context."""
        degrees, size = views.degrees, sizes[views.graph]
        shape = torch.stack([degrees / 8, degrees.log1p(), degrees / size, (size - 1 - degrees) / 8], dim=1)
        parts = [shape, _one_hot(degrees, _DEGREES)]
        if self.in_features:
            parts += [views.own, views.sums / 4, _logarithmic(views.sums)]
        return torch.cat(parts, dim=1)

    def largest_inputs(self, own: Tensor, sums: Tensor, degree: Tensor, sizes: Tensor) -> Tensor:
        """Bounds on the absolute values of :meth:`view_inputs`, one row ``[...]``, from bounds on what views are made of.

        Args:
            own: Bounds on absolute features, ``[1, d]``.
            sums: Bounds on sums of absolute features, ``[1, d]``.
            degree: The largest degree, ``[1]``.
            sizes: Number of nodes, ``[1]``.
        """
        graph = torch.zeros(1, dtype=torch.int64)
        most = self.view_inputs(LocalViews(own, sums, degree, graph), sizes)[0].clone()
        most[3] = (sizes[0] - 1) / 8  # the only input that falls with the degree
        most[4 : 4 + _DEGREES] = 1
        return most

    def view_scores(self, inputs: Tensor, context: Tensor, graph: Tensor) -> Tensor:
        """The votes ``h`` of views, ``[R, P]``."""
        hidden = (self.view(inputs) + self.setting(context)[graph]).relu()
        scores: Tensor = self.outer(self.inner(hidden).relu())
        return scores

    def offsets(self, context: Tensor) -> Tensor:
        """The scores ``b`` of the node sets, ``[B, P]``."""
        scores: Tensor = self.blind(context)
        return scores

    def rounding(self, largest_inputs: Tensor, context: Tensor) -> Tensor:
        r"""A bound on the rounding error of any score in 64-bit arithmetic, in whatever order its sums are taken, ``[P]``.

        A layer of ``m`` inputs computes :math:`W x + b` with an error of at most :math:`(m + 2) u (|W| |x| + |b|)`, ``u`` the
        unit roundoff, and passes on the error of ``x`` by :math:`|W|`; rectifiers enlarge neither. By induction the error of
        the whole is at most ``u`` times the sum of all ``m + 2`` times the value of the network with absolute weights on
        absolute inputs. The factor here is more than twice as large, which also covers inputs that are off by some units in
        the last place.

        Args:
            largest_inputs: For each column, a bound on its absolute values; see :meth:`largest_inputs`.
            context: Of their graph, ``[1, z]``.
        """
        context = context.abs()
        value = _absolute(self.view, largest_inputs.unsqueeze(0)) + context @ self.setting.weight.abs().T
        value = _absolute(self.outer, _absolute(self.inner, value))
        blind = context
        for layer in self.blind:
            if isinstance(layer, nn.Linear):
                blind = _absolute(layer, blind)
        widths = [layer.in_features for layer in self.modules() if isinstance(layer, nn.Linear)]
        factor = 64 + 2 * sum(width + 8 for width in widths)
        return factor * _UNIT_ROUNDOFF * torch.maximum(value, blind).squeeze(0)

    # ---- as any other network ------------------------------------------------------------------------------------------------

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
        graph = torch.arange(len(mask), device=mask.device).unsqueeze(1).expand_as(mask).flatten()
        nodes = mask.unsqueeze(2).to(x.dtype)
        return self._logits(x * nodes, DenseLayout(adj, mask), graph)

    def forward_sparse(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self._logits(x, SparseLayout(edge_index, batch), batch)

    def _logits(self, x: Tensor, layout: Layout, graph: Tensor) -> Tensor:
        x = x.to(self.view.weight.dtype)
        x = x if self.in_features else x[..., :0]
        rows = len(graph)
        views = LocalViews(
            x.reshape(rows, x.shape[-1]),
            layout.neighbour_sums(x).reshape(rows, x.shape[-1]),
            layout.degrees().reshape(rows).to(x.dtype),
            graph,
        )
        sizes = layout.sizes.squeeze(1).to(x.dtype)
        context = self.context(sizes, layout.sums(x))
        votes = self.view_scores(self.view_inputs(views, sizes), context, graph)
        scores = self.offsets(context) + layout.sums(votes.view(*x.shape[:-1], -1))
        return class_scores(scores, self.num_classes)


def class_scores(scores: Tensor, num_classes: int) -> Tensor:
    """For each class its smallest lead over another, ``[B, C]``, from the scores of all pairs ``[B, P]``."""
    first, second = torch.triu_indices(num_classes, num_classes, 1, device=scores.device)
    leads = scores.new_full((len(scores), num_classes, num_classes), torch.inf)
    leads[:, first, second] = scores
    leads[:, second, first] = -scores
    return leads.amin(dim=2)


def _absolute(layer: nn.Linear, value: Tensor) -> Tensor:
    found = value @ layer.weight.abs().T
    return found if layer.bias is None else found + layer.bias.abs()


def _logarithmic(values: Tensor) -> Tensor:
    return values.sign() * values.abs().log1p()


def _one_hot(values: Tensor, width: int) -> Tensor:
    """Columns for 0, 1, ..., and a last one for all above."""
    places = values.round().clamp(0, width - 1).long()
    return nn.functional.one_hot(places, width).to(values.dtype)
