"""Local networks under removed, added and changed nodes: all attacks on small graphs, and what is refused."""

import numpy as np
import pytest
import torch

import flipproof as fp
from flipproof import Graph, InputError
from flipproof.certificates.certificate import NODE_CHANGES, NodeRadii
from flipproof.defences.changed_nodes import changed_graphs, number_of_changes
from flipproof.defences.local import LocalRequest
from flipproof.graphs import pairs_of_slots
from flipproof.models import Local
from support.changed_nodes import CASES, compared, one_change, random_graph, removed_by_hand, true_radius, wild


@pytest.mark.parametrize("name", [name for name in CASES if name != "edge labels"])
def test_no_attack_on_nodes_and_edges_inside_the_radius(name):
    """Every change of a node with every set of flips: no radius above the truth, and a change alone is decided exactly."""
    found = list(compared(networks=6, nodes=3, **CASES[name]))
    for radius, truth in found:
        assert radius <= truth
        assert (radius < 0) == (truth < 0)
    assert len(found) >= 9
    assert max(radius for radius, _ in found) > 0


@pytest.mark.parametrize("nodes", [2, pytest.param(3, marks=pytest.mark.guarantee)])
def test_two_changes(nodes):
    rng = np.random.default_rng(5)
    radii = []
    for seed in range(2):
        local = fp.LocalClassifier(wild(2, strength=0.05, seed=seed), trust_features=True)
        graph = random_graph(rng, nodes, labels=2)
        one, two = (local.certify(graph, nodes=changes).node_radii for changes in (1, 2))
        assert two.nodes == 2
        for change in NODE_CHANGES:
            radius, truth = getattr(two, change), true_radius(local, graph, change, nodes=2, labels=2)
            assert radius <= min(truth, getattr(one, change))
            assert (radius < 0) == (truth < 0)
            radii.append(radius)
    assert max(radii) >= 0


def test_the_number_of_nodes_is_part_of_what_the_network_sees():
    """A network that reads nothing but the number of nodes: no view of a node changes, and the answer does."""
    model = Local(0, 2, counts_only=True).eval()
    model.table.sizes.copy_(torch.arange(1, len(model.table.sizes) + 1))
    model.table.classes[20:] = 1
    local = fp.LocalClassifier(model)
    assert [local.predict(Graph(nodes, [])) for nodes in (20, 21)] == [0, 1]
    before, after = (local.certify(Graph(nodes, []), nodes=1).node_radii for nodes in (20, 21))
    assert before.added == after.removed == -1
    assert before.changed >= 0


def test_a_single_node_cannot_be_removed_and_features_that_are_not_read_cannot_matter():
    local = fp.LocalClassifier(wild(seed=1))
    alone = local.certify(Graph(1, []), nodes=1)
    assert alone.node_radii.removed == alone.radius
    graph = Graph(4, [(0, 1), (1, 2)])
    plain, labelled = (local.certify(one, nodes=1) for one in (graph, graph.replaced(node_features=np.eye(4))))
    assert plain.node_radii == labelled.node_radii
    assert plain.node_radii.changed == plain.radius


def test_an_answer_that_abstains_withstands_nothing():
    model = Local(0, 2, seed=0).eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights.zero_()
    certificate = fp.LocalClassifier(model).certify(Graph(3, [(0, 1)]), nodes=1)
    assert certificate.abstains
    assert certificate.node_radii == NodeRadii(1, -1, -1, -1)


def test_graphs_with_the_same_views_can_differ_under_attack():
    """Without the end of either longer leg of a spider the degrees are the same. In one of these two trees the nodes of degree 2
    are joined already; in the other they are not, and joining them is the only flip that changes the answer here.
    """
    spider = Graph(7, [(6, 0), (6, 1), (1, 2), (6, 3), (3, 4), (4, 5)])
    first, second = (removed_by_hand(spider, leaf) for leaf in (2, 5))
    assert sorted(first.degrees) == sorted(second.degrees)
    local = fp.LocalClassifier(wild(strength=0.18, seed=659))
    certificate = local.certify(spider, nodes=1)
    assert certificate.radius == 1
    fooled = [
        [
            pair
            for pair in pairs_of_slots(tree.slots, 6).tolist()
            if local.predict(tree.flipped([pair])) != certificate.label
        ]
        for tree in (first, second)
    ]
    assert not fooled[0]
    assert [second.degrees[pair].tolist() for pair in fooled[1]] == [[2, 2]]
    assert certificate.node_radii.removed == 0


