"""Noise on labels and bits: exact laws, reproducible draws, and features that it cannot be applied to."""

import numpy as np
import pytest
from scipy import stats

from flipproof import EdgeNoise, Graph, InputError
from flipproof.noise import SampleStream
from flipproof.noise.feature_law import BitNoise, FeatureNoise, LabelNoise
from support.streams import chi_square_pvalue, smallest_pvalue

WORD = 2**32
FALSE_ALARM = 1e-6  # of every test of a law; seeds are fixed, so a test that passed once always passes


def labelled(nodes=40, categories=7):
    ring = [(node, (node + 1) % nodes) for node in range(nodes)]
    return Graph(nodes, ring, np.eye(categories)[np.arange(nodes) % categories])


def words(nodes=30, columns=50, density=0.1):
    return Graph(nodes, [], np.random.default_rng(5).random((nodes, columns)) < density)


def dense(bits, samples, cells):
    states = np.zeros((samples, cells), dtype=np.bool_)
    states[bits] = True
    return states


@pytest.mark.parametrize(("keep", "categories"), [(0.9, 7), (0.6, 2), (0.34, 3), (1 - 2**-30, 3), (0.999, 100)])
def test_every_other_category_has_its_exact_number_of_draws(keep, categories):
    """Which 32-bit integers give which category: intervals, whose ends are looked at."""
    noise = LabelNoise(keep=keep)
    kept, other = noise.thresholds(categories)
    assert other == round((1 - keep) / (categories - 1) * WORD)
    assert kept + (categories - 1) * other == WORD
    firsts = np.arange(categories) * other
    draws = np.concatenate([firsts, firsts[1:] - 1, [WORD - 1]]).astype(np.uint32)
    shifts = noise.shifts(draws, categories).tolist()
    assert shifts == [*range(1, categories), 0, *range(1, categories), 0]


def test_labels_follow_the_law():
    graph, samples = labelled(), 5000
    noise = LabelNoise(keep=0.7)
    drawn = noise.stream(graph, seed=3).batch(0, samples)[0].slot.reshape(samples, 40) % 7
    kept, other = noise.thresholds(7)
    shifts = (drawn - np.arange(40) % 7) % 7
    law = np.array([kept] + [other] * 6) / WORD
    assert chi_square_pvalue(np.bincount(shifts.ravel(), minlength=7), law) > FALSE_ALARM
    changed = (shifts != 0).sum(axis=0)
    assert smallest_pvalue(changed, samples, np.full(40, 1 - law[0])) > FALSE_ALARM
    pairs = np.outer(law, law).ravel()  # two nodes that share a 64-bit word, and two that do not
    for first, second in ((0, 1), (3, 30)):
        together = np.bincount(7 * shifts[:, first] + shifts[:, second], minlength=49)
        assert chi_square_pvalue(together, pairs) > FALSE_ALARM
    following = np.bincount(7 * shifts[:-1, 0] + shifts[1:, 0], minlength=49)
    assert chi_square_pvalue(following, pairs) > FALSE_ALARM


def test_labels_are_left_alone_without_noise():
    graph = labelled()
    assert np.array_equal(LabelNoise(keep=1).stream(graph, seed=0).shown(0, 3)[0], np.stack([graph.node_features] * 3))


BITS = {
    "dense": (words(), BitNoise(add=0.1, remove=0.4)),
    "dense, symmetric": (words(), BitNoise(keep=0.8)),
    "sparse": (words(60, 100), BitNoise(add=0.01, remove=0.6)),
    "sparse, only removals": (words(60, 100), BitNoise(add=0, remove=0.6)),
    "sparse, only additions": (words(60, 100), BitNoise(add=0.01, remove=0)),
    "no bits set": (words(60, 100, 0.0), BitNoise(add=0.01, remove=0.6)),
    "all bits set": (words(60, 100, 2.0), BitNoise(add=0.01, remove=0.6)),
}
bits = pytest.mark.parametrize(("graph", "noise"), BITS.values(), ids=BITS.keys())


