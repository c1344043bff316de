"""The paper's base classifier: a two-layer graph convolutional network."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

from torch import Tensor, nn

from flipproof.classifiers.edges import Ending, NeighbourLists, PiecewiseLinear
from flipproof.models.network import GraphNetwork, Layout, checked_config, seeded_weights


class GCN(GraphNetwork):
    r"""The graph convolutional network of Kipf and Welling (ICLR 2017), with a mean readout and a linear head.

    .. math:: H_{k+1} = \mathrm{ReLU}(\hat A H_k W_k + b_k), \qquad
              \hat A = D^{-1/2} (A + I) D^{-1/2}, \quad D = \text{degrees of } A + I

    and logits ``mean over nodes of H, times W, plus b``.

    Args:
        in_features: Width ``d`` of the node features; 1 for the degree.
        num_classes: Number of classes ``C``.
        hidden: Width of the layers.
        layers: Number of convolutions; the paper has two.
        seed: Makes the initial weights; ``None`` takes torch's own generator.
    """

    name = "gcn"

    def __init__(
        self, in_features: int = 1, num_classes: int = 2, *, hidden: int = 64, layers: int = 2, seed: int | None = None
    ) -> None:
        super().__init__()
        self.config = checked_config(
            self.name, in_features=in_features, num_classes=num_classes, hidden=hidden, layers=layers
        )
        widths = [in_features, *[hidden] * layers]
        with seeded_weights(seed):
            self.convolutions = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(widths))
            self.head = nn.Linear(hidden, num_classes)

    def logits(self, x: Tensor, layout: Layout) -> Tensor:
        scale = (layout.degrees() + 1).to(x.dtype).rsqrt()
        hidden = x
        for linear in cast(list[nn.Linear], self.convolutions):
            # never wider than needed: propagate first where the layer widens, last where it narrows
            widens = linear.in_features <= linear.out_features
            hidden = (hidden if widens else nn.functional.linear(hidden, linear.weight)) * scale
            hidden = layout.gathered(hidden).mul_(scale)
            hidden = (linear(hidden) if widens else hidden + linear.bias).relu_()
        logits: Tensor = self.head(layout.means(hidden))
        return logits

    @property
    def looks_up_degrees(self) -> bool:
        """Whether the network can be computed by :meth:`on_degrees`."""
        return bool(self.config["in_features"] == 1 and self.config["layers"] > 1)

    def degree_pieces(self) -> PiecewiseLinear | None:
        """What :meth:`on_degrees` needs to know of the weights; ``None`` if the network cannot be computed so."""
        if not self.looks_up_degrees:
            return None
        first, second = (cast(nn.Linear, layer) for layer in self.convolutions[:2])
        return PiecewiseLinear(first.weight[:, 0], first.bias, [(second.weight, None)])

    def on_degrees(self, lists: NeighbourLists, pieces: PiecewiseLinear) -> Tensor:
        """As :meth:`forward`, for graphs without padding whose only feature is the degree, so that the first layer is looked up;
        not for gradients."""
        matrix = lists.normalised(1.0)
        (rows,) = lists.looked_up(pieces, lists.sums(matrix, lists.degrees.squeeze(1)))
        _, second, *others = cast(list[nn.Linear], self.convolutions)
        inner, last = Ending(relu=True), Ending(relu=True, pool="mean")
        hidden = lists.product(matrix, rows, second.bias, inner if others else last)
        for number, linear in enumerate(others, 1):
            hidden = lists.ended(linear(lists.product(matrix, hidden)), last if number == len(others) else inner)
        logits: Tensor = self.head(hidden)
        return logits
