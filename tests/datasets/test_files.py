"""Graphs in files and folders: read, with attributes as features, written, split by files, and refused in one sentence."""

import json
import pickle
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest

import flipproof as fp
from flipproof import models
from flipproof.cli.describe_command import described
from flipproof.datasets import topologies
from flipproof.datasets.sources import DataSource, fingerprint, model_data
from flipproof.datasets.splits import folds, read_folds, write_folds
from flipproof.errors import InputError
from support.command_line import call, write_graphs

RING = fp.Graph(4, [(0, 1), (1, 2), (2, 3), (0, 3)])


def written(folder, **files: str):
    """A folder with these files; two underscores stand for a dot."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


@pytest.mark.parametrize("kind", ["graphml", "gexf"])
def test_files_as_networkx_writes_them(kind, tmp_path):
    graph = networkx.cycle_graph(4)
    networkx.set_node_attributes(graph, {node: node + 1.5 for node in graph}, "mass")
    networkx.set_edge_attributes(graph, 2.0, "bond")
    written(tmp_path, labels__csv=f"a.{kind},10\nb.{kind},9\n")
    for name in ("a", "b"):
        getattr(networkx, f"write_{kind}")(graph, tmp_path / f"{name}.{kind}")
    data = fp.datasets.folder(tmp_path)
    assert (data.class_names, data.feature_names) == (("9", "10"), ["mass"])  # numbers sort as numbers
    assert data[1] == RING.replaced(node_features=[[1.5], [2.5], [3.5], [4.5]], label=0)
    ignored = {attribute.name: attribute.remark for attribute in data.attributes if not attribute.columns}
    assert ignored == {"bond (of edges)": "an edge that the noise adds has none"}


@pytest.mark.parametrize("kind", ["graphml", "gexf", "json"])
def test_a_directed_file_is_refused_or_symmetrised(kind, tmp_path):
    directed = networkx.DiGraph([(0, 1), (1, 2), (2, 1), (2, 3), (3, 0)])
    written(tmp_path, labels__csv=f"a.{kind},0\nb.edges,1\n", b__edges="0 1\n")
    if kind == "json":
        (tmp_path / "a.json").write_text(json.dumps(networkx.node_link_data(directed, edges="edges")))
    else:
        getattr(networkx, f"write_{kind}")(directed, tmp_path / f"a.{kind}")
    with pytest.raises(fp.InputError, match=rf"a\.{kind}: expected an undirected simple graph.*--symmetrise"):
        DataSource(str(tmp_path)).load()
    data = DataSource(str(tmp_path), symmetrise=True).load()
    assert data[0].topology == RING.topology
    assert DataSource(str(tmp_path), symmetrise=True).metadata(data)["symmetrise"] is True


TABLE = {
    "labels__csv": "graph,label\nm1,ring\nm2,path\n",
    "edges__csv": "graph,source,target,bond\nm1,0,1,s\nm1,1,2,d\nm1,2,0,s\nm2,a,b,s\nm2,b,a,s\n",
}


def test_one_table_of_edges_for_many_graphs(tmp_path):
    data = fp.datasets.folder(written(tmp_path, **TABLE))
    assert [(graph.name, graph.edges.tolist()) for graph in data] == [
        ("m1", [[0, 1], [0, 2], [1, 2]]),
        ("m2", [[0, 1]]),
    ]
    assert data.class_names == ("path", "ring")
    assert [attribute.name for attribute in data.attributes] == ["bond (of edges)"]
    nodes = "graph,node,element,mass\nm1,0,C,12\nm1,1,N,14\nm1,2,C,12\nm2,a,C,12\nm2,b,C,12\nm2,c,N,14\n"
    data = fp.datasets.folder(written(tmp_path, nodes__csv=nodes))
    assert data.feature_names == ["element=C", "element=N", "mass"]
    assert data[1].num_nodes == 3, "a node without an edge"
    assert data[0].node_features.tolist() == [[1, 0, 12], [0, 1, 14], [1, 0, 12]]
    assert not data.remarks


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"labels__csv": "graph,label\nm1,0\nm3,1\n"}, "labels.csv, line 3: edges.csv has no graph m3"),
        ({"labels__csv": "m1,0\n"}, "has 1 graphs that labels.csv does not list, such as m2"),
        ({"edges__csv": "graph,source\nm1,0\n"}, "edges.csv, line 1: expected a heading with graph, source, target"),
        ({"edges__csv": "graph,source,target\nm1,0\n"}, "edges.csv, line 2: expected 3 cells; got 2"),
        ({"edges__csv": "graph,source,target\nm1,0,\n"}, "edges.csv, line 2: target is empty"),
        ({"edges__csv": "graph,source,target\nm1,0,0\n"}, "edges.csv, line 2: node 0 of graph m1 is joined to itself"),
        ({"nodes__csv": "graph,node\nm1,0\nm1,0\n"}, "nodes.csv, line 3: node 0 of graph m1 is listed twice"),
    ],
)
def test_what_is_wrong_in_a_table_is_named(files, sentence, tmp_path):
    written(tmp_path, **TABLE | files)
    with pytest.raises(fp.InputError, match=r"\(.*\)$") as caught:
        fp.datasets.folder(tmp_path)
    assert sentence in str(caught.value)


def test_files_that_are_not_listed_are_named(tmp_path):
    files = {f"extra{number}__json": "{}" for number in range(7)}
    written(tmp_path, labels__csv="a.edges,0\nb.edgelist,1\n", a__edges="0 1\n", b__edgelist="0 1\n1 2\n", **files)
    data = fp.datasets.folder(tmp_path)
    shown = "extra0.json, extra1.json, extra2.json, extra3.json, extra4.json and 2 more"
    assert data.remarks == (f"not listed in labels.csv, and not read: {shown}",)
    assert shown in data.describe_features()
    assert data[1:].remarks == data.remarks


TU = {
    "TINY_A__txt": "1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n4, 4\n",
    "TINY_graph_indicator__txt": "1\n1\n1\n2\n2\n",
    "TINY_graph_labels__txt": "1\n-1\n",
}


def test_data_are_found_by_folder_and_by_name(tmp_path, monkeypatch):
    here = written(tmp_path / "here", **TU)
    (tmp_path / "roots").mkdir()
    there = written(tmp_path / "roots" / "TINY", **TU)
    named = [DataSource("TINY", str(root)).load() for root in (here, there.parent, there)]
    assert named[0] == named[1] == named[2] == DataSource(str(here)).load(), "the folder itself"
    assert named[0].remarks == ("1 self-loops are left out: flips concern pairs of distinct nodes",)
    with pytest.raises(fp.InputError, match="found there: TINY"):
        fp.datasets.tu("OTHER", here)
    with pytest.raises(fp.InputError, match=r"--root .*roots --data TINY"):
        DataSource(str(there.parent)).load()
    written(here, OTHER_A__txt="1, 2\n")
    with pytest.raises(fp.InputError, match=r"several TU data sets .*OTHER, TINY"):
        DataSource(str(here)).load()
    monkeypatch.chdir(tmp_path)
    write_graphs(tmp_path / "mine")
    assert len(DataSource(str(tmp_path / "mine")).load()) == len(DataSource("mine").load()) == 12


def test_a_directed_tu_set_is_symmetrised(tmp_path):
    written(tmp_path, **TU | {"TINY_A__txt": "1, 2\n2, 1\n2, 3\n4, 5\n5, 4\n"})
    with pytest.raises(fp.InputError, match=r"A\.txt: the edge 2, 3 has no counterpart.*--symmetrise"):
        fp.datasets.tu("TINY", tmp_path)
    data = fp.datasets.tu("TINY", tmp_path, symmetrise=True)
    assert data[0].edges.tolist() == [[0, 1], [1, 2]]
    assert data.remarks == ("1 edges are listed in one direction only, and taken as undirected",)


SPLITS = Path(__file__).parents[2] / "benchmarks" / "splits"


def test_what_is_written_is_read_and_is_what_folds_makes(tmp_path):
    data = topologies(80)
    write_folds(tmp_path / "f.json", data)
    parts = read_folds(tmp_path / "f.json", data)
    for ours, theirs in zip(parts, folds(data, number=10, validation=True), strict=True):
        for part in ("train_indices", "validation_indices", "test_indices"):
            np.testing.assert_array_equal(getattr(ours, part), getattr(theirs, part))
    tested = np.concatenate([part.test_indices for part in parts])
    assert sorted(tested.tolist()) == list(range(80))
    assert all(np.bincount(part.test.labels, minlength=8).max() <= 2 for part in parts)


def test_the_published_folds_of_the_paper_s_graphs_are_theirs(tmp_path):
    data = topologies(480, seed=0)
    read_folds(SPLITS / "topologies.json", data)
    write_folds(tmp_path / "f.json", data)
    assert (tmp_path / "f.json").read_bytes() == (SPLITS / "topologies.json").read_bytes()
    with pytest.raises(InputError, match="belongs to other graphs"):
        read_folds(SPLITS / "topologies.json", topologies(480, seed=1))
    for path in SPLITS.glob("*.json"):
        content = json.loads(path.read_text())
        assert len(content["folds"]) == content["graphs"]
        assert set(content["folds"]) == set("0123456789")


@pytest.mark.parametrize("text", ["", "{}", '{"folds": "01x", "seed": 0}', '{"folds": 3, "seed": 0}'])
def test_a_file_that_is_none_is_refused(text, tmp_path):
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(InputError, match="is not a file of folds"):
        read_folds(tmp_path / "f.json", topologies(16))
    with pytest.raises(InputError, match="cannot be read"):
        read_folds(tmp_path / "gone.json", topologies(16))
    with pytest.raises(InputError, match="ten folds need at least ten graphs"):
        write_folds(tmp_path / "g.json", topologies(8))


SQUARE = "# a square and a node by itself\n0 1\n1,2\n2 3\n3 0\n7\n"
NODES = [{"id": "a", "weight": 1.5, "kind": "C", "charge": 0}, {"id": "b", "weight": 2, "kind": "N", "charge": 1}]
LINKS = {"directed": False, "nodes": NODES, "links": [{"source": "b", "target": "a"}]}


def write(folder, labels="file,label\nsquare.edges,ring\n", **files: str):
    return written(folder, labels__csv=labels, square__edges=SQUARE, **files)


def test_edge_lists_and_json_together(tmp_path):
    labels = "file,label\nsquare.edges, ring\npair.json,pair\nnames.csv,pair\nnumbers.txt,pair\n"
    files = {"pair__json": json.dumps(LINKS), "names__csv": "source,target\ny,x\ny,z\n", "numbers__txt": "10 2\n2 1\n"}
    write(tmp_path / "mine", labels, **files)
    data = fp.datasets.folder(tmp_path / "mine")
    assert (data.name, data.class_names, data.labels.tolist()) == ("mine", ("pair", "ring"), [1, 0, 0, 0])
    assert [(graph.num_nodes, graph.num_edges) for graph in data] == [(5, 4), (2, 1), (3, 2), (3, 2)]
    assert data[0].edges.tolist() == [[0, 1], [0, 3], [1, 2], [2, 3]]
    assert data[0].degrees[4] == 0
    assert data[2].edges.tolist() == [[0, 1], [0, 2]], "names are numbered as they appear"
    assert data[3].edges.tolist() == [[0, 1], [1, 2]], "whole numbers are sorted"
    assert all(graph.node_features is None for graph in data)  # edge lists have no attributes
    assert [graph.name for graph in data] == ["square.edges", "pair.json", "names.csv", "numbers.txt"]


GRAPHML = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="{kind}">{body}</graph></graphml>'
TWO = '<node id="a"/><node id="b"/><edge source="a" target="b"/>'
LOOP = json.dumps(LINKS | {"links": [{"source": "a", "target": "a"}]})
BROKEN: list[tuple[str, dict[str, str], str]] = [
    ("file,label\n", {}, "labels.csv lists no graph"),
    ("square.edges\n", {}, "labels.csv, line 1: expected file,label; got 'square.edges'"),
    ("file,label\nsquare.edges,0\nsquare.edges,1\n", {}, "labels.csv, line 3: square.edges is listed twice"),
    ("../square.edges,0\n", {}, "labels.csv, line 1: ../square.edges lies outside the folder"),
    ("gone.edges,0\n", {}, "gone.edges is missing"),
    ("square.edges,0\n", {}, "must name at least two classes; got only '0'"),
    ("\nsquare.png,0\n", {}, "labels.csv, line 2: square.png is of no known kind"),
    ("a.txt,0\n", {"a__txt": "1 2\n1 2 0.5\n"}, "a.txt, line 2: expected two nodes, u v; got '1 2 0.5'"),
    ("a.txt,0\n", {"a__txt": "1 2\n\n3 3\n"}, "a.txt, line 3: node 3 is joined to itself"),
    ("a.txt,0\n", {"a__txt": "# nothing\n"}, "a.txt holds no node"),
    ("a.json,0\n", {"a__json": '{"nodes": [\n}'}, "a.json: not JSON that can be read: Expecting value: line 2"),
    ("a.json,0\n", {"a__json": "[]"}, "a.json is not node-link JSON"),
    ("a.json,0\n", {"a__json": json.dumps(LINKS | {"directed": True})}, "got one directed (--symmetrise"),
    ("a.json,0\n", {"a__json": json.dumps(LINKS | {"nodes": [{}]})}, 'nodes[0] must be an object with an "id" of its own'),
    ("a.json,0\n", {"a__json": json.dumps(LINKS | {"nodes": [NODES[0], NODES[0]]})}, "nodes[1] must be an object"),
    ("a.json,0\n", {"a__json": json.dumps(LINKS | {"links": [{"source": "a"}]})}, "edge 0 must join"),
    ("a.json,0\n", {"a__json": json.dumps(LINKS | {"links": [{"source": "a", "target": "q"}]})}, "edge 0 must join"),
    ("a.json,0\nsquare.edges,1\n", {"a__json": LOOP}, "a.json: edges must not contain self-loops"),
    ("a.graphml,0\n", {"a__graphml": "<graphml>\n<graph"}, "a.graphml is not GraphML"),
    ("a.graphml,0\n", {"a__graphml": "<html></html>"}, "a.graphml is not GraphML"),
    ("a.graphml,0\n", {"a__graphml": GRAPHML.format(kind="directed", body=TWO)}, "undirected simple graph; got one directed"),
    ("a.json,0\nb.json,1\n", {
        "a__json": json.dumps({"nodes": [{"id": 0, "x": [1, 2]}], "edges": []}),
        "b__json": json.dumps({"nodes": [{"id": 0, "x": [1]}], "edges": []}),
    }, "b.json: x of node 0 must be 2 numbers, as at the other nodes or in the data of the model; got [1]"),
]  # fmt: skip


@pytest.mark.parametrize(("labels", "files", "sentence"), BROKEN, ids=[row[2] for row in BROKEN])
def test_what_cannot_be_read_is_named(tmp_path, labels, files, sentence):
    write(tmp_path, labels, **files)
    with pytest.raises(fp.InputError, match=r"\(.*\)$") as caught:
        fp.datasets.folder(tmp_path)
    assert sentence in str(caught.value)
    (tmp_path / "labels.csv").unlink()
    with pytest.raises(fp.InputError, match=r"labels\.csv is missing"):
        fp.datasets.folder(tmp_path)
    with pytest.raises(fp.InputError, match="is not a folder"):
        fp.datasets.folder(tmp_path / "no")


def test_names_that_are_the_same_number_are_ordered_alike_in_every_process(tmp_path):
    for index in range(8):
        (tmp_path / f"{index}.edges").write_text("0 1\n")
    written = ["1", "01", "+1", "001", "0", "00", "-0", "2"]
    (tmp_path / "labels.csv").write_text("".join(f"{index}.edges,{name}\n" for index, name in enumerate(written)))
    assert fp.datasets.folder(tmp_path).class_names == ("-0", "0", "00", "+1", "001", "01", "1", "2")


def saved_with(folder, **metadata: object):
    models.save(models.GCN(in_features=1, num_classes=8, hidden=2, seed=0), folder, metadata=metadata)
    return models.load_metadata(folder)


def test_a_folder_called_like_the_data_does_not_come_between(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_graphs(tmp_path / "topologies")
    source = DataSource("topologies:16")
    assert (len(source.load()), source.load() == DataSource("topologies:16", data_seed=1).load()) == (16, False)
    assert source.metadata(source.load())["data"] == "topologies:16"
    assert DataSource("topologies").load().num_classes == 8
    write_graphs(tmp_path / "TOY")
    with pytest.raises(fp.InputError, match="no files of TOY under tu"):
        DataSource("TOY", root="tu").load()


def test_a_model_folder_remembers_its_data_and_split(tmp_path, monkeypatch):
    write_graphs(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    source = DataSource("mine", split_seed=7, test=0.25, validation=0.25)
    graphs = source.load()
    saved = saved_with(tmp_path / "model", **source.metadata(graphs))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again, same = model_data(saved.metadata)
    assert same == graphs
    assert again.split(same).test_indices.tolist() == source.split(graphs).test_indices.tolist()
    other, _ = model_data(saved.metadata, split_seed=8)
    assert other.split_seed == 8
    (tmp_path / "mine" / "0.edges").write_text("0 1\n")
    with pytest.raises(fp.InputError, match="are not those that the model was trained on"):
        model_data(saved.metadata)
    with pytest.raises(fp.InputError, match="are not those that the model was trained on"):
        model_data(saved.metadata, data="../mine")


def test_the_fingerprint_sees_edges_features_labels_and_names():
    base = fp.Graph(3, [(0, 1)], np.ones((3, 1), np.float32), 0)
    variants = [
        [base],
        [base, base],
        [base.replaced(edges=[(0, 2)])],
        [base.replaced(label=1)],
        [base.replaced(node_features=np.zeros((3, 1), np.float32))],
        [base.replaced(node_features=None)],
    ]
    hashes = [fingerprint(fp.datasets.Dataset(graphs, class_names=["a", "b"])) for graphs in variants]
    hashes.append(fingerprint(fp.datasets.Dataset([base], class_names=["a", "c"])))
    assert len(set(hashes)) == len(hashes)
    assert hashes[0] == fingerprint(fp.datasets.Dataset([base], class_names=["a", "b"], name="other"))


NAN = float("nan")


def write_table(folder, graphs, **edge: Any):
    """A folder of paths with these nodes, in two classes."""
    folder.mkdir(exist_ok=True)
    for name, nodes in graphs.items():
        content = {
            "nodes": [{"id": index, **node} for index, node in enumerate(nodes)],
            "edges": [{"source": index, "target": index + 1, **edge} for index in range(len(nodes) - 1)],
        }
        (folder / f"{name}.json").write_text(json.dumps(content))
    lines = [f"{name}.json,{'odd' if place % 2 else 'even'}\n" for place, name in enumerate(graphs)]
    (folder / "labels.csv").write_text("".join(lines))
    return folder


def atoms(text, **more: Any):
    return [{"element": letter, **more} for letter in text]


def test_texts_become_one_hot_columns_with_their_names(tmp_path):
    data = fp.datasets.folder(write_table(tmp_path, {"a": atoms("CCO", mass=1), "b": atoms("NC", mass=2.5)}))
    assert data.feature_names == ["element=C", "element=N", "element=O", "mass"]
    features = data[1].node_features
    assert features.tolist() == [[0, 1, 0, 2.5], [1, 0, 0, 2.5]]
    for copy in (data[:1], data.subset([1]), data.with_classes(["odd", "even"]), pickle.loads(pickle.dumps(data))):
        assert copy.feature_names == data.feature_names


def test_everything_that_is_ignored_is_said_with_the_reason(tmp_path):
    first = [
        {"element": "C", "mass": 1, "name": "p", "flag": "yes", "odd": 1, "only": 3},
        {"element": "O", "mass": 2, "name": "q", "flag": "yes", "odd": "two"},
        {"element": "C", "mass": 3, "name": "r", "flag": "yes", "odd": 3},
    ]
    second = [{"element": "C", "mass": 1, "name": "s", "flag": "yes", "odd": 1, "only": 1}]
    data = fp.datasets.folder(write_table(tmp_path, {"a": first, "b": second}, bond=2))
    words = {attribute.name: attribute.words for attribute in data.attributes}
    assert words == {
        "element": "2 categories, one-hot: C, O",
        "flag": "ignored: 'yes' at every node",
        "mass": "a number",
        "name": "ignored: 4 different texts at 4 nodes: names, not categories",
        "odd": "ignored: neither numbers nor texts at every node: 'two'",
        "only": "ignored: missing at 2 of 4 nodes, first at node 1 of a.json",
        "bond (of edges)": "ignored: an edge that the noise adds has none",
    }
    for name, what in words.items():
        assert any(name in line and what in line for line in data.describe_features().splitlines())


@pytest.mark.parametrize(
    ("mass", "words"),
    [(NAN, r"finite, .*; got nan \(fill it in"), (1e40, r"finite, at most 3.4e\+38 in single precision; got 1e\+40")],
)
def test_a_number_that_is_no_feature_is_refused_with_its_node(mass, words, tmp_path):
    write_table(tmp_path, {"a": atoms("CO", mass=1), "b": [*atoms("C", mass=1), *atoms("O", mass=mass)]})
    with pytest.raises(fp.InputError, match=rf"b\.json: mass of node 1 must be {words}"):
        fp.datasets.folder(tmp_path)


def test_the_attribute_x_is_taken_alone(tmp_path):
    data = fp.datasets.folder(write_table(tmp_path, {"a": atoms("CO", x=[1, 2]), "b": atoms("CC", x=[0, 3])}))
    assert data.feature_names == ["x[0]", "x[1]"]
    assert np.array_equal(data[1].node_features, [[0, 3], [0, 3]])
    assert "x is there, and is taken alone" in data.describe_features()


def test_other_data_get_the_columns_of_the_model(tmp_path):
    like = fp.datasets.folder(write_table(tmp_path / "one", {"a": atoms("CCO"), "b": atoms("NC")})).attributes
    other = write_table(tmp_path / "two", {"a": atoms("OO"), "b": atoms("O")})
    features = fp.datasets.folder(other, like=like)[0].node_features
    assert features.tolist() == [[0, 0, 1], [0, 0, 1]]
    assert fp.datasets.folder(other, like=like).remarks == ()
    write_table(tmp_path / "two", {"a": atoms("OO", mass=1), "b": atoms("O")})
    (remark,) = fp.datasets.folder(other, like=like).remarks
    assert remark == "attributes that the model's data do not have, and that are not read: mass"
    write_table(tmp_path / "two", {"a": atoms("OF"), "b": atoms("O")})
    with pytest.raises(fp.InputError, match=r"element of node 1 must be one of C, N, O, .*; got 'F'"):
        fp.datasets.folder(other, like=like)
    write_table(tmp_path / "two", {"a": atoms("OO"), "b": [{}]})
    with pytest.raises(fp.InputError, match=r"b\.json: element of node 0 .*; it is missing"):
        fp.datasets.folder(other, like=like)


def test_describe(tmp_path, monkeypatch, capsys):
    data = write_table(
        tmp_path / "mine", {"a": atoms("CCO", bad="v"), "b": atoms("OCC", bad="v"), "c": atoms("NC", bad="v")}
    )
    done = call(monkeypatch, capsys, "describe", "--data", data)
    assert done.code == 0, done.err
    for part in ("even", "odd", "element  3 categories, one-hot: C, N, O", "bad      ignored: 'v' at every node"):
        assert part in done.out
    assert "2 graphs also occur in another class" in done.out
    summary = json.loads(call(monkeypatch, capsys, "describe", "--data", data, "--json").out)
    assert summary["classes"] == {"even": 2, "odd": 1}
    assert summary["in_several_classes"] == 2
    assert summary["attributes"][1] == {"name": "element", "columns": 3, "categories": ["C", "N", "O"], "remark": ""}
    assert (summary["different_graphs"], summary["repeated_graphs"]) == (2, 2), "one molecule, read from both ends"
    reach = {entry["title"]: entry["radius"] for entry in summary["defences"]}
    assert reach["keep 0.8"]["1,000 samples"] <= reach["keep 0.8"]["100,000 samples"]
    assert "2 graphs occur more than once, with other node numbers: 2 of 3 are different" in done.out
    assert f"flipproof protect --data {data} --radius 1" in done.out


def test_the_reach_that_is_described_is_that_of_votes_which_all_agree():
    graphs = fp.datasets.topologies(8)
    summary = described(graphs)
    assert summary["remarks"] == []
    entry = next(entry for entry in summary["defences"] if entry["title"] == "keep 0.9")
    usual = next(graph for graph in graphs if graph.num_nodes == summary["usual_nodes"])
    smooth = fp.SmoothedClassifier(lambda shown: [3] * len(shown), fp.EdgeNoise(keep=0.9), num_classes=8)
    certificate = smooth.certify(usual, samples=1000, seed=0, method="votes")
    assert entry["radius"]["1,000 samples"] == certificate.radius > 0
    added = 0.1 * sum(graph.max_adds for graph in graphs) / 8
    assert f"adds {added:.1f} and removes" in entry["effect"]
