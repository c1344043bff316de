"""Models that must be refused, in one sentence, before any long work."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_geometric.nn import GCNConv

import flipproof as fp
from flipproof import models
from support.learnable import OneLayer


class Base(OneLayer):
    """A small network of PyG; the faulty ones below differ from it in one point."""

    def __init__(self, width=1, classes=3, **options: Any):
        super().__init__(width, classes, GCNConv(width, 8, **options))


class Altered(Base):
    """Something else becomes of the logits: ``change(logits, rows of the nodes)``."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, x, edge_index, batch):
        return self.change(super().forward(x, edge_index, batch), self.head(self.conv(x, edge_index)))


def altered(change):
    return lambda: Altered(change).eval()


def dropping(logits, rows):
    return functional.dropout(logits)  # training=True is the default


class NeedsEdgeAttributes(Base):
    def forward(self, x, edge_index, edge_attr, batch):
        return super().forward(x, edge_index, batch)


class NeedsEdgeAttributesOfData(Base):
    def forward(self, data):
        return super().forward(data.x, data.edge_index, data.batch) + data.edge_attr.sum()


class WithoutBatch(Base):
    def forward(self, x, edge_index):
        return self.head(self.conv(x, edge_index)).mean(dim=0, keepdim=True)


class Unclear(Base):
    def forward(self, first, second):
        return first


def trained_mode():
    model = Base().eval()
    model.conv.train()
    return model


def batch_statistics():
    model = Base()
    model.norm = nn.BatchNorm1d(3, track_running_stats=False)
    return model.eval()


def moody():
    """A callable that answers another time otherwise, by a single class of a thousand."""
    mood = itertools.cycle([998, 999])
    return lambda graphs: [next(mood)] * len(graphs)


