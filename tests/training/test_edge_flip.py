"""The noise as a PyG transform: fresh draws in every epoch and worker, the certificate's law, nothing else changed."""

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric import transforms as T
from torch_geometric.data import Batch, Data, Dataset
from torch_geometric.loader import DataLoader

import flipproof as fp

NOISE = fp.EdgeNoise(add=0.2, remove=0.3)
PAIRS = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)]


def ring(**fields: Any):
    return fp.Graph(5, PAIRS, np.eye(5, 3, dtype=np.float32), 1).to_pyg().update(fields)


class Copies(Dataset):
    """Four equal graphs, as a PyG data set."""

    def __init__(self, transform):
        super().__init__(None, transform)

    def len(self):
        return 4

    def get(self, idx):
        return fp.Graph(12, PAIRS).to_pyg()


@pytest.mark.parametrize(
    ("seed", "options"),
    [
        (None, {"num_workers": 2}),
        (7, {"num_workers": 0}),
        (7, {"num_workers": 2}),
        (7, {"num_workers": 1, "persistent_workers": True}),
    ],
)
def test_epochs_are_fresh_and_a_run_is_repeatable(seed, options):
    def run(disturbed):
        torch.manual_seed(3)
        torch.rand(disturbed)
        transform = fp.EdgeFlip(NOISE, seed=seed)
        loader = DataLoader(Copies(transform), batch_size=1, **options)
        return [batch.edge_index.numpy().tobytes() for _ in range(2) for batch in loader]

    first = run(0)
    assert len(set(first)) == 8, "8 draws of a graph of 66 node pairs"
    assert first == run(3 if seed is not None and options == {"num_workers": 0} else 0)  # torch does not move a seed


def test_every_pair_flips_with_its_probability():
    """1,000 draws: shares of 10 pairs within 5 standard errors; a false alarm is rarer than 1 in 100,000."""
    flip, count = fp.EdgeFlip(NOISE, seed=1), 1000
    present = sum(fp.Graph.from_pyg(flip(ring())).adjacency() for _ in range(count)) / count
    clean = fp.Graph(5, PAIRS).adjacency()
    for u in range(5):
        for v in range(u + 1, 5):
            law = 1 - NOISE.p_remove if clean[u, v] else NOISE.p_add
            assert abs(present[u, v] - law) < 5 * np.sqrt(law * (1 - law) / count)


def test_fields_survive_and_the_clean_graph_stays():
    clean = ring(name="ring", target=torch.tensor([[0.5, 1.5]]), y=torch.tensor([-1]))
    before = clean.edge_index.clone()
    noisy = fp.EdgeFlip(fp.EdgeNoise(add=0, remove=0.9), seed=0)(clean)
    assert noisy.num_edges < clean.num_edges
    assert torch.equal(clean.edge_index, before)
    assert (noisy.name, noisy.y.tolist(), noisy.target.tolist()) == ("ring", [-1], [[0.5, 1.5]])
    assert (noisy.x is clean.x, noisy.is_undirected(), noisy.edge_index.dtype) == (True, True, torch.int64)


def test_nodes_that_lose_their_edges_are_still_there():
    bare = Data(edge_index=torch.tensor([[0, 3], [3, 0]]), y=torch.tensor([0]))  # only the edges tell the 4 nodes
    steps = T.Compose([fp.EdgeFlip(fp.EdgeNoise(add=0, remove=0.999), seed=0), T.OneHotDegree(5, cat=False)])
    with pytest.warns(UserWarning, match="num_nodes"):  # PyG's own, to the user
        lost = steps(bare)
    assert (lost.num_nodes, lost.num_edges) == (4, 0)
    assert Batch.from_data_list([lost, lost]).num_nodes == 8
    assert lost.x.argmax(dim=1).tolist() == [0] * 4  # transforms after it read the noisy edges


def test_a_batch_gets_a_draw_for_every_graph():
    batch = Batch.from_data_list([ring() for _ in range(6)])
    noisy = fp.EdgeFlip(NOISE, seed=0)(batch)
    assert len({str(part.edge_index.tolist()) for part in noisy.to_data_list()}) > 3
    assert (noisy.batch.tolist(), noisy.y.tolist()) == (batch.batch.tolist(), batch.y.tolist())


