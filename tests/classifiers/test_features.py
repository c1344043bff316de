"""Features of nodes and edges: the same in every layout, made from the noisy graph alone; stored ones that tell are refused."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric import transforms
from torch_geometric.nn import GATv2Conv, global_mean_pool

import flipproof as fp
from flipproof.classifiers.features import Degree, NodeFeatures, Several, as_features
from support.learnable import OneLayer

N = 7


def random_graph(seed, *, n=N, density=0.4, features=True):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n, n)) < density, 1)
    return fp.Graph(n, np.argwhere(upper), rng.normal(size=(n, 2)).astype(np.float32) if features else None)


def triangles(graph):
    """Triangles at every node, by hand: a feature that needs all the edges."""
    adjacency = graph.adjacency()
    return (np.diag(adjacency @ adjacency @ adjacency) / 2)[:, None]


def sums_of_own(graph):
    """Neighbours' own features, as a tensor."""
    return torch.from_numpy(graph.adjacency() @ graph.node_features)


def by_hand_one_hot(graph, most):
    rows = np.zeros((graph.num_nodes, most + 1))
    for node, degree in enumerate(graph.degrees):
        rows[node, min(degree, most)] = 1
    return rows


def own(graph):
    return graph.node_features


HOOKS: dict[str, tuple[Any, Callable[[fp.Graph], Any]]] = {
    "none": (None, own),
    "own": ("own", own),
    "constant": ("constant", lambda g: np.ones((g.num_nodes, 1))),
    "degree": ("degree", lambda g: g.degrees[:, None]),
    "one-hot": ("one-hot-degree", lambda g: by_hand_one_hot(g, 63)),
    "one-hot cut": ("one-hot-degree:2", lambda g: by_hand_one_hot(g, 2)),
    "joined names": ("own + degree", lambda g: np.hstack([own(g), g.degrees[:, None]])),
    "list": (
        ["constant", triangles, Degree()],
        lambda g: np.hstack([np.ones((g.num_nodes, 1)), triangles(g), g.degrees[:, None]]),
    ),
    "function": (triangles, triangles),
    "function of tensors": (sums_of_own, lambda g: g.adjacency() @ own(g)),
    "transform": (transforms.OneHotDegree(N, cat=False), lambda g: by_hand_one_hot(g, N)),
    "transform that keeps x": (
        transforms.Compose([transforms.Constant()]),
        lambda g: np.hstack([own(g), np.ones((g.num_nodes, 1))]),
    ),
}


@pytest.mark.parametrize("name", HOOKS)
def test_every_layout_gives_the_features_computed_by_hand(name):
    """Graphs of several sizes in one batch, one without edges: padded nodes and other graphs change nothing."""
    value, by_hand = HOOKS[name]
    hook = as_features(value)
    graphs = [random_graph(9, density=0.0), *(random_graph(seed, n=n) for seed, n in enumerate((1, 3, N)))]
    sizes = [graph.num_nodes for graph in graphs]
    mask = torch.arange(N) < torch.tensor(sizes)[:, None]
    adjacency, rows = torch.zeros(len(graphs), N, N), torch.zeros(len(graphs), N, 2)
    for index, graph in enumerate(graphs):
        adjacency[index, : graph.num_nodes, : graph.num_nodes] = torch.from_numpy(graph.adjacency())
        rows[index, : graph.num_nodes] = torch.from_numpy(own(graph).copy())
    dense = hook.dense(adjacency, mask, rows)
    starts = np.cumsum([0, *sizes])
    edges = torch.cat([g.to_pyg().edge_index + int(s) for g, s in zip(graphs, starts, strict=False)], dim=1)
    shuffled = edges[:, torch.randperm(edges.shape[1])]
    sparse = hook.sparse(shuffled, torch.repeat_interleave(torch.tensor(sizes)), rows[mask])
    for index, graph in enumerate(graphs):
        wanted = torch.tensor(np.array(by_hand(graph)), dtype=torch.float32)
        torch.testing.assert_close(dense[index, : graph.num_nodes], wanted)
        torch.testing.assert_close(sparse[starts[index] : starts[index + 1]], wanted)
        torch.testing.assert_close(hook.of(graph), wanted)


