"""Rows that are looked up, or computed once for all copies, are those that the model computes for each copy by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, SAGEConv, global_add_pool

from flipproof import EdgeNoise, Graph, models
from flipproof.classifiers import as_classifier
from flipproof.classifiers.edges import PiecewiseLinear
from flipproof.classifiers.layers import DegreeRows
from flipproof.noise import SampleStream

CLASSES, WIDTH = 3, 8
NOISE = EdgeNoise(keep=0.8)


def gin(before: int) -> GINConv:
    return GINConv(nn.Sequential(nn.Linear(before, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)), eps=0.3)


LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "GCNConv": lambda before: GCNConv(before, WIDTH),
    "GCNConv, no loops, no bias": lambda before: GCNConv(before, WIDTH, add_self_loops=False, bias=False),
    "GINConv": gin,
    "GINConv, mean": lambda before: GINConv(nn.Sequential(nn.Linear(before, WIDTH), nn.Tanh()), aggr="mean"),
    "GINConv, not linear first": lambda before: GINConv(nn.Sequential(nn.Tanh(), nn.Linear(before, WIDTH))),
    "SAGEConv": lambda before: SAGEConv(before, WIDTH),
    "SAGEConv, sum, normalised": lambda before: SAGEConv(before, WIDTH, aggr="sum", normalize=True),
    "SAGEConv, no root": lambda before: SAGEConv(before, WIDTH, root_weight=False),
    "GraphConv": lambda before: GraphConv(before, WIDTH),
    "GraphConv, mean": lambda before: GraphConv(before, WIDTH, aggr="mean", bias=False),
    "GATConv": lambda before: GATConv(before, WIDTH),
    "GATConv, heads": lambda before: GATConv(before, WIDTH // 2, heads=2),
    "GATConv, residual": lambda before: GATConv(before, WIDTH, residual=True, add_self_loops=False),
}
BETWEEN: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "norm, relu, dropout": lambda: nn.Sequential(nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Dropout()),
    "relu, norm": lambda: nn.Sequential(nn.ReLU(), nn.BatchNorm1d(WIDTH)),
    "elu": nn.ELU,
    "two layers": lambda: nn.Sequential(nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()),
    "nothing": nn.Sequential,
}


class Net(nn.Module):
    def __init__(self, first: str, between: str, second: str, before: int = 1) -> None:
        super().__init__()
        self.first, self.second = LAYERS[first](before), LAYERS[second](WIDTH)
        found = BETWEEN[between]()
        self.between = found if isinstance(found, nn.Sequential) else nn.Sequential(found)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.first(x, edge_index)
        for step in self.between:
            x = step(x)
        return self.head(global_add_pool(self.second(x, edge_index).relu(), batch))


def built(*given: Any, **more: Any) -> Any:
    torch.manual_seed(0)
    model = Net(*given, **more)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point() and tensor.ndim == 1:
                tensor.copy_(torch.rand(tensor.shape) + 0.2)
        for part in model.modules():
            if isinstance(part, (GCNConv, GATConv)) and part.bias is not None:
                part.bias.sub_(0.7)  # some units are switched on, some off
    return model.eval()


def some_graph(width: int = 0) -> Graph:
    rng = np.random.default_rng(5)
    features = rng.normal(size=(9, width)).astype(np.float32) if width else None
    return Graph(9, np.argwhere(np.triu(rng.random((9, 9)) < 0.3, 1)), features)


def compared(model: nn.Module, graph: Graph, features: str) -> Any:
    """The twin, after its logits of noisy copies were found to be the model's."""
    classifier = as_classifier(model, num_classes=CLASSES, features=features)
    for noise in (NOISE, EdgeNoise(add=0.02, remove=0.8)):
        used = classifier.suited(graph, noise)
        assert (used.path, used.remark) == ("compiled twin", "")
        for size in (1, 48):
            batch, _ = SampleStream(graph, noise, seed=3).batch(0, size)
            wanted = classifier.scores(batch)
            np.testing.assert_allclose(used.scores(batch), wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())
    return used


@pytest.mark.parametrize("first", LAYERS)
def test_the_degree_as_feature(first: str) -> None:
    """Behind any first layer, with any activation, any second layer."""
    for number, second in list(enumerate(LAYERS))[list(LAYERS).index(first) % 3 :: 3]:
        between = list(BETWEEN)[(number + list(LAYERS).index(first)) % len(BETWEEN)]
        used = compared(built(first, between, second), some_graph(), "degree")
        assert any(isinstance(part, DegreeRows) for part in used.module.modules())


