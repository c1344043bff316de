"""The local defence: answers, certificates, attacks, folders; also under removed, added and changed nodes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import flipproof as fp
from flipproof.certificates.certificate import NODE_CHANGES, NodeRadii
from flipproof.certificates.local_scores import LocalScores, leads_over_rivals
from flipproof.defences.changed_nodes import changed_graphs, number_of_changes
from flipproof.defences.defence import described
from flipproof.defences.local import LocalRequest
from flipproof.defences.local_votes import NodeSet, answer_to
from flipproof.defences.target import Effort
from flipproof.graphs import pairs_of_slots
from flipproof.models import GIN, Local
from flipproof.models.local_network import LocalViews
from flipproof.studies.search_space import space
from support.local_tables import (
    CASES,
    all_attacks,
    compared,
    fill_table,
    one_change,
    random_graph,
    removed_by_hand,
    true_radius,
    wild,
)

DEGREES = Local(in_features=0, num_classes=3, hidden=8, seed=1).eval()


def scores_of(local, graph, per_node=None):
    """The evidence of a graph."""
    local.check([graph])
    return local.defence.ask(local, graph, LocalRequest(per_node))


def loud(in_features=0, num_classes=2, *, seed=0):
    """A network whose votes differ much from view to view."""
    model = wild(in_features, num_classes, seed=seed)
    if model.in_features:
        model.hear([np.random.default_rng(seed).uniform(0.5, 1)])
    return model


def graph_of(rng, nodes, features=None, frozen=0.0):
    number = nodes * (nodes - 1) // 2
    pairs = np.array([(u, v) for u in range(nodes) for v in range(u + 1, nodes)])
    x = {None: None, "labels": np.eye(3)[rng.integers(3, size=nodes)], "numbers": rng.normal(size=(nodes, 3))}[features]
    return fp.Graph(nodes, pairs[rng.random(number) < 0.4], x, frozen=pairs[rng.random(number) < frozen])


@pytest.mark.parametrize("frozen", [0.0, 0.3])
@pytest.mark.parametrize("features", [None, "labels", "numbers", "counts alone"])
def test_no_attack_inside_the_radius_and_one_flip_is_exact(features, frozen):
    """The deployed answer on every attacked graph, asked for one by one. From counts alone the radius is the truth."""
    rng, counts_only = np.random.default_rng(0), features == "counts alone"
    radii = []
    for seed in range(10):
        if counts_only:
            model = Local(0, 2 + seed % 2, counts_only=True).eval()
            fill_table(model, rng)
        else:
            model = loud(0 if features is None else 3, 2 + seed % 2, seed=seed)
            model.learn_sizes(features is None)
            if seed % 2:
                model.standardise(*(torch.from_numpy(rng.uniform(2, 9, size)) for size in (5, (5, model.in_features))))
        local = fp.LocalClassifier(model, trust_features=True)
        graph = graph_of(rng, 4, None if counts_only else features, frozen)
        certificate = local.certify(graph)
        assert certificate.label == local.predict(graph)
        if certificate.abstains:
            continue
        attacks = list(all_attacks(graph))
        assert all(answer_to(local, attacked) == local.predict(attacked) for _, attacked in attacks[seed::20])
        fooling = [len(flips) for flips, attacked in attacks if answer_to(local, attacked) != certificate.label]
        truth = min(fooling, default=graph.num_slots + 1) - 1
        assert certificate.radius <= truth
        assert (certificate.radius > 0) == (truth > 0)
        assert certificate.radius == truth or not counts_only
        radii.append(certificate.radius)
    assert len(radii) >= 4
    assert min(radii) < 6
    assert len(set(radii)) > 1


@pytest.mark.parametrize("features", ["labels", None])  # without features the network counts edges, too
def test_target_agrees_with_predict(features):
    """Many attacked graphs at once have the same answers as one by one."""
    rng = np.random.default_rng(1)
    local = fp.LocalClassifier(loud(3 if features else 0, 3))
    graph = graph_of(rng, 6, features, 0.1)
    target = local.defence.target(local, graph, Effort())
    target.aim(None)
    flips = np.sort(np.stack([rng.permutation(graph.num_slots)[:3] for _ in range(40)]), axis=1)
    outcome = target.evaluate(flips)
    for row, fooled, margin in zip(flips, outcome.fooled, outcome.margins, strict=True):
        attacked = graph.flipped(pairs_of_slots(graph.slots[row], 6))
        assert fooled == (local.predict(attacked) != target.label)
        assert target.confirm(attacked)[0] == fooled
        leads = leads_over_rivals(NodeSet(local, attacked).totals(), target.label, local.num_classes)
        np.testing.assert_allclose(leads.min(), margin)


def test_answers_do_not_depend_on_node_numbers():
    rng = np.random.default_rng(2)
    local = fp.LocalClassifier(loud(3))
    graph = graph_of(rng, 7, "labels")
    order = rng.permutation(7)
    place = np.argsort(order)
    again = fp.Graph(7, place[graph.edges], graph.node_features[order])
    first, second = local.certify(graph), local.certify(again)
    assert (first.label, first.radius, first.grid.tolist()) == (second.label, second.radius, second.grid.tolist())


def test_the_network_sees_only_views():
    """Two graphs with the same degrees have the same scores: triangles are out of sight."""
    local = fp.LocalClassifier(DEGREES)
    triangles = fp.Graph(6, [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)])
    ring = fp.Graph(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)])
    np.testing.assert_array_equal(scores_of(local, triangles).scores, scores_of(local, ring).scores)


def test_depth_is_the_most_that_is_certified():
    graph = fp.Graph(12, [(0, 1), (1, 2)])
    local = fp.LocalClassifier(DEGREES)
    with torch.no_grad():
        model = Local(0, 2, hidden=4, seed=0).eval()
        model.voters.outer.weight.zero_()
        model.voters.offset[-1].bias.fill_(50.0)
    sure = fp.LocalClassifier(model)
    assert sure.certify(graph, per_node=2).radius == 2
    assert sure.certify(graph).radius == 64, "the margin is proved up to here"
    assert scores_of(local, graph, per_node=1).depth == 1
    assert local.certify(fp.Graph(1, [])).radius == 0, "nothing to attack"


def test_a_folder_and_a_file_give_the_same_back(tmp_path):
    graphs = [graph.replaced(label=graph.label % 2) for graph in fp.datasets.topologies(16)]
    counting = Local(0, 2, counts_only=True)
    fp.train(counting, graphs, budget=2)
    for model, budget in ((counting, 2), (DEGREES, 3)):
        local = fp.LocalClassifier(model, budget=budget)
        local.save(tmp_path / str(budget))
        again = fp.LocalClassifier.load(tmp_path / str(budget))
        assert described(again.defence) == {"name": "local", "budget": budget}
        assert again.model.counts_only == model.counts_only
        evidence = scores_of(local, graphs[0])
        assert scores_of(again, graphs[0]) == evidence
        assert LocalScores.from_bytes(evidence.to_bytes()).certify() == again.certify(graphs[0])
    # the weights tell the two kinds apart, since they are a network's identity
    assert not set(counting.state_dict()) & {name for name in Local(0, 2).state_dict() if name.startswith("voters")}
    assert {"table.sizes", "table.budgets", "table.classes"} <= set(counting.state_dict())
    local = fp.LocalClassifier(counting)
    assert (scores_of(local, graphs[0]).scores == 0).all(), "no node votes"
    star, path = fp.Graph(5, [(0, 1), (0, 2), (0, 3), (0, 4)]), fp.Graph(5, [(0, 1), (1, 2), (2, 3), (3, 4)])
    assert (scores_of(local, star).totals == scores_of(local, path).totals).all()


@pytest.mark.parametrize("features", [None, "labels", "numbers"])
def test_the_certified_scores_are_those_of_the_deployed_answer(features):
    """To the last bit: no lead is so small that the certificate and the answer could differ."""
    rng = np.random.default_rng(6)
    local = fp.LocalClassifier(loud(0 if features is None else 3, 4), trust_features=True)
    for nodes in (2, 5, 9):
        graph = graph_of(rng, nodes, features)
        assert np.array_equal(scores_of(local, graph).totals, NodeSet(local, graph).totals())


def test_rounding_covers_other_orders_of_summation():
    """Scores in 32-bit-like disorder: computed one by one and all at once they differ by less than the bound."""
    rng = np.random.default_rng(3)
    local = fp.LocalClassifier(loud(3, 4))
    graph = graph_of(rng, 8, "numbers")
    evidence = scores_of(local, graph, per_node=1)
    views, nodes = evidence.views, NodeSet(local, graph)
    alone = np.concatenate([nodes.scores(views.own[[row]], views.counts[[row]]) for row in range(len(views))])
    assert (np.abs(alone - evidence.scores) <= evidence.rounding).all()
    assert (evidence.rounding < 1e-8).all()


class MindsTheOthers(fp.models.Local):
    """Votes are centred over all views that it is asked about at once."""

    def view_scores(self, inputs, context, graph):
        scores = super().view_scores(inputs, context, graph)
        return scores - scores.mean(dim=0)


class SeesAll(fp.models.Local):
    """Called as a network, it answers by the number of edges."""

    def forward(self, x, adj, mask):
        edges = adj.sum(dim=(1, 2))
        return torch.stack([edges, 20.5 - edges], dim=1)


def with_hook(model):
    model.voters.inner.register_forward_hook(lambda part, inputs, outputs: outputs - outputs.mean(dim=0))
    return model


def with_another_part(model):
    model.voters.inner = torch.nn.Sequential(model.voters.inner, torch.nn.Softmax(dim=0)).eval()
    return model


def with_another_method(model):
    model.view_scores = lambda inputs, context, graph: inputs[:, :1]
    return model


def network(in_features=0):
    return Local(in_features, 2, seed=0).eval()


def trusted(in_features, **options):
    return fp.LocalClassifier(network(in_features), trust_features=True, **options)


class Numbered(fp.features.Own):
    """Features of a user's own making."""

    spec = None


