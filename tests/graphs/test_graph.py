"""Graphs: what they hold and refuse, their slots, their canonical form, and conversions from and to other forms."""

import copy
import itertools
import pickle
import subprocess
import sys

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data, InMemoryDataset

from flipproof import Graph, InputError
from flipproof.graphs import as_graph, as_graphs, pairs_of_slots, slots_of_pairs
from support.graphs import graphs


def test_read_only(full):
    for name in ("num_nodes", "edges", "label", "slots", "anything"):
        with pytest.raises(AttributeError, match=name):
            setattr(full, name, 1)
    with pytest.raises(AttributeError, match="label"):
        del full.label
    names = ["edges", "frozen", "node_features", "edge_slots", "frozen_slots", "slots", "slot_states", "degrees"]
    for name in (*names, "flippable_edge_slots", "frozen_edge_slots"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(full, name)[0] = 0


def test_the_callers_arrays_are_neither_kept_nor_locked():
    edges, features = np.array([[0, 1]]), np.ones((2, 1))
    graph = Graph(2, edges, features)
    edges[0, 1], features[0] = 0, np.nan
    assert graph.edges.tolist() == [[0, 1]]
    assert graph.node_features.tolist() == [[1.0], [1.0]]


def test_equality_and_hash(full):
    assert full.replaced(name="other") == full
    assert hash(full.replaced(label=None)) == hash(full)
    others = [
        full.replaced(label=1),
        full.replaced(node_features=None),
        full.replaced(node_features=np.zeros((5, 2))),
        full.replaced(edges=[(0, 1)]),
        full.replaced(frozen=[]),
        Graph(6, full.edges),
        "a graph",
    ]
    assert all(other != full for other in others)
    assert full.replaced(node_features=None) != full


@pytest.mark.parametrize("copied", [lambda g: pickle.loads(pickle.dumps(g)), copy.copy, copy.deepcopy])
def test_copies(full, copied):
    again = copied(full)
    assert again == full
    assert again.name == "five"
    assert again.frozen.tolist() == full.frozen.tolist()
    with pytest.raises(AttributeError):
        again.label = 0


def test_topology_hash_is_the_same_in_another_process_and_covers_everything(full):
    code = "import flipproof as fp;print(fp.Graph(5, [(0, 1), (3, 1), (2, 4)], frozen=[(4, 3), (0, 1)]).topology)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == full.topology
    same_bytes = [
        Graph(4, [(0, 1)], frozen=[(0, 2)]),
        Graph(4, [(0, 1), (0, 2)]),
        Graph(4, [], frozen=[(0, 1), (0, 2)]),
        Graph(5, [(0, 1)], frozen=[(0, 2)]),
        Graph(4, [(0, 2)], frozen=[(0, 1)]),
    ]
    assert len({graph.topology for graph in same_bytes}) == len(same_bytes)


@given(graphs(max_nodes=6), st.data())
def test_flipped_toggles_exactly_the_given_pairs_and_undoes_itself(graph, data):
    pairs = list(itertools.combinations(range(graph.num_nodes), 2))
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    attacked = graph.flipped(chosen)
    edges = {tuple(pair) for pair in graph.edges.tolist()}
    assert {tuple(pair) for pair in attacked.edges.tolist()} == edges ^ set(chosen)
    assert attacked.flipped(chosen) == graph


def test_flipped_keeps_the_rest_and_refuses_frozen_pairs(full):
    attacked = full.flipped([(1, 2), (2, 1)])
    assert attacked.edges.tolist() == [[0, 1], [1, 2], [1, 3], [2, 4]]
    assert (attacked.label, attacked.name, attacked.frozen.tolist()) == (2, "five", full.frozen.tolist())
    assert np.array_equal(attacked.node_features, full.node_features)
    with pytest.raises(InputError, match=r"frozen.*\(0, 1\)"):
        full.flipped([(1, 2), (1, 0)])
    with pytest.raises(InputError, match="pairs must not contain self-loops"):
        full.flipped([(2, 2)])


@given(st.integers(1, 60))
def test_slots_number_the_upper_triangle_row_by_row(n):
    pairs = np.array(list(itertools.combinations(range(n), 2)), dtype=np.int64).reshape(-1, 2)
    slots = slots_of_pairs(pairs, n)
    assert slots.tolist() == list(range(n * (n - 1) // 2))
    assert np.array_equal(pairs_of_slots(slots, n), pairs)


@given(st.integers(2, 100_000) | st.just(3_000_000), st.data())
def test_slots_of_large_graphs_round_trip(n, data):
    last = n * (n - 1) // 2 - 1
    slots = np.array([last, *data.draw(st.lists(st.integers(0, last)))], dtype=np.int64)
    pairs = pairs_of_slots(slots, n)
    assert (pairs[:, 0] < pairs[:, 1]).all()
    assert (pairs >= 0).all()
    assert (pairs < n).all()
    assert np.array_equal(slots_of_pairs(pairs, n), slots)


@given(graphs(frozen=True))
def test_slot_properties_agree_with_sets(graph):
    everything = set(range(graph.num_nodes * (graph.num_nodes - 1) // 2))
    edges, frozen = set(graph.edge_slots.tolist()), set(graph.frozen_slots.tolist())
    assert graph.slots.tolist() == sorted(everything - frozen)
    assert graph.num_slots == len(everything - frozen)
    assert graph.flippable_edge_slots.tolist() == sorted(edges - frozen)
    assert graph.frozen_edge_slots.tolist() == sorted(edges & frozen)
    assert graph.max_removes == len(edges - frozen)
    assert graph.max_adds == len(everything - frozen - edges)
    assert graph.slot_states.tolist() == [slot in edges for slot in graph.slots.tolist()]
    assert graph.degrees.tolist() == [int((graph.edges == node).sum()) for node in range(graph.num_nodes)]


@given(graphs(), st.randoms())
def test_order_direction_and_repetition_of_edges_have_no_meaning(graph, random):
    messy = [tuple(pair) for pair in graph.edges.tolist()] + [(v, u) for u, v in graph.edges.tolist()]
    random.shuffle(messy)
    again = Graph(graph.num_nodes, messy)
    assert again == graph
    assert again.edges.tolist() == sorted(again.edges.tolist())
    assert again.topology == graph.topology


@pytest.mark.parametrize("kind", [tuple, set, iter, np.array, torch.tensor, lambda pairs: np.array(pairs, np.uint8)])
def test_edges_come_in_many_forms(kind):
    assert Graph(3, kind([(0, 1), (1, 2)])).edges.tolist() == [[0, 1], [1, 2]]
    none = Graph(3, kind([]))
    assert (none.edges.shape, none.edges.dtype) == ((0, 2), np.int64)
    assert (none.num_edges, none.num_slots, none.max_adds, none.max_removes) == (0, 3, 3, 0)
    assert Graph(3, np.empty((2, 0), dtype=int)) == none
    single = Graph(1, [])
    assert (single.num_slots, single.slots.shape, single.slot_states.shape) == (0, (0,), (0,))
    assert as_graph(single.to_pyg()) == as_graph(single.to_networkx()) == single


def refused(words, make, *arguments: object, **options: object):
    with pytest.raises(InputError) as error:
        make(*arguments, **options)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((0, []), {}, ["num_nodes", "at least 1", "0"]),
        ((2.0, []), {}, ["num_nodes", "integer", "2.0"]),
        ((3, [(1, 1)]), {}, ["edges", "self-loops", "(1, 1)", "remove"]),
        ((3, [(0, 3)]), {}, ["edges", "0..2", "3"]),
        ((3, [(-1, 0)]), {}, ["edges", "0..2", "-1"]),
        ((3, [(0, 1, 2)]), {}, ["edges", "[E, 2]", "(1, 3)"]),
        ((3, [0, 1]), {}, ["edges", "[E, 2]", "(2,)"]),
        ((5, [[0, 1, 2], [1, 2, 3]]), {}, ["edges", "transpose", "from_pyg"]),
        ((3, [(0, 1), (1,)]), {}, ["edges", "[E, 2]"]),
        ((3, 7), {}, ["edges", "[E, 2]"]),
        ((3, [(0.0, 1.0)]), {}, ["edges", "node numbers", "float64"]),
        ((3, [(True, False)]), {}, ["edges", "node numbers", "bool"]),
        ((3, np.array([[0, 2**64 - 1]], dtype=np.uint64)), {}, ["edges", "0..2"]),
        ((2, [], [[1.0], [np.nan]]), {}, ["node_features", "finite", "nan", "node 1"]),
        ((2, [], [1.0, 2.0]), {}, ["node_features", "[num_nodes, d]", "(2,)", "reshape"]),
        ((2, [], [[1.0]]), {}, ["node_features", "num_nodes = 2", "(1, 1)"]),
        ((2, [], [[1.0], [1.0, 2.0]]), {}, ["node_features", "matrix"]),
        ((2, [], [["C"], ["N"]]), {}, ["node_features", "numbers", "one-hot"]),
        ((2, [], None, -1), {}, ["label", "-1"]),
        ((2, [], None, 1.0), {}, ["label", "1.0"]),
        ((2, [], None, "cat"), {}, ["label", "'cat'"]),
        ((3, []), {"frozen": [(0, 5)]}, ["frozen", "0..2", "5"]),
    ],
)
def test_bad_input_is_refused_in_words(arguments, options, words):
    refused(words, Graph, *arguments, **options)


@pytest.mark.parametrize("kind", [np.int32, np.uint8, np.bool_, np.float16, np.float32, np.float64])
def test_feature_types(kind):
    features = Graph(2, [], np.ones((2, 3), dtype=kind)).node_features
    assert features.dtype == {np.int32: np.int64, np.uint8: np.int64, np.float64: np.float64}.get(kind, np.float32)
    assert features.tolist() == [[1, 1, 1]] * 2


@pytest.mark.parametrize("label", [3, np.int64(3), np.array(3), np.array([3]), torch.tensor(3), torch.tensor([3])])
def test_label_types(label):
    kept = Graph(2, [], None, label).label
    assert kept == 3
    assert type(kept) is int


@given(graphs())
def test_matrices_round_trip(graph):
    dense, kinds = graph.adjacency(), (scipy.sparse.csr_array, scipy.sparse.csc_array, scipy.sparse.coo_array)
    assert np.array_equal(dense, networkx.to_numpy_array(graph.to_networkx()))
    forms = [dense, dense.astype(bool), dense.astype(int).tolist(), *(kind(dense) for kind in kinds)]
    tensor = torch.from_numpy(dense)
    forms += [tensor, tensor.to_sparse(), tensor.bool(), scipy.sparse.csr_matrix(dense)]
    assert all(Graph.from_adjacency(form) == graph for form in forms)


def test_sparse_matrix_with_stored_zeros_is_left_as_it_was():
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
        (torch.tensor([[0, 0.5], [0.5, 0]]), ["0 and 1", "0.5"]),
        ([[0, np.nan], [np.nan, 0]], ["0 and 1", "nan"]),
        (scipy.sparse.coo_array(([1, 1, 1, 1], ([0, 0, 1, 1], [1, 1, 0, 0])), shape=(2, 2)), ["0 and 1", "2"]),
        (np.zeros((2, 3)), ["square", "(2, 3)"]),
        (scipy.sparse.csr_array((2, 3)), ["square", "(2, 3)"]),
        (np.zeros((2, 2, 2)), ["square", "(2, 2, 2)", "one graph at a time"]),
        ([[0, 1], [1]], ["adjacency", "square"]),
        ([["a", "b"], ["b", "a"]], ["0 and 1", "dtype"]),
    ],
)
def test_bad_matrices(matrix, words):
    refused(words, Graph.from_adjacency, matrix)


def test_networkx_nodes_are_numbered_in_their_order():
    source = networkx.Graph()
    source.add_nodes_from([("c", {"w": 3}), ("a", {"w": 1}), ("b", {"w": 2})])
    source.add_edge("a", "b", weight=7.0)
    with pytest.warns(UserWarning, match="weight of the networkx graph is not used: an edge that the noise adds has"):
        graph = Graph.from_networkx(source, "w")
    assert graph.edges.tolist() == [[1, 2]]
    assert graph.node_features.tolist() == [[3], [1], [2]]
    assert graph.label is None


def test_networkx_label_and_features():
    source = networkx.path_graph(2)
    source.graph["y"] = 4
    networkx.set_node_attributes(source, {0: torch.tensor([1.0, 2.0]), 1: [3.0, 4.0]}, "x")
    graph = Graph.from_networkx(source)
    assert graph.label == 4
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
        (networkx.Graph([(0, 0)]), {}, ["self-loops"]),
        (networkx.Graph(), {"node_features": "x"}, ["num_nodes", "at least 1"]),
        (networkx.path_graph(2), {"node_features": "x"}, ["'x'", "node 0", "every node"]),
        (UNEQUAL, {}, ["the same number of values at every node"]),
    ],
)
def test_bad_networkx(source, options, words):
    refused(words, Graph.from_networkx, source, **options)


