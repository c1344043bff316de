"""Compiled loops over lists of neighbours give the answers of torch's matrices, each graph by itself, to the last bit."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, SAGEConv, global_add_pool, global_mean_pool

from flipproof import EdgeNoise, Graph, SmoothedClassifier, models
from flipproof.classifiers import as_classifier, kernels
from flipproof.classifiers.edges import MOST_NODES, Edges, Ending, NeighbourLists, compiled_kernels
from flipproof.compiling import can_compile
from flipproof.errors import InputError, MissingExtraError
from flipproof.noise import NoisyBatch, SampleStream, SlotLists

CLASSES, WIDTH = 3, 20
NOISE = EdgeNoise(keep=0.8)


def gin(before: int) -> GINConv:
    return GINConv(nn.Sequential(nn.Linear(before, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)), eps=0.3)


LAYERS: dict[str, Any] = {
    "GCNConv": lambda before: GCNConv(before, WIDTH),
    "GCNConv, no loops": lambda before: GCNConv(before, WIDTH, add_self_loops=False),
    "GCNConv, not normalised": lambda before: GCNConv(before, WIDTH, normalize=False),
    "GINConv": gin,
    "SAGEConv": lambda before: SAGEConv(before, WIDTH),
    "SAGEConv, normalised": lambda before: SAGEConv(before, WIDTH, normalize=True),
    "GraphConv": lambda before: GraphConv(before, WIDTH),
    "GraphConv, mean": lambda before: GraphConv(before, WIDTH, aggr="mean"),
    "GATConv": lambda before: GATConv(before, WIDTH),
    "GATConv, no loops": lambda before: GATConv(before, WIDTH, add_self_loops=False),
    "GATConv, heads": lambda before: GATConv(before, WIDTH // 2, heads=2),
}


class Net(nn.Module):
    """Three layers: looked up, in the middle, and with the readout behind it."""

    def __init__(self, layer: str, before: int = 1, *, mean: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleList(LAYERS[layer](width) for width in (before, WIDTH, WIDTH))
        self.head, self.pool = nn.Linear(WIDTH, CLASSES), global_mean_pool if mean else global_add_pool

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.head(self.pool(x, batch))


def graph_of(nodes: int, *, width: int = 0, frozen: bool = False) -> Graph:
    rng = np.random.default_rng(nodes)
    edges = np.argwhere(np.triu(rng.random((nodes, nodes)) < 3 / max(nodes, 3), 1))
    features = rng.normal(size=(nodes, width)).astype(np.float32) if width else None
    return Graph(nodes, edges, features, frozen=[(0, 1), (1, 3)] if frozen else ())


def some_batch(graph: Graph, size: int = 64) -> NoisyBatch:
    """Noisy copies, and among them the empty graph, the complete one and a star: isolated nodes and all neighbours."""
    batch, _ = SampleStream(graph, NOISE, seed=1).batch(0, size)
    assert batch.states is not None
    batch.states[0], batch.states[1], batch.states[2] = False, True, np.arange(graph.num_slots) < graph.num_nodes - 1
    return batch


def ways(model: nn.Module, graph: Graph, features: str | None = "degree") -> tuple[Any, Any]:
    """The compiled classifier of a graph, and the same without compiled loops."""
    classifier = as_classifier(model.eval(), num_classes=CLASSES, features=features)
    compiled = classifier.suited(graph, NOISE)
    assert compiled.path == ("compiled" if isinstance(model, models.GCN) else "compiled twin"), compiled.remark
    return compiled, classifier if isinstance(model, models.GCN) else classifier._twin  # type: ignore[attr-defined]


def assert_same_answers(compiled: Any, plain: Any, batch: NoisyBatch) -> None:
    found, wanted = compiled.scores(batch), plain.scores(batch)
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5 * scale)
    lead = np.diff(np.sort(wanted, axis=1)[:, -2:], axis=1)[:, 0]
    clear = lead > 1e-4 * scale
    np.testing.assert_array_equal(found.argmax(axis=1)[clear], wanted.argmax(axis=1)[clear])


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("nodes", [1, 2, 9, 40])
def test_the_degree_as_feature(layer: str, nodes: int) -> None:
    graph = graph_of(nodes)
    assert_same_answers(*ways(Net(layer), graph), some_batch(graph))


@pytest.mark.parametrize("layer", LAYERS)
def test_own_features_frozen_pairs_and_a_sum_as_readout(layer: str) -> None:
    graph = graph_of(11, width=4, frozen=True)
    assert_same_answers(*ways(Net(layer, 4, mean=False), graph, None), some_batch(graph))


def test_features_of_the_noisy_graph() -> None:
    """They are made from matrices, which are too large for many nodes."""
    graph, features = graph_of(11, width=2), "own+one-hot-degree:3"
    compiled, plain = ways(Net("GraphConv", 6), graph, features)
    assert_same_answers(compiled, plain, some_batch(graph))
    assert compiled.bytes_each(graph, 10) == plain.bytes_each(graph, 10)
    classifier = as_classifier(Net("GraphConv", 6).eval(), num_classes=CLASSES, features=features)
    assert "compiled" not in classifier.suited(graph_of(120, width=2), NOISE).path


@pytest.mark.parametrize("layer", ["GCNConv", "GINConv", "GATConv"])
def test_double_precision(layer: str) -> None:
    graph = graph_of(9)
    compiled, plain = (each.finer() for each in ways(Net(layer), graph))
    found, wanted = (each.scores(some_batch(graph)) for each in (compiled, plain))
    assert compiled.compiled
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("nodes", [1, 2, 15, 120])
def test_our_own_network(layers: int, nodes: int) -> None:
    graph = graph_of(nodes)
    model = models.GCN(in_features=1, num_classes=CLASSES, layers=layers, seed=0)
    assert_same_answers(*ways(model, graph), some_batch(graph))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 12), st.sampled_from([1, 7, 64, 70]), st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_every_product(nodes: int, width: int, seed: int, relu: bool, mean: bool) -> None:
    """Any matrix, any width, rows of one graph or of all, against matrices of torch; and each graph alone, to the last bit."""
    rng, size = np.random.default_rng(seed), 20
    slots = np.arange(nodes * (nodes - 1) // 2)
    states = rng.random((size, len(slots))) < rng.random((size, 1))
    batch = NoisyBatch(nodes, size, None, slots, np.empty(0, dtype=np.int64), states, None)
    torch.manual_seed(seed % 2**31)
    shared, rows, row = torch.randn(nodes, width), torch.randn(size * nodes, width), torch.randn(width)
    scores = torch.randn(2, size, nodes)
    ending = Ending(relu, "mean" if mean else "")
    linear = nn.Linear(width, 150 - 2 * width, bias=relu)

    def found(edges: Edges, chosen: slice) -> list[Tensor]:
        part = edges.nodes(rows[: edges.copies * nodes]) if edges.copies == size else rows.view(size, nodes, -1)[chosen]
        own, values = part.reshape(-1, width), part[:, :, :1].contiguous()
        matrices = [
            edges.gathering("sum"),
            edges.gathering("mean", itself=0.5),
            edges.normalised(1.0),
            edges.normalised(0.0),
            edges.attention(*scores[:, chosen], slope=0.2, loops=True),
            edges.attention(*scores[:, chosen], slope=0.2, loops=False),
        ]
        return [
            *(edges.product(matrix, own, row, ending) for matrix in matrices),
            *(edges.product(matrix, own, own, ending) for matrix in matrices),
            *(edges.product(matrix, shared, None, ending) for matrix in matrices),
            *(edges.sums(matrix, values) for matrix in matrices),
            *(edges.perceptron(matrix, own, row, linear, ending) for matrix in matrices),
        ]

    with torch.no_grad():
        everyone = slice(0, size)
        together = found(NeighbourLists(batch, torch.float32), everyone)
        by_matrices = found(Edges(torch.from_numpy(batch.adjacency())), everyone)
        for ours, theirs in zip(together, by_matrices, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
        for index in range(size):
            one = found(NeighbourLists(batch.only(np.array([index])), torch.float32), slice(index, index + 1))
            for ours, alone in zip(together, one, strict=True):
                count = len(alone)
                torch.testing.assert_close(ours[index * count : (index + 1) * count], alone, rtol=0, atol=0)


def test_rows_that_are_not_the_nodes_are_refused() -> None:
    """Compiled loops would read beyond the end of an array."""
    edges = NeighbourLists(some_batch(graph_of(5), 3), torch.float32)
    matrix, rows = edges.gathering("sum"), torch.ones(15, 4)
    for wrong in (rows[:-1], rows[:3], rows.double()):
        with pytest.raises((TypeError, ValueError), match="rows"):
            edges.product(matrix, wrong)
        with pytest.raises((TypeError, ValueError), match="rows"):
            edges.product(matrix, rows, wrong)
        with pytest.raises((TypeError, ValueError), match="rows"):
            edges.ended(wrong, Ending(pool="mean"))
    with pytest.raises(ValueError, match="4 columns"):
        edges.product(matrix, rows, torch.ones(15, 3))
    with pytest.raises(ValueError, match="the linear layer takes 3"):
        edges.perceptron(matrix, rows, torch.ones(4), nn.Linear(3, 2), Ending())
    with pytest.raises(ValueError, match="15 rows"):
        edges.sums(matrix, torch.ones(2, 5, 1))


def test_lists_of_edges_are_the_same_graphs() -> None:
    graph = graph_of(9)
    batch = some_batch(graph)
    lists: SlotLists = batch.edge_lists()
    listed = NoisyBatch(9, batch.size, None, None, np.empty(0, dtype=np.int64), None, lists)
    compiled, _ = ways(Net("GCNConv"), graph)
    np.testing.assert_array_equal(compiled.scores(batch), compiled.scores(listed))


def test_what_is_not_a_number_stays_so() -> None:
    """A ReLU must not hide it: the model is refused for it."""
    graph = graph_of(5)
    model = Net("GCNConv").eval()
    compiled, _ = ways(model, graph)
    with torch.no_grad():
        model.convs[2].bias[3] = torch.nan  # type: ignore[index,union-attr]
    with pytest.raises(InputError, match="NaN"):
        compiled.labels(some_batch(graph))


@pytest.mark.parametrize(
    ("nodes", "model"),
    [
        (9, models.GCN(1, CLASSES, layers=1, seed=0)),
        (MOST_NODES + 1, Net("GCNConv")),
        (9, Net("GCNConv").half()),
        (9, models.GIN(1, CLASSES, seed=0)),
    ],
)
def test_where_matrices_stay(nodes: int, model: nn.Module) -> None:
    classifier = as_classifier(model.eval(), num_classes=CLASSES, features="degree")
    assert "compiled" not in classifier.suited(graph_of(nodes), NOISE).path


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """numba cannot be imported."""
    for name in ("numba", "flipproof.classifiers.kernels"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delattr("flipproof.classifiers.kernels")
    can_compile.cache_clear()
    compiled_kernels.cache_clear()
    yield
    can_compile.cache_clear()
    compiled_kernels.cache_clear()


def test_without_numba_matrices_are_used(without_numba: None) -> None:
    graph = graph_of(9)
    for model, path in ((Net("GCNConv"), "dense twin"), (models.GCN(1, CLASSES, seed=0), "dense")):
        smooth = SmoothedClassifier(model.eval(), NOISE, num_classes=CLASSES, features="degree")
        assert smooth.classifier.suited(graph, NOISE).path == path
        assert len(smooth.sample(graph, samples=50, seed=0)) == 50


def test_a_worker_without_numba_does_not_go_another_way(request: pytest.FixtureRequest) -> None:
    graph = graph_of(9)
    own = models.GCN(in_features=1, num_classes=CLASSES, seed=0).eval()
    packed = []
    for model in (Net("GINConv").eval(), own):
        classifier = as_classifier(model, num_classes=CLASSES, features="degree")
        classifier.suited(graph, NOISE)
        packed.append(pickle.dumps(classifier))
    request.getfixturevalue("without_numba")
    for content in packed:
        classifier = pickle.loads(content)
        with pytest.raises(MissingExtraError, match="pip install numba"):
            classifier.suited(graph, NOISE).labels(some_batch(graph))


def test_kernels_know_no_sizes() -> None:
    """Graphs of other sizes, and models of other widths, are not compiled again."""
    model = Net("GATConv").eval()
    for nodes in (5, 6):
        ways(model, graph_of(nodes))[0].scores(some_batch(graph_of(nodes)))
    before = {name: len(getattr(kernels, name).signatures) for name in ("listed", "mix", "scores", "attend")}
    graph = graph_of(17, width=3)
    ways(Net("GATConv", 3), graph, None)[0].scores(some_batch(graph, 11))
    assert {name: len(getattr(kernels, name).signatures) for name in before} == before
