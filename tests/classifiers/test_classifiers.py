"""Classifiers: one table of adapters, all seeing the same noisy graphs."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import global_add_pool

import flipproof as fp
from flipproof import models
from flipproof.classifiers import as_classifier
from flipproof.graphs import pairs_of_slots
from flipproof.noise import BLOCK, SampleStream

# With own feature o and degree d of every node: a = sum o d, b = sum d d, and four classes whose integer scores are
# W [1, a, b]. Integers this small are exact in float32, so all forms must agree to the last vote.

W = torch.tensor([[0, 0, 0], [-20, 8, 0], [-40, -8, 0], [-110, 0, 1]])
CLASSES = len(W)


def reference(graph):
    a = int((graph.node_features[:, 0] * graph.degrees).sum())
    b = int((graph.degrees**2).sum())
    return int(np.argmax([w0 + w1 * a + w2 * b for w0, w1, w2 in W.tolist()]))


class PyG(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, CLASSES)
        with torch.no_grad():
            self.head.weight.copy_(W[:, 1:])
            self.head.bias.copy_(W[:, 0])

    def forward(self, x, edge_index, batch):
        gathered = torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])
        return self.head(global_add_pool(gathered, batch))


class PyGWithMore(PyG):
    """As PyG's own models: optional arguments before the batch."""

    def forward(self, x, edge_index, edge_weight=None, batch=None):
        assert edge_weight is None
        return super().forward(x, edge_index, batch)


class ByData(PyG):
    def forward(self, data):
        assert data.num_graphs == int(data.batch[-1]) + 1
        assert data.ptr[-1] == data.num_nodes == len(data.x)
        return super().forward(data.x, data.edge_index, data.batch)


class Dense(PyG):
    def forward(self, x, adj, mask):
        assert mask.all()
        return self.head((adj @ x).sum(dim=1))


class DenseWithoutMask(PyG):
    def forward(self, x, adjacency):
        return self.head((adjacency @ x).sum(dim=1))


class Predictor:
    def predict(self, graphs):
        return [reference(graph) for graph in graphs]


def black_box(graphs):
    return np.array([reference(graph) for graph in graphs])


ADAPTERS: dict[str, tuple[Callable[[], Any], str, Any]] = {
    "pyg": (lambda: PyG().eval(), "message passing", "own+degree"),
    "pyg with more arguments": (lambda: PyGWithMore().eval(), "message passing", "own+degree"),
    "pyg, float64": (lambda: PyG().double().eval(), "message passing", "own+degree"),
    "data": (lambda: ByData().eval(), "message passing", "own+degree"),
    "dense": (lambda: Dense().eval(), "dense", "own+degree"),
    "dense without mask": (lambda: DenseWithoutMask().eval(), "dense", "own+degree"),
    "dense, float64": (lambda: Dense().double().eval(), "dense", "own+degree"),
    "callable": (lambda: black_box, "callable", None),
    "callable, features": (lambda: black_box, "callable", "own+degree"),
    "callable, floats": (lambda: lambda graphs: black_box(graphs).astype(float), "callable", None),
    "callable, tensor": (lambda: lambda graphs: torch.from_numpy(black_box(graphs)), "callable", None),
    "predict": (Predictor, "callable", None),
}


def random_graph(n, edges, seed=0, **options: Any):
    rng = np.random.default_rng(seed)
    pairs = [(u, v) for u in range(n) for v in range(u + 1, n)]
    chosen = [pairs[k] for k in rng.choice(len(pairs), edges, replace=False)]
    return fp.Graph(n, chosen, rng.integers(-3, 4, (n, 1)).astype(np.float32), **options)