def _data(*arcs: tuple[int, int], **fields: object):
    edge_index = torch.tensor(arcs, dtype=torch.long).reshape(-1, 2).T.contiguous()
    return Data(edge_index=edge_index, **({"num_nodes": 3} | fields))


@given(graphs())
def test_pyg_round_trip(graph):
    data = graph.to_pyg()
    assert data.validate()
    assert data.is_undirected()
    assert data.is_coalesced()
    assert data.num_nodes == graph.num_nodes
    assert Graph.from_pyg(data) == graph


def test_round_trips_with_everything(full):
    plain = full.replaced(frozen=None)
    data = plain.to_pyg()
    assert data.x.dtype == torch.float32
    assert data.y.tolist() == [2]
    assert Graph.from_pyg(data) == Graph.from_networkx(plain.to_networkx()) == plain
    data.x[0, 0] = 99  # a copy: the graph does not change
    assert plain.node_features[0, 0] == 0
    assert Graph.from_pyg(_data((0, 1), (1, 0), num_nodes=7)).num_nodes == 7
    assert Graph.from_pyg(_data(x=torch.ones(4, 1), num_nodes=None)).num_nodes == 4


def test_pyg_drops_repetitions_and_edge_attributes():
    data = _data((0, 1), (1, 0), (1, 0), (0, 1), edge_attr=torch.ones(4, 2), edge_weight=torch.ones(4))
    with pytest.warns(UserWarning, match="edge_attr, edge_weight of the PyG Data are not used: an edge that"):
        assert Graph.from_pyg(data).edges.tolist() == [[0, 1]]


