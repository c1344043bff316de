"""SmoothedClassifier: certificates are re-readings of votes, votes are a function of seed, graph and index alone."""

import json

import numpy as np
import pytest
import torch
from scipy import stats
from torch_geometric import transforms

import flipproof as fp
from flipproof import certify_votes
from flipproof.engines import ThisProcess
from flipproof.models import GIN
from support.learnable import Blind

NOISE = fp.EdgeNoise(keep=0.85)


def triangles(graph):
    adjacency = graph.adjacency()
    return round(float(np.trace(adjacency @ adjacency @ adjacency)) / 6)


def few_or_many(graphs):
    """No triangle, one or two, more: exact, and the same for relabelled graphs."""
    return [min(2, (triangles(graph) + 1) // 2) for graph in graphs]


class FewOrMany(torch.nn.Module):
    """The same on matrices: as exact, and faster."""

    def forward(self, x, adj, mask):
        count = torch.einsum("bij,bjk,bki->b", adj, adj, adj) / 6
        label = ((count + 1) // 2).clamp(max=2)
        return -(label[:, None] - torch.arange(3)).abs()


def fast(noise=NOISE):
    return fp.SmoothedClassifier(FewOrMany().eval(), noise, num_classes=3, features="constant")


@pytest.fixture
def smooth():
    return fp.SmoothedClassifier(few_or_many, NOISE, num_classes=3)


def wheel(spokes=5):
    rim = [(1 + k, 1 + (k + 1) % spokes) for k in range(spokes)]
    return fp.Graph(spokes + 1, rim + [(0, k) for k in range(1, spokes + 1)], name=f"wheel {spokes}")


def graphs():
    return [wheel(4), wheel(5), fp.Graph(6, [(0, 1)]), fp.Graph(1, []), fp.Graph(5, []), wheel(6)]


@pytest.mark.parametrize("method", ["votes", "paper", "influence"])
@pytest.mark.parametrize("alpha", [0.001, 0.05])
def test_a_certificate_is_read_off_the_votes(smooth, method, alpha):
    votes = smooth.sample(wheel(), samples=2000, seed=4)
    again = certify_votes(votes, alpha=alpha, method=method)
    assert smooth.certify(wheel(), samples=2000, alpha=alpha, seed=4, method=method) == again
    assert (again.method, again.alpha, again.samples, again.seed) == (method, alpha, 2000, 4)
    assert again.counts == tuple(np.bincount(votes.labels, minlength=3))
    assert again.num_slots == 15
    assert again.noise == NOISE


def test_a_smaller_alpha_never_gives_a_larger_radius():
    votes = fast().sample(wheel(), samples=3000, seed=0)
    for method in ("votes", "paper"):
        radii = [certify_votes(votes, alpha=alpha, method=method).radius for alpha in (1e-9, 1e-3, 0.1, 0.4)]
        assert radii == sorted(radii)


def test_without_a_seed_a_fresh_one_is_drawn_and_recorded(smooth):
    first, second = (smooth.certify(wheel(), samples=200) for _ in range(2))
    assert first.seed != second.seed  # false alarm once in 2**63
    assert smooth.certify(wheel(), samples=200, seed=first.seed) == first
    votes = smooth.sample(wheel(), samples=200)
    assert smooth.sample(wheel(), samples=200, seed=votes.seed) == votes
    assert smooth.sample(wheel(), samples=200, seed=1).labels.tolist() != votes.labels.tolist()
    many = smooth.certify_all([wheel(), wheel(4)], samples=100)
    assert many[0].seed == many[1].seed != first.seed


def test_predict_names_a_wrong_class_with_probability_alpha_at_most():
    """One slot, empty: class 1 (an edge) has share 0.45. Of 600 predictions at alpha 0.1 the number of wrong ones is at most
    Binomial(600, 0.1) in law; a limit of 90 is exceeded by chance with probability 5e-5."""

    class Edge(torch.nn.Module):
        def forward(self, x, adj, mask):
            return torch.stack([torch.full((len(x),), 0.5), adj[:, 0, 1]], dim=1)

    assert stats.binom.sf(90, 600, 0.1) < 5e-5
    noise = fp.EdgeNoise(add=0.45, remove=0.2)
    smooth = fp.SmoothedClassifier(Edge().eval(), noise, num_classes=2, features="constant")
    named = [smooth.predict(fp.Graph(2, []), samples=80, alpha=0.1, seed=seed) for seed in range(600)]
    assert named.count(1) <= 90
    assert named.count(0) > 60  # it does name the right one at times
    assert named.count(None) > 0


@pytest.mark.parametrize("method", ["votes", "paper", "influence"])
def test_a_single_node_no_edges_and_no_noise(smooth, method):
    single = smooth.certify(fp.Graph(1, []), samples=100, method=method)
    assert (single.label, single.radius, single.num_slots) == (0, 0, 0)
    calm = fp.SmoothedClassifier(few_or_many, fp.EdgeNoise(keep=0.97), num_classes=3)
    empty = calm.certify(fp.Graph(6, []), samples=1000, seed=0, method=method)
    assert empty.label == 0
    assert empty.adds_radius >= empty.radius >= 1
    assert empty.grid.shape[1] == 1  # nothing to remove: only additions are counted
    still = fp.SmoothedClassifier(few_or_many, fp.EdgeNoise(add=0, remove=0), num_classes=3)
    certificate = still.certify(wheel(), samples=200, seed=0, method=method)
    assert (certificate.label, certificate.radius) == (2, 0)


def test_the_order_of_graphs_does_not_matter(smooth):
    in_order = smooth.certify_all(graphs(), samples=600, seed=3)
    order = np.random.default_rng(0).permutation(len(graphs()))
    shuffled = smooth.certify_all([graphs()[k] for k in order], samples=600, seed=3)
    assert [in_order[k] for k in order] == shuffled
    assert in_order == [smooth.certify(graph, samples=600, seed=3) for graph in graphs()]


def same_law(first, second, *, false_alarm):
    """Test of fit: two sets of votes come from the same law (chi-squared, on classes with votes)."""
    table = np.stack([first, second])
    return bool(stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue > false_alarm)


def test_relabelling_the_nodes_leaves_the_distribution_of_votes():
    """A permutation-invariant classifier on a graph and relabelled copies, 4,096 votes each; false-alarm rate 5 x 1e-6.
    Other nodes mean other slots, hence other samples: the votes differ, their law must not."""
    smooth = fast(fp.EdgeNoise(add=0.1, remove=0.3))
    votes = smooth.sample(wheel(), samples=4096, seed=0)
    for trial in range(5):
        order = np.random.default_rng(trial).permutation(6)
        copy = fp.Graph(6, order[wheel().edges])
        relabelled = smooth.sample(copy, samples=4096, seed=0)
        assert copy.edges.tolist() == wheel().edges.tolist() or relabelled.labels.tolist() != votes.labels.tolist()
        assert same_law(votes.counts, relabelled.counts, false_alarm=1e-6)


def test_simultaneous_divides_alpha_by_the_number_of_graphs(smooth):
    together = smooth.certify_all(graphs(), samples=500, seed=0, alpha=0.06, simultaneous=True)
    assert together == smooth.certify_all(graphs(), samples=500, seed=0, alpha=0.06 / 6)
    assert together[0].alpha == pytest.approx(0.01)
    assert together != smooth.certify_all(graphs(), samples=500, seed=0, alpha=0.06)
    assert smooth.certify_all([]) == []


def test_the_progress_bar_runs_on_stderr(smooth, capsys):
    shown = smooth.certify_all(graphs(), samples=100, seed=0, progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""  # machine-readable output may go there
    assert "flipproof: certifying: 6 of 6 graphs" in captured.err
    told: list[tuple[int, int]] = []
    assert shown == smooth.certify_all(graphs(), samples=100, seed=0, progress=lambda *counts: told.append(counts))
    assert told == [(done, 6) for done in range(1, 7)]
    assert capsys.readouterr().err == ""


class Backwards:
    """An engine that collects tasks and computes the last of them first."""

    workers = 1

    def __init__(self):
        self.order: list[int] = []

    def run(self, work, tasks):
        for task in reversed(list(tasks)):
            self.order.append(task[0])
            yield task, work(task)


def test_an_engine_is_used_and_changes_nothing():
    engine, smooth = Backwards(), fast()
    asked = {"samples": 2100, "seed": 5}
    assert smooth.certify_all(graphs(), **asked, engine=engine) == smooth.certify_all(graphs(), **asked)
    assert engine.order == [5, 4, 3, 2, 1, 0]
    engine.workers = 2  # one graph: its blocks
    engine.order.clear()
    alone = graphs()[:1]
    assert smooth.certify_all(alone, **asked, engine=engine) == smooth.certify_all(alone, **asked)
    assert engine.order == [2, 1, 0]


@pytest.mark.parametrize(
    ("fault", "part"),
    [("loses one", "every task; graph 0 has no answer"), ("one twice", "every task once; got graph 0 again")],
)
def test_an_engine_that_errs_is_noticed(smooth, fault, part):
    class Faulty(ThisProcess):
        def run(self, work, tasks):
            if fault == "loses one":
                next(iter(tasks))
                return
            for task, result in super().run(work, tasks):
                yield task, result
                yield task, result

    with pytest.raises(fp.InputError, match=part):
        smooth.certify_all(graphs(), samples=100, engine=Faulty())


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"alpha": 0}, r"alpha must lie in \(0, 1\); got 0"),
        ({"samples": 0}, "samples must be an integer of at least 1; got 0"),
        ({"seed": -1}, "seed must be an integer from 0"),
        ({"method": "vote"}, "method must be one of .*got 'vote'"),
    ],
)
def test_arguments_out_of_range_are_refused_before_the_model_is_asked(options, part):
    def never(noisy):
        raise AssertionError("the model was asked")

    smooth = fp.SmoothedClassifier(never, NOISE, num_classes=2)
    with pytest.raises(fp.InputError, match=part):
        smooth.certify(wheel(), **options)
    with pytest.raises(fp.InputError, match=part):
        smooth.certify_all([wheel()], **options)


