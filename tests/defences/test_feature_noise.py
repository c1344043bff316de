"""Smoothing over node features: what models are shown, what is refused, what votes keep, how alpha is shared."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import flipproof as fp
from flipproof import models
from flipproof.certificates import vote_share
from flipproof.certificates.joint_bound import with_features
from flipproof.certificates.sampled_votes import Votes
from flipproof.classifiers import as_classifier
from flipproof.defences.baselines import Undefended
from flipproof.noise import SampleStream
from support.learnable import OneLayer, Recorder

EDGES = fp.EdgeNoise(keep=0.9)
LABELS = fp.LabelNoise(keep=0.7)
BITS = fp.BitNoise(add=0.1, remove=0.4)
ONE_HOT = np.eye(3, dtype=np.float32)


def graph(labels=(0, 1, 2, 0, 1, 0), **changes: Any):
    fields: dict[str, Any] = {"node_features": ONE_HOT[list(labels)], "label": 0}
    return fp.Graph(len(labels), [(0, 1), (1, 2), (2, 3), (3, 5)], **(fields | changes))


def has_zeros(graphs):
    """Class 0 if at least two nodes have label 0."""
    return [int(noisy.node_features[:, 0].sum() < 2) for noisy in graphs]


def smooth(feature_noise=LABELS, model=has_zeros, **options: Any):
    return fp.SmoothedClassifier(model, EDGES, feature_noise=feature_noise, num_classes=2, **options)


def drawn(noise, samples, seed=0):
    return noise.stream(graph(), seed=seed).shown(0, samples)[0]


class PygRecorder(nn.Module):
    """Remembers what it is shown, in PyG's convention; cannot be traced."""

    def __init__(self):
        super().__init__()
        self.seen: list[torch.Tensor] = []

    def forward(self, x, edge_index, batch):
        count = len(set(batch.tolist()))
        self.seen.append(x.reshape(count, -1, x.shape[1]))
        return torch.zeros(count, 2)


@pytest.mark.parametrize("noise", [LABELS, BITS, fp.BitNoise(keep=0.8)], ids=str)
def test_every_way_to_a_model_shows_the_noisy_features(noise):
    wanted, shown = drawn(noise, 200), list[NDArray[Any]]()

    def black_box(graphs):
        shown.append(np.stack([noisy.node_features for noisy in graphs if noisy.node_features is not None]))
        return [0] * len(graphs)

    smooth(noise, black_box).sample(graph(), samples=200, seed=0)
    assert np.array_equal(next(batch for batch in shown if len(batch) >= 200)[:200], wanted)
    for module in (Recorder(), PygRecorder()):
        module.eval()
        smooth(noise, module).sample(graph(), samples=200, seed=0)
        seen = [batch[0] if isinstance(batch, tuple) else batch for batch in module.seen]
        batch = next(noisy for noisy in seen if len(noisy) >= 200)
        assert np.array_equal(batch[:200].numpy(), wanted)


def test_degrees_are_computed_again_beside_noisy_labels():
    module = Recorder().eval()
    smooth(model=module, features="own+degree").sample(graph(), samples=200, seed=0)
    x, adjacency, _ = next(seen for seen in module.seen if len(seen[0]) >= 200)
    assert np.array_equal(x[:200, :, :3].numpy(), drawn(LABELS, 200))
    assert torch.equal(x[..., 3], adjacency.sum(dim=-1))


@pytest.mark.parametrize("make", [models.GIN, models.GCN], ids=lambda make: make.__name__)
@pytest.mark.parametrize("noise", [LABELS, BITS], ids=str)
def test_built_in_networks_answer_as_on_whole_graphs(noise, make):
    network = make(3, 2, hidden=8, seed=1).eval()
    votes = smooth(noise, network).sample(graph(), samples=300, seed=4)
    stream = SampleStream(graph(), EDGES, seed=4)
    copies = stream.batch(0, 300)[0].graphs()
    features = noise.stream(graph(), seed=4).shown(0, 300)[0]
    shown = [noisy.replaced(node_features=rows) for noisy, rows in zip(copies, features, strict=True)]
    assert votes.labels.tolist() == Undefended(network).predict_all(shown)


def test_the_twin_sees_the_noisy_features():
    net = OneLayer(3).eval()
    with_twin = smooth(model=net)
    votes = with_twin.sample(graph(), samples=300, seed=4)
    assert with_twin.classifier.suited(graph(), EDGES).path == "compiled twin"
    net.dense_twin = False
    alone = smooth(model=net)
    assert alone.sample(graph(), samples=300, seed=4) == dataclasses.replace(votes, compared=1)
    assert alone.classifier.suited(graph(), EDGES).path == "message passing"


