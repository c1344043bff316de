"""Graphs with a node removed, added or changed."""

import numpy as np

from flipproof import Graph
from flipproof.certificates.certificate import NODE_CHANGES
from flipproof.defences.changed_nodes import changed_graphs, number_of_changes
from support.changed_nodes import one_change, random_graph


def test_every_change_is_the_one_made_by_hand():
    """Features, frozen pairs, label and name follow the nodes; a node never changes to what it is."""
    rng = np.random.default_rng(0)
    for nodes in (1, 2, 5):
        graph = random_graph(rng, nodes, labels=3, frozen=0.3).replaced(label=1, name="it")
        for change in NODE_CHANGES:
            found = list(changed_graphs(graph, change, np.eye(3)))
            expected = [one for one in one_change(graph, change, 3) if not same(one, graph)]
            assert len(found) == len(expected)
            assert all(same(*pair) for pair in zip(found, expected, strict=True))
            assert all((one.label, one.name) == (1, "it") for one in found)
        assert number_of_changes(nodes, 3, 1) == nodes + 3 + 2 * nodes


def same(first, second):
    """Whether nodes, edges, frozen pairs and features are the same, one by one."""
    return first.topology == second.topology and np.array_equal(first.node_features, second.node_features)


def test_features_keep_what_other_kinds_need():
    """Whole numbers become floating where a kind is."""
    graph = Graph(2, [(0, 1)], np.array([[1], [2]]))
    for change in ("added", "changed"):
        assert any((one.node_features == 0.5).any() for one in changed_graphs(graph, change, np.array([[0.5]])))
