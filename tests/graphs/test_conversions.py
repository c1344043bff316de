"""Conversions lose nothing, and refuse what they would lose."""

from __future__ import annotations

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from torch_geometric.data import Batch, Data, InMemoryDataset

from flipproof import Graph, InputError
from flipproof.graphs import as_graph, as_graphs
from support.graphs import graphs


@given(graphs())
def test_matrices_round_trip(graph: Graph) -> None:
    dense = graph.adjacency()
    sparse = scipy.sparse.csr_array(dense)
    assert np.array_equal(dense, networkx.to_numpy_array(graph.to_networkx()))
    forms = [
        dense,
        dense.astype(bool),
        dense.astype(int).tolist(),
        torch.from_numpy(dense),
        torch.from_numpy(dense).to_sparse(),
        torch.from_numpy(dense).bool(),
        sparse,
        sparse.tocsc(),
        sparse.tocoo(),
        scipy.sparse.csr_matrix(dense),
    ]
    assert all(Graph.from_adjacency(form) == graph for form in forms)


def test_sparse_matrix_with_stored_zeros_is_left_as_it_was() -> None:
    matrix = scipy.sparse.coo_array(([1, 0, 1], ([1, 0, 0], [0, 2, 1])), shape=(3, 3))
    rows = matrix.row.copy()
    assert Graph.from_adjacency(matrix).edges.tolist() == [[0, 1]]
    assert np.array_equal(matrix.row, rows)


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([[0, 1], [0, 0]], ["undirected", "0 -> 1 without 1 -> 0", "symmetrise"]),
        (scipy.sparse.csr_array([[0, 1], [0, 0]]), ["undirected", "0 -> 1"]),
        ([[1, 0], [0, 0]], ["self-loops", "(0, 0)"]),
        ([[0, 2], [2, 0]], ["0 and 1", "2", "weights"]),
        ([[0, 0.5], [0.5, 0]], ["0 and 1", "0.5", "weights"]),
        (torch.tensor([[0, 0.5], [0.5, 0]]), ["0 and 1", "0.5"]),
        ([[0, np.nan], [np.nan, 0]], ["0 and 1", "nan"]),
        (scipy.sparse.coo_array(([1, 1, 1, 1], ([0, 0, 1, 1], [1, 1, 0, 0])), shape=(2, 2)), ["0 and 1", "2"]),
        (np.zeros((2, 3)), ["square", "(2, 3)"]),
        (scipy.sparse.csr_array((2, 3)), ["square", "(2, 3)"]),
        (np.zeros((2, 2, 2)), ["square", "(2, 2, 2)", "one graph at a time"]),
        (np.zeros(4), ["square", "(4,)"]),
        ([[0, 1], [1]], ["adjacency", "square"]),
        ([["a", "b"], ["b", "a"]], ["0 and 1", "dtype"]),
        (np.zeros((0, 0)), ["num_nodes", "at least 1"]),
    ],
)
def test_bad_matrices(matrix: object, words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        Graph.from_adjacency(matrix)
    for word in words:
        assert word in str(error.value)


def test_matrix_with_the_rest() -> None:
    graph = Graph.from_adjacency([[0, 1], [1, 0]], [[1.0], [2.0]], 1, name="pair", frozen=[(0, 1)])
    assert (graph.label, graph.name, graph.num_slots) == (1, "pair", 0)


def test_networkx_round_trip(full: Graph) -> None:
    plain = full.replaced(frozen=None)
    again = Graph.from_networkx(plain.to_networkx())
    assert again.edges.tolist() == plain.edges.tolist()
    assert again.label == 2
    assert again.node_features is not None
    assert again.node_features.tolist() == plain.node_features.tolist()  # type: ignore[union-attr]


def test_networkx_nodes_are_numbered_in_their_order() -> None:
    source = networkx.Graph()
    source.add_nodes_from([("c", {"w": 3}), ("a", {"w": 1}), ("b", {"w": 2})])
    source.add_edge("a", "b", weight=7.0)
    with pytest.warns(
        UserWarning, match="weight of the networkx graph is not used: an edge that the noise adds has none"
    ):
        graph = Graph.from_networkx(source, "w")
    assert graph.edges.tolist() == [[1, 2]]
    assert graph.node_features is not None
    assert graph.node_features.tolist() == [[3], [1], [2]]
    assert graph.label is None


def test_networkx_label_and_features() -> None:
    source = networkx.path_graph(2)
    source.graph["y"] = 4
    networkx.set_node_attributes(source, {0: torch.tensor([1.0, 2.0]), 1: [3.0, 4.0]}, "x")
    graph = Graph.from_networkx(source)
    assert graph.label == 4
    assert graph.node_features is not None
    assert graph.node_features.tolist() == [[1, 2], [3, 4]]
    assert Graph.from_networkx(source, label=1).label == 1
    del source.nodes[1]["x"]
    assert Graph.from_networkx(source).node_features is None


UNEQUAL = networkx.path_graph(2)
networkx.set_node_attributes(UNEQUAL, {0: [1.0], 1: [1.0, 2.0]}, "x")


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        (networkx.DiGraph([(0, 1)]), {}, ["undirected", "DiGraph", "to_undirected"]),
        (networkx.MultiGraph([(0, 1), (0, 1)]), {}, ["simple", "MultiGraph", "networkx.Graph(graph)"]),
        (networkx.MultiDiGraph([(0, 1)]), {}, ["undirected", "MultiDiGraph"]),
        (networkx.Graph([(0, 0)]), {}, ["self-loops"]),
        (networkx.Graph(), {}, ["num_nodes", "at least 1"]),
        (networkx.Graph(), {"node_features": "x"}, ["num_nodes", "at least 1"]),
        (networkx.path_graph(2), {"node_features": "x"}, ["'x'", "node 0", "every node"]),
        (networkx.Graph(label="cat"), {}, ["num_nodes"]),
        (UNEQUAL, {}, ["the same number of values at every node"]),
    ],
)
def test_bad_networkx(source: networkx.Graph, options: dict, words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        Graph.from_networkx(source, **options)
    for word in words:
        assert word in str(error.value)


def _data(*arcs: tuple[int, int], **fields: object) -> Data:
    edge_index = torch.tensor(arcs, dtype=torch.long).reshape(-1, 2).T.contiguous()
    return Data(edge_index=edge_index, **({"num_nodes": 3} | fields))


@given(graphs())
def test_pyg_round_trip(graph: Graph) -> None:
    data = graph.to_pyg()
    assert data.validate()
    assert data.is_undirected()
    assert data.is_coalesced()
    assert data.num_nodes == graph.num_nodes
    assert Graph.from_pyg(data) == graph


def test_pyg_round_trip_with_everything(full: Graph) -> None:
    plain = full.replaced(frozen=None)
    data = plain.to_pyg()
    assert data.x.dtype == torch.float32
    assert data.y.tolist() == [2]
    assert Graph.from_pyg(data) == plain
    data.x[0, 0] = 99  # a copy: the graph does not change
    assert plain.node_features is not None
    assert plain.node_features[0, 0] == 0


def test_pyg_drops_repetitions_and_edge_attributes() -> None:
    data = _data((0, 1), (1, 0), (1, 0), (0, 1), edge_attr=torch.ones(4, 2), edge_weight=torch.ones(4))
    with pytest.warns(
        UserWarning, match="edge_attr, edge_weight of the PyG Data are not used: an edge that the noise adds"
    ):
        assert Graph.from_pyg(data).edges.tolist() == [[0, 1]]


def test_pyg_counts_isolated_nodes() -> None:
    assert Graph.from_pyg(_data((0, 1), (1, 0), num_nodes=7)).num_nodes == 7
    assert Graph.from_pyg(_data(x=torch.ones(4, 1), num_nodes=None)).num_nodes == 4


@pytest.mark.parametrize(
    ("y", "label"),
    [
        (torch.tensor([5]), 5),
        (torch.tensor(5), 5),
        (torch.tensor([[5]]), 5),
        (torch.tensor([5.0]), 5),
        (5, 5),
        (torch.tensor([5.5]), None),
        (torch.tensor([1, 0, 1]), None),
        (torch.tensor([float("nan")]), None),
        (torch.tensor([float("inf")]), None),
        (None, None),
    ],
)
def test_pyg_labels(y: object, label: int | None) -> None:
    assert Graph.from_pyg(_data((0, 1), (1, 0), y=y)).label == label


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (_data((0, 1)), ["undirected", "0 -> 1 without 1 -> 0", "to_undirected"]),
        (_data((0, 0)), ["self-loops", "(0, 0)"]),
        (_data((0, 3), (3, 0)), ["edge_index", "0..2", "3"]),
        (_data((0, -1), (-1, 0)), ["edge_index", "-1"]),
        (_data(x=torch.tensor([[1.0], [float("nan")], [0.0]])), ["node_features", "nan", "node 1"]),
        (_data(x=torch.ones(3)), ["node_features", "[num_nodes, d]"]),
        (_data(num_nodes=0), ["num_nodes", "at least 1"]),
        (Data(x=torch.ones(2, 1)), ["edge_index", "[2, 0]"]),
        (Data(edge_index=torch.tensor([[0, 1], [1, 0], [1, 2]]), num_nodes=3), ["edge_index", "[2, E]", "(3, 2)"]),
        (Data(edge_index=torch.tensor([[0.0, 1.0], [1.0, 0.0]]), num_nodes=3), ["edge_index", "float32", "long"]),
        (_data(y=torch.tensor([-1])), ["label", "-1"]),
        (Batch.from_data_list([_data(), _data()]), ["one graph", "Batch", "to_data_list"]),
    ],
)
def test_bad_pyg(data: Data, words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        Graph.from_pyg(data)
    for word in words:
        assert word in str(error.value)


def test_as_graph_takes_every_kind() -> None:
    graph = Graph(3, [(0, 2)])
    forms = [graph, graph.to_pyg(), graph.to_networkx(), graph.adjacency(), scipy.sparse.csr_array(graph.adjacency())]
    assert as_graphs(forms) == [graph] * 5
    assert as_graphs(iter(forms)) == [graph] * 5
    assert as_graphs(np.stack([graph.adjacency()] * 2)) == [graph] * 2
    assert as_graph(torch.from_numpy(graph.adjacency())) == graph
    assert as_graph(graph) is graph
    assert as_graphs([]) == []


class _Collection(InMemoryDataset):
    def __init__(self, data: list[Data]) -> None:
        super().__init__()
        self.data, self.slices = self.collate(data)


def test_as_graphs_takes_a_pyg_dataset() -> None:
    collection = _Collection([_data((0, 1), (1, 0), y=torch.tensor([1])), _data((1, 2), (2, 1), y=torch.tensor([0]))])
    assert hasattr(collection, "edge_index")  # what makes it look like a single graph
    assert [graph.edges.tolist() for graph in as_graphs(collection)] == [[[0, 1]], [[1, 2]]]
    assert [graph.label for graph in as_graphs(collection)] == [1, 0]


@pytest.mark.parametrize("value", [3, "graph", None, {"nodes": 3}, [[0, 1], [1, 0]]])
def test_as_graph_refuses_the_rest(value: object) -> None:
    with pytest.raises(InputError, match=rf"expected a graph.*got {type(value).__name__}"):
        as_graph(value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Graph(2, []), "single one"),
        (_data(), "single one"),
        (networkx.path_graph(2), "single one"),
        (5, "got int"),
        (np.zeros((2, 2)), r"got shape \(2,\)"),
    ],
)
def test_as_graphs_refuses_single_graphs(value: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        as_graphs(value)
