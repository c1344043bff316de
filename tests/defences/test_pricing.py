"""Priced voting: never above the truth, the truth itself where prices are exact; the same on every engine and after a kill."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flipproof as fp
from flipproof.certificates.group_votes import GroupVotes
from flipproof.certificates.prices import cheapest_purchase, priced_grid
from flipproof.defences.pricing import PriceSearch, combinations
from flipproof.graphs import pairs_of_slots
from support.tables import Table, graph_of, truth_of

FULL = 64


@st.composite
def cases(draw, most=4):
    """Tables of random answers with 2 to 5 classes, 1 to 6 groups, graphs of 2 to ``most`` nodes with frozen pairs."""
    size = draw(st.integers(2, most))
    slots = size * (size - 1) // 2
    graph = graph_of(draw(st.lists(st.sampled_from([0, 1, 0, 1, 0, 1, 2, 3]), min_size=slots, max_size=slots)), size)
    classes = draw(st.integers(2, 5))
    model = Table(
        classes,
        draw(st.integers(0, 2**20)),
        draw(st.integers(0, classes - 1)),
        draw(st.sampled_from([0.0, 0.5, 0.8, 0.95])),
    )
    groups = fp.EdgeGroups(draw(st.integers(1, 6)), draw(st.integers(0, 20)))
    return fp.VotingClassifier(model, groups, num_classes=classes), model, graph


def check(case):
    """Against the brute truth; stored evidence comes back as it was, and can be read at less depth."""
    voting, model, graph = case
    truth, plain = truth_of(voting, model, graph), voting.vote(graph)
    counted, bought, earlier = fp.certify_group_votes(plain), cheapest_purchase(plain), dict[int, fp.Certificate]()
    # the knapsack with one flip for every vote is the certificate of the counts
    assert counted.radius == (graph.num_slots if bought is None else min(bought.cost - 1, graph.num_slots))
    assert np.array_equal(priced_grid(plain), counted.grid)
    before = -1
    for depth in (0, 1, 2, FULL):
        votes = voting.price(graph, depth=depth)
        certificate = fp.certify_group_votes(votes)
        assert certificate == voting.certify(graph, depth=depth)
        assert fp.certify_group_votes(votes, depth=0) == counted
        radii = [fp.certify_group_votes(votes, depth=less).radius for less in earlier]
        assert all(radius <= earlier[less].radius for less, radius in zip(earlier, radii, strict=True))
        assert radii == sorted(radii)
        earlier[depth] = certificate
        back = GroupVotes.from_bytes(votes.to_bytes())
        assert (back, back.calls, back.depth) == (votes, votes.calls, votes.depth)
        assert back.made_again()
        assert before <= certificate.radius <= truth.radius
        before = certificate.radius
        grid = certificate.grid
        for adds in range(grid.shape[0]):
            for removes in range(grid.shape[1]):
                assert not grid[adds, removes] or truth.withstood(adds, removes)
        for adds, removes in truth.tried:
            if adds + removes <= certificate.radius:
                assert grid[adds, removes]
        bought, attack = votes.purchase(), votes.attack()
        if bought is None:
            assert certificate.radius == truth.radius == graph.num_slots
        elif bought.exact:
            assert certificate.radius == truth.radius == len(attack) - 1
            assert certificate.label == voting.predict(graph) != voting.predict(graph.flipped(attack))
        else:
            assert attack is None
    assert before == truth.radius


@settings(max_examples=150)
@given(cases())
def test_never_above_the_truth_and_the_truth_at_full_depth(case):
    check(case)


@pytest.mark.guarantee
@settings(max_examples=100)
@given(cases(5))
def test_the_same_of_five_nodes(case):
    check(case)


@settings(max_examples=100)
@given(cases(), st.integers(1, 40))
def test_no_budget_makes_a_false_certificate(case, calls):
    voting, model, graph = case
    truth = truth_of(voting, model, graph)
    votes = voting.price(graph, depth=FULL, calls=calls)
    assert votes.calls <= max(calls, len(votes))
    assert fp.certify_group_votes(votes).radius <= truth.radius
    assert fp.certify_group_votes(votes).radius >= fp.certify_group_votes(votes, depth=0).radius


def test_altered_flips_do_not_pass_as_made_again():
    voting = fp.VotingClassifier(Table(2, 1), 1, num_classes=2)
    votes = voting.price(fp.Graph(5, [(0, 1), (1, 2)]), depth=2)
    assert len(votes.prices.ways)
    for column, value in ((2, 5), (3, 5), (5, 99)):
        ways = votes.prices.ways.copy()
        ways[0, column] = value
        prices = type(votes.prices)(votes.prices.depths, votes.prices.tried, ways)
        altered = GroupVotes(votes.labels, votes.graph, votes.groups, 2, prices=prices)
        assert not altered.made_again()


def test_evidence_without_prices_does_not_answer_a_deeper_question():
    voting = fp.VotingClassifier(Table(2, 1, 0, 0.9), 3, num_classes=2)
    plain = voting.vote(fp.Graph(6, [(0, 1), (1, 2)]))
    assert PriceSearch(depth=0).read(plain) == fp.certify_group_votes(plain)
    with pytest.raises(fp.InputError, match="group votes do not answer this request"):
        PriceSearch(depth=1).read(plain)


@pytest.mark.parametrize("arguments", [{"depth": -1}, {"calls": 0}, {"depth": "two"}, {"depth": 1.5}])
def test_bad_questions_are_refused(arguments):
    with pytest.raises(fp.InputError, match=next(iter(arguments))):
        PriceSearch(**arguments)


class Counted:
    """A model that remembers every graph it was asked about."""

    def __init__(self, model):
        self.model, self.graphs, self.alone = model, list[str](), 0

    def __call__(self, graphs):
        self.alone += len(graphs) == 1
        self.graphs += [str(graph.edges.tolist()) for graph in graphs]
        return self.model(graphs)


@pytest.mark.parametrize("groups", [1, 3])
def test_no_sub_graph_is_asked_twice_and_calls_are_counted(groups):
    model = Counted(Table(3, 5, 1, 0.97))
    voting = fp.VotingClassifier(model, groups, num_classes=3)
    graph = fp.Graph(8, [(0, 1), (1, 2), (2, 3), (4, 6)])
    voting.check([graph])
    model.graphs.clear()
    model.alone = 0
    voting.check = lambda graphs, request: None
    voting.try_on = lambda graph: None
    votes = voting.price(graph, depth=2)
    # of the votes, and of every piece of work of up to 1,024 sets of flips, one graph is asked about again, alone
    assert 2 - (groups == 1) <= model.alone <= 1 + 2 * groups
    again = model.alone - (groups == 1)  # a single group is alone anyway
    assert len(model.graphs) == votes.calls + again
    # sub-graphs of different groups may be the same graph, by having no edge
    assert len(model.graphs) - len(set(model.graphs)) < groups * (1 + groups) + again


def test_the_search_stops_when_the_radius_is_decided():
    """A lone vote that one flip buys: nothing else has to be known."""
    voting = fp.VotingClassifier(lambda graphs: [graph.num_edges % 2 for graph in graphs], 1, num_classes=2)
    votes = voting.price(fp.Graph(9, [(0, 1)]), depth=3)
    assert (fp.certify_group_votes(votes).radius, votes.depth) == (0, 1)


def test_one_group_is_exhaustive_verification():
    """More than 3 edges, of a graph with 6: three removals change the answer, and nothing less does."""
    voting = fp.VotingClassifier(lambda graphs: [int(graph.num_edges > 3) for graph in graphs], 1, num_classes=2)
    graph = fp.Graph(8, [(0, node) for node in range(1, 7)])
    radii = [voting.certify(graph, depth=depth).radius for depth in range(4)]
    assert radii == [0, 1, 2, 2]
    exact = voting.price(graph, depth=3)
    assert exact.purchase() is not None
    attack = exact.attack()
    assert set(map(tuple, attack.tolist())) <= {(0, node) for node in range(1, 7)}
    certificate = fp.certify_group_votes(exact)
    assert (certificate.removes_radius, certificate.adds_radius) == (2, 3)  # three additions are all that was tried
    assert certificate.order == 3


@pytest.mark.parametrize(("nodes", "count", "states"), [(100, 2, False), (9, 3, True)])
def test_large_graphs_are_asked_by_lists_of_edges_and_small_ones_by_states(nodes, count, states):
    """Sets of one and two flips in several groups, in one batch; beyond 4,096 node pairs it holds lists."""
    groups = fp.EdgeGroups(count)
    graph = fp.Graph(
        nodes, [(node, node + 1) for node in range(nodes - 1)], frozen=[(0, 1), (5, nodes // 2 + 2), (2, 3)]
    )
    group_of = groups.of_graph(graph)
    assert np.bincount(group_of, minlength=groups.count).tolist() == np.sum(groups.room(graph), axis=0).tolist()
    group = np.repeat(np.arange(groups.count), 20)
    flips = np.concatenate([np.flatnonzero(group_of == t)[combinations(8, 2, 0, 20)] for t in range(groups.count)])
    flips[::3, 1] = -1
    batch = groups.flipped(graph, group, flips)
    assert (batch.states is not None) is states
    sub_graphs = [sub_graph.replaced(frozen=[]) for sub_graph in groups.sub_graphs(graph)]
    for owner, row, shown in zip(group, flips, batch.graphs(), strict=True):
        flipped = pairs_of_slots(graph.slots[np.sort(row[row >= 0])], graph.num_nodes)
        assert shown == sub_graphs[owner].flipped(flipped)


GRAPHS = {
    index: fp.Graph(11, [(v, (v * (index + 2) + 1) % 11) for v in range(9) if v != (v * (index + 2) + 1) % 11])
    for index in range(3)
}


def stubborn(groups):
    return fp.VotingClassifier(Table(2, 7, 1, 0.9995), groups, num_classes=2)


@pytest.mark.parametrize("groups", [1, 3])
def test_the_order_and_size_of_pieces_do_not_change_the_evidence(groups, monkeypatch):
    from flipproof.defences import pricing

    def backwards(work, pieces):
        return [work(piece) for piece in reversed(pieces)][::-1]

    voting, request = stubborn(groups), PriceSearch(depth=2)
    monkeypatch.setattr(pricing, "_WAVE", 256)
    wanted = {index: voting.defence.ask(voting, graph, request) for index, graph in GRAPHS.items()}
    monkeypatch.setattr(pricing, "_CHUNK", 64)
    for index, graph in GRAPHS.items():
        assert voting.defence.ask(voting, graph, request, backwards) == wanted[index]
        assert wanted[index].prices is not None


def test_ties_within_rounding_count_for_both_classes():
    import torch

    class Tied(torch.nn.Module):
        num_classes = 3

        def forward(self, x, adj, mask):
            edges = adj.sum(dim=(1, 2)) / 2
            lost = (edges < 3).float()
            return torch.stack([torch.ones_like(edges), 1.0 - (1 - lost) - lost * 1e-6, torch.zeros_like(edges)], dim=1)

    voting = fp.VotingClassifier(Tied().eval(), 1, features="constant")
    votes = voting.price(fp.Graph(5, [(0, 1), (1, 2), (2, 3)]), depth=2)
    certificate = fp.certify_group_votes(votes)
    bought = votes.purchase()
    assert bought.exact
    assert votes.attack() is None  # it would hang on rounding
    assert (certificate.label, certificate.radius, certificate.adds_radius) == (0, 0, 1)


def test_what_half_precision_rounds_otherwise_in_another_batch_counts_as_said():
    import torch

    class Shifted(torch.nn.Module):
        num_classes = 2

        def __init__(self):
            super().__init__()
            self.inner = fp.models.GIN(in_features=1, num_classes=2, seed=1).to(torch.bfloat16)
            self.register_buffer("shift", torch.zeros(2))

        def forward(self, x, adj, mask):
            return self.inner(x, adj, mask).float() - self.shift

    model, graph = Shifted().eval(), fp.datasets.topologies(8)[2]
    voting = fp.VotingClassifier(model, 1, features="degree")
    voting.check([graph])
    (classifier, _), count = voting.suited(graph), graph.num_slots
    batch = voting.groups.flipped(graph, np.zeros(count, dtype=np.int64), np.arange(count)[:, None])
    alone = [batch.only(np.array([place])) for place in range(count)]
    together = np.diff(classifier.scores(batch))[:, 0]
    apart = np.concatenate([np.diff(classifier.scores(part))[:, 0] for part in alone])
    at = int(np.abs(together - apart).argmax())
    if together[at] == apart[at]:
        pytest.skip("on this processor rounding does not depend on the batch")
    model.shift[1] = float(together[at] + apart[at]) / 2  # the two answers now differ
    answers = [int(classifier.labels(part)[place]) for part, place in ((batch, at), (alone[at], 0))]
    assert answers[0] != answers[1]
    assert classifier.said(batch)[at, answers[1]]