PATH, TWELVE = fp.Graph(4, [(0, 1), (1, 2), (2, 3)]), fp.Graph(12, [(0, 1)], np.eye(3)[np.arange(12) % 3])
NUMBERS = TWELVE.replaced(node_features=np.random.default_rng(0).normal(size=(12, 3)))
LABELS = fp.Graph(5, [(0, 1), (1, 2)], np.eye(3)[[0, 1, 2, 0, 1]])


def with_bound(change):
    evidence = scores_of(fp.LocalClassifier(loud(3, 3)), LABELS)
    return replace(evidence, bound=change(evidence.bound))


def with_too_much():
    local, request = fp.LocalClassifier(wild(seed=1, strength=0.1)), LocalRequest(nodes=1)
    local.check([PATH], request)
    evidence = local.defence.ask(local, PATH, request)
    evidence.__dict__["node_radii"] = NodeRadii(1, 99, 0, 0)
    return type(evidence).from_bytes(evidence.to_bytes()).certify()


REFUSED = {
    "another network": (lambda: fp.LocalClassifier(GIN(1, 2, seed=0).eval()), "must be a local network"),
    "features from edges": (lambda: fp.LocalClassifier(network(1), features="degree"), "must not depend on edges"),
    "no budget": (lambda: fp.LocalClassifier(DEGREES, budget=0), "budget"),
    "counts with features": (lambda: Local(3, 2, counts_only=True), "counts_only is for local networks without node"),
    "no features": (lambda: trusted(3).certify(PATH), "node_features"),
    "too few features": (lambda: trusted(3).certify(PATH.replaced(node_features=np.eye(4)[:, :2])), "takes 3 node"),
    "degrees as features": (
        lambda: fp.LocalClassifier(network(1)).certify(PATH.replaced(node_features=PATH.degrees[:, None])),
        "degrees",
    ),
    "no depth": (lambda: fp.LocalClassifier(DEGREES).certify(PATH, per_node=0), "per_node must be"),
    "a setting of nothing": (
        lambda: space("local").entry({"budgets": 3}),
        r"no setting of local \(did you mean budget",
    ),
    "a hook": (lambda: fp.LocalClassifier(with_hook(network())), "inner has a hook"),
    "another part": (lambda: fp.LocalClassifier(with_another_part(network())), "inner is a Sequential"),
    "another method": (
        lambda: fp.LocalClassifier(with_another_method(network())),
        "a method of the network itself was",
    ),
    "company": (lambda: fp.LocalClassifier(MindsTheOthers(seed=0).eval()), "MindsTheOthers is a class of its own"),
    "sees all": (lambda: fp.LocalClassifier(SeesAll(seed=0).eval()), "SeesAll is a class of its own"),
    "bounds for all": (lambda: with_bound(lambda bound: np.tile(bound, (2, 1))), "within their bound|must be finite"),
    "bounds for some": (lambda: with_bound(lambda bound: bound[:1]), "within their bound|bound must be finite"),
    "infinite bounds": (lambda: with_bound(lambda bound: bound * np.inf), "within their bound|bound must be finite"),
    "bounds of 0": (lambda: with_bound(lambda bound: bound * 0), "within their bound|bound must be finite"),
    "more with changed nodes than without": (with_too_much, "beside changed nodes"),
    "changes of numbers": (lambda: trusted(3).certify(NUMBERS, nodes=1), "have no list"),
    "no changes": (lambda: trusted(3).certify(TWELVE, nodes=0), "nodes must be"),
    "many changes": (lambda: trusted(3).certify(TWELVE, nodes=9), "at most 50,000"),
    "changes of numbered nodes": (lambda: trusted(3, features=Numbered()).certify(TWELVE, nodes=1), "got Numbered"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_sentence(name):
    call, sentence = REFUSED[name]
    with pytest.raises(fp.InputError, match=sentence):
        call()


def test_certificates_are_those_of_the_network_as_it_is_now():
    graph = fp.Graph(6, [(0, 1), (1, 2), (2, 3)])
    model = fp.models.Local(num_classes=2, seed=0).eval()
    local = fp.LocalClassifier(model)
    before = local.certify(graph).label
    with torch.no_grad():
        for layer in (model.voters.outer, model.voters.offset[-1]):
            layer.weight.neg_()
            layer.bias.neg_()
    assert local.certify(graph).label == local.predict(graph) == 1 - before
    with_hook(model)
    with pytest.raises(fp.InputError, match="inner has a hook"):
        local.certify(graph)


def test_rounding_covers_sums_of_features_that_cancel():
    """A logarithm of a sum is off by as much as the sum, however small the logarithm is."""
    rng = np.random.default_rng(0)
    model = Local(1, 2, hidden=2, seed=0).eval()
    with torch.no_grad():
        model.voters.view.weight.zero_()
        model.voters.view.weight[:, -1] = 1.0  # nothing but the logarithm
    local = fp.LocalClassifier(model, trust_features=True)
    x = rng.normal(size=(40, 1)) * 1e6
    x[0] = -x[1:].sum()
    graph = fp.Graph(40, [(0, v) for v in range(1, 40)], x)
    evidence = scores_of(local, graph)
    inputs = model.double().view_inputs(
        LocalViews(*(torch.zeros(1, 1, dtype=torch.float64) for _ in range(2)), torch.ones(1), torch.zeros(1).long()),
        torch.tensor([40.0], dtype=torch.float64),
    )
    off = 40 * 2.0**-53 * np.abs(x).sum()  # of a sum, and so of its logarithm near 0
    hidden = torch.zeros_like(inputs)
    hidden[0, -1] = off
    context = model.context(torch.tensor([40.0], dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64))
    graph_of = torch.zeros(1, dtype=torch.int64)
    with torch.no_grad():
        first, second = (model.voters.view_scores(part, context, graph_of) for part in (inputs, inputs + hidden))
    assert float((first - second).abs().max()) <= evidence.rounding.max()
    assert off > 1e-9


def test_silent_votes_withstand_everything_and_nothing_else_does():
    rng = np.random.default_rng(1)
    model = loud(3, 3)
    graph = graph_of(rng, 5, "labels", 0.2)
    model.hear([0.0])
    local = fp.LocalClassifier(model, trust_features=True)
    certificate = local.certify(graph)
    assert certificate.radius == graph.num_slots
    assert certificate.grid.all()
    assert {local.predict(attacked) for _, attacked in all_attacks(graph)} == {certificate.label}
    model.hear([1e-30])  # next to nothing is not nothing
    assert scores_of(fp.LocalClassifier(model, trust_features=True), graph).bound.any()


@pytest.mark.parametrize(("networks", "nodes"), [(6, 3), pytest.param(12, 4, marks=pytest.mark.guarantee)])
@pytest.mark.parametrize("name", CASES)
def test_no_attack_on_nodes_and_edges_inside_the_radius(name, networks, nodes):
    """Every change of a node with every set of flips: no radius above the truth, and a change alone is decided exactly."""
    radii = list(compared(networks=networks, nodes=nodes, **CASES[name]))
    for radius, truth in radii:
        assert radius <= truth
        assert (radius < 0) == (truth < 0)
    assert len(radii) >= 9
    assert max(radius for radius, _ in radii) > 0
    if nodes == 4:
        assert sum(radius == truth for radius, truth in radii) >= 0.75 * len(radii)


@pytest.mark.parametrize("nodes", [2, pytest.param(3, marks=pytest.mark.guarantee)])
def test_two_changes(nodes):
    rng = np.random.default_rng(5)
    radii = []
    for seed in range(2):
        local = fp.LocalClassifier(wild(2, strength=0.05, seed=seed), trust_features=True)
        graph = random_graph(rng, nodes, labels=2)
        single, two = (local.certify(graph, nodes=changes).node_radii for changes in (1, 2))
        assert two.nodes == 2
        for change in NODE_CHANGES:
            radius, truth = getattr(two, change), true_radius(local, graph, change, nodes=2, labels=2)
            assert radius <= min(truth, getattr(single, change))
            assert (radius < 0) == (truth < 0)
            radii.append(radius)
    assert max(radii) >= 0


def test_the_number_of_nodes_is_part_of_what_the_network_sees():
    """A network that reads nothing but the number of nodes: no view of a node changes, and the answer does."""
    model = Local(0, 2, counts_only=True).eval()
    model.table.sizes.copy_(torch.arange(1, len(model.table.sizes) + 1))
    model.table.classes[20:] = 1
    local = fp.LocalClassifier(model)
    assert [local.predict(fp.Graph(nodes, [])) for nodes in (20, 21)] == [0, 1]
    before, after = (local.certify(fp.Graph(nodes, []), nodes=1).node_radii for nodes in (20, 21))
    assert before.added == after.removed == -1
    assert before.changed >= 0


def test_a_single_node_cannot_be_removed_and_features_that_are_not_read_cannot_matter():
    local = fp.LocalClassifier(wild(seed=1))
    alone = local.certify(fp.Graph(1, []), nodes=1)
    assert alone.node_radii.removed == alone.radius
    graph = fp.Graph(4, [(0, 1), (1, 2)])
    plain, labelled = (local.certify(known, nodes=1) for known in (graph, graph.replaced(node_features=np.eye(4))))
    assert plain.node_radii == labelled.node_radii
    assert plain.node_radii.changed == plain.radius
    mixed = fp.LocalClassifier(wild(4, strength=0.1, seed=0), features="own+constant", trust_features=True)
    assert mixed.certify(TWELVE, nodes=1).node_radii is not None
    model = Local(0, 2, seed=0).eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights.zero_()
    abstains = fp.LocalClassifier(model).certify(PATH, nodes=1)
    assert abstains.abstains
    assert abstains.node_radii == NodeRadii(1, -1, -1, -1)


def test_graphs_with_the_same_views_can_differ_under_attack():
    """Without the end of either longer leg of a spider the degrees are the same. In one of these two trees the nodes of degree 2
    are joined already; in the other they are not, and joining them is the only flip that changes the answer here.
    """
    spider = fp.Graph(7, [(6, 0), (6, 1), (1, 2), (6, 3), (3, 4), (4, 5)])
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
    graphs = [fp.Graph(5, [(0, 1), (1, 2), (2, 3)], label=0), fp.Graph(4, [(0, 1)], label=1)]
    made = fp.certify_run(local, graphs, out=tmp_path / "run", nodes=1)
    assert all(certificate.node_radii is not None for certificate in made)
    assert fp.load_run(tmp_path / "run").certificates == made == local.certify_all(graphs, nodes=1)
    assert "with 1 node removed" in str(made[0])
    assert local.certify(graphs[0]).node_radii is None
    with pytest.raises(fp.InputError, match="nodes"):
        fp.certify_run(local, graphs, out=tmp_path / "run", nodes=2)


def test_every_change_is_the_one_made_by_hand():
    """Features, frozen pairs, label and name follow the nodes; a node never changes to what it is."""
    rng = np.random.default_rng(0)
    for nodes in (1, 2, 5):
        graph = random_graph(rng, nodes, labels=3, frozen=0.3).replaced(label=1, name="it")
        for change in NODE_CHANGES:
            made = list(changed_graphs(graph, change))
            expected = [after for after in one_change(graph, change, 3) if not same(after, graph)]
            assert len(made) == len(expected)
            assert all(same(*pair) for pair in zip(made, expected, strict=True))
            assert all((after.label, after.name) == (1, "it") for after in made)
        assert number_of_changes(nodes, 3, 1) == nodes + 3 + 2 * nodes


def same(first, second):
    """Whether nodes, edges, frozen pairs and features are the same, one by one."""
    return first.topology == second.topology and np.array_equal(first.node_features, second.node_features)
