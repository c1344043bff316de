"""Training through the certificate: the knapsack in torch is the certificate's own."""

import copy

import numpy as np
import pytest
import torch

import flipproof as fp
from flipproof import InputError
from flipproof.certificates.local_scores import edge_changes, leads_over_rivals
from flipproof.certificates.matched_knapsack import NodeLosses, heaviest
from flipproof.models import GIN, Local
from flipproof.training.certified import CertifiedTraining, recurrence
from flipproof.training.loop import Hyperparameters, Lesson
from flipproof.training.reached_views import TrainingAttack


def evidence_of(local, graph):
    local.check([graph])
    return local.defence.ask(local, graph, local.defence.request())


def labelled_graphs(count, seed, *, frozen=0.0):
    rng = np.random.default_rng(seed)
    graphs = []
    for index in range(count):
        n = int(rng.integers(3, 9))
        pairs = np.array([(u, v) for u in range(n) for v in range(u + 1, n)])
        x = np.eye(3)[rng.integers(3, size=n)]
        chosen, shut = (pairs[rng.random(len(pairs)) < p] for p in (0.4, frozen))
        graphs.append(fp.Graph(n, chosen, x, label=index % 3, frozen=shut))
    return graphs


def task(graphs, budget, model=None):
    model = Local(3, 3, hidden=8, seed=0) if model is None else model
    chosen = Hyperparameters(epochs=2, learning_rate=0.006, batch_size=8, weight_decay=0.0)
    return CertifiedTraining(Lesson(model, graphs, None, "degree", chosen), budget)


