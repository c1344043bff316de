"""Classifiers: one table of adapters, all seeing the same noisy graphs; and models that must be refused, in one sentence."""

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCNConv, global_add_pool, global_mean_pool

import flipproof as fp
from flipproof import models
from flipproof.classifiers import as_classifier
from flipproof.classifiers.torch_module import logit_per_class
from flipproof.graphs import pairs_of_slots
from flipproof.noise import BLOCK, SampleStream

# ---- one classifier in many forms ----------------------------------------------------------------------------------
#
# With own feature o and degree d of every node: a = sum o d, b = sum d d, and four classes whose integer scores are
# W [1, a, b]. Integers this small are exact in float32, so all forms must agree to the last vote.

W = torch.tensor([[0, 0, 0], [-20, 8, 0], [-40, -8, 0], [-110, 0, 1]])
CLASSES = len(W)


def reference(graph: fp.Graph) -> int:
    assert graph.node_features is not None
    a = int((graph.node_features[:, 0] * graph.degrees).sum())
    b = int((graph.degrees**2).sum())
    return int(np.argmax([w0 + w1 * a + w2 * b for w0, w1, w2 in W.tolist()]))


class PyG(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, CLASSES)
        with torch.no_grad():
            self.head.weight.copy_(W[:, 1:])
            self.head.bias.copy_(W[:, 0])

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        gathered = torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])
        return self.head(global_add_pool(gathered, batch))


