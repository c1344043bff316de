"""Labelled graphs as flat tensors: batches hold what the graphs do."""

import numpy as np
import torch

import flipproof as fp
from flipproof.training.batches import LabelledGraphs, shuffled
from support.learnable import dense_or_not


def test_own_features_stay_with_their_nodes():
    graphs = [fp.Graph(n, [], np.arange(n)[:, None] + 10.0 * index, label=0) for index, n in enumerate((3, 1, 4))]
    own = LabelledGraphs(graphs, "graphs").padded(torch.tensor([2, 0, 1])).own
    assert own.squeeze(2).tolist() == [[20, 21, 22, 23], [0, 1, 2, 0], [10, 0, 0, 0]]


def test_every_graph_is_seen_once_per_epoch():
    sizes = LabelledGraphs(dense_or_not(37), "graphs").sizes
    epochs = [list(shuffled(sizes, 5, seed=0, epoch=epoch)) for epoch in range(2)]
    for parts in epochs:
        assert sorted(torch.cat(parts).tolist()) == list(range(37))
        assert len(parts) == 8
    assert not torch.equal(torch.cat(epochs[0]), torch.cat(epochs[1]))


def test_a_batch_holds_graphs_of_similar_size():
    sizes = torch.arange(200) % 50 + 1
    parts = list(shuffled(sizes, 10, seed=0, epoch=0))
    spread = [int(sizes[part].max() - sizes[part].min()) for part in parts]
    assert np.mean(spread) < 10
    assert [int(sizes[part].min()) for part in parts] != sorted(int(sizes[part].min()) for part in parts)


def test_large_graphs_are_parted_from_small_ones():
    sizes = [417, 20, 25, 31, 300, 22] + [18] * 26
    graphs = LabelledGraphs([fp.Graph(size, [(0, 1)], label=index % 2) for index, size in enumerate(sizes)], "graphs")
    members = torch.arange(len(sizes))
    parts = list(graphs.cut(members, 1, by_size=True))
    assert sorted(torch.cat(parts).tolist()) == members.tolist()
    padded = sum(len(part) * int(graphs.sizes[part].max()) ** 2 for part in parts)
    assert padded < 0.1 * len(sizes) * 417**2
    assert [part.tolist() for part in graphs.cut(members, 1)] == [members.tolist()]
    alike = torch.arange(6, len(sizes))
    assert [part.tolist() for part in graphs.cut(alike, 1, by_size=True)] == [alike.tolist()]


def test_a_batch_in_pieces_has_the_gradient_of_the_whole(monkeypatch):
    """Parted by size; not parted, since it has statistics of its own; cut, since its matrices would not fit into memory."""
    rng = np.random.default_rng(0)
    sizes = [200, 150, *rng.integers(5, 30, 30).tolist()]
    graphs = [fp.Graph(n, [(i, i + 1) for i in range(n - 1)], label=int(rng.integers(2))) for n in sizes]
    weights = []
    for batch_norm in (False, True, True):
        model = fp.models.GCN(in_features=1, num_classes=2, hidden=8, seed=0)
        model.norm = torch.nn.BatchNorm1d(1) if batch_norm else None  # not called: the same network
        fp.train(model, graphs, epochs=1, batch_size=32, seed=0, features="degree")
        weights.append(torch.cat([weight.detach().flatten() for weight in model.parameters() if weight.numel() > 1]))
        if batch_norm:
            monkeypatch.setattr("flipproof.training.batches._MOST_ENTRIES", 3 * 200**2)
    assert torch.allclose(weights[0], weights[1], atol=1e-4)
    assert torch.allclose(weights[2], weights[1], atol=1e-4)
