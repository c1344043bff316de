"""Training: it learns, it is repeatable, and the model sees noisy graphs with features of the noisy graphs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import flipproof as fp
from flipproof import models
from flipproof.checkpoints import finished_epochs
from flipproof.classifiers.features import as_features
from flipproof.training import _Batches


def _dense_or_not(count=40, seed=0):
    """Class 1 has many edges, class 0 few."""
    generator = np.random.default_rng(seed)
    graphs = []
    for index in range(count):
        n = int(generator.integers(5, 10))
        upper = np.triu(generator.random((n, n)) < (0.8 if index % 2 else 0.2), 1)
        graphs.append(fp.Graph(n, np.argwhere(upper), label=index % 2))
    return graphs


def _weights(model):
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


@torch.no_grad()
def _accuracy(model, graphs):
    smooth = [model(*_padded(graph)).argmax().item() == graph.label for graph in graphs]
    return sum(smooth) / len(smooth)


def _padded(graph):
    adj = torch.from_numpy(graph.adjacency()).unsqueeze(0)
    return adj.sum(-1, keepdim=True), adj, torch.ones(1, graph.num_nodes, dtype=torch.bool)


class _Recorder(nn.Module):
    """Remembers what it is shown."""

    num_classes = 2

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.seen = []

    def forward(self, x, adj, mask):
        self.seen.append((x, adj, mask))
        return self.weight.expand(len(x), 2)


class _PygMean(nn.Module):
    """A user's model in PyG's convention."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 2)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x, edge_index, batch):
        assert (edge_index[0] != edge_index[1]).all()
        sizes = torch.bincount(batch).unsqueeze(1)
        sums = x.new_zeros(len(sizes), 1).index_add_(0, batch, x)
        return self.linear(sums / sizes)


NOISES = [None, fp.EdgeNoise(keep=0.9), fp.EdgeNoise(add=0.01, remove=0.3)]


@pytest.mark.parametrize(
    ("name", "noise"),
    [
        *((name, noise) for name in ("gcn", "gin") for noise in NOISES),
        *((name, NOISES[-1]) for name in ("sage", "gat", "diffpool")),
    ],
    ids=str,
)
def test_it_learns_a_separable_problem(name, noise):
    model = models.build({"name": name, "in_features": 1, "num_classes": 2, "hidden": 16}, seed=0)
    result = fp.train(model, _dense_or_not(), noise=noise, epochs=60, batch_size=20)
    assert result.history[-1].loss < result.history[0].loss
    assert _accuracy(model, _dense_or_not(seed=1)) > 0.9
    assert not model.training
    assert result.epochs == 60
    assert result.best_epoch == 59


def test_a_users_model_in_pygs_convention_learns_too():
    model = _PygMean()
    fp.train(model, _dense_or_not(), noise=fp.EdgeNoise(keep=0.9), epochs=60, learning_rate=0.1)
    with torch.no_grad():
        right = [
            model(as_features("degree").of(graph), graph.to_pyg().edge_index, torch.zeros(graph.num_nodes).long())
            .argmax()
            .item()
            == graph.label
            for graph in _dense_or_not(seed=1)
        ]
    assert sum(right) > 0.9 * len(right)


@pytest.mark.parametrize("options", [{}, {"copies": 3, "consistency": 1.0, "average": 0.9, "schedule": "cosine"}])
def test_the_same_seed_gives_the_same_weights_to_the_byte(options):
    def trained(seed):
        model = _WithDropout()
        torch.rand(17)
        fp.train(model, _dense_or_not(), noise=fp.EdgeNoise(keep=0.8), epochs=3, seed=seed, **options)
        return _weights(model)

    first = trained(0)
    assert torch.equal(first, trained(0))
    assert not torch.equal(first, trained(1))


class _WithDropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = models.GCN(1, 2, hidden=8, seed=0)

    def forward(self, x, adj, mask):
        return self.network(nn.functional.dropout(x, 0.5, self.training), adj, mask)


