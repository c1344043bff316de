"""The local network as a network: two layouts, padding, folders, and that it sees no more than views."""

import numpy as np
import pytest
import torch

import flipproof as fp
from flipproof.models import Local


def batch(seed, sizes=(5, 3), features=3):
    generator = torch.Generator().manual_seed(seed)
    n = max(sizes)
    mask = torch.arange(n) < torch.tensor(sizes).unsqueeze(1)
    adj = (torch.rand(len(sizes), n, n, generator=generator) < 0.5).float().triu(1)
    adj = (adj + adj.mT) * (mask.unsqueeze(1) & mask.unsqueeze(2))
    return torch.rand(len(sizes), n, features, generator=generator), adj, mask


@pytest.mark.parametrize("features", [0, 3])
def test_the_defence_and_the_network_answer_alike(features):
    rng = np.random.default_rng(0)
    model = Local(features, 3, seed=0).eval()
    local = fp.LocalClassifier(model)
    for _ in range(10):
        x, adj, _ = batch(int(rng.integers(1000)), sizes=(6,))
        pairs = adj[0].triu(1).nonzero().numpy()
        graph = fp.Graph(6, pairs, x[0].numpy() if features else None)
        scores = model(x, adj, torch.ones(1, 6, dtype=torch.bool))[0].detach()
        answer = local.predict(graph)
        assert answer is None or answer == int(scores.argmax())
        assert (answer is None) == (float(scores.max()) <= 0)


def test_sizes_are_known_apart_only_where_graphs_recur():
    model = Local(0, 2, seed=0)
    sizes, nothing = torch.tensor([8.0, 9.0, 200.0]), torch.zeros(3, 0)
    assert (model.context(sizes, nothing)[:, 2:66] == 0).all()
    model.learn_sizes(True)
    code = model.context(sizes, nothing)[:, 2:66]
    assert code.argmax(dim=1)[:2].tolist() == [8, 9]
    assert (code[2] == 0).all()
    labelled = Local(3, 2, seed=0)
    labelled.learn_sizes(True)
    assert int(labelled.recurring) == 0


def test_node_sets_are_measured_by_those_of_training():
    sizes, sums = torch.tensor([5.0, 8.0, 30.0]), torch.tensor([[5.0, 0.0], [2.0, 0.0], [9.0, 0.0]])
    model = Local(2, 2, seed=0)
    before = model.context(sizes, sums)
    model.standardise(sizes, sums)
    after = model.context(sizes, sums)
    torch.testing.assert_close(after[:, :6].mean(dim=0), torch.zeros(6), atol=1e-5, rtol=0)
    torch.testing.assert_close(after[:, :6].std(dim=0, correction=0), torch.tensor([1.0, 1, 1, 0, 1, 0]))
    assert torch.equal(after[:, 6:], before[:, 6:])  # the budget
    plain = Local(0, 2, seed=0)  # without node features numbers are read as they are
    before = plain.context(sizes, sums[:, :0])
    plain.standardise(sizes, sums[:, :0])
    assert torch.equal(plain.context(sizes, sums[:, :0]), before)