class PyGWithMore(PyG):
    """As PyG's own models: optional arguments before the batch."""

    def forward(  # type: ignore[override]
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        assert edge_weight is None
        assert batch is not None
        return super().forward(x, edge_index, batch)


class ByData(PyG):
    def forward(self, data: Any) -> Tensor:  # type: ignore[override]
        assert data.num_graphs == int(data.batch[-1]) + 1
        assert data.ptr[-1] == data.num_nodes == len(data.x)
        return super().forward(data.x, data.edge_index, data.batch)


class Dense(PyG):
    def forward(self, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        assert mask.all()
        return self.head((adj @ x).sum(dim=1))


class DenseWithoutMask(PyG):
    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:  # type: ignore[override]
        return self.head((adjacency @ x).sum(dim=1))


class Predictor:
    def predict(self, graphs: list[fp.Graph]) -> list[int]:
        return [reference(graph) for graph in graphs]


def black_box(graphs: list[fp.Graph]) -> NDArray[np.int64]:
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


def random_graph(n: int, edges: int, seed: int = 0, **options: Any) -> fp.Graph:
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
    "one node": (fp.Graph(1, [], [[2.0]]), fp.EdgeNoise(keep=0.9)),
    "large and sparse": (random_graph(100, 120, frozen=[(0, 1), (98, 99)]), fp.EdgeNoise(add=0.001, remove=0.3)),
}


def smoothed(adapter: str, noise: fp.EdgeNoise) -> fp.SmoothedClassifier:
    make, path, features = ADAPTERS[adapter]
    smooth = fp.SmoothedClassifier(make(), noise, num_classes=CLASSES, features=features)
    assert smooth.classifier.path == path
    return smooth


def noisy_graphs(graph: fp.Graph, noise: fp.EdgeNoise, samples: int, seed: int) -> list[fp.Graph]:
    """One sample at a time: its flips are made again, and applied to the graph as an attack would be."""
    stream = SampleStream(graph, noise, seed=seed)
    slots = [graph.slots[stream.flips(k, k + 1)[0]] for k in range(samples)]
    return [graph.flipped(pairs_of_slots(flipped, graph.num_nodes)) for flipped in slots]


@cache
def slow_votes(case: str) -> list[int]:
    """The answers on one noisy graph after the other."""
    return [reference(graph) for graph in noisy_graphs(*CASES[case], samples=300, seed=7)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_votes_are_those_of_a_slow_loop(adapter: str, case: str) -> None:
    graph, noise = CASES[case]
    votes = smoothed(adapter, noise).sample(graph, samples=300, seed=7)
    assert votes.labels.tolist() == slow_votes(case)


def test_the_cases_are_not_trivial() -> None:
    assert len(set(slow_votes("small"))) == CLASSES
    varied = ("unequal noise", "frozen pairs", "large and sparse")
    assert all(len(set(slow_votes(case))) > 1 for case in varied)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_votes_do_not_depend_on_how_many_are_cast(adapter: str) -> None:
    graph, noise = CASES["small"]
    smooth = smoothed(adapter, noise)
    many = smooth.sample(graph, samples=BLOCK + 1, seed=3)
    for samples in (1, 300):
        few = smooth.sample(graph, samples=samples, seed=3)
        assert few == many.first(samples)  # checksums included


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_flips_are_recorded_as_they_were_seen(adapter: str) -> None:
    graph, noise = CASES["frozen pairs"]
    votes = smoothed(adapter, noise).sample(graph, samples=BLOCK + 1, seed=5)
    assert votes.checksums == tuple(SampleStream(graph, noise, seed=5).checksums(BLOCK + 1))


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_no_noise_leaves_the_models_own_answer(adapter: str) -> None:
    graph = CASES["small"][0]
    votes = smoothed(adapter, fp.EdgeNoise(add=0, remove=0)).sample(graph, samples=20, seed=0)
    assert set(votes.labels.tolist()) == {reference(graph)}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_batches_divide_a_block_and_are_fixed_by_graph_and_noise(adapter: str) -> None:
    classifier = smoothed(adapter, fp.EdgeNoise(keep=0.9)).classifier
    for n in (1, 5, 30, 100, 300):
        graph = random_graph(n, min(n * (n - 1) // 2, 3 * n))
        size = classifier.batch_size(graph, fp.EdgeNoise(keep=0.9))
        assert BLOCK % size == 0
        assert size == classifier.batch_size(graph.replaced(label=1, name="other"), fp.EdgeNoise(keep=0.9))


# ---- models with rounding ------------------------------------------------------------------------------------------

NETWORKS = [models.GCN, models.GIN]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("case", ["small", "frozen pairs", "no edges", "one node", "large and sparse"])
def test_own_networks_say_the_same_in_a_batch_and_alone(network: Any, case: str) -> None:
    """Logits of a whole batch against those of each noisy graph by itself, built from regenerated flips."""
    graph, noise = CASES[case]
    model = network(1, 5, seed=0).eval()
    classifier = as_classifier(model, num_classes=5, features="degree")
    stream = SampleStream(graph, noise, seed=1)
    together = classifier.scores(stream.batch(0, 64)[0])
    for k in range(64):
        flipped = pairs_of_slots(graph.slots[stream.flips(k, k + 1)[0]], graph.num_nodes)
        adjacency = torch.from_numpy(graph.flipped(flipped).adjacency())[None]
        with torch.inference_mode():
            alone = model(adjacency.sum(-1, keepdim=True), adjacency, torch.ones(1, graph.num_nodes, dtype=torch.bool))
        np.testing.assert_allclose(together[k], alone[0].numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("network", NETWORKS)
def test_large_sparse_graphs_go_the_sparse_way(network: Any) -> None:
    model = network(1, 5, seed=0).eval()
    classifier = as_classifier(model, num_classes=5, features="degree")
    thin, thick = fp.EdgeNoise(add=0.001, remove=0.3), fp.EdgeNoise(keep=0.9)
    large, small = random_graph(600, 1200), random_graph(100, 200)
    assert classifier.suited(large, thin).path == "message passing"
    assert classifier.suited(large, thick).path == "dense"  # many edges: matrices are faster
    assert classifier.suited(small, thin).path == ("compiled" if network is models.GCN else "dense")
    batch, _ = SampleStream(large, thin, seed=0).batch(0, 8)
    dense, sparse = classifier.scores(batch), classifier.suited(large, thin).scores(batch)
    np.testing.assert_allclose(sparse, dense, rtol=1e-4, atol=1e-4)
    smooth = fp.SmoothedClassifier(model, thin, features="degree")
    votes = smooth.sample(large, samples=40, seed=0)
    assert votes.first(9) == smooth.sample(large, samples=9, seed=0)
    labels = [classifier.suited(large, thin).labels(SampleStream(large, thin, seed=0).batch(0, 40)[0])]
    assert votes.labels.tolist() == np.concatenate(labels).tolist()


def test_a_dense_model_without_a_sparse_way_stays_dense_and_refuses_the_largest() -> None:
    classifier = as_classifier(Dense().eval(), num_classes=CLASSES, features="own+degree")
    noise = fp.EdgeNoise(add=0, remove=0.1)
    assert classifier.suited(random_graph(400, 800), noise) is classifier
    huge = fp.Graph(20_000, [(0, 1)])
    with pytest.raises(
        fp.InputError, match=r"one noisy copy of a graph of 20,000 nodes .*dense.*memory allows 1.0 GiB.*edge_index"
    ):
        fp.SmoothedClassifier(Dense().eval(), noise, num_classes=CLASSES, features="degree").sample(huge)


def test_logits_of_float64_models_are_not_rounded() -> None:
    class Close(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(1.0, dtype=torch.float64))

        def forward(self, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
            assert x.dtype == adj.dtype == torch.float64
            one = self.scale.expand(len(x))
            return torch.stack([one, one + 1e-12], dim=1)

    smooth = fp.SmoothedClassifier(Close().eval(), fp.EdgeNoise(keep=0.9), num_classes=2, features="degree")
    assert set(smooth.sample(random_graph(5, 4), samples=10).labels.tolist()) == {1}


def test_equal_logits_go_to_the_smaller_label() -> None:
    class Level(nn.Module):
        def forward(self, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
            return torch.zeros(len(x), 3)

    smooth = fp.SmoothedClassifier(Level().eval(), fp.EdgeNoise(keep=0.9), num_classes=3, features="degree")
    assert set(smooth.sample(random_graph(5, 4), samples=10).labels.tolist()) == {0}


@pytest.mark.parametrize("convention", ["pyg", "dense"])
def test_integer_features_reach_an_embedding(convention: str) -> None:
    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(4, 2)

    class EmbeddedPyG(Embedded):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return global_add_pool(self.table(x.squeeze(-1)), batch)

    class EmbeddedDense(Embedded):
        def forward(self, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
            return self.table(x.squeeze(-1)).sum(dim=1)

    model = (EmbeddedPyG() if convention == "pyg" else EmbeddedDense()).eval()
    graph = fp.Graph(5, [(0, 1)], [[0], [3], [2], [1], [0]])
    votes = fp.SmoothedClassifier(model, fp.EdgeNoise(keep=0.9), num_classes=2).sample(graph, samples=8)
    wanted = int(model.table(torch.tensor([0, 3, 2, 1, 0])).sum(dim=0).argmax())
    assert set(votes.labels.tolist()) == {wanted}


def test_a_model_moved_to_another_number_type_after_wrapping() -> None:
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
def test_labels_of_a_callable(answer: Callable[[fp.Graph], int], classes: int, labels: set[int]) -> None:
    smooth = fp.SmoothedClassifier(lambda graphs: [*map(answer, graphs)], fp.EdgeNoise(keep=0.8), num_classes=classes)
    assert set(smooth.sample(CASES["small"][0], samples=50, seed=0).labels.tolist()) == labels


# ---- what must be refused, before any long work --------------------------------------------------------------------


class Base(nn.Module):
    """A small network of PyG; the faulty ones below differ from it in one point."""

    def __init__(self, width: int = 1, classes: int = 3, **options: Any) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv = GCNConv(width, 8, **options)
            self.head = nn.Linear(8, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(global_mean_pool(self.conv(x, edge_index).relu(), batch))


class Altered(Base):
    """Something else becomes of the logits: ``change(logits, rows of the nodes)``."""

    def __init__(self, change: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Any:
        return self.change(super().forward(x, edge_index, batch), self.head(self.conv(x, edge_index)))


def altered(change: Callable[[Tensor, Tensor], Any]) -> Callable[[], nn.Module]:
    return lambda: Altered(change).eval()


def dropping(logits: Tensor, rows: Tensor) -> Tensor:
    return functional.dropout(logits)  # training=True is the default


class NeedsEdgeAttributes(Base):
    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, edge_index, batch)


class NeedsEdgeAttributesOfData(Base):
    def forward(self, data: Any) -> Tensor:  # type: ignore[override]
        return super().forward(data.x, data.edge_index, data.batch) + data.edge_attr.sum()


class WithoutBatch(Base):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        return self.head(self.conv(x, edge_index)).mean(dim=0, keepdim=True)


class Unclear(Base):
    def forward(self, first: Tensor, second: Tensor) -> Tensor:  # type: ignore[override]
        return first


class BatchStatistics(Base):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3, track_running_stats=False)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.norm(super().forward(x, edge_index, batch))


class Remembering(Base):
    first: Tensor | None = None

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        self.first = edge_index if self.first is None else self.first
        return super().forward(x, self.first % len(x), batch)


def trained_mode() -> nn.Module:
    model = Base().eval()
    model.conv.train()
    return model


def moody() -> Callable[[list[fp.Graph]], list[int]]:
    """A callable that answers another time otherwise, by a single class of a thousand."""
    mood = itertools.cycle([998, 999])
    return lambda graphs: [next(mood)] * len(graphs)


FIVE = random_graph(5, 6).replaced(node_features=None)
REFUSED: dict[str, tuple[Callable[[], Any], dict[str, Any], list[str]]] = {
    "training": (lambda: Base().train(), {}, ["evaluation mode", "the module itself", "model.eval()"]),
    "training, in part": (trained_mode, {}, ["evaluation mode", "conv is in training mode"]),
    "cached": (lambda: Base(cached=True).eval(), {}, ["layer conv", "cached=True", "cached=False"]),
    "a cache by hand": (
        lambda: Remembering().eval(),
        {},
        ["function of the noisy graph alone", "in a batch and"],
    ),
    "NaN": (altered(lambda logits, rows: logits * torch.nan), {}, ["returned NaN", "check weights"]),
    "no pooling": (
        altered(lambda logits, rows: rows),
        {},
        ["[graphs, num_classes] = [12, 3]", "got shape [60, 3]", "pools"],
    ),
    "too few classes declared": (lambda: Base(classes=4).eval(), {}, ["= [12, 3]; got shape [12, 4]", "num_classes"]),
    "no batch dimension": (altered(lambda logits, rows: logits.squeeze()), {}, ["= [1, 3]; got shape [3]"]),
    "a pair": (altered(lambda logits, rows: (logits, rows)), {}, ["tensor of logits", "got tuple"]),
    "dropout": (altered(dropping), {}, ["function of the noisy graph alone", "dropout", "in another batch"]),
    "batch statistics": (lambda: BatchStatistics().eval(), {}, ["layer norm", "statistics of the batch"]),
    "batch statistics by hand": (
        altered(lambda logits, rows: logits - logits.mean(dim=0)),
        {},
        ["noisy graph alone", "batch statistics"],
    ),
    "edge attributes": (lambda: NeedsEdgeAttributes().eval(), {}, ["needs edge_attr", "noise adds has no attributes"]),
    "edge attributes of data": (
        lambda: NeedsEdgeAttributesOfData().eval(),
        {},
        ["forward reads edge_attr", "noise adds has no attributes", "edge_features=function"],
    ),
    "no batch": (lambda: WithoutBatch().eval(), {}, ["takes no batch", "(x, edge_index, batch)"]),
    "unclear": (lambda: Unclear().eval(), {}, ["cannot tell how to call", "(first, second)", "convention="]),
    "unknown convention": (lambda: Base().eval(), {"convention": "dgl"}, ["convention must be one of", "'dgl'"]),
    "wrong width": (
        lambda: Base(width=4).eval(),
        {},
        ["failed on noisy copies", "expected it to take (x, edge_index, batch) with features [5, 1]", "input width"],
    ),
    "wrong width, dense": (
        lambda: models.GCN(4, 3, seed=0).eval(),
        {},
        ["failed on noisy copies", "(x, adj, mask) with features [5, 1]"],
    ),
    "no features": (lambda: Base().eval(), {"features": "own"}, ["graph has none", 'features="degree"']),
    "labels out of range": (lambda: lambda graphs: [3] * len(graphs), {}, ["labels 0..2; got 3", "num_classes"]),
    "negative labels": (lambda: lambda graphs: [-1] * len(graphs), {}, ["labels 0..2; got -1"]),
    "names": (lambda: lambda graphs: ["cat"] * len(graphs), {}, ["class numbers", "'cat'", "map class names"]),
    "fractions": (lambda: lambda graphs: [0.5] * len(graphs), {}, ["class numbers", "0.5"]),
    "NaN labels": (lambda: lambda graphs: [np.nan] * len(graphs), {}, ["class numbers", "nan"]),
    "nothing": (lambda: lambda graphs: [None] * len(graphs), {}, ["class numbers", "None"]),
    "one label": (lambda: lambda graphs: 1, {}, ["one label per graph, shape [32]; got shape []"]),
    "logits from a callable": (
        lambda: lambda graphs: np.zeros((len(graphs), 3)),
        {},
        ["one label per graph", "[32, 3]"],
    ),
    "an error inside": (lambda: lambda graphs: 1 // 0, {}, ["ZeroDivisionError", "a list of flipproof.Graph"]),
    "a random callable": (
        moody,
        {"num_classes": 1000},
        ["function of the noisy graph alone", "randomness", "certificates would be false"],
    ),
    "a class": (lambda: Base, {}, ["pass an instance, not a class"]),
    "not callable": (lambda: 3, {}, ["model must be a torch module, or a callable", "got 3"]),
    "features misspelt": (lambda: Base().eval(), {"features": "degre"}, ["features must be one of", "'degre'"]),
    "features misspelt, callable": (lambda: black_box, {"features": "degre"}, ["features must be one of", "'degre'"]),
    "one class": (lambda: Base().eval(), {"num_classes": 1}, ["num_classes must be an integer of at least 2; got 1"]),
    "classes unknown": (lambda: Base().eval(), {"num_classes": None}, ["num_classes must be", "got None"]),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_faults_are_refused_in_one_sentence_before_long_work(fault: str) -> None:
    make, options, parts = REFUSED[fault]
    model, calls = make(), 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1
        assert calls < 100, "long work has begun"

    function = model
    if isinstance(model, nn.Module):
        model.register_forward_pre_hook(count)
    elif callable(model) and not isinstance(model, type):
        model = lambda graphs: (count(), function(graphs))[1]  # noqa: E731
    settings = {"num_classes": 3, "features": "degree" if isinstance(model, nn.Module) else None}
    with pytest.raises(fp.InputError) as caught:
        fp.SmoothedClassifier(model, fp.EdgeNoise(keep=0.8), **(settings | options)).sample(FIVE, samples=10**9, seed=0)
    message = str(caught.value)
    for part in parts:
        assert part in message
    assert "\n" not in message
    assert message.endswith(")")  # the remedy
    assert calls <= 12  # eight and two to probe, two to try a twin


def test_the_base_of_the_faulty_models_is_accepted() -> None:
    smooth = fp.SmoothedClassifier(Base().eval(), fp.EdgeNoise(keep=0.8), num_classes=3, features="degree")
    assert len(smooth.sample(FIVE, samples=10, seed=0)) == 10


def test_a_model_put_back_to_training_is_noticed_at_the_next_sampling() -> None:
    model = Base().eval()
    smooth = fp.SmoothedClassifier(model, fp.EdgeNoise(keep=0.8), num_classes=3, features="degree")
    smooth.sample(FIVE, samples=10)
    model.train()
    with pytest.raises(fp.InputError, match="evaluation mode"):
        smooth.sample(FIVE, samples=10)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda logits, rows: logits if len(rows) < 1000 else logits * torch.nan, "NaN"),  # the probe is small
        (lambda logits, rows: dropping(logits, rows) * 1e-6, "dropout"),
    ],
    ids=["NaN that comes late", "randomness of small logits"],
)
def test_what_hides_is_noticed(change: Callable[[Tensor, Tensor], Tensor], fault: str) -> None:
    smooth = fp.SmoothedClassifier(altered(change)(), fp.EdgeNoise(keep=0.8), num_classes=3, features="degree")
    with pytest.raises(fp.InputError, match=fault):
        smooth.sample(FIVE, samples=10)


def test_infinite_logits_are_numbers() -> None:
    masked = altered(lambda logits, rows: logits.index_fill(1, torch.tensor([0]), -torch.inf))()
    smooth = fp.SmoothedClassifier(masked, fp.EdgeNoise(keep=0.8), num_classes=3, features="degree")
    assert 0 not in smooth.sample(FIVE, samples=50, seed=0).labels


def test_every_kind_of_graph_is_tried_before_the_first_is_sampled() -> None:
    """A data set whose last graph lacks features, or has too many, is refused at once, not after hours."""
    good, wide = random_graph(5, 4), random_graph(5, 4, seed=1).replaced(node_features=np.eye(5)[:, :2])
    calls = 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1
        assert calls < 100, "long work has begun"

    model = Base().eval()
    model.register_forward_pre_hook(count)
    smooth = fp.SmoothedClassifier(model, fp.EdgeNoise(keep=0.8), num_classes=3)
    for bad, part in ((wide, r"features \[5, 2\]"), (FIVE, "graph has none")):
        with pytest.raises(fp.InputError, match=part):
            smooth.certify_all([good] * 20 + [bad], samples=10**9)
    assert calls < 50


def test_a_classifier_of_ones_own_passes_through() -> None:
    classifier = as_classifier(black_box, num_classes=CLASSES)
    assert as_classifier(classifier, num_classes=CLASSES) is classifier
    with pytest.raises(fp.InputError, match="classifier's own, 4; got 3"):
        as_classifier(classifier, num_classes=3)


def test_a_callable_without_features_never_needs_torch() -> None:
    import subprocess
    import sys

    program = """
import sys
import flipproof as fp
graph = fp.Graph(4, [(0, 1)])
smooth = fp.SmoothedClassifier(lambda graphs: [0 for _ in graphs], fp.EdgeNoise(keep=0.9), num_classes=2)
print(smooth.certify(graph, samples=100, method="votes").label, "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "False"]


NOISE = fp.EdgeNoise(keep=0.9)
DENSE, SPARSE = fp.Graph(6, [(u, v) for u in range(6) for v in range(u)]), fp.Graph(6, [(0, 1)])


class Edges(nn.Module):
    """The number of edges above 7: one logit, in the shape that is asked for."""

    def __init__(self, shape: str) -> None:
        super().__init__()
        self.weight, self.shape = nn.Parameter(torch.ones(1)), shape

    def shaped(self, logit: Tensor) -> Tensor:
        return {"column": logit.unsqueeze(1), "row": logit, "squeezed": logit.unsqueeze(1).squeeze()}[self.shape]


class DenseEdges(Edges):
    def forward(self, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
        return self.shaped(self.weight * (adj.sum(dim=(1, 2)) / 2 - 7))


class PygEdges(Edges):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        graphs = int(batch[-1]) + 1
        return self.shaped(self.weight * (torch.bincount(batch[edge_index[0]], minlength=graphs) / 2 - 7))


class Twinned(nn.Module):
    """Layers that have a dense twin."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GCNConv(1, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(global_mean_pool(self.conv(x, edge_index).relu(), batch))


@pytest.mark.parametrize("shape", ["column", "row", "squeezed"])
@pytest.mark.parametrize("kind", [DenseEdges, PygEdges])
def test_above_zero_is_class_one(kind: Any, shape: str) -> None:
    smooth = fp.SmoothedClassifier(kind(shape).eval(), NOISE, num_classes=2, features="degree")
    certificates = smooth.certify_all([DENSE, SPARSE], samples=300, seed=0)
    assert [certificate.label for certificate in certificates] == [1, 0]
    assert smooth.predict_all([DENSE, SPARSE]) == [1, 0]
    groups = fp.VotingClassifier(kind(shape).eval(), groups=1, num_classes=2, features="degree")
    assert groups.predict_all([DENSE, SPARSE]) == [1, 0]


def test_the_twin_answers_as_the_model() -> None:
    torch.manual_seed(1)
    model = Twinned().eval()
    clean = DENSE.to_pyg()
    with torch.no_grad():  # the clean graph is on the edge, so that both classes get votes
        model.head.bias -= model(torch.full((6, 1), 4.5), clean.edge_index, torch.zeros(6, dtype=torch.int64))[0]
    votes = []
    for twin in (True, False):
        model.dense_twin = twin  # type: ignore[assignment]
        smooth = fp.SmoothedClassifier(model, NOISE, num_classes=2, features="degree")
        paths = {smooth.classifier.suited(graph, NOISE).path for graph in (DENSE,)}
        assert paths == {"compiled twin" if twin else "message passing"}
        votes.append(smooth.sample(DENSE, samples=600, seed=0).labels.tolist())
    assert votes[0] == votes[1]
    assert 0 < sum(votes[0]) < 600


def test_training_is_binary_cross_entropy() -> None:
    graphs = [graph.replaced(label=label) for label, graph in ((1, DENSE), (0, SPARSE)) for _ in range(8)]
    logits, labels = torch.tensor([[0.3], [-2.0]]), torch.tensor([1, 0])
    both = nn.functional.cross_entropy(logit_per_class(logits, 2, 2), labels)
    assert torch.isclose(both, nn.functional.binary_cross_entropy_with_logits(logits[:, 0], labels.float()))
    torch.manual_seed(0)
    model = Twinned()
    result = fp.train(model, graphs, noise=NOISE, features="degree", epochs=30)
    assert result.history[-1].accuracy > 0.9
    smooth = fp.SmoothedClassifier(model, NOISE, num_classes=2, features="degree")
    assert smooth.predict_all([DENSE, SPARSE]) == [1, 0]


def test_an_attack_follows_the_slope_of_the_one_logit() -> None:
    graph = fp.Graph(6, DENSE.edges[:9], label=1)
    for shape in ("row", "column"):
        found = fp.attacks.gradient(DenseEdges(shape).eval(), graph, budget=3, features="degree", num_classes=2)
        assert found.success
        assert (found.margin_before, found.margin_after) == (2, 0)


def test_probabilities_are_warned_of() -> None:
    class Sigmoid(DenseEdges):
        def forward(self, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
            return super().forward(x, adj, mask).sigmoid()

    with pytest.warns(UserWarning, match="like a probability"):
        fp.SmoothedClassifier(Sigmoid("row").eval(), NOISE, num_classes=2, features="degree").predict(DENSE, samples=50)


def test_one_logit_for_three_classes_is_refused() -> None:
    smooth = fp.SmoothedClassifier(DenseEdges("column").eval(), NOISE, num_classes=3, features="degree")
    with pytest.raises(fp.InputError, match=r"logits \[graphs, num_classes\].*one logit per graph"):
        smooth.predict(DENSE)


class Messages(Edges):
    """A sum over neighbours, without any operation that looks at values: those cannot be done on the device "meta"."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        received = torch.zeros_like(x).index_add(0, edge_index[1], self.weight * x[edge_index[0]])
        return self.shaped(x.new_zeros(5, 1).index_add(0, batch, received)[:, 0])


@pytest.mark.parametrize(
    ("kind", "features"),
    [(DenseEdges, "degree"), (DenseEdges, "own"), (Messages, "constant"), (Messages, "own")],
)
def test_everything_is_asked_on_the_device_of_the_weights(kind: Any, features: str) -> None:
    """On torch's "meta" device an operation with a tensor of the CPU fails, as it would on a GPU."""
    from flipproof.noise import SampleStream

    model = kind("column").eval().to("meta")
    graph = DENSE.replaced(node_features=np.ones((6, 1), dtype=np.float32))
    smooth = fp.SmoothedClassifier(model, NOISE, num_classes=2, features=features)
    batch, _ = SampleStream(graph, NOISE, seed=0).batch(0, 5)
    logits = smooth.classifier.logits(batch)
    assert logits.device.type == "meta"
    assert not smooth.classifier.forks, "a process with a GPU is not forked: workers are threads"