def test_the_callers_generator_is_left_alone():
    torch.manual_seed(5)
    state = torch.get_rng_state()
    fp.train(models.GCN(1, 2, seed=0), _dense_or_not(), epochs=1)
    assert torch.equal(torch.get_rng_state(), state)


def test_without_noise_the_model_sees_the_graphs_as_they_are():
    graphs, model = _dense_or_not(6), _Recorder()
    fp.train(model, graphs, epochs=2, batch_size=3)
    shown = sorted(float(matrix.sum()) / 2 for _, adj, _ in model.seen for matrix in adj)
    assert shown == sorted([graph.num_edges for graph in graphs] * 2)


def test_noise_is_fresh_every_epoch_and_symmetric_and_inside_the_graph():
    graphs, model = _dense_or_not(6), _Recorder()
    fp.train(model, graphs, noise=fp.EdgeNoise(keep=0.7), epochs=4, batch_size=6)
    matrices = [adj for _, adj, _ in model.seen]
    for _, adj, mask in model.seen:
        assert torch.equal(adj, adj.mT)
        assert set(adj.unique().tolist()) == {0.0, 1.0}
        assert adj.diagonal(dim1=1, dim2=2).sum() == 0
        assert adj[~mask].sum() == 0
    assert len({tuple(sorted(adj.sum((1, 2)).tolist())) for adj in matrices}) == 4


def test_features_are_those_of_the_noisy_graph():
    model = _Recorder()
    fp.train(model, _dense_or_not(6), noise=fp.EdgeNoise(keep=0.7), epochs=2, features="degree")
    for x, adj, _ in model.seen:
        assert torch.equal(x, adj.sum(-1, keepdim=True))


@pytest.mark.parametrize("noise", [fp.EdgeNoise(keep=0.8), fp.EdgeNoise(add=0.05, remove=0.4)], ids=str)
def test_noise_flips_with_the_right_probabilities(noise):
    graph = fp.Graph(8, [(i, j) for i in range(8) for j in range(i) if (i + j) % 2], label=0)
    small = fp.Graph(3, [(0, 1)], label=0)
    batches = _Batches([small, graph], noise, as_features("degree"), "graphs")
    adj = batches.draw(torch.tensor([1] * 20_000 + [0]), torch.Generator().manual_seed(0))[0][:-1]
    clean = torch.from_numpy(graph.adjacency()) > 0
    slots = torch.ones(8, 8).triu(1) > 0
    rates = adj.mean(0)
    for where, expected in ((clean & slots, 1 - noise.p_remove), (~clean & slots, noise.p_add)):
        deviation = (expected * (1 - expected) / 20_000) ** 0.5
        assert (rates[where] - expected).abs().max() < 5 * deviation


def test_frozen_pairs_are_left_alone():
    graph = fp.Graph(5, [(0, 1), (1, 2)], label=0, frozen=[(0, 1), (3, 4)])
    batches = _Batches([graph, graph], fp.EdgeNoise(keep=0.6), as_features("degree"), "graphs")
    adj = batches.draw(torch.zeros(200, dtype=torch.int64), torch.Generator().manual_seed(0))[0]
    assert (adj[:, 0, 1] == 1).all()
    assert (adj[:, 4, 3] == 0).all()
    assert 0 < adj[:, 1, 2].mean() < 1


def test_own_features_stay_with_their_nodes():
    graphs = [fp.Graph(n, [], np.arange(n)[:, None] + 10.0 * index, label=0) for index, n in enumerate((3, 1, 4))]
    batches = _Batches(graphs, None, as_features(None), "graphs")
    x = batches.draw(torch.tensor([2, 0, 1]), torch.Generator())[2]
    assert x.squeeze(2).tolist() == [[20, 21, 22, 23], [0, 1, 2, 0], [10, 0, 0, 0]]


def test_every_graph_is_seen_once_an_epoch():
    batches = _Batches(_dense_or_not(37), None, as_features("degree"), "graphs")
    parts = list(batches.order(5, torch.Generator().manual_seed(0)))
    assert sorted(torch.cat(parts).tolist()) == list(range(37))
    assert len(parts) == 8


