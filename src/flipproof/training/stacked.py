"""Several networks of one shape, trained together: one batched computation over the stack of their weights.

The optimiser is SOAP (Vyas et al., ICLR 2025): Adam in the eigenbasis of the gradients' covariances. The inputs of a graph
network's layers are strongly correlated (degrees, sums of degrees), and SOAP needs a quarter of Adam's steps or less.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from flipproof.classifiers.features import NodeFeatures, as_features
from flipproof.errors import InputError
from flipproof.models.network import GraphNetwork
from flipproof.noise import EdgeNoise, keyed_draws
from flipproof.training.batches import Draws, LabelledGraphs, Noisy, Padded, View, shuffled
from flipproof.training.classification import ATTACKED, LOSSES, Attack, averaged_loss, rises
from flipproof.training.loop import Hyperparameters

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
        raise InputError(
            "networks must be built alike to be trained together; got other shapes (train them one by one)"
        )
    view = View() if noise is None else Noisy(noise)
    stack = _Stack(networks, LabelledGraphs(graphs, "graphs"), view, as_features(features), flips, chosen)
    step, weights = 0, list(stack.weights.values())
    optimizer = Soap(weights, decay=chosen.weight_decay)
    averaged = [weight.detach().clone() for weight in weights]
    for epoch in range(chosen.epochs):
        for members in shuffled(stack.graphs.sizes, chosen.batch_size, seed=chosen.seed, epoch=epoch):
            gradients = torch.autograd.grad(stack.loss(members, step), weights)
            optimizer.step(gradients, chosen.rate(step, len(stack.graphs)))
            step += 1
            torch._foreach_lerp_(averaged, [weight.detach() for weight in weights], 1 - chosen.memory(step))
    if not all(bool(value.isfinite().all()) for value in averaged):
        raise InputError(f"training diverged (lower learning_rate; got {chosen.learning_rate:g})")
    for place, network in enumerate(networks):
        values = (value[place] for value in averaged)
        network.load_state_dict(dict(zip(stack.weights, values, strict=True)))
        network.eval()
    attack = {"flips": flips} if stack.attacked else {}
    return asdict(chosen) | stack.view.description() | attack | {"networks": len(networks), "optimizer": "soap"}


def standardise_inputs(network: GraphNetwork, graphs: Iterable[Any], *, features: Any = "degree") -> None:
    """Scale the first layer of a fresh network as if its inputs had mean 0 and variance 1 on these graphs."""
    parts = LabelledGraphs(graphs, "graphs")
    batch = parts.padded(torch.arange(len(parts)))
    first = next(part for part in network.modules() if isinstance(part, nn.Linear))
    inputs: list[Tensor] = []
    hook = first.register_forward_pre_hook(lambda _, values: inputs.append(values[0][batch.mask]))
    with torch.no_grad():
        x = as_features(features).dense(batch.adjacency, batch.mask, None).to(torch.float32)
        network(x, batch.adjacency, batch.mask)
        hook.remove()
        first.weight.div_(inputs[0].std(dim=0).clamp_min(1e-6))
        first.bias.sub_(first.weight @ inputs[0].mean(dim=0))


@dataclass(eq=False)
class _Stack:
    """Losses of a stack of networks."""

    networks: Sequence[GraphNetwork]
    graphs: LabelledGraphs
    view: View
    features: NodeFeatures
    flips: int
    chosen: Hyperparameters

    def __post_init__(self) -> None:
        self.base, self.attacked = copy.deepcopy(self.networks[0]).train(), self.chosen.objective in ATTACKED
        stacked, _ = stack_module_state(list(self.networks))
        self.weights = {name: value.detach().clone().requires_grad_() for name, value in stacked.items()}

    def loss(self, members: Tensor, step: int) -> Tensor:
        """Sum of the networks' losses on a batch: the gradient of each network is its own."""
        batch, copies = self.graphs.padded(members), self.chosen.copies

        def draws(what: str, shape: tuple[int, ...]) -> Any:
            return keyed_draws(f"stacked training {what}", self.chosen.seed, step, shape)

        adjacency = self.view.adjacency(batch, copies, draws)
        if self.attacked:
            adjacency = self._attacked(batch, adjacency, draws)
        logits = self._logits(batch, adjacency)
        objective = LOSSES[self.chosen.objective]
        return torch.stack([objective(rows, batch.labels, nn.functional.cross_entropy) for rows in logits]).sum()

    def _logits(self, batch: Padded, adjacency: Tensor) -> Tensor:
        """Logits ``[networks, copies, B, C]`` on the same matrices ``[K, n, n]``, or on others for each network."""
        each = 0 if adjacency.ndim == 4 else None
        mask = batch.mask.repeat(self.chosen.copies, 1)

        def run(weights: dict[str, Tensor], matrices: Tensor) -> Tensor:
            x = self.features.dense(matrices, mask, None)
            logits: Tensor = functional_call(self.base, weights, (x.to(torch.float32), matrices, mask))
            return logits

        logits: Tensor = vmap(run, in_dims=(0, each))(self.weights, adjacency)
        return logits.view(len(self.networks), self.chosen.copies, len(batch.labels), -1)

    def _attacked(self, batch: Padded, adjacency: Tensor, draws: Draws) -> Tensor:
        """The noisy copies after an attack on the graph itself, against each network ``[networks, copies * B, n, n]``."""
        attack = Attack.drawn(batch.adjacency, adjacency, self.view.room(batch, 1, draws), draws, self.flips)
        clean = batch.adjacency.repeat(len(self.networks), 1, 1, 1).requires_grad_()
        losses = [averaged_loss(rows, batch.labels).sum() for rows in self._logits(batch, attack.noisy(clean))]
        (slopes,) = torch.autograd.grad(torch.stack(losses).sum(), clean)
        return attack.along(rises(slopes, batch.adjacency))


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
