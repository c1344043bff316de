"""One table over all networks: every law that smoothing needs of them."""

import json
import shutil

import pytest
import torch

import flipproof as fp
from flipproof import models
from flipproof.classifiers.features import Degree

CONFIGS = {
    "gcn": {"name": "gcn", "in_features": 1, "num_classes": 5},
    "gcn, narrowing": {"name": "gcn", "in_features": 7, "num_classes": 5, "hidden": 4, "layers": 3},
    "gin": {"name": "gin", "in_features": 1, "num_classes": 5},
    "gin, wide": {"name": "gin", "in_features": 7, "num_classes": 3, "hidden": 8, "layers": 2},
    "gin, corrected": {"name": "gin", "in_features": 1, "num_classes": 5, "noise": [0.2, 0.1]},
    "gin, removals only": {"name": "gin", "in_features": 7, "num_classes": 5, "noise": [0.0, 0.4]},
    "gin, sizes": {"name": "gin", "in_features": 1, "num_classes": 5, "noise": [0.2, 0.2], "sizes": 6},
    "graphsage": {"name": "graphsage", "in_features": 1, "num_classes": 5},
    "graphsage, wide": {"name": "graphsage", "in_features": 7, "num_classes": 3, "hidden": 8, "layers": 2},
    "gat": {"name": "gat", "in_features": 1, "num_classes": 5},
    "local": {"name": "local", "in_features": 0, "num_classes": 5, "hidden": 8},
    "local, features": {"name": "local", "in_features": 7, "num_classes": 3, "hidden": 8},
}


@pytest.fixture(params=CONFIGS, ids=lambda name: name.replace(", ", "-"))
def model(request):
    network = models.build(CONFIGS[request.param], seed=1).eval()
    # a trained network's weights are not those of the start, where some parts are still silent
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    return network


def _batch(model, sizes=(4, 9, 1, 6, 9), density=0.4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    widest = max(sizes)
    mask = torch.arange(widest) < torch.tensor(sizes).unsqueeze(1)
    both = mask.unsqueeze(1) & mask.unsqueeze(2)
    adj = ((torch.rand(len(sizes), widest, widest, generator=generator) < density) & both).float().triu(1)
    adj = adj + adj.mT
    width = model.config["in_features"]
    x = torch.randn(len(sizes), widest, width, generator=generator) if width > 1 else adj.sum(-1, keepdim=True)
    return x * mask.unsqueeze(2), adj, mask


def _as_union(x, adj, mask):
    number = torch.cumsum(mask.flatten(), 0).view(mask.shape) - 1
    graph, u, v = adj.nonzero(as_tuple=True)
    batch = torch.arange(len(mask)).repeat_interleave(mask.sum(1))
    return x[mask], torch.stack([number[graph, u], number[graph, v]]), batch


def _close(first, second):
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-4)


def _logits(model, x, adj, mask):
    """Of a padded batch, whatever the network is called with."""
    return model(*_as_union(x, adj, mask)) if isinstance(model, models.PyGNetwork) else model(x, adj, mask)


@torch.no_grad()
def test_logits_are_a_function_of_each_graph_alone(model):
    """Not of padding, of other graphs in the batch, of how nodes are numbered or of the order of edges."""
    x, adj, mask = inputs = _batch(model)
    before = [value.clone() for value in inputs]
    logits = _logits(model, *inputs)
    assert logits.shape == (5, model.num_classes)
    assert logits.isfinite().all()
    assert not torch.allclose(logits[0], logits[1])
    for garbage in (0.0, 1000.0, -1000.0):
        padded_mask = torch.nn.functional.pad(mask, (0, 3))
        padded_x = torch.where(padded_mask.unsqueeze(2), torch.nn.functional.pad(x, (0, 0, 0, 3)), garbage)
        _close(logits, _logits(model, padded_x, torch.nn.functional.pad(adj, (0, 3, 0, 3)), padded_mask))
    for index in range(len(mask)):
        n = int(mask[index].sum())
        order = torch.randperm(n, generator=torch.Generator().manual_seed(3))
        alone = x[index, None, order], adj[index, order][None, :, order], torch.ones(1, n, dtype=torch.bool)
        _close(_logits(model, *alone)[0], logits[index])
    union_x, edge_index, batch = _as_union(*inputs)
    shuffled = edge_index[:, torch.randperm(edge_index.shape[1])]
    sparse = model if isinstance(model, models.PyGNetwork) else model.forward_sparse
    _close(logits, sparse(union_x, edge_index, batch))
    _close(logits, sparse(union_x, shuffled, batch))
    assert all(torch.equal(a, b) for a, b in zip(before, inputs, strict=True))


@torch.no_grad()
def test_save_and_load_give_the_same_network(model, tmp_path):
    models.save(model, tmp_path / "deep" / "model", features=Degree(), metadata={"split_seed": 7})
    again = models.load(tmp_path / "deep" / "model")
    batch = _batch(model)
    assert torch.equal(_logits(model, *batch), _logits(again, *batch))
    assert not again.training
    assert again.config == model.config
    saved = models.load_metadata(tmp_path / "deep" / "model")
    assert (saved.metadata["features"], saved.metadata["split_seed"]) == ("degree", 7)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["model"]


@torch.no_grad()
def test_gcn_is_the_formula_of_kipf_and_welling():
    model = models.GCN(3, 4, hidden=5, seed=0)
    x, adj, mask = torch.randn(1, 6, 3), torch.zeros(1, 6, 6), torch.ones(1, 6, dtype=torch.bool)
    for u, v in [(0, 1), (1, 2), (2, 3), (0, 2)]:
        adj[0, u, v] = adj[0, v, u] = 1
    with_loops = adj[0] + torch.eye(6)
    scale = torch.diag(with_loops.sum(1) ** -0.5)
    propagation, hidden = scale @ with_loops @ scale, x[0]
    for linear in model.convolutions:
        hidden = torch.relu(propagation @ hidden @ linear.weight.T + linear.bias)
    _close(model(x, adj, mask)[0], model.head(hidden.mean(0)))


