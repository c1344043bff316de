"""Mutation check of the guards: models whose answers depend on the batch are refused everywhere, honest ones nowhere."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

import flipproof as fp
from flipproof.classifiers.guard import Arithmetic, Precise, agree, probe_batch
from support.guarded import (
    CONVENTIONS,
    HONEST,
    MUTANTS,
    NOISES,
    ODD,
    PLACES,
    REFUSED,
    TREE,
    WIDTH,
    Applied,
    ByBatch,
    ByData,
    Dense,
    Zoo,
)
from support.learnable import Blind


def features_of(convention):
    return None if convention == "black box" else "degree"


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_models_that_depend_on_the_batch_are_refused(mutant, convention):
    for graphs in PLACES.values():
        for noise in NOISES:
            model = CONVENTIONS[convention](MUTANTS[mutant]())
            with pytest.raises(fp.InputError, match=REFUSED):
                fp.SmoothedClassifier(model, noise, features=features_of(convention)).check(graphs)
        model = CONVENTIONS[convention](MUTANTS[mutant]())
        with pytest.raises(fp.InputError, match=REFUSED):
            fp.VotingClassifier(model, 100, features=features_of(convention)).check(graphs)


@pytest.mark.parametrize("name", HONEST)
def test_honest_networks_are_not_refused(name):
    graphs = [*ODD, TREE, *fp.datasets.topologies(8, seed=0)]  # among them complete ones, in which all nodes look alike
    for noise in NOISES:
        fp.SmoothedClassifier(HONEST[name](), noise, features="degree").check(graphs)
    fp.VotingClassifier(HONEST[name](), 5, features="degree").check(graphs)


USUAL = Arithmetic(depth=160.0)


def masked(value):
    return np.array([[1.0, 2.0, value], [0.5, -0.5, value]])


@pytest.mark.parametrize("mask", [-1e4, -1e9, -np.inf])
def test_a_masked_class_loosens_nothing(mask):
    same, other = masked(mask), masked(mask)
    other[0, 0] += 0.01
    assert agree(same, masked(mask), tolerance=1e-3, arithmetic=USUAL)
    assert not agree(same, other, tolerance=1e-3, arithmetic=USUAL)


class Shifted(nn.Module):
    """Another network's logits, all of them moved: softmax and answer are the same."""

    num_classes = 3

    def __init__(self, network, shift):
        super().__init__()
        self.network, self.shift = network, shift
        self.eval()

    def forward(self, x, edge_index, batch):
        logits: Tensor = self.network(x, edge_index, batch) + self.shift
        return logits


@pytest.mark.parametrize("shift", [[-1e4, -1e4, -1e4], [1e3, 1e3, 0.0]])
@pytest.mark.parametrize("mutant", MUTANTS)
def test_models_that_depend_on_the_batch_are_refused_whatever_is_added_to_their_logits(mutant, shift):
    model = Shifted(ByBatch(MUTANTS[mutant]()), torch.tensor(shift))
    with pytest.raises(fp.InputError, match=REFUSED):
        fp.SmoothedClassifier(model, NOISES[0], features="degree").check([TREE])


def test_an_honest_model_is_not_refused_whatever_is_added_to_its_logits():
    for shift in (-1e4, 1e3):
        honest = Shifted(Zoo(pyg.GCNConv(1, 8)), torch.full((3,), shift))
        fp.SmoothedClassifier(honest, NOISES[0], features="degree").check([TREE])


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_honest_networks_of_other_number_types_are_not_refused(kind):
    fp.SmoothedClassifier(fp.models.GIN(in_features=1, num_classes=3, seed=0).eval().to(kind), NOISES[0]).check([TREE])


def test_a_change_of_the_answer_counts_unless_it_is_a_tie():
    one = np.array([[1.0, 1.0 + 1e-7], [3.0, 0.0]])
    assert agree(one, np.array([[1.0 + 1e-7, 1.0], [3.0, 0.0]]), tolerance=1e-3, arithmetic=USUAL)
    assert not agree(np.array([[1.0, 1.1]]), np.array([[1.1, 1.0]]), tolerance=1e-3, arithmetic=USUAL)
    assert not agree(np.array([0, 1]), np.array([0, 0]), tolerance=1e-3, arithmetic=USUAL)