@pytest.mark.parametrize("between", BETWEEN)
def test_a_piecewise_linear_layer(between: str) -> None:
    for first in ("GCNConv", "GATConv"):
        used = compared(built(first, between, "SAGEConv"), some_graph(), "degree")
        (rows,) = (part for part in used.module.modules() if isinstance(part, DegreeRows))
        assert rows._kept is not None
        assert (rows._kept[1] is not None) == ("relu" in between)


@pytest.mark.parametrize("first", LAYERS)
def test_features_that_all_copies_share(first: str) -> None:
    compared(built(first, "relu", "GCNConv", before=4), some_graph(4), "own")
    compared(built(first, "relu", "GraphConv"), some_graph(), "constant")


def test_features_that_are_used_again_later() -> None:
    class Skips(Net):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            deep = self.second(self.between(self.first(x, edge_index)), edge_index)
            return self.head(global_add_pool(deep + x.sum(dim=1, keepdim=True), batch))

    for first, features, width in (("SAGEConv", "degree", 1), ("GCNConv", "own", 4)):
        torch.manual_seed(0)
        compared(Skips(first, "relu", "GCNConv", width).eval(), some_graph(width), features)


@pytest.mark.parametrize("first", ["GCNConv", "GINConv"])
def test_tables_follow_the_weights(first: str) -> None:
    model, graph = built(first, "relu", "GCNConv"), some_graph()
    used = compared(model, graph, "degree")
    batch, _ = SampleStream(graph, NOISE, seed=3).batch(0, 8)
    before = used.scores(batch)
    with torch.no_grad():
        model.second.lin.weight.mul_(2)
    after = used.scores(batch)
    assert not np.allclose(before, after)
    assert np.array_equal(
        after, as_classifier(model, num_classes=CLASSES, features="degree").suited(graph, NOISE).scores(batch)
    )


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_our_own_network(layers: int) -> None:
    model = models.GCN(in_features=1, num_classes=CLASSES, hidden=WIDTH, layers=layers, seed=1).eval()
    classifier, graph = as_classifier(model, num_classes=CLASSES, features="degree"), some_graph()
    for scale in (1.0, -2.0):  # of the first weights, in place
        with torch.no_grad():
            model.convolutions[0].weight.mul_(scale)
        batch, _ = SampleStream(graph, NOISE, seed=3).batch(0, 32)
        adjacency = torch.from_numpy(batch.adjacency())
        with torch.no_grad():
            wanted = model(
                adjacency.sum(dim=2, keepdim=True), adjacency, torch.ones(adjacency.shape[:2], dtype=torch.bool)
            )
        np.testing.assert_allclose(
            classifier.scores(batch), wanted.numpy(), rtol=0, atol=1e-5 * float(wanted.abs().max())
        )


def test_a_network_that_was_changed_is_asked_as_it_is() -> None:
    class Doubled(models.GCN):
        def forward(self, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
            return 2 * super().forward(x, adj, mask)

    hooked = models.GCN(in_features=1, num_classes=CLASSES, seed=1)
    hooked.head.register_forward_hook(lambda layer, inputs, output: 2 * output)
    hooked.convolutions[0].register_forward_hook(lambda layer, inputs, output: -output)
    for model in (Doubled(in_features=1, num_classes=CLASSES, seed=1).eval(), hooked.eval()):
        batch, _ = SampleStream(some_graph(), NOISE, seed=3).batch(0, 8)
        adjacency = torch.from_numpy(batch.adjacency())
        with torch.no_grad():
            wanted = model(adjacency.sum(dim=2, keepdim=True), adjacency, torch.ones(8, 9, dtype=torch.bool))
        found = as_classifier(model, num_classes=CLASSES, features="degree").scores(batch)
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 12), st.sampled_from([0.0, 0.3, 1.0]))
def test_pieces_are_the_function(seed: int, units: int, dead: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    slope, offset, gain, shift = (torch.randn(units, generator=generator) for _ in range(4))
    slope[torch.rand(units, generator=generator) < dead] = 0  # units that do not depend on s
    weight, bias = torch.randn(5, units, generator=generator), torch.randn(5, generator=generator)
    values = torch.cat([torch.randn(50, generator=generator) * 4, -offset / slope.clamp(min=1e-3), torch.zeros(1)])
    (found,) = PiecewiseLinear(slope, offset, gain, shift, [(weight, bias)]).rows(values)
    hidden = (values.unsqueeze(1) * slope + offset).relu() * gain + shift
    torch.testing.assert_close(found, hidden @ weight.mT + bias, rtol=1e-4, atol=1e-4 * float(1 + values.abs().max()))