def test_the_certificate_carries_it_through_evidence_and_table(tmp_path):
    local = fp.LocalClassifier(wild(seed=1, strength=0.1))
    graphs = [Graph(5, [(0, 1), (1, 2), (2, 3)], label=0), Graph(4, [(0, 1)], label=1)]
    made = fp.certify_run(local, graphs, out=tmp_path / "run", nodes=1)
    assert all(certificate.node_radii is not None for certificate in made)
    assert fp.load_run(tmp_path / "run").certificates == made == local.certify_all(graphs, nodes=1)
    assert "with 1 node removed" in str(made[0])
    assert local.certify(graphs[0]).node_radii is None
    with pytest.raises(InputError, match="nodes"):
        fp.certify_run(local, graphs, out=tmp_path / "run", nodes=2)


def test_evidence_that_withstands_more_with_changed_nodes_than_without_is_refused():
    local = fp.LocalClassifier(wild(seed=1, strength=0.1))
    graph, request = Graph(4, [(0, 1)]), LocalRequest(nodes=1)
    local.check([graph], request)
    evidence = local.defence.ask(local, graph, request)
    evidence.__dict__["node_radii"] = NodeRadii(1, 99, 0, 0)
    with pytest.raises(InputError, match="beside changed nodes"):
        type(evidence).from_bytes(evidence.to_bytes()).certify()


def test_features_of_the_users_own_making_are_refused():
    class Numbered(fp.features.Own):
        spec = None

    local = fp.LocalClassifier(Local(3, 2, seed=0).eval(), features=Numbered(), trust_features=True)
    with pytest.raises(InputError, match="got Numbered"):
        local.certify(Graph(3, [(0, 1)], np.eye(3)), nodes=1)
    local = fp.LocalClassifier(wild(4, strength=0.1, seed=0), features="own+constant", trust_features=True)
    assert local.certify(Graph(3, [(0, 1)], np.eye(3)), nodes=1).node_radii is not None


@pytest.mark.parametrize(
    ("features", "nodes", "sentence"),
    [("numbers", 1, "have no list"), ("labels", 0, "nodes must be"), ("labels", 9, "at most 50,000")],
)
def test_refused_in_one_sentence(features, nodes, sentence):
    x = {"labels": np.eye(3)[np.arange(12) % 3], "numbers": np.random.default_rng(0).normal(size=(12, 3))}
    local = fp.LocalClassifier(Local(3, 2, seed=0).eval(), trust_features=True)
    with pytest.raises(InputError, match=sentence):
        local.certify(Graph(12, [(0, 1)], x[features]), nodes=nodes)


def test_every_change_is_the_one_made_by_hand():
    """Features, frozen pairs, label and name follow the nodes; a node never changes to what it is."""
    rng = np.random.default_rng(0)
    for nodes in (1, 2, 5):
        graph = random_graph(rng, nodes, labels=3, frozen=0.3).replaced(label=1, name="it")
        for change in NODE_CHANGES:
            found = list(changed_graphs(graph, change))
            expected = [one for one in one_change(graph, change, 3) if not same(one, graph)]
            assert len(found) == len(expected)
            assert all(same(*pair) for pair in zip(found, expected, strict=True))
            assert all((one.label, one.name) == (1, "it") for one in found)
        assert number_of_changes(nodes, 3, 1) == nodes + 3 + 2 * nodes


def same(first, second):
    """Whether nodes, edges, frozen pairs and features are the same, one by one."""
    return first.topology == second.topology and np.array_equal(first.node_features, second.node_features)
