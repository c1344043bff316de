"""What all networks here have in common: two layouts of a batch, one set of weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any, cast

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, global_add_pool, global_mean_pool

from flipproof.checks import checked_count
from flipproof.errors import InputError
from flipproof.noise import EdgeNoise


class NamedNetwork(nn.Module):
    """A network that :func:`flipproof.models.build` knows by name, and that can be saved."""

    config: dict[str, Any]  # from this build makes the network again; plain JSON

    @property
    def num_classes(self) -> int:
        return int(self.config["num_classes"])


class GraphNetwork(NamedNetwork, ABC):
    """A graph classifier with a dense and a sparse way to the same logits. Neither what stands at padded nodes nor other graphs
    of the batch may change the answer: no batch statistics, and every readout knows the mask."""

    name: str

    @abstractmethod
    def logits(self, x: Tensor, layout: Layout) -> Tensor:
        """Logits ``[B, C]`` of a batch in either layout, with node features ``[B, n, d]`` or ``[V, d]``."""

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
        """Logits ``[B, C]`` of a padded batch: node features ``[B, n, d]``, symmetric matrices ``[B, n, n]`` that are 0 at padded
        nodes, and bool ``[B, n]``, true at nodes that exist."""
        return self.logits(x, DenseLayout(adj, mask))

    def forward_sparse(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Logits ``[B, C]`` of a disjoint union of graphs, as in PyG: node features ``[V, d]``, every edge in both directions
        ``[2, E]``, and the graph of every node ``[V]``, ascending from 0."""
        return self.logits(x, SparseLayout(edge_index, batch))


def checked_config(name: str, *counts: Any) -> dict[str, Any]:
    """The config of a model, from its width of node features, number of classes, width and number of layers."""
    values = zip(("in_features", "num_classes", "hidden", "layers"), counts, strict=True)
    return {"name": name} | {key: checked_count(value, key, 1, f"for instance {key}=8") for key, value in values}


def alteration(network: GraphNetwork) -> str | None:
    """In which way a network is not as flipproof builds it, weights aside; ``None`` if it is. For proofs that read weights: a
    subclass, another layer or a hook may compute what no weight tells."""
    if not type(network).__module__.startswith("flipproof.models."):
        return f"{type(network).__name__} is a class of its own"
    arguments = {key: value for key, value in network.config.items() if key != "name"}
    built = _parts_as_built(type(network), tuple(arguments.items()))
    for name, part in network.named_modules():
        if built.get(name) is not type(part):
            return f"{name or 'the network itself'} is a {type(part).__name__}"
        if part._forward_hooks or part._forward_pre_hooks:
            return f"{name or 'the network itself'} has a hook"
        if any(callable(value) and hasattr(type(part), key) for key, value in vars(part).items()):
            return f"a method of {name or 'the network itself'} was replaced"
    return None


@cache
def _parts_as_built(kind: type[GraphNetwork], arguments: tuple[tuple[str, Any], ...]) -> dict[str, type[nn.Module]]:
    with seeded_weights(0):
        return {name: type(part) for name, part in kind(**dict(arguments)).named_modules()}


@contextmanager
def seeded_weights(seed: int | None) -> Iterator[None]:
    """Weights made inside depend on the seed alone, and the caller's generator is left as it was."""
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        yield


class DenseLayout:
    """A batch as ``adj [B, n, n]`` and ``mask [B, n]``; values are rows of nodes, ``[B, n, d]``, and ``sizes`` are ``[B, 1]``."""

    def __init__(self, adj: Tensor, mask: Tensor) -> None:
        self.adj, self.mask, self._nodes = adj, mask, mask.to(adj.dtype)
        self.sizes = self._nodes.sum(dim=1, keepdim=True)

    def degrees(self) -> Tensor:
        return self.adj.sum(dim=2, keepdim=True)

    def neighbour_sums(self, values: Tensor) -> Tensor:
        return torch.bmm(self.adj, values)

    def gathered(self, values: Tensor, own: float = 1, scale: float = 1) -> Tensor:
        """``own`` times the values plus ``scale`` times the sums over the neighbours."""
        if values.shape[2] == 1:  # many small products of a matrix and a vector: faster without the library
            return scale * (self.adj * values.mT).sum(dim=2, keepdim=True) + own * values
        return torch.baddbmm(values, self.adj, values, beta=own, alpha=scale)

    def spread(self, values: Tensor) -> Tensor:
        """Numbers of graphs ``[B, d]`` for each of their nodes."""
        return values.unsqueeze(1)

    def sums(self, values: Tensor) -> Tensor:
        return torch.bmm(self._nodes.unsqueeze(1), values).squeeze(1)

    def means(self, values: Tensor) -> Tensor:
        return torch.bmm((self._nodes / self.sizes).unsqueeze(1), values).squeeze(1)

    def highest(self, values: Tensor) -> Tensor:
        return values.masked_fill(~self.mask.unsqueeze(2), -torch.inf).amax(dim=1)


