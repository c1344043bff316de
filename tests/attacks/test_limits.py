"""Every attack stays within what the attacker may do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flipproof as fp
from flipproof.attacks.search import Space


@st.composite
def graphs(draw: st.DrawFn) -> fp.Graph:
    nodes = draw(st.integers(2, 7))
    pairs = [(u, v) for u in range(nodes) for v in range(u + 1, nodes)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True))
    frozen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=3))
    return fp.Graph(nodes, edges, frozen=frozen)


def fragile(graphs: list[fp.Graph]) -> list[int]:
    """Labels that change often, so that attacks of all sizes succeed."""
    return [int((3 * g.num_edges + int(np.square(g.degrees).sum())) % 5 > 2) for g in graphs]


@pytest.mark.parametrize("name", ["random", "greedy", "exhaustive", "gradient"])
@given(
    graph=graphs(),
    budget=st.integers(0, 4),
    kind=st.sampled_from([(True, True), (True, False), (False, True)]),
    seed=st.integers(0, 3),
)
@settings(max_examples=30, deadline=None)
def test_attacks_respect_their_limits(name, graph, budget, kind, seed) -> None:
    model, options = fragile, {"num_classes": 2}
    if name == "gradient":
        model, options = fp.models.GCN(1, 2, hidden=4, seed=1).eval(), {"features": "degree"}
    attack = fp.attacks.by_name(name)
    result = attack(model, graph, budget=budget, adds=kind[0], removes=kind[1], seed=seed, max_calls=300, **options)
    before, after = ({tuple(pair) for pair in member.edges.tolist()} for member in (graph, result.graph))
    added, removed = after - before, before - after
    assert len(added) + len(removed) == result.size <= budget
    assert not (added | removed) & {tuple(pair) for pair in graph.frozen.tolist()}
    assert kind[0] or not added
    assert kind[1] or not removed
    assert result.graph.edges.tolist() == graph.flipped(result.flips).edges.tolist()
    if name != "gradient":
        assert result.success == (fragile([result.graph]) != fragile([graph]))


def test_extensions_are_all_of_them_once_and_draws_have_no_flip_twice() -> None:
    space, rng = Space(fp.Graph(5, [(0, 1), (1, 2)]), 3), np.random.default_rng(0)
    pairs = space.extensions(np.array([3]), rng)
    assert [sorted(row) for row in pairs.tolist()] == [sorted((3, i)) for i in range(10) if i != 3]
    assert len(space.extensions(np.array([3]), rng, limit=7)) == 7
    assert {len(set(row)) for row in space.draws(50, 9, rng).tolist()} == {9}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": -1}, "budget must be an integer of at least 0"),
        ({"budget": 2, "adds": False, "removes": False}, "allowed to add or to remove"),
        ({"budget": 2, "label": 7}, "label must lie in 0..1"),
        ({"budget": 2, "labels": 1}, "unknown option 'labels'"),
        ({"budget": 2, "max_calls": 0}, "max_calls must allow"),
    ],
)
def test_wrong_input_is_refused_in_one_sentence(options, message) -> None:
    with pytest.raises(fp.InputError, match=message):
        fp.attacks.greedy(fragile, fp.Graph(3, [(0, 1)]), num_classes=2, **options)
