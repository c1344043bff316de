"""Reproducible flips that follow the law."""

import itertools
from collections.abc import Callable

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipproof import EdgeNoise, Graph
from flipproof.noise import BLOCK, STREAM_VERSION, keyed_draws, law, noisy_states
from flipproof.noise.law import halves
from support.streams import (
    CASES,
    FALSE_ALARM,
    FROZEN,
    FROZEN_RING,
    RING,
    SMALL,
    SPARSE_NOISE,
    cases,
    chi_square_pvalue,
    count_law,
    fit_pvalues,
    flip_probabilities,
    forced_sparse,
    smallest_pvalue,
    stream,
)


def test_the_cases_are_of_the_kind_they_say():
    for name, (graph, noise) in CASES.items():
        assert stream(graph, noise).sparse == name.startswith("sparse")
        approximate = name.startswith("sparse") and noise.p_add > 0
        assert (stream(graph, noise).discrepancy > 0) == approximate
        assert stream(graph, noise).discrepancy < 1e-16


@cases
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_flips_do_not_depend_on_the_batch(graph, noise, size):
    samples = 2100 if size > 1 else 250
    whole = stream(graph, noise).flips(0, samples)
    parts = [stream(graph, noise).flips(start, min(start + size, samples)) for start in range(0, samples, size)]
    assert whole.shape == (samples, graph.num_slots)
    assert np.array_equal(np.concatenate(parts), whole)
    contents = [stream(graph, noise).batch(start, min(start + size, samples))[1] for start in range(0, samples, size)]
    assert b"".join(contents) == stream(graph, noise).batch(0, samples)[1]


@cases
def test_lists_are_the_flips(graph, noise):
    flips = stream(graph, noise).flips(5, 105)
    lists = stream(graph, noise).flip_lists(5, 105)
    sample, column = np.nonzero(flips)
    assert np.array_equal(lists.sample, sample)
    assert np.array_equal(lists.slot, graph.slots[column])


def test_seed_and_graph_change_the_flips_but_names_and_features_do_not():
    base = stream().flips(0, 200)
    assert not np.array_equal(stream(seed=1).flips(0, 200), base)
    assert not np.array_equal(stream(SMALL.flipped([(0, 2)])).flips(0, 200), base)
    decorated = SMALL.replaced(name="x", label=1, node_features=np.ones((8, 2)))
    assert np.array_equal(stream(decorated).flips(0, 200), base)