FIVES = [torch.tensor([5]), torch.tensor(5), torch.tensor([[5]]), torch.tensor([5.0]), 5]
NO_CLASSES = [*map(torch.tensor, ([5.5], [1, 0, 1], [float("nan")], [float("inf")])), None]


@pytest.mark.parametrize(("y", "label"), [*((y, 5) for y in FIVES), *((y, None) for y in NO_CLASSES)])
def test_pyg_labels(y, label):
    assert Graph.from_pyg(_data((0, 1), (1, 0), y=y)).label == label


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (_data((0, 1)), ["undirected", "0 -> 1 without 1 -> 0", "to_undirected"]),
        (_data((0, 3), (3, 0)), ["edge_index", "0..2", "3"]),
        (_data((0, -1), (-1, 0)), ["edge_index", "-1"]),
        (Data(x=torch.ones(2, 1)), ["edge_index", "[2, 0]"]),
        (Data(edge_index=torch.tensor([[0, 1], [1, 0], [1, 2]]), num_nodes=3), ["edge_index", "[2, E]", "(3, 2)"]),
        (Data(edge_index=torch.tensor([[0.0, 1.0], [1.0, 0.0]]), num_nodes=3), ["edge_index", "float32", "long"]),
        (Batch.from_data_list([_data(), _data()]), ["one graph", "Batch", "to_data_list"]),
    ],
)
def test_bad_pyg(data, words):
    refused(words, Graph.from_pyg, data)