@pytest.mark.parametrize(
    ("value", "reads_own", "reads_edges"),
    [
        (None, True, False),
        ("constant", False, False),
        ("own+constant", True, False),
        ("degree", False, True),
        ("one-hot-degree", False, True),
        ("own+degree", True, True),
        (triangles, True, True),
        (transforms.Constant(), True, True),
    ],
)
def test_what_a_hook_reads(value, reads_own, reads_edges):
    hook = as_features(value)
    assert (hook.reads_own, hook.reads_edges) == (reads_own, reads_edges)
    assert (hook.spec is None) == callable(value), "a user's own function has no name"


def test_integer_features_stay_integers_for_embeddings():
    labels = np.arange(N)[:, None]
    assert as_features(None).of(random_graph(0).replaced(node_features=labels)).dtype == torch.int64
    assert as_features(lambda g: torch.from_numpy(g.degrees.copy())[:, None]).of(random_graph(0)).dtype == torch.int64
    assert as_features(lambda g: g.degrees[:, None]).of(random_graph(0)).dtype == torch.float32


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("degrees", ["features must be one of own, degree, one-hot-degree, constant", "'degrees'"]),
        ("own+", ["features must be one of", "''"]),
        ("one-hot-degree:x", ["features must be one of", "'one-hot-degree:x'"]),
        ("one-hot-degree:0", ["max_degree must be an integer of at least 1; got 0"]),
        ([], ["at least one", "empty list"]),
        (3, ["features must be a name, a function, a PyG transform or None; got 3"]),
        (transforms.OneHotDegree, ["features must be a name", "OneHotDegree"]),
    ],
)
def test_unusable_hooks_are_refused(value, parts):
    with pytest.raises(fp.InputError) as caught:
        as_features(value)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("function", "part"),
    [
        (lambda g: g.degrees, "one row per node, [7, d]; got shape (7,)"),
        (lambda g: g.degrees[:3, None], "one row per node, [7, d]; got shape (3, 1)"),
        (lambda g: None, "must return numbers, one row per node; got NoneType"),
        (lambda g: [[1.0], [1.0, 2.0]], "must return numbers, one row per node; got list"),
        (lambda g: [["a"]] * g.num_nodes, "must return numbers, one row per node; got list"),
        (transforms.LargestConnectedComponents(), "one row per node"),
    ],
)
def test_functions_that_do_not_return_a_row_a_node(function, part):
    graph = fp.Graph(7, [(0, 1)], np.ones((7, 1)))
    with pytest.raises(fp.InputError) as caught:
        as_features(function).of(graph)
    assert part in str(caught.value)


def test_a_transform_without_x():
    with pytest.raises(fp.InputError, match="left no x"):
        as_features(transforms.AddSelfLoops()).of(random_graph(0, features=False))


def test_own_features_that_are_missing():
    with pytest.raises(fp.InputError, match=r'the graph has none .*features="degree"'):
        as_features(None).of(random_graph(0, features=False))


def test_a_hook_of_ones_own_counts_as_reading_everything():
    class Mine(NodeFeatures):
        def dense(self, adjacency, mask, own):
            return adjacency

        def sparse(self, edge_index, batch, own):
            return batch.unsqueeze(1)

    mine = as_features(Mine())
    assert isinstance(mine, Mine)
    assert mine.reads_own
    assert mine.reads_edges
    assert Several([as_features("degree"), mine]).reads_own


NOISE = fp.EdgeNoise(keep=0.9)


