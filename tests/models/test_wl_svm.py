"""The Weisfeiler-Lehman SVM: its features are the kernel's, it learns, it is stored without pickle."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flipproof as fp
from flipproof import models
from flipproof.models.wl_svm import subtree_patterns

NOISE = fp.EdgeNoise(add=0.02, remove=0.2)


def random_graph(seed, *, largest=9, kinds=2):
    generator = np.random.default_rng(seed)
    n = int(generator.integers(1, largest))
    upper = np.triu(generator.random((n, n)) < generator.random(), 1)
    features = np.eye(kinds)[generator.integers(0, kinds, n)] if kinds else None
    return fp.Graph(n, np.argwhere(upper), features, label=seed % 2)


def ring_or_star(count=40):
    """Two topologies that degrees tell apart, on the same numbers of nodes and nearly as many edges."""
    graphs = []
    for index in range(count):
        n = 6 + index % 5
        edges = [(0, v) for v in range(1, n)] if index % 2 else [(v, (v + 1) % n) for v in range(n)]
        graphs.append(fp.Graph(n, edges, label=index % 2))
    return graphs


def vectors(graphs, iterations, *, normalised=False):
    """The features as one dense matrix."""
    owner, pattern, value = subtree_patterns(graphs, iterations=iterations, normalised=normalised)
    columns = np.unique(pattern)
    matrix = np.zeros((len(graphs), len(columns)))
    matrix[owner, np.searchsorted(columns, pattern)] = value
    return matrix


@pytest.mark.parametrize("kinds", [0, 3], ids=["no labels", "three labels"])
@pytest.mark.parametrize("iterations", [1, 3])
def test_the_kernel_is_that_of_grakel(kinds, iterations):
    grakel = pytest.importorskip("grakel")
    graphs = [random_graph(seed, kinds=kinds) for seed in range(60)]
    labels = [{v: 0 if kinds == 0 else int(g.node_features[v].argmax()) for v in range(g.num_nodes)} for g in graphs]
    theirs = [grakel.Graph(g.adjacency(), node_labels=label) for g, label in zip(graphs, labels, strict=True)]
    for normalised in (False, True):
        kernel = grakel.WeisfeilerLehman(
            n_iter=iterations, base_graph_kernel=grakel.VertexHistogram, normalize=normalised
        )
        ours = vectors(graphs, iterations, normalised=normalised)
        np.testing.assert_allclose(ours @ ours.T, kernel.fit_transform(theirs), rtol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_node_numbers_do_not_matter(seed, order):
    graph = random_graph(seed)
    place = np.random.default_rng(order).permutation(graph.num_nodes)
    moved = fp.Graph(graph.num_nodes, place[graph.edges], graph.node_features[np.argsort(place)])
    first, second = (subtree_patterns([g], iterations=3) for g in (graph, moved))
    for before, after in zip(first, second, strict=True):
        assert np.array_equal(before, after)


def test_graphs_beside_it_do_not_matter_to_the_last_bit():
    model = models.WLSVM(2)
    model.fit(ring_or_star(), noise=NOISE)
    graphs = [random_graph(seed, kinds=0) for seed in range(50)]
    together = model.scores(graphs)
    assert np.array_equal(together, np.concatenate([model.scores([graph]) for graph in graphs]))
    assert np.array_equal(together[7:20], model.scores(graphs[7:20]))


def test_it_learns_under_noise_and_certifies():
    graphs = ring_or_star()
    model = models.WLSVM(2, iterations=2)
    result = model.fit(graphs, noise=NOISE, validation=ring_or_star(10))
    assert result.validation_accuracy > 0.8
    smooth = fp.SmoothedClassifier(model, NOISE)
    certificates = smooth.certify_all(graphs[:10], samples=500, seed=0)
    assert fp.certified_accuracy(certificates, [graph.label for graph in graphs[:10]], radii=[0])[0] == 1.0


def test_the_same_seed_gives_the_same_weights():
    def fitted(seed):
        model = models.WLSVM(2)
        model.fit(ring_or_star(), noise=NOISE, copies=2, seed=seed)
        return {key: value.numpy() for key, value in model.state_dict().items()}

    first, again, other = fitted(0), fitted(0), fitted(1)
    assert all(np.array_equal(first[key], again[key]) for key in first)
    assert not np.array_equal(first["patterns"], other["patterns"])


def test_it_never_learns_from_the_samples_that_certificates_are_read_from():
    """A training graph may occur among the test graphs once more: its votes must be independent of the model."""
    graph = fp.Graph(12, [(v, v + 1) for v in range(11)], label=0)
    seen = []
    model = models.WLSVM(2)
    noise = fp.EdgeNoise(keep=0.7)

    def look(noisy):
        seen.append(noisy.topology)
        return np.ones((noisy.num_nodes, 1))

    model.fit([graph, graph.replaced(edges=[], label=1)], noise=noise, features=look, copies=20, seed=0)
    voted: set[str] = set()

    def note(graphs):
        voted.update(noisy.topology for noisy in graphs)
        return [0] * len(graphs)

    fp.SmoothedClassifier(note, noise, num_classes=2).sample(graph, samples=1024, seed=0)
    assert len(seen) == 40
    assert not voted & set(seen)


def test_three_classes_of_which_one_has_no_training_graph():
    graphs = [graph.replaced(label=2 * graph.label) for graph in ring_or_star()]
    model = models.WLSVM(3)
    model.fit(graphs)
    assert set(model(graphs).tolist()) == {0, 2}
    more = models.WLSVM(3)
    more.fit([*graphs, *(fp.Graph(5, [], label=1) for _ in range(10))])
    assert more([fp.Graph(5, []), *graphs[:2]]).tolist() == [1, 0, 2]


def test_class_weights_make_a_rare_class_count_as_much():
    empty, joined = fp.Graph(3, [], label=0), fp.Graph(3, [(0, 1)], label=1)
    mixed = [empty] * 45 + [empty.replaced(label=1)] * 5  # the rare class looks like the other nearly as often
    graphs = [*mixed, joined]
    plain, weighed = models.WLSVM(2), models.WLSVM(2)
    plain.fit(graphs)
    weighed.fit(graphs, class_weights=True)
    assert weighed.scores([empty])[0, 1] > plain.scores([empty])[0, 1]


def test_save_and_load(tmp_path):
    model = models.WLSVM(2, iterations=2)
    model.fit(ring_or_star(), noise=NOISE)
    models.save(model, tmp_path / "m", noise=NOISE, features="constant")
    again = models.load(tmp_path / "m")
    graphs = [random_graph(seed, kinds=0) for seed in range(30)]
    assert np.array_equal(again.scores(graphs), model.scores(graphs))
    assert again.config == model.config == {"name": "wl-svm", "num_classes": 2, "iterations": 2}
    assert models.load_metadata(tmp_path / "m").noise == NOISE
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == ["config.json", "weights.safetensors"]


def test_the_weights_of_a_network_are_not_a_kernel_machines(tmp_path):
    models.save(models.GCN(1, 2, seed=0), tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    described = json.loads(path.read_text()) | {"model": {"name": "wl-svm", "num_classes": 2, "iterations": 2}}
    path.write_text(json.dumps(described))
    with pytest.raises(fp.InputError, match="do not fit its config"):
        models.load(tmp_path / "m")
    path.write_text(json.dumps(described | {"model": {"name": "wl-svm", "depth": 2}}))
    with pytest.raises(fp.InputError, match="config of wl-svm does not fit"):
        models.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("fit", "words"),
    [
        (lambda: models.WLSVM(2, iterations=0), "iterations must be an integer of at least 1; got 0"),
        (lambda: models.WLSVM(2).fit([]), "graphs must be labelled graphs"),
        (lambda: models.WLSVM(2).fit([fp.Graph(2, [])]), "graphs must be labelled graphs"),
        (lambda: models.WLSVM(2).fit([fp.Graph(2, [], label=0)] * 3), "at least two classes"),
        (lambda: models.WLSVM(2).fit([fp.Graph(2, [], label=k) for k in range(3)]), "build it with num_classes=3"),
        (lambda: models.WLSVM(2).fit(ring_or_star(), copies=0), "copies must be"),
        (lambda: models.WLSVM(2).fit(ring_or_star(), features="own", noise=NOISE), "graph has none"),
        (lambda: fp.train(models.WLSVM(2), ring_or_star()), "other classifiers train themselves"),
        (lambda: models.EdgeBlind(models.WLSVM(2)), "network must be one of flipproof's networks; got WLSVM"),
    ],
)
def test_bad_arguments_end_in_one_sentence(fit, words):
    with pytest.raises(fp.InputError, match=words) as caught:
        fit()
    assert "\n" not in str(caught.value)