def test_as_graph_takes_every_kind():
    graph = Graph(3, [(0, 2)])
    forms = [graph, graph.to_pyg(), graph.to_networkx(), graph.adjacency(), scipy.sparse.csr_array(graph.adjacency())]
    assert as_graphs(forms) == [graph] * 5
    assert as_graphs(iter(forms)) == [graph] * 5
    assert as_graphs(np.stack([graph.adjacency()] * 2)) == [graph] * 2
    assert as_graph(torch.from_numpy(graph.adjacency())) == graph
    assert as_graph(graph) is graph
    assert as_graphs([]) == []


class _Collection(InMemoryDataset):
    def __init__(self, data):
        super().__init__()
        self.data, self.slices = self.collate(data)


def test_as_graphs_takes_a_pyg_dataset():
    collection = _Collection([_data((0, 1), (1, 0), y=torch.tensor([1])), _data((1, 2), (2, 1), y=torch.tensor([0]))])
    assert hasattr(collection, "edge_index")  # what makes it look like a single graph
    assert [graph.edges.tolist() for graph in as_graphs(collection)] == [[[0, 1]], [[1, 2]]]
    assert [graph.label for graph in as_graphs(collection)] == [1, 0]


@pytest.mark.parametrize("value", [3, "graph", None, {"nodes": 3}, [[0, 1], [1, 0]]])
def test_as_graph_refuses_the_rest(value):
    with pytest.raises(InputError, match=rf"expected a graph.*got {type(value).__name__}"):
        as_graph(value)


SINGLE = [(Graph(2, []), "single one"), (_data(), "single one"), (networkx.path_graph(2), "single one"), (5, "got int")]


@pytest.mark.parametrize(("value", "words"), [*SINGLE, (np.zeros((2, 2)), r"got shape \(2,\)")])
def test_as_graphs_refuses_single_graphs(value, words):
    with pytest.raises(InputError, match=words):
        as_graphs(value)
