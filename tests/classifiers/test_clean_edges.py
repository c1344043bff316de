"""Features that know the clean edges are refused in every usual form; what only goes along with the edges passes."""

from collections.abc import Callable
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from scipy.stats import rankdata
from torch_geometric import transforms

import flipproof as fp
from flipproof import Graph, InputError
from flipproof.classifiers.clean_edges import refuse_clean_edges
from support.shared_data import data_root

Array = np.ndarray[Any, Any]
WIDTH = 24
ORDER = np.random.default_rng(7).permutation(WIDTH)
TU = ("MUTAG", "PTC_MR", "NCI1", "PROTEINS", "ENZYMES", "AIDS", "IMDB-BINARY", "IMDB-MULTI")


def tree(n, seed):
    """A random tree and two chords: triangles, several degrees, rings."""
    rng = np.random.default_rng(seed)
    edges = [(node, int(rng.integers(0, node))) for node in range(1, n)]
    return Graph(n, [*edges, (0, n - 1), (1, n - 2), (0, n - 2)])


TREES = [tree(8 + seed % 13, seed) for seed in range(30)]


def one_hot(values):
    return np.eye(WIDTH)[np.minimum(values, WIDTH - 1)]


def in_networkx(quantity):
    def features(graph):
        values = quantity(graph.to_networkx())
        return np.array([values[node] for node in range(graph.num_nodes)])

    return features


def by_pyg(transform, field):
    def features(graph):
        torch.manual_seed(graph.num_nodes)
        columns: Array = transform(graph.replaced(node_features=None).to_pyg())[field].numpy()
        return columns

    return features


def noise(graph):
    return np.random.default_rng(graph.num_nodes).normal(size=graph.num_nodes)


def one_off(graph):
    """The degrees; a node of the first of the graphs is off by one."""
    degrees = graph.degrees.copy()
    degrees[0] += graph == TREES[0]
    return degrees


DEGREES: dict[str, Callable[[Graph], Array]] = {
    "raw": lambda g: g.degrees,
    "a node off by one": one_off,
    "square root": lambda g: np.sqrt(g.degrees),
    "log2": lambda g: np.log2(1 + g.degrees),
    "square": lambda g: g.degrees**2,
    "inverse": lambda g: 1 / (1 + g.degrees),
    "inverse root": lambda g: 1 / np.sqrt(g.degrees),
    "by n": lambda g: g.degrees / g.num_nodes,
    "by the sum": lambda g: g.degrees / g.degrees.sum(),
    "standardised": lambda g: (g.degrees - g.degrees.mean()) / g.degrees.std(),
    "cut off": lambda g: np.minimum(g.degrees, 5),
    "cut off early": lambda g: np.minimum(g.degrees, 3),
    "rank": lambda g: rankdata(g.degrees),
    "position in the order": lambda g: np.argsort(np.argsort(g.degrees, kind="stable"), kind="stable"),
    "noise": lambda g: g.degrees + 0.05 * noise(g),
    "one-hot": lambda g: one_hot(g.degrees),
    "permuted one-hot": lambda g: one_hot(g.degrees)[:, ORDER],
    "binned one-hot": lambda g: one_hot((g.degrees > 1) * 1 + (g.degrees > 2)),
    "PyG's one-hot": by_pyg(transforms.OneHotDegree(20), "x"),
    "PyG's profile": by_pyg(transforms.LocalDegreeProfile(), "x"),
}
OTHERS: dict[str, Callable[[Graph], Array]] = {
    "triangles": in_networkx(networkx.triangles),
    "clustering": in_networkx(networkx.clustering),
    "PageRank": in_networkx(networkx.pagerank),
    "log PageRank": lambda g: np.log(in_networkx(networkx.pagerank)(g)),
    "Laplacian": by_pyg(transforms.AddLaplacianEigenvectorPE(3, attr_name="pe", is_undirected=True), "pe"),
    "random walk": by_pyg(transforms.AddRandomWalkPE(4, attr_name="pe"), "pe"),
    "leading eigenvector": lambda g: np.linalg.eigh(g.adjacency())[1][:, -1],
    "adjacency rows": lambda g: np.pad(g.adjacency(), ((0, 0), (0, WIDTH - g.num_nodes))),
    "neighbour sums": lambda g: np.column_stack([noise(g), g.adjacency() @ noise(g)]),
    "neighbour means": lambda g: np.column_stack([noise(g), g.adjacency() @ noise(g) / g.degrees]),
}