@pytest.mark.parametrize("field", ["edge_attr", "edge_weight", "bond"])
def test_edge_features_are_refused_dropped_or_made_by_the_hook(field):
    clean = ring(**{field: torch.ones(10, 2)})
    made = fp.EdgeFlip(NOISE, seed=0, edge_features=lambda source, target: source + target)
    for refused in (fp.EdgeFlip(NOISE), NOISE.sample, *([] if field == "edge_attr" else [made])):
        with pytest.raises(fp.InputError, match=rf"{field} has an entry per edge.*edge_features=function"):
            refused(clean)
    assert field not in fp.EdgeFlip(NOISE, edge_features="drop")(clean)
    assert field in clean, "the clean graph keeps it"
    if field == "edge_attr":
        noisy = made(clean)
        assert torch.equal(noisy.edge_attr, noisy.x[noisy.edge_index[0]] + noisy.x[noisy.edge_index[1]])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: fp.EdgeFlip(0.9), "noise must be an EdgeNoise; got 0.9"),
        (lambda: fp.EdgeFlip(NOISE, seed=-1), "seed must be an integer"),
        (lambda: fp.EdgeFlip(NOISE, edge_features="zero"), "\"drop\"; got 'zero'"),
        (lambda: fp.EdgeFlip(NOISE)(fp.Graph(3, [])), "takes a PyG Data; got Graph"),
        (lambda: fp.EdgeFlip(NOISE)(Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2)), "undirected"),
        (lambda: fp.EdgeFlip(NOISE, edge_features=torch.add)(ring(x=None)), "needs node features x"),
    ],
)
def test_what_it_refuses(make, sentence):
    with pytest.raises(fp.InputError, match=sentence):
        make()


def test_a_sample_of_a_graph_keeps_everything_but_its_edges():
    graph = fp.Graph(5, PAIRS, np.ones((5, 2)), 3, frozen=[(0, 1), (0, 2)], name="ring")
    noise = fp.EdgeNoise(add=0.4, remove=0.5)
    draws = [noise.sample(graph, seed=seed) for seed in range(30)]
    for draw in draws:
        assert (draw.label, draw.name, draw.frozen.tolist()) == (3, "ring", graph.frozen.tolist())
        assert draw.node_features is graph.node_features or np.array_equal(draw.node_features, graph.node_features)
        assert draw.adjacency()[0, 1] == 1
        assert draw.adjacency()[0, 2] == 0
    assert len({draw.topology for draw in draws}) > 20
    assert noise.sample(graph, seed=4) == draws[4]
    assert len({noise.sample(graph).topology for _ in range(8)}) > 4, "without a seed every draw is fresh"
    assert isinstance(noise.sample(graph.to_networkx(), seed=0), fp.Graph)
    assert isinstance(noise.sample(graph.to_pyg(), seed=0), Data)


def test_draws_are_not_those_of_a_certificate_with_the_same_seed():
    """A model trained on the very copies that it is certified with would make the certificate false."""
    from flipproof.noise import SampleStream

    graph = fp.Graph(12, [(u, u + 1) for u in range(11)])
    for seed in range(20):
        certified = [noisy.topology for noisy in SampleStream(graph, NOISE, seed=seed).batch(0, 50)[0].graphs()]
        assert NOISE.sample(graph, seed=seed).topology not in certified


def test_a_data_set_that_draws_noise_is_not_certified():
    smooth = fp.SmoothedClassifier(lambda graphs: [0] * len(graphs), NOISE, num_classes=2)
    noisy = Copies(T.Compose([fp.EdgeFlip(NOISE), T.Constant()]))
    for source in (noisy, DataLoader(noisy)):
        with pytest.raises(fp.InputError, match=r"whose transform adds noise.*without it"):
            smooth.certify_all(source)
    assert len(smooth.certify_all(Copies(None), samples=50)) == 4


def test_a_data_gets_the_same_draw_as_its_graph():
    rare = fp.EdgeNoise(add=0.0001, remove=0.3)
    for nodes, noise in ((12, NOISE), (150, NOISE), (400, rare)):  # both samplers
        graph = fp.Graph(nodes, [(u, u + 1) for u in range(nodes - 1)])
        for seed in range(3):
            drawn = fp.Graph.from_pyg(noise.sample(graph.to_pyg(), seed=seed))
            assert drawn.topology == noise.sample(graph, seed=seed).topology