def test_large_batches_are_cut_without_changing_the_step(monkeypatch):
    def trained():
        model = models.GCN(1, 2, hidden=8, seed=0)
        fp.train(model, _dense_or_not(), epochs=3, batch_size=20)
        return _weights(model)

    whole = trained()
    monkeypatch.setattr("flipproof.training._MOST_ENTRIES", 7 * 81)
    torch.testing.assert_close(trained(), whole, rtol=1e-3, atol=1e-5)


def test_the_best_epoch_on_validation_is_kept():
    """With labels turned round in validation, the longer one trains the worse it gets."""
    graphs = _dense_or_not()
    turned = [graph.replaced(label=1 - graph.label) for graph in graphs]
    model = models.GCN(1, 2, seed=0)
    result = fp.train(model, graphs, epochs=30, validation=turned, learning_rate=0.02)
    losses = [epoch.validation_loss for epoch in result.history]
    assert result.best_epoch == int(np.argmin(losses)) < 29
    assert result.final == result.history[result.best_epoch]
    with torch.no_grad():
        kept = np.mean(
            [float(nn.functional.cross_entropy(model(*_padded(g)), torch.tensor([g.label]))) for g in turned]
        )
    assert kept == pytest.approx(min(losses), rel=1e-4)


def test_validation_is_seen_under_the_same_noise():
    model = _Recorder()
    held_out = [fp.Graph(9, [], label=1)]
    fp.train(model, _dense_or_not(4), noise=fp.EdgeNoise(keep=0.7), epochs=2, validation=held_out)
    shown = [adj for _, adj, mask in model.seen if mask.shape == (8, 9)]
    assert len(shown) == 2
    assert all(adj.sum() > 0 for adj in shown)
    assert torch.equal(shown[0], shown[1])


def test_validation_does_not_change_what_is_learnt_meanwhile():
    def history(**options):
        result = fp.train(models.GCN(1, 2, seed=0), _dense_or_not(), epochs=3, noise=fp.EdgeNoise(keep=0.8), **options)
        return [epoch.loss for epoch in result.history]

    assert history() == history(validation=_dense_or_not(8, seed=4))


def test_averaged_weights_are_the_ones_kept():
    def trained(**options):
        model = models.GCN(1, 2, seed=0)
        fp.train(model, _dense_or_not(), epochs=5, schedule="constant", **options)
        return _weights(model)

    start = _weights(models.GCN(1, 2, seed=0))
    last, averaged = trained(), trained(average=0.95)
    assert (averaged - start).norm() < (last - start).norm()


def test_class_weights_make_a_rare_class_count_as_much():
    graphs = [fp.Graph(4, [], label=0)] * 18 + [fp.Graph(4, [], label=1)] * 2

    def share(**options):
        model = _Recorder()
        fp.train(model, graphs, epochs=60, batch_size=20, learning_rate=0.1, weight_decay=0.0, **options)
        return float(model.weight.detach().softmax(0)[1])

    assert share() == pytest.approx(0.1, abs=0.05)
    assert share(class_weights=True) == pytest.approx(0.5, abs=0.05)


def test_settings_are_recorded_as_json():
    import json

    result = fp.train(models.GCN(1, 2, seed=0), _dense_or_not(4), epochs=1, seed=3)
    assert json.loads(json.dumps(result.settings))["seed"] == 3
    assert "epochs=1" in repr(result)