def test_feature_values_do_not_choose_how_a_model_is_run(monkeypatch):
    tried = list[NDArray[Any]]()

    def keeps(self, of, noise):
        from flipproof.classifiers.guard import nodes_batch

        features = nodes_batch(of, noise, self.feature_noise).node_features
        tried.append(features)
        return ""

    from flipproof.classifiers.shortcuts import Shortcut

    monkeypatch.setattr(Shortcut, "difference", keeps)
    model = OneLayer(3).eval()
    for make in (lambda: smooth(model=model), lambda: fp.SmoothedClassifier(model, EDGES, num_classes=2)):
        defended = make()
        for labels in ((0, 1, 2, 0, 1, 0), (2, 2, 2, 2, 2, 2)):
            defended.classifier.suited(graph(labels), EDGES)
    assert len(tried) == 1 + 2, "once under noise, and once for other features without"
    assert len(np.unique(tried[0].reshape(len(tried[0]), -1), axis=0)) == len(tried[0])


def test_batches_and_workers_change_nothing():
    network = models.GIN(3, 2, hidden=8, seed=1).eval()
    whole = smooth(model=network).certify_all([graph(), graph((0, 0, 0, 0, 1, 1, 2))], samples=1500, seed=2)
    parts = smooth(model=network, memory=2**21).certify_all(
        [graph(), graph((0, 0, 0, 0, 1, 1, 2))], samples=1500, seed=2, workers=2
    )
    assert whole == parts


def test_memory_counts_noisy_features():
    wide = fp.Graph(300, [], np.eye(2000, dtype=np.float32)[np.arange(300)])
    plain, noisy = (as_classifier(has_zeros, num_classes=2, memory=2**26, feature_noise=n) for n in (None, LABELS))
    assert noisy.batch_size(wide, EDGES) < plain.batch_size(wide, EDGES)
    assert noisy.batch_size(wide, EDGES) * 300 * 2000 * 4 < 2**26


REFUSED = [
    (LABELS, graph(node_features=np.full((6, 3), 0.5)), "one-hot node features"),
    (LABELS, graph(node_features=None), "the graph has none"),
    (LABELS, graph(node_features=np.ones((6, 1))), "at least 2 categories"),
    (BITS, graph(node_features=np.full((6, 3), 0.5)), "binary node features"),
    (BITS, graph(node_features=None), "the graph has none"),
]


@pytest.mark.parametrize(("noise", "odd", "words"), REFUSED)
def test_features_that_do_not_suit_the_noise_are_refused_before_any_call(noise, odd, words):
    def never(graphs):
        raise AssertionError("asked")

    with pytest.raises(fp.InputError, match=words):
        smooth(noise, never).certify(odd)
    with pytest.raises(fp.InputError, match=words):
        smooth(noise, never).certify_all([graph(), odd])


def test_noise_that_the_model_does_not_see_is_refused():
    for features in ("degree", "constant", "one-hot-degree"):
        with pytest.raises(fp.InputError, match="which the model does not see"):
            smooth(features=features)
    with pytest.raises(fp.InputError, match="must be a LabelNoise or BitNoise"):
        smooth(EDGES)
    with pytest.raises(fp.InputError, match="pass the model itself"):
        smooth(model=as_classifier(has_zeros, num_classes=2))


@pytest.mark.parametrize("noise", [LABELS, BITS, fp.BitNoise(keep=0.8)], ids=str)
def test_votes_keep_what_replays_the_features(noise):
    votes = smooth(noise).sample(graph(), samples=1500, seed=1)
    stored = Votes.from_bytes(votes.to_bytes())
    assert stored == votes
    assert stored.feature_noise == noise
    assert np.array_equal(stored.graph.node_features, votes.graph.node_features)
    assert stored.made_again()
    assert fp.certify_votes(stored) == fp.certify_votes(votes)
    assert stored.first(1000) == smooth(noise).sample(graph(), samples=1000, seed=1)
    assert not dataclasses.replace(votes, feature_checksums=("0" * 32, *votes.feature_checksums[1:])).made_again()
    assert not dataclasses.replace(votes, seed=2).made_again()
    weaker = fp.LabelNoise(keep=0.8) if isinstance(noise, fp.LabelNoise) else fp.BitNoise(keep=0.9)
    assert not dataclasses.replace(votes, feature_noise=weaker).made_again()
    assert dataclasses.replace(votes, feature_noise=weaker).digest != votes.digest