def test_other_noise_and_other_graphs_are_refused(smooth):
    with pytest.raises(fp.InputError, match=r"noise must be an EdgeNoise; got 0.9 .*EdgeNoise\(keep=0.9\)"):
        fp.SmoothedClassifier(few_or_many, 0.9, num_classes=3)
    with pytest.raises(fp.InputError, match="expected a graph"):
        smooth.certify("wheel")
    with pytest.raises(fp.InputError, match="wrap it in a list"):
        smooth.certify_all(wheel())
    with pytest.raises(fp.InputError, match="both directions"):
        smooth.certify(np.triu(np.ones((3, 3)), 1))


def with_clean_degrees(graph):
    return graph.replaced(node_features=graph.degrees[:, None].astype(np.float32))


@pytest.mark.parametrize(
    "features",
    [None, "own", "own+degree", ["own", "constant"], lambda graph: graph.node_features, transforms.OneHotDegree(10)],
)
def test_clean_degrees_are_refused_whatever_lets_them_through(features):
    class Never(torch.nn.Module):
        def forward(self, x, edge_index, batch):
            raise AssertionError("the model was asked")

    smooth = fp.SmoothedClassifier(Never().eval(), NOISE, num_classes=3, features=features)
    for act in (smooth.sample, smooth.certify, smooth.predict, lambda g: smooth.certify_all([g])):
        with pytest.raises(fp.InputError, match=r"column 0 of node_features is the degrees.*would be false"):
            act(with_clean_degrees(wheel()))


