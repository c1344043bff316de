"""PyG models as their users write them, and what becomes of each: a dense twin with the same votes, or the model itself."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as gnn
from torch import nn
from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool
from torch_geometric.utils import degree

from flipproof import EdgeNoise, Graph, SmoothedClassifier
from flipproof.classifiers import as_classifier
from flipproof.noise import SampleStream

CLASSES, WIDTH = 3, 8
NOISE = EdgeNoise(keep=0.8)


class Tutorial(nn.Module):
    """PyG's own example of graph classification."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.conv3 = gnn.GCNConv(1, WIDTH), gnn.GCNConv(WIDTH, WIDTH), gnn.GCNConv(WIDTH, WIDTH)
        self.lin = nn.Linear(WIDTH, CLASSES)

    def forward(self, x, edge_index, batch):
        x = self.conv1(x, edge_index)
        x = x.relu()
        x = self.conv2(x, edge_index)
        x = F.relu(x)
        x = self.conv3(x, edge_index)
        x = global_mean_pool(x, batch)
        x = F.dropout(x, p=0.5, training=self.training)
        return self.lin(x)


class Isomorphism(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        for width in (1, WIDTH, WIDTH):
            mlp = nn.Sequential(nn.Linear(width, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
            self.convs.append(gnn.GINConv(mlp, train_eps=True))
            self.norms.append(nn.BatchNorm1d(WIDTH))
        self.head = nn.Linear(3 * WIDTH, CLASSES)

    def forward(self, x, edge_index, batch):
        layers = []
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = norm(F.relu(conv(x, edge_index)))
            layers.append(x)
        pooled = torch.cat([global_add_pool(layer, batch) for layer in layers], dim=1)
        return torch.log_softmax(self.head(pooled), dim=-1)


class Sage(nn.Module):
    def __init__(self, **options: Any):
        super().__init__()
        self.first, self.second = gnn.SAGEConv(1, WIDTH, **options), gnn.SAGEConv(WIDTH, WIDTH)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(2 * WIDTH, CLASSES)

    def forward(self, x, edge_index, batch=None):
        x = self.norm(F.elu(self.first(x, edge_index)))
        x = x + F.leaky_relu(self.second(x, edge_index))
        return self.head(torch.cat([global_mean_pool(x, batch), global_max_pool(x, batch)], dim=-1))


class Attention(nn.Module):
    def __init__(self, **options: Any):
        super().__init__()
        self.first = gnn.GATConv(1, WIDTH, heads=3, dropout=0.3, **options)
        self.second = gnn.GATConv(3 * WIDTH, WIDTH, heads=2, concat=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x, edge_index, batch):
        x = F.dropout(x, p=0.6, training=self.training)
        x = F.elu(self.first(x, edge_index))
        return self.head(gnn.global_add_pool(self.second(x, edge_index).tanh(), batch))


class Sums(nn.Module):
    """GraphConv, normalisation by graph, and a readout in a method."""

    def __init__(self, aggregation="add"):
        super().__init__()
        self.convs = nn.ModuleList([gnn.GraphConv(1, WIDTH, aggregation), gnn.GraphConv(WIDTH, WIDTH, "mean")])
        self.norm, self.head = gnn.GraphNorm(WIDTH), nn.Linear(WIDTH, CLASSES)
        self.scale = nn.Parameter(torch.tensor(0.5))

    def readout(self, x, batch):
        return global_max_pool(x, batch=batch) * self.scale

    def forward(self, x, edge_index, edge_weight=None, batch=None):
        for conv in self.convs:
            x = self.norm(conv(x, edge_index, edge_weight=edge_weight), batch).relu_()
        return self.head(self.readout(x, batch))


class Jumping(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(
            [gnn.GCNConv(1, WIDTH, improved=True), gnn.GCNConv(WIDTH, WIDTH, add_self_loops=False)]
        )
        self.jump, self.pool = gnn.JumpingKnowledge("cat"), gnn.MeanAggregation()
        self.head = gnn.MLP([2 * WIDTH, WIDTH, CLASSES], norm=None)

    def forward(self, x, edge_index, batch):
        layers = []
        for index in range(len(self.convs)):
            x = torch.sigmoid(self.convs[index](x, edge_index))
            layers.append(x)
        return self.head(self.pool(self.jump(layers), batch))


class Branching(nn.Module):
    """Control flow in a part that sees neither edges nor batch does not need to be traced."""

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(WIDTH, CLASSES)

        def forward(self, x):
            return self.lin(x) if float(x.abs().max()) < 1e6 else x

    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(1, WIDTH), nn.GELU())
        self.conv = gnn.Sequential("x, edge_index", [(gnn.GCNConv(WIDTH, WIDTH), "x, edge_index -> x"), nn.ReLU()])
        self.head = self.Head()

    def forward(self, x, edge_index, batch):
        return self.head(global_mean_pool(self.conv(self.embed(x), edge_index), batch))


class OneLayer(nn.Module):
    """A convolution, a readout and a linear layer."""

    def __init__(self, conv=None, width=WIDTH):
        super().__init__()
        self.conv, self.head = conv or gnn.GCNConv(1, WIDTH), nn.Linear(width, CLASSES)

    def forward(self, x, edge_index, batch):
        return self.head(global_mean_pool(self.conv(x, edge_index).relu(), batch))


class WithData(OneLayer):
    def forward(self, data):
        x, edge_index, batch = data.x, data.edge_index, data.batch
        return super().forward(x, edge_index, batch)


class Library(nn.Module):
    """A network from PyG's library, with normalisation of its own."""

    def __init__(self):
        super().__init__()
        self.gnn = gnn.models.GIN(1, WIDTH, 2, norm="graph_norm", jk="cat")
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x, edge_index, batch):
        return self.head(global_add_pool(self.gnn(x, edge_index, batch=batch), batch))


class Sized(OneLayer):
    """Arguments by name, and a readout of one graph more than there are."""

    def forward(self, x, edge_index, batch):
        x = self.conv(x=x, edge_index=edge_index).relu()
        return self.head(global_add_pool(x, batch, batch.max() + 2)[:-1])


class Bipartite(OneLayer):
    """More than x and edge_index goes into a layer."""

    def forward(self, x, edge_index, batch):
        return self.head(global_mean_pool(self.conv(x, edge_index, size=(x.size(0), x.size(0))), batch))


class OwnLayer(gnn.MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)


class ReadsEdges(OneLayer):
    def forward(self, x, edge_index, batch):
        return super().forward(x + degree(edge_index[0], x.size(0)).unsqueeze(1), edge_index, batch)


class ControlFlow(OneLayer):
    def forward(self, x, edge_index, batch):
        x = self.conv(x, edge_index)
        if x.abs().max() > 1e9:
            x = x / 2
        return self.head(global_mean_pool(x, batch))


class Homeless(Tutorial):
    """Code without a module of its own, as in a notebook's exec; and a part that cannot be copied."""

    __module__ = "nowhere"

    def __deepcopy__(self, memo):
        raise RuntimeError("one of a kind")


class Replaced(Tutorial):
    def __init__(self):
        super().__init__()
        self.conv2.lin = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())


class Hooked(Tutorial):
    def __init__(self):
        super().__init__()
        self.conv1.register_forward_hook(lambda layer, inputs, output: 2 * output)


TRANSLATED: dict[str, Callable[[], nn.Module]] = {
    "tutorial": Tutorial,
    "isomorphism network": Isomorphism,
    "sage": Sage,
    "sage, sums": lambda: Sage(aggr="sum", root_weight=False),
    "attention": Attention,
    "attention without self-loops": lambda: Attention(add_self_loops=False, bias=False),
    "sums and graph norm": Sums,
    "jumping knowledge": Jumping,
    "control flow in the head": Branching,
    "one Data": lambda: WithData(gnn.GCNConv(1, WIDTH, normalize=False)),
    "PyG's own GIN": Library,
    "a readout with a size": Sized,
}
AS_IT_IS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "own layer": (lambda: OneLayer(OwnLayer(aggr="add"), 1), "layer conv: OwnLayer has no compiled form"),
    "projection": (lambda: Sage(project=True), "SAGEConv with project"),
    "normalised rows": (lambda: Sage(normalize=True), "SAGEConv with normalize"),
    "residual": (lambda: Attention(residual=True), "GATConv with residual"),
    "two kinds of nodes": (lambda: OneLayer(gnn.GATConv((1, 1), WIDTH)), "two kinds of nodes"),
    "a layer inside replaced": (Replaced, "parts that are not PyG's own"),
    "other aggregation": (lambda: Sums("max"), "GraphConv with aggregation 'max'"),
    "more than edges": (lambda: Bipartite(gnn.SAGEConv(1, WIDTH)), "called with more than x and edge_index"),
    "reads the edges": (ReadsEdges, "edge_index in getitem"),
    "control flow": (ControlFlow, "cannot be traced"),
    "cannot be copied": (Homeless, "RuntimeError: one of a kind"),
    "hooks": (Hooked, "GCNConv has hooks"),
}


