"""Losses: what each of them makes right."""

from __future__ import annotations

import pytest
import torch

import flipproof as fp
from flipproof import models
from flipproof.training.objectives import OBJECTIVES, Objective, disagreement
from support.learnable import Recorder, dense_or_not


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


@pytest.mark.parametrize("arguments", [{"copies": 1}, {"copies": 64, "noise": None}])
def test_a_majority_needs_noisy_copies(arguments):
    with pytest.raises(fp.errors.InputError, match="the majority objective needs several noisy copies"):
        fp.train(
            models.GCN(num_classes=8),
            fp.datasets.topologies(8),
            **{"noise": fp.EdgeNoise(keep=0.9), "objective": "majority"} | arguments,
        )


def test_an_objective_is_one_entry(monkeypatch):
    """For instance the loss on the worst copy of every graph."""

    def worst(logits, labels, cross_entropy):
        losses = cross_entropy(logits.flatten(0, 1), labels.repeat(len(logits)), reduction="none")
        return losses.view(len(logits), -1).amax(dim=0).mean()

    monkeypatch.setitem(OBJECTIVES, "worst", Objective(worst))
    model = models.GCN(1, 2, hidden=16, seed=0)
    result = fp.train(
        model, dense_or_not(), noise=fp.EdgeNoise(keep=0.9), copies=3, objective="worst", epochs=30, batch_size=20
    )
    assert result.history[-1].loss < result.history[0].loss
    assert result.settings["objective"] == "worst"


def test_copies_that_agree_have_no_disagreement():
    logits = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(0))
    assert float(disagreement(logits.repeat(5, 1, 1))) == pytest.approx(0, abs=1e-6)
    assert float(disagreement(torch.cat([logits, -logits]))) > 0.1