def test_progress_is_shown_on_demand(capsys):
    fp.train(models.GCN(1, 2, seed=0), _dense_or_not(4), epochs=2)
    assert capsys.readouterr() == ("", "")
    fp.train(models.GCN(1, 2, seed=0), _dense_or_not(4), epochs=2, progress=True)
    output = capsys.readouterr()
    assert "2/2" in output.out + output.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 0}, "epochs must be an integer of at least 1; got 0"),
        ({"learning_rate": 0}, "learning_rate must be a number above 0; got 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a number"),
        ({"batch_size": 2.5}, "batch_size must be an integer"),
        ({"weight_decay": -1}, "weight_decay must be a number of at least 0"),
        ({"average": 1.0}, "average must be a number of at least 0 and below 1"),
        ({"label_smoothing": 1}, "label_smoothing must be"),
        ({"consistency": 1.0}, "consistency compares copies"),
        ({"schedule": "linear"}, "schedule must be one of one-cycle, cosine, constant; got 'linear'"),
        ({"noise": 0.9}, "noise must be an EdgeNoise or None; got 0.9"),
        ({"features": "colour"}, "features must be"),
        ({"features": None}, "has none"),
        ({"seed": -1}, "seed must be an integer"),
        ({"graphs": []}, "graphs must hold at least one graph"),
        ({"validation": []}, "validation must hold at least one graph"),
        ({"graphs": [fp.Graph(3, [])]}, "graph 0 has no label"),
        ({"graphs": [fp.Graph(3, [], label=7)]}, "a class for every label; got 2 classes and label 7"),
        ({"model": "gcn"}, "model must be a torch module; got str"),
        ({"learning_rate": 1e38, "schedule": "constant", "epochs": 5}, "training diverged"),
    ],
)
def test_bad_arguments_end_in_one_sentence(options, words):
    arguments = {"model": models.GCN(1, 2, seed=0), "graphs": _dense_or_not(8), "epochs": 1} | options
    with pytest.raises(fp.InputError, match=words) as caught:
        fp.train(arguments.pop("model"), arguments.pop("graphs"), **arguments)
    assert "\n" not in str(caught.value)


def test_an_edge_blind_model_must_not_be_given_degrees():
    model = models.EdgeBlind(models.GIN(1, 2, seed=0))
    with pytest.raises(fp.InputError, match="features that do not depend on edges; got degree"):
        fp.train(model, _dense_or_not(), epochs=1)
    assert fp.train(model, _dense_or_not(), epochs=1, features="constant").epochs == 1


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


@pytest.mark.parametrize("arguments", [{"copies": 1}, {"copies": 64, "noise": None}])
def test_a_majority_needs_noisy_copies(arguments):
    with pytest.raises(fp.errors.InputError, match="the majority is one of noisy copies"):
        fp.train(
            models.GCN(num_classes=8),
            fp.datasets.topologies(8),
            **{"noise": fp.EdgeNoise(keep=0.9), "objective": "majority"} | arguments,
        )


# ---- checkpoints ---------------------------------------------------------------------------------------------------

THOROUGH = {"copies": 2, "consistency": 1.0, "average": 0.9, "class_weights": True, "noise": fp.EdgeNoise(keep=0.8)}


@pytest.fixture
def after_every_epoch(monkeypatch):
    monkeypatch.setattr("flipproof.training._CHECKPOINT_SECONDS", 0)


class _Stop(Exception):
    pass


def _train_with_checkpoint(path, *, stop=None, **options):
    """The result and all weights; stopped after so many epochs."""

    def watch(done, of):
        if done == stop:
            raise _Stop

    model = _WithDropout()
    settings = {"epochs": 5, "batch_size": 16, "validation": _dense_or_not(8, seed=4)} | options
    result = fp.train(model, _dense_or_not(), checkpoint=path, progress=watch, **settings)
    return result, _weights(model)