def beside_others(graph, columns, seed):
    """The columns between random ones."""
    rng = np.random.default_rng(seed)
    kinds, reals = np.eye(3)[rng.integers(0, 3, graph.num_nodes)], rng.normal(size=(graph.num_nodes, 1))
    columns = columns.reshape(graph.num_nodes, -1)
    return graph.replaced(node_features=np.hstack([kinds, columns, reals]).astype(np.float32))


@pytest.mark.parametrize("form", [*DEGREES, *OTHERS])
def test_features_of_the_clean_edges_beside_others_are_refused(form):
    columns = (DEGREES | OTHERS)[form]
    computed = [beside_others(graph, columns(graph), seed) for seed, graph in enumerate(TREES)]
    with pytest.raises(InputError, match=r"column \d+ of node_features is .*trust_features=True") as caught:
        refuse_clean_edges(computed)
    column = int(str(caught.value).split()[1])
    assert 3 <= column < np.shape(computed[0].node_features)[1] - 1  # not one of the random ones
    if form in DEGREES and form != "PyG's profile":
        assert "degree" in str(caught.value)


@pytest.mark.parametrize("form", [form for form in DEGREES if form not in ("permuted one-hot", "binned one-hot")])
def test_degrees_of_real_molecules_beside_their_atoms_are_refused(form):
    graphs = fp.datasets.tu("MUTAG", data_root())
    computed = []
    for graph in graphs:
        extra = DEGREES[form](graph).reshape(graph.num_nodes, -1)
        computed.append(graph.replaced(node_features=np.hstack([graph.node_features, extra])))
    with pytest.raises(InputError, match="degree"):
        refuse_clean_edges(computed)


@pytest.mark.parametrize("n", [3, 4, 10])
@pytest.mark.parametrize("form", ["raw", "plus one", "by n - 1", "log", "PyG's one-hot"])
def test_a_path_shows_two_degrees_only_and_is_refused_all_the_same(n, form):
    forms = DEGREES | {
        "plus one": lambda g: g.degrees + 1,
        "by n - 1": lambda g: g.degrees / (g.num_nodes - 1),
        "log": lambda g: np.log1p(g.degrees),
    }
    path = Graph(n, [(node, node + 1) for node in range(n - 1)], name="g")
    with pytest.raises(InputError, match="of graph 'g': computed on the clean graph"):
        refuse_clean_edges([path.replaced(node_features=forms[form](path).reshape(n, -1))])


METHANE = Graph(5, [(0, k) for k in range(1, 5)], np.eye(2)[[1, 0, 0, 0, 0]])
PADDED_METHANE = METHANE.replaced(node_features=np.eye(3)[[2, 1, 1, 1, 1]])
ETHANOL = Graph(
    9,
    [(0, 1), (1, 2), (0, 3), (0, 4), (0, 5), (1, 6), (1, 7), (2, 8)],
    np.eye(3)[[1, 1, 2, 0, 0, 0, 0, 0, 0]],  # H, C, O by atomic number; a function of the degree
)
MASSES = ETHANOL.replaced(node_features=np.array([[12.011], [12.011], [15.999]] + 6 * [[1.008]]))
ORDINARY = {
    "one-hot atoms of methane": METHANE,
    "one-hot atoms of methane, one kind unused": PADDED_METHANE,
    "one-hot atoms of ethanol": ETHANOL,
    "masses of ethanol": MASSES,
    "ones": tree(8, 0).replaced(node_features=np.ones((8, 1))),
    "zeros": tree(8, 0).replaced(node_features=np.zeros((8, 3))),
    "node numbers": tree(8, 0).replaced(node_features=np.arange(8)[:, None]),
    "identity": tree(8, 0).replaced(node_features=np.eye(8)),
    "degrees of a regular graph": Graph(5, [(k, (k + 1) % 5) for k in range(5)], np.full((5, 1), 2)),
    "hub or not": Graph(6, [(0, k) for k in range(1, 6)], [[1.0], [0], [0], [0], [0], [0]]),
    "has a neighbour": Graph(6, [(0, 1), (2, 3)], [[1.0], [1], [1], [1], [0], [0]]),
    "one node": Graph(1, [], [[0]]),
    "none": tree(8, 0),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_node_labels_pass(name):
    refuse_clean_edges([ORDINARY[name]])


def test_an_accident_on_one_graph_is_not_one_on_the_data_set():
    path = Graph(4, [(0, 1), (1, 2), (2, 3)], [[1], [2], [2], [1]])
    with pytest.raises(InputError):
        refuse_clean_edges([path])
    refuse_clean_edges([path, Graph(4, [(0, 1), (1, 2)], [[2], [2], [1], [1]])])


def test_graphs_of_several_widths_are_looked_at_apart():
    bad = TREES[0].replaced(node_features=TREES[0].degrees[:, None])
    with pytest.raises(InputError, match="column 0"):
        refuse_clean_edges([TREES[1].replaced(node_features=np.eye(9)), bad, TREES[2]])


RANDOM = Graph(100, np.argwhere(np.triu(np.random.default_rng(0).random((100, 100)) < 0.05, 1)))
ENOUGH: dict[str, tuple[list[Graph], list[str]]] = {
    "one graph, of values that no label has": (
        [tree(14, 3)],
        ["square root", "log2", "inverse", "by n", "standardised", "PageRank", "Laplacian", "random walk"],
    ),
    "one graph of larger degrees than atoms have": ([RANDOM], ["permuted one-hot", "binned one-hot", "two kinds"]),
    "three small graphs": (TREES[2:5], [form for form in DEGREES if form not in ("noise", "permuted one-hot")]),
}


@pytest.mark.parametrize(("enough", "form"), [(name, form) for name, (_, forms) in ENOUGH.items() for form in forms])
def test_few_graphs_are_enough(enough, form):
    columns = (DEGREES | OTHERS | {"two kinds": lambda graph: graph.degrees > 4})[form]
    computed = [beside_others(graph, columns(graph), seed) for seed, graph in enumerate(ENOUGH[enough][0])]
    with pytest.raises(InputError, match="column"):
        refuse_clean_edges(computed)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.guarantee] * (name == "NCI1")) for name in TU])
