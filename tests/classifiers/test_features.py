"""Features: every hook says the same of a graph in every layout, sees the noisy graph only, and clean degrees are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric import transforms

from flipproof import Graph, InputError
from flipproof.classifiers.features import Degree, NodeFeatures, Several, as_features

N = 7


def random_graph(seed: int, *, n: int = N, density: float = 0.4, features: bool = True) -> Graph:
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n, n)) < density, 1)
    return Graph(n, np.argwhere(upper), rng.normal(size=(n, 2)).astype(np.float32) if features else None)


def triangles(graph: Graph) -> np.ndarray[Any, Any]:
    """Triangles at every node, by hand: a feature that needs all the edges."""
    adjacency = graph.adjacency()
    return (np.diag(adjacency @ adjacency @ adjacency) / 2)[:, None]


def sums_of_own(graph: Graph) -> Tensor:
    """Neighbours' own features, as a tensor."""
    assert graph.node_features is not None
    return torch.from_numpy(graph.adjacency() @ graph.node_features)


def by_hand_one_hot(graph: Graph, most: int) -> np.ndarray[Any, Any]:
    rows = np.zeros((graph.num_nodes, most + 1))
    for node, degree in enumerate(graph.degrees):
        rows[node, min(degree, most)] = 1
    return rows


def own(graph: Graph) -> np.ndarray[Any, Any]:
    assert graph.node_features is not None
    return graph.node_features


HOOKS: dict[str, tuple[Any, Callable[[Graph], Any]]] = {
    "none": (None, own),
    "own": ("own", own),
    "constant": ("constant", lambda g: np.ones((g.num_nodes, 1))),
    "degree": ("degree", lambda g: g.degrees[:, None]),
    "one-hot": ("one-hot-degree", lambda g: by_hand_one_hot(g, 63)),
    "one-hot cut": ("one-hot-degree:2", lambda g: by_hand_one_hot(g, 2)),
    "joined names": ("own + degree", lambda g: np.hstack([own(g), g.degrees[:, None]])),
    "list": (
        ["constant", triangles, Degree()],
        lambda g: np.hstack([np.ones((N, 1)), triangles(g), g.degrees[:, None]]),
    ),
    "function": (triangles, triangles),
    "function of tensors": (sums_of_own, lambda g: g.adjacency() @ own(g)),
    "transform": (transforms.OneHotDegree(N, cat=False), lambda g: by_hand_one_hot(g, N)),
    "transform that keeps x": (
        transforms.Compose([transforms.Constant()]),
        lambda g: np.hstack([own(g), np.ones((N, 1))]),
    ),
}


@pytest.mark.parametrize("name", HOOKS)
def test_every_layout_gives_the_features_computed_by_hand(name: str) -> None:
    value, by_hand = HOOKS[name]
    hook = as_features(value)
    graphs = [random_graph(seed) for seed in range(4)] + [random_graph(9, density=0.0)]
    expected = torch.stack([torch.tensor(np.array(by_hand(graph)), dtype=torch.float32) for graph in graphs])

    adjacency = torch.stack([torch.from_numpy(graph.adjacency()) for graph in graphs])
    rows = torch.stack([torch.from_numpy(own(graph).copy()) for graph in graphs])
    dense = hook.dense(adjacency, torch.ones(len(graphs), N, dtype=torch.bool), rows)
    torch.testing.assert_close(dense, expected)

    parts = [graph.to_pyg().edge_index + N * index for index, graph in enumerate(graphs)]
    batch = torch.arange(len(graphs)).repeat_interleave(N)
    sparse = hook.sparse(torch.cat(parts, dim=1), batch, rows.reshape(-1, 2))
    torch.testing.assert_close(sparse, expected.reshape(-1, expected.shape[2]))

    for graph, wanted in zip(graphs, expected, strict=True):
        torch.testing.assert_close(hook.of(graph), wanted)


