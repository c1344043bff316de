"""A model is tried on every graph: on a few before any work, on each of the others where it is asked about, before it counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import flipproof as fp
from flipproof.classifiers.guard import Guard
from flipproof.defences.baselines import Undefended
from flipproof.defences.defence import _TRIED_FIRST
from flipproof.engines import Processes, ThisProcess
from flipproof.errors import InputError
from flipproof.runs.run_folder import Store

GRAPHS = [fp.Graph(5, [(0, 1 + place % 4), (1, 2 + place // 4)], label=0) for place in range(12)]
ODD = fp.Graph(7, [(0, 1), (2, 3)], label=1)


def parity(graphs: list[fp.Graph]) -> list[int]:
    return [graph.num_edges % 2 for graph in graphs]


def minds_company(graphs: list[fp.Graph]) -> list[int]:
    """Honest about graphs of 5 nodes; about others the answer depends on how many there are."""
    return [(graph.num_edges if graph.num_nodes == 5 else len(graphs)) % 2 for graph in graphs]


DEFENCES = {
    "smoothing": (
        lambda model: fp.SmoothedClassifier(model, fp.EdgeNoise(keep=0.8), num_classes=2),
        {"samples": 100, "seed": 0},
    ),
    "voting": (lambda model: fp.VotingClassifier(model, 3, num_classes=2), {"depth": 0}),
}


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[fp.Graph]:
    found: list[fp.Graph] = []
    original = Guard.try_on

    def noted(guard: Guard, graph: fp.Graph, noise: fp.EdgeNoise) -> None:
        found.append(graph)
        original(guard, graph, noise)

    monkeypatch.setattr(Guard, "try_on", noted)
    return found


@pytest.mark.parametrize("kind", DEFENCES)
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("place", [0, _TRIED_FIRST - 1, _TRIED_FIRST, 12])
def test_a_model_is_refused_wherever_the_graph_stands(tmp_path: Path, kind: str, workers: int, place: int) -> None:
    make, asked = DEFENCES[kind]
    graphs = [*GRAPHS[:place], ODD, *GRAPHS[place:]]
    engine: Any = ThisProcess() if workers == 1 else Processes(workers)
    with pytest.raises(InputError, match="the model must be a function of the noisy graph alone"):
        make(minds_company).certify_all(graphs, engine=engine, **asked)
    with pytest.raises(InputError, match="the model must be a function of the noisy graph alone"):
        fp.certify_run(make(minds_company), graphs, out=tmp_path / "run", engine=engine, **asked)
    assert not (tmp_path / "run" / "certificates.parquet").exists()
    if place >= _TRIED_FIRST:
        with Store(tmp_path / "run" / "evidence.sqlite", write=False) as store:
            assert place not in store.finished()
    else:
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", DEFENCES)
def test_every_graph_is_tried_once(kind: str, tried: list[fp.Graph]) -> None:
    make, asked = DEFENCES[kind]
    graphs = [*GRAPHS, *GRAPHS[:3], ODD]
    defence = make(parity)
    wanted = defence.certify_all(graphs, **asked)
    assert len(tried) == len({graph.topology for graph in tried}) == len(GRAPHS) + 1 - _TRIED_FIRST
    assert defence.certify_all(graphs, engine=Processes(2), **asked) == wanted


def test_what_is_finished_is_not_tried_again(tmp_path: Path, tried: list[fp.Graph]) -> None:
    make, asked = DEFENCES["voting"]
    fp.certify_run(make(parity), GRAPHS, out=tmp_path / "run", **asked)
    tried.clear()
    with Store(tmp_path / "run" / "evidence.sqlite", write=True) as store:
        store.drop(10)
    fp.certify_run(make(parity), GRAPHS, out=tmp_path / "run", **asked)
    assert tried == [GRAPHS[10]]


@pytest.mark.parametrize(("kind", "later"), [(fp.EdgeBlindClassifier, 0), (Undefended, len(GRAPHS) - _TRIED_FIRST)])
def test_a_defence_with_a_check_of_its_own_checks_all_graphs_at_once(
    kind: Any, later: int, tried: list[fp.Graph]
) -> None:
    kind(parity, num_classes=2).certify_all(GRAPHS)
    assert len(tried) == later
