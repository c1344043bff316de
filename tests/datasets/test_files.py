"""Files as users have them: GEXF, one table for many graphs, SMILES, directed graphs, TU files in one folder; nothing ignored
without a word."""

from __future__ import annotations

from pathlib import Path

import networkx
import pytest

import flipproof as fp
from flipproof.datasets.sources import DataSource

RING = fp.Graph(4, [(0, 1), (1, 2), (2, 3), (0, 3)])


def written(folder: Path, **files: str) -> Path:
    """A folder with these files; two underscores stand for a dot."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_gexf_with_attributes(tmp_path: Path) -> None:
    graph = networkx.cycle_graph(4)
    networkx.set_node_attributes(graph, {0: 1.5, 1: 2.5, 2: 3.5, 3: 4.5}, "mass")
    networkx.set_edge_attributes(graph, 2.0, "bond")
    written(tmp_path, labels__csv="a.gexf,ring\nb.gexf,path\n")
    networkx.write_gexf(graph, tmp_path / "a.gexf")
    networkx.write_gexf(graph, tmp_path / "b.gexf")
    data = fp.datasets.folder(tmp_path)
    assert data[0].topology == RING.topology
    assert data.feature_names == ["mass"]
    assert data[1].node_features.tolist() == [[1.5], [2.5], [3.5], [4.5]]
    ignored = {attribute.name: attribute.remark for attribute in data.attributes if not attribute.columns}
    assert ignored == {"bond (of edges)": "an edge that the noise adds has none"}


@pytest.mark.parametrize("kind", ["graphml", "gexf", "json"])
def test_a_directed_file_is_refused_or_symmetrised(kind: str, tmp_path: Path) -> None:
    directed = networkx.DiGraph([(0, 1), (1, 2), (2, 1), (2, 3), (3, 0)])
    written(tmp_path, labels__csv=f"a.{kind},0\nb.edges,1\n", b__edges="0 1\n")
    if kind == "json":
        import json

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


def test_one_table_of_edges_for_many_graphs(tmp_path: Path) -> None:
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
def test_what_is_wrong_in_a_table_is_named(files: dict[str, str], sentence: str, tmp_path: Path) -> None:
    written(tmp_path, **TABLE | files)
    with pytest.raises(fp.InputError, match=r"\(.*\)$") as caught:
        fp.datasets.folder(tmp_path)
    assert sentence in str(caught.value)


def test_files_that_are_not_listed_are_named(tmp_path: Path) -> None:
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


def test_tu_files_in_the_root_itself(tmp_path: Path) -> None:
    here = written(tmp_path / "here", **TU)
    (tmp_path / "roots").mkdir()
    there = written(tmp_path / "roots" / "TINY", **TU)
    named = [DataSource("TINY", str(root)).load() for root in (here, there.parent, there)]
    assert [graph.topology for graph in named[0]] == [graph.topology for graph in named[1]]
    assert named[0] == named[1] == named[2]
    assert DataSource(str(here)).load() == named[0], "the folder itself"
    assert named[0].remarks == ("1 self-loops are left out: flips concern pairs of distinct nodes",)
    with pytest.raises(fp.InputError, match="found there: TINY"):
        fp.datasets.tu("OTHER", here)
    with pytest.raises(fp.InputError, match=r"--root .*roots --data TINY"):
        DataSource(str(there.parent)).load()
    written(here, OTHER_A__txt="1, 2\n")
    with pytest.raises(fp.InputError, match=r"several TU data sets .*OTHER, TINY"):
        DataSource(str(here)).load()


def test_a_directed_tu_set_is_symmetrised(tmp_path: Path) -> None:
    written(tmp_path, **TU | {"TINY_A__txt": "1, 2\n2, 1\n2, 3\n4, 5\n5, 4\n"})
    with pytest.raises(fp.InputError, match=r"line 3: the edge 2, 3 has no counterpart.*--symmetrise"):
        fp.datasets.tu("TINY", tmp_path)
    data = fp.datasets.tu("TINY", tmp_path, symmetrise=True)
    assert data[0].edges.tolist() == [[0, 1], [1, 2]]
    assert data.remarks == ("1 edges are listed in one direction only, and taken as undirected",)


def test_smiles_without_rdkit_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "rdkit", None)
    written(tmp_path, molecules__csv="smiles,label\nCCO,0\n")
    with pytest.raises(ImportError, match=r"pip install rdkit"):
        fp.datasets.smiles(tmp_path / "molecules.csv")


def test_smiles(tmp_path: Path) -> None:
    pytest.importorskip("rdkit", reason="RDKit is not installed (pip install '.[molecules]')")
    text = "smiles,label,source\nCCO,drink,a\nc1ccccc1,solvent,b\nC[N+](C)(C)C.[Cl-],solvent,c\n"
    written(tmp_path, molecules__csv=text)
    data = DataSource(str(tmp_path / "molecules.csv")).load()
    assert data.class_names == ("drink", "solvent")
    assert [(graph.num_nodes, graph.num_edges) for graph in data] == [(3, 2), (6, 6), (6, 4)]
    assert data.feature_names == ["charge", "element=C", "element=Cl", "element=N", "element=O"]
    assert data[2].node_features[1].tolist() == [1, 0, 0, 1, 0]
    ignored = {attribute.name for attribute in data.attributes if not attribute.columns}
    assert {"bond type (of edges)", "hydrogens, aromaticity, rings"} <= ignored
    assert data.remarks == ("columns of molecules.csv that are not read: source",)
    assert [graph.name for graph in data] == ["CCO", "c1ccccc1", "C[N+](C)(C)C.[Cl-]"]
    written(tmp_path, molecules__csv=text + "CC(,drink,d\n")
    with pytest.raises(fp.InputError, match=r"line 5: not a molecule that RDKit can read: 'CC\('"):
        fp.datasets.smiles(tmp_path / "molecules.csv")