@bits
def test_bits_follow_the_law(graph, noise):
    clean = graph.node_features.ravel() != 0
    samples = 1500
    states = dense(noise.stream(graph, seed=1).batch(0, samples)[0], samples, clean.size)
    flips = states ^ clean
    chance = np.where(clean, noise.law.p_remove, noise.law.p_add)
    assert smallest_pvalue(flips.sum(axis=0), samples, chance) > FALSE_ALARM
    for value in (False, True):
        number, probability = int((clean == value).sum()), float(chance[clean == value].max(initial=0.0))
        if number and probability:
            totals = np.bincount(flips[:, clean == value].sum(axis=1), minlength=number + 1)
            law = stats.binom.pmf(np.arange(number + 1), number, probability)
            assert chi_square_pvalue(totals, law) > FALSE_ALARM


@bits
def test_bytes_tell_what_was_flipped(graph, noise):
    stream, cells = noise.stream(graph, seed=4), graph.node_features.size
    ones, content = stream.batch(20, 50)
    if stream._stream.sparse:
        flips = np.zeros((30, cells + 1), dtype=np.bool_)  # the last column ends a sample
        numbers = np.frombuffer(content, "<u4")
        flips[np.cumsum(numbers == cells) - (numbers == cells), numbers] = True
    else:
        flips = np.unpackbits(np.frombuffer(content, np.uint8).reshape(30, -1), axis=1).astype(np.bool_)
    again = np.nonzero((graph.node_features.ravel() != 0) ^ flips[:, :cells])
    assert np.array_equal(ones.sample, again[0])
    assert np.array_equal(ones.slot, again[1])


def test_the_cost_of_sparse_bits_does_not_grow_with_their_number():
    stream = BitNoise(add=0.01, remove=0.6).stream(words(600, 1000, 0.01), seed=0)
    assert stream._stream.sparse
    assert 0 < stream.discrepancy < 1e-15
    assert stream._stream.words_per_sample < 600_000 / 40
    assert BitNoise(keep=0.8).stream(words(), seed=0).discrepancy == 0


CASES: dict[str, tuple[Graph, FeatureNoise]] = {
    "labels": (labelled(), LabelNoise(keep=0.8)),
    "labels, odd number": (labelled(41, 3), LabelNoise(keep=0.8)),
    **BITS,
}


