"""Training under noise on node features: what the model is shown, and what is refused."""

import numpy as np
import pytest
import torch

import flipproof as fp
from support.learnable import Recorder

NOISE = fp.EdgeNoise(keep=0.9)
BITS = fp.BitNoise(add=0.2, remove=0.4)


def labelled(count=40, categories=3):
    rng = np.random.default_rng(0)
    sizes = rng.integers(3, 8, size=count).tolist()
    return [
        fp.Graph(n, [(0, 1)], np.eye(categories)[rng.integers(categories, size=n)], label=index % 2)
        for index, n in enumerate(sizes)
    ]


def shown(graphs, feature_noise, **options: object):
    """All rows of nodes that exist in one epoch, clean and as the model saw them."""
    model = Recorder()
    fp.train(model, graphs, feature_noise=feature_noise, epochs=1, batch_size=len(graphs), **options)
    x, _, mask = model.seen[0]
    assert not x[~mask].any(), "padding stays empty"
    return x, mask


@pytest.mark.parametrize("noise", [fp.LabelNoise(keep=0.7), BITS])
def test_labels_and_bits_are_drawn_afresh_for_every_copy(noise):
    graphs = labelled()
    x, mask = shown(graphs, noise, copies=300, noise=NOISE)
    inside = mask[: len(graphs)].numpy()
    copies = x.view(300, len(graphs), *x.shape[1:]).numpy()[:, inside]
    clean = shown(graphs, None, noise=NOISE)[0].numpy()[inside]
    kept = (copies == clean).mean(axis=0)
    if noise is BITS:
        assert kept[clean == 1].mean() == pytest.approx(0.6, abs=0.01)
        assert kept[clean == 0].mean() == pytest.approx(0.8, abs=0.01)
    else:
        assert (copies.sum(axis=2) == 1).all()
        assert (copies == clean).all(axis=2).mean() == pytest.approx(0.7, abs=0.01)
    assert len({copy.tobytes() for copy in copies}) == 300


def test_features_alone_leave_edges_untouched_and_no_noise_changes_nothing():
    graphs, model = labelled(), Recorder()
    fp.train(model, graphs, feature_noise=BITS, epochs=1, batch_size=len(graphs))
    assert all((adjacency.sum(dim=(1, 2)) == 2).all() for _, adjacency, _ in model.seen)
    clean = [shown(graphs, noise, noise=NOISE)[0] for noise in (None, fp.LabelNoise(keep=1))]
    assert torch.equal(*clean)


@pytest.mark.parametrize("objective", ["samples", "majority", "attacked"])
def test_every_objective_takes_noisy_features_and_is_repeatable(objective):
    weights, options = [], {"noise": NOISE, "objective": objective, "copies": 4, "validation": labelled(8)}
    for noise in (BITS, BITS, None):
        model = fp.models.GCN(3, 2, hidden=8, seed=0)
        result = fp.train(model, labelled(), feature_noise=noise, epochs=2, **options)
        assert result.settings.get("feature_noise") == (None if noise is None else BITS.plain())
        weights.append(torch.cat([weight.detach().flatten() for weight in model.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_features_that_do_not_suit_the_noise_are_refused():
    real = [graph.replaced(node_features=np.full((graph.num_nodes, 3), 0.5)) for graph in labelled(4)]
    bare = [graph.replaced(node_features=None) for graph in labelled(4)]
    for graphs, noise, options, words in (
        (real, fp.LabelNoise(keep=0.8), {}, "one-hot node features"),
        (real, BITS, {}, "binary node features"),
        (bare, BITS, {}, "does not see"),
        (labelled(4), BITS, {"features": "degree"}, "does not see"),
        (labelled(4), BITS, {"validation": real}, "binary node features"),
        (labelled(4), NOISE, {}, "must be a LabelNoise or BitNoise"),
        (labelled(4), BITS, {"budget": 2}, "without noise"),
    ):
        with pytest.raises(fp.InputError, match=words):
            fp.train(fp.models.GCN(3, 2, seed=0), graphs, feature_noise=noise, epochs=1, **options)
