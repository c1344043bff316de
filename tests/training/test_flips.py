"""Training against flips: which pairs are flipped, which variant is the worst, and what it is good for."""

import numpy as np
import pytest
import torch

import flipproof as fp
from flipproof import models
from flipproof.training.batches import LabelledGraphs, SubGraphs, View
from flipproof.training.classification import variants
from support.learnable import PygMean, Recorder, dense_or_not, weights_of


def draws(what, shape):
    return np.random.default_rng(len(what)).integers(0, 2**32, shape, dtype=np.uint32)


def padded():
    first = fp.Graph(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)], label=0, frozen=[(0, 1), (0, 5)])
    return LabelledGraphs([first, fp.Graph(4, [(0, 1)], label=1)], "graphs").padded(torch.arange(2))


@pytest.mark.parametrize("view", [View(), SubGraphs(2), SubGraphs(2, renumber=True)])
@pytest.mark.parametrize("validation", [False, True])
def test_only_pairs_that_an_attacker_has_are_flipped(view, validation):
    batch = padded()
    adjacency, _, pairs = view.show(batch, 2, draws, validation=validation)
    room = batch.free().repeat(2, 1, 1) if pairs is None else batch.free().repeat(2, 1, 1) & pairs
    assert torch.equal(room, room.mT)
    assert not room.diagonal(dim1=1, dim2=2).any()
    assert not room[0, 0, 1]
    assert not room[0, 0, 5]
    assert not room[1::2, 4:].any()
    if isinstance(view, SubGraphs) and (validation or not view.renumber):
        group_of = view._groups_of_pairs(6)
        for index in range(4):
            assert len(group_of[room[index]].unique()) <= 1
    slopes = None if validation else torch.from_numpy(draws("slopes", (4, 6, 6)).astype(np.float32))
    for variant in variants(adjacency, room, draws, slopes, 2):
        changed = variant != adjacency
        assert torch.equal(changed, changed.mT)
        assert not (changed & ~room).any()
        assert (changed.sum(dim=(1, 2)) <= 4).all()
        assert set(variant.unique().tolist()) <= {0.0, 1.0}


def test_variants_are_the_steepest_and_random_ones():
    batch = padded()
    adjacency, room = batch.adjacency, batch.free()
    slopes = torch.zeros_like(adjacency)
    slopes[0, 1, 2] = slopes[0, 2, 1] = -5.0  # the loss rises if this edge goes
    slopes[1, 2, 3] = slopes[1, 3, 2] = 5.0  # and if this one comes
    slopes[0, 3, 4] = -3.0  # these are the next
    slopes[1, 1, 3] = 3.0
    steepest, second, _ = variants(adjacency, room, draws, slopes, 1)
    assert (steepest != adjacency).nonzero().tolist() == [[0, 1, 2], [0, 2, 1], [1, 2, 3], [1, 3, 2]]
    assert (second != adjacency).nonzero().tolist() == [[0, 3, 4], [0, 4, 3], [1, 1, 3], [1, 3, 1]]
    edges, anything, _ = variants(adjacency, room, draws, None, 1)
    assert ((anything != adjacency).sum(dim=(1, 2)) == 2).all()
    assert (edges <= adjacency).all()
    assert (edges.sum(dim=(1, 2)) == adjacency.sum(dim=(1, 2)) - 2).all()


def test_the_worst_variant_is_the_one_trained_on():
    """A model that likes class 0 the more, the fewer edges there are: class 0 is shown with more, class 1 with fewer edges."""

    class Edges(Recorder):
        def forward(self, x, adj, mask):
            self.seen.append((x, adj.detach().clone(), mask))
            edges = adj.sum(dim=(1, 2))
            return torch.stack([-edges, edges], dim=1) + self.weight

    graphs = [fp.Graph(5, [(0, 1), (1, 2)], label=0), fp.Graph(5, [(0, 1), (2, 3), (3, 4)], label=1)]
    model = Edges()
    fp.train_voting(model, graphs, groups=1, flips=1, epochs=1, batch_size=2)
    _, shown, _ = model.seen[-1]
    edges = sorted((shown.sum(dim=(1, 2)) / 2).tolist())
    assert edges == [2, 3]  # 2 + 1 of class 0 and 3 - 1 of class 1


@pytest.mark.parametrize("make", [lambda: models.GCN(1, 2, hidden=8, seed=0), PygMean], ids=["slopes", "no slopes"])
@pytest.mark.parametrize("noisy", [False, True])
def test_a_training_against_flips_is_repeatable(make, noisy):
    """Without slopes, for a model that takes edges as lists, the flips are random ones."""
    weights = []
    for _ in range(2):
        model, options = make(), {"flips": 1, "epochs": 2, "batch_size": 6}
        if noisy:
            attack = {"noise": fp.EdgeNoise(keep=0.9), "objective": "attacked", "copies": 3}
            result = fp.train(model, dense_or_not(12), **attack, **options)
        else:
            result = fp.train_voting(model, dense_or_not(12), groups=2, **options)
        assert result.settings["flips"] == 1
        weights.append(weights_of(model))
    assert torch.equal(*weights)
    with pytest.raises(fp.InputError, match="flips must be an integer"):
        fp.train_voting(PygMean(), dense_or_not(8), groups=1, flips=-1)
