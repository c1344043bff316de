"""Compiled loops over lists of neighbours give the model's own answers, each graph by itself, to the last bit."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, SAGEConv, global_add_pool, global_mean_pool

from flipproof import EdgeNoise, Graph, SmoothedClassifier, models
from flipproof.classifiers import as_classifier
from flipproof.classifiers.edges import Ending, NeighbourLists, PiecewiseLinear
from flipproof.classifiers.layers import DegreeRows
from flipproof.errors import InputError
from flipproof.noise import NoisyBatch, SampleStream

CLASSES, WIDTH = 3, 20
NOISE, FEW_EDGES = EdgeNoise(keep=0.8), EdgeNoise(add=0.02, remove=0.8)


def gin(before):
    return GINConv(nn.Sequential(nn.Linear(before, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)), eps=0.3)


LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "GCNConv": lambda before: GCNConv(before, WIDTH),
    "GCNConv, no loops, no bias": lambda before: GCNConv(before, WIDTH, add_self_loops=False, bias=False),
    "GCNConv, not normalised": lambda before: GCNConv(before, WIDTH, normalize=False),
    "GINConv": gin,
    "GINConv, mean": lambda before: GINConv(nn.Sequential(nn.Linear(before, WIDTH), nn.Tanh()), aggr="mean"),
    "GINConv, not linear first": lambda before: GINConv(nn.Sequential(nn.Tanh(), nn.Linear(before, WIDTH))),
    "SAGEConv": lambda before: SAGEConv(before, WIDTH),
    "SAGEConv, sum, no root": lambda before: SAGEConv(before, WIDTH, aggr="sum", root_weight=False),
    "GraphConv": lambda before: GraphConv(before, WIDTH),
    "GraphConv, mean": lambda before: GraphConv(before, WIDTH, aggr="mean", bias=False),
    "GATConv": lambda before: GATConv(before, WIDTH),
    "GATConv, no loops": lambda before: GATConv(before, WIDTH, add_self_loops=False),
    "GATConv, heads": lambda before: GATConv(before, WIDTH // 2, heads=2),
}
BETWEEN: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "relu, dropout": lambda: nn.Sequential(nn.ReLU(), nn.Dropout()),
    "relu, norm": lambda: nn.Sequential(nn.ReLU(), nn.BatchNorm1d(WIDTH)),
    "elu": nn.ELU,
    "two layers": lambda: nn.Sequential(nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()),
    "nothing": nn.Sequential,
}


class Net(nn.Module):
    """Three layers: looked up, in the middle, and with the readout behind it. Some units are switched on, some off."""

    def __init__(self, first, second="", before=1, *, between="relu", mean=True):
        super().__init__()
        torch.manual_seed(0)
        names = (first, second or first, second or first)
        self.convs = nn.ModuleList(LAYERS[name](size) for name, size in zip(names, (before, WIDTH, WIDTH), strict=True))
        part = BETWEEN[between]()
        self.between = part if isinstance(part, nn.Sequential) else nn.Sequential(part)
        self.head, self.pool = nn.Linear(WIDTH, CLASSES), global_mean_pool if mean else global_add_pool
        with torch.no_grad():
            for tensor in (*self.parameters(), *self.buffers()):
                if tensor.is_floating_point() and tensor.ndim == 1:
                    tensor.copy_(torch.rand(tensor.shape) - (0.5 if tensor is not self.head.bias else 0))
            for step in self.between:
                if isinstance(step, nn.BatchNorm1d):
                    step.running_var.abs_().add_(0.2)
        self.eval()

    def forward(self, x, edge_index, batch):
        x = self.convs[0](x, edge_index)
        for step in self.between:
            x = step(x)
        for conv in self.convs[1:]:
            x = conv(x, edge_index).relu()
        return self.head(self.pool(x, batch))


def graph_of(nodes, *, width=0, frozen=False):
    rng = np.random.default_rng(nodes)
    edges = np.argwhere(np.triu(rng.random((nodes, nodes)) < 3 / max(nodes, 3), 1))
    features = rng.normal(size=(nodes, width)).astype(np.float32) if width else None
    return Graph(nodes, edges, features, frozen=[(0, 1), (1, 3)] if frozen else ())


def some_batch(graph, size=64):
    """Noisy copies, and among them the empty graph, the complete one and a star: isolated nodes and all neighbours."""
    batch, _ = SampleStream(graph, NOISE, seed=1).batch(0, size)
    batch.states[0], batch.states[1], batch.states[2] = False, True, np.arange(graph.num_slots) < graph.num_nodes - 1
    return batch


def compiled_and_plain(model, graph, features="degree"):
    """The compiled classifier of a graph, and the model itself."""
    classifier = as_classifier(model.eval(), num_classes=CLASSES, features=features)
    compiled = classifier.suited(graph, NOISE)
    assert compiled.path == "compiled twin", compiled.remark
    return compiled, classifier


def assert_same_answers(model, graph, features="degree"):
    compiled, plain = compiled_and_plain(model, graph, features)
    for batch in (some_batch(graph), SampleStream(graph, FEW_EDGES, seed=3).batch(0, 1)[0]):
        assert_same_scores(compiled, plain, batch)
    return compiled


def assert_same_scores(compiled, plain, batch):
    scores, wanted = compiled.scores(batch), plain.scores(batch)
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=2e-5 * scale)
    lead = np.diff(np.sort(wanted, axis=1)[:, -2:], axis=1)[:, 0]
    clear = lead > 1e-4 * scale
    np.testing.assert_array_equal(scores.argmax(axis=1)[clear], wanted.argmax(axis=1)[clear])


def looked_up(compiled):
    return [part for part in compiled.module.modules() if isinstance(part, DegreeRows)]


@pytest.mark.parametrize("first", LAYERS)
@pytest.mark.parametrize("nodes", [1, 2, 9, 40, 70])
def test_the_degree_as_feature(first, nodes):
    """Behind any first layer, with any activation, any second layer."""
    number = list(LAYERS).index(first)
    second = list(LAYERS)[(number + nodes) % len(LAYERS)]
    between = list(BETWEEN)[(number + nodes) % len(BETWEEN)]
    assert looked_up(assert_same_answers(Net(first, second, between=between), graph_of(nodes)))


@pytest.mark.parametrize("features", ["degree", "own"])
@pytest.mark.parametrize("layer", ["GCNConv", "GINConv", "SAGEConv", "GraphConv", "GATConv"])
def test_large_sparse_graphs(layer, features):
    width = 4 if features == "own" else 0
    graph = graph_of(700, width=width)
    batch, _ = SampleStream(graph, EdgeNoise(add=0.002, remove=0.3), seed=3).batch(0, 8)
    assert batch.listed is not None
    compiled, plain = compiled_and_plain(Net(layer, before=width or 1), graph, features)
    assert_same_scores(compiled, plain, batch)
    assert_same_scores(compiled, plain, batch.only(np.array([5, 2])))


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("first", ["GCNConv", "GATConv"])
def test_a_piecewise_linear_layer(first, between, monkeypatch):
    made: list[Any] = []
    monkeypatch.setattr(
        "flipproof.classifiers.layers.PiecewiseLinear", lambda *of: made.append(PiecewiseLinear(*of)) or made[-1]
    )
    assert_same_answers(Net(first, "SAGEConv", between=between), graph_of(9))
    assert bool(made) == (between in ("relu", "relu, dropout"))


@pytest.mark.parametrize("layer", LAYERS)
def test_features_that_all_copies_share_frozen_pairs_and_a_sum_as_readout(layer):
    assert_same_answers(Net(layer, before=4, mean=False), graph_of(11, width=4, frozen=True), "own")
    assert_same_answers(Net(layer, "GraphConv"), graph_of(9), "constant")


def test_features_that_are_used_again_later():
    class Skips(Net):
        def forward(self, x, edge_index, batch):
            deep = self.convs[1](self.between(self.convs[0](x, edge_index)), edge_index)
            return self.head(global_add_pool(deep + x.sum(dim=1, keepdim=True), batch))

    for first, features, width in (("SAGEConv", "degree", 1), ("GCNConv", "own", 4)):
        assert_same_answers(Skips(first, "GCNConv", width), graph_of(9, width=width), features)


def test_features_of_the_noisy_graph():
    assert_same_answers(Net("GraphConv", before=6), graph_of(11, width=2), "own+one-hot-degree:3")


@pytest.mark.parametrize("layer", ["GCNConv", "GINConv", "GATConv"])
def test_double_precision(layer):
    graph = graph_of(9)
    scores, wanted = (each.finer().scores(some_batch(graph)) for each in compiled_and_plain(Net(layer), graph))
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("nodes", [1, 2, 15, 120])
def test_our_own_network(layers, nodes):
    model = models.GCN(in_features=1, num_classes=CLASSES, layers=layers, seed=0)
    for scale in (1.0, -2.0):  # of the first weights, in place
        with torch.no_grad():
            model.convolutions[0].weight.mul_(scale)
        assert_same_answers(model, graph_of(nodes))


def test_a_network_of_ours_that_was_changed_answers_as_it_is():
    class Doubled(models.GCN):
        def forward(self, x, adj, mask):
            return 2 * super().forward(x, adj, mask)

    hooked = models.GCN(in_features=1, num_classes=CLASSES, seed=1)
    hooked.head.register_forward_hook(lambda layer, inputs, output: 2 * output)
    hooked.convolutions[0].register_forward_hook(lambda layer, inputs, output: -output)
    for model in (Doubled(in_features=1, num_classes=CLASSES, seed=1).eval(), hooked.eval()):
        classifier = as_classifier(model, num_classes=CLASSES, features="degree")
        batch = some_batch(graph_of(9), 8)
        used = classifier.suited(graph_of(9), NOISE)
        np.testing.assert_allclose(used.scores(batch), classifier.scores(batch), rtol=1e-5)


@pytest.mark.parametrize("first", ["GCNConv", "GINConv"])
def test_tables_follow_the_weights(first):
    model, graph = Net(first, "GCNConv"), graph_of(9)
    used, batch = assert_same_answers(model, graph), some_batch(graph, 8)
    before = used.scores(batch)
    with torch.no_grad():
        model.convs[1].lin.weight.mul_(2)
    after = used.scores(batch)
    assert not np.allclose(before, after)
    assert np.array_equal(after, compiled_and_plain(model, graph)[0].scores(batch))


def with_matrices(batch, scores):
    """Sums, means and half a node itself, normalised with loops and without, attention with loops and without."""
    adjacency = torch.from_numpy(batch.adjacency())
    loops, degrees = torch.eye(batch.num_nodes), adjacency.sum(dim=2, keepdim=True)
    scale = [(degrees + loop).rsqrt().nan_to_num(posinf=0) for loop in (1, 0)]
    pairs = nn.functional.leaky_relu(scores[1].unsqueeze(2) + scores[0].unsqueeze(1), 0.2)
    shares = [pairs.masked_fill(edges == 0, -torch.inf).softmax(dim=2) for edges in (adjacency + loops, adjacency)]
    return [
        adjacency,
        adjacency / degrees.clamp(min=1) + 0.5 * loops,
        (adjacency + loops) * scale[0] * scale[0].mT,
        adjacency * scale[1] * scale[1].mT,
        *(share.nan_to_num() for share in shares),
    ]


@settings(max_examples=40)
@given(st.integers(1, 12), st.sampled_from([1, 7, 64, 70]), st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_every_product(nodes, width, seed, relu, mean):
    """Any matrix, any width, rows of one graph or of all, against matrices of torch; and each graph alone, to the last bit."""
    rng, size = np.random.default_rng(seed), 20
    slots = np.arange(nodes * (nodes - 1) // 2)
    states = rng.random((size, len(slots))) < rng.random((size, 1))
    batch = NoisyBatch(nodes, size, None, slots, np.empty(0, dtype=np.int64), states, None)
    torch.manual_seed(seed % 2**31)
    shared, rows, row = torch.randn(nodes, width), torch.randn(size, nodes, width), torch.randn(width)
    scores = torch.randn(2, size, nodes)
    ending = Ending(relu, "mean" if mean else "")
    linear = nn.Linear(width, 150 - 2 * width, bias=relu)

    def by_lists(batch, chosen):
        lists, own = NeighbourLists(batch, torch.float32), rows[chosen].flatten(0, 1)
        matrices = [
            lists.gathering("sum"),
            lists.gathering("mean", itself=0.5),
            lists.normalised(1.0),
            lists.normalised(0.0),
            lists.attention(*scores[:, chosen], slope=0.2, loops=True),
            lists.attention(*scores[:, chosen], slope=0.2, loops=False),
        ]
        return [
            *(lists.product(matrix, own, row, ending) for matrix in matrices),
            *(lists.product(matrix, own, own, ending) for matrix in matrices),
            *(lists.product(matrix, shared, None, ending) for matrix in matrices),
            *(lists.sums(matrix, own[:, 0].contiguous()) for matrix in matrices),
            *(lists.product(matrix, own, row, ending, layer=(linear.weight, linear.bias)) for matrix in matrices),
        ]

    def ended(values):
        values = values.relu() if relu else values
        return values.mean(dim=1) if mean else values.flatten(0, 1)

    with torch.no_grad():
        together, matrices = by_lists(batch, slice(0, size)), with_matrices(batch, scores)
        wanted = [
            *(ended(matrix @ rows + row) for matrix in matrices),
            *(ended(matrix @ rows + rows) for matrix in matrices),
            *(ended(matrix @ shared) for matrix in matrices),
            *((matrix @ rows[:, :, :1]).flatten() for matrix in matrices),
            *(ended(linear((matrix @ rows + row).relu())) for matrix in matrices),
        ]
        for ours, theirs in zip(together, wanted, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
        for index in range(size):
            one = by_lists(batch.only(np.array([index])), slice(index, index + 1))
            for ours, alone in zip(together, one, strict=True):
                count = len(alone)
                torch.testing.assert_close(ours[index * count : (index + 1) * count], alone, rtol=0, atol=0)


def test_rows_that_are_not_the_nodes_are_refused():
    """Compiled loops would read beyond the end of an array."""
    lists = NeighbourLists(some_batch(graph_of(5), 3), torch.float32)
    matrix, rows = lists.gathering("sum"), torch.ones(15, 4)
    for wrong in (rows[:-1], rows[:3], rows.double()):
        with pytest.raises((TypeError, ValueError), match="rows"):
            lists.product(matrix, wrong)
        with pytest.raises((TypeError, ValueError), match="rows"):
            lists.product(matrix, rows, wrong)
    with pytest.raises(ValueError, match="4 columns"):
        lists.product(matrix, rows, torch.ones(15, 3))
    with pytest.raises(ValueError, match="the linear layer takes 3"):
        lists.product(matrix, rows, torch.ones(4), layer=(torch.ones(2, 3), None))
    with pytest.raises(ValueError, match="15 rows"):
        lists.sums(matrix, torch.ones(10))


def test_what_is_not_a_number_stays_so():
    """A ReLU must not hide it: the model is refused for it."""
    graph = graph_of(5)
    model = Net("GCNConv")
    compiled, _ = compiled_and_plain(model, graph)
    with torch.no_grad():
        model.convs[2].bias[3] = torch.nan
    with pytest.raises(InputError, match="NaN"):
        compiled.labels(some_batch(graph))


@pytest.mark.parametrize("model", [Net("GCNConv").half(), models.GIN(1, CLASSES, seed=0)])
def test_where_the_model_itself_is_asked(model):
    classifier = as_classifier(model.eval(), num_classes=CLASSES, features="degree")
    assert "compiled" not in classifier.suited(graph_of(9), NOISE).path


def test_without_compiling_the_model_itself_is_asked(monkeypatch):
    graph = graph_of(9)
    gone_out = pickle.dumps(compiled_and_plain(Net("GCNConv"), graph)[1])
    monkeypatch.setattr("flipproof.classifiers.shortcuts.can_compile", lambda: False)  # as with NUMBA_DISABLE_JIT=1
    for model, path in ((Net("GCNConv"), "message passing"), (models.GCN(1, CLASSES, seed=0).eval(), "dense")):
        smooth = SmoothedClassifier(model, NOISE, num_classes=CLASSES, features="degree")
        assert smooth.classifier.suited(graph, NOISE).path == path
        assert len(smooth.sample(graph, samples=50, seed=0)) == 50
    # a worker asks like the process that sent it the model, or fails
    assert pickle.loads(gone_out).suited(graph, NOISE).path == "compiled twin"
