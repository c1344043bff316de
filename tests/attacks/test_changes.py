"""Attacks that change node labels or bits beside edges: within their limits, complete, and never within a certified region."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import flipproof as fp
from flipproof.attacks.attack_space import Space
from flipproof.attacks.relaxation import Relaxation
from flipproof.defences.changed_nodes import are_labels, with_changes
from flipproof.defences.target import Effort, target_of
from support.attacked import attacked_graphs, hashed

LABELS = fp.Graph(4, [(0, 1), (1, 2), (2, 3)], np.eye(3)[[0, 1, 2, 0]], frozen=[(0, 1)])
BITS = fp.Graph(4, [(0, 1), (1, 2)], np.array([[1, 0], [1, 1], [0, 0], [1, 0]]))
GRAPHS = {"labels": LABELS, "bits": BITS}
NAMES = ["random", "greedy", "exhaustive", "gradient"]


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("seed", range(3))
def test_exhaustive_is_brute_force(kind, seed):
    graph, model = GRAPHS[kind], hashed(seed, 60)
    own = model([graph])[0]
    for budget, changes in ((1, 1), (2, 0), (0, 2), (2, 1)):
        result = fp.attacks.exhaustive(model, graph, budget=budget, changes=changes, num_classes=2)
        sizes = [
            flips + beside
            for flips in range(budget + 1)
            for beside in range(changes + 1)
            if any(label != own for label in model(attacked_graphs(graph, flips, beside)))
        ]
        assert result.success == bool(sizes)
        if sizes:
            assert result.size + len(result.changes) == min(sizes)


@pytest.mark.parametrize("name", NAMES)
@given(kind=st.sampled_from(list(GRAPHS)), budget=st.integers(0, 2), changes=st.integers(0, 3), seed=st.integers(0, 9))
@settings(max_examples=15)
def test_attacks_keep_to_their_limits(name, kind, budget, changes, seed):
    graph, model, options = GRAPHS[kind], hashed(seed, 3), {"num_classes": 2, "max_calls": 200}
    if name == "gradient":
        model = fp.models.GCN(graph.node_features.shape[1], 2, hidden=4, seed=seed).eval()
        options = {"max_calls": 400}
    result = fp.attacks.by_name(name)(model, graph, budget=budget, changes=changes, seed=seed, **options)
    before, after = graph.node_features, result.graph.node_features
    if kind == "labels":
        assert are_labels(after)
        assert (before != after).any(axis=1).sum() == len(result.changes)
        assert all(after[node, label] == 1 for node, label in result.changes)
    else:
        assert {tuple(cell) for cell in np.argwhere(before != after).tolist()} == set(result.changes)
    assert len(result.changes) <= changes
    assert len({*map(tuple, graph.edges.tolist())} ^ {*map(tuple, result.graph.edges.tolist())}) == result.size
    assert result.size <= budget
    again = fp.attacks.AttackResult.from_dict(graph, json.loads(json.dumps(result.to_dict())))
    assert again.to_dict() == result.to_dict()
    assert np.array_equal(again.graph.node_features, after)
    assert again.graph.topology == result.graph.topology


def counting(graphs):
    """Class 1 if more than half of the nodes have the first label."""
    return [int(2 * graph.node_features[:, 0].sum() > graph.num_nodes) for graph in graphs]


class Mean(torch.nn.Module):
    """The same, as a dense network with slopes; edges count a little."""

    num_classes = 2

    def forward(self, x, adj, mask):
        lead = x[:, :, 0].mean(dim=1) - 0.5 + 0.001 * (adj.sum(dim=(1, 2)) - 6)
        return torch.stack([-lead, lead], dim=1)


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_label_is_found(name):
    """No pair of edges changes the answer, one label does."""
    graph = LABELS.replaced(node_features=np.eye(3)[[0, 1, 0, 0]])
    model = Mean().eval() if name == "gradient" else counting
    options = {} if name == "gradient" else {"num_classes": 2}
    attack = fp.attacks.by_name(name)
    assert not attack(model, graph, budget=2, **options).success
    result = attack(model, graph, budget=2, changes=1, **options)
    assert (result.success, result.size, len(result.changes)) == (True, 0, 1)
    assert result.changes[0][0] in (0, 2, 3)
    assert result.changes[0][1] != 0
    assert fp.attacks.robust_accuracy([result], [1], [0, 1]).tolist() == [0, 0]


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("feature_groups", [0, 1, 2])
def test_the_relaxation_is_the_model_and_its_slope_the_derivative(kind, feature_groups):
    graph = GRAPHS[kind].replaced(node_features=GRAPHS[kind].node_features.astype(np.float64))
    model = fp.models.GCN(graph.node_features.shape[1], 3, hidden=5, seed=2).double().eval()
    attacked = fp.VotingClassifier(model, 2, feature_groups=feature_groups) if feature_groups else model
    target = target_of(attacked, graph, Effort())
    relaxation, space = Relaxation(target), Space(graph, 2, changes=2)
    at = np.zeros(graph.num_slots + graph.node_features.size)
    at[space.entries[:1]] = 1
    changed = target.changed(space.entries[:1] - graph.num_slots)
    copies = np.where(
        graph.slot_states,
        *(getattr(target, name, np.full((1, graph.num_slots), name == "if_edge")) for name in ("if_edge", "if_empty")),
    )
    wanted = changed.logits(copies)
    own = relaxation._changed(torch.from_numpy(at[graph.num_slots :]))
    states = torch.from_numpy(copies.astype(np.float64))
    assert relaxation.logits(states, own).detach().numpy() == pytest.approx(wanted, abs=1e-9)
    at = np.random.default_rng(0).uniform(0, 0.3, len(at))
    slope, step, calls = relaxation.slope(at), 1e-6, []

    def value(values):
        flips = torch.from_numpy(values)
        states = relaxation._clean + flips[: graph.num_slots] * (1 - 2 * relaxation._clean)
        seen = (1 - states) * relaxation._empty + states * relaxation._edge
        logits = relaxation.logits(seen, relaxation._changed(flips[graph.num_slots :])).detach()
        rest = logits[:, [label for label in range(3) if label != target.label]].amax(dim=1)
        return float(torch.nn.functional.softsign(logits[:, target.label] - rest).mean())

    for place in range(len(at)):
        bump = np.zeros(len(at))
        bump[place] = step
        calls.append((value(at + bump) - value(at - bump)) / (2 * step))
    assert slope == pytest.approx(calls, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_no_attack_succeeds_within_what_a_local_network_withstands(seed):
    local = fp.LocalClassifier(fp.models.Local(in_features=3, num_classes=2, hidden=8, seed=seed).eval())
    graph = LABELS.replaced(frozen=[])
    certificate = local.certify(graph, nodes=1)
    assert certificate.radius_beside(1) == certificate.node_radii.changed
    most = certificate.radius_beside(1)
    if most >= 0:
        assert not fp.attacks.exhaustive(local, graph, budget=min(most, 2), changes=1).success
    target = target_of(local, graph, Effort())
    entry = np.array([[graph.num_slots + 1]])
    changed = with_changes(graph, np.array([1]))
    assert target.evaluate(entry).margins == pytest.approx(
        target_of(local, changed, Effort(), label=target.label).evaluate(entry[:, :0]).margins
    )


@pytest.mark.parametrize("kind", GRAPHS)
def test_attacks_on_noisy_features(kind):
    """The noise of a changed label or bit is that of the others; the relaxation is the model on these copies."""
    graph = GRAPHS[kind].replaced(node_features=GRAPHS[kind].node_features.astype(np.float64))
    noise = fp.LabelNoise(keep=0.8) if kind == "labels" else fp.BitNoise(add=0.1, remove=0.3)
    model = fp.models.GCN(graph.node_features.shape[1], 2, hidden=5, seed=2).double().eval()
    smooth = fp.SmoothedClassifier(model, fp.EdgeNoise(keep=0.8), feature_noise=noise, features="own")
    target = target_of(smooth, graph, Effort(samples=16, confirm_samples=200))
    entry = Space(graph, 1, changes=1).entries[:1]
    changed = target.changed(entry - graph.num_slots)
    copies, moved = changed._features, target._features != changed._features
    node = (entry[0] - graph.num_slots) // graph.node_features.shape[1]
    assert moved[:, node].any()
    assert not np.delete(moved, node, axis=1).any()
    assert copies.shape == (16, *graph.node_features.shape)
    relaxation, at = Relaxation(target), np.zeros(graph.num_slots + graph.node_features.size)
    at[entry] = 1
    own = relaxation._changed(torch.from_numpy(at[graph.num_slots :]))
    assert own.numpy() == pytest.approx(copies)
    states = np.where(graph.slot_states, target.if_edge, target.if_empty)
    logits = relaxation.logits(torch.from_numpy(states.astype(np.float64)), own).detach().numpy()
    assert logits == pytest.approx(changed.logits(states), abs=1e-9)


def first_labels(graphs):
    return [int(graph.node_features[:, 0].sum() > graph.num_nodes / 2) for graph in graphs]


def test_attacks_on_smoothed_labels_succeed_beyond_and_never_within_the_certified_region():
    graph = fp.Graph(9, [(0, 1)], np.eye(2)[[0] * 9])
    smooth = fp.SmoothedClassifier(
        first_labels, fp.EdgeNoise(add=0, remove=0), feature_noise=fp.LabelNoise(keep=0.8), num_classes=2
    )
    certificate = smooth.certify(graph, samples=2000, seed=0)
    assert 1 <= certificate.feature_radius < 5
    assert certificate.radius_beside(certificate.feature_radius) >= 0
    options = {"budget": 0, "samples": 64, "confirm_samples": 2000}
    assert not fp.attacks.greedy(smooth, graph, changes=certificate.feature_radius, **options).success
    result = fp.attacks.greedy(smooth, graph, changes=6, **options)
    assert result.success
    assert certificate.feature_radius < len(result.changes) <= 6


@pytest.mark.parametrize(("changes", "wanted"), [(0, 3), (1, 1), (2, 0), (3, -1)])
def test_the_radius_beside_changes_is_read_off_the_grid(changes, wanted):
    grid = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 0, 0]], dtype=np.bool_)
    certificate = fp.certify_counts([990, 10], fp.EdgeNoise(keep=0.8))
    joint = {"radius": 3, "feature_radius": 2, "axes": ("flips", "changed labels"), "grid": grid}
    assert replace(certificate, **joint).radius_beside(changes) == wanted
    of_kinds = {**joint, "axes": ("additions", "removals", "changed labels"), "radius": 1}
    cube = np.zeros((2, 2, 2), dtype=np.bool_)
    cube[0, 0], cube[1, 0], cube[0, 1, 0] = True, True, True
    assert replace(certificate, **(of_kinds | {"grid": cube})).radius_beside(min(changes, 1)) == int(not changes)
