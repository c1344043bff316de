"""Likely mistakes end in one sentence with the remedy, or simply work."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import flipproof as fp
from flipproof.classifiers.torch_module import convention_of
from flipproof.defences.defence import DefendedClassifier
from support.learnable import Blind, OneLayer

NOISE = fp.EdgeNoise(keep=0.9)


def zeros(graphs):
    return [0] * len(graphs)


class Net(OneLayer):
    num_classes = 2


DEFENCES: dict[str, DefendedClassifier] = {
    "smoothing": fp.SmoothedClassifier(zeros, NOISE, num_classes=8),
    "voting": fp.VotingClassifier(zeros, groups=3, num_classes=8),
    "edge-blind": fp.EdgeBlindClassifier(zeros, num_classes=8),
}


@pytest.mark.parametrize("name", DEFENCES)
@pytest.mark.parametrize("method", ["predict", "certify"])
def test_a_data_set_in_place_of_a_graph(name, method):
    data = fp.datasets.topologies(8)
    for value, kind in ((data, "Dataset"), (list(data), "list")):
        with pytest.raises(fp.InputError, match=rf"expected one graph; got 8 in a {kind} \(pass them to certify_all"):
            getattr(DEFENCES[name], method)(value)


def test_a_data_set_of_pyg_in_place_of_a_graph():
    class Pyg:
        """What a PyG data set shows of itself."""

        edge_index = torch.zeros(2, 0, dtype=torch.int64)

        def get(self, index): ...
        def len(self):
            return 5

        __len__ = len

    with pytest.raises(fp.InputError, match=r"expected one graph; got a PyG data set of 5"):
        DEFENCES["smoothing"].predict(Pyg())


def test_graphs_in_place_of_labels():
    data = fp.datasets.topologies(16)
    certificates = DEFENCES["smoothing"].certify_all(data, samples=20)
    wanted = fp.certified_accuracy(certificates, data.labels)
    mean = fp.average_certified_radius(certificates, data.labels)
    assert wanted[0] > 0
    for labels in (
        data,
        [graph.to_pyg() for graph in data],
        data.labels.tolist(),
        torch.from_numpy(data.labels.copy()),
    ):
        np.testing.assert_array_equal(fp.certified_accuracy(certificates, labels), wanted)
        assert fp.average_certified_radius(certificates, labels) == mean
    with pytest.raises(fp.InputError, match="graph 0 has none"):
        fp.certified_accuracy(certificates, [graph.replaced(label=None) for graph in data])
    for wrong in (["ring"] * 16, 3.5):
        with pytest.raises(fp.InputError, match=r"labels must be .* \(pass \[graph\.label"):
            fp.certified_accuracy(certificates, wrong)


@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel, lambda m: nn.DataParallel(torch.compile(m))])
def test_wrapped_modules_are_unwrapped(wrap):
    graph = fp.Graph(6, [(0, 1), (1, 2), (2, 3), (3, 4)])
    plain = fp.SmoothedClassifier(Net().eval(), NOISE).sample(graph, samples=50, seed=0)
    wrapped = fp.SmoothedClassifier(wrap(Net()).eval(), NOISE).sample(graph, samples=50, seed=0)
    np.testing.assert_array_equal(plain.labels, wrapped.labels)
    assert convention_of(wrap(Net())) == "pyg"


@pytest.mark.parametrize("parameters", ["*args", "**kwargs", "*args, **kwargs", ""])
def test_a_forward_that_names_nothing(parameters):
    space: dict[str, Any] = {}
    exec(f"def forward(self, {parameters}): return None", space)
    model = type("Open", (nn.Module,), {"forward": space["forward"]})().eval()
    with pytest.raises(fp.InputError, match="cannot tell how to call the model: forward takes") as caught:
        fp.SmoothedClassifier(model, NOISE, num_classes=2)
    assert f"({parameters})" in str(caught.value)
    assert 'convention="pyg"' in str(caught.value)


@pytest.mark.parametrize("own", [True, False])
def test_training_and_defences_have_the_same_default_features(own):
    """The graphs' own, else the degree: a model that was trained with the defaults can be defended with the defaults."""
    rng = np.random.default_rng(0)
    graphs = [
        fp.Graph(6, [(0, 1), (label, 5)], rng.normal(size=(6, 3)).astype(np.float32) if own else None, label % 2)
        for label in range(4)
    ]
    model = Net(3 if own else 1)
    fp.train(model, graphs, noise=NOISE, epochs=1)
    settings = {"samples": 100, "seed": 0}
    votes = fp.SmoothedClassifier(model, NOISE).sample(graphs[0], **settings)
    named = fp.SmoothedClassifier(model, NOISE, features="own" if own else "degree").sample(graphs[0], **settings)
    np.testing.assert_array_equal(votes.labels, named.labels)
    assert fp.VotingClassifier(model, groups=3).certify(graphs[0]).label in (0, 1)


def test_an_edge_blind_model_does_not_fall_back_on_degrees():
    blind = Blind(fp.models.GIN(in_features=1, num_classes=2, seed=0)).eval()
    with pytest.raises(fp.InputError, match="the graph has none"):
        fp.EdgeBlindClassifier(blind).certify(fp.Graph(5, [(0, 1)]))