class Running(nn.Module):
    """Pools by differences of one running sum over all nodes of the batch: a function of the graph alone, but for rounding.

    Scores hardly differ from graph to graph, while the sums that they are made from are large.
    """

    num_classes = 3

    def __init__(self, part=None, *, spread=1e-3, size=1.0, masked=0.0):
        super().__init__()
        self.masked = torch.tensor([0.0, 0.0, masked])
        torch.manual_seed(0)
        self.first, self.part, self.spread, self.size = nn.Linear(1, 3), part or nn.Identity(), spread, size
        self.eval()

    def forward(self, x, adj, mask):
        rows = self.part(self.spread * self.first(x + adj @ x).tanh().flatten(0, 1))
        nodes = adj.shape[1]
        ends = (rows + self.size).cumsum(0)[nodes - 1 :: nodes]
        return ends.diff(dim=0, prepend=torch.zeros_like(ends[:1])) - self.size * nodes + self.masked.to(x)


def smoothed(model):
    return fp.SmoothedClassifier(model, NOISES[0], features="degree")


@pytest.mark.parametrize("spread", [1e-2, 1e-3, 1e-4])
def test_rounding_is_not_taken_for_a_dependence_on_other_graphs(spread):
    """Regression: a network trained against flips, whose scores hardly differ, was refused."""
    model = Running(spread=spread)
    batch = probe_batch(TREE, NOISES[0])
    scores = smoothed(model).classifier.scores(batch)
    alone = smoothed(model).classifier.scores(batch.only(np.array([4])))
    assert not np.array_equal(scores[4:5], alone)
    assert smoothed(model).certify(TREE, samples=2000, seed=0).label is not None
    smoothed(model).check([TREE, *ODD])
    smoothed(Running(spread=spread, masked=-1e9)).check([TREE])
    fp.VotingClassifier(model, 9, features="degree").certify(TREE, depth=1)


def test_rounding_that_could_turn_answers_is_refused_with_the_remedy():
    with pytest.raises(fp.InputError, match=r"rounding in single precision could turn .*model\.double\(\)"):
        smoothed(Running(spread=1.0, size=1e5)).check([TREE])
    smoothed(Running(spread=1.0, size=1e5).double()).check([TREE])


class Leaking(nn.Module):
    """Lets a little of the other graphs' nodes in, perhaps only in single precision."""

    def __init__(self, share, only=None):
        super().__init__()
        self.share, self.only = share, only

    def forward(self, x):
        return x + self.share * x.mean(0) if self.only in (None, x.dtype) else x