def test_changed_bits_are_another_graph():
    votes = smooth(BITS).sample(graph(), samples=1000, seed=1)
    other = votes.graph.replaced(node_features=ONE_HOT[[0, 1, 2, 0, 1, 1]])
    assert not dataclasses.replace(votes, graph=other).made_again()


def test_features_that_were_not_under_noise_are_not_stored():
    votes = fp.SmoothedClassifier(has_zeros, EDGES, num_classes=2).sample(graph(), samples=1000, seed=0)
    assert Votes.from_bytes(votes.to_bytes()).graph.node_features is None
    certificate = fp.certify_votes(votes)
    assert (certificate.axes, certificate.feature_radius) == (("additions", "removals"), None)


@pytest.mark.parametrize("method", ["votes", "influence", "paper"])
def test_alpha_is_shared_between_two_readings(method):
    votes = smooth(fp.LabelNoise(keep=0.9)).sample(graph((0, 0, 0, 0, 1, 2)), samples=4000, seed=3)
    certificate = fp.certify_votes(votes, alpha=0.02, method=method)
    level = 0.02 if method == "votes" else 0.01
    shares = vote_share.from_counts(votes.counts, EDGES, alpha=level, limits=(11, 4))
    joint = with_features(shares, shares, votes.graph, fp.LabelNoise(keep=0.9))
    plain = dataclasses.replace(votes, feature_noise=None, feature_checksums=())
    edges = fp.certify_votes(plain, alpha=level, method=method)
    assert certificate.alpha == 0.02
    assert certificate.label == joint.label == edges.label == 0
    assert certificate.radius == max(joint.radius, edges.radius)
    assert certificate.feature_radius == joint.feature_radius > 0
    assert certificate.axes == ("flips", "changed labels")
    assert certificate.grid[: certificate.radius + 1, 0].all()
    assert np.array_equal(certificate.grid[: joint.grid.shape[0], : joint.grid.shape[1]] & joint.grid, joint.grid)
    assert certificate.grid.sum() == joint.grid.sum() + max(0, edges.radius - joint.radius)
    assert "changed label" in str(certificate)


def test_a_model_that_sees_no_edge_is_smoothed_over_its_features():
    class Blind(nn.Module):
        edge_blind, num_classes = True, 2

        def forward(self, x, adj, mask):
            return torch.stack([x[..., 0].sum(dim=1) - 1.5, torch.zeros(len(x))], dim=1)

    blind = fp.SmoothedClassifier(Blind().eval(), fp.EdgeNoise(add=0, remove=0), feature_noise=fp.LabelNoise(keep=0.9))
    assert blind.effective() is blind
    certificate = blind.certify(graph((0, 0, 0, 0, 0, 0)), samples=2000, seed=0)
    assert certificate.label == blind.predict(graph((0, 0, 0, 0, 0, 0)), seed=0) == 0
    assert certificate.feature_radius == 1


def test_joint_grid_sums_up_all_kinds_of_changes():
    """By enumeration: any flips of either kind with any changes of either kind."""
    both = fp.SmoothedClassifier(has_zeros, fp.EdgeNoise(add=0.05, remove=0.3), num_classes=2, feature_noise=BITS)
    certificate = both.certify(graph((0, 0, 0, 0, 0, 0)), samples=20_000, seed=0)
    assert certificate.axes == ("additions", "removals", "added bits", "removed bits")
    assert certificate.removes_radius >= certificate.radius >= 0
    grid, joint = certificate.grid, certificate.joint_grid
    assert np.array_equal(certificate.edge_grid, grid[:, :, 0, 0])
    assert joint[1, 0]
    for flips, changes in np.ndindex(*joint.shape):
        cells = [(a, flips - a, b, changes - b) for a in range(flips + 1) for b in range(changes + 1)]
        certified = all(np.all(np.less(cell, grid.shape)) and grid[cell] for cell in cells)
        alone = (changes == 0 and flips <= certificate.radius) or (flips == 0 and changes <= certificate.feature_radius)
        assert joint[flips, changes] == (certified or alone)
    assert (
        fp.SmoothedClassifier(has_zeros, EDGES, num_classes=2).certify(graph(), samples=100, seed=0).joint_grid.size
        == 0
    )
