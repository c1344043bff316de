"""Certificates: what they say and refuse, what they may be read from, and how far they can reach."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

import flipproof as fp
from flipproof import certify_counts
from flipproof.certificates.certificate import GRID_LIMIT, NodeRadii, cut_grid
from flipproof.certificates.evidence import Answer, Evidence
from flipproof.certificates.sampled_votes import unanimous_certificate
from flipproof.defences.local import LocalRequest
from flipproof.defences.pricing import PriceSearch
from support.certificates import ABSTAINED, certificate, votes_of
from support.graphs import parity


def test_frozen():
    found = certify_counts([990, 10], fp.EdgeNoise(keep=0.8))
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.radius = 99
    with pytest.raises(ValueError, match="read-only"):
        found.grid[0, 0] = False
    with pytest.raises(TypeError):
        hash(found)


def test_equality():
    one = certify_counts([990, 10], fp.EdgeNoise(keep=0.8))
    assert one == certify_counts([990, 10], fp.EdgeNoise(keep=0.8))
    assert one != certify_counts([991, 9], fp.EdgeNoise(keep=0.8))
    assert one != certify_counts([990, 10], fp.EdgeNoise(keep=0.8), alpha=0.01)
    assert one != "certificate"
    assert certificate(0, 1) != certificate(0, 1, grid=np.array([[True, True], [True, False]]))


@pytest.mark.parametrize(
    "found",
    [
        certify_counts([990, 10], fp.EdgeNoise(keep=0.8)),
        certify_counts(np.array([990, 10, 0], dtype=np.uint16), fp.EdgeNoise(add=0.1, remove=0.4)),
        certify_counts([500, 500], fp.EdgeNoise(keep=0.8), method="paper"),
        certify_counts([990, 10], fp.EdgeNoise(keep=0.8), alpha=np.float32(0.01)),
        certificate(noise=None, num_slots=None),
    ],
)
def test_to_dict_is_ready_for_json(found):
    plain = found.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    names = {field.name for field in dataclasses.fields(fp.Certificate)} - {"noise", "node_radii", "weakest"}
    beside = {f"{field.name}_nodes_radius" for field in dataclasses.fields(NodeRadii)} - {"nodes_nodes_radius"}
    assert names | beside | {"node_changes"} <= set(plain), "nothing is left out"
    assert plain["radius"] == found.radius
    assert plain["p_add"] == (None if found.noise is None else float(f"{found.noise.p_add:.9g}"))


def test_str():
    assert str(certificate(3, 2)).startswith("class 3, certified against any 2 edge flips (votes, alpha 0.001, 1,000")
    assert "any 1 edge flip (" in str(certificate(3, 1))
    assert str(ABSTAINED) == "abstains (votes, alpha 0.001, 1,000 samples, votes [990, 10])"
    counted = fp.VotingClassifier(lambda graphs: [0] * len(graphs), 3, num_classes=2).certify(fp.Graph(3, []), depth=0)
    assert str(counted) == "class 0, certified against any 1 edge flip (voting, with certainty, 3 groups)"
    assert "EdgeNoise(keep=0.8)" in repr(certificate())


def test_one_sided_radii():
    grid = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 0, 0]], dtype=bool)
    found = certificate(0, 1, grid=grid)
    assert (found.adds_radius, found.removes_radius) == (3, 2)
    assert (ABSTAINED.adds_radius, ABSTAINED.removes_radius) == (-1, -1)
    assert ABSTAINED.abstains
    assert not found.abstains


def test_grid_is_cut_at_the_first_row_and_column_without_a_cell():
    grid = np.zeros((6, 7), dtype=bool)
    grid[:3, 0] = grid[0, :5] = True
    cut = cut_grid(grid)
    assert cut.shape == (3, 5)
    assert np.array_equal(cut, grid[:3, :5])
    grid[0, 0] = False
    assert np.array_equal(cut, [[1, 1, 1, 1, 1], [1, 0, 0, 0, 0], [1, 0, 0, 0, 0]]), "a copy"


def test_grid_is_never_larger_than_its_limit():
    assert cut_grid(np.ones((100, 70), dtype=bool)).shape == (GRID_LIMIT, GRID_LIMIT) == (64, 64)
    assert cut_grid(np.ones((3, 100), dtype=bool)).shape == (3, 64)
    assert cut_grid(np.zeros((3, 3), dtype=bool)).shape == (0, 0)
    assert cut_grid(np.zeros((0, 0), dtype=bool)).shape == (0, 0)


GRAPH = fp.Graph(5, [(0, 1), (2, 3)], label=1, frozen=[(0, 4)], name="five")


EVIDENCE: dict[str, Any] = {
    "sampled votes": fp.SmoothedClassifier(parity, fp.EdgeNoise(keep=0.8), num_classes=2).sample(
        GRAPH, samples=1100, seed=0
    ),
    "group votes": fp.VotingClassifier(parity, 3, num_classes=2).vote(GRAPH),
    "answer": Answer(1, GRAPH, 2, edge_blind=False),
}
kinds = pytest.mark.parametrize("kind", EVIDENCE)


@kinds
def test_it_comes_back_as_it_was(kind, tmp_path):
    evidence = EVIDENCE[kind]
    evidence.save(tmp_path / "one")
    for again in (type(evidence).load(tmp_path / "one"), type(evidence).from_bytes(evidence.to_bytes())):
        assert again == evidence
        assert again.digest == evidence.digest
        assert again.certify() == evidence.certify()
        assert (again.graph.name, again.graph.label) == ("five", 1)
        assert again.made_again()
    with pytest.raises(fp.InputError, match=f"is not a whole file of {kind}"):
        type(evidence).from_bytes(evidence.to_bytes()[:-9])
    with pytest.raises(TypeError):
        hash(evidence)


@kinds
@pytest.mark.parametrize("other", EVIDENCE)
def test_no_kind_is_taken_for_another(kind, other):
    if kind != other:
        with pytest.raises(fp.InputError, match=f"the file is not a whole file of {other}: it holds {kind}"):
            type(EVIDENCE[other]).from_bytes(EVIDENCE[kind].to_bytes(), source="the file")
        assert EVIDENCE[kind] != EVIDENCE[other]


@kinds
def test_every_change_that_a_certificate_could_see_is_another_hash(kind):
    evidence: Evidence = EVIDENCE[kind]
    others = [
        dataclasses.replace(evidence, graph=GRAPH.flipped([(1, 2)])),
        dataclasses.replace(evidence, num_classes=3),
    ]
    if isinstance(evidence, Answer):
        others += [dataclasses.replace(evidence, label=0), dataclasses.replace(evidence, edge_blind=True)]
    else:
        labels = np.asarray(evidence.labels)
        others.append(dataclasses.replace(evidence, labels=np.roll(1 - labels, 1)))
        if isinstance(evidence, fp.GroupVotes):
            others.append(dataclasses.replace(evidence, groups=fp.EdgeGroups(3, 8)))
        same = dataclasses.replace(evidence, labels=labels.astype(np.uint32))
        assert same.digest == evidence.digest, "how labels are stored says nothing"
    assert len({evidence.digest, *(other.digest for other in others)}) == len(others) + 1
    assert evidence not in others


def test_an_answer_certifies_itself_or_everything():
    alone, blind = (Answer(1, GRAPH, 2, edge_blind=seen).certify() for seen in (False, True))
    assert (alone.label, alone.radius, alone.method, alone.alpha, alone.counts) == (1, 0, "none", 0.0, (0, 1))
    assert (blind.label, blind.radius, blind.method, blind.alpha) == (1, GRAPH.num_slots, "edge-blind", 0.0)
    assert alone.grid.tolist() == [[True]]
    with pytest.raises(fp.InputError, match=r"the answer must lie in 0\.\.1; got 2"):
        Answer(2, GRAPH, 2, edge_blind=False)


RING = fp.Graph(12, [(node, (node + 1) % 12) for node in range(12)])


def few_edges(graphs):
    return [int(graph.num_edges > 16) for graph in graphs]


@pytest.mark.parametrize("share", [1.0, 0.98])
def test_a_large_alpha_under_thinning_noise(share):
    noise = fp.EdgeNoise(add=0.001, remove=0.3)
    for graph in fp.datasets.topologies(16, seed=0):
        labels = (np.random.default_rng(1).random(6000) > share).astype(np.uint8)
        assert fp.certify_votes(votes_of(labels, graph, noise), alpha=0.2).radius >= -1


def test_no_certificate_exceeds_what_unanimous_votes_reach():
    for noise in (fp.EdgeNoise(keep=0.9), fp.EdgeNoise(add=0.01, remove=0.3)):
        for method in ("influence", "votes", "paper"):
            asked = {"samples": 500, "alpha": 0.001, "method": method}
            reach = unanimous_certificate(RING, noise, num_classes=2, **asked).radius
            agreed = fp.SmoothedClassifier(lambda graphs: [1] * len(graphs), noise, num_classes=2)
            assert agreed.certify(RING, seed=0, **asked).radius == reach
            assert fp.SmoothedClassifier(few_edges, noise, num_classes=2).certify(RING, seed=0, **asked).radius <= reach


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("groups", [1, 4, 5])
def test_no_certificate_of_votes_exceeds_that_of_a_model_that_never_changes_its_answer(depth, groups):
    best = fp.VotingClassifier(lambda graphs: [0] * len(graphs), groups=groups, num_classes=2)
    reach = best.defence.best(RING, PriceSearch(depth=depth), 2)
    assert reach.radius == best.certify(RING, depth=depth).radius
    if depth == 0:
        assert reach.radius == groups // 2
    assert best.defence.best(RING, PriceSearch(), 2) is None


@pytest.mark.parametrize("depth", [1, 2, None])
def test_no_certificate_of_a_local_network_exceeds_its_depth(depth):
    local = fp.LocalClassifier(fp.models.Local(in_features=0, num_classes=3, seed=0).eval())
    best = local.defence.best(RING, LocalRequest(per_node=depth), 3)
    reach = best.radius
    assert reach >= local.certify(RING, per_node=depth).radius
    if depth:
        assert reach == depth