class SparseLayout:
    """The same for a union of graphs, ``edge_index [2, E]`` and ``batch [V]``; values are ``[V, d]``."""

    def __init__(self, edge_index: Tensor, batch: Tensor) -> None:
        self.edge_index, self.batch, self._counts = edge_index, batch, torch.bincount(batch)
        self.sizes = self._counts.to(torch.get_default_dtype()).unsqueeze(1)

    def degrees(self) -> Tensor:
        degrees = torch.bincount(self.edge_index[1], minlength=len(self.batch))
        return degrees.to(torch.get_default_dtype()).unsqueeze(1)

    def neighbour_sums(self, values: Tensor) -> Tensor:
        return torch.zeros_like(values).index_add_(0, self.edge_index[1], values[self.edge_index[0]])

    def gathered(self, values: Tensor, own: float = 1, scale: float = 1) -> Tensor:
        return own * values + scale * self.neighbour_sums(values)

    def spread(self, values: Tensor) -> Tensor:
        return values[self.batch]

    def sums(self, values: Tensor) -> Tensor:
        return values.new_zeros(len(self._counts), values.shape[1]).index_add(0, self.batch, values)

    def means(self, values: Tensor) -> Tensor:
        return self.sums(values) / self._counts.unsqueeze(1)

    def highest(self, values: Tensor) -> Tensor:
        lowest = values.new_full((len(self._counts), values.shape[1]), -torch.inf)
        return lowest.scatter_reduce(0, self.batch.unsqueeze(1).expand_as(values), values, "amax")


Layout = DenseLayout | SparseLayout
_HEADS = 4  # of the attention
_STACKS = {"graphsage": pyg.GraphSAGE, "gat": pyg.GAT}