@pytest.mark.parametrize("name", HOOKS)
def test_padded_nodes_and_other_graphs_change_nothing(name: str) -> None:
    """Graphs of several sizes in one batch: each gets what it would get alone."""
    value, _ = HOOKS[name]
    if name == "list":
        value = ["constant", triangles]
    hook = as_features(value)
    graphs = [random_graph(seed, n=n) for seed, n in enumerate((1, 3, N))]
    if name == "transform that keeps x":
        graphs = graphs[-1:]
    mask = torch.zeros(len(graphs), N, dtype=torch.bool)
    adjacency, rows = torch.zeros(len(graphs), N, N), torch.zeros(len(graphs), N, 2)
    for index, graph in enumerate(graphs):
        n = graph.num_nodes
        mask[index, :n] = True
        adjacency[index, :n, :n] = torch.from_numpy(graph.adjacency())
        rows[index, :n] = torch.from_numpy(own(graph).copy())
    dense = hook.dense(adjacency, mask, rows)
    starts = np.cumsum([0] + [graph.num_nodes for graph in graphs])
    edges = torch.cat([g.to_pyg().edge_index + int(s) for g, s in zip(graphs, starts, strict=False)], dim=1)
    shuffled = edges[:, torch.randperm(edges.shape[1], generator=torch.Generator().manual_seed(0))]
    batch = torch.repeat_interleave(torch.tensor([graph.num_nodes for graph in graphs]))
    sparse = hook.sparse(shuffled, batch, rows[mask])
    for index, graph in enumerate(graphs):
        alone = hook.of(graph)
        torch.testing.assert_close(dense[index, : graph.num_nodes], alone)
        torch.testing.assert_close(sparse[starts[index] : starts[index + 1]], alone)


@pytest.mark.parametrize("spec", ["own", "degree", "one-hot-degree:63", "one-hot-degree:7", "constant", "own+degree"])
def test_spec_makes_the_same_hook_again(spec: str) -> None:
    assert as_features(spec).spec == spec
    graph = random_graph(3)
    torch.testing.assert_close(as_features(as_features(spec).spec).of(graph), as_features(spec).of(graph))


def test_a_function_of_ones_own_has_no_spec() -> None:
    assert as_features(triangles).spec is None
    assert as_features(["degree", triangles]).spec is None


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
def test_what_a_hook_reads(value: Any, reads_own: bool, reads_edges: bool) -> None:
    hook = as_features(value)
    assert (hook.reads_own, hook.reads_edges) == (reads_own, reads_edges)


def test_integer_features_stay_integers_for_embeddings() -> None:
    labels = np.arange(N)[:, None]
    assert as_features(None).of(random_graph(0).replaced(node_features=labels)).dtype == torch.int64
    assert as_features(lambda g: torch.from_numpy(g.degrees.copy())[:, None]).of(random_graph(0)).dtype == torch.int64
    assert as_features(lambda g: g.degrees[:, None]).of(random_graph(0)).dtype == torch.float32


# ---- refusals -----------------------------------------------------------------------------------------------------


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
def test_unusable_hooks_are_refused(value: Any, parts: list[str]) -> None:
    with pytest.raises(InputError) as caught:
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
def test_functions_that_do_not_return_a_row_a_node(function: Any, part: str) -> None:
    graph = Graph(7, [(0, 1)], np.ones((7, 1)))
    with pytest.raises(InputError) as caught:
        as_features(function).of(graph)
    assert part in str(caught.value)


def test_a_transform_without_x() -> None:
    with pytest.raises(InputError, match="left no x"):
        as_features(transforms.AddSelfLoops()).of(random_graph(0, features=False))


def test_own_features_that_are_missing() -> None:
    with pytest.raises(InputError, match=r'the graph has none .*features="degree"'):
        as_features(None).of(random_graph(0, features=False))


def test_a_hook_of_ones_own_counts_as_reading_everything() -> None:
    class Mine(NodeFeatures):
        def dense(self, adjacency: Tensor, mask: Tensor, own: Tensor | None) -> Tensor:
            return adjacency

        def sparse(self, edge_index: Tensor, batch: Tensor, own: Tensor | None) -> Tensor:
            return batch.unsqueeze(1)

    mine = as_features(Mine())
    assert isinstance(mine, Mine)
    assert mine.reads_own
    assert mine.reads_edges
    assert Several([as_features("degree"), mine]).reads_own
