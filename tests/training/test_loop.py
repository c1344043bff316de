"""Training learns, is repeatable, keeps the best weights, and refuses bad arguments."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import flipproof as fp
from flipproof import models
from flipproof.training import train_for
from support.learnable import Blind, PygMean, WithDropout, dense_or_not, padded, weights_of


def _accuracy(model, graphs):
    classifier = fp.classifiers.as_classifier(model, num_classes=2, features="degree")
    return sum(classifier.label_of(graph) == graph.label for graph in graphs) / len(graphs)


NOISES = [None, fp.EdgeNoise(keep=0.9), fp.EdgeNoise(add=0.01, remove=0.3)]


@pytest.mark.parametrize(
    ("name", "noise"),
    [
        *(("gin", noise) for noise in NOISES),
        *((name, NOISES[-1]) for name in ("gcn", "graphsage", "gat", "a user's in PyG's convention")),
    ],
    ids=str,
)
def test_it_learns_a_separable_problem(name, noise):
    model = models.build({"name": name, "hidden": 16}, seed=0) if name in models.NAMES else PygMean()
    rate = 0.01 if name in models.NAMES else 0.1
    result = fp.train(model, dense_or_not(), noise=noise, epochs=60, batch_size=20, learning_rate=rate)
    assert result.history[-1].loss < result.history[0].loss
    assert _accuracy(model, dense_or_not(seed=1)) > 0.9
    assert not model.training
    assert result.epochs == 60
    assert result.best_epoch == 59


@pytest.mark.parametrize("options", [{}, {"copies": 3, "average": 0.9}])
def test_the_same_seed_gives_the_same_weights_to_the_byte(options):
    def trained(seed):
        model = WithDropout()
        torch.rand(17)
        state = torch.get_rng_state()
        fp.train(model, dense_or_not(), noise=fp.EdgeNoise(keep=0.8), epochs=3, seed=seed, **options)
        assert torch.equal(torch.get_rng_state(), state), "the caller's generator is left alone"
        return weights_of(model)

    first = trained(0)
    assert torch.equal(first, trained(0))
    assert not torch.equal(first, trained(1))


def test_the_best_epoch_on_validation_is_kept():
    """With labels turned round in validation, the longer one trains the worse it gets."""
    graphs = dense_or_not()
    turned = [graph.replaced(label=1 - graph.label) for graph in graphs]
    model = models.GCN(1, 2, seed=0)
    result = fp.train(model, graphs, epochs=30, validation=turned, learning_rate=0.02)
    losses = [epoch.validation_loss for epoch in result.history]
    assert result.best_epoch == int(np.argmin(losses)) < 29
    assert result.final == result.history[result.best_epoch]
    with torch.no_grad():
        kept = np.mean([float(nn.functional.cross_entropy(model(*padded(g)), torch.tensor([g.label]))) for g in turned])
    assert kept == pytest.approx(min(losses), rel=1e-4)


def test_validation_does_not_change_what_is_learnt_meanwhile():
    def history(**options):
        result = fp.train(models.GCN(1, 2, seed=0), dense_or_not(), epochs=3, noise=fp.EdgeNoise(keep=0.8), **options)
        return [epoch.loss for epoch in result.history]

    assert history() == history(validation=dense_or_not(8, seed=4))


def test_averaged_weights_are_the_ones_kept():
    def trained(**options):
        model = models.GCN(1, 2, seed=0)
        fp.train(model, dense_or_not(), epochs=5, **options)
        return weights_of(model)

    start = weights_of(models.GCN(1, 2, seed=0))
    last, averaged = trained(), trained(average=0.95)
    assert (averaged - start).norm() < (last - start).norm()


def test_settings_are_recorded_as_json_and_progress_is_shown_on_demand(capsys):
    result = fp.train(models.GCN(1, 2, seed=0), dense_or_not(4), epochs=1, seed=3)
    assert json.loads(json.dumps(result.settings))["seed"] == 3
    assert "best_epoch=0" in repr(result)
    assert capsys.readouterr() == ("", "")
    fp.train(models.GCN(1, 2, seed=0), dense_or_not(4), epochs=2, progress=True)
    output = capsys.readouterr()
    assert output.out == ""
    assert "flipproof: training: 2 of 2 epochs" in output.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 0}, "epochs must be an integer of at least 1; got 0"),
        ({"learning_rate": 0}, "learning_rate must be a number above 0; got 0"),
        ({"weight_decay": -1}, "weight_decay must be a number of at least 0"),
        ({"average": 1.0}, "average must be a number of at least 0 and below 1"),
        ({"objective": "best"}, "objective must be one of samples, majority, attacked, attacked-votes; got 'best'"),
        ({"noise": 0.9}, "noise must be an EdgeNoise or None; got 0.9"),
        ({"features": "colour"}, "features must be"),
        ({"features": "own"}, "has none"),
        ({"graphs": []}, "graphs must hold at least one graph"),
        ({"validation": []}, "validation must hold at least one graph"),
        ({"graphs": [fp.Graph(3, [])]}, "graph 0 has no label"),
        ({"graphs": [fp.Graph(3, [], label=7)]}, "a class for every label; got 2 classes and label 7"),
        ({"model": "gcn"}, "model must be a torch module; got str"),
        ({"learning_rate": 1e38, "epochs": 5}, "training diverged"),
    ],
)
def test_bad_arguments_end_in_one_sentence(options, words):
    arguments = {"model": models.GCN(1, 2, seed=0), "graphs": dense_or_not(8), "epochs": 1} | options
    with pytest.raises(fp.InputError, match=words) as caught:
        fp.train(arguments.pop("model"), arguments.pop("graphs"), **arguments)
    assert "\n" not in str(caught.value)


def test_an_edge_blind_model_must_not_be_given_degrees():
    model = Blind(models.GIN(1, 2, seed=0))
    with pytest.raises(fp.InputError, match="must not depend on edges; got degree"):
        fp.train(model, dense_or_not(), epochs=1)
    assert fp.train(model, dense_or_not(), epochs=1, features="constant").epochs == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"groups": 2, "noise": NOISES[1]}, "noise has no part in train_voting"),
        ({"groups": 2, "objective": "majority"}, "objective has no part in train_voting; got 'majority'"),
        ({"budget": 2, "groups": 2}, "budget has no part in train_voting"),
        ({"renumber": True}, "renumber has no part in train"),
        ({"flips": 1}, 'flips are for objective="attacked" and "attacked-votes"; got flips=1 and \'samples\''),
    ],
)
def test_arguments_of_another_training_are_refused(arguments, words):
    with pytest.raises(fp.InputError, match=words):
        train_for(models.GCN(1, 2), dense_or_not(4), epochs=1, **arguments)
    if "flips" not in arguments:
        with pytest.raises(TypeError, match="unexpected keyword"):
            fp.train(models.GCN(1, 2), dense_or_not(4), epochs=1, **{"groups": 2, **arguments})


def test_the_arguments_choose_the_training():
    for arguments, seen in (({"noise": NOISES[1]}, "noise"), ({"groups": 2, "objective": "samples"}, "groups")):
        assert train_for(models.GCN(1, 2), dense_or_not(4), epochs=1, **arguments).settings[seen]
    local = {"budget": 1, "copies": 2, "objective": "samples", "learning_rate": None}
    assert train_for(models.Local(0, 2), dense_or_not(4), epochs=1, **local).settings["budget"] == 1