GOLDEN = {
    "dense": ("8ef816a1f64fa30e654068cb23ad035b", "e386ab4eca52f8f3e2100e0fc979d5ef"),
    "dense, unequal, frozen": ("b9f50da616d7064d8d73f9017c57e5da", "9f10071f8abb6e2e80eb63362eeb76a3"),
    "sparse": ("a8f8b8e52b1cc831f72f315490066f09", "03942893cd793208d2bb83033a29a7ef"),
    "sparse, frozen": ("06a8032046c89dba7704cdae0c95298c", "2ad036725468b6b32bd0651ddd137c49"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_stream_is_the_one_that_its_version_names(name):
    """In every process. If this fails, stored votes can no longer be read: raise STREAM_VERSION, then pin the new checksums."""
    assert STREAM_VERSION == 2
    assert tuple(stream(*CASES[name], seed=2020).checksums(BLOCK + 1)) == GOLDEN[name]


def test_the_golden_flips_do_not_depend_on_the_hash():
    """The flips themselves, written out, so that a change of the checksum's recipe alone is told apart."""
    assert np.packbits(stream(seed=2020).flips(0, 2), axis=1).tolist() == [[1, 200, 0, 0], [16, 20, 4, 0]]
    flipped = stream(RING, SPARSE_NOISE, 2020).flip_lists(0, 1).slot
    assert flipped[:12].tolist() == [0, 98, 197, 294, 485, 672, 762, 1209, 1547, 1629, 1947, 2024]
    assert len(flipped) == 44


@cases
def test_checksums_cover_whole_blocks_and_everything_that_gives_flips_a_meaning(graph, noise):
    first, second = stream(graph, noise).checksums(BLOCK + 1)
    assert list(stream(graph, noise).checksums(1)) == [first]
    assert list(stream(graph, noise).checksums(2 * BLOCK)) == [first, second]
    by_hand = stream(graph, noise).new_checksum()
    for start in range(0, BLOCK, 100):  # any sub-batches
        by_hand.update(stream(graph, noise).batch(start, min(start + 100, BLOCK))[1])
    assert by_hand.hexdigest() == first
    other_graph = graph.replaced(frozen=[*graph.frozen, (2, 3)]) if graph.num_nodes > 1 else Graph(2, [])
    assert list(stream(other_graph, noise).checksums(1)) != [first]
    assert list(stream(graph, EdgeNoise(add=0.0021, remove=0.29)).checksums(1)) != [first]
    if graph.num_slots and noise.remove_threshold + noise.add_threshold:
        assert list(stream(graph, noise, seed=1).checksums(1)) != [first]


FITS = {
    "dense, symmetric": (SMALL, EdgeNoise(keep=0.8), False, None),
    "dense, unequal": (SMALL, EdgeNoise(add=0.05, remove=0.6), False, None),
    "dense, frozen": (FROZEN, EdgeNoise(add=0.1, remove=0.4), False, None),
    "sparse, symmetric": (SMALL, EdgeNoise(keep=0.8), True, None),
    "sparse, unequal": (SMALL, EdgeNoise(add=0.05, remove=0.6), True, None),
    "sparse, frozen": (FROZEN, EdgeNoise(add=0.1, remove=0.4), True, None),
    "sparse, many replacements": (SMALL, EdgeNoise(add=0.2, remove=0.1), True, 4),
    "sparse, only replacements": (SMALL, EdgeNoise(add=0.2, remove=0.1), True, 0),
}


@pytest.mark.parametrize(("graph", "noise", "sparse", "draws"), FITS.values(), ids=FITS.keys())
def test_flips_follow_the_law(graph, noise, sparse, draws):
    samples = 200_000 if draws is None else 20_000
    source = forced_sparse(graph, noise, 5, draws) if sparse else stream(graph, noise, 5)
    flips = np.concatenate([source.flips(start, start + 20_000) for start in range(0, samples, 20_000)])
    for name, pvalue in fit_pvalues(flips, flip_probabilities(graph, noise)).items():
        assert pvalue > FALSE_ALARM, name


def with_columns(flips, column):
    return np.column_stack([flips[:, :4], np.broadcast_to(column, len(flips)), flips[:, 5:]])


FAULTS: list[tuple[str, Callable[[np.ndarray], np.ndarray]]] = [
    ("slots", lambda flips: stream(SMALL, EdgeNoise(keep=0.804), 5).flips(0, len(flips))),  # off by 2 percent
    ("slots", lambda flips: with_columns(flips, False)),
    ("pairs", lambda flips: with_columns(flips, np.where(np.arange(len(flips)) % 10 == 0, flips[:, 3], flips[:, 4]))),
    (
        "consecutive samples",
        lambda flips: np.where(np.arange(len(flips))[:, None] % 20 == 1, np.roll(flips, 1, 0), flips),
    ),
    (
        "totals",
        lambda flips: np.random.default_rng(0).random(flips.shape).argsort(axis=1) < round(0.2 * flips.shape[1]),
    ),
]


@pytest.mark.parametrize(("caught_by", "fault"), FAULTS)
def test_the_test_of_fit_catches_planted_faults(caught_by, fault):
    noise = EdgeNoise(keep=0.8)
    flips = fault(stream(SMALL, noise, 5).flips(0, 200_000))
    assert fit_pvalues(flips, flip_probabilities(SMALL, noise))[caught_by] < FALSE_ALARM


@pytest.mark.parametrize("graph", [RING, FROZEN_RING])
def test_sparse_sampler_as_chosen_by_itself_follows_the_law(graph):
    """4,950 slots: single slots, additions by group of slots (with pairs of groups), removals, totals."""
    source, samples = stream(graph, SPARSE_NOISE, 3), 40_000
    lists = source.flip_lists(0, samples)
    keys = lists.sample * 4950 + lists.slot
    assert (np.diff(keys) > 0).all(), "sorted, and no slot flips twice in a sample"
    assert not np.isin(lists.slot, graph.frozen_slots).any()
    probabilities = flip_probabilities(graph, SPARSE_NOISE)
    per_slot = np.bincount(lists.slot, minlength=4950)[graph.slots]
    assert smallest_pvalue(per_slot, samples, probabilities) > FALSE_ALARM
    totals = np.bincount(lists.sample, minlength=samples)
    law = count_law(probabilities)
    assert chi_square_pvalue(np.bincount(totals, minlength=len(law)), law) > FALSE_ALARM
    # 50 groups of neighbouring slots: "some addition in the group" is a coin, pairs of groups are independent
    added = ~np.isin(lists.slot, graph.edge_slots)
    some = np.zeros((samples, 50), dtype=bool)
    some[lists.sample[added], lists.slot[added] // 99] = True
    empty = np.bincount(graph.slots[~graph.slot_states] // 99, minlength=50)
    pvalues = fit_pvalues(some, 1 - (1 - SPARSE_NOISE.p_add) ** empty)
    assert min(pvalues.values()) > FALSE_ALARM, pvalues


def test_frozen_pairs_never_flip():
    for graph, noise in ((FROZEN, EdgeNoise(add=0.3, remove=0.6)), (FROZEN_RING, SPARSE_NOISE)):
        source = stream(graph, noise)
        flipped = np.unique(source.flip_lists(0, 20_000).slot)
        assert not np.isin(flipped, graph.frozen_slots).any()
        assert np.isin(graph.flippable_edge_slots, flipped).all(), "all others do"
        noisy = source.batch(0, 50)[0].adjacency()
        u, v = graph.frozen.T
        assert (noisy[:, u, v] == graph.adjacency()[u, v]).all()


LARGEST = 2**32 - 1
GOLDEN_DRAWS = {0: [3763014433, 2983414617, 4218436830], 7: [1342622875, 3172906958, 867343197]}


@st.composite
def noises(draw):
    """Any noise, the limits among them."""
    limits = st.sampled_from([0, 1, 2**31, LARGEST - 1, LARGEST])
    add = draw(limits | st.integers(0, LARGEST))
    remove = draw(st.sampled_from([0, LARGEST - add]) | st.integers(0, LARGEST - add))
    return EdgeNoise.from_thresholds(add, remove)


@given(noises(), st.lists(st.tuples(st.booleans(), st.integers(0, LARGEST)), max_size=20))
def test_a_slot_flips_exactly_for_the_draws_below_its_threshold(noise, slots):
    around = [max(0, min(LARGEST, t + d)) for t in (noise.add_threshold, noise.remove_threshold) for d in (-1, 0, 1)]
    slots = [*slots, *itertools.product((False, True), (*around, 0, LARGEST))]
    states = np.array([state for state, _ in slots])
    draws = np.array([number for _, number in slots], dtype=np.uint32)
    noisy = noisy_states(states, draws, noise)
    assert noisy.dtype == np.bool_
    wanted = [n >= noise.remove_threshold if state else n < noise.add_threshold for state, n in slots]
    assert noisy.tolist() == wanted


def test_draws_are_a_pure_function_of_purpose_seed_and_index():
    arguments = [*itertools.product(("training", "attack"), (0, 1, 2**63 - 1), (0, 1, 2, 10**9))]
    known = {key: keyed_draws(*key, (7, 5)) for key in arguments}
    assert len({draws.tobytes() for draws in known.values()}) == len(arguments)
    for key in reversed(arguments):
        assert np.array_equal(keyed_draws(*key, (7, 5)), known[key])
        assert np.array_equal(keyed_draws(*key, (9, 5))[:7], known[key]), "a larger array starts the same"
    assert all(draws.dtype == np.uint32 for draws in known.values())


def test_the_golden_draws():
    """If this fails, models trained and attacks made with a given seed are no longer the same."""
    assert keyed_draws("golden", 2020, 0, (3,)).tolist() == GOLDEN_DRAWS[0]
    assert keyed_draws("golden", 2020, 7, (3,)).tolist() == GOLDEN_DRAWS[7]
    by_numpy = np.random.Generator(np.random.Philox(key=0xF6CCB2E1)).integers(0, 2**32, 5, dtype=np.uint32)
    words = np.random.Philox(key=0xF6CCB2E1).random_raw(3)
    assert halves(words)[:5].tolist() == by_numpy.tolist(), "the same order of halves as numpy's"


def slow_graphs(graph, flips):
    """The noisy graphs, one flip after the other."""
    pairs = list(itertools.combinations(range(graph.num_nodes), 2))
    frozen = {tuple(pair) for pair in graph.frozen.tolist()}
    free = [pair for pair in pairs if pair not in frozen]
    noisy = []
    for row in flips:
        one = graph.to_networkx()
        for pair, flip in zip(free, row, strict=True):
            if flip:
                one.remove_edge(*pair) if one.has_edge(*pair) else one.add_edge(*pair)
        noisy.append(one)
    return noisy


@cases
def test_batches_agree_with_a_slow_reconstruction(graph, noise):
    n, size = graph.num_nodes, 12
    features = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    source = stream(graph.replaced(node_features=features, label=1, name="secret"), noise)
    slow = slow_graphs(graph, source.flips(3, 3 + size))
    batch, _ = source.batch(3, 3 + size)
    assert (batch.size, batch.num_nodes) == (size, n)
    dense = np.stack([networkx.to_numpy_array(one, nodelist=range(n), dtype=np.float32) for one in slow])
    assert batch.adjacency().dtype == np.float32
    assert np.array_equal(batch.adjacency(), dense)
    index, membership = batch.edge_index()
    arcs = [(u + k * n, v + k * n) for k, one in enumerate(slow) for u, v in sorted(one.to_directed().edges)]
    assert index.dtype == np.int64
    assert index.T.tolist() == [list(arc) for arc in arcs]
    assert membership.tolist() == np.repeat(np.arange(size), n).tolist()
    lists = batch.edge_lists()
    assert (np.diff(lists.sample * n * n + lists.slot) > 0).all()
    for one, noisy in zip(slow, batch.graphs(), strict=True):
        checked = Graph(n, list(one.edges), features)
        assert noisy == checked
        assert noisy.edges.tolist() == checked.edges.tolist()
        assert (noisy.edges.dtype, noisy.edges.flags.writeable) == (np.int64, False)
        assert noisy.node_features is None or not noisy.node_features.flags.writeable
        assert noisy.label is None
        assert noisy.name is None
        assert len(noisy.frozen) == 0


def test_order_of_edges_does_not_tell_the_clean_graph():
    """The same noisy graph reached from different clean graphs gives the same bytes."""
    seen: dict[bytes, set[tuple[bytes, bytes, bytes]]] = {}
    origins: dict[bytes, set[str]] = {}
    for clean in (Graph(4, []), Graph(4, [(2, 3)]), Graph(4, [(0, 1), (1, 2), (0, 3)], frozen=[(0, 3), (1, 3)])):
        for source in (stream(clean, EdgeNoise(keep=0.7)), forced_sparse(clean, EdgeNoise(keep=0.7))):
            for index in range(200):
                batch, _ = source.batch(index, index + 1)
                (only,) = batch.graphs()
                arcs = batch.edge_index()[0]
                key = only.edges.tobytes()
                views = (arcs.tobytes(), batch.adjacency().tobytes(), only.edges.tobytes())
                seen.setdefault(key, set()).add(views)
                origins.setdefault(key, set()).add(clean.topology)
    assert all(len(views) == 1 for views in seen.values())
    assert sum(len(origin) > 1 for origin in origins.values()) > 20, "the test has something to compare"


@pytest.mark.parametrize(("first", "count"), [(0, 4), (4 * 62, 12), (2**40, 1000), (12, 4 * 64)])
def test_random_words_are_numpys_with_and_without_compiled_loops(monkeypatch, first, count):
    key, words = bytes(range(16)), law.random_words(bytes(range(16)), first, count)
    by_numpy = np.random.Philox(key=int.from_bytes(key, "little"), counter=first // 4).random_raw(count)
    assert words.tolist() == by_numpy.tolist()
    monkeypatch.setattr(law, "can_compile", lambda: False)
    assert law.random_words(key, first, count).tolist() == by_numpy.tolist()