FROZEN = random_graph(7, 9, seed=3, frozen=[(0, 1), (0, 2), (5, 6), (2, 4)])
CASES: dict[str, tuple[fp.Graph, fp.EdgeNoise]] = {
    "small": (random_graph(8, 12), fp.EdgeNoise(keep=0.8)),
    "unequal noise": (random_graph(9, 14, seed=1), fp.EdgeNoise(add=0.05, remove=0.4)),
    "frozen pairs": (FROZEN, fp.EdgeNoise(keep=0.7)),
    "no edges": (random_graph(6, 0), fp.EdgeNoise(keep=0.8)),
    "no noise": (random_graph(8, 12), fp.EdgeNoise(add=0, remove=0)),
    "one node": (fp.Graph(1, [], [[2.0]]), fp.EdgeNoise(keep=0.9)),
    "large and sparse": (random_graph(100, 120, frozen=[(0, 1), (98, 99)]), fp.EdgeNoise(add=0.001, remove=0.3)),
}


def smoothed(adapter, noise):
    make, path, features = ADAPTERS[adapter]
    smooth = fp.SmoothedClassifier(make(), noise, num_classes=CLASSES, features=features)
    assert smooth.classifier.path == path
    return smooth


def noisy_graphs(graph, noise, samples, seed):
    """One sample at a time: its flips are made again, and applied to the graph as an attack would be."""
    stream = SampleStream(graph, noise, seed=seed)
    slots = [graph.slots[stream.flips(k, k + 1)[0]] for k in range(samples)]
    return [graph.flipped(pairs_of_slots(flipped, graph.num_nodes)) for flipped in slots]