class PyGNetwork(NamedNetwork):
    """PyG's ``GraphSAGE`` or ``GAT`` with a layer normalisation of each node, sum and mean over the nodes, and a linear head.

    Args:
        name: ``graphsage`` or ``gat``.
        hidden: Width of the layers; of ``gat`` a multiple of its four heads.
        in_features, num_classes, layers, seed: As for :class:`GCN`.
    """

    def __init__(
        self,
        name: str,
        in_features: int = 1,
        num_classes: int = 2,
        *,
        hidden: int = 32,
        layers: int = 3,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.config = checked_config(name, in_features, num_classes, hidden, layers)
        heads = {"heads": _HEADS} if name == "gat" else {}
        if heads and hidden % _HEADS:
            raise InputError(f"hidden must be a multiple of the {_HEADS} heads of gat; got {hidden} (for instance 32)")
        norm = {"norm": "LayerNorm", "norm_kwargs": {"mode": "node"}}
        with seeded_weights(seed):
            self.stack = _STACKS[name](in_features, hidden, layers, **norm, **heads)
            self.head = nn.Linear(2 * hidden, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Logits ``[B, C]`` of a disjoint union of graphs."""
        hidden = self.stack(x, edge_index)
        logits: Tensor = self.head(torch.cat([global_add_pool(hidden, batch), global_mean_pool(hidden, batch)], dim=1))
        return logits


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
        self.config = checked_config(self.name, in_features, num_classes, hidden, layers)
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
            hidden = layout.gathered(hidden) * scale
            hidden = (linear(hidden) if widens else hidden + linear.bias).relu()
        logits: Tensor = self.head(layout.means(hidden))
        return logits

    def as_pyg(self) -> nn.Module:
        """The same network of PyG's layers, with the same weights."""
        layers: list[Any] = []
        with seeded_weights(0):
            for linear in cast(list[nn.Linear], self.convolutions):
                layer = GCNConv(linear.in_features, linear.out_features)
                layer.lin.weight, layer.bias = linear.weight, linear.bias
                layers += [(layer, "x, edge_index -> x"), nn.ReLU()]
        layers += [(global_mean_pool, "x, batch -> x"), self.head]
        stack: nn.Module = pyg.Sequential("x, edge_index, batch", layers).train(self.training)
        return stack


class GIN(GraphNetwork):
    r"""A graph isomorphism network (Xu et al., ICLR 2019) with residual connections and layer normalisation.

    .. math:: H_0 = X W + b, \qquad Z_k = \mathrm{LayerNorm}(H_k), \qquad
              H_{k+1} = H_k + \mathrm{MLP}_k((1 + \epsilon_k) Z_k + A Z_k / s)

    with a fixed scale ``s``. The readout joins the sum of ``LayerNorm(H)`` over the nodes divided by the square root of their
    number, its mean and its maximum; a two-layer perceptron makes the logits.

    With ``noise``, messages pass over :math:`\hat A = (A - p_+ (J - I)) / (1 - p_+ - p_-)`, whose mean over the noise is the
    clean adjacency matrix, and every node also sees its degree in it. With ``sizes``, a learned vector for each number of nodes
    up to ``sizes`` is added to ``H_0``, which suits data whose classes have typical sizes.

    Args:
        in_features, num_classes, hidden, layers, seed: As for :class:`GCN`.
        noise: The noise to correct for, an :class:`flipproof.EdgeNoise` or its ``(p_add, p_remove)``; ``None`` for none.
        sizes: Number of nodes up to which each number has a vector of its own; ``None`` for none.
    """

    name = "gin"

    def __init__(
        self,
        in_features: int = 1,
        num_classes: int = 2,
        *,
        hidden: int = 32,
        layers: int = 3,
        noise: EdgeNoise | Sequence[float] | None = None,
        sizes: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.config = checked_config(self.name, in_features, num_classes, hidden, layers)
        self.background, self.contrast, self.corrects = 0.0, 1.0, noise is not None
        if noise is not None:
            self.background, lost = _probabilities(noise)
            self.contrast -= self.background + lost
            self.config["noise"] = [self.background, lost]
        self.by_size: nn.Embedding | None = None
        with seeded_weights(seed):
            self.encoder = nn.Linear(in_features + self.corrects, hidden)
            self.blocks = nn.ModuleList(_Block(hidden) for _ in range(layers))
            self.norm = nn.LayerNorm(hidden)
            self.head = nn.Sequential(nn.Linear(3 * hidden, 2 * hidden), nn.ReLU(), nn.Linear(2 * hidden, num_classes))
            if sizes is not None:
                self.config["sizes"] = checked_count(sizes, "sizes", 1, "for instance sizes=32")
                self.by_size = nn.Embedding(self.config["sizes"] + 1, hidden)
                nn.init.zeros_(self.by_size.weight)

    def logits(self, x: Tensor, layout: Layout) -> Tensor:
        sizes = layout.sizes.to(x.dtype)
        if self.corrects:
            degree = layout.degrees().to(x.dtype) - self.background * (layout.spread(sizes) - 1)
            x = torch.cat([x, degree / self.contrast], dim=-1)
        hidden = self.encoder(x)
        if self.by_size is not None:
            numbers = sizes.squeeze(1).long().clamp_max(self.by_size.num_embeddings - 1)
            hidden = hidden + layout.spread(self.by_size(numbers))
        for block in cast(list[_Block], self.blocks):
            normed, scale = block.norm(hidden), block.scale / self.contrast
            # A_hat Z = (A Z - p (sum of all rows - Z)) / contrast, without the matrix
            gathered = layout.gathered(normed, own=1 + scale * self.background, scale=scale)
            if self.background:
                gathered = gathered - scale * self.background * layout.spread(layout.sums(normed))
            hidden = hidden + block(gathered, normed)
        hidden = self.norm(hidden)
        sums, highest = layout.sums(hidden), layout.highest(hidden)
        logits: Tensor = self.head(torch.cat([sums * sizes.rsqrt(), sums / sizes, highest], dim=1))
        return logits


def _probabilities(noise: EdgeNoise | Sequence[float]) -> tuple[float, float]:
    pair = (noise.p_add, noise.p_remove) if isinstance(noise, EdgeNoise) else noise
    try:
        added, lost = (float(value) for value in pair)
    except (TypeError, ValueError):
        added = lost = -1.0
    if not (0 <= added < 1 and 0 <= lost < 1 and added + lost < 1):
        raise InputError(
            f"noise must be an EdgeNoise, or its probabilities to add and to remove with a sum below 1; got {noise!r} "
            "(for instance noise=EdgeNoise(keep=0.9))"
        )
    return added, lost


class _Block(nn.Module):
    scale = 0.25

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.epsilon = nn.Parameter(torch.zeros(()))
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, width)

    def forward(self, gathered: Tensor, normed: Tensor) -> Tensor:
        result: Tensor = self.outer(self.inner(gathered + self.epsilon * normed).relu_())
        return result
