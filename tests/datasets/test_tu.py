"""TU text files: the published statistics, and one sentence with file and line for a file that is broken."""

import itertools
import os
from pathlib import Path

import numpy as np
import pytest

import flipproof as fp
from flipproof.datasets.task_limit import distances, most_certified
from flipproof.graphs import Graph
from support.shared_data import data_root

# name: graphs, classes, mean nodes, mean edges, node labels, node attributes, nodes without an edge, class names
PUBLISHED = {
    "MUTAG": (188, 2, 17.93, 19.79, 7, 0, 0, "-1 1"),
    "PTC_MR": (344, 2, 14.29, 14.69, 18, 0, 0, "-1 1"),
    "ENZYMES": (600, 6, 32.63, 62.14, 3, 18, 106, "1 2 3 4 5 6"),
    "PROTEINS": (1113, 2, 39.06, 72.82, 3, 1, 5, "1 2"),
    "AIDS": (2000, 2, 15.69, 16.20, 38, 4, 210, "0 1"),
    "NCI1": (4110, 2, 29.87, 32.30, 37, 0, 428, "0 1"),
    "IMDB-BINARY": (1000, 2, 19.77, 96.53, 0, 0, 0, "0 1"),
    "IMDB-MULTI": (1500, 3, 13.00, 65.94, 0, 0, 0, "1 2 3"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_statistics_are_the_published_ones(name):
    data = fp.datasets.tu(name, root=data_root())
    graphs, classes, nodes, edges, labels, attributes, isolated, names = PUBLISHED[name]
    assert (len(data), data.num_classes, data.name) == (graphs, classes, name)
    assert data.class_names == tuple(names.split())
    assert round(float(np.mean([graph.num_nodes for graph in data])), 2) == nodes
    assert round(float(np.mean([graph.num_edges for graph in data])), 2) == edges
    assert data.num_node_features == labels + attributes
    assert sum(int((graph.degrees == 0).sum()) for graph in data) == isolated
    if labels:
        one_hot = np.concatenate([graph.node_features[:, :labels] for graph in data if graph.node_features is not None])
        assert (one_hot.sum(axis=1) == 1).all()
        assert (one_hot.sum(axis=0) > 0).all()


@pytest.mark.parametrize("name", ["MUTAG", "ENZYMES"])
def test_agrees_with_pyg_graph_by_graph(name, tmp_path):
    from torch_geometric.datasets import TUDataset

    (tmp_path / name).mkdir()
    (tmp_path / name / "raw").symlink_to(data_root() / name)
    theirs = TUDataset(str(tmp_path), name, use_node_attr=True)
    ours = fp.datasets.tu(name, root=data_root())
    assert len(theirs) == len(ours)
    for mine, other in zip(ours, theirs, strict=True):
        other.edge_attr = None
        converted = fp.Graph.from_pyg(other)
        assert (mine.topology, mine.label) == (converted.topology, converted.label)
        if mine.node_features is not None and converted.node_features is not None:
            # PyG has attributes before labels
            columns = np.sort(mine.node_features, axis=1), np.sort(converted.node_features, axis=1)
            assert np.allclose(*columns)


FILES = {
    "A": "1, 2\n2, 1\n3,4\n4,3\n",
    "graph_indicator": "1\n1\n2\n2\n2\n",
    "graph_labels": "7\n-1\n",
    "node_labels": "5\n0\n0\n0\n5\n",
}


def write(root, name="TOY", **changed: str | None):
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    for kind, text in {**FILES, **changed}.items():
        if text is not None:
            (folder / f"{name}_{kind}.txt").write_bytes(text.encode("latin-1"))
    return root


def test_a_small_set_in_full(tmp_path):
    data = fp.datasets.tu("TOY", root=write(tmp_path, node_attributes=" 1.5, 2\n0,0\n 0,1e3\n\n1,1\n2,2\n"))
    assert (data.class_names, data.labels.tolist()) == (("-1", "7"), [1, 0])
    assert [graph.num_nodes for graph in data] == [2, 3]
    assert [graph.edges.tolist() for graph in data] == [[[0, 1]], [[0, 1]]]
    assert data[0].node_features.tolist() == [[0, 1, 1.5, 2], [1, 0, 0, 0]]
    assert [graph.name for graph in data] == ["TOY-0", "TOY-1"]
    data = fp.datasets.tu("TOY", root=write(tmp_path / "bare", A="", node_labels=None))
    assert [(graph.num_nodes, graph.num_edges, graph.node_features) for graph in data] == [(2, 0, None), (3, 0, None)]
    # two columns of labels have names of their own; edge labels are ignored, and one line says so
    two = write(tmp_path / "two", node_labels="0, 7\n1, 7\n0, 8\n1, 8\n0, 7\n", edge_labels="7\n")
    data = fp.datasets.tu("TOY", root=two)
    assert [attribute.name for attribute in data.attributes] == ["node label 1", "node label 2", "edge labels"]
    assert data.describe_features().splitlines()[-1] == "  edge labels   ignored: an edge that the noise adds has none"


def test_nodes_need_not_be_sorted_by_graph(tmp_path):
    mixed = {"graph_indicator": "2\n1\n2\n1\n2\n", "A": "1,3\n3,1\n4,2\n2,4\n", "node_labels": "1\n2\n3\n4\n5\n"}
    data = fp.datasets.tu("TOY", root=write(tmp_path, **mixed))
    assert [graph.edges.tolist() for graph in data] == [[[0, 1]], [[0, 1]]]
    assert data[1].node_features.argmax(axis=1).tolist() == [0, 2, 4]


BROKEN = [
    ({"A": "1, 2\n2, x\n"}, "TOY_A.txt, line 2: expected 2 numbers, split by commas; got '2, x'"),
    ({"A": "1, 2\n\n2, 1, 3\n"}, "TOY_A.txt, line 3: expected 2 numbers, split by commas; got '2, 1, 3'"),
    ({"A": "1 2\n"}, "TOY_A.txt, line 1: expected 2 numbers"),
    ({"A": "1, 2\n2, 1\n\n3, 9\n9, 3\n"}, "TOY_A.txt: the edge 3, 9 joins a node that is not there; expected 1 to 5"),
    ({"A": "0, 1\n1, 0\n"}, "TOY_A.txt: the edge 0, 1 joins a node that is not there; expected 1 to 5"),
    ({"A": "1, 2\n2, 1\n2, 3\n3, 2\n"}, "TOY_A.txt: the edge 2, 3 joins two graphs"),
    ({"A": "1, 2\n2, 1\n3, 4\n"}, "TOY_A.txt: the edge 3, 4 has no counterpart"),
    ({"A": "\xff\xfe\x00"}, "TOY_A.txt is not a text file"),
    ({"A": "1.5, 2\n"}, "TOY_A.txt must hold whole numbers; got 1.5"),
    ({"graph_labels": "0\nnan\n"}, "TOY_graph_labels.txt, line 2: expected 1 number; got 'nan'"),
    ({"graph_labels": "0\n1\n1\n"}, "must give nodes to every graph from 1 to 3"),
    ({"graph_labels": None}, "TOY_graph_labels.txt is missing"),
    ({"graph_indicator": "1\n1\n2\n3\n2\n"}, "TOY_graph_indicator.txt must give nodes to every graph from 1 to 2"),
    ({"graph_indicator": None}, "TOY_graph_indicator.txt is missing"),
    ({"node_labels": "0\n0\n"}, "TOY_node_labels.txt has 2 lines; expected one per node, 5"),
    ({"node_attributes": "1,2\n1,2\n1\n1,2\n1,2\n"}, "TOY_node_attributes.txt, line 3: expected 2 numbers"),
    ({"node_attributes": "1\n"}, "TOY_node_attributes.txt has 1 lines"),
]


@pytest.mark.parametrize(("changed", "sentence"), BROKEN, ids=[sentence for _, sentence in BROKEN])
def test_a_broken_file_is_named_with_its_line(tmp_path, changed, sentence):
    write(tmp_path, **changed)
    with pytest.raises(fp.InputError, match=r"\(.*\)$") as caught:
        fp.datasets.tu("TOY", root=tmp_path)
    assert sentence in str(caught.value)


def test_an_unknown_name_lists_what_is_there(tmp_path):
    write(write(tmp_path, name="ONE"), name="TWO")
    with pytest.raises(fp.InputError, match=r"no files of MUTAG under .*found there: ONE, TWO"):
        fp.datasets.tu("MUTAG", root=tmp_path)
    with pytest.raises(fp.InputError, match="no TU data set lies there"):
        fp.datasets.tu("MUTAG", root=tmp_path / "nowhere")
    assert not os.path.lexists(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["", "../TOY", ".", "a/b"])
def test_a_name_is_not_a_path(tmp_path, name):
    with pytest.raises(fp.InputError, match="name must be that of a TU data set"):
        fp.datasets.tu(name, root=write(tmp_path))


def test_a_failed_download_is_one_sentence(tmp_path, monkeypatch):
    import torch_geometric.datasets

    def fail(*args: object, **options: object):
        raise OSError("no network")

    monkeypatch.setattr(torch_geometric.datasets, "TUDataset", fail)
    with pytest.raises(fp.InputError, match=r"MUTAG could not be downloaded into .*no network"):
        fp.datasets.tu("MUTAG", root=tmp_path, download=True)


def test_a_download_is_read_from_where_pyg_puts_it(tmp_path, monkeypatch):
    import torch_geometric.datasets

    def fetch(root, name):
        write(Path(root), name=name, A="1,2\n3,4\n3,3\n")  # each edge once, and a loop
        (Path(root) / name).rename(Path(root) / "fetched")
        (Path(root) / name).mkdir()
        (Path(root) / "fetched").rename(Path(root) / name / "raw")

    monkeypatch.setattr(torch_geometric.datasets, "TUDataset", fetch)
    assert [graph.num_edges for graph in fp.datasets.tu("NEW", root=tmp_path, download=True)] == [1, 1]


def random_graph(generator, n, kinds):
    upper = np.triu(generator.random((n, n)) < generator.random(), 1)
    return Graph(n, np.argwhere(upper), np.eye(kinds)[generator.integers(0, kinds, n)])


def exact(first, second):
    """The fewest flips over all matchings of nodes that keep their features."""
    a, b = (graph.adjacency().astype(np.int64) for graph in (first, second))
    flips = [
        int(np.triu(a ^ b[np.ix_(order, order)], 1).sum())
        for order in map(list, itertools.permutations(range(first.num_nodes)))
        if (first.node_features == second.node_features[order]).all()
    ]
    return min(flips, default=None)


def test_distances_are_upper_bounds_and_mostly_exact():
    generator = np.random.default_rng(0)
    graphs = [random_graph(generator, 5, 1 + index % 2) for index in range(40)]
    labels = [index % 3 for index in range(40)]
    apart = distances(graphs, labels, most=20)
    same = [
        (i, j)
        for i, j in itertools.combinations(range(40), 2)
        if labels[i] != labels[j] and graphs[i].node_features.shape == graphs[j].node_features.shape
    ]
    hits = 0
    for pair in same:
        truth = exact(graphs[pair[0]], graphs[pair[1]])
        assert (pair in apart) == (truth is not None)
        if truth is not None:
            assert apart[pair] >= truth
            hits += apart[pair] == truth
    assert hits > 0.9 * len(apart) > 20


def test_the_count_is_that_of_the_largest_independent_set():
    generator = np.random.default_rng(1)
    for _ in range(20):
        apart = {
            pair: int(generator.integers(0, 9))
            for pair in itertools.combinations(range(8), 2)
            if generator.random() < 0.4
        }
        for radius in (0, 1, 3):
            conflicts = [pair for pair, flips in apart.items() if flips <= 2 * radius]
            largest = max(
                len(kept)
                for size in range(9)
                for kept in itertools.combinations(range(8), size)
                if not any(a in kept and b in kept for a, b in conflicts)
            )
            assert most_certified(apart, 8, [radius]) == [largest]
