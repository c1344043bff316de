"""The perceptrons of a local network: how a node votes on its view, and where votes start from."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

__all__ = ["BUDGET_INPUTS", "COUNT_INPUTS", "DEGREE_INPUTS", "UNIT_ROUNDOFF", "Voters"]

DEGREE_INPUTS = 16  # degrees that have an input of their own
BUDGET_INPUTS = 7  # numbers of flips that have one
COUNT_INPUTS = 7  # inputs that say how many edges there are, where nodes tell nothing
UNIT_ROUNDOFF = 2.0**-53
_SUMMARY = 4  # numbers in which nodes are told of all node features


class Voters(nn.Module):
    """One member: the perceptron of the nodes and that of the node set.

    Args:
        in_features: Width of the node features.
        node_set: Columns of the context that describe the node set; the budget has the others.
        hidden: Width of the layers.
        pairs: Number ``P`` of pairs of classes.
    """

    def __init__(self, in_features: int, node_set: int, hidden: int, pairs: int) -> None:
        super().__init__()
        self._node_set = node_set
        told = _SUMMARY if in_features else node_set
        self.view = nn.Linear(3 * in_features + 4 + DEGREE_INPUTS, hidden)
        # votes that know the node set in detail are learnt by heart: on NCI1 they certify .03 less at one flip
        self.summary = nn.Linear(node_set, told, bias=False) if in_features else None
        self.setting = nn.Linear(told + BUDGET_INPUTS, hidden, bias=False)
        self.inner = nn.Linear(hidden, hidden)
        self.outer = nn.Linear(hidden, pairs)
        known = node_set + BUDGET_INPUTS + (0 if in_features else COUNT_INPUTS)
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
        """The votes of views, ``[R, P]``."""
        hidden = (self.view(inputs) + self.setting(self._told(context))[graph]).relu()
        scores: Tensor = self.outer(self.inner(hidden).relu())
        return scores

    def offsets(self, context: Tensor, counts: Tensor) -> Tensor:
        """The scores of node sets with so many edges, ``[B, P]``."""
        known = context[:, : self._node_set + BUDGET_INPUTS]  # the log-odds of other machines are none of its business
        scores: Tensor = self.offset(torch.cat([known, counts], dim=1))
        return scores

    def rounding(self, largest_inputs: Tensor, context: Tensor, known: Tensor) -> Tensor:
        r"""A bound on the rounding error of any score, ``[P]``, from bounds on absolute inputs.

        A layer of ``m`` inputs computes :math:`W x + b` with an error of at most :math:`(m + 2) u (|W| |x| + |b|)`, ``u`` the
        unit roundoff, and passes on the error of ``x`` by :math:`|W|`; rectifiers enlarge neither. By induction the error of
        the whole is at most ``u`` times the sum of all ``m + 2`` times the value of the network with absolute weights on
        absolute inputs. The factor here is more than twice as large, which also covers inputs that are off by some units in
        the last place.
        """
        value = _absolute(self.view, largest_inputs.unsqueeze(0)) + _absolute(self.setting, self._told(context, True))
        value = _absolute(self.outer, _absolute(self.inner, value))
        offset = known
        for layer in self.offset:
            if isinstance(layer, nn.Linear):
                offset = _absolute(layer, offset)
        widths = [layer.in_features for layer in self.modules() if isinstance(layer, nn.Linear)]
        factor = 64 + 2 * sum(width + 8 for width in widths)
        return factor * UNIT_ROUNDOFF * torch.maximum(value, offset).squeeze(0)

    def _told(self, context: Tensor, absolute: bool = False) -> Tensor:
        """What nodes are told of the context, ``[B, ...]``."""
        if self.summary is None:
            return context
        known, budget = context[:, : self._node_set], context[:, self._node_set : self._node_set + BUDGET_INPUTS]
        return torch.cat([_absolute(self.summary, known) if absolute else self.summary(known), budget], dim=1)


def _absolute(layer: nn.Linear, value: Tensor) -> Tensor:
    found = value @ layer.weight.abs().T
    return found if layer.bias is None else found + layer.bias.abs()
