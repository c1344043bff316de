"""Networks that are trained together: each as if it were alone, and quickly."""

import pytest
import torch

from flipproof import EdgeNoise, InputError
from flipproof.datasets import topologies
from flipproof.models import GCN, GIN
from flipproof.training.batches import LabelledGraphs
from flipproof.training.stacked import Soap, standardise_inputs, train_stack

GRAPHS = topologies(24, seed=5)
NOISE = EdgeNoise(keep=0.9)


def fresh(kind, seed):
    shape = {"in_features": 1, "num_classes": 8, "hidden": 8, "layers": 2}
    return kind(**shape, seed=seed) if kind is GCN else kind(**shape, noise=NOISE, sizes=16, seed=seed)


@pytest.mark.parametrize("kind", [GCN, GIN])
@pytest.mark.parametrize("objective", ["samples", "majority", "attacked", "attacked-votes"])
def test_a_network_learns_in_a_stack_what_it_learns_alone(kind, objective):
    """As far as rounding goes, which the optimiser amplifies: measured by how far the training moves each weight."""
    stacks = [[fresh(kind, seed) for seed in seeds] for seeds in ((0, 1, 2), (1,))]
    for networks in stacks:
        options = {"epochs": 2, "batch_size": 12, "copies": 2, "objective": objective, "average": 0.0}
        told = train_stack(networks, GRAPHS, noise=NOISE, flips=1, **options)
        assert (told["networks"], told.get("flips", 0)) == (len(networks), int("attacked" in objective))
    for weight, alone, before in zip(
        *(n.parameters() for n in (stacks[0][1], stacks[1][0], fresh(kind, 1))), strict=True
    ):
        assert (weight - alone).norm() < 0.1 * (alone - before).norm()  # networks that share anything: about 1


def test_the_optimiser_is_quick_where_directions_differ_in_scale():
    torch.manual_seed(0)
    turn = torch.linalg.qr(torch.randn(8, 8))[0]
    scales = turn @ torch.diag(torch.logspace(0, -4, 8)) @ turn.T
    goal, losses = torch.randn(4, 8), {}
    for name in ("soap", "adam"):
        weight = torch.zeros(1, 4, 8, requires_grad=True)
        soap, adam = Soap([weight], decay=0.0), torch.optim.Adam([weight], lr=0.03, betas=(0.95, 0.95))
        for _ in range(400):
            loss = ((weight[0] - goal) @ scales).square().sum()
            weight.grad = torch.autograd.grad(loss, weight)[0]
            adam.step() if name == "adam" else soap.step([weight.grad], 0.03)
        losses[name] = loss.item()
    assert losses["soap"] < 0.1 * losses["adam"]


@pytest.mark.parametrize("kind", [GCN, GIN])
def test_first_layers_see_inputs_of_mean_0_and_variance_1(kind):
    network, plain = fresh(kind, 0), fresh(kind, 0)
    standardise_inputs(network, GRAPHS)
    first, before = (next(p for p in n.modules() if isinstance(p, torch.nn.Linear)) for n in (network, plain))
    outputs: list[torch.Tensor] = []
    batch = LabelledGraphs(GRAPHS, "graphs").padded(torch.arange(24))
    first.register_forward_hook(lambda _, __, values: outputs.append(values[batch.mask]))
    network(batch.adjacency.sum(2, keepdim=True), batch.adjacency, batch.mask)
    assert torch.allclose(outputs[0].mean(dim=0), before.bias, atol=1e-4)
    if kind is GCN:  # one input
        assert torch.allclose(outputs[0].std(dim=0), before.weight[:, 0].abs(), atol=1e-4)


def test_what_cannot_be_stacked_is_refused():
    with pytest.raises(InputError, match="built alike"):
        train_stack([fresh(GCN, 0), fresh(GIN, 0)], GRAPHS, epochs=1)
    with pytest.raises(InputError, match="diverged"):
        train_stack([fresh(GCN, 0)], GRAPHS, epochs=3, learning_rate=1e38)
