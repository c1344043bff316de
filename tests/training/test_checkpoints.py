"""A training that was stopped goes on to the same bytes; the checkpoint of another training is refused."""

import pytest
import torch

import flipproof as fp
from flipproof import models
from support.learnable import WithDropout, dense_or_not, weights_of

THOROUGH = {"copies": 2, "average": 0.9, "class_weights": True, "noise": fp.EdgeNoise(keep=0.8)}


@pytest.fixture
def after_every_epoch(monkeypatch):
    monkeypatch.setattr("flipproof.training.loop._CHECKPOINT_SECONDS", 0)


class _Stop(Exception):
    pass


def finished_epochs(path):
    return len(torch.load(path, weights_only=True)["history"])


def _train_with_checkpoint(path, *, stop=None, **options):
    """The result and all weights; stopped after so many epochs."""

    def watch(done, of):
        if done == stop:
            raise _Stop

    settings = {"epochs": 5, "batch_size": 16, "validation": dense_or_not(8, seed=4)} | options
    model, graphs = settings.pop("model", None) or WithDropout(), settings.pop("graphs", dense_or_not())
    result = fp.train(model, graphs, checkpoint=path, progress=watch, **settings)
    return result, weights_of(model)


@pytest.mark.parametrize(("options", "stops"), [({}, [3]), (THOROUGH, [2, 3, 4])], ids=["plain", "thorough"])
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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 6}, "epochs = 5; asked for epochs = 6"),
        ({"seed": 1}, "seed = 0; asked for seed = 1"),
        ({"noise": fp.EdgeNoise(add=0, remove=0.5)}, r"noise = None; asked for noise = \[0, 2147483648\]"),
        ({"features": "constant"}, "features = 'degree'; asked for features = 'constant'"),
        ({"validation": None}, "validation = '"),
        ({"validation": dense_or_not(8, seed=5)}, "validation = '"),
        ({"graphs": dense_or_not()[::-1]}, "graphs = '"),
        ({"model": models.GCN(1, 2, seed=1)}, r"model = 'WithDropout'; asked for model = \{'name': 'gcn'"),
        ({"model": WithDropout(seed=1)}, "initial weights = '"),
    ],
)
def test_the_checkpoint_of_another_training_is_refused(tmp_path, options, words):
    with pytest.raises(_Stop):
        _train_with_checkpoint(tmp_path / "c", stop=1)
    before = (tmp_path / "c").read_bytes()
    with pytest.raises(fp.InputError, match=words) as caught:
        _train_with_checkpoint(tmp_path / "c", **options)
    assert "remove the file to start over" in str(caught.value)
    assert (tmp_path / "c").read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"half"])
def test_a_checkpoint_that_is_none_is_refused_in_one_sentence(tmp_path, content):
    path = tmp_path / "c"
    if content == b"half":
        fp.train(models.GCN(1, 2, seed=0), dense_or_not(8), epochs=1, checkpoint=path)
        content = path.read_bytes()[:-100]
    path.write_bytes(content)
    with pytest.raises(fp.InputError, match="is not a whole checkpoint") as caught:
        fp.train(models.GCN(1, 2, seed=0), dense_or_not(8), epochs=1, checkpoint=path)
    assert "\n" not in str(caught.value)


def test_a_diverged_training_leaves_no_checkpoint(tmp_path):
    with pytest.raises(fp.InputError, match="diverged"):
        _train_with_checkpoint(tmp_path / "c", learning_rate=1e38)
    assert list(tmp_path.iterdir()) == []
