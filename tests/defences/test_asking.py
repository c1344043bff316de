"""Asking about many graphs: a model that is no function of the graph is refused wherever the graph stands, and tried once."""

from typing import Any

import pytest

import flipproof as fp
from flipproof.classifiers.classifier import BlackBoxClassifier
from flipproof.defences.baselines import NoDefence
from flipproof.defences.defence import _TRIED_FIRST, DefendedClassifier
from flipproof.engines import Processes, ThisProcess
from flipproof.errors import InputError
from flipproof.runs.run_folder import Store
from support.graphs import parity

GRAPHS = [fp.Graph(5, [(0, 1 + place % 4), (1, 2 + place // 4)], label=0) for place in range(12)]
ODD = fp.Graph(7, [(0, 1), (2, 3)], label=1)


class ChecksMore(NoDefence):
    """A defence that adds something to the usual check."""

    def check(self, classifier, graphs, request=None):
        super().check(classifier, graphs, request)


def minds_company(graphs):
    """Honest about graphs of 5 nodes; about others the answer depends on how many there are."""
    return [(graph.num_edges if graph.num_nodes == 5 else len(graphs)) % 2 for graph in graphs]


DEFENCES = {
    "smoothing": (
        lambda model: fp.SmoothedClassifier(model, fp.EdgeNoise(keep=0.8), num_classes=2),
        {"samples": 100, "seed": 0},
    ),
    "voting": (lambda model: fp.VotingClassifier(model, 3, num_classes=2), {"depth": 0}),
    "a check of its own": (lambda model: DefendedClassifier(model, ChecksMore(), num_classes=2), {}),
}


@pytest.fixture
def tried(monkeypatch):
    """The graphs on which a model of labels is tried."""
    graphs: list[fp.Graph] = []
    original = BlackBoxClassifier.probe

    def noted(classifier, graph, *more: Any):
        graphs.append(graph)
        return original(classifier, graph, *more)

    monkeypatch.setattr(BlackBoxClassifier, "probe", noted)
    return graphs


@pytest.mark.parametrize("kind", DEFENCES)
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("place", [0, _TRIED_FIRST - 1, _TRIED_FIRST, 12])
def test_a_model_is_refused_wherever_the_graph_stands(tmp_path, kind, workers, place):
    make, question = DEFENCES[kind]
    graphs = [*GRAPHS[:place], ODD, *GRAPHS[place:]]
    engine: Any = ThisProcess() if workers == 1 else Processes(workers)
    with pytest.raises(InputError, match="the model must be a function of the noisy graph alone"):
        make(minds_company).certify_all(graphs, engine=engine, **question)
    with pytest.raises(InputError, match="the model must be a function of the noisy graph alone"):
        fp.certify_run(make(minds_company), graphs, out=tmp_path / "run", engine=engine, **question)
    assert not (tmp_path / "run" / "certificates.parquet").exists()
    if place >= _TRIED_FIRST:
        with Store(tmp_path / "run" / "evidence.sqlite", write=False) as store:
            assert place not in store.finished()
    else:
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", DEFENCES)
def test_every_graph_is_tried_once(kind, tried):
    make, question = DEFENCES[kind]
    graphs = [*GRAPHS, *GRAPHS[:3], ODD]
    defence = make(parity)
    wanted = defence.certify_all(graphs, **question)
    assert len(tried) == len({graph.topology for graph in tried}) == len(GRAPHS) + 1
    assert defence.certify_all(graphs, engine=Processes(2), **question) == wanted


def test_what_is_finished_is_not_tried_again(tmp_path, tried):
    make, question = DEFENCES["voting"]
    fp.certify_run(make(parity), GRAPHS, out=tmp_path / "run", **question)
    tried.clear()
    with Store(tmp_path / "run" / "evidence.sqlite", write=True) as store:
        store.drop(10)
    fp.certify_run(make(parity), GRAPHS, out=tmp_path / "run", **question)
    assert tried == [*GRAPHS[:_TRIED_FIRST], GRAPHS[10]]


def test_a_model_that_sees_no_edge_is_tried_on_all_graphs_before_the_work(tried):
    blind = fp.EdgeBlindClassifier(parity, num_classes=2)
    blind.check(GRAPHS)
    assert len(tried) == 1, "without edges all of them are the same graph"
    blind.certify_all([*GRAPHS, ODD])
    assert len(tried) == 3
