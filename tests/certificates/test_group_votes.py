"""The votes kept of the sub-graphs of hashed groups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import flipproof as fp
from flipproof.certificates.group_votes import GroupVotes
from flipproof.noise.groups import EdgeGroups


def some_votes() -> GroupVotes:
    graph = fp.Graph(5, [(0, 1), (2, 3)], label=1, frozen=[(0, 4)], name="five")
    return GroupVotes(np.array([1, 0, 1], dtype=np.uint8), graph, EdgeGroups(3, 7), 2)


def test_votes_come_back_as_they_were(tmp_path: Path) -> None:
    votes = some_votes()
    votes.save(tmp_path / "votes.npz")
    again = GroupVotes.load(tmp_path / "votes.npz")
    assert again == votes
    assert again.graph.name == "five"
    assert again.counts.tolist() == [1, 2]
    assert again != GroupVotes(np.array([0, 0, 1], dtype=np.uint8), votes.graph, votes.groups, 2)
    assert again != GroupVotes(votes.labels, votes.graph, EdgeGroups(3, 8), 2)
    assert repr(votes) == "GroupVotes(groups=3, counts=[1, 2])"


def test_votes_of_another_kind_are_refused(tmp_path: Path) -> None:
    some_votes().save(tmp_path / "votes.npz")
    with pytest.raises(fp.InputError, match="it holds group votes, not sampled votes"):
        fp.Votes.load(tmp_path / "votes.npz")
    smooth = fp.SmoothedClassifier(lambda graphs: [0] * len(graphs), fp.EdgeNoise(keep=0.9), num_classes=2)
    smooth.sample(some_votes().graph, samples=3, seed=0).save(tmp_path / "sampled.npz")
    with pytest.raises(fp.InputError, match="it holds sampled votes, not group votes"):
        GroupVotes.load(tmp_path / "sampled.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "votes.npz").read_bytes()[:-9])
    with pytest.raises(fp.InputError, match="is not a whole file of group votes"):
        GroupVotes.load(tmp_path / "cut.npz")


def test_votes_on_a_large_graph_are_certified_without_unfolding_it(monkeypatch: pytest.MonkeyPatch) -> None:
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
        ({"hash_version": 2}, "votes were cast with version 2 of the hash"),
    ],
)
def test_votes_that_cannot_be(changes: dict[str, object], words: str) -> None:
    votes = some_votes()
    fields = {"labels": votes.labels, "graph": votes.graph, "groups": votes.groups, "num_classes": 2}
    with pytest.raises(fp.InputError, match=words):
        GroupVotes(**(fields | changes))  # type: ignore[arg-type]