@pytest.mark.parametrize("options", [{}, THOROUGH], ids=["plain", "thorough"])
@pytest.mark.parametrize("stops", [[1], [3], [2, 3, 4]], ids=str)
@pytest.mark.usefixtures("after_every_epoch")
def test_a_stopped_training_goes_on_to_the_same_bytes(tmp_path, options, stops):
    whole, expected = _train_with_checkpoint(None, **options)
    for stop in stops:
        with pytest.raises(_Stop):
            _train_with_checkpoint(tmp_path / "c", stop=stop, **options)
    assert finished_epochs(tmp_path / "c") == stops[-1]
    result, weights = _train_with_checkpoint(tmp_path / "c", **options)
    assert torch.equal(weights, expected)
    assert result.history == whole.history
    assert (result.best_epoch, result.settings) == (whole.best_epoch, whole.settings)
    at_once, weights = _train_with_checkpoint(tmp_path / "c", stop=1, **options)  # it is finished: no epoch is run
    assert torch.equal(weights, expected)
    assert at_once.history == whole.history
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_quick_epochs_are_not_all_written(tmp_path):
    with pytest.raises(_Stop):
        _train_with_checkpoint(tmp_path / "c", stop=4)
    assert finished_epochs(tmp_path / "c") < 4
    assert torch.equal(_train_with_checkpoint(tmp_path / "c")[1], _train_with_checkpoint(None)[1])
    assert finished_epochs(tmp_path / "c") == 5


@pytest.mark.usefixtures("after_every_epoch")
def test_the_optimisers_moments_are_part_of_it(tmp_path, monkeypatch):
    """Without them the bytes would differ: the test above can fail."""
    _, expected = _train_with_checkpoint(None)
    with pytest.raises(_Stop):
        _train_with_checkpoint(tmp_path / "c", stop=3)
    monkeypatch.setattr(torch.optim.AdamW, "load_state_dict", lambda *_: None)
    assert not torch.equal(_train_with_checkpoint(tmp_path / "c")[1], expected)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 6}, "epochs = 5; asked for epochs = 6"),
        ({"seed": 1}, "seed = 0; asked for seed = 1"),
        ({"noise": fp.EdgeNoise(add=0, remove=0.5)}, r"noise = None; asked for noise = \[0, 2147483648\]"),
        ({"features": "constant"}, "features = 'degree'; asked for features = 'constant'"),
        ({"validation": None}, "validation = '"),
        ({"validation": _dense_or_not(8, seed=5)}, "validation = '"),
    ],
)
def test_the_checkpoint_of_another_training_is_refused(tmp_path, options, words):
    with pytest.raises(_Stop):
        _train_with_checkpoint(tmp_path / "c", stop=1)
    before = (tmp_path / "c").read_bytes()
    with pytest.raises(fp.InputError, match=words) as caught:
        _train_with_checkpoint(tmp_path / "c", **options)
    assert "remove the file to begin anew" in str(caught.value)
    assert (tmp_path / "c").read_bytes() == before


def test_other_graphs_or_other_first_weights_are_another_training(tmp_path):
    graphs = _dense_or_not(8)
    fp.train(models.GCN(1, 2, seed=0), graphs, epochs=1, checkpoint=tmp_path / "c")
    with pytest.raises(fp.InputError, match="initial weights"):
        fp.train(models.GCN(1, 2, seed=1), graphs, epochs=1, checkpoint=tmp_path / "c")
    with pytest.raises(fp.InputError, match=r"model = \{'name': 'gcn'"):
        fp.train(models.GIN(1, 2, seed=0), graphs, epochs=1, checkpoint=tmp_path / "c")
    with pytest.raises(fp.InputError, match="graphs ="):
        fp.train(models.GCN(1, 2, seed=0), graphs[::-1], epochs=1, checkpoint=tmp_path / "c")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"half"])
def test_a_checkpoint_that_is_none_is_refused_in_one_sentence(tmp_path, content):
    path = tmp_path / "c"
    if content == b"half":
        fp.train(models.GCN(1, 2, seed=0), _dense_or_not(8), epochs=1, checkpoint=path)
        content = path.read_bytes()[:-100]
    path.write_bytes(content)
    with pytest.raises(fp.InputError, match="is not a whole checkpoint") as caught:
        fp.train(models.GCN(1, 2, seed=0), _dense_or_not(8), epochs=1, checkpoint=path)
    assert "\n" not in str(caught.value)


def test_a_diverged_training_leaves_no_checkpoint(tmp_path):
    with pytest.raises(fp.InputError, match="diverged"):
        _train_with_checkpoint(tmp_path / "c", learning_rate=1e38, schedule="constant")
    assert list(tmp_path.iterdir()) == []