def built(make):
    """The model with weights, and statistics of its normalisation, that are not the initial ones."""
    torch.manual_seed(0)
    model = make()
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point() and tensor.ndim <= 1:
                tensor.copy_(torch.rand(tensor.shape) + 0.2)
    return model.eval()


def some_graph(nodes=9, seed=0):
    adjacency = np.triu(np.random.default_rng(seed).random((nodes, nodes)) < 0.3, 1)
    return Graph(nodes, np.argwhere(adjacency))


def both_ways(model, graph, noise=NOISE):
    """The classifier that is used, and the logits of 64 noisy copies through it and through the model itself."""
    classifier = as_classifier(model, num_classes=CLASSES, features="degree")
    used = classifier.suited(graph, noise)
    batch, _ = SampleStream(graph, noise, seed=3).batch(0, 64)
    return used, used.scores(batch), classifier.scores(batch)


@pytest.mark.parametrize("name", TRANSLATED)
def test_the_twin_has_the_models_logits_and_votes(name):
    model = built(TRANSLATED[name])
    # few edges: nodes without a neighbour, and graphs without an edge
    for noise in (NOISE, EdgeNoise(add=0.02, remove=0.8)):
        used, scores, wanted = both_ways(model, some_graph(), noise)
        assert (used.path, used.remark) == ("compiled twin", "")
        largest = np.abs(wanted).max()
        np.testing.assert_allclose(scores, wanted, rtol=0, atol=2e-5 * largest)
        top = np.sort(wanted, axis=1)
        clear = top[:, -1] - top[:, -2] > 1e-4 * largest
        assert clear.mean() > 0.9
        assert np.array_equal(scores.argmax(axis=1)[clear], wanted.argmax(axis=1)[clear])


