"""Losses: what each of them makes right."""

import pytest
import torch

import flipproof as fp
from flipproof import models
from support.learnable import Recorder, padded


def test_class_weights_make_a_rare_class_count_as_much():
    graphs = [fp.Graph(4, [], label=0)] * 18 + [fp.Graph(4, [], label=1)] * 2

    def share(**options):
        model = Recorder()
        fp.train(model, graphs, epochs=60, batch_size=20, learning_rate=0.1, weight_decay=0.0, **options)
        return float(model.weight.detach().softmax(0)[1])

    assert share() == pytest.approx(0.1, abs=0.05)
    assert share(class_weights=True) == pytest.approx(0.5, abs=0.05)


def test_majority_wins_where_no_sample_does():
    """A class between two others is never the likeliest on one noisy copy; trained for the majority it gets its votes."""
    noise = fp.EdgeNoise(keep=0.7)
    paths = [fp.Graph(8, [(v, v + 1) for v in range(edges)], label=label) for label, edges in enumerate((1, 4, 7))]
    right = {}
    for objective in ("samples", "majority"):
        model = models.GIN(num_classes=3, hidden=16, layers=1, noise=noise, seed=0)
        arguments = {"batch_size": 3, "copies": 128, "learning_rate": 0.01}
        fp.train(model, paths, noise=noise, epochs=100, objective=objective, **arguments)
        smooth = fp.SmoothedClassifier(model, noise, features="degree")
        right[objective] = [int(smooth.sample(graph, samples=2048, seed=0).counts.argmax()) for graph in paths]
    assert right["samples"] != [0, 1, 2]
    assert right["majority"] == [0, 1, 2]


@pytest.mark.parametrize("objective", ["majority", "attacked", "attacked-votes"])
def test_averages_need_noisy_copies(objective):
    for arguments in ({"copies": 1, "noise": fp.EdgeNoise(keep=0.9)}, {"copies": 64}):
        with pytest.raises(fp.InputError, match=f"the {objective} objective needs several noisy copies"):
            fp.train(models.GCN(num_classes=8), fp.datasets.topologies(8), objective=objective, **arguments)


class Counts(torch.nn.Module):
    """Says class 1 with the more confidence, the more edges there are among the first three nodes; remembers what it saw."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(1.0))
        self.seen = []

    def forward(self, x, adj, mask):
        self.seen.append(adj.detach().clone())
        edges = adj[:, :3, :3].sum(dim=(1, 2)) * self.weight
        return torch.stack([torch.zeros_like(edges), edges - 3], dim=1)


def test_an_attack_flips_the_pairs_that_hurt_the_averaged_answer_in_every_copy():
    noise = fp.EdgeNoise(keep=0.9)
    graphs = [fp.Graph(6, [(3, 4), (4, 5)], label=0)] * 8
    seen = {}
    for objective in ("samples", "attacked"):
        model = Counts()
        options = {"epochs": 1, "batch_size": 8, "learning_rate": 1e-9, "copies": 5}
        fp.train(model, graphs, noise=noise, objective=objective, **options)
        seen[objective] = model.seen[-1].view(5, 8, 6, 6)
    changed = (seen["samples"] != seen["attacked"]).float()
    flips = changed.triu(1).sum(dim=(2, 3))
    assert torch.equal(flips, flips[:1].expand(5, 8))  # the same flips in every copy: on the graph, before the noise
    assert set(flips[0].tolist()) == {0.0, 1.0, 2.0}  # a random number of them
    assert changed[:, :, 3:].sum() == 0  # only pairs that the answer depends on


def test_votes_settle_what_the_cross_entropy_leaves_open():
    """Seven graphs of one class and five of another that look alike: one class gets all votes, not its share of them."""
    graphs = [fp.Graph(4, [(0, 1)], label=label) for label in [0] * 7 + [1] * 5]
    share = {}
    for objective in ("attacked", "attacked-votes"):
        model = models.GCN(1, 2, hidden=4, seed=0)
        options = {"copies": 4, "flips": 1, "epochs": 150, "batch_size": 12, "learning_rate": 0.05}
        fp.train(model, graphs, noise=fp.EdgeNoise(keep=0.99), objective=objective, **options)
        share[objective] = float(model(*padded(graphs[0])).softmax(1)[0, 0].detach())
    assert share["attacked"] == pytest.approx(7 / 12, abs=0.15)
    assert share["attacked-votes"] > 0.95