@pytest.mark.parametrize("share", [1e-1, 1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("spread", [1.0, 1e-3])
def test_a_small_dependence_on_other_graphs_does_not_hide_behind_rounding(share, spread):
    for graphs in ([TREE], [ODD[0], TREE, ODD[2]]):
        with pytest.raises(fp.InputError, match=REFUSED):
            smoothed(Running(Leaking(share), spread=spread)).check(graphs)
    if share >= 1e-2 and share * spread >= 1e-4:
        with pytest.raises(fp.InputError, match=f"{REFUSED}|rounding in single precision"):
            smoothed(Running(Leaking(share, torch.float32), spread=spread)).check([TREE])
    for model in (ByBatch(Leaking(share)), Dense(Leaking(share))):
        with pytest.raises(fp.InputError, match=REFUSED):
            smoothed(model).check([TREE])


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_refused_where_rounding_is_large(mutant):
    if "Norm" in mutant and mutant != "PairNorm":
        part: nn.Module = nn.Sequential(nn.Linear(3, WIDTH), MUTANTS[mutant](), nn.Linear(WIDTH, 3))
    else:
        part = MUTANTS[mutant]()
    with pytest.raises(fp.InputError, match=REFUSED):
        smoothed(Running(part)).check([TREE])


def test_what_double_precision_leaves_is_no_rounding():
    double = np.array([[1.0, 2.0], [1.5, 1.0]])

    def judged(*, together, alone, left):
        """With these errors of single precision, and so much left of the difference in double precision."""
        precise = Precise(double + together, double)
        precise.add(np.array([0]), double[:1] + alone, double[:1] + left)
        return precise.only_rounding(), precise.usual()

    assert judged(together=1e-5, alone=-1e-5, left=0) == (True, True)
    assert judged(together=1e-5, alone=-1e-5, left=1e-14) == (True, True)
    assert judged(together=1e-5, alone=-1e-5, left=1e-9) == (False, True)  # depends on the batch
    assert judged(together=1e-2, alone=1e-5, left=0) == (True, False)  # far more than rounding makes of a graph alone
    shapes = Precise(double, double)
    shapes.add(np.array([0]), double, double)
    assert not shapes.only_rounding()
    masked = Precise(double * [1, -1e9], double * [1, -1e9])
    masked.add(np.array([0]), double[:1] * [1, -1e9] + [1e-3, 64], double[:1] * [1, -1e9] + [1e-3, 0])
    assert not masked.only_rounding()  # the rounding of a masked class excuses no other


class Branching(nn.Module):
    """A branch that tracing on one kind of graph skips: dense graphs are answered otherwise."""

    num_classes = 3

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head = pyg.GraphConv(1, 8), nn.Linear(8, 2)
        self.factor = {"value": 1.0}
        self.eval()

    def forward(self, x, edge_index, batch):
        pooled = pyg.global_add_pool(self.conv(x, edge_index).relu() * self.factor["value"], batch)
        logits = self.head(pooled)
        return torch.cat([logits, torch.full_like(logits[:, :1], -1e9)], dim=1)


def test_votes_come_from_the_model_as_it_is_now():
    model = Branching()
    smooth = fp.SmoothedClassifier(model, NOISES[0], features="degree")
    before = smooth.sample(TREE, samples=600, seed=0).counts
    model.factor["value"] = -3.0
    fresh = fp.SmoothedClassifier(model, NOISES[0], features="degree").sample(TREE, samples=600, seed=0).counts
    assert smooth.sample(TREE, samples=600, seed=0).counts.tolist() == fresh.tolist() != before.tolist()
    model.conv.register_forward_hook(lambda module, inputs, output: output + 5)
    fresh = fp.SmoothedClassifier(model, NOISES[0], features="degree").sample(TREE, samples=600, seed=0).counts
    assert smooth.sample(TREE, samples=600, seed=0).counts.tolist() == fresh.tolist()


class LateMinding:
    """Honest for some calls; later, its answer depends on the batch."""

    num_classes = 2
    calls = 0

    def __init__(self, honest=6):
        self.honest = honest

    def __call__(self, graphs):
        self.calls += 1
        return [int(graph.num_edges > 7) if self.calls <= self.honest else int(len(graphs) > 1) for graph in graphs]


def test_samples_are_asked_about_again_alone():
    smooth = fp.SmoothedClassifier(LateMinding(), NOISES[0])
    with pytest.raises(fp.InputError, match="about the same graph alone"):
        smooth.sample(TREE, samples=3000, seed=0)
    steady = fp.SmoothedClassifier(lambda graphs: [0] * len(graphs), NOISES[0], num_classes=2)
    assert steady.sample(TREE, samples=3000, seed=0).compared == 3
    late = LateMinding()
    with pytest.raises(fp.InputError, match="about the same graph alone"):
        fp.VotingClassifier(late, 9).certify(TREE)
    late = LateMinding(honest=8)  # the votes, one of them again alone, and then the flips that tell their price
    with pytest.raises(fp.InputError, match="about the same graph alone"):
        fp.VotingClassifier(late, 9).certify(TREE, depth=1)
    assert late.calls == 10


def test_which_twins_are_known_to_take_graphs_one_by_one():
    def known(model, features="degree"):
        twin: Any = fp.SmoothedClassifier(model, NOISES[0], features=features).classifier.suited(TREE, NOISES[0])
        return twin.path.endswith("twin") and bool(twin.known())

    perceptron = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 8))
    layers = [pyg.GCNConv(1, 8), pyg.GINConv(perceptron), pyg.SAGEConv(1, 8), pyg.GraphConv(1, 8), pyg.GATConv(1, 8)]
    assert all(known(Zoo(layer, pyg.GraphConv(8, 8))) for layer in layers)
    assert known(ByBatch(nn.BatchNorm1d(WIDTH)))
    assert not known(ByBatch(Applied(torch.tanh)))  # a user's own part
    assert not known(ByBatch(nn.Sequential(Applied(torch.tanh))))
    assert not known(Zoo(pyg.GINConv(nn.Sequential(nn.Linear(1, 8), Applied(torch.tanh)))))
    assert not known(Branching())  # a product with a number, and cat
    assert not known(Zoo(pyg.GCNConv(1, 8)), lambda graph: np.ones((graph.num_nodes, 1)))  # a user's own features
    hooked, replaced = Zoo(pyg.GCNConv(1, 8)), Zoo(pyg.GCNConv(1, 8))
    hooked.head.register_forward_hook(lambda module, inputs, output: output - output.mean(0))
    replaced.head.forward = lambda rows: rows[:, :3] - rows[:, :3].mean(0)
    assert not known(hooked)
    assert not known(replaced)