@cache
def slow_votes(case):
    """The answers on one noisy graph after the other."""
    return [reference(graph) for graph in noisy_graphs(*CASES[case], samples=300, seed=7)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_votes_are_those_of_a_slow_loop(adapter, case):
    graph, noise = CASES[case]
    votes = smoothed(adapter, noise).sample(graph, samples=300, seed=7)
    assert votes.labels.tolist() == slow_votes(case)


def test_the_cases_are_not_trivial():
    assert len(set(slow_votes("small"))) == CLASSES
    varied = ("unequal noise", "frozen pairs", "large and sparse")
    assert all(len(set(slow_votes(case))) > 1 for case in varied)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_votes_do_not_depend_on_how_many_are_cast_and_flips_are_recorded_as_they_were_seen(adapter):
    graph, noise = CASES["frozen pairs"]
    smooth = smoothed(adapter, noise)
    many = smooth.sample(graph, samples=BLOCK + 1, seed=3)
    assert many.checksums == tuple(SampleStream(graph, noise, seed=3).checksums(BLOCK + 1))
    for samples in (1, 300):
        few = smooth.sample(graph, samples=samples, seed=3)
        assert few == many.first(samples)  # checksums included


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_batches_divide_a_block_and_are_fixed_by_graph_and_noise(adapter):
    classifier = smoothed(adapter, fp.EdgeNoise(keep=0.9)).classifier
    for n in (1, 5, 30, 100, 300):
        graph = random_graph(n, min(n * (n - 1) // 2, 3 * n))
        size = classifier.batch_size(graph, fp.EdgeNoise(keep=0.9))
        assert BLOCK % size == 0
        assert size == classifier.batch_size(graph.replaced(label=1, name="other"), fp.EdgeNoise(keep=0.9))


NETWORKS = [models.GCN, models.GIN]


@pytest.mark.parametrize("network", NETWORKS)
def test_large_sparse_graphs_go_the_sparse_way(network):
    model = network(1, 5, seed=0).eval()
    classifier = as_classifier(model, num_classes=5, features="degree")
    thin, thick = fp.EdgeNoise(add=0.001, remove=0.3), fp.EdgeNoise(keep=0.9)
    large, small = random_graph(600, 1200), random_graph(100, 200)
    assert classifier.suited(large, thin).path == ("compiled twin" if network is models.GCN else "message passing")
    for graph, noise in ((large, thick), (small, thin)):  # many edges, or few nodes: matrices are faster than messages
        assert classifier.suited(graph, noise).path == ("compiled twin" if network is models.GCN else "dense")
    batch, _ = SampleStream(large, thin, seed=0).batch(0, 8)
    dense, sparse = classifier.scores(batch), classifier.suited(large, thin).scores(batch)
    np.testing.assert_allclose(sparse, dense, rtol=1e-4, atol=1e-4)
    smooth = fp.SmoothedClassifier(model, thin, features="degree")
    votes = smooth.sample(large, samples=40, seed=0)
    assert votes.first(9) == smooth.sample(large, samples=9, seed=0)
    labels = [classifier.suited(large, thin).labels(SampleStream(large, thin, seed=0).batch(0, 40)[0])]
    assert votes.labels.tolist() == np.concatenate(labels).tolist()


def test_a_dense_model_without_a_sparse_way_stays_dense_and_refuses_the_largest():
    classifier = as_classifier(Dense().eval(), num_classes=CLASSES, features="own+degree")
    noise = fp.EdgeNoise(add=0, remove=0.1)
    assert classifier.suited(random_graph(400, 800), noise) is classifier
    huge = fp.Graph(20_000, [(0, 1)])
    with pytest.raises(fp.InputError, match=r"graph of 20,000 nodes .*dense.*memory allows 1.0 GiB.*edge_index"):
        fp.SmoothedClassifier(Dense().eval(), noise, num_classes=CLASSES, features="degree").sample(huge)


class Level(nn.Module):
    """The same logits for every graph."""

    def __init__(self, *logits: float):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits, dtype=torch.float64))

    def forward(self, x, adj, mask):
        assert x.dtype == adj.dtype == torch.float64
        return self.logits.expand(len(x), -1)


@pytest.mark.parametrize(
    ("logits", "label"),
    [((1.0, 1 + 1e-12), 1), ((0.0, 0.0, 0.0), 0), ((-np.inf, -2.0), 1)],
    ids=["double precision is kept", "a tie goes to the smaller label", "an infinite logit is a number"],
)
def test_the_label_of_logits(logits, label):
    model = Level(*logits).eval()
    smooth = fp.SmoothedClassifier(model, fp.EdgeNoise(keep=0.9), num_classes=len(logits), features="degree")
    assert set(smooth.sample(random_graph(5, 4), samples=10).labels.tolist()) == {label}


@pytest.mark.parametrize("convention", ["pyg", "dense"])
def test_integer_features_reach_an_embedding(convention):
    class Embedded(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(4, 2)

    class EmbeddedPyG(Embedded):
        def forward(self, x, edge_index, batch):
            return global_add_pool(self.table(x.squeeze(-1)), batch)

    class EmbeddedDense(Embedded):
        def forward(self, x, adj, mask):
            return self.table(x.squeeze(-1)).sum(dim=1)

    model = (EmbeddedPyG() if convention == "pyg" else EmbeddedDense()).eval()
    graph = fp.Graph(5, [(0, 1)], [[0], [3], [2], [1], [0]])
    votes = fp.SmoothedClassifier(model, fp.EdgeNoise(keep=0.9), num_classes=2).sample(graph, samples=8)
    wanted = int(model.table(torch.tensor([0, 3, 2, 1, 0])).sum(dim=0).argmax())
    assert set(votes.labels.tolist()) == {wanted}


def test_a_model_moved_to_another_number_type_after_wrapping():
    model = PyG().eval()
    graph, noise = CASES["small"]
    smooth = fp.SmoothedClassifier(model, noise, num_classes=CLASSES, features="own+degree")
    before = smooth.sample(graph, samples=50, seed=0)
    model.double()
    assert smooth.sample(graph, samples=50, seed=0) == before


@pytest.mark.parametrize(
    ("answer", "classes", "labels"),
    [(lambda graph: graph.num_edges > 12, 2, {0, 1}), (lambda graph: 299, 300, {299})],
    ids=["yes and no", "more than 256 classes"],
)
def test_labels_of_a_callable(answer, classes, labels):
    smooth = fp.SmoothedClassifier(lambda graphs: [*map(answer, graphs)], fp.EdgeNoise(keep=0.8), num_classes=classes)
    assert set(smooth.sample(CASES["small"][0], samples=50, seed=0).labels.tolist()) == labels


def test_a_classifier_of_ones_own_passes_through():
    classifier = as_classifier(black_box, num_classes=CLASSES)
    assert as_classifier(classifier, num_classes=CLASSES) is classifier
    with pytest.raises(fp.InputError, match="classifier's own, 4; got 3"):
        as_classifier(classifier, num_classes=3)