@pytest.mark.parametrize("name", ["gcn", "gin", "graphsage", "gat"])
def test_initial_weights_depend_on_the_seed_alone(name):
    config = {"name": name, "in_features": 1, "num_classes": 3}
    state = torch.get_rng_state()
    first, again, other = (models.build(config, seed=seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not all(torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "config must be a mapping with a name"),
        ({"name": "resnet"}, "unknown network 'resnet'"),
        ({"name": "gcn", "depth": 3}, "config of gcn does not fit"),
        ({"name": "gcn", "hidden": 0}, "hidden must be an integer of at least 1; got 0"),
        ({"name": "gin", "in_features": True}, "in_features must be an integer"),
        ({"name": "gat", "hidden": 30}, "hidden must be a multiple of the 4 heads of gat; got 30"),
        ({"name": "graphsage", "clusters": 3}, "config of graphsage does not fit"),
        ({"name": "local", "in_features": -1}, "in_features must be an integer of at least 0"),
        ({"name": "local", "num_classes": 1}, "num_classes must be an integer of at least 2"),
        ({"name": "gin", "sizes": 0}, "sizes must be"),
        *(
            ({"name": "gin", "noise": noise}, "noise must be an EdgeNoise, or its probabilities")
            for noise in (0.3, (0.5, 0.5), (-0.1, 0.2), (0.1,), "much", (float("nan"), 0.1))
        ),
    ],
)
def test_bad_configs_are_refused(config, words):
    with pytest.raises(fp.InputError, match=words):
        models.build(config)


@pytest.fixture
def folder(tmp_path):
    models.save(models.GCN(1, 3, hidden=4, seed=0), tmp_path / "model")
    return tmp_path / "model"


def test_what_cannot_be_stored_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(fp.InputError, match="exists and is not a model folder"):
        models.save(models.GCN(1, 2), tmp_path / "thesis")
    with pytest.raises(fp.InputError, match="metadata must be plain JSON"):
        models.save(models.GCN(1, 2), tmp_path / "model", metadata={"when": object()})
    with pytest.raises(fp.InputError, match="only flipproof's own networks"):
        models.save(torch.nn.Linear(1, 1), tmp_path / "model")
    assert [path.name for path in tmp_path.rglob("*")] == ["thesis", "chapter.tex"]


def _edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _cut_off(folder):
    content = (folder / "weights.safetensors").read_bytes()
    (folder / "weights.safetensors").write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (shutil.rmtree, "there is no such folder"),
        (lambda folder: (folder / "config.json").write_text('{"architectures": ["Bert"]}'), "is not a model folder"),
        (lambda folder: (folder / "config.json").write_text("{"), "is not a model folder"),
        (lambda folder: (folder / "weights.safetensors").unlink(), "no readable weights.safetensors"),
        (_cut_off, "cut off or altered"),
        (lambda folder: _edit(folder, version=99), "version 99 of the model format"),
        (lambda folder: _edit(folder, model=models.GCN(1, 4, hidden=4).config), "do not fit its config"),
        (lambda folder: _edit(folder, model=None), "lacks the entries"),
    ],
)
def test_a_harmed_folder_is_refused_in_one_sentence(folder, harm, words):
    harm(folder)
    with pytest.raises(fp.InputError, match=words) as caught:
        models.load(folder)
    assert "\n" not in str(caught.value)


def test_a_save_replaces_the_model_whole_or_not_at_all(folder, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        models.save(models.GIN(1, 3), folder)
    monkeypatch.undo()
    assert isinstance(models.load(folder), models.GCN)
    models.save(models.GIN(1, 3, seed=0), folder)
    assert isinstance(models.load(folder), models.GIN)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


@torch.no_grad()
def test_corrected_gin_is_a_gin_on_the_estimated_adjacency():
    """Messages over ``(A - p (J - I)) / (1 - p - q)``, by hand, through the plain network with the same weights."""
    add, remove = 0.2, 0.1
    corrected = models.GIN(in_features=1, num_classes=5, noise=fp.EdgeNoise(add=add, remove=remove), seed=0).eval()
    assert models.build(json.loads(json.dumps(corrected.config))).config == corrected.config
    plain = models.GIN(in_features=2, num_classes=5, seed=1).eval()
    plain.load_state_dict(corrected.state_dict())
    x, adj, mask = _batch(corrected)
    both = (mask.unsqueeze(1) & mask.unsqueeze(2)).float() * (1 - torch.eye(adj.shape[1]))
    estimate = (adj - add * both) / (1 - add - remove)
    _close(corrected(x, adj, mask), plain(torch.cat([x, estimate.sum(2, keepdim=True)], dim=2), estimate, mask))


@torch.no_grad()
def test_a_gin_with_sizes_starts_as_one_without_and_then_tells_sizes_apart():
    plain = models.GIN(num_classes=5, seed=0).eval()
    sized = models.GIN(num_classes=5, sizes=6, seed=0).eval()
    batch = _batch(plain)
    _close(sized(*batch), plain(*batch))
    sized.by_size.weight[4, 0] += 1.0
    changed = (sized(*batch) - plain(*batch)).abs().sum(dim=1) > 1e-3
    assert changed.tolist() == [True, False, False, False, False]
    sized.by_size.weight[6, 0] += 1.0  # the last: six nodes and more
    changed = (sized(*batch) - plain(*batch)).abs().sum(dim=1) > 1e-3
    assert changed.tolist() == [True, True, False, True, True]