def blind(in_features=2, classes=3):
    return Blind(GIN(in_features, classes, seed=1)).eval()


def labelled_nodes(n=6, edges=7, seed=0):
    rng = np.random.default_rng(seed)
    upper = np.argwhere(np.triu(np.ones((n, n)), 1))
    chosen = upper[rng.choice(len(upper), edges, replace=False)]
    return fp.Graph(n, chosen, rng.normal(size=(n, 2)).astype(np.float32))


def test_an_edge_blind_model_is_certified_at_every_radius_without_sampling():
    model, graph = blind(), labelled_nodes()
    calls: list[int] = []
    model.network.register_forward_pre_hook(lambda _, arguments: calls.append(len(arguments[0])))
    smooth = fp.SmoothedClassifier(model, NOISE)
    certificate = smooth.certify(graph, samples=10**9, seed=0)
    assert sum(calls) < 100  # the probes, and no sample
    assert (certificate.method, certificate.alpha, certificate.samples) == ("edge-blind", 0.0, 0)
    assert (certificate.radius, certificate.num_slots, certificate.counts) == (15, 15, (0, 0, 0))
    assert (certificate.p_lower, certificate.p_upper) == (1.0, 0.0)
    assert certificate.grid.shape == (9, 8)
    assert certificate.grid.all()
    assert smooth.predict(graph) == certificate.label
    assert "any 15 edge flips (edge-blind, with certainty)" in str(certificate)
    json.dumps(certificate.to_dict())
    assert certificate == smooth.certify_all([graph], simultaneous=True)[0]
    # the smoothed classifier's answer is the same, sampled, and on any other graph of these nodes
    assert set(smooth.sample(graph, samples=50).labels.tolist()) == {certificate.label}
    other = labelled_nodes(edges=11, seed=5).replaced(node_features=graph.node_features)
    assert smooth.certify(other).label == certificate.label


def test_edge_blind_certificates_of_large_and_of_partly_frozen_graphs():
    smooth = fp.SmoothedClassifier(blind(1), NOISE, features="constant")
    large = smooth.certify(fp.Graph(400, [(k, k + 1) for k in range(399)]))
    assert large.radius == 400 * 399 // 2
    assert large.grid.shape == (64, 64)
    frozen = smooth.certify(fp.Graph(4, [(0, 1), (1, 2)], frozen=[(0, 1), (0, 3)]))
    assert frozen.radius == 4
    assert frozen.grid.shape == (4, 2)  # three pairs to add, one edge to remove
    assert smooth.certify(fp.Graph(1, [])).radius == 0