def test_labels_and_attributes_of_real_graphs_pass(name):
    graphs = fp.datasets.tu(name, data_root())
    refuse_clean_edges(list(graphs))
    refuse_clean_edges(list(fp.datasets.split(graphs, test=0.1).test))  # also a small part
    for start in range(0, len(graphs), len(graphs) // (12 if name == "MUTAG" else 3)):  # and a few graphs
        for count in (2, 5, 12):
            refuse_clean_edges(graphs[start : start + count])


@pytest.mark.guarantee
@pytest.mark.parametrize("name", TU[:6])
def test_no_few_real_graphs_are_refused(name):
    """Twelve draws of each size: what is told apart by counting must not find an accident among them."""
    graphs, rng = fp.datasets.tu(name, data_root()), np.random.default_rng(1)
    for count in (1, 2, 3, 5, 8, 19, 20, 40):
        for _ in range(12):
            refuse_clean_edges([graphs[int(index)] for index in rng.choice(len(graphs), count, replace=False)])


def test_an_odd_molecule_among_others_passes():
    """Six atoms of a kind that stands nowhere else, in a molecule with triangles that no other has."""
    graphs = fp.datasets.tu("AIDS", data_root())
    refuse_clean_edges([graphs[index] for index in (454, *range(6, 120, 6))])


def test_atoms_of_single_molecules_pass():
    for graph in fp.datasets.tu("MUTAG", data_root())[::3]:
        refuse_clean_edges([graph])
    # one large value among small ones; a kind that is the same within every part of the graph
    for index in (54, 540):
        refuse_clean_edges([fp.datasets.tu("ENZYMES", data_root())[index]])


@pytest.mark.parametrize("kind", ["categories", "numbers", "reals", "node numbers", "identity", "of the graph", "ones"])
def test_features_that_know_nothing_pass(kind):
    """40 data sets of one to seven small graphs; the guard is deterministic, and an accident has odds of one in a million."""
    rng = np.random.default_rng(0)
    for _ in range(40):
        computed = []
        for _ in range(int(rng.integers(1, 8))):
            n = int(rng.integers(4, 14))
            features: Any = {
                "categories": np.eye(4)[rng.integers(0, 4, n)],
                "numbers": rng.integers(0, 4, (n, 3)),
                "reals": rng.normal(size=(n, 4)),
                "node numbers": np.arange(n)[:, None],
                "identity": np.eye(14)[:n],
                "of the graph": np.full((n, 1), rng.normal()),
                "ones": np.ones((n, 2)),
            }[kind]
            upper = np.triu(rng.random((n, n)) < 0.35, 1)
            computed.append(Graph(n, np.argwhere(upper), features))
        refuse_clean_edges(computed)


def test_coordinates_that_are_smooth_over_the_edges_pass():
    """Points joined to their neighbours in the plane: near the mean of the neighbours, and not made from edges."""
    rng = np.random.default_rng(1)
    computed = []
    for _ in range(20):
        points = rng.random((40, 2))
        near = np.triu(np.linalg.norm(points[:, None] - points[None], axis=2) < 0.25, 1)
        computed.append(Graph(40, np.argwhere(near), np.hstack([points, 28 * points])))
    refuse_clean_edges(computed)
