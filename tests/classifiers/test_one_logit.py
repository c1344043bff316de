"""Binary models with one logit per graph: above 0 for class 1."""

import numpy as np
import pytest
import torch
from torch import nn

import flipproof as fp
from flipproof.classifiers.torch_module import logit_per_class
from flipproof.noise import SampleStream
from support.learnable import OneLayer

NOISE = fp.EdgeNoise(keep=0.9)
COMPLETE, SPARSE = fp.Graph(6, [(u, v) for u in range(6) for v in range(u)]), fp.Graph(6, [(0, 1)])


class Edges(nn.Module):
    """The number of edges above 7: one logit, in one of several shapes."""

    def __init__(self, shape):
        super().__init__()
        self.weight, self.shape = nn.Parameter(torch.ones(1)), shape

    def shaped(self, logit):
        return {"column": logit.unsqueeze(1), "row": logit, "squeezed": logit.unsqueeze(1).squeeze()}[self.shape]


class DenseEdges(Edges):
    def forward(self, x, adj, mask):
        return self.shaped(self.weight * (adj.sum(dim=(1, 2)) / 2 - 7))


class PygEdges(Edges):
    def forward(self, x, edge_index, batch):
        graphs = int(batch[-1]) + 1
        return self.shaped(self.weight * (torch.bincount(batch[edge_index[0]], minlength=graphs) / 2 - 7))


@pytest.mark.parametrize("shape", ["column", "row", "squeezed"])
@pytest.mark.parametrize("kind", [DenseEdges, PygEdges])
def test_above_zero_is_class_one(kind, shape):
    smooth = fp.SmoothedClassifier(kind(shape).eval(), NOISE, num_classes=2, features="degree")
    certificates = smooth.certify_all([COMPLETE, SPARSE], samples=300, seed=0)
    assert [certificate.label for certificate in certificates] == [1, 0]
    assert smooth.predict_all([COMPLETE, SPARSE]) == [1, 0]
    groups = fp.VotingClassifier(kind(shape).eval(), groups=1, num_classes=2, features="degree")
    assert groups.predict_all([COMPLETE, SPARSE]) == [1, 0]


def test_training_is_binary_cross_entropy_and_the_twin_answers_as_the_model():
    graphs = [graph.replaced(label=label) for label, graph in ((1, COMPLETE), (0, SPARSE)) for _ in range(8)]
    logits, labels = torch.tensor([[0.3], [-2.0]]), torch.tensor([1, 0])
    both = nn.functional.cross_entropy(logit_per_class(logits, 2, 2), labels)
    assert torch.isclose(both, nn.functional.binary_cross_entropy_with_logits(logits[:, 0], labels.float()))
    model = OneLayer(num_classes=1)
    result = fp.train(model, graphs, noise=NOISE, features="degree", epochs=30)
    assert result.history[-1].accuracy > 0.9
    smooth = fp.SmoothedClassifier(model, NOISE, num_classes=2, features="degree")
    assert smooth.classifier.suited(COMPLETE, NOISE).path == "compiled twin"
    assert smooth.predict_all([COMPLETE, SPARSE]) == [1, 0]


def test_an_attack_follows_the_slope_of_the_one_logit():
    graph = fp.Graph(6, COMPLETE.edges[:9], label=1)
    for shape in ("row", "column"):
        attack = fp.attacks.gradient(DenseEdges(shape).eval(), graph, budget=3, features="degree", num_classes=2)
        assert attack.success
        assert (attack.margin_before, attack.margin_after) == (2, 0)


def test_probabilities_are_warned_of():
    class Sigmoid(DenseEdges):
        def forward(self, x, adj, mask):
            return super().forward(x, adj, mask).sigmoid()

    smooth = fp.SmoothedClassifier(Sigmoid("row").eval(), NOISE, num_classes=2, features="degree")
    with pytest.warns(UserWarning, match="like a probability"):
        smooth.predict(COMPLETE, samples=50)


def test_one_logit_for_three_classes_is_refused():
    smooth = fp.SmoothedClassifier(DenseEdges("column").eval(), NOISE, num_classes=3, features="degree")
    with pytest.raises(fp.InputError, match=r"logits \[graphs, num_classes\].*one logit per graph"):
        smooth.predict(COMPLETE)


class Messages(Edges):
    """A sum over neighbours, without any operation that looks at values: those cannot be done on the device "meta"."""

    def forward(self, x, edge_index, batch):
        received = torch.zeros_like(x).index_add(0, edge_index[1], self.weight * x[edge_index[0]])
        return self.shaped(x.new_zeros(5, 1).index_add(0, batch, received)[:, 0])


@pytest.mark.parametrize(
    ("kind", "features"), [(DenseEdges, "degree"), (DenseEdges, "own"), (Messages, "constant"), (Messages, "own")]
)
def test_batches_are_made_on_the_device_of_the_weights(kind, features):
    """On torch's "meta" device an operation with a tensor of the CPU fails, as it would on a GPU."""
    model = kind("column").eval().to("meta")
    graph = COMPLETE.replaced(node_features=np.ones((6, 1), dtype=np.float32))
    smooth = fp.SmoothedClassifier(model, NOISE, num_classes=2, features=features)
    batch, _ = SampleStream(graph, NOISE, seed=0).batch(0, 5)
    logits = smooth.classifier.logits(batch)
    assert logits.device.type == "meta"
    assert not smooth.classifier.forks, "a process with a GPU is not forked: workers are threads"