@pytest.mark.parametrize("budget", [(1, 1, 1), (2, 2, 2), (3, 3, 3), (1, 0, 1), (2, 0, 2), (0, 2, 2)])
def test_the_drop_in_training_is_the_certificates(budget):
    """One flip: the exact worst pair. Several: the plain knapsack over at most so many, computed from the evidence."""
    graphs = labelled_graphs(6, 1, frozen=0.1)
    model = Local(3, 3, hidden=8, seed=0).double()
    with torch.no_grad():
        model.voters.outer.weight.mul_(20)
    model = model.float().eval()
    learnt = task(graphs, (2, 1), model)  # looks three flips deep
    # graphs of training are known to machines that have not seen them, and to all of them once the network answers
    learnt.views.odds = torch.from_numpy(model.odds.of(learnt._statistics(graphs)))
    leads, worst, right = learnt.views.leads(model, torch.arange(6), TrainingAttack(3, *budget))
    local = fp.LocalClassifier(model)
    adds, removes, flips = budget
    for index, graph in enumerate(graphs):
        evidence = evidence_of(local, graph)
        own = leads_over_rivals(evidence.totals, graph.label, 3)
        np.testing.assert_allclose(leads[index].detach(), own, rtol=1e-3, atol=1e-4)
        assert bool(right[index]) == (evidence.label == graph.label)
        losses = NodeLosses(evidence.views, leads_over_rivals(evidence.scores, graph.label, 3))
        if flips == 1:
            table = losses.table[:, -1:, :, : adds + 1, : removes + 1]
            options = [(1, 0)] * adds + [(0, 1)] * removes
            drop = np.max([heaviest(table, (2 * a, 2 * d))[0] for a, d in options], axis=0)
            drop = np.where(np.isfinite(drop), drop, 0)
        else:
            table = losses.table[:, 0, :, : adds + 1, : removes + 1]
            most = np.full((graph.num_nodes + 2, 2, flips + 1), 0.0)
            for k in range(1, flips + 1):
                splits = [(a, k - a) for a in range(k + 1) if a < table.shape[-2] and k - a < table.shape[-1]]
                best = np.max([table[..., a, d] for a, d in splits], axis=0) if splits else -np.inf
                most[: graph.num_nodes, :, k] = np.maximum(most[: graph.num_nodes, :, k - 1], best)
            drop = heaviest(most[..., None], (2 * flips, 0))
        np.testing.assert_allclose(worst[index].detach(), drop, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("attack", [(1, 1, 1), (3, 3, 3), (2, 0, 2), (0, 2, 2), (2, 1, 3)])
def test_the_offset_drops_by_the_worst_number_of_edges(attack):
    """Beside what nodes lose: the same network whose offset does not count edges loses only that."""
    graphs = [fp.Graph(graph.num_nodes, graph.edges, label=graph.label) for graph in labelled_graphs(8, 4)]
    model = Local(0, 3, hidden=8, seed=0).eval()
    with torch.no_grad():
        model.voters.offset[-1].weight.mul_(20)
    learnt = task(graphs, 3, model)
    deaf = copy.deepcopy(model)
    with torch.no_grad():
        deaf.voters.offset[0].weight[:, -len(model.count_inputs(torch.ones(1), torch.ones(1))[0]) :] = 0
    adds, removes, flips = attack
    worst, nodes = (
        learnt.views.leads(network, torch.arange(8), TrainingAttack(3, *attack))[1].detach()
        for network in (model, deaf)
    )
    seen = 0
    for index, graph in enumerate(graphs):
        evidence = evidence_of(fp.LocalClassifier(model), graph)
        changes = edge_changes(graph, evidence.depth)
        within = (changes >= -min(removes, flips)) & (changes <= min(adds, flips))
        leads = leads_over_rivals(evidence.offsets, graph.label, 3)
        drop = (leads[changes == 0] - leads[within]).max(axis=0)
        np.testing.assert_allclose(worst[index] - nodes[index], drop, rtol=1e-3, atol=1e-4)
        seen += (drop > 0.01).sum()
    assert seen > 4


def test_gradients_are_those_of_the_drop():
    """Against finite differences of the whole, knapsack included."""
    graphs = labelled_graphs(4, 2)
    model = Local(3, 3, hidden=4, seed=0).double()
    learnt = task(graphs, (1, 1), model)  # looks two flips deep
    views = learnt.views
    views.inputs, views.sums, views.sizes = views.inputs.double(), views.sums.double(), views.sizes.double()
    weight = model.voters.outer.weight

    def value():
        leads, worst, _ = learnt.views.leads(model, torch.arange(4), TrainingAttack(2, 2, 2, 2))
        return (leads - worst).sum()

    value().backward()
    gradient = weight.grad.clone()
    with torch.no_grad():
        for place in [(0, 0), (1, 2), (2, 3)]:
            before = weight[place].item()
            weight[place] = before + 1e-5
            up = value()
            weight[place] = before - 1e-5
            down = value()
            weight[place] = before
            assert float((up - down) / 2e-5) == pytest.approx(float(gradient[place]), rel=1e-3, abs=1e-4)


def test_training_for_a_budget_certifies_more():
    graphs = fp.datasets.topologies(64, seed=0)
    labels = [graph.label for graph in graphs]
    shares = []
    for arguments in ({"budget": 2}, {"features": "constant"}):
        model = Local(0, 8, hidden=32, seed=0)
        fp.train(model, graphs, epochs=60, learning_rate=0.006, **arguments)
        certificates = fp.LocalClassifier(model).certify_all(graphs)
        shares.append(fp.certified_accuracy(certificates, labels, [2])[0])
    assert shares[0] > shares[1] + 0.1


@pytest.mark.guarantee
def test_one_network_answers_for_every_budget_up_to_its_own():
    """For few flips it is right more often on graphs that it has not seen; for more than it was trained for it refuses."""
    model = Local(0, 8, seed=0)
    fp.train(model, fp.datasets.topologies(160, seed=0), epochs=100, budget=8, batch_size=32)
    graphs = fp.datasets.topologies(96, seed=1)
    labels = [graph.label for graph in graphs]
    shares = [
        fp.certified_accuracy(fp.LocalClassifier(model, budget=budget).certify_all(graphs), labels, [0, 8])
        for budget in (1, 8)
    ]
    assert shares[0][0] > shares[1][0] + 0.05
    assert shares[1][1] > shares[0][1] + 0.05
    own = fp.LocalClassifier(model).certify_all(graphs)
    assert fp.certified_accuracy(own, labels, [0, 8]).tolist() == shares[1].tolist()
    with pytest.raises(InputError, match="budget must be at most 8"):
        fp.LocalClassifier(model, budget=9)


@pytest.mark.parametrize(("budget", "least", "most"), [(3, 0.35, 0.5), (10, 0.1, 0.2)])
def test_a_large_budget_leaves_most_batches_to_small_ones(budget, least, most):
    training = task(labelled_graphs(4, 0), budget, Local(0, 3, hidden=8, seed=0))
    rng = np.random.default_rng(0)
    drawn = np.array([training._drawn(rng.random(4)).budget for _ in range(1000)])
    assert least < (drawn == budget).mean() < most
    assert all((drawn == smaller).any() for smaller in range(1, budget))


def test_graphs_that_come_back_are_recognised():
    graphs = list(fp.datasets.topologies(200, seed=1))
    labels = [graph.label for graph in graphs]
    assert recurrence(graphs, labels) > 0.7
    assert recurrence(graphs, np.random.default_rng(0).permutation(labels).tolist()) < 0.4
    assert recurrence(graphs[:8], labels[:8]) == 0
    for count, known in ((200, 1), (8, 0)):
        model = Local(0, 8, hidden=4, seed=0)
        fp.train(model, graphs[:count], budget=1, epochs=1)
        assert int(model.recurring) == known


@pytest.mark.parametrize(("budget", "options"), [(2, {}), ((1, 0), {"class_weights": True})])
def test_repeatable_and_resumed(tmp_path, budget, options):
    graphs = labelled_graphs(12, 3)

    def stop(done, total):
        if done == 2:
            raise KeyboardInterrupt

    def trained(**more):
        model = Local(3, 3, hidden=8, seed=0)
        result = fp.train(model, graphs, budget=budget, epochs=3, validation=graphs[:4], **options, **more)
        assert result.settings["budget"] == (list(budget) if options else budget)
        assert result.final.validation_loss is not None
        return model.state_dict()

    whole = trained()
    with pytest.raises(KeyboardInterrupt):
        trained(checkpoint=tmp_path / "c", progress=stop)
    for name, value in trained(checkpoint=tmp_path / "c").items():
        torch.testing.assert_close(whole[name], value, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("model", "arguments", "words"),
    [
        (Local(3, 3), {"budget": 0}, "budget must be"),
        (Local(3, 3), {"budget": (0, 0)}, "budget must be"),
        (Local(3, 3), {"noise": fp.EdgeNoise(keep=0.9)}, "without noise, flips or copies"),
        (Local(3, 3), {"features": "one-hot-degree"}, "must not depend on edges"),
        (GIN(3, 3), {}, "local networks"),
        (Local(3, 2), {}, "class for every label"),
        (Local(4, 3), {}, r"takes 4 node features; a graph has 3 \(build it with in_features=3\)"),
    ],
)
def test_refusals(model, arguments, words):
    with pytest.raises(InputError, match=words):
        fp.train(model, labelled_graphs(4, 5), epochs=1, **{"budget": 2} | arguments)


def test_votes_are_heard_where_edges_tell_the_class_and_silent_where_they_are_noise():
    """Stars and paths with labels by chance: nodes alone say nothing, and votes all. With classes by chance, votes are noise."""
    rng = np.random.default_rng(0)
    graphs = []
    for index in range(80):
        n = int(rng.integers(16, 25))
        edges = [(0, v) for v in range(1, n)] if index % 2 else [(v, v + 1) for v in range(n - 1)]
        graphs.append(fp.Graph(n, edges, np.eye(2)[rng.integers(2, size=n)], label=index % 2))
    told = Local(2, 2, hidden=32, seed=0)
    fp.train(told, graphs, budget=2, epochs=40)
    assert (told.loudness[:2] > 0).all()
    certificates = fp.LocalClassifier(told, trust_features=True).certify_all(graphs)
    assert np.mean([c.radius >= 2 and c.label == g.label for c, g in zip(certificates, graphs, strict=True)]) > 0.8
    chance = [fp.Graph(g.num_nodes, g.edges, g.node_features, label=int(rng.integers(2))) for g in graphs]
    idle = Local(2, 2, hidden=8, seed=0)
    fp.train(idle, chance, budget=3, epochs=10)
    assert not idle.loudness[2:].any()
    # an answer without votes withstands everything
    local = fp.LocalClassifier(idle, budget=3, trust_features=True)
    for graph in graphs[:4]:
        assert local.certify(graph).radius == graph.num_slots
        assert local.certify(graph).label == local.predict(graph.flipped([(0, 1), (0, 2), (3, 4)]))


def test_nothing_is_learnt_from_the_graphs_that_judge():
    """Other labels of these graphs do not change the loss, where their log-odds stay the same."""
    learnt, everyone = task(labelled_graphs(24, 3), 2, Local(3, 3, hidden=4, seed=0)), torch.arange(24)
    learnt.model.train()

    def outcome():
        (outcome,) = learnt.losses(everyone, 0)
        return outcome.loss.item(), outcome.size

    before, unseen = outcome(), learnt.not_shown.clone()
    assert before[1] == 24 - int(unseen.sum()) < 24
    learnt.views.labels[unseen] = (learnt.views.labels[unseen] + 1) % 3
    assert outcome() == before
    learnt.views.labels[~unseen] = (learnt.views.labels[~unseen] + 1) % 3
    assert outcome() != before


def test_real_valued_features_are_measured_by_those_of_training():
    rng = np.random.default_rng(1)
    graphs = [
        fp.Graph(5, [(0, 1)], np.stack([rng.normal(500, 40, 5), np.eye(5)[0], np.full(5, 3.0)], axis=1), label=i % 2)
        for i in range(8)
    ]
    model = Local(3, 2, hidden=4, seed=0)
    task(graphs, 1, model)
    nodes = torch.tensor(np.concatenate([graph.node_features for graph in graphs]), dtype=torch.float32)
    measured = model.measured(nodes)
    torch.testing.assert_close(measured[:, 0].mean(), torch.tensor(0.0), atol=1e-4, rtol=0)
    torch.testing.assert_close(measured[:, 0].std(correction=0), torch.tensor(1.0))
    assert torch.equal(measured[:, 1], nodes[:, 1])
    assert not measured[:, 2].any()
    # what hardly varies in training does not outweigh all else later
    constant = [fp.Graph(7, [(0, 1)], np.full((7, 3), 0.1), label=i % 2) for i in range(5)]
    task(constant, 1, model)
    assert model.measured(torch.tensor([[1.1, 0.1, -0.9]])).abs().max() < 2000


def test_each_number_of_flips_has_its_own_volume():
    model = Local(3, 3, hidden=4, seed=0).eval()
    model.hear([1.0, 1.0, 0.5, 0.0, 0.25])
    largest = []
    for budget in (1, 3, 4, 5, 7, 30):
        model.for_budget(budget)
        context = model.context(torch.ones(1, dtype=torch.float64), torch.zeros(1, 3, dtype=torch.float64))
        largest.append(float(model.largest_votes(context)) * min(budget, 20) * 2)
    assert largest == pytest.approx([1.0, 0.5, 0.0, 0.25, 0.25, 0.25])
    model.loudness.fill_(1e9)  # a file that was altered
    assert float(model.largest_votes(context)) == pytest.approx(4 * 0.5 / 20)


def test_nothing_is_left_of_an_earlier_training():
    graphs = labelled_graphs(12, 5)
    model = Local(3, 3, hidden=4, seed=0)
    model.hear([0.0])
    learnt = task(graphs, 1, model)
    assert (model.loudness == 1).all()
    task(graphs[:1], 1, model)
    assert not model.odds.tables
    learnt = task(graphs[:3], 1, Local(3, 3, hidden=4, seed=0))  # fewer graphs than parts
    learnt.model.eval()
    learnt.finish()
