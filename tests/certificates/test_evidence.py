"""Evidence of every kind: comes back as it was, is known by its hash, and no kind is taken for another."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flipproof as fp
from flipproof.certificates.certificate import Answer, Evidence

GRAPH = fp.Graph(5, [(0, 1), (2, 3)], label=1, frozen=[(0, 4)], name="five")


def classify(graphs: list[fp.Graph]) -> list[int]:
    return [graph.num_edges % 2 for graph in graphs]


EVIDENCE: dict[str, Any] = {
    "sampled votes": fp.SmoothedClassifier(classify, fp.EdgeNoise(keep=0.8), num_classes=2).sample(
        GRAPH, samples=1100, seed=0
    ),
    "group votes": fp.VotingClassifier(classify, 3, num_classes=2).vote(GRAPH),
    "answer": Answer(1, GRAPH, 2, edge_blind=False),
}
kinds = pytest.mark.parametrize("kind", EVIDENCE)


@kinds
def test_it_comes_back_as_it_was(kind: str, tmp_path: Path) -> None:
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
def test_no_kind_is_taken_for_another(kind: str, other: str) -> None:
    if kind != other:
        with pytest.raises(
            fp.InputError, match=f"the file is not a whole file of {other}: it holds {kind}, not {other}"
        ):
            type(EVIDENCE[other]).from_bytes(EVIDENCE[kind].to_bytes(), source="the file")
        assert EVIDENCE[kind] != EVIDENCE[other]


@kinds
def test_every_change_that_a_certificate_could_see_is_another_hash(kind: str) -> None:
    evidence: Evidence = EVIDENCE[kind]
    others = [
        dataclasses.replace(evidence, graph=GRAPH.flipped([(1, 2)])),
        dataclasses.replace(evidence, num_classes=3),
    ]
    if isinstance(evidence, Answer):
        others += [dataclasses.replace(evidence, label=0), dataclasses.replace(evidence, edge_blind=True)]
    else:
        labels = evidence.arrays()["labels"]
        others.append(dataclasses.replace(evidence, labels=np.roll(1 - labels, 1)))
        if isinstance(evidence, fp.GroupVotes):
            others.append(dataclasses.replace(evidence, groups=fp.EdgeGroups(3, 8)))
        same = dataclasses.replace(evidence, labels=labels.astype(np.uint32))
        assert same.digest == evidence.digest, "how labels are stored says nothing"
    assert len({evidence.digest, *(other.digest for other in others)}) == len(others) + 1
    assert evidence not in others


def test_an_answer_certifies_itself_or_everything() -> None:
    alone, blind = (Answer(1, GRAPH, 2, edge_blind=seen).certify() for seen in (False, True))
    assert (alone.label, alone.radius, alone.method, alone.alpha, alone.counts) == (1, 0, "none", 0.0, (0, 1))
    assert (blind.label, blind.radius, blind.method, blind.alpha) == (1, GRAPH.num_slots, "edge-blind", 0.0)
    assert alone.grid.tolist() == [[True]]
    with pytest.raises(fp.InputError, match=r"the answer must lie in 0\.\.1; got 2"):
        Answer(2, GRAPH, 2, edge_blind=False)
