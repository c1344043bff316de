"""What the model is shown: clean graphs, noisy ones, sub-graphs; features always those of what is shown."""

import json

import numpy as np
import pytest
import torch

import flipproof as fp
from flipproof.noise import keyed_draws
from flipproof.training.batches import LabelledGraphs, Noisy, SubGraphs, View
from support.learnable import Recorder, dense_or_not


def draws(what, shape):
    return keyed_draws(what, 0, 0, shape)


def test_without_noise_the_model_sees_the_graphs_as_they_are():
    graphs, model = dense_or_not(6), Recorder()
    fp.train(model, graphs, epochs=2, batch_size=3)
    shown = [
        fp.Graph.from_adjacency(matrix[m][:, m])
        for _, adj, mask in model.seen
        for matrix, m in zip(adj, mask, strict=True)
    ]
    assert sorted(graph.topology for graph in shown) == sorted([graph.topology for graph in graphs] * 2)
    assert not any(adj[~mask].any() for _, adj, mask in model.seen)


def test_noise_is_fresh_every_epoch_and_symmetric_and_features_are_those_of_the_noisy_graph():
    graphs, model = dense_or_not(6), Recorder()
    fp.train(model, graphs, noise=fp.EdgeNoise(keep=0.7), epochs=4, batch_size=6, features="degree")
    matrices = [adj for _, adj, _ in model.seen]
    for x, adj, mask in model.seen:
        assert torch.equal(x, adj.sum(-1, keepdim=True))
        assert torch.equal(adj, adj.mT)
        assert set(adj.unique().tolist()) == {0.0, 1.0}
        assert adj.diagonal(dim1=1, dim2=2).sum() == 0
        assert adj[~mask].sum() == 0
    assert len({tuple(sorted(adj.sum((1, 2)).tolist())) for adj in matrices}) == 4


def test_noise_flips_with_the_right_probabilities_and_leaves_frozen_pairs_alone():
    noise = fp.EdgeNoise(add=0.05, remove=0.4)
    pairs = [(i, j) for i in range(8) for j in range(i) if (i + j) % 2]
    graph = fp.Graph(8, pairs, label=0, frozen=[(0, 1), (0, 2)])
    batch = LabelledGraphs([fp.Graph(3, [(0, 1)], label=0), graph], "graphs").padded(torch.tensor([1, 0]))
    rates = Noisy(noise).show(batch, 20_000, draws).adjacency[::2].mean(0)
    clean, slots = torch.from_numpy(graph.adjacency()) > 0, torch.ones(8, 8).triu(1) > 0
    assert (rates[0, 1], rates[0, 2]) == (1, 0)
    slots[0, 1:3] = False
    for where, expected in ((clean & slots, 1 - noise.p_remove), (~clean & slots, noise.p_add)):
        deviation = (expected * (1 - expected) / 20_000) ** 0.5
        assert (rates[where] - expected).abs().max() < 5 * deviation


def test_validation_is_seen_under_the_same_noise():
    class Watched(Recorder):
        def forward(self, x, adj, mask):
            assert self.training == torch.is_grad_enabled() == (mask.shape != (8, 9))  # validation teaches nothing
            return super().forward(x, adj, mask)

    model, held_out = Watched(), [fp.Graph(9, [], label=1)]
    fp.train(model, dense_or_not(4), noise=fp.EdgeNoise(keep=0.7), epochs=2, validation=held_out)
    shown = [adj for _, adj, mask in model.seen if mask.shape == (8, 9)]
    assert len(shown) == 2
    assert all(adj.sum() > 0 for adj in shown)
    assert torch.equal(shown[0], shown[1])


def test_renumbering_makes_ever_new_sub_graphs_of_the_same_graph():
    """What training draws: with renumbering, sub-graphs of the graph itself that the fixed hash does not make."""
    six = fp.Graph(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5), (0, 3)], label=0)
    graphs = [six, fp.Graph(4, [(0, 1), (1, 2), (2, 3)], label=1)]
    known = [{part.topology for part in fp.EdgeGroups(2).sub_graphs(graph)} for graph in graphs]
    for renumber in (False, True):
        batch = LabelledGraphs(graphs, "graphs").padded(torch.tensor([0, 1]))
        adjacency = SubGraphs(2, renumber=renumber).show(batch, 40, draws).adjacency
        drawn: list[set[str]] = [set(), set()]
        for which, matrix, inside in zip([0, 1] * 40, adjacency, batch.mask.repeat(40, 1), strict=True):
            part = fp.Graph.from_adjacency(matrix[inside][:, inside])
            assert not set(part.edge_slots.tolist()) - set(graphs[which].edge_slots.tolist())
            assert not matrix[~inside].any()
            drawn[which].add(part.topology)
        assert all((len(seen - old) >= 2) is renumber for seen, old in zip(drawn, known, strict=True))
        assert renumber or drawn == known


def test_validation_sees_every_sub_graph_that_the_hash_makes():
    graphs = [graph.replaced(frozen=graph.edges[:1]) for graph in dense_or_not(4)]
    view = SubGraphs(fp.EdgeGroups(3, key=7), renumber=True)
    batch = LabelledGraphs(graphs, "graphs").padded(torch.arange(4))
    assert view.validation_copies(1) == 3
    shown = view.show(batch, 3, draws, validation=True).adjacency.view(3, 4, *batch.adjacency.shape[1:])
    for index, graph in enumerate(graphs):
        for group, part in enumerate(fp.EdgeGroups(3, key=7).sub_graphs(graph)):
            n = graph.num_nodes
            assert np.array_equal(shown[group, index, :n, :n].numpy(), part.adjacency())


@pytest.mark.parametrize("view", [View(), Noisy(fp.EdgeNoise(keep=0.8)), SubGraphs(3, renumber=True)])
def test_a_view_has_no_state(view):
    """The same draws give the same matrices, in any order of calls: what makes a training continue to the same bytes."""
    batches = [LabelledGraphs(dense_or_not(5, seed=seed), "graphs").padded(torch.arange(5)) for seed in range(2)]
    first = [view.show(batch, 2, draws).adjacency for batch in batches]
    again = [view.show(batch, 2, draws).adjacency for batch in reversed(batches)]
    assert all(torch.equal(*pair) for pair in zip(first, reversed(again), strict=True))
    assert json.loads(json.dumps(view.description())) == view.description()
