"""A folder of the user's own graphs: every format, and one sentence for what cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import networkx
import numpy as np
import pytest

import flipproof as fp

SQUARE = "# a square and a node by itself\n0 1\n1,2\n2 3\n3 0\n7\n"
NODES = [{"id": "a", "weight": 1.5, "kind": "C", "charge": 0}, {"id": "b", "weight": 2, "kind": "N", "charge": 1}]
LINKS = {"directed": False, "nodes": NODES, "links": [{"source": "b", "target": "a"}]}


def write(folder: Path, labels: str = "file,label\nsquare.edges,ring\n", **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "labels.csv").write_text(labels)
    (folder / "square.edges").write_text(SQUARE)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_edge_lists_and_json_together(tmp_path: Path) -> None:
    labels = "file,label\nsquare.edges, ring\npair.json,pair\nnames.csv,pair\n"
    write(tmp_path / "mine", labels, pair__json=json.dumps(LINKS), names__csv="source,target\nx,y\ny,z\n")
    data = fp.datasets.folder(tmp_path / "mine")
    assert (data.name, data.class_names, data.labels.tolist()) == ("mine", ("pair", "ring"), [1, 0, 0])
    assert [(graph.num_nodes, graph.num_edges) for graph in data] == [(5, 4), (2, 1), (3, 2)]
    assert data[0].edges.tolist() == [[0, 1], [0, 3], [1, 2], [2, 3]]
    assert data[0].degrees[4] == 0
    assert all(graph.node_features is None for graph in data)  # edge lists have no attributes
    assert [graph.name for graph in data] == ["square.edges", "pair.json", "names.csv"]


def test_graphml_as_networkx_writes_it(tmp_path: Path) -> None:
    graph = networkx.cycle_graph(4)
    networkx.set_node_attributes(graph, {node: float(node**2) for node in graph}, "size")
    networkx.set_node_attributes(graph, "C", "element")
    write(tmp_path, "ring.graphml,10\nalso.graphml,9\n")
    for name in ("ring", "also"):
        networkx.write_graphml(graph, tmp_path / f"{name}.graphml")
    data = fp.datasets.folder(tmp_path)
    assert data.class_names == ("9", "10")  # numbers sort as numbers
    assert data[0] == fp.Graph(4, [(0, 1), (1, 2), (2, 3), (0, 3)], np.array([[0], [1], [4], [9]], np.float32), 1)


def test_whole_numbers_are_sorted_and_other_names_keep_their_order(tmp_path: Path) -> None:
    write(tmp_path, "a.txt,0\nb.txt,1\n", a__txt="10 2\n2 1\n", b__txt="q p\np r\n")
    data = fp.datasets.folder(tmp_path)
    assert [graph.edges.tolist() for graph in data] == [[[0, 1], [1, 2]], [[0, 1], [1, 2]]]


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
    ("a.json,0\n", {"a__json": '{"nodes": [\n}'}, "a.json, line 2: not JSON"),
    ("a.json,0\n", {"a__json": "[]"}, "a.json is not node-link JSON"),
    ("a.json,0\n", {"a__json": json.dumps(LINKS | {"directed": True})}, "got one directed (--symmetrise"),
    ("a.json,0\n", {"a__json": json.dumps(LINKS | {"nodes": [{}]})}, 'nodes[0] must be an object with an "id"'),
    ("a.json,0\n", {"a__json": json.dumps(LINKS | {"nodes": [NODES[0], NODES[0]]})}, "nodes[1] has the id 'a'"),
    ("a.json,0\n", {"a__json": json.dumps(LINKS | {"links": [{"source": "a"}]})}, "edge 0 must join two nodes"),
    ("a.json,0\n", {"a__json": json.dumps(LINKS | {"links": [{"source": "a", "target": "q"}]})}, "edge 0 must join two nodes"),
    ("a.json,0\nsquare.edges,1\n", {"a__json": LOOP}, "a.json: edges must not contain self-loops"),
    ("a.graphml,0\n", {"a__graphml": "<graphml>\n<graph"}, "a.graphml, line 2: not GraphML"),
    ("a.graphml,0\n", {"a__graphml": "<html></html>"}, "a.graphml is not GraphML"),
    ("a.graphml,0\n", {"a__graphml": GRAPHML.format(kind="directed", body=TWO)}, "undirected simple graph; got one directed"),
    ("a.json,0\nb.json,1\n", {
        "a__json": json.dumps({"nodes": [{"id": 0, "x": [1, 2]}], "edges": []}),
        "b__json": json.dumps({"nodes": [{"id": 0, "x": [1]}], "edges": []}),
    }, "b.json: x of node 0 must be 2 numbers, as at the nodes before; got [1]"),
]  # fmt: skip


@pytest.mark.parametrize(("labels", "files", "sentence"), BROKEN, ids=[row[2] for row in BROKEN])
def test_what_cannot_be_read_is_named(tmp_path: Path, labels: str, files: dict[str, str], sentence: str) -> None:
    write(tmp_path, labels, **files)
    with pytest.raises(fp.InputError, match=r"\(.*\)$") as caught:
        fp.datasets.folder(tmp_path)
    assert sentence in str(caught.value)


def test_a_folder_without_table_and_no_folder(tmp_path: Path) -> None:
    with pytest.raises(fp.InputError, match=r"labels\.csv is missing"):
        fp.datasets.folder(tmp_path)
    with pytest.raises(fp.InputError, match="is not a folder"):
        fp.datasets.folder(tmp_path / "no")


def test_names_that_are_the_same_number_are_ordered_alike_in_every_process(tmp_path: Path) -> None:
    for index in range(8):
        (tmp_path / f"{index}.edges").write_text("0 1\n")
    written = ["1", "01", "+1", "001", "0", "00", "-0", "2"]
    (tmp_path / "labels.csv").write_text("".join(f"{index}.edges,{name}\n" for index, name in enumerate(written)))
    assert fp.datasets.folder(tmp_path).class_names == ("-0", "0", "00", "+1", "001", "01", "1", "2")
