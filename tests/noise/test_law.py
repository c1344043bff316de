"""The law of the noise, and groups of node pairs."""

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flipproof as fp
from flipproof.graphs import pairs_of_slots
from flipproof.noise.groups import EdgeGroups
from support.graphs import graphs
from support.streams import SPARSE_NOISE


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ["keep", "add and remove"]),
        ({"add": 0.1}, ["got only add", "add=0.01, remove=0.4"]),
        ({"remove": 0.1}, ["got only remove", "keep=0.9"]),
        ({"keep": 0.9, "add": 0.1}, ["either keep or add", "both"]),
        ({"keep": 0.3}, ["keep", "(0.5, 1)", "0.3", "did you mean 0.7?"]),
        ({"keep": 0.5}, ["keep", "(0.5, 1)"]),
        ({"keep": 0}, ["keep", "for instance 0.9"]),
        ({"keep": float("nan")}, ["keep", "nan", "finite"]),
        ({"keep": "0.9"}, ["keep", "'0.9'"]),
        ({"keep": 0.5 + 2**-34}, ["keep", "2**-32"]),
        ({"keep": 1 - 2**-34}, ["1 - keep", "too small"]),
        ({"add": -0.1, "remove": 0.1}, ["add", "[0, 1)", "-0.1"]),
        ({"add": 0.1, "remove": 1}, ["remove", "[0, 1)", "got 1"]),
        ({"add": 1e-12, "remove": 0.1}, ["add", "too small", "or pass 0"]),
        ({"add": 0.7, "remove": 0.4}, ["add + remove", "below 1", "0.7 + 0.4"]),
        ({"add": 0.6, "remove": 0.4 - 2**-40}, ["add + remove", "below 1"]),
    ],
)
def test_bad_parameters(options, words):
    with pytest.raises(fp.InputError) as error:
        fp.EdgeNoise(**options)
    for word in words:
        assert word in str(error.value)


@given(st.integers(1, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_probabilities_are_the_thresholds(add, remove):
    if add + remove >= 2**32:
        add, remove = add // 2, remove // 2
    noise = fp.EdgeNoise.from_thresholds(add, remove)
    assert (noise.add_threshold, noise.remove_threshold) == (add, remove)
    assert Fraction(noise.p_add) == Fraction(add, 2**32)
    assert Fraction(noise.p_remove) == Fraction(remove, 2**32)
    assert noise.symmetric == (add == remove)
    assert pickle.loads(pickle.dumps(noise)) == copy.deepcopy(noise) == noise
    assert hash(pickle.loads(pickle.dumps(noise))) == hash(noise)


@given(st.floats(0.5, 1, exclude_min=True, exclude_max=True))
def test_keep_is_the_nearest_exact_probability(keep):
    try:
        noise = fp.EdgeNoise(keep=keep)
    except fp.InputError:
        assert min(1 - keep, keep - 0.5) < 2**-32
        return
    assert noise.symmetric
    assert 0 < noise.p_add < 0.5
    assert abs(noise.p_add - (1 - keep)) <= 2**-33


def test_extremes_and_zeros():
    assert fp.EdgeNoise(add=2**-32, remove=0).add_threshold == 1
    assert fp.EdgeNoise(add=0, remove=0).symmetric
    assert fp.EdgeNoise(add=0.0, remove=0.4) != fp.EdgeNoise(add=0.4, remove=0.0)
    assert fp.EdgeNoise(add=0.1, remove=0.1) == fp.EdgeNoise(keep=0.9)
    assert fp.EdgeNoise(keep=0.9) != "noise"


def test_noise_is_read_only_and_prints():
    noise = fp.EdgeNoise(keep=0.9)
    with pytest.raises(AttributeError, match="cannot assign"):
        noise.add_threshold = 5
    assert repr(noise) == "EdgeNoise(keep=0.9)"
    assert repr(fp.EdgeNoise(add=0, remove=0)) == "EdgeNoise(add=0, remove=0)"
    assert eval(repr(SPARSE_NOISE), {"EdgeNoise": fp.EdgeNoise}) == SPARSE_NOISE


_64 = 2**64 - 1


def by_hand(u, v, count, key):
    """The documented formula in Python's own integers."""
    x = (key + (2**32 * min(u, v) + max(u, v) + 1) * 0x9E3779B97F4A7C15) & _64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _64
    x ^= x >> 31
    return ((x >> 32) * count) >> 32


nodes = st.integers(0, 2**31 - 1)


@given(st.lists(st.tuples(nodes, nodes), min_size=1, max_size=20), st.integers(1, 2**16), st.integers(0, _64))
def test_the_hash_is_the_documented_one_and_symmetric(pairs, count, key):
    groups = EdgeGroups(count, key)
    numbers = groups.of_pairs(np.array(pairs))
    assert numbers.tolist() == [by_hand(u, v, count, key) for u, v in pairs]
    assert np.array_equal(numbers, groups.of_pairs(np.array(pairs)[:, ::-1]))


@given(graphs(max_nodes=7, frozen=True), st.integers(1, 9), st.integers(0, 3))
def test_sub_graphs_share_the_edges_out_and_all_have_the_frozen_ones(graph, count, key):
    groups = EdgeGroups(count, key)
    parts = groups.sub_graphs(graph)
    assert [part.num_nodes for part in parts] == [graph.num_nodes] * count
    frozen = {tuple(pair) for pair in graph.frozen.tolist()}
    edges = {tuple(pair) for pair in graph.edges.tolist()}
    own = [{tuple(pair) for pair in part.edges.tolist()} - frozen for part in parts]
    assert sum(len(part) for part in own) == len(edges - frozen)
    assert set().union(*own) == edges - frozen
    for part in parts:
        assert {tuple(pair) for pair in part.edges.tolist()} & frozen == edges & frozen
    # a batch may be cut anywhere
    middle = count // 2
    cut = [*groups.batch(graph, 0, middle).graphs(), *groups.batch(graph, middle, count).graphs()] if middle else parts
    assert cut == parts


@given(graphs(max_nodes=7, frozen=True), st.integers(1, 9))
def test_one_flip_changes_the_sub_graph_of_its_group_alone(graph, count):
    groups = EdgeGroups(count)
    before = groups.sub_graphs(graph)
    for pair in pairs_of_slots(graph.slots, graph.num_nodes):
        after = groups.sub_graphs(graph.flipped([pair]))
        changed = [t for t in range(count) if before[t] != after[t]]
        assert changed == groups.of_pairs(pair[None]).tolist()


@given(graphs(max_nodes=7, frozen=True), st.integers(1, 9))
def test_which_groups_an_attacker_can_change(graph, count):
    groups = EdgeGroups(count)
    by_slot = groups.of_slots(graph.slots, graph.num_nodes)
    states = graph.slot_states
    assert set(np.flatnonzero(groups.removable(graph))) == set(by_slot[states].tolist())
    assert set(np.flatnonzero(groups.addable(graph))) == set(by_slot[~states].tolist())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0,), "groups must be an integer from 1 to 65536; got 0"),
        ((2**16 + 1,), "got 65537"),
        ((3, -1), "key must be an integer from 0 to 18446744073709551615; got -1"),
    ],
)
def test_bad_groups(arguments, words):
    with pytest.raises(fp.InputError, match=words):
        EdgeGroups(*arguments)
