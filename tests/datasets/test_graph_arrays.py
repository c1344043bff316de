"""Graphs in common arrays are the graphs that objects would be, and nothing of them stays in memory."""

import gc
import sys
import tracemalloc

import numpy as np
import pytest

from flipproof import Graph
from flipproof.datasets import tu
from flipproof.datasets.dataset import Dataset, GraphArrays
from flipproof.datasets.sources import fingerprint

LISTS = [(3, [(1, 0), (1, 2), (0, 1)], 1), (1, [], 0), (4, [(3, 2), (0, 3)], 2), (2, [], 0)]


def arrays(features=None):
    owners = [place for place, (_, edges, _) in enumerate(LISTS) for _ in edges]
    edges = np.array([pair for _, edges, _ in LISTS for pair in edges])
    sizes, labels = (np.array([entry[at] for entry in LISTS]) for at in (0, 2))
    return GraphArrays(sizes, np.array(owners), edges, labels, features, name="g")


def objects(features=None):
    starts = np.cumsum([0, *(nodes for nodes, _, _ in LISTS)])
    return [
        Graph(nodes, edges, None if features is None else features[start : start + nodes], label, name=f"g-{place}")
        for place, ((nodes, edges, label), start) in enumerate(zip(LISTS, starts, strict=False))
    ]


@pytest.mark.parametrize("features", [None, np.arange(20.0, dtype=np.float32).reshape(10, 2), np.arange(10)[:, None]])
def test_the_same_graphs(features):
    found, wanted = arrays(features), objects(features)
    assert list(found) == wanted
    assert [graph.name for graph in found] == [graph.name for graph in wanted]
    assert [graph.edges.dtype for graph in found] == [np.int64] * len(wanted)
    data, same = Dataset(found), Dataset(wanted)
    assert data == same
    assert hash(data) == hash(same)
    assert fingerprint(data) == fingerprint(same)
    assert data.num_node_features == same.num_node_features
    assert data.describe() == same.describe()
    assert data[1:] == same[1:]
    assert data.subset([2, 0]) == same.subset([2, 0])
    names = ["c", "b", "a"]
    renamed = [Dataset(graphs, class_names=names[::-1]).with_classes(names) for graphs in (found, wanted)]
    assert renamed[0] == renamed[1]
    assert renamed[0].labels.tolist() == [1, 2, 0, 2]
    assert dict(data.numbered([3, 1])) == dict(same.numbered([3, 1]))


def test_read_only():
    with pytest.raises(ValueError, match="read-only"):
        arrays()[0].edges[0, 0] = 2


def test_large_sets_are_not_built_at_once(tmp_path, monkeypatch):
    count, folder = 300, tmp_path / "RINGS"
    folder.mkdir()
    rows = [(20 * graph + node + 1, 20 * graph + (node + 1) % 20 + 1) for graph in range(count) for node in range(20)]
    (folder / "RINGS_A.txt").write_text("".join(f"{u}, {v}\n{v}, {u}\n" for u, v in rows))
    (folder / "RINGS_graph_indicator.txt").write_text("".join(f"{place // 20 + 1}\n" for place in range(20 * count)))
    (folder / "RINGS_graph_labels.txt").write_text("".join(f"{place % 2}\n" for place in range(count)))
    as_objects = tu("RINGS", tmp_path)
    monkeypatch.setattr(sys.modules[tu.__module__], "_MOST_OBJECTS", 10)
    as_arrays = tu("RINGS", tmp_path)
    assert as_arrays == as_objects
    assert isinstance(as_arrays.graphs, GraphArrays)

    def grown(data):
        gc.collect()
        tracemalloc.start()
        fingerprint(data)  # asks for every graph and for something that a graph keeps
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return size

    fresh = Dataset([graph.replaced() for graph in as_objects], class_names=as_objects.class_names)
    # of several sets read anew: what other threads of the process take meanwhile is not theirs
    assert min(grown(tu("RINGS", tmp_path)) for _ in range(4)) < 20 * count
    assert grown(fresh) > 80 * count
