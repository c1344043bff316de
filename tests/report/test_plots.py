"""Plots in one call: what is drawn on which axes, and what a notebook shows."""

import matplotlib
import pytest

import flipproof as fp
from flipproof.graphs.picture import layout, svg

matplotlib.use("Agg")
NOISE = fp.EdgeNoise(keep=0.8)


def certificates(votes):
    return [fp.certify_counts([count, 1000 - count], NOISE) for count in votes]


def test_the_curve_is_certified_accuracy():
    made, labels = certificates([1000, 999, 900, 400]), [0, 0, 0, 0]
    axes = fp.plot.certified_accuracy(made, labels)
    drawn = axes.lines[0].get_ydata()
    expected = fp.certified_accuracy(made, labels, range(len(drawn)))
    assert drawn.tolist() == expected.tolist()
    assert fp.plot.compare({"one": made, "other": made[:0:-1] + made[:1]}, labels, line=0.5, ax=axes) is axes
    assert {text.get_text() for text in axes.get_legend().get_texts()} >= {"one", "other"}
    with pytest.raises(fp.InputError, match="results must map names to lists of certificates; got list"):
        fp.plot.compare(made, labels)


def has_edge(graphs):
    """Whether nodes 0 and 1 are joined."""
    return [int([0, 1] in graph.edges.tolist()) for graph in graphs]


def test_the_pair_that_decides_is_the_weakest_and_is_drawn():
    smooth = fp.SmoothedClassifier(has_edge, NOISE, num_classes=2)
    graph = fp.Graph(6, [(0, 1), (1, 2), (2, 3), (3, 4)])
    explained = fp.explain(smooth, graph, seed=0)
    assert explained.weakest.flips[0] == (0, 1)
    assert explained == smooth.certify(graph, seed=0)  # what was found beside it makes it no other certificate
    axes = fp.plot.graph(graph, explained)
    assert len(axes.lines) == 4
    assert sum(line.get_color() == "#c0392b" for line in axes.lines) == len(explained.weakest.flips)
    shown = explained._repr_html_()
    assert "class 1" in shown
    assert "0–1" in shown
    with pytest.raises(fp.InputError, match="up to 150 nodes can be drawn; got 151"):
        fp.plot.graph(fp.Graph(151, []))


def test_drawings_hold_every_node_and_edge():
    graph = fp.Graph(5, [(0, 1), (1, 2)], label=1)
    text = svg(graph)
    assert (text.count("<circle"), text.count("<line")) == (5, 2)
    places = layout(graph)
    assert places.shape == (5, 2)
    assert 0 <= places.min() <= places.max() <= 1
    assert len({tuple(place) for place in places.round(3).tolist()}) == 5
    assert "<svg" in graph._repr_html_()
    assert "<svg" not in fp.Graph(200, [])._repr_html_()
    assert layout(fp.Graph(1, [])).shape == (1, 2)
