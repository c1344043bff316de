"""A shortcut that gives other answers than the model is not taken: the model itself is asked, about every graph of the run."""

import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import flipproof as fp
from flipproof.classifiers.edges import NeighbourLists
from flipproof.classifiers.guard import nodes_batch
from flipproof.classifiers.layers import CONVOLUTIONS, DegreeRows
from flipproof.classifiers.shortcuts import Shortcut
from flipproof.classifiers.torch_module import DenseClassifier
from flipproof.noise import NoisyBatch
from flipproof.runs.saved_run import problems_of_run
from support.guarded import HONEST, MUTANTS, NOISES, ODD, REFUSED, TREE, Applied, ByBatch

NOISE = NOISES[0]
SAYS_SO = "the model itself is asked about every graph of this run"


def smoothed(model, noise=NOISE):
    return fp.SmoothedClassifier(model, noise, features="degree")


def model(part=None):
    return ByBatch(part or nn.ReLU())


def declining(made):
    made.dense_twin = False
    return made


def wrong_weight(layer, output):
    return output * 1.01


def missing_bias(layer, output):
    return output - 0.1


@contextmanager
def erring(mistake):
    """While entered, every convolution of every dense twin makes a mistake."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in (*CONVOLUTIONS.values(), DegreeRows):
            patch.setattr(kind, "forward", _mistaken(kind.forward, mistake))
        yield


def _mistaken(right, mistake):
    return lambda self, *inputs, **options: mistake(self, right(self, *inputs, **options))


@pytest.mark.parametrize("mistake", [wrong_weight, missing_bias])
@pytest.mark.parametrize("part", [nn.ReLU(), Applied(torch.relu)], ids=["known", "a user's own"])
def test_a_twin_that_errs_is_not_used(part, mistake, capsys):
    graphs = [TREE, *ODD]
    wanted = smoothed(declining(model(part))).certify_all(graphs, samples=300, seed=0)
    assert capsys.readouterr().err == ""
    with erring(mistake):
        smooth = smoothed(model(part))
        assert smooth.certify_all(graphs, samples=300, seed=0) == wanted
    assert capsys.readouterr().err.count(SAYS_SO) == 1
    used = [smooth.classifier.suited(graph, NOISE) for graph in graphs]
    assert {each.path for each in used} == {"message passing"}  # of every graph, whatever its size


def test_layers_that_are_not_our_network_are_not_used(monkeypatch, capsys):
    network = fp.models.GCN(in_features=1, num_classes=3, seed=0).eval()
    other = fp.models.GCN(in_features=1, num_classes=3, seed=1).eval().as_pyg()
    assert smoothed(network).classifier.suited(TREE, NOISE).path == "compiled twin"
    monkeypatch.setattr(type(network), "as_pyg", lambda network: other)
    smooth = smoothed(network)
    smooth.check([TREE])
    assert SAYS_SO in capsys.readouterr().err
    used = smooth.classifier.suited(TREE, NOISE)
    assert (used.path, used.remark) == ("dense", "its compiled twin gives other answers")
    batch = nodes_batch(TREE, NOISE)
    assert np.array_equal(used.scores(batch), DenseClassifier.scores(smooth.classifier, batch))


def rolled_where(wrong):
    """Scores of a shortcut that takes some graphs for another class: a mask ``[B]``, or all or none of a batch."""
    right = Shortcut.scores

    def scores(self, batch):
        made = right(self, batch)
        mask = np.broadcast_to(wrong(batch), batch.size)
        return np.where(mask[:, None], np.roll(made, 1, axis=1), made)

    return scores


def degrees(batch):
    return batch.adjacency().sum(axis=2)


def edges(batch):
    return degrees(batch).sum(axis=1) / 2


SEEN: dict[str, Callable[[NoisyBatch], Any]] = {
    "no edge": lambda batch: edges(batch) == 0,
    "dense": lambda batch: edges(batch) > 0.6 * batch.num_nodes**2 / 2,
    "as many edges as noisy copies of a tree have": lambda batch: abs(edges(batch) - 15) < 3,
    "as many edges as noisy copies of a dense graph have": lambda batch: abs(edges(batch) - 53) < 4,
    "a node without edges": lambda batch: (degrees(batch) == 0).any(axis=1),
    "a node with many edges": lambda batch: degrees(batch).max(axis=1) > 7,
    "more than four triangles": lambda batch: (
        np.trace(np.linalg.matrix_power(batch.adjacency().astype(float), 3), axis1=1, axis2=2) > 24
    ),
}
UNSEEN: dict[str, Callable[[NoisyBatch], Any]] = {
    "large batches": lambda batch: batch.num_nodes == 12 and batch.size > 40,
    "most edges of one tree": lambda batch: (
        batch.num_nodes == 12 and ((batch.adjacency() * TREE.adjacency()).sum(axis=(1, 2)) > 14) & (edges(batch) < 20)
    ),
}


@pytest.mark.parametrize("part", [nn.ReLU(), Applied(torch.relu)], ids=["known", "a user's own"])
@pytest.mark.parametrize("where", SEEN)
def test_a_twin_that_errs_on_graphs_such_as_noisy_copies_is_not_used(where, part, monkeypatch, capsys):
    monkeypatch.setattr(Shortcut, "scores", rolled_where(SEEN[where]))
    smooth = smoothed(model(part))
    smooth.check([TREE])
    assert capsys.readouterr().err.count(SAYS_SO) == 1
    assert smooth.classifier.suited(TREE, NOISE).path == "message passing"


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("where", UNSEEN)
def test_what_no_probe_resembles_is_said_and_changes_no_path(where, workers, monkeypatch, capsys):
    graphs, honest = [*ODD, TREE], smoothed(declining(model())).sample(TREE, samples=3000, seed=0)
    monkeypatch.setattr(Shortcut, "scores", rolled_where(UNSEEN[where]))
    smooth = smoothed(model())
    certificates = smooth.certify_all(graphs, samples=3000, seed=0, workers=workers)
    said = capsys.readouterr().err
    assert re.fullmatch(r"flipproof: the shortcut .* about \d+ of \d+ compared samples; .*dense_twin .*\n", said)
    votes = smooth.sample(TREE, samples=3000, seed=0)
    assert smooth.certify_all([TREE], samples=3000, seed=0) == certificates[-1:]
    assert certificates[-1].counts == tuple(votes.counts)
    assert votes.counts.tolist() != honest.counts.tolist()
    assert 0 < votes.differing <= votes.compared == 16
    if where == "large batches":  # the twin's answers, all of them
        assert votes.counts.tolist() == np.roll(honest.counts, 1).tolist()
    assert {smooth.classifier.suited(graph, NOISE).path for graph in graphs} == {"compiled twin"}
    again = type(votes).from_bytes(votes.to_bytes())
    assert (again, again.differing) == (votes, votes.differing)


def test_a_twin_whose_answers_depend_on_the_batch_is_refused(monkeypatch):
    """Of unknown parts, so that nothing else tells; its certificates would be false."""
    monkeypatch.setattr(Shortcut, "scores", rolled_where(UNSEEN["large batches"]))
    with pytest.raises(fp.InputError, match=r"same graph alone.*dense_twin = False"):
        smoothed(model(Applied(torch.relu))).sample(TREE, samples=300, seed=0)
    votes = fp.VotingClassifier(model(Applied(torch.relu)), 48, features="degree")
    with pytest.raises(fp.InputError, match=r"same graph alone.*dense_twin = False"):
        votes.predict(TREE)


def test_sub_graphs_are_compared_too(monkeypatch, capsys):
    monkeypatch.setattr(Shortcut, "scores", rolled_where(UNSEEN["large batches"]))
    votes = fp.VotingClassifier(model(), 48, features="degree").vote(TREE)
    assert "about 1 of 1 compared samples" in capsys.readouterr().err
    assert type(votes).from_bytes(votes.to_bytes()).differing == 1


@pytest.mark.parametrize("wrong", [*SEEN.values(), *UNSEEN.values()], ids=[*SEEN, *UNSEEN])
def test_graphs_that_differ_in_edges_alone_take_the_same_path(wrong, monkeypatch):
    monkeypatch.setattr(Shortcut, "scores", rolled_where(wrong))
    rng, paths = np.random.default_rng(0), set()
    others = [fp.Graph(12, np.argwhere(np.triu(rng.random((12, 12)) < share, 1))) for share in (0.0, 0.2, 0.6, 1.0)]
    for first, second in ((TREE, others[0]), (others[0], TREE), *((graph, TREE) for graph in others[1:])):
        smooth = smoothed(model())
        for graph in (first, second):  # whatever was asked before
            smooth.sample(graph, samples=300, seed=0)
            paths |= {smooth.classifier.suited(each, NOISE).path for each in (first, second)}
    assert len(paths) == 1


def test_a_worker_whose_processor_rounds_otherwise_does_not_go_another_way():
    smooth = smoothed(model())
    smooth.check([TREE])
    assert smooth.classifier.suited(TREE, NOISE).path == "compiled twin"
    worker = pickle.loads(pickle.dumps(smooth))
    with erring(wrong_weight):
        assert worker.classifier.suited(TREE, NOISE).path == "compiled twin"
        assert smoothed(model()).classifier.suited(TREE, NOISE).path == "message passing"


def test_a_run_records_the_path_and_keeps_to_it(tmp_path, capsys):
    graphs = [graph.replaced(label=0) for graph in (*ODD, TREE)]
    asked: dict[str, Any] = {"samples": 300, "seed": 0}
    wanted = smoothed(declining(model())).certify_all(graphs, **asked)
    with erring(wrong_weight):
        assert fp.certify_run(smoothed(model()), graphs, out=tmp_path / "run", **asked) == wanted
    assert capsys.readouterr().err.count(SAYS_SO) == 1
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["paths"]
    assert all(path.startswith("message passing (its compiled twin gives other answers)") for path in recorded)
    again = smoothed(model())  # whose twin is right
    assert fp.certify_run(again, graphs, out=tmp_path / "run", **asked) == wanted
    assert not again.classifier.shortcuts
    assert problems_of_run(tmp_path / "run") == []


def test_a_run_says_once_how_many_samples_differed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Shortcut, "scores", rolled_where(UNSEEN["large batches"]))
    trees = [graph.replaced(label=0) for graph in (TREE, shuffled(TREE))]
    fp.certify_run(smoothed(model()), trees, out=tmp_path / "run", samples=300, seed=0)
    assert re.findall(r"(\d+) of (\d+) compared samples", capsys.readouterr().err) == [("32", "32")]
    assert problems_of_run(tmp_path / "run") == []


SENSITIVE = ["GCN", "GIN", "GraphNorm between sums", "PairNorm", "InstanceNorm", "standard deviations"]
FEW = [ODD[2], TREE]


class _NoisySums(TorchDispatchMode):
    """Every sum of torch is off by a rounding, another one at every call."""

    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__.rstrip("_")
        if name in ("mm", "addmm", "bmm", "index_add", "scatter_add", "sum", "mean") and result.dtype == torch.float32:
            result.mul_(1 + 2.0**-24 * (2 * torch.rand(result.shape, generator=self.generator) - 1))
        return result


@contextmanager
def noisy_twins(share=1e-6):
    """The products of all twins are off by a millionth, another one at every call."""
    rng = torch.Generator().manual_seed(0)

    def off(right):
        def made(*inputs: Any, **more: Any):
            rows = right(*inputs, **more)
            if rows.dtype != torch.float32:
                return rows
            return rows * (1 + share * (2 * torch.rand(rows.shape, generator=rng) - 1))

        return made

    with pytest.MonkeyPatch.context() as patch:
        for name in ("product", "sums"):
            patch.setattr(NeighbourLists, name, off(getattr(NeighbourLists, name)))
        yield


@contextmanager
def other_threads():
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(2)
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)


ARITHMETIC: dict[str, Any] = {"sums": _NoisySums, "twins": noisy_twins, "threads": other_threads}


def shuffled(graph):
    order = np.random.default_rng(0).permutation(graph.num_nodes)
    return graph.replaced(edges=order[graph.edges])


def check_honest(names, graphs, noises):
    for name in names:
        for noise in noises:
            for memory in (2**30, 2**20):  # batches of other sizes
                defence = fp.SmoothedClassifier(HONEST[name](), noise, features="degree", memory=memory)
                defence.check([shuffled(graph) for graph in graphs] if memory == 2**20 else graphs)


@pytest.mark.parametrize("arithmetic", ARITHMETIC)
def test_honest_networks_pass_in_any_arithmetic(arithmetic):
    with ARITHMETIC[arithmetic]():
        check_honest(SENSITIVE[-2:] if arithmetic == "threads" else SENSITIVE, FEW, NOISES[1:2])


@pytest.mark.parametrize("arithmetic", ARITHMETIC)
def test_models_that_depend_on_other_graphs_are_refused_in_any_arithmetic(arithmetic):
    with ARITHMETIC[arithmetic]():
        for mutant in MUTANTS.values():
            with pytest.raises(fp.InputError, match=REFUSED):
                smoothed(ByBatch(mutant())).check([TREE])


def run_guards(select, **variables: str):
    """The tests of the guards in a process with these variables."""
    tests = Path(__file__).with_name("test_guards.py")
    options = ["-q", "-x", "-p", "no:cacheprovider", "-n", "0", "-k", select]
    command = [sys.executable, "-m", "pytest", *options, str(tests)]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, cwd=tests.parents[2])
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.guarantee
@pytest.mark.parametrize("arithmetic", ARITHMETIC)
def test_all_honest_networks_pass_in_any_arithmetic(arithmetic):
    with ARITHMETIC[arithmetic]():
        check_honest(HONEST, [*ODD, TREE, *fp.datasets.topologies(8, seed=0)], NOISES)


@pytest.mark.guarantee
@pytest.mark.parametrize(
    "variable",
    [
        "MKL_ENABLE_INSTRUCTIONS=SSE4_2",
        "MKL_ENABLE_INSTRUCTIONS=AVX2",
        "MKL_ENABLE_INSTRUCTIONS=AVX512",
        "MKL_CBWR=COMPATIBLE",
        "ATEN_CPU_CAPABILITY=default",
        "ATEN_CPU_CAPABILITY=avx2",
        "NUMBA_DISABLE_JIT=1",
        "OMP_NUM_THREADS=2",
    ],
)
def test_the_guards_under_other_instructions(variable):
    name, _, value = variable.partition("=")
    run_guards("honest or refused", **{name: value})
