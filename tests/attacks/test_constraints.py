"""Every attack stays within what the attacker may do."""

from __future__ import annotations

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flipproof as fp
from flipproof.attacks.constraints import Constraints, Space

ATTACKS = ("random", "greedy", "exhaustive")


@st.composite
def graphs(draw: st.DrawFn) -> fp.Graph:
    nodes = draw(st.integers(2, 7))
    pairs = [(u, v) for u in range(nodes) for v in range(u + 1, nodes)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True))
    frozen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=3))
    return fp.Graph(nodes, edges, frozen=frozen)


limits = st.fixed_dictionaries(
    {
        "budget": st.integers(0, 4),
        "keep_connected": st.booleans(),
        "allow_isolated": st.booleans(),
        "per_node": st.sampled_from([None, 1, 2]),
    }
)
kinds = st.sampled_from([(True, True), (True, False), (False, True)])


def check(clean: fp.Graph, attacked: fp.Graph, constraints: Constraints) -> None:
    """The constraints again, written independently."""
    before, after = {tuple(pair) for pair in clean.edges.tolist()}, {tuple(pair) for pair in attacked.edges.tolist()}
    added, removed = after - before, before - after
    assert len(added) + len(removed) <= constraints.budget
    assert not (added | removed) & {tuple(pair) for pair in clean.frozen.tolist()}
    assert constraints.adds or not added
    assert constraints.removes or not removed
    touched = [node for pair in added | removed for node in pair]
    if constraints.per_node is not None:
        assert all(touched.count(node) <= constraints.per_node for node in touched)
    if not constraints.allow_isolated:
        assert not ((attacked.degrees == 0) & (clean.degrees > 0)).any()
    if constraints.keep_connected:
        count = networkx.number_connected_components
        assert count(attacked.to_networkx()) <= count(clean.to_networkx())


def fragile(graphs: list[fp.Graph]) -> list[int]:
    """Labels that change often, so that attacks of all sizes succeed."""
    return [int((3 * g.num_edges + int(np.square(g.degrees).sum())) % 5 > 2) for g in graphs]


@pytest.mark.parametrize("name", ATTACKS)
@given(graph=graphs(), limit=limits, kind=kinds, seed=st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_attacks_respect_constraints(name, graph, limit, kind, seed) -> None:
    options = {**limit, "adds": kind[0], "removes": kind[1]}
    result = fp.attacks.by_name(name)(fragile, graph, num_classes=2, seed=seed, max_calls=300, **options)
    check(graph, result.graph, Constraints(**options))
    assert result.graph.edges.tolist() == graph.flipped(result.flips).edges.tolist()
    assert result.success == (fragile([result.graph]) != fragile([graph]))


@given(graph=graphs(), limit=limits, kind=kinds)
@settings(max_examples=20, deadline=None)
def test_gradient_respects_constraints(graph, limit, kind) -> None:
    model = fp.models.GCN(1, 2, hidden=4, seed=1).eval()
    options = {**limit, "adds": kind[0], "removes": kind[1]}
    result = fp.attacks.gradient(model, graph, features="degree", max_calls=150, **options)
    check(graph, result.graph, Constraints(**options))


@given(graph=graphs(), limit=limits, kind=kinds, seed=st.integers(0, 9))
@settings(max_examples=100, deadline=None)
def test_holds_is_the_definition(graph, limit, kind, seed) -> None:
    constraints = Constraints(**limit, adds=kind[0], removes=kind[1])
    space = Space(graph, constraints)
    rng = np.random.default_rng(seed)
    size = min(3, graph.num_slots)
    sets = np.array([rng.permutation(graph.num_slots)[:size] for _ in range(8)]).reshape(8, size)
    for flips, allowed in zip(sets, space.holds(sets), strict=True):
        attacked = graph.flipped(
            [tuple(pair) for pair in fp.graphs.pairs_of_slots(graph.slots[flips], graph.num_nodes)]
        )
        try:
            check(graph, attacked, constraints)
            expected = True
        except AssertionError:
            expected = False
        assert bool(allowed) == expected


def test_extensions_are_all_of_them_once() -> None:
    graph = fp.Graph(5, [(0, 1), (1, 2)])
    space = Space(graph, Constraints(3))
    rng = np.random.default_rng(0)
    pairs = space.extensions(np.array([3]), rng)
    assert [sorted(row) for row in pairs.tolist()] == [sorted((3, i)) for i in range(10) if i != 3]
    assert len(space.extensions(np.array([3]), rng, limit=7)) == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": -1}, "budget must be an integer of at least 0"),
        ({"budget": 2, "per_node": 1.5}, "per_node must be"),
        ({"budget": 2, "adds": False, "removes": False}, "allowed to add or to remove"),
        ({"budget": 2, "label": 7}, "label must lie in 0..1"),
        ({"budget": 2, "labels": 1}, "unknown option 'labels'"),
        ({"budget": 2, "max_calls": 0}, "max_calls must allow"),
    ],
)
def test_wrong_input_is_refused_in_one_sentence(options, message) -> None:
    with pytest.raises(fp.InputError, match=message):
        fp.attacks.greedy(fragile, fp.Graph(3, [(0, 1)]), num_classes=2, **options)