@pytest.mark.parametrize(("graph", "noise"), CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("size", [1, 7, 100])
def test_samples_do_not_depend_on_the_batch(graph, noise, size):
    whole, content = noise.stream(graph, seed=11).batch(0, 150)
    cuts = [(start, min(start + size, 150)) for start in range(0, 150, size)]
    parts = [noise.stream(graph, seed=11).batch(*cut) for cut in cuts]
    assert b"".join(part for _, part in parts) == content
    joined = [np.concatenate([part.sample + cut[0] for (part, _), cut in zip(parts, cuts, strict=True)])]
    joined.append(np.concatenate([part.slot for part, _ in parts]))
    assert np.array_equal(joined, whole)


def test_seed_graph_and_noise_change_what_is_drawn():
    for graph, noise in (CASES["labels"], CASES["sparse"]):
        other = graph.replaced(edges=[(0, 5)])
        contents = [stream.batch(0, 4)[1] for stream in (noise.stream(graph, seed=0), noise.stream(graph, seed=1))]
        contents.append(noise.stream(other, seed=0).batch(0, 4)[1])
        assert len(set(contents)) == 3


def test_bits_and_edges_are_drawn_apart():
    """As many slots as bits, all empty: equal draws would show."""
    graph = Graph(11, [], np.zeros((11, 5)))
    law = EdgeNoise(keep=0.6)
    edges = SampleStream(graph, law, seed=0).flips(0, 200)
    features = dense(BitNoise(keep=0.6).stream(graph, seed=0).batch(0, 200)[0], 200, 55)
    agree = int((edges == features).sum())
    assert min(stats.binom.cdf(agree, edges.size, 0.52), stats.binom.sf(agree - 1, edges.size, 0.52)) > FALSE_ALARM


def test_checksums_cover_the_meaning():
    def checksum(graph, noise):
        return str(noise.stream(graph, seed=0).new_checksum().hexdigest())

    graph, bits = labelled(), words()
    moved = bits.replaced(node_features=np.roll(np.asarray(bits.node_features), 1, axis=1))
    kinds = [
        *((graph, LabelNoise(keep=keep)) for keep in (0.8, 0.9)),
        (graph, BitNoise(keep=0.8)),
        *((bits, BitNoise(add=0.1, remove=remove)) for remove in (0.4, 0.5)),
        (moved, BitNoise(add=0.1, remove=0.4)),
    ]
    assert len({checksum(*kind) for kind in kinds}) == len(kinds)
    assert checksum(graph, LabelNoise(keep=0.8)) == checksum(graph, LabelNoise(keep=0.8))


def test_room_is_what_the_attacker_finds():
    features = np.array([[1, 0, 0], [0, 1, 0]])
    assert LabelNoise().room(features) == (2,)
    assert BitNoise(keep=0.9).room(features) == (6,)
    assert BitNoise(add=0.1, remove=0.4).room(features) == (4, 2)


@pytest.mark.parametrize(
    ("noise", "features", "message"),
    [
        (LabelNoise(), None, "LabelNoise needs node features; the graph has none"),
        (LabelNoise(), [[1, 0], [0.5, 0.5]], r"got \[0.5, 0.5\] at node 1 \(encode one category"),
        (LabelNoise(), [[1, 0], [0, 0]], r"a single 1 per row; got \[0, 0\] at node 1"),
        (LabelNoise(), [[1, 1], [0, 1]], r"got \[1, 1\] at node 0"),
        (LabelNoise(), [[1, 0], [2, -1]], r"got \[2, -1\] at node 1"),
        (LabelNoise(), [[1], [1]], "at least 2 categories; got node features with 1 column"),
        (LabelNoise(keep=0.5), [[1, 0], [0, 1]], "keep must exceed 1 / 2 for 2 categories"),
        (LabelNoise(keep=1 - 2**-40), [[1, 0], [0, 1]], "keep is too close to 1"),
        (BitNoise(keep=0.8), None, "BitNoise needs node features; the graph has none"),
        (BitNoise(keep=0.8), [[1, 0], [0, 0.25]], r"got 0.25 at node 1, column 1 \(pass features > 0"),
    ],
)
def test_features_of_another_kind_are_refused(noise, features, message):
    with pytest.raises(InputError, match=message):
        noise.stream(Graph(2, [], features), seed=0)


@pytest.mark.parametrize("keep", [0, -0.1, 1.1, float("nan"), "0.9", True, None])
def test_label_noise_needs_a_probability(keep):
    with pytest.raises(InputError, match=r"keep must lie in \(0, 1\]"):
        LabelNoise(keep=keep)


def test_bit_noise_checks_its_probabilities_as_edge_noise_does():
    for settings in ({}, {"add": 0.6, "remove": 0.5}, {"keep": 0.3}, {"keep": 0.9, "add": 0.1}):
        with pytest.raises(InputError) as bits:
            BitNoise(**settings)
        with pytest.raises(InputError) as edges:
            EdgeNoise(**settings)
        assert str(bits.value) == str(edges.value)


def test_too_many_additions_are_refused_before_they_are_drawn(monkeypatch):
    monkeypatch.setattr("flipproof.noise.feature_stream._MOST_DENSE_BITS", 1000)
    with pytest.raises(InputError, match="changes too many of 1,500 bits"):
        BitNoise(keep=0.8).stream(words(), seed=0)
