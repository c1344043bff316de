"""Votes of hashed sub-graphs and their certificate: never above the truth, and the truth itself."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flipproof as fp
from flipproof.certificates.group_votes import GroupVotes
from flipproof.noise.groups import EdgeGroups
from support.tables import graph_of


@st.composite
def cast_votes(draw):
    """Any votes on the sub-graphs of any graph of 3 to 5 nodes, with frozen pairs; groups without a pair are common."""
    size = draw(st.integers(3, 5))
    slots = size * (size - 1) // 2
    graph = graph_of(draw(st.lists(st.sampled_from([0, 1, 0, 1, 2, 3]), min_size=slots, max_size=slots)), size)
    groups, classes = EdgeGroups(draw(st.integers(1, 9)), draw(st.integers(0, 50))), draw(st.integers(2, 4))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=groups.count, max_size=groups.count))
    return GroupVotes(np.array(labels, dtype=np.uint8), graph, groups, classes)


def worst(votes, changed):
    """Whether some base classifier that answers anything on the changed sub-graphs changes the majority."""
    answer = int(votes.counts.argmax())
    for rival in range(votes.num_classes):
        labels = votes.labels.copy()
        labels[list(changed)] = rival
        if np.bincount(labels, minlength=votes.num_classes).argmax() != answer:
            return True
    return False


@settings(max_examples=60)
@given(cast_votes())
def test_the_certificate_is_the_exact_answer_over_all_attacks(votes):
    """Every set of flips is tried, with the worst that a base classifier could say of the sub-graphs they change."""
    certificate, graph = fp.certify_group_votes(votes), votes.graph
    group_of, states = votes.groups.of_slots(graph.slots, graph.num_nodes), graph.slot_states
    broken: set[tuple[int, int]] = set()
    tried: set[tuple[int, int]] = set()
    for chosen in itertools.product([False, True], repeat=graph.num_slots):
        flips = np.array(chosen, dtype=np.bool_)
        kind = (int((flips & ~states).sum()), int((flips & states).sum()))
        tried.add(kind)
        if kind not in broken and worst(votes, set(group_of[flips].tolist())):
            broken.add(kind)
    assert (0, 0) not in broken
    smallest = min((adds + removes for adds, removes in broken), default=graph.num_slots + 1)
    assert certificate.radius == smallest - 1
    grid = certificate.grid
    for adds, removes in tried:
        inside = adds < grid.shape[0] and removes < grid.shape[1]
        assert (inside and bool(grid[adds, removes])) is ((adds, removes) not in broken)
    for name, axis in (("adds_radius", 0), ("removes_radius", 1)):
        ends = [kind[axis] for kind in broken if kind[1 - axis] == 0]
        most = graph.max_adds if axis == 0 else graph.max_removes
        assert getattr(certificate, name) == max(certificate.radius, min(ends, default=most + 1) - 1)


@given(cast_votes())
def test_never_below_the_formula_of_the_counts(votes):
    certificate, counts = fp.certify_group_votes(votes), votes.counts
    label = certificate.label
    assert counts[label] == counts.max()
    assert (counts[:label] < counts[label]).all()
    rivals = [rival for rival in range(votes.num_classes) if rival != label]
    formula = min((counts[label] - counts[rival] - (rival < label)) // 2 for rival in rivals)
    assert certificate.votes_radius == min(formula, votes.graph.num_slots)
    assert certificate.radius >= certificate.votes_radius
    changeable = votes.groups.addable(votes.graph) | votes.groups.removable(votes.graph)
    if changeable.all():
        assert certificate.radius == certificate.votes_radius
    assert (certificate.alpha, certificate.method, certificate.samples) == (0.0, "voting", len(votes))
    assert certificate.counts == tuple(counts.tolist())
    assert certificate.p_lower == counts[label] / len(votes)
    assert certificate.noise is None


def test_nothing_to_flip_is_radius_zero():
    votes = GroupVotes(np.ones(5, dtype=np.uint8), fp.Graph(1, []), EdgeGroups(5), 2)
    certificate = fp.certify_group_votes(votes)
    assert (certificate.label, certificate.radius, certificate.grid.shape) == (1, 0, (1, 1))


def test_sampled_votes_are_refused():
    smooth = fp.SmoothedClassifier(lambda graphs: [0] * len(graphs), fp.EdgeNoise(keep=0.9), num_classes=2)
    with pytest.raises(fp.InputError, match="expected GroupVotes; got Votes"):
        fp.certify_group_votes(smooth.sample(fp.Graph(3, []), samples=2, seed=0))


@pytest.mark.parametrize("depth", [-1, 0.5, "1", True])
def test_a_depth_that_is_none_is_refused(depth):
    votes = GroupVotes(np.zeros(3, dtype=np.uint8), fp.Graph(4, [(0, 1)]), EdgeGroups(3), 2)
    with pytest.raises(fp.InputError, match="depth must be an integer of at least 0"):
        fp.certify_group_votes(votes, depth=depth)


def test_votes_on_a_large_graph_are_certified_without_unfolding_it(monkeypatch):
    monkeypatch.setattr(fp.Graph, "slots", property(lambda graph: pytest.fail("all node pairs were listed")))
    graph = fp.Graph(200_000, [(node, node + 1) for node in range(0, 100_000, 50)])
    votes = GroupVotes(np.zeros(50, dtype=np.uint8), graph, EdgeGroups(50), 2)
    assert fp.certify_group_votes(votes).radius == 25


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": np.array([0, 1])}, r"votes must be one integer per group, \[3\]; got int64 of shape \[2\]"),
        ({"labels": np.array([0.0, 1, 1])}, "got float64"),
        ({"labels": np.array([0, 1, 2])}, r"votes must lie in 0\.\.1; got 2"),
    ],
)
def test_votes_that_cannot_be(changes, words):
    fields = {
        "labels": np.array([1, 0, 1]),
        "graph": fp.Graph(5, [(0, 1)]),
        "groups": EdgeGroups(3, 7),
        "num_classes": 2,
    }
    with pytest.raises(fp.InputError, match=words):
        GroupVotes(**(fields | changes))