class WithData(torch.nn.Module):
    """Takes a PyG Data and reads its bonds in one of several ways."""

    def __init__(self, how="attribute"):
        super().__init__()
        torch.manual_seed(0)
        self.how, self.num_classes = how, 2
        self.conv, self.out = GATv2Conv(3, 8, edge_dim=2), torch.nn.Linear(8, 2)

    def forward(self, data):
        edges = {
            "attribute": lambda: data.edge_attr,
            "getattr": lambda: getattr(data, "edge_attr", None),
            "item": lambda: data["edge_attr"],
            "if in": lambda: "edge_attr" in data or None,
            "nothing": lambda: None,
        }[self.how]()
        x = self.conv(data.x, data.edge_index, edges).relu()
        return self.out(global_mean_pool(x, data.batch))


class WithArguments(WithData):
    """As :class:`WithData`, in PyG's usual convention."""

    def forward(self, x, edge_index, edge_attr, batch):
        return self.out(global_mean_pool(self.conv(x, edge_index, edge_attr).relu(), batch))


def graph(seed=0, n=9):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n, n)) < 0.4, 1)
    return fp.Graph(n, np.argwhere(upper), rng.normal(size=(n, 3)).astype(np.float32), seed % 2)


def ends(u, v):
    return torch.stack([(u * v).sum(dim=1), (u - v).abs().sum(dim=1)], dim=1)


@pytest.mark.parametrize("how", ["attribute", "getattr", "item", "if in"])
def test_a_model_that_reads_stored_edge_attributes_is_refused(how):
    smooth = fp.SmoothedClassifier(WithData(how).eval(), NOISE)
    with pytest.raises(fp.InputError, match=r"forward reads edge_attr.*edge_features"):
        smooth.certify(graph(), samples=20)
    with pytest.raises(fp.InputError, match="forward reads edge_attr"):
        fp.train(WithData(how), [graph(0), graph(1)], features="own", epochs=1)


def test_a_model_that_does_not_read_them_is_not_refused():
    assert fp.SmoothedClassifier(WithData("nothing").eval(), NOISE).certify(graph(), samples=20).samples == 20


@pytest.mark.parametrize("kind", [WithData, WithArguments])
def test_edge_features_of_the_end_nodes_are_made_after_the_noise(kind):
    """The votes are those of the model on the noisy graphs by hand, the edges' features computed on each."""
    seen: list[int] = []

    def counted(u, v):
        seen.append(len(u))
        return ends(u, v)

    model = kind().eval()
    smooth = fp.SmoothedClassifier(model, NOISE, edge_features=counted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nobody misses the stored ones
        stored = graph().to_pyg()
        stored.edge_attr = torch.ones(stored.num_edges, 1)
        smooth.certify_all([stored], samples=10, seed=0)
    votes = smooth.sample(graph(), samples=64, seed=3)
    assert sum(seen) > 0
    batch, _ = votes.stream().batch(0, 64)
    with torch.no_grad():
        for noisy, label in zip(batch.graphs(), votes.labels.tolist(), strict=True):
            data = noisy.to_pyg()
            data.edge_attr = ends(data.x[data.edge_index[0]], data.x[data.edge_index[1]])
            data.batch = torch.zeros(data.num_nodes, dtype=torch.int64)
            taken = data if kind is WithData else None
            logits = model(taken) if taken else model(data.x, data.edge_index, data.edge_attr, data.batch)
            assert int(logits.argmax()) == label


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [("bonds", "must be a function"), (lambda u, v: u[:2], "one row per edge"), (lambda u, v: 3, "one row per edge")],
)
def test_edge_features_that_are_none(wrong, sentence):
    with pytest.raises(fp.InputError, match=sentence):
        fp.SmoothedClassifier(WithData().eval(), NOISE, edge_features=wrong).certify(graph(), samples=10)


def test_edge_features_for_a_model_that_takes_none():
    with pytest.raises(fp.InputError, match="takes edge_attr and batch by name"):
        fp.SmoothedClassifier(OneLayer(3).eval(), NOISE, num_classes=2, edge_features=ends)