@pytest.mark.parametrize("name", AS_IT_IS)
def test_a_model_that_cannot_be_translated_is_used_as_it_is_and_the_reason_is_told(name):
    make, reason = AS_IT_IS[name]
    used, scores, wanted = both_ways(built(make), some_graph())
    assert used.path == "message passing"
    assert reason in used.remark
    assert np.array_equal(scores, wanted)


def test_the_twin_follows_the_model():
    model: Any = built(Sums)
    graph = some_graph()
    classifier = as_classifier(model, num_classes=CLASSES, features="degree")
    batch, _ = SampleStream(graph, NOISE, seed=3).batch(0, 8)
    before = classifier.suited(graph, NOISE).scores(batch)
    with torch.no_grad():
        model.head.weight.mul_(2)  # in place: the twin shares the weights
    model.scale = nn.Parameter(torch.tensor(3.0))  # another tensor
    model.norm.eps = 0.1  # a plain attribute
    used = classifier.suited(graph, NOISE)
    assert used.path == "compiled twin"
    np.testing.assert_allclose(used.scores(batch), classifier.scores(batch), rtol=1e-3)
    assert not np.allclose(before, used.scores(batch))


def test_a_translated_classifier_can_be_copied_and_pickled():
    graph = some_graph()
    smooth = SmoothedClassifier(built(Tutorial), NOISE, num_classes=CLASSES, features="degree")
    votes = smooth.sample(graph, samples=200, seed=1)
    for other in (pickle.loads(pickle.dumps(smooth)), copy.deepcopy(smooth)):
        assert other.classifier.suited(graph, NOISE).path == "compiled twin"
        assert np.array_equal(other.sample(graph, samples=200, seed=1).labels, votes.labels)


def test_tracing_leaves_no_trace():
    functions = global_mean_pool, degree, gnn.global_add_pool
    as_classifier(built(Attention), num_classes=CLASSES, features="degree").suited(some_graph(), NOISE)
    assert (global_mean_pool, degree, gnn.global_add_pool) == functions
    assert gnn.MeanAggregation()(torch.ones(2, 1), torch.zeros(2, dtype=torch.int64)).item() == 1
    assert math.isclose(float(global_mean_pool(torch.ones(2, 1), torch.zeros(2, dtype=torch.int64))), 1.0)