class Fickle(ByData):
    """Answers one way for some calls, and another way ever after."""

    dense_twin = False
    left = 0

    def forward(self, data):
        self.left -= 1
        logits: Tensor = super().forward(data)
        return logits.roll(1, dims=1) if self.left >= 0 else logits


def test_a_model_that_changes_its_mind_in_between_is_refused():
    model = Fickle(nn.ReLU())
    smooth = fp.SmoothedClassifier(model, NOISES[0], features="degree")
    smooth.check([TREE])
    size = smooth.classifier.suited(TREE, NOISES[0]).batch_size(TREE, NOISES[0])
    model.left = 1024 // size  # the votes of a block, and not what is asked about again
    with pytest.raises(fp.InputError, match="about the same graph alone"):
        smooth.defence.block(smooth, TREE, 0, fp.defences.smoothing.Sampling(samples=1024, seed=0))


@pytest.mark.parametrize("nodes", [12, 120, 600])
def test_how_the_model_is_run_depends_on_no_edge(nodes):
    ring = [(node, (node + 1) % nodes) for node in range(nodes)]
    rng = np.random.default_rng(0)
    dense = rng.integers(0, nodes, (nodes * 20, 2))
    graphs = [fp.Graph(nodes, []), fp.Graph(nodes, ring), fp.Graph(nodes, dense[dense[:, 0] != dense[:, 1]])]
    own = fp.models.GIN(in_features=1, num_classes=3, seed=0).eval()
    for model in (Zoo(pyg.GCNConv(1, 8)), own, lambda graphs: [0 for _ in graphs]):
        for noise in (fp.EdgeNoise(keep=0.99), fp.EdgeNoise(add=0, remove=0.8)):
            features = "degree" if isinstance(model, nn.Module) else None
            classifier = fp.SmoothedClassifier(model, noise, num_classes=3, features=features).classifier
            ways = {
                (classifier.suited(graph, noise).path, classifier.suited(graph, noise).batch_size(graph, noise))
                for graph in graphs
            }
            assert len(ways) == 1


class Sees(Blind):
    """A subclass that looks at edges after all."""

    def forward(self, x, adj, mask):
        logits: Tensor = self.network(x, adj, mask)
        return logits


@pytest.mark.parametrize("sees", [False, True])
def test_a_model_that_claims_to_see_no_edge_is_held_to_it(sees):
    model = (Sees if sees else Blind)(fp.models.GIN(in_features=1, num_classes=3, seed=0)).eval()
    ring = fp.Graph(8, [(node, (node + 1) % 8) for node in range(8)])
    large = fp.Graph(200, [(node, node + 1) for node in range(199)])
    for defence in (
        fp.EdgeBlindClassifier(model, features="constant"),
        fp.SmoothedClassifier(model, NOISES[0], features="constant"),
        fp.VotingClassifier(model, 3, features="constant"),
    ):
        if sees:
            with pytest.raises(fp.InputError, match="says that it sees no edge"):
                defence.certify(ring)
        else:
            assert defence.certify(ring).radius == 28
            assert defence.certify(large).label is not None
    with pytest.raises(fp.InputError, match="must not depend on edges"):
        fp.EdgeBlindClassifier(model, features="degree")