FIVE = fp.Graph(5, [(0, 1), (0, 4), (1, 2), (1, 3), (2, 3), (3, 4)])
NOISE = fp.EdgeNoise(keep=0.8)
REFUSED: dict[str, tuple[Callable[[], Any], dict[str, Any], list[str]]] = {
    "training": (lambda: Base().train(), {}, ["evaluation mode", "the module itself", "model.eval()"]),
    "training, in part": (trained_mode, {}, ["evaluation mode", "conv is in training mode"]),
    "cached": (lambda: Base(cached=True).eval(), {}, ["layer conv", "cached=True", "cached=False"]),
    "NaN": (altered(lambda logits, rows: logits * torch.nan), {}, ["returned NaN", "check weights"]),
    "no pooling": (
        altered(lambda logits, rows: rows),
        {},
        ["[graphs, num_classes] = [12, 3]", "got shape [60, 3]", "pools"],
    ),
    "too few classes declared": (lambda: Base(classes=4).eval(), {}, ["= [12, 3]; got shape [12, 4]", "num_classes"]),
    "no batch dimension": (altered(lambda logits, rows: logits.squeeze()), {}, ["= [1, 3]; got shape [3]"]),
    "a pair": (altered(lambda logits, rows: (logits, rows)), {}, ["tensor of logits", "got tuple"]),
    "dropout": (altered(dropping), {}, ["function of the noisy graph alone", "dropout", "in another batch"]),
    "batch statistics": (batch_statistics, {}, ["layer norm", "statistics of the batch"]),
    "edge attributes": (lambda: NeedsEdgeAttributes().eval(), {}, ["needs edge_attr", "noise adds has no attributes"]),
    "edge attributes of data": (
        lambda: NeedsEdgeAttributesOfData().eval(),
        {},
        ["forward reads edge_attr", "noise adds has no attributes", "edge_features=function"],
    ),
    "no batch": (lambda: WithoutBatch().eval(), {}, ["takes no batch", "(x, edge_index, batch)"]),
    "unclear": (lambda: Unclear().eval(), {}, ["cannot tell how to call", "(first, second)", "convention="]),
    "unknown convention": (lambda: Base().eval(), {"convention": "dgl"}, ["convention must be one of", "'dgl'"]),
    "wrong width": (
        lambda: Base(width=4).eval(),
        {},
        ["failed on noisy copies", "expected it to take (x, edge_index, batch) with features [5, 1]", "input width"],
    ),
    "wrong width, dense": (
        lambda: models.GCN(4, 3, seed=0).eval(),
        {},
        ["failed on noisy copies", "(x, adj, mask) with features [5, 1]"],
    ),
    "no features": (lambda: Base().eval(), {"features": "own"}, ["graph has none", 'features="degree"']),
    "labels out of range": (lambda: lambda graphs: [3] * len(graphs), {}, ["labels 0..2; got 3", "num_classes"]),
    "negative labels": (lambda: lambda graphs: [-1] * len(graphs), {}, ["labels 0..2; got -1"]),
    "names": (lambda: lambda graphs: ["cat"] * len(graphs), {}, ["class numbers", "'cat'", "map class names"]),
    "fractions": (lambda: lambda graphs: [0.5] * len(graphs), {}, ["class numbers", "0.5"]),
    "NaN labels": (lambda: lambda graphs: [np.nan] * len(graphs), {}, ["class numbers", "nan"]),
    "one label": (lambda: lambda graphs: 1, {}, ["one label per graph, shape [32]; got shape []"]),
    "an error inside": (lambda: lambda graphs: 1 // 0, {}, ["ZeroDivisionError", "a list of flipproof.Graph"]),
    "a random callable": (
        moody,
        {"num_classes": 1000},
        ["function of the noisy graph alone", "randomness", "certificates would be false"],
    ),
    "a class": (lambda: Base, {}, ["pass an instance, not a class"]),
    "not callable": (lambda: 3, {}, ["model must be a torch module, or a callable", "got 3"]),
    "features misspelt": (lambda: Base().eval(), {"features": "degre"}, ["features must be one of", "'degre'"]),
    "features misspelt, callable": (lambda: len, {"features": "degre"}, ["features must be one of", "'degre'"]),
    "one class": (lambda: Base().eval(), {"num_classes": 1}, ["num_classes must be an integer of at least 2; got 1"]),
}


class Calls:
    """Counts calls of a model, and ends a test that goes on to sample."""

    count = 0

    def __call__(self, *_: Any):
        self.count += 1
        assert self.count < 50, "long work has begun"


@pytest.mark.parametrize("fault", REFUSED)
def test_faults_are_refused_in_one_sentence_before_long_work(fault):
    make, options, parts = REFUSED[fault]
    model, calls = make(), Calls()
    function = model
    if isinstance(model, nn.Module):
        model.register_forward_pre_hook(calls)
    elif callable(model) and not isinstance(model, type):
        model = lambda graphs: (calls(), function(graphs))[1]  # noqa: E731
    settings = {"num_classes": 3, "features": "degree" if isinstance(model, nn.Module) else None}
    with pytest.raises(fp.InputError) as caught:
        fp.SmoothedClassifier(model, NOISE, **(settings | options)).sample(FIVE, samples=10**9, seed=0)
    message = str(caught.value)
    for part in parts:
        assert part in message
    assert "\n" not in message
    assert message.endswith(")")  # the remedy
    assert calls.count <= 12  # eight and two to probe, two to try a twin


def test_the_base_of_the_faulty_models_is_accepted_until_it_is_trained_again():
    model = Base().eval()
    smooth = fp.SmoothedClassifier(model, NOISE, num_classes=3, features="degree")
    assert len(smooth.sample(FIVE, samples=10, seed=0)) == 10
    model.train()
    with pytest.raises(fp.InputError, match="evaluation mode"):
        smooth.sample(FIVE, samples=10)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda logits, rows: logits if len(rows) < 1000 else logits * torch.nan, "NaN"),  # the probe is small
        (lambda logits, rows: dropping(logits, rows) * 1e-6, "dropout"),
    ],
    ids=["NaN that comes late", "randomness of small logits"],
)
def test_what_hides_is_noticed(change, fault):
    smooth = fp.SmoothedClassifier(altered(change)(), NOISE, num_classes=3, features="degree")
    with pytest.raises(fp.InputError, match=fault):
        smooth.sample(FIVE, samples=10)


def test_every_kind_of_graph_is_tried_before_the_first_is_sampled():
    """A data set whose last graph lacks features, or has too many, is refused at once, not after hours."""
    good, wide = (FIVE.replaced(node_features=np.random.default_rng(0).normal(size=(5, width))) for width in (1, 2))
    model = Base().eval()
    model.register_forward_pre_hook(Calls())
    smooth = fp.SmoothedClassifier(model, NOISE, num_classes=3)
    for bad, part in ((wide, r"features \[5, 2\]"), (FIVE, "graph has none")):
        with pytest.raises(fp.InputError, match=part):
            smooth.certify_all([good] * 20 + [bad], samples=10**9)
