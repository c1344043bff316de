"""Several networks of one shape, trained together: the same noise, and one optimiser over the stack of their weights.

The optimiser is SOAP (Vyas et al., ICLR 2025): Adam in the eigenbasis of the gradients' covariances. The inputs of a graph
network's layers are strongly correlated (degrees, sums of degrees), and SOAP needs a quarter of Adam's steps or less.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from flipproof.classifiers.features import as_features
from flipproof.errors import InputError
from flipproof.graphs import as_graphs
from flipproof.models.network import GraphNetwork
from flipproof.noise import EdgeNoise
from flipproof.training.batches import LabelledGraphs, Noisy, View, shuffled
from flipproof.training.classification import ATTACKED, GraphClassification
from flipproof.training.loop import Hyperparameters, Lesson

_BASIS_STEPS = 10  # between updates of the bases
_MEMORY = 0.95  # of all moving averages of the optimiser


def train_stack(
    networks: Sequence[GraphNetwork],
    graphs: Iterable[Any],
    *,
    noise: EdgeNoise | None = None,
    features: Any = "degree",
    flips: int = 2,
    seed: int = 0,
    **hyperparameters: Any,
) -> dict[str, Any]:
    """Train networks that are built alike together, in place; arguments are as for :func:`flipproof.train`, and returned as
    plain JSON, to be stored with the networks."""
    chosen = Hyperparameters(**{"average": 0.99, "seed": seed, **hyperparameters})
    if any(network.config != networks[0].config for network in networks):
        raise InputError("networks trained together must be built alike; got other shapes (train them one by one)")
    view, members = View() if noise is None else Noisy(noise), as_graphs(graphs)
    flips = flips if chosen.objective in ATTACKED else 0
    tasks = [
        GraphClassification(Lesson(network.train(), members, None, features, chosen), view, flips)
        for network in networks
    ]
    parts, step = tasks[0].graphs, 0
    own: list[list[Tensor]] = [list(network.parameters()) for network in networks]
    weights = [torch.stack(same).detach() for same in zip(*own, strict=True)]
    optimizer = Soap(weights, decay=chosen.weight_decay)
    averaged = [weight.clone() for weight in weights]
    for epoch in range(chosen.epochs):
        for batch in map(parts.padded, shuffled(parts.sizes, chosen.batch_size, seed=chosen.seed, epoch=epoch)):
            draws = tasks[0].draws("stacked training", step)
            shown = view.show(batch, chosen.copies, draws)
            losses = [task.outcome(batch, shown, draws).loss for task in tasks]
            gradients = [torch.autograd.grad(loss, part) for loss, part in zip(losses, own, strict=True)]
            optimizer.step([torch.stack(same) for same in zip(*gradients, strict=True)], chosen.rate(step, len(parts)))
            step += 1
            torch._foreach_lerp_(averaged, weights, 1 - chosen.memory(step))
            _copy(weights, own)
    if not all(bool(value.isfinite().all()) for value in averaged):
        raise InputError(f"training diverged (lower learning_rate; got {chosen.learning_rate:g})")
    _copy(averaged, own)
    for network in networks:
        network.eval()
    attack = {"flips": flips} if flips else {}
    return asdict(chosen) | view.description() | attack | {"networks": len(networks), "optimizer": "soap"}


@torch.no_grad()
def _copy(weights: Sequence[Tensor], networks: Sequence[list[Tensor]]) -> None:
    """Give every network its part of the stacked weights."""
    for place, own in enumerate(networks):
        torch._foreach_copy_(own, [weight[place] for weight in weights])


def standardise_inputs(network: GraphNetwork, graphs: Iterable[Any]) -> None:
    """Scale the first layer of a fresh network as if its inputs, from degrees, had mean 0 and variance 1 on these graphs."""
    parts = LabelledGraphs(graphs, "graphs")
    batch = parts.padded(torch.arange(len(parts)))
    first = next(part for part in network.modules() if isinstance(part, nn.Linear))
    inputs: list[Tensor] = []
    hook = first.register_forward_pre_hook(lambda _, values: inputs.append(values[0][batch.mask]))
    with torch.no_grad():
        x = as_features("degree").dense(batch.adjacency, batch.mask, None).to(torch.float32)
        network(x, batch.adjacency, batch.mask)
        hook.remove()
        first.weight.div_(inputs[0].std(dim=0).clamp_min(1e-6))
        first.bias.sub_(first.weight @ inputs[0].mean(dim=0))


class Soap:
    """Adam in the eigenbasis of the covariances of rows and columns of each gradient, for weights ``[networks, ...]``."""

    def __init__(self, weights: Sequence[Tensor], *, decay: float) -> None:
        self.weights, self.decay, self.steps = weights, decay, 0
        shapes = [(*weight.shape, 1, 1)[:3] for weight in weights]
        self.means = [torch.zeros(shape) for shape in shapes]
        self.squares = [torch.zeros(shape) for shape in shapes]
        self.covariances = [[torch.zeros(n, side, side) for side in sides] for n, *sides in shapes]
        self.bases = [tuple(torch.eye(side).expand(n, side, side) for side in sides) for n, *sides in shapes]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], rate: float) -> None:
        self.steps += 1
        unbiased = 1 - _MEMORY**self.steps
        parts = zip(self.weights, gradients, self.means, self.squares, self.covariances, strict=True)
        for place, (weight, flat, mean, square, (rows, columns)) in enumerate(parts):
            gradient = flat.view_as(mean)
            rows.lerp_(gradient @ gradient.mT, 1 - _MEMORY)
            columns.lerp_(gradient.mT @ gradient, 1 - _MEMORY)
            left, right = self.bases[place]
            if self.steps % _BASIS_STEPS == 1:  # a step of orthogonal iteration towards the eigenbasis
                left, right = (torch.linalg.qr(part @ basis)[0] for part, basis in ((rows, left), (columns, right)))
                self.bases[place] = left, right
            mean.lerp_(gradient, 1 - _MEMORY)
            square.lerp_((left.mT @ gradient @ right).square_(), 1 - _MEMORY)
            turned = (left.mT @ mean @ right) / unbiased / ((square / unbiased).sqrt_() + 1e-8)
            weight.mul_(1 - rate * self.decay).sub_((left @ turned @ right.mT).view_as(weight), alpha=rate)
